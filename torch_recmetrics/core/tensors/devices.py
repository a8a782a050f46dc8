"""The dtype that sums are kept in: float64, or float32 on a device that has no float64."""

from __future__ import annotations

import torch

WITHOUT_FLOAT64 = frozenset({"mps"})


def accumulator_dtype(device: torch.device) -> torch.dtype:
    """float64 where the device has it, else float32."""
    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


def exact(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers in the widest float dtype of their device."""
    return tensor.to(accumulator_dtype(tensor.device))


def float_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Floats as int64 that :func:`bits_float` turns back without loss, so that mixed columns share one tensor."""
    wide = exact(tensor).contiguous()
    return wide.view(torch.int64) if wide.dtype == torch.float64 else wide.view(torch.int32).to(torch.int64)


def bits_float(bits: torch.Tensor) -> torch.Tensor:
    """Inverse of :func:`float_bits`."""
    if accumulator_dtype(bits.device) == torch.float64:
        return bits.contiguous().view(torch.float64)
    return bits.to(torch.int32).contiguous().view(torch.float32)


def is_sync_free(device: torch.device) -> bool:
    """Whether looking at a value costs nothing."""
    return device.type == "cpu"
