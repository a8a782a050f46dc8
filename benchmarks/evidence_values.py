"""How often the intervals of ratios of sums, slices, areas and lists hold the true value, and how right their standard
errors are, by simulation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.samples import (
    CASES,
    LEVEL,
    MANY,
    USERS,
    Case,
    Results,
    Update,
    cells,
    clicks,
    found_of,
    groups_of_clicks,
    holds,
    of_case,
    percent,
    show,
    table,
    tied_clicks,
    truth_of,
    users_of_any_size,
    weights_of_scores,
    with_weights,
)
from torch_recmetrics import (
    RBO,
    BinaryAUC,
    Calibration,
    GroupAUC,
    HitRate,
    KendallTau,
    LogLoss,
    MeanRank,
    NormalizedEntropy,
    Overlap,
    Recall,
    RecMetricCollection,
    Sliced,
)
from torch_recmetrics.compare import UserValues
from torch_recmetrics.compare.agreement import agreement

# -- ratios of sums ---------------------------------------------------------------------------------------------------


def ranked() -> RecMetricCollection:
    """Ratios of sums over users."""
    return RecMetricCollection([Recall(5, pooled=True), MeanRank(None, pooled=True)])


def clicked() -> RecMetricCollection:
    """Log loss and ratios of sums over rows."""
    return RecMetricCollection([LogLoss(), NormalizedEntropy(), Calibration()])


RATIOS: dict[str, tuple[Callable[[], Any], Callable[[torch.Generator, int], dict[str, Tensor]]]] = {
    "users of 1 to 20 relevant items": (ranked, users_of_any_size),
    "rows, 8 % clicked": (clicked, clicks),
}


def ratio_results(kind: str, n: int, draws: int, *, weighted: bool = False) -> Iterator[Results]:
    make, draw = RATIOS[kind]
    g = torch.Generator().manual_seed(n + weighted)
    metrics = make()
    for _ in range(draws):
        given = draw(g, n)
        metrics.reset()
        metrics.update(**(with_weights(given, g, n) if weighted else given))
        yield {name: found_of(metric) for name, metric in metrics.items()}


def ratio_truths(kind: str, n: int | None = None) -> dict[str, float]:
    """Of very many users or rows; weights have nothing to do with the values."""
    make, draw = RATIOS[kind]
    metrics = make()
    metrics.update(**draw(torch.Generator().manual_seed(0), n or MANY))
    return {name: float(value) for name, value in metrics.compute().items()}


# -- slices -----------------------------------------------------------------------------------------------------------


SHARES = (0.8, 0.3, 0.1)  # of the users in each slice: some are in several, some in none
SLICES = ("most", "some", "few")
SLICED = ("mean", "ratio", "log loss", "AUC", "GroupAUC")


def slices_of(given: Update, g: torch.Generator, n: int) -> Update:
    """Membership of each user; rows of one group are in the slices of their group."""
    inside = torch.rand(n, len(SLICES), generator=g) < torch.tensor(SHARES)
    return {**given, "slice_ids": inside[given["indexes"]] if "indexes" in given else inside}


def sliced_results(kind: str, n: int, draws: int) -> Iterator[Results]:
    make, draw = CASES[kind]
    g = torch.Generator().manual_seed(n)
    metric = Sliced(make(), SLICES)
    for _ in range(draws):
        metric.reset()
        metric.update(**slices_of(draw(g, n), g, n))
        values, errors, ends = metric.compute(), metric.standard_error(), metric.confidence_interval(LEVEL)
        yield {
            name: (float(values[name]), float(errors[name]), float(ends[name][0]), float(ends[name][1]))
            for name in SLICES
        }


def sliced_truths(kind: str, n: int | None = None) -> dict[str, float]:
    """Slices have nothing to do with the values."""
    make, draw = CASES[kind]
    metric = make()
    metric.update(**draw(torch.Generator().manual_seed(0), n or MANY // 2))
    return dict.fromkeys(SLICES, float(metric.compute()))


def gap_by_chance(n_slices: int, n_users: int, draws: int) -> tuple[float, float]:
    """Of slices that do not differ, as many users each: the mean gap, and how far the worst one lies below the value,
    both in standard errors of one slice."""
    g = torch.Generator().manual_seed(n_slices)
    metric, gaps, worst = Sliced(HitRate(1), n_slices), 0.0, 0.0
    slice_ids = torch.arange(n_slices).repeat_interleave(n_users)
    error = math.sqrt(0.2 * 0.8 / n_users)
    for _ in range(draws):
        metric.reset()
        target = (torch.rand(len(slice_ids), generator=g) < 0.2).to(torch.int64)
        metric.update(
            item_ids=torch.ones(len(slice_ids), 1, dtype=torch.int64),
            target_ids=target.unsqueeze(1),
            slice_ids=slice_ids,
        )
        gaps, worst = gaps + float(metric.gap()) / error, worst + (0.2 - float(metric.worst().value)) / error
    return gaps / draws, worst / draws


# -- areas ------------------------------------------------------------------------------------------------------------


def users_of_clicks(g: torch.Generator, n: int) -> Update:
    """As groups, with scores that are whole numbers."""
    given = groups_of_clicks(g, n)
    common = torch.randn(n, generator=g)[given["indexes"]]
    return {**given, "preds": (2 * (given["preds"] + common)).round()}


def half_scores(g: torch.Generator, n: int) -> Update:
    given = tied_clicks(g, n)
    return {**given, "preds": (given["preds"] + torch.randn(n, generator=g)).half()}


def continuous_scores(g: torch.Generator, n: int) -> Update:
    given = tied_clicks(g, n)
    return {**given, "preds": torch.sigmoid(given["preds"] + torch.randn(n, generator=g))}


AREAS: dict[str, Case] = {
    "ties": (BinaryAUC, tied_clicks),
    "2,048 bins": (lambda: BinaryAUC(num_bins=2048), continuous_scores),
    "half precision": (BinaryAUC, half_scores),
    "weights": (BinaryAUC, lambda g, n: with_weights(tied_clicks(g, n), g, n)),
    "weights of the scores": (BinaryAUC, lambda g, n: weights_of_scores(tied_clicks(g, n), g)),
    "clusters": (lambda: BinaryAUC(clustered=True), users_of_clicks),
    "clusters, weights": (lambda: BinaryAUC(clustered=True), lambda g, n: weights_of_scores(users_of_clicks(g, n), g)),
    "groups": (GroupAUC, groups_of_clicks),
    "groups, weights": (GroupAUC, lambda g, n: weights_of_scores(groups_of_clicks(g, n), g)),
}


# -- lists ------------------------------------------------------------------------------------------------------------


def two_lists(g: torch.Generator, n: int) -> Update:
    """Lists of ten of 40 items, which agree fully, in part or by chance."""
    scores = torch.randn(n, 40, generator=g)
    kind = torch.randint(0, 3, (n, 1), generator=g)
    noise = torch.tensor([0.0, 1.0, 5.0])[kind]
    other = (scores + noise * torch.randn(n, 40, generator=g)).topk(10).indices
    return {"item_ids": scores.topk(10).indices, "reference_ids": other}


LISTS: dict[str, Case] = {
    "overlap": (lambda: Overlap(10), two_lists),
    "rbo": (RBO, two_lists),
    "kendall_tau": (lambda: KendallTau(10), two_lists),
}


def agreement_holds(n: int, draws: int) -> dict[str, float]:
    """Of lists of ten of 40 items, of which the second shares some with the first: all, none or a few."""
    rng, ids = np.random.default_rng(n), torch.arange(n)
    metrics = ("overlap@10", "jaccard@10", "rbo", "kendall_tau@10")

    def draw(number: int) -> Any:
        noise = rng.choice([0.0, 1.0, 5.0], (number, 1), p=(0.3, 0.5, 0.2))
        scores = rng.normal(size=(number, 40))
        lists = [np.argsort(-(scores + noise * rng.normal(size=(number, 40))), axis=1)[:, :10] for _ in range(2)]
        place = ids if number == n else torch.arange(number)
        runs = {name: UserValues(place, {}, lists=torch.from_numpy(one)) for name, one in zip("ab", lists)}
        return agreement(runs, metrics, level=LEVEL).rows

    truths = {row.metric: row.value for row in draw(MANY // 5)}
    inside = dict.fromkeys(metrics, 0.0)
    for _ in range(draws):
        for row in draw(n):
            inside[row.metric] += (row.low <= truths[row.metric] <= row.high) / draws
    return inside


# -- tables -----------------------------------------------------------------------------------------------------------


def tables(draws: int) -> None:
    for kind in RATIOS:
        truths = ratio_truths(kind)
        rows = (
            [f"{n:,}", "1 to 10" if w else "none", *cells(holds(ratio_results(kind, n, draws, weighted=w), truths))]
            for n in USERS
            for w in (False, True)
        )
        head = ["users", "weights", *(word for name in truths for word in (name, "error"))]
        table(f"Ratios of sums, {kind}: 95 % intervals that hold, %", head, rows)
    rows = (
        [kind, f"{n:,}", *cells(holds(sliced_results(kind, n, draws), truths))]
        for kind in SLICED
        for truths in [sliced_truths(kind)]
        for n in (10 * USERS[0], USERS[-1])
    )
    head = ["of", "users", *(word for share in SHARES for word in (f"slice of {share:.0%}", "error"))]
    table("Sliced: 95 % intervals that hold, %", head, rows)
    rows = (
        [f"{s:,}", f"{n:,}", *(f"{one:.1f}" for one in gap_by_chance(s, n, draws))]
        for s, n in ((5, 50), (20, 50), (20, 1000), (1000, 50))
    )
    table(
        "Slices that do not differ, in standard errors of one slice",
        ["slices", "users of each", "gap", "worst below the value"],
        rows,
    )
    for title, cases in (("Areas", AREAS), ("Lists", LISTS)):
        rows = (
            [kind, f"{n:,}", *cells(holds(of_case(case, n, draws), truths))]
            for kind, case in cases.items()
            for truths in [truth_of(case)]
            for n in USERS
        )
        table(f"{title}: 95 % intervals that hold, %", ["of", "users", "holds", "error"], rows)
    names = ("overlap@10", "jaccard@10", "rbo", "kendall_tau@10")
    rows = ([f"{n:,}", *(percent(share) for share in agreement_holds(n, draws).values())] for n in USERS)
    table("compare.agreement: 95 % intervals that hold, %", ["users", *names], rows)


if __name__ == "__main__":
    show(__doc__, tables)
