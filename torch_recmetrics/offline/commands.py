"""The command ``torch-recmetrics``: files in, numbers out, one clear line for bad input.

Exit codes: 0; 2 for bad input; 1 for a failure of ours; 130 after Ctrl-C. ``gate`` has 3 for rejected and 4 for
undecided.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from torch import distributed

from torch_recmetrics.collection.ranking import check_names, cutoffs_of
from torch_recmetrics.compare.agreement import agreement, metric_named
from torch_recmetrics.compare.comparison import TESTS, compare
from torch_recmetrics.compare.gate import Gate
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.offline.arguments import add_arguments, arranged, refusal_of
from torch_recmetrics.offline.evaluation import LEAST_KEPT_RANKS, evaluate
from torch_recmetrics.offline.inputs.sources import SUFFIXES, InputError, suffix_of
from torch_recmetrics.offline.inputs.spark import is_spark, read_by_spark, spark_errors
from torch_recmetrics.offline.item_to_item import item_to_item
from torch_recmetrics.offline.measuring import place_of_process
from torch_recmetrics.offline.members import CUTOFFS
from torch_recmetrics.offline.off_policy import off_policy
from torch_recmetrics.offline.outputs import (
    Files,
    files_of,
    files_of_comparison,
    folder_of,
    report_of_users,
    write_folder,
    write_whole,
)
from torch_recmetrics.offline.overlap import overlap
from torch_recmetrics.offline.reports.glossary import about_metric, full_text, list_text, ordered_names
from torch_recmetrics.offline.reports.report import Report
from torch_recmetrics.state.metric import warn
from torch_recmetrics.users.extras import needed
from torch_recmetrics.users.texts import json_text
from torch_recmetrics.users.user_values import UserValues, own_version

BAD_INPUT, FAILURE, INTERRUPTED = 2, 1, 130
VERDICTS = {"promoted": 0, "rejected": 3, "undecided": 4}
Options = dict[str, Any]
# Options of lists that mean something for values of users too.
OF_USERS_TOO = ("truth", "metric", "keep_lists", "level", "progress", "memory_limit", "temp_directory", "threads")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    names: set[str] = set()
    try:
        command, options = parsed(given)
        names |= set(options) - {"runs", "names"}
        with processes() as first, warnings.catch_warnings():
            warnings.showwarning = lambda text, *_, **__: complain(  # type: ignore[assignment]
                f"warning: {with_flags(str(text), names)}", 0
            )
            return COMMANDS[command](options, Output(options, silent=not first)) or 0
    except KeyboardInterrupt:
        return complain("interrupted: nothing was written", INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # who reads has seen enough
        return 0
    except ImportError as error:
        return complain(str(error), FAILURE)
    except Exception as error:
        if is_of_input(error):
            return complain(with_flags(str(error), names), BAD_INPUT)
        traceback.print_exc()  # a failure of ours is told with all there is
        return FAILURE


def is_of_input(error: BaseException) -> bool:
    """Whether one of our own checks has raised it: anything else that is raised deep inside is a failure of ours."""
    if isinstance(error, InputError | FileNotFoundError | NotADirectoryError | PermissionError):
        return True
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    own = frame.f_globals.get("__name__", "").startswith("torch_recmetrics.")  # not its path: a clone may be called so
    return own and isinstance(error, ValueError | TypeError)


def complain(text: str, code: int) -> int:
    """One line on standard error."""
    sys.stderr.write(f"torch-recmetrics: {text}\n")
    return code


def with_flags(text: str, names: Collection[str]) -> str:
    """An error in one line, with flags where it names arguments that the command has as options of these names.

    >>> with_flags("coverage must know the catalogue: give items=, or set `top_k`", {"items", "top_k"})
    'coverage must know the catalogue: give --items, or set --top-k'
    >>> with_flags("give metrics=('ndcg@10', 'mrr@10') to compare what all have", {"metric"})
    'give -m ndcg@10 -m mrr@10 to compare what all have'

    A definition stays as it is.

    >>> with_flags("a is of NDCG(top_k=10, ties='average')", {"ties"})
    "a is of NDCG(top_k=10, ties='average')"
    """

    def flag(found: re.Match[str]) -> str:
        name = "metric" if found["name"] == "metrics" else found["name"]
        if name not in names:
            return found[0]
        value = (found.groupdict().get("value") or "").strip("'")
        if name == "metric" and value.startswith("("):
            return " ".join(f"-m {each}" for each in re.findall(r"'([^']+)'", value))
        if value.startswith("{"):
            value = f"'{value.replace(chr(39), chr(34))}'"
        return " ".join(["--" + name.replace("_", "-"), *([value] if value else [])])

    text = re.sub(r"`(?P<name>\w+)`", flag, " ".join(text.split()))
    given = r"(?<![\w'\"/-])(?P<name>[a-z]\w*)=(?P<value>\{.*\}|\('.*?',?\)|'\w+'|(?=[,;. ]|$))"
    parts = re.split(r"(\b[A-Z]\w*\((?:[^()]|\([^()]*\))*\))", text)  # calls stand at the odd places
    return "".join(part if place % 2 else re.sub(given, flag, part) for place, part in enumerate(parts))


class Output:
    """Where what was found goes: a table or JSON to standard output, files to the folder of a report.

    Args:
        options: of the command; those of its output are taken out.
        silent: nothing goes anywhere, as for all processes but the first.
    """

    def __init__(self, options: Options, *, silent: bool) -> None:
        self.as_json, self.silent = options.pop("json"), silent
        self.folder = folder_of(options)

    def show(self, found: object, content: Callable[[], str], files: Files | None = None) -> None:
        """What was found as text, or `content` in its place, and its files."""
        if self.silent:
            return
        if self.folder is not None and files is not None:
            write_folder(self.folder, files)
        sys.stdout.write((content() if self.as_json else str(found)).rstrip("\n") + "\n")
        sys.stdout.flush()


@contextmanager
def processes() -> Iterator[bool]:
    """Join the processes that torchrun has started, if it has; whether this is the first of them."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "RANK" not in os.environ or distributed.is_initialized():
        yield place_of_process()[0] == 0
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
            options = [flag.lstrip("-") for action in self._actions for flag in action.option_strings]
            text, command = refusal_of(" ".join(message.split()), options), self.prog.replace(" [options]", "")
            sys.exit(complain(f"{text} (see {command} --help)", BAD_INPUT))

    parser = Parser(
        prog="torch-recmetrics",
        description="Recommendation metrics of files: lists and truths in, numbers out.",
        version=own_version(),
    )
    commands = parser.add_subcommands(dest="command", metavar="COMMAND")
    for name, run in COMMANDS.items():
        own = Parser(description=inspect.getdoc(run))
        own.add_argument("--config", action="config", help="a YAML file with any of these options; flags win")
        own.add_argument("--json", action="store_true", help="JSON on standard output")
        add_arguments(own, name)
        commands.add_subcommand(name, own, help=own.description.partition("\n")[0])
    if argv and argv[0].startswith("-") and argv[0] not in ("-h", "--help", "--version"):
        raise InputError(f"the command comes before its options, got {argv[0]!r} first (see torch-recmetrics --help)")
    try:
        found = parser.parse_args(arranged(argv)).as_dict()
    except UnicodeDecodeError:
        raise InputError("the file of --config must be YAML in UTF-8") from None
    command = str(found["command"])
    return command, {name: value for name, value in found[command].items() if name != "config"}


# Commands -------------------------------------------------------------------------------------------------------------


def run_evaluate(options: Options, output: Output) -> None:
    """The values of metrics of recommended lists.

    torch-recmetrics evaluate --recommendations 'recs/*.parquet' --truth test.parquet -m ndcg@10 -m hit_rate@10
    """
    lists = required(options, "recommendations")
    with engine_of(options) as read:
        files = ("truth", "seen", "slices", "train", "items", "groups", "propensities")
        options |= {name: read(options[name]) for name in files} | {"curves": output.folder is not None}
        report = evaluated(read(lists), options)
    output.show(report, report.to_json, files_of(report))


def run_compare(options: Options, output: Output) -> None:
    """The paired difference of several runs from a baseline, on the same users.

    torch-recmetrics compare popularity=a.parquet mf=b.parquet --truth test.parquet -m ndcg@10 --baseline popularity
    """
    runs = words_of(options, "runs")
    named = dict(run.partition("=")[::2] for run in runs)
    if len(runs) < 2 or len(named) < len(runs) or not all(named.values()) or not all(named):
        raise InputError(f"compare needs two runs or more as NAME=FILE, each name once, got {' '.join(runs) or 'none'}")
    own = {name: options.pop(name) for name in ("test", "correction", "num_draws", "seed")}
    baseline = options.pop("baseline") or next(iter(named))
    if baseline not in named:
        raise InputError(f"`baseline` must be one of {', '.join(named)}, got {baseline!r}")
    check.check_choice("test", own["test"], TESTS)
    if options["slices"] is not None and output.folder is None:
        raise InputError("`slices` are in the report of a comparison alone: give --report")
    options["keep_lists"] = options["truth"] is not None
    level, reports, values = options["level"], dict[str, Report](), dict[str, UserValues]()
    for name, path in named.items():
        report, values[name] = users_of(name, path, dict(options))
        reports[name] = report or report_of_users(path, values[name], level)
    # Lists have the metrics that were asked for; files of values may have more, which would be tests too.
    chosen = options["metric"] if options["truth"] is None else None
    table = compare(values, baseline=baseline, metrics=chosen, level=level, **own)
    comparable = {*values[baseline], *values[baseline].summaries}
    if left_out := [m for m in reports[baseline] if m not in comparable and "/" not in m]:
        warn(f"{', '.join(left_out)}: one value of all lists, not a mean over users, so not compared")
    files = files_of_comparison(table, reports, values, level)
    output.show(table, lambda: json_text(table.to_records()), files)


def run_gate(options: Options, output: Output) -> int:
    """Does the candidate take the place of the incumbent? Exit 0 promoted, 3 rejected, 4 undecided.

    torch-recmetrics gate new.parquet old.parquet --truth test.parquet --better ndcg@10 --not-worse recall@20=0.02
    """
    runs = words_of(options, "runs")
    if len(runs) != 2:
        raise InputError(f"gate needs two files, of the candidate and of the incumbent, got {' '.join(runs) or 'none'}")
    better, lower = options.pop("better") or (), options.pop("lower_is_better") or ()
    margins = numbers_of(options, "not_worse", "recall@20=0.02")
    bounds = numbers_of(options, "not_less", "overlap@10=0.5")
    gate = Gate(better=better, not_worse=margins, not_less=bounds, level=options["level"], lower_is_better=lower)
    agreeing = {name: own for name in bounds if (own := metric_named(name))}
    options["keep_lists"] = bool(agreeing)
    # Of a metric of several values, exposure@10/indie, the name of all of them.
    asked = (name.partition("/")[0] for name in [*gate.better, *margins, *bounds] if name not in agreeing)
    metrics = options["metric"] or list(dict.fromkeys(asked))
    deepest = max((own.top_k or 1 for own in agreeing.values()), default=1)
    if not metrics or deepest > LEAST_KEPT_RANKS:  # lists are kept to the largest cutoff
        metrics = [*metrics, f"user_coverage@{deepest}"]
    options["metric"] = metrics
    (one, candidate), (other, incumbent) = (
        users_of(name, path, dict(options)) for name, path in zip(("candidate", "incumbent"), runs)
    )
    verdict = gate.decide(candidate, incumbent)
    if one is not None and other is not None:  # lists, not values of users
        verdict.record["notes"] = {"candidate": one.notes, "incumbent": other.notes}
    output.show(verdict, verdict.to_json, {"verdict.json": verdict.to_json})
    return VERDICTS[verdict.outcome]


def run_agreement(options: Options, output: Output) -> None:
    """How much the lists of two files agree, for the users of the first: how many users will see something else.

    torch-recmetrics agreement old.parquet new.parquet -k 10
    """
    runs, top_k, persistence = words_of(options, "runs"), options.pop("top_k"), options.pop("persistence")
    if len(runs) != 2:
        raise InputError(f"agreement needs two files of lists, got {' '.join(runs) or 'none'}")
    cutoffs = cutoffs_of(10 if top_k is None else top_k)
    for cutoff in cutoffs:
        check.check_positive("top_k", cutoff)
    reports = [evaluate(lists, runs[0], ["user_coverage"], max(cutoffs), keep_lists=True, **options) for lists in runs]
    overlaps, jaccards, taus = ([f"{stem}@{k}" for k in cutoffs] for stem in ("overlap", "jaccard", "kendall_tau"))
    users = dict(zip(("old", "new"), (report.users for report in reports)))
    metrics = [*overlaps, *jaccards, "rbo", *taus]
    table = agreement(users, metrics, level=options["level"], persistence=persistence)
    counts = reports[1].counts
    if counts["users_without_list"]:
        warn(
            f"{counts['users_without_list']} of {counts['users']} users have no list in {runs[1]!r}: they share nothing"
        )
    if counts["rows_without_truth"]:
        warn(
            f"{counts['rows_without_truth']} rows of {runs[1]!r} are of users without a list in {runs[0]!r}, and are "
            "left out"
        )
    output.show(table, table.to_json)


def run_item_to_item(options: Options, output: Output) -> None:
    """An item-to-item table against what users did next.

    torch-recmetrics item-to-item --similar i2i.parquet --behaviour log.parquet -k 5 -k 10 -k 20
    """
    similar, behaviour, top_k = required(options, "similar"), required(options, "behaviour"), options.pop("top_k")
    with engine_of(options) as read:
        report = item_to_item(read(similar), read(behaviour), CUTOFFS if top_k is None else top_k, **options)
    output.show(report, report.to_json, files_of(report))


def run_off_policy(options: Options, output: Output) -> None:
    """What another policy would have earned, from the log of the one that ran.

    torch-recmetrics off-policy --log log.parquet --estimator dr --user user_id
    """
    log = required(options, "log")
    report = off_policy(log, **options)
    output.show(report, report.to_json, files_of(report))


def run_overlap(options: Options, output: Output) -> None:
    """What training and test data share.

    torch-recmetrics overlap --train train.parquet --test test.parquet
    """
    train, test, target = required(options, "train"), required(options, "test"), options.pop("output")
    if target is not None and (not target or Path(target).is_dir()):
        raise InputError(f"`output` must be a Parquet file, {target!r} is {'a folder' if target else 'none'}")
    if target is not None and SUFFIXES.get(suffix_of(Path(target)), "parquet") != "parquet":
        raise InputError(f"`output` must be a Parquet file, got {target!r}: let its name end in .parquet")
    given = options.pop("drop")
    drop = target is not None if given is None else given
    if target is not None and not drop:
        raise InputError("`output` is the test data without what is dropped: name it with `drop`, got nothing to drop")
    with engine_of(options) as read:
        found = overlap(read(train), read(test), drop, **options)
        if target is not None and is_spark(found.kept):
            with spark_errors(f"`output`: {target!r} cannot be written"):
                found.kept.write.parquet(target)
        elif target is not None and not output.silent:
            parquet = needed("pyarrow.parquet", "--output")
            write_whole(Path(target), lambda path: parquet.write_table(found.kept, path))
    output.show(found, found.to_json)


def run_metrics(options: Options, output: Output) -> None:
    """What metrics there are, the well-known ones first; with names, all about these.

    torch-recmetrics metrics ndcg
    """
    every, names = ordered_names(), words_of(options, "names")
    check_names(names)
    text = "\n\n".join(map(full_text, names)) if names else list_text(every)
    output.show(text, lambda: json_text([about_metric(name) for name in names or every]))


COMMANDS: dict[str, Callable[[Options, Output], int | None]] = {
    "evaluate": run_evaluate,
    "compare": run_compare,
    "gate": run_gate,
    "agreement": run_agreement,
    "item-to-item": run_item_to_item,
    "off-policy": run_off_policy,
    "overlap": run_overlap,
    "metrics": run_metrics,
}


def words_of(options: Options, name: str) -> list[str]:
    """What stands without a flag, or in a configuration under this name: one text or several."""
    given = options.pop(name, None) or []
    return [given] if isinstance(given, str) else list(map(str, given))


def numbers_of(options: Options, name: str, such: str) -> dict[str, float]:
    """Metric -> its number, of an option that has them as METRIC=NUMBER or in a mapping."""
    given = options.pop(name) or {}
    if isinstance(given, Mapping):
        return dict(given)
    numbers: dict[str, float] = {}
    for text in given:
        metric, _, number = text.partition("=")
        if metric in numbers:
            raise InputError(f"`{name}` must name a metric once, got {metric!r} twice: give it one number")
        try:
            numbers[metric] = float(number)
        except ValueError:
            raise InputError(f"`{name}` must be METRIC=NUMBER, such as {such}, got {text!r}") from None
    return numbers


def required(options: Options, name: str) -> Any:
    """An option that must be given."""
    value = options.pop(name, None)
    if value is None:
        raise InputError(f"--{name} is missing: give it as a flag or in the file of --config")
    return value


@contextmanager
def engine_of(options: Options) -> Iterator[Callable[[Any], Any]]:
    """What makes of the path of a file what the functions take: the path, or a frame of Spark."""
    engine, master = options.pop("engine"), options.pop("master")
    if engine not in ("files", "spark"):
        raise InputError(f"`engine` must be files or spark, got {engine!r}")
    if engine == "files":
        if master is not None:
            raise InputError(f"`master` is for engine='spark', got {master!r}")
        yield lambda path: path
        return
    spark = needed("pyspark.sql", "--engine spark").SparkSession
    running, builder = spark.getActiveSession(), spark.builder.appName("torch-recmetrics")
    session = running or (builder if master is None else builder.master(master)).getOrCreate()
    try:
        yield lambda path: None if path is None else read_by_spark(session, path)
    finally:
        if running is None:
            session.stop()


def evaluated(lists: Any, options: Options) -> Report:
    """The report of one run; what is not given is as the function has it."""
    own = {name: value for name, value in options.items() if value is not None}
    truth, metrics = required(own, "truth"), own.pop("metric", None)
    own.setdefault("progress", sys.stderr.isatty() and not is_spark(lists))
    if "LOCAL_WORLD_SIZE" in os.environ:  # a process has its part of the machine
        own.setdefault("threads", max(1, (os.cpu_count() or 1) // int(os.environ["LOCAL_WORLD_SIZE"])))
    return evaluate(lists, truth, **({"metrics": metrics} if metrics else {}), **own)


def users_of(name: str, path: str, options: Options) -> tuple[Report | None, UserValues]:
    """The values of users of a run: of lists, or of a file that has them."""
    if options["truth"] is None:
        defaults = {name: own.default for name, own in inspect.signature(evaluate).parameters.items()}
        for option in sorted(options.keys() - OF_USERS_TOO):
            if options[option] not in (None, defaults.get(option)):
                raise InputError(f"`{option}` is of lists, with --truth: {path!r} is read as values of users")
        try:
            return None, UserValues.load(path)
        except (FileNotFoundError, ValueError) as error:
            raise InputError(f"{error}; lists of items need --truth") from None
    try:
        report = evaluated(path, options)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    counts = report.counts
    if counts["users_without_list"] == counts["users"]:
        raise InputError(f"{name}: {path!r} has no list for any of the {counts['users']} users of the truth")
    if counts["users_without_list"]:
        report.notes.append(
            f"{counts['users_without_list']} of {counts['users']} users of the truth have no list, and count as users "
            "without hits"
        )
        warn(f"{name}: {report.notes[-1]}")
    if report.users is None or not (list(report.users) or report.users.summaries):
        raise InputError(f"`metric` must name a mean over users, got {', '.join(report)}, which {name} has no users of")
    return report, report.users
