# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Registration of replaceable algorithms: solvers, divisions, layout choices, tilings and cost models.

Each kind of algorithm is an abstract class with a ``Registry``; an algorithm is a named subclass. The decorator
``register`` adds an algorithm when its file is loaded by ``--load`` or imported. An entry point with the name of the
algorithm, in the group of the kind, is imported at the first lookup. docs/writing-an-algorithm.md is the manual.

A user-defined algorithm receives plain data, and its result is checked. Exceptions and invalid results are reported
as ``AlgorithmError`` with the file and line of the algorithm.
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

from spyre_mlir.errors import AlgorithmError, CompileError, listed, suggestion

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_Class = TypeVar("_Class", bound="type[Algorithm]")
_Kind = TypeVar("_Kind", bound="Algorithm")

#: Packages whose code is not user-defined.
_BUILT_IN = frozenset({"spyre_mlir", *sys.stdlib_module_names})

#: Caches whose values may depend on an algorithm, in addition to the caches of ``functools``.
CACHES: list[Clearable] = []


class Clearable(Protocol):
    """A cache that can be emptied."""

    def clear(self) -> None:
        """Forget all values."""
        ...


class Algorithm(abc.ABC):
    """Base class of replaceable algorithms; each kind sets the ``registry``, and each algorithm sets its ``name``.

    An algorithm is deterministic, does not modify its inputs, and is bounded by a number of steps, not by time.

    Attributes:
        name: The value of the pipeline option that selects the algorithm.
    """

    name: ClassVar[str]
    registry: ClassVar[Registry[Any]]

    @classmethod
    def is_foreign(cls) -> bool:
        """Return whether the class or one of its base classes is user-defined."""
        return bool(foreign_modules(cls))

    @contextlib.contextmanager
    def guarded(self, problem: str) -> Iterator[None]:
        """Convert exceptions that a user-defined algorithm raises to ``AlgorithmError``; ``problem`` names its task."""
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
        """Raise the ``AlgorithmError`` for an invalid result."""
        message = f"The {self.registry.noun} '{self.name}' gives a wrong answer for {problem}: {reason}."
        raise AlgorithmError(message, place_of_class(type(self)))

    def checked_states(self, answer: object, counts: Sequence[int], problem: str) -> tuple[int, ...]:
        """Check that a result has one state index per variable, below its entry in ``counts``; return it as a tuple."""
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
        """Check that a number is finite and not negative; return it as a float."""
        is_number = isinstance(number, int | float) or hasattr(number, "__float__")
        if isinstance(number, bool) or not is_number or not 0 <= float(number) < math.inf:  # type: ignore
            self.reject(f"{noun} is {number!r:.60}; it must be a finite number, 0 or more", problem)
        return float(number)  # type: ignore


class Registry(Generic[_Kind]):
    """The algorithms of one kind, by name.

    ``noun`` names the kind in messages, ``group`` is the entry point group, ``module`` defines the built-in algorithms.
    """

    def __init__(self, noun: str, group: str, default: str, module: str) -> None:
        self.noun: str = noun
        self.group: str = f"spyre_mlir.{group}"
        self.default: str = default
        self.module: str = f"spyre_mlir.{module}"
        self.error: type[Exception] = AlgorithmError
        self.classes: dict[str, type[_Kind]] = {}

    def add(self, cls: type[_Kind]) -> None:
        """Register a class under its name; raise the ``error`` of the registry if another class has that name."""
        # Built-in classes are registered before user-defined classes, which may not take their names.
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
        """Return the class with a name; if none has it, raise the ``error`` of the registry with a list of names."""
        importlib.import_module(self.module)
        if not isinstance(name, str):
            raise self.error(f"The name of a {self.noun} is a text, not {name!r}.")
        if name not in self.classes:
            self._load(name)
        if name in self.classes:
            return self.classes[name]
        names = self.names()
        hint = suggestion(name, names)
        sentence = f"There is no {self.noun} '{name}'; the {self.noun}s are {listed(names, name)}"
        raise self.error(f"{sentence} ({hint})." if hint else f"{sentence}.")

    def make(self, name: str, **options: Any) -> _Kind:
        """Create the algorithm with a name; the ``options`` are fields of its class."""
        cls = self.find(name)
        try:
            return cls(**options)
        except Exception as error:
            if not cls.is_foreign():
                raise
            text = f"The {self.noun} '{name}' cannot be created: {type(error).__name__}: {error}."
            raise AlgorithmError(text, _place_of(error, cls)) from None

    def names(self) -> list[str]:
        """Return the names of all algorithms, including entry points that are not imported yet."""
        importlib.import_module(self.module)
        return list(dict.fromkeys([*self.classes, *(entry.name for entry in self._entry_points())]))

    def packages(self) -> dict[str, str]:
        """Return the installed package, with its version, and the entry point of each algorithm of a package."""
        return {
            entry.name: f"{entry.dist.name} {entry.dist.version}, {entry.value}"
            if entry.dist
            else entry.value
            for entry in self._entry_points()
        }

    def require(self, name: str) -> None:
        """Raise the ``error`` of the registry if no algorithm has the name."""
        if name != self.default:
            self.find(name)

    def _entry_points(self) -> list[EntryPoint]:
        # Imported on use: the import is slow, and most programs do not name an algorithm of a package.
        from importlib.metadata import entry_points

        return sorted(entry_points(group=self.group), key=lambda entry: (entry.name, entry.value))

    def _load(self, name: str) -> None:
        """Import the entry point with a name, if it exists."""
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
                raise self.error(
                    f"The entry point '{entry.value}' is not a {self.noun} with the name '{name}'."
                )
            self.add(cls)


#: The registries, keyed by the pipeline option that selects an algorithm by name.
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
    """Register an algorithm under its name: a class decorator for all kinds.

    Args:
        cls: A subclass of one of the base classes on this page, with a unique ``name``.

    Returns:
        The class itself.

    Raises:
        CompileError: The class is not an algorithm, is abstract, or has the name of another algorithm (``PlanError``
            for a solver).
    """
    registry = getattr(cls, "registry", None)
    if not isinstance(registry, Registry):
        raise CompileError(
            f"'{getattr(cls, '__qualname__', cls)}' is not an algorithm: it must derive from an algorithm base class."
        )
    registry.add(cls)
    return cls


def _clear_caches() -> None:
    """Empty all caches: their keys contain the name of an algorithm, which another class has now."""
    for cache in CACHES:
        cache.clear()
    for cached in gc.get_objects():
        # isinstance would run code of proxy objects of other packages.
        if type(cached) is functools._lru_cache_wrapper and cached.__module__.startswith("spyre_mlir."):
            cached.cache_clear()


def is_integer(value: object) -> bool:
    """Return whether a value is an integer of Python or numpy; a boolean is not."""
    return hasattr(value, "__index__") and not isinstance(value, bool)


def foreign_modules(cls: type) -> list[str]:
    """Return the user-defined modules among the modules that define a class and its bases."""
    modules = dict.fromkeys(base.__module__ for base in cls.__mro__)
    return list(filter(is_foreign_module, modules))


def is_foreign_module(name: str) -> bool:
    """Return whether a module belongs neither to the compiler nor to Python's standard library."""
    return name.partition(".")[0] not in _BUILT_IN


def place_of_class(cls: type) -> str:
    """Return ``file:line:column`` of a class statement; line 1 if it is unknown, "" without a file."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if file is None:
        return ""
    try:
        return f"{file}:{inspect.findsource(cls)[1] + 1}:1"
    except (OSError, TypeError):
        return f"{file}:1:1"


def _place_of(error: Exception, cls: type) -> str:
    """Return the location of the innermost frame of an error in a file of a class, else the location of the class."""
    modules = (sys.modules.get(name) for name in foreign_modules(cls))
    files = {str(Path(file).resolve()) for module in modules if (file := getattr(module, "__file__", None))}
    frames = traceback.extract_tb(error.__traceback__)
    inner = [frame for frame in frames if str(Path(frame.filename).resolve()) in files]
    if not inner:
        return place_of_class(cls)
    return f"{inner[-1].filename}:{inner[-1].lineno}:{(inner[-1].colno or 0) + 1}"
