"""A short word that stands for the contents of a tensor or of a text."""

from __future__ import annotations

import torch
from torch import Tensor

STEP = 1 << 20  # words of 8 bytes that are mixed at a time
# The multipliers of MurmurHash3's finaliser, as signed numbers.
MULTIPLIERS = (-0xAE502812AA7333, -0x3B314601E57A13AD)


def fingerprint(tensor: Tensor) -> str:
    """16 hexadecimal digits: the same on every device, others for other values, another order, dtype or shape."""
    if tensor.device.type == "meta":  # there are no contents
        return "meta"
    flat = tensor.detach().contiguous().view(-1)
    n_bytes = flat.numel() * flat.element_size()
    total = 0
    width = STEP * 8 // flat.element_size()
    for first in range(0, flat.numel(), width):
        raw = flat[first : first + width].view(torch.uint8)
        if raw.shape[0] % 8:
            raw = torch.nn.functional.pad(raw, (0, 8 - raw.shape[0] % 8))
        words = raw.clone().view(torch.int64)
        total += _hash(words, first * flat.element_size() // 8)
    header = torch.tensor([n_bytes, *tensor.shape, *str(tensor.dtype).encode()], dtype=torch.int64, device="cpu")
    total += _hash(header, -header.shape[0])
    return f"{total % (1 << 64):016x}"


def text_fingerprint(text: str) -> bytes:
    """8 bytes: the fingerprint of the letters of a text that is not empty."""
    return bytes.fromhex(fingerprint(torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)))


def _hash(words: Tensor, offset: int) -> int:
    """The sum of the words, each mixed with its place; places count from the offset."""
    places = torch.arange(words.shape[0], device=words.device) + offset
    return int(_mixed(words ^ _mixed(places)).sum())


def _mixed(words: Tensor) -> Tensor:
    """Mix the bits of each word, one to one; products wrap around."""
    for multiplier in MULTIPLIERS:
        words = (words ^ (words >> 33)) * multiplier
    return words ^ (words >> 33)
