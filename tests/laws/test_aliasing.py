"""What a metric or a ranking keeps is its own: nobody who holds the same tensors or objects can change it unseen."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import pytest
import torch
from fixtures.histories import updated
from fixtures.refusals import refused
from torchmetrics import Metric
from torchmetrics.wrappers import MinMaxMetric, Running

from torch_recmetrics import MRR, NDCG, BinaryAUC, RecMetricCollection, functional, rank, ranking_metrics
from torch_recmetrics.state import scored_rows

PREDS = torch.tensor([[0.9, 0.1, 0.5], [0.1, 0.9, 0.5]])
TARGET = torch.tensor([[1, 0, 0], [1, 0, 0]])
IDS = torch.tensor([[0], [0]])


class Refuses(Metric):
    """Refuses every update once it is told to."""

    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        self.on = False

    def update(self, preds: torch.Tensor, target: torch.Tensor) -> None:
        if self.on:
            raise ValueError("refused")

    def compute(self) -> torch.Tensor:
        return torch.zeros(())


def test_a_buffer_of_sample_ids_may_be_filled_anew() -> None:
    metric, ids = MRR(), torch.arange(2)
    metric.update(PREDS, TARGET, sample_ids=ids)
    ids += 2
    metric.update(PREDS, TARGET, sample_ids=ids)
    metric.update(-PREDS, TARGET, sample_ids=ids)  # the same rows again
    assert float(metric.compute()) == pytest.approx((1 + 1 / 3) / 2, abs=1e-15)
    assert metric.state("sample_ids")[0].tolist() == [0, 1]


def test_a_buffer_of_weights_may_be_filled_anew() -> None:
    metric, weights = MRR(empty_target_action="neg"), torch.ones(2, dtype=torch.float64)
    metric.update(PREDS, TARGET, sample_ids=torch.arange(2), weights=weights)
    ranking = rank(PREDS, TARGET, weights=weights)
    expected = float(metric.compute())
    weights.zero_()
    assert float(metric.compute()) == expected
    assert ranking.weights.tolist() == [1, 1]


@pytest.mark.parametrize(
    "layout",
    [
        {"preds": PREDS, "target": TARGET},
        {"preds": PREDS, "target_ids": IDS},
        {"item_ids": torch.tensor([[0, 2], [1, 2]]), "target_ids": IDS},
        {"preds": PREDS.flatten(), "target": TARGET.flatten(), "indexes": torch.tensor([0, 0, 0, 1, 1, 1])},
    ],
)
def test_a_ranking_is_on_its_own(layout: dict[str, torch.Tensor]) -> None:
    given = {name: value.clone() for name, value in layout.items()}
    ranking = rank(**given, top_k=2)
    before = functional.ndcg(ranking, top_k=2, ideal="retrieved")
    for value in given.values():
        value.zero_()
    assert torch.equal(functional.ndcg(ranking, top_k=2, ideal="retrieved"), before)
    again = pickle.loads(pickle.dumps(ranking))
    assert torch.equal(functional.ndcg(again, top_k=2, ideal="retrieved"), before)


def test_reset_leaves_a_state_that_was_taken_out() -> None:
    metric, other = MRR(), MRR()
    metric.update(PREDS, TARGET, sample_ids=torch.arange(2))
    expected, state = metric.compute(), metric.metric_state
    metric.reset()
    other.merge_state(state)
    assert torch.equal(other.compute(), expected)
    running = Running(MRR(), window=2)
    for first in (0, 2):
        running.update(PREDS, TARGET, sample_ids=torch.arange(2) + first)
    assert torch.equal(running.compute(), expected)


def test_a_loaded_member_forgets_what_was_worked_out_for_all() -> None:
    first, second = (ranking_metrics(("mrr", "ndcg"), top_k=3) for _ in range(2))
    for metrics, sign in ((first, 1), (second, -1)):
        metrics.persistent(True)
        metrics.update(sign * PREDS, TARGET, sample_ids=torch.arange(2))
        metrics.compute()
    first["ndcg@3"].load_state_dict(second["ndcg@3"].state_dict())
    assert torch.equal(first.compute()["ndcg@3"], second.compute()["ndcg@3"])


@pytest.mark.parametrize("method", ["update", "forward"])
def test_a_refused_update_leaves_wrapped_metrics_as_they_were(method: str) -> None:
    refuses = Refuses()
    members = {"wrapped": MinMaxMetric(MRR()), "sum": MRR() + MRR(), "refuses": refuses, "ndcg": NDCG(2)}
    metrics = updated(RecMetricCollection(members), PREDS, TARGET)
    before: dict[str, Any] = metrics.compute()
    refuses.on = True
    with refused(metrics, "refused"):
        getattr(metrics, method)(-PREDS, TARGET)
    assert metrics.compute() == before


def test_members_that_cannot_be_together_are_refused_before_anything_changes() -> None:
    metrics, metric = RecMetricCollection([MRR()]), NDCG(2)
    for members in (NDCG(5, nan_action="worst"), NDCG(5, dist_sync_on_step=True)):
        with pytest.raises(ValueError, match=r"nan_action|dist_sync_on_step"):
            metrics.add_metrics(members)
        with pytest.raises(ValueError, match=r"nan_action|dist_sync_on_step"):
            metrics["other"] = members
    with pytest.raises(ValueError, match="two members"):
        RecMetricCollection({"a": metric, "b": metric})
    assert list(metrics) == ["mrr"]
    metrics.update(PREDS, TARGET)


def test_forward_leaves_the_value_of_the_batch_where_lightning_looks_for_it() -> None:
    metrics = RecMetricCollection([NDCG(2), MRR()])
    values = metrics(PREDS, TARGET)
    assert {name: member._forward_cache for name, member in metrics.items()} == values


def test_exponential_gains_that_are_finite_have_a_finite_sum() -> None:
    relevance = torch.full((1, 3), 1023.0)
    assert functional.ndcg(torch.tensor([[3.0, 2.0, 1.0]]), relevance, top_k=3).tolist() == [1]
    assert functional.ndcg(torch.ones(1, 3), relevance, top_k=2).tolist() == [1]
    assert functional.dcg(torch.tensor([[3.0, 2.0, 1.0]]), relevance, top_k=1).tolist() == [2.0**1023]


def test_flat_relevance_without_a_gain_is_refused_before_it_is_kept() -> None:
    metrics = updated(RecMetricCollection([NDCG(2), MRR()]), PREDS[0], TARGET[0], torch.zeros(3, dtype=torch.int64))
    with refused(metrics, r"1023.*2000 in row 1"):
        metrics.update(PREDS[0], torch.tensor([0, 2000, 1]), torch.ones(3, dtype=torch.int64))


def persistent_state(metric: Metric) -> Any:
    metric.persistent(True)
    return metric.state_dict()


# How the histograms of a metric come into other hands.
HOLD: dict[str, Any] = {
    "its state": lambda metric: metric.metric_state,
    "a state by name": lambda metric: metric.state("counts"),
    "a checkpoint": persistent_state,
    "a clone": lambda metric: metric.clone().metric_state,
    "a copy that goes on": lambda metric: pickle.loads(pickle.dumps(metric)).metric_state,
    "another that it was added to": lambda metric: updated(merged(metric), *ROWS[3]).metric_state,
    "what forward takes back": lambda metric: metric._copy_state_dict(),
}
GENERATOR = torch.Generator().manual_seed(0)
# In 16 bins of the highest bits, so 32 powers of two share a bin.
ROWS = [((torch.rand(20, generator=GENERATOR) * 240 - 120).exp2(), torch.arange(20) % 3 == 0) for _ in range(5)]


def merged(metric: Metric) -> Metric:
    other = BinaryAUC(16)
    other.merge_state(metric.metric_state)
    return other


def own_histogram(monkeypatch: pytest.MonkeyPatch) -> BinaryAUC:
    """One that counts rows into a histogram of its own, in place."""
    monkeypatch.setattr(scored_rows, "FOLD_ROWS", 16)
    metric = updated(BinaryAUC(16), *ROWS[0])
    place = metric._waiting._tables[torch.float32].data_ptr()
    metric.update(*ROWS[1])
    assert metric._waiting._tables[torch.float32].data_ptr() == place
    assert not metric.__dict__[metric.state_name("keys")]
    return metric


@pytest.mark.parametrize("way", HOLD)
def test_rows_are_counted_into_no_histogram_that_somebody_holds(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scored_rows, "FOLD_ROWS", 16)
    metric = BinaryAUC(16)
    for rows in ROWS[:2]:
        metric.update(*rows)
    held = HOLD[way](metric)
    before = pickle.dumps(held)
    for rows in ROWS[2:]:  # into a new one, and from then on in place
        metric.update(*rows)
    assert pickle.dumps(held) == before
    whole = updated(BinaryAUC(16), *(torch.cat(column) for column in zip(*ROWS, strict=True)))
    assert metric.compute() == whole.compute()
    metric.reset()
    assert pickle.dumps(held) == before


@pytest.mark.parametrize("reader", ["repr", "to", "compute", "float"])
def test_whoever_looks_at_a_metric_finds_all_rows(reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    metric = own_histogram(monkeypatch)
    {"repr": repr, "to": lambda m: m.to("cpu"), "compute": lambda m: m.compute(), "float": lambda m: m.half()}[reader](
        metric
    )
    metric.update(*ROWS[2])
    whole = updated(BinaryAUC(16), *(torch.cat(column) for column in zip(*ROWS[:3], strict=True)))
    assert metric.compute() == whole.compute()


@pytest.mark.parametrize("method", ["update", "forward"])
def test_a_refused_update_takes_counted_rows_back(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    metric, refuses = own_histogram(monkeypatch), Refuses()
    metrics = RecMetricCollection({"auc": metric, "refuses": refuses})
    before = metric.compute()
    for _ in range(2):
        refuses.on = True
        with refused(metrics, "refused"):
            getattr(metrics, method)(*ROWS[2])
        assert metric.compute() == metric.clone().compute() == before
    refuses.on = False
    for rows in ROWS[2:]:
        metrics.update(*rows)
    whole = updated(BinaryAUC(16), *(torch.cat(column) for column in zip(*ROWS, strict=True)))
    assert metrics.compute()["auc"] == whole.compute()


def test_rows_of_inference_mode_and_of_weights_are_counted_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scored_rows, "FOLD_ROWS", 16)
    metric = BinaryAUC(16)
    with torch.inference_mode():
        metric.update(*ROWS[0])
    metric.update(*ROWS[1])
    assert metric._waiting is not None
    with torch.inference_mode():
        metric.update(*ROWS[2], weights=torch.ones(20))
    metric.update(*ROWS[3])
    whole = updated(BinaryAUC(16), *(torch.cat(column) for column in zip(*ROWS[:4], strict=True)))
    assert float(metric.compute()) == pytest.approx(float(whole.compute()), abs=1e-15)


def test_no_warning_for_transposed_scores_and_many_relevant_items() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ids = torch.stack([torch.randperm(1300)[:150] for _ in range(3)])
        RecMetricCollection([NDCG(5), MRR()]).update(torch.randn(1300, 3).t(), target_ids=ids)
