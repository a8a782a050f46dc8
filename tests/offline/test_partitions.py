"""What partitions send as bytes adds up to what one machine counts; without Spark, whose part is in test_spark.py."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import torch

from torch_recmetrics import Coverage, ranking_metrics
from torch_recmetrics.offline import InputError, evaluate
from torch_recmetrics.offline.evaluation import measure
from torch_recmetrics.offline.spark import counted, gathered, merge_states, packed, states_of, unpacked

METRICS = ("ndcg@3", "mrr@10", "hit_rate@3")
ROWS = [(0, u, (7 * u + 3 * r) % 50, float((u * r) % 7), 1.0) for u in range(60) for r in range(8)]
ROWS += [(1, u, (5 * u + 11 * r) % 50, 1.0 + r, 1.0 + u % 3) for u in range(5, 65) for r in range(3)]


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.table([pa.array(column) for column in zip(*rows)], ["_kind", "_user", "_item", "_value", "_weight"])


def found(rows: list[tuple[Any, ...]], **options: Any) -> list[tuple[str, bytes]]:
    chosen = {"by_rank": False, "graded": True, "weighted": True, "reads_items": False, "keep_users": True, **options}
    return counted(
        table(rows),
        lambda _: collection(),
        lambda tables, metrics, collector: measure(tables, metrics, collector, lambda _: None),
        memory_limit=None,
        **chosen,
    )


def collection() -> Any:
    made = [
        metric
        for name in METRICS
        for metric in ranking_metrics(name[: name.index("@")], int(name[name.index("@") + 1 :])).values()
    ]
    return ranking_metrics(made)


def test_partitions_add_up() -> None:
    parts = [
        [row for row in ROWS if row[1] < 5],
        *([row for row in ROWS if row[1] >= 5 and row[1] % 3 == n] for n in range(3)),
    ]
    report = gathered([row for part in parts for row in found(part)], collection(), 0.9, "full", keep_users=True)
    lists, truth = ([row[1:] for row in ROWS if row[0] == kind] for kind in (0, 1))
    frames = [
        table([(0, *row) for row in rows]).rename_columns(["k", "user_id", "item_id", "v", "w"])
        for rows in (lists, truth)
    ]
    expected = evaluate(*frames, METRICS, score="v", relevance="v", weight="w", level=0.9, candidates="full")
    assert dict(report) == pytest.approx(dict(expected), rel=1e-12)
    assert report.counts == expected.counts
    assert report.user_ids == expected.user_ids
    assert report.users.weights.tolist() == expected.users.weights.tolist()
    assert report.users.candidates == "full"
    assert report.users.versions == expected.users.versions
    for name in METRICS:
        assert report.users[name].tolist() == expected.users[name].tolist()
        assert report.intervals[name] == pytest.approx(expected.intervals[name], rel=1e-9)


def test_states_are_the_same_after_a_journey_as_bytes() -> None:
    metrics = ranking_metrics([Coverage(6, 2), *ranking_metrics(("ndcg", "map"), 2).values()])
    metrics.update(
        item_ids=torch.tensor([[0, 1], [1, 3]]), target_ids=torch.tensor([[1], [2]]), sample_ids=torch.tensor([4, 9])
    )
    payload = packed(states_of(metrics))
    other = metrics.clone()
    other.reset()
    merge_states(other, unpacked(payload))
    assert other.compute() == metrics.compute()
    merge_states(other, unpacked(payload))  # the same sample ids: nobody counts twice
    assert other.compute() == metrics.compute()


def test_what_a_partition_refuses_is_raised_by_the_driver() -> None:
    with pytest.raises(InputError, match="a second time"):
        found([*ROWS, ROWS[100]])
    with pytest.raises(InputError, match="user 7 is wrong"):
        gathered([("error", b"user 7 is wrong")], collection(), 0.95, None, keep_users=True)
    with pytest.raises(InputError, match="there is no row with a user"):
        gathered([], collection(), 0.95, None, keep_users=True)
