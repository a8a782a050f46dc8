"""The value of every user of one run, with what was measured: the evidence that two runs are compared by."""

from __future__ import annotations

import functools
import importlib.metadata
import itertools
import json
import math
import os
import platform
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.users.extras import needed, whole_file

FORMAT = b"torch_recmetrics.user_values"
FORMAT_VERSION = 2  # 1 without lists
ID, WEIGHT, USER, LISTS = "sample_id", "weight", "user_id", "list"  # columns of the file beside the metrics
NUMBERING = "users"  # among the versions: a digest of what the numbers of the users stand for, where they stand for ids


@functools.cache  # the lookup reads files
def own_version() -> str:
    """The version of this package that is installed."""
    try:
        return importlib.metadata.version("torch-recmetrics")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def current_versions() -> dict[str, str]:
    """What a run is made with."""
    return {"torch_recmetrics": own_version(), "torch": str(torch.__version__), "python": platform.python_version()}


def vector(name: str, value: Any, length: int | None = None, each: str = "user") -> Tensor:
    """A 1-dim tensor on the CPU, with an entry for `each`; TypeError and ValueError name what is wrong."""
    tensor = check.plain_tensor(name, value)
    if not isinstance(tensor, Tensor):
        raise TypeError(f"`{name}` must be a tensor or a list of numbers, got {type(value).__name__}")
    if tensor.ndim != 1:
        shape = "(U,)" if each == "user" else "(n,)"
        raise ValueError(f"`{name}` must have shape {shape}, one entry for each {each}, got {tuple(tensor.shape)}")
    if length is not None and tensor.shape[0] != length:
        raise ValueError(f"`{name}` must have one entry for each of the {length} `sample_ids`, got {tensor.shape[0]}")
    return tensor.detach().cpu()


def numbers(name: str, value: Any, length: int | None = None, each: str = "user") -> Tensor:
    """(U,) float64."""
    tensor = vector(name, value, length, each)
    if tensor.is_complex() or tensor.is_quantized:
        raise TypeError(f"`{name}` must be real numbers, got {tensor.dtype}")
    return tensor.to(torch.float64)


def integers(name: str, value: Any, step: str) -> Tensor:
    """(U,) int64; `step` says what to do with other numbers."""
    tensor = vector(name, value)
    if tensor.numel() and tensor.dtype not in check.ID_DTYPES:
        raise TypeError(f"`{name}` must be integers, got {tensor.dtype}: {step}")
    return tensor.to(torch.int64)


class UserValues:
    """The value that every user has in every metric of one run.

    What comes back is in ascending order of ``sample_ids``, each user once, on the CPU. ``users["ndcg@10"]`` is a (U,)
    float64 tensor, nan where the value is undefined; iteration and ``keys()`` give the names, ``len()`` the number of
    users.

    Args:
        sample_ids: (U,) integers that name the users, the same in every run. A user may stand there more than once with
            the same values, as where a distributed sampler repeats rows.
        values: name -> (U,) numbers, nan where undefined.
        definitions: name -> one line that says what was computed, as ``metric.definition()`` gives it; the name itself
            where there is none. Only equal definitions are compared.
        weights: (U,) finite numbers >= 0; all 1 if left out.
        candidates: what was ranked: ``"full"``, ``"sampled(100)"``, or ``"scored(5000)"`` where nobody said whether so
            many columns are all items. Only equal candidates are compared, and a number of columns with ``"full"``.
        versions: name -> version of what the values were made with; by default what runs now.
        summaries: name -> (value, standard error) of metrics that are no means over users, such as coverage.
        user_ids: (U,) what the users are called elsewhere, where `sample_ids` only number them: integers of 64 bits, or
            text, which all other ids become. :func:`~torch_recmetrics.offline.evaluate` gives those of its files. They
            go into the file, to be joined with other tables; users are paired by `sample_ids`.
        hidden: whether items were hidden from users by `seen_ids` or a `mask`; None where nobody knows. A run that hid
            some is not compared with one that hid none.
        truth: a word for the data that the run was evaluated against, another one for other data; None where nobody
            knows. :func:`~torch_recmetrics.offline.evaluate` gives a digest of the rows that it read, in any order,
            whatever their files. Runs of two truths are compared with a warning.
        lists: what was recommended to each user, best first: (U, L) integers padded with -1, or a list of ids for each,
            integers >= 0 or text. :func:`~torch_recmetrics.compare.agreement` compares those of two runs.

    Raises:
        TypeError: for what is no vector of numbers, and `sample_ids` that are no integers.
        ValueError: for other lengths, values that are infinite, weights below 0, a user with two values or two ids, and
            two users with one of the `user_ids`.

    >>> users = UserValues([7, 3], {"ndcg@10": [0.5, 1.0]}, definitions={"ndcg@10": "NDCG(10)"}, candidates="full")
    >>> users
    UserValues(2 users, ndcg@10, candidates='full')
    >>> users.sample_ids, users["ndcg@10"]
    (tensor([3, 7]), tensor([1.0000, 0.5000], dtype=torch.float64))
    >>> users.mean("ndcg@10")
    0.75
    """

    def __init__(
        self,
        sample_ids: Tensor | list[int],
        values: Mapping[str, Tensor | list[float]],
        *,
        definitions: Mapping[str, str] | None = None,
        weights: Tensor | list[float] | None = None,
        candidates: str | None = None,
        versions: Mapping[str, str] | None = None,
        summaries: Mapping[str, tuple[float, float]] | None = None,
        user_ids: Sequence[Any] | None = None,
        truth: str | None = None,
        hidden: bool | None = None,
        lists: Tensor | Sequence[Sequence[Any]] | None = None,
    ) -> None:
        ids = integers("sample_ids", sample_ids, "number the users first")
        given: Any = values
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            raise TypeError("`values` must be a dict of names and vectors, {'ndcg@10': tensor}")
        if taken := {ID, WEIGHT, USER, LISTS} & set(values):
            raise ValueError(f"`values` must not have the name {min(taken)!r}: a column of the file is called that")
        columns = {name: numbers(f"values[{name!r}]", value, len(ids)) for name, value in values.items()}
        for name, column in columns.items():
            refuse_users(column.isinf(), ids, f"`values[{name!r}]` must be finite or nan", column)
        if weights is not None:
            columns[WEIGHT] = numbers("weights", weights, len(ids))
            wrong = ~((columns[WEIGHT] >= 0) & columns[WEIGHT].isfinite())
            refuse_users(wrong, ids, "`weights` must be finite and >= 0", columns[WEIGHT])
        self.definitions = lines_by_name(definitions, values)
        if candidates is not None and not isinstance(candidates, str):
            raise TypeError(f"`candidates` must be a word such as 'full' or 'sampled(100)', got {candidates!r}")
        if truth is not None and not isinstance(truth, str):
            raise TypeError(f"`truth` must be a word such as 'sha256:9f2c', got {truth!r}")
        if hidden is not None:
            check.check_flag("hidden", hidden)
        self.candidates, self.truth, self.hidden = candidates, truth, hidden
        self.versions = as_dict("versions", current_versions() if versions is None else versions, "{'torch': '2.9.0'}")
        self.summaries = checked_summaries(summaries, values)
        self.sample_ids, columns = once_each(ids, columns)
        self.user_ids = None if user_ids is None else named_users(ids, self.sample_ids, user_ids)
        self.lists = None if lists is None else checked_lists(ids, self.sample_ids, lists)
        self.weights: Tensor | None = columns.pop(WEIGHT, None)
        self._values = columns

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._values:
            hint = check.did_you_mean(name, self._values, f"there are {', '.join(self._values) or 'none'}")
            raise KeyError(f"no values of {name!r}: {hint}")
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def keys(self) -> KeysView[str]:
        """The names of the metrics."""
        return self._values.keys()

    def __len__(self) -> int:
        """U, the number of users."""
        return len(self.sample_ids)

    def __repr__(self) -> str:
        parts = [f"{len(self):,} user{'' if len(self) == 1 else 's'}", *self._values]
        parts += ["weights"] if self.weights is not None else []
        parts += [f"candidates={self.candidates!r}"] if self.candidates is not None else []
        return f"UserValues({', '.join(parts)})"

    def mean(self, name: str) -> float:
        """The weighted mean over the users whose value is defined, nan where there is none."""
        values = self[name]
        weights = torch.ones_like(values) if self.weights is None else self.weights
        known = ~values.isnan() & (weights > 0)
        return float((weights[known] * values[known]).sum() / weights[known].sum())

    def select(self, sample_ids: Tensor | list[int]) -> UserValues:
        """The same of some users, such as those of one country; the summaries are of all and are left out.

        Raises:
            TypeError: for what is no vector of integers, such as a mask.
            ValueError: for an id that there is not.

        >>> users = UserValues([7, 3, 5], {"mrr": [0.5, 1.0, 0.25]})
        >>> users.select([5, 7])["mrr"]
        tensor([0.2500, 0.5000], dtype=torch.float64)
        """
        ids = integers("sample_ids", sample_ids, "give the ids themselves, users.sample_ids[mask] for a mask")
        missing = ids[~torch.isin(ids, self.sample_ids)]
        if len(missing):
            raise ValueError(f"`sample_ids` must name users that there are, got {missing[0]}")
        chosen = torch.isin(self.sample_ids, ids)
        return UserValues(
            self.sample_ids[chosen],
            {name: column[chosen] for name, column in self._values.items()},
            definitions=self.definitions,
            weights=None if self.weights is None else self.weights[chosen],
            candidates=self.candidates,
            versions=self.versions,
            user_ids=None if self.user_ids is None else list(itertools.compress(self.user_ids, chosen.tolist())),
            truth=self.truth,
            hidden=self.hidden,
            lists=None if self.lists is None else list(itertools.compress(self.lists, chosen.tolist())),
        )

    def with_summaries(self, summaries: Mapping[str, Any]) -> UserValues:
        """The same with further summaries; one of a name that there is takes its place.

        Args:
            summaries: name -> (value, standard error), or what a ``UserBootstrap`` of one metric computes; what one of
                a collection computes is such a dict.

        Raises:
            TypeError, ValueError: as of the constructor.

        >>> users = UserValues([7, 3], {"mrr": [0.5, 1.0]}).with_summaries({"coverage@10": (0.31, 0.004)})
        >>> users.summaries
        {'coverage@10': (0.31, 0.004)}
        """
        return UserValues(
            self.sample_ids,
            self._values,
            definitions=self.definitions,
            weights=self.weights,
            candidates=self.candidates,
            versions=self.versions,
            summaries={**self.summaries, **checked_summaries(summaries, self._values)},
            user_ids=self.user_ids,
            truth=self.truth,
            hidden=self.hidden,
            lists=self.lists,
        )

    def with_lists(self, lists: Tensor | Sequence[Sequence[Any]]) -> UserValues:
        """The same with what was recommended to each user, in the order of ``sample_ids``; as of the constructor.

        >>> UserValues([7, 3], {"mrr": [0.5, 1.0]}).with_lists([[4, 2], [9]]).lists
        [[4, 2], [9]]
        """
        own = self.with_summaries({})
        own.lists = checked_lists(self.sample_ids, self.sample_ids, lists)
        return own

    def to_frame(self) -> Any:
        """A pandas frame: the names as columns (and ``weight``), ``sample_id`` as index; needs pandas."""
        pandas = needed("pandas", "UserValues.to_frame")
        columns = {**self._values, **({} if self.weights is None else {WEIGHT: self.weights})}
        index = pandas.Index(self.sample_ids.numpy().copy(), name=ID)
        return pandas.DataFrame({name: column.numpy().copy() for name, column in columns.items()}, index=index)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a Parquet file that :meth:`load` and any other reader of Parquet understands; needs pyarrow.

        The columns are ``sample_id``, ``user_id`` (if there are `user_ids`), ``list`` (if there are lists), ``weight``
        (if there are weights) and the names; definitions, candidates, versions, summaries, truth and hidden are JSON in
        the metadata. The file is there whole or not at all.

        Raises:
            FileNotFoundError: where the folder does not exist.
        """
        pyarrow, parquet = needed("pyarrow", "UserValues.save"), needed("pyarrow.parquet", "UserValues.save")
        named = {}
        if self.user_ids is not None:
            kind = pyarrow.int64() if self.user_ids and isinstance(self.user_ids[0], int) else pyarrow.string()
            named = {USER: pyarrow.array(self.user_ids, kind)}
        if self.lists is not None:
            has_text = any(isinstance(item, str) for row in self.lists for item in row)
            kind = pyarrow.string() if has_text else pyarrow.int64()
            named[LISTS] = pyarrow.array(self.lists, pyarrow.list_(kind))
        weights = {} if self.weights is None else {WEIGHT: self.weights.numpy()}
        values = {name: column.numpy() for name, column in self._values.items()}
        about = {
            "format_version": 1 if self.lists is None else FORMAT_VERSION,
            "definitions": self.definitions,
            "candidates": self.candidates,
            "versions": self.versions,
            "summaries": self.summaries,
            "truth": self.truth,
            "hidden": self.hidden,
        }
        columns = {ID: self.sample_ids.numpy(), **named, **weights, **values}
        table = pyarrow.table(columns).replace_schema_metadata({FORMAT: json.dumps(about)})
        with whole_file(path) as draft:
            parquet.write_table(table, draft, write_page_checksum=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> UserValues:
        """Read a file that :meth:`save` wrote; needs pyarrow. Nothing of the file is run.

        Raises:
            FileNotFoundError: where there is no file.
            ValueError: for a file that is not of this kind, not whole, or of a newer version.

        >>> import tempfile
        >>> users = UserValues([3, 7], {"ndcg@10": [1.0, 0.5]}, candidates="full")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     users.save(f"{folder}/b.parquet")
        ...     UserValues.load(f"{folder}/b.parquet")
        UserValues(2 users, ndcg@10, candidates='full')
        """
        pyarrow, parquet = needed("pyarrow", "UserValues.load"), needed("pyarrow.parquet", "UserValues.load")
        place = str(path)
        if not Path(path).is_file():
            raise FileNotFoundError(f"`path` must be a file that UserValues.save wrote: there is no file {place!r}")
        try:
            file = parquet.ParquetFile(path, page_checksum_verification=True)
            metadata = file.schema_arrow.metadata or {}
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"{place!r} is no Parquet file, or not a whole one: {first_line(error)}") from None
        with file:
            about = read_about(place, metadata)
            try:
                table = file.read()
            except (pyarrow.ArrowException, OSError) as error:
                raise ValueError(f"{place!r} is damaged: {first_line(error)}") from None
        columns, named = {}, dict[str, Any]()
        known = {ID: [pyarrow.int64()], USER: [pyarrow.int64(), pyarrow.string()]}
        known[LISTS] = [pyarrow.list_(kind) for kind in known[USER]]
        for name, column in zip(table.column_names, table.columns):
            kinds = known.get(name, [pyarrow.float64()])
            if column.type not in kinds or column.null_count:
                rule = " or ".join(map(str, kinds))
                raise ValueError(f"{place!r}: column {name!r} must be {rule} without nulls, got {column.type}")
            if name in (USER, LISTS):
                named["user_ids" if name == USER else "lists"] = column.to_pylist()
            else:
                columns[name] = torch.from_numpy(column.to_numpy().copy())
        if ID not in columns:
            raise ValueError(f"{place!r} has no column {ID!r}: UserValues.save did not write it")
        try:
            return cls(columns.pop(ID), columns, weights=columns.pop(WEIGHT, None), **named, **about)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{place!r}: {error}") from None


def as_dict(name: str, given: Any, example: str) -> dict[Any, Any]:
    """A dict of what is given by name; none for None."""
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"`{name}` must be a dict, {example}, got {type(given).__name__}")
    return dict(given or {})


def as_rows(name: str, given: Any, what: str) -> list[Any]:
    """What has an order that can be read, as a list."""
    to_list = getattr(given, "tolist", None) or getattr(given, "to_pylist", None)  # a column of Arrow has the second
    rows = given if to_list is None else to_list()
    if isinstance(rows, str | bytes | set | frozenset) or not isinstance(rows, Iterable):
        raise TypeError(f"`{name}` must hold {what}, got {type(given).__name__}")
    return list(rows)


def plain_ids(ids: Iterable[Any]) -> list[Any]:
    """Python's own numbers and texts for those of NumPy."""
    return [own.item() if hasattr(own, "item") else own for own in ids]


def refuse_users(broken: Tensor, ids: Tensor, rule: str, column: Tensor) -> None:
    """ValueError for the first user whose number in a column breaks a rule."""
    check.refuse(broken, lambda row: f"{rule}, got {column[row]} for user {ids[row]}")


def lines_by_name(definitions: Mapping[Any, Any] | None, values: Mapping[str, Any]) -> dict[str, str]:
    """A definition for every name."""
    given = as_dict("definitions", definitions, "{'ndcg@10': 'NDCG(10)'}")
    for name, line in given.items():
        if not isinstance(name, str) or not isinstance(line, str):
            raise TypeError(f"`definitions` must be a dict of names and lines, got {name!r}: {line!r}")
        if name not in values:
            raise ValueError(f"`definitions` has {name!r}, of which `values` has none: it has {', '.join(values)}")
    return {name: given.get(name, name) for name in values}


def checked_summaries(
    summaries: Mapping[str, tuple[float, float]] | None, values: Mapping[str, Any]
) -> dict[str, tuple[float, float]]:
    """Name -> (value, standard error)."""
    checked = {}
    for name, pair in as_dict("summaries", summaries, "{'coverage@10': (0.31, 0.004)}").items():
        if name in values:
            raise ValueError(f"`summaries` has {name!r}, which `values` has for each user: leave it out of one of them")
        checked[name] = checked_summary(f"summaries[{name!r}]", pair)
    return checked


def checked_summary(name: str, pair: Any) -> tuple[float, float]:
    """A value and its standard error."""
    try:
        both = (pair["value"], pair["standard_error"]) if isinstance(pair, Mapping) else pair
        value, error = (float(number) for number in both)
    except (TypeError, ValueError, KeyError):
        raise TypeError(f"`{name}` must be a value and its standard error, got {pair!r}") from None
    if not math.isfinite(value) or not 0 <= error < math.inf:
        raise ValueError(f"`{name}` must be a finite value and a finite standard error >= 0, got {pair!r}")
    return value, error


def once_each(ids: Tensor, columns: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """Users in ascending order, each once; ValueError for one with two values."""
    if bool((ids[1:] > ids[:-1]).all()):
        return ids.clone(), {name: column.clone() for name, column in columns.items()}
    ids, order = ids.sort()
    columns = {name: column[order] for name, column in columns.items()}
    again = ids[1:] == ids[:-1]
    for name, column in columns.items():
        one, other = column[1:], column[:-1]
        differs = again & (one != other) & ~(one.isnan() & other.isnan())
        if bool(differs.any()):
            place = int(differs.nonzero()[0])
            raise ValueError(
                f"`sample_ids` has user {ids[place]} twice, with {name} {other[place]} and {one[place]}: "
                "give each user one value"
            )
    first = torch.cat([torch.ones(1, dtype=torch.bool), ~again])
    return ids[first], {name: column[first] for name, column in columns.items()}


def named_users(ids: Tensor, once: Tensor, user_ids: Sequence[Any]) -> list[int] | list[str]:
    """The `user_ids` of the users `ids` in the order of `once`, which has each of them once."""
    named: Any = as_rows("user_ids", user_ids, "an id for each user, in the order of `sample_ids`")
    if len(named) != len(ids):
        raise ValueError(f"`user_ids` must have one id for each of the {len(ids)} `sample_ids`, got {len(named)}")
    kinds = set(map(type, named))
    if not kinds <= {int, str}:
        if missing := [own for own in named if is_missing(own)]:
            raise ValueError(f"`user_ids` must name every user, got {missing[0]!r}")
        named = plain_ids(named)
        kinds = set(map(type, named))
    if kinds != {str} and (kinds != {int} or not -(2**63) <= min(named) <= max(named) < 2**63):
        named = list(map(str, named))
    if not torch.equal(ids, once):
        known: dict[int, Any] = {}
        for number, own in zip(ids.tolist(), named):
            if known.setdefault(number, own) != own:
                raise ValueError(f"`user_ids` must give user {number} one id, got {known[number]!r} and {own!r}")
        named = [known[number] for number in once.tolist()]
    if len(set(named)) < len(named):
        users: dict[Any, int] = {}
        for number, own in zip(once.tolist(), named):
            if users.setdefault(own, number) != number:
                raise ValueError(
                    f"`user_ids` must be different for each user, as text, got {own!r} for user {users[own]} and user "
                    f"{number}"
                )
    return named  # type: ignore[no-any-return]


def checked_lists(ids: Tensor, once: Tensor, lists: Any) -> list[list[Any]]:
    """The lists of the users `ids` in the order of `once`; of a user that stands there twice the first."""
    given = as_rows("lists", lists, "a list of ids for each user, in the order of `sample_ids`")
    if len(given) != len(ids):
        raise ValueError(f"`lists` must have a list of ids for each of the {len(ids)} `sample_ids`, got {len(given)}")
    rows = [as_rows(f"lists[{place}]", row, "the ids of a user, best first") for place, row in enumerate(given)]
    rows = [[item for item in plain_ids(row) if item != -1] for row in rows]
    kinds = {type(item) for row in rows for item in row}
    whole = kinds <= {int} and all(0 <= item < 2**63 for row in rows for item in row)
    if not whole and kinds != {str}:
        raise ValueError("`lists` must hold integers from 0 to 2^63 - 1, padded with -1, or text")
    if any(len(set(row)) < len(row) for row in rows):
        raise ValueError("`lists` must hold an item once in a list")
    first = dict(zip(reversed(ids.tolist()), reversed(rows)))
    return [first[number] for number in once.tolist()]


def lists_of_both(one: UserValues, other: UserValues) -> tuple[Tensor, Tensor]:
    """(U, L) int64 the lists of two runs, padded with -1, by numbers that are the same in both.

    Items are compared as text: files where one id is no number have all of them as text.
    """
    numbers: dict[Any, int] = {}
    found = []
    for lists in (one.lists or [], other.lists or []):
        width = max(map(len, lists), default=0)
        rows = [[numbers.setdefault(str(item), len(numbers)) for item in row] for row in lists]
        padded = [[*row, *[-1] * (width - len(row))] for row in rows]
        found.append(torch.tensor(padded, dtype=torch.int64).view(len(lists), width))
    return found[0], found[1]


def is_missing(own: Any) -> bool:
    """Whether that is None, NaN, or what pandas has in their place."""
    try:
        return own is None or bool(own != own)
    except TypeError:  # pandas.NA is neither
        return True


def read_about(place: str, metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    """What the metadata of a file says beside the values."""
    if FORMAT not in metadata:
        raise ValueError(f"{place!r} is a Parquet file, but not one that UserValues.save wrote")
    try:
        about = json.loads(metadata[FORMAT])
        version = about["format_version"]
        if not isinstance(version, int):
            raise TypeError(f"format_version {version!r}")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{place!r} has metadata that UserValues.save did not write: {error!r}") from None
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{place!r} was written by a newer torch-recmetrics (format {version}, this one reads up to "
            f"{FORMAT_VERSION}): upgrade torch-recmetrics to read it"
        )
    names = ("definitions", "candidates", "versions", "summaries")
    if missing := [name for name in names if name not in about]:
        raise ValueError(f"{place!r} has metadata that UserValues.save did not write: {missing[0]} is missing")
    older = {name: about.get(name) for name in ("truth", "hidden")}  # which older files do not have
    return {name: about[name] for name in names} | older


def first_line(error: BaseException) -> str:
    """The first line of what an error says."""
    return (str(error).splitlines() or [type(error).__name__])[0]
