"""What the package uses of torchmetrics that torchmetrics does not promise to keep."""

from __future__ import annotations

import ast
from pathlib import Path

import torch
import torchmetrics
from packaging.version import Version
from torchmetrics import MetricCollection
from torchmetrics.aggregation import SumMetric

PACKAGE = Path(__file__).parents[2] / "torch_recmetrics"
USED = {
    *("_cache", "_computed", "_copy_state_dict", "_defaults", "_device", "_dtype", "_enable_grad", "_filter_kwargs"),
    *("_forward_cache", "_groups", "_is_synced", "_plot", "_reduce_states", "_reductions", "_set_name"),
    *(
        "_should_unsync",
        "_sync_dist",
        "_to_sync",
        "_update_count",
        "_update_signature",
        "_wrap_compute",
        "_wrap_update",
    ),
}

CAME_LATER = {"_copy_state_dict", "_dtype"}  # used where they are there


def defined() -> set[str]:
    """Names with one underscore of a metric or a collection, without those of every module of torch."""
    names = {*dir(SumMetric()), *dir(MetricCollection([SumMetric()]))} - {*dir(torch.nn.ModuleDict())}
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def used(tree: ast.AST) -> set[str]:
    """Attributes that are read, written, overridden or named in a string."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) | ast.FunctionDef(name=name) | ast.Constant(value=str(name)):
                found.add(name)
    return found & defined()


def test_torchmetrics_still_has_what_is_used() -> None:
    gone = USED - defined() - (CAME_LATER if Version(torchmetrics.__version__) < Version("1.5") else set())
    assert not gone, f"this version of torchmetrics has no {', '.join(sorted(gone))}"


def test_what_is_used_is_listed() -> None:
    found = set().union(*(used(ast.parse(file.read_text(encoding="utf-8"))) for file in PACKAGE.rglob("*.py")))
    assert found == USED & defined()


def test_every_kind_of_use_is_seen() -> None:
    assert used(ast.parse("self._cache = 1\ndef _sync_dist(): pass\ngetattr(a, '_groups')\n_to_sync\nself._apply")) == {
        *("_cache", "_sync_dist", "_groups")
    }
