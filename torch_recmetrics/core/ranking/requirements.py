"""What a ranking must hold for those that will read it."""

from __future__ import annotations

from dataclasses import dataclass

from torch_recmetrics.core.ranking.ties import Gain


@dataclass(frozen=True)
class RankingRequirements:
    """What a ranking is made for.

    Args:
        depth: ranks to keep; None keeps all, in order.
        full_list: also work out the uncut lists, without sorting them where that can be had.
        sort_full_list: the uncut lists are read rank by rank, or in the order of the input, so they must be sorted.
        all_places: the uncut lists are read at all relevant items, not at the first alone.
        rules: the tie rules that will read it.
        ordered: put equal scores into the order of the input (``stable``, and whoever shows item ids).
        lists: the items between the relevant ones are looked at too.
        items: their ids are read, equal scores in the order of the input.
        needs_target: somebody asks what is relevant; where nobody does, it need not be given.
        nan_hidden: a score that is NaN is below every number, as -inf is; else it is refused.
        gains: the gains whose sum over equal scores at the cutoff is read, as :class:`RankingStats` knows them.
        any_gain: somebody may read that of a gain which is not among them, or single members.
        missing_at_end: somebody counts a relevant item that is not in a list as the rank behind its end.
    """

    depth: int | None
    full_list: bool = False
    sort_full_list: bool = False
    all_places: bool = False
    rules: frozenset[str] = frozenset({"average"})
    ordered: bool = False
    lists: bool = False
    items: bool = False
    needs_target: bool = True
    nan_hidden: bool = False
    gains: frozenset[Gain] = frozenset()
    any_gain: bool = True
    missing_at_end: bool = False

    def __or__(self, other: RankingRequirements) -> RankingRequirements:
        """What two readers of one ranking need together; both must treat NaN alike."""
        both = self.depth is not None and other.depth is not None
        either = {name: value | getattr(other, name) for name, value in vars(self).items() if name != "depth"}
        return RankingRequirements(max(self.depth or 0, other.depth or 0) if both else None, **either)
