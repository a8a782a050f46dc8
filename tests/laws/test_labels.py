"""`ignore_index` and `min_relevance`: the value is that of the same users without what they leave out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fixtures import cases
from fixtures.cases import Case, Update, cuts, drawn, holds, users_of, without
from fixtures.clicks import drawn_clicks
from fixtures.histories import updated
from fixtures.refusals import refused
from fixtures.variants import CLICKED, DEFAULTS, PER_USER, Variant, emptied
from hypothesis import strategies as st
from oracles.users import TIES

from torch_recmetrics import (
    MRR,
    NDCG,
    BinaryAUC,
    Coverage,
    Jaccard,
    Recall,
    RecMetricCollection,
    ctr_metrics,
    functional,
    rank,
    ranking_metrics,
)

EXACT: dict[str, Any] = {"abs": 1e-12, "rel": 1e-13, "nan_ok": True}
IGNORED = 99  # no item of the cases: among ids it is padding


def labelled(update: Update, ignored: torch.Tensor) -> Update:
    """The same update, some of its labels ignored."""
    target = update["target"].to(torch.float32)
    return {**update, "target": torch.where(ignored, float(IGNORED), target)}


def dense_without(update: Update, ignored: torch.Tensor) -> Update:
    mask = update.get("mask", torch.ones_like(ignored))
    return {**update, "target": update["target"].masked_fill(ignored, 0), "mask": mask & ~ignored}


def flat_without(update: Update, ignored: torch.Tensor) -> Update:
    return {name: value[~ignored] for name, value in update.items()}


def values_of_all(update: Update, top_k: int | None, **options: Any) -> dict[str, torch.Tensor]:
    """Of each metric, by its name."""
    return updated(emptied({v.name: (v, top_k) for v in DEFAULTS}, **options), **update).compute()


@pytest.mark.parametrize("layout", ["dense", "flat"])
def test_labels_that_are_ignored_leave_no_trace(layout: str) -> None:
    leave_out = dense_without if layout == "dense" else flat_without

    def law(case: Case, top_k: int | None, ties: str, seed: int) -> None:
        update = cases.LAYOUTS[layout](case)
        ignored = torch.rand(update["target"].shape, generator=torch.Generator().manual_seed(seed)) < 0.3
        given, rest = labelled(update, ignored), leave_out(update, ignored)
        users = users_of([rest])
        got = values_of_all(given, top_k, ties=ties, ignore_index=IGNORED)
        for variant in DEFAULTS:
            assert float(got[variant.name]) == variant.expected(users, top_k, ties), str(variant)
        for variant in PER_USER:
            alone = variant.per_user(**without(given, "weights"), top_k=top_k, ties=ties, ignore_index=IGNORED)
            assert alone.tolist() == pytest.approx(variant.expected_per_user(users, top_k, ties), **EXACT)

    seeds, rules = st.integers(0, 99), st.sampled_from(TIES)
    holds(law, f"ignored {layout}", examples=16, case=drawn(), top_k=cuts(), ties=rules, seed=seeds)


@pytest.mark.parametrize("layout", ["target_ids", "item_ids", "candidates"])
def test_ids_that_are_ignored_are_padding(layout: str) -> None:
    def law(case: Case, top_k: int | None) -> None:
        update = cases.LAYOUTS[layout](case)
        second = {**update, "reference_ids": cases.item_ids(case)["item_ids"].flip(1)}
        other = {name: torch.where(v == -1, -100, v) if name.endswith("_ids") else v for name, v in second.items()}
        agreeing = updated(Jaccard(top_k, ignore_index=-100), **other).compute()
        assert torch.equal(agreeing.nan_to_num(-1), updated(Jaccard(top_k), **second).compute().nan_to_num(-1))
        del other["reference_ids"]
        expected, got = values_of_all(update, top_k), values_of_all(other, top_k, ignore_index=-100)
        for name, value in expected.items():
            assert torch.equal(got[name].nan_to_num(-1), value.nan_to_num(-1)), name

    holds(law, f"ignored ids {layout}", examples=12, case=drawn(), top_k=cuts())


@pytest.mark.parametrize("layout", ["dense", "target_ids", "item_ids", "candidates", "flat"])
def test_relevance_that_is_too_low_is_none(layout: str) -> None:
    def law(case: Case, top_k: int | None, least: float) -> None:
        update = cases.LAYOUTS[layout](case)
        if layout not in ("dense", "flat") and "target_relevance" not in update:
            update["target_relevance"] = torch.ones(update["target_ids"].shape)
        name = "target" if "target" in update else "target_relevance"
        high = {**update, name: torch.where(update[name] >= least, update[name].to(torch.float32), 0.0)}
        got, users = values_of_all(update, top_k, min_relevance=least), users_of([high])
        for variant in DEFAULTS:
            assert float(got[variant.name]) == variant.expected(users, top_k), str(variant)

    least = st.sampled_from([1, 1.25, 2])
    holds(law, f"relevance {layout}", examples=16, case=drawn(), top_k=cuts(), least=least)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("least", [50, 50.5, 300, 40_000, 2**33 + 1, 2**70, 1e300])
def test_the_least_relevance_may_be_more_than_its_dtype_holds(dtype: torch.dtype, least: float) -> None:
    most = torch.iinfo(dtype).max
    target = torch.tensor([[0, 50, most - 1, most]], dtype=dtype)
    kept = [number >= least for number in target[0].tolist()]
    metric = Recall(None, min_relevance=least, empty_target_action="neg")
    metric.update(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), target)
    assert float(metric.compute()) == any(kept)
    ranking = rank(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), target, min_relevance=least)
    assert int(ranking.n_relevant) == sum(kept)


def test_steps_of_hugging_face_are_padded_with_minus_100() -> None:
    g = torch.Generator().manual_seed(0)
    preds, labels = torch.randn(2, 3, 5, generator=g), torch.tensor([[-100, 4, 2], [-100, -100, 0]])
    rows = preds.flatten(0, 1)[[1, 2, 5]]
    one = updated(NDCG(3, ignore_index=-100), preds, target_ids=labels)
    assert torch.equal(one.compute(), updated(NDCG(3), rows, target_ids=torch.tensor([4, 2, 0])).compute())


def test_agreement_with_torchmetrics() -> None:
    from torchmetrics.retrieval import RetrievalMRR, RetrievalNormalizedDCG, RetrievalRecall

    g = torch.Generator().manual_seed(3)
    indexes = torch.randint(0, 9, (200,), generator=g)
    preds = torch.rand(200, generator=g)
    target = torch.randint(0, 2, (200,), generator=g)
    target[torch.rand(200, generator=g) < 0.2] = -1
    for ours, theirs in (
        (MRR(ignore_index=-1), RetrievalMRR(empty_target_action="skip", ignore_index=-1)),
        (Recall(5, ignore_index=-1), RetrievalRecall(empty_target_action="skip", ignore_index=-1, top_k=5)),
        (NDCG(5, ignore_index=-1), RetrievalNormalizedDCG(empty_target_action="skip", ignore_index=-1, top_k=5)),
    ):
        ours.update(preds, target, indexes)
        theirs.update(preds, target, indexes)
        assert float(ours.compute()) == pytest.approx(float(theirs.compute()), abs=1e-6)


def test_metrics_of_the_items_leave_out_what_is_ignored() -> None:
    preds, target = torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[-100, 0, 1]])
    metrics = ranking_metrics(
        ("ndcg", "coverage"), 1, options={"coverage": {"num_items": 3}}, ignore_index=-100, min_relevance=1
    )
    metrics.update(preds, target)
    assert rank(preds, target, ignore_index=-100).item_ids.tolist() == [[1, 2, -1]]
    assert float(metrics["coverage@1"].compute()) == 1 / 3
    assert "ignore_index=-100, min_relevance=1" in metrics["ndcg@1"].definition()
    assert "ignore_index" not in NDCG(1).definition()


def test_what_does_not_go_together_is_refused() -> None:
    preds, target = torch.rand(2, 3), torch.tensor([[0, 5, 4], [3, 0, 0]])
    ready = rank(preds, target, min_relevance=4)
    updated(NDCG(3, min_relevance=4), ready)
    updated(NDCG(3), ready)
    updated(NDCG(3, min_relevance=4), rank(ready, top_k=3))
    with refused(metric := NDCG(3, min_relevance=3), r"made with min_relevance=4, but the metric has min_relevance=3"):
        metric.update(ready)
    with refused(metric := NDCG(3, ignore_index=-100), r"made with ignore_index=None"):
        metric.update(ready)
    with pytest.raises(ValueError, match="the same `ignore_index` and `min_relevance`"):
        RecMetricCollection([NDCG(3, ignore_index=-1), MRR()])
    lowest = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0)).item()
    with refused(metric := NDCG(3, min_relevance=lowest), r"`target_relevance` is missing: with min_relevance=1"):
        metric.update(preds, target_ids=torch.tensor([[0]]).expand(preds.shape[0], 1))
    with refused(metric := NDCG(3, min_relevance=4), r"`target_relevance` is missing: with min_relevance=4"):
        metric.update(preds, target_ids=torch.tensor([1, 0]))
    with refused(metric := NDCG(3, min_relevance=4), r"`target` must be >= 0, got -2 in row 1"):
        metric.update(preds, torch.tensor([[0, 5, 4], [-2, 0, 0]]))
    with refused(metric := NDCG(3, ignore_index=-100), r"`target` must be >= 0, got -2 in row 1"):
        metric.update(preds, torch.tensor([[-100, 5, 4], [-2, 0, 0]]))
    for name, tensor, step in (
        ("target", target.to(torch.uint16), "bool, integer or floating point, got torch.uint16"),
        ("target", target.to(torch.complex64), "bool, integer or floating point, got torch.complex64"),
        ("target", target.to_sparse(), "a dense .strided. tensor"),
        ("target_ids", target.to_sparse(), "a dense .strided. tensor"),
    ):
        for options in ({"ignore_index": -100}, {"min_relevance": 1}):
            with pytest.raises(TypeError, match=f"`{name}` must be {step}"):
                NDCG(3, **options).update(preds, **{name: tensor})
    for wrong in (0.5, "a", True, 1 << 63, -1 - (1 << 63)):
        for make in (lambda **o: NDCG(3, **o), lambda **o: Coverage(3, **o), lambda **o: rank(preds, target, **o)):
            with pytest.raises(ValueError, match="`ignore_index` must be an integer"):
                make(ignore_index=wrong)
    for wrong in (0, -1.0, float("nan"), float("inf"), "a", True):
        with pytest.raises(ValueError, match="`min_relevance` must be a finite number > 0"):
            NDCG(3, min_relevance=wrong)
    assert functional.hit_rate(preds, target, top_k=3, min_relevance=4)[1].isnan()


@pytest.mark.parametrize("variant", [v for v in CLICKED if v.exact], ids=str)
def test_clicks_that_are_ignored_leave_no_trace(variant: Variant) -> None:
    def law(updates: list[Update], seed: int) -> None:
        given, rest = [], []
        for update in map(variant.takes, updates):
            shown = torch.rand(update["target"].shape, generator=torch.Generator().manual_seed(seed)) > 0.3
            if any(value.shape != shown.shape for value in update.values()):
                return
            target = torch.where(shown, update["target"].to(torch.float32), -100.0)
            unread = ("preds", "weights")[: 1 + ("weights" in update)]
            broken = {name: update[name].masked_fill(~shown, float("nan")) for name in unread}
            given.append({**update, "target": target, **broken})
            rest.append({name: value[shown] for name, value in update.items()})
        assert float(variant.fed(given, ignore_index=-100).compute()) == variant.expected(rest)

    updates = drawn_clicks(probabilities=variant.probabilities)
    holds(law, f"ignored clicks {variant}", examples=20, updates=updates, seed=st.integers(0, 99))


def test_clicks_agree_with_torchmetrics() -> None:
    from torchmetrics.classification import BinaryAUROC

    g = torch.Generator().manual_seed(5)
    preds, target = torch.rand(20, 10, generator=g), torch.randint(-1, 2, (20, 10), generator=g)
    theirs = BinaryAUROC(ignore_index=-1)
    theirs.update(preds, target)
    ours = updated(BinaryAUC(ignore_index=-1), preds, target)
    assert float(ours.compute()) == pytest.approx(float(theirs.compute()), abs=1e-6)
    assert torch.equal(functional.auc(preds, target, ignore_index=-1), ours.compute())
    assert functional.log_loss(preds, target, ignore_index=-1).isfinite()
    assert functional.group_auc(preds, target, torch.arange(20), ignore_index=-1).shape == (20,)
    weights = torch.ones(20)
    weights[3], target[3] = float("nan"), -1  # of a row without a label
    assert float(updated(BinaryAUC(ignore_index=-1), preds, target, weights=weights).compute()) == float(
        updated(BinaryAUC(ignore_index=-1), preds, target).compute()
    )
    with refused(ours, "`weights` must be >= 0 and finite, got nan in row 2"):
        ours.update(preds, target, weights=weights.roll(-1))
    with refused(ours, r"`sample_ids` must have the shape \(20, 10\) of `preds` with `ignore_index`"):
        ours.update(preds, target, sample_ids=torch.arange(20))
    with refused(ours, r"`target` must hold 0 and 1 only, got -2 in row 0"):
        ours.update(preds, torch.where(target == -1, -2, target).index_fill_(0, torch.tensor([0]), -2))


FORMS = [
    {"preds": torch.rand(2, 3), "target": torch.ones(2, 2).long()},
    {"preds": torch.rand(2, 3), "target": torch.ones(2, 3).long(), "mask": torch.ones(2, 2).bool()},
    {"preds": torch.rand(2, 3), "target": torch.ones(2, 3).long(), "mask": torch.ones(2, 3)},
    {"preds": torch.rand(4), "target": torch.ones(4).long(), "indexes": torch.ones(3).long()},
    {"preds": torch.rand(2, 3), "target_ids": torch.ones(2, 3).bool()},
    {"preds": torch.rand(2, 3), "target": [[1, 0, 0]]},
    {"preds": torch.rand(2, 3), "target": torch.ones(2, 3).long(), "weights": torch.ones(3)},
]


@pytest.mark.parametrize("given", FORMS)
def test_the_same_forms_are_refused_in_the_same_words(given: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)) as plain:
        NDCG(2).update(**given)
    with pytest.raises((ValueError, TypeError)) as told:
        NDCG(2, ignore_index=-100, min_relevance=1).update(**given)
    assert str(told.value) == str(plain.value)


@pytest.mark.parametrize("label", [0, 1, np.int64(1), True])
def test_a_label_of_clicks_is_no_target_to_ignore(label: Any) -> None:
    """One class was left out, and nobody was told."""
    preds, target, indexes = torch.rand(4), torch.tensor([True, False, True, False]), torch.zeros(4, dtype=torch.int64)
    made = {variant.metric for variant in CLICKED}
    for make in (*made, ctr_metrics):
        with pytest.raises(ValueError, match=r"`ignore_index` must be (none of the labels 0 and 1|an integer)"):
            make(ignore_index=label)
    for function in (functional.auc, functional.click_average_precision, functional.log_loss, functional.calibration):
        with pytest.raises(ValueError, match=r"`ignore_index` must be (none of the labels 0 and 1|an integer)"):
            function(preds, target, ignore_index=label)
    with pytest.raises(ValueError, match=r"`ignore_index` must be (none of the labels 0 and 1|an integer)"):
        functional.group_auc(preds, target, indexes, ignore_index=label)
    assert ctr_metrics(num_classes=3, ignore_index=0)  # of several classes one may be left out, as in torchmetrics


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16])
@pytest.mark.parametrize("label", [256, 257, 65_536, 65_537, -100])
def test_a_label_that_a_dtype_cannot_hold_is_nowhere(dtype: torch.dtype, label: int) -> None:
    """256 is no 0, whatever it would be in a byte."""
    preds, target = torch.tensor([0.9, 0.2, 0.6, 0.4]), torch.tensor([1, 0, 0, 1], dtype=dtype)
    assert float(BinaryAUC(ignore_index=label)(preds, target)) == 0.75
    assert float(Recall(2, ignore_index=label)(preds[None], target[None])) == 0.5
    assert float(Recall(2, ignore_index=label)(preds, target, torch.zeros(4, dtype=torch.int64))) == 0.5
    of_clicks = ctr_metrics(ignore_index=label, weighting=None)
    of_clicks.update(preds, target)
    assert float(of_clicks.compute()["recall"]) == 0.5
    of_classes = ctr_metrics(num_classes=3, ignore_index=label)
    of_classes.update(torch.tensor([1, 0, 2, 0]), target)
    assert float(of_classes.compute()["accuracy"]) == 0.5


def test_a_byte_is_not_its_label_without_a_sign() -> None:
    with refused(metric := BinaryAUC(ignore_index=-100), "`target` must hold 0 and 1 only, got 156 in row 0"):
        metric.update(torch.tensor([0.9, 0.2]), torch.tensor([156, 0], dtype=torch.uint8))
