"""The arguments of ``update`` by name: dotted names of what a step returned, of its batch and of its module."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from torch_recmetrics.core.layouts.ragged import pad_ids

Inputs = Callable[[Any, Any], Mapping[str, Any]]

# What an update can rank or score; each of the others goes with one of them.
RANKED = ("preds", "user_embeddings", "item_ids")
# Lists of ids of any lengths, as a collate function that makes no tensors of them leaves them.
LISTS = ("item_ids", "target_ids", "seen_ids", "reference_ids")
MODULE_NAMES = "its attributes and its methods, which are called with the batch"


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
    if given and not any(argument in given for argument in RANKED):
        only = ", ".join(f"{argument}={name!r}" for argument, name in given.items())
        raise ValueError(
            f"`preds` is missing beside {only}: where one argument is read by its name all are; name what is ranked, "
            f"such as preds='logits', or give `user_embeddings` or `item_ids`"
        )
    return given


def checked_inputs(inputs: Any, names: Mapping[str, str]) -> Inputs | None:
    """The function that makes the arguments, where one is given; TypeError for anything else."""
    if inputs is None:
        return None
    if not callable(inputs):
        raise TypeError(f"`inputs` must be a function of outputs and batch, got {type(inputs).__name__}")
    if names:
        raise TypeError(f"`inputs` makes all arguments: leave out {', '.join(f'`{name}`' for name in names)}")
    function: Inputs = inputs
    return function


def named_arguments(names: Mapping[str, str], step: Step) -> dict[str, Any]:
    """The arguments of ``update`` that these names say; what is None is left out."""
    called: dict[str, Any] = {}  # what methods of the module returned for this batch
    found = {argument: look_up(argument, name, step, called) for argument, name in names.items()}
    return {argument: value for argument, value in found.items() if value is not None}


def look_up(argument: str, name: str, step: Step, called: dict[str, Any]) -> Any:
    """What a dotted name says: keys of dicts, attributes, places in tuples and lists."""
    root, *parts = name.split(".")
    roots = {
        "outputs": (step.outputs, f"what `{step.name}` returned"),
        "batch": (step.batch, "the batch"),
        "module": (step.module, "the module"),
    }
    if root in roots:
        value, place = roots[root]
        path = root
    else:
        value, place = roots["outputs"]
        path, parts = "", [root, *parts]
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
        if root == "module" and inspect.ismethod(inner):
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
    """What there is in place of a name that there is not, and the next step."""
    if isinstance(value, nn.Module):
        near = difflib.get_close_matches(part, [name for name in dir(value) if not name.startswith("_")], 1)
        return f": did you mean {near[0]!r}?" if near else f": it has {MODULE_NAMES}"
    names = names_in(value)
    if names:
        near = difflib.get_close_matches(part, names, 1)
        return f": {f'did you mean {near[0]!r}? ' if near else ''}It has {', '.join(names)}"
    whole = ""
    if root not in ("batch", "module"):
        whole = "; 'outputs' is all of it, and 'module.predict_step' what that method of the module says of the batch"
    return f": it is {'None' if value is None else f'one {type(value).__name__}'}, without names{whole}"


def padded_lists(arguments: Mapping[str, Any], device: Any) -> dict[str, Any]:
    """The arguments with lists of ids as padded tensors on the device of the module."""
    return {
        name: pad_ids(list(value)).to(device) if name in LISTS and isinstance(value, list | tuple) else value
        for name, value in arguments.items()
    }
