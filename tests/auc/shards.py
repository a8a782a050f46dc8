"""Who gets which rows, which metrics are asked, and what one process would say of all the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from auc import oracles
from auc.updates import Update, rows_of

from torch_recmetrics.metrics.auc import BinaryAUC
from torch_recmetrics.metrics.group_auc import GroupAUC
from torch_recmetrics.metrics.probability import Calibration, LogLoss, NormalizedEntropy

Shards = list[list[Update]]  # for each process its updates


def update(seed: int, n: int = 9, *extra: str, dtype: torch.dtype = torch.float32, rate: float = 0.4) -> Update:
    generator = torch.Generator().manual_seed(seed)
    made = {
        "preds": (torch.randint(1, 20, (n,), generator=generator).double() / 20).to(dtype),
        "target": (torch.rand(n, generator=generator) < rate).long(),
        "indexes": torch.randint(-2, 3, (n,), generator=generator) * 2**61,
    }
    if "weights" in extra:
        made["weights"] = torch.randint(5, (n,), generator=generator).double() / 2
    if "sample_ids" in extra:
        made["sample_ids"] = torch.randint(3 * n, (n,), generator=generator)
    return made


def even(world: int) -> Shards:
    return [[update(10 * rank), update(10 * rank + 1)] for rank in range(world)]


def uneven(world: int) -> Shards:
    """Process r gets r + 1 updates, and more rows."""
    return [[update(10 * rank + number, 5 + 3 * rank) for number in range(rank + 1)] for rank in range(world)]


def first_idle(world: int) -> Shards:
    return [[], *even(world)[1:]]


def last_idle(world: int) -> Shards:
    return [*even(world)[:-1], [update(1, 0)]]


def nobody(world: int) -> Shards:
    return [[] for _ in range(world)]


def one_class_each(world: int) -> Shards:
    """Positives outnumber negatives on one process; the totals decide which class travels."""
    return [[update(rank, 4 + 9 * (rank % 2), rate=float(rank % 2))] for rank in range(world)]


def mostly_positive(world: int) -> Shards:
    return [[update(rank, 12, rate=0.9)] for rank in range(world)]


def only_positive(world: int) -> Shards:
    return [[update(rank, rate=1.1)] for rank in range(world)]


def weights_on_the_last(world: int) -> Shards:
    return [*even(world)[:-1], [update(5, 9, "weights")]]


def samples_again(world: int) -> Shards:
    """The same sample on several processes, with other scores: the first on the lowest process counts."""
    return [[update(10 * rank + number, 9, "sample_ids", "weights") for number in range(2)] for rank in range(world)]


def samples_on_the_first(world: int) -> Shards:
    return [[update(3, 9, "sample_ids"), update(4, 9, "sample_ids")], *even(world)[1:]]


def of_dtypes(*dtypes: torch.dtype, weighted: bool = False) -> Callable[[int], Shards]:
    extra = ["weights"] if weighted else []
    return lambda world: [[update(rank, 9, *extra, dtype=dtypes[rank % len(dtypes)])] for rank in range(world)]


SHARDS: dict[str, Callable[[int], Shards]] = {
    "even": even,
    "uneven": uneven,
    "the first idle": first_idle,
    "the last idle": last_idle,
    "nobody has data": nobody,
    "one class each": one_class_each,
    "mostly positive": mostly_positive,
    "only positive": only_positive,
    "weights on the last": weights_on_the_last,
    "samples again": samples_again,
    "samples on the first": samples_on_the_first,
    "float64 on the second": of_dtypes(torch.float32, torch.float64),
    "bfloat16": of_dtypes(torch.bfloat16),
    "both half precisions": of_dtypes(torch.float16, torch.bfloat16),
    "half and float32": of_dtypes(torch.float16, torch.float32, torch.bfloat16),
    "half with weights and float32": of_dtypes(torch.float16, torch.float32, weighted=True),
}
MIXED = ("float64 on the second", "both half precisions", "half and float32", "half with weights and float32")


def eps_of(shards: Shards) -> float:
    dtypes = [some["preds"].dtype for shard in shards for some in shard] or [torch.float32]
    return max(torch.finfo(torch.promote_types(dtype, torch.float32)).eps for dtype in dtypes)


@dataclass(frozen=True)
class Asked:
    """A metric, what it is by definition, and what it refuses."""

    make: Callable[[], Any]
    define: Callable[[list[oracles.Row], float], float]
    refused: tuple[str, ...] = ()


ASKED = {
    "auc": Asked(BinaryAUC, lambda rows, _: oracles.auc(rows)),
    "auc in bins": Asked(lambda: BinaryAUC(1 << 16), lambda rows, _: oracles.auc(rows), MIXED),
    "group auc": Asked(GroupAUC, lambda rows, _: oracles.group_auc(rows)),
    "group auc by positives": Asked(
        lambda: GroupAUC("positives"), lambda rows, _: oracles.group_auc(rows, "positives")
    ),
    "log loss": Asked(lambda: LogLoss(eps=0.01), lambda rows, _: oracles.log_loss(rows, 0.01)),
    "normalized entropy": Asked(
        lambda: NormalizedEntropy(eps=0.01), lambda rows, _: oracles.normalized_entropy(rows, 0.01)
    ),
    "calibration": Asked(Calibration, lambda rows, _: oracles.calibration(rows)),
}


def all_rows(shards: Shards) -> list[oracles.Row]:
    """The rows of all processes, process by process."""
    return oracles.once(rows_of([some for shard in shards for some in shard]))
