"""What is installed, and which way scores are ranked: what a report of a slow or wrong number should say."""

from __future__ import annotations

import platform
from importlib import metadata

import torch

from torch_recmetrics.core.kernels.runtime import why_not
from torch_recmetrics.core.tensors.sorts import numpy_is_faster, processor

__all__ = ["show_versions"]

DISTRIBUTIONS = (
    *("torch-recmetrics", "torch", "torchmetrics", "numpy", "numba", "llvmlite", "pytorch-lightning", "lightning"),
    *("duckdb", "pyarrow", "scipy", "statsmodels", "matplotlib"),
)


class Lines(str):
    """A text that a notebook shows line by line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def show_versions() -> str:
    """The versions of what is installed, and which way scores on a CPU are ranked, and why: a text to print.

    Loops over scores are compiled by Numba (``pip install "torch-recmetrics[fast]"``); without it they are calls of
    torch, which take several times as long. The values of users are the same to the last bit.

    >>> text = show_versions()
    >>> "torch_recmetrics" in text and "loops:" in text
    True
    """
    lines = ["torch_recmetrics"]
    for name in DISTRIBUTIONS:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            version = "not installed"
        lines.append(f"{name}: {version}")
    reason = why_not()
    lines += [
        f"python: {platform.python_version()}, {platform.platform()}",
        f"processor: {processor()}; {torch.get_num_threads()} threads",
        f"gpu: {torch.cuda.get_device_name() if torch.cuda.is_available() else 'none'}",
        f"loops: {f'in torch, for {reason}' if reason else 'compiled by Numba'}",
        f"sorts of columns: by {'numpy' if numpy_is_faster() else 'torch'}",
    ]
    return Lines("\n".join(lines))
