"""The worked numbers, as arithmetic: first the oracles must give them, then the package."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2, nan
from typing import Any

import pytest
import torch
from fixtures.cases import INF
from fixtures.histories import updated
from fixtures.variants import Variant, named
from oracles.users import read

from torch_recmetrics import DCG


@dataclass(frozen=True)
class Worked:
    """A metric asked of an update; `expected` is one number, or one per user."""

    label: str
    variant: Variant
    top_k: int | None
    update: dict[str, Any]
    expected: Any
    within: float = 1e-12

    def __str__(self) -> str:
        return f"{self.label} {self.variant}@{self.top_k}"


def listed(*lists: list[int], wanted: list[list[int]], **more: Any) -> dict[str, Any]:
    """Recommended and relevant ids, padded with -1."""

    def pad(rows: Any) -> list[list[int]]:
        width = max(len(row) for row in rows)
        return [[*row, *[-1] * (width - len(row))] for row in rows]

    return {"item_ids": pad(lists), "target_ids": pad(wanted), **more}


def ranked(*rows: list[float]) -> dict[str, Any]:
    """Rows of relevance, best place first, as scores and a target."""
    return {"preds": [[float(-place) for place in range(len(row))] for row in rows], "target": list(rows)}


def with_hits(n_items: int, n_relevant: int, *places: int) -> tuple[list[int], list[int]]:
    """A list of n_items ids with hits at these ranks, and the ids of n_relevant relevant items."""
    items = list(range(n_items))
    hits = [place - 1 for place in places]
    return items, hits + [1000 + i for i in range(n_relevant - len(places))]


POOLED = [with_hits(10, 10, *range(1, 7)), with_hits(10, 12, *range(2, 7)), with_hits(10, 8, *range(5, 9))]
TWO_OF_FORTY = with_hits(40, 10, 7, 31)
SEEN_GRADES = [3.0, 2.0, 3.0, 0.0, 1.0, 2.0]
NOT_RETRIEVED = listed(
    [0, 1, 2, 3, 4, 5], wanted=[[0, 1, 2, 4, 5, 6]], target_relevance=[[3.0, 2.0, 3.0, 1.0, 2.0, 3.0]]
)
FIRST_HITS = ranked([0, 0, 1], [1, 0, 0], [0, 1, 0])
OTHER_FIRST_HITS = ranked([0, 0, 1], [0, 1, 0], [1, 0, 0])
FLAT = {"indexes": [0, 0, 0, 1, 1, 1, 1], "preds": [0.2, 0.3, 0.5, 0.1, 0.3, 0.5, 0.2], "target": [0, 0, 1, 0, 1, 0, 1]}
OTHER_FLAT = {**FLAT, "target": [1, 0, 0, 0, 1, 0, 1]}
ONE_FLAT = {"indexes": [0] * 5, "preds": [0.1, 0.2, 0.3, 4.0, 70.0], "target": [10, 0, 0, 1, 5]}
REPLAY = listed(
    [3, 7, 10, 11, 2], [5, 8, 11, 1, 3], [4, 9, 2], wanted=[[5, 6, 7, 8, 9, 10], [6, 7, 4, 10, 11], [1, 2, 3, 4, 5]]
)
RECTOOLS = listed([7, 8], [1, 2], [1, 2, 3, 4], [1, 2, 3], wanted=[[1, 2], [1], [1, 3, 4], [1, 2, 3]])
RAX = {"preds": [[-INF, 5.0, 2.0, -INF, 1.0]], "target": [[1, 0, 1, 0, 0]]}
FOUR_LIBRARIES = listed([1, 2, 3, 4, 5], wanted=[[2, 4, 77]])
EARLY = [1, 0, 1, 0, 0, 0, 0, 0, 1, 1]
LATE = [0, 1, 0, 0, 1, 1, 1, 0, 0, 0]
# The next item by a table {1: [7, 2], 2: [9, 8]}: every event but the last of 1, 2, 3 asks for its row.
NEXT_ITEM = listed([7, 2], [9, 8], wanted=[[2], [3]])
HALF_TIED = {"preds": [[2.0, 1.0, 1.0]], "target": [[1, 1, 0]]}


def discounted(*gains: float) -> float:
    return sum(gain / log2(rank + 1) for rank, gain in enumerate(gains, start=1))


NUMBERS = [
    Worked(
        "01",
        named("HitRate", pooled=True),
        10,
        listed(*(items for items, _ in POOLED), wanted=[ids for _, ids in POOLED]),
        (6 + 5 + 4) / (10 + 12 + 8),
    ),
    Worked("02", named("Precision"), 40, listed(TWO_OF_FORTY[0], wanted=[TWO_OF_FORTY[1]]), 2 / 40),
    Worked("02", named("Recall"), 40, listed(TWO_OF_FORTY[0], wanted=[TWO_OF_FORTY[1]]), 2 / 10),
    Worked("03", named("MAP"), 6, ranked([1, 0, 1, 0, 0, 1]), (1 / 1 + 2 / 3 + 3 / 6) / 3),
    Worked("04", named("MAP"), 5, listed([1, 2, 3, 4, 5], wanted=[[1, 2, 9]]), (1 + 1) / 3),
    Worked("04", named("MAP"), 5, listed([1, 2, 3, 4, 5], wanted=[[4, 5, 9]]), (1 / 4 + 2 / 5) / 3),
    Worked("04", named("MAP", denominator="hits"), 5, listed([1, 2, 3, 4, 5], wanted=[[1, 2, 9]]), 1.0),
    Worked("04", named("MAP", denominator="hits"), 5, listed([1, 2, 3, 4, 5], wanted=[[4, 5, 9]]), 0.325),
    Worked("05", named("DCG", gain="linear"), 5, ranked([3, 1, 2, 3, 2]), discounted(3, 1, 2, 3, 2)),
    Worked("05", named("DCG", gain="linear"), 5, ranked([3, 1, 2, 3, 2]), 6.6967, 5e-5),
    Worked("05", named("DCG", gain="linear"), 5, ranked([3, 3, 2, 2, 1]), 7.1410, 5e-5),
    Worked("05", named("NDCG", gain="linear"), 5, ranked([3, 1, 2, 3, 2]), 0.9378, 5e-5),
    Worked("06", named("DCG"), 5, ranked([3, 1, 2, 3, 2]), discounted(7, 1, 3, 7, 3)),
    Worked("06", named("DCG"), 5, ranked([3, 1, 2, 3, 2]), 13.3062, 5e-5),
    Worked("06", named("DCG"), 5, ranked([3, 3, 2, 2, 1]), 14.5954, 5e-5),
    Worked("06", named("NDCG"), 5, ranked([3, 1, 2, 3, 2]), 0.9117, 5e-5),
    Worked("06", named("DCG"), 5, ranked([1, 2, 2, 3, 3]), 10.1155, 5e-5),
    Worked("07", named("DCG", gain="linear"), 6, NOT_RETRIEVED, discounted(*SEEN_GRADES)),
    Worked("07", named("DCG", gain="linear"), 6, NOT_RETRIEVED, 6.8611, 5e-5),
    Worked(
        "07", named("NDCG", gain="linear"), 6, NOT_RETRIEVED, discounted(*SEEN_GRADES) / discounted(3, 3, 3, 2, 2, 1)
    ),
    Worked("07", named("NDCG", gain="linear"), 6, NOT_RETRIEVED, 6.8611 / 8.3841, 5e-5),
    Worked("08", named("MRR"), None, FIRST_HITS, (1 / 3 + 1 / 1 + 1 / 2) / 3),
    Worked("08", named("MRR"), None, OTHER_FIRST_HITS, 11 / 18),
    Worked("12", named("Precision"), 2, NEXT_ITEM, 1 / 4),
    Worked("12", named("Recall"), 2, NEXT_ITEM, 1 / 2),
    Worked("12", named("F1"), 2, NEXT_ITEM, 2 * (1 / 4) * (1 / 2) / (1 / 4 + 1 / 2)),
    Worked("12", named("MRR"), 2, NEXT_ITEM, (1 / 2 + 0) / 2),
    Worked("12", named("NDCG"), 2, NEXT_ITEM, (1 / log2(3) + 0) / 2),
    Worked("13", named("MAP"), None, FLAT, (1 / 1 + (1 / 2 + 2 / 3) / 2) / 2),
    Worked("13", named("MRR"), None, FLAT, (1 + 1 / 2) / 2),
    Worked("13", named("Precision"), 2, FLAT, (1 / 2 + 1 / 2) / 2),
    Worked("13", named("Recall"), 2, FLAT, (1 + 1 / 2) / 2),
    Worked("13", named("NDCG"), None, FLAT, (1 + discounted(0, 1, 1, 0) / discounted(1, 1)) / 2),
    Worked("13", named("NDCG"), None, FLAT, 0.8467, 5e-5),
    Worked("14", named("HitRate"), 2, OTHER_FLAT, (0 + 1) / 2),
    Worked("15", named("NDCG", gain="linear"), None, ONE_FLAT, discounted(5, 1, 0, 0, 10) / discounted(10, 5, 1)),
    Worked("15", named("NDCG", gain="linear"), None, ONE_FLAT, 0.6957, 5e-5),
    Worked("16", named("HitRate"), 2, REPLAY, (1 + 0 + 1) / 3),
    Worked("16", named("Precision"), 2, REPLAY, (1 / 2 + 0 + 1 / 2) / 3),
    Worked("16", named("Recall"), 2, REPLAY, (1 / 6 + 0 / 5 + 1 / 5) / 3),
    Worked("16", named("MAP"), 2, REPLAY, ((1 / 2) / 2 + 0 + (1 / 1) / 2) / 3),
    Worked("16", named("MRR"), 2, REPLAY, (1 / 2 + 0 + 1) / 3),
    Worked("16", named("NDCG"), 2, REPLAY, [(1 / log2(3)) / (1 + 1 / log2(3)), 0, 1 / (1 + 1 / log2(3))]),
    Worked("16", named("NDCG"), 2, REPLAY, [0.38685, 0, 0.61315], 5e-6),
    Worked("16", named("NDCG"), 2, REPLAY, 1 / 3),
    Worked("17", named("MAP", denominator="relevant"), 2, REPLAY, ((1 / 2) / 6 + 0 + 1 / 5) / 3),
    Worked("17", named("MAP", denominator="hits"), 2, REPLAY, (1 / 2 + 0 + 1) / 3),
    Worked("17", named("HitRate", pooled=True), 2, REPLAY, (1 + 0 + 1) / (6 + 5 + 5)),
    Worked("18", named("MAP", denominator="relevant"), 1, RECTOOLS, [0, 1, 1 / 3, 1 / 3]),
    Worked("18", named("MAP", denominator="relevant"), 3, RECTOOLS, [0, 1, (1 + 2 / 3) / 3, 1]),
    Worked("19", named("NDCG"), 3, RECTOOLS, [0, 1, discounted(1, 0, 1) / discounted(1, 1, 1), 1]),
    Worked("19", named("NDCG"), 3, RECTOOLS, [0, 1, 0.70392, 1], 5e-6),
    Worked("20", named("MRR"), None, RAX, 1 / 2),
    Worked("20", named("Recall"), None, RAX, 1 / 2),
    Worked("20", named("MAP", denominator="relevant"), None, RAX, (1 / 2) / 2),
    Worked("20", named("NDCG"), None, RAX, (1 / log2(3)) / (1 + 1 / log2(3))),
    Worked("21", named("MAP"), 5, FOUR_LIBRARIES, (1 / 2 + 2 / 4) / 3),
    Worked("21", named("MAP", denominator="relevant"), 5, FOUR_LIBRARIES, (1 / 2 + 2 / 4) / 3),
    Worked("21", named("MAP", denominator="hits"), 5, FOUR_LIBRARIES, (1 / 2 + 2 / 4) / 2),
    Worked("21", named("NDCG"), 5, FOUR_LIBRARIES, 0.498, 5e-4),
    Worked("four relevant", named("RPrecision"), None, ranked(EARLY, LATE), [2 / 4, 1 / 4]),
    Worked("four relevant", named("RPrecision"), 3, ranked(EARLY, LATE), [2 / 3, 1 / 3]),
    Worked("four relevant", named("RPrecision"), 9, ranked(EARLY, LATE), (2 / 4 + 1 / 4) / 2),
    Worked("16", named("RPrecision"), None, REPLAY, [2 / 6, 1 / 5, 2 / 5]),
    Worked("16", named("RPrecision"), 2, REPLAY, (1 / 2 + 0 / 2 + 1 / 2) / 3),
    Worked("ties", named("RPrecision"), None, HALF_TIED, (1 + 1 / 2) / 2),
    Worked("a perfect list", named("RPrecision"), None, ranked([3, 1, 2, 0]), 3 / 3),
    Worked("three of five", named("RBP", persistence=0.5), None, ranked([1, 0, 1, 0, 1]), (1 + 1 / 4 + 1 / 16) / 2),
    Worked("three of five", named("RBP", persistence=0.5), 4, ranked([1, 0, 1, 0, 1]), (1 + 1 / 4) / 2),
    Worked("three of five", named("RBP"), None, ranked([1, 0, 1, 0, 1]), 0.2 * (1 + 0.8**2 + 0.8**4)),
    Worked("grades count alike", named("RBP"), None, ranked([0, 3, 2]), 0.2 * (0.8 + 0.64)),
    Worked("all relevant", named("RBP", persistence=0.5), None, ranked([1] * 10), 1 - 1 / 2**10),
    Worked("16", named("RBP"), None, REPLAY, [0.2 * (0.8 + 0.8**2), 0.2 * 0.8**2, 0.2 * (1 + 0.8**2)]),
    Worked("ties", named("RBP", persistence=0.5), None, HALF_TIED, (1 + (1 / 2 + 1 / 4) / 2) / 2),
    Worked("clicks", named("ERR", max_relevance=1.0), 3, ranked([1, 0, 1]), 1 / 2 + 1 / 2 * 1 / 2 / 3),
    Worked("clicks", named("ERR", max_relevance=1.0), 2, ranked([1, 0, 1]), 1 / 2),
    Worked("grades", named("ERR"), None, ranked([3, 0, 2]), 7 / 16 + 9 / 16 * 3 / 16 / 3),
    Worked(
        "grades", named("ERR"), None, ranked([3, 0, 2], [4, 1, 0]), [7 / 16 + 9 / 256, 15 / 16 + 1 / 16 * 1 / 16 / 2]
    ),
    # Of the two orders of the tie the relevant item comes second or third; or it stands beyond the cutoff.
    Worked("ties", named("ERR", max_relevance=1.0), None, HALF_TIED, 1 / 2 + 1 / 2 * 1 / 2 * (1 / 2 + 1 / 3) / 2),
    Worked("ties", named("ERR", max_relevance=1.0), 2, HALF_TIED, 1 / 2 + 1 / 2 * 1 / 2 * 1 / 2 / 2),
    Worked(
        "ties",
        named("ERR"),
        None,
        {"preds": [[0.0, 0.0]], "target": [[4, 1]]},
        ((15 / 16 + 1 / 16 * 1 / 16 / 2) + (1 / 16 + 15 / 16 * 15 / 16 / 2)) / 2,
    ),
    Worked("an empty user", named("ERR"), None, ranked([0, 0], [0, 4]), [nan, 15 / 16 / 2]),
    Worked("ranks 1, 4", named("MeanRank"), None, ranked([1, 0, 0, 2]), (1 + 4) / 2),
    Worked("ranks 1, 4", named("MeanRank"), 2, ranked([1, 0, 0, 2]), (1 + 3) / 2),
    Worked("ranks 1, 4", named("MeanPercentileRank"), None, ranked([1, 0, 0, 2, 0]), (0 + 3 / 4) / 2),
    Worked("ranks 1, 4", named("MeanPercentileRank"), 3, ranked([1, 0, 0, 2, 0]), (0 + 1) / 2),
    Worked("16", named("MeanRank"), None, REPLAY, [nan, nan, nan]),  # nobody knows where the others stand
    Worked("16", named("MeanRank"), 5, REPLAY, [(2 + 3 + 4 * 6) / 6, (3 + 4 * 6) / 5, (1 + 3 + 3 * 6) / 5]),
    # Of 12 items 7 or 9 are not listed, so a relevant one of them stands at rank 9 or 8 in the mean.
    Worked(
        "16",
        named("MeanRank", num_items=12),
        None,
        REPLAY,
        [(2 + 3 + 4 * 9) / 6, (3 + 4 * 9) / 5, (1 + 3 + 3 * 8) / 5],
    ),
    Worked("16", named("MeanRank", pooled=True, num_items=12), None, REPLAY, (41 + 39 + 28) / (6 + 5 + 5)),
    Worked(
        "16",
        named("MeanPercentileRank", num_items=12),
        None,
        REPLAY,
        [(1 + 2 + 4 * 8) / 11 / 6, (2 + 4 * 8) / 11 / 5, (0 + 2 + 3 * 7) / 11 / 5],
    ),
    Worked("one user has two", named("MeanPercentileRank", pooled=True), None, ranked([1, 0, 1], [0, 1, 0]), 1.5 / 3),
    Worked("all tied", named("MeanRank"), None, {"preds": [[0.0] * 4], "target": [[1, 1, 0, 0]]}, 5 / 2),
    Worked("all tied", named("MeanPercentileRank"), None, {"preds": [[0.0] * 4], "target": [[1, 0, 0, 0]]}, 1 / 2),
    Worked("20: hidden", named("MeanRank"), None, RAX, (2 + 4) / 2),
    Worked("20: hidden", named("MeanPercentileRank"), None, RAX, (1 / 2 + 1) / 2),
    Worked("one item", named("MeanPercentileRank"), None, ranked([1]), 0),
    Worked("an empty user", named("MeanRank"), None, ranked([0, 0], [0, 1]), [nan, 2]),
    Worked("an empty user", named("RBP"), None, ranked([0, 0], [0, 1]), [nan, 0.2 * 0.8]),
    Worked("an empty user", named("MRR"), None, ranked([0, 0], [0, 1]), [nan, 1 / 2]),
    Worked("short list", named("Precision"), 5, ranked([1, 1]), 2 / 5),
    Worked("short list", named("F1"), 5, ranked([1, 1]), 2 * (2 / 5) * 1 / (2 / 5 + 1)),
    Worked("list shorter than the cut", named("Recall", denominator="min"), 2, ranked([1, 1, 1]), 2 / 2),
    Worked("short list", named("Precision", denominator="retrieved"), 5, ranked([1, 0, 1]), 2 / 3),
    Worked("long list", named("Precision", denominator="retrieved"), 2, ranked([1, 0, 1]), 1 / 2),
    Worked("16", named("Precision", denominator="retrieved"), 4, REPLAY, [2 / 4, 1 / 4, 2 / 3]),
    Worked("CG", named("DCG", gain="linear", discount="none"), 4, ranked([3, 1, 2, 3, 2]), 3 + 1 + 2 + 3),
    Worked("CG", named("DCG", discount="none"), None, ranked([3, 1, 2]), 7 + 1 + 3),
    Worked("LensKit", named("DCG", discount="log2_from_two"), 4, ranked([1, 1, 0, 1]), 1 / 1 + 1 / 1 + 1 / log2(4)),
    Worked("LensKit", named("NDCG", discount="log2_from_two"), 2, ranked([0, 1, 1]), 1 / 2),
    Worked(
        "LensKit",
        named("NDCG", discount="log2_from_two"),
        3,
        RECTOOLS,
        [0, 1, (1 + 1 / log2(3)) / (2 + 1 / log2(3)), 1],
    ),
    Worked("CG", named("NDCG", discount="none"), 2, REPLAY, [1 / 2, 0, 1 / 2]),
    Worked("short list", named("F1", beta=2.0), 5, ranked([1, 1]), (1 + 4) * 2 / (5 + 4 * 2)),
    Worked("16", named("F1", beta=0.5), 2, REPLAY, [1.25 / (2 + 6 / 4), 0, 1.25 / (2 + 5 / 4)]),
    Worked("16", named("Recall", pooled=True), 2, REPLAY, (1 + 0 + 1) / (6 + 5 + 5)),
    Worked("16", named("Recall", denominator="min", pooled=True), 2, REPLAY, (1 + 0 + 1) / (2 + 2 + 2)),
    Worked("one has one", named("Recall", denominator="min", pooled=True), 2, ranked([1, 0, 0], [1, 0, 1]), 2 / 3),
]


def tensors(update: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(value) for name, value in update.items()}


@pytest.mark.parametrize("worked", NUMBERS, ids=str)
def test_the_oracles_give_the_worked_numbers(worked: Worked) -> None:
    users = read(**worked.update)
    if isinstance(worked.expected, list):
        got = worked.variant.expected_per_user(users, worked.top_k)
    else:
        got = worked.variant.value(users, worked.top_k)
    assert got == pytest.approx(worked.expected, abs=worked.within, rel=0, nan_ok=True)


@pytest.mark.parametrize("worked", NUMBERS, ids=str)
def test_the_package_gives_the_worked_numbers(worked: Worked) -> None:
    update = tensors(worked.update)
    if isinstance(worked.expected, list):
        got = worked.variant.per_user(**update, top_k=worked.top_k).tolist()
    else:
        got = updated(worked.variant.make(worked.top_k), **update).compute().item()
    assert got == pytest.approx(worked.expected, abs=worked.within, rel=0, nan_ok=True)


def thrice(relevance: Any) -> Any:
    """A gain that is not 1 for a relevance of 1, as each by name is."""
    return 3.0 * relevance


@pytest.mark.parametrize("gain", ["hit", "linear", "exponential", thrice])
@pytest.mark.parametrize("ideal", [None, "relevant", "retrieved"])
def test_gains_in_a_metric_of_ones_own(gain: Any, ideal: str | None) -> None:
    """Of `gain_sum` and `ideal_sum`, with no discount, so that the sums are those of the gains."""

    class Own(DCG):
        stem = "own"

        @staticmethod
        def measure(stats: Any, cutoffs: Any, **_: Any) -> torch.Tensor:
            if ideal is None:
                return stats.gain_sum(cutoffs, gain, None)
            return stats.ideal_sum(cutoffs, gain, ideal, None)

    by_name = {"hit": lambda g: float(g > 0), "linear": float, "exponential": lambda g: 2.0**g - 1}
    of = by_name.get(gain, gain)
    for grades in ((0, 3, 1, 2), (0, 1, 1, 0)):
        ranked = grades if ideal is None else sorted(grades, reverse=True)
        for k in (2, 3, None):
            found = updated(Own(k), torch.tensor([[4.0, 3.0, 2.0, 1.0]]), torch.tensor([grades])).compute()
            assert float(found) == pytest.approx(sum(of(g) for g in ranked[:k]), abs=1e-12), f"{grades} {k}"
