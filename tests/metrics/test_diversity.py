"""Numbers worked by hand for metrics of pairs and of whole catalogues, and the input that they refuse."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import CosineSimilarity, Embedding

from torch_recmetrics import (
    ILS,
    MRR,
    NDCG,
    Coverage,
    Entropy,
    Gini,
    IntraListDiversity,
    Personalization,
    RecMetricCollection,
    UserCoverage,
)
from torch_recmetrics.core.tensors.fingerprint import fingerprint
from torch_recmetrics.functional import intra_list_similarity
from torch_recmetrics.state import item_counts as counts
from torch_recmetrics.state.item_counts import CountOverItems

EYE = torch.eye(4, dtype=torch.float64)
GENRES = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0]])
HALF = 1 / math.sqrt(2)


def of_lists(metric: Any, lists: list[list[int]], **named: Any) -> float:
    metric.update(item_ids=torch.tensor(lists), **named)
    return float(metric.compute())


def test_ils() -> None:
    assert of_lists(ILS(GENRES, 2), [[0, 1, 2]]) == pytest.approx(HALF, abs=1e-7)
    assert of_lists(ILS(GENRES.double(), 3), [[0, 1, 2]]) == pytest.approx(2 * HALF / 6, abs=1e-15)
    assert of_lists(ILS(GENRES.double(), 3), [[0, 1, 3]]) == pytest.approx(2 * HALF / 6, abs=1e-15)  # a zero vector
    assert of_lists(IntraListDiversity(GENRES.double(), 2), [[0, 2], [0, 1]]) == pytest.approx((1 + 1 - HALF) / 2)
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


def test_counts() -> None:
    lists = [[0, 1, 3], [1, 0, 2], [0, 4, -1]]
    assert of_lists(Coverage(10, 2), lists) == 3 / 10
    assert of_lists(Coverage(10, 3), lists) == 5 / 10
    # 3 items with 0, 1 with 1, 2 with 2 and 3 lists: (-4 * 0 - 2 * 0 + 0 * 1 + 2 * 2 + 4 * 3) / (5 * 6)
    assert of_lists(Gini(5, 2), lists) == (2 * 2 + 4 * 3) / (5 * 6)
    assert of_lists(Gini(4, 1), [[2], [2]]) == 3 / 4
    assert of_lists(Gini(4, 2), [[0, 1], [2, 3]]) == 0
    assert of_lists(Entropy(4, 2), [[0, 1], [2, 3]]) == 2
    assert of_lists(Entropy(9, 1, base=10), [[0], [0], [1], [1]]) == pytest.approx(math.log10(2), abs=1e-15)
    assert of_lists(Entropy(8, 1, normalized=True), [[0], [1]]) == pytest.approx(1 / 3, abs=1e-15)
    # Overlaps of two places: {0, 1} and {1, 0}: 1; {0, 1} and {0, 4}: 1/2, twice.
    assert of_lists(Personalization(5, 2), lists) == pytest.approx(1 - (1 + 1 / 2 + 1 / 2) / 3, abs=1e-15)
    assert of_lists(Personalization(2, 10), [[0, 1], [1, 0]]) == 0
    assert of_lists(Personalization(5, 2), [[0, -1], [0, 1], [-1, -1]]) == 1 - 1 / 2
    assert of_lists(UserCoverage(3, min_items=3), lists) == 2 / 3
    assert of_lists(UserCoverage(3), [[-1, -1], [0, -1]], weights=torch.tensor([3.0, 1.0])) == 1 / 4


def test_nothing_recommended() -> None:
    nothing = [[-1, -1], [-1, -1]]
    assert of_lists(Coverage(5), nothing) == 0
    assert of_lists(UserCoverage(2), nothing) == 0
    for metric in (Gini(5), Entropy(5), Personalization(5)):
        assert math.isnan(of_lists(metric, nothing))
    assert math.isnan(of_lists(Personalization(5), [[0, 1]]))


def test_weights_leave_users_out_and_do_nothing_else_to_counts() -> None:
    weights = torch.tensor([0.0, 0.25, 7.0])
    lists = [[0], [1], [1]]
    assert of_lists(Coverage(4, 1), lists, weights=weights) == 1 / 4
    assert of_lists(Personalization(4, 1), lists, weights=weights) == 0


def test_equal_scores_keep_the_order_of_the_items() -> None:
    metrics = RecMetricCollection([ILS(EYE, 2), Coverage(4, 2), UserCoverage(2), MRR(), NDCG(2)])
    preds = torch.tensor([[1.0, 1, 1, 1], [2.0, 1, 2, 1]])
    metrics.update(preds, target_ids=torch.tensor([[3], [0]]), seen_ids=torch.tensor([[-1, -1], [0, 0]]))
    table = {name: float(value) for name, value in metrics.compute().items()}
    assert table["coverage@2"] == 3 / 4  # items 0 and 1; items 2 and 1
    assert table["ils@2"] == 0
    assert table["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4 / 2)


def test_functions_of_one_name_are_told_apart_in_a_collection() -> None:
    def constant(value: float) -> Any:
        return lambda i, j: torch.full(i.shape, value)

    metrics = RecMetricCollection({f"{v}": ILS(similarity=constant(float(v)), top_k=2) for v in (1, 2)})
    metrics.update(item_ids=torch.tensor([[0, 1]]))
    assert {name: float(value) for name, value in metrics.compute().items()} == {"1": 1, "2": 2}


def test_lists_wait_until_counting_them_is_worth_a_pass_over_the_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "WAITING_IDS", 6)
    metric = Coverage(5, 2)
    for rows, waiting in ((1, 1), (1, 2), (1, 0), (4, 0), (2, 1)):
        metric.update(item_ids=torch.tensor([[0, 1]] * rows))
        assert len(metric.state("lists")) == waiting
    assert metric.state("counts").tolist() == [7, 7, 0, 0, 0, 7]
    assert metric._defaults[metric.state_name("counts")].sum() == 0


def test_a_catalogue_of_ten_million_items() -> None:
    """An update costs what its lists cost."""
    n = 10_000_000
    lists = torch.arange(50).view(5, 10) * 199_999
    metric = Gini(n, 10)
    for _ in range(3):
        metric.update(item_ids=lists)
    assert not metric.state("counts").any()  # not written yet
    assert sum(some.numel() for some in metric.state("lists")) == 150
    assert float(metric.compute()) == pytest.approx(1 - 50 / n, abs=1e-12)


@pytest.mark.parametrize("metric", [ILS(EYE, 2), ILS(similarity=EYE, top_k=2), Coverage(4, 2), Gini(4, 2)])
def test_items_that_are_not_known_are_refused(metric: Any) -> None:
    known, beyond = torch.tensor([[0, 1], [2, 3]]), torch.tensor([[0, 1], [3, 4]])
    metric.update(item_ids=known)
    before = dict(metric.metric_state)
    for update in ({"item_ids": beyond}, {"item_ids": beyond, "sample_ids": torch.tensor([1, 2])}):
        with pytest.raises(ValueError, match=rf"{metric.name} knows 4 items, so ids must be below 4, got 4 in row 1"):
            metric.update(**update)
    with pytest.raises(ValueError, match=rf"`preds` has scores of 5 items, but {metric.name} knows 4"):
        metric.update(torch.zeros(1, 5))
    with pytest.raises(ValueError, match=r"looks at item ids, which flat rows \(`indexes`\) do not carry"):
        metric.update(torch.zeros(2), torch.ones(2), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="must not hold an id twice"):
        metric.update(item_ids=torch.tensor([[1, 1]]))
    with pytest.raises(ValueError, match="is missing"):
        metric.update(weights=torch.ones(2))
    assert metric.update_count == 1
    for name, value in metric.metric_state.items():
        assert value is before[name] or all(a is b for a, b in zip(value, before[name], strict=True))
    metric.update(item_ids=torch.tensor([[0, 1, 9]]))  # beyond the cut-off nothing is looked at


@pytest.mark.parametrize(
    ("make", "error", "why"),
    [
        (lambda: ILS(), ValueError, "`item_features` must be given for similarity='cosine'"),
        (lambda: ILS(EYE[0]), ValueError, "`item_features` must have 2 dimensions"),
        (lambda: ILS(EYE[:, :0]), ValueError, "`item_features` must have at least one column"),
        (lambda: ILS([[1.0]]), TypeError, "`item_features` must be a tensor, got list"),
        (lambda: ILS(EYE / 0), ValueError, "`item_features` must be finite, row 0 is not"),
        (lambda: ILS(EYE * 1j), TypeError, "`item_features` must be bool, integer or floating point"),
        (lambda: ILS(EYE, similarity="euclid"), ValueError, "`similarity` must be one of 'cosine', 'dot'"),
        (lambda: ILS(EYE, similarity=EYE), ValueError, "must not be given together"),
        (lambda: ILS(similarity=EYE[:2]), ValueError, r"`similarity` must have the shape \(2, 2\)"),
        (lambda: ILS(similarity=EYE.log()), ValueError, "`similarity` must be finite, row 0 is not"),
        (lambda: ILS(similarity=3), TypeError, "`similarity` must be one of .* a tensor or a function, got int"),
        (lambda: ILS(EYE, 0), ValueError, "`top_k` must be an integer >= 1"),
        (lambda: ILS(EYE, ties="average"), TypeError, "ILS has no option `ties`"),
        (lambda: UserCoverage(empty_target_action="neg"), TypeError, "has no option `empty_target_action`"),
        (lambda: UserCoverage(2, min_items=3), ValueError, "`min_items` must be at most `top_k`, 2, got 3"),
        (lambda: UserCoverage(2, min_items=0), ValueError, "`min_items` must be an integer >= 1, got 0"),
        (lambda: Coverage(0), ValueError, "`num_items` must be an integer >= 1, got 0"),
        (lambda: Coverage(2.5), ValueError, "`num_items` must be an integer >= 1, got 2.5"),
        (lambda: Coverage(5, None), ValueError, "`top_k` must be an integer >= 1, got None"),
        (lambda: Entropy(5, base=1), ValueError, "`base` must be a number above 1, got 1"),
        (lambda: Entropy(1, normalized=True), ValueError, "`num_items` must be 2 or more"),
    ],
)
def test_options_that_are_refused(make: Any, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        make()


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
    with pytest.raises(error, match=why):
        metric.update(item_ids=torch.tensor([[0, 1]]))
    assert metric.update_count == 0


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


def test_digests_tell_contents_dtypes_and_shapes_apart() -> None:
    base = torch.arange(12.0).view(3, 4)
    others = [
        *(base.view(4, 3), base.double(), base.int(), base.flip(0), base[:, [1, 0, 2, 3]], base[:2], -base),
        *(
            base + torch.tensor([2.0, -2.0, 0, 0]),
            base.half(),
            torch.zeros(0),
            torch.zeros(1),
            torch.zeros(2),
            base.bool(),
        ),
    ]
    words = [fingerprint(tensor) for tensor in (base, *others)]
    assert len(set(words)) == len(words)
    assert fingerprint(base.t().contiguous().t()) == words[0]
    long = torch.arange(1 << 21)
    swapped = long.clone()
    swapped[[5, -5]] = long[[-5, 5]]
    assert fingerprint(long) == fingerprint(long.clone()) != fingerprint(swapped)


def test_what_a_definition_says() -> None:
    assert Entropy(5, 3, normalized=True).definition() == "Entropy(top_k=3, num_items=5, normalized=True)"
    assert [m.name for m in (ILS(EYE, 5), IntraListDiversity(EYE), Personalization(4, 2), ILS(EYE, None))] == [
        *("ils@5", "intra_list_diversity@10", "personalization@2", "ils"),
    ]
    said = ILS(EYE, 5).definition()
    assert said == f"ILS(top_k=5, similarity='cosine', items=4, data='{fingerprint(EYE)}')"
    assert issubclass(Coverage, CountOverItems)
