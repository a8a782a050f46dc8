"""The arguments of the command ``torch-recmetrics``: what each of its commands takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from torch_recmetrics.core.ranking.ties import TIES
from torch_recmetrics.offline.sources import FORMATS

EMPTY_ACTIONS = ("skip", "neg", "pos", "error")

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
    parser.add_argument(
        "--min_relevance", "--min-relevance", type=int | float | None, help="relevance below it is 0, such as 4 of 5"
    )
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
    parser.add_argument("--groups", type=str | None, help="a file of items and groups, for exposure")
    parser.add_argument("--propensities", type=str | None, help="a file of items and the chance that each is observed")
    parser.add_argument(
        "--sampled_from",
        "--sampled-from",
        type=int | None,
        help="the number of all items, of which the lists are samples",
    )
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
    parser.add_argument(
        "--not_less", type=list[str] | dict[str, float] | None, help="METRIC=BOUND, such as overlap@10=0.5"
    )
    parser.add_argument("--lower_is_better", type=list[str] | None, help="a metric in which less is better")
    parser.add_argument("--report", type=str | None, help="a folder for verdict.json")
    add_evaluation(parser)


def add_agreement(parser: Any) -> None:
    parser.add_argument("runs", nargs="*", type=str, help="OLD NEW: two files of lists")
    parser.add_argument("--top_k", type=list[int] | int | None, help="-k K, as often as needed; 10")
    parser.add_argument("--persistence", type=float, default=0.9, help="of the rank-biased overlap")
    parser.add_argument("--user", type=str, default="user_id", help="the column of users")
    parser.add_argument("--item", type=str, default="item_id", help="the column of items")
    parser.add_argument("--score", type=str | None, help="the column of scores")
    parser.add_argument("--rank", type=str | None, help="the column of ranks, in place of scores")
    add_input(parser)


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


def add_off_policy(parser: Any) -> None:
    parser.add_argument("--log", type=str | list[str] | None, help="a file or pattern of rewards and probabilities")
    parser.add_argument("--estimator", type=str, default="snips", help="snips, ips, dm, dr, sndr or switch-dr")
    parser.add_argument("--max_weight", "--max-weight", type=float | None, help="the largest weight policy / logged")
    parser.add_argument("--switch", type=float | None, help="the largest weight that switch-dr corrects with")
    parser.add_argument("--report", type=str | None, help="a folder for report.html and report.json")
    for name in ("reward", "logged", "policy", "expected"):
        parser.add_argument(f"--{name}", type=str, default=name, help="the name of the column")
    parser.add_argument(
        "--expected_policy", "--expected-policy", type=str, default="expected_policy", help="the name of the column"
    )
    parser.add_argument("--user", type=str | None, help="the column of users, whose rows count together in intervals")
    parser.add_argument("--weight", type=str | None, help="the column of the weight of a row; by default 1")
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


ARGUMENTS: dict[str, Callable[[Any], None]] = {
    "evaluate": add_evaluate,
    "compare": add_compare,
    "gate": add_gate,
    "agreement": add_agreement,
    "item-to-item": add_item_to_item,
    "off-policy": add_off_policy,
    "overlap": add_overlap,
    "metrics": add_metrics,
}
