"""Similarity within lists, worked by hand: vectors of any length, tables, functions, models; and what is refused."""

from __future__ import annotations

import copy
import functools
import math
import pickle
from typing import Any

import pytest
import torch
from fixtures.histories import of_lists, updated
from fixtures.refusals import refused
from torch.nn import CosineSimilarity, Embedding
from torchmetrics import MetricCollection

from torch_recmetrics import ILS, Coverage, IntraListDiversity, RecMetricCollection
from torch_recmetrics.functional import intra_list_similarity

EYE = torch.eye(4, dtype=torch.float64)
GENRES = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0]])
HALF = 1 / math.sqrt(2)


def test_ils() -> None:
    assert of_lists(ILS(GENRES, 2), [[0, 1, 2]]) == pytest.approx(HALF, abs=1e-7)
    assert of_lists(ILS(GENRES.double(), 3), [[0, 1, 2]]) == pytest.approx(2 * HALF / 6, abs=1e-15)
    assert of_lists(ILS(GENRES.double(), 3), [[0, 1, 3]]) == pytest.approx(2 * HALF / 6, abs=1e-15)  # a zero vector
    assert of_lists(IntraListDiversity(GENRES.double(), 2), [[0, 2], [0, 1]]) == pytest.approx((1 + 1 - HALF) / 2)
    assert (ILS.higher_is_better, IntraListDiversity.higher_is_better) == (False, True)
    assert of_lists(ILS(GENRES, 3, similarity="dot"), [[0, 1, 1 + 1]]) == 2 * 1 / 6
    assert of_lists(ILS(2 * GENRES, 2, similarity="dot"), [[0, 1]]) == 4
    table = torch.tensor([[0.0, 1.0, 3.0], [5.0, 0.0, 0.0], [7.0, 0.0, 0.0]])
    assert of_lists(ILS(similarity=table, top_k=3), [[0, 2, 1]]) == (1 + 3 + 5 + 7) / 6
    assert of_lists(ILS(similarity=table, top_k=2), [[0, 2, 1]]) == (3 + 7) / 2
    assert of_lists(ILS(similarity=lambda i, j: (i - 2 * j).double(), top_k=2), [[3, 1]]) == ((3 - 2) + (1 - 6)) / 2


def test_the_value_of_every_user() -> None:
    lists = torch.tensor([[0, 1], [0, 2], [3, -1], [-1, -1]])
    features = GENRES.double()
    values = intra_list_similarity(item_ids=lists, item_features=features, top_k=2)
    assert values.tolist() == pytest.approx([HALF, 0, math.nan, math.nan], abs=1e-15, nan_ok=True)
    scores = torch.tensor([[0.1, 0.9, 0.5, 0.5], [4, 3, 2, 1]])
    named = {"target_ids": torch.tensor([[-1], [0]]), "weights": torch.tensor([0.0, 1.0])}
    for given in ({}, named):
        found = intra_list_similarity(scores, similarity=features @ features.t(), top_k=2, **given)
        assert found.tolist() == [0, 1]


@pytest.mark.parametrize("options", [{"nan_action": "worst"}, {"ignore_index": -100}, {"min_relevance": 2}], ids=str)
def test_the_function_has_the_options_of_its_siblings(options: dict[str, Any]) -> None:
    scores = torch.tensor([[0.1, 0.9, 0.6, 0.5], [4, 3, 2, 1]])
    target = torch.tensor([[1, 3, 0, 0], [0, 0, 1, 2]])
    if "nan_action" in options:
        scores[0, 2] = math.nan
    if "ignore_index" in options:
        target[0, 1] = target[1, 0] = -100
    values = intra_list_similarity(scores, target=target, item_features=GENRES, top_k=2, **options)
    assert float(values.mean()) == float(updated(ILS(GENRES, 2, **options), scores, target).compute())


def test_rounding_leaves_the_cosine_within_its_range() -> None:
    vectors = torch.randn(200, 24, generator=torch.Generator().manual_seed(0))
    first = torch.arange(200)
    for side in (1, -1):
        pairs = torch.stack([first, first + 200], 1)
        values = intra_list_similarity(item_ids=pairs, item_features=torch.cat([vectors, side * vectors]), top_k=2)
        assert values.abs().max() == 1 and values.tolist() == pytest.approx([side] * 200, abs=1e-6)


def test_a_list_without_a_pair_has_no_value() -> None:
    lists = [[0, 1], [2, -1], [-1, -1]]
    for metric in (ILS(EYE, 2), ILS(similarity=EYE, top_k=2)):
        assert of_lists(metric, lists) == 0
        assert float(metric.state("sums")[0, 1]) == 1
        metric.reset()
        assert math.isnan(of_lists(metric, lists[1:]))
    assert math.isnan(of_lists(ILS(EYE, 1), lists))
    weights = torch.tensor([1.0, 3.0])
    assert of_lists(ILS(similarity=2 * EYE + 1, top_k=2), [[0, 1], [2, 3]], weights=weights) == 1


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30, 3e38])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_length_of_a_vector_does_not_matter_to_the_cosine(scale: float, dtype: torch.dtype) -> None:
    features = torch.tensor([[3, 4], [4, 3], [-4, 3]], dtype=dtype) / 4 * scale
    value = of_lists(ILS(features, 3), [[0, 1, 2]])
    assert value == pytest.approx(2 * (24 / 25 + 0 - 7 / 25) / 6, abs=1e-7 if dtype == torch.float32 else 1e-15)
    same = of_lists(ILS(features[[0, 0, 0]], 3), [[0, 1, 2]])
    assert same <= 1 and same == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_narrow_features_lose_nothing_but_their_own_digits(dtype: torch.dtype) -> None:
    features = torch.randn(50, 16, generator=torch.Generator().manual_seed(0)).to(dtype)
    lists = torch.rand(9, 50, generator=torch.Generator().manual_seed(1)).topk(20).indices.tolist()
    assert of_lists(ILS(features, 20), lists) == pytest.approx(of_lists(ILS(features.double(), 20), lists), abs=1e-7)


def test_a_module_as_similarity() -> None:
    vectors, cosine = Embedding.from_pretrained(EYE[:, :2] + 1), CosineSimilarity(dim=1)
    metric = ILS(similarity=lambda i, j: cosine(vectors(i), vectors(j)), top_k=3)
    lists = [[0, 1, 2], [3, 2, 0]]
    assert of_lists(metric, lists) == pytest.approx(of_lists(ILS(vectors.weight, 3), lists), abs=1e-12)


@pytest.mark.parametrize(
    ("function", "error", "why"),
    [
        (lambda i, j: i / 0, ValueError, "`similarity` must give finite numbers"),
        (lambda i, j: i * j, TypeError, "`similarity` must be floating point"),
        (lambda i, j: (i / 2)[1:], ValueError, "must have the shape"),
        (lambda i, j: 1.0, TypeError, "`similarity` must be a tensor"),
    ],
)
def test_functions_that_give_no_similarities(function: Any, error: type[Exception], why: str) -> None:
    metric = ILS(similarity=function, top_k=2)
    with refused(metric, why, error):
        metric.update(item_ids=torch.tensor([[0, 1]]))


def test_what_the_user_holds_is_copied() -> None:
    features, table, ids = EYE.clone() + 1, EYE.clone() + 1, torch.tensor([[0, 1]])
    metrics = [ILS(features, 2), ILS(similarity=table, top_k=2), Coverage(4, 2)]
    values = []
    for metric in metrics:
        metric.update(item_ids=ids)
        values.append(float(metric.compute()))
    ids.fill_(3), features.fill_(0), table.fill_(0)
    for metric, value in zip(metrics, values, strict=True):
        assert float(metric.compute()) == value
        metric.update(item_ids=torch.tensor([[0, 1]]))
        assert float(metric.compute()) == value


def scaled(first: torch.Tensor, second: torch.Tensor, *, by: float) -> torch.Tensor:
    return by * ((first + second) > 3).double()


def made(by: float):
    return lambda first, second: scaled(first, second, by=by)


@pytest.mark.parametrize("make", [made, lambda by: functools.partial(scaled, by=by)])
@pytest.mark.parametrize("collection", [MetricCollection, RecMetricCollection])
def test_functions_of_one_name_are_different_metrics(make, collection) -> None:
    one, five = make(1.0), make(5.0)
    metrics = collection({"a": ILS(similarity=one, top_k=2), "b": ILS(similarity=five, top_k=2)})
    for ids in ([[0, 1]], [[3, 4]]):
        metrics.update(item_ids=torch.tensor(ids))
    assert {name: value.item() for name, value in metrics.compute().items()} == {"a": 0.5, "b": 2.5}
    with pytest.raises(ValueError, match="only metrics of the same options merge"):
        metrics["a"].merge_state(metrics["b"])
    again = updated(ILS(similarity=one, top_k=2), item_ids=torch.tensor([[3, 4]]))
    again.merge_state(metrics["a"])
    assert again.compute().item() == pytest.approx(2 / 3)


def test_functions_of_one_name_are_numbered_from_the_second_on() -> None:
    def alike(by: float) -> Any:
        return lambda first, second: by * (first + second).double()

    one, two = alike(1.0), alike(2.0)
    first, *others = (ILS(similarity=function).similarity for function in (one, two, one))
    assert others == [f"{first}#2", first]


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.items = torch.nn.Embedding(5, 2)

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return (self.items(first) * self.items(second)).sum(1)


def test_a_model_as_similarity_stays_the_users() -> None:
    net = Net()
    metric = ILS(similarity=net, top_k=2)
    assert not list(metric.parameters())
    assert not metric.state_dict()
    assert copy.deepcopy(metric).function_of_pairs.given is net
    copied = updated(pickle.loads(pickle.dumps(metric)), item_ids=torch.tensor([[0, 1]]))
    metric.update(item_ids=torch.tensor([[0, 1]]))
    assert metric.compute() == copied.compute()


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (torch.tensor([[1e4], [1e-4]]), 1.0),
        (torch.tensor([[5000.0], [0.001]]), 5.0),
        (torch.tensor([[2**24 + 1], [1]]), 2.0**24 + 1),
        (torch.tensor([[3e140], [1.0]], dtype=torch.float64), None),
    ],
)
def test_products_of_vectors_of_very_different_length(features: torch.Tensor, expected: float | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match='`item_features` must be at most 1e\\+140 in size for similarity="dot"'):
            ILS(features, 2, similarity="dot")
        return
    metric = updated(ILS(features, 2, similarity="dot"), item_ids=torch.tensor([[0, 1]]))
    assert metric.compute().item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("arguments", [{"similarity": torch.zeros(0, 0)}, {"item_features": torch.zeros(0, 2)}])
def test_no_items_at_all_are_refused(arguments) -> None:
    for metric in (ILS, IntraListDiversity):
        with pytest.raises(ValueError, match="must have at least one"):
            metric(**arguments)


def test_point_12_the_function_refuses_items_that_it_knows_nothing_of() -> None:
    features = torch.rand(3, 2)
    with pytest.raises(ValueError, match=r"knows 3 items, .* got 7 in row 0"):
        intra_list_similarity(item_ids=torch.tensor([[0, 7]]), item_features=features)
    with pytest.raises(ValueError, match="knows a catalogue of 3 items, but 2 are scored"):
        intra_list_similarity(torch.rand(1, 2), item_features=features)
