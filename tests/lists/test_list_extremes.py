"""What seldom comes: functions of one name, models as similarities, vectors of unlike length, long cut-offs."""

from __future__ import annotations

import copy
import functools
import pickle

import pytest
import torch
from torchmetrics import MetricCollection

from torch_recmetrics import ILS, Coverage, Entropy, IntraListDiversity, RecMetricCollection


def scaled(first: torch.Tensor, second: torch.Tensor, *, by: float) -> torch.Tensor:
    return by * ((first + second) > 3).double()


def made(by: float):
    return lambda first, second: scaled(first, second, by=by)


@pytest.mark.parametrize("make", [made, lambda by: functools.partial(scaled, by=by)])
@pytest.mark.parametrize("collection", [MetricCollection, RecMetricCollection])
def test_functions_of_one_name_are_different_metrics(make, collection) -> None:
    one, five = make(1.0), make(5.0)
    metrics = collection({"a": ILS(similarity=one, top_k=2), "b": ILS(similarity=five, top_k=2)})
    for ids in ([[0, 1]], [[3, 4]]):
        metrics.update(item_ids=torch.tensor(ids))
    assert {name: value.item() for name, value in metrics.compute().items()} == {"a": 0.5, "b": 2.5}
    with pytest.raises(ValueError, match="only metrics of the same options merge"):
        metrics["a"].merge_state(metrics["b"])
    again = ILS(similarity=one, top_k=2)
    again.update(item_ids=torch.tensor([[3, 4]]))
    again.merge_state(metrics["a"])
    assert again.compute().item() == pytest.approx(2 / 3)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.items = torch.nn.Embedding(5, 2)

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return (self.items(first) * self.items(second)).sum(1)


def test_a_model_as_similarity_stays_the_users() -> None:
    net = Net()
    metric = ILS(similarity=net, top_k=2)
    assert not list(metric.parameters())
    assert not metric.state_dict()
    assert copy.deepcopy(metric).function_of_pairs.given is net
    copied = pickle.loads(pickle.dumps(metric))
    copied.update(item_ids=torch.tensor([[0, 1]]))
    metric.update(item_ids=torch.tensor([[0, 1]]))
    assert metric.compute() == copied.compute()


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (torch.tensor([[1e4], [1e-4]]), 1.0),
        (torch.tensor([[5000.0], [0.001]]), 5.0),
        (torch.tensor([[2**24 + 1], [1]]), 2.0**24 + 1),
        (torch.tensor([[3e140], [1.0]], dtype=torch.float64), None),
    ],
)
def test_products_of_vectors_of_very_different_length(features: torch.Tensor, expected: float | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match='`item_features` must be at most 1e\\+140 in size for similarity="dot"'):
            ILS(features, 2, similarity="dot")
        return
    metric = ILS(features, 2, similarity="dot")
    metric.update(item_ids=torch.tensor([[0, 1]]))
    assert metric.compute().item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("arguments", [{"similarity": torch.zeros(0, 0)}, {"item_features": torch.zeros(0, 2)}])
def test_no_items_at_all_are_refused(arguments) -> None:
    for metric in (ILS, IntraListDiversity):
        with pytest.raises(ValueError, match="must have at least one"):
            metric(**arguments)


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
    monkeypatch.setattr("torch_recmetrics.state.item_counts.WAITING_IDS", 30)
    metric = Coverage(10, 3)
    for _ in range(40):
        assert metric(item_ids=torch.tensor([[0, 1, 2]])) == pytest.approx(0.3)
    assert sum(len(held) for name, held in metric.metric_state.items() if name.startswith("lists")) < 12
    assert metric.compute() == pytest.approx(0.3)


def test_an_unknown_item_that_is_not_checked_counts_for_nothing() -> None:
    metric = Coverage(3, 2, validate_args=False)
    metric.update(item_ids=torch.tensor([[0, 7], [1, 2**32 + 1]]))
    assert metric.compute() == pytest.approx(2 / 3)


@pytest.mark.parametrize("base", ["e", None, 1, float("inf")])
def test_a_base_that_is_no_number_above_one_is_named(base) -> None:
    with pytest.raises(ValueError, match="`base` must be a number above 1"):
        Entropy(3, base=base)
