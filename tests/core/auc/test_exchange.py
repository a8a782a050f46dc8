"""Click metrics of two and three real processes: integers, curves and tables of all rows, and what travels."""

from __future__ import annotations

import pytest
import torch
from fixtures.clicks import rows_of
from oracles import clicks as oracles
from processes.clicks import CURVES, ROWS, rows_of_rank
from processes.exchanges import CLICK_SHARDS, MIXED, even_clicks
from processes.start import Outcomes, outcomes_of
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from torch_recmetrics import AveragePrecision, BinaryAUC
from torch_recmetrics.core.distributed.collectives import FIRST

pytestmark = [pytest.mark.timeout(900), pytest.mark.processes]
FEW = 8 * FIRST + 512  # bytes of what every exchange begins with, and a few numbers
outcomes = outcomes_of("clicks")


def of_one_process(world: int, shards: str, **options: int) -> BinaryAUC:
    one = BinaryAUC(**options)
    for shard in CLICK_SHARDS[shards](world):
        for some in shard:
            one.update(some["preds"], some["target"])
    return one


@pytest.mark.parametrize("shards", ["even", "uneven", "the first idle", "one class each", "mostly positive"])
def test_integer_counts_are_those_of_one_process(shards: str, outcomes: Outcomes) -> None:
    """Not a bit of difference: the value and every point of the curve are quotients of the same integers."""
    world, told = outcomes
    one = of_one_process(world, shards)
    for outcome in told[shards]:
        assert outcome["value"] == float(one.compute())
        assert outcome["curve"] == [column.tolist() for column in one.roc()]


@pytest.mark.parametrize("shards", CURVES)
def test_curves_and_tables_are_those_of_all_rows(shards: str, outcomes: Outcomes) -> None:
    world, told = outcomes
    rows = rows_of([update for shard in CLICK_SHARDS[shards](world) for update in shard])
    theirs = roc_curve(
        [row.label for row in rows],
        [row.score for row in rows],
        sample_weight=[row.weight for row in rows],
        drop_intermediate=False,
    )
    for outcome in told[shards]:
        for mine, other in zip(outcome["curve"], theirs, strict=True):
            assert mine == pytest.approx(other.tolist(), abs=1e-12)
        indexes, values, weights = outcome["table"]
        table = oracles.group_table(rows)
        assert indexes == [group for group, *_ in table]
        assert values == pytest.approx([float(value) for _, value, _ in table], abs=1e-12)
        assert weights == pytest.approx([float(weight) for *_, weight in table], abs=1e-12)
        assert outcome["bound"] == 0
        assert ("must keep one dtype with `num_bins`" in outcome.get("refused", "")) == (shards in MIXED)


def test_bounds_are_those_of_all_rows(outcomes: Outcomes) -> None:
    world, told = outcomes
    one = of_one_process(world, "uneven", num_bins=1 << 16)
    assert float(one.error_bound()) > 0, "several scores of equal value share a bin"
    for outcome in told["uneven"]:
        assert outcome["bound in bins"] == float(one.error_bound())


def test_a_step_over_all_processes(outcomes: Outcomes) -> None:
    world, told = outcomes
    steps = [list(step) for step in zip(*even_clicks(world), strict=True)]
    expected = [oracles.auc(rows_of(step)) for step in steps]
    expected.append(oracles.auc(rows_of([update for step in steps for update in step])))
    for outcome in told["synced steps"]:
        assert outcome["steps"] == pytest.approx(expected, abs=1e-12)


# What travels


def test_the_larger_class_never_leaves_its_process(outcomes: Outcomes) -> None:
    told = outcomes[1]["traffic"]
    most = max(outcome["positives"] for outcome in told)
    for outcome in told:
        for name in ("auc", "auc of mostly positive rows"):
            sent = outcome[name]["sent"]
            assert sum(size for _, size in sent) <= most * (4 + 1) + FEW, "the keys of one class, and a few numbers"
            assert [kind for kind, _ in sent].count("all_reduce") == 1


def test_bins_and_half_precision_send_no_rows(outcomes: Outcomes) -> None:
    told = outcomes[1]["traffic"]
    for outcome in told:
        kinds = [kind for kind, _ in outcome["auc in bins"]["sent"]]
        assert kinds == ["all_reduce"] * 2
        sent = outcome["auc in bins"]["sent"]
        assert sum(size for _, size in sent) <= 64 * 2 * 8 + FEW
        sent = outcome["auc of half precision"]["sent"]
        assert {kind for kind, _ in sent} == {"all_reduce"}
        assert sum(size for _, size in sent) <= 65536 * 2 * 8 + FEW


def test_average_precision_sends_the_scores_of_positive_rows(outcomes: Outcomes) -> None:
    told = outcomes[1]["traffic"]
    most, everywhere = (of(outcome["positives"] for outcome in told) for of in (max, sum))
    for outcome in told:
        sent = outcome["average precision"]["sent"]
        assert sum(size for _, size in sent) <= most * (4 + 8) + everywhere * (8 + 8) + FEW
        assert [kind for kind, _ in sent].count("all_reduce") == 2


def test_average_precision_in_bins_is_that_of_one_process(outcomes: Outcomes) -> None:
    world, told = outcomes
    for shards in ("even", "the first idle", "float64 on the second", "bfloat16", "samples on the first"):
        one = AveragePrecision(1 << 16)
        if shards in MIXED:
            assert "average precision in bins" not in told[shards][0]
            continue
        for shard in CLICK_SHARDS[shards](world):
            for some in shard:
                one.update(some["preds"], some["target"], sample_ids=some.get("sample_ids"))
        for outcome in told[shards]:
            value, bound = outcome["average precision in bins"]
            assert (value, bound) == (float(one.compute()), float(one.error_bound()))


def test_groups_local_send_only_sums(outcomes: Outcomes) -> None:
    told = outcomes[1]["traffic"]
    for outcome in told:
        sent = outcome["group auc of whole groups"]["sent"]
        assert sum(size for _, size in sent) <= FEW
        spread = outcome["group auc"]
        assert outcome["group auc of whole groups"]["value"] == pytest.approx(spread["value"], abs=1e-12)
        rows = sum(size for kind, size in spread["sent"] if kind == "all_to_all_single")
        assert rows == 16 * ROWS, "each row once, 16 bytes"


def test_the_value_of_many_rows(outcomes: Outcomes) -> None:
    world, told = outcomes
    shards = [rows_of_rank(rank) for rank in range(world)]
    preds, target = (torch.cat([update[name] for update in shards]) for name in ("preds", "target"))
    assert told["traffic"][0]["auc"]["value"] == pytest.approx(roc_auc_score(target, preds), abs=1e-12)
    theirs = average_precision_score(target, preds)
    assert told["traffic"][0]["average precision"]["value"] == pytest.approx(theirs, abs=1e-12)
