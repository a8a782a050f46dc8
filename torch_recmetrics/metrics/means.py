"""The memory of every metric that is a weighted mean of one number per user: two sums.

Rows are kept only where a row cannot be counted before all are known: rows with a sample id (another process may hold
the same row) and flat rows (a user may be spread over batches and processes). Metrics of one collection are evaluated,
summed and exchanged together; a single metric is the case of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

from torch_recmetrics.core import checks as check
from torch_recmetrics.core.inputs import Inputs
from torch_recmetrics.core.layouts import FlatRows, Plan, rank_flat, refuse_split_weights
from torch_recmetrics.core.precision import bits_float, exact_dtype, float_bits
from torch_recmetrics.core.processes import gather_rows, owner_of, send_rows, sum_over_processes
from torch_recmetrics.core.ranking import Cuts, Ranking, Reading, constants, deepest
from torch_recmetrics.core.segments import first_of_each
from torch_recmetrics.core.ties import TIES
from torch_recmetrics.metrics.memory import RecMetric

EMPTY_TARGET_ACTIONS = ("skip", "neg", "pos", "error")
LISTS = ("rows", "sample_ids", "numerators", "denominators")


class MeanOverUsers(RecMetric):
    """A metric whose value is the weighted mean of a measure over the users.

    A subclass names its :attr:`stem` and says in :meth:`measure` what one user's value is.
    """

    stem: ClassVar[str]
    pooled = False  # True: the measure is a count of hits, and the value all hits by all relevant items
    higher_is_better = True
    plot_lower_bound = 0.0
    plot_upper_bound: float | None = 1.0

    def __init__(
        self,
        top_k: int | None,
        *,
        empty_target_action: str = "skip",
        ties: str = "average",
        **kwargs: Any,
    ) -> None:
        check.check_top_k(top_k)
        check.check_choice("empty_target_action", empty_target_action, EMPTY_TARGET_ACTIONS)
        check.check_choice("ties", ties, TIES)
        super().__init__(**kwargs)
        self.top_k = top_k
        self.empty_target_action = empty_target_action
        self.ties = ties
        self.add("sums", torch.zeros(2, dtype=exact_dtype(self.device), device=self.device))
        for stem in LISTS:
            self.add(stem, [])

    def measure(self, reading: Reading, cuts: Cuts) -> Tensor:
        """(B, cut-offs): each user's value; 0 for a user without relevant items."""
        raise NotImplementedError

    @property
    def exponential(self) -> bool:
        """Whether relevance is a power of two here, and so limited."""
        return False

    @property
    def name(self) -> str:
        return self.stem if self.top_k is None else f"{self.stem}@{self.top_k}"

    def options(self) -> dict[str, Any]:
        return {"top_k": self.top_k, **self.variant()}

    def variant(self) -> dict[str, Any]:
        """The options without the cut-off: metrics that agree in these are evaluated together."""
        return {"ties": self.ties, "empty_target_action": self.empty_target_action}

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
    ) -> None:
        """Add users.

        Args:
            preds: (B, N) float scores, higher is better, ``-inf`` = must not be recommended; (M,) with ``indexes``; or
                a :class:`~torch_recmetrics.Ranking`, and then nothing else.
            target: relevance >= 0 of every score, bool, integer or float, in the shape of ``preds``.
            indexes: (M,) integer, the user of each row.
            item_ids: (B, L) integer, recommended ids, best first, padded with -1; in place of ``preds``.
            target_ids: (B, T) integer, relevant item ids (columns of ``preds``), padded with -1; in place of
                ``target``.
            target_relevance: (B, T) relevance of ``target_ids``; 1 where it is not given.
            seen_ids: (B, S) integer, what must not be recommended, padded with -1; an id may repeat.
            mask: in the shape of ``preds``, bool, True = may be recommended.
            weights: (B,) weight of each user, >= 0, 0 leaves the user out; (M,) with ``indexes``.
            sample_ids: (B,) integer, the row of the data set; a row counts once however often it arrives.

        Raises:
            ValueError, TypeError: for input that breaks a rule, before anything is counted.
        """
        given = Inputs(
            preds, target, indexes, item_ids, target_ids, target_relevance, seen_ids, mask, weights, sample_ids
        )
        panel = Panel([self])
        panel.count(panel.prepare(given))

    def compute(self) -> Tensor:
        """The weighted mean over the users, 0-dim float64; nan where there is nothing to count."""
        total = self._total()
        return total[0] / total[1]

    def _total(self) -> Tensor:
        if not (self.state("rows") or self.state("sample_ids")):
            total: Tensor = self.state("sums")
            return total
        if self.group is not None:
            shared: Tensor = self.group.total_here(self)
            return shared
        return totals_here([self])[0]

    def exchange(self, process_group: Any) -> None:
        total = self.group.total_everywhere(self, process_group) if self.group is not None else None
        if total is None:
            total = totals_everywhere([self], process_group)[0]
        self.set_state("sums", total)
        for stem in LISTS:
            self.set_state(stem, [])

    def empty_row(self, stem: str) -> Tensor:
        if stem == "rows":
            return torch.zeros((0, 4), dtype=torch.int64, device=self.device)
        dtype = torch.int64 if stem == "sample_ids" else exact_dtype(self.device)
        return torch.zeros(0, dtype=dtype, device=self.device)


class Panel:
    """Metrics that read one ranking: what it must hold for all of them, and all their values from it."""

    def __init__(self, metrics: Sequence[MeanOverUsers]) -> None:
        self.metrics = list(metrics)
        families: dict[tuple[Any, ...], list[int]] = {}
        for position, metric in enumerate(self.metrics):
            families.setdefault((type(metric), *metric.variant().items()), []).append(position)
        # Families that weigh users alike stand together, so that one product gives all their sums.
        self.families = sorted(families.values(), key=lambda family: self._weighing(family[0]))
        order = [position for family in self.families for position in family]
        self._back = tuple(float(order.index(position)) for position in range(len(order)))
        cuts = [metric.top_k for metric in self.metrics]
        rules = frozenset(metric.ties for metric in self.metrics)
        self.plan = Plan(deepest(cuts), whole=None in cuts, rules=rules, ordered="stable" in rules)

    def _weighing(self, position: int) -> tuple[str, bool]:
        return self.metrics[position].empty_target_action, self.metrics[position].pooled

    def prepare(self, given: Inputs) -> Prepared:
        """Rank, check and evaluate; nothing is counted yet, so whatever is refused leaves everything as it was."""
        first = self.metrics[0]
        first.check_device(**given.tensors())
        if isinstance(given.preds, Ranking):
            first.check_device(preds=given.preds.relevance)
        checks = check.ValueChecks(any(metric.validate_args for metric in self.metrics))
        if given.is_flat:
            rows = given.flat_rows(checks)
            refuse_split_weights(rows.indexes, rows.weights, checks)
            checks.settle()
            return Prepared(packed=pack(rows))
        ranking = given.rank(self.plan, checks)
        values = self.evaluate(ranking, checks)
        checks.settle()
        return Prepared(values=values, sample_ids=ranking.sample_ids)

    def totals(self, prepared: Prepared) -> Tensor:
        """(metrics, 2): the sums of this batch alone."""
        if prepared.packed is not None:
            return flat_sums(self.metrics, prepared.packed)
        if prepared.sample_ids is None:
            return prepared.evaluated.sums()
        counted = first_of_each(prepared.sample_ids)
        pairs = zip(prepared.evaluated.numerators(), prepared.evaluated.denominators(), strict=True)
        return torch.stack([torch.stack([n[counted].sum(), d[counted].sum()]) for n, d in pairs])

    def count(self, prepared: Prepared) -> None:
        """Add what was prepared to the states; this cannot be refused."""
        if prepared.packed is not None:
            for metric in self.metrics:
                metric.set_state("rows", [*metric.state("rows"), prepared.packed])
            return
        values = prepared.evaluated
        if prepared.sample_ids is None:
            for metric, sums in zip(self.metrics, values.sums().unbind(0), strict=True):
                metric.set_state("sums", metric.state("sums") + sums)
            return
        columns = zip(self.metrics, values.numerators(), values.denominators(), strict=True)
        for metric, numerator, denominator in columns:
            metric.set_state("sample_ids", [*metric.state("sample_ids"), prepared.sample_ids])
            metric.set_state("numerators", [*metric.state("numerators"), numerator])
            metric.set_state("denominators", [*metric.state("denominators"), denominator])

    def evaluate(self, ranking: Ranking, checks: check.ValueChecks) -> Values:
        """Every metric for every user; call ``checks.settle()`` before they are believed."""
        if any(metric.exponential for metric in self.metrics):
            check.refuse_exponential(checks, largest_relevance(ranking))
        weights = ranking.weights
        if weights is None:
            weights = torch.ones_like(ranking.n_relevant, dtype=ranking.relevance.dtype)
        empty = ranking.n_relevant == 0
        if any(metric.empty_target_action == "error" for metric in self.metrics):
            checks.refuse(
                empty & (weights > 0),
                lambda row: (
                    f'every user must have a relevant item with empty_target_action="error", row {row} has none'
                ),
                always=True,
            )
        filled = weights * ~empty
        blocks: list[tuple[Tensor, Tensor, Tensor]] = []
        weighing = None
        for family in self.families:
            metric = self.metrics[family[0]]
            values = metric.measure(ranking.reading(metric.ties), tuple(self.metrics[p].top_k for p in family))
            if metric.empty_target_action == "pos" and not metric.pooled:
                values = values + empty.unsqueeze(1)
            if self._weighing(family[0]) == weighing:
                before, weight, denominator = blocks[-1]
                blocks[-1] = torch.cat([before, values], 1), weight, denominator
                continue
            weighing = self._weighing(family[0])
            weight = filled if metric.empty_target_action in ("skip", "error") else weights
            denominator = weights * ranking.n_relevant if metric.pooled else weight
            blocks.append((values, weight, denominator))
        return Values(blocks, self._back)


@dataclass(frozen=True, eq=False)
class Prepared:
    """An update that was checked but not yet counted: evaluated users, or flat rows that wait."""

    values: Values | None = None
    sample_ids: Tensor | None = None
    packed: Tensor | None = None

    @property
    def evaluated(self) -> Values:
        if self.values is None:
            raise ValueError("flat rows have no values before all of them are known")
        return self.values

    @property
    def is_sums(self) -> bool:
        """Whether only sums are remembered of it."""
        return self.packed is None and self.sample_ids is None


class Values:
    """Values of many metrics for many users, not yet weighed."""

    def __init__(self, blocks: list[tuple[Tensor, Tensor, Tensor]], back: tuple[float, ...]) -> None:
        self._blocks = blocks  # values (B, metrics), what weighs them (B,), what they are divided by (B,)
        self._back = back  # the place of each metric

    def sums(self) -> Tensor:
        """(metrics, 2): the sum of weight times value, and of the weights."""
        parts = [
            torch.stack([weight @ values, denominator.sum().expand(values.shape[1])], 1)
            for values, weight, denominator in self._blocks
        ]
        sums = torch.cat(parts) if len(parts) > 1 else parts[0]
        return sums if len(self._back) == 1 else sums.index_select(0, self._positions(sums))

    def per_user(self) -> Tensor:
        """(B, metrics): the values."""
        values = torch.cat([values for values, _, _ in self._blocks], 1)
        return values.index_select(1, self._positions(values))

    def numerators(self) -> list[Tensor]:
        """For each metric (B,): weight times value."""
        columns = [column for values, weight, _ in self._blocks for column in (values * weight.unsqueeze(1)).unbind(1)]
        return [columns[int(place)].contiguous() for place in self._back]

    def denominators(self) -> list[Tensor]:
        """For each metric (B,): what it is divided by; one tensor for all that share it."""
        columns = [denominator for values, _, denominator in self._blocks for _ in range(values.shape[1])]
        return [columns[int(place)] for place in self._back]

    def _positions(self, like: Tensor) -> Tensor:
        return constants(self._back, torch.int64, like.device)


def largest_relevance(ranking: Ranking) -> Tensor:
    """(B,) the largest relevance of each user, retrieved or not."""
    if ranking.binary:
        return torch.zeros_like(ranking.relevance[:, 0]) if ranking.relevance.shape[1] else ranking.relevance.sum(1)
    if ranking.ideal.shape[1]:
        return ranking.ideal[:, 0]
    largest = torch.zeros(ranking.n_users, dtype=ranking.relevance.dtype, device=ranking.relevance.device)
    if ranking.whole is not None:
        largest.scatter_reduce_(0, ranking.whole.all_users, ranking.whole.all_relevance, "amax")
    return largest


# -- rows that wait -------------------------------------------------------------------------------------------------


def pack(rows: FlatRows) -> Tensor:
    """(M, 4) int64: index, score, relevance, weight; floats bit by bit, so one tensor travels whatever their dtypes."""
    weights = torch.ones_like(rows.preds) if rows.weights is None else rows.weights
    floats = [float_bits(column) for column in (rows.preds, rows.relevance, weights)]
    return torch.stack([rows.indexes, *floats], 1)


def unpack(packed: Tensor) -> FlatRows:
    """Inverse of :func:`pack`."""
    indexes, preds, relevance, weights = packed.unbind(1)
    return FlatRows(indexes.contiguous(), bits_float(preds), bits_float(relevance), bits_float(weights))


def joined(metric: MeanOverUsers, stem: str) -> Tensor:
    """A list state as one tensor on the device of the metric."""
    parts = [part.to(metric.device) for part in metric.state(stem)]
    return torch.cat(parts) if parts else metric.empty_row(stem)


def flat_sums(metrics: Sequence[MeanOverUsers], packed: Tensor) -> Tensor:
    """(metrics, 2): the sums of flat rows; all rows of a user must be there."""
    panel = Panel(metrics)
    checks = check.ValueChecks(metrics[0].validate_args)
    ranking = rank_flat(unpack(packed), panel.plan, checks)
    values = panel.evaluate(ranking, checks)
    checks.settle()
    return values.sums()


def sample_sums(metrics: Sequence[MeanOverUsers], counted: Tensor) -> Tensor:
    """(metrics, 2): the sums of the rows with a sample id that count here."""
    sums = []
    for metric in metrics:
        columns = [joined(metric, stem)[counted].sum() for stem in ("numerators", "denominators")]
        sums.append(torch.stack(columns))
    return torch.stack(sums)


def stores(metrics: Sequence[MeanOverUsers], stem: str) -> list[list[int]]:
    """The positions of metrics that hold the same rows, together.

    A collection gives all its members the very same tensors, so identity tells at once. A checkpoint gives each a copy:
    then their contents are compared, and from then on they are the same tensors again.
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    for position, metric in enumerate(metrics):
        groups.setdefault(tuple(id(part) for part in metric.state(stem)), []).append(position)
    merged: list[list[int]] = []
    for positions in groups.values():
        rows = metrics[positions[0]].state(stem)
        like = next((some for some in merged if _equal(metrics[some[0]].state(stem), rows)), None)
        if like is None:
            merged.append(positions)
            continue
        for position in positions:
            metrics[position].set_state(stem, list(metrics[like[0]].state(stem)))
        like += positions
    return merged


def _equal(some: list[Tensor], other: list[Tensor]) -> bool:
    return len(some) == len(other) and all(
        a is b or (a.shape == b.shape and a.device == b.device and torch.equal(a, b))
        for a, b in zip(some, other, strict=True)
    )


def totals_here(metrics: Sequence[MeanOverUsers]) -> Tensor:
    """(metrics, 2): everything that these metrics hold in this process."""
    totals = torch.stack([metric.state("sums") for metric in metrics])
    for positions in stores(metrics, "sample_ids"):
        some = [metrics[p] for p in positions]
        if some[0].state("sample_ids"):
            totals[positions] += sample_sums(some, first_of_each(joined(some[0], "sample_ids")))
    for positions in stores(metrics, "rows"):
        some = [metrics[p] for p in positions]
        if some[0].state("rows"):
            totals[positions] += flat_sums(some, joined(some[0], "rows"))
    return totals


def totals_everywhere(metrics: Sequence[MeanOverUsers], group: Any) -> Tensor:
    """(metrics, 2): everything that these metrics hold in all processes.

    One all_reduce; where rows wait, a few more. Which of them take place is read from the sum of the headers, so it is
    the same on every process, also on one that has no rows at all.
    """
    sums = torch.stack([metric.state("sums") for metric in metrics])
    header = []
    for stem in ("sample_ids", "rows"):
        groups = stores(metrics, stem)
        header += [float(sum(len(metric.state(stem)) for metric in metrics)), float(len(groups) > 1)]
    summed = sum_over_processes(torch.cat([sums.new_tensor(header), sums.flatten()]), group)
    n_sampled, split_samples, n_flat, split_flat = summed[:4].tolist()
    totals = summed[4:].view_as(sums)
    if n_sampled:
        for positions in _together(len(metrics), bool(split_samples)):
            totals[positions] += _sampled_everywhere([metrics[p] for p in positions], group)
    if n_flat:
        for positions in _together(len(metrics), bool(split_flat)):
            totals[positions] += _flat_everywhere([metrics[p] for p in positions], group)
    return totals


def _together(n: int, split: bool) -> list[list[int]]:
    """One exchange for all where all share their rows on every process, else one for each."""
    return [[position] for position in range(n)] if split else [list(range(n))]


def _sampled_everywhere(metrics: Sequence[MeanOverUsers], group: Any) -> Tensor:
    """Only the ids travel: a row counts on the lowest process that has it, and there where it arrived first."""
    ids = joined(metrics[0], "sample_ids")
    everyone = gather_rows(ids, group)
    counted = first_of_each(torch.cat(everyone))
    before = sum(part.shape[0] for part in everyone[: dist.get_rank(group)])
    return sum_over_processes(sample_sums(metrics, counted[before : before + ids.shape[0]]), group)


def _flat_everywhere(metrics: Sequence[MeanOverUsers], group: Any) -> Tensor:
    """The rows of a user go to one process, which counts that user."""
    packed = joined(metrics[0], "rows")
    mine = send_rows(packed, owner_of(packed[:, 0], dist.get_world_size(group)), group)
    error: ValueError | None = None
    sums = torch.zeros((len(metrics), 2), dtype=exact_dtype(packed.device), device=packed.device)
    try:
        sums = flat_sums(metrics, mine)
    except ValueError as refused:  # the others must hear of it, or they would wait
        error = refused
    failed = sums.new_tensor([float(error is not None)])
    summed = sum_over_processes(torch.cat([failed, sums.flatten()]), group)
    if error is not None:
        raise error
    if bool(summed[0]):
        raise ValueError("another process refused its users' rows; its message says why")
    return summed[1:].view_as(sums)
