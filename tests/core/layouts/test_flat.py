"""Flat rows against the same users as rows of a matrix, over what decides how rows are packed and sorted."""

from __future__ import annotations

import itertools

import pytest
import torch
from fixtures.histories import updated
from fixtures.refusals import refused

from torch_recmetrics import MAP, NDCG, CollapseRate, functional, ranking_metrics
from torch_recmetrics.core.layouts import flat as layout
from torch_recmetrics.core.layouts.flat import NARROW, WIDE, FlatRows, joined_rows, pack, sort_rows, unpack

NAMES = ("ndcg", "average_precision", "reciprocal_rank", "hit_rate", "recall", "precision")
MEASURES = [getattr(functional, name) for name in NAMES]
RELEVANCE = {
    "bool": lambda hit: hit,
    "stars": lambda hit: hit * torch.randint(0, 11, hit.shape) / 2,
    "whole": lambda hit: hit * torch.randint(0, 6, hit.shape),
    "large": lambda hit: hit * torch.randint(0, 1 << 40, hit.shape),
    "any": lambda hit: hit * torch.rand(hit.shape, dtype=torch.float64),
}


def scores(dtype: torch.dtype, shape: tuple[int, int], *, tied: bool) -> torch.Tensor:
    preds = torch.randn(shape)
    if tied or dtype == torch.float64:
        preds = (preds * 2).round() / 2
    preds = preds.to(dtype)
    if dtype == torch.float64 and not tied:
        preds += torch.randn(shape, dtype=dtype) * 1e-12  # of which float32 makes equal scores
    preds[torch.rand(shape) < 0.2] = float("-inf")
    preds[torch.rand(shape) < 0.05] = float("inf")
    return preds


@pytest.mark.parametrize("kind", RELEVANCE)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_flat_rows_have_the_values_of_matrix_rows(dtype: torch.dtype, kind: str) -> None:
    # Users' numbers are far apart, or near, in every other case.
    far = (list(RELEVANCE).index(kind) + (dtype == torch.float32)) % 2 == 0
    for (n_users, n_items), tied in itertools.product([(1, 1), (6, 30)], [False, True]):
        preds = scores(dtype, (n_users, n_items), tied=tied)
        target = RELEVANCE[kind](torch.rand(n_users, n_items) < 0.3)
        users = torch.randint(-(2**62), 2**62, (n_users,)).sort().values if far else torch.arange(n_users) * 3 - 4
        mixed = torch.randperm(n_users * n_items)
        flat = preds.flatten()[mixed], target.flatten()[mixed], users.repeat_interleave(n_items)[mixed]
        for measure, top_k, ties in itertools.product(MEASURES, (5, None), ("average",)):
            options = {"top_k": top_k, "ties": ties} | ({"gain": "linear"} if measure is functional.ndcg else {})
            torch.testing.assert_close(
                measure(*flat, **options), measure(preds, target, **options), rtol=1e-12, atol=1e-12, equal_nan=True
            )


def test_equal_scores_stand_in_the_order_of_arrival() -> None:
    preds, target = torch.zeros(6), torch.tensor([0, 1, 0, 0, 0, 1])
    users = torch.tensor([1, 0, 1, 0, 0, 1])
    values = functional.reciprocal_rank(preds, target, users, ties="stable")
    assert values.tolist() == [1.0, pytest.approx(1 / 3)]


def test_relevance_is_sorted_along_only_where_it_fits() -> None:
    users, preds = torch.tensor([0, 0, 1]), torch.tensor([0.1, 0.2, 0.3])
    for relevance, fits in (([0.5, 2.75, 0], True), ([0.1, 1, 0], False), ([5000, 1, 0], False), ([4095, 1, 0], True)):
        sorted_rows = sort_rows(FlatRows(users, preds, torch.tensor(relevance), None), ordered=False)
        assert (sorted_rows.order is None) == fits


def test_users_may_leave_no_bits_to_relevance(monkeypatch: pytest.MonkeyPatch) -> None:
    """As 2^30 and more do; here of fewer bits in all."""
    preds, target, users = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1, 0, 1]), torch.tensor([0, 0, 5])
    expected = functional.reciprocal_rank(preds, target, users)
    monkeypatch.setattr(layout, "MOST_BITS", 33)
    assert torch.equal(functional.reciprocal_rank(preds, target, users), expected)


@pytest.mark.parametrize(
    ("preds", "target", "weights", "columns"),
    [
        (torch.float32, torch.bool, None, NARROW),
        (torch.bfloat16, torch.float16, None, NARROW),
        (torch.float32, torch.int64, None, NARROW),
        (torch.float64, torch.bool, None, WIDE),
        (torch.float32, torch.float64, None, WIDE),
        (torch.float32, torch.bool, torch.float32, WIDE),
    ],
)
def test_waiting_rows_are_as_narrow_as_they_can_be(preds, target, weights, columns) -> None:
    users = torch.tensor([4, -(2**62), 2**62])
    given = FlatRows(
        users,
        torch.tensor([0.1, float("-inf"), 3e4], dtype=preds),
        torch.tensor([1, 0, 1], dtype=target),
        None if weights is None else torch.tensor([0.1, 2, 3], dtype=weights),
    )
    packed = pack(given)
    assert packed.shape == (3, columns)
    for part in (packed, joined_rows([packed, packed], users.device, WIDE)[3:]):
        back = unpack(part)
        assert torch.equal(back.indexes, users)
        assert torch.equal(back.preds.to(preds), given.preds)
        assert torch.equal(back.relevance.to(target), given.relevance)


def test_a_large_whole_relevance_keeps_its_last_digit() -> None:
    target = torch.tensor([2**24 + 1, 2**24])
    rows = FlatRows(torch.zeros(2, dtype=torch.int64), torch.ones(2), target, None)
    assert unpack(pack(rows)).relevance.tolist() == target.tolist()


def test_updates_of_different_widths_are_one_history() -> None:
    metric, once = NDCG(2), NDCG(2)
    users = torch.tensor([0, 0, 1, 1])
    preds, target = torch.tensor([0.5, 0.25, 0.75, 0.5]), torch.tensor([0, 1, 0, 1])
    metric.update(preds[:1], target[:1] == 1, users[:1])
    metric.update(preds[1:3].double(), target[1:3], users[1:3])
    metric.update(preds[3:], target[3:].double(), users[3:], weights=torch.ones(1))
    once.update(preds, target, users)
    assert metric.compute() == once.compute()


def test_weights_that_differ_within_a_user_name_the_user() -> None:
    metric = MAP(2)
    with refused(metric, r"`weights` must agree within a user, got .* for index 7"):
        metric.update(torch.rand(3), torch.ones(3), torch.tensor([7, 2, 7]), weights=torch.tensor([1.0, 1.0, 2.0]))


@pytest.mark.parametrize("n_rows", [0, 1, 2])
def test_rows_are_read_back_whatever_their_strides(n_rows: int) -> None:
    packed = torch.zeros((n_rows, NARROW), dtype=torch.int64)
    assert unpack(packed).preds.tolist() == [0.0] * n_rows
    assert unpack(packed.T.contiguous().T).preds.tolist() == [0.0] * n_rows


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.bool, torch.float16])
def test_relevance_of_eight_bits_is_below_the_limit_of_gains(dtype: torch.dtype) -> None:
    metric = updated(NDCG(2), torch.tensor([0.1, 0.9]), torch.tensor([0, 1]).to(dtype), torch.tensor([0, 0]))
    assert metric.compute() == 1


@pytest.mark.parametrize("ties", ["average", "optimistic", "pessimistic", "stable"])
def test_tables_of_bounded_size_give_the_same_sums(ties: str, monkeypatch: pytest.MonkeyPatch) -> None:
    users = torch.cat([torch.arange(40), torch.randint(0, 8, (200,)), torch.zeros(100, dtype=torch.int64)])
    users = users[torch.randperm(users.shape[0])] * 3 - 10
    preds = torch.randint(0, 6, users.shape).float()
    preds[torch.rand(users.shape) < 0.1] = float("-inf")
    target = torch.randint(0, 3, users.shape) * (torch.rand(users.shape) < 0.5)
    weights = torch.rand(40)[(users + 10) // 3]

    def values() -> dict[str, torch.Tensor]:
        metrics = ranking_metrics(("ndcg", "map", "mrr", "precision"), top_k=(1, 7, 50, None), ties=ties)
        metrics.add_metrics(CollapseRate(3, warn_above=None))
        metrics.update(preds, target, users, weights=weights)
        return metrics.compute()

    expected = values()
    for places in (1, 30, 300):
        monkeypatch.setattr(layout, "TABLE_PLACES", places)
        for name, value in values().items():
            torch.testing.assert_close(value, expected[name], rtol=1e-12, atol=1e-12)
