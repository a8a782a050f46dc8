"""The click metrics keep what every torchmetrics metric promises, and what its neighbours break."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from auc import oracles
from auc.updates import Update, rows_of, without
from torchmetrics import Metric, MetricCollection

from torch_recmetrics import NDCG, RecMetricCollection
from torch_recmetrics.metrics.auc import BinaryAUC
from torch_recmetrics.metrics.group_auc import GroupAUC
from torch_recmetrics.metrics.probability import Calibration, LogLoss, NormalizedEntropy

EXACT: dict[str, Any] = {"abs": 1e-12, "rel": 0, "nan_ok": True}
EPS = torch.finfo(torch.float32).eps
REFUSAL = r"`dist_sync_fn` exchanges sums only, but .* keeps rows on some rank: leave it out"
MAKERS: dict[str, Callable[..., Metric]] = {
    "auc": BinaryAUC,
    "auc in bins": lambda **kwargs: BinaryAUC(1 << 16, **kwargs),
    "group auc": GroupAUC,
    "group auc, uniform": lambda **kwargs: GroupAUC("uniform", **kwargs),
    "log loss": LogLoss,
    "normalized entropy": NormalizedEntropy,
    "calibration": Calibration,
}
DEFINITIONS: dict[str, Callable[[list[oracles.Row]], float]] = {
    "auc": oracles.auc,
    "auc in bins": oracles.auc,  # the scores are far enough apart
    "group auc": oracles.group_auc,
    "group auc, uniform": lambda rows: oracles.group_auc(rows, "uniform"),
    "log loss": lambda rows: oracles.log_loss(rows, EPS),
    "normalized entropy": lambda rows: oracles.normalized_entropy(rows, EPS),
    "calibration": oracles.calibration,
}
HISTORIES = ("plain", "weights", "samples", "half precision")


@pytest.fixture(params=MAKERS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=HISTORIES)
def history(request: pytest.FixtureRequest) -> list[Update]:
    return draw(request.param)


def draw(kind: str, n: int = 4) -> list[Update]:
    generator = torch.Generator().manual_seed(7)
    updates = []
    for _ in range(n):
        update = {
            "preds": torch.randint(1, 20, (15,), generator=generator) / 20,
            "target": torch.randint(2, (15,), generator=generator),
            "indexes": torch.randint(3, (15,), generator=generator),
        }
        if kind == "weights":
            update["weights"] = torch.randint(4, (15,), generator=generator) / 2
        if kind == "samples":
            update["sample_ids"] = torch.randint(30, (15,), generator=generator)
        if kind == "half precision":
            update["preds"] = update["preds"].bfloat16()
        updates.append(update)
    return updates


def arguments(metric: Metric, update: Update) -> Update:
    return update if isinstance(metric, GroupAUC) else without(update, "indexes")


def fed(metric: Any, updates: list[Update]) -> Any:
    for update in updates:
        metric.update(**arguments(metric, update))
    return metric


def expected(name: str, updates: list[Update]) -> Any:
    return pytest.approx(DEFINITIONS[name](oracles.once(rows_of(updates))), **EXACT)


def tensors_of(metric: Metric) -> list[torch.Tensor]:
    states = metric.metric_state.values()
    return [t for state in states for t in (state if isinstance(state, list) else [state])]


def test_compute_twice_reset_twice_and_start_anew(name: str, history: list[Update]) -> None:
    metric = fed(MAKERS[name](), history[:2])
    assert float(metric.compute()) == float(metric.compute()) == expected(name, history[:2])
    fed(metric, history[2:])
    assert float(metric.compute()) == expected(name, history)
    metric.reset()
    metric.reset()
    fed(metric, history[1:2])
    assert float(metric.compute()) == expected(name, history[1:2])


def test_nothing_to_count_is_nan(name: str) -> None:
    metric = MAKERS[name]()
    metric.update(**arguments(metric, {key: value[:0] for key, value in draw("plain")[0].items()}))
    assert math.isnan(metric.compute())


def test_forward(name: str, history: list[Update]) -> None:
    metric = MAKERS[name]()
    for update in history:
        assert float(metric(**arguments(metric, update))) == expected(name, [update])
    assert float(metric.compute()) == expected(name, history)
    assert metric.update_count == len(history)


@pytest.mark.parametrize("again", [lambda m: m.clone(), copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_go_on_alone(name: str, history: list[Update], again: Any) -> None:
    metric = fed(MAKERS[name](), history[:1])
    other = fed(again(metric), history[1:2])
    fed(metric, history[2:])
    assert float(metric.compute()) == expected(name, [history[0], *history[2:]])
    assert float(other.compute()) == expected(name, history[:2])


def test_checkpoint_in_the_middle_of_an_epoch(name: str, history: list[Update]) -> None:
    first, second = MAKERS[name](), MAKERS[name]()
    first.persistent(True)
    second.persistent(True)
    second.load_state_dict(copy.deepcopy(fed(first, history[:2]).state_dict()))
    assert second.update_called
    assert float(fed(second, history[2:]).compute()) == expected(name, history)
    assert MAKERS[name]().state_dict() == {}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (BinaryAUC(), BinaryAUC(64)),
        (BinaryAUC(64), BinaryAUC(128)),
        (GroupAUC("uniform"), GroupAUC()),
        (LogLoss(), LogLoss(eps=0.1)),
        (LogLoss(), NormalizedEntropy()),
    ],
)
def test_other_options_are_other_states(one: Metric, other: Metric) -> None:
    one.persistent(True)
    other.persistent(True)
    with pytest.raises(RuntimeError):
        other.load_state_dict(one.state_dict())
    with pytest.raises(ValueError, match="only metrics of the same options merge"):
        other.merge_state(one)


def test_merged_states(name: str, history: list[Update]) -> None:
    metric, other = fed(MAKERS[name](), history[:1]), fed(MAKERS[name](), history[1:])
    metric.merge_state(other)
    assert float(metric.compute()) == expected(name, history)
    assert float(other.compute()) == expected(name, history[1:])


CASTS: dict[str, Callable[[torch.nn.Module], Any]] = {
    "half()": lambda module: module.half(),
    "to(bfloat16)": lambda module: module.to(torch.bfloat16),
    "double()": lambda module: module.double(),
}


@pytest.mark.parametrize("cast", CASTS)
def test_casting_a_module_leaves_the_states_exact(name: str, history: list[Update], cast: str) -> None:
    parent = torch.nn.Module()
    parent.layer, parent.metric = torch.nn.Linear(2, 2), fed(MAKERS[name](), history[:2])
    CASTS[cast](parent)
    assert float(fed(parent.metric, history[2:]).compute()) == expected(name, history)
    assert parent.metric.compute().dtype == torch.float64


@pytest.mark.parametrize("default", [torch.bfloat16, torch.float64])
def test_the_default_dtype_has_no_part_in_it(name: str, history: list[Update], default: torch.dtype) -> None:
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(default)
        assert float(fed(MAKERS[name](), history).compute()) == expected(name, history)
    finally:
        torch.set_default_dtype(before)


def test_what_was_given_is_neither_changed_nor_kept(name: str, history: list[Update]) -> None:
    given = [{key: value.clone() for key, value in update.items()} for update in history]
    metric = MAKERS[name]()
    for update in given:
        update["target"] = update["target"].bool()
        before = {key: value.clone() for key, value in update.items()}
        metric.update(**arguments(metric, update))
        assert all(torch.equal(update[key], before[key]) for key in update)
        for value in update.values():
            value.zero_()  # as a loop does that writes every batch into one buffer
    assert float(metric.compute()) == expected(name, history)


def test_states_hold_no_graph(name: str, history: list[Update]) -> None:
    metric = MAKERS[name]()
    for update in history:
        preds = update["preds"].clone().requires_grad_()
        value = metric(**arguments(metric, {**update, "preds": preds * 1}))
        assert not value.requires_grad
    assert not any(tensor.requires_grad for tensor in tensors_of(metric))


def test_inference_mode_then_normal_updates(name: str, history: list[Update]) -> None:
    metric = MAKERS[name]()
    with torch.inference_mode():
        metric.reset()
        fed(metric, history[:1])
        metric(**arguments(metric, history[1]))
    fed(metric, history[2:])
    metric(**arguments(metric, history[0]))
    if "sample_ids" not in history[0]:
        assert float(metric.compute()) == expected(name, [*history, history[0]])
    else:
        assert float(metric.compute()) == expected(name, history)


@pytest.mark.parametrize("way", ["update", "forward"])
def test_an_error_leaves_the_metric_as_it_was(name: str, history: list[Update], way: str) -> None:
    metric = fed(MAKERS[name](), history[:2])
    before = float(metric.compute())
    wrong = arguments(metric, {**history[2], "target": history[2]["target"] * 2})
    with pytest.raises(ValueError, match="`target` must hold 0 and 1 only, got 2"):
        getattr(metric, way)(**wrong)
    assert float(metric.compute()) == before and metric.update_count == 2
    assert float(fed(metric, history[2:]).compute()) == expected(name, history)


def test_a_gather_function_of_ones_own(name: str) -> None:
    """It exchanges sums; twice the same sums have the same value. Metrics that keep rows refuse it."""
    own = {"dist_sync_fn": lambda x, group: [x, x], "distributed_available_fn": lambda: True}
    histories = {kind: fed(MAKERS[name](**own), draw(kind)) for kind in ("weights", "samples")}
    keeps_rows = "auc" in name
    for kind, metric in histories.items():
        for _ in range(2):
            if keeps_rows or kind == "samples":
                with pytest.raises(ValueError, match=REFUSAL):
                    metric.compute()
            else:
                assert float(metric.compute()) == expected(name, draw(kind))
        assert not metric._is_synced


@pytest.mark.parametrize("collection", [MetricCollection, RecMetricCollection])
def test_in_a_collection(collection: Any, history: list[Update]) -> None:
    metrics = collection({key.replace(" ", "_"): make() for key, make in MAKERS.items()})
    for update in history:
        metrics.update(**update)
    for key, value in metrics.compute().items():
        assert float(value) == expected(key.replace("_", " "), history), key
    metrics.reset()
    for update in history:
        for key, value in metrics(**update).items():
            assert float(value) == expected(key.replace("_", " "), [update]), key


def test_names() -> None:
    metrics = RecMetricCollection([BinaryAUC(), GroupAUC(), LogLoss(), NormalizedEntropy(), Calibration()])
    assert list(metrics) == ["auc", "group_auc", "log_loss", "normalized_entropy", "calibration"]
    assert BinaryAUC(64).definition() == "BinaryAUC(num_bins=64)"


def test_beside_ranking_metrics() -> None:
    """Scores of a batch of users: the AUC of all pairs beside the mean of the users' rankings."""
    metrics = RecMetricCollection([NDCG(2), BinaryAUC(), LogLoss()])
    preds, target = torch.tensor([[0.9, 0.2, 0.5], [0.1, 0.8, 0.3]]), torch.tensor([[1, 0, 0], [1, 0, 0]])
    weights, sample_ids = torch.tensor([1.0, 3.0]), torch.tensor([4, 5])
    for _ in range(2):  # the same samples again count once
        metrics.update(preds, target, weights=weights, sample_ids=sample_ids)
    values = metrics.compute()
    rows = [
        oracles.Row(p, t, w)
        for some, labels, w in zip(preds.tolist(), target.tolist(), weights.tolist(), strict=True)
        for p, t in zip(some, labels, strict=True)
    ]
    assert float(values["auc"]) == pytest.approx(oracles.auc(rows), **EXACT)
    assert float(values["log_loss"]) == pytest.approx(oracles.log_loss(rows, EPS), **EXACT)
    assert float(values["ndcg@2"]) == pytest.approx(1 * 1 / 4)


def test_flat_rows_of_a_collection() -> None:
    update = draw("plain")[0]
    metrics = RecMetricCollection([NDCG(2), BinaryAUC(), GroupAUC()])
    metrics.update(update["preds"], update["target"], update["indexes"])
    values = metrics.compute()
    assert float(values["auc"]) == expected("auc", [update])
    assert float(values["group_auc"]) == expected("group auc", [update])


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"preds": torch.rand(1, 3), "target_ids": torch.tensor([[1]])}, "target"),
        ({"item_ids": torch.tensor([[1, 2]]), "target_ids": torch.tensor([[1]])}, "preds"),
    ],
)
def test_an_update_that_auc_cannot_read_changes_no_member(given: Update, missing: str) -> None:
    metrics = RecMetricCollection([NDCG(2), BinaryAUC()])
    metrics.update(torch.rand(2, 3), torch.tensor([[1, 0, 0], [0, 1, 0]]))
    before = {name: float(value) for name, value in metrics.compute().items()}
    with pytest.raises(ValueError, match=f"`{missing}` is missing: auc needs preds, target"):
        metrics.update(**given)
    with pytest.raises(ValueError, match="`target` must hold 0 and 1 only, got 3 in row 1"):
        metrics.update(torch.rand(2, 3), torch.tensor([[1, 0, 0], [0, 3, 0]]))
    assert {name: float(value) for name, value in metrics.compute().items()} == before
    assert all(member.update_count == 1 for member in metrics.values())


def test_members_that_agree_on_the_first_batch_are_not_taken_for_the_same() -> None:
    metrics = MetricCollection({"exact": BinaryAUC(), "coarse": BinaryAUC(4)})
    metrics.update(torch.tensor([1e-30, 1e30]), torch.tensor([0, 1]))
    for _ in range(2):
        metrics.update(torch.tensor([0.5, 0.25]), torch.tensor([0, 1]))
    values = metrics.compute()
    assert float(values["exact"]) == (3 + 2 * 1) / 9
    assert float(values["coarse"]) == (3 + 2 * 3 / 2) / 9  # all but 1e30 share a bin


def test_a_metric_says_where_it_is(name: str) -> None:
    metric = MAKERS[name]()
    update = {key: value.to("meta") for key, value in draw("plain")[0].items()}
    with pytest.raises(ValueError, match="`preds` is on meta, but the metric is on cpu"):
        metric.update(**arguments(metric, update))
