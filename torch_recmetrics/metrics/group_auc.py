r"""AUC within each user (or query, or session), and its mean."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from torch_recmetrics.core.auc.labelled_rows import Clicks, read_clicks
from torch_recmetrics.core.auc.pairs import group_pairs, sort_rows
from torch_recmetrics.core.auc.scored_labels import Rows, column, joined, rows_of
from torch_recmetrics.core.distributed.collectives import (
    gather_rows,
    send_rows,
)
from torch_recmetrics.core.tensors.devices import accumulator_dtype, bits_float, exact, float_bits
from torch_recmetrics.core.tensors.moments import moments
from torch_recmetrics.state.intervals import Spread, spread_of
from torch_recmetrics.state.metric import RowsOf
from torch_recmetrics.state.options import option
from torch_recmetrics.state.rows import Ranks, RowMetric
from torch_recmetrics.state.slot_rows import GroupTable

__all__ = ["GroupAUC"]


# The groups that have both classes, ascending by id: (G,) int64 ids, float64 values and float64 weights.
Groups = tuple[Tensor, Tensor, Tensor]


class GroupAUC(RowMetric):
    r"""How well the scores order each user's own rows, on average over the users.

    .. math:: \text{GroupAUC} = \frac{\sum_u w_u \, \text{AUC}_u}{\sum_u w_u}
        \qquad \text{over the users } u \text{ with both classes}

    It ignores how the scores of two users compare, which is no part of what a user sees. A group's rows may be in any
    order and spread over updates and processes.

    Undefined: groups of one class are left out; nan where none is left.  Range: [0, 1], higher is better.
    Source: H. Zhu et al., Optimized Cost per Click in Taobao Display Advertising, KDD 2017. Same convention as
    FuxiCTR's ``gAUC`` (``weighting="impressions"``); torchmetrics' ``RetrievalAUROC`` is ``weighting="uniform"``.

    Raises:
        ValueError: for an option that is not one of those named.

    >>> metric = GroupAUC()
    >>> preds, target = torch.tensor([0.9, 0.2, 0.4, 0.3, 0.7]), torch.tensor([1, 0, 1, 0, 0])
    >>> metric.update(preds, target, torch.tensor([7, 7, 3, 3, 3]))
    >>> metric.compute()  # (2 * 1 + 3 * 1/2) / 5
    tensor(0.7000, dtype=torch.float64)
    """

    slot_table = GroupTable
    stems = ("keys", "labels", "groups", "weights", "sample_ids")
    needed = ("preds", "target", "indexes")

    stem = "group_auc"
    interval_method = "logit"
    best_value = 1.0
    public = ("per_group",)
    has_interval = True

    weighting: Literal["impressions", "positives", "uniform"] = option(
        default="impressions",
        kw_only=False,
        doc="A group weighs its rows (the sum of their weights), its positive rows, or as much as any other.",
    )
    groups_local: bool = option(
        default=False,
        doc="True says that no group is spread over ranks: then only sums travel. Otherwise the rows of a group go to "
        "one rank.",
    )

    def setup(self) -> None:
        super().setup()
        self.add("verdict", RowsOf(torch.float64))  # the value of all processes, between sync and unsync
        self.add("table", RowsOf(columns=(0,)))  # or the groups of all processes

    def update(  # type: ignore[override]
        self,
        preds: Tensor,
        target: Tensor,
        indexes: Tensor,
        weights: Tensor | None = None,
        *,
        sample_ids: Tensor | None = None,
    ) -> None:
        """Add rows.

        Args:
            indexes: integer, the group of each row, any number; (B,) for (B, N) scores.
            preds, target, weights, sample_ids: as in :meth:`BinaryAUC.update`.

        Raises:
            ValueError, TypeError: for input that breaks a rule, before anything is counted.
        """
        self.count(self.read_clicks(preds, target, indexes=indexes, weights=weights, sample_ids=sample_ids))

    def count(self, clicks: Clicks) -> None:
        if clicks.preds.shape[0]:
            groups, rows = rows_in_groups(clicks)
            self.keep(clicks, keys=rows.keys, groups=groups)

    def compute(self) -> Tensor:
        """The weighted mean over the groups with both classes, 0-dim float64; nan where there is none."""
        return self.spread().value

    def spread(self) -> Spread:
        synced = self.state("verdict")
        return spread_of(synced[0] if synced else sums_of(self._table()))

    def per_group(self) -> tuple[Tensor, Tensor, Tensor]:
        """``(indexes, values, weights)`` of the groups with both classes, ascending by id.

        All ranks must call it; each gets the groups of all.
        """
        return self.read(self._table, "table")

    def table_of(self, groups: Tensor, rows: Rows) -> Groups:
        """The AUC and the weight of each group of rows that has both classes."""
        return group_table(groups, rows, self.weighting)

    def _table(self) -> Groups:
        synced = self.state("table")
        if not synced:
            return self.table_of(*self._joined(list(self.counted_pieces())))
        indexes, values, weights = synced[0][torch.sort(synced[0][:, 0], stable=True).indices].unbind(1)
        return indexes.contiguous(), bits_float(values), bits_float(weights)

    def _joined(
        self, pieces: list[dict[str, Tensor]], *, weighted: bool = False, wide: bool = False
    ) -> tuple[Tensor, Rows]:
        """Groups and rows; in the keys of float64 where `wide` or any row has them, with weights where `weighted`."""
        parts = rows_of(pieces)
        wide = wide or any(part.dtype == torch.float64 for part in parts)
        rows = joined(parts, torch.float64 if wide else torch.float32, self.device, weighted=weighted)
        return column([piece["groups"] for piece in pieces], torch.int64, self.device), rows

    def exchange(self, process_group: Any) -> None:
        weighted = any(part.shape[0] for part in self.state("weights"))
        wide = any(keys.dtype == torch.int64 for keys in self.state("keys"))
        n_named, n_weighted, n_wide = self.agreed(weighted, wide, group=process_group)
        pieces = list(self.counted_pieces(Ranks(n_named > 0, process_group)))
        groups, rows = self._joined(pieces, weighted=n_weighted > 0, wide=n_wide > 0)
        if not self.groups_local:
            groups, rows = rows_of_own_groups(groups, rows, process_group)
        table = self.table_of(groups, rows)
        if self.asked == "verdict":
            self.set_state("verdict", [Ranks(True, process_group).moments(sums_of(table))])
        else:
            packed = torch.stack([table[0], *map(float_bits, table[1:])], 1)
            self.set_state("table", [torch.cat(gather_rows(packed, process_group))])
            self.drop_pieces()


def rows_in_groups(clicks: Clicks) -> tuple[Tensor, Rows]:
    """Groups and rows, read with `grouped`; half precision is widened, so that keys have one of two dtypes."""
    groups: Any = clicks.indexes
    keys = clicks.keys(torch.promote_types(clicks.preds.dtype, torch.float32))
    return groups, Rows(keys, clicks.labels, clicks.weights)


def group_table(groups: Tensor, rows: Rows, weighting: str) -> Groups:
    """The AUC and the weight of each group that has both classes."""
    pairs = group_pairs(*sort_rows(groups, rows.keys, rows.labels, rows.weights))
    both = (pairs.positives > 0) & (pairs.negatives > 0)
    twice_u, positives, negatives = (exact(number[both]) for number in pairs[1:])
    weights = {"impressions": positives + negatives, "positives": positives, "uniform": torch.ones_like(positives)}
    return pairs.indexes[both], (twice_u / (2 * positives * negatives)).clamp(max=1), weights[weighting]


def sums_of(table: Groups) -> Tensor:
    """(6,): the sums of the groups, see core/tensors/moments.py."""
    _, values, weights = table
    return moments((values * weights).unsqueeze(1), weights).flatten()


def rows_of_own_groups(groups: Tensor, rows: Rows, process_group: Any) -> tuple[Tensor, Rows]:
    """The rows of all ranks whose groups this rank owns. Keys have one dtype everywhere; all rows or none have weights.

    A row travels as integers: group, key and label (in one number where both fit), and the bits of the weight.
    """
    wide = rows.keys.dtype == torch.int64
    keys = [rows.keys, rows.labels.to(torch.int64)] if wide else [(rows.keys.to(torch.int64) << 1) | rows.labels]
    packed = torch.stack([groups, *keys, *([] if rows.weights is None else [float_bits(rows.weights)])], 1)
    sent = send_rows(packed, groups, process_group)
    groups, key, *others = sent.T.contiguous().unbind(0)
    weights = None if rows.weights is None else bits_float(others[-1])
    if wide:
        return groups, Rows(key, others[0].to(torch.bool), weights)
    return groups, Rows((key >> 1).to(rows.keys.dtype), (key & 1).to(torch.bool), weights)


def group_auc(
    preds: Tensor,
    target: Tensor,
    indexes: Tensor,
    *,
    weights: Tensor | None = None,
    ignore_index: int | None = None,
    validate_args: bool = True,
) -> Tensor:
    """The AUC of every group in ascending order of ``indexes``, nan where a class is missing; see :class:`GroupAUC`.

    >>> preds, target = torch.tensor([0.9, 0.2, 0.4, 0.3, 0.7]), torch.tensor([1, 0, 1, 0, 1])
    >>> group_auc(preds, target, torch.tensor([7, 7, 3, 3, 5]))
    tensor([1., nan, 1.], dtype=torch.float64)
    """
    columns: dict[str, Any] = {"indexes": indexes, "grouped": True, "weights": weights}
    clicks = read_clicks(preds, target, **columns, ignore_index=ignore_index, validate_args=validate_args)
    groups, rows = rows_in_groups(clicks)
    indexes, group_values, _ = group_table(groups, rows, "uniform")
    every = torch.unique(groups)
    values = torch.full(every.shape, float("nan"), dtype=accumulator_dtype(preds.device), device=preds.device)
    values[torch.searchsorted(every, indexes)] = group_values
    return values
