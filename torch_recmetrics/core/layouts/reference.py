"""Second lists of the same users, with which those of an update are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from torch_recmetrics.core.tensors.checks import ValueChecks

REFERENCES = {"reference_ids": "item_ids", "reference_preds": "preds"}  # and what each would be in an update of its own


def reference_arguments(given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The argument that has the second lists, and the arguments of an update of these alone.

    What was seen is hidden from both; a mask and the ids of candidates belong to both scores.
    """
    names = [name for name in REFERENCES if name in given]
    if len(names) > 1:
        raise ValueError("`reference_ids` and `reference_preds` must not be given together: give one of them")
    (name,) = names
    own = {REFERENCES[name]: given[name]}
    shared = ["seen_ids"]
    if name == "reference_preds":
        shared += ["mask", "item_ids"] if "preds" in given else ["mask"]
    return name, {**own, **{other: given[other] for other in shared if other in given}}


@contextmanager
def told_as(name: str) -> Iterator[None]:
    """Errors name the argument that has the second lists."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise type(error)(str(error).replace(f"`{REFERENCES[name]}`", f"`{name}`")) from None


class ReferenceChecks(ValueChecks):
    """Rules about the second lists, which are read with all others, under the name of their argument."""

    def __init__(self, checks: ValueChecks, name: str) -> None:
        super().__init__(checks.active)
        self._checks, self._name = checks, name

    def defer(self, broken: Tensor, message: Callable[[int], str], *, always: bool = False) -> None:
        name = self._name
        self._checks.defer(
            broken, lambda row: message(row).replace(f"`{REFERENCES[name]}`", f"`{name}`"), always=always
        )
