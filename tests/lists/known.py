"""What is known of a small catalogue, and every metric that reads it with every option that changes its value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import torch
from cases import INF, Case, scores_of
from lists import value_oracles

import torch_recmetrics

NUM_USERS = 16


@dataclass(frozen=True)
class Known:
    """Of every item how often it was met and how much it belongs to each category; of every user what was met."""

    counts: Sequence[int]
    categories: Sequence[Sequence[float]]
    profiles: Sequence[Sequence[float]]

    def rearranged(self, order: Sequence[int]) -> Known:
        """Item j of the result is item order[j] of this one; items beyond the order stay."""
        places = [*order, *range(len(order), len(self.counts))]
        return Known([self.counts[i] for i in places], [self.categories[i] for i in places], self.profiles)


# Equal counts, items that nobody met, items without a category and with several, a user without a profile.
KNOWN = Known(
    counts=[5, 0, 3, 3, 9, 1, 0, 12, 3, 1, 7, 2],
    categories=[
        *([1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0.5, 2, 0], [0, 0, 1, 0], [1, 1, 1, 0]),
        *([0, 1, 0, 0], [3, 0, 1, 0], [0, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]),
    ],
    profiles=[[3, 1, 0, 0], [0, 0, 0, 0], [0.25, 0.25, 0.25, 0.25], [0, 0, 5, 2]],
)


@dataclass(frozen=True)
class Variant:
    metric: str
    data: Callable[[Known], dict[str, Any]]
    value: Callable[..., float | None]  # (known, items, relevant, row of the data set, cut-off)
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.metric, *map(str, self.options.values())])

    @property
    def needs_target(self) -> bool:
        return self.metric == "Serendipity"

    def takes(self, top_k: int | None) -> bool:
        """As many expected items as the list shows must be a number."""
        return top_k is not None or not self.options.get("as_many_as_shown")

    def make(self, top_k: int | None, known: Known = KNOWN, **kwargs: Any) -> Any:
        """What is given by name comes in place of the data and the options."""
        options = {name: value for name, value in self.options.items() if name != "as_many_as_shown"}
        return getattr(torch_recmetrics, self.metric)(top_k=top_k, **{**self.data(known), **options, **kwargs})

    def per_user(self, case: Case, top_k: int | None, known: Known = KNOWN) -> list[float | None]:
        relevant = [[i for i, g in enumerate(row) if g > 0] for row in case.relevance]
        return [self.value(known, items[:top_k], relevant[b], b, top_k) for b, items in enumerate(recommended(case))]

    def expected(self, case: Case, top_k: int | None, known: Known = KNOWN) -> float:
        weights = case.weights or [1.0] * len(case.scores)
        pairs = [(v, w) for v, w in zip(self.per_user(case, top_k, known), weights, strict=True) if v is not None]
        total = math.fsum(w for _, w in pairs)
        return math.fsum(v * w for v, w in pairs) / total if total else math.nan


def recommended(case: Case) -> list[list[int]]:
    """The list of every user: what is not hidden, best score first, the earlier of equals first."""
    lists = []
    for b, row in enumerate(scores_of(case).tolist()):
        shown = [i for i, may in enumerate(case.shown(b)) if may and row[i] != -INF]
        lists.append(sorted(shown, key=lambda i, row=row: -row[i]))
    return lists


def full_ranks(known: Known) -> dict[str, Any]:
    return {"item_counts": torch.tensor(known.counts)}


def counts_and_users(known: Known) -> dict[str, Any]:
    return {**full_ranks(known), "num_users": NUM_USERS}


def categories_of(known: Known) -> dict[str, Any]:
    return {"item_categories": torch.tensor(known.categories)}


def categories_and_profiles(known: Known) -> dict[str, Any]:
    return {**categories_of(known), "profiles": torch.tensor(known.profiles)}


def surprise(known: Known, top_k: int | None, options: dict[str, Any]) -> Callable[[int, int], float]:
    if options.get("expected") == "rank":
        return value_oracles.lifted(known.counts)
    return value_oracles.outside_expected(known.counts, options.get("num_expected") or top_k)


SURPRISES: list[dict[str, Any]] = [{"num_expected": 2}, {"as_many_as_shown": True}, {"expected": "rank"}]

VARIANTS = [
    Variant(
        "Novelty",
        counts_and_users,
        lambda known, items, *_: value_oracles.inverse_user_frequency(items, known.counts, NUM_USERS),
    ),
    Variant(
        "Novelty",
        full_ranks,
        lambda known, items, *_: value_oracles.self_information(items, known.counts),
        {"kind": "self_information"},
    ),
    *(
        Variant(
            "Popularity",
            full_ranks,
            lambda known, items, *_, n=normalized: value_oracles.popularity(items, known.counts, n),
            {"normalized": normalized},
        )
        for normalized in (False, True)
    ),
    *(
        Variant(
            "TailShare",
            full_ranks,
            lambda known, items, *_, t=tail, of=of: value_oracles.tail_share(
                items, known.counts, Fraction(t).limit_denominator(), of
            ),
            {"tail": tail, "tail_of": of},
        )
        for tail, of in ((0.5, "items"), (0.8, "items"), (0.2, "interactions"))
    ),
    *(
        Variant(
            "Unexpectedness",
            full_ranks,
            lambda known, items, _, __, k, o=options: value_oracles.unexpectedness(items, surprise(known, k, o)),
            options,
        )
        for options in SURPRISES
    ),
    *(
        Variant(
            "Serendipity",
            full_ranks,
            lambda known, items, relevant, _, k, o=options: value_oracles.serendipity(
                items, relevant, surprise(known, k, o)
            ),
            options,
        )
        for options in SURPRISES
    ),
    Variant(
        "CategoryDiversity",
        categories_of,
        lambda known, items, *_: value_oracles.category_count(items, known.categories),
        {"kind": "count"},
    ),
    Variant(
        "CategoryDiversity",
        categories_of,
        lambda known, items, *_: value_oracles.category_share(items, known.categories),
        {"kind": "share"},
    ),
    Variant(
        "CategoryDiversity",
        categories_of,
        lambda known, items, *_: value_oracles.category_entropy(items, known.categories),
        {"kind": "entropy"},
    ),
    *(
        Variant(
            "CategoryCalibration",
            categories_and_profiles,
            lambda known, items, _, row, __, a=alpha: value_oracles.category_calibration(
                items, known.categories, known.profiles[row], a
            ),
            {"alpha": alpha},
        )
        for alpha in (0.01, 0.5)
    ),
]
