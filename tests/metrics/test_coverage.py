"""How often items are recommended, worked by hand; how the lists wait to be counted."""

from __future__ import annotations

import math

import pytest
import torch
from fixtures.histories import of_lists, updated

from torch_recmetrics import (
    ILS,
    MRR,
    NDCG,
    Coverage,
    Entropy,
    Gini,
    IntraListDiversity,
    Personalization,
    RecMetricCollection,
    UserCoverage,
)
from torch_recmetrics.core.tensors.fingerprint import fingerprint
from torch_recmetrics.state.ranked import item_counts
from torch_recmetrics.state.ranked.item_counts import ItemCounts

EYE = torch.eye(4, dtype=torch.float64)


def test_counts() -> None:
    lists = [[0, 1, 3], [1, 0, 2], [0, 4, -1]]
    assert of_lists(Coverage(10, 2), lists) == 3 / 10
    assert of_lists(Coverage(10, 3), lists) == 5 / 10
    # 3 items with 0, 1 with 1, 2 with 2 and 3 lists: (-4 * 0 - 2 * 0 + 0 * 1 + 2 * 2 + 4 * 3) / (5 * 6)
    assert of_lists(Gini(5, 2), lists) == (2 * 2 + 4 * 3) / (5 * 6)
    assert of_lists(Gini(4, 1), [[2], [2]]) == 3 / 4
    assert of_lists(Gini(4, 2), [[0, 1], [2, 3]]) == 0
    assert of_lists(Entropy(4, 2), [[0, 1], [2, 3]]) == 2
    assert of_lists(Entropy(9, 1, base=10), [[0], [0], [1], [1]]) == pytest.approx(math.log10(2), abs=1e-15)
    assert of_lists(Entropy(8, 1, normalized=True), [[0], [1]]) == pytest.approx(1 / 3, abs=1e-15)
    # Overlaps of two places: {0, 1} and {1, 0}: 1; {0, 1} and {0, 4}: 1/2, twice.
    assert of_lists(Personalization(5, 2), lists) == pytest.approx(1 - (1 + 1 / 2 + 1 / 2) / 3, abs=1e-15)
    assert of_lists(Personalization(2, 10), [[0, 1], [1, 0]]) == 0
    assert of_lists(Personalization(5, 2), [[0, -1], [0, 1], [-1, -1]]) == 1 - 1 / 2
    assert of_lists(UserCoverage(3, min_items=3), lists) == 2 / 3
    assert of_lists(UserCoverage(3), [[-1, -1], [0, -1]], weights=torch.tensor([3.0, 1.0])) == 1 / 4


def test_nothing_recommended() -> None:
    nothing = [[-1, -1], [-1, -1]]
    assert of_lists(Coverage(5), nothing) == 0
    assert of_lists(UserCoverage(2), nothing) == 0
    for metric in (Gini(5), Entropy(5), Personalization(5)):
        assert math.isnan(of_lists(metric, nothing))
    assert math.isnan(of_lists(Personalization(5), [[0, 1]]))


def test_weights_leave_users_out_and_do_nothing_else_to_counts() -> None:
    weights = torch.tensor([0.0, 0.25, 7.0])
    lists = [[0], [1], [1]]
    assert of_lists(Coverage(4, 1), lists, weights=weights) == 1 / 4
    assert of_lists(Personalization(4, 1), lists, weights=weights) == 0


def test_equal_scores_keep_the_order_of_the_items() -> None:
    metrics = RecMetricCollection([ILS(EYE, 2), Coverage(4, 2), UserCoverage(2), MRR(), NDCG(2)])
    preds = torch.tensor([[1.0, 1, 1, 1], [2.0, 1, 2, 1]])
    metrics.update(preds, target_ids=torch.tensor([[3], [0]]), seen_ids=torch.tensor([[-1, -1], [0, 0]]))
    table = {name: float(value) for name, value in metrics.compute().items()}
    assert table["coverage@2"] == 3 / 4  # items 0 and 1; items 2 and 1
    assert table["ils@2"] == 0
    assert table["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4 / 2)


def test_lists_wait_until_counting_them_is_worth_a_pass_over_the_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_counts, "WAITING_IDS", 6)
    metric = Coverage(5, 2)
    for rows, waiting in ((1, 1), (1, 2), (1, 0), (4, 0), (2, 1)):
        metric.update(item_ids=torch.tensor([[0, 1]] * rows))
        assert len(metric.state("lists")) == waiting
    assert metric.state("counts").tolist() == [7, 7, 0, 0, 0, 7]
    assert metric._defaults[metric.state_name("counts")].sum() == 0


def test_an_item_of_a_list_that_waits_takes_four_bytes() -> None:
    metric = updated(Coverage(5, 2), item_ids=torch.tensor([[0, 4]]))
    assert metric.state("lists")[0].dtype == torch.int32
    metric.num_items = 1 << 31  # whose counts would take 17 GB
    metric.update(item_ids=torch.tensor([[0, (1 << 31) - 1]]))
    assert metric.state("lists")[1].tolist() == [[0, (1 << 31) - 1]]


def test_a_catalogue_of_ten_million_items() -> None:
    """An update costs what its lists cost."""
    n = 10_000_000
    lists = torch.arange(50).view(5, 10) * 199_999
    metric = Gini(n, 10)
    for _ in range(3):
        metric.update(item_ids=lists)
    assert not metric.state("counts").any()  # not written yet
    assert sum(some.numel() for some in metric.state("lists")) == 150
    assert float(metric.compute()) == pytest.approx(1 - 50 / n, abs=1e-12)


def test_what_a_definition_says() -> None:
    assert Entropy(5, 3, normalized=True).definition() == "Entropy(num_items=5, top_k=3, base=2.0, normalized=True)"
    assert [m.name for m in (ILS(EYE, 5), IntraListDiversity(EYE), Personalization(4, 2), ILS(EYE, None))] == [
        *("ils@5", "intra_list_diversity@10", "personalization@2", "ils")
    ]
    said = ILS(EYE, 5).definition()
    assert said == f"ILS(top_k=5, similarity='cosine', items=4, data='{fingerprint(EYE)}')"
    assert issubclass(Coverage, ItemCounts)


@pytest.mark.parametrize("named", [False, True])
def test_a_cut_off_as_long_as_the_catalogue_costs_what_the_lists_cost(named: bool) -> None:
    metric = Coverage(1_000_000, 1_000_000)
    for start, width in ((0, 20), (10, 5), (0, 0)):
        ids = torch.arange(start, start + width).repeat(4, 1)
        samples = {"sample_ids": torch.arange(4) + start * 10} if named else {}
        metric.update(item_ids=ids, **samples)
    assert sum(part.numel() for name, held in metric.metric_state.items() if "lists" in name for part in held) <= 100
    assert metric.compute().item() == pytest.approx(20e-6)


def test_forward_counts_the_lists_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_counts, "WAITING_IDS", 30)
    metric = Coverage(10, 3)
    for _ in range(40):
        assert metric(item_ids=torch.tensor([[0, 1, 2]])) == pytest.approx(0.3)
    assert sum(len(held) for name, held in metric.metric_state.items() if name.startswith("lists")) < 12
    assert metric.compute() == pytest.approx(0.3)


def test_an_unknown_item_that_is_not_checked_counts_for_nothing() -> None:
    metric = updated(Coverage(3, 2, validate_args=False), item_ids=torch.tensor([[0, 7], [1, 2**32 + 1]]))
    assert metric.compute() == pytest.approx(2 / 3)
