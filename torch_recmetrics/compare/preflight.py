"""Checks that a harness measures what it says, before anybody believes its numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics import functional
from torch_recmetrics.compare.pairing import metric_names
from torch_recmetrics.core.layouts.lists import shown
from torch_recmetrics.core.layouts.relevance import columns_of
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.users.texts import Column

Evaluate = Callable[[Tensor, Tensor], Mapping[str, Any]]

FUNCTIONS = {
    "hit_rate": "hit_rate",
    "precision": "precision",
    "recall": "recall",
    "f1": "f1",
    "ndcg": "ndcg",
    "map": "average_precision",
    "mrr": "reciprocal_rank",
}
EXACT = 1e-4  # what a harness in float32 may be off by
STANDARD_ERRORS = 4.0  # what chance may be off by: at most about once in 5,000 checks, mostly far less
ENOUGH = 20  # values above the lowest, and below the highest
OWN_STREAM = 0x5EED_0000  # else a user who draws data with the same seed would have our lists in them
BLOCK = 2**22  # entries held at a time


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: what is checked.
        metric: the metric, or "" where there is none.
        value: what came out.
        expected: what it is held against, nan where nothing is.
        passed: None where something is only shown, or cannot be checked.
        sentence: what it says, and what to look at where it failed.
    """

    name: str
    metric: str
    value: float
    expected: float
    passed: bool | None
    sentence: str

    def __str__(self) -> str:
        mark = {True: "ok    ", False: "FAILED", None: "-     "}[self.passed]
        return f"{mark}  {self.name}{', ' if self.metric else ''}{self.metric}: {self.sentence}"


@dataclass(frozen=True)
class Preflight:
    """What :func:`preflight` found: ``checks``, and whether none has failed."""

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        return all(one.passed is not False for one in self.checks)

    def __getitem__(self, key: tuple[str, str]) -> Check:
        """The check of a name and a metric ("" for none)."""
        for one in self.checks:
            if (one.name, one.metric) == key:
                return one
        raise KeyError(f"no check {key!r}: there are {', '.join(f'{one.name} {one.metric}' for one in self.checks)}")

    def __str__(self) -> str:
        made = [one.passed for one in self.checks if one.passed is not None]
        rest = "; - is only shown, or could not be checked" if len(made) < len(self.checks) else ""
        return "\n".join([f"{made.count(False)} of {len(made)} checks failed{rest}", *map(str, self.checks)])


def preflight(
    recommendations: Tensor,
    truth: Tensor,
    *,
    metrics: Sequence[str] = ("recall", "ndcg"),
    top_k: int = 10,
    num_items: int | None = None,
    train: Tensor | None = None,
    item_counts: Tensor | None = None,
    candidates: Tensor | None = None,
    evaluate: Evaluate | None = None,
    seed: int = 0,
) -> Preflight:
    """Check an evaluation with lists whose value is known.

    - *truth*: the truth recommended to itself has 1, or the best that K allows.
    - *random lists* have the value that chance gives, which is known exactly: that of a model which gives all items
      one score.
    - *shuffled truth*: the value falls where each user is given the truth of another. Where it does not, the lists are
      the same for all users, or users and truth do not belong together.
    - *most popular* items: the baseline to beat, without the items of ``train``.
    - *training data*: no item of a user's truth stands in ``train``.
    - *candidates*: they hold the truth; otherwise recall cannot reach 1.

    Args:
        recommendations: (U, L) integer item ids, best first, -1 for none.
        truth: (U, R) integer ids of the relevant items of the same users, -1 for none.
        metrics: of ``"hit_rate"``, ``"precision"``, ``"recall"``, ``"f1"``, ``"ndcg"``, ``"map"``, ``"mrr"``.
        top_k: K.
        num_items: N, the size of the catalogue, ids 0 to N - 1; by default as large as the ids say.
        train: (U, T) integer ids that the users had before, -1 for none.
        item_counts: (N,) how often each item was taken in training; by default counted in ``train``.
        candidates: (C,) ids that may be recommended, or (U, C) for each user, -1 for none.
        evaluate: your evaluation: a function of lists and truth, as above, that returns name@K -> mean over users, such
            as ``{"recall@10": 0.3}``. By default that of this package.
        seed: of random lists and shuffles.

    Raises:
        TypeError, ValueError: for other shapes and dtypes, ids outside of the catalogue, an item twice in a row,
            no metric and unknown ones, and fewer than two users with a truth.

    >>> truth = torch.arange(100).unsqueeze(1)
    >>> lists = torch.stack([truth[:, 0], (truth[:, 0] + 1) % 100], 1)
    >>> report = preflight(lists, truth, metrics=("recall",), top_k=2)
    >>> report.passed
    True
    >>> print(report["random lists", "recall@2"].expected)  # 2 of 100 items
    0.02
    """
    top_k, num_items, seed = map(check.plain_number, (top_k, num_items, seed))
    check.check_positive("top_k", top_k)
    check.check_seed("seed", seed)
    if evaluate is not None and not callable(evaluate):
        raise TypeError(f"`evaluate` must be a function of lists and truth, or None, got {evaluate!r}")
    names = metric_names("metrics", metrics)
    if not names:
        raise ValueError("`metrics` must name one metric or more, got none")
    for name in names:
        check.check_choice("metrics", name, FUNCTIONS)
    lists, relevant = id_matrix("recommendations", recommendations), id_matrix("truth", truth)
    rows = len(relevant)
    known = None if train is None else id_matrix("train", train)
    for name, matrix in (("recommendations", lists), ("train", known)):
        if matrix is not None and len(matrix) != rows:
            raise ValueError(f"`{name}` must have a row for each of the {rows} users of `truth`, got {len(matrix)}")
    counts = None if item_counts is None else popularity_counts(item_counts)
    allowed = None if candidates is None else candidate_ids(candidates, rows)
    given = {"recommendations": lists, "truth": relevant, "train": known, "candidates": allowed}
    n_items = catalogue_size(given, counts, num_items)
    if int((relevant >= 0).any(1).sum()) < 2:
        raise ValueError("`truth` must have two users or more with a relevant item")

    generator = torch.Generator().manual_seed(OWN_STREAM + seed)
    own = {f"{name}@{top_k}": FUNCTIONS[name] for name in names}
    harness = Harness(own, top_k, n_items, lists, relevant, evaluate)
    if counts is None and known is not None:
        counts = torch.bincount(known[known >= 0], minlength=n_items)
    results = [
        *harness.truth_checks(),
        *harness.random_checks(generator),
        *harness.shuffle_checks(generator),
        *harness.popular_checks(counts, known),
        training_check(known, relevant),
        candidates_check(allowed, relevant, top_k),
    ]
    return Preflight(tuple(results))


class Harness:
    """What is checked, and the values of users by which chance is told from a fault."""

    def __init__(
        self,
        functions: dict[str, str],
        top_k: int,
        n_items: int,
        lists: Tensor,
        truth: Tensor,
        evaluate: Evaluate | None,
    ) -> None:
        self.functions, self.top_k, self.n_items, self.evaluate = functions, top_k, n_items, evaluate
        self.lists, self.truth, self.n_relevant = lists, truth, (truth >= 0).sum(1)
        self.found = self.means(lists, truth)

    def users(self, lists: Tensor, truth: Tensor) -> dict[str, Tensor]:
        """metric -> (U,) values by this package."""
        return {
            metric: getattr(functional, name)(item_ids=lists, target_ids=truth, top_k=self.top_k)
            for metric, name in self.functions.items()
        }

    def means(self, lists: Tensor, truth: Tensor) -> dict[str, float]:
        """metric -> the mean over users by the harness."""
        if self.evaluate is None:
            return {metric: float(values.nanmean()) for metric, values in self.users(lists, truth).items()}
        found = self.evaluate(lists.clone(), truth.clone())
        if missing := [metric for metric in self.functions if metric not in found]:
            raise ValueError(f"`evaluate` must return {', '.join(self.functions)}, got no {missing[0]}")
        return {metric: float(found[metric]) for metric in self.functions}

    def standard_errors(self, lists: Tensor, truth: Tensor) -> dict[str, float]:
        """metric -> the standard error of that mean."""
        errors = {}
        for metric, values in self.users(lists, truth).items():
            defined = values[~values.isnan()]
            errors[metric] = float(defined.std()) / math.sqrt(len(defined))
        return errors

    def truth_checks(self) -> Iterator[Check]:
        """The truth recommended to itself has the best value that K allows."""
        for metric, value in self.means(shown(self.truth, None), self.truth).items():
            of_users = best_values(metric.partition("@")[0], self.n_relevant, self.top_k)
            best = float(of_users[self.n_relevant > 0].mean())
            sentence = in_one_form("{}, the best that K allows is {}", value, best)
            yield Check("truth", metric, value, best, abs(value - best) <= EXACT, sentence)

    def random_checks(self, generator: torch.Generator) -> Iterator[Check]:
        """Random lists have the value of chance."""
        drawn = random_lists(len(self.truth), min(self.top_k, self.n_items), self.n_items, generator)
        values = self.users(drawn, self.truth)
        for metric, value in self.means(drawn, self.truth).items():
            chance = chance_value(self.functions[metric], self.n_relevant, self.n_items, self.top_k)
            defined = values[metric][~values[metric].isnan()]
            # Few hits, or few misses, say little about their spread; that of values in [0, 1] is at most that of 0 and
            # 1 with the same mean.
            others = (defined > defined.min()).sum(), (defined < defined.max()).sum()
            if min(map(int, others)) >= ENOUGH:
                # With fewer hits than are due they are also less spread.
                spread = float(defined.std()) * math.sqrt(max(1.0, chance / float(defined.mean())))
                passed = abs(value - chance) <= STANDARD_ERRORS * spread / math.sqrt(len(defined)) + EXACT
            else:
                spread = math.sqrt(chance * (1 - chance))
                passed = may_be_chance(value, chance, len(defined))
            error = spread / math.sqrt(len(defined))
            sentence = in_one_form("{}, chance is {} +- {}", value, chance, error)
            yield Check("random lists", metric, value, chance, passed, sentence)

    def shuffle_checks(self, generator: torch.Generator) -> Iterator[Check]:
        """The value falls where each user has the truth of another."""
        others = shuffled(self.truth, generator)
        errors = [self.standard_errors(self.lists, truth) for truth in (self.truth, others)]
        for metric, value in self.means(self.lists, others).items():
            passed = self.found[metric] - value > 2 * math.hypot(*(error[metric] for error in errors))
            sentence = in_one_form("{}, with the users' own truth {}", value, self.found[metric])
            sentence += "" if passed else ": the lists are not personal, or users and truth do not belong together"
            yield Check("shuffled truth", metric, value, self.found[metric], passed, sentence)

    def popular_checks(self, counts: Tensor | None, train: Tensor | None) -> Iterator[Check]:
        """What the most popular items are worth."""
        if counts is None:
            yield Check("most popular", "", math.nan, math.nan, None, "give `train` or `item_counts` to see it")
            return
        popular = popular_lists(counts, self.truth[:, :0] if train is None else train, self.top_k)
        for metric, value in self.means(popular, self.truth).items():
            sentence = in_one_form("{} is to be beaten, the recommendations have {}", value, self.found[metric])
            yield Check("most popular", metric, value, self.found[metric], None, sentence)


# -- input ------------------------------------------------------------------------------------------------------------


def id_matrix(name: str, value: Any) -> Tensor:
    """(U, n) int64 ids on the CPU, -1 for none."""
    tensor = check.plain_tensor(name, value)
    check.check_tensor(name, tensor, ndim=2)
    check.check_ids(name, tensor)
    ids: Tensor = tensor.detach().cpu().to(torch.int64)
    check.refuse(ids < -1, lambda _: f"`{name}` must hold ids >= 0, and -1 for none, got {int(ids.min())}")
    ordered = ids.sort().values
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    check.refuse(
        twice,
        lambda row: (
            f"`{name}` must not hold an id twice in one row, got {ordered[row, 1:][twice[row]][0]} twice in row {row}"
        ),
    )
    return ids


def candidate_ids(value: Any, rows: int) -> Tensor:
    """(U or 1, C) candidates."""
    tensor = check.plain_tensor("candidates", value)
    if isinstance(tensor, Tensor) and tensor.ndim == 1:
        tensor = tensor.unsqueeze(0)
    matrix = id_matrix("candidates", tensor)
    if len(matrix) not in (1, rows):
        raise ValueError(f"`candidates` must have one row, or one for each of the {rows} users, got {len(matrix)}")
    return matrix


def popularity_counts(value: Any) -> Tensor:
    counts = check.plain_tensor("item_counts", value)
    if not isinstance(counts, Tensor) or counts.ndim != 1 or bool((~(counts >= 0)).any()):
        raise ValueError("`item_counts` must have shape (N,), a number >= 0 for each item")
    return counts.detach().cpu()


def catalogue_size(given: Mapping[str, Tensor | None], counts: Tensor | None, num_items: int | None) -> int:
    """N; ValueError for ids beyond it."""
    if num_items is not None:
        check.check_positive("num_items", num_items)
    elif counts is not None:
        num_items = len(counts)
    largest = {name: int(ids.max()) for name, ids in given.items() if ids is not None and ids.numel()}
    if num_items is None:
        return 1 + max(largest.values(), default=-1)
    if counts is not None and len(counts) != num_items:
        raise ValueError(f"`item_counts` must have one entry for each of the {num_items} items, got {len(counts)}")
    if beyond := [name for name, item in largest.items() if item >= num_items]:
        raise ValueError(f"`{beyond[0]}` must hold ids below `num_items`, {num_items}, got {largest[beyond[0]]}")
    return num_items


# -- lists whose value is known ---------------------------------------------------------------------------------------


def best_values(metric: str, n_relevant: Tensor, top_k: int) -> Tensor:
    """(U,) the value of a list that begins with all relevant items."""
    relevant, hits = n_relevant.double(), n_relevant.clamp(max=top_k).double()
    best = {"recall": hits / relevant, "precision": hits / top_k, "f1": 2 * hits / (relevant + top_k)}
    return best.get(metric, torch.ones_like(relevant))


def chance_value(name: str, n_relevant: Tensor, n_items: int, top_k: int) -> float:
    """The mean over users of the value of items in an order by chance: that of items which all have the same score."""
    users = n_relevant[n_relevant > 0].bincount()
    sizes = users.nonzero()[:, 0]
    users = users[sizes]
    same = torch.zeros(1, 1).expand(1, n_items)
    values = [
        getattr(functional, name)(same, target_ids=torch.arange(size).unsqueeze(0), top_k=top_k, ties="average")
        for size in sizes.tolist()
    ]
    return float((torch.cat(values) * users).sum() / users.sum())


def may_be_chance(value: float, chance: float, n: int) -> bool:
    """Whether a mean of n values in [0, 1], most of which are the lowest or the highest, is within what chance gives.

    By the bound of H. Chernoff, 1952: n times the divergence from chance is at most as large as at so many standard
    errors of a normal mean. A single hit of a user, where a twentieth of one is due, is no fault.
    """
    off = abs(value - chance)
    if off <= EXACT:
        return True
    value -= math.copysign(EXACT, value - chance)
    parts = [(value, chance), (1 - value, 1 - chance)]
    if not 0 <= value <= 1 or any(share > 0 >= expected for share, expected in parts):  # nan too
        return False
    return n * sum(share * math.log(share / expected) for share, expected in parts if share) <= STANDARD_ERRORS**2 / 2


def random_lists(rows: int, width: int, n_items: int, generator: torch.Generator) -> Tensor:
    """(rows, width) different items, every list as likely."""
    if 2 * width > n_items:
        return torch.rand(rows, n_items, generator=generator).argsort()[:, :width]
    lists = torch.full((rows, width), -1)
    for place in range(width):
        left = torch.arange(rows)
        while len(left):  # half of them or fewer come again each time
            lists[left, place] = torch.randint(n_items, (len(left),), generator=generator)
            left = left[(lists[left, :place] == lists[left, place, None]).any(1)]
    return lists


def shuffled(truth: Tensor, generator: torch.Generator) -> Tensor:
    """Every user has the truth of another: one cycle through all users who have one."""
    users = (truth >= 0).any(1).nonzero()[:, 0]
    users = users[torch.randperm(len(users), generator=generator)]
    others = truth.clone()
    others[users] = truth[users.roll(1)]
    return others


def popular_lists(counts: Tensor, train: Tensor, top_k: int) -> Tensor:
    """(U, K) the most popular items that a user does not have yet; of equal ones those with the lowest ids."""
    most = counts.argsort(descending=True, stable=True)[: top_k + train.shape[1]]  # at most so many are passed over
    step = max(1, BLOCK // max(1, len(most) + train.shape[1]))
    lists = [shown(most.expand(len(had), -1), had)[:, :top_k] for had in torch.split(train, step)]
    return torch.cat(lists)


def in_one_form(sentence: str, *numbers: float) -> str:
    """A sentence with its numbers, all with as many places."""
    column = Column.of(numbers)
    return sentence.format(*map(column.text, numbers))


# -- data -------------------------------------------------------------------------------------------------------------


def training_check(train: Tensor | None, truth: Tensor) -> Check:
    name = "training data"
    if train is None:
        return Check(name, "", math.nan, 0.0, None, "give `train` to check that truth and training do not overlap")
    shared = int((columns_of(train, truth) >= 0).sum())
    sentence = f"{shared:,} of {int((truth >= 0).sum()):,} relevant items stand in the user's training data"
    return Check(name, "", float(shared), 0.0, shared == 0, sentence)


def candidates_check(candidates: Tensor | None, truth: Tensor, top_k: int) -> Check:
    name = "candidates"
    if candidates is None:
        return Check(name, "", math.nan, 1.0, None, "give `candidates` to check that they hold the truth")
    inside = (columns_of(candidates if len(candidates) > 1 else candidates[0], truth) >= 0).sum(1)
    n_relevant = (truth >= 0).sum(1)
    users = n_relevant > 0
    share = float(inside.sum() / n_relevant.sum())
    ceiling = float((inside.clamp(max=top_k)[users] / n_relevant[users].double()).mean())
    without = float((n_relevant.clamp(max=top_k)[users] / n_relevant[users].double()).mean())
    sentence = f"they hold {100 * share:.1f} % of the relevant items: recall@{top_k} is "
    sentence += in_one_form("at most {} ({} with all items)", ceiling, without)
    return Check(name, "", share, 1.0, bool((inside == n_relevant).all()), sentence)
