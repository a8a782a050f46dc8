"""Two and three real processes say of lists and catalogues what one would say of all the users."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lists.shards import NAMED, SHARDS, WAYS, all_expected, members
from real_processes import run_all

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore:The ``compute`` method"),
]
EXACT: dict[str, Any] = {"abs": 1e-11, "rel": 1e-13, "nan_ok": True}
HERE = Path(__file__).parent
ALL_DONE_WITHIN = 200  # seconds


@pytest.fixture(scope="module", params=[2, 3], ids=lambda world: f"{world} processes")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, list[Any]]:
    """What every process has to say; that they cannot be started is a failure."""
    world = request.param
    folder = tmp_path_factory.mktemp(f"lists{world}")
    run_all(HERE / "driver.py", folder, world, patience=ALL_DONE_WITHIN)
    return world, [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shards", SHARDS)
def test_every_process_has_the_value_of_one(shards: str, way: str, outcomes: tuple[int, list[Any]]) -> None:
    world, told = outcomes
    if way == "own gather function" and shards in NAMED:
        for outcome in told:
            for words in outcome[f"{shards}, {way}"].values():
                assert "`dist_sync_fn` exchanges sums only" in words and "keeps rows on some rank" in words
        return
    given = SHARDS[shards](world)
    alone = members(shards)
    for metric in alone.values():
        for shard in given:
            for _, update in shard:
                metric.update(**update)
    values = {name: float(metric.compute()) for name, metric in alone.items()}
    values |= all_expected(shards, world)
    for rank, outcome in enumerate(told):
        assert outcome[f"{shards}, {way}"] == pytest.approx(values, **EXACT), f"process {rank}"
    assert len({json.dumps(outcome[f"{shards}, {way}"]) for outcome in told}) == 1  # to the last bit
