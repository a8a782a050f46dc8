"""Two and three real processes say what one would say of all the rows, and send what they must."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from auc import oracles
from auc.driver import ROWS
from auc.shards import ASKED, MIXED, SHARDS, all_rows, eps_of, even
from auc.updates import rows_of
from real_processes import run_all
from sklearn.metrics import roc_auc_score, roc_curve

from torch_recmetrics.metrics.auc import BinaryAUC

pytestmark = [pytest.mark.timeout(300), pytest.mark.processes]
EXACT: dict[str, Any] = {"abs": 1e-12, "rel": 0, "nan_ok": True}
HERE = Path(__file__).parent
ALL_DONE_WITHIN = 200  # seconds


@pytest.fixture(scope="module", params=[2, 3], ids=lambda world: f"{world} processes")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, list[Any]]:
    """What every process has to say; that they cannot be started is a failure."""
    world = request.param
    folder = tmp_path_factory.mktemp(f"auc{world}")
    run_all(HERE / "driver.py", folder, world, patience=ALL_DONE_WITHIN)
    return world, [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]


@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize("name", ASKED)
def test_every_process_has_the_value_of_one(name: str, shards: str, outcomes: tuple[int, list[Any]]) -> None:
    world, told = outcomes
    said = [outcome["values"][f"{name}, {shards}"] for outcome in told]
    assert all(other == said[0] or str(other) == str(said[0]) for other in said), "processes disagree"
    given = SHARDS[shards](world)
    if name == "auc in bins" and shards in MIXED:
        assert all("`preds` must keep one dtype with `num_bins`" in said[0][key] for key in ("value", "again", "curve"))
        return
    expected = ASKED[name].define(all_rows(given), eps_of(given))
    for key in ("value", "again", "after reset"):
        assert said[0][key] == pytest.approx(expected, **EXACT), key


@pytest.mark.parametrize("shards", ["even", "uneven", "first idle", "one class each", "mostly positive"])
def test_integer_counts_are_those_of_one_process(shards: str, outcomes: tuple[int, list[Any]]) -> None:
    """Not a bit of difference: the value is the quotient of the same integers."""
    world, told = outcomes
    shards = {"first idle": "the first idle"}.get(shards, shards)
    one = BinaryAUC()
    for shard in SHARDS[shards](world):
        for some in shard:
            one.update(some["preds"], some["target"])
    assert told[0]["values"][f"auc, {shards}"]["value"] == float(one.compute())


@pytest.mark.parametrize("shards", [name for name in SHARDS if name not in ("nobody has data", "only positive")])
def test_curves_and_tables_are_those_of_all_rows(shards: str, outcomes: tuple[int, list[Any]]) -> None:
    world, told = outcomes
    rows = all_rows(SHARDS[shards](world))
    theirs = roc_curve(
        [row.label for row in rows],
        [row.score for row in rows],
        sample_weight=[row.weight for row in rows],
        drop_intermediate=False,
    )
    for outcome in told:
        for mine, other in zip(outcome["values"][f"auc, {shards}"]["curve"], theirs, strict=True):
            assert mine == pytest.approx(other.tolist(), abs=1e-12)
        indexes, values, weights = outcome["values"][f"group auc, {shards}"]["table"]
        table = oracles.group_table(rows)
        assert indexes == [group for group, *_ in table]
        assert values == pytest.approx([float(value) for _, value, _ in table], abs=1e-12)
        assert weights == pytest.approx([float(weight) for *_, weight in table], abs=1e-12)


def test_bounds_are_those_of_all_rows(outcomes: tuple[int, list[Any]]) -> None:
    world, told = outcomes
    one = BinaryAUC(1 << 16)
    for shard in SHARDS["uneven"](world):
        for some in shard:
            one.update(some["preds"], some["target"])
    assert float(one.error_bound()) > 0, "several scores of equal value share a bin"
    for outcome in told:
        assert outcome["values"]["auc in bins, uneven"]["bound"] == float(one.error_bound())
        assert outcome["values"]["auc, uneven"]["bound"] == 0


def test_a_step_over_all_processes(outcomes: tuple[int, list[Any]]) -> None:
    world, told = outcomes
    steps = list(zip(*even(world), strict=True))
    expected = [oracles.auc(rows_of(list(step))) for step in steps]
    expected.append(oracles.auc(rows_of([some for step in steps for some in step])))
    for outcome in told:
        assert outcome["synced steps"] == pytest.approx(expected, abs=1e-12)


# What travels


def test_the_larger_class_never_leaves_its_process(outcomes: tuple[int, list[Any]]) -> None:
    _, told = outcomes
    most = max(outcome["traffic"]["positives"] for outcome in told)
    for outcome in told:
        for name in ("auc", "auc of mostly positive rows"):
            sent = outcome["traffic"][name]["sent"]
            assert sum(size for _, size in sent) <= most * (4 + 1) + 512, "the keys of one class, and a few numbers"
            assert [kind for kind, _ in sent].count("all_reduce") == 2


def test_bins_and_half_precision_send_no_rows(outcomes: tuple[int, list[Any]]) -> None:
    _, told = outcomes
    for outcome in told:
        kinds = [kind for kind, _ in outcome["traffic"]["auc in bins"]["sent"]]
        assert kinds == ["all_reduce"]
        sent = outcome["traffic"]["auc in bins"]["sent"]
        assert sum(size for _, size in sent) <= 64 * 2 * 8 + 512
        sent = outcome["traffic"]["auc of half precision"]["sent"]
        assert {kind for kind, _ in sent} == {"all_reduce"}
        assert sum(size for _, size in sent) <= 65536 * 2 * 8 + 512


def test_whole_groups_send_only_sums(outcomes: tuple[int, list[Any]]) -> None:
    _, told = outcomes
    for outcome in told:
        sent = outcome["traffic"]["group auc of whole groups"]["sent"]
        assert sum(size for _, size in sent) <= 256
        spread = outcome["traffic"]["group auc"]
        assert outcome["traffic"]["group auc of whole groups"]["value"] == pytest.approx(spread["value"], abs=1e-12)
        rows = sum(size for kind, size in spread["sent"] if kind == "all_to_all_single")
        assert rows == 16 * ROWS, "each row once, 16 bytes"


def test_the_value_of_many_rows(outcomes: tuple[int, list[Any]]) -> None:
    world, told = outcomes
    from auc.shards import update

    preds = torch.cat([torch.rand(ROWS, generator=torch.Generator().manual_seed(rank)) for rank in range(world)])
    target = torch.cat([update(rank, ROWS, rate=0.05)["target"] for rank in range(world)])
    assert told[0]["traffic"]["auc"]["value"] == pytest.approx(roc_auc_score(target, preds), abs=1e-12)
