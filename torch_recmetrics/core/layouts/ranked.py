"""What is kept of the users of an update until they are evaluated, many updates at a time.

An update ranks and checks. What the metrics then read of a user is small: the items of the list, or where the relevant
ones stand in it, where scores were equal, and what is relevant. So it is kept, and :meth:`RankedUsers.ranking` is made
for the users of many updates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torch_recmetrics.core.kernels.runtime import usable
from torch_recmetrics.core.layouts.cutoff_members import (
    CutoffMembers,
    completed,
    cutoff_tie_of,
    joined_members,
    with_cutoff_tie,
)
from torch_recmetrics.core.layouts.relevance import Relevance, ideal_of_counts, padded
from torch_recmetrics.core.ranking.full_lists import FullListStats
from torch_recmetrics.core.ranking.item_weights import ItemWeights
from torch_recmetrics.core.ranking.ranking import Given, Ranking
from torch_recmetrics.core.ranking.requirements import RankingRequirements
from torch_recmetrics.core.ranking.ties import CutoffTie, KnownGainTotals, TieGroups, tie_groups_of
from torch_recmetrics.core.tensors.devices import is_sync_free

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, eq=False)
class RankedUsers(ABC):
    """B users whose lists are ranked."""

    weights: Tensor | None = field(default=None, kw_only=True)  # (B,)
    sample_ids: Tensor | None = field(default=None, kw_only=True)  # (B,) int64
    has_target: bool = field(default=True, kw_only=True)  # False: nobody said what is relevant
    n_items: int | None = field(default=None, kw_only=True)  # items that were scored, by id
    finished: bool = field(default=False, kw_only=True)  # the lists came ready

    @abstractmethod
    def ranking(self) -> Ranking:
        """The ranking of these users."""

    def having(self, **fields: Any) -> Self:
        """The same users with these fields: :func:`dataclasses.replace`, which sets all the others one by one, too."""
        users = object.__new__(type(self))
        users.__dict__.update(self.__dict__, **fields)
        return users

    @property
    def join_key(self) -> Any:
        """What users of several updates must share to be joined; None where they cannot be."""
        return None


@dataclass(frozen=True, eq=False)
class WeighedUsers(RankedUsers):
    """Users, and the same lists with weights of the items."""

    users: RankedUsers
    weighed: Mapping[ItemWeights, Ranking]

    def ranking(self) -> Ranking:
        return replace(self.users.ranking(), weighed=self.weighed)


class JoinableUsers(RankedUsers):
    """Users who can wait for those of other updates."""

    @property
    @abstractmethod
    def n_users(self) -> int:
        """B."""

    @property
    @abstractmethod
    def width(self) -> int:
        """The ranks of the list of one user, or the numbers that say what is relevant, whichever are more; 0 where
        compiled loops read them."""

    @abstractmethod
    def n_relevant(self) -> Tensor:
        """(B,) int64: how many relevant items each user has."""

    @abstractmethod
    def largest(self) -> Tensor | None:
        """(B,) the largest relevance of each user; None where it is 0 or 1."""

    @abstractmethod
    def kept(self) -> JoinableUsers:
        """The same for those who do not ask what was retrieved: nothing of the caller is kept alive."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where their lists are."""

    def split(self, most: int) -> Sequence[JoinableUsers]:  # noqa: ARG002
        """The same users in order, on a CPU no more than so many at a time."""
        return [self]

    @abstractmethod
    def joined(self, parts: Sequence[Any]) -> JoinableUsers:
        """The users of several updates; these are the first of them.

        All have one :attr:`join_key`. Not all need be of one class, nor of that of the result.
        """


@dataclass(frozen=True, eq=False)
class ReadyUsers(RankedUsers):
    """A ranking that is made already."""

    ready: Ranking

    @classmethod
    def of(cls, ranking: Ranking) -> ReadyUsers:
        """The users of a ranking that says their weights and ids."""
        own = ranking
        return cls(own, **{name: getattr(own, name) for name in RankedUsers.__dataclass_fields__})

    def ranking(self) -> Ranking:
        own = self.ready
        fields = {name: getattr(self, name) for name in RankedUsers.__dataclass_fields__}
        return own if all(value is getattr(own, name) for name, value in fields.items()) else replace(own, **fields)


@dataclass(frozen=True, eq=False)
class UsersByRank(JoinableUsers):
    """Users of whom is known what stands at the first D ranks, and at which of them scores are equal."""

    needs: RankingRequirements  # of those that will read it
    # (B, >= D - 1) bool: rank r + 2 has the score of rank r + 1; None where none has
    tied: Tensor | None = field(default=None, kw_only=True)
    cutoff_members: CutoffMembers | None = field(default=None, kw_only=True)
    retrieved: Callable[[], Tensor] | None = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def by_rank(self) -> Tensor:
        """(B, D): what is known of each rank."""

    @abstractmethod
    def as_found(self) -> FoundUsers:
        """The same where all that is relevant has relevance 1, for those who do not ask which items they are."""

    def key_of(self, *, graded: Any, complete: bool, ordered: bool, ideal_depth: int | None) -> Any:
        """The key of users who can be joined, in one form or the other."""
        layout = self.device, self.by_rank.shape[1], complete, ordered, ideal_depth
        given = self.weights is None, self.sample_ids is None, self.has_target, self.finished
        return UsersByRank, layout, graded, given

    @property
    def device(self) -> torch.device:
        return self.by_rank.device

    @property
    def n_users(self) -> int:
        return self.by_rank.shape[0]

    @property
    def width(self) -> int:
        members = 0 if self.cutoff_members is None else self.cutoff_members.relevance.shape[1]
        return max(self.by_rank.shape[1], members)

    def split(self, most: int) -> Sequence[Self]:
        if self.n_users <= most or not is_sync_free(self.device):
            return [self]
        starts = range(0, self.n_users, most)
        return [self.select(slice(first, min(first + most, self.n_users))) for first in starts]

    def select(self, rows: slice) -> Self:
        """Some of the users, with all whose tie crosses the cutoff."""
        return self.having(
            tied=None if self.tied is None else self.tied[rows],
            cutoff_members=None if self.cutoff_members is None else self.cutoff_members.select(rows),
            weights=None if self.weights is None else self.weights[rows],
            sample_ids=None if self.sample_ids is None else self.sample_ids[rows],
        )

    def tie_groups(self) -> TieGroups | None:
        """Where equal scores stand; None where there are none, and where nobody asks."""
        depth, members = self.by_rank.shape[1], self.cutoff_members
        if self.tied is None or not depth or not self.needs.rules - {"stable"}:
            return None
        if is_sync_free(self.device) and not self.tied.numpy().any():
            return None
        tie_groups = TieGroups(*tie_groups_of(self.tied, depth), None)
        if members is None:
            return tie_groups
        return with_cutoff_tie(tie_groups, self.tied[:, depth - 1], members, self.needs)


@dataclass(frozen=True, eq=False)
class ListedUsers(UsersByRank):
    """Users whose first D items are known, or those of them that are relevant."""

    targets: Relevance
    # (B, D) int64 by rank, -1 beyond the end of the list, and where an item stands that nobody asks for
    item_ids: Tensor
    complete: bool  # nothing was cut
    ordered: bool = True  # equal scores stand in the order of the input
    ideal_depth: int | None = None  # ranks of the best list; None for D
    full_list: FullListStats | None = None

    @property
    def by_rank(self) -> Tensor:
        return self.item_ids

    def ranking(self) -> Ranking:
        ids, targets = self.item_ids, self.targets
        depth = ids.shape[1]
        asked = self.complete or self.needs.items or self.needs.lists
        best_tied = None
        if self.needs.lists:
            best_tied = torch.ones_like(ids[:, :1]).sum(1) if self.tied is None else self.tied.cumprod(1).sum(1) + 1
        return Ranking(
            relevance=targets.lookup(ids),
            lengths=(ids >= 0).sum(1) if asked else None,
            n_relevant=targets.n_relevant(),
            max_relevant=targets.width,
            best=partial(targets.ideal, depth if self.ideal_depth is None else self.ideal_depth),
            depth=None if self.complete else depth,
            binary=targets.binary,
            item_ids=ids if asked else None,
            weights=self.weights,
            sample_ids=self.sample_ids,
            tie_groups=self.tie_groups(),
            best_tied=best_tied,
            full_list=self.full_list,
            ordered=self.ordered,
            retrieved=self.retrieved,
            has_target=self.has_target,
            finished=self.finished,
            n_items=self.n_items,
        )

    @property
    def join_key(self) -> Any:
        targets = self.targets
        if self.full_list is not None:
            return None
        if targets.ids is None:  # a dense target holds a number for each item, too many to keep
            members = self.cutoff_members
            readable = not self.needs.any_gain and (members is None or members.rows is None)
            return type(self) if readable and self.ideal_depth is None else None
        graded = None if targets.relevance is None else targets.relevance.dtype
        return self.key_of(graded=graded, complete=self.complete, ordered=self.ordered, ideal_depth=self.ideal_depth)

    @property
    def width(self) -> int:
        return max(self.targets.width, super().width)

    def n_relevant(self) -> Tensor:
        return self.targets.n_relevant()

    def largest(self) -> Tensor | None:
        return None if self.targets.relevance is None else largest_of(self.targets.values)

    def kept(self) -> JoinableUsers:
        return self.having(retrieved=None) if self.targets.ids is not None else DenseUsers.of(self)

    def select(self, rows: slice) -> ListedUsers:
        targets, ids = self.targets, self.targets.sorted_ids[rows]
        relevance = None if targets.relevance is None else targets.relevance[rows]
        users = super().select(rows)
        return users.having(item_ids=self.item_ids[rows], targets=Relevance(ids, relevance, ids))

    def joined(self, parts: Sequence[UsersByRank]) -> UsersByRank:
        listed = [part for part in parts if isinstance(part, ListedUsers)]
        if len(listed) < len(parts):
            return self.as_found().joined(parts)
        width = max(part.targets.width for part in listed)
        ids = torch.cat([padded(part.targets.sorted_ids, width, -1) for part in listed])
        relevance = None
        if self.targets.relevance is not None:
            relevance = torch.cat([padded(part.targets.values, width, 0) for part in listed])
        item_ids = torch.cat([part.item_ids for part in listed])
        return self.having(item_ids=item_ids, targets=Relevance(ids, relevance, ids), **joined_columns(parts))

    def as_found(self) -> FoundUsers:
        fields = {name: getattr(self, name) for name in vars(self) if name in FoundUsers.__dataclass_fields__}
        found = self.targets.lookup(self.item_ids) > 0
        return FoundUsers(**fields, found=found, relevant=self.n_relevant(), max_relevant=self.targets.width)


@dataclass(frozen=True, eq=False)
class FoundUsers(UsersByRank):
    """Users of whom is known at which of the first D ranks a relevant item stands, each of relevance 1; not which."""

    found: Tensor  # (B, D) bool
    relevant: Tensor  # (B,) int64: how many relevant items there are
    max_relevant: int  # no user has more

    @property
    def by_rank(self) -> Tensor:
        return self.found

    def ranking(self) -> Ranking:
        found = self.found
        return Ranking(
            relevance=torch.from_numpy(found.numpy().astype("float64")),  # without threads
            lengths=None,
            n_relevant=self.relevant,
            max_relevant=self.max_relevant,
            best=partial(ideal_of_counts, self.relevant, min(found.shape[1], self.max_relevant)),
            depth=found.shape[1],
            binary=True,
            weights=self.weights,
            sample_ids=self.sample_ids,
            tie_groups=self.tie_groups(),
            ordered=False,
            retrieved=self.retrieved,
            has_target=self.has_target,
            finished=self.finished,
            n_items=self.n_items,
        )

    @property
    def join_key(self) -> Any:
        return self.key_of(graded=None, complete=False, ordered=False, ideal_depth=None)

    @property
    def width(self) -> int:
        return 0 if self.tied is None and usable(self.found) else super().width

    def n_relevant(self) -> Tensor:
        return self.relevant

    def largest(self) -> None:
        return None

    def kept(self) -> FoundUsers:
        return self.having(retrieved=None)

    def as_found(self) -> FoundUsers:
        return self

    def select(self, rows: slice) -> FoundUsers:
        return super().select(rows).having(found=self.found[rows], relevant=self.relevant[rows])

    def joined(self, parts: Sequence[UsersByRank]) -> FoundUsers:
        users = [part.as_found() for part in parts]
        return self.having(
            found=torch.cat([part.found for part in users]),
            relevant=torch.cat([part.relevant for part in users]),
            max_relevant=max(part.max_relevant for part in users),
            **joined_columns(parts),
        )


def joined_columns(parts: Sequence[UsersByRank]) -> dict[str, Any]:
    """What users of several updates have in either form."""
    tied = members = None
    if any(part.tied is not None for part in parts):
        columns = max(part.tied.shape[1] for part in parts if part.tied is not None)
        tied = torch.cat([untied(part, columns) if part.tied is None else part.tied for part in parts])
    if any(part.cutoff_members is not None for part in parts):
        members = joined_members([part.cutoff_members for part in parts], [part.n_users for part in parts])
    return {
        "tied": tied,
        "cutoff_members": members,
        "weights": joined_column(parts, "weights"),
        "sample_ids": joined_column(parts, "sample_ids"),
    }


@dataclass(frozen=True, eq=False)
class DenseUsers(JoinableUsers):
    """Users of a dense target on a device that must not be waited for: what it says of their lists was read at once.

    Where a value may not be looked at, every list may have a tie at the cutoff, and every user any number of relevant
    items; so all tensors are there, in shapes that follow from those of the update.
    """

    item_ids: Tensor  # (B, D) int64 by rank, -1 beyond the end of the list
    relevance: Tensor  # (B, D) by rank
    relevant: Tensor  # (B,) int64: how many relevant items there are
    ideal: Tensor  # (B, <= D) relevance of all relevant items, descending
    max_relevant: int
    binary: bool
    needs: RankingRequirements
    complete: bool
    tied: Tensor | None
    ordered: bool
    cutoff_tie: CutoffTie | None
    n_tied: Tensor | None  # (B,) int64: the members of the tie group at the cutoff; None where there is no cutoff tie

    @classmethod
    def of(cls, users: ListedUsers) -> DenseUsers:
        """What users who are kept need of the target of theirs."""
        targets, depth, members = users.targets, users.item_ids.shape[1], users.cutoff_members
        cutoff_tie = None
        if members is not None and users.tied is not None:
            crosses = users.tied[:, depth - 1]
            cutoff_tie = cutoff_tie_of(members, crosses, depth, users.needs, gains=users.needs.gains)
        return cls(
            item_ids=users.item_ids,
            relevance=targets.lookup(users.item_ids),
            relevant=targets.n_relevant(),
            ideal=targets.ideal(depth),
            max_relevant=targets.width,
            binary=targets.binary,
            needs=users.needs,
            complete=users.complete,
            tied=users.tied,
            ordered=users.ordered,
            cutoff_tie=cutoff_tie,
            n_tied=None if members is None else members.count,
            weights=users.weights,
            sample_ids=users.sample_ids,
            has_target=users.has_target,
            n_items=users.n_items,
        )

    def ranking(self) -> Ranking:
        ids, depth = self.item_ids, self.item_ids.shape[1]
        tie_groups = best_tied = None
        if self.tied is not None:
            if depth and self.needs.rules - {"stable"}:
                tie_groups = TieGroups(*tie_groups_of(self.tied, depth), None)
                if self.cutoff_tie is not None and self.n_tied is not None:
                    tie_groups = completed(tie_groups, self.n_tied, self.cutoff_tie)
            if self.needs.lists:
                best_tied = self.tied.cumprod(1).sum(1) + 1
        return Ranking(
            relevance=self.relevance,
            lengths=(ids >= 0).sum(1),
            n_relevant=self.relevant,
            max_relevant=self.max_relevant,
            best=Given(self.ideal),
            depth=None if self.complete else depth,
            binary=self.binary,
            item_ids=ids,
            weights=self.weights,
            sample_ids=self.sample_ids,
            tie_groups=tie_groups,
            best_tied=best_tied,
            ordered=self.ordered,
            has_target=self.has_target,
            n_items=self.n_items,
        )

    @property
    def join_key(self) -> Any:
        tie = self.cutoff_tie
        shapes = self.item_ids.shape[1], self.ideal.shape[1], None if self.tied is None else self.tied.shape[1]
        given = self.has_target, self.weights is None, self.sample_ids is None
        return type(self), self.item_ids.device, shapes, self.binary, self.complete, self.ordered, tie is None, given

    @property
    def device(self) -> torch.device:
        return self.item_ids.device

    @property
    def n_users(self) -> int:
        return self.item_ids.shape[0]

    @property
    def width(self) -> int:
        return self.item_ids.shape[1]

    def n_relevant(self) -> Tensor:
        return self.relevant

    def largest(self) -> Tensor | None:
        return None if self.binary else largest_of(self.ideal)

    def kept(self) -> DenseUsers:
        return self

    def joined(self, parts: Sequence[DenseUsers]) -> DenseUsers:
        names = ("item_ids", "relevance", "relevant", "ideal", "tied", "n_tied", "weights", "sample_ids")
        ties = [part.cutoff_tie for part in parts if part.cutoff_tie is not None]
        columns: dict[str, Any] = {name: joined_column(parts, name) for name in names}
        largest = max(part.max_relevant for part in parts)
        return replace(self, **columns, cutoff_tie=joined_ties(ties) if ties else None, max_relevant=largest)


def joined_ties(ties: Sequence[CutoffTie]) -> CutoffTie:
    """The ties at the cutoff of several updates, whose gains were added up."""
    totals = [tie.gain_total.totals for tie in ties if isinstance(tie.gain_total, KnownGainTotals)]
    joined = {gain: torch.cat([of_update[gain] for of_update in totals]) for gain in totals[0]}
    columns: dict[str, Any] = {name: joined_column(ties, name) for name in ("tied", "n_relevant", "best", "worst")}
    return replace(ties[0], **columns, gain_total=KnownGainTotals(joined))


def joined_column(parts: Sequence[Any], name: str) -> Tensor | None:
    """A tensor of several updates, which all have it, or none."""
    tensors = [getattr(part, name) for part in parts]
    return None if tensors[0] is None else torch.cat(tensors)


def largest_of(relevance: Tensor) -> Tensor:
    """(B,) the largest of each row, 0 of an empty one."""
    return relevance.amax(1) if relevance.shape[1] else relevance.sum(1)


def untied(part: UsersByRank, columns: int) -> Tensor:
    """(B, columns) bool: no two scores are equal."""
    return torch.zeros((part.n_users, columns), dtype=torch.bool, device=part.by_rank.device)
