"""Times contestants side by side: alternating rounds in one process, medians, ratios, peak memory.

Machines differ and so do moments, so only a ratio taken in one run says something.
"""

from __future__ import annotations

import ctypes
import gc
import platform
import random
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Contestant:
    """Something to time; a run gives `numbers` metric values (0: it is a floor, not a metric)."""

    name: str
    run: Callable[[], object]
    numbers: int = 0
    rounds: int | None = None  # fewer rounds for what takes seconds


@dataclass(frozen=True)
class Result:
    """What the rounds of one contestant gave: seconds, and bytes held at the peak of one run (None: unknown)."""

    name: str
    numbers: int
    seconds: tuple[float, ...]
    peak_bytes: int | None

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def fastest(self) -> float:
        return min(self.seconds)

    @property
    def per_number(self) -> float:
        return self.median / self.numbers


def processor() -> str:
    """The processor's name with its family and model, by which processors of one name differ in speed."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:  # not Linux
        return platform.processor() or platform.machine()
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "model name" not in facts:
        return platform.machine()
    return f"{facts['model name']} (family {facts.get('cpu family')}, model {facts.get('model')})"


def machine() -> str:
    """One line that says where the figures come from."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} threads"
    return f"torch {torch.__version__}, Python {platform.python_version()}, {processor()}, {device}"


def race(contestants: Sequence[Contestant], rounds: int = 20, warmup: int = 2) -> list[Result]:
    """Run all contestants in turn, `rounds` times; each round in another order, the same in every race: what ran just
    before leaves its mark on the caches, and nobody should always have the same one before it."""
    seconds: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    limits = {contestant.name: min(rounds, contestant.rounds or rounds) for contestant in contestants}
    for contestant in contestants:
        for _ in range(warmup if limits[contestant.name] == rounds else 1):
            contestant.run()
    gc.collect()
    gc.disable()  # a collection in the middle of a run is charged to whoever happens to run
    try:
        for number in range(rounds):
            for contestant in random.Random(number).sample(contestants, len(contestants)):
                if len(seconds[contestant.name]) < limits[contestant.name]:
                    seconds[contestant.name].append(_timed(contestant.run))
    finally:
        gc.enable()
    return [
        Result(contestant.name, contestant.numbers, tuple(seconds[contestant.name]), peak_bytes(contestant.run))
        for contestant in contestants
    ]


def _timed(run: Callable[[], object]) -> float:
    _wait_for_device()
    start = time.perf_counter()
    run()
    _wait_for_device()
    return time.perf_counter() - start


def _wait_for_device() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def peak_bytes(run: Callable[[], object]) -> int | None:
    """How much more memory than before is held at the peak of one run.

    On a GPU what torch allocated there; on Linux the process' resident memory; elsewhere None.
    """
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        _wait_for_device()
        return torch.cuda.max_memory_allocated() - before
    try:
        # Memory that the allocator kept from earlier runs would hide what this one takes.
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        _start_peak("self")
        before = _status_bytes("VmRSS", "self")
    except OSError:
        return None
    run()
    return max(_status_bytes("VmHWM", "self") - before, 0)


def held_by(processes: Sequence[int], run: Callable[[], object]) -> int:
    """Bytes that these processes held at their peaks in one run, all of their memory; only on Linux."""
    for process in processes:
        _start_peak(process)
    run()
    return sum(_status_bytes("VmHWM", process) for process in processes)


def _start_peak(process: int | str) -> None:
    """Let VmHWM of a process start anew."""
    Path(f"/proc/{process}/clear_refs").write_text("5")


def _status_bytes(field: str, process: int | str) -> int:
    path = Path(f"/proc/{process}/status")
    found = re.search(rf"^{field}:\s+(\d+) kB$", path.read_text(), re.MULTILINE)
    if found is None:
        raise OSError(f"{path} has no {field}")
    return int(found[1]) * 1024


def table(results: Sequence[Result], reference: str) -> str:
    """A Markdown table; `reference` names the contestant that the ratios are taken against."""
    base = next(result for result in results if result.name == reference)
    rows = [("", "numbers", "median", "fastest", "per number", "ratio", "peak memory")]
    rows += [
        (
            result.name,
            str(result.numbers or "-"),
            f"{result.median * 1e3:.2f} ms",
            f"{result.fastest * 1e3:.2f} ms",
            f"{result.per_number * 1e3:.3f} ms" if result.numbers else "-",
            f"{result.median / base.median:.2f}",
            "-" if result.peak_bytes is None else f"{result.peak_bytes / 2**20:.1f} MiB",
        )
        for result in results
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| "
        + " | ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths)))
        + " |"
        for row in rows
    ]
    rule = "| " + " | ".join("-" * w if i == 0 else "-" * (w - 1) + ":" for i, w in enumerate(widths)) + " |"
    return "\n".join([lines[0], rule, *lines[1:]])
