"""A short word that stands for a tensor's contents."""

from __future__ import annotations

import torch
from torch import Tensor

STEP = 1 << 20  # words of 8 bytes that are mixed at a time
# The multipliers of MurmurHash3's finaliser, as signed numbers.
FIRST, SECOND = -0xAE502812AA7333, -0x3B314601E57A13AD


def fingerprint(tensor: Tensor) -> str:
    """16 hexadecimal digits; the same on every device, another for any other number, order, dtype or shape."""
    flat = tensor.detach().contiguous().view(-1)
    n_bytes = flat.numel() * flat.element_size()
    total = 0
    width = STEP * 8 // flat.element_size()
    for first in range(0, flat.numel(), width):
        raw = flat[first : first + width].view(torch.uint8)
        if raw.shape[0] % 8:
            raw = torch.nn.functional.pad(raw, (0, 8 - raw.shape[0] % 8))
        words = raw.clone().view(torch.int64)
        place = torch.arange(words.shape[0], device=words.device) + first * flat.element_size() // 8
        total += int(_mixed(words ^ _mixed(place)).sum())
    last = torch.tensor([n_bytes, *tensor.shape, *str(tensor.dtype).encode()], dtype=torch.int64)
    total += int(_mixed(last ^ _mixed(torch.arange(last.shape[0]) - last.shape[0])).sum())
    return f"{total % (1 << 64):016x}"


def _mixed(words: Tensor) -> Tensor:
    """Bits stirred, one to one; products wrap around."""
    for multiplier in (FIRST, SECOND):
        words = (words ^ (words >> 33)) * multiplier
    return words ^ (words >> 33)
