"""Members of a collection that are computed one by one, and changed in between on some processes or on all."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fixtures.cases import Update
from fixtures.histories import HISTORIES
from fixtures.variants import Asked, named, together

ASKED: Asked = {"mrr": (named("MRR"), None), "ndcg": (named("NDCG"), 3), "recall": (named("Recall"), 1)}
CHANGED = "ndcg"  # the member that is changed, after "mrr" was asked for and before the others are
REFUSED = "refused"

Change = Callable[[Any, list[Update], Update], list[Update]]  # of a member; what it holds then


def updated(member: Any, held: list[Update], more: Update) -> list[Update]:
    member.update(**more)
    return [*held, more]


def forwarded(member: Any, held: list[Update], more: Update) -> list[Update]:
    member(**more)
    return [*held, more]


def emptied(member: Any, held: list[Update], more: Update) -> list[Update]:
    member.reset()
    return []


def merged(member: Any, held: list[Update], more: Update) -> list[Update]:
    other = member.clone()
    other.reset()
    other.update(**more)
    member.merge_state(other)
    return [*held, more]


def loaded(member: Any, held: list[Update], more: Update) -> list[Update]:
    other = member.clone()
    other.reset()
    other.update(**more)
    other.persistent(True)
    member.load_state_dict(other.state_dict())
    return [more]


CHANGES: dict[str, Change] = {
    "updated": updated,
    "forwarded": forwarded,
    "emptied": emptied,
    "merged": merged,
    "loaded": loaded,
}
WHO: dict[str, Callable[[int, int], bool]] = {
    "none": lambda rank, world: False,
    "all": lambda rank, world: True,
    "the first": lambda rank, world: rank == 0,
    "all but the first": lambda rank, world: rank > 0,
}


@dataclass(frozen=True)
class Scenario:
    who: str  # is changed
    first: str = "changed"  # which processes are asked first after it: those, or the "unchanged" ones
    change: str = "updated"
    whole: bool = False  # all members are changed, by an update of the collection
    history: str = "sums"

    def changes(self, rank: int, world: int) -> bool:
        return WHO[self.who](rank, world)

    def updates(self, rank: int, world: int) -> tuple[list[Update], Update]:
        """What a process is fed with at first, and what comes after."""
        given = HISTORIES[self.history](2 * world)
        return given[rank::world][:1], given[rank::world][1]

    def expected(self, world: int) -> tuple[list[list[Any]], dict[str, Any]]:
        """For each process what it is told of "mrr", "ndcg" and "recall" in turn; and the values that hold then."""
        before: list[Update] = []
        after: dict[str, list[Update]] = {name: [] for name in ASKED}
        for rank in range(world):
            held, more = self.updates(rank, world)
            before += held
            for name in after:
                own = list(held)
                if self.changes(rank, world) and (self.whole or name == CHANGED):
                    own = [*held, more] if self.whole else held_after(self.change, held, more)
                after[name] += own
        old, new = (
            {name: value(name, rows) for name, rows in both.items()} for both in (dict.fromkeys(ASKED, before), after)
        )
        some = [self.changes(rank, world) for rank in range(world)]
        told = []
        for rank in range(world):
            if not any(some) or all(some) or self.first == "changed":
                later = [new[CHANGED], new["recall"]]
            elif some[rank]:
                later = [REFUSED, REFUSED if self.whole else new["recall"]]
            else:
                later = [old[CHANGED], old["recall"]]
            told.append([old["mrr"], *later])
        return told, new


def held_after(change: str, held: list[Update], more: Update) -> list[Update]:
    return {"emptied": [], "loaded": [more]}.get(change, [*held, more])


def value(name: str, updates: list[Update]) -> Any:
    variant, k = ASKED[name]
    return variant.expected(updates, k)


SCENARIOS: dict[str, Scenario] = {
    **{
        f"{change}, {who}, {first} first": Scenario(who, first, change)
        for change, (who, first) in itertools.product(
            CHANGES, itertools.product(("the first", "all but the first"), ("changed", "unchanged"))
        )
    },
    **{f"updated, {who}": Scenario(who) for who in ("none", "all")},
    **{
        f"whole collection, {who}, {first} first": Scenario(who, first, whole=True)
        for who in ("the first", "all but the first")
        for first in ("changed", "unchanged")
    },
    **{
        f"{history}, {first} first": Scenario("the first", first, history=history)
        for history in ("sample ids", "flat rows")
        for first in ("changed", "unchanged")
    },
}


# In a process --------------------------------------------------------------------------------------------------------


@contextmanager
def in_turn(speaks_first: bool, name: str) -> Iterator[None]:
    """The processes that agree on something hear those first that are to speak first."""
    import torch.distributed as dist

    from torch_recmetrics.collection import fused_state as agreement

    ask, store = agreement.agree_on_first, dist.distributed_c10d._get_default_store()

    def asked(group: Any, key: str, word: str) -> str:
        place = f"tests/{name}/{key}"
        if not speaks_first:
            store.wait([place])
        agreed: str = ask(group, key, word)
        store.set(place, "")
        return agreed

    agreement.agree_on_first = asked
    try:
        yield
    finally:
        agreement.agree_on_first = ask


def told_by(metric: Any) -> float | str:
    try:
        return float(metric.compute())
    except RuntimeError as error:
        if "already computed on another rank" not in str(error):
            raise
        return REFUSED


def play(name: str, rank: int, world: int) -> dict[str, Any]:
    """What each member says in turn; what all say when they are asked again, one by one; and together."""
    scenario = SCENARIOS[name]
    held, more = scenario.updates(rank, world)
    metrics = together(ASKED)
    for update in held:
        metrics.update(**update)
    told = [told_by(metrics["mrr"])]
    changes = scenario.changes(rank, world)
    if changes and scenario.whole:
        metrics.update(**more)
    elif changes:
        CHANGES[scenario.change](metrics[CHANGED], held, more)
    several = any(scenario.changes(r, world) != changes for r in range(world))
    with in_turn(changes == (scenario.first == "changed") or not several, name):
        told += [told_by(metrics[member]) for member in (CHANGED, "recall")]
    again = {member: told_by(metrics[member]) for member in (CHANGED, "mrr", "recall")}  # what was refused comes first
    return {"told": told, "again": again, "together": {n: float(v) for n, v in metrics.compute().items()}}
