"""Scores of a few candidates, each an item id."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from fixtures.histories import updated
from fixtures.refusals import refused

from torch_recmetrics import (
    MAP,
    MRR,
    NDCG,
    Coverage,
    HitRate,
    Novelty,
    Recall,
    RecMetricCollection,
    Sliced,
    UserBootstrap,
    functional,
    rank,
    ranking_metrics,
)
from torch_recmetrics.core.layouts.relevance import columns_of

PREDS = torch.tensor([[0.9, 0.1, 0.5], [0.2, 0.8, 0.4]])
IDS = torch.tensor([[40, 7, 12], [3, 40, -1]])


@pytest.mark.parametrize("item_ids", [IDS, torch.tensor([4, 0, 9])])
def test_item_0_is_shown(item_ids: torch.Tensor) -> None:
    """As any candidate is, whether all users have the same or not."""
    metric = HitRate(1)
    metric.update(PREDS, item_ids=item_ids % 40, target_ids=torch.zeros(2, 1, dtype=torch.int64))
    assert float(metric.compute()) == (1.0 if item_ids.ndim == 2 else 0.5)


def sampled(n_users: int, n_items: int, n_negatives: int, seed: int = 0) -> tuple[list[Any], list[Any], list[int]]:
    """Candidates, their scores and the positive of each user, who stands anywhere among the negatives."""
    draw = random.Random(seed)
    ids = [draw.sample(range(n_items), n_negatives + 1) for _ in range(n_users)]
    return ids, [[draw.gauss(0, 1) for _ in row] for row in ids], [draw.choice(row) for row in ids]


def plain_evaluator(ids: list[Any], scores: list[Any], positives: list[int], k: int) -> dict[str, float]:
    """One positive among sampled negatives, as papers evaluate it: the rank of the positive says it all."""
    ranks = []
    for row, of, positive in zip(ids, scores, positives):
        own = of[row.index(positive)]
        ranks.append(1 + sum(score > own for score in of))
    shown = [sorted(zip(of, row), reverse=True)[:k] for row, of in zip(ids, scores)]
    n = len(ranks)
    return {
        "hit_rate": sum(r <= k for r in ranks) / n,
        "ndcg": math.fsum(1 / math.log2(r + 1) for r in ranks if r <= k) / n,
        "mrr": math.fsum(1 / r for r in ranks if r <= k) / n,
        "map": math.fsum(1 / r for r in ranks if r <= k) / n,
        "recall": sum(r <= k for r in ranks) / n,
        "precision": sum(r <= k for r in ranks) / (n * k),
        "coverage": len({item for row in shown for _, item in row}) / 5000,
    }


@pytest.mark.parametrize(
    "shape", [(4, 7, 3), (1, 1, 1), (3, 50, 6), (2, 5, 0), (3, 0, 2), (0, 4, 2), (3, 50, 20), (3, 0, 20)]
)
def test_items_are_found_among_the_candidates(shape: tuple[int, int, int], way: str) -> None:
    """By a comparison of each with each, and by a search."""
    n_users, n_candidates, n_wanted = shape
    g = torch.Generator().manual_seed(n_candidates)
    item_ids = torch.stack([torch.randperm(60, generator=g)[:n_candidates] for _ in range(n_users)] or [torch.empty(0)])
    item_ids = item_ids.reshape(n_users, n_candidates).to(torch.int64)
    item_ids[:, ::4] = -1
    wanted = torch.randint(-1, 60, (n_users, n_wanted), generator=g)
    columns = columns_of(item_ids, wanted)
    expected = [
        [ids.index(item) if item >= 0 and item in ids else -1 for item in items]
        for ids, items in zip(item_ids.tolist(), wanted.tolist(), strict=True)
    ]
    assert columns.dtype == torch.int64 and columns.tolist() == expected


def test_of_a_candidate_that_comes_again_the_first_is_found(way: str) -> None:
    item_ids = torch.randint(8, (3, 60), generator=torch.Generator().manual_seed(0))  # with checks off
    for n in (4, 8):
        found = columns_of(item_ids, torch.arange(n).expand(3, -1))
        assert found.tolist() == [[ids.index(item) for item in range(n)] for ids in item_ids.tolist()]


def test_a_candidate_that_comes_again_is_refused_wherever_it_stands(way: str) -> None:
    item_ids = torch.tensor([[4, 9, 1, -1, -1], [7, 2, 5, 7, 3]])
    metric = HitRate(2)
    with refused(metric, "`item_ids` must not hold an id twice in one row, got 7 twice in row 1"):
        metric.update(torch.rand(2, 5), item_ids=item_ids, target_ids=torch.tensor([4, 2]))


def test_one_positive_and_100_negatives_give_the_numbers_of_a_plain_evaluator() -> None:
    ids, scores, positives = sampled(60, 5000, 100)
    expected = plain_evaluator(ids, scores, positives, 10)
    metrics = ranking_metrics(list(expected), top_k=10, options={"coverage": {"num_items": 5000}})
    preds, items = torch.tensor(scores, dtype=torch.float64), torch.tensor(ids)
    for part in (slice(0, 25), slice(25, 60)):
        metrics.update(preds[part], item_ids=items[part], target_ids=torch.tensor(positives)[part].unsqueeze(1))
    values = metrics.compute()
    for name, value in expected.items():
        assert float(values[f"{name}@10"]) == pytest.approx(value, abs=1e-12), name


def test_metrics_of_the_catalogue_read_the_ids() -> None:
    update = {"preds": PREDS, "item_ids": IDS, "target_ids": torch.tensor([[12], [7]])}
    assert float(updated(Coverage(50, top_k=2), **update).compute()) == 3 / 50  # 40 and 12; 40 and 3
    counts = torch.arange(1, 51)
    by_list = {"item_ids": torch.tensor([[40, 12], [40, 3]]), "target_ids": update["target_ids"]}
    assert torch.equal(
        updated(Novelty(counts, top_k=2, num_users=99), **update).compute(),
        updated(Novelty(counts, top_k=2, num_users=99), **by_list).compute(),
    )
    assert torch.equal(rank(**update, top_k=2).item_ids, by_list["item_ids"])
    with refused(Coverage(40, top_k=2), r"coverage@2 knows 40 items, so ids must be below 40, got 40 in row 0"):
        metric = Coverage(40, top_k=2)
        metric.update(**update)
    updated(Coverage(40, top_k=1), PREDS[:, 1:], item_ids=IDS[:, 1:].clamp(max=39))


def test_scores_of_other_columns_are_refused_with_candidates_as_the_next_step() -> None:
    with refused(Coverage(50), r"50 items, but 3 are scored.*`item_ids`, the id of each column"):
        Coverage(50).update(PREDS)


def test_a_target_that_is_no_candidate_was_not_recommended() -> None:
    targets = torch.tensor([[12, 99], [98, 99]])
    update = {"preds": PREDS, "item_ids": IDS, "target_ids": targets}
    assert functional.recall(**update, top_k=2).tolist() == [0.5, 0.0]
    best = 1 + 1 / math.log2(3)
    assert functional.ndcg(**update, top_k=2).tolist() == pytest.approx([(1 / math.log2(3)) / best, 0.0], abs=1e-15)
    assert functional.ndcg(**update, top_k=None).tolist() == pytest.approx([(1 / math.log2(3)) / best, 0.0], abs=1e-15)
    graded = {**update, "target_relevance": torch.tensor([[1.0, 3.0], [2.0, 2.0]])}
    ideal = 7 + 1 / math.log2(3)
    for top_k in (2, None):
        value = functional.ndcg(**graded, top_k=top_k).tolist()
        assert value == pytest.approx([(1 / math.log2(3)) / ideal, 0.0], abs=1e-15)


def test_candidates_for_all_users_are_given_once() -> None:
    shared = torch.tensor([40, 7, 12])
    update = {"preds": PREDS, "target_ids": torch.tensor([[7], [40]]), "seen_ids": torch.tensor([[40, 5], [7, -1]])}
    for make in (NDCG, MAP, MRR, Recall):
        for top_k in (1, 2, None):
            values = [
                updated(make(top_k), item_ids=items, **update).compute() for items in (shared, shared.expand(2, 3))
            ]
            assert torch.equal(*values)
    lists = rank(**update, item_ids=shared, top_k=3).item_ids
    assert lists.tolist() == [[12, 7, -1], [12, 40, -1]]


def test_equal_scores_stand_in_the_order_of_the_columns() -> None:
    items = torch.tensor([[9, 2, 5, -1, 4]])
    assert rank(torch.ones(1, 5), item_ids=items, top_k=5).item_ids.tolist() == [[9, 2, 5, 4, -1]]
    update = {"preds": torch.ones(1, 5), "item_ids": items, "target_ids": torch.tensor([[2]])}
    assert float(functional.reciprocal_rank(**update, ties="stable")) == 1 / 2
    assert float(functional.hit_rate(**update, top_k=1)) == 1 / 4  # by chance, among what is no padding


def test_padding_is_never_recommended_whatever_its_score() -> None:
    preds = torch.tensor([[float("nan"), 1.0, float("inf")]])
    items = torch.tensor([[-1, 3, -1]])
    assert rank(preds, item_ids=items, top_k=3).item_ids.tolist() == [[3, -1, -1]]
    nobody = {"preds": preds, "item_ids": torch.full((1, 3), -1), "target_ids": torch.tensor([[3]])}
    assert float(functional.recall(**nobody, top_k=2)) == 0
    none = {"preds": torch.ones(2, 0), "item_ids": torch.ones((2, 0), dtype=torch.int64), "target_ids": IDS[:, :1]}
    assert functional.recall(**none, top_k=2).tolist() == [0.0, 0.0]


# What the definition says ---------------------------------------------------------------------------------------------

UPDATE = {"preds": PREDS, "item_ids": IDS, "target_ids": torch.tensor([[12], [7]])}
CATALOGUE = {"preds": PREDS, "target_ids": torch.tensor([[1], [2]])}


def test_the_definition_says_that_candidates_were_sampled() -> None:
    metric = NDCG(2)
    plain = metric.definition()
    metric.update(**CATALOGUE)
    assert metric.definition() == plain
    names = set(metric._defaults)
    metric(**UPDATE)
    assert metric.definition() == f'{plain[:-1]}, candidates="sampled(3)")'
    metric(**CATALOGUE)
    assert metric.definition() == f'{plain[:-1]}, candidates="sampled(3)")'
    assert set(metric._defaults) == names and metric.exchanged == plain
    metric.update(PREDS[:, :2], item_ids=IDS[:, :2], target_ids=UPDATE["target_ids"])
    assert metric.definition() == f'{plain[:-1]}, candidates="sampled(2 to 3)")'
    assert metric.clone().definition() == metric.definition()
    other = NDCG(2)
    other.merge_state(metric)
    assert other.definition() == metric.definition()
    metric.reset()
    assert metric.definition() == plain
    with refused(metric, "twice"):
        metric(**{**UPDATE, "item_ids": torch.zeros_like(IDS)})
    assert metric.definition() == plain


SEEN = torch.tensor([[0], [-1]])
FLAT = {"preds": PREDS.flatten(), "target": torch.ones(6), "indexes": torch.arange(6) // 3}
EMBEDDED = {
    "user_embeddings": torch.eye(2),
    "item_embeddings": torch.eye(3)[:, :2],
    "target_ids": torch.tensor([[1], [0]]),
}
HIDING = {
    "seen_ids": {**CATALOGUE, "seen_ids": SEEN},
    "mask": {**CATALOGUE, "mask": torch.ones_like(PREDS, dtype=torch.bool)},
    "mask of all": {**EMBEDDED, "mask": torch.tensor([True, False, True])},
    "mask of each": {**EMBEDDED, "mask": torch.ones(2, 3, dtype=torch.bool)},
    "lists": {"item_ids": IDS, "target_ids": UPDATE["target_ids"], "seen_ids": SEEN},
    "flat": {**FLAT, "mask": torch.ones(6, dtype=torch.bool)},
    "ready": {"preds": rank(**CATALOGUE, seen_ids=SEEN)},
}
MAKERS = {
    "alone": lambda: NDCG(2),
    "sliced": lambda: Sliced(NDCG(2), ("a", "b")),
    "resampled": lambda: UserBootstrap(NDCG(2), num_replicates=2),
}


@pytest.mark.parametrize("way", HIDING)
@pytest.mark.parametrize("kind", MAKERS)
def test_the_definition_says_that_items_were_hidden(way: str, kind: str) -> None:
    def made() -> Any:
        return MAKERS[kind]()

    def of(metric: Any) -> str:
        return str(getattr(metric, "metric", metric).definition())

    slices = {"slice_ids": torch.tensor([0, 1])} if kind == "sliced" else {}
    metric, plain = made(), of(made())
    metric.update(**CATALOGUE, **slices)
    assert of(metric) == plain
    if slices and way == "flat":
        metric, slices = made(), {"slice_ids": torch.arange(6) // 3}
    hidden = f"{plain[:-1]}, hidden=True)"
    one, two = made(), made()
    for other, run in ((one, one), (two, two.update)):
        run(**HIDING[way], **slices)
        assert of(other) == hidden
    metric.merge_state(one)
    of_dict, resumed = made(), made()
    of_dict.merge_state(one.metric_state)
    one.persistent(True)
    resumed.persistent(True)
    resumed.load_state_dict(one.state_dict())
    for other in (metric, of_dict, resumed, one.clone()):
        assert of(other) == hidden
    one.reset()
    assert of(one) == plain


RANKED_AMONG = {
    "candidates of each": UPDATE,
    "candidates of all": {**CATALOGUE, "item_ids": torch.tensor([40, 7, 12])},
    "all items": CATALOGUE,
    "seen_ids": HIDING["seen_ids"],
    "mask": HIDING["mask"],
    "lists": {"item_ids": IDS, "target_ids": UPDATE["target_ids"]},
    "part": {**EMBEDDED, "item_ids": torch.tensor([0, 2])},
    "mask of all": {**EMBEDDED, "mask": torch.tensor([True, False, True])},
    "mask of each": {**EMBEDDED, "mask": torch.ones(2, 3, dtype=torch.bool)},
}


@pytest.mark.parametrize("way", RANKED_AMONG)
def test_a_ready_ranking_tells_what_was_ranked(way: str) -> None:
    """As its arguments do: a value among candidates must not pass for one of the catalogue."""
    given = {**RANKED_AMONG[way], "sample_ids": torch.tensor([3, 8])}
    direct, ready = NDCG(2, keep_users=True), NDCG(2, keep_users=True)
    direct.update(**given)
    ready.update(rank(**given))
    assert ready.definition() == direct.definition()
    assert ready.users().candidates == direct.users().candidates
    assert ("sampled" in ready.definition()) == (way in ("candidates of each", "candidates of all", "part"))


def test_states_alone_carry_what_was_ranked() -> None:
    """As a bare dict, the way in which other programs send them."""
    metric, other = NDCG(2), NDCG(2)
    metric.update(**UPDATE)
    other.merge_state(metric.metric_state)
    assert other.definition() == metric.definition() and "sampled(3)" in other.definition()
    assert not any(name.startswith("candidates") for name in NDCG(2).metric_state)
    wrong = {**metric.metric_state, metric.state_name("candidates"): torch.tensor([0.5])}
    with refused(other, "`candidates` of ndcg@2 must be a tensor of integers"):
        other.merge_state(wrong)


def test_a_metric_that_knows_the_catalogue_knows_when_it_was_scored() -> None:
    metrics = RecMetricCollection([NDCG(2), Coverage(3, top_k=2), HitRate(1)])
    metrics.update(PREDS, item_ids=torch.tensor([2, 0, 1]), target_ids=torch.tensor([[1], [2]]))
    sampled_members = [name for name, metric in metrics.items() if "sampled(3)" in metric.definition()]
    assert sampled_members == ["ndcg@2", "hit_rate@1"]
    metrics.reset()
    assert not any("sampled" in metric.definition() for metric in metrics.values())


@pytest.mark.parametrize("top_k", [3, None])
def test_the_best_list_may_be_longer_than_the_candidates(top_k: int | None) -> None:
    preds, target_ids = torch.tensor([[0.9, 0.4]]), torch.tensor([[5, 7, 8]])
    for item_ids in (torch.tensor([[5, 6]]), torch.tensor([5, 6])):
        value = functional.ndcg(preds, item_ids=item_ids, target_ids=target_ids, top_k=top_k)
        assert float(value) == pytest.approx(1 / (1 + 1 / math.log2(3) + 1 / 2))


@pytest.mark.parametrize("top_k", [12, 10**12])
def test_a_cutoff_beyond_the_candidates_takes_no_memory(top_k: int) -> None:
    metrics = ranking_metrics(
        ("ndcg", "recall", "precision", "coverage"), top_k, options={"coverage": {"num_items": 12}}
    )
    for sample_ids, width in ((torch.tensor([0, 1]), 3), (torch.tensor([1, 2]), 2)):
        metrics.update(
            PREDS[:, :width], item_ids=IDS[:, :width] % 12, target_ids=IDS[:, :1] % 12, sample_ids=sample_ids
        )
    values = {name.partition("@")[0]: float(value) for name, value in metrics.compute().items()}
    assert values["recall"] == 1 and values["precision"] == pytest.approx(1 / top_k)


@pytest.mark.parametrize("together", [False, True])
def test_a_checkpoint_says_among_how_many_candidates_was_ranked(together: bool) -> None:
    def made(**update: Any) -> Any:
        metric = ranking_metrics(("ndcg", "mrr"), top_k=3) if together else NDCG(3)
        metric.persistent(True)
        if update:
            metric.update(torch.rand(2, 5), target_ids=torch.tensor([0, 3]), **update)
        return metric

    def said(metric: Any) -> list[str]:
        return [member.definition() for member in (metric.values() if together else [metric])]

    sampled, full = made(item_ids=torch.arange(5)), made()
    full.update(torch.rand(2, 5), target_ids=torch.tensor([0, 3]))
    loaded = made()
    for other in (sampled, full, sampled):
        loaded.load_state_dict(other.state_dict())
        assert said(loaded) == said(other)
    loaded.persistent(False)
    assert not loaded.state_dict()
    fresh = made()
    fresh.load_state_dict(loaded.state_dict(), strict=False)
    assert said(fresh) == said(made())
