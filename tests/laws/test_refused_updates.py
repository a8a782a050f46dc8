"""An update that is refused leaves every metric as it was, alone and in a collection."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from fixtures.cases import LAYOUTS, NAMED, Update
from fixtures.histories import fed
from fixtures.items import NUM_ITEMS, NUM_ROWS
from fixtures.refusals import refused
from fixtures.variants import LISTED, STATES, Variant, ways

from torch_recmetrics import NDCG, BinaryAUC, RecMetricCollection, rank


@pytest.mark.parametrize(("variant", "history"), ways(STATES, "histories"))
def test_an_error_leaves_the_metric_as_it_was(variant: Variant, history: str) -> None:
    updates = variant.history(history)
    metric = variant.fed(updates[:2])
    scores = "reward" if variant.reads == "rewards" else "preds"
    n = len(updates[2].get("weights", updates[2][scores]))
    wrong = {"weights": torch.full((n,), -1.0), scores: updates[2][scores] * torch.nan}
    if variant.reads == "clicks":
        wrong["target"] = updates[2]["target"] * 2
    for name, way in itertools.product(wrong, ("update", "forward")):
        with refused(metric, f"`{name}`", ValueError):
            getattr(metric, way)(**{**updates[2], name: wrong[name]})
        assert float(metric.compute()) == variant.expected(updates[:2])
    assert float(fed(metric, updates[2:]).compute()) == variant.expected(updates)


@pytest.mark.parametrize("variant", LISTED, ids=str)
def test_an_update_of_a_collection_is_all_or_nothing(variant: Variant) -> None:
    metrics = RecMetricCollection({"list": variant.make(), "ndcg": NDCG(3)})
    good = {**LAYOUTS["item_ids"](NAMED["several users"]), "sample_ids": torch.arange(3)}
    metrics.update(**good)
    bad = {"item_ids": torch.tensor([[0, 1], [2, 2]]), "target_ids": torch.tensor([[0], [1]])}
    alone = {"item_ids": bad["item_ids"][:1], "sample_ids": torch.tensor([5])}
    for act in (metrics.update, metrics):
        with refused(metrics, "id twice in one row"):
            act(**bad, sample_ids=torch.tensor([5, 6]))
        with refused(metrics, "`target_ids` is missing"):
            act(**alone)
        assert float(metrics["list"].compute()) == variant.expected([good])


@pytest.mark.parametrize("variant", [v for v in LISTED if v.label != "function"], ids=str)
def test_items_and_rows_that_nothing_is_known_of(variant: Variant) -> None:
    good = {"item_ids": torch.tensor([[0, 3], [1, 4]]), "target_ids": torch.tensor([[3], [4]])}
    named = {**good, "sample_ids": torch.tensor([0, NUM_ROWS - 1])}
    metric = variant.make(1)
    bad: list[tuple[Update, str]] = [
        ({**named, "item_ids": torch.tensor([[0, 3], [1, 1]])}, "must not hold an id twice"),
        ({"weights": torch.ones(2)}, "is missing"),
        ({**named, "item_ids": torch.tensor([[0, 3], [1, -2]])}, r"`item_ids`.*-2 in row 1"),
        ({"preds": torch.zeros(4), "target": torch.ones(4), "indexes": torch.zeros(4).long()}, "flat rows"),
    ]
    beyond = [[0, 3], [NUM_ITEMS, 4]]
    if variant.metric.__name__ not in ("UserCoverage", "Overlap", "Jaccard", "RBO", "KendallTau"):  # which know none
        knows = rf"{metric.name} knows {NUM_ITEMS} items, so ids must be below {NUM_ITEMS}, got {NUM_ITEMS} in row 1"
        columns = {"target_ids": good["target_ids"], "sample_ids": named["sample_ids"]}
        bad.append(({**named, "item_ids": torch.tensor(beyond)}, knows))
        for n in (NUM_ITEMS + 1, NUM_ITEMS - 1):  # point 12: a column is taken for an id
            of_others = rf"{metric.name} knows a catalogue of {NUM_ITEMS} items, but {n} are scored, .*`item_ids`"
            products = {"user_embeddings": torch.ones(2, 1), "item_embeddings": torch.ones(n, 1)}
            bad += [({"preds": torch.zeros(2, n), **columns}, of_others), ({**products, **columns}, of_others)]
            if not variant.needs_samples:
                with pytest.raises(ValueError, match=of_others):
                    metric.update(rank(torch.zeros(2, n), target_ids=good["target_ids"], top_k=1))
        if not variant.needs_samples:
            with pytest.raises(ValueError, match=knows):
                metric.update(rank(item_ids=torch.tensor(beyond), target_ids=good["target_ids"], top_k=1))
    if variant.needs_samples:
        bad += [
            (good, "`sample_ids` is missing: category_calibration@1"),
            ({**named, "sample_ids": torch.tensor([0, NUM_ROWS])}, f"{NUM_ROWS} profiles, .* got {NUM_ROWS} in row 1"),
            ({**named, "sample_ids": torch.tensor([-1, 3])}, "0 or more .* got -1 in row 0"),
        ]
    metric.update(**named)
    for given, words in bad:
        with refused(metric, words, ValueError):
            metric.update(**given)
    # What stands behind the cut is not looked at.
    metric.update(**{**named, "item_ids": torch.tensor([[0, 3], [1, NUM_ITEMS]])})


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"preds": torch.rand(1, 3), "target_ids": torch.tensor([[1]])}, "target"),
        ({"item_ids": torch.tensor([[1, 2]]), "target_ids": torch.tensor([[1]])}, "preds"),
    ],
)
def test_an_update_that_auc_cannot_read_changes_no_member(given: Update, missing: str) -> None:
    metrics = RecMetricCollection([NDCG(2), BinaryAUC()])
    metrics.update(torch.rand(2, 3), torch.tensor([[1, 0, 0], [0, 1, 0]]))
    with refused(metrics, f"`{missing}` is missing: auc needs preds, target"):
        metrics.update(**given)
    with refused(metrics, "`target` must hold 0 and 1 only, got 3 in row 1"):
        metrics.update(torch.rand(2, 3), torch.tensor([[1, 0, 0], [0, 3, 0]]))


class Interrupted(NDCG):
    """Whose ``forward`` somebody ends between the update and the value of the batch."""

    ends = False

    def sync(self, *args: Any, **kwargs: Any) -> None:
        if self.ends:
            raise KeyboardInterrupt
        super().sync(*args, **kwargs)


def test_users_who_wait_when_a_forward_ends_are_not_counted_with_the_next_ones() -> None:
    first, last = ({"preds": torch.rand(3, 5), "target_ids": torch.tensor(ids)} for ids in ([0, 1, 2], [4, 4, 4]))
    metric, other = Interrupted(2), NDCG(2)
    fed(metric, [first]).ends = True
    with pytest.raises(KeyboardInterrupt):
        metric(torch.eye(5), target_ids=torch.arange(5))
    metric.ends = False
    assert torch.equal(fed(metric, [last]).compute(), fed(other, [first, last]).compute())
