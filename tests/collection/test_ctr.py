"""ctr_metrics: one collection, each number that of its own library, logged in one line."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from fixtures.devices import watched
from fixtures.histories import updated
from fixtures.refusals import refused
from oracles import clicks as oracles
from sklearn import metrics as sklearn
from torchmetrics import classification as torchmetrics

from torch_recmetrics import (
    BinaryAUC,
    Calibration,
    GroupAUC,
    LogLoss,
    NormalizedEntropy,
    RecMetricCollection,
    ctr_metrics,
)
from torch_recmetrics.state import rows as state_rows

N = 160


def clicks(seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    preds = torch.rand(N, generator=generator)
    target = (torch.rand(N, generator=generator) < preds).float()
    return {"preds": preds, "target": target, "indexes": torch.randint(20, (N,), generator=generator)}


def expected(rows: dict[str, torch.Tensor], threshold: float = 0.5, beta: float = 1.0) -> dict[str, Any]:
    preds, target, indexes = (column.tolist() for column in rows.values())
    labels = [int(p > threshold) for p in preds]
    made = [oracles.Row(p, int(t), group=g) for p, t, g in zip(preds, target, indexes, strict=True)]
    tn, fp, fn, tp = sklearn.confusion_matrix(target, labels).ravel().tolist()
    eps = torch.finfo(torch.float32).eps
    return {
        "auc": oracles.auc(made),
        "average_precision": oracles.average_precision(made),
        "group_auc": oracles.group_auc(made),
        "log_loss": oracles.log_loss(made, eps),
        "normalized_entropy": oracles.normalized_entropy(made, eps),
        "calibration": oracles.calibration(made),
        "accuracy": pytest.approx(sklearn.accuracy_score(target, labels), abs=1e-6),
        "precision": pytest.approx(sklearn.precision_score(target, labels), abs=1e-6),
        "recall": pytest.approx(sklearn.recall_score(target, labels), abs=1e-6),
        f"f{beta:g}".replace(".", "_"): pytest.approx(sklearn.fbeta_score(target, labels, beta=beta), abs=1e-6),
        "true_positives": tp,
        "false_positives": fp,
        "true_negatives": tn,
        "false_negatives": fn,
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
@pytest.mark.parametrize(("threshold", "beta"), [(0.5, 1.0), (0.3, 0.5), (0.7, 2.0)])
def test_each_number_is_that_of_its_definition(dtype: torch.dtype, threshold: float, beta: float) -> None:
    rows = clicks()
    metrics = ctr_metrics(threshold=threshold, beta=beta, prefix="val_")
    for part in torch.arange(N).split(36):
        some = {name: column[part] for name, column in rows.items()}
        metrics.update(some["preds"], some["target"].to(dtype), some["indexes"])
    values = {name.removeprefix("val_"): value for name, value in metrics.compute().items()}
    wanted = expected(rows, threshold, beta)
    assert list(values) == list(wanted)
    for name, value in values.items():
        assert value.shape == ()
        assert (
            float(value) == pytest.approx(wanted[name], abs=1e-12)
            if isinstance(wanted[name], float)
            else (float(value) == wanted[name])
        ), name


def test_members_of_torchmetrics_are_given_no_logits() -> None:
    metrics = ctr_metrics(weighting=None)
    for name in set(metrics) - {"accuracy"}:
        del metrics[name]
    with pytest.raises(ValueError, match=r"`preds` must be probabilities in \[0, 1\], got 1.5 in row 1"):
        metrics.update(torch.tensor([0.5, 1.5]), torch.tensor([0, 1]))
    metrics.update(torch.tensor([0.6, 0.2]), torch.tensor([1, 1]))
    assert metrics.compute() == {"accuracy": 0.5}


def test_forward_and_copies() -> None:
    metrics = ctr_metrics()
    first, second = clicks(1), clicks(2)
    values = metrics(**first)
    assert float(values["group_auc"]) == pytest.approx(expected(first)["group_auc"], abs=1e-12)
    other = pickle.loads(pickle.dumps(metrics)).clone()
    other(**second)
    both = {name: torch.cat([first[name], second[name]]) for name in first}
    assert float(other.compute()["auc"]) == pytest.approx(expected(both)["auc"], abs=1e-12)
    assert float(metrics.compute()["auc"]) == pytest.approx(expected(first)["auc"], abs=1e-12)


@pytest.mark.skipif(
    not hasattr(torchmetrics.BinaryStatScores, "merge_state"), reason="this torchmetrics merges nothing"
)
def test_merged_values_are_new_ones() -> None:
    first, second, both = ctr_metrics(weighting=None), ctr_metrics(weighting=None), ctr_metrics(weighting=None)
    for seed, metrics in enumerate((first, second)):
        rows = {name: column for name, column in clicks(seed).items() if name != "indexes"}
        metrics.update(**rows)
        both.update(**rows)
        metrics.compute()  # which torchmetrics' own keep
    first.merge_state(second)
    wanted = {name: pytest.approx(float(value), abs=1e-12) for name, value in both.compute().items()}
    assert {name: float(value) for name, value in first.compute().items()} == wanted


def test_weights_and_sample_ids_reach_the_members_that_know_them() -> None:
    rows = clicks()
    metrics = ctr_metrics(weighting=None)
    assert "group_auc" not in metrics
    weights, ids = torch.rand(N), torch.arange(N)
    for _ in range(2):
        metrics.update(rows["preds"], rows["target"], weights=weights, sample_ids=ids)
    values = metrics.compute()
    made = zip(rows["preds"].tolist(), rows["target"].tolist(), weights.tolist(), strict=True)
    assert float(values["calibration"]) == pytest.approx(oracles.calibration([oracles.Row(*r) for r in made]), abs=1e-9)
    assert sum(float(values[name]) for name in values if "_positives" in name or "_negatives" in name) == 2 * N


@pytest.mark.parametrize("method", ["update", "forward"])
def test_what_is_counted_once_for_several_members_is_added_to_what_each_has(method: str) -> None:
    """Also where one was emptied or asked alone, beside members that count other cells."""
    metrics = ctr_metrics(weighting=None)
    others = {
        "strict": torchmetrics.BinaryAccuracy(0.9),
        "ignoring": torchmetrics.BinaryAccuracy(ignore_index=1),
        "of_rows": torchmetrics.BinaryAccuracy(multidim_average="samplewise"),
        "specificity": torchmetrics.BinarySpecificity(),
    }
    alone = {name: copy.deepcopy(member) for name, member in [*metrics.items(), *others.items()]}
    metrics.add_metrics(others)
    for turn, emptied in enumerate(["accuracy", "recall", None]):
        rows = {name: column.reshape(-1, 4) for name, column in clicks(turn).items() if name != "indexes"}
        values = getattr(metrics, method)(**rows)
        for name, member in alone.items():
            value = member(**rows | {"target": rows["target"].to(torch.int64)})
            if method == "forward":
                torch.testing.assert_close(values[name], value, rtol=0, atol=0)
            torch.testing.assert_close(metrics[name].compute(), member.compute(), rtol=0, atol=0)
            assert metrics[name].update_count == member.update_count
        for collection in (metrics, alone) if emptied else ():
            collection[emptied].reset()


@pytest.mark.parametrize("method", ["update", "forward"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_rows_of_the_ignored_target_are_not_there_for_any_member(dtype: torch.dtype, method: str) -> None:
    """Whatever their prediction is: torchmetrics would take all predictions for logits where one of them is above 1."""
    rows = clicks()
    ignored = torch.arange(N) % 7 == 3
    target = rows["target"].masked_fill(ignored, -100).to(dtype)
    preds = rows["preds"].masked_fill(ignored, 7.5)
    metrics = ctr_metrics(ignore_index=-100)
    for part in (slice(0, 100), slice(100, N)):
        getattr(metrics, method)(preds[part], target[part], rows["indexes"][part])
    wanted = ctr_metrics()
    wanted.update(**{name: column[~ignored] for name, column in rows.items()})
    wanted = {name: pytest.approx(float(value), abs=1e-12) for name, value in wanted.compute().items()}
    assert {name: float(value) for name, value in metrics.compute().items()} == wanted
    if method == "forward":
        nothing = metrics(preds[ignored], target[ignored], rows["indexes"][ignored])
        assert all(value.isnan() for value in nothing.values())
    with refused(metrics, "`target` must hold 0 and 1 only, got -1", ValueError):
        metrics.update(rows["preds"], target.masked_fill(ignored, -1), rows["indexes"])
    with pytest.raises((TypeError, ValueError), match="`ignore_index` must be"):
        ctr_metrics(ignore_index="no")


def test_the_ignored_class_of_a_head_of_several() -> None:
    preds, target = torch.rand(60, 3), torch.arange(60) % 3
    ignored = torch.arange(60) % 4 == 1
    metrics = ctr_metrics(num_classes=3, ignore_index=-100)
    metrics.update(preds.masked_fill(ignored[:, None], torch.nan), target.masked_fill(ignored, -100))
    wanted = updated(ctr_metrics(num_classes=3), preds[~ignored], target[~ignored])
    assert {n: float(v) for n, v in metrics.compute().items()} == {n: float(v) for n, v in wanted.compute().items()}
    with refused(metrics, "`target` must be a class from 0 to 2, got -1 in row 1"):
        metrics.update(preds, target.masked_fill(ignored, -1))


def test_heads_of_several_classes() -> None:
    preds, target = torch.rand(200, 4), torch.randint(4, (200,))
    values, labels = updated(ctr_metrics(num_classes=4, prefix="val_"), preds, target).compute(), preds.argmax(1)
    assert float(values["val_accuracy"]) == pytest.approx(sklearn.accuracy_score(target, labels), abs=1e-6)
    for average in ("macro", "micro", "weighted"):
        theirs = sklearn.f1_score(target, labels, average=average)
        assert float(values[f"val_f1_{average}"]) == pytest.approx(theirs, abs=1e-6)
        theirs = sklearn.recall_score(target, labels, average=average)
        assert float(values[f"val_recall_{average}"]) == pytest.approx(theirs, abs=1e-6)


def test_refused() -> None:
    rows = clicks()
    metrics = updated(ctr_metrics(), **rows)
    for wrong, words in (
        ({"indexes": None}, r"`indexes` is missing: group_auc needs it; .*weighting=None.* leaves it out"),
        ({"preds": rows["preds"] * 9}, "`preds` must be probabilities"),
        ({"target": torch.full((N,), 0.5)}, r"`target` must hold 0 and 1 only, got 0\.5 in row 0"),
        ({"weights": -torch.ones(N)}, "`weights` must be >= 0"),
    ):
        with refused(metrics, words, ValueError):
            metrics.update(**{**rows, **wrong})
    for wrong in (1, 2, 2.5, True):
        with pytest.raises(ValueError, match="`num_classes` must be an integer > 2"):
            ctr_metrics(num_classes=wrong)
    for unread in ({"weighting": "uniform"}, {"num_bins": 16}, {"threshold": 0.7}):
        (name,) = unread
        with pytest.raises(TypeError, match=f"`{name}` is for click probabilities: leave it out beside `num_classes`"):
            ctr_metrics(num_classes=3, **unread)
    with pytest.raises(ValueError, match="`weighting` must be one of"):
        ctr_metrics(weighting="rows")
    for wrong in ("x", None, 0, math.nan, math.inf):
        with pytest.raises(ValueError, match="`beta` must be a finite number above 0, got"):
            ctr_metrics(beta=wrong)
    for wrong in ("x", None, -0.1, 2, math.nan):
        with pytest.raises(ValueError, match="`threshold` must be a number from 0 to 1, got"):
            ctr_metrics(threshold=wrong)


def test_an_integer_or_numpy_number_is_as_good_as_a_float() -> None:
    found = [
        updated(ctr_metrics(beta=beta, threshold=threshold), **clicks()).compute()
        for beta, threshold in ((2, np.float32(0.5)), (2.0, 0.5))
    ]
    assert found[0] == found[1]
    assert "f2_macro" in ctr_metrics(num_classes=3, beta=2)


def test_a_batch_without_rows_and_a_single_row_are_input_for_a_whole_collection() -> None:
    metrics = ctr_metrics(weighting=None)
    assert all(value.isnan() for value in metrics(torch.zeros(0), torch.zeros(0)).values())
    metrics.update(torch.zeros(0), torch.zeros(0))
    for score, label in zip(torch.tensor([0.1, 0.4, 0.4, 0.8]), torch.tensor([0, 0, 1, 1])):
        metrics.update(score, label)
    assert metrics.compute()["auc"] == 0.875
    assert metrics.compute()["accuracy"] == 0.75


@pytest.mark.filterwarnings("ignore")
def test_one_line_logs_all_of_it(tmp_path: Any) -> None:
    pl = pytest.importorskip("pytorch_lightning")

    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.metrics = ctr_metrics(prefix="val_")

        def validation_step(self, batch: list[torch.Tensor]) -> None:
            self.metrics.update(*batch)
            self.log_dict(self.metrics)

    rows = clicks()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*rows.values()), batch_size=64)
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, logger=False, enable_progress_bar=False, default_root_dir=tmp_path
    )
    logged = trainer.validate(Model(), loader, verbose=False)[0]
    for name, value in expected(rows).items():
        assert logged[f"val_{name}"] == (pytest.approx(value, abs=1e-6) if isinstance(value, float) else value), name


def heads(n: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(n, 3, generator=torch.Generator().manual_seed(0)).softmax(1), torch.arange(n) % 3


PREDS = heads()[0]


@pytest.mark.parametrize("method", ["update", "forward"])
@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"preds": torch.where(torch.arange(6)[:, None] == 4, torch.nan, PREDS)}, "`preds` must not be NaN.* row 4"),
        ({"target": torch.tensor([0, 1, 2, 0, 3, 2])}, r"`target` must be a class from 0 to 2, got 3 in row 4"),
        ({"target": torch.tensor([0, 1, 2, 0, -1, 2])}, r"`target` must be a class from 0 to 2, got -1 in row 4"),
        ({"target": torch.arange(6.0) % 3}, r"`target` must hold integers"),
        ({"preds": PREDS[:, :2]}, r"`preds` must have the shape \(6, 3\)"),
        ({"preds": PREDS.long()}, r"`preds` must be floating point"),
        ({"preds": PREDS.tolist()}, r"`preds` must be a tensor, got list"),
    ],
)
def test_point_16_multiclass_input_is_refused_before_anything_is_counted(
    method: str, broken: dict[str, Any], message: str
) -> None:
    metrics = updated(ctr_metrics(num_classes=3), *heads())
    with refused(metrics, message):
        getattr(metrics, method)(**{"preds": PREDS, "target": heads()[1], **broken})


def test_point_16_predicted_classes_and_empty_batches_still_go() -> None:
    metrics = updated(ctr_metrics(num_classes=3), torch.tensor([0, 2, 1]), torch.tensor([0, 2, 2]))
    assert float(metrics.compute()["accuracy"]) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match=r"`preds` must be a class from 0 to 2, got 3 in row 1"):
        metrics.update(torch.tensor([0, 3]), torch.tensor([0, 2]))
    copied = pickle.loads(pickle.dumps(metrics)).clone()
    assert float(copied(*heads())["accuracy"]) >= 0
    for nobody in (heads(0), (torch.zeros(0, dtype=torch.int64),) * 2):
        assert all(value.isnan() for value in metrics(*nobody).values())
        metrics.update(*nobody)
    assert float(metrics.compute()["accuracy"]) == pytest.approx(2 / 3)


def test_point_16_the_threshold_is_exclusive_as_it_is_described() -> None:
    metrics = updated(ctr_metrics(weighting=None, threshold=0.5), torch.tensor([0.5, 0.75]), torch.tensor([1, 1]))
    assert float(metrics.compute()["true_positives"]) == 1
    assert "above which" in " ".join((ctr_metrics.__doc__ or "").split())


@pytest.mark.parametrize("num_classes", [None, 3])
@pytest.mark.parametrize("n_rows", [0, 2])
def test_an_argument_that_no_member_takes_is_refused_without_rows_too(n_rows: int, num_classes: int | None) -> None:
    metrics = ctr_metrics(weighting="impressions" if num_classes else None, num_classes=num_classes)
    preds, target = (
        torch.zeros(n_rows, dtype=torch.int64 if num_classes else None),
        torch.zeros(n_rows, dtype=torch.int64),
    )
    for given in ({"weigths": target}, {"indexes": target}):
        with refused(metrics, f"no member of the collection takes `{next(iter(given))}`", TypeError):
            metrics.update(preds, target, **given)


@pytest.mark.parametrize("meta", [False, True])
@pytest.mark.parametrize("num_classes", [None, 3])
def test_after_to_empty_a_collection_has_seen_nothing(num_classes: int | None, meta: bool) -> None:
    """Nor have the members that are torchmetrics' own, though what was in memory is filled with large integers here."""
    rows = (torch.tensor([0.3, 0.8]), torch.tensor([1, 0])) if num_classes is None else heads()
    expected = updated(ctr_metrics(weighting=None, num_classes=num_classes), *rows).compute()
    with torch.device("meta" if meta else "cpu"):
        metrics = ctr_metrics(weighting=None, num_classes=num_classes)
    if not meta:
        metrics.update(*rows)
    filled = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        torch.nn.ModuleList([metrics]).to_empty(device="cpu")
    finally:
        torch.use_deterministic_algorithms(filled)
    assert {name: float(value) for name, value in updated(metrics, *rows).compute().items()} == pytest.approx(
        {name: float(value) for name, value in expected.items()}, nan_ok=True
    )


@pytest.mark.parametrize("method", ["update", "forward"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rows_are_read_once_for_all_members_that_read_them_alike(
    dtype: torch.dtype, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = clicks()
    rows |= {"preds": rows["preds"].to(dtype), "weights": rows["preds"] + 1}
    members: dict[str, Any] = {
        "auc": BinaryAUC(),
        "sharp": LogLoss(eps=0.1),
        "of users": GroupAUC(),
        "log loss": LogLoss(),
        "ignoring": BinaryAUC(ignore_index=7),
        "entropy": NormalizedEntropy(),
        "calibration": Calibration(),
    }
    alone = {name: updated(metric.clone(), **metric.arguments(rows)) for name, metric in members.items()}
    read = watched(monkeypatch, state_rows, "read_clicks")
    collection = RecMetricCollection(members)
    getattr(collection, method)(**rows)
    assert len(read) == 3  # any scores, probabilities, and without those to ignore
    for name, value in collection.compute().items():
        assert float(value) == float(alone[name].compute()), name


def test_members_that_keep_the_same_rows_share_their_memory() -> None:
    metrics = updated(ctr_metrics(), **clicks())
    names = "auc", "average_precision", "group_auc"
    assert len({metrics[name].state("keys")[0].data_ptr() for name in names}) == 1
