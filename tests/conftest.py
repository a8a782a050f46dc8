"""Seeds, threads, devices and the hypothesis profile of the whole suite."""

from __future__ import annotations

import atexit
import gc
import random
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from processes.warm import IMPORTS, PATH, TORCH_ALONE, Asked, Warm

if TYPE_CHECKING:
    import torch

WARM = pytest.StashKey[tuple[Warm, Warm]]()
# The files that take 8 s and more, longest first: `make test ARGS=--durations=100` says which.
LONGEST = (
    "tests/offline/test_spark.py",
    "tests/laws/test_processes_intervals.py",
    "tests/laws/test_evidence.py",
    "tests/laws/test_oracle.py",
    "tests/test_typing.py",
    "tests/laws/test_processes.py",
    "tests/laws/test_collections.py",
    "tests/lightning/test_packages.py",
    "tests/test_versions.py",
    "tests/laws/test_interval_coverage.py",
    "tests/test_movielens_example.py",
    "tests/laws/test_extreme_values.py",
    "tests/lightning/test_runs.py",
    "tests/core/catalogue/test_topk.py",
    "tests/laws/test_invariance.py",
    "tests/laws/test_memory.py",
    "tests/test_benchmarks.py",
    "tests/laws/test_layouts.py",
    "tests/laws/test_intervals.py",
    "tests/offline/test_commands.py",
    "tests/metrics/test_off_policy.py",
    "tests/laws/test_compilers.py",
    "tests/laws/test_labels.py",
    "tests/laws/test_waiting.py",
    "tests/test_plain_torch.py",
    "tests/core/distributed/test_stragglers.py",
    "tests/test_ctr_example.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """What takes seconds to import stands in functions: who only hands the tests to workers needs none of it."""
    if hasattr(config, "workerinput"):
        Asked.shared = config.workerinput["warm"]
        sys.executable = config.workerinput["python"]  # not the one that asks for another fork
    elif config.getoption("numprocesses", None):
        config.stash[WARM] = warm, _ = Warm(IMPORTS, PATH), Warm(TORCH_ALONE, PATH)
        config.option.tx = [f"popen//python={warm.python}" for _ in config.option.tx]  # the workers are forked from it
        return
    import torch
    from hypothesis import HealthCheck, settings

    torch.set_num_threads(1)
    settings.register_profile(
        "suite",
        derandomize=True,  # a red run must be red again
        deadline=None,
        database=None,
        max_examples=20,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
    settings.load_profile("suite")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Two processes are enough that the processes of all workers are forked from."""
    addresses = [warm.address for warm in node.config.stash[WARM]]
    node.workerinput |= {"warm": addresses, "python": sys.executable}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of several workers none is left with a long file when the others are done (a file is one worker's)."""
    if hasattr(config, "workerinput"):
        places = {file: place for place, file in enumerate(LONGEST)}
        items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(LONGEST)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """What has been imported and collected stays: it need not be looked through each time that memory is freed.

    That is done less often too, since Hypothesis takes the time of each: a tenth of what drawn tests take.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


def pytest_unconfigure(config: pytest.Config) -> None:
    for warm in config.stash.get(WARM, ()):
        warm.close()
    # DuckDB takes for leaked what is left at the end. Not now: pytest looks five times for what is left of the tests.
    atexit.register(gc.unfreeze)


@pytest.fixture(autouse=True)
def seeded() -> None:
    import torch

    random.seed(20240229)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(20240229)
    # Not torch.manual_seed: where there is no GPU it keeps the stack of every call, for the day that one is there.
    torch.default_generator.manual_seed(20240229)


@pytest.fixture(params=["compiled", "plain"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both ways to an answer: compiled loops, where Numba is there, and plain torch, as on other devices."""
    from torch_recmetrics.core.kernels import runtime

    if request.param == "plain":
        with runtime.plain():
            yield request.param
    elif runtime.why_not():
        pytest.skip(runtime.why_not())
    else:
        yield request.param


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Each device the machine has; the missing ones are skipped and so counted."""
    import torch

    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    return torch.device(request.param)
