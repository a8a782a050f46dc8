"""Which process gets which updates, and what all of them must then say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from cases import LAYOUTS, Case
from lists.compared import COMPARED, NUM_ITEMS, Compared
from lists.known import KNOWN, VARIANTS, Variant

Update = dict[str, torch.Tensor]
Shards = list[list[tuple[Case, Update]]]  # for each process its updates, with the users that count in each

K = 3


def batch(seed: int, n_users: int = 3) -> tuple[Case, Update]:
    g = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 5, (n_users, NUM_ITEMS), generator=g).float()
    case = Case(
        scores.tolist(),
        torch.eye(n_users, NUM_ITEMS).tolist(),
        torch.randint(0, 3, (n_users,), generator=g).double().tolist(),
        seen=torch.randint(-1, NUM_ITEMS, (n_users, 11), generator=g).tolist(),
    )
    return case, LAYOUTS["target_ids"](case)


def uneven(world: int) -> Shards:
    """Process r gets r updates, so the first has none."""
    return [[batch(10 * rank + number) for number in range(rank)] for rank in range(world)]


def last_idle(world: int) -> Shards:
    return [[batch(10 * rank + number) for number in range(2)] for rank in range(world - 1)] + [[]]


def nobody(world: int) -> Shards:
    return [[] for _ in range(world)]


def nothing_recommended_on_one(world: int) -> Shards:
    empty = Case([[-float("inf")] * NUM_ITEMS] * 2, [[1.0] + [0.0] * (NUM_ITEMS - 1)] * 2)
    return [[(empty, LAYOUTS["dense"](empty))], *([batch(rank)] for rank in range(1, world))]


def repeated_rows(world: int) -> Shards:
    """Row 0 of every process is number 7: that of the first process counts. Row 2 comes again in the next update."""
    shards: Shards = []
    for rank in range(world):
        case, update = batch(rank, 3)
        first = {**update, "sample_ids": torch.tensor([7, 100 + rank, 200 + rank])}
        again = {name: value[2:] for name, value in first.items()}
        counted = case if rank == 0 else case.part([1, 2])
        shards.append([(counted, first), (case.part([]), again)])
    return shards


def named_on_one(world: int) -> Shards:
    """Sample ids on the last process alone, and sums beside them."""
    shards: Shards = [[batch(rank)] for rank in range(world)]
    case, update = batch(50)
    shards[-1].append((case, {**update, "sample_ids": torch.tensor([3, 1, 2])}))
    return shards


def all_named(world: int) -> Shards:
    """As `uneven`, each row by its number; the last process has the first row again, in an update of its own."""
    shards: Shards = []
    first: dict[str, torch.Tensor] = {}
    n_rows = 0
    for shard in uneven(world):
        updates = []
        for case, update in shard:
            numbers = torch.arange(n_rows, n_rows + len(case.scores))
            updates.append((case, {**update, "sample_ids": numbers}))
            first = first or {name: value[:1] for name, value in updates[-1][1].items()}
            n_rows += len(case.scores)
        shards.append(updates)
    shards[-1].append((shards[-1][0][0].part([]), first))
    return shards


SHARDS: dict[str, Callable[[int], Shards]] = {
    "uneven": uneven,
    "last idle": last_idle,
    "nobody has data": nobody,
    "nothing recommended on one": nothing_recommended_on_one,
    "repeated rows": repeated_rows,
    "named on one": named_on_one,
    "all named": all_named,
}
NAMED = ("repeated rows", "named on one", "all named")  # with sample ids
WAYS = ("collection", "members", "forward", "single", "own gather function")


# One of each class that weighs items, since all remember alike.
ONE_OF_EACH = {variant.metric: variant for variant in VARIANTS}
# It needs a sample id in every update, and a profile for each.
CALIBRATION = ONE_OF_EACH.pop("CategoryCalibration")
PROFILED = replace(KNOWN, profiles=[KNOWN.profiles[number % len(KNOWN.profiles)] for number in range(40)])
WEIGHED: dict[str, Compared | Variant] = {str(compared): compared for compared in COMPARED} | ONE_OF_EACH


def members(shards: str, **options: Any) -> dict[str, Any]:
    import torch_recmetrics

    metrics = {name: weighed.make(K, **options) for name, weighed in WEIGHED.items()}
    if shards == "all named":
        metrics[CALIBRATION.metric] = CALIBRATION.make(K, PROFILED, **options)
    return metrics | {"ndcg": torch_recmetrics.NDCG(K, **options), "mrr": torch_recmetrics.MRR(**options)}


def all_expected(shards: str, world: int) -> dict[str, float]:
    """What the definitions say of all users; of the metrics that are made here."""
    case = joined(SHARDS[shards](world))
    values = {name: weighed.expected(case, K) for name, weighed in WEIGHED.items()}
    if shards == "all named":
        values[CALIBRATION.metric] = CALIBRATION.expected(case, K, PROFILED)
    return values


def joined(shards: Shards) -> Case:
    parts = [case for shard in shards for case, _ in shard]
    return Case(
        [row for case in parts for row in case.scores],
        [row for case in parts for row in case.relevance],
        [w for case in parts for w in case.weights or [1.0] * len(case.scores)],
        [row for case in parts for row in case.seen or [[]] * len(case.scores)],
    )
