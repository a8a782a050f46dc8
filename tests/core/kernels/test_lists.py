"""Lists of items: loops beside their definition in plain Python, and beside torch, bit by bit."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from torch_recmetrics import RBO, GroupExposure, Jaccard, KendallTau, Overlap, RecMetricCollection, rank
from torch_recmetrics.core.kernels import lists
from torch_recmetrics.core.kernels.runtime import plain
from torch_recmetrics.metrics.agreement import ListPair

pytest.importorskip("numba")
CUTS = [(1,), (4, 9, 2), (12, 12), (7,)]
LARGE = [1 << 58, 1 << 60, 3 << 58, 0, 2**63 - 1, 5, 1 << 40]
IN_ONE_SLOT = [item for item in range(2000) if (item * lists.SCATTERED % 2**64) >> 58 == 63][:20]


def two_lists(seed: int, n: int = 60, known: list[int] | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """(n, 12) and (n, 9) lists of 0 to so many items, alike and not, of which some hold an id twice."""
    g = torch.Generator().manual_seed(seed)
    ids = torch.tensor(known or list(range(20)))
    some, others = (torch.rand(n, 20, generator=g).argsort(1)[:, :width] % len(ids) for width in (12, 9))
    others[: n // 3] = some[: n // 3, :9]
    both = []
    for places in (ids[some], ids[others]):
        lengths = torch.randint(places.shape[1] + 1, (n, 1), generator=g)
        lengths[: n // 5] = places.shape[1]
        both.append(torch.where(torch.arange(places.shape[1]) < lengths, places, -1))
    return both[0], both[1]


@pytest.mark.parametrize("known", [None, LARGE, IN_ONE_SLOT], ids=["small", "large", "in one slot"])
@pytest.mark.parametrize("cuts", CUTS)
def test_places_and_shared_items_are_those_of_the_definition(cuts: tuple[int, ...], known: Any) -> None:
    some, others = two_lists(1, known=known)
    for one, other in ((some, others), (others, some), (some[:, :0], others), (some, others[:, :0])):
        depth = max(one.shape[1], other.shape[1])
        places, shared, lengths = lists.match_lists(one, other, cuts)
        for user, (a, b) in enumerate(zip(one.tolist(), other.tolist(), strict=True)):
            expected = [b.index(item) if item >= 0 and item in b else depth for item in a]
            assert places[user].tolist() == expected
            for column, k in enumerate(cuts):
                assert shared[user, column] == sum(place < k for place in expected[:k])
                assert lengths[0, user, column] == sum(item >= 0 for item in a[:k])
                assert lengths[1, user, column] == sum(item >= 0 for item in b[:k])


@pytest.mark.parametrize("cuts", CUTS)
def test_pairs_are_those_of_the_definition(cuts: tuple[int, ...]) -> None:
    places, _, _ = lists.match_lists(*two_lists(2), cuts)
    counts = lists.pair_counts(places, cuts)
    for user, row in enumerate(places.tolist()):
        for column, k in enumerate(cuts):
            held = [(own, other) for own, other in enumerate(row[:k]) if other < k]
            pairs = [(a, b) for i, a in enumerate(held) for b in held[i + 1 :]]
            assert counts[0, user, column] == sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for a, b in pairs)
            assert counts[1, user, column] == sum(own for own, _ in held)
            assert counts[2, user, column] == sum(other for _, other in held)


def test_amounts_are_those_of_the_definition_and_no_id_is_read_beyond_the_items() -> None:
    some, _ = two_lists(3)
    some[0, :3] = torch.tensor([19, 20, 2**40])  # refused later, and until then taken for the last item
    some[1, :2] = torch.tensor([-5, 3])
    groups = torch.tensor([0, *(item % 4 for item in range(20))])  # of -1, then of each item; 0 for none
    amounts = torch.rand(12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = lists.amounts_by_group(groups, 3, some, amounts, (3, 12, 0))
    for user, row in enumerate(some.tolist()):
        for column, k in enumerate((3, 12, 0)):
            expected = [0.0, 0.0, 0.0]
            for item, amount in zip(row[:k], amounts.tolist()):
                if item >= 0 and min(item, 19) % 4:
                    expected[min(item, 19) % 4 - 1] += amount
            assert found[user, column].tolist() == expected


@pytest.mark.parametrize("persistence", [0.3, 0.9, 0.99])
@pytest.mark.parametrize("k", [1, 5, 12, None])
def test_both_ways_give_the_same_bits(k: int | None, persistence: float) -> None:
    some, others = two_lists(4)
    ranking = rank(item_ids=some, reference_ids=others, top_k=None, validate_args=False)
    cutoffs = (k, 3)
    options: Any = {"persistence": persistence}
    measures = [
        (Overlap, {"denominator": "k"}),
        (Overlap, {"denominator": "min"}),
        (Jaccard, {}),
        (RBO, options),
        (KendallTau, {"missing": "left_out"}),
        (KendallTau, {"missing": "tied"}),
    ]
    for metric, given in measures:
        compiled = metric.measure(ranking.having().stats("stable"), cutoffs, **given)
        with plain():
            expected = metric.measure(ranking.having().stats("stable"), cutoffs, **given)
        assert compiled.dtype == expected.dtype and compiled.shape == expected.shape == (60, 2)
        assert torch.equal(compiled.nan_to_num(-9), expected.nan_to_num(-9)), metric


def test_places_are_equal_both_ways() -> None:
    ranking = rank(item_ids=two_lists(5)[0], reference_ids=two_lists(5)[1], top_k=None, validate_args=False)
    found = ListPair(ranking.stats("stable"), (4, None))
    with plain():
        expected = ListPair(ranking.stats("stable"), (4, None))
    for name in ("places", "shared", "lengths"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name


@pytest.mark.parametrize("per", ["list", "system"])
def test_exposure_has_the_same_bits_both_ways(per: Any) -> None:
    some, _ = two_lists(6)
    groups = torch.arange(20) % 5 - 1
    values = []
    for way in (False, True):
        metrics = RecMetricCollection([GroupExposure(groups, k, per=per) for k in (1, 5, 12)])
        if way:
            with plain():
                metrics.update(item_ids=some[:20])
                values.append(metrics.compute())
        else:
            metrics.update(item_ids=some[:20])
            values.append(metrics.compute())
    assert values[0] == values[1]
    assert all(math.isfinite(value) for value in values[0].values())
