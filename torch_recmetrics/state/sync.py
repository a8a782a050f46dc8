"""Rows that cannot be counted before all are known, and the totals of everything, here and on all ranks.

Rows with a sample id wait because another rank may hold the same row, flat rows because a user may be spread over
batches and ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from torch_recmetrics.core.distributed.collectives import (
    sum_alike,
    sum_over_processes,
)
from torch_recmetrics.core.layouts.flat import NARROW, WIDE, joined_rows
from torch_recmetrics.core.tensors.devices import accumulator_dtype
from torch_recmetrics.core.tensors.moments import ADDABLE, addable, added, from_added, moments
from torch_recmetrics.state.evaluator import flat_sums
from torch_recmetrics.state.kept_rows import HERE, Ranks, counted_ids
from torch_recmetrics.state.ranking_metric import UserMeasure

T = TypeVar("T")


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


def _equal(some: list[Tensor], other: list[Tensor]) -> bool:
    """Whether two lists hold the same rows; a collection gives all its members the very same tensors."""
    return len(some) == len(other) and all(
        a is b or (a.device == b.device and torch.equal(a, b)) for a, b in zip(some, other, strict=True)
    )


def totals(metrics: Sequence[UserMeasure], ranks: Ranks = HERE, asked: UserMeasure | None = None) -> list[Tensor]:
    """For each metric (columns, 6): everything that it holds in these processes; `asked` is the member that asks.

    One all_reduce; where rows wait, a few more. Which of them take place is read from the sum of the headers, so it is
    the same on every process, also on one that has no rows at all.
    """
    sums, waits = torch.cat([metric.state("sums") for metric in metrics]), waiting_rows(metrics)
    if ranks.several:
        things = [metric.exchanged for metric in metrics]
        if asked is not None:
            things.append(f"{asked.name} first of its collection")
        summed = sum_alike(things, torch.cat([sums.new_tensor(waits), addable(sums).flatten()]), ranks.group)
        sums = from_added(summed[len(waits) :].view(sums.shape[0], ADDABLE))
        waits = summed[: len(waits)].tolist()
    found = list(torch.split(sums, [len(metric.columns) for metric in metrics]))
    for positions, columns in waiting_groups(len(metrics), waits):
        rest = waiting_sums([metrics[position] for position in positions], columns, ranks)
        parts = [found[position] for position in positions]
        both = torch.split(added(torch.cat(parts), rest), [part.shape[0] for part in parts])
        for position, part in zip(positions, both, strict=True):
            found[position] = part
    return found


def waiting_rows(metrics: Sequence[UserMeasure]) -> list[float]:
    """What rows wait here, numbers that ranks add up; see :func:`waiting_groups`."""
    header = []
    for stem in ("sample_ids", "rows"):
        held = [metric.state(stem) for metric in metrics]
        header += [float(sum(map(len, held))), float(not all(_equal(held[0], rows) for rows in held))]
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


def waiting_sums(metrics: Sequence[UserMeasure], columns: int, ranks: Ranks) -> Tensor:
    """(columns, 6): the sums of the rows that wait in these metrics, which hold the same.

    A row with a sample id counts on the lowest rank that has it, and there where it arrived first. Flat rows, of so
    many `columns`, go to the rank that owns their user, which counts that user.
    """
    if not columns:
        return ranks.moments(sample_sums(metrics, counted_ids(metrics[0].joined("sample_ids"), ranks)))
    packed = joined_rows(metrics[0].state("rows"), metrics[0].device, columns)
    if not ranks.several:
        return flat_sums(metrics, packed)
    mine = ranks.sent(packed, packed[:, 0])
    shape = (sum(len(metric.columns) for metric in metrics), ADDABLE)
    return from_added(sum_of_users(lambda: addable(flat_sums(metrics, mine)), shape, packed.device, ranks.group))


def evaluated(evaluate: Callable[[], T], ranks: Ranks, device: torch.device, does: str) -> T:
    """What each rank makes of its users' rows; where one refuses its rows, all raise an error."""
    if not ranks.several:
        return evaluate()
    found: list[T] = []

    def nothing() -> Tensor:
        found.append(evaluate())
        return torch.zeros(0, device=device)

    sum_of_users(nothing, (0,), device, ranks.group, does)
    return found[0]


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
