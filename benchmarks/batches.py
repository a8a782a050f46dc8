"""Everyday validation: batches of 64 to 512 users, one after the other, then the values of all.

The numbers are those of `benchmarks.ranking`, eight metrics at 5, 10 and 20; the others give fewer. A run is an epoch
of 4,096 users, told as time per batch, so that users who wait are evaluated within it. The others begin with
`torch.topk` and hide seen items in a copy of the scores that is theirs to overwrite.

"one" has a single relevant item a user, half of them near the top; "candidates" has one among 101 items with ids of
their own, which the others are spared; all others have 20. "sample ids" gives ours the number of each user, so that
none counts twice. "bfloat16" has scores of a normal distribution, as models with autocast give them: hardly a user has
20 different best ones; "sigmoid" has them behind a sigmoid, in bfloat16 too, where hundreds of items share the best
score; "equal" has 50 different scores in all. "one user" is an update for
each of 512 users, and a table of what its time is spent on.

Ours comes twice: with compiled loops, where Numba is installed, and "in torch", as where it is not.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sysconfig
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.harness import Contestant, Result, machine, race, table
from benchmarks.ranking import (
    OURS,
    READ,
    TOPK,
    Data,
    Values,
    Workload,
    check_agreement,
    draw,
    pyg,
    recmetrics,
    replay,
    topk_then_sums,
)
from torch_recmetrics.core.kernels.runtime import plain

IN_TORCH = f"{OURS}, in torch"
SHAPES = ((64, 3706), (256, 3706), (64, 20_000), (512, 1000), (256, 20_000))
GOALS = {0: (2.2, 3.0, 4.0, 4.0, 5.0), 50: (1.9, 2.6, 3.5, 3.3, 4.0)}
EPOCH = 4096  # users: a small validation set
ONE_USER = (1, 1000)
FEWER = 512  # users: thousands of sums of one, some of the others add up in float32
# Of RePlay's time: of 24 numbers, and of one.
GOALS_OF_ONE_USER = (1.0, 0.5)
KINDS = (
    *("random", "seen", "one", "dense", "good", "sample ids", "candidates"),
    *("bfloat16", "sigmoid", "equal"),  # the others take equal scores as they come
    "one user",
)
CANDIDATES = 101
HERE = Path(__file__).parents[1]
FOLDERS = (sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), HERE / "torch_recmetrics", HERE)


def epoch_of(work: Workload, kind: str, n_batches: int) -> list[Data]:
    """Batches of a workload; those of four draws take turns."""
    batches = []
    for seed in range(min(n_batches, 4)):
        data = draw(replace(work, on_top=0.5 if kind in ("good", "one") else 0.0), torch.device("cpu"), seed)
        if kind in ("bfloat16", "sigmoid"):
            shares = data.scores / (work.items + 2)  # between 0 and 1
            scores = (shares if kind == "sigmoid" else torch.special.ndtri(shares)).bfloat16()
            data = Data(scores, data.target_ids, data.target, data.seen_ids, scores)
        if kind == "equal":  # an untrained model with few different scores
            scores = (data.scores % 50).contiguous()
            data = Data(scores, data.target_ids, data.target, data.seen_ids, scores)
        batches.append(data)
    return [batches[number % len(batches)] for number in range(n_batches)]


def also(kind: str, epoch: list[Data]) -> list[dict[str, Tensor]]:
    """What our updates are given beside the scores and relevant ids, or in their place."""
    users = epoch[0].scores.shape[0]
    if kind == "sample ids":
        return [{"sample_ids": torch.arange(users * number, users * (number + 1))} for number in range(len(epoch))]
    if kind != "candidates":
        return [{}] * len(epoch)
    generator = torch.Generator().manual_seed(0)
    item_ids = torch.rand(users, 20_000, generator=generator).topk(CANDIDATES).indices
    return [{"item_ids": item_ids, "target_ids": item_ids.gather(1, data.target_ids)} for data in epoch]


def entrants(epoch: list[Data], kind: str) -> list[Contestant]:
    """Everybody who takes part, after their values have been checked."""

    def read() -> None:
        for data in epoch:
            data.scores.amax(1)

    def topk() -> None:
        for data in epoch:
            data.top()

    makers = {
        OURS: lambda: recmetrics(epoch, dense=kind == "dense", also=also(kind, epoch)),
        f"{OURS}, one number": lambda: recmetrics(
            epoch, ("ndcg",), (10,), dense=kind == "dense", also=also(kind, epoch)
        ),
        IN_TORCH: lambda: in_torch(recmetrics(epoch, dense=kind == "dense", also=also(kind, epoch))),
        "RePlay": lambda: replay(epoch),
        "top-k, then sums": lambda: topk_then_sums(epoch),
        "PyG": lambda: pyg(epoch),
    }
    contestants = [Contestant(READ, read), Contestant(TOPK, topk)]
    expected: Values = {}
    for name, make in makers.items():
        try:
            run = make()
        except ImportError as error:
            print(f"skipped: {name} ({error})")
            continue
        values = run()
        expected = expected or values
        if kind not in ("bfloat16", "sigmoid", "equal"):
            check_agreement(expected, name, values)
        contestants.append(Contestant(name, run, len(values)))
    return contestants


def in_torch(run: Callable[[], Values]) -> Callable[[], Values]:
    """The same without compiled loops."""

    def plainly() -> Values:
        with plain():
            return run()

    return plainly


def spent(run: Callable[[], Values], n_updates: int, most: int = 25) -> str:
    """Where the time of an update goes, a row for each function with time of its own: calls and microseconds."""
    run()
    profile = cProfile.Profile()
    profile.runcall(run)
    rows = []
    for (file, line, name), (_, calls, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        inside = file
        for folder in FOLDERS:  # no path of the machine
            inside = inside.removeprefix(f"{folder}/")
        where = "" if file == "~" else f"{inside}:{line} "
        rows.append((own / n_updates * 1e6, calls / n_updates, f"{where}{name}"))
    rows.sort(reverse=True)
    lines = ["| function | calls | of its own |", "| --- | ---: | ---: |"]
    lines += [f"| {name} | {calls:.1f} | {own:.1f} us |" for own, calls, name in rows[:most]]
    rest = sum(own for own, _, _ in rows[most:])
    return "\n".join([*lines, f"| {len(rows) - most} others | | {rest:.1f} us |"])


def per_batch(results: list[Result], n_batches: int) -> list[Result]:
    return [replace(r, seconds=tuple(seconds / n_batches for seconds in r.seconds)) for r in results]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS, help="what the batches hold")
    parser.add_argument("--only", type=int, nargs="*", help=f"numbers of the shapes, 0 to {len(SHAPES) - 1}")
    parser.add_argument("--epoch", type=int, default=EPOCH, help="users of a run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, help="of torch; as many as it takes by itself when not given")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(machine())
    lines = ["", "The fastest of the others / ours, by the fastest rounds; below 1 the others win:", ""]
    for kind in options.kinds:
        for number in options.only if options.only is not None else range(len(SHAPES)):
            users, items = SHAPES[number]
            if kind == "one user":
                if number != (options.only or [0])[0]:
                    continue
                users, items = ONE_USER
            if kind == "candidates":
                if users in [shape[0] for shape in SHAPES[:number]]:
                    continue
                items = CANDIDATES
            single = kind in ("one", "candidates")
            work = Workload(users, items, seen=50 if kind == "seen" else 0, relevant=1 if single else 20)
            if kind == "dense" and not work.short:
                continue
            epoch = epoch_of(work, kind, (FEWER if kind == "one user" else options.epoch) // users)
            results = per_batch(race(entrants(epoch, kind), options.rounds), len(epoch))
            of_users = f"{users} user{'s' * (users > 1)}"
            if kind == "one user":
                print(f"\nOf one update with 24 numbers, under a profiler:\n\n{spent(recmetrics(epoch), len(epoch))}")
            print(f"\n{len(epoch)} batches of {of_users} x {items:,} items, {kind}\n\n{table(results, READ)}")
            times = {result.name: result.fastest for result in results}
            others = {n: t for n, t in times.items() if n not in (READ, TOPK) and not n.startswith(OURS)}
            best = min(others, key=lambda name: others[name])
            goal = GOALS.get({"random": 0, "seen": 50}.get(kind, -1), ())
            asked = f" (goal: {goal[number]})" if goal else ""
            lines.append(
                f"{kind}, {users} x {items:,}: {best} {others[best] / times[OURS]:.2f}{asked}; "
                f"24 numbers / one: {times[OURS] / times[f'{OURS}, one number']:.2f}; "
                f"reads: {times[OURS] / times[READ]:.2f}; in torch: {others[best] / times[IN_TORCH]:.2f}"
            )
            if kind == "one user" and "RePlay" in times:
                of_replay = (times[OURS] / times["RePlay"], times[f"{OURS}, one number"] / times["RePlay"])
                lines.append(
                    f"{kind}, of RePlay's time for 15 numbers: 24 numbers {of_replay[0]:.2f} (goal: at most "
                    f"{GOALS_OF_ONE_USER[0]}); one number {of_replay[1]:.2f} (goal: at most {GOALS_OF_ONE_USER[1]})"
                )
    print("\n".join(lines))


if __name__ == "__main__":
    main()
