"""What only a GPU can show: its tests, that updates never wait for it, and times by its own clock.

On a machine without one it says so. Times are the fastest by CUDA events; a read is one pass over the scores (`amax`)
in the same run, so "reads" compares with the speed of the memory. `docs/performance/gpu.txt` keeps the table.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.harness import machine

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "performance" / "gpu.txt"
METRICS = ("hit_rate", "precision", "recall", "f1", "ndcg", "dcg", "map", "mrr")
CUTS = (5, 10, 20)
SHAPES = ((256, 3706), (1024, 3706), (1024, 100_000), (64, 1_000_000))
CATALOGUE, WIDTH = (500, 200_000), 64
ROUNDS, UPDATES = 20, 16


def seconds(run: Callable[[], object]) -> float:
    """The fastest time of a run on the device."""
    for _ in range(3):
        run()
    times = []
    for _ in range(ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return min(times)


def without_waiting(run: Callable[[], object]) -> bool:
    """Whether a run asks the device for nothing."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        run()
    except RuntimeError:
        return False
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return True


def updates(scores: Tensor, names: tuple[str, ...], cuts: tuple[int, ...], **more: Tensor) -> Callable[[], None]:
    """An epoch of updates and its values."""
    from torch_recmetrics import ranking_metrics

    metrics = ranking_metrics(names, top_k=cuts, validate_args=False).to(scores.device)

    def run() -> None:
        metrics.reset()
        for _ in range(UPDATES):
            metrics.update(scores, **more)
        metrics.compute()

    return run


def rows(n_users: int, n_items: int, device: torch.device) -> list[str]:
    """The lines of the table for one shape."""
    from torch_recmetrics import ranking_metrics

    generator = torch.Generator(device).manual_seed(0)
    scores = torch.rand(n_users, n_items, generator=generator, device=device)
    target_ids = torch.randint(n_items, (n_users, 20), generator=generator, device=device)
    target_ids = torch.where(target_ids.sort(1).values.diff(prepend=target_ids[:, :1] * 0 - 1) > 0, target_ids, -1)
    seen_ids = torch.randint(n_items, (n_users, 50), generator=generator, device=device)
    read = seconds(lambda: [scores.amax(1) for _ in range(UPDATES)])
    topk = seconds(lambda: [scores.topk(20, dim=1) for _ in range(UPDATES)])
    lines = []
    for name, run in {
        "24 numbers": updates(scores, METRICS, CUTS, target_ids=target_ids),
        "one number": updates(scores, ("ndcg",), (10,), target_ids=target_ids),
        "24 numbers, 50 seen items": updates(scores, METRICS, CUTS, target_ids=target_ids, seen_ids=seen_ids),
    }.items():
        time = seconds(run)
        lines.append(
            f"{n_users:,} x {n_items:,}, {name}: {time / UPDATES * 1e3:.3f} ms an update, "
            f"{time / read:.2f} reads, torch.topk / ours {topk / time:.2f}"
        )
    metrics = ranking_metrics(METRICS, top_k=CUTS, validate_args=False).to(device)
    metrics.update(scores, target_ids=target_ids)
    waits = not without_waiting(lambda: metrics.update(scores, target_ids=target_ids))
    lines.append(f"{n_users:,} x {n_items:,}: an update {'WAITS' if waits else 'never waits'} for the device")
    return lines


def catalogue_rows(n_users: int, n_items: int, device: torch.device) -> list[str]:
    """The lines of a search of a catalogue, and of an update from the same embeddings."""
    from torch_recmetrics import ranking_metrics, topk_catalogue

    generator = torch.Generator(device).manual_seed(0)
    users, items = (torch.randn(n, WIDTH, generator=generator, device=device) for n in (n_users, n_items))
    target_ids = torch.randint(n_items, (n_users, 20), generator=generator, device=device)
    product = seconds(lambda: torch.topk(users @ items.T, 20, dim=1))
    metrics = ranking_metrics(METRICS, top_k=CUTS, validate_args=False).to(device)

    def update() -> None:
        metrics.reset()
        metrics.update(user_embeddings=users, item_embeddings=items, target_ids=target_ids)
        metrics.compute()

    lines = []
    for name, run in {
        "topk_catalogue": lambda: topk_catalogue(users, items, 20),
        "an update of 24 numbers and their values": update,
    }.items():
        time = seconds(run)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        memory = (torch.cuda.max_memory_allocated() - before) >> 20
        lines.append(
            f"{n_users:,} users x {n_items:,} items of {WIDTH} numbers, {name}: {time * 1e3:.2f} ms, {memory} MB, "
            f"product and torch.topk / ours {product / time:.2f}"
        )
    return lines


def main() -> None:
    if not torch.cuda.is_available():
        print("no CUDA device on this machine: nothing was run")
        return
    tests = subprocess.run([sys.executable, "-m", "pytest", "-q", "-k", "cuda"], cwd=ROOT, check=False)
    lines = [machine()]
    for n_users, n_items in SHAPES:
        lines += rows(n_users, n_items, torch.device("cuda"))
    lines += catalogue_rows(*CATALOGUE, torch.device("cuda"))
    print("\n".join(lines))
    KEPT.write_text("\n".join(lines) + "\n")
    if tests.returncode:
        raise SystemExit("tests on the device failed")


if __name__ == "__main__":
    main()
