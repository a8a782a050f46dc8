"""The best items of a whole catalogue for every user, from their embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.catalogue.pair_scores import PairScores, checked_embeddings
from torch_recmetrics.core.catalogue.parts import checked_part
from torch_recmetrics.core.catalogue.sharded import LocalTopK, merged_over_processes
from torch_recmetrics.core.catalogue.topk import topk_items
from torch_recmetrics.core.layouts.relevance import columns_of, ids_at
from torch_recmetrics.core.tensors import checks as check

__all__ = ["topk_catalogue"]

# Item ids are int64, and a result has this many places at most for each user.
LARGEST_ID, LARGEST_TOP_K = 2**63 - 1, 2**31 - 1
check_first_item = check.number_check("an integer >= 0", int, least=0)


def topk_catalogue(
    user_embeddings: Tensor,
    item_embeddings: Tensor,
    top_k: int,
    *,
    seen_ids: Tensor | None = None,
    item_bias: Tensor | None = None,
    item_ids: Tensor | None = None,
    mask: Tensor | None = None,
    similarity: str = "dot",
    chunk_size: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    process_group: Any = None,
    first_item: int = 0,
) -> tuple[Tensor, Tensor]:
    r"""The items with the highest scores for every user, exactly, in bounded memory.

    .. math:: s_{ui} = \sum_j x_{uj} \, y_{ij} + b_i \qquad \text{or, with the cosine,} \qquad
        s_{ui} = \frac{x_u \cdot y_i}{|x_u| \, |y_i|} + b_i

    Items are ordered by this score in float64, and items with equal scores by id. The score of a pair is computed by
    itself. So the result is the same to the last bit for every ``chunk_size`` and any number of users, threads and
    processes. A matrix product in float32 (in bfloat16 where the processor has it) finds the items that may be among
    the best, with a margin for its error.

    Beside the tables and a few copies of the seen ids and of the result, it needs less than 200 MB for any number of
    items (on a GPU less than 1 GB); a large ``chunk_size`` needs more. Gradients are not tracked, and no argument is
    changed. If very many items have the score of the last place (because all items have the same vector, for example),
    the search takes far longer.

    Args:
        user_embeddings: (U, d), float16, bfloat16, float32 or float64, finite.
        item_embeddings: (N, d), likewise.
        top_k: items for each user; k.
        seen_ids: (U, S) integer, ids that must not be found, padded with -1; an id may repeat.
        item_bias: (N,) float, added to the scores of an item; finite.
        item_ids: (C,) integer, the items among which to search; None for all. Their vectors are copied.
        mask: (N,) or (U, N) bool, in place of ``item_ids``: True for the rows of ``item_embeddings`` that may be found,
            by anybody or by each user.
        similarity: ``"dot"``, or ``"cosine"``: a vector of zeros has cosine 0 with all others.
        chunk_size: items of one step; None for the fastest.
        progress: called after each step with two numbers: the pairs that are done, and all pairs.
        process_group: the items are spread over the processes of this group: every process gives the same users and its
            part of the items, which may be empty, and gets the result for all items, from one exchange of U x k places.
            Other users, widths, similarities or ``top_k`` on one process are an error on all.
        first_item: the id of the first row of ``item_embeddings``.

    Returns:
        (U, k) float32 scores, descending, and (U, k) int64 item ids; places that cannot be filled hold ``-inf`` and -1.
        A score that float32 cannot hold is ``inf`` or ``-inf``, beside its id.

    Raises:
        ValueError, TypeError: for shapes that do not match, embeddings that are not finite, ids out of range.

    >>> users = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    >>> items = torch.tensor([[1.0, 1.0], [2.0, 0.0], [0.0, 3.0]])
    >>> topk_catalogue(users, items, 2)
    (tensor([[2.0000, 1.0000],
            [1.5000, 1.0000]]), tensor([[1, 0],
            [2, 0]]))
    >>> topk_catalogue(users, items, 2, seen_ids=torch.tensor([[1, -1], [2, 0]]))[1]
    tensor([[ 0,  2],
            [ 1, -1]])
    >>> topk_catalogue(users, items, 1, item_ids=torch.tensor([2, 0]))[1]
    tensor([[0],
            [2]])
    """

    top_k, chunk_size, first_item = map(check.plain_number, (top_k, chunk_size, first_item))

    def search() -> LocalTopK:
        check.check_positive("top_k", top_k)
        if top_k > LARGEST_TOP_K:
            raise ValueError(f"`top_k` must be at most {LARGEST_TOP_K}, got {top_k}")
        check.check_choice("similarity", similarity, ("dot", "cosine"))
        check.check_optional_positive("chunk_size", chunk_size)
        check_first_item("first_item", first_item)
        if progress is not None and not callable(progress):
            raise TypeError(f"`progress` must be a function or None, got {type(progress).__name__}")
        pairs = checked_embeddings(user_embeddings, item_embeddings, item_bias, similarity)
        if first_item > LARGEST_ID - pairs.n_items:
            raise ValueError(
                f"`first_item` must be at most {LARGEST_ID - pairs.n_items}, so that the ids of {pairs.n_items} items "
                f"are int64, got {first_item}"
            )
        seen = checked_seen(seen_ids, pairs, first_item, whole=process_group is None)
        part = checked_part(item_ids, mask, pairs, first_item, whole=process_group is None)
        whole, pairs = pairs, part.of(pairs)
        if part.rows is not None and seen is not None:
            seen = columns_of(part.rows, seen)
        total, done = pairs.n_users * pairs.n_items, 0

        def step(n_pairs: int) -> None:
            nonlocal done
            done += n_pairs
            if progress is not None:
                progress(done, total)

        scores, ids = topk_items(pairs, top_k, seen, chunk_size, step, part.mask)
        if part.rows is not None:
            ids = ids_at(part.rows, ids)
        return LocalTopK(whole, scores, torch.where(ids >= 0, ids + first_item, -1), first_item)

    with torch.no_grad():
        if process_group is None:
            _, scores, ids, _ = search()
        else:
            device = getattr(user_embeddings, "device", torch.device("cpu"))
            scores, ids = merged_over_processes(search, device, process_group)
        return scores.to(torch.float32), ids


def checked_seen(seen_ids: Tensor | None, pairs: PairScores, first_item: int, *, whole: bool) -> Tensor | None:
    """(U, S) seen rows of the item table; with a part of the items, ids of other parts are no error, nor rows of it."""
    if seen_ids is None:
        return None
    check.check_argument("seen_ids", seen_ids, ndim=2)
    check.check_rows("seen_ids", seen_ids, pairs.n_users, "`user_embeddings`")
    check.check_device(pairs.users.device, {"seen_ids": seen_ids})
    ids = seen_ids.to(torch.int64)  # a byte is compared with the bounds as bytes
    checks = check.ValueChecks()
    check.defer_ids(checks, "seen_ids", ids, below=first_item + pairs.n_items if whole else None)
    if whole and first_item:
        too_low = (ids >= 0) & (ids < first_item)
        checks.defer(
            too_low,
            lambda row: (
                f"`seen_ids` must be {first_item}, the `first_item`, or more, or -1 for padding, "
                f"got {int(ids[row][too_low[row]][0])} in row {row}"
            ),
        )
    checks.raise_first()
    return ids - first_item
