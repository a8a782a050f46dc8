"""How often more intervals, standard errors and decisions keep their word, by simulation: ratios, resamples, slices,
areas, tables of several rows, gates of several rules, policies.

"holds" is the share of draws whose 95 % interval holds the true value; "error" is the standard error, by its mean
square, divided by the standard deviation of the value over the draws.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.evidence import Array, percent, table
from benchmarks.harness import machine
from torch_recmetrics import (
    DCG,
    MRR,
    NDCG,
    RBO,
    AveragePrecision,
    BinaryAUC,
    Calibration,
    FromSampled,
    GroupAUC,
    HitRate,
    KendallTau,
    LogLoss,
    MeanRank,
    NormalizedEntropy,
    OffPolicyValue,
    Overlap,
    Recall,
    RecMetricCollection,
    SlateOffPolicyValue,
    Sliced,
    UserBootstrap,
)
from torch_recmetrics.compare import Gate, UserValues, compare
from torch_recmetrics.compare.agreement import agreement

Found = tuple[float, float, float, float]  # value, standard error, low and high
Results = Mapping[str, Found]
LEVEL = 0.95
USERS = (30, 200, 2000)
MANY = 1_000_000  # users or rows that the true value is taken from


def found_of(metric: Any, method: Any = None) -> Found:
    """What a metric says of its value."""
    low, high = metric.confidence_interval(LEVEL, method=method)
    return float(metric.compute()), float(metric.standard_error()), float(low), float(high)


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


# -- ratios of sums ---------------------------------------------------------------------------------------------------


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


# -- resamples --------------------------------------------------------------------------------------------------------

Update = dict[str, Tensor]


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


RESAMPLED: dict[str, tuple[Callable[[], Any], Callable[[torch.Generator, int], Update]]] = {
    "mean": (lambda: NDCG(10), one_relevant),
    "hits": (lambda: HitRate(10), one_relevant),
    "median": (lambda: MRR(None, aggregation="median"), one_relevant),
    "ratio": (lambda: Recall(5, pooled=True), users_of_any_size),
    "log loss": (LogLoss, clicks),
    "calibration": (Calibration, clicks),
    "AUC": (BinaryAUC, tied_clicks),
    "average precision": (AveragePrecision, tied_clicks),
    "GroupAUC": (GroupAUC, groups_of_clicks),
}


def resampled(kind: str, n: int, draws: int, *, replicates: int = 400, named: bool = True) -> Iterator[Results]:
    make, draw = RESAMPLED[kind]
    g = torch.Generator().manual_seed(n)
    for seed in range(draws):
        given = draw(g, n)
        metric = UserBootstrap(make(), num_replicates=replicates, seed=seed)
        if named and kind != "GroupAUC":
            given["sample_ids"] = torch.arange(n) * 7
        metric.update(**given)
        value, error, low, high = map(float, metric.compute().values())
        yield {kind: (value, error, low, high)}


def resampled_truth(kind: str, n: int | None = None) -> dict[str, float]:
    make, draw = RESAMPLED[kind]
    metric = make()
    metric.update(**draw(torch.Generator().manual_seed(0), n or MANY // 4))
    return {kind: float(metric.compute())}


# -- slices -----------------------------------------------------------------------------------------------------------

SHARES = (0.8, 0.3, 0.1)  # of the users in each slice: some are in several, some in none
SLICES = ("most", "some", "few")
SLICED: dict[str, tuple[Callable[[], Any], Callable[[torch.Generator, int], Update]]] = {
    "mean": (lambda: NDCG(10), one_relevant),
    "ratio": (lambda: Recall(5, pooled=True), users_of_any_size),
    "log loss": (LogLoss, clicks),
    "AUC": (BinaryAUC, tied_clicks),
    "GroupAUC": (GroupAUC, groups_of_clicks),
}


def slices_of(given: Update, g: torch.Generator, n: int) -> Update:
    """Membership of each user; rows of one group are in the slices of their group."""
    inside = torch.rand(n, len(SLICES), generator=g) < torch.tensor(SHARES)
    return {**given, "slice_ids": inside[given["indexes"]] if "indexes" in given else inside}


def sliced_results(kind: str, n: int, draws: int) -> Iterator[Results]:
    make, draw = SLICED[kind]
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
    make, draw = SLICED[kind]
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


def weights_of_scores(given: Update, g: torch.Generator) -> Update:
    """Rows of high scores weigh more, as those that were shown more often."""
    weights = (0.5 * given["preds"].double() + torch.randn(given["preds"].shape, generator=g)).exp().clamp(max=20)
    return {**given, "weights": weights}


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


Case = tuple[Callable[[], Any], Callable[[torch.Generator, int], Update]]
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


def of_case(case: Case, n: int, draws: int, seed: int = 0) -> Iterator[Results]:
    """What a metric says of samples."""
    make, draw = case
    g = torch.Generator().manual_seed(n + seed)
    for _ in range(draws):
        metric = make()
        metric.update(**draw(g, n))
        yield {"": found_of(metric)}


def truth_of(case: Case, n: int | None = None) -> dict[str, float]:
    make, draw = case
    metric = make()
    metric.update(**draw(torch.Generator().manual_seed(0), n or MANY // 2))
    return {"": float(metric.compute())}


# -- tables of several rows -------------------------------------------------------------------------------------------

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


def of_users(ids: Tensor, columns: Any, weights: Any = None, lists: Any = None) -> UserValues:
    """A run of the values of users."""
    return UserValues(ids, columns, weights=weights, lists=lists)


def table_errors(n: int, draws: int, test: Any, correction: Any, n_true: int) -> float:
    """Of three systems beside a baseline in four metrics, `n_true` of the systems better by a half.

    With Holm's correction it is how often any row without a difference has p of 0.05 or less; with that of Benjamini
    and Hochberg the mean share of such rows among all that have it.
    """
    rng, ids, wrong = np.random.default_rng([n, n_true]), torch.arange(n), 0.0
    for seed in range(draws):
        taste = rng.random(n) / 2
        runs = {"old": of_users(ids, columns_of(rng, taste))}
        runs |= {f"s{place}": of_users(ids, columns_of(rng, taste, 1 + (place < n_true) / 2)) for place in range(3)}
        rows = compare(runs, "old", test=test, correction=correction, num_draws=999, seed=seed).rows
        found = [row for row in rows if row.p_corrected <= 0.05]
        false = sum(int(row.system[1:]) >= n_true for row in found)
        wrong += (false > 0) if correction == "holm" else false / max(len(found), 1)
    return wrong / draws


def difference_holds(n: int, draws: int, test: Any, *, weighted: bool = False, gaps: bool = False) -> dict[str, float]:
    """How often the interval of `compare` holds the true difference of users who like both systems alike.

    Args:
        n: users of each run.
        draws: of both runs.
        test: of the table.
        weighted: users who find much weigh more, up to tenfold.
        gaps: a tenth of the users is missing in each run, and a tenth of the others has no value.
    """
    rng = np.random.default_rng([n, weighted, gaps])
    share = 0.2 * 3.5 / 5.5 if weighted else 0.1  # of users who find something only because of the new system
    inside = dict.fromkeys(WORDS, 0.0)
    for seed in range(draws):
        taste = rng.random(n) / 2
        weights = 1 + 18 * taste
        runs = {}
        for name, better in (("new", 1.4), ("old", 1.0)):
            values = columns_of(rng, taste, better)
            there = rng.random(n) >= 0.1 if gaps else np.ones(n, bool)
            if gaps:
                values = {word: np.where(rng.random(n) < 0.1, np.nan, value)[there] for word, value in values.items()}
            runs[name] = of_users(
                torch.arange(n)[torch.from_numpy(there)], values, weights[there] if weighted else None
            )
        table = compare(runs, "old", test=test, num_draws=999, seed=seed, on_missing="intersect")
        for row in table.rows:
            inside[row.metric] += (row.low <= share * FOUND[row.metric] <= row.high) / draws
    return inside


def agreement_holds(n: int, draws: int) -> dict[str, float]:
    """Of lists of ten of 40 items, of which the second shares some with the first: all, none or a few."""
    rng, ids = np.random.default_rng(n), torch.arange(n)
    metrics = ("overlap@10", "jaccard@10", "rbo", "kendall_tau@10")

    def draw(number: int) -> Any:
        noise = rng.choice([0.0, 1.0, 5.0], (number, 1), p=(0.3, 0.5, 0.2))
        scores = rng.normal(size=(number, 40))
        lists = [np.argsort(-(scores + noise * rng.normal(size=(number, 40))), axis=1)[:, :10] for _ in range(2)]
        place = ids if number == n else torch.arange(number)
        runs = {name: of_users(place, {}, lists=torch.from_numpy(one)) for name, one in zip("ab", lists)}
        return agreement(runs, metrics, level=LEVEL).rows

    truths = {row.metric: row.value for row in draw(MANY // 5)}
    inside = dict.fromkeys(metrics, 0.0)
    for _ in range(draws):
        for row in draw(n):
            inside[row.metric] += (row.low <= truths[row.metric] <= row.high) / draws
    return inside


# -- gates of several rules -------------------------------------------------------------------------------------------


def gate_of_rules(n: int, draws: int, better: Sequence[float], *, margin: float = 0.1) -> tuple[float, float]:
    """How often a gate promotes and rejects: `better` of hits, `not_worse` of the others, and a share that is not less.

    Args:
        n: users.
        draws: of both runs.
        better: by which factor the candidate finds more: of hits, of ndcg, of pareto, and of the bound of a fourth.
        margin: what ndcg and pareto may lose.
    """
    rng, ids, outcomes = np.random.default_rng(n), torch.arange(n), []
    gate = Gate(better="hits", not_worse={"ndcg": margin, "pareto": margin}, not_less={"share": 0.25})
    for _ in range(draws):
        taste = rng.random(n) / 2
        old = columns_of(rng, taste)
        new = {word: columns_of(rng, taste, factor)[word] for word, factor in zip(("hits", "ndcg", "pareto"), better)}
        share = columns_of(rng, taste, better[3])["hits"]
        runs = [of_users(ids, {**new, "share": share}), of_users(ids, {**old, "share": old["hits"]})]
        outcomes.append(gate.decide(*runs).outcome)
    return outcomes.count("promoted") / draws, outcomes.count("rejected") / draws


# -- policies ---------------------------------------------------------------------------------------------------------

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


def two_lists(g: torch.Generator, n: int) -> Update:
    """Lists of ten of 40 items, which agree fully, in part or by chance."""
    scores = torch.randn(n, 40, generator=g)
    kind = torch.randint(0, 3, (n, 1), generator=g)
    noise = torch.tensor([0.0, 1.0, 5.0])[kind]
    other = (scores + noise * torch.randn(n, 40, generator=g)).topk(10).indices
    return {"item_ids": scores.topk(10).indices, "reference_ids": other}


OTHERS: dict[str, Case] = {
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
    "overlap": (lambda: Overlap(10), two_lists),
    "rbo": (RBO, two_lists),
    "kendall_tau": (lambda: KendallTau(10), two_lists),
}


def gate_at_its_edge(rule: str, n: int, share: float, draws: int, margin: float = 0.02) -> tuple[float, float]:
    """How often a gate of one rule promotes and rejects a candidate that is exactly at its edge.

    Args:
        rule: "not_worse": the candidate loses a hit of the incumbent as often as the margin allows; "not_less": its
            share of hits is the bound.
        n: users.
        share: of users who have a hit.
        draws: of both runs.
        margin: of the first rule.
    """
    rng, ids, outcomes = np.random.default_rng([n, int(1000 * share)]), torch.arange(n), []
    gate = Gate(not_worse={"m": margin}) if rule == "not_worse" else Gate(not_less={"m": share})
    for _ in range(draws):
        old = rng.random(n) < share
        new = old & (rng.random(n) >= margin) if rule == "not_worse" else old
        outcomes.append(gate.decide(*(of_users(ids, {"m": values * 1.0}) for values in (new, old))).outcome)
    return outcomes.count("promoted") / draws, outcomes.count("rejected") / draws


# -- tables -----------------------------------------------------------------------------------------------------------


def cells(found: Mapping[str, tuple[float, float]]) -> list[str]:
    return [text for share, ratio in found.values() for text in (percent(share), f"{ratio:.2f}")]


def intervals(draws: int) -> None:
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
        [kind, f"{n:,}", *cells(holds(resampled(kind, n, draws), truths))]
        for kind in RESAMPLED
        for truths in [resampled_truth(kind)]
        for n in USERS
    )
    table("UserBootstrap: 95 % intervals that hold, %", ["of", "users", "holds", "error"], rows)
    rows = (
        [kind, f"{n:,}", *cells(holds(sliced_results(kind, n, draws), truths))]
        for kind in SLICED
        for truths in [sliced_truths(kind)]
        for n in (10 * USERS[0], USERS[-1])
    )
    head = ["of", "users", *(word for share in SHARES for word in (f"slice of {share:.0%}", "error"))]
    table("Sliced: 95 % intervals that hold, %", head, rows)
    rows = (
        [f"{s:,}", f"{n:,}", *(f"{one:.1f}" for one in gap_by_chance(s, n, max(1, draws // 20)))]
        for s, n in ((5, 50), (20, 50), (20, 1000), (1000, 50))
    )
    title = "Slices that do not differ, in standard errors of one slice (a twentieth of the draws)"
    table(title, ["slices", "users of each", "gap", "worst below the value"], rows)
    rows = (
        [kind, f"{n:,}", *cells(holds(of_case(case, n, draws), truths))]
        for kind, case in {**AREAS, **OTHERS}.items()
        for truths in [truth_of(case)]
        for n in USERS
    )
    table("Areas, policies, samples, lists: 95 % intervals that hold, %", ["of", "users", "holds", "error"], rows)
    names = ("overlap@10", "jaccard@10", "rbo", "kendall_tau@10")
    rows = ([f"{n:,}", *(percent(share) for share in agreement_holds(n, max(2, draws // 2)).values())] for n in USERS)
    table("compare.agreement, half of the draws: 95 % intervals that hold, %", ["users", *names], rows)


def decisions(draws: int) -> None:
    rows = (
        [f"{n:,}", test, *(percent(table_errors(n, draws, test, c, k)) for c in ("holm", "bh") for k in (0, 1))]
        for n in USERS
        for test in ("t", "randomization")
    )
    head = ["users", "test", "holm, none better", "holm, one better", "bh, none better", "bh, one better"]
    table("Twelve rows of three systems: false findings, %: at most 5.0 promised", head, rows)
    rows = (
        [f"{n:,}", test, label, *map(percent, difference_holds(n, draws, test, **options).values())]
        for n in USERS
        for test in ("t", "randomization", "bootstrap")
        for label, options in (("all", {}), ("weights", {"weighted": True}), ("some missing", {"gaps": True}))
    )
    table("Differences in compare: 95 % intervals that hold, %", ["users", "test", "which", *WORDS], rows)
    cases = {
        "none better": (1, 1, 1, 1),
        "hits alike, all else better": (1, 1.9, 1.9, 1.9),
        "ndcg at its margin": (1.9, 0.9, 1.9, 1.9),
        "pareto at its margin": (1.9, 1.9, 0.9, 1.9),
        "share at its bound": (1.9, 1.9, 1.9, 1),
    }
    rows = (
        [name, f"{n:,}", *map(percent, gate_of_rules(n, draws, better))]
        for name, better in cases.items()
        for n in USERS
    )
    title = "Gate of four rules, %: at most 2.5 promised, for a candidate that is better nowhere also of rejections"
    table(title, ["candidate", "users", "promoted", "rejected"], rows)
    rows = (
        [rule, f"{share:.0%}", f"{n:,}", *map(percent, gate_at_its_edge(rule, n, share, draws))]
        for rule, shares in (("not_worse", (0.2, 0.95, 1.0)), ("not_less", (0.02, 0.25, 0.98)))
        for share in shares
        for n in USERS
    )
    title = "Gate of hits at a margin of 2 %, or at the bound, %: at most 2.5 of each promised"
    table(title, ["rule", "hits", "users", "promoted", "rejected"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1000)
    options = parser.parse_args()
    torch.set_num_threads(1)  # the tensors are small
    warnings.filterwarnings("ignore", category=UserWarning)
    start = time.perf_counter()
    print(f"{options.draws:,} draws; {machine()}")
    intervals(options.draws)
    decisions(options.draws)
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
