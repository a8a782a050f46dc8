"""What is read, but hardly meant, is told in one warning."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from torch_recmetrics import NDCG
from torch_recmetrics.offline import Report, evaluate
from torch_recmetrics.offline.commands import main


def told(*given: Any, **options: Any) -> tuple[Report, list[str]]:
    """A report, and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        report = evaluate(*given, **{"metrics": "recall@1", **options})
    texts = [str(warning.message) for warning in caught]
    assert report.notes == texts == report.to_dict()["notes"]
    return report, texts


def table(ids: tuple[Any, Any], name: str, values: list[Any]) -> pa.Table:
    """Two users, 7 and 12, one row each."""
    return pa.table({"user_id": list(ids), "item_id": [3, 15], name: values})


LISTS, TRUTH = table((7, 12), "score", [1.0, 1.0]), table((7, 12), "day", [1, 2])


def with_ids(given: pa.Table, key: str, values: list[Any]) -> pa.Table:
    return given.set_column(given.column_names.index(key), key, pa.array(values))


def test_nothing_is_told_of_what_is_as_it_should_be() -> None:
    assert told(LISTS, TRUTH)[1] == []
    assert told(LISTS, TRUTH, min_relevance=1)[1] == []  # each row has relevance 1
    text = with_ids(LISTS, "user_id", ["7", "12"])
    assert told(text, TRUTH)[1] == []
    # Users are lost on both sides, but none of them has the number of another.
    assert told(text, with_ids(TRUTH, "user_id", [7, 13]))[1] == []
    # Both are text, or 7 and "007" are two users.
    assert told(with_ids(LISTS, "user_id", ["007", "12"]), with_ids(TRUTH, "user_id", ["7", "12"]))[1] == []
    both = with_ids(LISTS, "user_id", ["007", "7"])
    assert told(both, with_ids(TRUTH, "user_id", [7, 7]))[1] == []


@pytest.mark.parametrize(("key", "texts"), [("user_id", ["007", "12"]), ("item_id", ["03", "15"])])
def test_ids_that_are_lost_between_text_and_integers(key: str, texts: list[str]) -> None:
    for text, integers in (("recommendations", "truth"), ("truth", "recommendations")):
        given = {"recommendations": LISTS, "truth": TRUTH}
        given[text] = with_ids(given[text], key, texts)
        report, (warning,) = told(given["recommendations"], given["truth"])
        assert report["recall@1"] == 0.5
        assert f"column {key!r} is text in `{text}` (pyarrow Table) and integers in `{integers}`" in warning
        assert f"such as {texts[0]!r} and {int(texts[0])} (1 in all): write both as integers, or both" in warning
    seen = with_ids(LISTS, key, texts).select(["user_id", "item_id"])
    (warning,) = told(LISTS, TRUTH, seen=seen.slice(0, 1))[1]
    assert f"column {key!r} is text in `seen` (pyarrow Table) and integers in `truth`" in warning


@pytest.mark.parametrize("action", ["remove", "miss"])
def test_seen_that_is_the_truth(action: str) -> None:
    lists = table((7, 12), "score", [2.0, 2.0])
    lists = pa.concat_tables([lists, with_ids(lists, "item_id", [4, 4])])
    for seen, truth, relevance, said in (
        (TRUTH, TRUTH, None, True),
        (TRUTH.slice(1), TRUTH, None, False),
        (TRUTH.slice(1), TRUTH.append_column("grade", pa.array([0, 2])), "grade", True),
        (TRUTH.slice(0, 1), TRUTH.append_column("grade", pa.array([0, 2])), "grade", False),
        (TRUTH, TRUTH.append_column("grade", pa.array([0, 0])), "grade", False),  # nothing is relevant anyway
    ):
        found = told(lists, truth, seen=seen, seen_action=action, relevance=relevance)[1]
        assert [text for text in found if "no item in common" not in text] == found
        rows = 2 if relevance is None else 1
        expected = [f"`seen` (pyarrow Table) holds every relevant item of all users, all {rows} pairs of `truth`"]
        assert [text.partition(" (pyarrow Table), so nothing")[0] for text in found] == (expected if said else [])


@pytest.mark.parametrize("action", ["remove", "miss"])
def test_seen_of_nobody_in_the_truth(action: str) -> None:
    for ids, said in (([8, 13], True), (["ann", "bob"], True), ([12, 13], False), ([], False)):
        seen = pa.table({"user_id": pa.array(ids, None if ids else pa.int64()), "item_id": [99] * len(ids)})
        found = told(LISTS, TRUTH, seen=seen, seen_action=action)[1]
        expected = "`seen` (pyarrow Table) and `truth` (pyarrow Table) have no user in common, so nothing is taken out"
        assert [text.partition(":")[0] for text in found] == [expected] * said


def test_seen_is_looked_through_to_its_end() -> None:
    """More rows than are looked at first."""
    rows = {"user_id": list(range(3000)), "item_id": [1] * 3000}
    truth = pa.table(rows)
    lists = truth.append_column("score", pa.array([1.0] * 3000))
    assert "all 3,000 pairs" in told(lists, truth, seen=truth, metrics="mrr", top_k=None)[1][0]
    assert told(lists, truth, seen=truth.slice(0, 2999), metrics="mrr", top_k=None)[1] == []


def test_zeros_of_a_column_that_says_relevance(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for column, values, said in (
        ("relevance", [0, 1], True),
        ("Rating", [0.0, 4.5], True),
        ("label", [False, True], True),
        ("label", ["0", "1"], False),  # text of a frame is no number
        ("rating", [1, 5], False),
        ("day", [0, 1], False),
    ):
        found = told(LISTS, table((7, 12), column, values))[1]
        assert len(found) == said
        assert all(
            f"0 in its column {column!r}: give relevance={column!r}, or leave the column out" in t for t in found
        )
    truth = table((7, 12), "label", [0, 1])
    assert told(LISTS, truth, relevance="label")[1] == []
    assert told(LISTS, truth, weight="label")[1] == []
    assert told(LISTS, truth, metrics="user_coverage@1")[1] == []  # which asks nobody what is relevant
    (tmp_path / "lists.csv").write_text("user_id,item_id,score\n1,1,0.5\n2,3,0.5\n")
    (tmp_path / "truth.csv").write_text("user_id,item_id,rating\n1,1,0.5\n2,3,0.0\n")
    files = ["--recommendations", f"{tmp_path}/lists.csv", "--truth", f"{tmp_path}/truth.csv", "-m", "recall@1"]
    assert main(["evaluate", *files]) == 0
    err = capfd.readouterr().err
    assert "--relevance is not given, so every row of --truth" in err
    assert "give --relevance rating, or leave" in err
    assert err.count("\n") == 1


def test_cutoffs_beyond_the_lists() -> None:
    lists = pa.concat_tables([LISTS, pa.table({"user_id": [7], "item_id": [4], "score": [0.5]})])
    for metrics, top_k, largest in (
        ("recall", (1, 2), 0),
        ("recall", (1, 3), 3),
        ("recall", (None, 2), 0),
        (("recall@1", "mrr@4"), (), 4),
        ([NDCG(5)], (5, 10, 20), 5),
        ("recall", (5, 10, 20), 20),  # nobody asked for these, but they are shown
        (("recall", "mrr@4"), (5, 10, 20), 20),
    ):
        found = told(lists, TRUTH, metrics=metrics, top_k=top_k)[1]
        assert len(found) == bool(largest)
        said = (
            f"the cutoff {largest} is beyond the lists: the longest of `recommendations` (pyarrow Table) is 2 long, so"
        )
        assert all(said in text for text in found)
    seen = pa.table({"user_id": [7], "item_id": [4]})
    assert "is 1 long without its pairs of `seen`" in told(lists, TRUTH, metrics="recall@2", seen=seen)[1][0]
    assert told(lists, TRUTH, metrics="recall@2", seen=seen, seen_action="miss")[1] == []
    everything = lists.select(["user_id", "item_id"])
    (warning,) = told(lists, with_ids(TRUTH, "item_id", [15, 3]), seen=everything)[1]
    assert "is 0 long without its pairs of `seen`" in warning
    # A list of the whole catalogue cannot be longer.
    catalogue = pa.table({"item_id": [3, 15]})
    assert told(LISTS, TRUTH, metrics="recall@3", items=pa.table({"item_id": [3, 15, 4]}))[1] != []
    whole = pa.concat_tables([LISTS, pa.table({"user_id": [7], "item_id": [15], "score": [0.5]})])
    assert told(whole, TRUTH, metrics="recall@3", items=catalogue)[1] == []


@pytest.mark.parametrize("ordered_by", ["score", "rank"])
@pytest.mark.parametrize("keep_users", [True, False])
def test_mean_ranks_that_nobody_knows(ordered_by: str, keep_users: bool) -> None:
    lists = pa.concat_tables([table((7, 12), ordered_by, [1, 1]), table((7, 7), ordered_by, [2, 3]).slice(1)])
    truth = with_ids(TRUTH, "item_id", [3, 4])
    for metrics, top_k, expected in (("mean_rank", None, 1), ("mean_rank", 2, 0), ("mrr", None, 0)):
        found = told(lists, truth, metrics=metrics, top_k=top_k, keep_users=keep_users)[1]
        assert [text for text in found if "1 of the 2 users" in text and "`num_items`" in text] == found
        assert len(found) == expected
    items = pa.table({"item_id": [3, 15, 4, 8, 9]})
    report, found = told(lists, truth, metrics="mean_rank", top_k=None, keep_users=keep_users, items=items)
    # User 7 has item 3 by its rank first, by its score second; item 4 is not in the list of user 12, one item of five.
    assert found == [] and report["mean_rank"] == ((1 if ordered_by == "rank" else 2) + 3.5) / 2


def test_notes_are_those_of_their_own_report_whatever_is_shown_and_in_any_thread() -> None:
    foreign = with_ids(TRUTH, "item_id", [103, 115])

    def n_notes(truth: pa.Table) -> int:
        return len(evaluate(LISTS, truth, metrics="recall@1").notes)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(n_notes, [TRUTH, foreign] * 6))
    assert found == [0, 1] * 6


def test_most_relevant_items_are_no_candidates_of_a_sample() -> None:
    """A third user has no list, of which nothing is told."""
    truth = pa.table({"user_id": [7, 7, 12, 99], "item_id": [3, 4, 16, 3]})
    (warning,) = told(LISTS, truth, sampled_from=100)[1]
    assert "2 of 3 relevant items of users with a list are no candidates in `recommendations`" in warning
    assert told(LISTS, truth.slice(0, 2), sampled_from=100)[1] == []  # one of two
    assert "candidates" not in " ".join(told(LISTS, truth)[1])
    graded = truth.append_column("grade", pa.array([1, 0, 0, 1]))
    assert told(LISTS, graded, sampled_from=100, relevance="grade")[1] == []  # what is not relevant need not be there
