"""The arguments of ``update``: what a validation or test step returned, or what is found under dotted names.

Such a name is looked up in what the step returned, in its batch or in its module.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from torch_recmetrics.core.layouts.ragged import pad_ids
from torch_recmetrics.core.layouts.sequences import LEADS
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.core.tensors.checks import did_you_mean

Inputs = Callable[[Any, Any], Mapping[str, Any]]

# Lists of ids of any lengths, as a collate function that makes no tensors of them leaves them.
LISTS = ("item_ids", "target_ids", "seen_ids", "reference_ids")
IN_ORDER = ("preds", "target", "indexes")  # what a tuple holds
EXPECTED = "a dict with the argument names of `update`, or a tuple (preds, target)"
BY_NAME = "or name what is to be read, RankingMetrics(preds='logits', target_ids='batch.labels')"


@dataclass(frozen=True)
class Step:
    """One step of validation or test."""

    name: str  # "validation_step", for messages
    outputs: Any
    batch: Any
    module: Any
    batch_idx: int
    dataloader_idx: int


def checked_names(names: Mapping[str, Any], known: Sequence[str] | None) -> dict[str, str]:
    """The names that are given, of arguments that a metric takes (`known`; None takes all).

    Raises:
        TypeError, ValueError: for what is no dotted name, and for names that do not say what is ranked.
    """
    given = {argument: name for argument, name in names.items() if name is not None}
    for argument, name in given.items():
        if not isinstance(name, str):
            raise TypeError(
                f"`{argument}` must be a name, such as 'logits' or 'batch.labels', got {type(name).__name__}: "
                "what is computed is for `inputs`, a function of outputs and batch"
            )
        if not all(name.split(".")):
            raise ValueError(f"`{argument}` must be a name, such as 'logits' or 'batch.labels', got {name!r}")
        if known is not None and argument not in known:
            raise ValueError(f"no metric takes `{argument}`, got {argument}={name!r}: they take {', '.join(known)}")
    if given and not any(argument in given for argument in LEADS):
        only = ", ".join(f"{argument}={name!r}" for argument, name in given.items())
        raise ValueError(
            f"`preds` is missing beside {only}: where one argument is read by its name all are; name what is ranked, "
            f"such as preds='logits', or give `user_embeddings` or `item_ids`"
        )
    return given


def check_inputs(inputs: Any, names: Mapping[str, str]) -> None:
    """Refuse what is no function that makes all arguments."""
    if not callable(inputs):
        raise TypeError(f"`inputs` must be a function of outputs and batch, got {type(inputs).__name__}")
    if names:
        raise TypeError(f"`inputs` makes all arguments: leave out {', '.join(f'`{name}`' for name in names)}")


def arguments_of(outputs: Any, step: str, other_keys: Sequence[str]) -> dict[str, Any]:
    """The arguments of ``update``; what is None is left out.

    Args:
        outputs: what the step returned.
        step: its name, for messages.
        other_keys: keys that are meant for somebody else.

    Raises:
        TypeError, ValueError: for anything else than a dict or a tuple of two or three.
    """
    if isinstance(outputs, Mapping):
        arguments = {name: value for name, value in outputs.items() if name not in other_keys and value is not None}
    elif isinstance(outputs, tuple | list) and 2 <= len(outputs) <= len(IN_ORDER):
        arguments = {name: value for name, value in zip(IN_ORDER, outputs) if value is not None}
        indexes = arguments.get("indexes")
        if isinstance(indexes, Tensor) and indexes.ndim > 1:
            raise ValueError(
                f"`{step}` returned three values, which are flat rows (preds, target, indexes), but the third has "
                f"shape {tuple(indexes.shape)}: return a dict, {{'preds': ..., 'target_ids': ..., 'seen_ids': ...}}"
            )
    else:
        what = f"{len(outputs)} values" if isinstance(outputs, tuple | list) else f"{type(outputs).__name__}"
        raise TypeError(f"`{step}` must return {EXPECTED}, for RankingMetrics to read, got {what}; {BY_NAME}")
    if not arguments:
        raise ValueError(
            f"`{step}` must return {EXPECTED}, for RankingMetrics to read, got {sorted(map(str, outputs))}; {BY_NAME}"
        )
    return arguments


def check_known(arguments: Iterable[str], known: Collection[str] | None, step: str, other_keys: Sequence[str]) -> None:
    """Refuse a key that no metric takes; `known` None takes all."""
    for name in arguments:
        if known is not None and name not in known:
            near = did_you_mean(name, known)
            raise ValueError(
                f"`{step}` returned {name!r}, which no metric takes: {near}{' ' if near else ''}The keys there are: "
                f"{', '.join(known)}. "
                f"A key that is not meant for the metrics: RankingMetrics(other_keys={(*other_keys, name)!r}); "
                f"{BY_NAME}"
            )


def named_arguments(names: Mapping[str, str], step: Step) -> dict[str, Any]:
    """The arguments of ``update`` that are found under these names; what is None is left out."""
    called: dict[str, Any] = {}  # what methods of the module returned for this batch
    found = {argument: look_up(argument, name, step, called) for argument, name in names.items()}
    return {argument: value for argument, value in found.items() if value is not None}


def look_up(argument: str, name: str, step: Step, called: dict[str, Any]) -> Any:
    """What is found under a dotted name: keys of dicts, attributes, places in tuples and lists."""
    root, *parts = name.split(".")
    path = root
    roots = {
        "outputs": (step.outputs, f"what `{step.name}` returned"),
        "batch": (step.batch, "the batch"),
        "module": (step.module, "the module"),
    }
    if root not in roots:
        root, path, parts = "outputs", "", [root, *parts]
    value, place = roots[root]
    while parts:
        # A key may hold a dot itself.
        for length in range(len(parts), 0, -1):
            part = ".".join(parts[:length])
            is_there, inner = entry_of(value, part)
            if is_there:
                break
        else:
            raise ValueError(f"{argument}={name!r}: {place} has no {parts[0]!r}{hint(parts[0], value, root)}")
        path, parts = (f"{path}.{part}" if path else part), parts[length:]
        if root == "module" and inspect.isroutine(inner):  # a compiled method is a function
            if path not in called:
                called[path] = call(inner, step)
            inner = called[path]
        value, place = inner, f"{path!r}"
    return value


def call(method: Callable[..., Any], step: Step) -> Any:
    """A method of the module for the batch; one such as ``predict_step`` may ask for the number of the batch too."""
    parameters = inspect.signature(method).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    n_required = sum(p.kind in positional and p.default is inspect.Parameter.empty for p in parameters)
    return method(*(step.batch, step.batch_idx, step.dataloader_idx)[: max(1, n_required)])


def entry_of(value: Any, part: str) -> tuple[bool, Any]:
    """Whether there is an entry of this name, and the entry."""
    if isinstance(value, Mapping):
        return (True, value[part]) if part in value else (False, None)
    if isinstance(value, Tensor | str | bytes) or value is None:
        return False, None
    if isinstance(value, tuple | list) and part not in getattr(value, "_fields", ()):  # their methods are no entries
        return (True, value[int(part)]) if part.isdecimal() and int(part) < len(value) else (False, None)
    if part.startswith("_") or not hasattr(value, part):
        # Such as the places of an nn.ModuleList, or keys of a TensorDict.
        return (True, value[part]) if part in keys_of(value) else (False, None)
    return True, getattr(value, part)


def keys_of(value: Any) -> list[str]:
    """The keys of what has keys, a dict or not."""
    keys = getattr(value, "keys", None)
    if isinstance(value, type) or not callable(keys) or not hasattr(value, "__getitem__"):
        return []
    return [key for key in keys() if isinstance(key, str)]


def names_in(value: Any) -> list[str]:
    """The names of the entries."""
    if isinstance(value, Mapping):
        return [str(key) for key in value]
    if isinstance(value, tuple | list):
        return [*getattr(value, "_fields", ()), *map(str, range(len(value)))]
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    return keys_of(value) or [name for name in getattr(value, "__dict__", {}) if not name.startswith("_")]


def hint(part: str, value: Any, root: str) -> str:
    """The names that there are where one was not found, and the next step."""
    if isinstance(value, nn.Module):
        known = [name for name in dir(value) if not name.startswith("_")]
        otherwise = "it has its attributes and its methods, which are called with the batch"
        return f": {did_you_mean(part, known, otherwise)}"
    names = names_in(value)
    if names:
        near = did_you_mean(part, names)
        return f": {near}{' ' if near else ''}It has {', '.join(names)}"
    whole = ""
    if root == "outputs":
        whole = "; 'outputs' is all of it, and 'module.predict_step' what that method of the module says of the batch"
    return f": it is {'None' if value is None else f'one {type(value).__name__}'}, without names{whole}"


def padded_lists(arguments: Mapping[str, Any], device: Any) -> dict[str, Any]:
    """The arguments with lists of ids as padded tensors on the device of the module."""
    return {
        name: pad_ids(list(value)).to(device) if name in LISTS and isinstance(value, list | tuple) else value
        for name, value in arguments.items()
    }


def n_rows(arguments: Mapping[str, Any]) -> int | None:
    """The number of rows of a batch: users, or flat rows; None where no argument tells it."""
    for name in LEADS:
        value = arguments.get(name)
        if isinstance(value, Ranking):
            return value.n_users
        if isinstance(value, Tensor) and value.ndim:
            return value.size(0)  # a nested tensor of the strided layout has no shape; the update refuses it
    return None
