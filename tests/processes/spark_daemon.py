"""The process that Spark forks its workers from, with everything imported that they need, which takes seconds each."""

from __future__ import annotations

import pyarrow.dataset  # noqa: F401
import torch
from pyspark.daemon import manager

import torch_recmetrics.offline.spark  # noqa: F401

if __name__ == "__main__":
    torch.set_num_threads(1)
    manager()
