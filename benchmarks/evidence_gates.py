"""How often a gate decides wrongly, by simulation: of several rules, at the edge of one, of ratios of sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from benchmarks.evidence import MEANS, Draw, hits, ndcg, pareto, rare_hits, rare_ranks
from benchmarks.samples import USERS, columns_of, percent, show, table
from torch_recmetrics import Recall
from torch_recmetrics.compare import Gate, UserValues


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
        runs = [UserValues(ids, {**new, "share": share}), UserValues(ids, {**old, "share": old["hits"]})]
        outcomes.append(gate.decide(*runs).outcome)
    return outcomes.count("promoted") / draws, outcomes.count("rejected") / draws


EDGES: dict[str, Draw] = {
    "NDCG, 73 % have 0": ndcg,
    "hits of 20 %": hits,
    "hits of 2 %": rare_hits,
    "hits of 98 %": lambda rng, shape: 1 - rare_hits(rng, shape),
    "every user a hit": lambda rng, shape: np.ones(shape),
    "reciprocal ranks, 95 % have 0": rare_ranks,
    "Pareto": pareto,
}
BOUNDS = {EDGES[name]: mean for name, mean in (("hits of 98 %", 0.98), ("Pareto", 1 / 1.5))} | MEANS
RULES: dict[str, tuple[float | None, float]] = {  # margin, share of users with another value; 30: 30 % of them
    "not_less": (None, 0.0),
    "not_worse 2 %": (0.02, 0.0),
    "2 %, 30": (0.02, 0.3),
    "not_worse 10 %": (0.1, 0.0),
    "10 %, 30": (0.1, 0.3),
}


def gate_at_its_edge(
    draw: Draw, n: int, draws: int, *, margin: float | None = None, others: float = 0.0
) -> tuple[float, float]:
    """How often a gate of one rule promotes and rejects a candidate that is exactly at its edge.

    Args:
        draw: values of users.
        n: users.
        draws: of both runs.
        margin: of a `not_worse` rule, of which the candidate loses just as much: so many of the values. None: a
            `not_less` rule, whose bound is the mean of all users.
        others: the share of the users whose value in the candidate has nothing to do with that in the incumbent.
    """
    rng, ids, outcomes = np.random.default_rng([n, int(1000 * (margin or 0))]), torch.arange(n), []
    gate = Gate(not_less={"m": BOUNDS[draw]}) if margin is None else Gate(not_worse={"m": margin})
    for _ in range(draws):
        old = draw(rng, (n,))
        new = np.where(rng.random(n) < others, draw(rng, (n,)), old) * (rng.random(n) >= (margin or 0))
        outcomes.append(gate.decide(*(UserValues(ids, {"m": values}) for values in (new, old))).outcome)
    return outcomes.count("promoted") / draws, outcomes.count("rejected") / draws


def edge_text(draw: Draw, n: int, draws: int, margin: float | None, others: float) -> str:
    if margin is None and draw not in BOUNDS:
        return "-"
    return " ".join(map(percent, gate_at_its_edge(draw, n, draws, margin=margin, others=others)))


def gate_of_ratios(n: int, draws: int, *, margin: float, same_users: bool) -> tuple[float, float]:
    """How often a gate promotes and rejects by the pooled recall of n users, who have 1 to 20 relevant items.

    The candidate finds less by the `margin`, which it may lose; with one of 0 both find as much, and it must be better.
    """
    rng, ids, outcomes = np.random.default_rng([n, int(1000 * margin), same_users]), torch.arange(n), []
    gate = Gate(not_worse={"recall": margin}) if margin else Gate(better="recall")
    places, metric = np.arange(20), Recall(5, pooled=True)

    def run(size: np.ndarray, taste: np.ndarray, kept: float) -> UserValues:
        found = (places[:5] < size) & (rng.random((n, 5)) < taste * kept)
        metric.reset()
        metric.update(
            item_ids=torch.from_numpy(np.where(found, places[:5], 100 + places[:5])),
            target_ids=torch.from_numpy(np.where(places < size, places, -1)),
        )
        pair = (float(metric.compute()), float(metric.standard_error()))
        return UserValues(ids, {}, summaries={"recall": pair})

    for _ in range(draws):
        size, taste = np.minimum(np.floor(rng.random((n, 1)) ** -0.7), 20), rng.random((n, 1))
        new = run(size, taste, 1 - margin)
        if not same_users:
            size, taste = np.minimum(np.floor(rng.random((n, 1)) ** -0.7), 20), rng.random((n, 1))
        outcomes.append(gate.decide(new, run(size, taste, 1.0)).outcome)
    return outcomes.count("promoted") / draws, outcomes.count("rejected") / draws


EQUALS: dict[str, tuple[float, float]] = {  # share of users who lose, largest weight beside a smallest of 1
    "1 % lose, all others gain": (0.01, 1),
    "5 % lose, all others gain": (0.05, 1),
    "weights 1 to 10": (0, 10),
    "weights 1 to 100": (0, 100),
}


def gate_of_equals(n: int, draws: int, *, losing: float = 0, most: float = 1) -> tuple[float, float]:
    """How often a gate of `better` promotes and rejects a candidate whose mean is that of the incumbent.

    Args:
        n: users.
        draws: of both runs.
        losing: the share of users who lose 0.8 each, while all others gain a little; 0: the two values of a user have
            nothing to do with each other.
        most: weights lie between 1 and this.
    """
    rng, ids, outcomes = np.random.default_rng([n, int(1000 * losing), int(most)]), torch.arange(n), []
    gate, gain = Gate(better="m"), 0.8 * losing / (1 - losing)
    for _ in range(draws):
        lost, weights = rng.random(n) < losing, torch.from_numpy(most ** rng.random(n))
        old = np.where(lost, 0.8, rng.random(n) * (1 - gain)) if losing else rng.random(n)
        new = np.where(lost, 0, old + gain) if losing else rng.random(n)
        runs = (UserValues(ids, {"m": values}, weights=weights) for values in (new, old))
        outcomes.append(gate.decide(*runs).outcome)
    return outcomes.count("promoted") / draws, outcomes.count("rejected") / draws


def tables(draws: int) -> None:
    candidates = {
        "none better": (1, 1, 1, 1),
        "hits alike, all else better": (1, 1.9, 1.9, 1.9),
        "ndcg at its margin": (1.9, 0.9, 1.9, 1.9),
        "pareto at its margin": (1.9, 1.9, 0.9, 1.9),
        "share at its bound": (1.9, 1.9, 1.9, 1),
    }
    rows = (
        [name, f"{n:,}", *map(percent, gate_of_rules(n, draws, better))]
        for name, better in candidates.items()
        for n in USERS
    )
    title = "Gate of four rules, %: at most 2.5 promised, for a candidate that is better nowhere also of rejections"
    table(title, ["candidate", "users", "promoted", "rejected"], rows)
    rows = (
        [name, f"{n:,}", *(edge_text(draw, n, draws, margin, others) for margin, others in RULES.values())]
        for name, draw in EDGES.items()
        for n in USERS
    )
    title = "Gate of one rule at its margin or bound, promoted and rejected, %: at most 2.5 of each promised"
    table(title, ["values", "users", *RULES], rows)
    rows = (
        [label, f"{margin:.0%}", f"{n:,}", *map(percent, gate_of_ratios(n, draws, margin=margin, same_users=same))]
        for label, same in (("the same", True), ("others", False))
        for margin in (0.0, 0.1)
        for n in USERS
    )
    title = "Gate of a pooled recall at its margin (0 %: of an equal candidate), %: at most 2.5 of each promised"
    table(title, ["users of the incumbent", "margin", "users", "promoted", "rejected"], rows)
    rows = (
        [name, f"{n:,}", *map(percent, gate_of_equals(n, draws, losing=losing, most=most))]
        for name, (losing, most) in EQUALS.items()
        for n in USERS
    )
    title = "Gate of `better`, a candidate with the mean of the incumbent, %: at most 2.5 of each promised"
    table(title, ["users' differences", "users", "promoted", "rejected"], rows)


if __name__ == "__main__":
    show(__doc__, tables)
