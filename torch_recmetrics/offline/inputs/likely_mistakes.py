"""What is almost surely a mistake in the tables of an evaluation, though it breaks no rule: it is warned of."""

from __future__ import annotations

from torch_recmetrics.core.ranking.ranking import Labels
from torch_recmetrics.offline.inputs.columns import holds_numbers
from torch_recmetrics.offline.inputs.sources import Source, quoted
from torch_recmetrics.offline.inputs.tables import RELEVANCE_NAMES, Tables
from torch_recmetrics.offline.inputs.workspace import Ids
from torch_recmetrics.state.metric import warn


def warned_of_foreign_items(tables: Tables) -> bool:
    """Whether no recommended item is relevant to anybody, with a warning: the ids may not be of one kind then."""
    known = [f"SELECT {tables.item_ids.of(source)} FROM {source.sql}" for source in (tables.lists, tables.truth)]
    foreign = not tables.workspace.size(f"(({known[0]}) INTERSECT ({known[1]}))")
    if foreign:
        one, other = tables.one_of_each(tables.item_ids)
        warn(
            f"{tables.lists} and {tables.truth} have no item in common, such as items {str(one)!r} and {str(other)!r}: "
            "are the ids of the same kind, and the columns the right ones?"
        )
    return foreign


def warned_of_kinds_of_ids(tables: Tables) -> bool:
    """Whether ids are text in one table and integers in another, and some of them the same number, with a warning.

    They are compared as text, so '007' and 7 never meet.
    """
    warned = [
        any(_warned_of_kinds(tables, ids, column, source) for source, column in tables.sources_with(key))
        for key, ids in (("user", tables.user_ids), ("item", tables.item_ids))
    ]
    return any(warned)


def _warned_of_kinds(tables: Tables, ids: Ids, column: str, source: Source) -> bool:
    """Whether some ids of a source and of the truth are one number, text in one of the two, with a warning."""
    texts, integers = sorted((source, tables.truth), key=ids.kind_of, reverse=True)
    if (ids.kind_of(texts), ids.kind_of(integers)) != ("VARCHAR", "BIGINT"):
        return False
    own = [f"SELECT DISTINCT {ids.of(source)} AS id FROM {source.sql}" for source in (texts, integers)]
    lost, one, other = tables.workspace.one(
        f"WITH texts AS ({own[0]}), integers AS ({own[1]}) SELECT count(*), min(t.id), arg_min(n.id, t.id) FROM "
        "(SELECT id, TRY_CAST(id AS BIGINT) AS number FROM texts ANTI JOIN integers USING (id) "
        "WHERE regexp_matches(id, '^[+-]?[0-9]+$')) AS t JOIN "
        "(SELECT id, CAST(id AS BIGINT) AS number FROM integers ANTI JOIN texts USING (id)) AS n USING (number)"
    )
    if lost:
        warn(
            f"ids must be of one kind in all tables: column {column!r} is text in {texts} and integers in "
            f"{integers}. They are compared as text, so the same number is not the same id, such as {one!r} and "
            f"{other} ({lost:,} in all): write both as integers, or both as text"
        )
    return bool(lost)


def warn_of_foreign_seen(tables: Tables) -> None:
    """A warning where nobody of the truth has seen anything: the ids of `seen` may be of another kind."""
    if tables.seen is None or not tables.workspace.size(tables.seen.sql):
        return
    seen, users = (f"SELECT {tables.user_ids.of(own)} AS id FROM {own.sql}" for own in (tables.seen, tables.truth))
    if not tables.workspace.rows(f"SELECT 1 FROM ({seen}) AS s SEMI JOIN ({users}) AS t USING (id) LIMIT 1"):
        warn(
            f"{tables.seen} and {tables.truth} have no user in common, so nothing is taken out: are the ids of the "
            "same kind, and the columns the right ones?"
        )


def warn_of_hidden_truth(tables: Tables, labels: Labels) -> None:
    """A warning where seen pairs are all that is relevant, as where `seen` is the truth."""
    if tables.seen is None:
        return
    relevant = tables.relevant_pairs(labels)
    for few in ("LIMIT 1000", ""):  # nearly always enough, and seen pairs are then only scanned
        left = f"FROM ({relevant} {few}) AS r ANTI JOIN ({tables.pairs(tables.seen)}) AS s USING (_user, _item)"
        if tables.workspace.rows(f"SELECT 1 {left} LIMIT 1"):
            return
    rows = tables.workspace.size(f"({relevant})")
    if rows:
        warn(
            f"{tables.seen} holds every relevant item of all users, all {rows:,} pairs of {tables.truth}, so nothing "
            "that is recommended can be a hit: give what users had before as `seen`, without the truth"
        )


def warn_of_missing_candidates(tables: Tables, labels: Labels) -> None:
    """A warning where lists lack most of the relevant items that they are said to have beside a sample of others."""
    relevant, listed = tables.relevant_pairs(labels), tables.pairs(tables.lists)
    of_users = f"SELECT * FROM ({relevant}) AS r SEMI JOIN ({listed}) AS own USING (_user)"
    missing = tables.workspace.size(f"({of_users} ANTI JOIN ({listed}) AS l USING (_user, _item))")
    rows = tables.workspace.size(f"({of_users})") if missing else 0
    if 2 * missing > rows:
        warn(
            f"{missing:,} of {rows:,} relevant items of users with a list are no candidates in {tables.lists}: with "
            "`sampled_from` a list has the scores of all its relevant items and of a sample of the others, not of the "
            "best; those that it lacks count as not found"
        )


def warn_of_one_file(tables: Tables) -> None:
    """A warning where the truth is what was recommended."""
    if tables.truth.files and tables.truth.files == tables.lists.files:
        warn(f"{tables.lists} and {tables.truth} are one file, so all that is recommended is relevant")


def warn_of_unread_relevance(tables: Tables) -> None:
    """A warning where the truth has zeros in what looks like relevance, and every row counts as relevant."""
    if "relevance" in tables.columns["truth"]:
        return
    for column in tables.truth.types:
        named = column.lower() in RELEVANCE_NAMES and column not in tables.columns["truth"].values()
        zero = f"TRY_CAST({quoted(column)} AS DOUBLE) = 0"
        if (
            named
            and holds_numbers(tables.truth, column)
            and tables.workspace.rows(f"SELECT 1 FROM {tables.truth.sql} WHERE {zero} LIMIT 1")
        ):
            warn(
                f"`relevance` is not given, so every row of {tables.truth} counts as relevant, also those with 0 in "
                f"its column {column!r}: give relevance={column!r}, or leave the column out where this is meant"
            )
            return


def warn_of_short_lists(tables: Tables, longest: int, largest_cutoff: int) -> None:
    """A warning where no list is as long as the largest cutoff, unless it is the whole catalogue."""
    whole = tables.items is not None and tables.n_items is not None and longest >= tables.n_items
    if longest < largest_cutoff and not whole:
        seen = " without its pairs of `seen`" if tables.hidden is tables.lists else ""
        hint = f"longer lists, or cutoffs up to {longest}" if longest else "lists of items that are not in `seen`"
        warn(
            f"the cutoff {largest_cutoff} is beyond the lists: the longest of {tables.lists} is {longest} long"
            f"{seen}, so nothing can be found beyond: give {hint}"
        )
