"""Numbers in ascending order: numpy's sort on a CPU, whose vector instructions torch's lacks."""

from __future__ import annotations

import contextlib
import functools
import platform
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torch_recmetrics.core.tensors.compact_ids import span
from torch_recmetrics.core.tensors.devices import is_sync_free


def sorted_rows(rows: Tensor) -> Tensor:
    """A copy of a matrix, or of several, with each row ascending."""
    if not is_sync_free(rows.device) or rows.dtype == torch.bfloat16:  # numpy has no such numbers
        return rows.sort().values
    copied = rows.clone(memory_format=torch.contiguous_format)
    copied.numpy().sort()
    return copied


def sort_column(keys: Tensor) -> Tensor:
    """The (M,) keys in ascending order. The sort may happen in place: do not read the argument afterwards."""
    if keys.device.type != "cpu" or not numpy_is_faster():
        return torch.sort(keys).values
    keys.numpy().sort()
    return keys


def sort_with_places(keys: Tensor) -> tuple[Tensor, Tensor]:
    """The (M,) integers in ascending order, and (M,) int64 where each stood; equal ones stay in their order.

    The places ride in the lowest bits of what numpy sorts, where a number has room for both.
    """
    n_rows = keys.shape[0]
    if keys.device.type == "cpu" and numpy_is_faster():
        (low, high), bits = span(keys), n_rows.bit_length()
        if (high - low).bit_length() + bits < 64:
            codes = keys.to(torch.int64, copy=True).sub_(low).bitwise_left_shift_(bits)
            codes = sort_column(codes.bitwise_or_(torch.arange(n_rows, device=keys.device)))
            places = codes & ((1 << bits) - 1)
            return codes.bitwise_right_shift_(bits).add_(low).to(keys.dtype), places
    return torch.sort(keys, stable=True)


@functools.cache
def numpy_is_faster() -> bool:
    """Whether numpy sorts integers of 32 and 64 bits faster than torch, by what the processor says of itself.

    The sorted keys are the same. With vector instructions numpy is 2 to 10 times as fast, without them slower. The
    Zen 4 processors of AMD have these, but microcode for the one that such a sort stands on.
    """
    try:
        simd = np.show_config(mode="dicts")["SIMD Extensions"]
    except (KeyError, TypeError):  # built without them
        return False
    return has_vector_sort({*simd.get("baseline", ()), *simd.get("found", ())}, processor())


def has_vector_sort(features: set[str], name: str) -> bool:
    """The same for a processor with these features, as numpy calls them, that is called so."""
    wide = bool(features & {"AVX512_SKX", "X86_V4"})
    narrow = bool(features & {"AVX2", "X86_V3", "ASIMD", "VSX2", "VX"}) and int(np.__version__.split(".")[0]) >= 2
    zen_4 = wide and "AuthenticAMD" in name and "Family 25" in name
    return (wide or narrow) and not zen_4


def processor() -> str:
    """Vendor and family, as `AMD64 Family 25 Model 1 Stepping 1, AuthenticAMD`; Linux says them in a file."""
    with contextlib.suppress(OSError):
        lines = (line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines())
        said = {name.strip(): value.strip() for name, _, value in lines}
        return f"Family {said.get('cpu family')} Model {said.get('model')}, {said.get('vendor_id')}"
    return platform.processor()
