"""Values by metric and cutoff as plain text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

NAME = re.compile(r"(?P<stem>.+?)(?:(?:@|_at_)(?P<cut>\d+)(?P<slice>\W.+)?)?")
LOADER = re.compile(r"(?P<name>.*)/dataloader_idx_(?P<number>\d+)")


def table_of(values: Mapping[str, Any], title: str, prefix: str = "", errors: Mapping[str, Any] | None = None) -> str:
    """A row for each metric, a column for each cutoff, a block for each loader.

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
    blocks: dict[str | None, dict[str, dict[str, str]]] = {}
    for full, value in values.items():
        if isinstance(value, Tensor) and value.numel() != 1:
            continue
        loader = LOADER.fullmatch(full)
        name = (loader["name"] if loader else full).removeprefix(prefix)
        parts = NAME.fullmatch(name)
        stem, cut = (parts["stem"] + (parts["slice"] or ""), parts["cut"]) if parts else (name, None)
        rows = blocks.setdefault(loader["number"] if loader else None, {})
        rows.setdefault(stem, {})[f"@{cut}" if cut else ""] = cell_of(value, (errors or {}).get(full))
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


def cell_of(value: Any, error: Any) -> str:
    """A value, with its standard error where that is a number."""
    number = f"{float(value):.4f}"
    return number if error is None or math.isnan(error) else f"{number} +- {float(error):.4f}"


def block(rows: Mapping[str, Mapping[str, str]], title: str) -> str:
    """One table."""
    cuts = list(dict.fromkeys(cut for row in rows.values() for cut in row))
    cuts.sort(key=lambda cut: cut == "")  # whole lists last
    lines = [[title, *cuts], *([stem, *(row.get(cut, "") for cut in cuts)] for stem, row in rows.items())]
    widths = [max(len(line[column]) for line in lines) for column in range(len(cuts) + 1)]
    padded = (
        [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:]))] for line in lines
    )
    return "\n".join("  ".join(cells).rstrip() for cells in padded)
