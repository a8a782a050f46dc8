"""The process that Spark forks its workers from, with everything imported that they need, which takes seconds each."""

from __future__ import annotations

import gc
import sys

# Spark's files are installed: those of its archive are compiled anew, and its directory is read again for each task.
sys.path[:] = [place for place in sys.path if not place.endswith(".zip")]
sys.path_importer_cache.clear()

import duckdb  # noqa: E402, F401
import pyarrow.dataset  # noqa: E402, F401
import pyspark.worker  # noqa: E402, F401
from pyspark.daemon import manager  # noqa: E402

import torch_recmetrics.offline.inputs.spark  # noqa: E402, F401
from processes import loaded  # noqa: E402, F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # a worker looks through its memory after each task
    manager()
