"""What every metric that reads the one ranking of an update has: a cutoff, what it reads, and the arguments."""

from __future__ import annotations

import functools
import inspect
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from torch import Tensor

from torch_recmetrics.core.layouts.arguments import read_layout
from torch_recmetrics.core.ranking.ranking import Cutoffs, Ranking, RankingStats
from torch_recmetrics.core.ranking.requirements import RankingRequirements
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.state.metric import RecMetric
from torch_recmetrics.state.options import option

PooledBy = Literal["relevant", "possible"] | None
HIDDEN = 0  # among the numbers of candidates: `seen_ids` or a `mask` hid items


def span(numbers: Collection[int]) -> str:
    """The number, or the least and the most of some."""
    least, most = min(numbers), max(numbers)
    return f"{least}" if least == most else f"{least} to {most}"


class RankingMetric(RecMetric):
    """A metric of ranked lists. Its attributes say what the ranking must hold, and how it is evaluated."""

    needs_target: bool = True  # False: it does not ask what is relevant, so no target needs to be given
    reads_lists: ClassVar[bool] = False  # True: it looks at all items of the list, not at the relevant ones alone
    reads_items: ClassVar[bool] = False  # True: it looks at their ids
    reads_first_alone: ClassVar[bool] = False  # True: of the relevant items it asks for the place of the first
    reads_places: ClassVar[bool] = False  # True: it asks for the place of items that are not in a list; has `num_items`
    reads_lengths: ClassVar[Mapping[str, Any]] = MappingProxyType({})  # options with which it asks how long a list is
    extra_rules: ClassVar[tuple[str, ...]] = ()  # tie rules that it reads beside its own
    keep_users: bool = False
    plot_lower_bound = 0.0
    plot_upper_bound: float | None = 1.0

    nan_action: Literal["error", "worst"] = option(
        default="error", config="changed", doc="NaN scores: refused, or not recommended."
    )
    ignore_index: int | None = option(
        default=None,
        config="changed",
        check=check.check_ignore_index,
        doc="A label: rows and items that have it as ``target`` are left out altogether; among ids it is padding.",
    )
    min_relevance: float | None = option(
        default=None,
        config="changed",
        check=check.check_min_relevance,
        doc="Relevance below it is 0, such as 4 where ratings of 4 and 5 are relevant; None for whatever is above 0.",
    )

    @property
    def rules(self) -> tuple[str, ...]:
        """The tie rules that it reads."""
        return ("stable", *self.extra_rules)

    @property
    def n_items(self) -> int | None:
        """Items that it knows, so that larger ids are refused; None where it need not know them."""
        return None

    @property
    @abstractmethod
    def evaluator(self) -> Any:
        """What ranks, checks, evaluates and counts an update of this metric alone; made once."""

    def requirements(self) -> RankingRequirements:
        """What a ranking must hold for it."""
        read = ("top_k", "nan_action", "num_items", *self.reads_lengths)
        return requirements_of(type(self), {name: getattr(self, name, None) for name in read}, self.rules)

    def note_candidates(self, n_candidates: int) -> None:
        """Remember for :meth:`definition` what users were ranked among.

        Args:
            n_candidates: C > 0 for so many candidates in place of all items; HIDDEN where items were hidden; -N for N
                columns that nobody knows to be the catalogue, which is asked only where values of users are kept.
        """
        asked = n_candidates >= 0 or self.keep_users
        if asked and n_candidates not in self.candidates_seen and n_candidates != self.n_items:
            self.__dict__["candidates_seen"] = self.candidates_seen | {n_candidates}

    def definition(self) -> str:
        """One line that says exactly what is computed, with what the updates brought: ``candidates="sampled(100)"``,
        and ``hidden=True`` after `seen_ids` or a `mask`."""
        text, sampled = super().definition(), [number for number in self.candidates_seen if number > 0]
        text = f'{text[:-1]}, candidates="sampled({span(sampled)})")' if sampled else text
        return f"{text[:-1]}, hidden=True)" if HIDDEN in self.candidates_seen else text

    def defer_rules(self, ranking: Ranking, checks: check.ValueChecks) -> None:
        """Refuse items and users that it cannot count, in the update that brings them."""

    def defer_unknown_items(self, ranking: Ranking, checks: check.ValueChecks) -> None:
        """Refuse recommended ids that it knows nothing of, where it knows some."""
        known = self.n_items
        if known is None or ranking.item_ids is None:
            return
        item_ids = ranking.stats("stable").items((self.top_k,))
        unknown = item_ids >= known
        checks.defer(
            unknown,
            lambda row: (
                f"{self.name} knows {known} items, so ids must be below {known}, "
                f"got {int(item_ids[row][unknown[row]][0])} in row {row}"
            ),
        )

    @property
    def name(self) -> str:
        return self.stem if self.top_k is None else f"{self.stem}@{self.top_k}"

    def family(self) -> dict[str, Any]:
        """The options without the cutoff: metrics that agree in these are evaluated together."""
        return {name: value for name, value in self.config().items() if name != "top_k"}

    def update(
        self,
        preds: Tensor | Ranking | None = None,
        target: Tensor | None = None,
        indexes: Tensor | None = None,
        *,
        item_ids: Tensor | None = None,
        target_ids: Tensor | None = None,
        target_relevance: Tensor | None = None,
        seen_ids: Tensor | None = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        sample_ids: Tensor | None = None,
        user_embeddings: Tensor | None = None,
        item_embeddings: Tensor | None = None,
        item_bias: Tensor | None = None,
    ) -> None:
        """Add users.

        Args:
            preds: (B, N) float scores, higher is better, ``-inf`` = must not be recommended; (M,) with ``indexes``;
                (B, T, N) for sequences; or a :class:`~torch_recmetrics.Ranking`, and then nothing else.
            target: relevance >= 0 of every score, bool, integer or float, in the shape of ``preds``. A metric of the
                recommended items alone needs no target.
            indexes: (M,) integer, the user of each row; refused by metrics that look at item ids.
            item_ids: (B, L) integer, recommended ids, best first, padded with -1; in place of ``preds``. Or, beside
                ``preds`` (B, C), the candidates that were scored: (B, C) ids padded with -1, or (C,) for all users;
                beside embeddings (C,), the items that may be recommended.
            target_ids: (B, T) integer, relevant item ids (columns of ``preds`` where it has no ``item_ids``), padded
                with -1; in place of ``target``. (B,) for one item each; a jagged nested tensor, as ``seen_ids`` and
                ``item_ids`` may be. Of sequences (B, T), or (B, T, R): every step that has a target is a row.
            target_relevance: (B, T) relevance of ``target_ids``; 1 where it is not given.
            seen_ids: (B, S) integer, what must not be recommended, padded with -1; an id may repeat. (B, T, S) where
                the steps of a sequence differ.
            mask: in the shape of ``preds``, bool, True = may be recommended; (N,) or (B, N) with embeddings.
            weights: (B,) weight of each user, 0 or 1e-100 to 1e100, 0 leaves the user out; (M,) with ``indexes``; (B,)
                or (B, T) for sequences.
            sample_ids: (B,) integer, the row of the data set; a row counts once however often it arrives. (B, T) for
                sequences.
            user_embeddings: (B, d) float, in place of ``preds``: the score of an item is the product of the two vectors
                in float64. Only the best are looked for (see :func:`~torch_recmetrics.topk_catalogue`).
            item_embeddings: (N, d) float, the vectors of all items.
            item_bias: (N,) float, added to the scores of an item.

        Raises:
            ValueError, TypeError: for input that breaks a rule, before anything is counted.
        """
        self.count_users(
            preds=preds,
            target=target,
            indexes=indexes,
            item_ids=item_ids,
            target_ids=target_ids,
            target_relevance=target_relevance,
            seen_ids=seen_ids,
            mask=mask,
            weights=weights,
            sample_ids=sample_ids,
            user_embeddings=user_embeddings,
            item_embeddings=item_embeddings,
            item_bias=item_bias,
        )

    def count_users(self, **given: Any) -> None:
        """Count the users of an update: its arguments by name, None for those that were not given."""
        evaluator = self.evaluator
        evaluator.count(evaluator.prepare(read_layout(evaluator.labels, **given)))


class UserMeasure(RankingMetric):
    """A ranking metric with a value for each user: what the evaluator reads of it.

    Its core is the static function ``measure(stats, cutoffs, *, ...) -> (B, cutoffs)``, which gets by name those
    attributes of the metric that it asks for: 0 for a user without relevant items, nan where :attr:`partial`.
    """

    measure: ClassVar[Callable[..., Tensor]]
    of_rank: ClassVar[bool] = False  # True: for a user with one relevant item it is a function of the rank of it
    partial: bool = False  # True: the measure is nan for users whose value is undefined; they are left out
    pooled: bool = False  # True: the measure is a count of hits, and the value all hits by all possible hits
    n_parts: int = 1  # numbers of a user under one tie rule
    value_labels: tuple[str, ...] = ()  # the names of its values, where it has several
    ties: str = "stable"
    empty_target_action: str = "skip"
    keep_bounds: bool = False
    aggregation: Any = "mean"
    keeps_values: bool = False  # the values of users are remembered beside their sums, without a sample id too
    can_wait: bool = True  # False: the measure reads what does not wait, or may refuse the update that brings users

    @property
    def over_items(self) -> Literal["mean", "sum"] | None:
        """What the value is over the relevant items, each for itself; None where they depend on each other."""
        return None

    @property
    def estimated(self) -> int | None:
        """The number of items among all of which a value is estimated that was seen among sampled ones."""
        return None

    @abstractmethod
    def keep(self, values: Tensor, weights: Tensor) -> None:
        """Remember (U, columns) values, nan where undefined, and the (U,) weights of the users."""

    @functools.cached_property
    def columns(self) -> tuple[str, ...]:
        """The tie rules whose values are kept: that of the metric for each part, and those of its bounds."""
        return (self.ties, "pessimistic", "optimistic") if self.keep_bounds else (self.ties,) * self.n_parts

    @property
    def rules(self) -> tuple[str, ...]:
        return (*dict.fromkeys(self.columns), *self.extra_rules)

    @property
    def pooled_by(self) -> PooledBy:
        """What a pooled value is divided by: the sum over the users of R, or of what is :meth:`possible`; None if it is
        a mean."""
        return "relevant" if self.pooled else None

    def possible(self, stats: RankingStats, cutoffs: Cutoffs) -> Tensor:
        """(B, cutoffs): what the values of a pooled metric are divided by; of a metric of parts for each of these."""
        return stats.max_hits(cutoffs)

    def value_of(self, ratios: Tensor) -> Tensor:
        """(..., values): the value, or those of `value_labels`, from the (..., columns) means over the users."""
        return ratios if self.value_labels else ratios[..., :1]

    def value_names(self, key: str) -> list[str]:
        """The names of its values in a collection, where it is `key`."""
        return [f"{key}/{label}" for label in self.value_labels] or [key]

    def values(self, stats: RankingStats, cutoffs: Cutoffs) -> Tensor:
        """(B, len(cutoffs)): each user's value. Of a metric of several parts each cutoff is given once for each part.

        The parts at one cutoff lie beside each other.
        """
        cls = type(self)
        options = {name: getattr(self, name) for name in options_of_measure(cls)}
        return cls.measure(stats, cutoffs[:: self.n_parts], **options).flatten(1)


class ListCounter(RankingMetric):
    """A ranking metric that counts what was recommended: what the evaluator reads of it."""

    @property
    @abstractmethod
    def list_shape(self) -> tuple[int, int]:
        """Metrics that agree in it count the same lists."""

    @abstractmethod
    def lists_of(self, stats: RankingStats, weights: Tensor | None) -> Tensor:
        """(B, <= K) the recommended items, padded with -1."""

    @abstractmethod
    def add_lists(self, lists: Tensor, sample_ids: Tensor | None) -> None:
        """Remember lists of :meth:`lists_of`."""


@functools.cache
def options_of_measure(metric: type[UserMeasure]) -> tuple[str, ...]:
    """The names of the options that the measure of a metric asks for."""
    parameters = inspect.signature(metric.measure).parameters.values()
    return tuple(parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY)


def requirements_of(
    metric: type[RankingMetric], options: Mapping[str, Any], rules: tuple[str, ...]
) -> RankingRequirements:
    """What a ranking must hold for a metric of these options."""
    top_k = options["top_k"]
    # The length of a whole list is known without its order.
    reads_lengths = top_k is not None and any(options[name] == value for name, value in metric.reads_lengths.items())
    return RankingRequirements(
        depth=top_k or 0,
        full_list=top_k is None,
        sort_full_list=top_k is None and (metric.reads_lists or "stable" in rules),
        all_places=top_k is None and not metric.reads_first_alone,
        rules=frozenset(rules),
        lists=metric.reads_lists or reads_lengths,
        items=metric.reads_items,
        needs_target=metric.needs_target,
        nan_hidden=options["nan_action"] == "worst",
        list_places=frozenset({options["num_items"]} if top_k is None and metric.reads_places else ()),
    )
