"""Histories of updates, drawn: every kind of score that has tripped up an AUC."""

from __future__ import annotations

import math
from typing import Any

import torch
from auc.updates import Update
from hypothesis import strategies as st

SPECIAL = [math.inf, -math.inf, 0.0, -0.0, 1e-40, -1e-40, 1e30, -1e30, 1.0, -1.0, 1e-38, 65504.0, 6e-8, 98.0, 98.5]
GROUPS = [0, 1, 2, -5, 2**63 - 1, -(2**63), 2**40]
WEIGHTS = [1.0, 2.0, 0.5, 0.0, 3.7, 1e-6, 1e6]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@st.composite
def histories(
    draw: Any,
    dtypes: list[torch.dtype] = DTYPES,
    *,
    probabilities: bool = False,
    weighted: bool | None = None,
    named: bool | None = None,
    most: int = 12,
) -> list[Update]:
    """Up to four updates; ties within and across them, and the same samples again."""
    number = st.floats(0, 1, width=32) if probabilities else st.floats(-4, 4, width=32) | st.sampled_from(SPECIAL)
    pool = draw(st.lists(number, min_size=1, max_size=6))
    with_weights = draw(st.booleans()) if weighted is None else weighted
    with_names = draw(st.booleans()) if named is None else named
    updates = []
    for _ in range(draw(st.integers(1, 4))):
        n = draw(st.integers(0, most))

        def some(values: Any, n: int = n) -> list[Any]:
            return draw(st.lists(values, min_size=n, max_size=n))

        update = {
            "preds": torch.tensor(some(st.sampled_from(pool)), dtype=draw(st.sampled_from(dtypes))),
            "target": torch.tensor(
                some(st.integers(0, 1)), dtype=draw(st.sampled_from([torch.bool, torch.int64, torch.float32]))
            ),
            "indexes": torch.tensor(some(st.sampled_from(GROUPS)), dtype=torch.int64),
        }
        if with_weights:
            update["weights"] = torch.tensor(some(st.sampled_from(WEIGHTS)), dtype=torch.float64)
        if with_names:
            update["sample_ids"] = torch.tensor(some(st.integers(0, 9)), dtype=torch.int64)
        updates.append(update)
    return updates
