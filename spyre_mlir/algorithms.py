# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Registration of what decides and can be replaced: solvers, divisions, layout choices, tilings, cost models.

Each kind of algorithm is an abstract class with a ``Registry``; an algorithm is a class below it with a name. It is
known by the decorator ``register``, from a file of ``--load`` or an import, or by an entry point of that name in the
group of its kind, which is imported when the name is first asked for. docs/writing-an-algorithm.md is the manual.

An algorithm of the user gets plain data, and its answer is checked. What it raises, and an answer that is none, is an
``AlgorithmError`` at its file and line.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import gc
import importlib
import inspect
import math
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, Protocol, TypeVar

from spyre_mlir.errors import AlgorithmError, CompileError, suggestion

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_Class = TypeVar("_Class", bound="type[Algorithm]")
_Kind = TypeVar("_Kind", bound="Algorithm")

#: Packages whose code is none of a user.
_NOT_FOREIGN = frozenset({"spyre_mlir", *sys.stdlib_module_names})

#: Caches beside those of ``functools``, whose values may depend on an algorithm.
CACHES: list[Clearable] = []


class Clearable(Protocol):
    """A cache that can be emptied."""

    def clear(self) -> None:
        """Forget all values."""
        ...


class Algorithm(abc.ABC):
    """A decision that can be replaced; a subclass of one kind has the ``registry`` of it, and a ``name`` of its own.

    An algorithm is deterministic, changes nothing that it is given, and is bounded by steps instead of the clock.

    Attributes:
        name: The name by which an option of the pipeline chooses the algorithm.
    """

    name: ClassVar[str]
    registry: ClassVar[Registry[Any]]

    @classmethod
    def is_foreign(cls) -> bool:
        """Return whether code of a user takes part in the algorithm."""
        return bool(foreign_modules(cls))

    @contextlib.contextmanager
    def guarded(self, problem: str) -> Iterator[None]:
        """Context in which an exception of a user's algorithm is an error at its place; ``problem`` names its task."""
        try:
            yield
        except AlgorithmError:
            raise
        except Exception as error:
            if not self.is_foreign():
                raise
            text = error.message if isinstance(error, CompileError) else f"{type(error).__name__}: {error}"
            message = f"The {self.registry.noun} '{self.name}' fails for {problem}: {text.rstrip('.')}."
            raise AlgorithmError(message, _place_of(error, type(self))) from None

    def reject(self, reason: str, problem: str) -> NoReturn:
        """Raise the error of an answer that is none."""
        message = f"The {self.registry.noun} '{self.name}' gives a wrong answer for {problem}: {reason}."
        raise AlgorithmError(message, place_of_class(type(self)))

    def checked_states(self, answer: object, counts: Sequence[int], problem: str) -> tuple[int, ...]:
        """Return an answer that has for each variable the index of one of its ``counts`` states."""
        if isinstance(answer, str) or not isinstance(answer, Sequence):
            self.reject(f"it must be a sequence of {len(counts)} integers, not {answer!r:.60}", problem)
        if len(answer) != len(counts):
            self.reject(f"it has {len(answer)} entries for {len(counts)} variables", problem)
        for index, (state, count) in enumerate(zip(answer, counts, strict=True)):
            if not is_integer(state) or not 0 <= int(state) < count:
                self.reject(
                    f"entry {index} is {state!r:.60}; it must be an integer from 0 to {count - 1}", problem
                )
        return tuple(map(int, answer))

    def checked_number(self, number: object, noun: str, problem: str) -> float:
        """Return a number that is finite and not negative."""
        is_number = isinstance(number, int | float) or hasattr(number, "__float__")
        if isinstance(number, bool) or not is_number or not 0 <= float(number) < math.inf:  # type: ignore
            self.reject(f"{noun} is {number!r:.60}; it must be a finite number, 0 or more", problem)
        return float(number)  # type: ignore


class Registry(Generic[_Kind]):
    """The algorithms of one kind by name.

    ``noun`` is the kind in messages, ``group`` that of its entry points, ``module`` defines the compiler's own.
    """

    def __init__(self, noun: str, group: str, default: str, module: str) -> None:
        self.noun: str = noun
        self.group: str = f"spyre_mlir.{group}"
        self.default: str = default
        self.module: str = f"spyre_mlir.{module}"
        self.error: type[Exception] = AlgorithmError
        self.classes: dict[str, type[_Kind]] = {}

    def add(self, cls: type[_Kind]) -> None:
        """Make a class known by its name; the ``error`` of the registry for a name that another class has."""
        # A class of the user comes behind those of the compiler, whose names it may not take.
        if cls.is_foreign():
            importlib.import_module(self.module)
        if not isinstance(getattr(cls, "name", None), str) or inspect.isabstract(cls):
            missing = ", ".join(sorted(cls.__abstractmethods__)) or "name"
            raise self.error(f"The {self.noun} '{cls.__qualname__}' lacks: {missing}.")
        # Compared by name: a file that is loaded again defines the same class as another object.
        known = self.classes.setdefault(cls.name, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise self.error(f"Two {self.noun}s are named '{cls.name}'.")
        self.classes[cls.name] = cls
        if known is not cls:
            _clear_caches()

    def find(self, name: str) -> type[_Kind]:
        """Return the class of a name; the ``error`` of the registry lists all names if there is none."""
        importlib.import_module(self.module)
        if not isinstance(name, str):
            raise self.error(f"The name of a {self.noun} is a text, not {name!r}.")
        if name not in self.classes:
            self._load(name)
        if name in self.classes:
            return self.classes[name]
        names = self.names()
        hint = suggestion(name, names)
        there = f"{hint} There are" if hint else "there are"
        raise self.error(f"There is no {self.noun} '{name}'; {there} {', '.join(names)}.")

    def make(self, name: str, **options: Any) -> _Kind:
        """Return the algorithm of a name, with options that are fields of its class."""
        cls = self.find(name)
        try:
            return cls(**options)
        except Exception as error:
            if not cls.is_foreign():
                raise
            text = f"The {self.noun} '{name}' cannot be made: {type(error).__name__}: {error}."
            raise AlgorithmError(text, _place_of(error, cls)) from None

    def names(self) -> list[str]:
        """Return the names of all algorithms, those of entry points that are not imported yet among them."""
        importlib.import_module(self.module)
        return list(dict.fromkeys([*self.classes, *(entry.name for entry in self._entry_points())]))

    def require(self, name: str) -> None:
        """Raise the ``error`` of the registry if no algorithm has a name."""
        if name != self.default:
            self.find(name)

    def _entry_points(self) -> list[EntryPoint]:
        # It takes a while to import, and most programs name no algorithm of a package.
        from importlib.metadata import entry_points

        return sorted(entry_points(group=self.group), key=lambda entry: (entry.name, entry.value))

    def _load(self, name: str) -> None:
        """Import the entry point of a name, if there is one."""
        entries = [entry for entry in self._entry_points() if entry.name == name]
        if len({entry.value for entry in entries}) > 1:
            values = " and ".join(entry.value for entry in entries)
            raise self.error(f"Two {self.noun}s are named '{name}', by the entry points {values}.")
        for entry in entries[:1]:
            try:
                cls = entry.load()
            except Exception as error:
                text = f"The {self.noun} '{name}' of the entry point '{entry.value}' cannot be imported"
                raise AlgorithmError(f"{text}: {type(error).__name__}: {error}.") from None
            if getattr(cls, "registry", None) is not self or getattr(cls, "name", None) != name:
                raise self.error(f"The entry point '{entry.value}' is no {self.noun} with the name '{name}'.")
            self.add(cls)


#: The kinds by the option of the pipeline that takes a name.
REGISTRIES: dict[str, Registry[Any]] = {
    "layout_solver": Registry("solver", "solvers", "portfolio", "scratchpad.solvers"),
    "division": Registry("division", "divisions", "priority", "division_search.work_division"),
    "joint_division": Registry(
        "joint division", "joint_divisions", "lagrangian", "division_search.joint_choice"
    ),
    "layout_choice": Registry(
        "layout choice", "layout_choices", "elimination", "layout_search.layout_choice"
    ),
    "tiling": Registry("tiling", "tilings", "least-time", "tiling.tiling_choice"),
    "cost_model": Registry("cost model", "cost_models", "analytic", "cost.cost_model"),
}


def register(cls: _Class) -> _Class:
    """Make an algorithm known by its name: a decorator of its class, whatever its kind.

    Args:
        cls: A class below one of the base classes of this page, with a ``name`` of its own.

    Returns:
        The class itself.

    Raises:
        CompileError: The class is no algorithm, is still abstract, or has the name of another one (``PlanError`` for a
            solver).
    """
    registry = getattr(cls, "registry", None)
    if not isinstance(registry, Registry):
        raise CompileError(
            f"'{getattr(cls, '__qualname__', cls)}' is no algorithm: it has none of the base classes."
        )
    registry.add(cls)
    return cls


def _clear_caches() -> None:
    """Forget what an algorithm decided: caches know it by its name, and another class has that now."""
    for cache in CACHES:
        cache.clear()
    for cached in gc.get_objects():
        # Not isinstance, which asks proxies of other packages what they are.
        if type(cached) is functools._lru_cache_wrapper and cached.__module__.startswith("spyre_mlir."):
            cached.cache_clear()


def is_integer(value: object) -> bool:
    """Return whether a value is a whole number, of Python or of numpy."""
    return hasattr(value, "__index__") and not isinstance(value, bool)


def foreign_modules(cls: type) -> list[str]:
    """Return the modules that define a class and its bases and are not of the compiler."""
    modules = dict.fromkeys(base.__module__ for base in cls.__mro__)
    return list(filter(is_foreign_module, modules))


def is_foreign_module(name: str) -> bool:
    """Return whether a module is neither of the compiler nor of Python."""
    return name.partition(".")[0] not in _NOT_FOREIGN


def place_of_class(cls: type) -> str:
    """Return ``file:line:column`` of a class statement; the file alone, or nothing, where that is not known."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if file is None:
        return ""
    try:
        return f"{file}:{inspect.findsource(cls)[1] + 1}:1"
    except (OSError, TypeError):
        return f"{file}:1:1"


def _place_of(error: Exception, cls: type) -> str:
    """Return the place of the innermost frame of an error that is in a file of a class, or else that of the class."""
    modules = (sys.modules.get(name) for name in foreign_modules(cls))
    files = {str(Path(file).resolve()) for module in modules if (file := getattr(module, "__file__", None))}
    frames = traceback.extract_tb(error.__traceback__)
    inner = [frame for frame in frames if str(Path(frame.filename).resolve()) in files]
    if not inner:
        return place_of_class(cls)
    return f"{inner[-1].filename}:{inner[-1].lineno}:{(inner[-1].colno or 0) + 1}"
