"""Bad input: an error that names the argument, the rule, what came and the row; the metric stays as it was."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from fixtures.histories import updated
from fixtures.refusals import refused
from fixtures.variants import DEFAULTS

import torch_recmetrics

NAN, INF = float("nan"), float("inf")
PREDS = torch.tensor([[0.3, 0.2, 0.1], [0.6, 0.5, 0.4]])
TARGET = torch.tensor([[0, 1, 0], [1, 0, 1]])
IDS = torch.tensor([[1, -1], [0, 2]])
DENSE = {"preds": PREDS, "target": TARGET}
BY_ID = {"preds": PREDS, "target_ids": IDS}
LISTS = {"item_ids": torch.tensor([[2, 1, -1], [0, 1, 2]]), "target_ids": IDS}
CANDIDATES = {**LISTS, "preds": PREDS}
FLAT = {
    "preds": torch.tensor([0.3, 0.2, 0.1, 0.6]),
    "target": torch.tensor([0, 1, 0, 1]),
    "indexes": torch.tensor([4, 4, 9, 9]),
}
LONG_FLAT = {"preds": PREDS.flatten(), "target": TARGET.flatten(), "indexes": torch.tensor([4, 4, 4, 9, 9, 9])}


@dataclass(frozen=True)
class Bad:
    """An update, and what its refusal must say."""

    label: str
    update: dict[str, Any]
    says: tuple[str, ...]
    of_values: bool = True

    def __str__(self) -> str:
        return self.label


def but(update: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**update, **{name: torch.tensor(v) if isinstance(v, list) else v for name, v in changes.items()}}


def form(label: str, update: dict[str, Any], *says: str) -> Bad:
    return Bad(label, update, says, of_values=False)


BAD = [
    # values
    Bad("NaN score", but(DENSE, preds=[[0.3, 0.2, 0.1], [0.6, NAN, 0.4]]), ("preds", "NaN", "row 1")),
    Bad("NaN score by ids", but(BY_ID, preds=[[0.3, NAN, 0.1], [0.6, 0.5, 0.4]]), ("preds", "NaN", "row 0")),
    Bad("NaN score in flat rows", but(FLAT, preds=[0.3, 0.2, NAN, 0.6]), ("preds", "NaN", "row 2")),
    Bad("only NaN", but(DENSE, preds=[[NAN] * 3] * 2), ("preds", "NaN", "row 0")),
    Bad("half NaN", but(DENSE, preds=torch.tensor([[1.0, 2, 3], [1, 2, NAN]]).half()), ("preds", "NaN", "row 1")),
    Bad("negative relevance", but(DENSE, target=[[0, 1, 0], [1, -2, 1]]), ("target", ">= 0", "-2", "row 1")),
    Bad("negative relevance, float", but(DENSE, target=[[0.0, 1, 0], [1, 0, -0.5]]), ("target", "-0.5", "row 1")),
    Bad("negative relevance in flat rows", but(FLAT, target=[0, 1, -3, 1]), ("target", "-3", "row 2")),
    Bad("NaN relevance", but(DENSE, target=[[0, NAN, 0], [1, 0, 1]]), ("target", "row 0")),
    Bad("infinite relevance", but(DENSE, target=[[0, 1, 0], [INF, 0, 1]]), ("target", "inf", "row 1")),
    Bad(
        "negative target_relevance",
        but(BY_ID, target_relevance=[[1.0, 0], [2, -1]]),
        ("target_relevance", "-1", "row 1"),
    ),
    Bad("negative weight", but(DENSE, weights=[1.0, -2.0]), ("weights", ">= 0", "-2", "row 1")),
    Bad("NaN weight", but(DENSE, weights=[NAN, 1.0]), ("weights", "row 0")),
    Bad("infinite weight", but(DENSE, weights=[1.0, INF]), ("weights", "inf", "row 1")),
    Bad("negative weight by lists", but(LISTS, weights=[1.0, -2.0]), ("weights", "-2", "row 1")),
    Bad("negative weight in flat rows", but(FLAT, weights=[1.0, 1.0, -2.0, -2.0]), ("weights", "-2", "row 2")),
    Bad("target id beyond the items", but(BY_ID, target_ids=[[1, -1], [0, 3]]), ("target_ids", "3", "row 1")),
    Bad("target id below -1", but(BY_ID, target_ids=[[1, -2], [0, 2]]), ("target_ids", "-2", "row 0")),
    Bad("target id below -1 by lists", but(LISTS, target_ids=[[1, -2], [0, 2]]), ("target_ids", "-2", "row 0")),
    Bad("target id twice", but(BY_ID, target_ids=[[1, -1], [2, 2]]), ("target_ids", "twice", "2", "row 1")),
    Bad("target id twice, apart", but(BY_ID, target_ids=[[0, 1, 0], [2, 1, 0]]), ("target_ids", "twice", "0", "row 0")),
    Bad("target id twice by lists", but(LISTS, target_ids=[[1, 1], [0, 2]]), ("target_ids", "twice", "1", "row 0")),
    Bad("listed item twice", but(LISTS, item_ids=[[2, 1, -1], [0, 1, 0]]), ("item_ids", "twice", "0", "row 1")),
    Bad("listed item below -1", but(LISTS, item_ids=[[2, 1, -5], [0, 1, 2]]), ("item_ids", "-5", "row 0")),
    Bad("candidate twice", but(CANDIDATES, item_ids=[[2, 1, 0], [7, 5, 7]]), ("item_ids", "twice", "7", "row 1")),
    Bad("shared candidate twice", but(CANDIDATES, item_ids=[4, 9, 4]), ("item_ids", "twice", "4")),
    Bad("candidate below -1", but(CANDIDATES, item_ids=[[2, 1, 0], [7, -5, 6]]), ("item_ids", "-5", "row 1")),
    Bad(
        "NaN score of a candidate", but(CANDIDATES, preds=[[0.3, 0.2, NAN], [0.6, NAN, 0.4]]), ("preds", "NaN", "row 1")
    ),
    Bad("target id twice by candidates", but(CANDIDATES, target_ids=[[1, 2], [9, 9]]), ("target_ids", "9", "row 1")),
    Bad("seen id below -1 by candidates", but(CANDIDATES, seen_ids=[[0], [-3]]), ("seen_ids", "-3", "row 1")),
    Bad("negative weight by candidates", but(CANDIDATES, weights=[1.0, -2.0]), ("weights", "-2", "row 1")),
    Bad("seen id beyond the items", but(DENSE, seen_ids=[[0], [7]]), ("seen_ids", "7", "row 1")),
    Bad("seen id below -1", but(DENSE, seen_ids=[[0], [-3]]), ("seen_ids", "-3", "row 1")),
    Bad("seen id below -1 by lists", but(LISTS, seen_ids=[[0], [-3]]), ("seen_ids", "-3", "row 1")),
    # form
    form("no argument", {}, "preds"),
    form("scores alone", {"preds": PREDS}, "target"),
    form("lists alone", {"item_ids": LISTS["item_ids"]}, "target_ids"),
    form("truth alone", {"target_ids": IDS}, "preds"),
    form("two truths", but(DENSE, target_ids=IDS), "target", "target_ids"),
    form("relevance of candidates", but(CANDIDATES, target=TARGET), "target", "target_ids"),
    form("mask beside candidates", but(CANDIDATES, mask=[[True, False, True]] * 2), "mask", "item_ids", "-1"),
    form("shape of candidates", but(CANDIDATES, preds=PREDS[:, :2]), "item_ids", "(2, 3)", "(2, 2)", "(2,)"),
    form("number of shared candidates", but(CANDIDATES, item_ids=[7, 8]), "item_ids", "(2, 3)", "(2,)"),
    form("float candidates", but(CANDIDATES, item_ids=[0.0, 1.0, 2.0]), "item_ids", "float32"),
    form("relevance of no ids", but(DENSE, target_relevance=[[1.0, 0], [2, 1]]), "target_relevance", "target_ids"),
    form(
        "relevance of no ids by lists",
        {"item_ids": LISTS["item_ids"], "target_relevance": TARGET},
        "target_relevance",
        "target_ids",
    ),
    form("other number of users", but(DENSE, target=TARGET[:1]), "target", "(1, 3)", "(2, 3)"),
    form("other number of items", but(DENSE, target=TARGET[:, :2]), "target", "(2, 2)", "(2, 3)"),
    form("one user without a batch", {"preds": PREDS[0], "target": TARGET[0]}, "preds", "(3,)"),
    form("three dimensions", {"preds": PREDS[None], "target": TARGET[None]}, "preds", "(1, 2, 3)"),
    form("rows of target_ids", but(BY_ID, target_ids=IDS[:1]), "target_ids", "(1, 2)", "2"),
    form("target_ids without rows", but(BY_ID, target_ids=[0, 2, 1]), "target_ids", "(3,)", "2"),
    form("rows of target_ids by lists", but(LISTS, target_ids=IDS[:1]), "target_ids", "(1, 2)", "2"),
    form("item_ids without rows", but(LISTS, item_ids=IDS[0]), "item_ids", "(2,)"),
    form(
        "shape of target_relevance", but(BY_ID, target_relevance=[[1.0], [2.0]]), "target_relevance", "(2, 1)", "(2, 2)"
    ),
    form("shape of mask", but(DENSE, mask=[[True, False], [True, True]]), "mask", "(2, 2)", "(2, 3)"),
    form("rows of seen_ids", but(DENSE, seen_ids=[[0]]), "seen_ids", "(1, 1)", "2"),
    form("seen_ids without rows", but(DENSE, seen_ids=[0, 1]), "seen_ids", "(2,)"),
    form("shape of weights", but(DENSE, weights=[1.0, 2.0, 3.0]), "weights", "(3,)", "2"),
    form("weights per item", but(DENSE, weights=[[1.0, 2.0, 3.0]] * 2), "weights", "(2, 3)"),
    form("shape of sample_ids", but(DENSE, sample_ids=[1, 2, 3]), "sample_ids", "(3,)", "2"),
    form("length of indexes", but(FLAT, indexes=[1, 2]), "indexes", "(2,)", "4"),
    form("length of flat target", but(FLAT, target=[1, 0]), "target", "(2,)", "4"),
    form("length of flat weights", but(FLAT, weights=[1.0]), "weights", "(1,)", "4"),
    form("length of flat mask", but(FLAT, mask=[True]), "mask", "(1,)", "4"),
    form("indexes beside a matrix", but(DENSE, indexes=[0, 1]), "preds.flatten()", "(2, 3)"),
    form("target of users beside flat scores", but(FLAT, target=[[0, 1], [0, 1]]), "target.flatten()"),
    form("mask of users beside flat scores", but(FLAT, mask=[[True, True], [True, True]]), "mask.flatten()"),
    form("seen_ids beside flat rows", but(FLAT, seen_ids=[[0]] * 4), "seen_ids", "indexes"),
    form("sample_ids beside flat rows", but(FLAT, sample_ids=[0, 1, 2, 3]), "sample_ids", "indexes"),
    form("target_ids beside flat rows", but(FLAT, target=None, target_ids=IDS), "target"),
    form("mask beside lists", but(LISTS, mask=[[True, True, True]] * 2), "mask", "item_ids"),
    form("integer scores", but(DENSE, preds=[[3, 2, 1], [3, 2, 1]]), "preds", "float", "int64"),
    form("boolean scores", but(DENSE, preds=[[True, False, True]] * 2), "preds", "bool"),
    form("complex relevance", but(DENSE, target=TARGET.to(torch.complex64)), "target", "complex64"),
    form("float target_ids", but(BY_ID, target_ids=IDS.float()), "target_ids", "float32"),
    form("float item_ids", but(LISTS, item_ids=LISTS["item_ids"].double()), "item_ids", "float64"),
    form("boolean target_ids", but(BY_ID, target_ids=IDS.bool()), "target_ids", "bool"),
    form("float seen_ids", but(DENSE, seen_ids=[[0.0], [1.0]]), "seen_ids", "float32"),
    form("float indexes", but(FLAT, indexes=[4.0, 4.0, 9.0, 9.0]), "indexes", "float32"),
    form("float sample_ids", but(DENSE, sample_ids=[1.0, 2.0]), "sample_ids", "float32"),
    form("integer mask", but(DENSE, mask=[[1, 0, 1]] * 2), "mask", "bool", "int64"),
    form("complex weights", but(DENSE, weights=torch.ones(2, dtype=torch.complex64)), "weights", "complex64"),
    form("scores as a list", {"preds": PREDS.tolist(), "target": TARGET}, "preds", "tensor", "list"),
    form("truth as a list", {"preds": PREDS, "target": TARGET.tolist()}, "target", "tensor", "list"),
    form("ids as a list", {"preds": PREDS, "target_ids": [[1], [2]]}, "target_ids", "tensor", "list", "pad_ids"),
    form("sparse target", but(DENSE, target=TARGET.to_sparse()), "target", "sparse"),
]
GOOD = {"preds": torch.tensor([[2.0, 1.0], [2.0, 1.0]]), "target": torch.tensor([[0, 1], [1, 0]])}


def assert_says(caught: Any, bad: Bad) -> None:
    assert all(word in str(caught.value) for word in bad.says), caught.value


@pytest.mark.parametrize("bad", BAD, ids=str)
@pytest.mark.parametrize("way", ["update", "forward"])
def test_bad_input_is_refused_and_changes_nothing(bad: Bad, way: str) -> None:
    # Arguments are looked at in one place for all metrics: each gets some of what is bad, and the functions all of it.
    first = next(place for place, other in enumerate(BAD) if other is bad) % 4
    for variant in DEFAULTS[first::4] if way == "update" else DEFAULTS[:1]:
        metric = variant.make(2)
        for _ in range(2):  # before the first update, and after it
            with refused(metric) as caught:
                getattr(metric, way)(**bad.update)
            assert_says(caught, bad)
            metric(**GOOD)  # goes on as if nothing had happened
        once = updated(variant.make(2), **GOOD)
        assert metric.update_count == 2 and torch.equal(metric.compute(), once.compute())


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_the_functions_refuse_the_same(bad: Bad) -> None:
    for variant in DEFAULTS:
        with pytest.raises((ValueError, TypeError)) as caught:
            variant.per_user(**bad.update, top_k=2)
        assert_says(caught, bad)


@pytest.mark.parametrize("way", ["update", "forward"])
def test_weights_that_differ_within_a_user(way: str) -> None:
    metric = updated(torch_recmetrics.NDCG(2), **FLAT, weights=torch.tensor([1.0, 1.0, 2.0, 2.0]))
    with refused(metric, r"weights.*4"):
        getattr(metric, way)(**FLAT, weights=torch.tensor([1.0, 3.0, 2.0, 2.0]))


def test_weights_that_differ_within_a_user_over_two_updates() -> None:
    """Neither update is wrong by itself, so it shows when all rows of the user are together."""
    metric = updated(torch_recmetrics.NDCG(2), **FLAT, weights=torch.tensor([1.0, 1.0, 2.0, 2.0]))
    metric.update(**FLAT, weights=torch.tensor([3.0, 3.0, 2.0, 2.0]))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"weights.*4"):
            metric.compute()
    metric.reset()
    metric.update(**FLAT, weights=torch.tensor([1.0, 1.0, 2.0, 2.0]))
    assert metric.compute().isfinite()


@pytest.mark.parametrize("by_id", [True, False])
@pytest.mark.parametrize("name", ["NDCG", "DCG"])
def test_exponential_gain_of_a_huge_relevance_is_refused(name: str, by_id: bool) -> None:
    huge = (
        {"preds": PREDS, "target_ids": IDS, "target_relevance": torch.tensor([[1.0, 0.0], [1024.0, 1.0]])}
        if by_id
        else {"preds": PREDS, "target": torch.tensor([[0, 1, 0], [1024, 0, 1]])}
    )
    metric = updated(getattr(torch_recmetrics, name)(2), **GOOD)
    with refused(metric, r"1023.*1024.*row 1.*linear"):
        metric.update(**huge)
    assert updated(getattr(torch_recmetrics, name)(2, gain="linear"), **huge).compute().isfinite()
    for other in DEFAULTS:
        if not {"gain", "max_relevance"} & {*other.options}:
            other.make(2).update(**huge)


@pytest.mark.parametrize("layout", [DENSE, BY_ID, LISTS, LONG_FLAT], ids=["dense", "target_ids", "item_ids", "flat"])
def test_a_ranking_is_read_at_any_depth_unless_it_was_cut_above(layout: dict[str, torch.Tensor]) -> None:
    cut, whole = (torch_recmetrics.rank(**layout, top_k=k) for k in (2, 3))
    torch_recmetrics.NDCG(2).update(cut)
    torch_recmetrics.MAP(1).update(cut)
    for make in (lambda: torch_recmetrics.NDCG(100), lambda: torch_recmetrics.Precision(None)):
        with refused(deeper := make(), r"(cut|top_k).*2"):
            deeper.update(cut)
        assert torch.equal(updated(deeper, whole).compute(), updated(make(), **layout).compute())


def test_a_ranking_hides_no_nan() -> None:
    with pytest.raises(ValueError, match="`preds` must not be NaN, got NaN in row 1"):
        torch_recmetrics.rank(torch.tensor([[0.5, 0.1], [NAN, 0.5]]), target_ids=torch.tensor([[0], [1]]))


def test_a_ready_ranking_takes_nothing_beside_it() -> None:
    metric, ranking = torch_recmetrics.NDCG(2), torch_recmetrics.rank(**DENSE, top_k=2)
    more = {"weights": torch.ones(2), "target": TARGET, "mask": torch.ones(2, 3, dtype=torch.bool)}
    more |= {"sample_ids": torch.arange(2), "indexes": torch.arange(2), "target_ids": IDS, "seen_ids": IDS}
    for name, value in more.items():
        with refused(metric, name):
            metric.update(ranking, **{name: value})


def test_unknown_arguments_are_named() -> None:
    for call in (torch_recmetrics.NDCG(2).update, torch_recmetrics.rank, torch_recmetrics.functional.ndcg):
        with pytest.raises(TypeError, match="`seen`"):
            call(PREDS, TARGET, seen=IDS)
    similarity = torch_recmetrics.functional.intra_list_similarity
    for owner, call in (("rank", torch_recmetrics.rank), ("intra_list_similarity", similarity)):
        with pytest.raises(TypeError, match=rf"^{owner}\(\) has no argument `target_id`: did you mean `target_ids`\?$"):
            call(PREDS, target_id=IDS)
        with pytest.raises(TypeError, match=rf"^{owner}\(\) has no argument `zzz`: it has .*item_ids, .*target_ids"):
            call(PREDS, zzz=IDS)
    # Nothing is near: `seen_ids` would hide what is relevant.
    with pytest.raises(TypeError, match=r"^NDCG.update\(\) has no argument `relevant_ids`: it has .*target_ids"):
        torch_recmetrics.NDCG(2).update(PREDS, relevant_ids=IDS)


def test_relevance_below_zero_that_no_check_saw_is_not_relevant() -> None:
    """Nor does it change what is: item 0 has relevance 2."""
    target = torch.tensor([[2.0, -1.0, 1.0], [0.0, 1.0, 2.0]])
    expected = updated(torch_recmetrics.NDCG(3), preds=PREDS, target=target.clamp(min=0)).compute()
    rows = {"preds": PREDS.flatten(), "target": target.flatten(), "indexes": torch.tensor([0, 0, 0, 1, 1, 1])}
    for update in ({"preds": PREDS, "target": target}, rows):
        metric = updated(torch_recmetrics.NDCG(3, validate_args=False), **update)
        assert torch.equal(metric.compute(), expected)


def test_checks_that_read_values_can_be_left_out() -> None:
    """The forms are still checked; good input gives the same value."""
    for variant in DEFAULTS:
        metric, checked = variant.make(2, validate_args=False), variant.make(2)
        for good in (DENSE, BY_ID, LISTS, CANDIDATES):
            metric.update(**good)
            checked.update(**good)
        assert torch.equal(metric.compute(), checked.compute())
        for bad in BAD:
            if not bad.of_values and bad.label not in ("length of flat weights",):
                with refused(metric) as caught:
                    metric.update(**bad.update)
                assert_says(caught, bad)
        assert torch.equal(metric.compute(), checked.compute())


# Hidden items that cannot be meant -----------------------------------------------------------------------------------

N_MANY = 11  # the least catalogue in which as many ids as items, all of them 0 or 1, are taken for a matrix
DENSE_SEEN = torch.tensor([[1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]])
MANY = {"preds": torch.rand(2, N_MANY), "target_ids": torch.tensor([[1], [3]])}
PRODUCTS_OF_MANY = {"user_embeddings": torch.ones(2, 1), "item_embeddings": torch.ones(N_MANY, 1)}
FOUR = {"preds": torch.tensor([[4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0]]), "target_ids": torch.tensor([[1], [3]])}
PRODUCTS = {"user_embeddings": torch.ones(2, 1), "item_embeddings": torch.ones(4, 1), "target_ids": FOUR["target_ids"]}


@pytest.mark.parametrize(
    "given", [MANY, {**PRODUCTS_OF_MANY, "target_ids": MANY["target_ids"]}], ids=["scores", "embeddings"]
)
@pytest.mark.parametrize("make", [torch_recmetrics.NDCG, lambda k: torch_recmetrics.ranking_metrics("ndcg", top_k=k)])
def test_point_13_a_dense_matrix_is_refused_as_seen_ids(make: Any, given: Any) -> None:
    metric = make(2)
    for seen in (DENSE_SEEN, torch.zeros_like(DENSE_SEEN), DENSE_SEEN.to(torch.uint8)):
        with pytest.raises(ValueError, match=r"`seen_ids` must hold item ids, got a matrix of 0 and 1 .*`mask`"):
            metric.update(**given, seen_ids=seen)
    with pytest.raises(ValueError, match=r"`target_ids` must hold item ids, got a matrix of 0 and 1 .*`target`"):
        metric.update(**{**given, "target_ids": DENSE_SEEN})


@pytest.mark.parametrize("n_items", [1, 2, 3, 10])
def test_seen_ids_of_a_small_catalogue_are_ids(n_items: int) -> None:
    """In a catalogue of a few items, users who met items 0 and 1 alone are what is likely."""
    preds, seen = torch.arange(n_items, 0, -1.0).repeat(2, 1), torch.zeros(2, n_items, dtype=torch.int64)
    seen[0, -1] = min(1, n_items - 1)
    last = torch.full((2,), n_items - 1)
    padded = torch.nn.functional.pad(seen, (0, 1), value=-1)  # wider than the catalogue, so never taken for a matrix
    values = [
        torch_recmetrics.functional.reciprocal_rank(preds, target_ids=last, seen_ids=ids) for ids in (seen, padded)
    ]
    assert values[0].tolist() == values[1].tolist()


def test_point_13_short_histories_are_no_matrix() -> None:
    for seen in ([[0, 1], [1, 0]], [[0, 1, -1, -1], [1, -1, -1, -1]], [[0, 1, 2, 2], [0, 0, 0, 0]], [[0, 0, 1]] * 2):
        torch_recmetrics.NDCG(2).update(**FOUR, seen_ids=torch.tensor(seen))
    two = torch.tensor([[1.0, 2.0]])
    torch_recmetrics.NDCG(2).update(two, target_ids=torch.tensor([[1]]), seen_ids=torch.tensor([[0, 0]]))
    torch_recmetrics.NDCG(2).update(two[:0], target_ids=torch.zeros(0, 1).long(), seen_ids=torch.zeros(0, 2).long())


WANTED = torch.tensor([[False, True, False, False], [False, False, False, True]])
HIDING = {
    "inverted mask": {**FOUR, "mask": ~WANTED},
    "inverted mask beside a target": {"preds": FOUR["preds"], "target": WANTED, "mask": ~WANTED},
    "targets among the seen": {**FOUR, "seen_ids": torch.tensor([[0, 1], [3, -1]])},
    "of products": {**PRODUCTS, "seen_ids": torch.tensor([[0, 1], [3, -1]])},
    "of lists": {
        "item_ids": torch.tensor([[0, 1], [3, 2]]),
        "target_ids": FOUR["target_ids"],
        "seen_ids": torch.tensor([[1, 0], [3, 1]]),
    },
}


@pytest.mark.parametrize("given", HIDING.values(), ids=HIDING)
def test_point_13_hiding_every_target_warns_once(given: Any) -> None:
    for make in (torch_recmetrics.NDCG, lambda k: torch_recmetrics.ranking_metrics(["ndcg", "mrr"], top_k=k)):
        metric = make(2)
        with pytest.warns(UserWarning, match="hide every relevant item") as told:
            [metric.update(**given) for _ in range(2)]
        assert len(told) == 1
    with pytest.warns(UserWarning, match="hide every relevant item"):
        torch_recmetrics.rank(**given, top_k=2)


G = torch.Generator().manual_seed(0)
WIDE = {"preds": torch.rand(4, 20, generator=G), "target_ids": torch.arange(4)}
EIGHT = {"preds": torch.rand(8, 20, generator=G), "target_ids": torch.arange(8)}
SEEN_BY_NINE = torch.tensor([[9, 0, 0], [9, 0, 0], *[[9, 8, 7]] * 7])
SURELY_WRONG = {
    "padded with 0 behind": (
        {**WIDE, "seen_ids": torch.tensor([[5, 6, 7], [8, 0, 0], [9, 0, 0], [7, 5, 8]])},
        "ignore_index=0",
    ),
    "padded with 0 in front": (
        {**WIDE, "seen_ids": torch.tensor([[0, 0, 7], [8, 6, 5], [0, 0, 6], [7, 5, 8]])},
        "that padding",
    ),
    "padded with 0 behind in rows longer than there are users": (
        {**WIDE, "seen_ids": torch.tensor([[*range(4, 14)], [*range(4, 14)], [4, *[0] * 9], [5, 6, *[0] * 8]])},
        "ignore_index=0",
    ),
    "padded with 0 in a quarter of the rows": ({**EIGHT, "seen_ids": SEEN_BY_NINE[:8]}, "ignore_index=0"),
    "preds and target swapped": (
        {"preds": (WIDE["preds"] > 0.9).float(), "target": WIDE["preds"]},
        "every item is relevant .* `preds` and `target` swapped",
    ),
}


def test_the_id_that_is_refused_is_named_and_not_the_padding_before_it() -> None:
    with pytest.raises(ValueError, match=r"`target_ids` must be 0 or more, or -1 for padding, got -3 in row 0"):
        torch_recmetrics.NDCG(2).update(torch.rand(1, 4), target_ids=torch.tensor([[2, -1, -3]]))


MAY_BE_RIGHT = {
    "item 0 seen twice by two of nine": {
        "preds": torch.rand(9, 20, generator=G),
        "target_ids": torch.arange(9),
        "seen_ids": SEEN_BY_NINE,
    },
    "padded with -1": {**WIDE, "seen_ids": torch.tensor([[0, -1, -1]]).expand(4, 3)},
    "one item is not relevant": {"preds": WIDE["preds"], "target": 1 - torch.eye(4, 20)},
    "few items": {"preds": WIDE["preds"][:, :5], "target": torch.ones(4, 5) / 2},
    "grades": {"preds": WIDE["preds"], "target": torch.arange(80.0).view(4, 20) % 5 + 1},
    "item 0 seen twice by one user": {
        "preds": torch.rand(1, 20, generator=G),
        "target_ids": torch.tensor([5]),
        "seen_ids": torch.tensor([[3, 0, 0]]),
    },
    "item 0 seen twice beside padding": {
        **WIDE,
        "seen_ids": torch.tensor([[0, 0, 7], [0, 0, 5], [9, 7, -1], [7, 5, 8]]),
    },
}


@pytest.mark.parametrize(("given", "says"), SURELY_WRONG.values(), ids=SURELY_WRONG)
def test_what_is_almost_surely_a_mistake_warns_once(given: Any, says: str) -> None:
    metric = torch_recmetrics.NDCG(2)
    with pytest.warns(UserWarning, match=says) as told:
        [metric.update(**given) for _ in range(2)]
    assert len(told) == 1


def test_two_mistakes_of_one_update_are_both_told() -> None:
    metric, hidden = torch_recmetrics.NDCG(2), torch.zeros(3, 1, dtype=torch.bool)
    with pytest.warns(UserWarning, match="hide every relevant item") as told:
        metric.update(torch.rand(3, 1), torch.ones(3, 1, dtype=torch.int64), mask=hidden)
    assert [str(own.message).startswith("`preds` have one column") for own in told] == [True, False]


@pytest.mark.parametrize("hides", ["mask", "seen_ids"])
@pytest.mark.parametrize("scored", [("preds",), ("user_embeddings", "item_embeddings")])
def test_a_catalogue_without_an_item_hides_nothing(scored: tuple[str, ...], hides: str) -> None:
    tables = {"preds": (2, 0), "user_embeddings": (2, 3), "item_embeddings": (0, 3)}
    padding = torch.full((2, 1), -1)
    hidden = torch.ones(2, 0, dtype=torch.bool) if hides == "mask" else padding
    metric = torch_recmetrics.NDCG(2, empty_target_action="neg")
    metric.update(**{name: torch.ones(tables[name]) for name in scored}, target_ids=padding, **{hides: hidden})
    assert metric.compute() == 0


@pytest.mark.parametrize("given", MAY_BE_RIGHT.values(), ids=MAY_BE_RIGHT)
def test_what_may_be_right_is_not_warned_of(given: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch_recmetrics.NDCG(2).update(**given)


ONE_COLUMN = {
    "target": {"target": torch.tensor([[1.0], [0.0]])},
    "target_ids": {"target_ids": torch.tensor([[0], [-1]])},
    "seen items": {"target": torch.tensor([[1.0], [0.0]]), "seen_ids": torch.tensor([[-1], [0]])},
}


@pytest.mark.parametrize("given", ONE_COLUMN.values(), ids=ONE_COLUMN)
def test_scores_of_one_column_warn_once(given: Any, device: torch.device) -> None:
    """Every list has one item, as where predictions of clicks are given to a ranking metric."""
    given = {"preds": torch.tensor([[0.9], [0.2]]), **given}
    given = {name: value.to(device) for name, value in given.items()}
    for make in (torch_recmetrics.NDCG, lambda k: torch_recmetrics.ranking_metrics(["ndcg", "mrr"], top_k=k)):
        metric = make(2).to(device)
        with pytest.warns(UserWarning, match=r"`preds` have one column.*BinaryAUC") as told:
            [metric.update(**given) for _ in range(2)]
        assert len(told) == 1
    with pytest.warns(UserWarning, match="`preds` have one column"):
        torch_recmetrics.rank(**given, top_k=2)


def test_one_column_that_may_be_meant_does_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    one, two = torch.tensor([[0.9]]), torch.tensor([[0.9], [0.2]])
    clicks = torch.tensor([[1], [0]])
    torch_recmetrics.NDCG(2).update(one, clicks[:1])  # a user, who may have one item
    torch_recmetrics.NDCG(2).update(two.T, clicks.T)
    torch_recmetrics.NDCG(2).update(two, item_ids=torch.tensor([[4], [7]]), target_ids=torch.tensor([[4], [2]]))
    torch_recmetrics.NDCG(2).update(two.flatten(), clicks.flatten(), torch.tensor([0, 0]))
    torch_recmetrics.NDCG(2, validate_args=False).update(two, clicks)
    torch_recmetrics.Coverage(1, 1).update(two)
    torch_recmetrics.BinaryAUC().update(two, clicks)
    assert not recwarn.list


def test_point_13_what_may_be_meant_does_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    seen = {
        "one target is left": torch.tensor([[0, 1], [0, 1]]),
        "no target is seen, and none is found": torch.tensor([[0, -1], [-1, 2]]),
    }
    for seen_ids in seen.values():
        torch_recmetrics.NDCG(1).update(**FOUR, seen_ids=seen_ids)
    lists = {"item_ids": torch.tensor([[0], [2]]), "target_ids": FOUR["target_ids"]}
    torch_recmetrics.NDCG(1).update(**lists, seen_ids=torch.tensor([[0], [2]]))
    torch_recmetrics.NDCG(1).update(FOUR["preds"], torch.zeros(2, 4), mask=~WANTED)
    torch_recmetrics.NDCG(1, validate_args=False).update(**HIDING["inverted mask"])
    torch_recmetrics.NDCG(2, validate_args=False).update(**FOUR, seen_ids=DENSE_SEEN)
    assert not recwarn.list


# Errors that name the next step --------------------------------------------------------------------------------------

CUBE = torch.rand(2, 3, 4)
STEPS: list[tuple[Any, str]] = [
    ({"preds": CUBE, "target": CUBE > 0.5}, r"\(2, 3, 4\), needs `target_ids`, .* preds.flatten\(0, 1\)"),
    ({"preds": CUBE[0], "target_ids": torch.ones(2, 3, 1).long()}, r"`target_ids` .* sequences have .* \(B, T, R\)"),
    ({"preds": CUBE[0], "target": torch.tensor([1, 2, 3])}, r"`target` .* target_ids=target"),
    ({"preds": CUBE[0, 0], "target": CUBE[0, 0] > 0.5}, r"need `indexes`, .* preds.unsqueeze\(0\)"),
    (
        {"preds": CUBE[0], "target": CUBE[0] > 0.5, "indexes": torch.ones(3, 4).long()},
        r"`indexes`, the third argument, .* is flat, .* preds.flatten\(\)",
    ),
    ({"item_ids": torch.tensor([1, 2]), "target_ids": torch.tensor([[1]])}, r"item_ids.unsqueeze\(0\)"),
    ({"preds": CUBE[0], "target": CUBE[0] > 0.5, "seen_ids": torch.tensor([1, 2, 3])}, r"is seen_ids.unsqueeze\(1\)"),
]


@pytest.mark.parametrize(("given", "step"), STEPS, ids=[step[-20:] for _, step in STEPS])
def test_point_19_the_next_step_of_another_number_of_dimensions(given: Any, step: str) -> None:
    for update in (
        torch_recmetrics.NDCG(2).update,
        torch_recmetrics.ranking_metrics("ndcg").update,
        torch_recmetrics.rank,
        torch_recmetrics.functional.ndcg,
    ):
        with pytest.raises(ValueError, match=step):
            update(**given)


# What the documentation says of the layouts --------------------------------------------------------------------------


def test_point_27_what_is_accepted_and_what_flat_rows_must_hold() -> None:
    """Empty updates; relevant items that were not retrieved, with a score of -inf; raw ids of 64 bits."""
    metric = torch_recmetrics.Recall(2)
    metric.update(torch.zeros(0, 3), torch.zeros(0, 3))
    assert metric.compute().isnan() and metric.update_count == 1
    large = 2**62
    users, hidden = torch.tensor([large, large, 5]), float("-inf")
    metric.update(torch.tensor([0.5, hidden, 0.1]), torch.tensor([1, 1, 1]), users)
    assert float(metric.compute()) == 0.75
    without = torch_recmetrics.Recall(2)
    without.update(torch.tensor([0.5, 0.1]), torch.tensor([1, 1]), users[1:])
    assert float(without.compute()) == 1
    by_id = torch_recmetrics.Recall(2)
    by_id.update(item_ids=torch.tensor([[large, 7]]), target_ids=torch.tensor([[large, large + 1]]))
    assert float(by_id.compute()) == 0.5
    said = " ".join(" ".join(file.read_text().split()) for file in Path(__file__).parents[3].glob("docs/*.md"))
    for words in ("empty", "-inf", "64", "even_batches", "gather_for_metrics", "not recommended"):
        assert words in said, words


def test_point_18_the_documentation_says_that_a_metric_belongs_to_one_thread() -> None:
    said = (Path(__file__).parents[3] / "docs" / "distributed.md").read_text()
    assert "Two threads that update a metric at the same time lose updates." in " ".join(said.split())
