"""Two and three real processes have the intervals, users, slices and resamples that one would have of all the data."""

from __future__ import annotations

import math
from typing import Any

import pytest
from fixtures import clicks
from fixtures.cases import users_of
from fixtures.histories import fed, floats
from oracles import intervals
from processes.intervals import AROUND, AT_MOST, INTERVALS, SCENARIOS, USERS, asked, keeping, shards_of, told_of
from processes.start import Outcomes, outcomes_of, plays
from processes.wrappers import (
    OTHERS,
    WHO,
    bootstrap,
    has_ids,
    medians,
    nested,
    said_of_replicates,
    said_of_slices,
    sliced,
    sliced_shards,
    taken,
)

pytestmark = [pytest.mark.timeout(900), pytest.mark.processes]
outcomes = outcomes_of("intervals")
AROUND_ALL = [name for name in SCENARIOS if name.startswith(AROUND)]


def played(name: str, outcomes: Outcomes) -> tuple[str, int, list[dict[str, Any]]]:
    """Who had which updates, in how many processes, and what each of these says."""
    world, told = outcomes[0], outcomes[1][name]
    if name.startswith(AROUND + OTHERS):
        assert told[0] == {}
        world, told = world - 1, told[1:]
    return name.removeprefix(AROUND).removeprefix(OTHERS), world, told


@plays("intervals", *INTERVALS)
def test_every_process_has_the_intervals_of_one(name: str, outcomes: Outcomes) -> None:
    world, told = outcomes
    updates = [update for shard in shards_of(name, world) for update in shard]
    read = updates if name.startswith("clicks") else users_of(updates)
    one = {
        label: fed(variant.make(k), [variant.takes(update) for update in updates]).confidence_interval(0.9)
        for label, (variant, k) in asked(name).items()
    }
    ends = {
        label: pytest.approx([float(end) for end in both], rel=1e-9, abs=1e-9, nan_ok=True)
        for label, both in one.items()
    }
    for rank, outcome in enumerate(told[name]):
        assert "error" not in outcome, f"process {rank}: {outcome['error']}"
        assert {label: list(both) for label, both in outcome["intervals"].items()} == ends, f"process {rank}"
        assert outcome["same"], f"process {rank}"
        for label, (variant, k) in asked(name).items():
            if str(variant) == "BinaryAUC" and clicks.squares_are_lost(updates):
                truth = math.nan
            elif variant.reads == "clicks":
                truth = intervals.of_clicks(variant.name, clicks.rows_of(updates), **variant.options)
            else:
                truth = intervals.standard_error(variant.parts(updates, k))
            assert outcome["errors"][label] == pytest.approx(truth, rel=1e-9, abs=1e-9, nan_ok=True), label
            assert outcome["values"][label] == variant.expected(read, k)


@plays("intervals", *USERS)
def test_every_process_has_the_users_of_one(name: str, outcomes: Outcomes) -> None:
    world, told = outcomes
    metrics, all_named = keeping(name)
    truth = told_of(fed(metrics, [update for shard in shards_of(name, world) for update in shard]), all_named)
    if name == "users, sampled candidates":
        assert truth["candidates"] == ("sampled(3)" if world == 2 else "sampled(3 to 4)") and truth["hidden"]
    for rank, outcome in enumerate(told[name]):
        assert "error" not in outcome, f"process {rank}: {outcome['error']}"
        assert outcome.keys() == truth.keys(), f"process {rank}"
        for thing, value in truth.items():
            exact = thing in ("ids", "weights", "candidates", "hidden", "definitions", "refused")
            assert outcome[thing] == (value if exact else nearly(value)), f"process {rank}: {thing}"


def nearly(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: nearly(inner) for name, inner in value.items()}
    return pytest.approx(value, rel=1e-12, abs=1e-12, nan_ok=True)


@plays("intervals", *AT_MOST)
def test_intervals_of_a_collection_take_no_more_than_its_values(name: str, outcomes: Outcomes) -> None:
    assert {outcome.get("collectives") for outcome in outcomes[1][name]} <= set(range(AT_MOST[name] + 1))


@plays("intervals", *AROUND_ALL)
@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_every_process_says_what_one_would(name: str, outcomes: Outcomes) -> None:
    name, world, told = played(name, outcomes)
    metric = sliced(name)
    shards = sliced_shards(name, world)
    updates = [update for shard in shards for update in shard]
    one = said_of_slices(fed(metric, taken(metric, updates)))
    median = medians(name)
    kept = None if median is None else floats(fed(median, taken(median, updates)).compute())
    for rank, outcome in enumerate(told):
        assert "error" not in outcome, f"process {rank}: {outcome['error']}"
        for word, values in one.items():
            assert outcome["slices"][word] == pytest.approx(values, rel=1e-9, abs=1e-11, nan_ok=True), word
        assert outcome["medians"] == (None if kept is None else pytest.approx(kept, rel=1e-9, abs=1e-11, nan_ok=True))
        assert outcome["kept"]


@plays("intervals", *AROUND_ALL)
@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_replicates_are_those_of_one_process(name: str, outcomes: Outcomes) -> None:
    name, world, told = played(name, outcomes)
    metric = bootstrap(name)
    updates = [update for shard in WHO[name](world) for update in shard]
    one = said_of_replicates(fed(metric, taken(metric, updates)))
    for rank, outcome in enumerate(told):
        assert "error" not in outcome, f"process {rank}: {outcome['error']}"
        found = outcome["bootstrap"]
        assert found["values"] == pytest.approx(one["values"], rel=1e-12, abs=1e-12, nan_ok=True)
        for member, replicates in one["replicates"].items():
            if has_ids(name) or member in ("groups", "clustered"):  # to the last bit
                assert found["replicates"][member] == replicates, member
            elif name.startswith("uneven"):  # users without an id are drawn by their place and their process
                assert found["replicates"][member] != replicates or len(set(replicates)) == 1, member


@plays("intervals", *AROUND_ALL)
@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_resamples_of_slices_are_those_of_one_process(name: str, outcomes: Outcomes) -> None:
    name, world, told = played(name, outcomes)
    metric = nested(name)[1]
    updates = [update for shard in sliced_shards(name, world) for update in shard]
    one = said_of_replicates(fed(metric, taken(metric, updates)))
    for rank, outcome in enumerate(told):
        assert "error" not in outcome, f"process {rank}: {outcome['error']}"
        assert outcome["nested"][0] == outcome["nested"][1], f"process {rank}"
        found = outcome["replicates of slices"]
        assert found["values"] == pytest.approx(one["values"], rel=1e-12, abs=1e-12, nan_ok=True)
        for member, replicates in one["replicates"].items():
            if has_ids(name) or member.startswith(("groups", "clustered")):  # to the last bit
                assert found["replicates"][member] == replicates, member


def test_processes_agree_to_the_last_bit(outcomes: Outcomes) -> None:
    for name, of_each in outcomes[1].items():
        _, _, of_group = played(name, (outcomes[0], {name: of_each}))
        assert all(str(outcome) == str(of_group[0]) for outcome in of_group), name
