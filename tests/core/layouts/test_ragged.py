"""Ids of any number for each user, in what people keep them in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fixtures.histories import updated
from fixtures.refusals import refused

from torch_recmetrics import NDCG, Coverage, Recall, pad_ids

LISTS = [[3, 1, 2], [], [7, 2**40]]
PADDED = torch.tensor([[3, 1, 2], [-1, -1, -1], [7, 2**40, -1]])


def jagged(lists: list[list[Any]], dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.tensor(row, dtype=dtype) for row in lists], layout=torch.jagged)


def columns() -> dict[str, Any]:
    arrays = np.empty(3, dtype=object)
    arrays[:] = [np.array(row, dtype=np.int64) for row in LISTS]
    values, offsets = [3, 1, 2, 7, 2**40], [0, 3, 3, 5]
    return {
        "lists": LISTS,
        "tuples": [tuple(row) for row in LISTS],
        "a missing list": [LISTS[0], None, LISTS[2]],
        "a missing list of pandas": [LISTS[0], float("nan"), LISTS[2]],
        "arrays": list(arrays),
        "tensors": [torch.tensor(row, dtype=torch.int64) for row in LISTS],
        "an array of arrays": arrays,
        "values and offsets": (torch.tensor(values), torch.tensor(offsets)),
        "of lists": (values, offsets),
        "of arrays": (np.array(values), np.array(offsets, dtype=np.int32)),
        "an iterator": iter(LISTS),
    }


# A nested tensor is made in its test: the first one loads torch's compiler, behind which each update takes longer.
@pytest.mark.parametrize("kind", [*columns(), "nested"])
def test_lists_are_padded(kind: str) -> None:
    padded = pad_ids(jagged(LISTS) if kind == "nested" else columns()[kind])
    assert torch.equal(padded, PADDED) and padded.dtype == torch.int64


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.uint64])
def test_lists_of_numpys_integers(kind: Any) -> None:
    assert torch.equal(pad_ids([[kind(3), kind(1)], [kind(7)]]), torch.tensor([[3, 1], [7, -1]]))


def test_columns_of_data_frames() -> None:
    pandas = pytest.importorskip("pandas")
    series = pandas.Series(LISTS)
    assert torch.equal(pad_ids(series), PADDED)
    assert torch.equal(pad_ids(series.where([True, False, True])), PADDED)
    assert torch.equal(pad_ids(pandas.Series([LISTS[0], pandas.NA, LISTS[2]])), PADDED)
    frame = pandas.DataFrame({"user": [1, 1, 1, 3, 3], "item": [3, 1, 2, 7, 2**40]})
    assert torch.equal(pad_ids(frame.groupby("user").item.agg(list)), PADDED[[0, 2]])


def test_columns_of_arrow() -> None:
    arrow = pytest.importorskip("pyarrow")
    for column in (arrow.array(LISTS), arrow.chunked_array([LISTS[:1], [None], LISTS[2:]])):
        assert torch.equal(pad_ids(column), PADDED)
    assert torch.equal(pad_ids(arrow.array([[9], *LISTS]).slice(1)), PADDED)


def test_columns_of_polars() -> None:
    polars = pytest.importorskip("polars")
    assert torch.equal(pad_ids(polars.Series(LISTS)), PADDED)


def test_no_list_and_no_id() -> None:
    assert pad_ids([]).shape == (0, 0)
    assert pad_ids([[], []]).shape == (2, 0)
    assert pad_ids(([], [0, 0, 0])).shape == (2, 0)
    assert pad_ids(np.array([[1, 2], [3, 4]])).tolist() == [[1, 2], [3, 4]]
    assert pad_ids(torch.tensor([[1, -1], [3, 4]])).tolist() == [[1, -1], [3, 4]]


WRONG: list[tuple[Any, str]] = [
    ([[1, 2], [0.5]], r"integers .* got 0.5 in row 1"),
    ([[1], ["a"]], r"integers .* got 'a' in row 1"),
    ([[1], [None]], r"integers .* got None in row 1"),
    ([[True], [False]], r"integers .* got True in row 0"),
    ([[2**63]], r"integers .* in row 0"),
    ([[[1]]], r"integers .* got \[1\] in row 0"),
    ([1, 2], r"got int as row 0 of a list: one id for each user is `target_ids` \(B,\)"),
    ("12", r"`lists` must be .* got str"),
    ({"a": [1]}, r"`lists` must be .* got dict"),
    (7, r"`lists` must be .* got int"),
    (([1, 2], [3]), r"`offsets` .* begin with 0, .* the number of values, 2, got \[3\]: give lists as a list"),
    (([1, 2], [0, 3]), r"`offsets` .* the number of values, 2"),
    (([1, 2], [0, 2, 1, 2]), r"`offsets` .* never fall"),
    (([1, 2], []), r"`offsets` must hold integers|`offsets` .* begin with 0"),
    (([0.5], [0, 1]), r"`values` must hold integers"),
    (([[1]], [0, 1]), r"`values` of a tuple .* 1 dimension, got shape \(1, 1\)"),
]


@pytest.mark.parametrize(("lists", "says"), WRONG, ids=[str(lists) for lists, _ in WRONG])
def test_what_is_no_list_of_ids_is_refused(lists: Any, says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        pad_ids(lists)


# Nested tensors -------------------------------------------------------------------------------------------------------

WANTED, SEEN, SHOWN = [[3, 1, 2], [], [4]], [[0], [1, 1, 5], []], [[1, 0, 4], [2], [5, 4]]
PREDS = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("by", ["scores", "lists"])
def test_nested_ids_are_padded_ids(by: str) -> None:
    lists = {"target_ids": WANTED, "seen_ids": SEEN, **({"item_ids": SHOWN} if by == "lists" else {})}
    scores = {"preds": PREDS} if by == "scores" else {}
    relevance = [[1.0, 0.5, 2.0], [], [3.0]]
    padded = torch.tensor([[1.0, 0.5, 2.0], [0, 0, 0], [3, 0, 0]])
    for more, as_padded in (
        ({}, {}),
        ({"target_relevance": jagged(relevance, torch.float32)}, {"target_relevance": padded}),
    ):
        for metric in (NDCG(3), NDCG(None), Coverage(6, top_k=2)):
            one, other = metric.clone(), metric.clone()
            one.update(**scores, **{name: jagged(ids) for name, ids in lists.items()}, **more)
            other.update(**scores, **{name: pad_ids(ids) for name, ids in lists.items()}, **as_padded)
            assert torch.equal(one.compute(), other.compute())


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32])
def test_nested_ids_of_narrow_integers(dtype: torch.dtype) -> None:
    """Bytes have no -1 to be padded with."""
    wanted, shown = jagged(WANTED, dtype), jagged(SHOWN, dtype)
    one = updated(Recall(3), item_ids=shown, target_ids=wanted, seen_ids=jagged(SEEN, dtype))
    other = updated(Recall(3), item_ids=pad_ids(SHOWN), target_ids=pad_ids(WANTED), seen_ids=pad_ids(SEEN))
    assert torch.equal(one.compute(), other.compute())
    assert torch.equal(pad_ids(wanted), pad_ids(WANTED))


def test_nested_ids_with_holes() -> None:
    ids = torch.tensor([[3, 1, 2], [0, 0, 0], [4, 5, 5]])
    start, length = torch.tensor([0, 1, 0]), torch.tensor([3, 0, 1])
    holes = torch.nested.narrow(ids, 1, start, length, layout=torch.jagged)
    one, other = updated(NDCG(3), PREDS, target_ids=holes), updated(NDCG(3), PREDS, target_ids=jagged(WANTED))
    assert torch.equal(one.compute(), other.compute())


def test_nested_targets_of_sequences_end_before_the_last_step() -> None:
    preds = torch.randn(3, 5, 6, generator=torch.Generator().manual_seed(1))
    padded = torch.cat([pad_ids(WANTED), torch.full((3, 2), -1)], 1)
    one, other = updated(NDCG(3), preds, target_ids=jagged(WANTED)), updated(NDCG(3), preds, target_ids=padded)
    assert torch.equal(one.compute(), other.compute())


def test_candidates_of_unequal_number() -> None:
    preds = torch.randn(3, 3, generator=torch.Generator().manual_seed(2))
    one = updated(NDCG(2), preds, item_ids=jagged(SHOWN), target_ids=jagged(WANTED))
    other = updated(NDCG(2), preds, item_ids=pad_ids(SHOWN), target_ids=pad_ids(WANTED))
    assert torch.equal(one.compute(), other.compute())


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_other_nested_tensors_are_refused_with_the_next_step() -> None:
    strided = torch.nested.nested_tensor([torch.tensor(row, dtype=torch.int64) for row in WANTED])
    deep = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged)
    for given, says in (
        ({"preds": PREDS, "target_ids": strided}, r"`target_ids` .* strided layout.*layout=torch.jagged.*pad_ids"),
        (
            {"preds": PREDS, "target_ids": deep.long()},
            r"`target_ids` must have 2 dimensions, .* ragged, got 3",
        ),
        (
            {"preds": jagged(WANTED, torch.float32), "target_ids": PREDS},
            r"`preds` must be a dense tensor.*`seen_ids`",
        ),
        ({"preds": PREDS, "target_ids": jagged(WANTED, torch.float32)}, r"`target_ids` must hold integers"),
        ({"preds": PREDS, "target_ids": jagged(WANTED[:2])}, r"`target_ids` must have one row for each of the 3 rows"),
        ({"preds": PREDS, "target_ids": WANTED}, r"`target_ids` must be a tensor, got list: pad_ids\(lists\)"),
        ({"preds": PREDS, "target_ids": np.zeros(3, np.int64)}, "`target_ids` must be a tensor, got ndarray"),
        (
            {"preds": np.zeros((3, 2, 4)), "target_ids": torch.zeros(3, 2).long()},
            "`preds` must be a tensor, got ndarray",
        ),
    ):
        with refused(metric := NDCG(2), says):
            metric.update(**given)
    with pytest.raises(TypeError, match="strided layout"):
        pad_ids(strided)
