"""Early stopping beyond chance, values of users from the callback, and the comparison with a baseline."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, TensorDataset
from torchmetrics.classification import BinaryConfusionMatrix

from torch_recmetrics import (
    MRR,
    NDCG,
    Coverage,
    FromSampled,
    GroupExposure,
    MeanRank,
    Sliced,
    functional,
    rank,
    ranking_metrics,
)
from torch_recmetrics.compare import UserValues, t_test
from torch_recmetrics.lightning.evidence import bare, difference_bounds
from torch_recmetrics.lightning.padding import STEPS, places_of_batch, with_sample_ids

pytest.importorskip("pytorch_lightning")
import pytorch_lightning as pl
from lightning_fabric.utilities.distributed import DistributedSamplerWrapper

from torch_recmetrics.lightning import RankingMetrics, SignificantStopping

N_USERS, N_ITEMS = 40, 8
QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "devices": 1,
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
}


def scores_of(epoch: int) -> torch.Tensor:
    """Epoch 1 helps most users; epochs 2 and 3 help one more; epoch 4 helps all."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(N_USERS, N_ITEMS, generator=generator)
    helped = [0, 25, 26, 26, N_USERS][min(epoch, 4)]
    scores[:helped, 0] = 2
    return scores


class Model(pl.LightningModule):
    """Gets the scores of the epoch for row numbers; item 0 is wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def training_step(self, batch: Any) -> torch.Tensor:
        return self.weight.sum()

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        rows = batch[0]
        return {"preds": scores_of(self.current_epoch)[rows], "target_ids": torch.zeros_like(rows)}

    test_step = validation_step

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Dense(Model):
    """The same with scores from 0 to 1 and a matrix of labels."""

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        preds = scores_of(self.current_epoch)[batch[0]] / 2
        return {"preds": preds, "target": (torch.arange(N_ITEMS) == 0).long().expand_as(preds)}


class LogsItself(Model):
    def __init__(self, keep_users: bool = True, aggregation: str = "mean") -> None:
        super().__init__()
        options = {"coverage": {"num_items": N_ITEMS}, "ndcg": {"aggregation": aggregation}}
        self.metrics = ranking_metrics(("ndcg", "coverage"), 3, options=options, prefix="val_", keep_users=keep_users)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.metrics.update(**super().validation_step(batch, batch_idx), sample_ids=batch[0])

    def on_validation_epoch_end(self) -> None:
        self.log_dict(self.metrics)


class LogsTwoLoaders(LogsItself):
    """Has a collection for each of two loaders."""

    def __init__(self) -> None:
        super().__init__()
        self.of_second = self.metrics.clone()


def loader(**options: Any) -> DataLoader:
    return DataLoader(TensorDataset(torch.arange(N_USERS)), **{"batch_size": 16, **options})


def trained(*callbacks: Any, model: Any = None, max_epochs: int = 8, checkpoint: Any = None, **options: Any) -> Any:
    trainer = pl.Trainer(**{**QUIET, **options}, callbacks=list(callbacks), max_epochs=max_epochs)
    trainer.fit(model or Model(), loader(), loader(), ckpt_path=checkpoint, weights_only=True)
    return trainer


def ndcg(epoch: int) -> torch.Tensor:
    return functional.ndcg(scores_of(epoch), target_ids=torch.zeros(N_USERS, dtype=torch.int64), top_k=3)


def quiet_metrics(*names: str, **options: Any) -> Any:
    return RankingMetrics(names or ("ndcg", "mrr"), 3, table=False, **options)


pytestmark = pytest.mark.filterwarnings("ignore")


def test_who_waits_for_the_worse_values_is_warned_of() -> None:
    """Lightning's default mode is "min"."""
    early, keep = pl.callbacks.EarlyStopping, pl.callbacks.ModelCheckpoint
    metrics = quiet_metrics("ndcg", "mean_rank")
    for other, says in (
        (early("val_ndcg@3", patience=5), r"EarlyStopping\('val_ndcg@3'\) has mode='min', so .* less .* mode='max'"),
        (
            keep(monitor="val_mean_rank@3", mode="max"),
            "ModelCheckpoint.*has mode='max', so it takes more of it for better",
        ),
        (keep(monitor="val_ndcg@3/dataloader_idx_0"), "give it mode='max'"),
    ):
        with pytest.warns(UserWarning, match=says):
            metrics.on_fit_start(pl.Trainer(**QUIET | {"enable_checkpointing": None}, callbacks=[other, metrics]), None)
    right = early("val_ndcg@3", mode="max"), keep(monitor="val_mean_rank@3", mode="min"), keep(), early("loss")
    with warnings.catch_warnings():  # of others are not ours, such as those about a GPU that is not used
        warnings.filterwarnings("error", "(EarlyStopping|ModelCheckpoint).* has mode", UserWarning)
        trained(right[0], metrics, max_epochs=1)
        metrics.on_fit_start(pl.Trainer(**QUIET | {"enable_checkpointing": None}, callbacks=[*right, metrics]), None)


@pytest.mark.parametrize(("run", "option", "old"), [("validate", "prefix", "val_"), ("test", "test_prefix", "test_")])
def test_two_callbacks_do_not_log_under_one_name(run: str, option: str, old: str) -> None:
    def both(**options: Any) -> Any:
        callbacks = [quiet_metrics(), quiet_metrics("recall", "mrr", ties="optimistic", **options)]
        return getattr(pl.Trainer(**QUIET, callbacks=callbacks), run)(Model(), loader(), verbose=False)[0]

    same = [quiet_metrics(), quiet_metrics()]
    for metrics in same:  # nothing is logged
        metrics.setup(pl.Trainer(**QUIET, callbacks=same), Model(), "predict")
    with pytest.raises(ValueError, match=f"`{option}` must differ .* got {old}mrr@3 twice"):
        both()
    assert list(both(**{option: "own_"})) == [f"{old}ndcg@3", f"{old}mrr@3", "own_recall@3", "own_mrr@3"]


# Stopping -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["callback", "callback behind", "collection"])
def test_chance_is_no_improvement(source: str) -> None:
    """EarlyStopping takes each of epochs 1 and 2 as better; one user more is no evidence, and all users are."""
    stop = SignificantStopping("val_ndcg@3", patience=2)
    if source == "collection":
        trainer = trained(stop, model=LogsItself())
    else:
        trainer = trained(*([stop, quiet_metrics()] if source == "callback" else [quiet_metrics(), stop]))
    assert (trainer.current_epoch, stop.stopped_epoch) == (4, 3)  # epochs 2 and 3 are not beyond chance
    assert float(stop.best_score) == pytest.approx(float(ndcg(1).mean()), abs=1e-12)
    assert torch.equal(stop.best_users["val_ndcg@3"], ndcg(1))
    plain = pl.callbacks.EarlyStopping("val_ndcg@3", mode="max", patience=2)
    assert trained(quiet_metrics(), plain).current_epoch > 4


@pytest.mark.parametrize("monitor", ["val_ndcg@3", "val_exposure_disparity@3"])
def test_infinite_values_of_users_end_no_validation(monitor: str) -> None:
    """Where they are monitored no test is made, and the values of the epochs decide, as of EarlyStopping."""
    groups = {"groups": torch.arange(N_ITEMS) // (N_ITEMS - 1), "distance": "max_ratio"}
    metrics = quiet_metrics("ndcg", "exposure_disparity", options={"exposure_disparity": groups}, keep_users=True)
    mode = "max" if monitor == "val_ndcg@3" else "min"
    stop = SignificantStopping(monitor, patience=2, mode=mode, check_finite=False)
    trainer = trained(metrics, stop)
    assert (trainer.current_epoch, list(metrics.users[0])) == (4 if mode == "max" else 2, ["val_ndcg@3"])
    assert (stop.state_dict()["best_users"] is None) == (mode == "min")


def test_a_real_improvement_goes_on() -> None:
    stop = SignificantStopping("val_ndcg@3", patience=3, check_on_train_epoch_end=False)
    trainer = trained(quiet_metrics(), stop)
    assert trainer.current_epoch == 8 and stop.wait_count == 3  # epoch 4 is better, and the rest are equal to it
    assert float(stop.best_score) == 1


def test_the_options_of_early_stopping() -> None:
    stop = SignificantStopping("val_ndcg@3", stopping_threshold=float(ndcg(2).mean()) - 1e-6)
    assert trained(quiet_metrics(), stop).current_epoch == 3  # reached by chance, but reached
    assert stop.stopping_reason.name == "STOPPING_THRESHOLD"
    stop = SignificantStopping("val_ndcg@3", patience=3, min_delta=0.9)
    assert trained(quiet_metrics(), stop).current_epoch == 4
    assert torch.equal(stop.best_users["val_ndcg@3"], ndcg(0))  # beyond chance, and yet less than min_delta


def test_less_is_better() -> None:
    stop = SignificantStopping("val_mean_rank", mode="min", patience=2)
    assert trained(RankingMetrics("mean_rank", None, table=False), stop).current_epoch == 4


def test_a_resumed_training_stops_where_an_unbroken_one_does(tmp_path: Path) -> None:
    trainer = trained(quiet_metrics(), SignificantStopping("val_ndcg@3", patience=2), max_epochs=3)
    trainer.save_checkpoint(tmp_path / "three.ckpt")
    stop = SignificantStopping("val_ndcg@3", patience=2)
    assert trained(quiet_metrics(), stop, checkpoint=tmp_path / "three.ckpt").current_epoch == 4
    assert torch.equal(stop.best_users["val_ndcg@3"], ndcg(1))
    again = SignificantStopping("val_ndcg@3")
    again.load_state_dict({k: v for k, v in stop.state_dict().items() if k != "best_users"})  # EarlyStopping's own
    assert again.best_users is None and again.wait_count == 2


class Breaks(Model):
    """Stops in the middle of the validation of epoch 1."""

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        if (self.current_epoch, batch_idx) == (1, 1):
            raise RuntimeError("stop here")
        return super().validation_step(batch, batch_idx)


def test_who_goes_on_in_the_middle_of_a_validation_is_warned(tmp_path: Path) -> None:
    """Lightning gives the rest of the validation as many batches as are left, but the first ones."""
    keep = pl.callbacks.OnExceptionCheckpoint(tmp_path, "broken")
    with pytest.raises(RuntimeError, match="stop here"):
        trained(quiet_metrics(), keep, model=Breaks(), enable_checkpointing=True)
    metrics = quiet_metrics()
    with pytest.warns(UserWarning, match="in the middle of a validation") as told:
        trained(metrics, max_epochs=3, checkpoint=tmp_path / "broken.ckpt")
    assert sum("in the middle" in str(one.message) for one in told) == 1
    assert float(metrics.values["val_ndcg@3"]) == pytest.approx(float(ndcg(2).mean()))


@pytest.mark.parametrize(
    ("model", "callbacks", "says"),
    [
        (Model, [SignificantStopping("val_ndcg@3")], "`monitor` must be a mean over users .*there are none"),
        (Model, [SignificantStopping("val_x"), quiet_metrics()], "got 'val_x'; there are val_ndcg@3, val_mrr@3"),
        (
            Model,
            [SignificantStopping("val_mrr@3"), RankingMetrics(FromSampled(MRR(3), 9, method="em"))],
            "got 'val_mrr@3'; there are none",
        ),
        *(
            (
                Model,
                [SignificantStopping("val_ndcg@3"), RankingMetrics([NDCG(3, aggregation=aggregation), MRR(3)])],
                "`monitor` must be a mean over users .*got 'val_ndcg@3'; there are val_mrr@3",
            )
            for aggregation in ("median", "min", "max", torch.var)
        ),
        (lambda: LogsItself(aggregation="median"), [SignificantStopping("val_ndcg@3")], "must be a mean over users"),
        (
            Model,
            [SignificantStopping("val_exposure@3"), RankingMetrics(GroupExposure(torch.arange(N_ITEMS) % 2, 3))],
            "got 'val_exposure@3'; there are none",
        ),
        (LogsItself, [SignificantStopping("val_coverage@3")], "`monitor` must be a mean over users .*'val_coverage@3'"),
        (lambda: LogsItself(keep_users=False), [SignificantStopping("val_ndcg@3")], "keep_users=True, and update it"),
        (LogsTwoLoaders, [SignificantStopping("val_ndcg@3")], "got 'val_ndcg@3', which 2 collections have"),
        (
            Model,
            [SignificantStopping("val_ndcg@3", mode="min"), quiet_metrics()],
            "`mode` must be 'max' for val_ndcg@3",
        ),
    ],
)
def test_who_has_no_values_of_users_is_refused_before_the_training(model: Any, callbacks: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        trained(*callbacks, model=model())


def test_options_that_are_refused() -> None:
    for level in (0, 1, "x"):
        with pytest.raises((ValueError, TypeError), match="`level`"):
            SignificantStopping("val_ndcg@3", level=level)
    with pytest.raises(ValueError, match="`metrics` must have a mean over users"):
        RankingMetrics(Coverage(5), keep_users=True)
    with pytest.raises(ValueError, match="`metrics` must have a mean over users"):
        RankingMetrics(FromSampled(MRR(3), N_ITEMS, method="em"), keep_users=True)
    for kept in (GroupExposure(torch.arange(N_ITEMS) % 2, 3), NDCG(3, aggregation="median")):
        assert RankingMetrics(kept, keep_users=True).names()


def test_pickled() -> None:
    again = pickle.loads(pickle.dumps(SignificantStopping("val_ndcg@3", level=0.8)))
    assert (again.level, again.monitor) == (0.8, "val_ndcg@3") and isinstance(again, pl.callbacks.EarlyStopping)


def test_names_of_a_baseline_without_their_prefix() -> None:
    users = UserValues([1, 2], {"test_mrr": [0.5, 1.0]})
    assert list(bare(users, "val_", "test_")) == list(bare(users, "", "test_")) == ["mrr"]
    for given, other in (
        ({"val_mrr": [0.5, 1.0], "test_mrr": [0.5, 0.0]}, {}),
        ({"val_mrr": [0.5, 1.0]}, {"mrr": (0.5, 0.1)}),
    ):
        with pytest.raises(ValueError, match=r"`baseline` must have mrr once, got val_mrr and (test_)?mrr: "):
            bare(UserValues([1, 2], given, summaries=other), "val_", "test_")


def test_the_interval_is_that_of_the_paired_t_test() -> None:
    ids = list(range(N_USERS))
    first, second = (UserValues(ids, {"a": ndcg(epoch)}) for epoch in (1, 4))
    bounds = difference_bounds(second, first, "a", 0.9)
    wanted = t_test(ndcg(4), ndcg(1), level=0.9)
    assert bounds == pytest.approx((wanted.low, wanted.high), rel=1e-4)
    # Users of one epoch alone do not count, and the others are paired by their ids.
    more = UserValues([-1, *ids[5:]], {"a": torch.cat([torch.ones(1), ndcg(1)[5:]])})
    wanted = t_test(ndcg(4)[5:], ndcg(1)[5:], level=0.9)
    assert difference_bounds(second, more, "a", 0.9) == pytest.approx((wanted.low, wanted.high), rel=1e-4)
    weights = torch.arange(1.0, N_USERS + 1)
    first, second = (UserValues(ids, {"a": ndcg(epoch)}, weights=weights) for epoch in (1, 4))
    wanted = t_test(ndcg(4), ndcg(1), weights, level=0.9)
    assert difference_bounds(second, first, "a", 0.9) == pytest.approx((wanted.low, wanted.high), rel=1e-4)
    with pytest.raises(ValueError, match=r"a of this epoch cannot be compared .*two users or more"):
        difference_bounds(UserValues([1], {"a": [0.5]}), first, "a", 0.9)


# Values of users from the callback ------------------------------------------------------------------------------------


def test_values_of_users() -> None:
    metrics = quiet_metrics(keep_users=True)
    trained(metrics, max_epochs=2)
    (users,) = metrics.users
    assert users.sample_ids.tolist() == list(range(N_USERS)) and list(users) == ["val_ndcg@3", "val_mrr@3"]
    assert torch.equal(users["val_ndcg@3"], ndcg(1))


def test_slices_are_read_by_name_and_beside_values_of_users() -> None:
    metrics = RankingMetrics(
        [NDCG(3), Sliced(NDCG(3), ("even", "odd"))],
        preds="preds",
        target_ids="target_ids",
        slice_ids="batch.1",
        table=False,
    )
    trainer = pl.Trainer(**QUIET, callbacks=[metrics, SignificantStopping("val_ndcg@3")], max_epochs=1)
    rows = torch.arange(N_USERS)
    trainer.fit(Model(), loader(), DataLoader(TensorDataset(rows, rows % 2), batch_size=16))
    assert float(metrics.values["val_ndcg@3/odd"]) == pytest.approx(float(ndcg(0)[1::2].mean()), abs=1e-12)
    assert torch.equal(metrics.users[0]["val_ndcg@3"], ndcg(0))


def row_numbers(loader: DataLoader, batch_idx: int) -> torch.Tensor:
    places, n_rows, in_order = places_of_batch(loader, batch_idx)
    assert in_order
    return places % n_rows


def test_places_in_the_data_set() -> None:
    for world in (1, 3):
        found = []
        for number in range(world):
            sampler = DistributedSampler(range(N_USERS), world, number, shuffle=False)
            own = loader(sampler=sampler)
            for batch_idx, (rows,) in enumerate(own):
                assert row_numbers(own, batch_idx).tolist() == rows.tolist()
                found += rows.tolist()
        assert set(found) == set(range(N_USERS))
    assert row_numbers(loader(), 2).tolist() == list(range(32, N_USERS))
    shuffled = DistributedSampler(range(N_USERS), 2, 0)
    wrapped = DistributedSamplerWrapper(RandomSampler(range(N_USERS)), num_replicas=2, rank=0, shuffle=False)
    for other in (shuffled, wrapped):
        assert not places_of_batch(loader(sampler=other), 0).in_order
    assert not len(places_of_batch(loader(), 1000).places)  # behind the last batch
    for unknown in (loader(sampler=RandomSampler(range(N_USERS))), None):
        assert places_of_batch(unknown, 0) is None


def test_sample_ids_of_other_layouts() -> None:
    device, preds = torch.device("cpu"), torch.zeros(16, 3)
    given = {"preds": preds, "sample_ids": torch.zeros(16)}
    assert with_sample_ids(given, None, 0, device) is given
    flat, refused_later = {"preds": preds[0], "indexes": preds[0]}, ({"preds": preds.tolist()}, {"target": preds})
    for left_alone in ({}, flat, {"preds": rank(preds, top_k=2)}, *refused_later):
        assert "sample_ids" not in with_sample_ids(left_alone, loader(), 0, device)
    steps = with_sample_ids({"preds": torch.zeros(16, 2, 3)}, loader(), 1, device)["sample_ids"]
    assert steps.shape == (16, 2) and steps[1].tolist() == [17 * STEPS, 17 * STEPS + 1]
    for own, says in (
        (loader(shuffle=True), "the sampler does not tell"),
        (loader(sampler=DistributedSampler(range(N_USERS), 2, 0)), "the sampler does not tell"),
        (loader(batch_size=8), "the step returned 16 rows for a batch of 8 elements"),
    ):
        with pytest.raises(ValueError, match=f"`sample_ids` is missing: .*{says}"):
            with_sample_ids({"preds": preds}, own, 0, device)


# Beside a baseline ----------------------------------------------------------------------------------------------------


def baseline(**options: Any) -> UserValues:
    metrics = ranking_metrics(("ndcg", "precision"), 3, keep_users=True, **options)
    ids = torch.arange(N_USERS)
    metrics.update(scores_of(0), target_ids=torch.zeros_like(ids), sample_ids=ids)
    return metrics.users()


def test_the_best_epoch_is_compared_with_the_baseline(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    baseline(prefix="val_").save(tmp_path / "popularity.parquet")
    metrics = quiet_metrics(baseline=tmp_path / "popularity.parquet")
    with caplog.at_level("INFO", logger="pytorch_lightning.ranking_metrics"):
        trained(metrics, max_epochs=3)
    (row,) = metrics.comparison.rows
    assert (row.system, row.metric, row.n) == ("epoch 2", "ndcg@3", N_USERS)
    assert row.difference == pytest.approx(float((ndcg(2) - ndcg(0)).mean()), abs=1e-12)
    assert row.low > 0 and str(metrics.comparison) in "\n".join(caplog.messages)


def test_the_best_epoch_is_that_of_the_checkpoints_monitor_and_is_resumed(tmp_path: Path) -> None:
    def callbacks() -> list[Any]:
        keep = pl.callbacks.ModelCheckpoint(tmp_path, monitor="val_mrr@3", mode="min", filename="best")
        return [quiet_metrics(baseline=baseline()), keep]

    metrics, keep = callbacks()
    trained(metrics, keep, max_epochs=2, enable_checkpointing=True)
    assert metrics.comparison.rows[0].system == "epoch 0"
    again, keep = callbacks()
    trained(again, keep, max_epochs=3, enable_checkpointing=True, checkpoint=tmp_path / "best.ckpt")
    assert again.comparison.rows[0].system == "epoch 0"


def test_a_loss_of_the_epoch_before_does_not_say_which_epoch_is_best(tmp_path: Path) -> None:
    """It is there from the second validation on, where the first one was compared by another value."""

    class Losses(Model):
        def training_step(self, batch: Any) -> torch.Tensor:
            self.log("train_loss", [2.0, 0.5, 1.0][self.current_epoch], on_step=False, on_epoch=True)
            return super().training_step(batch)

    metrics = quiet_metrics(baseline=baseline())
    keep = pl.callbacks.ModelCheckpoint(tmp_path, monitor="train_loss", mode="min")
    trained(metrics, keep, model=Losses(), max_epochs=3, enable_checkpointing=True)
    assert metrics.comparison.rows[0].system == "epoch 2"  # by its NDCG


def test_a_slice_does_not_say_which_epoch_is_best() -> None:
    """Less is better of its mean rank, which a wrapper does not say; nor has a matrix a best epoch."""
    first = [BinaryConfusionMatrix(), Sliced(MeanRank(), ("even", "odd"))]
    given = {"preds": "preds", "target": "target", "slice_ids": "batch.1", "table": False}
    metrics = RankingMetrics([*first, NDCG(3)], baseline=baseline(), **given)
    trainer = pl.Trainer(**QUIET, callbacks=[metrics], max_epochs=3)
    rows = torch.arange(N_USERS)
    trainer.fit(Dense(), loader(), DataLoader(TensorDataset(rows, rows % 2), batch_size=16))
    assert metrics.comparison.rows[0].system == "epoch 2"
    assert list(metrics.values)[1:] == ["val_mean_rank/even", "val_mean_rank/odd", "val_ndcg@3"]


def test_a_matrix_is_not_what_the_best_epoch_is_best_in() -> None:
    """Nobody knows whether more exposure of a group is better, but each is a number."""
    exposure = GroupExposure(torch.arange(N_ITEMS) % 2, 3, names=("even", "odd"), keep_users=True)
    exposure.update(scores_of(0), sample_ids=torch.arange(N_USERS))
    given = {"preds": "preds", "target": "target", "table": False, "baseline": exposure.users()}
    metrics = RankingMetrics([BinaryConfusionMatrix(), exposure], **given)
    trained(metrics, model=Dense(), max_epochs=1)
    assert [row.metric for row in metrics.comparison] == ["exposure@3/even", "exposure@3/odd"]


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (UserValues(torch.arange(N_USERS), {"ndcg@3": ndcg(0)}), ValueError, "^`baseline` must .* same definitions"),
        (UserValues([1, 2], {"map@3": [0.5, 1.0]}), ValueError, "`baseline` must have one of the callback's metrics"),
        ("nowhere.parquet", FileNotFoundError, "nowhere"),
        (3, TypeError, "`baseline` must be UserValues or the path"),
    ],
)
def test_another_baseline_is_refused_at_the_first_validation(given: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        trained(quiet_metrics(baseline=given), max_epochs=1)


def test_a_baseline_of_other_users_is_told_in_words_of_the_callback() -> None:
    says = "`baseline` must hold the same users as the validation, got 40 beside 16, with 16 in both: validate on"
    with pytest.raises(ValueError, match=says) as refused:
        trained(quiet_metrics(baseline=baseline()), max_epochs=1, limit_val_batches=1)
    assert "on_missing" not in str(refused.value) and "24 users of baseline" in str(refused.value.__cause__)


def test_one_loader_of_two_is_monitored() -> None:
    class Two(Model):
        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
            return super().validation_step(batch, batch_idx)

    stop = SignificantStopping("val_ndcg@3/dataloader_idx_1", patience=2)
    metrics = quiet_metrics()
    trainer = pl.Trainer(**QUIET, callbacks=[metrics, stop], max_epochs=8)
    part = DataLoader(TensorDataset(torch.arange(30)), batch_size=16)
    trainer.fit(Two(), loader(), [loader(), part])
    assert [len(users) for users in metrics.users] == [N_USERS, 30] and len(stop.best_users) == 30
    assert trainer.current_epoch == 4
