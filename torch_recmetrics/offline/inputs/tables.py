"""The tables of one evaluation: rows of lists and of what is relevant, by the numbers of users and items."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from torch_recmetrics.core.ranking.ranking import Labels
from torch_recmetrics.offline.inputs.batches import BATCH_ROWS, SortedRows
from torch_recmetrics.offline.inputs.columns import (
    Column,
    Fault,
    beyond_floats,
    checked_rows,
    first_again,
    first_row,
    holds_numbers,
    id_as,
    need_columns,
    need_different,
    number_column,
    number_of,
    type_in_words,
)
from torch_recmetrics.offline.inputs.sources import FLOATS, TEXT, InputError, Source, format_of, quoted
from torch_recmetrics.offline.inputs.workspace import Ids, Workspace, connect
from torch_recmetrics.users.extras import needed
from torch_recmetrics.users.user_values import NUMBERING, current_versions

UNORDERED = "1"  # of a source whose rows have no order
RELEVANCE_NAMES = ("relevance", "rating", "label")  # of columns that are taken for what they say
# What columns of numbers are -> what a number must be, and SQL of whether a finite one is not; ``{0}`` is the number.
RULES = {
    "score": ("a finite number", "false"),
    "rank": ("a whole number >= 0, the best first", "{0} < 0 OR {0} <> floor({0})"),
    "relevance": ("a finite number >= 0", "{0} < 0"),
    "weight": ("a finite number", "false"),
    "propensity": ("in (0, 1], the chance that an item is observed", "{0} < 0 OR {0} > 1"),
}
# Role -> what its columns are beside those of lists and truth; what is last may be the only column beside the ids.
COLUMNS = {
    "seen": ("user", "item"),
    "slices": ("user", "slice"),
    "train": ("user", "item"),
    "items": ("item",),
    "groups": ("item", "group"),
    "propensities": ("item", "propensity"),
}


class Tables:
    """The sources of one evaluation, and the queries of them.

    Args:
        workspace: the database.
        given: role -> files or frame, None where it was not given.
        names: what a column is -> its name: user, item, and score, rank, relevance and weight where they are named.
        format: of the files of lists and of the truth.
        seen_action: ``"remove"`` takes seen pairs out of the lists, ``"miss"`` out of the truth.

    Attributes:
        lists_ordered: whether equal scores stand in the order of the rows; else in that of the items.
        n_users: U, the users of the truth, numbered in the order of their ids.
        n_items: N, where items are numbered; None where they go by their own ids, integers from 0 on.
    """

    def __init__(
        self,
        workspace: Workspace,
        given: Mapping[str, Any],
        names: Mapping[str, Any],
        format: str | None,  # noqa: A002
        seen_action: str = "remove",
    ) -> None:
        pair = {key: names[key] for key in ("user", "item")}
        need_different(pair)
        self.workspace, self.names = workspace, names
        self.n_users = 0
        self.n_items: int | None = None
        self.lists_ordered = True
        known_names = (*RULES, *RELEVANCE_NAMES, "slice", "group", *names.values())
        read = {name.lower() for name in known_names if isinstance(name, str)}
        self.lists = workspace.open("recommendations", given.get("recommendations"), format, read)
        self.truth = workspace.open("truth", given.get("truth"), format, read)
        known = {role: workspace.open(role, given[role], None, read) for role in COLUMNS if given.get(role) is not None}
        self.seen, self.slices, self.train, self.items, self.groups, self.propensities = map(known.get, COLUMNS)
        # what seen pairs are taken out of
        self.hidden = None if self.seen is None else self.lists if seen_action == "remove" else self.truth
        of_truth, files = {key: names.get(key) for key in ("relevance", "weight")}, self.truth.files
        unnamed = of_truth["relevance"] is None and "relevance" in self.truth.types
        if unnamed and files and format_of("truth", files, format) == "trec":
            of_truth["relevance"] = "relevance"
        # role -> {what it is: its column}
        self.columns: dict[str, dict[str, str]] = {
            "recommendations": pair | self._order_of_lists(names),
            "truth": pair | {key: column for key, column in of_truth.items() if column is not None},
        }
        for role, source in known.items():
            keys = COLUMNS[role]
            self.columns[role] = {
                key: pair[key] if key in pair else self._named_column(source, key, pair[keys[0]]) for key in keys
            }
        for source in workspace.sources:
            need_columns(source, self.columns[source.role])
            for key, column in self.columns[source.role].items():
                if key in RULES and not holds_numbers(source, column):
                    kind = type_in_words(source.types[column])
                    raise InputError(f"{source}: column {column!r} must be numbers, its type is {kind}")
        self.user_ids = Ids(workspace, self.sources_with("user"))
        self.item_ids = Ids(workspace, self.sources_with("item"))

    def refuse_faults(self, sources: Sequence[Source]) -> None:
        """InputError for a row with a gap, or with a number that breaks its rule, and for two propensities of an item.

        Lists, truth and seen pairs may be without a row here, other tables may not.

        Args:
            sources: whose rows are looked at. Of the others, which Spark's workers read, only whole numbers beyond the
                floats are refused: they would be rounded before.
        """
        for source in self.workspace.sources:
            own = self.columns[source.role]
            if source in sources:
                columns = [self._read(source, key) for key in own]
            else:
                columns = [Column(own[key], beyond_floats(source, own[key])) for key in own if key in RULES]
            if any(column.faults for column in columns):
                may_be_empty = source.role in ("recommendations", "truth", "seen")
                checked_rows(self.workspace, source, *columns, may_be_empty=may_be_empty)
        if self.propensities is not None:
            self.refuse_twice(self.propensities, ("item",))

    def _read(self, source: Source, key: str) -> Column:
        """A column by what it is, and what no row may have there."""
        column = self.columns[source.role][key]
        if key in RULES:
            return number_column(source, column, *RULES[key])
        gap = f"{quoted(column)} IS NULL"
        if source.types[column] in FLOATS:  # an id has no NaN any more
            gap += f" OR isnan({quoted(column)})"
        return Column(quoted(column), (Fault(column, gap, "a value in every row", "have"),))

    def sources_with(self, key: str) -> list[tuple[Source, str]]:
        """Those that have such a column ("user", "item", ...), each with its name."""
        having = [source for source in self.workspace.sources if key in self.columns[source.role]]
        return [(source, self.columns[source.role][key]) for source in having]

    def _order_of_lists(self, names: Mapping[str, Any]) -> dict[str, str]:
        """The column that orders the lists."""
        given = {key: names[key] for key in ("score", "rank") if names.get(key) is not None}
        if len(given) > 1:
            raise ValueError("`score` and `rank` must not be given together: one of them orders a list")
        for key in ("score", "rank"):
            if key in (given or self.lists.types):
                return {key: given.get(key, key)}
        raise InputError(
            f"{self.lists} has no column 'score' or 'rank' (it has {', '.join(self.lists.types)}): say with `score` or "
            "`rank` which column orders the lists"
        )

    @staticmethod
    def _named_column(source: Source, name: str, ids: str) -> str:
        """The column of this name, or the only one beside the ids."""
        others = [column for column in source.types if column != ids]
        if name in others:
            return name
        if len(others) != 1:
            raise InputError(
                f"{source} must have a column {name!r}, or one column beside {ids!r}: it has {', '.join(source.types)}"
            )
        return others[0]

    # -- SQL ----------------------------------------------------------------------------------------------------------

    def value(self, source: Source, key: str) -> str:
        """SQL of a column by what it is: an id, a number, or the name of a slice or a group."""
        if key in ("user", "item"):
            return (self.user_ids if key == "user" else self.item_ids).of(source)
        column = self.columns[source.role][key]
        if key in RULES:
            return number_of(source, column)
        name, kind = quoted(column), source.types[column]
        return f"CAST({name} AS {TEXT})" if kind in FLOATS else id_as(name, kind, TEXT)  # not only whole numbers

    def pairs(self, source: Source, *more: str) -> str:
        """SELECT of the ids of a source, of further columns by what they are, and of the order of its rows."""
        picked = [f"{self.value(source, key)} AS {quoted('_' + key)}" for key in ("user", "item", *more)]
        return f"SELECT {', '.join([*picked, source.row])} FROM {source.sql}"

    def without_seen(self, source: Source) -> str:
        """SQL that leaves seen pairs out of the rows ``r`` of a source, "" where they stay in."""
        if self.seen is None or source is not self.hidden:
            return ""
        return f"ANTI JOIN ({self.pairs(self.seen)}) AS s ON s._user = r._user AND s._item = r._item"

    # -- numbers for ids ----------------------------------------------------------------------------------------------

    def number_users(self) -> None:
        """Make the table ``users``: those of the truth, numbered in the order of their ids."""
        self.n_users = self.workspace.number_users(f"SELECT {self.user_ids.of(self.truth)} AS id FROM {self.truth.sql}")

    def number_items(self, *, counts_training: bool = False) -> None:
        """Make the table ``items`` where items cannot go by their own ids.

        Counts of the training data are of the items that are met, so these are numbered where `counts_training`, and
        where items have groups or propensities. Those with propensities come first: their numbers are the same whatever
        else is recommended.
        """
        work = self.workspace
        having = [source for source, _ in self.sources_with("item") if source is not self.seen]
        of_met_items = self.groups or self.propensities or (counts_training and self.train)
        if self.items is None and self.item_ids.kind == "BIGINT" and not of_met_items:
            lowest = [work.one(f"SELECT min({self.item_ids.of(source)}) FROM {source.sql}")[0] for source in having]
            if all(low is None or low >= 0 for low in lowest):
                return
        if self.items is None:
            own = [
                f"SELECT {self.item_ids.of(source)} AS id, {int(self.propensities not in (None, source))} AS later "
                f"FROM {source.sql}"
                for source in having
            ]
            every = " UNION ALL ".join(own)
            rows = f"SELECT id, (min(later), id) AS place FROM ({every}) WHERE id IS NOT NULL GROUP BY id"
        else:
            item = self.item_ids.of(self.items)
            rows = f"SELECT {item} AS id, ({self.items.row}, {item}) AS place FROM {self.items.sql}"
        work.table("items", f"SELECT CAST(row_number() OVER (ORDER BY place) - 1 AS BIGINT) AS i, id FROM ({rows})")
        self.n_items = work.size("items")
        if self.items is not None:
            self.refuse_twice(self.items, ("item",))
            for source in (self.lists, self.truth) if work.session is None else ():
                self.refuse_unknown(source)

    def take_items(self, ids: Any) -> None:
        """Make the table ``items`` of an Arrow table of ids in the order of their numbers."""
        self.workspace.connection.register("known_items", ids)
        self.workspace.table("items", "SELECT row_number() OVER () - 1 AS i, id FROM known_items")
        self.n_items = ids.num_rows

    def why_renumbered(self) -> str:
        """Why items go by numbers that are neither their ids nor their rows in `items`; "" where they do not."""
        if self.items is not None:
            unordered = self.items.row == UNORDERED
            return f"the rows of {self.items} have no order (name it as `order`)" if unordered else ""
        if self.n_items is None:
            return ""
        if self.item_ids.kind != "BIGINT":
            return f"an item is called {str(self.workspace.one('SELECT min(id) FROM items')[0])!r}"
        lowest, moved = self.workspace.one("SELECT min(id), bool_or(i <> id) FROM items")
        if lowest < 0:
            return f"an item is called {lowest}"
        told = "other metrics number them anew, to count popularity in `train` or to read `groups` or `propensities`"
        return told if moved else ""

    def gives_another_number(self, item: int) -> bool:
        """Whether the item of this id has another number, or another item has it as its number."""
        own = f"(CAST(id AS VARCHAR) = '{item}') <> (i = {item})"
        return self.n_items is not None and bool(self.workspace.rows(f"SELECT 1 FROM items WHERE {own} LIMIT 1"))

    def users_are_renumbered(self) -> bool:
        """Whether the numbers of the users are not their ids."""
        return self.user_ids.kind != "BIGINT" or bool(self.workspace.rows("SELECT 1 FROM users WHERE u <> id LIMIT 1"))

    def ids_of(self, table: Literal["users", "items"]) -> Any:
        """The ids of the users or of the items, an Arrow array by their number; UUIDs as text."""
        kind = (self.user_ids if table == "users" else self.item_ids).kind
        own = "CAST(id AS VARCHAR)" if kind == "UUID" else "id"
        return self.workspace.arrow(f"SELECT {own} AS id FROM {table} ORDER BY {table[0]}")["id"].combine_chunks()

    def ids_of_items(self, numbers: Tensor) -> Any:
        """Lists of items by their ids, an Arrow array of lists, from (U, K) numbers padded with -1; UUIDs as text."""
        pyarrow, known = needed("pyarrow", "ids of items"), numbers >= 0
        ids = pyarrow.array(numbers[known].numpy())
        if self.n_items is not None:
            ids = self.ids_of("items").take(ids)
        ends = torch.cat([torch.zeros(1, dtype=torch.int64), known.sum(1).cumsum(0)]).to(torch.int32)
        return pyarrow.ListArray.from_arrays(ends.numpy(), ids)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def sorted_rows(self, source: Source, share: tuple[int, int]) -> SortedRows:
        """Rows of lists or of the truth of a part of the users: user, item, and score, rank or relevance.

        Those of a user stand by rank, scores in the order of the source, others by item.
        """
        joins, item = "JOIN users ON users.id = r._user", "r._item"
        if self.n_items is not None:
            joins, item = f"{joins} JOIN items ON items.id = r._item", "items.i"
        keys = [key for key in ("score", "rank", "relevance") if key in self.columns[source.role]]
        in_order = keys == ["score"] and self.lists_ordered
        order = f"r.{source.row}" if in_order else "3" if keys == ["rank"] else "2"
        sql = (
            f"SELECT {', '.join(['users.u', item, *(f'r._{key}' for key in keys)])} FROM ({self.pairs(source, *keys)}) "
            f"AS r {self.without_seen(source)} {joins} WHERE users.u >= {share[0]} AND users.u < {share[1]} "
            f"ORDER BY users.u, {order}"
        )
        return SortedRows(self.workspace.stream(sql, BATCH_ROWS))

    def weights(self) -> Tensor | None:
        """(U,) the weight of each user; None where all are 1."""
        if "weight" not in self.columns["truth"]:
            return None
        weight, ids = self.value(self.truth, "weight"), self.user_ids.of(self.truth)
        each = f"SELECT {ids} AS id, min({weight}) AS low, max({weight}) AS high FROM {self.truth.sql} GROUP BY 1"
        wrong = f"SELECT id, low, high FROM ({each}) WHERE low <> high OR low < 0 ORDER BY id LIMIT 1"
        for user, low, high in self.workspace.rows(wrong):
            raise InputError(
                f"{self.truth}: column {self.columns['truth']['weight']!r} must be a finite number >= 0, the same in "
                f"all rows of a user, got {low} to {high} for user {user!r}"
            )
        return self.workspace.column(f"SELECT CAST(low AS DOUBLE) AS w FROM ({each}) JOIN users USING (id) ORDER BY u")

    def named(self, source: Source, name: str, ids: Ids, numbers: str) -> tuple[list[str], Tensor, Tensor]:
        """The names in a column, and (M,) users or items with (M,) the places of their names: each may have several.

        Args:
            source: whose column it is.
            name: what the column is.
            ids: of users or of items.
            numbers: the table of their numbers, ``"users"`` or ``"items"``.
        """
        pairs = f"SELECT DISTINCT {ids.of(source)} AS id, {self.value(source, name)} AS name FROM {source.sql}"
        self.workspace.table(
            "named",
            f"SELECT {numbers[0]} AS number, name, dense_rank() OVER (ORDER BY name) - 1 AS place FROM ({pairs}) "
            f"JOIN {numbers} USING (id) WHERE name IS NOT NULL",
        )
        names = [row[0] for row in self.workspace.rows("SELECT DISTINCT name, place FROM named ORDER BY place")]
        number, place = (
            self.workspace.column(f"SELECT {column} FROM named ORDER BY number, place")
            for column in ("number", "place")
        )
        return names, number, place

    def groups_of_items(self, source: Source) -> tuple[list[str], Tensor]:
        """The names of the groups, and the group of each item, (N,), or (N, G) bool where one is in several."""
        known = self.items or self.lists
        both = [f"(SELECT {self.item_ids.of(own)} FROM {own.sql})" for own in (source, known)]
        if not self.workspace.size(f"({' INTERSECT '.join(both)})"):
            raise InputError(f"{source}: no item of it is in {known}: are the ids of the same kind?")
        names, items, groups = self.named(source, "group", self.item_ids, "items")
        n_items = self.n_items or 0
        if torch.unique(items).shape[0] == items.shape[0]:
            return names, torch.full((n_items,), -1).index_copy_(0, items, groups)
        table = torch.zeros((n_items, len(names)), dtype=torch.bool)
        table[items, groups] = True
        return names, table

    def propensities_of_items(self, source: Source) -> Tensor:
        """(N,) float64 the chance that each item is observed, 0 where nobody said; of the first items that have one."""
        own = f"SELECT {self.item_ids.of(source)} AS id, {self.value(source, 'propensity')} AS p FROM {source.sql}"
        some = "LEFT" if self.items is not None else ""
        return self.workspace.column(
            f"SELECT CAST(coalesce(p, 0) AS DOUBLE) AS p FROM items {some} JOIN ({own}) USING (id) ORDER BY i"
        )

    def refuse_without_propensity(self, labels: Labels) -> None:
        """InputError for the first relevant item whose propensity is 0 or not known."""
        if (source := self.propensities) is None:
            return
        own = f"SELECT {self.item_ids.of(source)} FROM {source.sql} WHERE {self.value(source, 'propensity')} > 0"
        found = self.workspace.rows(
            f"SELECT {self.truth.row}, CAST(_item AS VARCHAR) FROM ({self.relevant_pairs(labels)}) "
            f"WHERE _item NOT IN ({own}) ORDER BY 1 LIMIT 1"
        )
        for row, item in found:
            raise InputError(
                f"{self.truth.place(row)}: item {item!r} is relevant, and has no propensity above 0 in {source}: give "
                "it one, or leave the row out"
            )

    def item_counts(self, train: Source) -> Tensor:
        """(N,) how many users took each item in training."""
        user, item = self.user_ids.of(train), self.item_ids.of(train)
        taken = f"SELECT {item} AS id, count(DISTINCT {user}) AS n FROM {train.sql} GROUP BY 1"
        return self.workspace.column(f"SELECT coalesce(n, 0) AS n FROM items LEFT JOIN ({taken}) USING (id) ORDER BY i")

    def train_users(self, train: Source) -> int:
        """How many users there are in training."""
        return self.workspace.size(f"(SELECT DISTINCT {self.user_ids.of(train)} AS id FROM {train.sql})")

    # -- counts -------------------------------------------------------------------------------------------------------

    def counted_lists(self) -> dict[str, int]:
        """Rows of lists, and lists of users that the truth has not."""
        # Few rows are of nobody in the truth; only those are grouped.
        foreign_rows, foreign = self.workspace.one(
            "SELECT count(*), count(DISTINCT id) FROM "
            f"(SELECT {self.user_ids.of(self.lists)} AS id FROM {self.lists.sql}) ANTI JOIN users USING (id)"
        )
        rows = self.workspace.size(self.lists.sql)
        return {"lists_without_truth": foreign, "rows": rows, "rows_without_truth": foreign_rows}

    def refuse_nothing(self, counts: Mapping[str, int]) -> None:
        """InputError for a truth or lists without a row, and for lists of nobody in the truth."""
        if not counts["users"]:
            raise InputError(f"{self.truth}: there is no row with a user")
        if not counts["rows"]:
            raise InputError(f"{self.lists}: there is no row")
        if counts["rows"] == counts["rows_without_truth"]:  # values would be those of a model without hits
            one, other = self.one_of_each(self.user_ids)
            raise InputError(
                f"{self.lists} has no list for any of the {counts['users']} users of the truth: it and {self.truth} "
                f"have no user in common, such as users {str(one)!r} and {str(other)!r}; look whether `user` is the "
                "right column of both, and whether their ids are of the same kind"
            )

    def digest_of(self, found: Mapping[str, tuple[int, int]]) -> str:
        """What tells this truth from others, whatever the files and the order of their rows: a hash of what is read of
        them, from :meth:`hashes`. DuckDB's are those of its version."""
        version, digests = ".".join(needed("duckdb", "a digest").__version__.split(".")[:2]), []
        for role, (rows, total) in found.items():
            keys = [key for key in ("relevance", "weight") if key in self.columns[role]]
            words = " ".join(map(str, [rows, total, *keys]))
            own = f"rows of duckdb v{version}:{hashlib.sha256(words.encode()).hexdigest()}"
            digests.append(own if role == "truth" else f"seen={own}")
        if self.seen is not None:
            digests.append(f"seen_action={'remove' if self.hidden is self.lists else 'miss'}")
        return "; ".join(digests)

    def hashes(self) -> dict[str, tuple[int, int]]:
        """Of the truth, and of seen pairs: how many rows there are, and the sum of their hashes."""
        found = {}
        for source in filter(None, (self.truth, self.seen)):
            keys = [key for key in ("relevance", "weight") if key in self.columns[source.role]]
            values = [f"CAST({self.value(source, key)} AS VARCHAR)" for key in ("user", "item")]
            values += [f"CAST({self.value(source, key)} AS DOUBLE)" for key in keys]
            hashed = f"coalesce(sum(CAST(hash({', '.join(values)}) AS HUGEINT)), 0)"
            found[source.role] = self.workspace.one(f"SELECT count(*), {hashed} FROM {source.sql}")
        return found

    def relevant_pairs(self, labels: Labels) -> str:
        """SELECT of the rows of the truth that metrics take for relevant, seen or not: its pair, and its place."""
        key = ("relevance",) if "relevance" in self.columns["truth"] else ()
        wanted = "true" if labels.ignore_index is None else f"CAST(_item AS VARCHAR) <> '{labels.ignore_index}'"
        if key:
            wanted += " AND _relevance " + ("> 0" if labels.min_relevance is None else f">= {labels.min_relevance!r}")
        return f"SELECT _user, _item, {self.truth.row} FROM ({self.pairs(self.truth, *key)}) WHERE {wanted}"

    def one_of_each(self, ids: Ids) -> list[Any]:
        """An id of the lists and one of the truth."""
        both = (self.lists, self.truth)
        return [self.workspace.one(f"SELECT min({ids.of(source)}) FROM {source.sql}")[0] for source in both]

    def count_overlap(self, train: Source, *, allowed: bool) -> int:
        """How many pairs of user and item stand in training and in the truth; an error where they must not."""
        pairs = [f"SELECT _user, _item FROM ({self.pairs(source)})" for source in (train, self.truth)]
        both = f"({pairs[0]} INTERSECT {pairs[1]})"
        number = self.workspace.size(both)
        if number and not allowed:
            user, item = self.workspace.one(f"SELECT * FROM {both} ORDER BY ALL LIMIT 1")
            raise InputError(
                f"{self.truth}: {number:,} pairs of user and item stand in {train} too, such as user "
                f"{str(user)!r} and item {str(item)!r}: take "
                "them out of one of the two, or allow it with train_overlap='keep'"
            )
        return number

    # -- what is wrong ------------------------------------------------------------------------------------------------

    def fault(self, error: ValueError, first: int) -> ValueError:
        """What metrics refused of a batch whose users begin with this number, by its row in the file."""
        for source in (self.lists, self.truth):
            self.refuse_twice(source, ("user", "item"))
        if "rank" in self.columns["recommendations"]:
            self.refuse_twice(self.lists, ("user", "rank"))
        return self._fault_of_user(str(error), first) or error

    def _fault_of_user(self, text: str, first: int) -> InputError | None:
        """What a metric refused of one user; None for what is not about a row."""
        found = re.search(r"(?:, got (?P<value>\S+) in)? row (?P<row>\d+)", text)
        if found is None:
            return None
        user = f"(SELECT id FROM users WHERE u = {first + int(found['row'])})"
        unknown = "ids must be below" in text
        source = self.lists if unknown or text.startswith("users must have at most") else self.truth
        wrong, order = f"{self.user_ids.of(source)} = {user}", source.row
        if unknown:
            number = found["value"]
            item = number if self.n_items is None else f"(SELECT id FROM items WHERE i = {number})"
            wrong += f" AND {self.item_ids.of(source)} = {item}"
        elif text.startswith("relevance") and "relevance" in self.columns["truth"]:
            relevance, told = self.value(source, "relevance"), found["value"]  # rounded, or not told
            order = (f"abs({relevance} - {told}), " if told else f"{relevance} IN (0, 1), ") + order
        elif source is self.truth and not (text.startswith(("`weights`", "every user")) or "one relevant item" in text):
            return None
        rows = self.workspace.rows(f"SELECT {source.row} FROM {source.sql} WHERE {wrong} ORDER BY {order} LIMIT 1")
        (shown,) = self.workspace.one(f"SELECT CAST({user} AS VARCHAR)")
        words = text.replace(f" in row {found['row']}", "").replace(f"row {found['row']} ", f"user {shown!r} ")
        return InputError(f"{source.place(rows[0][0])}: {words}") if rows else None

    def refuse_unknown(self, source: Source) -> None:
        """InputError for an item that is not in the catalogue."""
        unknown = f"{self.value(source, 'item')} NOT IN (SELECT id FROM items)"
        if found := first_row(self.workspace, source, self.columns[source.role]["item"], unknown):
            raise InputError(f"{found[0]}: item {found[1]!r} is not in {self.items}")

    def refuse_twice(self, source: Source, keys: tuple[str, ...]) -> None:
        """InputError for what stands in a table a second time."""
        found = first_again(self.workspace, source, *(self.value(source, key) for key in keys))
        if found is None:
            return
        place, (one, *others) = found
        if not others:
            raise InputError(f"{place}: each item must stand there once, got {one!r} again")
        what = f"item {str(others[0])!r}" if keys[1] == "item" else f"rank {int(others[0])}"
        raise InputError(f"{place}: user {str(one)!r} has {what} a second time: it must stand there once")


def refuse_unordered(source: Source, ties: Collection[str]) -> None:
    """ValueError for a source whose rows have no order, where equal scores go by it."""
    if "stable" in ties and source.row == UNORDERED:
        raise ValueError(
            f'`ties` must not be "stable": the rows of {source} have no order, give the column that orders them as '
            "`order`"
        )


def versions_of_ids(work: Any, ids: Any) -> dict[str, str]:
    """The versions of values of users who are numbered in the order of an Arrow array of ids, with a digest of it."""
    connection = connect(threads=1) if work.session is not None else work.connection
    one = "md5_number(CAST(row_number() OVER () - 1 AS VARCHAR) || ' ' || CAST(id AS VARCHAR)) AS one"
    ids = connection.from_arrow(needed("pyarrow", "the numbers of users").table({"id": ids}))
    ((digest,),) = ids.query("ids", f"SELECT bit_xor(one) FROM (SELECT {one} FROM ids)").fetchall()
    return current_versions() | {NUMBERING: str(digest)}
