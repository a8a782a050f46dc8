r"""What another policy would have earned, from the log of the one that ran.

Notation: the logging policy showed what stands in row i with the probability :math:`p_i`, the new policy would show it
with :math:`\pi_i`. The reward of the row is :math:`r_i`, its weight :math:`v_i`, and :math:`w_i = \pi_i / p_i`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from torch_recmetrics.core.layouts.logged_rows import LoggedRows, read_logged
from torch_recmetrics.core.ranking.ties import DISCOUNTS, rank_counts
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.core.tensors.scatter import EXPECTED, REWARD, ROWS, WEIGHT
from torch_recmetrics.state.options import option
from torch_recmetrics.state.reward_sums import RewardSums

__all__ = ["OffPolicyValue", "SlateOffPolicyValue"]

# What each estimator reads beside the rewards and the two probabilities.
READS = {
    "ips": (),
    "snips": (),
    "dm": ("expected_policy",),
    "dr": ("expected", "expected_policy"),
    "sndr": ("expected", "expected_policy"),
    "switch-dr": ("expected", "expected_policy"),
}


def terms(
    metric: RewardSums, rows: LoggedRows, ratio: Tensor, expected: Tensor | float, reward: Tensor
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """(M, 5) columns of the sums, and the users and sample ids of the rows, checked.

    Args:
        metric: that adds them up.
        rows: whose weights v multiply all columns.
        ratio: (M,) w.
        expected: (M,) what the model expects of the new policy.
        reward: (M,) w times the reward.
    """
    own = rows.weights
    weighed = own * ratio
    columns = torch.stack([own, own * expected, own * reward, weighed, weighed.square()]).T
    if metric.validate_args:
        rows.check_values(columns)
    return columns, rows.indexes, rows.sample_ids


def logged_rows(metric: RewardSums, given: dict[str, Any], needed: Sequence[str], why: str, ndim: int) -> LoggedRows:
    """The rows of an update, whose values are yet to be checked; `why` says why an argument is `needed`."""
    for name in needed:
        if given.get(name) is None:
            raise ValueError(f"`{name}` is missing: {why}")
    metric.check_device("reward", given["reward"])
    return read_logged(given, ndim=ndim)


class OffPolicyValue(RewardSums):
    r"""The mean reward that another policy would have had, from the log of the one that ran.

    .. math:: \text{ips} = \frac{\sum_i v_i w_i r_i}{\sum_i v_i}, \quad
        \text{snips} = \frac{\sum_i v_i w_i r_i}{\sum_i v_i w_i}, \quad
        \text{dr} = \frac{\sum_i v_i (\bar q_i + w_i (r_i - q_i))}{\sum_i v_i}

    A row counts as often as the new policy would have shown it. :math:`q_i` is the reward that a model expects of what
    was shown (``expected``), :math:`\bar q_i` the one that it expects of the new policy in the same place
    (``expected_policy``): ``"dm"`` is the mean of the latter alone; ``"sndr"`` divides the correction by
    :math:`\sum v w`; ``"switch-dr"`` corrects where :math:`w \le` ``switch`` only. ``"ips"`` and ``"dr"`` are right on
    average, where all that the new policy shows was logged with its true probability; the others trade bias for spread.
    With ``indexes`` the rows of one user count together in the error.

    Undefined: nan without rows, and for ``"snips"`` and ``"sndr"`` where the new policy shows nothing that was logged.
    Range: that of the rewards for ``"snips"``, any number for the others; higher is better.
    Source: A. Swaminathan and T. Joachims, The self-normalized estimator for counterfactual learning, NeurIPS 2015;
    M. Dudík, J. Langford and L. Li, Doubly robust policy evaluation and learning, ICML 2011; Y. Wang, A. Agarwal and
    M. Dudík, Optimal and adaptive off-policy evaluation in contextual bandits, ICML 2017. Same convention as obp's
    estimators.

    Raises:
        TypeError, ValueError: for options that do not go together, and in ``update`` for probabilities outside of
            [0, 1], a logged one below 1e-70, numbers that are not finite or too large for an error, other lengths, and
            inputs that the estimator needs.

    >>> metric = OffPolicyValue(estimator="snips")
    >>> metric.update(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.75]))
    >>> metric.compute()  # (0.5 * 1 + 1.5 * 0) / (0.5 + 1.5)
    tensor(0.2500, dtype=torch.float64)
    """

    stem = "off_policy_value"

    estimator: Literal["snips", "ips", "dm", "dr", "sndr", "switch-dr"] = option(
        default="snips", doc="How rewards and weights become a value."
    )
    switch: float | None = option(
        default=None,
        config="changed",
        check=check.number_check("a finite number above 0", above=0, below=math.inf, optional=True),
        doc='The largest weight that ``"switch-dr"`` corrects with, a number above 0.',
    )

    def setup(self) -> None:
        if self.switch is None and self.estimator == "switch-dr":
            raise ValueError(
                '`switch` is missing: estimator="switch-dr" needs the largest weight that it corrects with'
            )
        if self.switch is not None and self.estimator != "switch-dr":
            raise ValueError(f'`switch` is for estimator="switch-dr" alone, got estimator={self.estimator!r}')
        self.reads_weights = self.estimator != "dm"
        super().setup()

    def update(  # type: ignore[override]
        self,
        reward: Tensor,
        logged: Tensor,
        policy: Tensor,
        *,
        expected: Tensor | None = None,
        expected_policy: Tensor | None = None,
        indexes: Tensor | None = None,
        weights: Tensor | None = None,
        sample_ids: Tensor | None = None,
    ) -> None:
        """Add rows.

        Args:
            reward: (M,) what came of what was shown, finite.
            logged: (M,) the probability with which it was shown, 1e-70 to 1.
            policy: (M,) the probability with which the new policy shows it, in [0, 1].
            expected: (M,) the reward that a model expects of it; for ``"dr"``, ``"sndr"`` and ``"switch-dr"``.
            expected_policy: (M,) the reward that it expects of the new policy; for these and ``"dm"``.
            indexes: (M,) integer, the user of each row.
            weights: (M,) weight v of each row, 0 or 1e-100 to 1e100; v w may be 1e70 at most.
            sample_ids: (M,) integer, the row of the data set; it counts once however often it arrives.

        Raises:
            ValueError, TypeError: for input that breaks a rule, before anything is counted.
        """
        self.add_rows(
            reward=reward,
            logged=logged,
            policy=policy,
            expected=expected,
            expected_policy=expected_policy,
            indexes=indexes,
            weights=weights,
            sample_ids=sample_ids,
        )

    def rows_of(self, given: dict[str, Any]) -> LoggedRows:
        """The rows of an update, whose values are yet to be checked."""
        why = f'estimator="{self.estimator}" needs it for each row'
        return logged_rows(self, given, (*self.needed, *READS[self.estimator]), why, ndim=1)

    def with_rows(self, given: dict[str, Any]) -> tuple[Tensor, Tensor]:
        added = self.rows_of(given).add_to(
            self.state("scatter"),
            self.state("largest"),
            READS[self.estimator],
            self.max_weight,
            self.switch,
            validate_args=self.validate_args,
        )
        return super().with_rows(given) if added is None else added

    def terms_of(self, given: dict[str, Any]) -> tuple[Tensor, Tensor | None, Tensor | None]:
        rows = self.rows_of(given)
        column = rows.columns
        weight = column["policy"] / column["logged"]
        used = weight if self.max_weight is None else weight.clamp(max=self.max_weight)
        read = READS[self.estimator]
        expected = column["expected_policy"] if "expected_policy" in read else 0.0
        reward = column["reward"] - column["expected"] if "expected" in read else column["reward"]
        if self.switch is not None:
            reward = torch.where(weight <= self.switch, reward, 0)
        return terms(self, rows, used, expected, used * reward)

    def parts(self) -> list[tuple[list[int], int]]:
        return {
            "ips": [([REWARD], ROWS)],
            "snips": [([REWARD], WEIGHT)],
            "dm": [([EXPECTED], ROWS)],
            "dr": [([EXPECTED, REWARD], ROWS)],
            "sndr": [([EXPECTED], ROWS), ([REWARD], WEIGHT)],
            "switch-dr": [([EXPECTED, REWARD], ROWS)],
        }[self.estimator]


def check_places(name: str, discount: Any) -> None:
    """Refuse what is neither a word nor a function."""
    if isinstance(discount, str):
        check.check_choice(name, discount, ("none", "log2"))
    elif not callable(discount):
        raise TypeError(f'`{name}` must be "none", "log2" or a function of places, got {discount!r}')


class SlateOffPolicyValue(RewardSums):
    r"""The mean reward of slates that another policy would have shown, from the log of the one that ran.

    .. math:: \frac{\sum_i v_i \sum_k d_k W_{ik} r_{ik}}{\sum_i v_i}, \qquad
        W_{ik} = w_{ik}, \quad \prod_{j \le k} w_{ij} \quad \text{or} \quad \prod_j w_{ij}

    A slate has rewards at K places; d is the ``discount`` of a place. W, the weight of a place, follows from what its
    reward may depend on: this place alone (``"independent"``), it and those above (``"cascade"``), or the whole slate
    (``"standard"``). The more it may depend on, the less bias and the more spread. A slate of which no place counts has
    the value 0 and the weight 1.

    Undefined: nan without rows.  Range: any number; higher is better.
    Source: J. McInerney et al., Counterfactual evaluation of slate recommendations with sequential reward interactions,
    KDD 2020, whose ``"cascade"`` is RIPS; S. Li et al., Offline evaluation of ranking policies with click models,
    KDD 2018, for ``"independent"``. Same convention as obp's slate estimators.

    Raises:
        TypeError, ValueError: for a discount that is none, and in ``update`` as :class:`OffPolicyValue`.

    >>> metric = SlateOffPolicyValue(assumption="cascade")
    >>> half = torch.full((1, 2), 0.5)
    >>> metric.update(torch.tensor([[1.0, 1.0]]), half, torch.tensor([[0.25, 0.5]]))
    >>> metric.compute()  # 0.5 * 1 + 0.5 * 1 * 1
    tensor(1., dtype=torch.float64)
    """

    stem = "slate_off_policy_value"

    assumption: Literal["independent", "cascade", "standard"] = option(
        default="independent", doc="What the reward at a place depends on: the place, those up to it, or all."
    )
    discount: Literal["none", "log2"] | Callable[[Tensor], Tensor] = option(
        default="none",
        check=check_places,
        doc="What a place k counts: 1, :math:`1 / \\log_2(k + 1)`, or a function of a tensor of places 1, 2, ....",
    )

    def update(  # type: ignore[override]
        self,
        reward: Tensor,
        logged: Tensor,
        policy: Tensor,
        *,
        mask: Tensor | None = None,
        indexes: Tensor | None = None,
        weights: Tensor | None = None,
        sample_ids: Tensor | None = None,
    ) -> None:
        """Add slates.

        Args:
            reward: (B, K) what came of each place, finite.
            logged: (B, K) the probability with which the place was filled so, given those above, 1e-70 to 1.
            policy: (B, K) that of the new policy, in [0, 1].
            mask: (B, K) bool, True = a place of the slate, False = padding, which is not read.
            indexes: (B,) integer, the user of each slate.
            weights: (B,) weight v of each slate, 0 or 1e-100 to 1e100; v times its mean W may be 1e70 at most.
            sample_ids: (B,) integer, the row of the data set; it counts once however often it arrives.

        Raises:
            ValueError, TypeError: for input that breaks a rule, before anything is counted.
        """
        self.add_rows(
            reward=reward,
            logged=logged,
            policy=policy,
            mask=mask,
            indexes=indexes,
            weights=weights,
            sample_ids=sample_ids,
        )

    def terms_of(self, given: dict[str, Any]) -> tuple[Tensor, Tensor | None, Tensor | None]:
        rows = logged_rows(self, given, self.needed, "each place of a slate has one", ndim=2)
        column = rows.columns
        weight = column["policy"] / column["logged"]
        # Products as sums of logarithms, of which no part overflows that the rest takes back.
        if self.assumption == "cascade":
            weight = weight.log().cumsum(1).exp()
        elif self.assumption == "standard":
            weight = weight.log().sum(1, keepdim=True).exp().expand_as(weight)
        weight = weight.clamp(max=self.max_weight or torch.finfo(weight.dtype).max)
        counts = self.counts_of(weight).expand_as(weight)
        if rows.shown is not None:
            counts = counts * rows.shown
        total = counts.sum(1)
        mean = torch.where(total > 0, (counts * weight).sum(1) / total, 1)  # the product over no places
        value = (counts * weight * column["reward"]).sum(1)
        return terms(self, rows, mean, 0.0, value)

    def counts_of(self, weight: Tensor) -> Tensor:
        """(K,): what each place counts."""
        discount = DISCOUNTS[self.discount] if isinstance(self.discount, str) else self.discount
        counts: Any = rank_counts(weight.shape[1], discount, weight.device)
        if not isinstance(counts, Tensor) or counts.shape != weight.shape[1:]:
            got = f"shape {tuple(counts.shape)}" if isinstance(counts, Tensor) else type(counts).__name__
            raise ValueError(
                f"`discount` must give a tensor of the shape of the places, {tuple(weight.shape[1:])}, got {got}"
            )
        if self.validate_args:
            rule = "`discount` must be finite and not below 0"
            broken = ~counts.isfinite() | (counts < 0)
            check.refuse(broken, lambda place: f"{rule}, got {counts[place].item()!r} at place {place + 1}")
        return exact(counts)

    def parts(self) -> list[tuple[list[int], int]]:
        return [([REWARD], ROWS)]
