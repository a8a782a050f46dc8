"""Who gets which updates, how the values are asked for, and what all processes must then say: of every metric."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from fixtures.cases import NAMED, Case, Update, dense, rows, target_ids, users_of
from fixtures.clicks import clicks
from fixtures.histories import HISTORIES, OF_RANKINGS, sums
from fixtures.items import NUM_ITEMS
from fixtures.variants import DEFAULTS, LISTED, OF_ROWS, RANKED, STATES, Asked, Variant, named, together

Shards = list[list[Update]]  # for each process its updates
Share = Callable[[int], Shards]
FEW: Asked = {f"{v} 3": (v, 3) for v in RANKED}
MANY: Asked = FEW | {f"{v} {k}": (v, k) for v in DEFAULTS for k in (1, None)}
EACH: Asked = {f"{v} 3": (v, 3) for v in DEFAULTS}
ONE: Asked = {"value": (named("NDCG"), 3)}
# Metrics of lists and of clicks: one of each kind of state, whose exchange is that of all others of its kind.
LISTS: Asked = {str(v): (v, 3) for v in LISTED if v in STATES and not v.needs_samples}
LISTS |= {"ndcg": (named("NDCG"), 3), "mrr": (named("MRR"), None)}
NAMED_LISTS: Asked = LISTS | {str(v): (v, 3) for v in LISTED if v in STATES and v.needs_samples}
ROWS: Asked = {str(v): (v, None) for v in STATES if v not in OF_ROWS}
KEPT: Asked = {name: (v, k) for name, (v, k) in ROWS.items() if v.label != "bins"}  # of scores of any dtypes


# Who gets what -------------------------------------------------------------------------------------------------------


def dealt(updates: list[Update], world: int) -> Shards:
    return [updates[rank::world] for rank in range(world)]


def even(history: str) -> Share:
    return lambda world: dealt(HISTORIES[history](2 * world), world)


def uneven(history: str) -> Share:
    """Process r gets r + 1 updates."""

    def shards(world: int) -> Shards:
        updates = iter(HISTORIES[history](world * (world + 1) // 2))
        return [[next(updates) for _ in range(rank + 1)] for rank in range(world)]

    return shards


def idle(history: str, which: int = 0) -> Share:
    """One process gets nothing."""

    def shards(world: int) -> Shards:
        given = dealt(HISTORIES[history](3 * world), world)
        given[which] = []
        return given

    return shards


def one_with_an_empty_batch(world: int) -> Shards:
    given = dealt(sums(2 * world), world)
    given[1] = [target_ids(NAMED["no user"])]
    return given


def one_with_only_empty_users(world: int) -> Shards:
    given = dealt(sums(2 * world), world)
    given[0] = [target_ids(NAMED["only empty users"])]
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
        shards.append([{**dense(table.part(b)), "sample_ids": torch.tensor(b)} for b in batches])
    return shards


def copies_differ(world: int) -> Shards:
    """Of several copies the first on the lowest process counts: there the user finds its item first, elsewhere last."""

    def copy(rank: int) -> Update:
        scores = [[3.0, 2.0, 1.0]] if rank == 0 else [[1.0, 2.0, 3.0]]
        return {**dense(Case(scores, [[1.0, 0.0, 0.0]])), "sample_ids": torch.tensor([77])}

    return [[copy(rank), copy(rank + 1)] for rank in range(world)]


def empty_user_across_processes(world: int) -> Shards:
    """User 3 has rows on two processes and nothing relevant; nobody can know before all rows are together."""
    return [[flat([(3, 1.0, 0.0), (50 + rank, 2.0, 1.0)])] for rank in range(world)]


def mixed_memories(world: int) -> Shards:
    """Sums on one process, named samples on another."""
    names = ["sums", "sample ids", "sums"]
    return [HISTORIES[names[rank]](2) for rank in range(world)]


# Lists ---------------------------------------------------------------------------------------------------------------


def batch(seed: int, n_users: int = 3) -> Update:
    g = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 5, (n_users, NUM_ITEMS), generator=g).float()
    return target_ids(
        Case(
            scores.tolist(),
            torch.eye(n_users, NUM_ITEMS).tolist(),
            torch.randint(0, 3, (n_users,), generator=g).double().tolist(),
            seen=torch.randint(-1, NUM_ITEMS, (n_users, 11), generator=g).tolist(),
        )
    )


def first_idle(world: int) -> Shards:
    """Process r gets r updates."""
    return [[batch(10 * rank + number) for number in range(rank)] for rank in range(world)]


def last_idle(world: int) -> Shards:
    return [[batch(10 * rank + number) for number in range(2)] for rank in range(world - 1)] + [[]]


def nothing_recommended_on_one(world: int) -> Shards:
    empty = Case([[-float("inf")] * NUM_ITEMS] * 2, [[1.0] + [0.0] * (NUM_ITEMS - 1)] * 2)
    return [[dense(empty)], *([batch(rank)] for rank in range(1, world))]


def repeated_rows(world: int) -> Shards:
    """Row 0 of every process is number 7: that of the first process counts. Row 2 comes again in the next update."""
    firsts = [{**batch(r), "sample_ids": torch.tensor([7, 20 + r, 30 + r])} for r in range(world)]
    return [[first, rows(first, slice(2, None))] for first in firsts]


def named_on_one(world: int) -> Shards:
    """Sample ids on the last process alone, and sums beside them."""
    shards = [[batch(rank)] for rank in range(world)]
    shards[-1].append({**batch(50), "sample_ids": torch.tensor([3, 1, 2])})
    return shards


def all_named(world: int) -> Shards:
    """Each row by its number; the last process has the first row again, in an update of its own."""
    shards, n_rows = first_idle(world), 0
    for update in (update for shard in shards for update in shard):
        update["sample_ids"] = torch.arange(n_rows, n_rows + 3)
        n_rows += 3
    shards[-1].append(rows(shards[1][0], slice(0, 1)))
    return shards


LIST_SHARDS: dict[str, Share] = {
    "first idle": first_idle,
    "last idle": last_idle,
    "nobody has data": nobody_has_data,
    "nothing recommended on one": nothing_recommended_on_one,
    "repeated rows": repeated_rows,
    "named on one": named_on_one,
    "all named": all_named,
}


# Clicks --------------------------------------------------------------------------------------------------------------


def even_clicks(world: int) -> Shards:
    return [[clicks(10 * rank), clicks(10 * rank + 1)] for rank in range(world)]


def uneven_clicks(world: int) -> Shards:
    """Process r gets r + 1 updates, and more rows."""
    return [[clicks(10 * rank + number, 5 + 3 * rank) for number in range(rank + 1)] for rank in range(world)]


def of_dtypes(*dtypes: torch.dtype, weighted: bool = False) -> Share:
    extra = ["weights"] if weighted else []
    return lambda world: [[clicks(rank, 9, *extra, dtype=dtypes[rank % len(dtypes)])] for rank in range(world)]


def one_step_apart(world: int) -> Shards:
    """Scores that differ in their last bit alone."""
    return [
        [{**clicks(rank, 60, groups=3), "preds": 0.5 + torch.arange(60).remainder(7) * 2**-24}] for rank in range(world)
    ]


CLICK_SHARDS: dict[str, Share] = {
    "even": even_clicks,
    "uneven": uneven_clicks,
    "the first idle": lambda world: [[], *even_clicks(world)[1:]],
    "the last idle": lambda world: [*even_clicks(world)[:-1], [clicks(1, 0)]],
    "nobody has data": nobody_has_data,
    # So many that each process owns some between those of another.
    "many groups": lambda world: [[clicks(rank, 80, groups=40)] for rank in range(world)],
    # Positives outnumber negatives on one process; the totals decide which class travels.
    "one class each": lambda world: [[clicks(r, 4 + 9 * (r % 2), rate=float(r % 2))] for r in range(world)],
    "mostly positive": lambda world: [[clicks(rank, 12, rate=0.9)] for rank in range(world)],
    "only positive": lambda world: [[clicks(rank, rate=1.1)] for rank in range(world)],
    "weights on the last": lambda world: [*even_clicks(world)[:-1], [clicks(5, 9, "weights")]],
    # The same sample on several processes, with other scores: the first on the lowest process counts.
    "samples again": lambda world: [
        [clicks(10 * rank + number, 9, "sample_ids", "weights") for number in range(2)] for rank in range(world)
    ],
    "samples on the first": lambda world: [
        [clicks(3, 9, "sample_ids"), clicks(4, 9, "sample_ids")],
        *even_clicks(world)[1:],
    ],
    "float64 on the second": of_dtypes(torch.float32, torch.float64),
    "bfloat16": of_dtypes(torch.bfloat16),
    "both half precisions": of_dtypes(torch.float16, torch.bfloat16),
    "half and float32": of_dtypes(torch.float16, torch.float32, torch.bfloat16),
    "half with weights and float32": of_dtypes(torch.float16, torch.float32, weighted=True),
}
# One table of bins holds scores of one dtype.
MIXED = ("float64 on the second", "both half precisions", "half and float32", "half with weights and float32")


# What must come out --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scenario:
    """The metrics stand in "ours", a collection, in that of "torchmetrics", or each "alone".

    `way` says how the values are asked for; `at_most` is the number of collectives that this may take. In a group of
    others (`of_others`) the first process does not belong to their `process_group`, and has all their rows alone.
    """

    shards: Share
    asked: Asked = field(default_factory=lambda: MANY)
    kind: str = "ours"
    way: str = "compute"
    at_most: int | None = None
    ties: str | None = None
    own_gather: bool = False
    of_others: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def make(self) -> Any:
        """The collection or the metrics to be fed."""
        import torchmetrics

        options = {**self.options, "ties": self.ties}
        if self.kind == "ours":
            return together(self.asked, **options)
        if self.own_gather:
            gather = torchmetrics.utilities.distributed.gather_all_tensors
            options["dist_sync_fn"] = lambda *a, **kw: gather(*a, **kw)
        members = {name: variant.make(k, **options) for name, (variant, k) in self.asked.items()}
        return members if self.kind == "alone" else torchmetrics.MetricCollection(members)

    def updates(self, world: int) -> list[Update]:
        """Those of all processes together."""
        return [update for shard in self.shards(world - self.of_others) for update in shard]

    def updates_of(self, rank: int, world: int) -> list[Update]:
        if not self.of_others:
            return self.shards(world)[rank]
        return self.shards(world - 1)[rank - 1] if rank else self.updates(world)

    def refused(self, world: int, variant: Variant) -> bool:
        updates = self.updates(world)
        if self.own_gather and any({"indexes", "sample_ids"} & update.keys() for update in updates):
            return True  # an own gather function exchanges sums, not rows
        dtypes = {update["preds"].dtype for update in updates if "preds" in update}
        return self.way == "refused" or (variant.label == "bins" and len(dtypes) > 1)

    def expected(self, world: int) -> dict[str, Any]:
        updates = self.updates(world)
        rows = self.asked in (ROWS, KEPT)
        users = [] if rows else users_of(updates)
        found: dict[str, Any] = {}
        for name, (variant, k) in self.asked.items():
            if self.refused(world, variant):
                found[name] = "refused"
                continue
            found[name] = variant.expected([variant.takes(u) for u in updates] if rows else users, k, self.ties)
            if self.way == "bounds":
                found |= {f"{name}, {rule}": variant.expected(users, k, rule) for rule in RULES_OF_BOUNDS}
        return found


RULES_OF_BOUNDS = ("pessimistic", "optimistic")
COST = {"sums": 1, "flat rows": 4, "sample ids": 4}  # of each history, in collectives
WAYS: dict[str, dict[str, Any]] = {
    "collection": {},
    "members": {"way": "members"},
    "forward": {"way": "forward"},
    "alone": {"kind": "alone"},
    "own gather function": {"kind": "alone", "own_gather": True},
}
OF_WAYS = ("first idle", "nobody has data", "named on one")  # in which a way may differ from the others


SCENARIOS: dict[str, Scenario] = {
    **{f"even, {h}": Scenario(even(h), at_most=cost) for h, cost in COST.items()},
    **{f"uneven, {h}": Scenario(uneven(h), at_most=cost) for h, cost in COST.items()},
    **{f"first idle, {h}": Scenario(idle(h), at_most=cost) for h, cost in COST.items()},
    **{f"last idle, {h}": Scenario(idle(h, -1), at_most=cost) for h, cost in COST.items()},
    **{f"one metric, uneven, {h}": Scenario(uneven(h), ONE, "alone", at_most=cost) for h, cost in COST.items()},
    **{f"one metric, last idle, {h}": Scenario(idle(h, -1), ONE, "alone") for h in OF_RANKINGS},
    **{f"torchmetrics' collection, {h}": Scenario(uneven(h), EACH, "torchmetrics") for h in OF_RANKINGS},
    **{f"torchmetrics' collection, idle, {h}": Scenario(idle(h), EACH, "torchmetrics") for h in OF_RANKINGS},
    **{f"member by member, {h}": Scenario(uneven(h), way="members", at_most=c) for h, c in COST.items()},
    **{f"member by member, idle, {h}": Scenario(idle(h), way="members") for h in OF_RANKINGS},
    **{f"forward, {h}": Scenario(uneven(h), way="forward", at_most=c) for h, c in COST.items()},
    **{f"resumed, {h}": Scenario(uneven(h), way="resume", at_most=c) for h, c in COST.items()},
    **{f"reset and again, {h}": Scenario(uneven(h), way="again", at_most=c) for h, c in COST.items()},
    **{f"computed in between, {h}": Scenario(uneven(h), way="between") for h in OF_RANKINGS},
    **{f"one metric, computed in between, {h}": Scenario(uneven(h), ONE, "alone", "between") for h in OF_RANKINGS},
    **{
        f"bounds, {who}, {h}": Scenario(share(h), ONE, "alone", "bounds", options={"keep_bounds": True})
        for h in OF_RANKINGS
        for who, share in (("uneven", uneven), ("idle", idle))
    },
    **{f"own gather function, {h}": Scenario(uneven(h), ONE, "alone", own_gather=True) for h in OF_RANKINGS},
    **{f"own gather function, idle, {h}": Scenario(idle(h), ONE, "alone", own_gather=True) for h in OF_RANKINGS},
    "refused when all rows are together": Scenario(
        empty_user_across_processes, ONE, "alone", "refused", options={"empty_target_action": "error"}
    ),
    "an empty batch": Scenario(one_with_an_empty_batch, at_most=1),
    "only empty users on one": Scenario(one_with_only_empty_users, at_most=1),
    "nobody has data": Scenario(nobody_has_data, at_most=1),
    "one metric, nobody has data": Scenario(nobody_has_data, ONE, "alone", at_most=1),
    "same user everywhere": Scenario(same_user_everywhere, at_most=4),
    "same user everywhere, optimistic": Scenario(same_user_everywhere, ties="optimistic"),
    "same user everywhere, stable": Scenario(same_user_everywhere, ONE, "alone", ties="stable"),
    "one flat row each": Scenario(one_row_each, at_most=4),
    "flat scores of several dtypes": Scenario(flat_scores_of_several_dtypes, at_most=4),
    "padded sampler": Scenario(padded_sampler, at_most=4),
    "one metric, padded sampler": Scenario(padded_sampler, ONE, "alone", at_most=4),
    "member by member, padded sampler": Scenario(padded_sampler, way="members", at_most=4),
    "copies differ": Scenario(copies_differ, at_most=4),
    "mixed memories": Scenario(mixed_memories),
    **{
        f"lists, {name}, {way}": Scenario(share, NAMED_LISTS if name == "all named" else LISTS, **how)
        for name, share in LIST_SHARDS.items()
        for way, how in WAYS.items()
        if name in OF_WAYS or way in ("collection", "alone")
    },
    **{f"clicks, {name}": Scenario(share, ROWS, "alone", "again") for name, share in CLICK_SHARDS.items()},
    "clicks, scores one step apart": Scenario(one_step_apart, KEPT, "alone", "again"),
    **{f"group of others, {h}": Scenario(uneven(h), of_others=True) for h in COST},
    "group of others, lists": Scenario(all_named, NAMED_LISTS, of_others=True),
    **{
        f"group of others, clicks, {name}": Scenario(CLICK_SHARDS[name], KEPT, "alone", of_others=True)
        for name in ("samples again", "half and float32", "half with weights and float32")
    },
}


# What two processes do three do too, but for shares that are uneven: of the rest one of each kind.
OF_TWO = [
    *(name for name in SCENARIOS if "uneven" in name),
    "nobody has data",
    "refused when all rows are together",
    "same user everywhere",
    "padded sampler",
    "copies differ",
    "mixed memories",
    *(f"lists, first idle, {way}" for way in WAYS),
    "lists, named on one, alone",
    *(f"clicks, {name}" for name in ("the first idle", "one class each", "samples again", "half and float32")),
]


# In a process --------------------------------------------------------------------------------------------------------


@functools.cache
def made(name: str) -> Any:
    """The metrics of a scenario, which a process plays once: it is forked from one that has made them all."""
    return SCENARIOS[name].make()


def value_of(metric: Any) -> float | str:
    try:
        return float(metric.compute())
    except ValueError:
        return "refused"


def values_of(metrics: Any, way: str) -> dict[str, Any]:
    if way != "members" and not isinstance(metrics, dict):
        return {name: float(value) for name, value in metrics.compute().items()}
    each = metrics.items() if isinstance(metrics, dict) else metrics.items(keep_base=True)
    found = {name: value_of(metric) for name, metric in each}
    if way == "bounds":
        for name, metric in metrics.items():
            bounds = zip(RULES_OF_BOUNDS, metric.tie_bounds(), strict=True)
            found |= {f"{name}, {rule}": float(bound) for rule, bound in bounds}
    return found


def resumed(metric: Any) -> Any:
    metric.persistent(True)
    other = metric.clone()
    other.reset()
    other.load_state_dict(metric.state_dict())
    return other


def feed(scenario: Scenario, metrics: Any, updates: list[Update], way: str) -> Any:
    for number, update in enumerate(updates):
        if way == "resume" and number == 1:
            metrics = resumed(metrics)
        if not isinstance(metrics, dict):
            metrics(**update) if way == "forward" else metrics.update(**update)
            continue
        for name, metric in metrics.items():
            metric.update(**scenario.asked[name][0].takes(update))
    return metrics


def play(name: str, rank: int, world: int) -> dict[str, Any]:
    """What one process has to say: its values, asked twice, and how many collectives that took.

    The second time they are asked after the same updates again, where `way` is that.
    """
    import torch.distributed as dist

    scenario = SCENARIOS[name]
    updates, metrics = scenario.updates_of(rank, world), made(name)
    if scenario.of_others:
        others = dist.new_group(range(1, world))
        for metric in metrics.values():
            metric.process_group = others
            if not rank:
                metric.distributed_available_fn = lambda: False
    if scenario.way == "between":
        metrics = feed(scenario, metrics, updates[:1], "update")
        values_of(metrics, "update")
        updates = updates[1:]  # the first process has none left: the others' further updates must not strand it
    metrics = feed(scenario, metrics, updates, scenario.way)
    first = values_of(metrics, scenario.way) if scenario.way == "again" else None
    if first is not None:
        for metric in metrics.values() if isinstance(metrics, dict) else [metrics]:
            metric.reset()
        feed(scenario, metrics, updates, scenario.way)
    group: Any = dist.group.WORLD
    before = group._get_sequence_number_for_group()
    values = values_of(metrics, scenario.way)
    used = group._get_sequence_number_for_group() - before
    if first is None:
        first, values = values, values_of(metrics, scenario.way)
    return {"values": first, "again": values, "collectives": used}
