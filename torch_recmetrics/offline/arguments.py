"""The arguments of the command ``torch-recmetrics``: those of its functions, from their signatures and docstrings."""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections.abc import Callable, Collection
from typing import Any

from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.offline.evaluation import evaluate
from torch_recmetrics.offline.inputs.sources import InputError
from torch_recmetrics.offline.item_to_item import item_to_item
from torch_recmetrics.offline.off_policy import off_policy
from torch_recmetrics.offline.overlap import overlap

# How an annotation begins -> what a flag takes; the functions themselves say which words and files they know.
TYPES: dict[str, Any] = {
    "Any": str | list[str] | None,
    "bool | Kind": list[str] | bool | str | None,
    "bool": bool | None,
    "float | None": float | None,
    "float": float,
    "int | Sequence[int | None]": list[int | None] | int | None,
    "int | Sequence": list[int] | int | None,
    "int | None": int | None,
    "int": int,
    "Mapping": dict[str, Any] | None,
    "str |": str | None,
    "": str,
}

# How the parser calls what an option takes, and in words.
KINDS = {
    "list": "a list",
    "dict": "names with values",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "None": "null",
}

# Name in a configuration -> the flags, which may be repeated.
REPEATED = {
    "config": ("--config",),
    "metric": ("-m", "--metric", "--metrics"),
    "top_k": ("-k", "--top-k", "--top_k"),
    "better": ("--better",),
    "not_worse": ("--not-worse", "--not_worse"),
    "not_less": ("--not-less", "--not_less"),
    "lower_is_better": ("--lower-is-better", "--lower_is_better"),
    "drop": ("--drop",),
}


def arranged(argv: list[str]) -> list[str]:
    """Arguments with the configuration first, so that flags win over it, and each repeated flag as one list."""
    if not argv or argv[0] not in {*FUNCTIONS, *WORDS}:
        return argv
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    tables = {name: (f"--{name}",) for name in tables_of(argv[0])}
    for name, flags in (REPEATED | tables).items():
        parser.add_argument(*flags, dest=name, action="append", default=[])
    try:
        known, rest = parser.parse_known_args(argv[1:])
    except argparse.ArgumentError as error:  # the parser of the command knows no -m and -k
        raise InputError(f"{error} (see torch-recmetrics {argv[0]} --help)") from None
    given = {name: values for name, values in vars(known).items() if values and name != "config"}
    plain = ("drop", *tables)  # of one value, such as true, a path or a pattern
    single = {name for name, values in given.items() if name in plain and len(values) == 1}
    texts = [f"--{name}={values[0] if name in single else json.dumps(values)}" for name, values in given.items()]
    return [argv[0], *(f"--config={path}" for path in known.config), *texts, *rest]


def tables_of(command: str) -> list[str]:
    """The arguments of a command that are tables, of which each may be several files."""
    if command not in FUNCTIONS:
        return []
    function, left_out, _ = FUNCTIONS[command]
    parameters = [one for one in inspect.signature(function).parameters.values() if one.kind is not one.VAR_KEYWORD]
    return [one.name for one in parameters if one.annotation == "Any" and one.name not in left_out]


def add_function(parser: Any, function: Callable[..., Any], left_out: Collection[str]) -> None:
    """An option for each argument of a function; what it must be given, and lists, are None by default."""
    texts = texts_of(function)
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in left_out and parameter.kind is not parameter.VAR_KEYWORD:
            kind = next(kind for start, kind in TYPES.items() if str(parameter.annotation).startswith(start))
            plain = isinstance(parameter.default, str | int | float) and not isinstance(parameter.default, bool)
            add_option(parser, name, kind, parameter.default if plain else None, texts.get(name, ""))


def add_option(parser: Any, name: str, kind: Any, default: Any, text: str) -> None:
    """An option, with hyphens between the words of its flag, or underscores."""
    flags = dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}"))
    parser.add_argument(*flags, type=kind, default=default, help=text)


def texts_of(function: Callable[..., Any]) -> dict[str, str]:
    """The first sentence about each argument in a docstring."""
    text = re.split(r"\n(?:Args|Raises):\n", inspect.getdoc(function) or "")[1]
    text = re.sub(r"[;,]\s+a\s+pandas[^;.]*(;\s+a\s+relation\s+of\s+DuckDB)?", "", text)  # what no command takes
    text = re.sub(r":class:`~?[\w.]*\.(\w+)`", r"\1", text).replace("`", "").replace("%", "%%")
    found: dict[str, str] = {}
    for names, own in re.findall(r"(?ms)^    (\w[\w, ]*): (.*?)(?=^    \w|\Z)", text):
        found |= dict.fromkeys(names.split(", "), re.split(r"(?<=[^.])\.(?: |$)", " ".join(own.split()))[0])
    return found


def refusal_of(text: str, options: Collection[str]) -> str:
    """What the parser says of bad arguments, in words for who runs the command.

    Args:
        text: of the parser, in one line.
        options: the names of its options.
    """
    kinds_and_value = r"(?:Subtypes: \[(.*?)\] Errors.* Given|Expected a (.*)\. Got) value: (.*)"
    if found := re.match(rf'Parser key "(\w+)": .*?{kinds_and_value}', text):
        outer = re.sub(r"\[.*?\]", "", found[2] or found[3])  # list[int | None] is a list
        kinds = " or ".join(KINDS[kind] for kind in re.findall("|".join(KINDS), outer))
        text = f"{found[1]} must be {kinds}, got {found[4]}"
    elif found := re.match(r"Unexpected config: ?(.*)", text):
        text = f"the file of --config must have names of options and their values in YAML, got {found[1][:60]!r}"
    elif found := re.search(r"unrecognized arguments: --(\w[\w-]*)|invalid choice: '(.*?)' \(choose from (.*)\)", text):
        known = options if found[1] else re.findall(r"[\w-]+", found[3])
        hint = check.did_you_mean(found[1] or found[2], known, mark="")
        text = ": ".join(filter(None, [text, hint]))
    if re.search(r"unrecognized arguments: [^-]|must be a list .*, got .*,", text):
        text += ": an option takes one value; repeat it, -k 5 -k 10, and quote a pattern, 'lists/*.parquet'"
    return text


Options = dict[str, tuple[Any, Any, str]]  # name -> type, default and meaning, of options that no function has
LISTS: Options = {
    "metric": (list[str] | None, None, "-m NAME or -m NAME@K, as often as needed"),
    "min_relevance": (int | float | None, None, "relevance below it is 0, such as 4 of 5"),
    "progress": (bool | None, None, "by default where standard error is a terminal"),
}
REPORT: Options = {
    "report": (str | None, None, "a folder for report.html, report.json and, where users have values, users.parquet")
}
ENGINE: Options = {
    "engine": (str, "files", "files, or spark"),
    "master": (str | None, None, "of Spark, such as local[2]; by default that of spark-submit"),
}
COMPARISON: Options = {
    "baseline": (str | None, None, "the name that the others are compared with; the first"),
    "test": (str, "randomization", "randomization, t, wilcoxon, bootstrap or mcnemar"),
    "correction": (str | None, "holm", "holm, bh or null"),
    "num_draws": (int, 10_000, "of the test"),
    "seed": (int, 0, "of the test"),
    "report": (str | None, None, "a folder for report.html, report.json and users of each run"),
}
RULES: Options = {
    "better": (list[str] | None, None, "a metric in which the candidate must win"),
    "not_worse": (list[str] | dict[str, float] | None, None, "METRIC=MARGIN, a relative loss"),
    "not_less": (list[str] | dict[str, float] | None, None, "METRIC=BOUND, such as overlap@10=0.5"),
    "lower_is_better": (list[str] | None, None, "a metric in which less is better"),
    "report": (str | None, None, "a folder for verdict.json"),
}
OVERLAP: Options = {
    "output": (str | None, None, "a Parquet file for the test data without what was dropped"),
}
NOT_OF_EVALUATE = ("metrics", "progress", "keep_users", "keep_lists", "curves")
NOT_OF_RUNS = (*NOT_OF_EVALUATE, "recommendations", "order", "users")
OF_AGREEMENT = (
    "top_k",
    "user",
    "item",
    "score",
    "rank",
    "format",
    "memory_limit",
    "temp_directory",
    "threads",
    "level",
)
NOT_OF_AGREEMENT = tuple(name for name in inspect.signature(evaluate).parameters if name not in OF_AGREEMENT)


PERSISTENCE: Options = {"persistence": (float, 0.9, "of the rank-biased overlap")}
# Command -> the function whose arguments are options, those of them that are none, and further options.
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[str, ...], Options]] = {
    "evaluate": (evaluate, NOT_OF_EVALUATE, LISTS | REPORT | ENGINE),
    "compare": (evaluate, NOT_OF_RUNS, LISTS | COMPARISON),
    "gate": (evaluate, (*NOT_OF_RUNS, "slices"), LISTS | RULES),
    "agreement": (evaluate, NOT_OF_AGREEMENT, PERSISTENCE),
    "item-to-item": (item_to_item, (), REPORT | ENGINE),
    "off-policy": (off_policy, (), REPORT),
    "overlap": (overlap, (), OVERLAP | ENGINE),
}
# Command -> what stands without a flag, and its meaning.
WORDS = {
    "compare": ("runs", "NAME=FILE of lists (with --truth) or of values of users"),
    "gate": ("runs", "CANDIDATE INCUMBENT: files of lists (with --truth) or of users"),
    "agreement": ("runs", "OLD NEW: two files of lists"),
    "metrics": ("names", "some of them, told in full; without names all in a line each"),
}


def add_arguments(parser: Any, command: str) -> None:
    """Make those of a command known."""
    if command in WORDS:
        name, text = WORDS[command]
        # By default nothing, not an empty list, which would win over that of a configuration.
        parser.add_argument(name, nargs="*", default=argparse.SUPPRESS, help=text)
    if command in FUNCTIONS:
        function, left_out, options = FUNCTIONS[command]
        add_function(parser, function, left_out)
        for name, option in options.items():
            add_option(parser, name, *option)
