"""The arguments of the command ``torch-recmetrics``: those of its functions, from their signatures and docstrings."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from torch_recmetrics.offline.evaluation import evaluate
from torch_recmetrics.offline.item_to_item import item_to_item
from torch_recmetrics.offline.off_policy import off_policy
from torch_recmetrics.offline.overlap import overlap

# How an annotation begins -> what a flag takes; the functions themselves say which words and files they know.
TYPES: dict[str, Any] = {
    "Any": str | list[str] | None,
    "bool | Kind": list[str] | bool | None,
    "bool": bool | None,
    "float | None": float | None,
    "float": float,
    "int | Sequence": list[int] | int | None,
    "int | None": int | None,
    "int": int,
    "Mapping": dict[str, Any] | None,
    "str |": str | None,
    "": str,
}

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
    "--not-less": "not_less",
    "--not_less": "not_less",
    "--lower-is-better": "lower_is_better",
    "--lower_is_better": "lower_is_better",
    "--drop": "drop",
}


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


def add_function(parser: Any, function: Callable[..., Any], *left_out: str) -> None:
    """An option for each argument of a function; what it must be given, and lists, are None by default."""
    texts = texts_of(function)
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in left_out and parameter.kind is not parameter.VAR_KEYWORD:
            kind = next(kind for start, kind in TYPES.items() if str(parameter.annotation).startswith(start))
            plain = isinstance(parameter.default, str | int | float) and not isinstance(parameter.default, bool)
            add_option(parser, name, kind, parameter.default if plain else None, texts.get(name, ""))


def add_option(parser: Any, name: str, kind: Any, default: Any, text: str) -> None:
    """An option; the words of its name have lines between them, or one below."""
    flags = dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}"))
    parser.add_argument(*flags, type=kind, default=default, help=text)


def texts_of(function: Callable[..., Any]) -> dict[str, str]:
    """The first sentence about each argument in a docstring."""
    text = re.split(r"\n(?:Args|Raises):\n", inspect.getdoc(function) or "")[1]
    found: dict[str, str] = {}
    for names, own in re.findall(r"(?ms)^    (\w[\w, ]*): (.*?)(?=^    \w|\Z)", text):
        sentence = re.split(r"(?<=[^.])[.:;](?: |$)", " ".join(own.split()))[0]
        found |= dict.fromkeys(names.split(", "), sentence.replace("`", "").replace("%", "%%"))
    return found


def add_options(parser: Any, options: Mapping[str, tuple[Any, Any, str]]) -> None:
    """Options that no function has: their type, default and meaning."""
    for name, option in options.items():
        add_option(parser, name, *option)


REPORT = {
    "report": (str | None, None, "a folder for report.html, report.json and, where users have values, users.parquet")
}
FORMAT = {"format": (str | None, None, "of evaluate, compare and gate alone")}
ENGINE = {
    "engine": (str, "files", "files, or spark"),
    "master": (str | None, None, "of Spark, such as local[2]; by default that of spark-submit"),
}
RUNS = {
    "compare": "NAME=FILE of lists (with --truth) or of values of users",
    "gate": "CANDIDATE INCUMBENT: files of lists (with --truth) or of users",
    "agreement": "OLD NEW: two files of lists",
}


def add_evaluation(parser: Any) -> None:
    """The options of an evaluation but for the lists."""
    left_out = ("recommendations", "metrics", "progress", "keep_users", "keep_lists", "curves", "order", "users")
    add_function(parser, evaluate, *left_out)
    add_options(
        parser,
        {
            "metric": (list[str] | None, None, "-m NAME or -m NAME@K, as often as needed"),
            "min_relevance": (int | float | None, None, "relevance below it is 0, such as 4 of 5"),
            "progress": (bool | None, None, "by default where standard error is a terminal"),
        },
    )


def add_evaluate(parser: Any) -> None:
    add_evaluation(parser)
    add_options(parser, {"recommendations": (str | list[str] | None, None, "a file or pattern of lists")})
    add_options(parser, {"order": (str | None, None, "the column that orders Spark's rows")})
    add_options(
        parser, {"users": (str | None, None, "a folder for the values of the users, which Spark's workers write")}
    )
    add_options(parser, REPORT | ENGINE)


def add_compare(parser: Any) -> None:
    parser.add_argument("runs", nargs="*", type=str, help=RUNS["compare"])
    add_options(
        parser,
        {
            "baseline": (str | None, None, "the name that the others are compared with; the first"),
            "test": (str, "randomization", "randomization, t, wilcoxon or bootstrap"),
            "correction": (str | None, "holm", "holm, bh or null"),
            "num_draws": (int, 10_000, "of the test"),
            "seed": (int, 0, "of the test"),
            "report": (str | None, None, "a folder for report.html, report.json and users of each run"),
        },
    )
    add_evaluation(parser)


def add_gate(parser: Any) -> None:
    parser.add_argument("runs", nargs="*", type=str, help=RUNS["gate"])
    numbers = list[str] | dict[str, float] | None
    add_options(
        parser,
        {
            "better": (list[str] | None, None, "a metric in which the candidate must win"),
            "not_worse": (numbers, None, "METRIC=MARGIN, a relative loss"),
            "not_less": (numbers, None, "METRIC=BOUND, such as overlap@10=0.5"),
            "lower_is_better": (list[str] | None, None, "a metric in which less is better"),
            "report": (str | None, None, "a folder for verdict.json"),
        },
    )
    add_evaluation(parser)


def add_agreement(parser: Any) -> None:
    parser.add_argument("runs", nargs="*", type=str, help=RUNS["agreement"])
    taken = ("top_k", "user", "item", "score", "rank", "format", "memory_limit", "temp_directory", "threads", "level")
    add_function(parser, evaluate, *(name for name in inspect.signature(evaluate).parameters if name not in taken))
    add_options(parser, {"persistence": (float, 0.9, "of the rank-biased overlap")})


def add_files(function: Callable[..., Any], *options: Mapping[str, tuple[Any, Any, str]]) -> Callable[[Any], None]:
    """What adds the options of a function of files, and `options`."""

    def add(parser: Any) -> None:
        add_function(parser, function)
        for own in (FORMAT, *options):
            add_options(parser, own)

    return add


def add_metrics(parser: Any) -> None:
    parser.add_argument("names", nargs="*", type=str, help="some of them")


LEVEL = {"level": (float, 0.95, "of intervals, which overlap has not")}
OUTPUT = {"output": (str | None, None, "a Parquet file for the test data without what was dropped")}
ARGUMENTS: dict[str, Callable[[Any], None]] = {
    "evaluate": add_evaluate,
    "compare": add_compare,
    "gate": add_gate,
    "agreement": add_agreement,
    "item-to-item": add_files(item_to_item, REPORT, ENGINE),
    "off-policy": add_files(off_policy, REPORT),
    "overlap": add_files(overlap, OUTPUT, LEVEL, ENGINE),
    "metrics": add_metrics,
}
