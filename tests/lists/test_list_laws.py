"""Metrics of pairs and of whole catalogues: the definition in every layout, and what may not change the value."""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import pytest
import torch
from cases import CUTS, LAYOUTS, NAMED, Case, cuts, drawn, holds
from hypothesis import strategies as st
from lists.compared import COMPARED, NUM_ITEMS, Compared
from torchmetrics import MetricCollection
from waiting import no_waiting

from torch_recmetrics import ILS, MRR, NDCG, Coverage, RecMetricCollection, rank
from torch_recmetrics.state import item_counts as counting

EXACT: dict[str, Any] = {"abs": 1e-11, "rel": 1e-13, "nan_ok": True}
ROW_LAYOUTS = [layout for layout in LAYOUTS if layout != "flat"]
each = pytest.mark.parametrize("compared", COMPARED, ids=str)
CASE = Case(
    torch.randint(0, 6, (5, NUM_ITEMS), generator=torch.Generator().manual_seed(3)).float().tolist(),
    torch.eye(5, NUM_ITEMS).tolist(),
    [1.0, 0.5, 2.0, 0.0, 3.0],
)


def rows(update: dict[str, torch.Tensor], at: Any) -> dict[str, torch.Tensor]:
    return {name: value[at] for name, value in update.items()}


def without_target(update: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in update.items() if not name.startswith("target")}


@pytest.mark.parametrize("layout", ROW_LAYOUTS)
@each
def test_every_layout_has_the_value_of_the_definition(compared: Compared, layout: str) -> None:
    def law(case: Case, top_k: int | None) -> None:
        if compared.takes(top_k):
            metric = compared.make(top_k)
            metric.update(**without_target(LAYOUTS[layout](case)))
            value = metric.compute()
            assert value.dtype == torch.float64 and value.ndim == 0
            assert float(value) == pytest.approx(compared.expected(case, top_k), **EXACT)

    for case in NAMED.values():
        for top_k in CUTS:
            law(case, top_k)
    holds(law, f"values {compared} {layout}", case=drawn(), top_k=cuts())


@pytest.mark.parametrize("waiting", [0, 1 << 20])
@each
def test_any_split_into_batches_in_any_order(compared: Compared, waiting: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "WAITING_IDS", waiting)

    def law(case: Case, top_k: int | None, seed: int, border: float, named: bool) -> None:
        if not compared.takes(top_k):
            return
        update, n = LAYOUTS["target_ids"](case), len(case.scores)
        order = list(range(n))
        random.Random(seed).shuffle(order)
        metric, stop = compared.make(top_k), round(border * n)
        parts = [order[:stop], order[stop:]]
        if named:  # the first row once more: it counts once
            update["sample_ids"] = torch.arange(n) * 7 - 3
            parts.append(order[:1])
        for part in parts:
            metric.update(**rows(update, part))
        assert float(metric.compute()) == pytest.approx(compared.expected(case, top_k), **EXACT)

    holds(
        law,
        f"split {compared}",
        case=drawn(),
        top_k=cuts(),
        seed=st.integers(0, 99),
        border=st.floats(0, 1),
        named=st.booleans(),
    )


def test_of_lists_with_one_sample_id_the_first_counts() -> None:
    metric = Coverage(4, 1)
    for ids, sample in (([[0], [1]], [5, 6]), ([[2], [3]], [6, 7])):
        metric.update(item_ids=torch.tensor(ids), sample_ids=torch.tensor(sample))
    assert float(metric.compute()) == 3 / 4  # items 0, 1 and 3
    assert float(metric(item_ids=torch.tensor([[2], [3]]), sample_ids=torch.tensor([9, 9]))) == 1 / 4
    assert float(metric.compute()) == 4 / 4


@pytest.mark.parametrize("layout", ROW_LAYOUTS)
def test_one_collection_has_the_values_of_single_metrics_at_every_cut_off(layout: str) -> None:
    makers = {f"{c} {k}": (c, k) for c in COMPARED for k in (1, 3, 5, 12, None) if c.takes(k)}
    metrics = RecMetricCollection(
        {name: c.make(k) for name, (c, k) in makers.items()} | {"ndcg": NDCG(3), "mrr": MRR(), "whole": NDCG(None)}
    )
    update = LAYOUTS[layout](CASE)
    first, second = rows(update, slice(0, 2)), rows(update, slice(2, None))
    metrics.update(**first)
    values, total = metrics(**second), metrics.compute()
    singles = {name: c.make(k) for name, (c, k) in makers.items()} | {
        "ndcg": NDCG(3),
        "mrr": MRR(),
        "whole": NDCG(None),
    }
    for name, alone in singles.items():
        alone.update(**first)
        for ours, theirs in ((values[name], alone(**second)), (total[name], alone.compute())):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-13, equal_nan=True)
    metrics.reset()
    metrics.update(**first)
    for name, (compared, k) in makers.items():
        assert float(metrics[name].compute()) == pytest.approx(compared.expected(CASE.part([0, 1]), k), **EXACT)


@pytest.mark.parametrize("uncut", [MRR(), NDCG(None), MRR(ties="stable")], ids=lambda m: f"{m.name} {m.ties}")
@each
def test_beside_metrics_of_the_whole_list(compared: Compared, uncut: Any) -> None:
    def law(case: Case) -> None:
        metrics = RecMetricCollection({"list": compared.make(2), "uncut": uncut.clone(), "cut": NDCG(2)})
        update = LAYOUTS["target_ids"](case)
        values = metrics(**update)
        assert float(values["list"]) == pytest.approx(compared.expected(case, 2), **EXACT)
        for name, alone in {"uncut": uncut.clone(), "cut": NDCG(2)}.items():
            assert float(values[name]) == pytest.approx(float(alone(**update)), abs=1e-12, nan_ok=True)

    holds(law, f"beside {compared} {uncut.name}", case=drawn(min_users=1), examples=5)


@each
def test_scores_from_embeddings(compared: Compared) -> None:
    g = torch.Generator().manual_seed(8)
    users, items = (torch.randint(-2, 3, (n, 3), generator=g).double() for n in (5, NUM_ITEMS))  # many equal products
    case = Case((users @ items.t()).tolist(), CASE.relevance, CASE.weights)
    for k in (1, 4):
        metric = compared.make(k)
        metric.update(user_embeddings=users, item_embeddings=items, weights=torch.tensor(case.weights))
        assert float(metric.compute()) == pytest.approx(compared.expected(case, k), **EXACT)


@each
def test_a_ranking_made_once_gives_the_same(compared: Compared) -> None:
    ranking = rank(**without_target(LAYOUTS["dense"](CASE)), top_k=5)
    for k in (1, 5):
        given, ready = compared.make(k), compared.make(k)
        given.update(**LAYOUTS["dense"](CASE))
        ready.update(ranking)
        assert torch.equal(given.compute(), ready.compute()) or given.compute().isnan()
    with pytest.raises(ValueError, match="was cut at 5"):
        compared.make(6).update(ranking)
    flat = rank(**LAYOUTS["flat"](CASE), top_k=5)
    metric = compared.make(5)
    with pytest.raises(ValueError, match="does not know its items in order"):
        metric.update(flat)
    with pytest.raises(ValueError, match="without a target"):
        RecMetricCollection({"list": metric, "ndcg": NDCG(2)}).update(ranking)
    assert metric.update_count == 0


@each
def test_copies_checkpoints_and_narrow_modules_keep_the_value(compared: Compared) -> None:
    update = LAYOUTS["item_ids"](CASE) | {"sample_ids": torch.tensor([4, 5, 6, 7, 4])}
    plain = LAYOUTS["item_ids"](CASE)
    expected = compared.expected(CASE.part([0, 1, 2, 3, 0, 1, 2, 3, 4]), 3)

    def begun() -> Any:
        metric = compared.make(3)
        metric.update(**update)
        return metric

    def finished(metric: Any) -> float:
        metric.update(**plain)
        return float(metric.compute())

    whole = begun()
    whole.persistent(True)
    loaded = compared.make(3)
    loaded.load_state_dict(whole.state_dict())
    merged = compared.make(3)
    merged.merge_state(begun())
    reset = begun()
    reset.reset()
    assert reset.update_count == 0
    reset.update(**update)
    module = torch.nn.ModuleList([begun()]).half().to(torch.bfloat16)
    copies = (begun(), loaded, merged, reset, module[0], begun().clone(), pickle.loads(pickle.dumps(begun())))
    for metric in (*copies, copy.deepcopy(RecMetricCollection([begun()]))[whole.name]):
        assert finished(metric) == pytest.approx(expected, **EXACT)
    twice = begun()
    twice.merge_state(begun())
    assert finished(twice) == pytest.approx(expected, **EXACT)  # the same rows again
    assert list(compared.make(3).state_dict()) == []


@each
def test_in_the_collection_of_torchmetrics(compared: Compared) -> None:
    """It shares states between metrics that look alike after one update; these have none to share yet."""
    metrics = MetricCollection({f"{k}": compared.make(k) for k in (1, 2, 5)})
    nothing = torch.full((2, 3), -1)
    metrics.update(item_ids=nothing)
    metrics.update(**without_target(LAYOUTS["item_ids"](CASE)))
    case = CASE
    for k in (1, 2, 5):
        expected = compared.expected(case, k)
        if compared.metric == "UserCoverage":
            expected *= 6.5 / 8.5  # the empty lists count
        assert float(metrics.compute()[f"{k}"]) == pytest.approx(expected, **EXACT)


def test_metrics_of_other_features_are_told_apart() -> None:
    one, other = torch.eye(3), torch.eye(3)[[1, 1, 1]]
    metrics = MetricCollection({"one": ILS(one, 2), "other": ILS(other, 2)})
    metrics.update(item_ids=torch.tensor([[-1, -1]]))
    metrics.update(item_ids=torch.tensor([[0, 2]]))
    assert {name: float(v) for name, v in metrics.compute().items()} == {"one": 0.0, "other": 1.0}
    ours = RecMetricCollection({"one": ILS(one, 2), "other": ILS(other, 2), "deep": ILS(one, 3)})
    assert {n: float(v) for n, v in ours(item_ids=torch.tensor([[0, 2]])).items()} == {"one": 0, "other": 1, "deep": 0}
    assert ours["one"].table is ours["deep"].table is not ours["other"].table
    with pytest.raises(ValueError, match="only metrics of the same options merge"):
        ILS(one, 2).merge_state(ILS(other, 2))


@each
def test_an_update_that_is_refused_changes_nothing(compared: Compared) -> None:
    metrics = RecMetricCollection({"list": compared.make(3), "ndcg": NDCG(3)})
    metrics.update(**LAYOUTS["item_ids"](CASE))
    before = float(metrics["list"].compute())
    bad = {"item_ids": torch.tensor([[0, 1], [2, 2]]), "target_ids": torch.tensor([[0], [1]])}
    for update, why in ((bad, "id twice in one row"), ({"item_ids": bad["item_ids"][:1]}, "`target_ids` is missing")):
        with pytest.raises(ValueError, match=why):
            metrics.update(**update)
        with pytest.raises(ValueError, match=why):
            metrics(**update)
    assert float(metrics["list"].compute()) == before or before != before
    assert metrics["list"].update_count == 1


@each
def test_updates_do_not_wait_for_a_device(compared: Compared, device: torch.device) -> None:
    if compared.label == "function" and device.type == "cuda":
        pytest.skip("what a function of the user does is not ours to say")
    metric = RecMetricCollection(
        {"3": compared.make(3, validate_args=False), "5": compared.make(5, validate_args=False)}
    )
    metric.to(device)
    update = {name: value.to(device) for name, value in LAYOUTS["target_ids"](CASE).items()}
    metric.update(**update)
    metric.reset()
    with no_waiting(device):
        metric.update(**update)
    for k, value in metric.compute().items():
        assert float(value) == pytest.approx(compared.expected(CASE, int(k)), **EXACT)
