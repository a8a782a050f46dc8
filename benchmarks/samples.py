"""What the simulations draw, and how they count and print: metrics, users and rows whose true values are known.

"holds" is the share of draws whose 95 % interval holds the true value; "error" is the standard error, by its mean
square, divided by the standard deviation of the value over the draws.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from benchmarks.harness import machine
from torch_recmetrics import NDCG, BinaryAUC, Calibration, GroupAUC, LogLoss, Recall

Array = npt.NDArray[np.float64]
Found = tuple[float, float, float, float]  # value, standard error, low and high
Results = Mapping[str, Found]
Update = dict[str, Tensor]
Case = tuple[Callable[[], Any], Callable[[torch.Generator, int], Update]]  # a metric, and what is given to it
LEVEL = 0.95
USERS = (30, 200, 2000)
MANY = 1_000_000  # users or rows that the true value is taken from


def found_of(metric: Any, method: Any = None) -> Found:
    """What a metric says of its value: what compute, standard_error and confidence_interval give, worked out once."""
    spread = metric.spread()
    low, high = spread.interval(LEVEL, method, metric.value_range, metric.interval_method)
    return float(spread.value), float(spread.error), float(low), float(high)


def holds(found: Iterable[Results], truths: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """name -> the share of intervals that hold the truth, and the standard error divided by the true one."""
    results = list(found)
    kept = {}
    for name, truth in truths.items():
        numbers = np.array([result[name] for result in results])
        value, error, low, high = numbers[np.isfinite(numbers[:, :2]).all(1)].T  # few rows may have no click
        inside = (low <= truth + 1e-12) & (truth - 1e-12 <= high)
        kept[name] = float(inside.mean()), float(np.sqrt((error**2).mean()) / value.std(ddof=1))
    return kept


def of_case(case: Case, n: int, draws: int, seed: int = 0) -> Iterator[Results]:
    """What a metric says of samples."""
    make, draw = case
    g = torch.Generator().manual_seed(n + seed)
    metric = make()  # once: to make one takes as long as to ask it
    for _ in range(draws):
        metric.reset()
        metric.update(**draw(g, n))
        yield {"": found_of(metric)}


def truth_of(case: Case, n: int | None = None) -> dict[str, float]:
    make, draw = case
    metric = make()
    metric.update(**draw(torch.Generator().manual_seed(0), n or MANY // 2))
    return {"": float(metric.compute())}


# -- users and rows ----------------------------------------------------------------------------------------------------


def users_of_any_size(g: torch.Generator, n: int) -> dict[str, Tensor]:
    """1 to 20 of 30 items are relevant to a user, to most of them few; some users are served well and some badly."""
    size = (torch.rand(n, 1, generator=g) ** -0.7).floor().clamp(max=20)
    target = torch.arange(30) < size
    scores = torch.randn(n, 30, generator=g) + torch.randn(n, 1, generator=g).exp() * target
    return {"preds": scores, "target": target.to(torch.int64)}


def clicks(g: torch.Generator, n: int) -> dict[str, Tensor]:
    """8 % are clicked; the predictions, of which a third are one number, are too high."""
    logit = 1.5 * torch.randn(n, generator=g, dtype=torch.float64) - 3
    logit = torch.where(torch.rand(n, generator=g) < 1 / 3, -2.5, logit)
    target = torch.rand(n, generator=g) < torch.sigmoid(logit)
    return {"preds": torch.sigmoid(0.8 * logit), "target": target.to(torch.int64)}


def with_weights(given: dict[str, Tensor], g: torch.Generator, n: int) -> dict[str, Tensor]:
    """Weights from 1 to 10, and 0 of a tenth."""
    weights = 10 ** torch.rand(n, generator=g, dtype=torch.float64)
    return {**given, "weights": torch.where(torch.rand(n, generator=g) < 0.1, 0.0, weights)}


def one_relevant(g: torch.Generator, n: int) -> Update:
    """One of 50 items is relevant; two of five users are served by chance."""
    target = torch.zeros(n, 50, dtype=torch.int64)
    target[:, 0] = 1
    served = torch.rand(n, 1, generator=g) < 0.6
    return {"preds": torch.randn(n, 50, generator=g) + 2 * served * target, "target": target}


def tied_clicks(g: torch.Generator, n: int) -> Update:
    """A fifth is clicked; scores are whole numbers, and a third of them one number."""
    target = torch.rand(n, generator=g) < 0.2
    scores = (2 * (torch.randn(n, generator=g) + target)).round()
    mass = torch.rand(n, generator=g) < 1 / 3
    return {"preds": torch.where(mass, 0.0, scores), "target": target.to(torch.int64)}


def groups_of_clicks(g: torch.Generator, n: int) -> Update:
    """1 to 40 rows of each group, some of which have one class alone."""
    sizes = (3 * torch.rand(n, generator=g) ** -0.7).floor().clamp(max=40).to(torch.int64)
    indexes = torch.repeat_interleave(torch.arange(n), sizes)
    target = torch.rand(len(indexes), generator=g) < 0.3
    quality = torch.randn(n, generator=g).exp()[indexes]
    scores = torch.randn(len(indexes), generator=g) + quality * target
    return {"preds": scores, "target": target.to(torch.int64), "indexes": indexes}


def weights_of_scores(given: Update, g: torch.Generator) -> Update:
    """Rows of high scores weigh more, as those that were shown more often."""
    weights = (0.5 * given["preds"].double() + torch.randn(given["preds"].shape, generator=g)).exp().clamp(max=20)
    return {**given, "weights": weights}


CASES: dict[str, Case] = {
    "mean": (lambda: NDCG(10), one_relevant),
    "ratio": (lambda: Recall(5, pooled=True), users_of_any_size),
    "log loss": (LogLoss, clicks),
    "calibration": (Calibration, clicks),
    "AUC": (BinaryAUC, tied_clicks),
    "GroupAUC": (GroupAUC, groups_of_clicks),
}


# -- values of users of several runs -----------------------------------------------------------------------------------

WORDS = ("hits", "ndcg", "rare", "pareto")


def columns_of(rng: np.random.Generator, taste: Array, better: float = 1.0) -> dict[str, Any]:
    """Values of users in four metrics that go together: who is likely to find something is so in every system."""
    found = rng.random(len(taste)) < taste * better
    rank = rng.integers(1, 11, len(taste))
    rare = found & (rng.random(len(taste)) < 0.2)
    amount = found * rng.pareto(2.5, len(taste))
    return {"hits": found * 1.0, "ndcg": found / np.log2(rank + 1), "rare": rare / rank, "pareto": amount}


FOUND = {  # means of those who find something
    "hits": 1.0,
    "ndcg": float(np.mean(1 / np.log2(np.arange(2, 12)))),
    "rare": 0.2 * float(np.mean(1 / np.arange(1, 11))),
    "pareto": 1 / 1.5,
}


# -- tables ------------------------------------------------------------------------------------------------------------


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    print(f"\n{title}\n")
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
    for line in lines:
        print("  ".join(c.rjust(w) if p else c.ljust(w) for p, (c, w) in enumerate(zip(line, widths))), flush=True)


def cells(found: Mapping[str, tuple[float, float]]) -> list[str]:
    return [text for share, ratio in found.values() for text in (percent(share), f"{ratio:.2f}")]


def show(about: str | None, tables: Callable[[int], None]) -> None:
    """Read how many draws are wanted, and print the tables of so many."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--draws", type=int, default=1000)
    options = parser.parse_args()
    torch.set_num_threads(1)  # the tensors are small
    warnings.filterwarnings("ignore", category=UserWarning)
    print(f"{options.draws:,} draws; {machine()}")
    tables(options.draws)
