"""A GPU that somebody waits for is an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def no_waiting(device: torch.device) -> Iterator[None]:
    """Whatever waits for a GPU raises; on a CPU nothing is waited for."""
    if device.type == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        if device.type == "cuda":
            torch.cuda.set_sync_debug_mode("default")
