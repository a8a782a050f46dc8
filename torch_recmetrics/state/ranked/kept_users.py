"""Users whose rows are kept until all are known: the totals of metrics, and the values of users, here and on all ranks.

Rows with a sample id wait because another rank may hold the same row, flat rows because a user may be spread over
batches and ranks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from torch_recmetrics.core.distributed.collectives import sum_alike, sum_over_processes
from torch_recmetrics.core.layouts.flat import NARROW, WIDE, joined_rows
from torch_recmetrics.core.tensors.devices import accumulator_dtype
from torch_recmetrics.core.tensors.moments import ADDABLE, COUNT, addable, added, from_added, moments
from torch_recmetrics.core.tensors.segments import first_of_each
from torch_recmetrics.state.metric import warn
from torch_recmetrics.state.ranked.evaluator import flat_sums, flat_values
from torch_recmetrics.state.ranked.ranking_metric import HIDDEN, UserMeasure, span
from torch_recmetrics.state.rows import HERE, Ranks, counted_ids
from torch_recmetrics.users.user_values import UserValues

T = TypeVar("T")


def sampled_columns(metrics: Sequence[UserMeasure]) -> tuple[Tensor, Tensor]:
    """(R, columns) each: weight times value, and what it is divided by, of rows with a sample id; repeated rows too."""
    numerators = [metric.joined("numerators").view(-1, len(metric.columns)) for metric in metrics]  # (R,) of one column
    denominators = [
        metric.joined("denominators").unsqueeze(1).expand_as(own)
        for metric, own in zip(metrics, numerators, strict=True)
    ]
    return torch.cat(numerators, 1), torch.cat(denominators, 1)


def same_rows(some: list[Tensor], other: list[Tensor]) -> bool:
    """Whether two lists hold the same rows; a collection gives all its members the very same tensors."""
    return len(some) == len(other) and all(
        a is b or (a.device == b.device and torch.equal(a, b)) for a, b in zip(some, other, strict=True)
    )


def totals(metrics: Sequence[UserMeasure], ranks: Ranks = HERE, asked: UserMeasure | None = None) -> list[Tensor]:
    """For each metric (columns, 6): everything that it holds in these processes; `asked` is the member that asks.

    One all_reduce; where rows wait, a few more. Which of them take place is read from the sum of the headers, so it is
    the same on every process, also on one that has no rows at all.
    """
    sums, waits = torch.cat([metric.state("sums") for metric in metrics]), waiting_rows(metrics)
    if ranks.several:
        things = [metric.exchanged for metric in metrics]
        if asked is not None:
            things.append(f"{asked.name} first of its collection")
        summed = sum_alike(things, torch.cat([sums.new_tensor(waits), addable(sums).flatten()]), ranks.group)
        sums = from_added(summed[len(waits) :].view(sums.shape[0], ADDABLE))
        waits = summed[: len(waits)].tolist()
    found = list(torch.split(sums, [len(metric.columns) for metric in metrics]))
    for positions, columns in waiting_groups(len(metrics), waits):
        rest = waiting_sums([metrics[position] for position in positions], columns, ranks)
        parts = [found[position] for position in positions]
        both = torch.split(added(torch.cat(parts), rest), [part.shape[0] for part in parts])
        for position, part in zip(positions, both, strict=True):
            found[position] = part
    return found


def waiting_rows(metrics: Sequence[UserMeasure]) -> list[float]:
    """What rows wait here, in five numbers that ranks add up: a sum above 0 says that it is so on some rank.

    How many lists of sample ids wait, and whether metrics hold different ones; the same of flat rows; and whether flat
    rows have the wider form.
    """
    header = []
    for stem in ("sample_ids", "rows"):
        held = [metric.state(stem) for metric in metrics]
        header += [float(sum(map(len, held))), float(not all(same_rows(held[0], rows) for rows in held))]
    wide = any(part.shape[1] == WIDE for metric in metrics for part in metric.state("rows"))
    return [*header, float(wide)]


def waiting_groups(n_metrics: int, waits: Sequence[float]) -> Iterator[tuple[list[int], int]]:
    """The positions of metrics whose rows are exchanged together, and the columns of flat rows; 0 for rows with ids.

    One exchange for all where all share their rows on every rank, else one for each. `waits` is the sum over the ranks
    of what :func:`waiting_rows` says.
    """
    n_sampled, split_samples, n_flat, split_flat, n_wide = waits
    width = WIDE if n_wide else NARROW
    for n_parts, split, columns in ((n_sampled, split_samples, 0), (n_flat, split_flat, width)):
        groups = [[p] for p in range(n_metrics)] if split else [list(range(n_metrics))]
        yield from ((positions, columns) for positions in groups if n_parts)


def waiting_sums(metrics: Sequence[UserMeasure], columns: int, ranks: Ranks) -> Tensor:
    """(columns, 6): the sums of the rows that wait in these metrics, which hold the same.

    A row with a sample id counts on the lowest rank that has it, and there where it arrived first. Flat rows go to the
    rank that owns their user, which counts that user. `columns` is that of :func:`waiting_groups`.
    """
    if not columns:
        rows = counted_ids(metrics[0].joined("sample_ids"), ranks).nonzero().squeeze(1)
        numerators, denominators = sampled_columns(metrics)
        return ranks.moments(moments(numerators[rows], denominators[rows]).T)
    packed = joined_rows(metrics[0].state("rows"), metrics[0].device, columns)
    if not ranks.several:
        return flat_sums(metrics, packed)
    mine = ranks.sent(packed, packed[:, 0])
    shape = (sum(len(metric.columns) for metric in metrics), ADDABLE)
    return from_added(sum_of_users(lambda: addable(flat_sums(metrics, mine)), shape, packed.device, ranks.group))


def evaluated(evaluate: Callable[[], T], ranks: Ranks, device: torch.device, does: str) -> T:
    """What each rank makes of its users' rows; where one refuses its rows, all raise an error."""
    if not ranks.several:
        return evaluate()
    found: list[T] = []

    def nothing() -> Tensor:
        found.append(evaluate())
        return torch.zeros(0, dtype=accumulator_dtype(device), device=device)

    sum_of_users(nothing, (0,), device, ranks.group, does)
    return found[0]


def sum_of_users(
    sums: Callable[[], Tensor], shape: tuple[int, ...], device: torch.device, group: Any, does: str = "count"
) -> Tensor:
    """The sum over the ranks of what each makes of its users' rows; where one refuses its rows, all raise an error."""
    here = torch.zeros(shape, dtype=accumulator_dtype(device), device=device)
    error: Exception | None = None
    try:
        here = sums()
    except Exception as refused:  # the others must hear of it, or they would wait
        error = refused
    vector = torch.cat([here.new_tensor([float(error is not None)]), here.flatten()])
    summed = sum_over_processes(vector, group)
    if error is not None:
        raise error
    if bool(summed[0]):
        raise ValueError(f"another rank could not {does} its users' rows; its message says why")
    return summed[1:].view(shape)


class KeptUsers(NamedTuple):
    """Users and their values in some metrics."""

    values: Tensor  # (U, columns), nan where undefined
    weights: Tensor  # (U,), 0 where no value is defined
    ids: Tensor | None  # (U,) int64; None where they have none

    def everywhere(self, ranks: Ranks) -> KeptUsers:
        """The users of all ranks; one with an id counts once, as it came first on the lowest rank."""
        both = ranks.joined(torch.cat([self.values, self.weights.unsqueeze(1)], 1))
        ids = None if self.ids is None else ranks.joined(self.ids)
        if ids is not None:
            first = first_of_each(ids)
            both, ids = both[first], ids[first]
        return KeptUsers(both[:, :-1], both[:, -1], ids)


def kept_users(metrics: Sequence[UserMeasure], ranks: Ranks) -> tuple[list[tuple[list[int], KeptUsers]], bool]:
    """All users whose values the metrics hold on these ranks, and whether some were counted without being kept.

    Users come in groups, each with the positions of the metrics that its values are of. Users without an id are in
    groups of their own, in the order in which they came, rank after rank. All ranks call it alike.
    """
    header, groups = waiting_rows(metrics), []
    header.append(float(sum(len(metric.state("values")) for metric in metrics if metric.keeps_values)))
    header.append(float(sum(metric.state("sums")[0, COUNT] > 0 for metric in metrics if not metric.keeps_values)))
    things = ["values of users", *(metric.exchanged for metric in metrics)]
    here = metrics[0].state("sums").new_tensor(header)
    *waits, n_unnamed, n_lost = (sum_alike(things, here, ranks.group) if ranks.several else here).tolist()
    if n_unnamed:
        for position, metric in enumerate(metrics):
            if metric.keeps_values:
                values, weights = metric.joined("values"), metric.joined("weights")
                groups.append(([position], KeptUsers(values, weights, None).everywhere(ranks)))
    for positions, columns in waiting_groups(len(metrics), waits):
        members = [metrics[p] for p in positions]
        users = flat_everywhere(members, columns, ranks) if columns else sampled_users(members).everywhere(ranks)
        groups.append((positions, users))
    return groups, bool(n_lost)


def sampled_users(metrics: Sequence[UserMeasure]) -> KeptUsers:
    """The users of this rank with a sample id, as often as they came."""
    numerators, denominators = sampled_columns(metrics)
    values = numerators / torch.where(denominators != 0, denominators, float("nan"))
    return KeptUsers(values, denominators.amax(1), metrics[0].joined("sample_ids"))


def flat_everywhere(metrics: Sequence[UserMeasure], columns: int, ranks: Ranks) -> KeptUsers:
    """The users of flat rows by their index; the rows of a user go to one rank, which evaluates that user."""
    packed = joined_rows(metrics[0].state("rows"), metrics[0].device, columns)
    packed = ranks.sent(packed, packed[:, 0])
    return evaluated(lambda: flat_users(metrics, packed), ranks, packed.device, "evaluate").everywhere(ranks)


def flat_users(metrics: Sequence[UserMeasure], packed: Tensor) -> KeptUsers:
    """The users of flat rows by their index; all rows of a user must be there."""
    indexes = packed[:, 0].unique()  # type: ignore[no-untyped-call]
    parts = [
        (*values.values_and_weights(), indexes if places is None else indexes[places])
        for values, places in flat_values(metrics, packed)
    ]
    values, weights, ids = map(torch.cat, zip(*parts, strict=True))
    return KeptUsers(values, weights.amax(1), ids)


def user_values(
    metrics: Sequence[tuple[list[str], UserMeasure]],
    candidates: str | None,
    summaries: Callable[[], dict[str, tuple[float, float]]],
) -> UserValues:
    """The values of users in metrics that keep them, by the names of these; the same on every rank.

    Raises:
        ValueError: where users were counted whose values were not kept, or where two of them have one id.
    """
    members = [metric for _, metric in metrics]
    for metric in members:
        if metric._is_synced:
            raise TorchMetricsUserError(f"{metric.name} is synced: call its `unsync` before you ask for its users")
    ranks = Ranks.of(members)
    groups, uncounted = kept_users(members, ranks)
    named = [(positions, users, users.ids) for positions, users in groups if users.ids is not None]
    if uncounted or len(named) < len(groups):
        raise ValueError(
            "some users came without `sample_ids`, so their values have no name: give every update `sample_ids`"
        )
    for (positions, _, some), (others, _, more) in itertools.combinations(named, 2):
        if not set(positions).isdisjoint(others) and (both := some[torch.isin(some, more)]).shape[0]:
            raise ValueError(
                "`sample_ids` and `indexes` must not name one user where values of users are kept, got both for user "
                f"{int(both.min())}: give all updates of an epoch one of the two"
            )
    ids = torch.cat([members[0].empty_row("sample_ids"), *(own_ids for *_, own_ids in named)])
    ids = ids.unique()  # type: ignore[no-untyped-call]
    like = members[0].state("sums")
    weights = like.new_zeros(ids.shape[0])
    tables = [like.new_full((ids.shape[0], len(names)), float("nan")) for names, _ in metrics]
    for positions, users, own_ids in named:
        places = torch.searchsorted(ids, own_ids)
        parts = torch.split(users.values, [len(members[p].columns) for p in positions], 1)
        for position, part in zip(positions, parts, strict=True):
            tables[position][places] = part[:, : tables[position].shape[1]]
        weights[places] = torch.maximum(weights[places], users.weights)
    ranked, hidden, most = ranked_among(members, ranks)
    unweighted = bool(((weights == 0) | (weights == 1)).all())
    return finite_values(
        ids.cpu(),
        {
            name: column.cpu()
            for (names, _), table in zip(metrics, tables, strict=True)
            for name, column in zip(names, table.unbind(1), strict=True)
        },
        {
            # An estimate says itself among how many items it is, and from how many: its bias goes by both.
            name: estimated_from(m.definition(), most) if m.estimated else m.exchanged
            for names, m in metrics
            for name in names
        },
        weights=None if unweighted else weights.cpu(),
        candidates=ranked if candidates is None else candidates,
        hidden=hidden,
        summaries=summaries(),
    )


def finite_values(
    sample_ids: Tensor, values: Mapping[str, Tensor], definitions: Mapping[str, str], **about: Any
) -> UserValues:
    """The values of users; a metric that has an infinite one, which cannot be compared, is left out with a warning."""
    if infinite := [name for name, column in values.items() if bool(column.isinf().any())]:
        warn(f"{', '.join(infinite)}: some users have an infinite value, so the values of the users are not kept")
    known = {name: column for name, column in values.items() if name not in infinite}
    return UserValues(sample_ids, known, definitions={name: definitions[name] for name in known}, **about)


def estimated_from(definition: str, most_candidates: int) -> str:
    """The definition of an estimate, with the largest number of candidates that a user had."""
    return f"{definition[:-1]}, candidates_at_most={most_candidates})"


def ranked_among(metrics: Sequence[UserMeasure], ranks: Ranks) -> tuple[str, bool, int]:
    """What was ranked, whether items were hidden, and the largest number of candidates, of the updates of all ranks."""
    estimated = {metric.estimated for metric in metrics if metric.estimated is not None}
    here = sorted({number for metric in metrics for number in metric.candidates_seen})
    seen = ranks.joined(torch.tensor(here, dtype=torch.int64, device=metrics[0].device)).tolist()
    sampled, scored = [number for number in seen if number > 0], [-number for number in seen if number < 0]
    hidden, most = HIDDEN in seen, max(map(abs, seen), default=0)
    if estimated and all(metric.estimated for metric in metrics):
        return f"estimated({span(estimated)})", hidden, most
    if sampled:
        return f"sampled({span(sampled)})", hidden, most
    return f"scored({span(scored)})" if scored else "full", hidden, most
