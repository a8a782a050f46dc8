"""The one place that refuses input.

Shapes and dtypes are refused at once. Checks that must read values are collected and read together, so that an update
costs one device synchronisation however many rules it has; which row broke the rule is looked for only afterwards.
"""

from __future__ import annotations

import difflib
import math
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextvars import ContextVar
from numbers import Integral, Real
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_recmetrics.core.kernels import click_rows as kernels
from torch_recmetrics.core.kernels.rewards import LARGEST_WEIGHT, SMALLEST_WEIGHT
from torch_recmetrics.core.kernels.runtime import usable
from torch_recmetrics.core.tensors.devices import is_sync_free

# The dtypes that compiled loops read: numpy has no bfloat16, and Numba no float16.
READABLE = {torch.float32, torch.float64, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
ID_DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
FLOAT_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
RELEVANCE_DTYPES = (torch.bool, *ID_DTYPES, *FLOAT_DTYPES)
PACKAGES = ("torch_recmetrics", "torchmetrics", "torch")  # none of their lines is what a warning is about
# 2^1024 is infinite in float64, and inf / inf would be reported as nan.
LARGEST_EXPONENTIAL_RELEVANCE = 1023
# Smaller gains come near the smallest float64: a user who has only those would have no digits left.
SMALLEST_RELEVANCE = 1e-290
SMALL_CATALOGUE = 10  # of so few items a row may list ids 0 and 1 alone; of more it is a matrix of 0 and 1


def plain_number(value: Any) -> Any:
    """A Python number or bool for one of NumPy's and its like; anything else as it is."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value


def plain_tensor(name: str, value: Any) -> Any:
    """A tensor for lists of numbers (floats in float64) and for arrays of NumPy and its like; the rest as it is."""
    is_list = isinstance(value, list | tuple)
    if isinstance(value, Tensor) or not (is_list or hasattr(value, "__array__")):
        return value
    try:
        # A copy: torch takes no negative strides, and warns of read-only arrays. A column of a frame may lack row 0.
        tensor = torch.as_tensor(value if is_list else value.__array__().copy())
        return torch.as_tensor(value, dtype=torch.float64) if is_list and tensor.is_floating_point() else tensor
    except (TypeError, ValueError, RuntimeError) as error:
        text = first_text(value)
        if text is not None:
            raise TypeError(
                f"`{name}` must be numbers, got text such as {text!r}: number what it names, in the same way each time"
            ) from None
        raise TypeError(f"`{name}` must be a tensor, or numbers in rows of one length: {error}") from None


def first_text(value: Any) -> str | None:
    """The first entry of a list or of an array, if it is text."""
    entries = value if isinstance(value, list | tuple) else value.__array__().ravel()
    first = next(iter(entries[:1]), None)
    return str(first) if isinstance(first, str) else None


def did_you_mean(word: Any, known: Iterable[str], otherwise: str = "", mark: str = "'") -> str:
    """The known word that is nearest to another, as a question; what is said where none is near."""
    near = difflib.get_close_matches(str(word), known, cutoff=0.72)  # at 0.7 `relevant_ids` is near `seen_ids`
    return f"did you mean {mark}{near[0]}{mark}?" if near else otherwise


def check_choice(name: str, value: Any, allowed: Iterable[Any]) -> None:
    """Refuse an option that is not one of the allowed words."""
    allowed = tuple(allowed)
    if not any(type(value) is type(a) and value == a for a in allowed):
        words = [a for a in allowed if isinstance(a, str)]
        hint = did_you_mean(value.lower(), words) if isinstance(value, str) else ""
        got = f"{value!r}: {hint}" if hint else repr(value)
        raise ValueError(f"`{name}` must be one of {', '.join(map(repr, allowed))}, got {got}")


def check_flag(name: str, value: Any) -> None:
    """Refuse an option that is not a bool."""
    if not isinstance(value, bool):
        raise ValueError(f"`{name}` must be True or False, got {value!r}")


def number_check(
    rule: str,
    kind: Any = (int, float),
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    below: float | None = None,
    optional: bool = False,
) -> Callable[[str, Any], None]:
    """A check of an option that is a number between two ends, or None where it is `optional`; `rule` says it."""

    def checked(name: str, value: Any) -> None:
        is_number = isinstance(value, kind) and not isinstance(value, bool)
        inside = is_number and value >= least and value > above and value <= most and (below is None or value < below)
        if not inside and (value is not None or not optional):
            raise ValueError(f"`{name}` must be {rule}, got {value!r}")

    return checked


check_cutoff = number_check(
    "an integer >= 1, or None for the whole list (ranking_metrics and evaluate take a list)",
    int,
    least=1,
    optional=True,
)
check_seed = number_check("an integer from 0 to 2^63 - 1", int, least=0, below=1 << 63)
check_share = number_check("a float between 0 and 1", float, above=0, below=1)
check_above_zero = number_check("a finite number above 0", above=0, below=math.inf)
check_max_relevance = number_check(
    f"a number from 1 to {LARGEST_EXPONENTIAL_RELEVANCE}", least=1, most=LARGEST_EXPONENTIAL_RELEVANCE
)
check_ignore_index = number_check(
    "an integer of 64 bits, or None for no label that is ignored", int, least=-1 << 63, below=1 << 63, optional=True
)
check_min_relevance = number_check(
    "a finite number > 0, or None for whatever is above 0", above=0, below=math.inf, optional=True
)
check_positive = number_check("an integer >= 1", int, least=1)
check_optional_positive = number_check("an integer >= 1", int, least=1, optional=True)


def check_ignored_target(name: str, value: Any) -> None:
    """Refuse what is no integer, or a label of clicks: one class would be left out."""
    check_ignore_index(name, value)
    if value in (0, 1):
        raise ValueError(
            f"`{name}` must be none of the labels 0 and 1, got {value}: all rows of this label would be left out; "
            "label those to ignore with another number, such as -100"
        )


def is_label(target: Tensor, label: int) -> Tensor:
    """Where a target has this label, which its dtype may be too narrow for: torch would take 256 for 0 then."""
    return (target if target.is_floating_point() else target.to(torch.int64)) == label


def is_below(relevance: Tensor, least: float) -> Tensor:
    """Where relevance is below a number, to which integers may be too narrow: torch would take 300 for 44 then."""
    if relevance.is_floating_point() or relevance.dtype == torch.bool:
        return relevance < float(least)
    return relevance <= min(math.ceil(least) - 1, torch.iinfo(relevance.dtype).max)


def is_count(value: Any) -> bool:
    """Whether it is an integer >= 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def hint_of_a_tensor(value: Any) -> str:
    """What to do with numbers or texts that are no tensor."""
    if not isinstance(value, list | tuple) and not hasattr(value, "__array__"):
        return ""
    text = first_text(value)
    if text is not None:
        return f" of texts such as {text!r}: number what they name, in the same way each time"
    return ": torch.as_tensor makes one of it"


def check_tensor(name: str, value: Any, *, ndim: int | None = None, hints: Mapping[int, str] | None = None) -> None:
    """Refuse what is not a tensor of so many dimensions; `hints` say what to do with another number of them."""
    if not isinstance(value, Tensor):
        raise TypeError(f"`{name}` must be a tensor, got {type(value).__name__}{hint_of_a_tensor(value)}")
    if value.layout != torch.strided:
        raise TypeError(f"`{name}` must be a dense (strided) tensor, got layout {value.layout}")
    if ndim is not None and value.ndim != ndim:
        hint = (hints or {}).get(value.ndim)
        raise ValueError(
            f"`{name}` must have {ndim} dimension{'s' * (ndim != 1)}, got shape {tuple(value.shape)}"
            f"{': ' if hint else ''}{hint or ''}"
        )


def check_shape(name: str, value: Tensor, shape: tuple[int, ...], like: str, hint: str | None = None) -> None:
    """Refuse a tensor whose shape is not that of the argument that it belongs to; `hint` says what may be meant."""
    if tuple(value.shape) != shape:
        more = "" if hint is None else f": {hint}"
        raise ValueError(f"`{name}` must have the shape {shape} of {like}, got {tuple(value.shape)}{more}")


def check_rows(name: str, value: Tensor, n_rows: int, like: str) -> None:
    """Refuse a tensor that has not one row for each user."""
    if value.shape[0] != n_rows:
        raise ValueError(
            f"`{name}` must have one row for each of the {n_rows} rows of {like}, got shape {tuple(value.shape)}"
        )


def check_float(name: str, value: Tensor) -> None:
    """Refuse scores and features that are not floating point."""
    if value.dtype not in FLOAT_DTYPES:
        hint = ": are `preds` and `target` swapped? Ranked ids go to `item_ids`" if name == "preds" else ""
        raise TypeError(
            f"`{name}` must be floating point (float16, bfloat16, float32 or float64), got {value.dtype}{hint}"
        )


def check_ids(name: str, value: Tensor) -> None:
    """Refuse ids that are not integers."""
    if value.dtype not in ID_DTYPES:
        raise TypeError(f"`{name}` must hold integers (int64 or narrower), got {value.dtype}")


def check_relevance(name: str, value: Tensor) -> None:
    """Refuse relevance of a dtype that has no order."""
    if value.dtype not in RELEVANCE_DTYPES:
        raise TypeError(f"`{name}` must be bool, integer or floating point, got {value.dtype}")


def check_mask(name: str, mask: Tensor) -> None:
    """Refuse a mask that is not bool."""
    if mask.dtype != torch.bool:
        raise TypeError(f"`{name}` must be bool (True = may be recommended), got {mask.dtype}")


HOLDS: dict[str, Callable[[str, Tensor], None]] = {  # what the arguments of updates hold
    **dict.fromkeys(("preds", "user_embeddings", "item_embeddings", "item_bias"), check_float),
    **dict.fromkeys(("target", "target_relevance", "weights"), check_relevance),
    **dict.fromkeys(("indexes", "sample_ids", "item_ids", "target_ids", "seen_ids"), check_ids),
    "mask": check_mask,
}


def check_argument(name: str, value: Any, *, ndim: int | None = None, hints: Mapping[int, str] | None = None) -> None:
    """Refuse what is not a tensor of so many dimensions and of a dtype that this argument may have."""
    check_tensor(name, value, ndim=ndim, hints=hints)
    if name in HOLDS:
        HOLDS[name](name, value)


def check_device(device: torch.device, tensors: Mapping[str, object]) -> None:
    """Refuse arguments that live on different devices."""
    for name, tensor in tensors.items():
        if isinstance(tensor, Tensor) and tensor.device != device:
            raise ValueError(f"all arguments must be on one device: `{name}` is on {tensor.device}, others on {device}")


# What an update looks for to warn of it.
MISTAKES, UNLISTED = "mistakes", "unlisted"
LOOKS = frozenset({MISTAKES, UNLISTED})

# The texts of warnings in their order, as keys, where somebody keeps them.
noted: ContextVar[dict[str, None] | None] = ContextVar("noted", default=None)


def warn(text: str, *, shown: bool = True) -> None:
    """Warn, where it is `shown`, and name the line of the user; and keep the text, whatever the filters show."""
    notes = noted.get()
    if notes is not None:
        notes[text] = None
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in PACKAGES:
        level, frame = level + 1, frame.f_back
    if shown:
        warnings.warn(text, UserWarning, stacklevel=level)


class ValueChecks:
    """Rules about values: collected while a ranking is made, read once by :meth:`raise_first`.

    Args:
        active: False leaves every optional rule out, so nothing is read from the device.
        warns: what is still looked for: input that is allowed but looks like a mistake, and users who are left out
            because nobody knows where an item stands that is not in their list.
    """

    def __init__(self, active: bool = True, *, warns: frozenset[str] = frozenset()) -> None:
        self.active = active
        self.warns = warns if active else frozenset()
        self.steps: tuple[Tensor, Tensor] | None = None  # (sequence, step) of each row, where rows are steps
        self._rules: list[tuple[Tensor, Callable[[int], str], Callable[[], Tensor] | None]] = []
        self._warnings: list[tuple[Tensor, str | Callable[[], str], str]] = []

    def defer(
        self,
        broken: Tensor,
        message: Callable[[int], str],
        where: Callable[[], Tensor] | None = None,
        *,
        always: bool = False,
    ) -> None:
        """Remember a rule: `broken` is True in the rows that break it, `message` words it for one of them.

        With `where` it only says whether there are any, and `where` which.
        """
        if (self.active or always) and broken.numel() and broken.device.type != "meta":
            self._rules.append((broken, message, where))

    def defer_warning(self, holds: Tensor, text: str | Callable[[], str], look: str = MISTAKES) -> None:
        """Warn if `holds`, a bool tensor, is True anywhere and no rule is broken.

        Who has been warned is not warned again. Mistakes are looked for once, also where there were none.
        """
        if look == MISTAKES:
            self.warns -= {look}
        if holds.device.type != "meta":
            self._warnings.append((holds, text, look))

    def raise_first(self) -> None:
        """Raise ValueError for the first rule that is broken, naming the first row that breaks it."""
        rules, warned, self._rules, self._warnings = self._rules, self._warnings, [], []
        both = [*(broken for broken, _, _ in rules), *(holds for holds, _, _ in warned)]
        if not both:
            return
        # On a CPU a read costs nothing, so there each is read when its turn comes.
        each: Iterator[Tensor | bool] = (holds.any() if holds.ndim else holds for holds in both)
        if not is_sync_free(both[0].device):
            every = torch.stack([holds.any() for holds in both])
            if not bool(every.any()):  # one read for all of them, and another one where any holds
                return
            each = iter(every.tolist())
        # zip stops at the end of `rules` before it takes from `each`, so the second loop goes on where this one ends.
        for (broken, message, where), holds in zip(rules, each):
            if holds:
                rows = broken if where is None else where()
                rows = rows if rows.ndim < 2 else rows.flatten(1).any(1)
                row = int(rows.reshape(-1).to(torch.uint8).argmax())
                text = message(row)
                if self.steps is not None and f"row {row}" in text:
                    sequence, step = (int(of_rows[row]) for of_rows in self.steps)
                    text = text.replace(f"row {row}", f"step {step} of sequence {sequence}")
                raise ValueError(text)
        for (_, warning, look), holds in zip(warned, each):
            if holds:
                self.warns -= {look}
                warn(warning if isinstance(warning, str) else warning())


def first_value_with(tensor: Tensor, row: int, rule: Callable[[Tensor], Tensor]) -> Any:
    """The first value of a row that breaks a rule, for a message."""
    values = tensor[row].reshape(-1)
    return values[rule(values)][0].item()


def defer_nan(checks: ValueChecks, is_nan: Tensor) -> None:
    """Scores that are not numbers have no order."""
    checks.defer(is_nan, lambda row: f"`preds` must not be NaN, got NaN in row {row}")


def defer_relevance(checks: ValueChecks, name: str, relevance: Tensor) -> None:
    """Relevance below zero, infinite or not a number."""
    if not checks.active or relevance.dtype == torch.bool or relevance.numel() == 0:
        return
    low, high = relevance.aminmax()  # carries NaN along: one pass sees all three
    checks.defer(
        ~(low >= 0),
        lambda row: f"`{name}` must be >= 0, got {first_value_with(relevance, row, lambda v: ~(v >= 0))} in row {row}",
        lambda: ~(relevance >= 0),
    )
    if relevance.is_floating_point():
        checks.defer(
            high == float("inf"), lambda row: f"`{name}` must be finite, got inf in row {row}", relevance.isinf
        )


def defer_gains(checks: ValueChecks, largest: Tensor, gains: Collection[Any], max_relevance: float | None) -> None:
    """Relevance whose gain no float64 holds, or only without digits, and relevance above the top of its scale.

    Args:
        checks: where they are collected.
        largest: the largest relevance of each user.
        gains: the options `gain` of the metrics that have one.
        max_relevance: the top of the scale; None where it has none.
    """
    if gains:
        checks.defer(
            (largest > 0) & (largest < SMALLEST_RELEVANCE),
            lambda row: (
                f"relevance must be 0 or at least {SMALLEST_RELEVANCE:g} where it is a gain, "
                f"got {largest[row].max().item():g} in row {row}"
            ),
        )
    defer_large_gains(checks, largest, gains, max_relevance)


def defer_large_gains(
    checks: ValueChecks, relevance: Tensor, gains: Collection[Any], max_relevance: float | None
) -> None:
    """The same of what is too large alone, which needs no user to be known."""
    if "exponential" in gains:
        rule = f'{LARGEST_EXPONENTIAL_RELEVANCE} with gain="exponential" (2^1024 is infinite)'
        refuse_above(checks, relevance, LARGEST_EXPONENTIAL_RELEVANCE, rule, '; use gain="linear"')
    if max_relevance is not None:
        rule, hint = f"max_relevance={max_relevance:g}", ": give ERR the top of your scale"
        refuse_above(checks, relevance, max_relevance, rule, hint)


def refuse_above(checks: ValueChecks, largest: Tensor, most: float, rule: str, hint: str) -> None:
    """Relevance above a bound."""
    if largest.element_size() == 1:
        largest = largest.to(torch.float32)  # compared with an int8 the limit itself would be cut to 8 bits
    checks.defer(
        largest > most,
        lambda row: f"relevance must be at most {rule}, got {largest[row].max().item():g} in row {row}{hint}",
    )


def is_readable(column: Tensor) -> bool:
    """Whether a compiled loop reads it, with one version for each dtype."""
    return column.dtype in READABLE and usable(column) and column.is_contiguous()


def lie_between(numbers: Tensor, least: float, most: float | None = None) -> bool:
    """Whether a compiled loop has found that all of (M,) numbers are 0 or between two ends, by default any finite one.

    False where there is no such loop.
    """
    if not is_readable(numbers):
        return False
    own = numbers.numpy()
    limits = torch.finfo(numbers.dtype) if numbers.is_floating_point() else torch.iinfo(numbers.dtype)
    return not kernels.count_beyond(own, *own.dtype.type((least, limits.max if most is None else most)))


def defer_weights(checks: ValueChecks, weights: Tensor, width: int = 1) -> None:
    """Weights below zero, infinite or not a number, and those that a product or a sum of them would lose.

    `width` is how many of (M,) weights are of one row.
    """
    wide = weights.dtype == torch.float64
    if checks.active and (lie_between(weights, SMALLEST_WEIGHT, LARGEST_WEIGHT) if wide else lie_between(weights, 0)):
        return
    if weights.dtype != torch.bool:
        checks.defer(
            ~((weights >= 0) & (weights < float("inf"))),
            lambda place: f"`weights` must be >= 0 and finite, got {weights[place].item()} in row {place // width}",
        )
    if wide:
        checks.defer(
            ((weights > 0) & (weights < SMALLEST_WEIGHT)) | (weights > LARGEST_WEIGHT),
            lambda place: (
                f"`weights` must be 0 or between {SMALLEST_WEIGHT:g} and {LARGEST_WEIGHT:g}, "
                f"got {weights[place].item():g} in row {place // width}"
            ),
        )


def defer_ids(checks: ValueChecks, name: str, ids: Tensor, *, below: int | None) -> bool:
    """Ids below -1, which is padding, or outside a catalogue of `below` items.

    True where they are known to be in range: on a CPU reading them costs nothing, elsewhere the checks do so later.
    """
    if not checks.active or ids.numel() == 0:
        return ids.numel() == 0
    dense = below is not None and below > SMALL_CATALOGUE and ids.ndim == 2 and ids.shape[1] == below
    low, high = ids.aminmax()
    if is_sync_free(ids.device) and not dense and int(low) >= -1 and (below is None or int(high) < below):
        return True
    checks.defer(
        low < -1,
        lambda row: (
            f"`{name}` must be 0 or more, or -1 for padding, got {first_value_with(ids, row, lambda v: v < -1)} in row "
            f"{row} (another padding: `ignore_index`)"
        ),
        lambda: ids < -1,
    )
    if dense:
        checks.defer(
            (low >= 0) & (high <= 1),  # each row would hold an id many times
            lambda _: (
                f"`{name}` must hold item ids, got a matrix of 0 and 1 with a column for each of the {below} items: "
                "give ids padded with -1, or the matrix as `target`, or turned around as `mask` (True = may be shown)"
            ),
        )
    if below is not None:
        checks.defer(
            high >= below,
            lambda row: (
                f"`{name}` must be below the number of items, {below}, "
                f"got {first_value_with(ids, row, lambda v: v >= below)} in row {row}"
            ),
            lambda: ids >= below,
        )
    return False


def defer_repeats(checks: ValueChecks, name: str, ordered_ids: Tensor) -> None:
    """An id twice in one row of ids that are sorted along the row; -1 may repeat."""
    if checks.active:
        again = (ordered_ids[:, 1:] == ordered_ids[:, :-1]) & (ordered_ids[:, 1:] >= 0)

        def message(row: int) -> str:
            twice = int(ordered_ids[row, 1:][again[row]][0])
            hint = ": padding is -1; where it is 0, give `ignore_index=0`" if twice == 0 else ""
            return f"`{name}` must not hold an id twice in one row, got {twice} twice in row {row}{hint}"

        checks.defer(again, message)


def refuse(broken: Tensor, message: Callable[[int], str]) -> None:
    """ValueError for the first row that breaks a rule, of what is read at once."""
    checks = ValueChecks()
    checks.defer(broken, message)
    checks.raise_first()
