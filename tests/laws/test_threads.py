"""Updates of everyday shapes keep out of torch's threads, which stall where another process holds a core.

torch shares a step between threads that has 32,768 numbers or more (at::internal::GRAIN_SIZE), a logarithm or another
function from 2,048 on, and products of matrices as it likes.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fixtures.devices import Each
from fixtures.variants import CLICKED, Variant
from torch.utils._pytree import tree_leaves

from torch_recmetrics import ctr_metrics, ranking_metrics

GRAIN_SIZE = 32_768
FUNCTIONS = {"exp", "exp2", "expm1", "log", "log10", "log1p", "log2", "sigmoid", "sqrt", "tanh"}
PRODUCTS = {"addmm", "addmv", "bmm", "dot", "mm", "mv"}
SMALLER = dict.fromkeys(FUNCTIONS | PRODUCTS, 2048)
# What does no work.
VIEWS = {
    *("alias", "as_strided", "detach", "expand", "lift_fresh", "select", "slice", "split", "split_with_sizes", "t"),
    *("transpose", "unbind", "unsqueeze", "view", "empty", "empty_like", "new_empty"),
}
LOOKS_UP = {"gather", "index"}  # as much work as what they give


def shared_steps(metric: Any, update: dict[str, Any]) -> list[str]:
    """The steps of an update that torch shares between threads."""
    metric.update(**update)  # what is done once
    found: list[str] = []

    def note(operation: Any, made: list[torch.Tensor]) -> None:
        function, *given = operation
        name = function.overloadpacket.__name__.rstrip("_")
        read = [] if name in LOOKS_UP else [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor)]
        if name not in VIEWS and any(tensor.numel() >= SMALLER.get(name, GRAIN_SIZE) for tensor in (*made, *read)):
            found.append(name)

    with Each(note):
        metric.update(**update)
    return found


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("variant", [v for v in CLICKED if "clustered" not in v.options], ids=str)
def test_rows_of_clicks(variant: Variant, weighted: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = 1 << 16
    update = {
        "preds": torch.rand(rows, generator=generator),
        "target": torch.randint(2, (rows,), generator=generator),
    }
    if weighted:
        pytest.importorskip("numba", reason="without compiled loops torch looks for weights that are none")
        update["weights"] = torch.rand(rows, generator=generator)
    if variant.metric.__name__ == "GroupAUC":
        update["indexes"] = torch.randint(1000, (rows,), generator=generator)
    assert shared_steps(variant.make(), update) == []


def test_everything_of_a_click_model() -> None:
    generator = torch.Generator().manual_seed(0)
    preds, target = torch.rand(1 << 16, generator=generator), torch.randint(2, (1 << 16,), generator=generator)
    assert shared_steps(ctr_metrics(weighting=None), {"preds": preds, "target": target}) == []


@pytest.mark.parametrize("kind", ["random", "seen", "hidden", "dense", "bfloat16", "candidates"])
def test_users(kind: str) -> None:
    pytest.importorskip("numba", reason="without compiled loops all steps are torch's")
    generator = torch.Generator().manual_seed(0)
    users, items = 256, 3706
    preds = torch.rand(users, items, generator=generator)
    places = torch.rand(users, items, generator=generator).argsort(1)
    update: dict[str, Any] = {"preds": preds, "target_ids": places[:, :20].contiguous()}
    if kind == "seen":
        update["seen_ids"] = places[:, 20:70].contiguous()
    elif kind == "hidden":
        update["mask"] = torch.ones_like(preds, dtype=torch.bool).scatter_(1, places[:, 20:70], False)
    elif kind == "dense":
        update = {"preds": preds, "target": torch.zeros(users, items).scatter_(1, places[:, :20], 1)}
    elif kind == "bfloat16":
        update["preds"] = preds.bfloat16()
    elif kind == "candidates":
        update |= {"preds": preds[:, :200].contiguous(), "item_ids": places[:, :200].contiguous()}
    assert shared_steps(ranking_metrics(("ndcg", "map", "recall"), (5, 10, 20)), update) == []


def test_a_large_step_is_seen() -> None:
    update = {
        "preds": torch.rand(1 << 18),
        "target": torch.ones(1 << 18, dtype=torch.int64),
        "weights": torch.ones(1 << 18),
    }
    assert shared_steps(CLICKED[0].make(), update)
