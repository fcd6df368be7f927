# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A replacement for ``dataclasses.dataclass`` that does not compile methods for each class.

The standard library compiles the text of up to six methods per class, which was a quarter of the start time of a tool.
Here, a method is created at its first use, and classes share compiled code: ``__init__(self, a0, a1)`` is compiled
once, and a class with the fields ``x`` and ``y`` gets a copy with these names. Methods off the hot path are functions
that all classes share.

The fields are ``dataclasses.Field`` objects, so ``dataclasses.fields``, ``replace`` and ``asdict`` work, and a class of
either kind may inherit from the other kind. ``InitVar``, ``KW_ONLY`` and the options that are not parameters here are
not supported.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import reprlib
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform


class _Factory:
    def __repr__(self) -> str:
        return "<factory>"


#: The default of a parameter whose field has a default factory.
_MADE = _Factory()
_GLOBALS = {"put": object.__setattr__, "MADE": _MADE, "__builtins__": __builtins__, "__name__": __name__}
_FIELDS, _PARAMS = "__dataclass_fields__", "__dataclass_params__"
#: The mark by which the standard library distinguishes a field from a class variable.
_FIELD: Any = vars(dataclasses)["_FIELD"]

_EQ = """
def __eq__(self, other):
    if other.__class__ is self.__class__:
        return ({self}) == ({other})
    return NotImplemented
"""
_HASH = "def __hash__(self): return hash(({self}))"

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, init: bool = True
    ) -> Any:
        """Add ``__init__``, ``__repr__``, ``__eq__`` and ``__hash__`` to a class with annotated fields."""
        if cls is None:
            return functools.partial(dataclass, frozen=frozen, eq=eq, init=init)
        # The fields by name, inherited fields first; set the defaults as attributes of the class.
        fields: dict[str, dataclasses.Field[Any]] = {}
        for base in reversed(cls.__mro__[1:]):
            fields |= getattr(base, _FIELDS, {})
        for name, annotation in inspect.get_annotations(cls).items():
            if "ClassVar" in str(annotation):
                continue
            given = cls.__dict__.get(name, dataclasses.MISSING)
            field: Any = given if isinstance(given, dataclasses.Field) else dataclasses.field(default=given)
            if field is given and field.default is dataclasses.MISSING:
                delattr(cls, name)
            elif field is given:
                setattr(cls, name, field.default)
            field.name, field.type, field._field_type = name, annotation, _FIELD
            field.kw_only = field.kw_only is True
            fields[name] = field
        setattr(cls, _FIELDS, fields)
        # User-defined passes are frozen dataclasses of the standard library, so their base must look frozen to it.
        setattr(cls, _PARAMS, _params(frozen, eq, init))
        # The attributes to add; the caller skips attributes that the class body defines.
        attributes: dict[str, Any] = {"__repr__": _repr, "__match_args__": _MatchArguments()}
        if init:
            attributes["__init__"] = _DeferredMethod(cls, "__init__", _init)
        if frozen:
            attributes |= {"__setattr__": _refuse_assignment, "__delattr__": _refuse_deletion}
        if eq:
            attributes["__eq__"] = _DeferredMethod(cls, "__eq__", _eq)
            attributes["__hash__"] = _DeferredMethod(cls, "__hash__", _hash) if frozen else None
        for name, attribute in attributes.items():
            if name not in cls.__dict__:
                setattr(cls, name, attribute)
        return cls


@functools.cache
def _params(frozen: bool, eq: bool, init: bool) -> Any:
    # The standard library compiles nothing with these options, because it generates no methods.
    params = getattr(
        dataclasses.dataclass(init=False, repr=False, eq=False)(type("", (), {"__doc__": "-"})), _PARAMS
    )
    params.frozen, params.eq, params.init, params.repr = frozen, eq, init, True
    return params


class _DeferredMethod:
    """A method that is created at its first use: a run of a tool uses a third of all methods."""

    def __init__(self, cls: type, name: str, make: Callable[[Any], FunctionType]) -> None:
        self._cls, self._name, self._make = cls, name, make

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        made = self._make(self._cls)
        if self._cls.__dict__[self._name] is self:
            setattr(self._cls, self._name, made)
        return made.__get__(instance, owner)


class _MatchArguments:
    """The ``__match_args__`` attribute, by which ``match`` maps positions to fields; computed at its first use."""

    def __get__(self, instance: object, owner: Any) -> tuple[str, ...]:
        names = tuple(field.name for field in dataclasses.fields(owner) if field.init and not field.kw_only)
        owner.__match_args__ = names
        return names


def hash_once(self: Any) -> int:
    """Return the hash of the compared fields, computed once: ``__hash__`` of a dataclass that is a key of caches."""
    try:
        return self._hash
    except AttributeError:
        fields = dataclasses.fields(self)
        value = hash(tuple(getattr(self, field.name) for field in fields if field.compare))
        vars(self)["_hash"] = value
        return value


@dataclass_transform(frozen_default=True)
class Statement:
    """A fact as a frozen record: a subclass per kind of fact has its data as fields.

    ``title`` names the kind, or is empty; ``sentence`` is the sentence about the fact, with fields in braces.
    """

    title: ClassVar[str] = ""
    sentence: ClassVar[str] = ""

    def __init_subclass__(cls, title: str | None = None, sentence: str = "") -> None:
        cls.title, cls.sentence = cls.title if title is None else title, sentence
        dataclass(cls, frozen=True)

    @property
    def detail(self) -> str:
        """The sentence, without the title."""
        return self.sentence.format(**vars(self))

    def __str__(self) -> str:
        return f"{self.title}: {self.detail}" if self.title else self.detail


def _eq(cls: Any) -> FunctionType:
    return _comparison(cls, _EQ, [field.name for field in dataclasses.fields(cls) if field.compare])


def _hash(cls: Any) -> FunctionType:
    fields = dataclasses.fields(cls)
    hashed = [field.name for field in fields if (field.compare if field.hash is None else field.hash)]
    return _comparison(cls, _HASH, hashed)


def _init(cls: Any) -> FunctionType:
    """Return ``__init__``, whose parameters are the fields in order, with keyword-only fields last."""
    fields, frozen = dataclasses.fields(cls), getattr(cls, _PARAMS).frozen
    has_factory = [field.default_factory is not dataclasses.MISSING for field in fields]
    shape = tuple((field.init, field.kw_only, made) for field, made in zip(fields, has_factory, strict=True))
    code = _init_code(shape, frozen, hasattr(cls, "__post_init__"))
    names = {f"a{index}": field.name for index, field in enumerate(fields)}
    factories = {f"make{i}": field.default_factory for i, field in enumerate(fields) if has_factory[i]}
    function = _function(cls, code, names, {**_GLOBALS, **factories} if factories else _GLOBALS)
    defaults = {
        field.name: (_MADE if made else field.default, field.kw_only)
        for field, made in zip(fields, has_factory, strict=True)
        if field.init and (made or field.default is not dataclasses.MISSING)
    }
    function.__defaults__ = tuple(value for value, by_keyword in defaults.values() if not by_keyword)
    function.__kwdefaults__ = {name: value for name, (value, by_keyword) in defaults.items() if by_keyword}
    function.__annotations__ = {**{field.name: field.type for field in fields if field.init}, "return": None}
    return function


@functools.cache
def _init_code(shape: tuple[tuple[bool, bool, bool], ...], frozen: bool, has_post_init: bool) -> CodeType:
    """Compile ``__init__``; ``shape`` has (is a parameter, is keyword-only, has a default factory) for each field."""
    by_position = [
        f"a{index}" for index, (init, by_keyword, _) in enumerate(shape) if init and not by_keyword
    ]
    by_keyword = [f"a{index}" for index, (init, by_keyword, _) in enumerate(shape) if init and by_keyword]
    lines = []
    for index, (init, _, made) in enumerate(shape):
        value = f"make{index}()" if made else f"a{index}"
        if made and init:
            value = f"{value} if a{index} is MADE else a{index}"
        if made or init:
            lines.append(f"put(self, 'a{index}', {value})" if frozen else f"self.a{index} = {value}")
    lines += ["self.__post_init__()"] if has_post_init else []
    parameters = ", ".join(["self", *by_position, *(["*", *by_keyword] if by_keyword else [])])
    return _compiled(f"def __init__({parameters}):\n  " + "\n  ".join(lines or ["pass"]))


def _comparison(cls: type, text: str, names: Sequence[str]) -> FunctionType:
    return _function(
        cls, _comparison_code(text, len(names)), {f"a{i}": name for i, name in enumerate(names)}, _GLOBALS
    )


@functools.cache
def _comparison_code(text: str, count: int) -> CodeType:
    values = {self: "".join(f"{self}.a{index}," for index in range(count)) for self in ("self", "other")}
    return _compiled(text.format(**values))


def _compiled(text: str) -> CodeType:
    scope: dict[str, Any] = {}
    exec(compile(text, "<dataclass>", "exec"), scope)
    return next(value for name, value in scope.items() if name != "__builtins__").__code__


def _function(cls: type, code: CodeType, names: Mapping[str, str], scope: dict[str, Any]) -> FunctionType:
    """Return a function with a copy of the code in which variables, attributes and strings are renamed by ``names``."""
    code = code.replace(
        co_varnames=tuple(names.get(name, name) for name in code.co_varnames),
        co_names=tuple(names.get(name, name) for name in code.co_names),
        co_consts=tuple(
            names.get(value, value) if isinstance(value, str) else value for value in code.co_consts
        ),
    )
    function = FunctionType(code, scope)
    function.__qualname__ = f"{cls.__qualname__}.{code.co_name}"
    function.__module__ = cls.__module__
    return function


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    shown = (field.name for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def _refuse_assignment(self: Any, name: str, value: Any) -> None:
    _require_other(self, name, "assign to")
    object.__setattr__(self, name, value)


def _refuse_deletion(self: Any, name: str) -> None:
    _require_other(self, name, "delete")
    object.__delattr__(self, name)


def _require_other(self: Any, name: str, verb: str) -> None:
    """Raise ``FrozenInstanceError``, except for a new attribute of a class that inherits from a dataclass."""
    if _FIELDS in type(self).__dict__ or name in getattr(self, _FIELDS):
        raise dataclasses.FrozenInstanceError(f"cannot {verb} field {name!r}")
