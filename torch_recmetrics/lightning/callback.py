"""The callback, without a base class of Lightning: it gets that of the package in use, see ``packages``."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torchmetrics import Metric

from torch_recmetrics.collection.collection import RecMetricCollection
from torch_recmetrics.collection.ranking import MetricsOrNames, ranking_metrics
from torch_recmetrics.core.tensors.checks import check_flag
from torch_recmetrics.lightning.bases import Callback
from torch_recmetrics.lightning.evidence import (
    bare,
    compared,
    has_users,
    is_better,
    is_mean,
    packed,
    read_baseline,
    wanted_mode,
)
from torch_recmetrics.lightning.inputs import (
    Inputs,
    Step,
    arguments_of,
    check_inputs,
    check_known,
    checked_names,
    named_arguments,
    padded_lists,
)
from torch_recmetrics.lightning.packages import PACKAGES, add_bases
from torch_recmetrics.lightning.padding import with_sample_ids, without_repeats
from torch_recmetrics.lightning.table import table_of, without_loader
from torch_recmetrics.state.metric import warn
from torch_recmetrics.state.ranked.user_means import EmptyTargetAction, Ties
from torch_recmetrics.users.user_values import UserValues


class RankingMetrics(Callback):
    """Updates, logs, shows and resets ranking metrics from the steps of validation and test.

    A step returns a dict with the argument names of a metric's ``update`` (``preds``, ``target_ids``, ``seen_ids``
    ...), or a tuple ``(preds, target)``. Or the callback reads each argument by its name, such as ``preds="logits",
    target_ids="batch.labels"``, and the module stays as it is.

    Values are logged at the end of the epoch under names such as ``val_ndcg@10``, where ``EarlyStopping`` and
    ``ModelCheckpoint`` find them whatever the order of the callbacks. Several loaders that are read one after the
    other have names of their own, such as ``val_ndcg@10/dataloader_idx_0``. All ranks log the same value, also one
    that had no batch. Rows that a ``DistributedSampler`` repeats are left out.

    Args:
        metrics: names of metrics, metrics, a list of both, a dict from names to metrics, or a collection, as
            :func:`~torch_recmetrics.ranking_metrics` takes them. The callback works with copies.
        top_k: one cutoff or several, for metrics given by name; None is the whole list.
        options: the options of single metrics, such as ``{"map": {"denominator": "relevant"}}`` or
            ``{"coverage": {"num_items": 9066}}``.
        at: what stands between name and cutoff; ``"_at_"`` for loggers that refuse ``@`` (MLflow).
        ties: how equal scores count, for metrics given by name, as are the next five.
        empty_target_action: what users without relevant items count.
        nan_action: NaN scores are refused, or not recommended.
        ignore_index: this label or id stands for padding, as -1 does among ids.
        min_relevance: relevance below it counts as 0.
        validate_args: False leaves out the checks that read values.
        preds: where an argument of ``update`` is to be found, as each of the next fifteen: keys, attributes and places
            in tuples, joined by dots. ``"logits"`` is an entry of what the step returns, ``"outputs"`` all of it,
            ``"batch.labels"`` an entry of the batch, ``"module.items.weight"`` one of the module; a method, such as in
            ``"module.predict_step.logits"``, is called with the batch. Where one is given, nothing else is read. Lists
            of ids of any lengths are padded.
        inputs: in place of names, a function of what the step returned and of its batch that returns the arguments.
        prefix: in front of the names in validation; None: that of the collection, else ``"val_"``.
        test_prefix: in front of the names in ``trainer.test``.
        prog_bar: show the values in the progress bar too.
        table: show a table when validation or test ends, of the values +- their standard errors.
        log_errors: log the standard errors too, under names such as ``val_ndcg@10_se``.
        drop_padding: leave out the rows that a ``DistributedSampler`` repeated.
        other_keys: keys of the returned dict that are not meant for the metrics, ``"loss"`` among them if there is one.
        keep_users: keep the value of every user, in ``users``, a :class:`~torch_recmetrics.compare.UserValues` for each
            loader after every validation. The sample ids are those of the step, else the places of the rows in the data
            set, which loaders have that do not shuffle.
        baseline: values of users, or the path of a file of them, that the best epoch is compared with when ``fit``
            ends; the table is logged, and kept in ``comparison`` on rank 0. Of several loaders the users of the first
            are compared. The best epoch is the one by the monitor of ``ModelCheckpoint``, else, and where the first
            validation does not have it, by the first of the values, those of slices left out. A checkpoint holds its
            values of users.

    Raises:
        ValueError, TypeError: for an option that is not allowed; and during validation for a step that returns
            something else.

    >>> RankingMetrics(("ndcg", "mrr"), top_k=(5, 10)).names()
    ['val_ndcg@5', 'val_ndcg@10', 'val_mrr@5', 'val_mrr@10']
    """

    stands_on = "Callback"
    _by_monitor = True  # whether the monitor of ModelCheckpoint says which epoch is best

    def __init__(
        self,
        metrics: MetricsOrNames = ("hit_rate", "ndcg", "mrr"),
        top_k: int | Sequence[int | None] | None = 10,
        *,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        at: str = "@",
        ties: Ties = "average",
        empty_target_action: EmptyTargetAction = "skip",
        nan_action: Literal["error", "worst"] = "error",
        ignore_index: int | None = None,
        min_relevance: float | None = None,
        validate_args: bool = True,
        preds: str | None = None,
        target: str | None = None,
        indexes: str | None = None,
        item_ids: str | None = None,
        target_ids: str | None = None,
        target_relevance: str | None = None,
        seen_ids: str | None = None,
        mask: str | None = None,
        weights: str | None = None,
        sample_ids: str | None = None,
        slice_ids: str | None = None,
        user_embeddings: str | None = None,
        item_embeddings: str | None = None,
        item_bias: str | None = None,
        reference_ids: str | None = None,
        reference_preds: str | None = None,
        inputs: Inputs | None = None,
        prefix: str | None = None,
        test_prefix: str = "test_",
        prog_bar: bool = False,
        table: bool = True,
        log_errors: bool = False,
        drop_padding: bool = True,
        other_keys: Sequence[str] = ("loss",),
        keep_users: bool = False,
        baseline: str | Path | UserValues | None = None,
    ) -> None:
        add_bases(self)
        super().__init__()
        flags = {"prog_bar": prog_bar, "table": table, "log_errors": log_errors, "drop_padding": drop_padding}
        for name, value in {**flags, "keep_users": keep_users}.items():
            check_flag(name, value)
        labels: dict[str, Any] = {"ignore_index": ignore_index, "min_relevance": min_relevance}
        self._template = copy.deepcopy(
            ranking_metrics(
                metrics,
                top_k,
                options=options,
                at=at,
                ties=ties,
                empty_target_action=empty_target_action,
                nan_action=nan_action,
                validate_args=validate_args,
                **{name: value for name, value in labels.items() if value is not None},
            )
        )
        self._template.reset()
        names = {
            "preds": preds,
            "target": target,
            "indexes": indexes,
            "item_ids": item_ids,
            "target_ids": target_ids,
            "target_relevance": target_relevance,
            "seen_ids": seen_ids,
            "mask": mask,
            "weights": weights,
            "sample_ids": sample_ids,
            "slice_ids": slice_ids,
            "user_embeddings": user_embeddings,
            "item_embeddings": item_embeddings,
            "item_bias": item_bias,
            "reference_ids": reference_ids,
            "reference_preds": reference_preds,
        }
        self.input_names = checked_names(names, self._template.argument_names())
        self.inputs = inputs
        if inputs is not None:
            check_inputs(inputs, self.input_names)
        self.prefix = prefix if prefix is not None else (self._template.prefix or "val_")
        self._template.prefix = self.prefix
        self.test_prefix = test_prefix
        self.prog_bar = prog_bar
        self.table = table
        self.log_errors = log_errors
        self.drop_padding = drop_padding
        self.other_keys = tuple([other_keys] if isinstance(other_keys, str) else other_keys)
        self.values: dict[str, Tensor] = {}  # of the last validation or test, by the name they were logged under
        self.errors: dict[str, Tensor] = {}  # their standard errors, of those that have one
        self._collections: list[RecMetricCollection] = []  # one for each stream of batches
        self._logged: dict[str, SyncedValue] = {}
        self.users: list[UserValues] = []  # of the last validation or test, for each loader
        self.comparison: Any = None  # the table of the best epoch and the baseline, on rank 0
        self.baseline = baseline
        self._baseline: UserValues | None = None
        self._best: dict[str, Any] | None = None  # value, epoch and users of the best epoch
        self._keeps_users = False
        if keep_users or baseline is not None:
            self.start_keeping_users()

    def names(self) -> list[str]:
        """The names that the values of a validation are logged under, where there is one loader."""
        return self._template.value_names()

    # -- values of users ----------------------------------------------------------------------------------------------

    def start_keeping_users(self) -> None:
        """Keep the values of users from now on, as with ``keep_users=True``."""
        if not any(map(has_users, self._template.values())):
            raise ValueError(f"`metrics` must have a mean over users to keep values of users of, got {self.names()}")
        self._template.start_keeping_users()
        self._keeps_users = True

    def metric_of(self, name: str) -> Any:
        """The metric that is logged under this name in validation; None where there is none."""
        return dict(self._template.items(keep_base=False)).get(without_loader(name)[0])

    def keeps(self, name: str) -> bool:
        """Whether the value of this name is a mean over users, of whom values are kept or could be."""
        return is_mean(self.metric_of(name))

    def users_of(self, name: str) -> UserValues | None:
        """The values of users of the last validation, of the loader that the name says."""
        return dict(enumerate(self.users)).get(without_loader(name)[1])

    # -- hooks, of validation and test alike --------------------------------------------------------------------------
    # ruff: noqa: ARG002 (Lightning decides what a hook is given)

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        # A collection for each stream, also for one that gives this rank no batch: all ranks compute all.
        self._collections = [copy.deepcopy(self._template).to(pl_module.device) for _ in range(n_streams(trainer))]
        for metrics in self._collections:
            metrics.prefix = self._now(trainer)[1]
        self.values, self.errors, self.users = {}, {}, []
        if evaluation_loop(trainer).batch_progress.current.ready:
            warn(
                "the checkpoint was written in the middle of a validation, and Lightning goes on with a part of the "
                "batches alone: the values of this validation are not those of all users"
            )

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        metrics, name = self._collections[dataloader_idx], f"{self._now(trainer)[0]}_step"
        if self.input_names:
            step = Step(name, outputs, batch, pl_module, batch_idx, dataloader_idx)
            with trainer.precision_plugin.val_step_context():  # as the step itself: methods of the module may be called
                arguments = named_arguments(self.input_names, step)
        else:
            if self.inputs is not None:
                name, outputs = "inputs", self.inputs(outputs, batch)
            arguments = arguments_of(outputs, name, self.other_keys)
            check_known(arguments, metrics.argument_names(), name, self.other_keys)
        arguments = padded_lists(arguments, pl_module.device)
        loader = loader_of(trainer, dataloader_idx)
        if self._keeps_users:
            arguments = with_sample_ids(arguments, loader, batch_idx, pl_module.device)
        if self.drop_padding:
            arguments = without_repeats(arguments, loader, batch_idx)
        if arguments:
            metrics.update(**arguments)

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        for number, metrics in enumerate(self._collections):
            suffix = f"/dataloader_idx_{number}" if len(self._collections) > 1 else ""
            with warnings.catch_warnings():
                # A rank without a batch is nothing to warn of: it takes the values of the others.
                warnings.filterwarnings("ignore", message="The ``compute`` method of metric")
                values, errors = metrics.values_and_errors()
            for name, value in values.items():
                self.values[name + suffix] = value
                if isinstance(value, Tensor) and value.numel() == 1:
                    self._log(pl_module, name + suffix, value, prog_bar=self.prog_bar)
            for name, error in errors.items():
                self.errors[name + suffix] = error
                if self.log_errors:
                    self._log(pl_module, f"{name}_se{suffix}", error, prog_bar=False)
            if self._keeps_users and not trainer.sanity_checking:
                self.users.append(metrics.users())
        self._collections = []

    def _log(self, pl_module: Any, name: str, value: Tensor, *, prog_bar: bool) -> None:
        logged = self._logged.setdefault(name, SyncedValue())
        logged.update(value)
        pl_module.log(
            name,
            logged,
            on_step=False,
            on_epoch=True,
            prog_bar=prog_bar,
            add_dataloader_idx=False,
            metric_attribute=f"{type(self).__name__}.{name}",
        )

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Refuse names that are logged twice, and read the baseline, before anything is trained."""
        option = "test_prefix" if stage == "test" else "prefix"
        ours = [callback for callback in trainer.callbacks if isinstance(callback, RankingMetrics)]
        names = [getattr(own, option) + name.removeprefix(own.prefix) for own in ours for name in own.names()]
        twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
        if twice is not None and stage != "predict":
            raise ValueError(
                f"`{option}` must differ between callbacks of a trainer that log the same names, got {twice} twice: "
                f"give one of them another `{option}`"
            )
        if stage == "fit" and self.baseline is not None and not trainer.fast_dev_run:
            self._baseline = bare(read_baseline(self.baseline), self.prefix, self.test_prefix)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Say which callbacks of the trainer wait for the worse values, as Lightning's default mode, "min", has it."""
        for other in trainer.callbacks:
            monitor, mode = getattr(other, "monitor", None), getattr(other, "mode", None)
            metric = self.metric_of(monitor) if isinstance(monitor, str) else None
            wanted = None if metric is None else wanted_mode(metric)
            if mode in ("min", "max") and wanted not in (None, mode):
                less = "less" if mode == "min" else "more"
                warn(
                    f"{type(other).__name__}({monitor!r}) has mode={mode!r}, so it takes {less} of it for better: give "
                    f"it mode={wanted!r}"
                )

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if self._baseline is not None and trainer.state.fn == "fit" and not trainer.sanity_checking and self.users:
            self._remember_best(trainer, self._baseline)
        if not self.table or trainer.sanity_checking or not trainer.is_global_zero or not self.values:
            return
        stage, prefix = self._now(trainer)
        title = f"{stage}, epoch {trainer.current_epoch}" if trainer.state.fn == "fit" else stage
        show(trainer, table_of(self.values, title, prefix, self.errors))

    def _remember_best(self, trainer: Any, baseline: UserValues) -> None:
        """Keep the values of users of the best epoch."""
        kept: Any = getattr(trainer, "checkpoint_callback", None)
        monitor = getattr(kept, "monitor", None)
        # What the first validation lacks is known when the training epoch ends: here it is that of the epoch before.
        self._by_monitor = self._by_monitor and monitor in trainer.callback_metrics
        if self._by_monitor:
            value, higher = trainer.callback_metrics[monitor], kept.mode == "max"
        else:
            # Of a value of a slice or of a resample nobody knows here whether more is better.
            own = [name for name in self.values if name in self._logged]
            name = next((name for name in own if self.metric_of(name) is not None), own[0])
            value, higher = self.values[name], getattr(self.metric_of(name), "higher_is_better", True) is not False
        users = bare(self.users[0], self.prefix)
        if self._best is None:
            compared(users, baseline, trainer.current_epoch, test="t")  # refuses other users now, not at the end
        if self._best is None or is_better(value, self._best["value"], higher=higher):
            self._best = {"value": float(value), "epoch": trainer.current_epoch, "users": users}

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Compare the best epoch with the baseline."""
        if self._baseline is None or self._best is None or not trainer.is_global_zero:
            return
        self.comparison = compared(self._best["users"], self._baseline, self._best["epoch"])
        show(trainer, str(self.comparison))

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Add the best epoch, where there is a baseline that it will be compared with."""
        if self._best is not None:
            best = {**self._best, "users": packed(self._best["users"])}
            checkpoint.setdefault("torch_recmetrics", {})[" ".join(self.names())] = best

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Go on with the best epoch of a checkpoint."""
        best = checkpoint.get("torch_recmetrics", {}).get(" ".join(self.names()))
        if best is not None and self.baseline is not None:
            self._best = {**best, "users": UserValues(**best["users"])}

    on_test_epoch_start = on_validation_epoch_start
    on_test_batch_end = on_validation_batch_end
    on_test_epoch_end = on_validation_epoch_end
    on_test_end = on_validation_end

    def _now(self, trainer: Any) -> tuple[str, str]:
        """The stage, and what stands in front of its names."""
        return ("test", self.test_prefix) if trainer.testing else ("validation", self.prefix)


def show(trainer: Any, text: str) -> None:
    """Tell it by a child of the logger that the Lightning of this trainer tells its users things with."""
    package = next((name for name in PACKAGES if type(trainer).__module__.startswith(name)), __name__)
    logging.getLogger(f"{package}.ranking_metrics").info("\n%s", text)


class SyncedValue(Metric):
    """A value that is the same on every rank already.

    Lightning would advise to synchronise a plain number once more, and averages it.
    """

    full_state_update = False

    def __init__(self) -> None:
        super().__init__(sync_on_compute=False)
        self.value = torch.tensor(float("nan"))

    def update(self, value: Tensor) -> None:
        """Replace the value."""
        self.value = value.detach().reshape(())

    def compute(self) -> Tensor:
        """The value."""
        return self.value


def evaluation_loop(trainer: Any) -> Any:
    """The loop that validates or tests now."""
    if trainer.state.fn == "fit":
        return trainer.fit_loop.epoch_loop.val_loop
    return trainer.test_loop if trainer.state.fn == "test" else trainer.validate_loop


def is_sequential(loop: Any) -> bool:
    """Whether the loaders are read one after the other; a CombinedLoader may give a batch of each at every step."""
    return getattr(getattr(loop, "_combined_loader", None), "_mode", "sequential") == "sequential"


def n_streams(trainer: Any) -> int:
    """How many values of `dataloader_idx` the steps will get."""
    loop = evaluation_loop(trainer)
    return loop.num_dataloaders if is_sequential(loop) else 1


def loader_of(trainer: Any, number: int) -> Any:
    """The data loader a batch came from; None where that cannot be said."""
    loop = evaluation_loop(trainer)
    combined = getattr(loop, "_combined_loader", None)
    if combined is None or (len(combined.flattened) > 1 and not is_sequential(loop)):
        return None
    return combined.flattened[number]
