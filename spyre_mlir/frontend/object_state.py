# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Python state that code can reach: attributes, items of containers, cells of closures, globals, classes.

An ``ObjectState`` is recorded before a model is called; later it reports the changes, and restores the recorded state.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch

from spyre_mlir.frontend.locations import is_user_file
from spyre_mlir.frontend.object_graphs import (
    ATTRIBUTE,
    Key,
    container_of,
    contents,
    is_same,
    new_tuple,
    part_path,
    refuse_hidden_tensors,
    set_contents,
    shown,
)
from spyre_mlir.tensors.device_tensor import DeviceTensor

_CELL, _GLOBAL, _METHOD = "cell", "global", "method"
#: Attributes of a module that torch.export tracks itself.
_REGISTERED = {"_parameters", "_buffers"}
_MISSING = object()
_WITHOUT_PARTS = (bool, int, float, str, bytes, torch.Tensor)
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)


class ObjectState:
    """Parts of all objects that can be reached from ``roots``.

    Without ``registered`` the buffers and parameters of modules are left out, because a trace tracks them itself.
    Without ``code`` modules and functions are left out, with all objects that are reachable only through them.
    """

    def __init__(self, roots: Iterable[Any], *, registered: bool = True, code: bool = True) -> None:
        self._registered, self._code = registered, code
        self._parts: dict[int, tuple[Any, dict[Key, Any], str]] = {}
        todo = [(root, "") for root in roots]
        while todo:
            value, path = todo.pop()
            if id(value) in self._parts or (parts := self._contents(value)) is None:
                continue
            self._parts[id(value)] = value, parts, path
            todo += [
                (part, _path(path, key))
                for key, part in reversed(parts.items())
                # Most parts are numbers and strings.
                if part is not None and not isinstance(part, _WITHOUT_PARTS)
            ]

    def _contents(self, value: Any) -> dict[Key, Any] | None:
        if not self._code:
            return contents(value)
        parts = _parts_of(value)
        if self._registered or parts is None or not isinstance(value, torch.nn.Module):
            return parts
        return {key: part for key, part in parts.items() if key[1] not in _REGISTERED}

    @property
    def objects(self) -> dict[int, Any]:
        """All objects by identity."""
        return {key: value for key, (value, _, _) in self._parts.items()}

    def changes(self) -> Iterator[StateChange]:
        """Yield the parts that have changed."""
        for value, before, path in self._parts.values():
            now = self._contents(value) or {}
            for key in {**before, **now}:
                one, other = before.get(key, _MISSING), now.get(key, _MISSING)
                if not is_same(one, other):
                    yield StateChange(value, key, _path(path, key), one, other)

    def restore(self) -> None:
        """Restore all parts."""
        for value, before, _ in self._parts.values():
            now = self._contents(value) or {}
            if list(now) != list(before) or any(now[key] is not part for key, part in before.items()):
                _set(value, before, now)

    def replace(self, function: Callable[[Any], Any]) -> None:
        """Replace each leaf by ``function(leaf)``, in the objects themselves; tuples are created again."""
        for value, before, _ in self._parts.values():
            if isinstance(value, tuple):
                continue
            parts = {key: _replaced(part, function) for key, part in before.items()}
            if any(parts[key] is not part for key, part in before.items()):
                _set(value, parts, before)

    def check_hidden(self) -> None:
        """Raise ``CompileError`` for a part that is not a container and holds a tensor without data."""
        for _, parts, path in self._parts.values():
            for key, part in parts.items():
                if contents(part) is None:
                    refuse_hidden_tensors(part, _path(path, key))


class StateChange(NamedTuple):
    """A changed part of an object, with the values before and now."""

    value: Any
    key: Key
    path: str
    before: Any
    now: Any

    @property
    def sentence(self) -> str:
        """Return a sentence about the change, without its subject and final period."""
        if self.before is _MISSING:
            return f"sets '{self.path}' to {shown(self.now)}"
        if self.now is _MISSING:
            return f"deletes '{self.path}'"
        return f"changes '{self.path}' from {shown(self.before)} to {shown(self.now)}"

    def apply(self) -> None:
        """Apply the change again."""
        now = _parts_of(self.value) or {}
        parts = {**now, self.key: self.now}
        if self.now is _MISSING:
            del parts[self.key]
        _set(self.value, parts, now)


def _parts_of(value: Any) -> dict[Key, Any] | None:
    """Parts of an object, a module, a user-defined class or a function; None for a value without parts."""
    if isinstance(value, torch.nn.Module):
        parts = {(ATTRIBUTE, name): part for name, part in vars(value).items()}
        return {(_METHOD, "__class__"): type(value), **parts}
    if isinstance(value, _FUNCTIONS):
        return _function_parts(value)
    if not isinstance(value, type):
        return contents(value)
    if not _is_users_module(value.__module__):
        return None
    parts = {
        (ATTRIBUTE, name): part
        for name, part in vars(value).items()
        if not (name.startswith("__") and name.endswith("__")) or name == "__call__"
    }
    return {**parts, **{(_METHOD, base.__name__): base for base in value.__bases__}}


def _replaced(value: Any, function: Callable[[Any], Any]) -> Any:
    """Apply ``function`` to a leaf, or to the leaves of a tuple; return any other value unchanged."""
    if isinstance(value, (torch.Tensor, DeviceTensor)):
        return function(value)
    if not isinstance(value, tuple) or contents(value) is None:
        return value
    items = [_replaced(item, function) for item in value]
    if all(one is other for one, other in zip(items, value, strict=True)):
        return value
    return new_tuple(type(value), items)


def _path(path: str, key: Key) -> str:
    kind, name = key
    if kind == _METHOD:
        return path
    if kind == ATTRIBUTE and name in ("_modules", "_buffers", "_parameters"):
        return path
    if path.endswith(("_modules", "_buffers")):
        path = path.rpartition(".")[0]
    return part_path(path, key if kind == "item" else (ATTRIBUTE, name))


@functools.cache
def _is_users_module(name: str) -> bool:
    """Return whether a Python module belongs to the user, and not to a library."""
    path = getattr(sys.modules.get(name), "__file__", None)
    return name == "__main__" or (path is not None and _is_users_path(path))


def _is_users_path(path: str) -> bool:
    return is_user_file(path) and "site-packages" not in path


def _function_parts(value: Any) -> dict[Key, Any] | None:
    """Cells and globals that a user-defined function uses; the parts of a method or a partial function."""
    if isinstance(value, types.MethodType):
        return {(_METHOD, "__self__"): value.__self__, (_METHOD, "__func__"): value.__func__}
    if isinstance(value, functools.partial):
        return {(_METHOD, name): getattr(value, name) for name in ("func", "args", "keywords")}
    parts: dict[Key, Any] = {}
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        try:
            parts[_CELL, name] = cell.cell_contents
        except ValueError:  # an empty cell
            continue
    # The globals of a user may be state; libraries of models have no such state.
    if _is_users_path(value.__code__.co_filename):
        names = (name for name in _names(value.__code__) if name in value.__globals__)
        parts.update(((_GLOBAL, name), value.__globals__[name]) for name in names)
        for index, default in enumerate(value.__defaults__ or ()):
            parts[_METHOD, index] = default
    return parts


@functools.cache
def _names(code: types.CodeType) -> tuple[str, ...]:
    """Names of globals and attributes in code and in the functions nested in it."""
    inner = (const for const in code.co_consts if isinstance(const, types.CodeType))
    return tuple(dict.fromkeys((*code.co_names, *(name for part in inner for name in _names(part)))))


def _set(value: Any, parts: dict[Key, Any], now: dict[Key, Any]) -> None:
    """Replace the current parts ``now`` of an object by ``parts``."""
    if isinstance(value, types.FunctionType):
        cells = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=True))
        for (kind, name), part in parts.items():
            if kind == _CELL and now.get((kind, name), _MISSING) is not part:
                cells[name].cell_contents = part
            elif kind == _GLOBAL and now.get((kind, name), _MISSING) is not part:
                value.__globals__[name] = part
        for kind, name in now.keys() - parts.keys():
            if kind == _GLOBAL:
                del value.__globals__[name]
    elif isinstance(value, torch.nn.Module):
        for _, name in [key for key in now if key not in parts and key[0] == ATTRIBUTE]:
            del vars(value)[name]
        vars(value).update({name: part for (kind, name), part in parts.items() if kind == ATTRIBUTE})
    elif isinstance(value, type):
        for (kind, name), part in parts.items():
            if kind == ATTRIBUTE and now.get((kind, name), _MISSING) is not part:
                setattr(value, name, part)
        for kind, name in now.keys() - parts.keys():
            if kind == ATTRIBUTE:
                delattr(value, name)
    elif container_of(type(value)) is not tuple and contents(value) is not None:
        set_contents(value, parts)
