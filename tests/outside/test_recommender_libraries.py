"""The same numbers as RecTools, RecBole and recommenders, and the cause of each difference."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from torch_recmetrics import ILS, Coverage, Entropy, Gini, IntraListDiversity, RecMetricCollection

pytestmark = pytest.mark.filterwarnings("ignore")

N_USERS, N_ITEMS = 30, 40
CUTS = (2, 3, 10)
FEATURES = torch.randint(0, 3, (N_ITEMS, 5), generator=torch.Generator().manual_seed(1)).double()
FEATURES[:, 0] += 1  # recommenders divides by the length of every vector
# Some items are in many lists, some in none.
LISTS = torch.rand(N_USERS, N_ITEMS, generator=torch.Generator().manual_seed(2)).add(torch.linspace(0, 1, N_ITEMS))
LISTS = LISTS.topk(10).indices
SHOWN = {
    "user_id": [user for user in range(N_USERS) for _ in range(10)],
    "item_id": LISTS.flatten().tolist(),
    "rank": list(range(1, 11)) * N_USERS,
}


def ours(metrics: list[Any], lists: torch.Tensor = LISTS) -> dict[str, float]:
    collection = RecMetricCollection(metrics)
    collection.update(item_ids=lists)
    return {name: float(value) for name, value in collection.compute().items()}


def close(value: float) -> Any:
    return pytest.approx(value, abs=1e-12, rel=1e-12)


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
