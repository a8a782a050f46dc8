"""Fingerprints of tensors."""

from __future__ import annotations

import torch

from torch_recmetrics.core.tensors.fingerprint import fingerprint


def test_digests_tell_contents_dtypes_and_shapes_apart() -> None:
    base = torch.arange(12.0).view(3, 4)
    others = [
        *(base.view(4, 3), base.double(), base.int(), base.flip(0), base[:, [1, 0, 2, 3]], base[:2], -base),
        *(
            base + torch.tensor([2.0, -2.0, 0, 0]),
            base.half(),
            torch.zeros(0),
            torch.zeros(1),
            torch.zeros(2),
            base.bool(),
        ),
    ]
    words = [fingerprint(tensor) for tensor in (base, *others)]
    assert words[0] == "e6cb412e6cbd16c7"  # names of states in checkpoints have it
    assert len(set(words)) == len(words)
    assert fingerprint(base.t().contiguous().t()) == words[0]
    long = torch.arange(1 << 21)
    swapped = long.clone()
    swapped[[5, -5]] = long[[-5, 5]]
    assert fingerprint(long) == fingerprint(long.clone()) != fingerprint(swapped)
