"""Values by metric and cutoff as plain text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from torch_recmetrics.users.texts import Column, aligned

NAME = re.compile(r"(?P<stem>.+?)(?:(?:@|_at_)(?P<cut>\d+)(?P<slice>\W.+)?)?")
Rows = dict[str, dict[str, tuple[float, float | None]]]  # value and standard error by metric and cutoff
LOADER = re.compile(r"(?P<name>.*)/dataloader_idx_(?P<number>\d+)")


def table_of(values: Mapping[str, Any], title: str, prefix: str = "", errors: Mapping[str, Any] | None = None) -> str:
    """A row for each metric, a column for each cutoff, a block for each loader; what is no number is left out.

    Behind a value stands its standard error, where there is one.

    >>> print(table_of({"val_ndcg@5": 0.25, "val_ndcg@10": 0.5, "val_mrr": 0.125}, "validation, epoch 3", "val_"))
    validation, epoch 3          @5     @10
    ndcg                     0.2500  0.5000
    mrr                                  0.1250
    >>> print(table_of({"ndcg@5": 0.25, "mrr": 0.125}, "test", errors={"ndcg@5": 0.0312}))
    test                @5
    ndcg  0.2500 +- 0.0312
    mrr                     0.1250
    >>> print(table_of({"ndcg@5": 0.25, "ndcg@5/cold": 0.125}, "test"))
    test           @5
    ndcg       0.2500
    ndcg/cold  0.1250
    """
    blocks: dict[str | None, Rows] = {}
    for full, value in values.items():
        if not isinstance(value, int | float) and not (isinstance(value, Tensor) and value.numel() == 1):
            continue
        loader = LOADER.fullmatch(full)
        name = (loader["name"] if loader else full).removeprefix(prefix)
        parts = NAME.fullmatch(name)
        stem, cut = (parts["stem"] + (parts["slice"] or ""), parts["cut"]) if parts else (name, None)
        rows = blocks.setdefault(loader["number"] if loader else None, {})
        error = (errors or {}).get(full)
        number = (float(value), None if error is None else float(error))
        rows.setdefault(stem, {})[f"@{cut}" if cut else ""] = number
    return "\n\n".join(
        block(rows, title if number is None else f"{title}, loader {number}") for number, rows in blocks.items()
    )


def without_loader(name: str) -> tuple[str, int]:
    """A name without the loader that it is of, and the number of the loader.

    >>> without_loader("val_ndcg@10/dataloader_idx_1"), without_loader("val_ndcg@10")
    (('val_ndcg@10', 1), ('val_ndcg@10', 0))
    """
    loader = LOADER.fullmatch(name)
    return (loader["name"], int(loader["number"])) if loader else (name, 0)


def column_texts(numbers: Sequence[tuple[float, float | None] | None]) -> list[str]:
    """The values of a column with their standard errors, where these are numbers."""
    known = [number for number in numbers if number is not None]
    column = Column.of([value for value, _ in known], [error for _, error in known])

    def cell(value: float, error: float | None) -> str:
        behind = "" if error is None or math.isnan(error) else f" +- {column.text(error)}"
        return column.text(value) + behind

    return ["" if number is None else cell(*number) for number in numbers]


def block(rows: Rows, title: str) -> str:
    """One table."""
    cuts = list(dict.fromkeys(cut for row in rows.values() for cut in row))
    cuts.sort(key=lambda cut: cut == "")  # whole lists last
    columns = [[title, *rows], *([cut, *column_texts([row.get(cut) for row in rows.values()])] for cut in cuts)]
    return "\n".join(aligned(list(zip(*columns)), names=1))
