"""The same numbers as RecTools, RecBole and recommenders, and the cause of each difference."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from fixtures.histories import floats, updated
from outside.problem import close

from torch_recmetrics import (
    ILS,
    Coverage,
    Entropy,
    Gini,
    IntraListDiversity,
    Novelty,
    Popularity,
    RecMetricCollection,
    Serendipity,
    TailShare,
)

pytestmark = pytest.mark.filterwarnings("ignore")

N_USERS, N_ITEMS = 30, 40
CUTS = (2, 3, 10)
VALUE_CUTS = (1, 3, 10)
FEATURES = torch.randint(0, 3, (N_ITEMS, 5), generator=torch.Generator().manual_seed(1)).double()
FEATURES[:, 0] += 1  # recommenders divides by the length of every vector
# Some items are in many lists, some in none.
LISTS = torch.rand(N_USERS, N_ITEMS, generator=torch.Generator().manual_seed(2)).add(torch.linspace(0, 1, N_ITEMS))
LISTS = LISTS.topk(10).indices


def shown_to(lists: torch.Tensor) -> dict[str, list[int]]:
    return {
        "user_id": [user for user in range(N_USERS) for _ in range(10)],
        "item_id": lists.flatten().tolist(),
        "rank": list(range(1, 11)) * N_USERS,
    }


SHOWN = shown_to(LISTS)


def ours(metrics: list[Any], lists: torch.Tensor = LISTS, **wanted: torch.Tensor) -> dict[str, float]:
    collection = updated(RecMetricCollection(metrics), item_ids=lists, **wanted)
    return floats(collection.compute())


def differing(i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
    """The number of features in which two items differ."""
    return (FEATURES[i] != FEATURES[j]).sum(1).double()


def test_rectools() -> None:
    """A list of one item has diversity 0 there; here it has none and is left out."""
    rectools = pytest.importorskip("rectools.metrics", exc_type=ImportError)
    distances = pytest.importorskip("rectools.metrics.distances", exc_type=ImportError)
    pandas = pytest.importorskip("pandas")
    shown = pandas.DataFrame(SHOWN)
    table = pandas.DataFrame(FEATURES.int().numpy(), index=pandas.Index(range(N_ITEMS), name="item_id"))
    calculator = distances.PairwiseHammingDistanceCalculator(table)
    values = ours([*(ILS(similarity=differing, top_k=k) for k in CUTS), *(Coverage(N_ITEMS, k) for k in CUTS)])
    for k in CUTS:
        assert values[f"ils@{k}"] == close(rectools.IntraListDiversity(k, calculator).calc(shown))
        theirs = rectools.CatalogCoverage(k, normalize=True).calc(shown, range(N_ITEMS))
        assert values[f"coverage@{k}"] == close(theirs)
    assert rectools.IntraListDiversity(1, calculator).calc(shown) == 0
    assert math.isnan(ours([IntraListDiversity(FEATURES, 1)])["intra_list_diversity@1"])


def test_recbole() -> None:
    """Its entropy is in nats and divided by the number of items that are recommended at all."""
    recbole = pytest.importorskip("recbole.evaluator.metrics", exc_type=ImportError)
    config = {"topk": CUTS, "metric_decimal_place": 12}
    coverage, gini, entropy = recbole.ItemCoverage(config), recbole.GiniIndex(config), recbole.ShannonEntropy(config)
    metrics = [m for k in CUTS for m in (Coverage(N_ITEMS, k), Gini(N_ITEMS, k), Entropy(N_ITEMS, k, base=math.e))]
    values = ours(metrics)
    for k in CUTS:
        shown = LISTS[:, :k].numpy()
        assert values[f"coverage@{k}"] == close(coverage.get_coverage(shown, N_ITEMS))
        assert values[f"gini@{k}"] == close(gini.get_gini(shown, N_ITEMS))
        recommended = LISTS[:, :k].unique().numel()
        assert values[f"entropy@{k}"] / recommended == close(entropy.get_entropy(shown))


def test_recommenders() -> None:
    """Its catalogue is of the items of the training data; its entropy is called distributional coverage. Its own means
    do not run with every pandas."""
    theirs = pytest.importorskip("recommenders.evaluation.python_evaluation", exc_type=ImportError)
    pandas = pytest.importorskip("pandas")
    shown = pandas.DataFrame(SHOWN).rename(columns={"user_id": "userID", "item_id": "itemID"})[["userID", "itemID"]]
    table = pandas.DataFrame({"itemID": range(N_ITEMS), "features": list(FEATURES.numpy())})
    training = pandas.DataFrame({"userID": -1, "itemID": range(N_ITEMS)})
    named = {"item_feature_df": table, "item_sim_measure": "item_feature_vector"}
    values = ours([IntraListDiversity(FEATURES, 10), Coverage(N_ITEMS, 10), Entropy(N_ITEMS, 10)])
    assert values["intra_list_diversity@10"] == close(
        theirs.user_diversity(training, shown, **named)["user_diversity"].mean()
    )
    assert values["coverage@10"] == close(theirs.catalog_coverage(training, shown))
    try:
        bits = theirs.distributional_coverage(training, shown)
    except KeyError:
        return
    assert values["entropy@10"] == close(bits)


# What is known of the items


class Evaluation:
    """What users met before, what they met afterwards, and what they were shown: (user, item) pairs and lists."""

    def __init__(self) -> None:
        g = torch.Generator().manual_seed(4)
        rare = torch.arange(N_ITEMS) / N_ITEMS
        # The last items were met by nobody, all others by somebody.
        self.before = torch.rand(N_USERS, N_ITEMS, generator=g) > rare.clamp(max=0.93) ** 0.5
        self.before[:, -4:] = False
        self.before[torch.arange(N_ITEMS - 4) % N_USERS, torch.arange(N_ITEMS - 4)] = True
        self.after = torch.rand(N_USERS, N_ITEMS, generator=g) < 0.25
        self.after[:, 0] |= ~self.after.any(1)
        # Nobody is shown what was met before.
        self.lists = (torch.rand(N_USERS, N_ITEMS, generator=g) - self.before.float()).topk(10).indices
        self.counts = self.before.sum(0)

    def pairs(self, table: torch.Tensor) -> dict[str, list[int]]:
        users, items = table.nonzero().T.tolist()
        return {"user_id": users, "item_id": items}

    def shown(self) -> dict[str, list[int]]:
        return shown_to(self.lists)

    def ours(self, metrics: list[Any]) -> dict[str, float]:
        return ours(metrics, self.lists, target_ids=torch.where(self.after, torch.arange(N_ITEMS), -1))


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    return Evaluation()


def test_rectools_values(evaluation: Evaluation) -> None:
    rectools = pytest.importorskip("rectools.metrics", exc_type=ImportError)
    pandas = pytest.importorskip("pandas")
    before, after, shown = (
        pandas.DataFrame(rows)
        for rows in (evaluation.pairs(evaluation.before), evaluation.pairs(evaluation.after), evaluation.shown())
    )
    counts = evaluation.counts
    ours = evaluation.ours(
        [
            *(Novelty(counts, N_USERS, k) for k in VALUE_CUTS),
            *(Popularity(counts, k) for k in VALUE_CUTS),
            *(Serendipity(counts, k, expected="rank") for k in VALUE_CUTS),
        ]
    )
    shares = evaluation.ours([Popularity(counts, k, normalized=True) for k in VALUE_CUTS])
    assert before["user_id"].nunique() == N_USERS
    for k in VALUE_CUTS:
        assert ours[f"novelty@{k}"] == close(rectools.MeanInvUserFreq(k).calc(shown, before))
        assert ours[f"popularity@{k}"] == close(rectools.AvgRecPopularity(k).calc(shown, before))
        assert shares[f"popularity@{k}"] == close(rectools.AvgRecPopularity(k, normalize=True).calc(shown, before))
        theirs = rectools.Serendipity(k).calc(shown, after, before, catalog=range(N_ITEMS))
        assert ours[f"serendipity@{k}"] == close(theirs)


def test_recbole_values(evaluation: Evaluation) -> None:
    """Its catalogue is of the items that were met in training, and equal counts are cut apart by item id."""
    recbole = pytest.importorskip("recbole.evaluator.metrics", exc_type=ImportError)
    counts = evaluation.counts
    met = {item: count for item, count in enumerate(counts.tolist()) if count}
    shown = evaluation.lists.numpy()
    popularity = recbole.AveragePopularity({"topk": VALUE_CUTS, "metric_decimal_place": 12})
    by_rank = popularity.metric_info(popularity.get_pop(shown, met)).mean(0)
    ours = evaluation.ours([Popularity(counts, k) for k in VALUE_CUTS])
    for k in VALUE_CUTS:
        assert ours[f"popularity@{k}"] == close(by_rank[k - 1])

    distinct = torch.arange(N_ITEMS).flip(0) ** 2 + 1
    ours = evaluation.ours([TailShare(distinct, k, tail=0.25) for k in VALUE_CUTS])
    tail = recbole.TailPercentage({"topk": VALUE_CUTS, "metric_decimal_place": 12, "tail_ratio": 0.25})
    by_rank = tail.metric_info(tail.get_tail(shown, dict(enumerate(distinct.tolist())))).mean(0)
    for k in VALUE_CUTS:
        assert ours[f"tail_share@{k}"] == close(by_rank[k - 1])
    tied = torch.ones(N_ITEMS, dtype=torch.int64)
    assert evaluation.ours([TailShare(tied, 10, tail=0.25)])["tail_share@10"] == 1
    assert tail.metric_info(tail.get_tail(shown, dict(enumerate(tied.tolist())))).mean(0)[-1] < 1


def test_recommenders_values(evaluation: Evaluation) -> None:
    """It has no value for an item that nobody met, and its mean over a list then adds nothing for it; ours counts such
    an item as met once. Its own mean over the lists does not run with every pandas, so it is taken here."""
    theirs = pytest.importorskip("recommenders.evaluation.python_evaluation", exc_type=ImportError)
    pandas = pytest.importorskip("pandas")
    before, shown = (
        pandas.DataFrame(rows).rename(columns={"user_id": "userID", "item_id": "itemID"})
        for rows in (evaluation.pairs(evaluation.before), evaluation.shown())
    )
    values = theirs.historical_item_novelty(before, shown[["userID", "itemID"]]).set_index("itemID")["item_novelty"]
    counts = evaluation.counts
    unmet = (counts == 0)[evaluation.lists] * torch.log2(counts.sum().double())
    for k in VALUE_CUTS:
        ours = evaluation.ours([Novelty(counts, top_k=k, kind="self_information")])[f"novelty@{k}"]
        items = shown[shown["rank"] <= k]["itemID"]
        assert ours - float(unmet[:, :k].mean()) == close(items.map(values).fillna(0).mean())
    assert unmet.any()
