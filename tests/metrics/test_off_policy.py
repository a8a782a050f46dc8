"""Values of policies that were not run: by hand, simulated bandits, obp's numbers, and what is refused."""

from __future__ import annotations

import inspect
import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from fixtures import old_checkpoints
from fixtures.histories import fed
from fixtures.refusals import refused

from torch_recmetrics import OffPolicyValue, RecMetricCollection, SlateOffPolicyValue, Sliced, UserBootstrap
from torch_recmetrics.core.kernels.runtime import plain
from torch_recmetrics.state import reward_sums

ESTIMATORS: dict[str, dict[str, Any]] = {
    "ips": {},
    "snips": {},
    "dm": {},
    "dr": {},
    "sndr": {},
    "switch-dr": {"switch": 1.2},  # a part of the weights, which go up to 1.5, is beyond it
}


def log(n: int = 400, seed: int = 0) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    columns = {name: torch.rand(n, generator=g).double() for name in ("reward", "expected", "expected_policy")}
    logged = 0.1 + 0.9 * torch.rand(n, generator=g).double()
    policy = (logged * (0.5 + torch.rand(n, generator=g))).clamp(max=1)
    return {**columns, "logged": logged, "policy": policy}


def rows(given: dict[str, torch.Tensor], which: Any) -> dict[str, torch.Tensor]:
    return {name: column[which] for name, column in given.items()}


def made(estimator: str, **options: Any) -> OffPolicyValue:
    return OffPolicyValue(estimator=estimator, **ESTIMATORS[estimator], **options)


def waiting(metric: Any) -> int:
    """How many rows it keeps."""
    held = [metric.metric_state[name] for name in metric.metric_state if name.startswith(("terms", "numbers"))]
    return sum(len(piece) for pieces in held for piece in pieces)


def test_by_hand() -> None:
    given = {
        "reward": torch.tensor([1.0, 0.0, 1.0]),
        "logged": torch.tensor([0.5, 0.5, 0.25]),
        "policy": torch.tensor([0.25, 0.5, 0.5]),
        "expected": torch.tensor([0.5, 0.5, 0.5]),
        "expected_policy": torch.tensor([0.4, 0.2, 0.6], dtype=torch.float64),
    }  # w = 1/2, 1, 2
    expected = {
        "ips": (0.5 + 0 + 2) / 3,
        "snips": 2.5 / 3.5,
        "dm": 0.4,
        "dr": 0.4 + (0.25 - 0.5 + 1) / 3,
        "sndr": 0.4 + (0.25 - 0.5 + 1) / 3.5,
    }
    for estimator, value in expected.items():
        metric = made(estimator)
        metric.update(**given)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert float(metric.compute()) == pytest.approx(value, abs=1e-12)
    switch = OffPolicyValue(estimator="switch-dr", switch=1.0)
    switch.update(**given)
    assert float(switch.spread().value) == pytest.approx(0.4 + (0.25 - 0.5) / 3)
    clipped = OffPolicyValue(estimator="ips", max_weight=1.0)
    clipped.update(**given)
    assert float(clipped.spread().value) == pytest.approx((0.5 + 0 + 1) / 3)
    assert float(clipped.effective_sample_size()) == pytest.approx(2.5**2 / 2.25)


@pytest.mark.parametrize("discount", ["none", "log2"])
def test_effective_sample_size_of_slates_by_hand(discount: str) -> None:
    """The weight of a slate is the mean over its places, by what each counts."""
    metric = SlateOffPolicyValue(discount=discount)
    policy = torch.tensor([[0.5, 1.0, 0.25], [0.25, 0.75, 1.0]]).double()
    mask = torch.tensor([[True, True, True], [True, True, False]])
    metric.update(torch.ones(2, 3), torch.full((2, 3), 0.5), policy, mask=mask, weights=torch.tensor([1.0, 2.0]))
    counts = [1.0, 1.0, 1.0] if discount == "none" else [1.0, 1 / math.log2(3), 0.5]
    slates = [(1.0, [1.0, 2.0, 0.5]), (2.0, [0.5, 1.5])]  # its own weight, and those of its places
    w = [own * sum(c * x for c, x in zip(counts, of)) / sum(counts[: len(of)]) for own, of in slates]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        metric.compute()
    assert float(metric.effective_sample_size()) == pytest.approx(sum(w) ** 2 / sum(x * x for x in w), rel=1e-6)


def empty_slates(n: int) -> torch.Tensor:
    """(10, 3) places, n slates without any."""
    return torch.ones(10, 3, dtype=torch.bool).index_fill(0, torch.arange(n), False)


@pytest.mark.parametrize("assumption", ["independent", "cascade", "standard"])
@pytest.mark.parametrize("n", [3, 10])
def test_a_slate_without_a_place_weighs_1(n: int, assumption: Any) -> None:
    """The product over no places; its value is 0."""
    metric = SlateOffPolicyValue(assumption=assumption)
    for _ in range(100):
        metric.update(*torch.full((3, 10, 3), 0.5).unbind(0), mask=empty_slates(n))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that the policies are not over the same actions
        assert float(metric.compute()) == pytest.approx(1.5 * (10 - n) / 10)
    assert float(metric.effective_sample_size()) == pytest.approx(1000)


def test_slates_of_which_no_place_counts_weigh_1() -> None:
    """Where the discount is 0, and where there are no places at all."""
    first, none = SlateOffPolicyValue(discount=lambda places: places > 1), SlateOffPolicyValue()
    first.update(*torch.full((3, 200, 1), 0.5).unbind(0))
    none.update(*torch.ones(3, 200, 0).unbind(0))
    for metric in (first, none):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert (float(metric.compute()), float(metric.standard_error())) == (0, 0)
        assert float(metric.effective_sample_size()) == 200


@pytest.mark.parametrize("estimator", ["ips", "snips", "dr", "sndr"])
def test_the_same_policy_earned_the_mean_reward(estimator: str) -> None:
    given = log()
    given["policy"] = given["logged"].clone()
    given["expected_policy"] = given["expected"].clone()
    metric = made(estimator)
    metric.update(**given)
    assert float(metric.compute()) == pytest.approx(float(given["reward"].mean()), abs=1e-14)


@pytest.mark.parametrize("more", [(), ("indexes",), ("sample_ids",), ("indexes", "sample_ids")], ids=str)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_rows_in_any_order_and_split(estimator: str, more: tuple[str, ...]) -> None:
    given = log()
    given["weights"] = torch.linspace(0, 2, 400).double()
    given |= {"indexes": torch.arange(400) % 50} if "indexes" in more else {}
    given |= {"sample_ids": torch.arange(400)} if "sample_ids" in more else {}
    whole, split = made(estimator), made(estimator)
    whole.update(**given)
    order = torch.randperm(400, generator=torch.Generator().manual_seed(1))
    for some in torch.split(order, 37):
        split.update(**rows(given, some))
    if "sample_ids" in more:
        split.update(**rows(given, order[:20]))
    assert float(split.compute()) == pytest.approx(float(whole.compute()), abs=1e-12)
    assert float(split.standard_error()) == pytest.approx(float(whole.standard_error()), rel=1e-10)
    assert float(split.effective_sample_size()) == pytest.approx(float(whole.effective_sample_size()), rel=1e-12)


@pytest.mark.parametrize("options", [{}, {"max_weight": 1.1}], ids=str)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_rows_that_are_kept_apart_have_the_value_of_their_sums(estimator: str, options: dict[str, Any]) -> None:
    """Slices read the terms of each row, the metric alone adds them up as they come."""
    given, alone = log(), made(estimator, **options)
    given["weights"] = torch.linspace(0, 2, 400).double()
    sliced = Sliced(made(estimator, **options), slices=1)
    alone.update(**given)
    sliced.update(**given, slice_ids=torch.zeros(400, dtype=torch.int64))
    assert float(sliced.compute()["0"]) == pytest.approx(float(alone.compute()), abs=1e-13)
    assert float(sliced.standard_error()["0"]) == pytest.approx(float(alone.standard_error()), rel=1e-10)


def test_rows_of_one_user_count_together() -> None:
    """Every row four times, by one user: the error is that of the rows once."""
    given, metric, once = log(100), made("snips"), made("snips")
    once.update(**given)
    four = rows(given, torch.arange(100).repeat(4))
    metric.update(**four, indexes=torch.arange(100).repeat(4))
    assert float(metric.standard_error()) == pytest.approx(float(once.standard_error()), rel=1e-12)


def test_rows_stay_as_few_as_there_are_users(monkeypatch: pytest.MonkeyPatch) -> None:
    given, users, metric, whole = log(64), torch.arange(64) % 4, made("snips"), made("snips")
    whole.update(**given, indexes=users)
    monkeypatch.setattr(reward_sums, "KEPT_ROWS", 8)
    for part in torch.arange(64).split(4):
        named = part if 20 in part else None
        metric.update(**rows(given, part), indexes=users[part], sample_ids=named)
        assert sum(terms.shape[0] for terms in metric.state("terms")) < 20
    assert float(metric.compute()) == pytest.approx(float(whole.compute()), rel=1e-14)
    assert float(metric.standard_error()) == pytest.approx(float(whole.standard_error()), rel=1e-12)


def test_rows_wait_only_where_more_may_come_of_them() -> None:
    """Those of a user wait for more of hers, those with a sample id for the same row; in slices of resamples all do."""
    given, slices = log(8), torch.zeros(8, dtype=torch.int64)
    for more, wait in (({}, 0), ({"indexes": torch.arange(8)}, 8), ({"sample_ids": torch.arange(8)}, 8)):
        sliced, drawn = Sliced(made("snips"), slices=1), UserBootstrap(made("snips"), num_replicates=4)
        sliced.update(**given, **more, slice_ids=slices)
        drawn.update(**given, **more)
        assert waiting(sliced) == wait
        assert waiting(drawn) == (8 if "sample_ids" in more else 0)
    both = Sliced(UserBootstrap(made("snips"), num_replicates=4), slices=1)
    both.update(**given, slice_ids=slices)
    assert waiting(both) == 8


def test_errors_are_those_of_the_rows() -> None:
    given = log()
    w = given["policy"] / given["logged"]
    of_rows = {
        "ips": w * given["reward"],
        "dm": given["expected_policy"],
        "dr": given["expected_policy"] + w * (given["reward"] - given["expected"]),
    }
    for estimator, values in of_rows.items():
        metric = made(estimator)
        metric.update(**given)
        assert float(metric.standard_error()) == pytest.approx(float(values.std()) / 20, rel=1e-12)


COMMON = {"1 +- 1e-9": (1.0, 1e-9), "1e8 +- 1": (1e8, 1.0), "times": (1.7e9, 60.0), "-1e8 +- 1": (-1e8, 1.0)}


def with_common_part(which: str, n: int = 1000) -> dict[str, torch.Tensor]:
    """Rewards, and what a model expects, that have a large part in common; four rows of each user."""
    g = torch.Generator().manual_seed(0)
    centre, apart = COMMON[which]
    logged, weights = (torch.rand(n, generator=g, dtype=torch.float64) * 0.5 + 0.5 for _ in range(2))
    given = {"logged": logged, "weights": weights, "indexes": torch.arange(n) % (n // 4)}
    given["policy"] = (logged * (1 + 0.2 * torch.randn(n, generator=g, dtype=torch.float64))).clamp(0, 1)
    for name in ("reward", "expected_policy"):
        given[name] = centre + apart * torch.randn(n, generator=g, dtype=torch.float64)
    return given


def error_of_ratio(values: torch.Tensor, weights: torch.Tensor, users: torch.Tensor | None) -> float:
    """That of the mean of values; what they have in common is taken out before anything is added up."""
    mean = values[0] + ((values - values[0]) * weights).sum() / weights.sum()
    rests = weights * (values - mean)
    rests = rests if users is None else rests.new_zeros(int(users.max()) + 1).index_add_(0, users, rests)
    return float((rests.square().sum() * len(rests) / (len(rests) - 1)).sqrt() / weights.sum())


@pytest.mark.parametrize("more", [(), ("weights",), ("indexes",), ("weights", "indexes"), ("sample_ids",)], ids=str)
@pytest.mark.parametrize("which", COMMON)
@pytest.mark.parametrize("estimator", ["snips", "sndr", "dm", "ips"])
def test_errors_keep_their_digits_beside_a_large_common_part(estimator: str, which: str, more: tuple[str, ...]) -> None:
    """In one update, in many of one or more rows, in merged metrics and slices, by the loop and without it."""
    given = with_common_part(which)
    if estimator == "ips":  # a mean of what was shown
        given["policy"] = given["logged"]
    own = given["weights"] if "weights" in more else torch.ones_like(given["logged"])
    of_policy = own * given["policy"] / given["logged"]
    users = given["indexes"] if "indexes" in more else None
    values, weights = (given["expected_policy"], own) if estimator == "dm" else (given["reward"], of_policy)
    if estimator == "sndr":  # whose model adds nothing to the error
        given |= {"expected": torch.zeros_like(own), "expected_policy": torch.zeros_like(own)}
    elif estimator != "dm":
        del given["expected_policy"]
    given["sample_ids"] = torch.arange(1000)
    names = {"reward", "logged", "policy", "expected", "expected_policy", *more} & given.keys()
    given = {name: given[name] for name in names}
    expected = pytest.approx(error_of_ratio(values, weights, users), rel=1e-5)
    order = torch.randperm(1000, generator=torch.Generator().manual_seed(1))
    for way in (plain, pytest.MonkeyPatch.context):
        with way():
            whole, split, other, sliced = made(estimator), made(estimator), made(estimator), made(estimator)
            sliced = Sliced(sliced, slices=1)
            whole.update(**given)
            sliced.update(**given, slice_ids=torch.zeros(1000, dtype=torch.int64))
            for some in (*order[:20].split(1), *order[20:500].split(77)):
                split.update(**rows(given, some))
            for some in (*order[500:520].split(1), order[520:]):
                other.update(**rows(given, some))
            split.merge_state(other)
            assert float(whole.standard_error()) == expected
            assert float(split.standard_error()) == expected
            assert float(sliced.standard_error()["0"]) == expected


@pytest.mark.parametrize("way", [plain, pytest.MonkeyPatch.context])
def test_equal_rewards_have_no_error(way: Any) -> None:
    given = with_common_part("1 +- 1e-9")
    metric = made("snips")
    with way():
        for some in torch.arange(1000).split(90):
            part = rows(given, some)
            metric.update(torch.full_like(part["logged"], 5.0), part["logged"], part["policy"], weights=part["weights"])
    assert float(metric.standard_error()) < 1e-14


@pytest.mark.parametrize("how", ["alone", "sliced"])
@pytest.mark.parametrize("history", ["clicks", "weighted clicks", "clicks with sample ids"])
def test_errors_of_checkpoints_of_before(history: str, how: str) -> None:
    """Whose states lack the ratios of the columns."""
    metric = old_checkpoints.made("policy", how)
    expected = fed(old_checkpoints.made("policy", how), old_checkpoints.updates_of("policy", history, how))
    metric.load_state_dict(old_checkpoints.read()["policy", history, how][0])
    errors, others = metric.standard_error(), expected.standard_error()
    pairs = zip(errors.values(), others.values(), strict=True) if how == "sliced" else [(errors, others)]
    for error, other in pairs:
        assert float(error) == pytest.approx(float(other), rel=1e-10, nan_ok=True)


class Bandit:
    """Contexts, three actions, and two policies; the true value of one is known from a long run of it."""

    def __init__(self, seed: int = 0) -> None:
        self.g = np.random.default_rng(seed)
        self.logits, self.other, self.slope = (0.6 * self.g.normal(size=(2, 3)) for _ in range(3))

    def draw(self, n: int) -> dict[str, torch.Tensor]:
        x = self.g.normal(size=(n, 2))
        logged, policy = (np.exp(x @ w) / np.exp(x @ w).sum(1, keepdims=True) for w in (self.logits, self.other))
        means = 1 / (1 + np.exp(-x @ self.slope))
        action = (logged.cumsum(1) > self.g.random((n, 1))).argmax(1)
        at = np.arange(n), action
        model = 0.8 * means + 0.05  # wrong on purpose
        reward = (self.g.random(n) < means[at]).astype(float)
        self.truth = float((policy * means).sum(1).mean())
        columns = {"reward": reward, "logged": logged[at], "policy": policy[at], "expected": model[at]}
        self.full = policy, model, action
        columns["expected_policy"] = (policy * model).sum(1)
        return {name: torch.tensor(column) for name, column in columns.items()}


def test_a_simulated_bandit() -> None:
    """The mean over 1,000 logs is the true value, and intervals hold it as often as they say."""
    bandit, metrics = Bandit(), {estimator: made(estimator) for estimator in ("ips", "dr")}
    bandit.draw(1_000_000)
    truth, found = bandit.truth, []
    for _ in range(1000):
        log, of_log = bandit.draw(500), []
        for metric in metrics.values():
            metric.reset()
            metric.update(**log)
            spread = metric.spread()
            low, high = spread.interval(0.95, None, (None, None))
            of_log.append((float(spread.value), bool(low <= truth <= high)))
        found.append(of_log)
    for estimator, of_each in zip(metrics, zip(*found)):
        values, held = zip(*of_each)
        error = np.std(values) / np.sqrt(len(values))
        assert abs(np.mean(values) - truth) < 3 * error + 5e-4, estimator
        assert 0.93 <= np.mean(held) <= 0.97, estimator


def test_slates_by_hand() -> None:
    reward = torch.tensor([[1.0, 2.0, 4.0], [1.0, 1.0, 9.0]])
    logged = torch.full((2, 3), 0.5)
    policy = torch.tensor([[0.25, 0.5, 1.0], [0.5, 0.25, 0.3]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    expected = {
        "independent": (0.5 * 1 + 1 * 2 + 2 * 4 + 1 + 0.5) / 2,
        "cascade": (0.5 * 1 + 0.5 * 2 + 1 * 4 + 1 + 0.5) / 2,
        "standard": (1 * 7 + 0.5 * 2) / 2,
    }
    for assumption, value in expected.items():
        metric = SlateOffPolicyValue(assumption=assumption)
        metric.update(reward, logged, policy, mask=mask)
        assert float(metric.spread().value) == pytest.approx(value, abs=1e-12)
    metric = SlateOffPolicyValue(discount=lambda places: 1 / places)
    metric.update(reward, logged, policy, mask=mask)
    assert float(metric.spread().value) == pytest.approx((0.5 + 1 + 8 / 3 + 1 + 0.25) / 2)
    metric = SlateOffPolicyValue(discount=lambda places: places <= 1)  # no floats: the first place alone
    metric.update(reward, logged, policy, mask=mask)
    assert float(metric.spread().value) == pytest.approx((0.5 + 1) / 2)


def test_a_bound_is_that_of_the_product_of_a_slate() -> None:
    """Not of each place: 4 and 1/4 are 1 together, and so are a bound of 2 and 1/2."""
    logged = torch.tensor([[0.25, 0.8, 0.5]])
    policy = torch.tensor([[1.0, 0.2, 0.5]])  # w = 4, 1/4, 1
    expected = {"independent": 2 * 1 + 0.25 * 2 + 1 * 4, "cascade": 2 * 1 + 1 * 2 + 1 * 4, "standard": 1 + 2 + 4}
    for assumption, value in expected.items():
        metric = SlateOffPolicyValue(assumption=assumption, max_weight=2.0)
        metric.update(torch.tensor([[1.0, 2.0, 4.0]]), logged, policy)
        assert float(metric.spread().value) == pytest.approx(value), assumption


@pytest.mark.parametrize("assumption", ["cascade", "standard"])
def test_a_product_counts_where_a_part_of_it_is_too_large_or_too_small(assumption: Any) -> None:
    """1e400 is no number and 1e-400 is 0; bounded, or with the places beyond it, the product is one again."""
    logged, policy = torch.full((2, 4, 8), 1e-50, dtype=torch.float64).unbind(0)
    for row, of_row in enumerate(([1.0] * 7 + [0.0], [1.0] * 8, [1e-50] * 8, [1.0] * 4 + [1e-50] * 4)):
        policy[row] = torch.tensor(of_row, dtype=torch.float64)
    logged[3, 4:] = 1.0  # 1e50 four times, then as much less
    expected = {"cascade": [70.0, 80.0, 8.0, 71.0], "standard": [0.0, 80.0, 8.0, 8.0]}[assumption]
    for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
        metric = SlateOffPolicyValue(assumption=assumption, max_weight=10.0)
        metric.update(torch.ones(4, 8), logged[order], policy[order])
        assert float(metric.spread().value) == pytest.approx(sum(expected) / 4, rel=1e-12)
        assert float(metric.spread().error) == pytest.approx(float(torch.tensor(expected).std()) / 2, rel=1e-6)
    small = SlateOffPolicyValue(assumption="standard")
    small.update(torch.ones(1, 8), logged[3:].flip(1), policy[3:].flip(1))  # 1e-200 comes first
    assert float(small.spread().value) == pytest.approx(8, rel=1e-12)
    first = SlateOffPolicyValue(assumption="cascade", discount=lambda places: places <= 1)
    first.update(torch.ones(1, 8), logged[1:2], policy[1:2])
    assert float(first.spread().value) == pytest.approx(1e50, rel=1e-12)


def test_padding_is_not_read() -> None:
    broken = torch.tensor([[1.0, float("nan")]])
    metric = SlateOffPolicyValue(assumption="standard")
    probabilities = torch.tensor([[0.5, 0.0]])
    metric.update(broken, probabilities, probabilities, mask=torch.tensor([[True, False]]))
    assert float(metric.spread().value) == 1


def test_warnings_once() -> None:
    given = log(2000)
    metric = made("ips")
    metric.update(**given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metric.compute()
    far = made("ips")
    far.update(**{**given, "policy": given["policy"] / 2})
    with pytest.warns(UserWarning, match="not over the same actions"):
        far.compute()
    same = made("ips")
    same.update(**{**given, "policy": given["logged"]})  # all weights are 1: their mean is, and has no error
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same.compute()
    few = made("ips")
    few.update(**{**rows(given, slice(0, 50)), "policy": given["logged"][:50]})
    with pytest.warns(UserWarning, match="tell as much as 50 of the new policy"):
        few.compute()
    one = made("ips")
    logged = torch.full((2000,), 0.5)
    logged[0], policy = 0.001, torch.full((2000,), 0.5)
    policy[0] = 1.0
    one.update(given["reward"], logged, policy)
    with pytest.warns(UserWarning, match="carries 33% of the weight"):
        one.compute()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one.compute()


def test_a_log_without_what_is_seldom_shown_is_warned_of() -> None:
    """200 rows of one of two actions, which came with 0.99 each: the policies are over the same actions."""
    metric = made("ips")
    metric.update(torch.ones(200), torch.full((200,), 0.99), torch.full((200,), 0.5))
    with pytest.warns(UserWarning, match="mean 0.505, .* too few rows of what it shows seldom"):
        metric.compute()


def test_a_warning_says_what_has_not_been_done() -> None:
    given = log(50)
    for metric, says in (
        (made("ips"), 'log more or bound the weights with max_weight= or take estimator="dr"'),
        (made("ips", max_weight=2.0), 'log more or take estimator="dr"'),
        (made("dr"), "log more or bound the weights with max_weight="),
    ):
        metric.update(**given)
        with pytest.warns(UserWarning, match=f"few rows; {says}$"):
            metric.compute()


def test_few_users_do_not_tell_that_the_policies_differ() -> None:
    """Of one there is no standard error, and of two that agree it is 0."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*the value rests on few rows")
        for given, indexes in (
            (rows(log(), [0]), None),
            (rows(log(), [0, 0]), None),
            (log(200), torch.zeros(200).long()),
        ):
            metric = made("ips")
            metric.update(**given, indexes=indexes)
            metric.compute()
        slates = SlateOffPolicyValue()
        slates.update(*torch.full((3, 4, 2), 0.5).unbind(0), mask=torch.zeros(4, 2, dtype=torch.bool))
        slates.compute()
    many = made("ips")  # whose weights are all one half
    many.update(torch.ones(200), torch.ones(200), torch.full((200,), 0.5))
    with pytest.warns(UserWarning, match="not over the same actions"):
        many.compute()


@pytest.mark.parametrize(
    ("discount", "message"),
    [
        (lambda places: 1.0, r"`discount` must give a tensor of the shape of the places, \(3,\), got float"),
        (lambda places: places[:1], r"\(3,\), got shape \(1,\)"),
        (lambda places: 2 - places, "`discount` must be finite and not below 0, got -1.0 at place 3"),
        (lambda places: places / 0, "`discount` must be finite and not below 0, got inf at place 1"),
    ],
)
def test_discounts_that_are_refused(discount: Any, message: str) -> None:
    metric = SlateOffPolicyValue(discount=discount)
    with refused(metric, message):
        metric.update(*torch.full((3, 2, 3), 0.5).unbind(0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logged": 1e-71}, r"`logged` must be in \(0, 1\] and at least 1e-70.*got 1e-71 in row 2"),
        ({"logged": 0.0}, r"`logged` must be in \(0, 1\].*got 0.0 in row 2"),
        ({"logged": 1.0000001}, r"`logged` must be in \(0, 1\].*got 1.0000001 in row 2"),
        ({"logged": 1.5}, r"`logged` must be in \(0, 1\].*got 1.5 in row 2"),
        ({"policy": -0.5}, r"`policy` must be in \[0, 1\].*got -0.5 in row 2"),
        ({"policy": float("nan")}, r"`policy` must be in \[0, 1\].*got nan in row 2"),
        ({"reward": float("inf")}, "`reward` must be finite, got inf in row 2"),
        ({"expected": float("nan")}, "`expected` must be finite, got nan in row 2"),
        ({"weights": -1.0}, "`weights` must be >= 0 and finite, got -1.0 in row 2"),
    ],
)
def test_values_that_are_refused(change: dict[str, float], message: str) -> None:
    metric, given = made("dr"), log(5)
    given["weights"] = torch.ones(5, dtype=torch.float64)
    for name, value in change.items():
        given[name][2] = value
    with refused(metric, message):
        metric.update(**given)


@pytest.mark.parametrize(
    ("weights", "logged", "message"),
    [
        (1e78, 0.5, r"`\(weights \* policy / logged\) \*\* 2` must be at most 1e\+140, got 1e\+156 in row 2"),
        (1e10, 1e-70, r"`\(weights \* policy / logged\) \*\* 2` must be at most 1e\+140, got 2.5e\+159 in row 2"),
        (1e100, 1e-70, r"`weights \* policy / logged \* reward` must be at most 1e\+140, got 5e\+169 in row 2"),
    ],
)
@pytest.mark.parametrize("made_of", [OffPolicyValue, lambda: made("ips"), SlateOffPolicyValue])
def test_weights_of_which_no_error_comes_are_refused(weights: float, logged: float, message: str, made_of: Any) -> None:
    columns = torch.full((4, 5), 0.5, dtype=torch.float64)
    columns[0], columns[3] = 1.0, 1.0
    columns[1, 2], columns[3, 2] = logged, weights
    reward, chances, policy, given = columns.unbind(0)
    for more in ({}, {"indexes": torch.arange(5)}):
        metric = made_of()
        shown = [x.unsqueeze(1) if isinstance(metric, SlateOffPolicyValue) else x for x in (reward, chances, policy)]
        with refused(metric, message):
            metric.update(*shown, weights=given, **more)


def test_a_product_that_is_no_number_is_refused() -> None:
    metric = SlateOffPolicyValue(assumption="standard")
    logged = torch.full((3, 40), 0.5)
    logged[1] = 1e-10
    message = (
        r"`weights \* policy / logged \* reward` must be at most 1e\+140, got inf in row 1: .* or give `max_weight`"
    )
    with refused(metric, message):
        metric.update(torch.ones(3, 40), logged, torch.full((3, 40), 0.5))


def test_inputs_that_are_missing_or_do_not_fit() -> None:
    given = log(5)
    for estimator, name in (("dm", "expected_policy"), ("dr", "expected"), ("switch-dr", "expected_policy")):
        metric = made(estimator)
        with refused(metric, f'`{name}` is missing: estimator="{estimator}" needs it'):
            metric.update(**{**given, name: None})
    metric = made("ips")
    with refused(metric, r"`policy` must have the shape \(5,\) of `reward`, got \(3,\)"):
        metric.update(**{**given, "policy": given["policy"][:3]})
    for options, message in (
        ({"estimator": "switch-dr"}, "`switch` is missing"),
        ({"switch": 2.0}, "`switch` is for"),
        ({"max_weight": 0}, "`max_weight` must be a number above 0"),
        ({"estimator": "ipw"}, "`estimator` must be one of"),
    ):
        with pytest.raises(ValueError, match=message):
            OffPolicyValue(**options)


@pytest.mark.parametrize("more", ["", "indexes", "sample_ids"])
def test_slices_and_resamples(more: str) -> None:
    given, slices = log(600), torch.arange(600) % 4 - 1
    given |= {more: torch.arange(600) // (6 if more == "indexes" else 1)} if more else {}
    sliced, drawn = Sliced(made("sndr"), slices=3), UserBootstrap(made("sndr"), num_replicates=400)
    for some in torch.split(torch.arange(600), 90):
        sliced.update(**rows(given, some), slice_ids=slices[some])
        drawn.update(**rows(given, some))
    for number in range(3):
        alone = made("sndr")
        alone.update(**rows(given, slices == number))
        assert float(sliced.compute()[str(number)]) == pytest.approx(float(alone.spread().value), abs=1e-12)
        error = float(sliced.standard_error()[str(number)])
        assert error == pytest.approx(float(alone.standard_error()), rel=1e-10)
    whole = made("sndr")
    whole.update(**given)
    assert float(sliced.overall) == pytest.approx(float(whole.spread().value), abs=1e-12)
    results = drawn.compute()
    assert float(results["value"]) == pytest.approx(float(whole.spread().value), abs=1e-12)
    assert float(results["standard_error"]) == pytest.approx(float(whole.standard_error()), rel=0.2)


def test_slices_of_rows_with_and_without_users() -> None:
    """A row without a user is a unit of its own, whatever the users are called."""
    given, users = log(60), torch.arange(60) // 3
    sliced, alone = Sliced(made("snips"), slices=1), made("snips")
    for metric, more in ((sliced, {"slice_ids": torch.zeros(30, dtype=torch.int64)}), (alone, {})):
        metric.update(**rows(given, torch.arange(30)), **more, sample_ids=torch.arange(30))
        metric.update(**rows(given, torch.arange(30, 60)), **more, indexes=users[:30])
    assert float(sliced.standard_error()["0"]) == pytest.approx(float(alone.standard_error()), rel=1e-10)


def test_in_a_collection() -> None:
    given = log(500)
    metrics = RecMetricCollection({name: made(name) for name in ESTIMATORS}, prefix="val_")
    metrics.update(**given)
    assert list(metrics.compute()) == [f"val_{name}" for name in ESTIMATORS]
    assert set(metrics.confidence_intervals()) == set(metrics.compute())


def test_obp_has_the_same_numbers() -> None:
    obp = pytest.importorskip("obp.ope")
    bandit = Bandit(3)
    given = bandit.draw(300)
    policy, model, action = bandit.full
    common = {"reward": given["reward"].numpy(), "action": action, "pscore": given["logged"].numpy()}
    common |= {"action_dist": policy[:, :, None], "estimated_rewards_by_reg_model": model[:, :, None]}
    switch, bounds = obp.SwitchDoublyRobust, inspect.signature(obp.SwitchDoublyRobust).parameters
    theirs = {
        "ips": obp.InverseProbabilityWeighting(),
        "snips": obp.SelfNormalizedInverseProbabilityWeighting(),
        "dm": obp.DirectMethod(),
        "dr": obp.DoublyRobust(),
        "sndr": obp.SelfNormalizedDoublyRobust(),
        "switch-dr": switch(**{next(name for name in ("lambda_", "tau") if name in bounds): 2.0}),
    }
    for name, estimator in theirs.items():
        metric = made(name)
        metric.update(**given)
        value = estimator.estimate_policy_value(**common, position=np.zeros(300, dtype=int))
        assert float(metric.spread().value) == pytest.approx(value, abs=1e-12), name


def test_obp_has_the_same_numbers_of_slates() -> None:
    obp = pytest.importorskip("obp.ope")
    given = {name: column.view(-1, 4) for name, column in log(400, 5).items() if "expected" not in name}
    reward, logged, policy = (given[name] for name in ("reward", "logged", "policy"))
    common = {"slate_id": np.repeat(np.arange(100), 4), "reward": reward.flatten().numpy()}
    common["position"] = np.tile(np.arange(4), 100)

    def of_places(way: str, probabilities: torch.Tensor) -> np.ndarray:
        if way == "independent":
            return probabilities.flatten().numpy()
        whole = probabilities.prod(1, keepdim=True).expand(100, 4)
        return (probabilities.cumprod(1) if way == "cascade" else whole).flatten().numpy()

    for way, estimator, name in (
        ("independent", obp.SlateIndependentIPS(len_list=4), "pscore_item_position"),
        ("cascade", obp.SlateRewardInteractionIPS(len_list=4), "pscore_cascade"),
        ("standard", obp.SlateStandardIPS(len_list=4), "pscore"),
    ):
        metric = SlateOffPolicyValue(assumption=way)
        metric.update(reward, logged, policy)
        chances = {name: of_places(way, logged), f"evaluation_policy_{name}": of_places(way, policy)}
        value = estimator.estimate_policy_value(**common, **chances)
        assert float(metric.spread().value) == pytest.approx(value, abs=1e-12), way


def test_jurity_has_the_same_numbers() -> None:
    """Of a policy that always shows the same item to a user: its probability of what was logged is 0 or 1."""
    recommenders = pytest.importorskip("jurity.recommenders")
    pandas = pytest.importorskip("pandas")
    if int(pandas.__version__.split(".")[0]) > 2:
        pytest.skip("jurity fills missing values of a copy, which pandas 3 makes")
    g = np.random.default_rng(4)
    n, logged = 400, np.array([0.1, 0.2, 0.3, 0.4])
    shown, recommended = g.choice(4, n, p=logged), g.integers(4, size=n)
    reward, model = g.integers(2, size=n), g.random(n)
    log = {"user_id": range(n), "item_id": shown, "clicks": reward, "propensity": logged[shown]}
    lists = {"user_id": range(n), "item_id": recommended, "clicks": model}
    given = {"reward": reward, "logged": logged[shown], "policy": (shown == recommended).astype(float)}
    given |= {"expected": model, "expected_policy": model}
    for way, estimator in (("ips", "ips"), ("dr", "dr"), ("matching", "snips")):
        if way == "matching":  # every item as often
            given["logged"] = np.full(n, 0.25)
        ctr = recommenders.BinaryRecoMetrics.CTR("clicks", k=1, estimation=way)
        metric = made(estimator)
        metric.update(**{name: torch.as_tensor(column) for name, column in given.items()})
        value = ctr.get_score(pandas.DataFrame(log), pandas.DataFrame(lists))
        assert float(metric.spread().value) == pytest.approx(value, abs=1e-12), way
