"""What a device can do: the dtype of its sums, and whether reading a value back is free."""

from __future__ import annotations

import functools

import torch

WITHOUT_FLOAT64 = frozenset({"mps"})


@functools.cache
def accumulator_dtype(device: torch.device) -> torch.dtype:
    """float64 where the device has it, else float32."""
    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


def exact(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers in the widest float dtype of their device."""
    return tensor.to(accumulator_dtype(tensor.device))


def float_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Floats as int64 without loss, so that floats and ids share one tensor; see :func:`bits_float`."""
    wide = exact(tensor).contiguous()
    return wide.view(torch.int64) if wide.dtype == torch.float64 else wide.view(torch.int32).to(torch.int64)


def bits_float(bits: torch.Tensor) -> torch.Tensor:
    """Inverse of :func:`float_bits`."""
    if accumulator_dtype(bits.device) == torch.float64:
        return bits.contiguous().view(torch.float64)
    return bits.to(torch.int32).contiguous().view(torch.float32)


@functools.cache
def is_sync_free(device: torch.device) -> bool:
    """Whether reading a value back costs nothing; elsewhere it waits for all work before it."""
    return device.type == "cpu"
