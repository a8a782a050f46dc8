"""How often the intervals of what a value would have been hold it, by simulation: other policies, all items from
sampled ones, all relevant items from observed ones; and how many rows of the new policy tell as much as a log.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.samples import (
    MANY,
    USERS,
    Case,
    Update,
    cells,
    holds,
    of_case,
    show,
    table,
    truth_of,
    users_of_any_size,
    with_weights,
)
from torch_recmetrics import DCG, NDCG, FromSampled, OffPolicyValue, Recall, SlateOffPolicyValue

ESTIMATORS = ("ips", "snips", "dm", "dr", "sndr", "switch-dr")
ASSUMPTIONS: tuple[Any, ...] = ("independent", "cascade", "standard")
ACTIONS = 5


def logged_rows(g: torch.Generator, n: int, *, clustered: bool = False) -> Update:
    """Five actions, a new policy that differs from the one that ran, clicks, and a model that knows half of them.

    With `clustered` there are n users of 1 to 20 rows, who click more or less.
    """
    users = {}
    if clustered:
        sizes = (torch.rand(n, generator=g) ** -0.7).floor().clamp(max=20).to(torch.int64)
        users["indexes"] = torch.repeat_interleave(torch.arange(n), sizes)
        rate = torch.rand(n, generator=g)[users["indexes"]]
        n = len(rate)
    else:
        rate = torch.rand(n, generator=g)
    taste = torch.randn(n, ACTIONS, generator=g, dtype=torch.float64)
    logged, policy = (0.7 * taste).softmax(1), (taste.roll(1, 1) + taste).softmax(1)
    clicked = rate.unsqueeze(1) * torch.sigmoid(taste - 1)
    model = 0.5 * torch.sigmoid(taste - 1)
    shown = torch.multinomial(logged, 1, generator=g)

    def of_shown(column: Tensor) -> Tensor:
        return column.gather(1, shown).squeeze(1)

    reward = (torch.rand(n, generator=g) < of_shown(clicked)).double()
    given = {"reward": reward, "logged": of_shown(logged), "policy": of_shown(policy), **users}
    return {**given, "expected": of_shown(model), "expected_policy": (policy * model).sum(1)}


def policy_case(estimator: Any, *, clustered: bool = False, weighted: bool = False) -> Case:
    def make() -> Any:
        return OffPolicyValue(estimator=estimator, switch=2.0 if estimator == "switch-dr" else None)

    def draw(g: torch.Generator, n: int) -> Update:
        given = logged_rows(g, n, clustered=clustered)
        names = {"expected": 3, "expected_policy": 2}
        needed = {"dm": ("expected_policy",), "ips": (), "snips": ()}.get(estimator, tuple(names))
        given = {name: column for name, column in given.items() if name not in names or name in needed}
        return with_weights(given, g, len(given["reward"])) if weighted else given

    return make, draw


def slates(g: torch.Generator, n: int) -> Update:
    """Of three places, the last of which one in three slates does not have."""
    logged = 0.2 + 0.7 * torch.rand(n, 3, generator=g, dtype=torch.float64)
    shown = torch.rand(n, 3, generator=g) < logged
    policy = (logged + 0.15).clamp(max=0.95)
    reward = (torch.rand(n, 3, generator=g) < 0.2 + 0.3 * shown).double()
    mask = torch.ones(n, 3, dtype=torch.bool)
    mask[:, 2] = torch.rand(n, generator=g) < 2 / 3
    return {
        "reward": reward,
        "logged": torch.where(shown, logged, 1 - logged),
        "policy": torch.where(shown, policy, 1 - policy),
        "mask": mask,
    }


SAMPLED_ITEMS, ALL_ITEMS = 20, 200


def sampled_ranks(g: torch.Generator, n: int) -> Update:
    """The relevant item of 200 among 20 sampled ones."""
    scores = torch.randn(n, SAMPLED_ITEMS + 1, generator=g)
    scores[:, 0] += 1 + torch.randn(n, generator=g).abs()
    item_ids = torch.arange(SAMPLED_ITEMS + 1).expand(n, -1)
    return {"preds": scores, "item_ids": item_ids, "target_ids": torch.zeros(n, dtype=torch.int64)}


def observed(g: torch.Generator, n: int) -> Update:
    """Of up to five relevant ones among 30 items, each is seen as often as its propensity says."""
    given = users_of_any_size(g, n)
    seen = torch.rand(n, 30, generator=g) < PROPENSITIES
    return {**given, "target": given["target"] * seen}


PROPENSITIES = torch.linspace(0.9, 0.1, 30)


CASES: dict[str, Case] = {
    **{name: policy_case(name) for name in ESTIMATORS},
    **{f"{name}, weights": policy_case(name, weighted=True) for name in ("snips", "sndr")},
    **{f"{name}, users": policy_case(name, clustered=True) for name in ("ips", "snips", "dr", "sndr")},
    **{f"slates, {name}": (partial(SlateOffPolicyValue, assumption=name), slates) for name in ASSUMPTIONS},
    **{
        f"from sampled, {name}": (partial(FromSampled, NDCG(10), ALL_ITEMS, method=name), sampled_ranks)
        for name in ("naive", "bv", "rank")
    },
    "propensities, snips": (lambda: DCG(10, gain="linear", propensities=PROPENSITIES), observed),
    "propensities, ips": (lambda: Recall(5, propensities=PROPENSITIES, self_normalized=False), observed),
}


def rows_that_tell_as_much(n: int, draws: int, **options: Any) -> tuple[float, float, float]:
    """`effective_sample_size` of logs of n rows: its mean, how much that is of n (E w)^2 / E w^2, and by it the rows of
    the new policy whose mean reward varies as much as the value does.
    """
    g = torch.Generator().manual_seed(n)
    whole = logged_rows(torch.Generator().manual_seed(0), MANY // 2)
    weights = whole["policy"] / whole["logged"]
    mean = float((weights * whole["reward"]).sum() / weights.sum())
    kept = weights.clamp(max=options.get("max_weight") or math.inf)
    expected = n * float(kept.mean().square() / kept.square().mean())
    sizes, values = torch.zeros(2, draws, dtype=torch.float64)
    metric = OffPolicyValue(**options)
    for place in range(draws):
        metric.reset()
        metric.update(**{name: column for name, column in logged_rows(g, n).items() if "expected" not in name})
        sizes[place], values[place] = metric.effective_sample_size(), metric.compute()
    size = float(sizes.mean())
    return size, size / expected, mean * (1 - mean) / float(values.var()) / size


def tables(draws: int) -> None:
    rows = (
        [kind, f"{n:,}", *cells(holds(of_case(case, n, draws), truths))]
        for kind, case in CASES.items()
        for truths in [truth_of(case)]
        for n in USERS
    )
    table("95 % intervals that hold, %", ["of", "users or rows", "holds", "error"], rows)
    rows = (
        [name, bound, f"{n:,}", *(f"{one:.2f}" for one in rows_that_tell_as_much(n, draws, estimator=name, **options))]
        for name in ("ips", "snips")
        for bound, options in (("none", {}), ("2", {"max_weight": 2.0}))
        for n in USERS
    )
    head = ["estimator", "max_weight", "rows", "effective_sample_size", "of the expected one", "tells as much"]
    table("Rows of the new policy that tell as much as the log", head, rows)


if __name__ == "__main__":
    show(__doc__, tables)
