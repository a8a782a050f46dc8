"""What the processes are asked to do: who gets which updates, and what all of them must then say."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cases
import oracles
import torch
from cases import Case
from histories import HISTORIES, Update, sums
from variants import VARIANTS, Variant

Shards = list[list[Update]]  # for each process its updates
CUTS = (1, 3, None)
NDCG = next(v for v in VARIANTS if v.metric == "NDCG")
MANY = {f"{variant}_{k}".lower(): (variant, k) for variant in VARIANTS for k in CUTS}
FEW = {name: (variant, k) for name, (variant, k) in MANY.items() if k == 3}
ONE = {"value": (NDCG, 3)}


# Who gets what -------------------------------------------------------------------------------------------------------


def dealt(updates: list[Update], world: int) -> Shards:
    return [updates[rank::world] for rank in range(world)]


def even(history: str) -> Callable[[int], Shards]:
    return lambda world: dealt(HISTORIES[history](2 * world), world)


def uneven(history: str) -> Callable[[int], Shards]:
    """Process r gets r + 1 updates."""

    def shards(world: int) -> Shards:
        updates = iter(HISTORIES[history](world * (world + 1) // 2))
        return [[next(updates) for _ in range(rank + 1)] for rank in range(world)]

    return shards


def one_without_data(history: str, idle: int) -> Callable[[int], Shards]:
    def shards(world: int) -> Shards:
        given = dealt(HISTORIES[history](3 * world), world)
        given[idle] = []
        return given

    return shards


def one_with_an_empty_batch(world: int) -> Shards:
    given = dealt(sums(2 * world), world)
    given[1] = [cases.target_ids(cases.NAMED["no user"])]
    return given


def one_with_only_empty_users(world: int) -> Shards:
    given = dealt(sums(2 * world), world)
    given[0] = [cases.target_ids(cases.NAMED["only empty users"])]
    return given


def nobody_has_data(world: int) -> Shards:
    return [[] for _ in range(world)]


def flat(rows: list[tuple[int, float, float]], dtype: torch.dtype = torch.float32) -> Update:
    """(user, score, relevance) rows."""
    return {
        "preds": torch.tensor([score for _, score, _ in rows], dtype=dtype),
        "target": torch.tensor([relevance for *_, relevance in rows], dtype=torch.float32),
        "indexes": torch.tensor([user for user, *_ in rows], dtype=torch.int64),
    }


def same_user_everywhere(world: int) -> Shards:
    """User 5 has its best row on the last process, user 9 its relevant ones; ties stand across processes."""
    shards = [[flat([(5, 1.0, 0.0), (9, 2.0, 0.0), (100 + rank, 1.0, 1.0)])] for rank in range(world)]
    shards[-1].append(flat([(5, 3.0, 1.0), (9, 2.0, 1.0), (9, 0.5, 2.0)]))
    return shards


def one_row_each(world: int) -> Shards:
    """What a process holds and what it is sent is a single row, or none."""
    return [[flat([(7 * rank, 1.0, 1.0)])] for rank in range(world)]


def flat_scores_of_several_dtypes(world: int) -> Shards:
    dtypes = [torch.float16, torch.float64, torch.bfloat16]
    rows = [(1, 0.5, 0.0), (1, 0.25, 1.0), (2, -1.0, 2.0), (2, -3.0, 0.0)]
    return [[flat(rows, dtypes[rank % 3])] for rank in range(world)]


def padded_sampler(world: int) -> Shards:
    """Lightning's sampler: row j of process r is number j * world + r; numbers beyond the data begin again at 0."""
    table = Case(
        [[float((3 * user + item * item) % 7) for item in range(6)] for user in range(4 * world + 1)],
        [[float((user + item) % 4 == 0) for item in range(6)] for user in range(4 * world + 1)],
    )
    n, shards = len(table.scores), []
    for rank in range(world):
        numbers = [(j * world + rank) % n for j in range(math.ceil(n / world))]
        batches = [numbers[:2], numbers[2:]]
        shards.append([{**cases.dense(table.part(b)), "sample_ids": torch.tensor(b)} for b in batches])
    return shards


def copies_differ(world: int) -> Shards:
    """Of several copies the first on the lowest process counts: there the user finds its item first, elsewhere last."""

    def copy(rank: int) -> Update:
        scores = [[3.0, 2.0, 1.0]] if rank == 0 else [[1.0, 2.0, 3.0]]
        return {**cases.dense(Case(scores, [[1.0, 0.0, 0.0]])), "sample_ids": torch.tensor([77])}

    return [[copy(rank), copy(rank + 1)] for rank in range(world)]


def empty_user_across_processes(world: int) -> Shards:
    """User 3 has rows on two processes and nothing relevant; nobody can know before all rows are together."""
    return [[flat([(3, 1.0, 0.0), (50 + rank, 2.0, 1.0)])] for rank in range(world)]


def mixed_memories(world: int) -> Shards:
    """Sums on one process, named samples on another."""
    names = ["sums", "sample ids", "sums"]
    return [HISTORIES[names[rank]](2) for rank in range(world)]


# What must come out --------------------------------------------------------------------------------------------------


def seen_by_all(shards: Shards) -> list[oracles.User]:
    """All users of all processes, flat rows of one user joined, process by process."""
    updates = [update for shard in shards for update in shard]
    rows = [update for update in updates if "indexes" in update]
    users = [user for update in updates if "indexes" not in update for user in cases.users_of(update)]
    if rows:
        columns = {name: [v for update in rows for v in update[name].tolist()] for name in rows[0]}
        users += oracles.read(**columns)
    return oracles.once(users)


@dataclass(frozen=True)
class Scenario:
    """`way` says how the values are asked for; `at_most` is the number of collectives that this may take."""

    shards: Callable[[int], Shards]
    kind: str = "ours"
    way: str = "compute"
    at_most: int | None = None
    ties: str = "average"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def asked(self) -> dict[str, tuple[Variant, int | None]]:
        return {"ours": MANY, "torchmetrics": FEW}.get(self.kind, ONE)

    def make(self) -> Any:
        """The collection or metric to be fed."""
        import torchmetrics

        import torch_recmetrics

        options = {**self.options, "ties": self.ties}
        if self.kind == "own gather function":
            options["dist_sync_fn"] = lambda *a, **kw: torchmetrics.utilities.distributed.gather_all_tensors(*a, **kw)
        members = {name: variant.make(k, **options) for name, (variant, k) in self.asked.items()}
        if "value" in members:
            return members["value"]
        return (
            torch_recmetrics.RecMetricCollection(members)
            if self.kind == "ours"
            else torchmetrics.MetricCollection(members)
        )

    def expected(self, world: int) -> dict[str, float]:
        if self.way == "refused":
            return {"refused": 1.0}
        users = seen_by_all(self.shards(world))
        values = {name: variant.expected(users, k, self.ties) for name, (variant, k) in self.asked.items()}
        if self.way == "bounds":
            values |= {rule: NDCG.expected(users, 3, rule) for rule in ("pessimistic", "optimistic")}
        return values


HISTORY_COST = {"sums": 1, "flat rows": 4, "sample ids": 4}

SCENARIOS: dict[str, Scenario] = {
    **{f"even, {h}": Scenario(even(h), at_most=cost) for h, cost in HISTORY_COST.items()},
    **{f"uneven, {h}": Scenario(uneven(h), at_most=cost) for h, cost in HISTORY_COST.items()},
    **{f"first idle, {h}": Scenario(one_without_data(h, 0), at_most=cost) for h, cost in HISTORY_COST.items()},
    **{f"last idle, {h}": Scenario(one_without_data(h, -1), at_most=cost) for h, cost in HISTORY_COST.items()},
    **{f"one metric, uneven, {h}": Scenario(uneven(h), "one metric", at_most=cost) for h, cost in HISTORY_COST.items()},
    **{f"one metric, last idle, {h}": Scenario(one_without_data(h, -1), "one metric") for h in HISTORIES},
    **{f"torchmetrics' collection, {h}": Scenario(uneven(h), "torchmetrics") for h in HISTORIES},
    **{f"torchmetrics' collection, idle, {h}": Scenario(one_without_data(h, 0), "torchmetrics") for h in HISTORIES},
    **{f"member by member, {h}": Scenario(uneven(h), way="members", at_most=c) for h, c in HISTORY_COST.items()},
    **{f"member by member, idle, {h}": Scenario(one_without_data(h, 0), way="members") for h in HISTORIES},
    **{f"forward, {h}": Scenario(uneven(h), way="forward", at_most=c) for h, c in HISTORY_COST.items()},
    **{f"resumed, {h}": Scenario(uneven(h), way="resume", at_most=c) for h, c in HISTORY_COST.items()},
    **{f"reset and again, {h}": Scenario(uneven(h), way="again", at_most=c) for h, c in HISTORY_COST.items()},
    **{f"computed in between, {h}": Scenario(uneven(h), way="between") for h in HISTORIES},
    **{f"one metric, computed in between, {h}": Scenario(uneven(h), "one metric", way="between") for h in HISTORIES},
    **{f"bounds, {h}": Scenario(uneven(h), "one metric", "bounds", options={"bounds": True}) for h in HISTORIES},
    **{
        f"bounds, one idle, {h}": Scenario(one_without_data(h, 0), "one metric", "bounds", options={"bounds": True})
        for h in HISTORIES
    },
    **{f"own gather function, {h}": Scenario(uneven(h), "own gather function") for h in HISTORIES},
    **{f"own gather function, idle, {h}": Scenario(one_without_data(h, 0), "own gather function") for h in HISTORIES},
    "refused when all rows are together": Scenario(
        empty_user_across_processes, "one metric", "refused", options={"empty_target_action": "error"}
    ),
    "an empty batch": Scenario(one_with_an_empty_batch, at_most=1),
    "only empty users on one": Scenario(one_with_only_empty_users, at_most=1),
    "nobody has data": Scenario(nobody_has_data, at_most=1),
    "one metric, nobody has data": Scenario(nobody_has_data, "one metric", at_most=1),
    "same user everywhere": Scenario(same_user_everywhere, at_most=4),
    "same user everywhere, optimistic": Scenario(same_user_everywhere, ties="optimistic"),
    "same user everywhere, stable": Scenario(same_user_everywhere, "one metric", ties="stable"),
    "one flat row each": Scenario(one_row_each, at_most=4),
    "flat scores of several dtypes": Scenario(flat_scores_of_several_dtypes, at_most=4),
    "own gather function, several dtypes": Scenario(flat_scores_of_several_dtypes, "own gather function"),
    "padded sampler": Scenario(padded_sampler, at_most=4),
    "one metric, padded sampler": Scenario(padded_sampler, "one metric", at_most=4),
    "member by member, padded sampler": Scenario(padded_sampler, way="members", at_most=4),
    "copies differ": Scenario(copies_differ, at_most=4),
    "mixed memories": Scenario(mixed_memories),
}


# In a process --------------------------------------------------------------------------------------------------------


def values_of(metric: Any, way: str) -> dict[str, float]:
    if way == "members":
        return {name: float(member.compute()) for name, member in metric.items(keep_base=True)}
    if way == "refused":
        try:
            metric.compute()
        except ValueError:
            return {"refused": 1.0}
    value = metric.compute()
    if way == "bounds":
        worst, best = metric.tie_bounds()
        return {"value": float(value), "pessimistic": float(worst), "optimistic": float(best)}
    return {n: float(v) for n, v in value.items()} if isinstance(value, dict) else {"value": float(value)}


def feed(metric: Any, updates: list[Update], way: str) -> Any:
    for number, update in enumerate(updates):
        if way == "resume" and number == 1:
            metric.persistent(True)
            other = metric.clone()
            other.reset()
            other.load_state_dict(metric.state_dict())
            metric = other
        metric(**update) if way == "forward" else metric.update(**update)
    return metric


def play(scenario: Scenario, rank: int, world: int, collectives: Callable[[], int]) -> dict[str, Any]:
    """What one process has to say: its values, asked twice, and how many collectives the first took."""
    updates, metric = scenario.shards(world)[rank], scenario.make()
    if scenario.way == "between":
        metric = feed(metric, updates[:1], "update")
        metric.compute()
        updates = updates[1:]  # the first process has none left: the others' further updates must not strand it
    metric = feed(metric, updates, scenario.way)
    if scenario.way == "again":
        metric.compute()
        metric.reset()
        feed(metric, updates, scenario.way)
    before = collectives()
    first = values_of(metric, scenario.way)
    used = collectives() - before
    second = values_of(metric, scenario.way)
    return {"values": first, "again": second, "collectives": used}
