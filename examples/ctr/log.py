"""A log of what was shown to whom and whether it was clicked: read from a CSV file, or simulated."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np


class InputError(ValueError):
    """The data cannot be read; the message is one line for the person who gave the path."""


def check_at_least(least: int, **options: int) -> None:
    """Refuse numbers that are too small."""
    for name, value in options.items():
        if value < least:
            raise InputError(f"data.{name} must be {least} or more, got {value}")


@dataclass(frozen=True)
class ClickLog:
    """N impressions in the order of time."""

    labels: np.ndarray  # (N,) bool
    users: np.ndarray  # (N,) text or numbers
    features: dict[str, np.ndarray]  # by column, each (N,) text or numbers


def read_log(path: str | Path, label: str = "label", user: str = "user") -> ClickLog:
    """Read a CSV file: a column of 0 and 1, one that names the user, all others are features.

    Raises:
        InputError: the file or a column is missing, it is empty, or a line does not fit.
    """
    if label == user:
        raise InputError(f"data.label and data.user must name two columns, got {label!r} twice")
    if "\0" in str(path):
        raise InputError(f"{str(path)!r}: no file has such a name")
    try:
        path = Path(path).expanduser()
    except RuntimeError:  # there is no such user
        raise InputError(f"{path}: No such file or directory") from None
    columns = _columns(path)
    names = list(columns)
    for name, argument in ((label, "label"), (user, "user")):
        if name not in columns:
            raise InputError(
                f"{path}: no column {name!r} (--data.{argument}); the first line is {','.join(names)[:80]!r}"
            )
    features = {name: _numbers(values) for name, values in columns.items() if name not in (label, user)}
    if not features:
        raise InputError(f"{path}: there is no feature beside {label!r} and {user!r}")
    texts = columns[label]
    for line, text in enumerate(texts, start=2):
        if text.strip() not in ("0", "1", "0.0", "1.0"):
            raise InputError(f"{path}, row {line}: {label} must be 0 or 1, got {text[:40]!r}")
    labels = np.array([float(text) > 0 for text in texts])
    return ClickLog(labels, np.array(columns[user]), features)


def simulate_log(num_users: int = 1000, num_items: int = 300, num_rows: int = 100_000, seed: int = 0) -> ClickLog:
    """Draw clicks that depend on user, item, how the two match, place on the page, device and hour.

    That some users click more than others raises the AUC over all rows and says nothing of the order that each user
    sees: a model of users alone has a fine AUC and a group AUC of one half.
    """
    random = np.random.default_rng(seed)
    users = random.integers(num_users, size=num_rows)
    items = np.minimum(random.geometric(6 / num_items, size=num_rows) - 1, num_items - 1)
    category = random.integers(12, size=num_items)
    price = random.lognormal(3, 0.8, size=num_items).round(2)
    position = random.integers(1, 11, size=num_rows)
    device, hour = random.integers(3, size=num_rows), random.integers(24, size=num_rows)
    taste, kind = random.normal(size=(num_users, 4)), random.normal(size=(12, 4))
    item_factors = kind[category] + 0.4 * random.normal(size=(num_items, 4))
    match = (taste[users] * item_factors[items]).sum(1)
    logit = 0.5 * match + random.normal(size=num_users)[users] + 0.4 * random.normal(size=num_items)[items]
    logit += -0.2 * position + 0.2 * (device == 1) + 0.3 * np.sin(hour / 24 * 2 * np.pi) - 0.2 * np.log(price[items])
    labels = random.random(num_rows) < 1 / (1 + np.exp(0.8 - logit))
    features = {"item": items, "category": category[items], "price": price[items], "position": position}
    return ClickLog(labels, users, {**features, "device": device, "hour": hour})


def _columns(path: Path) -> dict[str, list[str]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = next(reader, None)
            if not header:
                raise InputError(f"{path}: the file is empty")
            if len(set(header)) < len(header):
                raise InputError(f"{path}: two columns have one name; the first line is {','.join(header)[:80]!r}")
            rows = []
            for row in reader:
                if len(row) != len(header):
                    raise InputError(f"{path}, line {reader.line_num}: {len(header)} columns expected, got {len(row)}")
                rows.append(row)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a CSV file in UTF-8 ({error})") from error
    if not rows:
        raise InputError(f"{path}: there is no row below the first line")
    return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))


def _numbers(texts: list[str]) -> np.ndarray:
    """Numbers where all are finite numbers, else the text itself."""
    try:
        numbers = np.array(texts, dtype=np.float64)
    except ValueError:
        return np.array(texts)
    return numbers if np.isfinite(numbers).all() else np.array(texts)
