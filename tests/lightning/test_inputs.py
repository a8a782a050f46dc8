"""The callback reads outputs, batch and module by name, without a trainer: what names find, and what they refuse."""

from __future__ import annotations

from collections import OrderedDict, UserDict
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from torch_recmetrics import ranking_metrics
from torch_recmetrics.lightning import callback
from torch_recmetrics.lightning.inputs import Step, checked_names, named_arguments, padded_lists

A, B, C = torch.tensor([[1.0, 2.0]]), torch.tensor([[0]]), torch.tensor([[1]])


class Pair(NamedTuple):
    scores: Any
    index: Any


@dataclass(slots=True)  # so that its fields are in no __dict__
class Labelled:
    labels: Any


class Module(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.items = torch.nn.Embedding(3, 2)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(2, 2)])
        self.keys = torch.nn.Linear(2, 2)  # as attention has them: it can be called, and tells no names
        self.calls: list[Any] = []

    def predict(self, batch: Any, times: int = 1) -> Any:
        self.calls += times * [batch]
        return {"logits": A, "ids": C}

    def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        return batch_idx


MODULE = Module()


def found(name: str, outputs: Any = None, batch: Any = None, module: Any = MODULE, batch_idx: int = 0) -> Any:
    return named_arguments({"preds": name}, Step("validation_step", outputs, batch, module, batch_idx, 0)).get("preds")


@pytest.mark.parametrize(
    ("name", "outputs", "batch", "value"),
    [
        ("logits", {"logits": A}, None, A),
        ("logits", OrderedDict(logits=A), None, A),
        ("outputs.logits", {"logits": A}, None, A),
        ("outputs", A, None, A),
        ("outputs.0", (A, B), None, A),
        ("1", [A, B], None, B),
        ("logits", SimpleNamespace(logits=A), None, A),
        ("scores", Pair(A, B), None, A),
        ("index", Pair(A, B), None, B),  # a method of tuples elsewhere
        ("batch.ground_truth", None, {"ground_truth": B}, B),
        ("batch.ground_truth", None, UserDict(ground_truth=B), B),
        ("batch.labels", {"labels": A}, Labelled(B), B),
        ("batch.0.labels", None, [Labelled(B), 3], B),
        ("batch", None, B, B),
        ("batch.item.id", None, {"item.id": B, "item": {"id": C}}, B),
        ("batch.item.id.0", None, {"item.id": [B]}, B),
        ("outputs.batch", {"batch": A}, {"batch": B}, A),
        ("module.items.weight", None, None, MODULE.items.weight),
        ("module.layers.0.bias", None, None, MODULE.layers[0].bias),
        ("logits", {"logits": None}, None, None),
    ],
)
def test_what_a_name_finds(name: str, outputs: Any, batch: Any, value: Any) -> None:
    assert found(name, outputs, batch) is value


def test_a_method_of_the_module_is_called_once_for_a_batch() -> None:
    module = Module()
    names = {"preds": "module.predict.logits", "target_ids": "module.predict.ids"}
    arguments = named_arguments(names, Step("validation_step", None, B, module, 0, 0))
    assert arguments["preds"] is A and arguments["target_ids"] is C and module.calls == [B]
    assert found("module.predict_step", batch=B, batch_idx=5) == 5


def test_a_compiled_method_is_called_as_the_method_is() -> None:
    """torch.compile(module) makes Lightning put functions in the place of the methods of the module."""
    module = Module()
    for name in ("predict", "predict_step"):
        setattr(module, name, torch.compile(getattr(module, name), backend="eager"))
    assert torch.equal(found("module.predict.logits", batch=B, module=module), A)
    assert found("module.predict_step", batch=B, module=module, batch_idx=5) == 5


@pytest.mark.parametrize(
    ("name", "outputs", "batch", "says"),
    [
        ("batch.ground_truth", None, {"train": A, "query_id": B}, "the batch has no 'ground_truth': It has train, que"),
        ("batch.ground_truht", None, {"ground_truth": A}, "did you mean 'ground_truth'"),
        ("batch.labels.ids", None, Labelled({"id": 1}), "'batch.labels' has no 'ids': did you mean 'id'"),
        ("batch.label", None, Labelled(B), "did you mean 'labels'"),
        ("batch.2", None, (A, B), "the batch has no '2': It has 0, 1"),
        ("batch.count", None, Pair(A, B), "It has scores, index, 0, 1"),
        ("batch.ids", None, B, "it is one Tensor, without names$"),
        (
            "logits",
            {"loss": A, "scores": A},
            None,
            "what `validation_step` returned has no 'logits': .*It has loss, scores",
        ),
        ("logits", None, None, "it is None, without names; 'outputs' is all of it, and 'module.predict_step'"),
        ("logits", A, None, "it is one Tensor, without names; 'outputs' is all of it"),
        ("module.item.weight", None, None, "the module has no 'item': did you mean 'items'"),
        ("module.zzzz", None, None, "its methods, which are called with the batch"),
    ],
)
def test_a_name_that_is_not_there(name: str, outputs: Any, batch: Any, says: str) -> None:
    with pytest.raises(ValueError, match=f"preds='{name}': .*{says}"):
        found(name, outputs, batch)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"preds": A}, TypeError, "`preds` must be a name, such as 'logits'.*got Tensor"),
        ({"preds": "logits."}, ValueError, "`preds` must be a name, .*got 'logits.'"),
        ({"seen_ids": "batch.seen"}, ValueError, "`preds` is missing beside seen_ids='batch.seen'"),
        ({"preds": "logits", "inputs": dict}, TypeError, "`inputs` makes all arguments: leave out `preds`"),
        ({"inputs": "logits"}, TypeError, "`inputs` must be a function"),
        ({"metrics": "auc", "preds": "logits", "seen_ids": "batch.x"}, ValueError, "no metric takes `seen_ids`"),
        ({"preds": "logits", "slice_ids": "batch.x"}, ValueError, "no metric takes `slice_ids`"),
        ({"ignore_index": "x"}, ValueError, "`ignore_index`"),
    ],
)
def test_names_that_are_refused(given: dict[str, Any], error: type[Exception], says: str) -> None:
    pytest.importorskip("pytorch_lightning")
    with pytest.raises(error, match=says):
        callback.RankingMetrics(**{"metrics": "ndcg", **given})


def test_names_of_all_arguments_that_metrics_take() -> None:
    known = ranking_metrics("ndcg").argument_names()
    assert known is not None
    names = {name: f"batch.{name}" for name in known}
    assert checked_names({**names, "weights": None}, known) == {n: v for n, v in names.items() if n != "weights"}
    assert checked_names({"preds": "logits", "own": "batch.own"}, None) == {"preds": "logits", "own": "batch.own"}


def test_lists_of_any_lengths_are_padded() -> None:
    given = {"preds": A, "target_ids": [[1, 0], [2]], "seen_ids": ([1], []), "item_ids": B, "weights": [0.5, 2.0]}
    padded = padded_lists(given, torch.device("cpu"))
    assert padded["target_ids"].tolist() == [[1, 0], [2, -1]] and padded["seen_ids"].tolist() == [[1], [-1]]
    assert padded["preds"] is A and padded["item_ids"] is B and padded["weights"] == [0.5, 2.0]
