"""What is read of a ranking."""

from __future__ import annotations

import pytest
import torch

from torch_recmetrics import rank


@pytest.mark.parametrize("read", ["hits", "p_hit", "precision_sum", "reciprocal", "mean_precision", "max_hits"])
@pytest.mark.parametrize("ties", ["average", "pessimistic"])
def test_nothing_is_read_deeper_than_the_list_was_cut(read: str, ties: str) -> None:
    stats = rank(torch.rand(3, 9), target_ids=torch.tensor([[1], [2], [3]]), top_k=4).stats(ties)
    assert getattr(stats, read)((2, 4)).shape == (3, 2)
    if read != "max_hits":  # the same however long the list is
        with pytest.raises(ValueError, match="was cut at 4"):
            getattr(stats, read)((2, 5))
