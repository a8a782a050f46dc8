"""Everything that a click-through model is judged by, in one collection: our metrics and torchmetrics' own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics import classification as own

from torch_recmetrics.collection.collection import RecMetricCollection
from torch_recmetrics.core.auc.labelled_rows import read_clicks
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import accumulator_dtype
from torch_recmetrics.core.tensors.sort_keys import slices
from torch_recmetrics.metrics.auc import AveragePrecision, BinaryAUC
from torch_recmetrics.metrics.group_auc import GroupAUC
from torch_recmetrics.metrics.probability import Calibration, LogLoss, NormalizedEntropy
from torch_recmetrics.state.metric import is_to_empty

check_num_classes = check.number_check("an integer > 2, or None for click probabilities", int, least=3)
check_threshold = check.number_check("a number from 0 to 1", least=0, most=1)
CELLS = ("true_positives", "false_positives", "true_negatives", "false_negatives")
STATES = ("tp", "fp", "tn", "fn")  # of torchmetrics


class ConfusionCount(own.BinaryStatScores):
    """One cell of torchmetrics' confusion matrix: a number, which loggers take where they refuse a matrix."""

    def __init__(self, cell: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cell = cell

    def compute(self) -> Tensor:
        """How many rows are in this cell."""
        return super().compute()[CELLS.index(self.cell)].to(torch.float64)

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot one number or several."""
        return self._plot(val, ax)


class LabelMetrics(RecMetricCollection):
    """A collection whose updates are checked before any member of torchmetrics sees them."""

    validate_args = True
    ignore_index: int | None = None
    # torch.jit.script does not know such annotations
    __jit_ignored_attributes__ = (*RecMetricCollection.__jit_ignored_attributes__, "ignore_index")

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LabelMetrics:
        """Our own metrics begin anew after ``to_empty``; torchmetrics' count on from whatever was in memory."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if is_to_empty(fn):
            for member in self._modules.values():
                if isinstance(member, own.BinaryStatScores | own.MulticlassStatScores):
                    counts: Any = member._defaults
                    counts.update({name: torch.zeros_like(count) for name, count in counts.items()})
            self.reset()
        return self

    def _advance(self, arguments: dict[str, Any], method: str) -> dict[str, Any]:
        checked = self._checked(arguments)
        if checked is None:
            self._check_known(name for name, value in arguments.items() if value is not None)
            nothing = torch.full((), float("nan"), dtype=accumulator_dtype(arguments["preds"].device))
            return dict.fromkeys(self._modules, nothing)
        return super()._advance(checked, method)

    @abstractmethod
    def _checked(self, arguments: dict[str, Any]) -> dict[str, Any] | None:
        """The arguments as all members take them, once no member can refuse them; None where no row counts."""


class ClickMetrics(LabelMetrics):
    """A collection for predicted click probabilities; an update takes, as that of :class:`~torch_recmetrics.GroupAUC`,

    - ``preds``: probabilities in [0, 1];
    - ``target``: 0 and 1 (bool, integer or float, as the loss has them), in the shape of ``preds``;
    - ``indexes``: the user of each row; needed by group AUC;
    - ``weights`` and ``sample_ids``, which torchmetrics' own members do not know: they count every row once for each
      time that it arrives.

    The values of a batch without rows are nan.
    """

    def _checked(self, arguments: dict[str, Any]) -> dict[str, Any] | None:
        if arguments["indexes"] is None and any(isinstance(member, GroupAUC) for member in self._modules.values()):
            raise ValueError("`indexes` is missing: group_auc needs it; `ctr_metrics(weighting=None)` leaves it out")
        preds, target = arguments["preds"], arguments["target"]
        ignore_index = self.ignore_index
        clicks = read_clicks(
            preds, target, validate_args=self.validate_args, probabilities=True, ignore_index=ignore_index
        )
        if not clicks.preds.numel():
            return None
        # torchmetrics' own refuse floats, and a row without a dimension.
        labels = target.detach()
        if labels.dtype != torch.int64 or not self.validate_args:
            labels = labels.to(torch.bool).to(torch.int64)
        given = {**arguments, "target": labels}
        if ignore_index is not None and target.dtype != torch.bool:
            # torchmetrics looks at the predictions of rows that it leaves out: one above 1 makes logits of all.
            ignored = check.is_label(target.detach(), ignore_index)
            given |= {"preds": preds.masked_fill(ignored, 0), "target": labels.masked_fill(ignored, ignore_index)}
        return {n: v.reshape(1) if isinstance(v, Tensor) and v.ndim == 0 else v for n, v in given.items()}

    def _advance_others(self, taken: list[tuple[Metric, dict[str, Any]]], method: str) -> dict[int, Any]:
        """The cells of a confusion matrix are counted once for all members of torchmetrics that add them up."""
        counting: list[Any] = [(member, given) for member, given in taken if counts_cells(member)]
        if method == "forward" or not counting:
            return super()._advance_others(taken, method)
        (first, rows), *_ = counting
        how = {"threshold": first.threshold, "ignore_index": first.ignore_index}
        alike = {id(m): m for m, _ in counting if how == {"threshold": m.threshold, "ignore_index": m.ignore_index}}
        others = [(member, given) for member, given in taken if id(member) not in alike]
        values = super()._advance_others(others, method)
        cells = cells_of(rows["preds"], rows["target"], first.threshold)
        for member in alike.values():
            own_cells = {name: getattr(member, name) + count for name, count in zip(STATES, cells, strict=True)}
            member.__dict__.update(own_cells, _update_count=member._update_count + 1, _computed=None)
        return values


def cells_of(preds: Tensor, target: Tensor, threshold: float) -> Sequence[Tensor]:
    """True and false positives, true and false negatives; rows with another target than 0 and 1 are left out."""
    total = torch.zeros(len(STATES), dtype=torch.int64, device=preds.device)
    for chance, label in slices(preds.detach().reshape(-1), target.reshape(-1)):
        over, clicked, passed = chance > threshold, label == 1, label == 0
        total += torch.stack([(a & b).sum() for a in (over, ~over) for b in (clicked, passed)])
    true_positives, false_positives, false_negatives, true_negatives = total.unbind()
    return true_positives, false_positives, true_negatives, false_negatives


def counts_cells(member: Metric) -> bool:
    """Whether an update of a member of torchmetrics does nothing but add to the cells of one confusion matrix."""
    return type(member).update is own.BinaryStatScores.update and member.multidim_average == "global"


class ClassMetrics(LabelMetrics):
    """A collection of torchmetrics' own metrics for heads of many classes; an update takes

    - ``preds``: (B, C) floating point, or (B,) integer, predicted classes;
    - ``target``: (B,) integer, from 0 to C - 1.

    The values of a batch without rows are nan.
    """

    num_classes = 0

    def _checked(self, arguments: dict[str, Any]) -> dict[str, Any] | None:
        preds, target = arguments["preds"], arguments["target"]
        check.check_tensor("preds", preds)
        check.check_tensor("target", target, ndim=1)
        check.check_ids("target", target)
        check.check_device(preds.device, {"target": target})
        checks = check.ValueChecks(self.validate_args)
        ignored = torch.zeros_like(target, dtype=torch.bool)
        if self.ignore_index is not None:
            ignored = check.is_label(target, self.ignore_index)
        if preds.ndim == 1:
            check.check_shape("preds", preds, tuple(target.shape), "`target`")
            check.check_ids("preds", preds)
            self._defer_classes(checks, "preds", preds, ignored)
        else:
            check.check_float("preds", preds)
            check.check_shape("preds", preds, (target.shape[0], self.num_classes), "rows and classes")
            check.defer_nan(checks, preds.detach().isnan().any(1).logical_and_(~ignored))
        self._defer_classes(checks, "target", target, ignored)
        checks.raise_first()
        # torchmetrics would compare a narrow one with a label that it cannot hold.
        return {**arguments, "target": target.to(torch.int64)} if target.shape[0] else None

    def _defer_classes(self, checks: check.ValueChecks, name: str, classes: Tensor, ignored: Tensor) -> None:
        last = self.num_classes - 1
        checks.defer(
            ((classes < 0) | (classes > last)) & ~ignored,
            lambda row: f"`{name}` must be a class from 0 to {last}, got {int(classes[row])} in row {row}",
        )


def ctr_metrics(
    *,
    weighting: Literal["impressions", "positives", "uniform"] | None = "impressions",
    num_bins: int | None = None,
    threshold: float = 0.5,
    beta: float = 1.0,
    num_classes: int | None = None,
    ignore_index: int | None = None,
    prefix: str | None = None,
    postfix: str | None = None,
    validate_args: bool = True,
) -> RecMetricCollection:
    """The metrics of a click-through model in one collection, to be logged with one ``self.log_dict(metrics)``.

    From this package ``auc``, ``average_precision``, ``group_auc``, ``log_loss``, ``normalized_entropy`` and
    ``calibration``; from torchmetrics ``accuracy``, ``precision``, ``recall``, ``f<beta>`` and the four cells of the
    confusion matrix, all at `threshold`. With `num_classes` the collection is one for multi-class heads: torchmetrics'
    accuracy, and precision, recall and F-beta as ``_macro``, ``_micro`` and ``_weighted`` mean of the classes.

    Args:
        weighting: of :class:`~torch_recmetrics.GroupAUC`, which needs ``indexes`` in every update; None leaves it out.
        num_bins: of :class:`~torch_recmetrics.BinaryAUC` and :class:`~torch_recmetrics.AveragePrecision`.
        threshold: above which probability a row counts as predicted positive; one at the threshold does not.
        beta: of the F-beta score; 1 weighs precision and recall alike.
        num_classes: C, more than 2, for (B, C) predictions or (B,) predicted classes, and (B,) integer classes.
        ignore_index: a target other than 0 and 1, or a class of `num_classes`: rows that have it are left out by all
            members, those of torchmetrics included.
        prefix: put in front of every name, such as ``"val_"``.
        postfix: put behind every name.
        validate_args: False leaves out the checks that read values.

    Raises:
        ValueError: for options that the metrics refuse.
        TypeError: for an option of click probabilities beside `num_classes`.

    >>> metrics = ctr_metrics(weighting=None, prefix="val_")
    >>> metrics.update(torch.tensor([0.9, 0.2, 0.6, 0.4]), torch.tensor([1.0, 0.0, 0.0, 1.0]))
    >>> values = metrics.compute()
    >>> values["val_auc"], values["val_accuracy"], values["val_true_positives"]
    (tensor(0.7500, dtype=torch.float64), tensor(0.5000), tensor(1., dtype=torch.float64))
    """
    check.check_flag("validate_args", validate_args)
    check.check_ignore_index("ignore_index", ignore_index := check.plain_number(ignore_index))
    beta, threshold, num_classes = map(check.plain_number, (beta, threshold, num_classes))
    check.check_above_zero("beta", beta)
    check_threshold("threshold", threshold)
    beta, threshold = float(beta), float(threshold)  # torchmetrics takes floats alone
    f_beta = f"f{beta:g}".replace(".", "_")
    how: dict[str, Any] = {"ignore_index": ignore_index, "validate_args": validate_args}
    members: dict[str, Metric]
    if num_classes is not None:
        of_clicks = {
            "weighting": weighting not in ("impressions", None),
            "num_bins": num_bins is not None,
            "threshold": threshold != 0.5,
        }
        if given := [option for option, is_given in of_clicks.items() if is_given]:
            raise TypeError(f"`{given[0]}` is for click probabilities: leave it out beside `num_classes`")
        check_num_classes("num_classes", num_classes)
        how = {"num_classes": num_classes, **how}
        members = {"accuracy": own.MulticlassAccuracy(average="micro", **how)}
        for average in ("macro", "micro", "weighted"):
            members |= {
                f"precision_{average}": own.MulticlassPrecision(average=average, **how),
                f"recall_{average}": own.MulticlassRecall(average=average, **how),
                f"{f_beta}_{average}": own.MulticlassFBetaScore(beta, average=average, **how),
            }
        collection: ClassMetrics | ClickMetrics = ClassMetrics(members, prefix=prefix, postfix=postfix)
        collection.num_classes = num_classes
    else:
        members = {
            "auc": BinaryAUC(num_bins, **how),
            "average_precision": AveragePrecision(num_bins, **how),
        }
        if weighting is not None:
            members["group_auc"] = GroupAUC(weighting, **how)
        members |= {metric.stem: metric(**how) for metric in (LogLoss, NormalizedEntropy, Calibration)}
        at = {"threshold": threshold, **how}
        members |= {
            "accuracy": own.BinaryAccuracy(**at),
            "precision": own.BinaryPrecision(**at),
            "recall": own.BinaryRecall(**at),
            f_beta: own.BinaryFBetaScore(beta, **at),
        }
        members |= {cell: ConfusionCount(cell, **at) for cell in CELLS}
        collection = ClickMetrics(members, prefix=prefix, postfix=postfix)
    collection.validate_args, collection.ignore_index = validate_args, ignore_index
    return collection
