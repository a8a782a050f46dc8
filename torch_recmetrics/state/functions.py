"""Functions that users give as options: each has a name of its own, by which metrics are told apart."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor


class Function:
    """A function of the user's, and the name that no other function goes by.

    Copies of a metric share it, also where it is a module with weights; those belong to the user's model. A metric is
    pickled where its function can be: not with a lambda.
    """

    known: ClassVar[dict[str, list[weakref.ref[Any]]]] = {}

    def __init__(self, given: Callable[..., Tensor]) -> None:
        self.given = given
        name = getattr(given, "__qualname__", type(given).__qualname__)
        name = f"{getattr(given, '__module__', '')}.{name}"
        known = self.known.setdefault(name, [])
        number = next((number for number, other in enumerate(known) if other() is given), len(known))
        if number == len(known):
            try:
                known.append(weakref.ref(given))
            except TypeError:  # nothing refers to it without keeping it alive: it is met anew each time
                known.append(weakref.ref(Function))
        # Numbered in the order in which they are met, a script gives them the same names when it runs again.
        self.name = name if not number else f"{name}#{number + 1}"

    def __call__(self, *tensors: Tensor) -> Tensor:
        return self.given(*tensors)

    def __repr__(self) -> str:
        return self.name

    def __deepcopy__(self, memo: dict[int, Any]) -> Function:
        return self
