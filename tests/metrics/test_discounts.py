"""Discounts of the user's: values, names, copies, and what is refused."""

from __future__ import annotations

import itertools
import pickle
from functools import partial
from math import log2
from typing import Any

import pytest
import torch
from fixtures.cases import LAYOUTS, NAMED, users_of
from fixtures.histories import updated
from oracles import ranking
from oracles.users import TIES
from torch import Tensor

from torch_recmetrics import DCG, NDCG, RecMetricCollection
from torch_recmetrics.functional import dcg, ndcg

LIST = {"preds": torch.tensor([[5.0, 4.0, 3.0, 2.0]]), "target": torch.tensor([[0, 1, 0, 1]])}


def reciprocal(ranks: Tensor) -> Tensor:
    return 1 / ranks


def geometric(ranks: Tensor) -> Tensor:
    return 0.5 ** (ranks - 1)


def cut_at_two(ranks: Tensor) -> Tensor:
    return (ranks <= 2).to(ranks.dtype)


def log2_as_a_function(ranks: Tensor) -> Tensor:
    return 1 / torch.log2(ranks + 1)


class Geometric(torch.nn.Module):
    def forward(self, ranks: Tensor) -> Tensor:
        return 0.5 ** (ranks - 1)

    __hash__ = None  # type: ignore[assignment]


def test_values_by_hand() -> None:
    assert float(updated(DCG(4, discount=reciprocal), **LIST).compute()) == 1 / 2 + 1 / 4
    assert float(updated(DCG(4, discount=geometric), **LIST).compute()) == 1 / 2 + 1 / 8
    assert float(updated(NDCG(4, discount=geometric), **LIST).compute()) == (1 / 2 + 1 / 8) / (1 + 1 / 2)
    assert float(updated(NDCG(4, discount=cut_at_two), **LIST).compute()) == 1 / 2
    assert dcg(**LIST, top_k=4, discount=geometric).tolist() == [1 / 2 + 1 / 8]
    assert ndcg(**LIST, top_k=3, discount="log2_from_two").tolist() == [(1 / log2(2)) / 2]
    assert ndcg(**LIST, top_k=4, discount=lambda ranks: 1 / ranks).tolist() == [(1 / 2 + 1 / 4) / (1 + 1 / 2)]


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_function_equals_the_word_under_every_rule(layout: str, ties: str) -> None:
    asked = itertools.cycle(itertools.product((1, 3, None), ({}, {"ideal": "retrieved", "gain": "linear"})))
    turn = list(LAYOUTS).index(layout) + TIES.index(ties)  # each input with one of six, which are others elsewhere
    for name, (top_k, options) in zip(NAMED, itertools.islice(asked, turn, None)):
        update = LAYOUTS[layout](NAMED[name])
        got = updated(NDCG(top_k, ties=ties, discount=log2_as_a_function, **options), **update).compute()
        expected = ranking.over_users(ranking.ndcg, users_of([update]), top_k, ties, **options)
        assert float(got) == pytest.approx(expected, abs=1e-12, rel=0, nan_ok=True), name


def test_two_functions_are_two_metrics() -> None:
    one, other = DCG(2, discount=reciprocal), DCG(2, discount=geometric)
    assert one.definition() != other.definition()
    assert f"discount={__name__}.reciprocal" in one.definition()
    assert DCG(2, discount=reciprocal).definition() == one.definition()
    with pytest.raises(ValueError, match="only metrics of the same options merge"):
        one.merge_state(other)
    one.persistent(True)
    with pytest.raises(RuntimeError, match="other options"):
        other.load_state_dict(one.state_dict(), strict=False)
    assert "discount" not in DCG(2).definition()


def test_a_method_is_one_function_whenever_it_is_looked_up() -> None:
    class Reader:
        def __init__(self, patience: float) -> None:
            self.patience = patience

        def reads(self, ranks: torch.Tensor) -> torch.Tensor:
            return self.patience ** (ranks - 1)

    one, other = Reader(0.5), Reader(0.9)
    metrics = [NDCG(2, discount=reader.reads) for reader in (one, one, other)]
    assert metrics[0].definition() == metrics[1].definition() != metrics[2].definition()
    metrics[0].merge_state(metrics[1])


def test_two_lambdas_are_two_metrics() -> None:
    functions = [lambda ranks: 1 / ranks, lambda ranks: 0.5**ranks]
    one, other = (DCG(2, discount=function) for function in functions)
    assert one.definition() != other.definition()
    assert DCG(2, discount=functions[0]).definition() == one.definition()
    assert one.clone().definition() == one.definition()
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(one)


def test_copies_go_on() -> None:
    metric = updated(NDCG(4, discount=geometric), **LIST)
    for copy in (metric.clone(), pickle.loads(pickle.dumps(metric))):
        assert copy.definition() == metric.definition()
        copy.update(**LIST)
        assert torch.equal(copy.compute(), metric.compute())


def test_cutoffs_of_a_collection_have_the_values_of_single_metrics() -> None:
    function = partial(torch.pow, torch.tensor(0.5))
    metrics = RecMetricCollection([NDCG(k, discount=function) for k in (1, 2, 4)])
    metrics.update(**LIST)
    for k in (1, 2, 4):
        assert torch.equal(metrics[f"ndcg@{k}"].compute(), updated(NDCG(k, discount=function), **LIST).compute())


def test_a_module_without_a_hash_is_taken() -> None:
    assert float(updated(DCG(4, discount=Geometric()), **LIST).compute()) == 1 / 2 + 1 / 8
    assert dcg(**LIST, top_k=4, discount=Geometric()).tolist() == [1 / 2 + 1 / 8]


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ("log", r"`discount` must be one of 'log2', 'log2_from_two', 'none', or a function .*'log'"),
        (None, "`discount` must be one of .*None"),
        (2.0, r"`discount` must be one of .*2\.0"),
        (["log2"], "`discount` must be one of"),
        (lambda ranks: ranks, r"`discount` must be finite, above 0 at rank 1 and never rise, got 2 at rank 2"),
        (lambda ranks: -ranks, "got -1 at rank 1"),
        (lambda ranks: 0 * ranks, "got 0 at rank 1"),
        (lambda ranks: 1 / (ranks - 1), "got inf at rank 1"),
        (lambda ranks: 1 / (ranks - 2).clamp(min=0).sqrt().log(), "must be finite"),
        (lambda ranks: ranks.sum(), r"of the shape of the ranks, \(2, 512\), got torch.float64 of shape \(\)"),
        (lambda ranks: ranks.to(torch.int64) // ranks.to(torch.int64), "floating point tensor .* got torch.int64"),
        (lambda ranks: 1.0, "got float"),
    ],
)
@pytest.mark.parametrize("metric", [DCG, NDCG])
def test_what_is_no_discount_is_refused(metric: Any, wrong: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        metric(discount=wrong)
