"""The command ``torch-recmetrics``: files in, numbers out, one clear line for bad input.

Exit codes: 0; 2 for bad input; 1 for a failure of ours; 130 after Ctrl-C. ``gate`` has 3 for rejected and 4 for
undecided.
"""

from __future__ import annotations

import inspect
import itertools
import json
import os
import re
import shutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any, NoReturn

import torch
from torch import distributed

from torch_recmetrics.compare.comparison import Comparison, compare
from torch_recmetrics.compare.gate import Gate
from torch_recmetrics.core.ranking.ties import TIES
from torch_recmetrics.core.tensors.moments import moments
from torch_recmetrics.offline.evaluation import evaluate
from torch_recmetrics.offline.item_to_item import item_to_item
from torch_recmetrics.offline.overlap import overlap
from torch_recmetrics.offline.report import Input, Report, finite
from torch_recmetrics.offline.sources import FORMATS, InputError, digest
from torch_recmetrics.state.intervals import spread_of
from torch_recmetrics.state.options import options_of
from torch_recmetrics.state.ranking_metric import RankingMetric
from torch_recmetrics.state.registry import METRICS
from torch_recmetrics.users.extras import needed
from torch_recmetrics.users.user_values import UserValues

BAD_INPUT, FAILURE, INTERRUPTED = 2, 1, 130
VERDICTS = {"promoted": 0, "rejected": 3, "undecided": 4}
EMPTY_ACTIONS = ("skip", "neg", "pos", "error")
Options = dict[str, Any]
# Options without a default that say something of lists.
OF_LISTS = (
    "score",
    "rank",
    "relevance",
    "weight",
    "seen",
    "slices",
    "train",
    "items",
    "options",
    "candidates",
    "format",
)

# Flags that may be repeated -> the name under which a configuration has them.
REPEATED = {
    "-m": "metric",
    "--metric": "metric",
    "--metrics": "metric",
    "-k": "top_k",
    "--top-k": "top_k",
    "--top_k": "top_k",
    "--better": "better",
    "--not-worse": "not_worse",
    "--not_worse": "not_worse",
    "--lower-is-better": "lower_is_better",
    "--lower_is_better": "lower_is_better",
    "--drop": "drop",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    names: set[str] = set()
    try:
        command, options = parsed(given)
        names |= set(options) - {"runs", "names"}
        with processes() as first, warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: show_warning(message, names)
            return COMMANDS[command](options, Output(as_json=bool(options.pop("json", False)), silent=not first))
    except (InputError, ValueError, TypeError, FileNotFoundError, NotADirectoryError, PermissionError) as error:
        if not is_of_input(error):
            traceback.print_exc()
            return FAILURE
        return complain(with_flags(" ".join(str(error).split()), names), BAD_INPUT)
    except ImportError as error:
        return complain(str(error), FAILURE)
    except KeyboardInterrupt:
        return complain("interrupted: nothing was written", INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # who reads has seen enough
        return 0
    except Exception:  # a failure of ours is told with all there is
        traceback.print_exc()
        return FAILURE


def is_of_input(error: BaseException) -> bool:
    """Whether one of our own checks has raised it: anything else that is raised deep inside is a failure of ours."""
    if isinstance(error, InputError | OSError):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and "torch_recmetrics" in frames[-1].filename


def complain(text: str, code: int) -> int:
    """One line on standard error."""
    sys.stderr.write(f"torch-recmetrics: {text}\n")
    return code


def show_warning(message: Warning | str, names: Collection[str]) -> None:
    """A warning as one line."""
    complain(f"warning: {with_flags(' '.join(str(message).split()), names)}", 0)


def with_flags(text: str, names: Collection[str]) -> str:
    """An error of a function, with flags where it names arguments that the command has as options of these names.

    >>> with_flags("coverage must know the catalogue: give items=, or set `top_k`", {"items", "top_k"})
    'coverage must know the catalogue: give --items, or set --top-k'
    """

    def flag(found: re.Match[str]) -> str:
        name = "metric" if found["name"] == "metrics" else found["name"]
        if name not in names:
            return found[0]
        value = (found.groupdict().get("value") or "").strip("'")
        if value.startswith("{"):
            value = f"'{value.replace(chr(39), chr(34))}'"
        return " ".join(["--" + name.replace("_", "-"), *([value] if value else [])])

    text = re.sub(r"`(?P<name>\w+)`", flag, text)
    return re.sub(r"(?<![\w'\"/-])(?P<name>[a-z]\w*)=(?P<value>\{.*\}|'\w+'|(?=[,;. ]|$))", flag, text)


class Output:
    """What goes to standard output: a table, or JSON.

    Args:
        as_json: JSON.
        silent: nothing, as for all processes but the first.
    """

    def __init__(self, *, as_json: bool, silent: bool) -> None:
        self.as_json, self.silent = as_json, silent

    def show(self, text: str, content: Callable[[], str]) -> None:
        """A table as text, or `content` in its place."""
        if not self.silent:
            sys.stdout.write((content() if self.as_json else text).rstrip("\n") + "\n")
            sys.stdout.flush()


@contextmanager
def processes() -> Iterator[bool]:
    """Join the processes that torchrun has started, if it has; whether this is the first of them."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "RANK" not in os.environ or distributed.is_initialized():
        yield not distributed.is_initialized() or distributed.get_rank() == 0
        return
    distributed.init_process_group("gloo")
    try:
        yield distributed.get_rank() == 0
    finally:
        distributed.destroy_process_group()


# Arguments ------------------------------------------------------------------------------------------------------------


def parsed(argv: list[str]) -> tuple[str, Options]:
    """The command and its options; a line on standard error and SystemExit for what is none."""
    jsonargparse = needed("jsonargparse", "the command torch-recmetrics")

    class Parser(jsonargparse.ArgumentParser):  # type: ignore[misc, name-defined]
        def error(self, message: str, ex: Exception | None = None) -> NoReturn:  # noqa: ARG002
            sys.exit(complain(" ".join(message.split()) + f" (see {self.prog.split(' [')[0]} --help)", BAD_INPUT))

    parser = Parser(
        prog="torch-recmetrics", description="Recommendation metrics of files: lists and truths in, numbers out."
    )
    commands = parser.add_subcommands(dest="command", metavar="COMMAND")
    for name, add in ARGUMENTS.items():
        own = Parser(description=inspect.getdoc(COMMANDS[name]))
        own.add_argument("--config", action="config", help="a YAML file with any of these options; flags win")
        own.add_argument("--json", action="store_true", help="JSON on standard output")
        add(own)
        commands.add_subcommand(name, own, help=(inspect.getdoc(COMMANDS[name]) or "").partition("\n")[0])
    try:
        found = parser.parse_args(arranged(argv)).as_dict()
    except UnicodeDecodeError:
        raise InputError("the file of --config must be YAML in UTF-8") from None
    command = str(found["command"])
    options = {name: value for name, value in found[command].items() if name != "config"}
    return command, options


def arranged(argv: list[str]) -> list[str]:
    """Arguments with the configuration first, so that flags win over it, and each repeated flag as one list."""
    if not argv or argv[0].startswith("-"):
        return argv
    first, rest, lists = [], [], dict[str, list[str]]()
    tokens = iter(argv[1:])
    for token in tokens:
        flag, equals, value = token.partition("=") if token.startswith("--") else (token, "", "")
        if flag not in REPEATED and flag != "--config":
            rest.append(token)
            continue
        text = value if equals else next(tokens, None)
        if text is None:
            return argv  # the parser says what is missing
        if flag == "--config":
            first += ["--config", text]
        else:
            lists.setdefault(REPEATED[flag], []).append(text)
    return [argv[0], *first, *(f"--{name}={json.dumps(values)}" for name, values in lists.items()), *rest]


def add_input(parser: Any) -> None:
    """The options that all commands of files have."""
    parser.add_argument(
        "--format", type=str | None, help=f"of the files: {', '.join(FORMATS)}; by default their suffix"
    )
    parser.add_argument("--memory_limit", "--memory-limit", type=str | None, help="of DuckDB, such as 1GB")
    parser.add_argument(
        "--temp_directory", "--temp-directory", type=str | None, help="for what does not fit into memory"
    )
    parser.add_argument("--threads", type=int | None, help="of DuckDB")
    parser.add_argument("--level", type=float, default=0.95, help="of the intervals")


def add_evaluation(parser: Any) -> None:
    """The options of an evaluation but for the lists."""
    add_input(parser)
    parser.add_argument("--truth", type=str | list[str] | None, help="a file or pattern of users and relevant items")
    parser.add_argument("--metric", type=list[str] | None, help="-m NAME or -m NAME@K, as often as needed")
    parser.add_argument("--top_k", type=list[int] | int | None, help="-k K, as often as needed: of metrics without @K")
    parser.add_argument("--user", type=str, default="user_id", help="the column of users")
    parser.add_argument("--item", type=str, default="item_id", help="the column of items")
    parser.add_argument("--score", type=str | None, help="the column of scores")
    parser.add_argument("--rank", type=str | None, help="the column of ranks, in place of scores")
    parser.add_argument("--relevance", type=str | None, help="the column of the truth with relevance; by default 1")
    parser.add_argument("--weight", type=str | None, help="the column of the truth with the weight of the user")
    parser.add_argument("--seen", type=str | None, help="a file of users and items that must not be recommended")
    parser.add_argument(
        "--seen_action",
        "--seen-action",
        type=str,
        default="remove",
        help="remove them from the lists, or miss: no hits",
    )
    parser.add_argument("--slices", type=str | None, help="a file of users and slices")
    parser.add_argument("--train", type=str | None, help="a file of users and items of the training data")
    parser.add_argument("--train_overlap", "--train-overlap", type=str, default="error", help="error or keep")
    parser.add_argument("--items", type=str | None, help="a file with the catalogue")
    parser.add_argument(
        "--options", type=dict[str, Any] | None, help='of single metrics, {"map": {"denominator": "hits"}}'
    )
    parser.add_argument("--ties", type=str, default="average", help=f"how equal scores count: {', '.join(TIES)}")
    parser.add_argument(
        "--empty_target_action", "--empty-target-action", type=str, default="skip", help=", ".join(EMPTY_ACTIONS)
    )
    parser.add_argument("--candidates", type=str | None, help="what was ranked, such as full or sampled(100)")
    parser.add_argument("--progress", type=bool | None, help="by default where standard error is a terminal")


def add_evaluate(parser: Any) -> None:
    parser.add_argument("--recommendations", type=str | list[str] | None, help="a file or pattern of lists")
    parser.add_argument("--report", type=str | None, help="a folder for report.html, report.json and users.parquet")
    add_evaluation(parser)


def add_compare(parser: Any) -> None:
    parser.add_argument("runs", nargs="*", type=str, help="NAME=FILE of lists (with --truth) or of values of users")
    parser.add_argument("--baseline", type=str | None, help="the name that the others are compared with; the first")
    parser.add_argument("--test", type=str, default="randomization", help="randomization, t, wilcoxon or bootstrap")
    parser.add_argument("--correction", type=str | None, default="holm", help="holm, bh or null")
    parser.add_argument("--num_draws", "--num-draws", type=int, default=10_000, help="of the test")
    parser.add_argument("--seed", type=int, default=0, help="of the test")
    parser.add_argument("--report", type=str | None, help="a folder for report.html, report.json and users of each run")
    add_evaluation(parser)


def add_gate(parser: Any) -> None:
    parser.add_argument(
        "runs", nargs="*", type=str, help="CANDIDATE INCUMBENT: files of lists (with --truth) or of users"
    )
    parser.add_argument("--better", type=list[str] | None, help="a metric in which the candidate must win")
    parser.add_argument("--not_worse", type=list[str] | dict[str, float] | None, help="METRIC=MARGIN, a relative loss")
    parser.add_argument("--lower_is_better", type=list[str] | None, help="a metric in which less is better")
    parser.add_argument("--report", type=str | None, help="a folder for verdict.json")
    add_evaluation(parser)


def add_item_to_item(parser: Any) -> None:
    parser.add_argument("--similar", type=str | None, help="a file of item1, item2, score")
    parser.add_argument("--behaviour", type=str | None, help="a file of user, item, relevance, time")
    parser.add_argument("--top_k", type=list[int] | int | None, help="-k K, as often as needed")
    parser.add_argument("--horizon", type=int, default=1, help="how many events ahead")
    parser.add_argument("--report", type=str | None, help="a folder for report.html, report.json and users.parquet")
    for name in ("item1", "item2", "score", "user", "item", "time"):
        parser.add_argument(f"--{name}", type=str, default=name, help="the name of the column")
    parser.add_argument("--relevance", type=str | None, default="relevance", help="the name of the column, or null")
    parser.add_argument("--ties", type=str, default="average", help=f"how equal scores count: {', '.join(TIES)}")
    parser.add_argument("--gain", type=str, default="exponential", help="exponential or linear")
    add_input(parser)


def add_overlap(parser: Any) -> None:
    for name in ("train", "test"):
        parser.add_argument(f"--{name}", type=str | None, help="a file of users and items, with their time or without")
    parser.add_argument("--drop", type=list[str] | bool | None, help="kinds to take out of the test data")
    parser.add_argument("--output", type=str | None, help="a Parquet file for the test data without what was dropped")
    for name in ("user", "item", "time"):
        parser.add_argument(f"--{name}", type=str | None, help="the name of the column")
    add_input(parser)


def add_metrics(parser: Any) -> None:
    parser.add_argument("names", nargs="*", type=str, help="some of them")


# Commands -------------------------------------------------------------------------------------------------------------


def run_evaluate(options: Options, output: Output) -> int:
    """The values of metrics of recommended lists.

    torch-recmetrics evaluate --recommendations 'recs/*.parquet' --truth test.parquet -m ndcg@10 -m hit_rate@10
    """
    lists, folder = required(options, "recommendations"), folder_of(options)
    report = evaluated(lists, options | {"curves": folder is not None})
    if folder is not None and not output.silent:
        write_folder(folder, files_of(report))
    output.show(str(report), report.to_json)
    return 0


def run_compare(options: Options, output: Output) -> int:
    """The paired difference of several runs from a baseline, on the same users.

    torch-recmetrics compare popularity=a.parquet mf=b.parquet --truth test.parquet -m ndcg@10 --baseline popularity
    """
    runs, folder = options.pop("runs"), folder_of(options)
    named = dict(run.partition("=")[::2] for run in runs)
    if len(runs) < 2 or len(named) < len(runs) or not all(named.values()) or not all(named):
        raise InputError(f"compare needs two runs or more as NAME=FILE, each name once, got {' '.join(runs) or 'none'}")
    own = {name: options.pop(name) for name in ("test", "correction", "num_draws", "seed")}
    baseline = options.pop("baseline") or next(iter(named))
    level, reports, values = options["level"], dict[str, Report](), dict[str, UserValues]()
    for name, path in named.items():
        report, values[name] = users_of(name, path, dict(options))
        reports[name] = report or report_of_users(path, values[name], level)
    if baseline not in values:
        raise InputError(f"`baseline` must be one of {', '.join(values)}, got {baseline!r}")
    # Lists have the metrics that were asked for; files of values may have more, which would be tests too.
    chosen = options["metric"] if options["truth"] is None else None
    table = compare(values, baseline=baseline, metrics=chosen, level=level, **own)
    if folder is not None and not output.silent:
        write_folder(folder, files_of_comparison(table, reports, values, level))
    output.show(str(table), lambda: json_of([asdict(row) for row in table.rows]))
    return 0


def run_gate(options: Options, output: Output) -> int:
    """Does the candidate take the place of the incumbent? Exit 0 promoted, 3 rejected, 4 undecided.

    torch-recmetrics gate new.parquet old.parquet --truth test.parquet --better ndcg@10 --not-worse recall@20=0.02
    """
    runs, folder = options.pop("runs"), folder_of(options)
    if len(runs) != 2:
        raise InputError(f"gate needs two files, of the candidate and of the incumbent, got {' '.join(runs) or 'none'}")
    better, lower = options.pop("better") or (), options.pop("lower_is_better") or ()
    given = options.pop("not_worse") or {}
    margins = given if isinstance(given, Mapping) else dict(margin_of(text) for text in given)
    gate = Gate(better=better, not_worse=margins, level=options["level"], lower_is_better=lower)
    if not options["metric"]:
        options["metric"] = list(dict.fromkeys([*gate.better, *margins]))
    candidate, incumbent = (
        users_of(name, path, dict(options))[1] for name, path in zip(("candidate", "incumbent"), runs)
    )
    verdict = gate.decide(candidate, incumbent)
    if folder is not None and not output.silent:
        write_folder(folder, {"verdict.json": verdict.to_json})
    output.show(str(verdict), verdict.to_json)
    return VERDICTS[verdict.outcome]


def run_item_to_item(options: Options, output: Output) -> int:
    """An item-to-item table against what users did next.

    torch-recmetrics item-to-item --similar i2i.parquet --behaviour log.parquet -k 5 -k 10 -k 20
    """
    similar, behaviour = required(options, "similar"), required(options, "behaviour")
    folder, top_k = folder_of(options), options.pop("top_k")
    refuse_format(options)
    report = item_to_item(similar, behaviour, (5, 10, 20) if top_k is None else top_k, **options)
    if folder is not None and not output.silent:
        write_folder(folder, files_of(report))
    output.show(str(report), report.to_json)
    return 0


def run_overlap(options: Options, output: Output) -> int:
    """What training and test data share.

    torch-recmetrics overlap --train train.parquet --test test.parquet
    """
    train, test, target = required(options, "train"), required(options, "test"), options.pop("output")
    if target is not None and (not target or Path(target).is_dir()):
        raise InputError(f"`output` must be a Parquet file, {target!r} is {'a folder' if target else 'none'}")
    refuse_format(options)
    options.pop("level")
    found = overlap(train, test, options.pop("drop") or target is not None, **options)
    if target is not None and not output.silent:
        parquet = needed("pyarrow.parquet", "--output")
        write_whole(Path(target), lambda path: parquet.write_table(found.kept, path))
    output.show(str(found), found.to_json)
    return 0


def run_metrics(options: Options, output: Output) -> int:
    """What metrics there are: name, sentence, options, undefined case."""
    names = options["names"] or list(METRICS)
    if unknown := [name for name in names if name not in METRICS]:
        raise InputError(f"there is no metric {unknown[0]!r}: there are {', '.join(METRICS)}")
    about = [about_metric(name) for name in names]
    lines = []
    for own in about:
        lines += [f"{own['name']}: {own['sentence']}", f"    options: {', '.join(own['options'])}"]
        lines += [f"    undefined: {own['undefined']}"] if own["undefined"] else []
    output.show("\n".join(lines), lambda: json_of(about))
    return 0


COMMANDS: dict[str, Callable[[Options, Output], int]] = {
    "evaluate": run_evaluate,
    "compare": run_compare,
    "gate": run_gate,
    "item-to-item": run_item_to_item,
    "overlap": run_overlap,
    "metrics": run_metrics,
}
ARGUMENTS: dict[str, Callable[[Any], None]] = {
    "evaluate": add_evaluate,
    "compare": add_compare,
    "gate": add_gate,
    "item-to-item": add_item_to_item,
    "overlap": add_overlap,
    "metrics": add_metrics,
}


def about_metric(name: str) -> dict[str, Any]:
    """What the docstring and the options of a metric say."""
    metric = METRICS[name]
    text = inspect.getdoc(metric) or ""
    undefined = re.search(r"Undefined: (.*?)(?:\n[A-Z]\w*:|\n\n|$)", text, re.DOTALL)
    declared = {option: own for option, own in options_of(metric).items() if own.config is not False}
    return {
        "name": name,
        "sentence": " ".join(text.partition("\n\n")[0].split()),
        "options": list(declared),
        "undefined": " ".join(undefined[1].split()) if undefined else "",
        "reads": "ranked lists" if issubclass(metric, RankingMetric) else "labelled rows",
    }


def margin_of(text: str) -> tuple[str, float]:
    """``recall@20=0.02`` as a metric and its margin."""
    name, _, margin = text.partition("=")
    try:
        return name, float(margin)
    except ValueError:
        raise InputError(f"`not_worse` must be METRIC=MARGIN, such as recall@20=0.02, got {text!r}") from None


def required(options: Options, name: str) -> Any:
    """An option that must be given."""
    value = options.pop(name)
    if value is None:
        raise InputError(f"--{name} is missing: give it as a flag or in the file of --config")
    return value


def refuse_format(options: Options) -> None:
    """The format of files is that of their suffix in commands that have no TREC files."""
    if options.pop("format") is not None:
        raise InputError("`format` is for evaluate, compare and gate: here the suffix of a file says what it is")


def evaluated(lists: Any, options: Options) -> Report:
    """The report of one run."""
    own = dict(options)
    metrics, top_k, truth = own.pop("metric"), own.pop("top_k"), required(own, "truth")
    if own["progress"] is None:
        own["progress"] = sys.stderr.isatty()
    if own["threads"] is None and "LOCAL_WORLD_SIZE" in os.environ:  # a process has its part of the machine
        own["threads"] = max(1, (os.cpu_count() or 1) // int(os.environ["LOCAL_WORLD_SIZE"]))
    if top_k is not None:
        own["top_k"] = top_k
    if metrics:
        own["metrics"] = metrics
    return evaluate(lists, truth, **own)


def users_of(name: str, path: str, options: Options) -> tuple[Report | None, UserValues]:
    """The values of users of a run: of lists, or of a file that has them."""
    if options["truth"] is None:
        if unread := [name for name in ("top_k", *OF_LISTS) if options[name] is not None]:
            raise InputError(f"`{unread[0]}` is of lists, with --truth: {path!r} is read as values of users")
        try:
            return None, UserValues.load(path)
        except (FileNotFoundError, ValueError) as error:
            raise InputError(f"{error}; lists of items need --truth") from None
    try:
        report = evaluated(path, options)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    if report.users is None or not (list(report.users) or report.users.summaries):
        raise InputError(f"`metric` must name a mean over users, got {', '.join(report)}, which {name} has no users of")
    return report, report.users


def report_of_users(path: str, users: UserValues, level: float) -> Report:
    """What a file of values of users says of all of them: means, with the intervals that their metrics have."""
    values, intervals = {}, {}
    weights = torch.ones(len(users), dtype=torch.float64) if users.weights is None else users.weights
    for name in users:
        metric: Any = METRICS.get(name.partition("@")[0], RankingMetric)
        weight = weights.masked_fill(users[name].isnan(), 0)
        sums = moments((users[name].nan_to_num() * weight).unsqueeze(1), weight.unsqueeze(1))[:, 0]
        bounds, zero_one = (metric.plot_lower_bound, metric.plot_upper_bound), metric.zero_one
        low, high = spread_of(sums).interval(level, None, bounds, zero_one=zero_one)
        values[name], intervals[name] = users.mean(name), (float(low), float(high))
    z = NormalDist().inv_cdf((1 + level) / 2)
    for name, (value, error) in users.summaries.items():
        values[name], intervals[name] = value, (value - z * error, value + z * error)
    definitions = {name: text for name, text in users.definitions.items() if name in values}
    inputs = [Input("values of users", path, len(users), digest(Path(path)))]
    return Report(values, intervals, definitions=definitions, inputs=inputs, level=level)


# What is written ------------------------------------------------------------------------------------------------------


def folder_of(options: Options) -> str | None:
    """Where a report is to go, refused before anything is worked out where it cannot."""
    folder: str | None = options.pop("report")
    if folder is not None and (not folder or (Path(folder).exists() and not Path(folder).is_dir())):
        raise InputError(f"`report` must be a folder, {folder!r} is {'a file' if folder else 'none'}")
    return folder


def json_of(content: Any) -> str:
    return json.dumps(finite(content), indent=2, ensure_ascii=False, allow_nan=False)


def files_of(report: Report) -> dict[str, Callable[[Path], object]]:
    """The files of a report."""
    users = report.users
    files: dict[str, Callable[[Path], object]] = {"report.json": report.to_json, "report.html": report.to_html}
    return files if users is None else {**files, "users.parquet": users.save}


def files_of_comparison(
    table: Comparison, reports: Mapping[str, Report], values: Mapping[str, UserValues], level: float
) -> dict[str, Callable[[Path], object]]:
    """The files of a comparison: one page, and the values of the users of each run."""
    found = {f"{system}: {name}": value for system, own in reports.items() for name, value in own.items()}
    intervals = {f"{system}: {name}": ends for system, own in reports.items() for name, ends in own.intervals.items()}
    inputs = inputs_of_systems({system: own.inputs for system, own in reports.items()})
    report = Report(found, intervals, inputs=inputs, details={"comparison": table}, level=level, title="Comparison")
    files = files_of(report) | {"comparison.csv": table.to_csv}
    for name, own in values.items():
        stem = f"users_{re.sub(r'[^A-Za-z0-9._-]', '_', name)}"
        taken = {file.lower() for file in files}  # two names may be one in a file, on some disks whatever their case
        ways = itertools.chain([stem], (f"{stem}_{number}" for number in itertools.count(2)))
        files[next(f"{way}.parquet" for way in ways if f"{way}.parquet".lower() not in taken)] = own.save
    return files


def inputs_of_systems(inputs: Mapping[str, Sequence[Input]]) -> list[Input]:
    """What was read for which system; what all of them share once, without the name of one."""
    shared = [given for given in next(iter(inputs.values()), ()) if all(given in own for own in inputs.values())]
    shared = [given for given in shared if given.role != "recommendations"]
    return [
        *(
            replace(given, role=f"{name}: {given.role}")
            for name, own in inputs.items()
            for given in own
            if given not in shared
        ),
        *shared,
    ]


def write_folder(folder: str, files: Mapping[str, Callable[[Path], object]]) -> None:
    """Write files into a folder, which is made; all of them, or where one fails none."""
    target = Path(folder)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise InputError(f"`report`: {folder!r} cannot be written: {error.strerror}") from None
    try:
        for name, write in files.items():
            write(draft / name)
        target.mkdir(exist_ok=True)
        for name in files:
            os.replace(draft / name, target / name)
    except OSError as error:
        raise InputError(f"`report`: {folder!r} cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file whole or not at all."""
    if not path.parent.is_dir():
        raise InputError(f"`output`: there is no folder {str(path.parent)!r}")
    draft = path.with_name(f".{path.name}.draft")
    try:
        write(draft)
        os.replace(draft, path)
    except OSError as error:
        why = error.strerror or str(error).replace(str(draft), str(path))
        raise InputError(f"`output`: {str(path)!r} cannot be written: {why}") from None
    finally:
        draft.unlink(missing_ok=True)
