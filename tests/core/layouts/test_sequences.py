"""One relevant item for each user, and one for each step of a sequence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fixtures.histories import updated
from fixtures.refusals import refused

from torch_recmetrics import MRR, NDCG, Coverage, HitRate, RecMetricCollection, functional, rank

G = torch.Generator().manual_seed(4)
B, T, N = 3, 4, 6
PREDS = torch.randn(B, T, N, generator=G)
NEXT = torch.tensor([[-1, -1, 2, 5], [0, 1, 2, 3], [-1, 4, -1, 4]])  # padded in front, nowhere, and here and there
AT = [(b, t) for b in range(B) for t in range(T) if NEXT[b, t] != -1]


def stepped(value: torch.Tensor) -> torch.Tensor:
    return torch.stack([value[b, t] for b, t in AT])


def test_one_relevant_item_is_a_list_of_one() -> None:
    preds, ids = PREDS[:, 0], torch.tensor([2, -1, 5])
    for make in (NDCG, MRR):
        for more in ({}, {"target_relevance": torch.tensor([2.0, 0.0, 1.0])}):
            column = {name: value.unsqueeze(1) for name, value in more.items()}
            one = updated(make(3), preds, target_ids=ids, **more)
            assert torch.equal(one.compute(), updated(make(3), preds, target_ids=ids.unsqueeze(1), **column).compute())
    assert torch.equal(
        functional.recall(item_ids=torch.tensor([[2, 3], [1, 0], [4, 5]]), target_ids=ids, top_k=2).nan_to_num(-1),
        torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64),
    )
    with refused(NDCG(3), r"`target_ids` must have one row for each of the 3 rows of `preds`, got shape \(2,\)"):
        NDCG(3).update(preds, target_ids=ids[:2])


def test_every_step_that_has_a_target_is_a_row() -> None:
    weights, samples = torch.rand(B, T, generator=G), torch.arange(B * T).view(B, T)
    seen, per_step = torch.randint(-1, N, (B, 2), generator=G), torch.randint(-1, N, (B, T, 2), generator=G)
    mask = torch.rand(B, T, N, generator=G) > 0.2
    rows = {"preds": stepped(PREDS), "target_ids": stepped(NEXT)}
    ways: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {}),
        ({"weights": weights}, {"weights": stepped(weights)}),
        ({"weights": weights[:, 0]}, {"weights": stepped(weights[:, :1].expand(B, T))}),
        ({"sample_ids": samples}, {"sample_ids": stepped(samples)}),
        ({"seen_ids": seen}, {"seen_ids": stepped(seen.unsqueeze(1).expand(B, T, 2))}),
        ({"seen_ids": per_step}, {"seen_ids": stepped(per_step)}),
        ({"mask": mask}, {"mask": stepped(mask)}),
    ]
    for given, as_rows in ways:
        for metric in (NDCG(3), MRR(), Coverage(N, top_k=2)):
            one, other = metric.clone(), metric.clone()
            one.update(PREDS, target_ids=NEXT, **given)
            other.update(**rows, **as_rows)
            assert torch.equal(one.compute(), other.compute()), (metric, given)
    assert functional.hit_rate(PREDS, target_ids=NEXT, top_k=2).shape == (len(AT),)
    assert torch.equal(rank(PREDS, target_ids=NEXT, top_k=2).item_ids, rank(**rows, top_k=2).item_ids)


def test_several_relevant_items_of_a_step() -> None:
    ids = torch.stack([NEXT, torch.where(NEXT == 2, 0, -1)], 2)
    relevance = torch.rand(B, T, 2, generator=G)
    one = updated(NDCG(3), PREDS, target_ids=ids, target_relevance=relevance)
    other = updated(NDCG(3), stepped(PREDS), target_ids=stepped(ids), target_relevance=stepped(relevance))
    assert torch.equal(one.compute(), other.compute())
    padded_first = {"target_ids": ids.flip(2), "target_relevance": relevance.flip(2)}
    assert torch.equal(updated(NDCG(3), PREDS, **padded_first).compute(), one.compute())


def test_a_sequence_without_a_target_is_no_row() -> None:
    nothing = torch.full((1, T), -1)
    both = {"preds": PREDS[:2], "target_ids": torch.cat([nothing, NEXT[1:2]])}
    alone = {"preds": PREDS[1:2], "target_ids": NEXT[1:2]}
    assert torch.equal(functional.hit_rate(**both, top_k=3), functional.hit_rate(**alone, top_k=3))
    for action in ("skip", "neg", "pos", "error"):
        metric = HitRate(3, empty_target_action=action)
        assert torch.equal(updated(metric.clone(), **both).compute(), updated(metric, **alone).compute())
    assert updated(Coverage(N, 1), PREDS[:1], target_ids=nothing).compute() == 0


def test_no_id_of_bytes_is_padding() -> None:
    preds, ids = torch.arange(3 * 300.0).view(1, 3, 300), torch.tensor([[255, 43, 255]], dtype=torch.uint8)
    assert functional.hit_rate(preds, target_ids=ids, top_k=300 - 255).tolist() == [1, 0, 1]


def test_padded_steps_are_not_read() -> None:
    preds = torch.where((NEXT == -1).unsqueeze(2), float("nan"), PREDS)
    assert torch.equal(
        updated(NDCG(3), preds, target_ids=NEXT).compute(), updated(NDCG(3), PREDS, target_ids=NEXT).compute()
    )


def test_sequences_of_candidates_lists_and_vectors() -> None:
    ids = torch.stack([torch.randperm(N, generator=G)[:4] for _ in range(B * T)]).view(B, T, 4)
    scores, targets = PREDS[:, :, :4], {"target_ids": NEXT}
    rows = {"target_ids": stepped(NEXT)}
    users, items = PREDS, torch.randn(9, N, generator=G)
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"preds": scores, "item_ids": ids}, {"preds": stepped(scores), "item_ids": stepped(ids)}),
        ({"preds": scores, "item_ids": ids[0, 0]}, {"preds": stepped(scores), "item_ids": ids[0, 0]}),
        (
            {"preds": scores, "item_ids": ids[:, 0]},
            {"preds": stepped(scores), "item_ids": stepped(ids[:, :1].expand(B, T, 4))},
        ),
        ({"item_ids": ids}, {"item_ids": stepped(ids)}),
        (
            {"user_embeddings": users, "item_embeddings": items},
            {"user_embeddings": stepped(users), "item_embeddings": items},
        ),
    ]
    for sequence, as_rows in pairs:
        one, other = updated(NDCG(3), **sequence, **targets), updated(NDCG(3), **as_rows, **rows)
        assert torch.equal(one.compute(), other.compute()), list(sequence)


def test_a_collection_and_forward_take_sequences() -> None:
    metrics = RecMetricCollection([NDCG(3), MRR(), Coverage(N, top_k=2)])
    values = metrics(PREDS, target_ids=NEXT)
    assert torch.equal(values["ndcg@3"], NDCG(3)(stepped(PREDS), target_ids=stepped(NEXT)))


def test_sequences_without_users_or_steps_count_nothing() -> None:
    for shape in ((0, T), (B, 0)):
        metric = updated(NDCG(3), torch.zeros(*shape, N), target_ids=torch.zeros(shape, dtype=torch.int64))
        assert metric.compute().isnan()


WRONG = [
    ({"target_ids": NEXT[:, :2]}, r"`target_ids` of sequences .* \(3, 4\), or \(3, 4, R\) .* got \(3, 2\)"),
    ({"target_ids": NEXT[:, 0]}, r"`target_ids` of sequences .* got \(3,\)"),
    ({"target_ids": NEXT.float()}, r"`target_ids` must hold integers"),
    ({"target_ids": NEXT + 5 * (NEXT == 5)}, r"below the number of items, 6, got 10 in step 3 of sequence 0"),
    ({"target_ids": torch.where(NEXT == -1, -100, NEXT)}, r"-1 for padding, got -100 in step 0 of sequence 0"),
    ({"sample_ids": torch.arange(B)}, r"`sample_ids` of sequences .* \(3, 4\), .* got \(3,\)"),
    ({"weights": torch.ones(2)}, r"`weights` of sequences .* \(3,\) .* or \(3, 4\), .* got \(2,\)"),
    ({"weights": -torch.ones(B)}, r"`weights` must be >= 0 .* in step 2 of sequence 0"),
    ({"seen_ids": NEXT[:2]}, r"`seen_ids` of sequences .* got \(2, 4\)"),
    ({"mask": torch.ones(B, N, dtype=torch.bool)}, r"`mask` of sequences .* \(3, 4, 6\), .* got \(3, 6\)"),
    ({"target": torch.ones(B, T, N)}, r"needs `target_ids`"),
    ({"target_ids": None}, r"`target_ids` is missing: of a sequence, `preds` of shape \(3, 4, 6\)"),
]


@pytest.mark.parametrize(("given", "says"), WRONG, ids=[says[:40] for _, says in WRONG])
def test_sequences_that_do_not_fit_are_refused(given: dict[str, Any], says: str) -> None:
    update = {"preds": PREDS, "target_ids": NEXT, **given}
    for metric in (NDCG(3), RecMetricCollection([NDCG(3), MRR()])):
        with refused(metric, says):
            metric.update(**update)


def test_a_nan_is_told_by_sequence_and_step() -> None:
    preds = PREDS.clone()
    preds[2, 3, 1] = float("nan")
    with refused(metric := NDCG(3), r"`preds` must not be NaN, got NaN in step 3 of sequence 2"):
        metric.update(preds, target_ids=NEXT)
