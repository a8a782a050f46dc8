"""Early stopping that asks whether an epoch is better than chance would make it."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from torch_recmetrics.collection.collection import RecMetricCollection
from torch_recmetrics.core.tensors.checks import check_share
from torch_recmetrics.lightning.bases import EarlyStopping
from torch_recmetrics.lightning.evidence import difference_bounds, is_mean, packed, wanted_mode
from torch_recmetrics.lightning.packages import add_bases
from torch_recmetrics.lightning.table import without_loader
from torch_recmetrics.users.user_values import UserValues


class SignificantStopping(EarlyStopping):
    """Stops when a metric has stopped improving beyond chance.

    Each epoch is compared with the best one so far, user by user. It is better only if the whole interval of the mean
    difference is on the better side of 0. Otherwise the best epoch stays the best, and `patience` runs out. Every epoch
    is one test; the level is that of one test, not of all together.

    The users' values come from :class:`RankingMetrics` in the same trainer, which keeps them then, or from a collection
    of the module with ``keep_users=True`` that is logged under its own names. On several ranks all decide alike. A
    checkpoint holds the values of the best epoch, 16 bytes for each user, so that a resumed training goes on as if it
    had never stopped.

    Args:
        monitor: the name of a mean over users, such as ``"val_ndcg@10"``.
        level: of the two-sided interval; with 0.9 an epoch that is no better than the best one counts as better in 5 %
            of the tests, and in more where a few users lose much and all others gain a little (docs/compare.md).
        patience: validations without a better one after which the training stops.
        min_delta: the least difference of the values that counts; this option and those below are those of
            ``EarlyStopping``.
        verbose: say when a value improved and why the training stops.
        mode: ``"min"`` for metrics of which less is better, such as :class:`~torch_recmetrics.MeanRank`.
        strict: whether a missing value is an error.
        check_finite: stop where the value is nan or infinite.
        stopping_threshold: stop at once where the value is better than this one.
        divergence_threshold: stop at once where it is worse than this one.
        check_on_train_epoch_end: look at the end of the training epoch, not of the validation.
        log_rank_zero_only: only rank 0 prints.

    Raises:
        ValueError, TypeError: for a level outside 0 to 1, for a mode that is not the metric's, and, when training
            begins, if neither the callback nor the module has a mean over users under this name.

    >>> SignificantStopping("val_ndcg@10", level=0.9, patience=3).monitor
    'val_ndcg@10'
    """

    stands_on = "EarlyStopping"

    def __init__(
        self,
        monitor: str,
        level: float = 0.9,
        patience: int = 3,
        *,
        min_delta: float = 0.0,
        verbose: bool = False,
        mode: Literal["max", "min"] = "max",
        strict: bool = True,
        check_finite: bool = True,
        stopping_threshold: float | None = None,
        divergence_threshold: float | None = None,
        check_on_train_epoch_end: bool | None = None,
        log_rank_zero_only: bool = False,
    ) -> None:
        add_bases(self)
        check_share("level", level)
        self.level = level
        super().__init__(
            monitor,
            min_delta=min_delta,
            patience=patience,
            verbose=verbose,
            mode=mode,
            strict=strict,
            check_finite=check_finite,
            stopping_threshold=stopping_threshold,
            divergence_threshold=divergence_threshold,
            check_on_train_epoch_end=check_on_train_epoch_end,
            log_rank_zero_only=log_rank_zero_only,
        )
        self.best_users: UserValues | None = None  # of the epoch that was best so far
        self._users: UserValues | None = None  # of the last validation
        self._source: Any = None  # the callback or the collection that has them

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Find who has the values of users."""
        super().setup(trainer, pl_module, stage)
        if stage == "fit":
            self._source = source_of(self.monitor, trainer, pl_module)
            check_mode(self.mode, self.monitor, self._source)

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Take the values of a collection of the module, before Lightning resets it."""
        if isinstance(self._source, RecMetricCollection) and not self._should_skip_check(trainer):
            self._users = self._source.users()
        super().on_validation_epoch_end(trainer, pl_module)

    def _run_early_stopping_check(self, trainer: Any) -> None:
        if not isinstance(self._source, RecMetricCollection):
            self._users = self._source.users_of(self.monitor)
        super()._run_early_stopping_check(trainer)

    def _evaluate_stopping_criteria(self, current: Tensor) -> tuple[bool, str | None]:
        before = self.best_score
        is_final = self.stopping_threshold is not None and bool(self.monitor_op(current, self.stopping_threshold))
        if not is_final and bool(torch.isfinite(current)) and not self._beyond_chance():
            # Lightning compares two numbers: a value that is better by chance alone counts as the best one so far.
            best = self.best_score.to(current)
            current = best if bool(self.monitor_op(current, best)) else current
        decided: tuple[bool, str | None] = super()._evaluate_stopping_criteria(current)
        if self.best_score is not before:
            self.best_users = self._users
        return decided

    def _beyond_chance(self) -> bool:
        """Whether the users are better off than in the best epoch; where there is none, or no value of it, they are.

        Of users of whom one has an infinite value no values are known.
        """
        name = without_loader(self.monitor)[0]
        if self._users is None or name not in self._users or self.best_users is None or name not in self.best_users:
            return True
        low, high = difference_bounds(self._users, self.best_users, name, self.level)
        return low > 0 if self.mode == "max" else high < 0

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds: that of ``EarlyStopping``, and the values of the best epoch's users."""
        name = without_loader(self.monitor)[0]
        users = (
            packed(self.best_users, name) | {"summaries": {}}
            if self.best_users is not None and name in self.best_users
            else None
        )
        return {**super().state_dict(), "best_users": users}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint, also from one of ``EarlyStopping``."""
        super().load_state_dict(state_dict)
        users = state_dict.get("best_users")
        self.best_users = None if users is None else UserValues(**users)


def source_of(monitor: str, trainer: Any, pl_module: Any) -> Any:
    """The callback or the collection that has the values of users of this name, which is told to keep them.

    Raises:
        ValueError: where there is none, or several.
    """
    callbacks = [callback for callback in trainer.callbacks if hasattr(callback, "users_of")]
    for callback in callbacks:
        if callback.keeps(monitor):
            callback.start_keeping_users()
            return callback
    held = [module for module in pl_module.modules() if isinstance(module, RecMetricCollection)]
    named = [each for each in held if monitor in each.keys(keep_base=False) and is_mean(each[monitor])]
    keeping = [collection for collection in named if collection._keep_users]
    if len(keeping) == 1:
        return keeping[0]
    if keeping:
        raise ValueError(f"`monitor` must name one metric, got {monitor!r}, which {len(keeping)} collections have")
    if named:
        raise ValueError(
            f"`monitor` is {monitor!r}, of which the collection of the module keeps no values of users: make it with "
            "keep_users=True, and update it with `sample_ids`"
        )
    names = [name for callback in callbacks for name in callback.names() if callback.keeps(name)]
    raise ValueError(
        f"`monitor` must be a mean over users that a RankingMetrics callback has, or a collection of the module with "
        f"keep_users=True, got {monitor!r}; there are {', '.join(names) or 'none'}"
    )


def check_mode(mode: str, monitor: str, source: Any) -> None:
    """Refuse ``"max"`` for a metric of which less is better, and ``"min"`` for one of which more is."""
    metric = source[monitor] if isinstance(source, RecMetricCollection) else source.metric_of(monitor)
    wanted = wanted_mode(metric)
    if wanted is not None and mode != wanted:
        raise ValueError(f"`mode` must be {wanted!r} for {monitor}, got {mode!r}")
