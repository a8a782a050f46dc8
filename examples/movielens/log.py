"""A log of who watched what and when: read from MovieLens' CSV files, or simulated."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

RATING_COLUMNS = ("userId", "movieId", "timestamp")
MOVIE_COLUMNS = ("movieId", "genres")
NO_GENRES = "(no genres listed)"


class InputError(ValueError):
    """The data cannot be read; the message is one line for the person who gave the path."""


def check_at_least(least: int, **options: int) -> None:
    """Refuse numbers that are too small."""
    for name, value in options.items():
        if value < least:
            raise InputError(f"data.{name} must be {least} or more, got {value}")


@dataclass(frozen=True)
class Log:
    """M interactions of users 0..num_users-1 with items 0..num_items-1, and G genres of every item."""

    user_ids: np.ndarray  # (M,) int64
    item_ids: np.ndarray  # (M,) int64
    times: np.ndarray  # (M,) int64
    genres: np.ndarray  # (num_items, G) bool
    num_users: int

    @property
    def num_items(self) -> int:
        return len(self.genres)


def read_log(path: str | Path) -> Log:
    """Read ``ratings.csv`` and ``movies.csv`` of a directory: every rating is an interaction, every movie an item.

    Raises:
        InputError: a file or a column is missing, a file is empty, or a line does not fit.
    """
    try:
        directory = Path(path).expanduser()
        found = directory.is_dir()
    except (RuntimeError, ValueError):  # no such user, a NUL character
        found = False
    if not found:
        raise InputError(f"data.path must be a directory with ratings.csv and movies.csv, got {str(path)!r}")
    movie_ids, genres = _read_movies(directory / "movies.csv")
    raw_users, raw_items, times = _read_ratings(directory / "ratings.csv")

    position = np.searchsorted(movie_ids, raw_items).clip(max=len(movie_ids) - 1)
    unknown = np.flatnonzero(movie_ids[position] != raw_items)
    if len(unknown):
        raise InputError(f"{directory / 'ratings.csv'}: movieId {raw_items[unknown[0]]} is not in movies.csv")
    users, user_ids = np.unique(raw_users, return_inverse=True)
    return Log(user_ids, position, times, genres, num_users=len(users))


def simulate_log(num_users: int = 1201, num_items: int = 1500, num_genres: int = 12, seed: int = 0) -> Log:
    """Draw a log in which taste follows latent factors, genres tell a part of it, and popularity has a long tail.

    A user's items are drawn without replacement with probability proportional to exp(popularity + taste), and
    arrive in random order. All users have some items, a few of them too few to be validated.
    """
    random = np.random.default_rng(seed)
    genre_taste = random.normal(size=(num_genres, 8))
    shares = random.dirichlet(np.full(num_genres, 0.15), size=num_items)
    genres = shares >= np.minimum(0.25, shares.max(axis=1, keepdims=True))
    item_factors = shares @ genre_taste + 0.3 * random.normal(size=(num_items, 8))
    user_factors = random.normal(size=(num_users, 8))
    popularity = -0.9 * np.log(random.permutation(num_items) + 1.0)
    keys = popularity + 0.9 * user_factors @ item_factors.T + random.gumbel(size=(num_users, num_items))

    lengths = np.clip(random.lognormal(mean=3.4, sigma=0.7, size=num_users).astype(int), 2, num_items // 2)
    user_ids = np.repeat(np.arange(num_users), lengths)
    # The largest Gumbel keys are a draw without replacement.
    ranked = np.argsort(-keys, axis=1)
    item_ids = np.concatenate([row[:length] for row, length in zip(ranked, lengths, strict=True)])
    times = random.integers(1_000_000_000, 1_100_000_000, size=len(user_ids))
    return Log(user_ids, item_ids, times, genres, num_users)


def _read_ratings(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows = [
        [_integer(text, name, path, line) for text, name in zip(row, RATING_COLUMNS, strict=True)]
        for line, row in _rows(path, RATING_COLUMNS)
    ]
    user_ids, item_ids, times = np.array(rows, dtype=np.int64).T.copy()
    return user_ids, item_ids, times


def _read_movies(path: Path) -> tuple[np.ndarray, np.ndarray]:
    names: dict[int, set[str]] = {}
    for line, (text, genres) in _rows(path, MOVIE_COLUMNS):
        movie_id = _integer(text, "movieId", path, line)
        if movie_id in names:
            raise InputError(f"{path}, line {line}: movieId {movie_id} is there twice")
        names[movie_id] = set(genres.split("|")) - {NO_GENRES, ""}
    vocabulary = sorted(set().union(*names.values()))
    if not vocabulary:
        raise InputError(f"{path}: no movie has a genre; the models and metrics of this example need them")
    movie_ids = np.array(sorted(names), dtype=np.int64)
    return movie_ids, np.array([[genre in names[movie_id] for genre in vocabulary] for movie_id in movie_ids.tolist()])


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """Line number and the named columns of every row."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = next(reader, None)
            if header is None:
                raise InputError(f"{path}: the file is empty")
            missing = [name for name in columns if name not in header]
            if missing:
                raise InputError(f"{path}: no column {', '.join(missing)}; the first line is {','.join(header)[:80]!r}")
            places = [header.index(name) for name in columns]
            row = None
            for row in reader:
                if len(row) != len(header):
                    raise InputError(f"{path}, line {reader.line_num}: {len(header)} columns expected, got {len(row)}")
                yield reader.line_num, [row[place] for place in places]
            if row is None:
                raise InputError(f"{path}: there is no row below the first line")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a CSV file in UTF-8 ({error})") from error


def _integer(text: str, name: str, path: Path, line: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 2**63
    if not -(2**63) <= value < 2**63:
        raise InputError(f"{path}, line {line}: {name} must be a 64-bit integer, got {text[:40]!r}")
    return value
