"""The same users in every layout that can say them: the same bits, or the same users added up in another order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from fixtures import cases
from fixtures.cases import Case, Update, drawn, holds, without
from fixtures.histories import updated
from fixtures.items import NUM_ITEMS
from fixtures.variants import DEFAULTS, LISTED, RANKED, K, Variant, emptied, named
from hypothesis import strategies as st
from oracles.ranking import OF_RANKS

import torch_recmetrics


def jagged(ids: torch.Tensor) -> torch.Tensor:
    rows = [row[row >= 0] for row in ids]
    return torch.nested.nested_tensor(rows, layout=torch.jagged)


def ragged(case: Case) -> Update:
    update = cases.target_ids(case)
    if case.scores and "target_relevance" not in update:
        update["target_ids"] = jagged(update["target_ids"])
        if "seen_ids" in update:
            update["seen_ids"] = jagged(update["seen_ids"])
    return update


def padded(case: Case) -> Update:
    update = cases.target_ids(case)
    if "target_relevance" not in update:
        update["target_ids"] = torch_recmetrics.pad_ids([row[row >= 0] for row in update["target_ids"]])
    return update


def sequence(case: Case) -> Update:
    """All users are steps of one sequence, between steps that are padding; an empty one would be left out."""
    n = len(case.scores)
    at = torch.arange(n) * 2 + 1
    fill = {
        "target_ids": -1,
        "seen_ids": -1,
        "weights": 0.5,
        "target_relevance": 1,
        "preds": float("nan"),
        "mask": True,
    }
    steps = {}
    for name, value in cases.target_ids(case).items():
        steps[name] = torch.full((1, 2 * n + 1, *value.shape[1:]), fill[name], dtype=value.dtype)
        steps[name][0, at] = value
    return steps


def candidates(case: Case) -> Update:
    """All items in the order of their ids, between columns that are padding, so that equal scores stand as they do."""
    update = cases.target_ids(case)
    order = [*range(case.n_items), -1, -1]
    for place in (0, case.n_items // 2):
        order.insert(place, order.pop())
    shown = torch.tensor(order)
    preds = torch.where(shown >= 0, update["preds"][:, shown.clamp(min=0)], float("nan")).to(case.dtype)
    ids = shown.expand(preds.shape)
    if "mask" in update:
        ids = torch.where(update.pop("mask")[:, shown.clamp(min=0)], ids, -1)
    return {**update, "preds": preds, "item_ids": ids}


def embeddings(case: Case) -> Update:
    """A vector of each user holds the scores, one of each item says which is its own; ids hide what is hidden."""
    update = cases.target_ids(case)
    preds = update["preds"]
    hidden = [
        [i for i, shown in enumerate(case.shown(b)) if not shown or row[i] == -cases.INF]
        for b, row in enumerate(preds.tolist())
    ]
    return {
        **without(update, "preds", "mask"),
        "user_embeddings": preds.masked_fill(preds == -cases.INF, 7.0),
        "item_embeddings": torch.eye(case.n_items, dtype=case.dtype),
        "seen_ids": torch_recmetrics.pad_ids(hidden),
    }


def masked_embeddings(case: Case) -> Update:
    """The same with a mask; what some users have seen is hidden by both."""
    update = embeddings(case)
    seen = update["seen_ids"] if case.seen else update.pop("seen_ids")
    mask = torch.ones(len(case.scores), case.n_items + 1, dtype=torch.bool)
    return {**update, "mask": mask.scatter(1, seen.where(seen >= 0, case.n_items), False)[:, :-1]}


def flat(case: Case) -> Update:
    """Rows in the order of the users and of their items."""
    n = len(case.scores)
    given = cases.dense(case)
    shown = torch.tensor([case.shown(b) for b in range(n)], dtype=torch.bool).reshape(n, case.n_items)
    rows = {
        "preds": given["preds"].flatten(),
        "target": given["target"].flatten(),
        "mask": shown.flatten(),
        "indexes": torch.arange(n).repeat_interleave(case.n_items),
    }
    if "weights" in given:
        rows["weights"] = given["weights"].repeat_interleave(case.n_items)
    return rows


SAME: dict[str, Callable[[Case], Update]] = {
    "dense": cases.dense,
    "ids": cases.target_ids,
    "ragged": ragged,
    "padded": padded,
    "sequence": sequence,
    "candidates": candidates,
    "shuffled candidates": cases.candidates,
    "ranked ids": cases.item_ids,
    "embeddings": embeddings,
    "masked embeddings": masked_embeddings,
    "flat": flat,
}


def distinct(case: Case) -> bool:
    """No two scores of a user are equal, as the dtype of the case rounds them."""
    return all(len(set(row)) == len(row) for row in cases.scores_of(case).tolist())


def sayable(layout: str, case: Case, ties: str, variant: Variant) -> bool:
    """Whether the layout can say these users."""
    if layout in ("candidates", "shuffled candidates", "ranked ids") and variant.oracle in OF_RANKS:
        return False  # where a hidden item stood
    if layout == "shuffled candidates":
        return ties != "stable" or distinct(case)
    if layout == "ranked ids":  # a list knows no equal scores
        return (ties == "stable" and variant.reads == "ranking") or distinct(case)
    if layout in ("embeddings", "masked embeddings"):  # scores are sums of products
        return not any(score == cases.INF for row in case.scores for score in row)
    if layout == "flat":
        return variant.reads == "ranking"
    if layout == "sequence":
        return bool(case.scores) and all(any(row) for row in case.relevance)
    return True


LAW = [*DEFAULTS, named("NDCG", gain="linear", ideal="relevant"), named("HitRate", pooled=True)]


def same_bits(value: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(value.nan_to_num(-1), other.nan_to_num(-1))


@pytest.mark.parametrize("layout", [name for name in SAME if name != "ids"])
@pytest.mark.parametrize("ties", ["average", "stable", "optimistic", "pessimistic"])
def test_the_same_users_give_the_same_bits(layout: str, ties: str) -> None:
    said = 0

    def law(case: Case, top_k: int | None) -> None:
        nonlocal said
        # Users with a tie group come behind all others, so of several the sum may be rounded in another way.
        in_order = ties == "stable" or distinct(case)
        for users in [case] if in_order else [case, *(case.part([b]) for b in range(len(case.scores)))]:
            which = {str(v): (v, top_k) for v in LAW if sayable(layout, users, ties, v)}
            said += len(which)
            if not which:
                continue
            expected = updated(emptied(which, ties=ties), **cases.target_ids(users)).compute()
            got = updated(emptied(which, ties=ties), **SAME[layout](users)).compute()
            # The members of a tie group are added up in the order of the columns. Whole lists in the order of the
            # input are evaluated by rank, those of embeddings item by item.
            by_item = "embeddings" in layout and ties == "stable" and top_k is None
            to_the_bit = layout != "shuffled candidates" and not by_item and (in_order or users is not case)
            for name in which:
                if to_the_bit:
                    assert same_bits(got[name], expected[name]), f"{name} {float(got[name] - expected[name])}"
                else:
                    of_both = got[name], expected[name]
                    torch.testing.assert_close(*of_both, rtol=1e-14, atol=1e-15, equal_nan=True, msg=name)

    top_k = st.sampled_from([1, 3, 12, None])
    holds(law, f"same bits {layout} {ties}", examples=5, case=drawn(), top_k=top_k)
    assert said


@pytest.mark.parametrize("layout", [name for name in SAME if name not in ("ids", "flat")])
def test_the_same_lists_give_the_same_bits(layout: str) -> None:
    said = 0

    def law(case: Case) -> None:
        nonlocal said
        wide, of_lists = case.in_catalogue(NUM_ITEMS), [v for v in LISTED if not v.needs_samples]
        which = {str(v): (v, K) for v in of_lists if v.label != "function" and sayable(layout, wide, "stable", v)}
        said += len(which)
        if which:
            expected = updated(emptied(which), **cases.target_ids(wide)).compute()
            got = updated(emptied(which), **SAME[layout](wide)).compute()
        for name in which:
            assert same_bits(got[name], expected[name]), name

    holds(law, f"same lists {layout}", examples=12, case=drawn())
    assert said


@pytest.mark.parametrize("layout", ["dense", "embeddings", "masked embeddings"])
def test_second_scores_are_the_lists_of_the_same_items(layout: str) -> None:
    """What must not be recommended is in neither list, whichever argument says so."""

    def law(case: Case) -> None:
        if not sayable(layout, case, "stable", LAW[0]):
            return
        second = replace(case, scores=[[s if s == -cases.INF else -s for s in row] for row in case.scores])
        lists = {
            **without(cases.item_ids(case), "target_ids", "target_relevance"),
            "reference_ids": cases.item_ids(second)["item_ids"],
        }
        given = without(SAME[layout](case), "target", "target_ids", "target_relevance")
        expected = updated(agreement_metrics(), **lists).compute()
        got = updated(agreement_metrics(), **given, reference_preds=cases.scores_of(second)).compute()
        for name, value in expected.items():
            assert same_bits(got[name], value), name

    holds(law, f"second scores {layout}", examples=12, case=drawn())


def agreement_metrics() -> torch_recmetrics.RecMetricCollection:
    ours = torch_recmetrics
    return ours.RecMetricCollection([ours.Overlap(2), ours.Jaccard(None), ours.RBO(), ours.KendallTau(3)])


def test_every_ranked_variant_is_tried() -> None:
    assert {v.metric for v in LAW} == {v.metric for v in RANKED}
