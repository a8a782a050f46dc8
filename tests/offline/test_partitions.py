"""What partitions send as bytes adds up to what one machine counts; without Spark, whose part is in test_spark.py."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import torch

from torch_recmetrics import NDCG, Coverage, MeanRank, Overlap, Recall, RecMetricCollection, ranking_metrics
from torch_recmetrics.offline import evaluate
from torch_recmetrics.offline.inputs.parts import Part
from torch_recmetrics.offline.inputs.spark import SparkWorkspace, in_words_of_spark, type_in_duckdb
from torch_recmetrics.offline.inputs.tables import Tables
from torch_recmetrics.offline.inputs.workspace import Workspace
from torch_recmetrics.offline.measuring import added, measured, merge_states, states_of
from torch_recmetrics.offline.members import read_items

METRICS = ("ndcg", "mrr", "hit_rate")
LISTED = [(u, (7 * u + 3 * r) % 50, float((u * r) % 7)) for u in range(60) for r in range(8)]
TRUTH = [(u, (5 * u + 11 * r) % 50, 1.0 + r, 1.0 + u % 3) for u in range(5, 65) for r in range(3)]
NAMES = ("user_id", "item_id", "v", "w")


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows)) or [()] * 4
    return pa.table([pa.array(column) for column in columns], list(NAMES[: len(columns)]))


def part(user: int, n_parts: int) -> Part:
    lists, truth = (table([row for row in rows if row[0] % n_parts == user]) for rows in (LISTED, TRUTH))
    with Workspace(threads=1) as workspace:
        tables = Tables(
            workspace,
            {"recommendations": lists, "truth": truth},
            dict(zip(("user", "item", "score", "relevance", "weight"), (*NAMES[:2], "v", "v", "w"))),
            None,
        )
        tables.number_users()
        tables.number_items()
        collection = ranking_metrics(METRICS, 3)
        found = measured(tables, collection, tables.counted_lists())
        found.sums["states"] = states_of(collection)
        return found


@pytest.mark.parametrize(
    ("metrics", "common", "expected"),
    [
        (("ndcg", "recall"), {}, False),
        (("ndcg", "mean_rank"), {}, True),  # it takes the number of items
        ("ndcg", {"ignore_index": 0}, True),
        ("recall", {"propensities": torch.ones(9)}, True),
        ("overlap", {}, True),  # it looks at ids of any items
        ([NDCG(5), RecMetricCollection(MeanRank())], {}, False),
        ([NDCG(5), Overlap(5)], {}, True),
        (NDCG(5, ignore_index=0), {}, True),
        (RecMetricCollection([NDCG(5), Coverage(9)]), {}, True),
        (Recall(5, propensities=torch.ones(9)), {}, True),
    ],
)
def test_parts_number_items_alike_where_a_metric_looks_at_their_ids(metrics: Any, common: Any, expected: bool) -> None:
    assert read_items(metrics, common) == expected


def test_partitions_add_up() -> None:
    collection = ranking_metrics(METRICS, 3)
    parts = [Part.from_bytes(part(number, 4).to_bytes()) for number in range(4)]

    def add(found: list[dict[str, Any]]) -> dict[str, Any]:
        return added(collection, found)

    rounds = [Part.joined(parts[:2], add), Part.from_bytes(Part.joined(parts[2:], add).to_bytes())]
    for total in (Part.joined(parts, add), Part.joined(rounds, add)):
        metrics = ranking_metrics(METRICS, 3)
        merge_states(metrics, total.sums["states"])
        expected = evaluate(table(LISTED), table(TRUTH), METRICS, 3, score="v", relevance="v", weight="w")
        assert {name: float(value) for name, value in metrics.compute().items()} == pytest.approx(
            dict(expected), rel=1e-12
        )
        assert total.counts == expected.counts
        assert total.longest == 8
    users = pa.concat_tables([part(number, 4).users for number in range(4)]).sort_by("_id")
    assert users["_id"].to_pylist() == expected.user_ids
    assert users["ndcg@3"].to_pylist() == expected.users["ndcg@3"].tolist()
    assert users["_weight"].to_pylist() == expected.users.weights.tolist()


def test_a_part_may_have_no_lists() -> None:
    """All of whose users are in the truth alone; scores are looked at where they are whole numbers."""
    lists, truth = table([(0, 1, 7)])[:0], table(TRUTH[:3])
    columns = {"user": "user_id", "item": "item_id", "score": "v"}
    with Workspace(threads=1) as workspace:
        tables = Tables(workspace, {"recommendations": lists, "truth": truth}, columns, None)
        tables.refuse_faults((tables.lists, tables.truth))


def test_states_are_the_same_after_a_journey_as_bytes() -> None:
    metrics = ranking_metrics([Coverage(6, 2), *ranking_metrics(("ndcg", "map"), 2).values()])
    metrics.update(
        item_ids=torch.tensor([[0, 1], [1, 3]]), target_ids=torch.tensor([[1], [2]]), sample_ids=torch.tensor([4, 9])
    )
    sent = Part.from_bytes(Part(sums={"states": states_of(metrics)}).to_bytes()).sums["states"]
    other = metrics.clone()
    other.reset()
    merge_states(other, sent)
    assert other.compute() == metrics.compute()
    merge_states(other, sent)  # the same sample ids: nobody counts twice
    assert other.compute() == metrics.compute()


def test_the_first_error_of_all_parts_is_told_and_a_warning_once() -> None:
    parts = [Part(counts={"users": 2}), Part(error="user 9 is wrong"), Part(error="user 7 is wrong")]
    assert Part.joined(parts, lambda _: {}).error == "user 7 is wrong"
    parts = [Part(warnings=["3 of 1,000 users", "all ids are new"]), Part(warnings=["12 of 70 users"])]
    assert Part.joined(parts, lambda _: {}).warnings == ["12 of 70 users", "all ids are new"]
    assert in_words_of_spark("`truth` (pyarrow Table, row 1,024): no") == "`truth` (Spark): no"


class Session:
    """What a session of Spark is asked to run."""

    def sql(self, text: str) -> str:
        return text


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ('SELECT CAST("a`b" AS VARCHAR) FROM x', "SELECT CAST(`a``b` AS STRING) FROM x"),
        ("SELECT 'it''s \\' FROM listed AS l", "SELECT 'it\\'s \\\\' FROM listed_1 AS  l"),
        ("SELECT 1 FROM x JOIN listed USING (i)", "SELECT 1 FROM x JOIN listed_1 AS listed USING (i)"),
        (
            "SELECT unnest([{'target': t1, 'grade': g1}]) AS step FROM x",
            "SELECT explode(array(named_struct('target', t1, 'grade', g1))) AS step FROM x",
        ),
    ],
)
def test_sql_is_written_in_the_dialect_of_spark(sql: str, expected: str) -> None:
    workspace = SparkWorkspace(Session())
    workspace._views = {"listed": "listed_1"}
    assert workspace.query(sql) == expected


def test_types_of_spark_have_the_names_of_duckdb() -> None:
    known = {"bigint": "BIGINT", "decimal(20,0)": "DECIMAL(20,0)", "array<int>": "ARRAY<INT>"}
    assert {kind: type_in_duckdb(kind) for kind in known} == known
