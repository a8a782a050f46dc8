"""Frames of every kind have the value of the definition, whatever the order of their rows and the type of their ids."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fixtures.cases import Case, cuts, dense, drawn, holds, scores_of
from fixtures.variants import DEFAULTS
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")
pytest.importorskip("polars")

from torch_recmetrics.offline import evaluate  # noqa: E402

FRAMES: dict[str, Callable[[Any], Any]] = {
    "arrow": lambda table: table,
    "pandas": lambda table: table.to_pandas(),
    "polars": lambda table: pytest.importorskip("polars").from_arrow(table),
}
METRICS = [v for v in DEFAULTS if v.name in ("hit_rate", "ndcg", "recall", "map", "mrr")]


def frames_of(case: Case, kind: str, seed: int, *, text: bool) -> tuple[Any, Any]:
    """Lists and truth, their rows shuffled."""
    scores = scores_of(case).tolist()
    lists = [(b, i, scores[b][i]) for b, row in enumerate(scores) for i in range(len(row)) if row[i] > -math.inf]
    truth = [(b, i, g) for b, row in enumerate(case.relevance) for i, g in enumerate(row) if g > 0]
    frames = []
    for rows, value in ((lists, "score"), (truth, "relevance")):
        random.Random(seed).shuffle(rows)
        name = (lambda word, number: f"{word} {number}") if text else (lambda word, number: 7 * number - 3)
        columns = {
            "user_id": [name("user", b) for b, _, _ in rows],
            "item_id": [name("item", i) for _, i, _ in rows],
            value: pa.array([v for _, _, v in rows], pa.float64()),
        }
        frames.append(FRAMES[kind](pa.table(columns)))
    return frames[0], frames[1]


@pytest.mark.parametrize("ties", ["average", "optimistic", "pessimistic"])
@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_has_the_value_of_the_definition(kind: str, ties: str) -> None:
    def law(case: Case, top_k: int | None, seed: int, text: bool) -> None:
        listed = any(score > -math.inf for row in scores_of(case).tolist() for score in row)
        found = any(
            score > -math.inf and any(relevance)
            for row, relevance in zip(scores_of(case).tolist(), case.relevance)
            for score in row
        )
        if not listed or not found or math.inf in [score for row in scores_of(case).tolist() for score in row]:
            return  # a frame without rows, without users in common or with a score that is not finite is refused
        lists, truth = frames_of(case, kind, seed, text=text)
        names = [v.name if top_k is None else f"{v.name}@{top_k}" for v in METRICS]
        made = [v.make(top_k, ties=ties) for v in METRICS]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = evaluate(lists, truth, made, relevance="relevance")
        update = dense(replace(case, weights=None))
        for name, variant in zip(names, METRICS):
            assert report[name] == variant.expected([update], top_k, ties), name

    holds(
        law,
        f"frames {kind} {ties}",
        examples=2,
        case=drawn(min_users=1, hidden=False),
        top_k=cuts(),
        seed=st.integers(0, 99),
        text=st.booleans(),
    )
