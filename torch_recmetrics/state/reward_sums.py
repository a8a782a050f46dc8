"""The states of values of policies: the sums of a few columns over logged rows, and how they vary together.

Rows are kept only where they have a sample id (another rank may hold the same row) or a user (who may have more rows):
then a user is the unit, whose rows count together.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.distributed.collectives import gather_vectors
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.scatter import (
    COLUMNS,
    NUMBERS,
    ROWS,
    WEIGHT,
    WEIGHT_SQUARES,
    joined,
    parted,
    scatter_by,
    scatter_of,
    squares_along,
)
from torch_recmetrics.core.tensors.segments import sorted_runs, sum_by
from torch_recmetrics.state.intervals import Spread, error_of
from torch_recmetrics.state.metric import RowsOf
from torch_recmetrics.state.options import option
from torch_recmetrics.state.rows import HERE, Ranks, RowMetric
from torch_recmetrics.state.slot_sums import SumTable
from torch_recmetrics.state.slots import Entries

KEPT_ROWS = 1 << 16  # of users, until those of one user are put together
FEW_ROWS = 100  # of effective sample size
FAR = 5  # standard errors
KNOWN = 10  # users, or rows without one: of fewer the error of the mean weight says too little


class RewardTable(SumTable):
    """How the five columns of several slots vary together, or their sums where they are drawn.

    Rows with a user or a sample id wait; the rows of one user in one slot are a unit, and are drawn together.
    """

    n_columns = n_numbers = COLUMNS

    def arrange(self) -> None:
        super().arrange()
        if not self.drawn:
            self.of_sums, self.keeps_rows = "scatter", True  # a user may have more rows, here or on another rank
            self.shape, self.combined, self.grown = (self.slots.n_slots, NUMBERS), joined, COLUMNS
            # Of `users` whether a row has one, and which.
            self.columns = {"terms": RowsOf(torch.float64, (COLUMNS,)), "users": RowsOf(columns=(2,))}

    def prepare(self, given: dict[str, Any], entries: Entries) -> Callable[[], None]:
        terms, users, ids = self.metric.terms_of(self.metric.arguments(given))
        has = torch.full((terms.shape[0],), users is not None, dtype=torch.int64, device=self.device)
        pairs = torch.stack([has, torch.zeros_like(has) if users is None else users], 1)
        columns = [terms] if self.drawn else [terms, pairs]
        return functools.partial(self.count, columns, entries((terms.shape[0],), None), ids, users)

    def at_once(self, n_rows: int, *, named: bool, keyed: bool) -> bool:
        return super().at_once(n_rows, named=named, keyed=keyed) if self.drawn else not (named or keyed)

    def moments(self, rows: Tensor, slots: Tensor, columns: Sequence[Tensor]) -> Tensor:
        """(S + 1, 1 + C + C^2 + C): of all rows; those of one user in one slot are a unit."""
        terms, users = columns
        if not bool(users[:, 0].any()):
            return scatter_by(rows, slots, terms, self.slots.n_slots)
        terms, users = terms[rows], users[rows]
        # A row without a user is a unit of its own.
        alone = torch.where(users[:, 0] == 0, torch.arange(1, users.shape[0] + 1, device=self.device), 0)
        order, starts = sorted_runs(alone, users[:, 1], slots)
        slots = slots[order[starts]]
        every = torch.arange(slots.shape[0], device=self.device)
        units = sum_by(starts.cumsum(0) - 1, terms[order], slots.shape[0])
        return scatter_by(every, slots, units, self.slots.n_slots)

    def spreads(self) -> dict[str, Spread]:
        return {name: metric.spread_of(self.total()) for name, metric in self.members.items()}

    def counted(self, numbers: Tensor) -> Tensor:
        return (numbers[:, ROWS] > 0).unsqueeze(1)


class RewardSums(RowMetric):
    """A value that follows from the sums over logged rows; a subclass says how, in :meth:`value`."""

    slot_table = RewardTable
    may_lack = ("indexes",)
    stems = ("terms", "indexes", "sample_ids")
    needed = ("reward", "logged", "policy")
    has_interval = True
    plot_lower_bound = None  # type: ignore[assignment]
    plot_upper_bound = None
    ignore_index = None
    public = ("effective_sample_size",)
    reads_weights = True

    max_weight: float | None = option(
        default=None,
        check=check.number_check("a number above 0, or None for no bound", above=0, optional=True),
        doc="The largest weight policy / logged; None for no bound.",
    )

    def setup(self) -> None:
        super().setup()
        self.add("scatter", torch.zeros(NUMBERS, dtype=self.wide, device=self.device), joined, grown=COLUMNS)
        self.add("largest", self.numbers(0), functools.partial(torch.amax, dim=0))

    # What a subclass says

    @abstractmethod
    def terms_of(self, given: dict[str, Any]) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """(M, 5) columns, and the users and sample ids of the rows, of the arguments of an update, checked."""

    @abstractmethod
    def parts(self) -> list[tuple[list[int], int]]:
        """The value as a sum of ratios: the columns of each that are added up, and the one that divides them."""

    # States

    def add_rows(self, **given: Any) -> None:
        """Count the rows of an update: its arguments by name, None for those that were not given."""
        with torch.no_grad():
            if given["indexes"] is None and given["sample_ids"] is None:
                for name, state in zip(("scatter", "largest"), self.with_rows(given), strict=True):
                    self.set_state(name, state)
                return
            terms, indexes, sample_ids = self.terms_of(given)
            if sample_ids is None and indexes is not None:
                self.set_state("largest", self._largest_with(terms))
                indexes, terms = by_user(indexes, terms)
            self.keep(terms=terms, indexes=indexes, sample_ids=sample_ids)
            if sample_ids is None:
                self._put_together()

    def with_rows(self, given: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Both sums with the rows of an update that have neither a user nor a sample id."""
        terms, _, _ = self.terms_of(given)
        return joined(torch.stack([self.state("scatter"), scatter_of(terms)])), self._largest_with(terms)

    def _largest_with(self, terms: Tensor) -> Tensor:
        return torch.cat([self.state("largest"), terms[:, WEIGHT]]).amax(0, keepdim=True)

    def _put_together(self) -> None:
        """Add up the rows of each user, now and then, so that there are hardly more than users."""
        kept = zip(self.state("terms"), self.named(), strict=True)
        first, *others = [terms.shape[0] for terms, named in kept if not named]
        if sum(others) >= max(KEPT_ROWS, first):
            own = [piece for piece in self.pieces() if piece and "sample_ids" not in piece]
            users, terms = by_user(*(torch.cat([piece[stem] for piece in own]) for stem in ("indexes", "terms")))
            self.drop_pieces(but=self.named())
            self.keep(terms=terms, indexes=users)

    def totals(self, ranks: Ranks = HERE) -> tuple[Tensor, Tensor]:
        """Those of all units, and the largest weight of a row; over ranks, of the users that this one owns."""
        scatter, largest = self.state("scatter"), self.state("largest")
        if not (self.state("terms") or ranks.several):
            return scatter, largest
        alone, users, of_users = [self.empty_row("terms")], [self.empty_row("indexes")], [self.empty_row("terms")]
        for piece in self.counted_pieces(ranks):
            if "indexes" in piece:
                users.append(piece["indexes"])
                of_users.append(piece["terms"])
            else:
                alone.append(piece["terms"])
        rows = [torch.cat(users), torch.cat(of_users)]
        rows = [ranks.sent(column, rows[0]) for column in rows]
        units = torch.cat([*alone, by_user(*rows)[1]])
        scatter = joined(torch.stack([scatter, scatter_of(units)]))
        named = [piece["terms"][:, WEIGHT] for piece in self.pieces() if "sample_ids" in piece]
        return scatter, torch.cat([largest, *named]).amax().reshape(1)

    # Values

    def compute(self) -> Tensor:
        """The value over all rows, 0-dim float64; nan where nothing counts."""
        scatter, largest = self.totals()
        self._warn(scatter, largest)
        return self.value(parted(scatter)[1])

    def value(self, sums: Tensor) -> Tensor:
        """The value from (5, ...) sums."""
        return torch.stack([sums[columns].sum(0) / sums[by] for columns, by in self.parts()]).sum(0)

    def direction(self, sums: Tensor) -> Tensor:
        """(..., 5): how the value changes with each of the (..., 5) sums."""
        total = torch.zeros_like(sums)
        for columns, by in self.parts():
            ratio = sums[..., columns].sum(-1) / sums[..., by]
            total[..., columns] += 1 / sums[..., by : by + 1]
            total[..., by] -= ratio / sums[..., by]
        return total

    def spread_of(self, scatter: Tensor) -> Spread:
        """That of (..., 1 + C + C^2 + C)."""
        n, sums, _, _ = parted(scatter)
        error = error_of(squares_along(scatter, self.direction(sums)), n.squeeze(-1))
        return Spread(self.value(sums.movedim(-1, 0)), error, n.squeeze(-1))

    def spread(self) -> Spread:
        return self.spread_of(self.totals()[0])

    def effective_sample_size(self) -> Tensor:
        """(sum w)^2 / sum w^2 over the rows, 0-dim float64: as many rows of the new policy would tell as much.

        All ranks must call it.
        """
        sums = self.read(lambda: parted(self.totals()[0])[1])
        return sums[WEIGHT].square() / sums[WEIGHT_SQUARES]

    def _warn(self, scatter: Tensor, largest: Tensor) -> None:
        """Say it where few rows carry the value, and where the policies are not over the same actions."""
        if not self.reads_weights or scatter.device.type == "meta" or not float(scatter[0]):
            return
        sums = parted(scatter)[1]
        weight, size = float(sums[WEIGHT]), float(sums[WEIGHT].square() / sums[WEIGHT_SQUARES])
        share = float(largest) / weight if weight else 0.0
        if weight and size < FEW_ROWS:  # as it is where one row carries more than a tenth of the weight
            ways = ["log more", *(["bound the weights with max_weight="] if self.max_weight is None else [])]
            ways += ['take estimator="dr"'] if getattr(self, "estimator", None) in ("ips", "snips") else []
            self.warn_once(
                "few",
                f"the logged rows tell as much as {size:.0f} of the new policy, and one of them carries {share:.0%} of "
                f"the weight: the value rests on few rows; {' or '.join(ways)}",
            )
        mean = sums[WEIGHT] / sums[ROWS]
        along = torch.zeros_like(sums)
        along[WEIGHT], along[ROWS] = 1 / sums[ROWS], -mean / sums[ROWS]
        error = squares_along(scatter, along).sqrt()
        if self.max_weight is None and scatter[0] >= KNOWN and bool((mean - 1).abs() > FAR * error + 1e-6):
            self.warn_once(
                "far",
                f"the weights policy / logged have the mean {float(mean):.3g}, which is further from 1 than {FAR} "
                "standard errors: the two policies are not over the same actions, the probabilities are not theirs, or "
                "the log has too few rows of what it shows seldom and the new policy often",
            )

    def exchange(self, process_group: Any) -> None:
        _, n_pieces = self.agreed(len(self.state("terms")), group=process_group)
        parts = gather_vectors(torch.cat(self.totals(Ranks(n_pieces > 0, process_group))), process_group)
        self.set_state("scatter", joined(parts[:, :-1]))
        self.set_state("largest", parts[:, -1].amax().reshape(1))
        self.drop_pieces()


def by_user(users: Tensor, terms: Tensor) -> tuple[Tensor, Tensor]:
    """The users, ascending, and the sums of the rows of each."""
    found, place = torch.unique(users, return_inverse=True)
    return found, sum_by(place, terms, found.shape[0])
