"""Named inputs and drawn ones, each of which can be given in every layout."""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import oracles
import torch
from hypothesis import given, seed, settings
from hypothesis import strategies as st

INF = math.inf


@dataclass(frozen=True)
class Case:
    """B users and N items, in plain lists."""

    scores: list[list[float]]
    relevance: list[list[float]]
    weights: list[float] | None = None
    seen: list[list[int]] | None = None
    mask: list[list[bool]] | None = None
    dtype: torch.dtype = torch.float32

    @property
    def n_items(self) -> int:
        return len(self.scores[0]) if self.scores else 3

    @property
    def graded(self) -> bool:
        return any(g not in (0, 1) for row in self.relevance for g in row)

    def part(self, rows: list[int]) -> Case:
        """The users of these rows, in this order."""

        def of(values: Any) -> Any:
            return None if values is None else [values[b] for b in rows]

        return Case(of(self.scores), of(self.relevance), of(self.weights), of(self.seen), of(self.mask), self.dtype)

    def rearranged(self, order: list[int]) -> Case:
        """The same users and items, item j of the result being item order[j] of this one."""
        place = {item: j for j, item in enumerate(order)} | {-1: -1}

        def columns(rows: Any) -> Any:
            return None if rows is None else [[row[i] for i in order] for row in rows]

        seen = None if self.seen is None else [[place[i] for i in row] for row in self.seen]
        return Case(columns(self.scores), columns(self.relevance), self.weights, seen, columns(self.mask), self.dtype)

    def shown(self, b: int) -> list[bool]:
        seen = None if self.seen is None else self.seen[b]
        return oracles.shown_items(self.n_items, seen, None if self.mask is None else self.mask[b])


# Layouts -------------------------------------------------------------------------------------------------------------


def matrix(rows: list[list[Any]], dtype: torch.dtype, width: int, filler: Any = -1) -> torch.Tensor:
    padded = [[*row, *[filler] * (width - len(row))] for row in rows]
    return torch.tensor(padded, dtype=dtype).reshape(len(rows), width)


def scores_of(case: Case) -> torch.Tensor:
    return matrix(case.scores, torch.float64, case.n_items).to(case.dtype)


def row_options(case: Case) -> dict[str, torch.Tensor]:
    options = {}
    if case.weights is not None:
        options["weights"] = torch.tensor(case.weights, dtype=torch.float64)
    if case.seen is not None:
        options["seen_ids"] = matrix(case.seen, torch.int64, max((len(row) for row in case.seen), default=1))
    return options


def target_of(case: Case) -> torch.Tensor:
    if case.graded:
        return matrix(case.relevance, torch.float32, case.n_items)
    return matrix(case.relevance, torch.bool, case.n_items)


def dense(case: Case) -> dict[str, torch.Tensor]:
    mask = {} if case.mask is None else {"mask": matrix(case.mask, torch.bool, case.n_items)}
    return {"preds": scores_of(case), "target": target_of(case), **row_options(case), **mask}


def wanted(case: Case) -> dict[str, torch.Tensor]:
    """target_ids in an order of no meaning, padded at least once; where grades vary, also ids of relevance 0."""
    shuffle = random.Random(7).shuffle
    ids = []
    for scores, row in zip(case.scores, case.relevance, strict=True):
        picked = [i for i, g in enumerate(row) if g > 0]
        if case.graded:
            picked += sorted((i for i, g in enumerate(row) if g == 0), key=lambda i, scores=scores: -scores[i])[:2]
        shuffle(picked)
        ids.append(picked)
    width = max((len(row) for row in ids), default=0) + 1
    wanted = {"target_ids": matrix(ids, torch.int64, width)}
    if case.graded:
        graded = [[row[i] for i in picked] for row, picked in zip(case.relevance, ids, strict=True)]
        wanted["target_relevance"] = matrix(graded, torch.float32, width, 0.0)
    return wanted


def target_ids(case: Case) -> dict[str, torch.Tensor]:
    given = dense(case)
    del given["target"]
    return {**given, **wanted(case)}


def item_ids(case: Case) -> dict[str, torch.Tensor]:
    """The list as a model would hand it over: best first, the earlier of equals first, seen items still in it."""
    scores, lists = scores_of(case).tolist(), []
    for b, row in enumerate(scores):
        listed = [i for i in range(len(row)) if row[i] != -INF and (case.mask is None or case.mask[b][i])]
        lists.append(sorted(listed, key=lambda i, row=row: -row[i]))
    width = max((len(row) for row in lists), default=0) + 1
    return {"item_ids": matrix(lists, torch.int64, width), **wanted(case), **row_options(case)}


def flat(case: Case) -> dict[str, torch.Tensor]:
    """Rows of all users shuffled together; the users' numbers are neither dense nor small."""
    names = [2**40 - 3 * b if b % 2 else 5 - 4 * b for b in range(len(case.scores))]
    rows = [(b, i) for b in range(len(case.scores)) for i in range(case.n_items)]
    random.Random(11).shuffle(rows)
    scores, target = scores_of(case), target_of(case)
    at = torch.tensor([b for b, _ in rows], dtype=torch.int64), torch.tensor([i for _, i in rows], dtype=torch.int64)
    given = {
        "preds": scores[at],
        "target": target[at],
        "indexes": torch.tensor([names[b] for b, _ in rows], dtype=torch.int64),
    }
    if case.weights is not None:
        given["weights"] = torch.tensor([case.weights[b] for b, _ in rows], dtype=torch.float64)
    if case.seen is not None or case.mask is not None:
        given["mask"] = torch.tensor([case.shown(b)[i] for b, i in rows], dtype=torch.bool)
    return given


LAYOUTS: dict[str, Callable[[Case], dict[str, torch.Tensor]]] = {
    "dense": dense,
    "target_ids": target_ids,
    "item_ids": item_ids,
    "flat": flat,
}


def plain(given: dict[str, torch.Tensor]) -> dict[str, Any]:
    return {name: value.tolist() for name, value in given.items()}


def users_of(given: dict[str, torch.Tensor]) -> list[oracles.User]:
    """What the oracles see in the arguments of one update."""
    return oracles.read(**plain(given))


# Named inputs --------------------------------------------------------------------------------------------------------

NAMED: dict[str, Case] = {
    "plain": Case([[0.1, 0.9, 0.4, 0.3, 0.8]], [[1, 0, 1, 0, 1]]),
    "several users": Case([[0.1, 0.9, 0.4], [3.0, 2.0, 1.0], [5.0, 7.0, 6.0]], [[1, 0, 1], [0, 0, 1], [1, 0, 0]]),
    "all scores negative": Case([[-3.0, -1.0, -2.0, -9.0]], [[0, 1, 1, 0]]),
    "all scores equal": Case([[0.5] * 6], [[1, 1, 0, 0, 0, 0]]),
    "all scores zero": Case([[0.0, -0.0, 0.0, -0.0]], [[0, 0, 1, 1]]),
    "a block across the cut": Case([[9.0, 5.0, 5.0, 5.0, 5.0, 1.0]], [[0, 0, 1, 1, 0, 1]]),
    "several blocks": Case([[2.0, 2.0, 1.0, 1.0, 1.0, 0.0, 0.0]], [[0, 1, 1, 0, 0, 1, 0]]),
    "graded block across the cut": Case([[9.0, 5.0, 5.0, 5.0, 1.0]], [[1, 0, 5, 2, 3]]),
    "graded": Case([[0.5, 0.4, 0.3, 0.2, 0.1]], [[3, 1, 2, 3, 2]]),
    "fractional relevance": Case([[0.5, 0.4, 0.3, 0.2]], [[0.25, 0, 2.5, 0.75]]),
    "an empty user": Case([[0.3, 0.2, 0.1], [0.1, 0.2, 0.3]], [[0, 0, 0], [1, 0, 1]]),
    "only empty users": Case([[0.3, 0.2, 0.1], [0.1, 0.2, 0.3]], [[0, 0, 0], [0, 0, 0]]),
    "everything relevant": Case([[0.3, 0.2, 0.1]], [[1, 1, 1]]),
    "one item": Case([[0.7], [0.7]], [[1], [0]]),
    "no item": Case([[], []], [[], []]),
    "no user": Case([], []),
    "not retrieved": Case([[-INF, 5.0, 2.0, -INF, 1.0]], [[1, 0, 1, 0, 0]]),
    "nothing retrieved": Case([[-INF, -INF, -INF]], [[1, 0, 1]]),
    "best score infinite": Case([[1.0, INF, INF, -INF]], [[1, 0, 1, 1]]),
    "weights": Case(
        [[3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [3.0, 2.0, 1.0]], [[1, 0, 0], [0, 0, 1], [0, 1, 0]], [0.5, 2.0, 0.0]
    ),
    "no weight at all": Case([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]], [[1, 0, 0], [0, 0, 1]], [0.0, 0.0]),
    "weighted empty user": Case([[3.0, 2.0], [3.0, 2.0]], [[0, 0], [0, 1]], [3.0, 1.0]),
    "seen twice": Case([[5.0, 4.0, 3.0, 2.0, 1.0]], [[1, 0, 1, 0, 1]], seen=[[0, 3, -1, 0, 3]]),
    "padding does not hide the last item": Case(
        [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]], [[0, 0, 1], [0, 0, 1]], seen=[[-1, -1], [-1, 0]]
    ),
    "everything seen": Case([[3.0, 2.0, 1.0]], [[0, 1, 0]], seen=[[2, 1, 0, -1]]),
    "masked": Case([[5.0, 4.0, 3.0, 2.0, 1.0]], [[1, 0, 1, 0, 1]], mask=[[False, True, True, False, True]]),
    "everything masked": Case([[5.0, 4.0]], [[1, 0]], mask=[[False, False]]),
    "hidden members of a block": Case(
        [[5.0, 4.0, 4.0, 4.0, 4.0]], [[0, 1, 0, 1, 0]], mask=[[True, True, False, True, True]]
    ),
    "half precision": Case([[0.1, 0.2, 0.3, 0.30001, 0.4]], [[0, 1, 1, 0, 0]], dtype=torch.float16),
    "bfloat16": Case([[0.1, 0.2, 0.3, 0.30001, 0.4]], [[0, 1, 1, 0, 0]], dtype=torch.bfloat16),
    "close in float64": Case([[1.0, 1.0 + 2**-40, 1.0 - 2**-40]], [[1, 0, 1]], dtype=torch.float64),
    "next to zero": Case([[0.0, 1e-40, -1e-40, -0.0]], [[1, 0, 1, 0]]),
}

CUTS = (1, 2, 3, 5, 12, None)


# Drawn inputs --------------------------------------------------------------------------------------------------------

FEW_SCORES = [-INF, -2.5, -1.0, -0.0, 0.0, 0.5, 1.0]
CLOSE_SCORES = [1.0, 1.0 + 2**-7, 1.0 + 2**-10, 1.0 + 2**-23, 1.0 + 2**-40, -1.0, 1e-40, 6e4, INF]
GRADES = [0.0, 0.0, 0.0, 1.0, 2.0, 5.0, 0.5, 1.25]


@st.composite
def drawn(draw: st.DrawFn, min_users: int = 0, hidden: bool = True) -> Case:
    """Ties, infinities, signed zeros, weights of 0, empty users, graded relevance; small enough to list every order."""
    graded = draw(st.booleans())
    n_users, n_items = draw(st.integers(min_users, 4)), draw(st.integers(1, 5 if graded else 8))
    score = st.sampled_from(draw(st.sampled_from([FEW_SCORES, FEW_SCORES, FEW_SCORES[-2:], CLOSE_SCORES])))
    grade = st.sampled_from(GRADES if graded else [0.0, 0.0, 1.0])

    def table(cell: st.SearchStrategy[Any], width: int) -> list[list[Any]]:
        return draw(st.lists(st.lists(cell, min_size=width, max_size=width), min_size=n_users, max_size=n_users))

    hide = draw(st.sampled_from(["nothing", "nothing", "seen", "mask", "both"])) if hidden else "nothing"
    weight = st.sampled_from([0.0, 0.25, 1.0, 3.0])
    return Case(
        scores=table(score, n_items),
        relevance=table(grade, n_items),
        weights=draw(st.none() | st.lists(weight, min_size=n_users, max_size=n_users)),
        seen=table(st.integers(-1, n_items - 1), draw(st.integers(1, 5))) if hide in ("seen", "both") else None,
        mask=table(st.sampled_from([True, True, False]), n_items) if hide in ("mask", "both") else None,
        dtype=draw(st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16])),
    )


@st.composite
def widened(draw: st.DrawFn, n_items: int = 400) -> Case:
    """A drawn case in a long catalogue: items nobody wants above, beside and (mostly) below those of the case."""
    case = draw(drawn(min_users=1))
    near = draw(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0, 5e4]), max_size=2))
    filling = [*near, *(-1000.0 - place for place in range(n_items - case.n_items - len(near)))]
    nothing = [0.0] * len(filling)
    wide = Case(
        [row + filling for row in case.scores],
        [row + nothing for row in case.relevance],
        case.weights,
        case.seen,
        None if case.mask is None else [row + [True] * len(filling) for row in case.mask],
        case.dtype,
    )
    order = list(range(n_items))
    random.Random(draw(st.integers(0, 999))).shuffle(order)
    return wide.rearranged(order)


def cuts() -> st.SearchStrategy[int | None]:
    return st.sampled_from(CUTS)


def holds(law: Callable[..., None], label: str, examples: int = 10, **strategies: st.SearchStrategy[Any]) -> None:
    """Try a law on drawn inputs; every label has its own, and they are the same in each run."""
    attempt = given(**strategies)(law)
    seed(zlib.crc32(label.encode()))(settings(max_examples=examples)(attempt))()
