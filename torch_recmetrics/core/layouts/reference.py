"""Second lists of the same users, with which those of an update are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from torch_recmetrics.core.tensors.checks import ValueChecks

REFERENCES = {"reference_ids": "item_ids", "reference_preds": "preds"}  # and what each would be in an update of its own


def reference_arguments(given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The argument that has the second lists, and the arguments of an update of these alone.

    What was seen is hidden from both; a mask, as which a part of a catalogue comes, and the ids of candidates belong to
    both scores.
    """
    names = [name for name in REFERENCES if name in given]
    if len(names) > 1:
        raise ValueError("`reference_ids` and `reference_preds` must not be given together: give one of them")
    (name,) = names
    own = {REFERENCES[name]: given[name]}
    shared = ["seen_ids"]
    if name == "reference_preds":
        shared += ["mask", "item_ids"] if "preds" in given else ["mask"]
    own |= {other: given[other] for other in shared if other in given}
    if name == "reference_preds" and "mask" in own and own["mask"].ndim == 1:  # of a catalogue, the same for all users
        own["mask"] = own["mask"].expand(own["preds"].shape[0], -1)
    return name, own


def told_as(name: str, error: object) -> str:
    """An error about the second lists, which names the argument that has them."""
    return str(error).replace(f"`{REFERENCES[name]}`", f"`{name}`")


class ReferenceChecks(ValueChecks):
    """Rules about the second lists, which are read with all others, under the name of their argument."""

    def __init__(self, checks: ValueChecks, name: str) -> None:
        super().__init__(checks.active)
        self._checks, self._name = checks, name

    def defer(self, broken: Tensor, message: Callable[[int], str], where: Any = None, *, always: bool = False) -> None:
        self._checks.defer(broken, lambda row: told_as(self._name, message(row)), where, always=always)
