"""A metric may stand in a module that a compiler reads: it is left out of the graph, and not read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fixtures.histories import fed
from fixtures.variants import FIRST, Variant
from torch import Tensor
from torchmetrics import SumMetric

from torch_recmetrics import ERR, MAP, MRR, NDCG, RecMetricCollection, ctr_metrics


class Model(torch.nn.Module):
    def __init__(self, metric: torch.nn.Module) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 4)
        self.metric = metric

    def forward(self, features: Tensor) -> Tensor:
        return self.layer(features)


def base_of(variant: Variant) -> type[Any]:
    """What decides which attributes a compiler finds: the class that is not of one metric alone."""
    return next(cls for cls in type(variant.made).__mro__ if ".metrics." not in cls.__module__)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.parametrize("variant", {base_of(v): v for v in reversed(FIRST)}.values(), ids=str)
def test_point_23_a_metric_and_a_module_that_holds_one_can_be_scripted(variant: Variant) -> None:
    torch.jit.script(variant.make())
    model = Model(variant.fed(variant.history(variant.histories[0])[:1]))
    features = torch.randn(2, 3)
    assert torch.equal(torch.jit.script(model)(features), model(features))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.parametrize("make", [lambda: RecMetricCollection([NDCG(3)]), ctr_metrics], ids=["ranking", "ctr"])
def test_point_23_a_module_that_holds_a_collection_can_be_scripted(make: Any) -> None:
    model = Model(make())
    features = torch.randn(2, 3)
    assert torch.equal(torch.jit.script(model)(features), model(features))


@pytest.mark.parametrize("variant", FIRST, ids=str)
def test_point_23_every_metric_can_be_made_under_the_meta_device(variant: Variant) -> None:
    with torch.device("meta"):
        metric, of_torchmetrics = variant.make(), SumMetric()
    assert metric.device == of_torchmetrics.device  # the lowest torchmetrics does not know it
    assert all(table.device.type == "meta" for table in metric.buffers())


@pytest.mark.parametrize("variant", FIRST, ids=str)
def test_a_module_that_becomes_real_by_to_empty_has_metrics_that_have_seen_nothing(variant: Variant) -> None:
    """Large models are made on the meta device. What is in memory by then is whatever was there."""
    updates = variant.history(variant.histories[0])
    expected = variant.fed(updates).compute()
    models = [Model(variant.fed(updates))]
    with torch.device("meta"):
        made = variant.make()
    if not list(made.buffers()):  # what is known of the items cannot come back
        models.append(Model(made))
    torch.utils.deterministic.fill_uninitialized_memory, filled = True, torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # and such memory is filled with nan, and with the largest integers
    try:
        for model in models:
            model.to_empty(device="cpu")
    finally:
        torch.use_deterministic_algorithms(filled)
    for metric in [*(model.metric for model in models), variant.make().to_empty(device="cpu")]:
        assert metric.update_count == 0 and metric.device == torch.device("cpu")
        fed(metric, updates)
        torch.testing.assert_close(metric.compute(), expected, rtol=0, atol=0, equal_nan=True)


class Evaluated(Model):
    def forward(self, features: Tensor) -> Tensor:
        scores = self.layer(features).relu()
        self.metric.update(scores, target_ids=torch.zeros(2, 1, dtype=torch.int64))
        return scores + 1


@pytest.mark.parametrize("make", [lambda: NDCG(2), lambda: RecMetricCollection([NDCG(2)])], ids=["one", "collection"])
def test_point_23_an_update_inside_a_compiled_module_is_left_out_of_the_graph(make: Any) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    model = Evaluated(make())
    compiled = torch.compile(model, backend=counter)
    for n_rows in (2, 2):
        compiled(torch.randn(n_rows, 3))
    assert counter.frame_count <= 2, "the model before the update, and after it"
    nodes = [str(node.target) for graph in counter.graphs for node in graph.graph.nodes]
    assert len(nodes) < 15, nodes
    metric = model.metric["ndcg@2"] if isinstance(model.metric, RecMetricCollection) else model.metric
    assert metric.update_count == 2
    torch._dynamo.reset()


class Judged(torch.nn.Module):
    """A step of a validation, in which there is nothing to compile."""

    def __init__(self, n_metrics: int) -> None:
        super().__init__()
        self.metrics = torch.nn.ModuleList([NDCG(2) for _ in range(n_metrics)])

    def forward(self, scores: Tensor) -> None:
        for metric in self.metrics:
            metric.update(scores, target_ids=torch.zeros(2, 1, dtype=torch.int64))


def test_updates_of_many_metrics_and_of_those_made_later_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """As where a notebook compiles its next model."""
    torch._dynamo.reset()
    for _ in range(2):
        model = Judged(9)
        compiled = torch.compile(model, backend="eager")
        for _ in range(2):
            compiled(torch.randn(2, 3))
        assert [metric.update_count for metric in model.metrics] == [2] * 9
    assert "hit config." not in caplog.text, "a frame is compiled anew for each metric"
    torch._dynamo.reset()


@pytest.mark.parametrize("variant", [v for v in FIRST if v.stand_in is None], ids=str)
def test_an_update_goes_by_its_tensors_and_not_by_the_default_device(variant: Variant) -> None:
    """Many set a GPU as the default, and validate on the CPU."""
    for history in variant.histories:
        updates = variant.history(history, 2)
        metric, expected = variant.make(), variant.fed(updates).compute()
        with torch.device("meta"):
            fed(metric, updates)
            value = metric.compute()
        torch.testing.assert_close(value, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("layout", ["counts", "grades", "lists", "dense", "deep"])
def test_a_collection_goes_by_its_tensors_too(layout: str) -> None:
    scores, ids = torch.randn(4, 30), torch.tensor([[0, 3], [1, 2], [4, 9], [5, 6]])
    given = {
        "counts": {"preds": scores, "target_ids": ids},
        "grades": {"preds": scores, "target_ids": ids, "target_relevance": torch.ones(4, 2) * 2},
        "lists": {"item_ids": scores.topk(9).indices, "target_ids": ids},
        "dense": {"preds": scores, "target": torch.zeros(4, 30).scatter_(1, ids, 1)},
        "deep": {"preds": scores.round(), "target": torch.zeros(4, 30).scatter_(1, ids, 1)},
    }[layout]
    k = 30 if layout == "deep" else 5
    metrics, expected = (RecMetricCollection([NDCG(k), MRR(k), MAP(None), ERR(k)]) for _ in range(2))
    expected.update(**given)
    with torch.device("meta"):
        metrics.update(**given)
        values = metrics.compute()
    for name, value in expected.compute().items():
        torch.testing.assert_close(values[name], value, rtol=0, atol=0)
