"""Options of a metric, declared once: the constructor, its signature, checks, names and documentation follow.

An option is an annotated class attribute, ``gain: Literal["exponential", "linear"] = option(default="exponential")``.
A plain attribute in a subclass takes an inherited option away.

Type checkers read it as the field of a dataclass (PEP 681), so they refuse ``NDCG(topk=5)`` and ``NDCG(ties="avg")``.
"""

from __future__ import annotations

import functools
import inspect
import operator
import sys
import textwrap
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from torch import Tensor

from torch_recmetrics.core.tensors import checks as check

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:  # torch brings typing_extensions along, but nothing of it is needed at run time

    def dataclass_transform(**_: Any) -> Any:
        return lambda cls: cls


REQUIRED = inspect.Parameter.empty
TAKERS: dict[str, list[str]] = {}  # option -> the public metrics that have it, for the hint in `bind`


class Function:
    """A function of the user's, and the name that no other function goes by.

    Copies of a metric share it, also where it is a module with weights; those belong to the user's model. A metric is
    pickled where its function can be: not with a lambda.
    """

    known: ClassVar[dict[str, list[weakref.ref[Any]]]] = {}

    def __init__(self, given: Callable[..., Tensor]) -> None:
        self.given = given
        name = getattr(given, "__qualname__", type(given).__qualname__)
        name = f"{getattr(given, '__module__', '')}.{name}"
        known = self.known.setdefault(name, [])
        is_method = inspect.ismethod(given)  # made anew whenever it is looked up
        same: Callable[[Any, Any], bool] = operator.eq if is_method else operator.is_
        number = next((number for number, other in enumerate(known) if same(other(), given)), len(known))
        if number == len(known):
            try:
                known.append(weakref.WeakMethod(given) if is_method else weakref.ref(given))
            except TypeError:  # nothing refers to it without keeping it alive: it is met anew each time
                known.append(weakref.ref(Function))
        # Numbered in the order in which they are met, a script gives them the same names when it runs again.
        self.name = name if not number else f"{name}#{number + 1}"

    def __call__(self, *tensors: Tensor) -> Tensor:
        return self.given(*tensors)

    def __repr__(self) -> str:
        return self.name

    def __deepcopy__(self, memo: dict[int, Any]) -> Function:
        return self


@dataclass(frozen=True)
class Option:
    """What is declared of one option."""

    default: Any
    kw_only: bool
    doc: str
    check: Callable[[str, Any], Any] | None  # raises ValueError or TypeError for a value that is not allowed
    config: bool | Literal["changed"]  # part of what tells two metrics apart; "changed": where it is not the default
    kept: bool  # False: data that `setup` reads, then forgotten
    annotation: Any = None

    def parameter(self, name: str, *, kw_only: bool = True) -> inspect.Parameter:
        """The argument of a function that takes this option."""
        kind = inspect.Parameter.KEYWORD_ONLY if kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Parameter(name, kind, default=self.default, annotation=self.annotation)

    def validated(self, name: str, value: Any) -> Any:
        """The value, as a Python number where it is one of NumPy's, as a tensor where it must be one; checked."""
        value = check.plain_number(value)
        if self.takes_tensors:
            value = check.plain_tensor(name, value)
        if self.choices:
            check.check_choice(name, value, self.choices)
        elif self.annotation is bool:
            check.check_flag(name, value)
        if self.check is not None:
            self.check(name, value)
        return value

    def named(self, value: Any) -> Any:
        """A function of the user's with the name that metrics are told apart by; any other value as it is."""
        return Function(value) if self.takes_functions and callable(value) else value

    # What the annotation says, read once: a metric is made in less time than all of its annotations are read.

    @functools.cached_property
    def takes_tensors(self) -> bool:
        return Tensor in (self.annotation, *get_args(self.annotation))

    @functools.cached_property
    def takes_functions(self) -> bool:
        return any(get_origin(one) is Callable for one in get_args(self.annotation))

    @functools.cached_property
    def choices(self) -> tuple[Any, ...]:
        """The words that it may be, the first of which is the default; none where it may be others."""
        return get_args(self.annotation) if get_origin(self.annotation) is Literal else ()


def option(
    *,
    default: Any = REQUIRED,
    kw_only: bool = True,
    doc: str = "",
    check: Callable[[str, Any], Any] | None = None,
    config: bool | Literal["changed"] = True,
    kept: bool = True,
) -> Any:
    """Declare an option; ``Literal`` and ``bool`` annotations are checked without further words.

    Args:
        default: where there is none, the option must be given.
        kw_only: False lets it be given by position too, in the order of the class body.
        doc: one sentence for the documentation.
        check: a function of name and value that raises for a value that is not allowed.
        config: whether it is part of ``config()``; ``"changed"``: only where it is not the default.
        kept: False for data that ``setup`` reads and the metric then forgets.
    """
    return Option(default, kw_only, doc, check, config if kept else False, kept)


@dataclass_transform(kw_only_default=True, field_specifiers=(option,))
class Configured:
    """A class whose options are declared in its body; its ``configure`` is given the values of all, each checked."""

    top_k: int | None  # no option here: each metric has its own place for it
    declared_options: ClassVar[dict[str, Option]] = {}  # its own first
    data_words: Mapping[str, Any] = MappingProxyType({})  # what tells metrics of other data apart

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Option)}
        hints = annotations_of(cls, own)
        for name, declared in own.items():
            own[name] = replace(declared, annotation=hints[name])
            if declared.default is REQUIRED:
                delattr(cls, name)
            else:
                setattr(cls, name, declared.default)
        inherited = cls.declared_options  # still those of the nearest base
        plain = vars(cls).keys() - own.keys()  # these take inherited options away
        merged = {name: declared for name, declared in inherited.items() if name not in plain} | own
        # By position in the order of the bases, as in a dataclass; then those by keyword, the class' own first.
        by_position = {name: declared for name, declared in merged.items() if not declared.kw_only}
        cls.declared_options = {name: merged[name] for name in [*by_position, *own, *merged]}
        for name in cls.declared_options if "stem" in vars(cls) else ():
            TAKERS.setdefault(name, []).append(cls.__name__)
        cls.__doc__ = documented(cls.__doc__, cls.declared_options)
        if "__init__" not in vars(cls):
            cls.__init__ = constructor(cls)  # type: ignore[method-assign]

    def config(self) -> dict[str, Any]:
        """Everything that decides what is computed, by the name of the option."""
        options = {
            name: getattr(self, name)
            for name, declared in self.declared_options.items()
            if declared.config is True or (declared.config and getattr(self, name) != declared.default)
        }
        return {**options, **self.data_words}


def documented(docstring: str | None, options: dict[str, Option]) -> str | None:
    """A docstring of a metric with a section of its options, before the errors and the example."""
    known = inspect.cleandoc(docstring or "")  # from Python 3.13 on it is not indented
    places = [known.find(mark) for mark in ("\nRaises:", "\n>>>") if mark in known]
    if not places:
        return docstring
    text = "\nArgs:\n"
    for name, declared in options.items():
        if declared.doc:
            choices = f"One of {', '.join(f'``{word!r}``' for word in declared.choices)}."
            default = "" if declared.default is REQUIRED else f"Default: {declared.default!r}."
            sentence = f"{name}: {declared.doc} {choices if declared.choices else default}"
            text += textwrap.fill(sentence, 112, initial_indent=4 * " ", subsequent_indent=8 * " ") + "\n"
    return known[: min(places)] + text + known[min(places) :]


def annotations_of(cls: type, names: dict[str, Option]) -> dict[str, Any]:
    """The types of some attributes, read where the class was written."""

    def holder() -> None: ...

    holder.__annotations__ = {name: cls.__annotations__[name] for name in names}
    return get_type_hints(holder, vars(sys.modules[cls.__module__]))


def constructor(cls: type[Configured]) -> Any:
    """The ``__init__`` of a class with declared options."""
    declared = cls.declared_options
    signature = inspect.Signature([one.parameter(name, kw_only=one.kw_only) for name, one in declared.items()])

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        bound = bind(signature, cls.__name__, args, kwargs)
        checked = {name: declared[name].validated(name, value) for name, value in bound.items()}
        self.configure({name: declared[name].named(value) for name, value in checked.items()})

    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = signature.replace(parameters=[this, *signature.parameters.values()])  # type: ignore[attr-defined]
    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    __init__.__doc__ = "See the class."
    return __init__


def bind(
    signature: inspect.Signature, owner: str, args: Any, kwargs: dict[str, Any], word: str = "option"
) -> dict[str, Any]:
    """All arguments by name, with defaults; TypeError for an unknown one suggests the nearest known one."""
    for name in kwargs:
        if name not in signature.parameters:
            takers = TAKERS.get(name) if word == "option" else None
            others = f"that is one of {', '.join(takers)}" if takers else f"it has {', '.join(signature.parameters)}"
            hint = check.did_you_mean(name, signature.parameters, others, "`")
            raise TypeError(f"{owner} has no {word} `{name}`: {hint}") from None
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{owner}: {error}") from None
    bound.apply_defaults()
    return bound.arguments


def check_names(name: str, names: Any, each: str = "slice") -> None:
    """Refuse all but distinct, non-empty names in an order that can be read twice; `each` says what they name."""
    is_single = isinstance(names, str) or getattr(names, "ndim", 1) == 0  # a tensor of one number claims to be iterable
    if is_single or isinstance(names, AbstractSet | Iterator) or not isinstance(names, Iterable):
        raise TypeError(f'`{name}` must be the names of {each}s in order, such as ("cold", "warm"), got {names!r}')
    words = list(names)
    for word in words:
        if not isinstance(word, str) or not word:
            raise ValueError(f"`{name}` must hold names that are not empty, got {word!r}")
    if not words:
        raise ValueError(f"`{name}` must name at least one {each}, got none")
    if len(set(words)) < len(words):
        twice = next(word for word in words if words.count(word) > 1)
        raise ValueError(f"`{name}` must name each {each} once, got {twice!r} twice")
