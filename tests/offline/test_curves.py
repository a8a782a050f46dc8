"""Recall by popularity and the ROC curve beside scikit-learn and plain counting."""

from __future__ import annotations

import random

import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from torch_recmetrics.offline import InputError, evaluate


def test_by_hand() -> None:
    """Of a (taken 3 times) both are found first, of b (once) the only one stands at one of ranks 2 and 3; c is new."""
    lists = [("u", "a", 0.9), ("u", "b", 0.5), ("u", "d", 0.5), ("v", "d", 0.2), ("v", "a", 0.7), ("w", "a", 1.0)]
    truth = [("u", "a"), ("u", "b"), ("v", "a"), ("v", "c"), ("x", "b")]
    train = [("1", "a"), ("2", "a"), ("3", "a"), ("4", "b")]
    columns = ["user_id", "item_id", "score"]
    frames = [pd.DataFrame(rows, columns=columns[: len(rows[0])]) for rows in (lists, truth, train)]
    report = evaluate(*frames[:2], metrics=("ndcg@1", "recall@2"), train=frames[2], curves=True)
    assert report.details["popularity"] == {
        "recall@1": {"0": 0.0, "1": 0.0, "3": 1.0},
        "recall@2": {"0": 0.0, "1": 0.25, "3": 1.0},
    }
    # Rows of w are left out. Scores of what is relevant: 0.9, 0.7, 0.5; of the rest: 0.5, 0.2.
    (curve,) = report.details["roc"].values()
    assert curve["auc"] == pytest.approx(5.5 / 6)
    assert list(zip(curve["fpr"], curve["tpr"])) == [(0, 0), (0, 1 / 3), (0, 2 / 3), (0.5, 1), (1, 1)]
    assert "area under the curve" in report.to_html()
    assert list(evaluate(*frames[:2], "mrr", None, curves=True).details["popularity"]) == ["recall@10"]
    assert not evaluate(*frames[:2], metrics="ndcg").details


def test_groups_hold_a_fifth_of_what_is_relevant() -> None:
    """Ten items, which were taken 1 to 10 times, each relevant once."""
    truth = pd.DataFrame({"user_id": range(10), "item_id": range(1, 11)})
    train = pd.DataFrame([(user, item) for item in range(1, 11) for user in range(item)], columns=list(truth))
    rows = [(user, item, 1000 * user - item) for user in range(10) for item in range(1, 101)]
    lists = pd.DataFrame(rows, columns=["user_id", "item_id", "score"])
    details = evaluate(lists, truth, "recall@10", train=train, train_overlap="keep", curves=True).details
    assert details["popularity"] == {
        "recall@10": {"1 to 2": 1.0, "3 to 4": 1.0, "5 to 6": 1.0, "7 to 8": 1.0, "9 to 10": 1.0}
    }


def test_a_curve_of_many_rows_is_thinned_out() -> None:
    """To a step of its length in two hundred, with both ends."""
    lists = pd.DataFrame({"user_id": 1, "item_id": range(2000), "score": range(2000)})
    details = evaluate(lists, lists[lists["item_id"] % 2 == 0][["user_id", "item_id"]], curves=True).details
    curve = details["roc"]["all rows"]
    assert len(curve["fpr"]) == len(curve["tpr"]) == 1 + 201
    assert (curve["fpr"][-1], curve["tpr"][-1]) == (1, 1)


def test_it_agrees_with_scikit_learn_and_the_metric() -> None:
    draw = random.Random(2)
    rows = [(user, item, draw.randrange(6)) for user in range(40) for item in draw.sample(range(30), 12)]
    lists = pd.DataFrame(rows, columns=["user_id", "item_id", "score"])
    relevant = [(user, item, draw.randrange(3)) for user in range(40) for item in draw.sample(range(30), 6)]
    truth = pd.DataFrame(relevant, columns=["user_id", "item_id", "grade"])
    seen = lists[["user_id", "item_id"]].sample(60, random_state=1)
    options = {"metrics": "recall@3", "relevance": "grade", "seen": seen}
    report = evaluate(lists, truth, **options, curves=True)
    hidden, wanted = set(map(tuple, seen.to_numpy())), {row[:2] for row in relevant if row[2] > 0}
    shown = [row for row in rows if row[:2] not in hidden and row[0] in {user for user, _ in wanted}]
    expected = roc_auc_score([row[:2] in wanted for row in shown], [row[2] for row in shown])
    assert report.details["roc"]["all rows"]["auc"] == pytest.approx(expected)
    (pooled,) = evaluate(lists, truth, **options, options={"recall": {"pooled": True}}).values()
    taken = truth["item_id"].value_counts()  # of all rows, as the training data would be counted
    groups = report.details["popularity"]["recall@3"]
    edges = {label: [int(end) for end in label.split(" to ")] for label in groups}
    sizes = {label: sum(ends[0] <= taken[item] <= ends[-1] for _, item in wanted) for label, ends in edges.items()}
    assert sum(sizes.values()) == len(wanted)
    assert sum(sizes[label] * groups[label] for label in groups) / len(wanted) == pytest.approx(pooled)


def test_they_draw_what_the_metrics_take_for_relevant() -> None:
    """Item 9 is padding, and what has less than 4 of 5 stars is not relevant: that leaves item 2, at rank 2."""
    lists = pd.DataFrame({"user_id": [1, 1, 1], "item_id": [9, 1, 2], "score": [0.9, 0.8, 0.7]})
    truth = pd.DataFrame({"user_id": [1, 1, 1], "item_id": [9, 1, 2], "stars": [5.0, 3.0, 4.0]})
    options = {"relevance": "stars", "min_relevance": 4, "ignore_index": 9, "curves": True}
    report = evaluate(lists, truth, metrics="recall", top_k=(1, 2), **options)
    assert dict(report) == {"recall@1": 0, "recall@2": 1}
    assert report.details["popularity"] == {"recall@1": {"1": 0.0}, "recall@2": {"1": 1.0}}
    assert report.details["roc"]["all rows"]["auc"] == 0
    text = [frame.astype({"item_id": str}) for frame in (lists, truth)]
    with pytest.raises(InputError, match="`ignore_index` must be an id by which items go, got 9"):
        evaluate(*text, metrics="recall@1", **options)


def test_ranks_have_no_curve() -> None:
    lists = pd.DataFrame({"user_id": [1, 1], "item_id": [5, 6], "rank": [2, 1]})
    truth = pd.DataFrame({"user_id": [1], "item_id": [6]})
    report = evaluate(lists, truth, metrics="hit_rate@1", curves=True)
    assert report.details == {"popularity": {"recall@1": {"1": 1.0}}}
