"""Scores of all kinds, lying in memory in all ways, with hidden items in all ways, and the same as lists of numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import strategies as st

from torch_recmetrics.core.tensors import thresholds

NAN, INF = math.nan, math.inf
DTYPES = (torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16)


def matrix(kind: str, layout: str, dtype: torch.dtype, shape: tuple[int, int], g: torch.Generator) -> torch.Tensor:
    """Scores of one kind, lying in memory in one way."""
    n_items = shape[1]
    x = torch.randn(shape, generator=g)
    match kind:
        case "tied":
            x = (x * 3).round()
        case "constant":
            x = torch.zeros(shape)
        case "signed zeros":
            x = torch.where(x > 0, 0.0, -0.0)
        case "short":  # hardly a candidate
            x = x.masked_fill(torch.rand(shape, generator=g) < 0.97, -INF)
        case "infinite":
            x = x.masked_fill(torch.rand(shape, generator=g) < 0.03, INF)
        case "huge":
            x = x.sign() * torch.finfo(dtype).max
    x = x.to(dtype)
    match layout:
        case "transposed":
            return x.T.contiguous().T
        case "sliced":
            return torch.nn.functional.pad(x, (3, 2), value=1.0)[:, 3 : 3 + n_items]
        case "every other":
            return x.repeat_interleave(2, 1)[:, ::2]
        case "one row":
            return x[:1].expand(shape)
    return x


@st.composite
def hidden_scores(draw: Any) -> dict[str, Any]:
    """The arguments of ScoreMatrix, with hidden items in all ways."""
    shape = draw(st.integers(1, 5)), draw(st.sampled_from([1, 3, 63, 64, 65, 128, 191, 200, 320, 449, 700, 1087]))
    g = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    kinds = ["smooth", "tied", "constant", "signed zeros", "short", "infinite", "huge"]
    places = ["plain", "transposed", "sliced", "every other", "one row"]
    kind, place = draw(st.sampled_from(kinds)), draw(st.sampled_from(places))
    given_scores = matrix(kind, place, draw(st.sampled_from(DTYPES)), shape, g)
    hidden: dict[str, Any] = {}
    if draw(st.booleans()):
        seen = torch.randint(-1, shape[1], (shape[0], draw(st.integers(0, 9))), generator=g)
        best = given_scores.float().nan_to_num(0).argsort(1, descending=True)[:, : draw(st.integers(0, 30))]
        hidden["seen_ids"] = torch.cat([seen, best, seen], 1)  # every id twice, and the best ones hidden
    if draw(st.booleans()):
        hidden["mask"] = torch.rand(shape, generator=g) < draw(st.sampled_from([0.02, 0.8]))
        if draw(st.booleans()):
            hidden["mask"] = hidden["mask"].T.contiguous().T
    if draw(st.booleans()):
        given_scores = given_scores.masked_fill(torch.rand(shape, generator=g) < 0.1, NAN)
        hidden["nan_hidden"] = True
    return {"scores": given_scores, **hidden}


def plainly(
    scores: torch.Tensor, seen_ids: Any = None, mask: Any = None, nan_hidden: bool = False
) -> list[list[float]]:
    """The same as lists of numbers."""
    rows = scores.double().tolist()
    for user, row in enumerate(rows):
        for item in range(len(row)):
            seen = seen_ids is not None and item in seen_ids[user].tolist()
            masked = mask is not None and not mask[user, item]
            if seen or masked or (nan_hidden and math.isnan(row[item])):
                row[item] = -INF
    return rows


def take_small_steps(patch: pytest.MonkeyPatch) -> None:
    """Small matrices are read as large ones are: no copy of the whole, many steps, wide blocks."""
    patch.setattr(thresholds, "COPIED_ELEMENTS", 0)
    patch.setattr(thresholds, "STEP_ELEMENTS", 256)
    patch.setattr(thresholds, "COMPARED_ELEMENTS", 128)
    patch.setattr(thresholds, "BLOCKS_PER_ITEM", 1)
    patch.setattr(thresholds, "WIDE_BLOCKS_PER_ITEM", 1)
