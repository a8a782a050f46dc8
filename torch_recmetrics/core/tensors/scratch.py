"""Memory for what is made and read within one step, kept from one to the next.

Fresh memory costs more than what is done with it: each page of it is asked of the system.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from torch_recmetrics.core.tensors import thresholds


class _Kept(threading.local):
    """Buffers that nobody is using, by dtype and device, of each thread."""

    def __init__(self) -> None:
        self.buffers: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}


_kept = _Kept()


@contextmanager
def scratch(n: int, dtype: torch.dtype, device: torch.device) -> Iterator[Tensor]:
    """(n,) numbers to be overwritten; on a CPU each thread keeps their memory, as long as it is not much."""
    free = _kept.buffers.setdefault((dtype, device), [])
    buffer = free.pop() if free else None  # whoever asks meanwhile gets another one
    if buffer is None or buffer.shape[0] < n:
        with torch.inference_mode(False):  # so that it can be written to in any mode
            buffer = torch.empty(n, dtype=dtype, device=device)
    try:
        yield buffer[:n]
    finally:
        if device.type == "cpu" and buffer.nbytes <= thresholds.KEPT_BYTES:
            free.append(buffer)


class ScratchMemory(ExitStack):
    """Kept memory for the tensors of a step that calls others: behind the ``with`` they are overwritten."""

    def empty(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        """A tensor to be overwritten."""
        return self.enter_context(scratch(math.prod(shape), dtype, device)).view(*shape)

    def cat(self, tensors: Sequence[Tensor]) -> Tensor:
        """The rows of these tensors."""
        first = tensors[0]
        shape = sum(tensor.shape[0] for tensor in tensors), *first.shape[1:]
        dtype = functools.reduce(torch.promote_types, {tensor.dtype for tensor in tensors})
        return torch.cat(list(tensors), out=self.empty(shape, dtype, first.device))


class FreshMemory(ScratchMemory):
    """The same for a step whose tensors outlive it."""

    def empty(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*shape, dtype=dtype, device=device)
