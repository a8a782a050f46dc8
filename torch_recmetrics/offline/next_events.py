"""Events and what follows them, and ranks in an item-to-item table, as tensors; both are joined by numbers of items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from torch_recmetrics.core.tensors.column_sort import sort_column
from torch_recmetrics.core.tensors.segments import run_starts
from torch_recmetrics.offline.batches import SortedRows, one_ahead, parts_of_keys, parts_of_stream
from torch_recmetrics.offline.columns import place_sql
from torch_recmetrics.offline.sources import Source
from torch_recmetrics.offline.sql import one_row
from torch_recmetrics.offline.workspace import Workspace

PAIR_BYTES = 96  # of a row of the table while its ranks are found
EVENT_BYTES = 24  # user and place in one, item, whether it is to be found, time
MOST_MARKS = 2**26  # bytes
MIXER = -7046029254386353131  # an odd number without a pattern in its bits, 2^64 divided by the golden ratio
WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
MOMENTS = ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP WITH TIME ZONE")


def number_ids(connection: Any, table: Source, log: Source, columns: tuple[str, str, str, str]) -> tuple[int, int]:
    """Make the tables `people` and `goods` of the ids of users and items, each with a number; U and N.

    Users are numbered in the order of their ids. `goods` says too how many events each item has.

    Args:
        columns: SQL of the table's two items, and of user and item of the log.
    """
    item1, item2, user, item = columns
    connection.execute(
        "CREATE TABLE people AS SELECT id, CAST(row_number() OVER (ORDER BY id) - 1 AS INTEGER) AS number "
        f"FROM (SELECT DISTINCT {user} AS id FROM {log.sql})"
    )
    connection.execute(
        "CREATE TABLE goods AS SELECT id, n, CAST(row_number() OVER () - 1 AS INTEGER) AS code FROM ("
        f"SELECT id, CAST(sum(n) AS BIGINT) AS n FROM (SELECT {item} AS id, count(*) AS n FROM {log.sql} GROUP BY 1 "
        f"UNION ALL SELECT DISTINCT {item1}, 0 FROM {table.sql} UNION ALL SELECT DISTINCT {item2}, 0 FROM {table.sql}) "
        "GROUP BY 1)"
    )
    n_users, n_items = (one_row(connection, f"SELECT count(*) FROM {name}")[0] for name in ("people", "goods"))
    return n_users, n_items


class RankedPairs:
    """Where items stand in the lists of others, looked up by the numbers of both.

    There are few ranks and lengths: those of a pair are a kind, and a miss in a list of some length is another.

    Args:
        items, others: (P,) the numbers of the items of each row of the table.
        scores: (P,) float64.
        n_items: N.
        depth: ranks beyond it are not kept, and lengths count up to it.
        stable: whether equal scores stand in the order of the rows.

    Attributes:
        starts, sizes, lengths: (K,) of the kinds.
        own_lengths: (N,) of the list of each item.
        twice: whether a pair stands there twice; then there are no kinds.
    """

    def __init__(
        self, items: Tensor, others: Tensor, scores: Tensor, n_items: int, depth: int, *, stable: bool
    ) -> None:
        self._n_items, n_pairs = n_items, items.shape[0]
        pairs = items.long() * n_items + others
        found = sort_column(pairs.clone())
        self.twice = bool((found[1:] == found[:-1]).any())
        own_lengths = torch.bincount(items, minlength=n_items)
        self.n_lists = int((own_lengths > 0).sum())
        self.own_lengths = own_lengths.clamp_max(depth)
        if self.twice:
            return
        best_first = torch.from_numpy(np.argsort(-scores.numpy(), kind="stable" if stable else None))
        bits = max(1, n_pairs - 1).bit_length()
        keys = sort_column((items.long()[best_first] << bits) | torch.arange(n_pairs))
        row, item = best_first[keys & ((1 << bits) - 1)], keys >> bits
        start = torch.arange(n_pairs) - (own_lengths.cumsum(0) - own_lengths)[item]
        size = torch.ones_like(start)
        if not stable:
            first = run_starts(item, scores[row])
            group = first.cumsum(0) - 1
            start, size = start[first][group], torch.bincount(group)[group]
        kept = start < depth
        start, size, length = start[kept], size[kept], self.own_lengths[item[kept]]
        longest = int(length.max()) + 1 if len(length) else 1
        own = (start * (n_pairs + 1) + size) * longest + length
        kinds = torch.unique_consecutive(sort_column(own.clone()))
        self.starts, rest = kinds // (longest * (n_pairs + 1)), kinds % (longest * (n_pairs + 1))
        self.sizes, self.lengths = rest // longest, rest % longest
        pairs = pairs[row[kept]]
        order = torch.from_numpy(np.argsort(pairs.numpy()))
        self._pairs, self._kinds = pairs[order], torch.searchsorted(kinds, own[order])
        # Most pairs are not there: a mark for each that is tells so at once for nearly all others.
        self._shift = 64 - min((8 * n_pairs).bit_length(), MOST_MARKS.bit_length() - 1)
        self._marks = torch.zeros(1 << (64 - self._shift), dtype=torch.bool)
        self._marks[self._mixed(self._pairs)] = True

    def _mixed(self, pairs: Tensor) -> Tensor:
        mixed = (pairs * MIXER).bitwise_right_shift_(self._shift)
        return mixed.bitwise_and_((1 << (64 - self._shift)) - 1)

    def kinds_of(self, items: Tensor, others: Tensor) -> Tensor:
        """(E,) kinds: that of a pair, or K and the length of the list that has it not."""
        kinds = self.own_lengths[items] + len(self.starts)
        pairs = items.long() * self._n_items + others
        maybe = self._marks[self._mixed(pairs)].nonzero()[:, 0]
        if len(maybe):
            pairs = pairs[maybe]
            order = torch.from_numpy(np.argsort(pairs.numpy()))  # places near each other are found in the cache
            pairs, maybe = pairs[order], maybe[order]
            place = torch.searchsorted(self._pairs, pairs).clamp_max(len(self._pairs) - 1)
            found = self._pairs[place] == pairs
            kinds[maybe[found]] = self._kinds[place[found]]
        return kinds


def ranked_pairs(
    connection: Any,
    table: Source,
    columns: tuple[str, str, str],
    n_rows: int,
    n_items: int,
    depth: int,
    *,
    stable: bool,
) -> RankedPairs:
    """Those of a table; `columns` are SQL of its items and scores."""
    item1, item2, score = columns
    query = (
        f"SELECT one.code, two.code, _score, _place FROM (SELECT {item1} AS _item1, {item2} AS _item2, "
        f"{score} + 0.0 AS _score, {place_sql(connection, table)} AS _place FROM {table.sql}) AS r "
        "JOIN goods AS one ON one.id = _item1 JOIN goods AS two ON two.id = _item2"
    )
    dtypes = (torch.int32, torch.int32, torch.float64)
    items, others, scores = placed(connection.sql(query).to_arrow_reader(2**18), n_rows, dtypes)
    return RankedPairs(items, others, scores, n_items, depth, stable=stable)


def placed(batches: Iterator[Any], n_rows: int, dtypes: Sequence[torch.dtype]) -> list[Tensor]:
    """Columns of all rows, in the order of the last column, which is left out: the place of each, from 0 on."""
    columns = [torch.empty(n_rows, dtype=dtype) for dtype in dtypes]
    for batch in batches:
        if batch.num_rows:
            *parts, places = (from_dlpack(column) for column in batch.columns)
            at: slice | Tensor = places
            first = int(places[0])
            if torch.equal(places, torch.arange(first, first + batch.num_rows)):
                at = slice(first, first + batch.num_rows)
            for column, part in zip(columns, parts):
                column[at] = part
    return columns


def sorted_events(
    workspace: Workspace, log: Source, columns: tuple[str, str, str, str], n_rows: int, n_users: int, rows_at_once: int
) -> SortedRows:
    """Numbers of user and item, whether the item is to be found, and whether it came at the time of the one before.

    In the order of the users and times; equal times as they stand. Sorted in memory where they fit, else by DuckDB.

    Args:
        columns: SQL of user, item, relevance and time of the log.
    """
    connection = workspace.connection
    user, item, grade, time = columns
    kind = connection.execute(f"DESCRIBE SELECT {time} FROM {log.sql}").fetchall()[0][1]
    number = time_as_number("_time", kind)
    joined = (
        f"(SELECT {user} AS _user, {item} AS _item, CAST({grade} > 0 AS TINYINT) AS _wanted, {time} AS _time, "
        f"{place_sql(connection, log)} AS _place FROM {log.sql}) AS r "
        "JOIN people ON people.id = _user JOIN goods ON goods.id = _item"
    )
    if number is not None and workspace.fits(n_rows, EVENT_BYTES):
        query = f"SELECT people.number, goods.code, _wanted, {number}, _place FROM {joined}"
        dtypes = (torch.int32, torch.int32, torch.int8, torch.float64 if "DOUBLE" in number else torch.int64)
        rows = placed(connection.sql(query).to_arrow_reader(rows_at_once), n_rows, dtypes)
        return SortedRows(one_ahead(with_ties(in_order(*rows, n_users=n_users, rows_at_once=rows_at_once))))
    query = (
        "SELECT number, code, _wanted, CAST(coalesce("
        "_time = lag(_time) OVER () AND number = lag(number) OVER (), false) AS TINYINT) "
        "FROM (SELECT CAST(number AS BIGINT) AS number, goods.code, _wanted, _time "
        f"FROM {joined} ORDER BY number, _time, _place)"
    )
    return SortedRows(parts_of_stream(connection.sql(query).to_arrow_reader(rows_at_once), lambda _: None))


def time_as_number(time: str, kind: str) -> str | None:
    """SQL of a time as int64 or float64 in the same order; None where it is neither."""
    if kind in ("FLOAT", "DOUBLE"):
        return f"CAST({time} AS DOUBLE)"
    if kind in WHOLE:
        return f"CAST({time} AS BIGINT)"
    if kind in MOMENTS:  # infinite ones have no number
        most = 2**63 - 1
        return f"coalesce(epoch_us({time}), CASE WHEN {time} > '2000-01-01' THEN {most} ELSE -{most} END)"
    return None


def in_order(
    users: Tensor, items: Tensor, wanted: Tensor, times: Tensor, *, n_users: int, rows_at_once: int
) -> Iterator[tuple[int, list[Tensor]]]:
    """Events of whole users in the order of time; equal times as they stand."""
    columns = [items, wanted, times]
    bits = max(1, times.shape[0] - 1).bit_length()
    if not bool((times[1:] >= times[:-1]).all()):
        order = stable_order(times, bits)
        users, *columns = (column[order] for column in (users, *columns))
    keys = users.long().bitwise_left_shift_(bits).bitwise_or_(torch.arange(users.shape[0]))
    return parts_of_keys(sort_column(keys), bits, columns, (0, n_users), rows_at_once)


def stable_order(times: Tensor, bits: int) -> Tensor:
    """The places of times in ascending order; `bits` hold a place."""
    if not times.is_floating_point():
        low, high = (int(end) for end in times.aminmax())
        if (high - low).bit_length() + bits < 63:  # a sort of whole numbers takes a tenth of a stable one
            keys = ((times - low) << bits).bitwise_or_(torch.arange(times.shape[0]))
            return sort_column(keys).bitwise_and_((1 << bits) - 1)
    return torch.sort(times, stable=True).indices


def with_ties(parts: Iterator[tuple[int, list[Tensor]]]) -> Iterator[tuple[int, list[Tensor]]]:
    """The last column, the time, as whether it is that of the event before of the same user."""
    for below, (users, items, wanted, times) in parts:
        tied = torch.zeros(users.shape, dtype=torch.bool)
        tied[1:] = (times[1:] == times[:-1]) & (users[1:] == users[:-1])
        yield below, [users, items, wanted, tied]


def whole_users(rows: SortedRows, n_users: int) -> Iterator[tuple[int, int, list[Tensor]]]:
    """The first user, the one after the last, and all of their rows."""
    at = 0
    while at < n_users:
        end = min(rows.complete_below(at), n_users)
        columns = rows.take(end)
        if columns:
            yield at, end, columns
        at = end
