"""A search in a part of the catalogue is the search of a catalogue that holds nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fixtures.histories import updated
from oracles import catalogue as oracles

from torch_recmetrics import NDCG, Coverage, functional, rank, ranking_metrics, topk_catalogue

N_USERS, N_ITEMS = 7, 90
KINDS = ("smooth", "whole numbers", "constant")


def tables(kind: str, seed: int = 0) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    users, items = torch.randn(N_USERS, 4, generator=g), torch.randn(N_ITEMS, 4, generator=g)
    if kind == "whole numbers":
        users, items = users.round(), items.round()
    if kind == "constant":
        items = torch.ones_like(items)
    seen = torch.randint(-1, N_ITEMS, (N_USERS, 9), generator=g)
    return {"user_embeddings": users, "item_embeddings": items, "seen_ids": seen}


PART = torch.randperm(N_ITEMS, generator=torch.Generator().manual_seed(1))[:30]
MASK = torch.zeros(N_ITEMS, dtype=torch.bool).index_fill_(0, PART, True)
OF_USERS = torch.rand(N_USERS, N_ITEMS, generator=torch.Generator().manual_seed(2)) < 0.3
PARTS: dict[str, tuple[dict[str, torch.Tensor], torch.Tensor]] = {
    "ids": ({"item_ids": PART}, MASK.expand(N_USERS, N_ITEMS)),
    "narrow ids": ({"item_ids": PART.to(torch.int16)}, MASK.expand(N_USERS, N_ITEMS)),
    "mask": ({"mask": MASK}, MASK.expand(N_USERS, N_ITEMS)),
    "mask of users": ({"mask": OF_USERS}, OF_USERS),
    "all": ({"item_ids": torch.arange(N_ITEMS)}, torch.ones(N_USERS, N_ITEMS, dtype=torch.bool)),
    "nothing": ({"mask": torch.zeros(N_ITEMS, dtype=torch.bool)}, torch.zeros(N_USERS, N_ITEMS, dtype=torch.bool)),
    "no item": ({"item_ids": PART[:0]}, torch.zeros(N_USERS, N_ITEMS, dtype=torch.bool)),
    "nothing for a user": ({"mask": OF_USERS & (torch.arange(N_USERS) > 0).unsqueeze(1)}, OF_USERS),
}
PARTS["nothing for a user"] = (PARTS["nothing for a user"][0], PARTS["nothing for a user"][0]["mask"])


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_best_of_a_part_are_those_of_a_sort(kind: str, name: str) -> None:
    given, shown = PARTS[name]
    data = tables(kind)
    bias = torch.arange(N_ITEMS) % 3 - 1.0
    all_scores = oracles.scores(data["user_embeddings"].tolist(), data["item_embeddings"].tolist(), bias.tolist())
    for k in (1, 5, 40):
        for chunk_size in (3, None):
            scores, ids = topk_catalogue(**data, top_k=k, item_bias=bias, chunk_size=chunk_size, **given)
            for b in range(N_USERS):
                hidden = {*data["seen_ids"][b].tolist(), *(~shown[b]).nonzero().flatten().tolist()}
                expected = oracles.best(all_scores[b], k, hidden)
                assert ids[b].tolist() == [i for _, i in expected]
                assert scores[b].tolist() == pytest.approx([s for s, _ in expected], rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("kind", KINDS)
def test_metrics_of_a_part_are_those_of_masked_scores(kind: str, name: str) -> None:
    given, shown = PARTS[name]
    data = tables(kind, 3)
    g = torch.Generator().manual_seed(4)
    more = {
        "target_ids": torch.stack([torch.randperm(N_ITEMS, generator=g)[:6] for _ in range(N_USERS)]),
        "target_relevance": torch.randint(0, 4, (N_USERS, 6), generator=g),
    }
    # Exact products of these numbers: the dense layout has the same ties.
    preds = data["user_embeddings"].double() @ data["item_embeddings"].double().T
    if kind == "constant":
        preds = preds[:, :1].expand_as(preds).contiguous()
    names = ("ndcg", "recall", "map", "mrr", "coverage")
    for ties in ("average", "stable", "optimistic", "pessimistic"):
        by = {"options": {"coverage": {"num_items": N_ITEMS}}, "top_k": (1, 5, 40)}
        ours, dense = (ranking_metrics(names, **by, ties=ties) for _ in range(2))
        ours.update(**data, **more, **given)
        dense.update(preds, mask=shown, seen_ids=data["seen_ids"], **more)
        uncut = [updated(NDCG(None, ties=ties), **data, **more, **given)]
        uncut += [updated(NDCG(None, ties=ties), preds, mask=shown, seen_ids=data["seen_ids"], **more)]
        for key, value in dense.compute().items():
            torch.testing.assert_close(ours[key].compute(), value, rtol=0, atol=1e-12, msg=key)
        torch.testing.assert_close(*(metric.compute() for metric in uncut), rtol=0, atol=1e-12)


def test_what_is_not_in_the_part_was_not_recommended() -> None:
    users, items = torch.ones(1, 1), torch.tensor([[9.0], [5.0], [7.0]])
    update = {"user_embeddings": users, "item_embeddings": items, "target_ids": torch.tensor([[0, 1]])}
    assert functional.recall(**update, item_ids=torch.tensor([2, 1]), top_k=2).tolist() == [0.5]
    assert rank(**update, item_ids=torch.tensor([1, 2]), top_k=3).item_ids.tolist() == [[2, 1]]
    metric = updated(Coverage(3, 1), **update, item_ids=torch.tensor([1, 2]))
    assert float(metric.compute()) == 1 / 3 and 'candidates="sampled(2)"' in metric.definition()
    assert "sampled" not in updated(Coverage(3, 1), **update, mask=torch.tensor([True, False, True])).definition()


def test_vectors_outside_of_the_part_are_not_read_and_those_within_are_told_by_their_row() -> None:
    data: dict[str, Any] = tables("smooth")
    outside = int((~MASK).nonzero()[0])
    data["item_embeddings"][outside] = float("nan")
    topk_catalogue(**data, top_k=3, mask=MASK)
    data["item_embeddings"][PART[4]] = float("nan")
    with pytest.raises(ValueError, match=rf"`item_embeddings` must be finite, .* in row {int(PART[4])}"):
        topk_catalogue(**data, top_k=3, mask=MASK)
    bias = torch.zeros(N_ITEMS).index_fill_(0, PART[5:6], float("inf"))
    with pytest.raises(ValueError, match=rf"`item_bias` must be finite .* in row {int(PART[5])}"):
        topk_catalogue(**tables("smooth"), top_k=3, item_ids=PART, item_bias=bias)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"mask": MASK[:-1]}, r"`mask` must have the shape \(90,\), .* \(7, 90\), .* got \(89,\)"),
        ({"mask": PART}, "`mask` must have the shape"),
        ({"mask": MASK.float()}, "`mask` must be bool"),
        ({"mask": MASK, "item_ids": PART}, "must not be given together"),
        ({"item_ids": torch.tensor([1, 90])}, "below the number of items, 90, got 90"),
        ({"item_ids": torch.tensor([1, -1])}, "got -1"),
        ({"item_ids": torch.tensor([1, 2, 1])}, "must not hold an id twice, got 1 twice"),
        ({"item_ids": torch.tensor([[1, 2]])}, "must have 1 dimension"),
        ({"item_ids": [1, 2]}, "must be a tensor, got list"),
    ],
    ids=str,
)
def test_what_is_no_part_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        topk_catalogue(**tables("smooth"), top_k=3, **given)
