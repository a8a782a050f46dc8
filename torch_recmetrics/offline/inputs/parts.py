"""What was measured of users; that of several parts of the users can be added up."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from torch_recmetrics.state.ranked.kept_users import finite_values
from torch_recmetrics.users.user_values import UserValues

ID, WEIGHT, LIST = "_id", "_weight", "_list"  # columns of a table of users that are no values


@dataclass
class Part:
    """What was measured of some users.

    Attributes:
        counts: numbers that add up.
        longest: the rows of the longest list.
        sums: what `add` of :meth:`joined` adds up: tensors, texts and numbers.
        users: a table of Arrow with a row for each user in ascending order of their ids, or None: ids, values by their
            names and, where they are known, weights and lists; it is not added up.
        warnings: what was warned of.
        error: what is wrong with the input, or "".
    """

    counts: dict[str, int] = field(default_factory=dict)
    longest: int = 0
    sums: dict[str, Any] = field(default_factory=dict)
    users: Any = None
    warnings: list[str] = field(default_factory=list)
    error: str = ""

    def to_bytes(self) -> bytes:
        """All but the users, as bytes."""
        found = io.BytesIO()
        torch.save({name: value for name, value in vars(self).items() if name != "users"}, found)
        return found.getvalue()

    @classmethod
    def from_bytes(cls, payload: bytes) -> Part:
        """What has become bytes; they hold tensors, numbers and texts, and can call nothing."""
        return cls(**torch.load(io.BytesIO(payload), weights_only=True))

    @classmethod
    def joined(cls, parts: Sequence[Part], add: Callable[[list[dict[str, Any]]], dict[str, Any]]) -> Part:
        """Several as one; of errors the first in the order of their texts."""
        errors = [part.error for part in parts if part.error]
        if errors or not parts:
            return cls(error=min(errors, default=""))
        counts = Counter[str]()
        for part in parts:
            counts.update(part.counts)
        # Of those that differ in their numbers alone the first.
        texts = sorted((text for part in parts for text in part.warnings), reverse=True)
        told = sorted({re.sub(r"[\d,]+", "", text): text for text in texts}.values())
        longest, sums = max(part.longest for part in parts), add([part.sums for part in parts])
        return cls(dict(counts), longest, sums, warnings=told)


def user_values(users: Any, definitions: Mapping[str, str], **about: Any) -> UserValues:
    """A table of users as values, numbered in the order of their ids; `about` is what else is known of them."""
    values = {
        name: from_dlpack(users[name].combine_chunks()).clone()  # by way of NumPy pyarrow would import pandas
        for name in users.column_names
        if name not in (ID, WEIGHT, LIST)
    }
    return finite_values(torch.arange(users.num_rows), values, definitions, **about)
