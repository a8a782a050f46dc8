r"""AUC within each user (or query, or session), and its mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from torch_recmetrics.core.auc.labelled_rows import read_clicks
from torch_recmetrics.core.auc.pairs import count_group_pairs, weigh_group_pairs
from torch_recmetrics.core.auc.scored_labels import Rows, column, joined, rows_of
from torch_recmetrics.core.distributed.collectives import gather_rows, owner_of, send_rows, sum_over_processes
from torch_recmetrics.core.tensors.devices import accumulator_dtype, bits_float, exact, float_bits
from torch_recmetrics.core.tensors.sort_keys import KEY_DTYPES, ordered_keys
from torch_recmetrics.state.options import option
from torch_recmetrics.state.rows import RowMetric

__all__ = ["GroupAUC"]


class GroupTable(NamedTuple):
    """The groups that have both classes, ascending by id."""

    indexes: Tensor  # (G,) int64
    values: Tensor  # (G,) float64
    weights: Tensor  # (G,) float64

    def sums(self) -> Tensor:
        """(2,): the weighted sum of the values, and the sum of the weights."""
        return torch.stack([self.values * self.weights, self.weights]).sum(1)  # one order: no mean above 1


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

    stems = ("keys", "labels", "groups", "weights", "sample_ids")
    needed = ("preds", "target", "indexes")

    stem = "group_auc"
    best_value = 1.0
    public = ("per_group",)

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
        self.add("verdict", [])  # the value of all processes, between sync and unsync
        self.add("table", [])  # or the groups of all processes

    def update(
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
            preds: scores of any shape, floating point; -inf and inf are ordinary scores.
            target: 0 and 1 (bool, integer or float), in the shape of ``preds``.
            indexes: integer, the group of each row, any number; (B,) for (B, N) scores.
            weights: weight of each row, 0 or 1e-100 to 1e100, likewise.
            sample_ids: integer, likewise: the row of the data set; it counts once however often it arrives.

        Raises:
            ValueError, TypeError: for input that breaks a rule, before anything is counted.
        """
        self.check_device("preds", preds)
        clicks = read_clicks(
            preds,
            target,
            indexes=indexes,
            grouped=True,
            weights=weights,
            sample_ids=sample_ids,
            validate_args=self.validate_args,
        )
        if clicks.preds.shape[0]:
            self.keep(
                keys=ordered_keys(clicks.preds.to(torch.promote_types(preds.dtype, torch.float32))),
                labels=clicks.labels,
                groups=clicks.indexes,
                weights=clicks.weights,
                sample_ids=clicks.sample_ids,
            )

    def compute(self) -> Tensor:
        """The weighted mean over the groups with both classes, 0-dim float64; nan where there is none."""
        synced = self.state("verdict")
        total, weight = (synced[0] if synced else self._table().sums()).unbind()
        return total / weight

    def per_group(self) -> tuple[Tensor, Tensor, Tensor]:
        """``(indexes, values, weights)`` of the groups with both classes, ascending by id.

        All ranks must call it; each gets the groups of all.
        """
        return tuple(self.read(self._table, "table"))  # type: ignore[return-value]

    # -- rows of this rank --------------------------------------------------------------------------------------------

    def _table(self) -> GroupTable:
        for table in self.state("table"):
            return unpack_table(table)
        return group_table(*self._joined(self.counted()), self.weighting)

    def _joined(
        self, pieces: Iterable[dict[str, Tensor]], *, weighted: bool = False, wide: bool = False
    ) -> tuple[Tensor, Rows]:
        """Groups and rows; in the keys of float64 where `wide` or any row has them, with weights where `weighted`."""
        pieces = list(pieces)
        parts = rows_of(pieces)
        wide = wide or any(part.dtype == torch.float64 for part in parts)
        rows = joined(parts, torch.float64 if wide else torch.float32, self.device, weighted=weighted)
        return column([piece["groups"] for piece in pieces], torch.int64, self.device), rows

    # -- all ranks ----------------------------------------------------------------------------------------------------

    def exchange(self, process_group: Any) -> None:
        has = [any(part.shape[0] for part in self.state(stem)) for stem in ("sample_ids", "weights")]
        has.append(any(keys.dtype == torch.int64 for keys in self.state("keys")))
        n_ranks_with = sum_over_processes(torch.tensor(has, device=self.device).to(torch.int64), process_group)
        has_sample_ids, weighted, wide = map(bool, n_ranks_with.tolist())
        pieces = self.counted(process_group, everywhere=has_sample_ids)
        groups, rows = self._joined(pieces, weighted=weighted, wide=wide)
        if not self.groups_local:
            owner = owner_of(groups, dist.get_world_size(process_group))
            groups, rows = unpack_rows(send_rows(pack_rows(groups, rows), owner, process_group), wide, weighted)
        table = group_table(groups, rows, self.weighting)
        if self.asked == "verdict":
            self.set_state("verdict", [sum_over_processes(table.sums(), process_group)])
        else:
            self.set_state("table", [torch.cat(gather_rows(pack_table(table), process_group))])
            self.drop_rows()


def group_table(groups: Tensor, rows: Rows, weighting: str) -> GroupTable:
    """The AUC and the weight of each group that has both classes."""
    if rows.weights is None:
        pairs = count_group_pairs(groups, rows.keys, rows.labels)
    else:
        pairs = weigh_group_pairs(groups, rows.keys, rows.labels, rows.weights)
    both = (pairs.positives > 0) & (pairs.negatives > 0)
    twice_u, positives, negatives = (exact(number[both]) for number in pairs[1:])
    if weighting == "impressions":
        weights = positives + negatives
    else:
        weights = positives if weighting == "positives" else torch.ones_like(positives)
    return GroupTable(pairs.indexes[both], (twice_u / (2 * positives * negatives)).clamp(max=1), weights)


def pack_rows(groups: Tensor, rows: Rows) -> Tensor:
    """(M, columns) int64: group, key and label (in one number where both fit), and the bits of the weight."""
    if rows.keys.dtype == torch.int32:
        columns = [groups, (rows.keys.to(torch.int64) << 1) | rows.labels]
    else:
        columns = [groups, rows.keys, rows.labels.to(torch.int64)]
    return torch.stack([*columns, *([] if rows.weights is None else [float_bits(rows.weights)])], 1)


def unpack_rows(packed: Tensor, wide: bool, weighted: bool) -> tuple[Tensor, Rows]:
    """Inverse of :func:`pack_rows`."""
    columns = [part.contiguous() for part in packed.unbind(1)]
    weights = bits_float(columns[-1]) if weighted else None
    if wide:
        return columns[0], Rows(columns[1], columns[2].to(torch.bool), weights)
    keys = (columns[1] >> 1).to(KEY_DTYPES[torch.float32])
    return columns[0], Rows(keys, (columns[1] & 1).to(torch.bool), weights)


def pack_table(table: GroupTable) -> Tensor:
    """(G, 3) int64: index, and the bits of value and weight."""
    return torch.stack([table.indexes, float_bits(table.values), float_bits(table.weights)], 1)


def unpack_table(packed: Tensor) -> GroupTable:
    """Inverse of :func:`pack_table`, ascending by id."""
    indexes, values, weights = packed[torch.sort(packed[:, 0], stable=True).indices].unbind(1)
    return GroupTable(indexes.contiguous(), bits_float(values), bits_float(weights))


def group_auc(
    preds: Tensor, target: Tensor, indexes: Tensor, *, weights: Tensor | None = None, validate_args: bool = True
) -> Tensor:
    """The AUC of every group in ascending order of ``indexes``, nan where a class is missing; see :class:`GroupAUC`.

    >>> preds, target = torch.tensor([0.9, 0.2, 0.4, 0.3, 0.7]), torch.tensor([1, 0, 1, 0, 1])
    >>> group_auc(preds, target, torch.tensor([7, 7, 3, 3, 5]))
    tensor([1., nan, 1.], dtype=torch.float64)
    """
    clicks = read_clicks(preds, target, indexes=indexes, grouped=True, weights=weights, validate_args=validate_args)
    groups = clicks.indexes if clicks.indexes is not None else indexes
    wide = torch.promote_types(preds.dtype, torch.float32)
    rows = Rows(ordered_keys(clicks.preds.to(wide)), clicks.labels, clicks.weights)
    table = group_table(groups, rows, "uniform")
    every = torch.unique(groups)
    values = torch.full(every.shape, float("nan"), dtype=accumulator_dtype(preds.device), device=preds.device)
    values[torch.searchsorted(every, table.indexes)] = table.values
    return values
