"""A CPU that has no float64, as some other devices."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from torch_recmetrics.core.tensors import devices


@contextmanager
def cpu_without_float64() -> Iterator[None]:
    """Inside, sums on the CPU are float32; nothing that is remembered goes in or out."""
    before = devices.WITHOUT_FLOAT64
    forget()
    devices.WITHOUT_FLOAT64 = frozenset({"cpu"})
    try:
        yield
    finally:
        devices.WITHOUT_FLOAT64 = before
        forget()


def forget() -> None:
    """Empty every cache of the package."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch_recmetrics"):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
