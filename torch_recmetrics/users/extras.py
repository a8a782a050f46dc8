"""Optional packages, and files that appear whole or not at all."""

from __future__ import annotations

import importlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

EXTRAS = {
    "scipy": "stats",
    "statsmodels": "stats",
    "duckdb": "offline",
    "jinja2": "offline",
    "jsonargparse": "offline",
    "markupsafe": "offline",
    "pyarrow": "offline",
    "tqdm": "offline",
    "matplotlib": "plot",
}


def needed(module: str, purpose: str) -> Any:
    """A module of an optional package; ImportError says how to install it.

    >>> needed("scipy.stats", "the t test").__name__
    'scipy.stats'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        extra = EXTRAS.get(package)
        wanted = f"'torch-recmetrics[{extra}]'" if extra else package
        raise ImportError(f"{purpose} needs {package}: pip install {wanted} ({error})") from error


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write to; what was written there takes the place of `path` once all of it is there.

    A link stays, and what it leads to is replaced; the permissions are those of the file before. A pipe or a device is
    written to as it is.

    Raises:
        FileNotFoundError: where the folder does not exist.
        IsADirectoryError: where the path is a folder itself.
    """
    target = Path(os.path.realpath(path))
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        yield Path(path)
        return
    if target.is_dir():
        raise IsADirectoryError(f"`path` must be a file, got the folder {str(target)!r}")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"`path` must be in a folder that exists, got {str(target)!r}: make the folder first")
    draft = target.with_name(f".{secrets.token_hex(8)}")  # short, whatever the length of the name
    try:
        yield draft
        if target.exists():
            shutil.copymode(target, draft)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str] | None, text: str) -> str:
    """Write a text file, whole or not at all, where there is a path; the text."""
    if path is not None:
        with whole_file(path) as draft:
            draft.write_text(text, encoding="utf-8", newline="")
    return text
