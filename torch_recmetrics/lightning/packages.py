"""Classes of this folder on the base classes of whichever Lightning the program uses, or of both."""

from __future__ import annotations

import functools
import importlib.util
import sys
from typing import Any

PACKAGES = ("pytorch_lightning", "lightning.pytorch")


def imported_packages() -> tuple[str, ...]:
    """Which of the two Lightnings this program has imported."""
    return tuple(package for package in PACKAGES if hasattr(sys.modules.get(package), "Callback"))


def installed_package(name: str) -> tuple[str, ...]:
    """The first Lightning that could be imported; `name` needs it."""
    for package in PACKAGES:
        if importlib.util.find_spec(package.partition(".")[0]) is not None:
            return (package,)
    raise ModuleNotFoundError(f"{name} needs Lightning: pip install 'torch-recmetrics[lightning]'")


@functools.cache
def with_bases(plain: Any, packages: tuple[str, ...]) -> Any:
    """A class of this folder as a subclass of the ``Callback`` of each of these packages; without any, as it is.

    Of a package's own callback, such as ``EarlyStopping``, there can be one: that of the first package.
    """
    if not packages:
        return plain
    first, *others = packages
    bases = [getattr(importlib.import_module(f"{first}.callbacks"), plain.stands_on)]
    bases += [importlib.import_module(package).Callback for package in others]
    folder = __name__.rpartition(".")[0]  # where users find ours; a class of their own stays in its module
    module = folder if plain.__module__.startswith(folder) else plain.__module__
    names = {"__module__": module, "__qualname__": plain.__qualname__, "__doc__": plain.__doc__}
    return type(plain.__name__, (plain, *bases), {**names, "made_from": (plain, packages), "__reduce_ex__": reduced})


def add_bases(callback: Any) -> None:
    """Give a callback its base classes where its class was imported before any Lightning."""
    plain: Any = type(callback)
    if not any(base.__name__ == "Callback" for base in plain.__mro__):
        callback.__class__ = with_bases(plain, imported_packages() or installed_package(plain.__name__))


def unpickled(plain: Any, packages: tuple[str, ...]) -> Any:
    """An empty callback, to which pickle gives its attributes."""
    made = with_bases(plain, packages)
    return made.__new__(made)


def reduced(callback: Any, protocol: Any) -> Any:
    """How a callback is pickled: as usual where its class can be found by its name.

    One that was made here cannot, in a process that has imported another Lightning.
    """
    if "made_from" not in type(callback).__dict__:
        return object.__reduce_ex__(callback, protocol)
    return unpickled, type(callback).made_from, callback.__dict__
