"""The ranks of few relevant items by counting the higher scores: no top-k, and hardly more than one read of the scores.

The scores are read once, into the maxima of blocks of neighbours. An item below the maxima of K blocks is not among the
first K. For the few items left only the blocks whose maximum reaches their score are looked into.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_recmetrics.core.scores import WIDTH, Scores, steps
from torch_recmetrics.core.topk import reaching

# Below so many blocks for each rank hardly any item can be ruled out.
BLOCKS_PER_RANK = 2
# Beyond so many relevant items a user, sorting the scores is cheaper than counting the higher ones for each.
COUNTED_TARGETS = 48


def worth_counting(n_items: int, n_targets: int, depth: int) -> bool:
    """Whether rows are long and relevant items few enough."""
    return depth > 0 and BLOCKS_PER_RANK * depth * WIDTH <= n_items and n_targets <= 2 * WIDTH


def ranks_of(
    scores: Scores, wanted: Tensor, at_least: Tensor, depth: int
) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """Which wanted scores are among the `depth` best of their row, and how many scores are higher and equal.

    Args:
        scores: of B rows, with no NaN.
        wanted: (B, T) scores of items of the row; -inf is never found.
        at_least: (B,) the lower bound of the `depth` best.
        depth: K.

    Returns:
        (E,) users, (E,) columns of `wanted`, (E,) how many scores are higher (below K), (E,) how many are equal, itself
        included. None where too many blocks would have to be looked into.
    """
    users, columns = (wanted >= at_least.unsqueeze(1)).nonzero(as_tuple=True)
    found = wanted[users, columns]
    # Constant scores, say: a top-k is cheaper than looking at everything again.
    reached = reaching(scores.maxima, users, found, scores.n_users * scores.n_items // WIDTH)
    if reached is None:
        return None
    which, block = reached
    above = torch.zeros(users.shape[0], dtype=torch.float32, device=users.device)
    from_here = torch.zeros_like(above)
    mask = torch.empty((0, WIDTH), dtype=torch.float32, device=users.device)
    for part in steps(which.shape[0], WIDTH):
        values = scores.blocks(users[which[part]], block[part])
        against = found[which[part]].unsqueeze(1)
        mask.resize_(values.shape)
        torch.gt(values, against, out=mask)
        above.index_add_(0, which[part], mask.sum(1))
        torch.ge(values, against, out=mask)
        from_here.index_add_(0, which[part], mask.sum(1))
    within = above < depth
    users, columns = users[within], columns[within]
    start, end = above[within].to(torch.int64), from_here[within].to(torch.int64)
    return users, columns, start, end - start


def counts_of(scores: Scores, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """(B, T) int64: how many scores of its row are higher than each wanted one, and how many are not lower."""
    shape = (scores.n_users, wanted.shape[1])
    above, from_here = torch.zeros((2, *shape), dtype=torch.int64, device=scores.device)
    for tile in scores.tiles():
        values, against = tile.values, wanted[tile.rows]
        if shape[1] > COUNTED_TARGETS:
            rising = values.sort(dim=1).values.contiguous()
            above[tile.rows] += values.shape[1] - torch.searchsorted(rising, against.contiguous(), right=True)
            from_here[tile.rows] += values.shape[1] - torch.searchsorted(rising, against.contiguous())
            continue
        mask = torch.empty(values.shape, dtype=torch.float32, device=scores.device)
        for counts, compare in ((above, torch.gt), (from_here, torch.ge)):
            columns = []
            for column in against.unbind(1):
                compare(values, column.unsqueeze(1), out=mask)
                columns.append(mask.sum(1))
            counts[tile.rows] += torch.stack(columns, 1).to(torch.int64)
    return above, from_here
