"""The README's table of neighbours: yes and no are tried, times stand in the table that a benchmark printed."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_recmetrics import NDCG, HitRate
from torch_recmetrics.core.kernels.runtime import plain

ROOT = Path(__file__).parents[2]
TIMES = (ROOT / "docs/performance/batches.txt").read_text(encoding="utf-8")
K = 3


def ours(batches: list[tuple[Tensor, Tensor]], name: str = "ndcg") -> tuple[Any, Callable[[], float]]:
    metric = {"ndcg": NDCG, "hit_rate": HitRate}[name](K)
    for scores, ids in batches:
        metric.update(scores, target_ids=ids)
    return metric, lambda: float(metric.compute())


def torchmetrics(batches: list[tuple[Tensor, Tensor]], name: str = "ndcg") -> tuple[Any, Callable[[], float]]:
    from torchmetrics.retrieval import RetrievalHitRate, RetrievalNormalizedDCG

    metric: Any = {"ndcg": RetrievalNormalizedDCG, "hit_rate": RetrievalHitRate}[name](top_k=K)
    first = 0
    for scores, ids in batches:
        target = torch.zeros_like(scores, dtype=torch.int64).scatter_(1, ids, 1)
        users = torch.arange(first, first + len(scores)).repeat_interleave(scores.shape[1])
        metric.update(scores.flatten(), target.flatten(), users)
        first += len(scores)
    return metric, lambda: float(metric.compute())


def pyg(batches: list[tuple[Tensor, Tensor]], name: str = "ndcg") -> tuple[Any, Callable[[], float]]:
    link = pytest.importorskip("torch_geometric.metrics")
    metric = {"ndcg": link.LinkPredNDCG, "hit_rate": link.LinkPredHitRatio}[name](k=K)
    for scores, ids in batches:
        users = torch.arange(len(scores)).repeat_interleave(ids.shape[1])
        metric.update(scores.topk(K).indices, torch.stack([users, ids.flatten()]))
    return metric, lambda: float(metric.compute())


def replay(batches: list[tuple[Tensor, Tensor]], name: str = "ndcg") -> tuple[Any, Callable[[], float]]:
    builder = pytest.importorskip("replay.metrics.torch_metrics_builder")
    theirs = name.replace("_", "")
    metric = builder.TorchMetricsBuilder([theirs], [K], batches[0][0].shape[1])
    metric.reset()
    for scores, ids in batches:
        metric.add_prediction(scores.topk(K).indices, ids)
    return metric, lambda: float(metric.get_metrics()[f"{theirs}@{K}"])


LIBRARIES = {"here": ours, "torchmetrics": torchmetrics, "RePlay": replay, "PyG": pyg}


def drawn(n_users: int, n_items: int = 20) -> tuple[Tensor, Tensor]:
    return torch.rand(n_users, n_items) + 0.1, torch.rand(n_users, n_items).topk(2).indices


def value(library: str, *batches: tuple[Tensor, Tensor], name: str = "ndcg") -> float:
    return LIBRARIES[library](list(batches), name)[1]()


def order_of_equal_scores_does_not_matter(library: str) -> bool | str:
    """Of all metrics, of none, or of NDCG alone."""

    def does_not_matter(name: str) -> bool:
        values = [value(library, (scores, torch.tensor([[place, place + 1]])), name=name) for place in range(19)]
        return values == pytest.approx([values[0]] * 19)

    scores = torch.ones(1, 20)
    if not does_not_matter("ndcg"):
        return False
    return does_not_matter("hit_rate") or "NDCG only"


def repeated_rows_count_once(library: str) -> bool:
    """A sampler that fills up the last batch repeats rows."""
    scores, ids = drawn(8)
    if library == "here":
        metric = NDCG(K)
        for rows in (torch.arange(8), torch.arange(2)):
            metric.update(scores[rows], target_ids=ids[rows], sample_ids=rows)
        twice = float(metric.compute())
    else:
        twice = value(library, (scores, ids), (scores[:2], ids[:2]))
    return twice == pytest.approx(value(library, (scores, ids)))


def size(thing: Any, depth: int = 3) -> int:
    """The numbers in the tensors that an object holds."""
    if isinstance(thing, Tensor):
        return thing.numel()
    if isinstance(thing, (list, tuple)):
        return sum(size(each, depth) for each in thing)
    if isinstance(thing, dict):
        return sum(size(each, depth) for each in thing.values())
    return size(vars(thing), depth - 1) if depth and hasattr(thing, "__dict__") else 0


def memory_does_not_grow(library: str) -> bool:
    sizes = []
    for n_batches in (2, 40):
        metric, read = LIBRARIES[library]([drawn(256) for _ in range(n_batches)])
        read()
        sizes.append(size(vars(metric)))
    return sizes[0] == sizes[1]


def has_an_interval(library: str) -> bool:
    metric, _ = LIBRARIES[library]([drawn(8)])
    return any("interval" in name or "standard_error" in name for name in dir(metric))


def refuses_nan(library: str) -> bool:
    scores, ids = drawn(8)
    scores[3, 5] = float("nan")
    try:
        value(library, (scores, ids))
    except ValueError:
        return True
    return False


CHECKS = {
    "the order of equal scores does not matter": order_of_equal_scores_does_not_matter,
    "rows that a sampler repeats count once": repeated_rows_count_once,
    "memory does not grow with the epoch ¹": memory_does_not_grow,
    "a value has a standard error and an interval": has_an_interval,
    "a NaN score is an error": refuses_nan,
}
TIMED = re.compile(r"(\d+) users × ([\d,]+) items, milliseconds ²")
COUNTED = "how many numbers that time is for"


def rows() -> dict[str, dict[str, str]]:
    """What the README's table says: row -> library -> cell."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    first = next(at for at, line in enumerate(lines) if re.match(r"\|\s+\| here \|", line))
    columns = [cell.strip() for cell in lines[first].strip("|").split("|")]
    table = {}
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        label, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        table[label] = dict(zip(columns[1:], cells, strict=True))
    return table


SAID = rows()


@pytest.mark.parametrize("library", [*LIBRARIES, "here, without `fast`"])
@pytest.mark.parametrize("row", CHECKS)
def test_what_is_said_is_so(row: str, library: str) -> None:
    with plain() if "without" in library else nullcontext():
        found = CHECKS[row](library.partition(",")[0])
    assert SAID[row][library] == (found if isinstance(found, str) else "yes" if found else "no")


def test_nothing_else_is_said() -> None:
    timed = {row for row in SAID if TIMED.fullmatch(row)}
    assert set(SAID) == timed | set(CHECKS) | {COUNTED} and timed


NAMES = {
    "here": "torch_recmetrics",
    "here, without `fast`": "torch_recmetrics, in torch",
    "RePlay": "RePlay",
    "PyG": "PyG",
}


@pytest.mark.parametrize("row", [row for row in SAID if TIMED.fullmatch(row)])
def test_times_are_those_that_a_benchmark_printed(row: str) -> None:
    shape = TIMED.sub(r"batches of \1 users x \2 items, random", row)
    printed = TIMES[TIMES.index(shape) :].split("\n\n")[1]
    for library, name in NAMES.items():
        cells = next(line for line in printed.splitlines() if line.startswith(f"| {name} ")).split("|")
        assert f"{SAID[row][library]} ms" == cells[3].strip(), f"{library}: `make bench BENCH=batches`"
        assert SAID[COUNTED][library] == cells[2].strip()
    assert SAID[row]["torchmetrics"] == "–"
