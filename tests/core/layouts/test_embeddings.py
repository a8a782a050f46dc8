"""`update(user_embeddings=..., item_embeddings=...)` gives the values of all float64 scores, for every tie rule."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from fixtures.devices import take_the_cpu_for_a_gpu, watched
from fixtures.items import NUM_ITEMS
from fixtures.refusals import refused
from fixtures.variants import LISTED, RANKING_NAMES, Variant
from oracles.users import TIES

from torch_recmetrics import (
    MRR,
    NDCG,
    CollapseRate,
    Coverage,
    HitRate,
    RecMetricCollection,
    functional,
    rank,
    ranking_metrics,
)
from torch_recmetrics.core.catalogue.approx_scores import approx_scores
from torch_recmetrics.core.catalogue.pair_scores import PairScores
from torch_recmetrics.core.catalogue.ranks import catalogue_ranks
from torch_recmetrics.core.tensors import thresholds

CUTS = (1, 3, 10, None)
KINDS = ("smooth", "whole numbers", "copies", "constant", "near ties", "half")


def batch(kind: str, seed: int, n_items: int = 90, n_users: int = 13) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    users, items = torch.randn(n_users, 5, generator=g), torch.randn(n_items, 5, generator=g)
    if kind == "whole numbers":
        users, items = users.round(), items.round()
    if kind == "copies":
        items = items[torch.randint(0, 6, (n_items,), generator=g)]
    if kind == "constant":
        items = torch.ones_like(items)
    if kind == "near ties":
        items = 1 + 1e-7 * items
    if kind == "half":
        users, items = users.half(), items.half()
    ids = torch.stack([torch.randperm(n_items, generator=g)[:7] for _ in range(n_users)])
    ids[torch.rand(ids.shape, generator=g) < 0.3] = -1
    ids[1] = -1
    seen = torch.randint(-1, n_items, (n_users, 6), generator=g)
    seen[2, :3] = ids[2, :3]  # relevant and hidden
    return {
        "user_embeddings": users,
        "item_embeddings": items,
        "target_ids": ids,
        "target_relevance": torch.randint(0, 4, ids.shape, generator=g),
        "seen_ids": seen,
        "weights": torch.rand(n_users, generator=g),
    }


def scored(data: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same update with a float64 score for every pair."""
    rest = dict(data)
    users, items, bias = rest.pop("user_embeddings"), rest.pop("item_embeddings"), rest.pop("item_bias", None)
    grid = torch.cartesian_prod(torch.arange(users.shape[0]), torch.arange(items.shape[0])).view(-1, 2)
    scores = PairScores(users, items, bias).pair_scores(grid[:, 0], grid[:, 1])
    return {"preds": scores.view(users.shape[0], items.shape[0]), **rest}


@functools.cache
def collections(rule: str, cuts: tuple[int | None, ...]) -> list[RecMetricCollection]:
    """Made once for all tests, and reset for each."""
    others = {"ndcg": {"ideal": "retrieved", "gain": "linear"}, "map": {"denominator": "hits"}}
    return [
        ranking_metrics(RANKING_NAMES, cuts, options=options, ties=rule, postfix=f" {len(options)}")
        for options in ({}, others)
    ]


def values(data: dict[str, torch.Tensor], rule: str, cuts: tuple[int | None, ...] = CUTS) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for metrics in collections(rule, cuts):
        metrics.reset()
        metrics.update(**data)
        found |= metrics.compute()
    return found


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-12, msg=lambda m, name=name: f"{name}: {m}")


# Each kind with two of the tie rules: the other two with the next one.
@pytest.mark.parametrize(("kind", "rule"), [(kind, rule) for n, kind in enumerate(KINDS) for rule in TIES[n % 2 :: 2]])
def test_values_are_those_of_all_scores(kind: str, rule: str) -> None:
    for seed, drop in ((0, ()), (1, ("seen_ids",)), (2, ("target_relevance", "weights"))):
        data = {name: value for name, value in batch(kind, seed).items() if name not in drop}
        for cuts in (CUTS, (3,), (None,), (200,)) if not drop else (CUTS,):
            assert_same(values(data, rule, cuts), values(scored(data), rule, cuts))


@pytest.mark.parametrize("rule", TIES)
def test_item_bias(rule: str) -> None:
    data = batch("whole numbers", 3)
    data["item_bias"] = torch.arange(90) % 3 - 1.0
    assert_same(values(data, rule), values(scored(data), rule))


def test_whole_numbers_agree_with_a_matrix_product() -> None:
    """Nothing is rounded, so torch's own product is the definition."""
    data = batch("whole numbers", 4)
    rest = {n: v for n, v in data.items() if not n.endswith("embeddings")}
    preds = data["user_embeddings"].double() @ data["item_embeddings"].double().T
    assert_same(values(data, "average"), values({"preds": preds, **rest}, "average"))


def test_any_split_of_the_users() -> None:
    data = batch("copies", 5)
    whole = values(data, "average")
    metrics = ranking_metrics(RANKING_NAMES, CUTS, postfix=" 0")
    for part in (slice(0, 1), slice(1, 1), slice(1, 8), slice(8, 13)):
        some = {n: v if n == "item_embeddings" else v[part] for n, v in data.items()}
        metrics.update(**some)
    assert_same(metrics.compute(), {n: v for n, v in whole.items() if n.endswith("0")})


@pytest.mark.parametrize("variant", [v for v in LISTED if not v.needs_samples], ids=str)
def test_scores_of_lists_from_embeddings(variant: Variant) -> None:
    g = torch.Generator().manual_seed(8)
    users, items = (torch.randint(-2, 3, (n, 3), generator=g).double() for n in (5, NUM_ITEMS))  # many equal products
    rest = {"weights": torch.tensor([1.0, 0.5, 2.0, 0.0, 3.0]), "target_ids": torch.arange(10).view(5, 2)}
    scored = {"preds": users @ items.T, **rest}
    for k in (1, 4):
        metric = variant.fed([{"user_embeddings": users, "item_embeddings": items, **rest}], k)
        assert float(metric.compute()) == variant.expected([scored], k)


@pytest.mark.parametrize("cut", [4, 90])
def test_metrics_of_lists_read_the_same_ranking(cut: int) -> None:
    data = batch("copies", 6)
    metrics, expected = (
        RecMetricCollection([NDCG(10, ties="stable"), MRR(ties="stable"), Coverage(90, cut)]) for _ in range(2)
    )
    metrics.update(**data)
    expected.update(**scored(data))
    assert_same(metrics.compute(), expected.compute())
    alone, other = Coverage(90, cut), Coverage(90, cut)
    alone.update(user_embeddings=data["user_embeddings"], item_embeddings=data["item_embeddings"])
    other.update(scored(data)["preds"])
    assert_same({"": alone.compute()}, {"": other.compute()})


def test_sample_ids_and_a_ready_ranking() -> None:
    data = batch("smooth", 7)
    repeated = {**data, "sample_ids": torch.arange(13) % 6}
    assert_same(values(repeated, "average"), values(scored(repeated), "average"))
    metric, other = NDCG(5), NDCG(5)
    metric.update(rank(top_k=5, **data))
    other.update(**data)
    assert torch.equal(metric.compute(), other.compute())


@pytest.mark.parametrize(("n_users", "n_items"), [(0, 5), (3, 0), (0, 0)])
def test_no_users_or_no_items(n_users: int, n_items: int) -> None:
    ids = torch.full((n_users, 2), -1)
    metrics = ranking_metrics(RANKING_NAMES, CUTS, empty_target_action="neg")
    metrics.update(user_embeddings=torch.ones(n_users, 4), item_embeddings=torch.ones(n_items, 4), target_ids=ids)
    expected = float("nan") if not n_users else 0.0
    for value in metrics.compute().values():
        torch.testing.assert_close(value, torch.tensor(expected, dtype=torch.float64), equal_nan=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"user_embeddings": None}, "`user_embeddings` is missing"),
        ({"item_embeddings": None}, "`item_embeddings` is missing"),
        ({"target_ids": None, "target_relevance": None}, "`target_ids` is missing"),
        ({"preds": torch.ones(13, 90)}, "`preds` and embeddings must not be given together"),
        ({"mask": torch.ones(13, 89, dtype=torch.bool)}, r"`mask` must have the shape \(90,\), .*, or \(13, 90\)"),
        ({"mask": torch.ones(90)}, "`mask` must be bool"),
        (
            {"mask": torch.ones(90).bool(), "item_ids": torch.arange(3)},
            "`item_ids` and `mask` must not be given together",
        ),
        (
            {"item_ids": torch.ones(13, 3, dtype=torch.int64)},
            "`item_ids` must have 1 dimension, .* `preds` and `item_ids`",
        ),
        ({"item_ids": torch.tensor([3, 90])}, "`item_ids` must be 0 or more and below the number of items, 90, got 90"),
        ({"item_ids": torch.tensor([3, -1])}, "`item_ids` must be 0 or more .* got -1"),
        ({"item_ids": torch.tensor([3, 7, 3])}, "`item_ids` must not hold an id twice, got 3 twice"),
        ({"item_ids": torch.tensor([3.0])}, "`item_ids` must hold integers"),
        ({"item_ids": torch.arange(4), "target_ids": torch.full((13, 7), 90)}, "`target_ids` must be below .* 90"),
        ({"target": torch.ones(13, 90)}, "`target` and embeddings"),
        ({"indexes": torch.ones(13, dtype=torch.int64)}, "must not be given with flat rows"),
        ({"item_embeddings": torch.ones(90, 6)}, "same width"),
        ({"item_embeddings": torch.full((90, 5), float("nan"))}, "`item_embeddings` must be finite"),
        ({"target_ids": torch.full((13, 7), 90)}, "`target_ids` must be below the number of items, 90"),
        ({"seen_ids": torch.full((13, 7), 90)}, "`seen_ids` must be below the number of items, 90"),
        ({"weights": torch.ones(12)}, "`weights` must have one row for each of the 13 rows of `user_embeddings`"),
        ({"item_bias": torch.ones(3)}, "`item_bias` must have one row for each of the 90"),
    ],
)
def test_refused_before_anything_is_counted(change: dict[str, torch.Tensor | None], message: str) -> None:
    metrics = RecMetricCollection([HitRate(3), MRR()])
    data = batch("smooth", 8)
    metrics.update(**data)
    with refused(metrics, message):
        metrics.update(**{name: value for name, value in {**data, **change}.items() if value is not None})


@pytest.mark.parametrize("sorted_from", [0, 96])
@pytest.mark.parametrize("kind", KINDS)
def test_standing_is_a_count(kind: str, sorted_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "COUNTED_TARGETS", sorted_from)
    monkeypatch.setattr(thresholds, "PIECE", 20)
    data = batch(kind, 9, n_items=500)
    preds, users, items = scored(data)["preds"], data["user_embeddings"], data["item_embeddings"]
    ids = torch.randint(0, 500, (13, 4))
    wanted = preds.gather(1, ids)
    for chunk in (1, 33, 128, 4096):
        if chunk == 1 and kind != "copies":
            continue
        above, same, before = catalogue_ranks(PairScores(users, items), wanted, ids, None, chunk)
        column = torch.arange(500)
        for t in range(4):
            assert torch.equal(above[:, t], (preds > wanted[:, t : t + 1]).sum(1))
            equal = preds == wanted[:, t : t + 1]
            assert torch.equal(same[:, t], equal.sum(1))
            assert torch.equal(before[:, t], (equal & (column < ids[:, t : t + 1])).sum(1))


@pytest.mark.parametrize("sorted_from", [0, 96])
@pytest.mark.parametrize("lengths", [(1, 1e4), (1e4, 1), (1, 1e25, 1), (1, 1e38, 1)], ids=str)
def test_longer_items_have_wider_bounds(
    lengths: tuple[float, ...], sorted_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their coarse scores are off by more than those of the chunks before."""
    monkeypatch.setattr(thresholds, "COUNTED_TARGETS", sorted_from)
    g = torch.Generator().manual_seed(0)
    users, across = torch.ones(3, 6, dtype=torch.float64), torch.randn(400 * len(lengths), 6, generator=g).double()
    across -= across.mean(1, keepdim=True)  # such items score next to nothing, however long they are
    items = (across * torch.tensor(lengths).double().repeat_interleave(400).unsqueeze(1)).float()
    pairs = PairScores(users.float(), items)
    scores = pairs.pair_scores(torch.zeros(items.shape[0], dtype=torch.int64), torch.arange(items.shape[0]))
    near = scores.abs().argsort()[:: items.shape[0] // 5].expand(3, -1)
    above, same, _ = catalogue_ranks(pairs, scores[near], near, None, 16)
    for column, item in enumerate(near[0]):
        assert above[:, column].tolist() == [int((scores > scores[item]).sum())] * 3
        assert same[:, column].tolist() == [int((scores == scores[item]).sum())] * 3
    nowhere = PairScores(torch.zeros(3, 6), items)  # such users have one score for all, without any error
    above, same, _ = catalogue_ranks(nowhere, torch.zeros(near.shape, dtype=torch.float64), near, None, 16)
    assert not above.any() and same.unique().tolist() == [items.shape[0]]


@pytest.mark.parametrize("sorted_from", [0, 96])
def test_a_score_below_all_float32_is_above_what_is_hidden(sorted_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An item that a bias bans stands last of those that are shown, wherever the others are scored in float32."""
    monkeypatch.setattr(thresholds, "COUNTED_TARGETS", sorted_from)
    monkeypatch.setattr(thresholds, "STEP_ELEMENTS", 64 * thresholds.SEARCHED_USERS)
    data = batch("smooth", 3, n_items=300)
    bias = torch.zeros(300, dtype=torch.float64)
    bias[7] = -1e40
    data = {"user_embeddings": data["user_embeddings"], "item_embeddings": data["item_embeddings"], "item_bias": bias}
    metric = MRR()
    metric.update(**data, target_ids=torch.full((13, 1), 7), seen_ids=torch.arange(100, 140).expand(13, -1))
    assert metric.compute() == pytest.approx(1 / 260, abs=1e-15)


@pytest.mark.parametrize("rule", TIES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_first_relevant_item_alone_is_counted(kind: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rank of the first needs one threshold a user, where nobody asks for the others."""
    from torch_recmetrics.core.layouts import embeddings, scores

    data = batch(kind, 5)
    counted = watched(monkeypatch, embeddings, "catalogue_ranks"), watched(monkeypatch, scores, "full_ranks")
    for update, searches in zip((data, scored(data)), counted):
        together = ranking_metrics(("mrr", "map"), None, ties=rule)
        together.update(**update)
        alone = MRR(ties=rule)
        alone.update(**update)
        torch.testing.assert_close(alone.compute(), together.compute()["mrr"], rtol=0, atol=1e-14)
        if searches:  # the stable order of scores is read from the whole list
            assert [given[1].shape[1] for given, _ in searches] == [update["target_ids"].shape[1], 1]


@pytest.mark.parametrize("on_a_gpu", [False, True])
def test_only_users_with_a_tie_at_the_cutoff_are_counted(on_a_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_recmetrics.core.layouts import embeddings

    if on_a_gpu:
        take_the_cpu_for_a_gpu(monkeypatch)
    counted = watched(monkeypatch, embeddings, "catalogue_ranks")
    users, items = torch.eye(3), torch.arange(18.0).view(6, 3)
    items[3, 1] = items[4, 1]  # of the second user the second and the third best are equal
    update = {"user_embeddings": users, "item_embeddings": items, "target_ids": torch.tensor([[4], [4], [4]])}
    NDCG(3).update(**update)
    assert not counted
    NDCG(2).update(**update)
    assert [given[1].tolist() for given, _ in counted] == [[[13.0]]]


def test_no_list_of_all_items_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole-list metrics beside cut ones come from counts: no search is as deep as the catalogue."""
    from torch_recmetrics.core.layouts import embeddings as catalogue

    searches = watched(monkeypatch, catalogue, "topk_items")
    for rule in TIES:
        ranking_metrics(RANKING_NAMES, (3, None), ties=rule).update(**batch("copies", 1))
    assert {k for (_, k, *_), _ in searches} == {4}


def test_pieces_are_read_in_one_buffer() -> None:
    data = batch("smooth", 1, n_items=1000)
    scan = approx_scores(PairScores(data["user_embeddings"], data["item_embeddings"]), None, torch.float32, 100)
    assert len({piece.scores.data_ptr() for piece in scan}) == 1


def test_the_best_list_may_be_longer_than_the_part_that_may_be_recommended() -> None:
    """As with candidates, and as without a cutoff."""
    items = torch.tensor([[1.0, 3.0], [2.0, 1.0], [4.0, 2.0], [0.0, 1.0]])
    given = {"target_ids": torch.tensor([[0, 2, 3]]), "target_relevance": torch.tensor([[1, 2, 3]])}
    part = {"user_embeddings": torch.tensor([[1.0, 0.0]]), "item_embeddings": items, "item_ids": torch.tensor([0, 1])}
    candidates = {"preds": items[None, :2, 0], "item_ids": torch.tensor([[0, 1]])}
    dcg, ideal = 1 / math.log2(3), 7 + 3 / math.log2(3) + 1 / 2
    for update in ({**part, **given}, {**candidates, **given}):
        for top_k in (3, 5, None):
            assert functional.ndcg(**update, top_k=top_k).item() == pytest.approx(dcg / ideal, rel=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_lists_collapse_as_those_of_all_scores_do(kind: str) -> None:
    data, cuts = batch(kind, 7), (1, 2, 3, 5)
    data["item_embeddings"][10:14] = 9 * data["user_embeddings"][3]  # the best of this user, and of others
    found, expected = ([CollapseRate(k, warn_above=None) for k in cuts] for _ in range(2))
    for ours, theirs in zip(found, expected, strict=True):
        ours.update(**data)
        theirs.update(**scored(data))
    assert [float(metric.compute()) for metric in found] == [float(metric.compute()) for metric in expected]
    assert float(expected[1].compute()) > 0
