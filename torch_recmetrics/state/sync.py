"""Rows that cannot be counted before all are known, and the totals of everything, here and on all ranks.

Rows with a sample id wait because another rank may hold the same row, flat rows because a user may be spread over
batches and ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.distributed.collectives import (
    send_rows,
    sum_alike,
    sum_over_processes,
)
from torch_recmetrics.core.layouts.flat import NARROW, WIDE, joined_rows
from torch_recmetrics.core.tensors.devices import accumulator_dtype
from torch_recmetrics.core.tensors.moments import ADDABLE, addable, added, from_added, moments
from torch_recmetrics.state.evaluator import flat_sums
from torch_recmetrics.state.kept_rows import counted_ids
from torch_recmetrics.state.ranking_metric import UserMeasure


def sample_sums(metrics: Sequence[UserMeasure], counted: Tensor) -> Tensor:
    """(columns, 6): the sums of the rows with a sample id that count here."""
    rows = counted.nonzero().squeeze(1)
    numerators = [as_columns(m.joined("numerators")) for m in metrics]
    denominators = [as_columns(m.joined("denominators")) for m in metrics]
    denominators = [own.expand_as(of_values) for own, of_values in zip(denominators, numerators, strict=True)]
    return moments(torch.cat(numerators, 1)[rows], torch.cat(denominators, 1)[rows]).T


def as_columns(values: Tensor) -> Tensor:
    """(R, columns): values of rows, of which some metrics have a single column."""
    return values if values.ndim == 2 else values.unsqueeze(1)


def stores(metrics: Sequence[UserMeasure], stem: str) -> list[list[int]]:
    """The positions of metrics that hold the same rows, together.

    A collection gives all its members the very same tensors. A checkpoint gives each a copy of them.
    """
    groups: list[list[int]] = []
    for position, metric in enumerate(metrics):
        rows = metric.state(stem)
        group = next((group for group in groups if _equal(metrics[group[0]].state(stem), rows)), [])
        groups += [] if group else [group]
        group.append(position)
    return groups


def _equal(some: list[Tensor], other: list[Tensor]) -> bool:
    return len(some) == len(other) and all(
        a is b or (a.device == b.device and torch.equal(a, b)) for a, b in zip(some, other, strict=True)
    )


def local_totals(metrics: Sequence[UserMeasure]) -> list[Tensor]:
    """For each metric (columns, 6): everything that it holds in this process."""
    totals = [metric.state("sums") for metric in metrics]
    for stem in ("sample_ids", "rows"):
        for positions in stores(metrics, stem):
            members = [metrics[p] for p in positions]
            if members[0].state(stem):
                if stem == "rows":
                    sums = flat_sums(members, joined_rows(members[0].state("rows"), members[0].device))
                else:
                    sums = sample_sums(members, counted_ids(members[0].joined("sample_ids")))
                _add(totals, positions, sums)
    return totals


def _add(totals: list[Tensor], positions: list[int], sums: Tensor) -> None:
    """Add sums (columns, 6) to the totals of some metrics, of all of them at once."""
    parts = [totals[position] for position in positions]
    added_parts = torch.split(added(torch.cat(parts), sums), [part.shape[0] for part in parts])
    for position, part in zip(positions, added_parts, strict=True):
        totals[position] = part


def synced_totals(metrics: Sequence[UserMeasure], group: Any, asked: UserMeasure | None = None) -> list[Tensor]:
    """For each metric (columns, 6): everything that it holds in all processes; `asked` is the member that asks.

    One all_reduce; where rows wait, a few more. Which of them take place is read from the sum of the headers, so it is
    the same on every process, also on one that has no rows at all.
    """
    sums = torch.cat([metric.state("sums") for metric in metrics])
    things = [metric.exchanged for metric in metrics]
    if asked is not None:
        things.append(f"{asked.name} first of its collection")
    header = waiting_rows(metrics)
    summed = sum_alike(things, torch.cat([sums.new_tensor(header), addable(sums).flatten()]), group)
    waits, everywhere = torch.split(summed, [len(header), summed.shape[0] - len(header)])
    everywhere = from_added(everywhere.view(sums.shape[0], ADDABLE))
    totals = list(torch.split(everywhere, [metric.state("sums").shape[0] for metric in metrics]))
    for positions, columns in waiting_groups(len(metrics), waits.tolist()):
        members = [metrics[p] for p in positions]
        if columns:
            summed = _flat_everywhere(members, columns, group)
        else:  # a row counts on the lowest process that has it, and there where it arrived first
            counted = counted_ids(members[0].joined("sample_ids"), group, everywhere=True)
            summed = sum_over_processes(addable(sample_sums(members, counted)), group)
        _add(totals, positions, from_added(summed))
    return totals


def waiting_rows(metrics: Sequence[UserMeasure]) -> list[float]:
    """What rows wait here, numbers that ranks add up; see :func:`waiting_groups`."""
    header = []
    for stem in ("sample_ids", "rows"):
        groups = stores(metrics, stem)
        header += [float(sum(len(metric.state(stem)) for metric in metrics)), float(len(groups) > 1)]
    wide = any(part.shape[1] == WIDE for metric in metrics for part in metric.state("rows"))
    return [*header, float(wide)]


def waiting_groups(n_metrics: int, waits: Sequence[float]) -> Iterator[tuple[list[int], int]]:
    """The positions of metrics whose rows are exchanged together, and the columns of these rows, 0 of sample ids.

    One exchange for all where all share their rows on every rank, else one for each.
    """
    n_sampled, split_samples, n_flat, split_flat, n_wide = waits
    width = WIDE if n_wide else NARROW
    for n_parts, split, columns in ((n_sampled, split_samples, 0), (n_flat, split_flat, width)):
        groups = [[p] for p in range(n_metrics)] if split else [list(range(n_metrics))]
        yield from ((positions, columns) for positions in groups if n_parts)


def _flat_everywhere(metrics: Sequence[UserMeasure], columns: int, group: Any) -> Tensor:
    """What :func:`from_added` takes: the rows of a user go to one process, which counts that user."""
    packed = joined_rows(metrics[0].state("rows"), metrics[0].device, columns)
    mine = send_rows(packed, packed[:, 0], group)
    shape = (sum(len(metric.columns) for metric in metrics), ADDABLE)
    return sum_of_users(lambda: addable(flat_sums(metrics, mine)), shape, packed.device, group)


def sum_of_users(
    sums: Callable[[], Tensor], shape: tuple[int, ...], device: torch.device, group: Any, does: str = "count"
) -> Tensor:
    """The sum over the ranks of what each makes of its users' rows; where one refuses its rows, all raise an error."""
    here = torch.zeros(shape, dtype=accumulator_dtype(device), device=device)
    error: Exception | None = None
    try:
        here = sums()
    except Exception as refused:  # the others must hear of it, or they would wait
        error = refused
    vector = torch.cat([here.new_tensor([float(error is not None)]), here.flatten()])
    summed = sum_over_processes(vector, group)
    if error is not None:
        raise error
    if bool(summed[0]):
        raise ValueError(f"another rank could not {does} its users' rows; its message says why")
    return summed[1:].view(shape)
