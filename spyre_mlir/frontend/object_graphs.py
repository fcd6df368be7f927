# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Graphs of Python objects: the contents of inputs and results, and the changes that a call of a model makes to them.

``contents`` returns the parts of an object: items of containers, attributes of user-defined classes. An ``ObjectGraph``
describes everything that is reachable from a value. Tensors are leaves, shared objects and cycles are preserved, and
all other values are constants. Two calls with equal graphs are one program; a graph and leaves rebuild the objects.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import gc
import operator
import sys
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, TypeAlias

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from spyre_mlir.errors import CompileError, kind_of
from spyre_mlir.frontend.locations import is_user_file
from spyre_mlir.records import dataclass
from spyre_mlir.tensors.device_tensor import DeviceTensor

#: A part of an object: ("item", key or index) or ("attribute", name).
Key: TypeAlias = tuple[str, Any]
ITEM, ATTRIBUTE = "item", "attribute"

#: Python containers, subclasses before their base classes.
_CONTAINERS: tuple[type, ...] = (OrderedDict, defaultdict, dict, list, deque, set, tuple)
_MAPPINGS = (OrderedDict, defaultdict, dict)
#: Containers that pytrees support, with their parts in the order of a graph.
_NATIVE = {tuple, list, dict, OrderedDict}
LEAVES = (torch.Tensor, DeviceTensor, torch.SymInt, torch.SymFloat, torch.SymBool)
_ATOMS = {
    type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout, torch.Size,
}  # fmt: skip
#: Types whose values are compared by equality; other values are equal if they are the same object.
_COMPARED = (*_ATOMS, enum.Enum, slice, range, frozenset, torch.memory_format, types.EllipsisType)
_OPAQUE = (type, types.ModuleType, BaseException, enum.Enum, torch.nn.Module, torch.Size)
#: Libraries whose objects are constants, unless the objects are containers.
_OPAQUE_LIBRARIES = {*sys.stdlib_module_names, "torch", "torch_mlir", "numpy", "spyre_mlir"} - {"__main__"}
_OPEN_MODULES = ("spyre_mlir.zoo", "collections", "argparse")
#: Maximum number of objects visited by the search for tensors in a value that is not a container.
_MOST_HIDDEN = 10_000


def contents(value: Any) -> dict[Key, Any] | None:
    """Parts of a container, or of an object of any class, in order; None for a constant or a leaf."""
    kind = type(value)
    if kind in _ATOMS or isinstance(value, LEAVES) or isinstance(value, _OPAQUE):
        return None
    base = container_of(kind)
    if base is None and kind is not types.SimpleNamespace:
        is_of_library = kind.__module__.partition(".")[0] in _OPAQUE_LIBRARIES
        if is_of_library and not kind.__module__.startswith(_OPEN_MODULES):
            return None
    parts: dict[Key, Any] = {}
    if base in _MAPPINGS:
        parts.update(((ITEM, key), part) for key, part in base.items(value))
    elif base is set:
        texts = ((type(part).__name__, repr(part) if isinstance(part, _COMPARED) else "") for part in value)
        ordered = sorted(zip(texts, value, strict=True), key=operator.itemgetter(0))
        parts.update(((ITEM, index), part) for index, (_, part) in enumerate(ordered))
    elif base is not None:
        parts.update(((ITEM, index), part) for index, part in enumerate(base.__iter__(value)))
    if kind is not base:
        parts.update(((ATTRIBUTE, name), part) for name, part in _attributes(value))
    return parts


def container_of(kind: type) -> type | None:
    """The Python container that a class is or extends; None for any other class."""
    return next((base for base in _CONTAINERS if issubclass(kind, base)), None)


def _slots(kind: type) -> Iterator[tuple[str, Any]]:
    """Names and descriptors of the slots of a class."""
    for base in kind.__mro__:
        for name, descriptor in vars(base).items() if "__slots__" in vars(base) else ():
            if isinstance(descriptor, types.MemberDescriptorType):
                yield name, descriptor


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of attributes; ``__dict__`` is sorted by name, because assignment order does not matter."""
    named = _named_attributes(value)
    yield from ((name, named[name]) for name in sorted(named, key=str))
    for name, descriptor in _slots(type(value)):
        with contextlib.suppress(AttributeError):  # a slot without a value
            yield name, descriptor.__get__(value)


def _named_attributes(value: Any) -> dict[str, Any]:
    """Return the attributes in ``__dict__``, in the order of their assignments."""
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}


def set_contents(value: Any, parts: Mapping[Key, Any]) -> None:
    """Set the parts of a mutable object to ``parts``, and remove all other parts."""
    base = container_of(type(value))
    items = [(key, part) for (kind, key), part in parts.items() if kind == ITEM]
    if base is not None and base is not tuple:
        base.clear(value)
        if base in _MAPPINGS:
            for key, part in items:
                base.__setitem__(value, key, part)
        elif base is set:
            base.update(value, (part for _, part in items))
        else:
            base.extend(value, (part for _, part in items))
    if type(value) is base:
        return
    named = {name: part for (kind, name), part in parts.items() if kind == ATTRIBUTE}
    slots = dict(_slots(type(value)))
    for name, descriptor in slots.items():
        if name in named:
            descriptor.__set__(value, named.pop(name))
        elif hasattr(value, name):
            descriptor.__delete__(value)
    if named or hasattr(value, "__dict__"):
        attributes = object.__getattribute__(value, "__dict__")
        for name in [name for name in attributes if name not in named]:
            del attributes[name]
        attributes.update(named)


def is_same(one: Any, other: Any) -> bool:
    """Return whether two parts are the same object, or equal Python values."""
    if one is other:
        return True
    if type(one) is not type(other) or isinstance(one, LEAVES):
        return False
    if isinstance(one, _COMPARED):
        return one == other or repr(one) == repr(other)  # NaN
    if isinstance(one, weakref.ref):
        # A weak reference is not state: recurrent layers renew their references when a tracer replaces the parameters.
        return True
    if contents(one) is None:
        return isinstance(one, types.MethodType) and one == other
    (graph, leaves), (other_graph, other_leaves) = flatten([one]), flatten([other])
    return graph == other_graph and all(map(operator.is_, leaves, other_leaves))


@dataclass(frozen=True, eq=False)
class ObjectReference:
    """A part of an object in a graph.

    ``value`` depends on ``kind``: for "leaf" the index of a leaf, for "object" the index of a node, for "constant" a
    value, for "input" the index of an object among the inputs, for "input leaf" the index of a tensor among the inputs,
    and for "kept" the key of an unchanged part.
    """

    kind: str
    value: Any

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ObjectReference) or self.kind != other.kind:
            return False
        return is_same(self.value, other.value) if self.kind == "constant" else self.value == other.value


@dataclass(frozen=True)
class ObjectNode:
    """An object of a class with its parts; ``option`` is the factory of a defaultdict or the length of a deque.

    ``attributes`` are the names in ``__dict__`` in assignment order, in which PyTorch flattens an object.
    """

    kind: type
    parts: tuple[tuple[Key, ObjectReference], ...]
    option: Any = None
    attributes: tuple[str, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class ObjectGraph:
    """Objects that are reachable from the values ``roots``; ``paths`` name the nodes, ``leaf_paths`` the leaves."""

    roots: tuple[ObjectReference, ...]
    nodes: tuple[ObjectNode, ...]
    paths: tuple[str, ...] = field(compare=False, repr=False)
    leaf_paths: tuple[str, ...] = field(compare=False, repr=False)

    def build(self, leaves: Sequence[Any], inputs: Sequence[Any] = ()) -> tuple[list[Any], list[Any]]:
        """Create the objects with these leaves; return the roots, and the objects by node.

        ``inputs`` are the objects to which references of kind "input" refer.
        """
        objects: dict[int, Any] = {}

        def value_of(reference: ObjectReference) -> Any:
            if reference.kind == "leaf":
                return leaves[reference.value]
            if reference.kind == "object":
                return object_of(reference.value)
            return inputs[reference.value] if reference.kind == "input" else reference.value

        def object_of(index: int) -> Any:
            """Rebuild the object of a node once; a cycle refers to the object under construction."""
            if index in objects:
                return objects[index]
            node = self.nodes[index]
            base = container_of(node.kind)
            if base is tuple:
                parts = {key: value_of(part) for key, part in node.parts}
                items = [part for (kind, _), part in parts.items() if kind == ITEM]
                made = objects[index] = new_tuple(node.kind, items)
                for (kind, name), part in parts.items():
                    if kind == ATTRIBUTE:
                        object.__setattr__(made, name, part)
                return made
            # Bypass __init__, and __new__ of the class if Python allows it.
            kind: Any = node.kind
            plain: Any = base or object
            try:
                made = plain.__new__(kind)
            except TypeError:
                made = kind.__new__(kind)
            objects[index] = made
            if base is defaultdict:
                made.default_factory = node.option
            elif base is deque:
                deque.__init__(made, (), node.option)
            # Attributes in the order of their assignments.
            places = {(ATTRIBUTE, name): place for place, name in enumerate(node.attributes)}
            parts_as_assigned = sorted(node.parts, key=lambda part: places.get(part[0], -1))
            set_contents(made, {key: value_of(part) for key, part in parts_as_assigned})
            return made

        roots = [value_of(root) for root in self.roots]
        return roots, [object_of(index) for index in range(len(self.nodes))]

    def difference(self, other: ObjectGraph) -> tuple[str, str, str] | None:
        """Path of the first constant that differs, with both values as text; None if the graphs differ elsewhere."""
        for path, node, its in zip(self.paths, self.nodes, other.nodes, strict=False):
            if node.kind is not its.kind or len(node.parts) != len(its.parts):
                return None
            for (key, one), (its_key, another) in zip(node.parts, its.parts, strict=True):
                if key != its_key or one.kind != another.kind:
                    return None
                if one != another and one.kind == "constant":
                    return part_path(path, key), shown(one.value), shown(another.value)
        return None

    def shape(self) -> tuple[Any, ...]:
        """Return the graph without its constants, as a comparable value."""
        return tuple(
            (
                node.kind,
                [(key, (part.kind, part.kind != "constant" and part.value)) for key, part in node.parts],
            )
            for node in self.nodes
        )


def new_tuple(kind: type, items: list[Any]) -> Any:
    """Create a tuple of a class, which may be a named result type of PyTorch."""
    return kind(items) if hasattr(kind, "n_sequence_fields") else tuple.__new__(kind, items)


class ObjectWalk:
    """Nodes and leaves in the order of a walk from the roots; ``known`` maps identities of objects to references."""

    def __init__(self, known: Mapping[int, ObjectReference]) -> None:
        self.nodes: list[ObjectNode | None] = []
        self.objects: list[Any] = []
        self.leaves: list[Any] = []
        self.paths: list[str] = []
        self.leaf_paths: list[str] = []
        #: First leaf of each node, and the ends of the nodes and leaves that the walk first reaches inside the node.
        self.spans: dict[int, tuple[int, int, int]] = {}
        self._known = known
        self._indices: dict[int, int] = {}
        self._leaf_indices: dict[int, int] = {}

    def reference(self, value: Any, path: str, is_inside: bool = True) -> ObjectReference:
        """Return a reference to a value; a leaf outside of objects is a separate leaf each time that it occurs."""
        if id(value) in self._known:
            return self._known[id(value)]
        if isinstance(value, LEAVES):
            if is_inside and id(value) in self._leaf_indices:
                return ObjectReference("leaf", self._leaf_indices[id(value)])
            self.leaves.append(value)
            self.leaf_paths.append(path)
            if is_inside:
                self._leaf_indices[id(value)] = len(self.leaves) - 1
            return ObjectReference("leaf", len(self.leaves) - 1)
        if id(value) in self._indices:
            return ObjectReference("object", self._indices[id(value)])
        parts = contents(value)
        if parts is None:
            return ObjectReference("constant", value)
        index, first = len(self.nodes), len(self.leaves)
        self.nodes.append(None)
        self.objects.append(value)
        self.paths.append(path)
        # Python may represent equal tuples by one object.
        if container_of(type(value)) is not tuple:
            self._indices[id(value)] = index
        inside = is_inside or not is_native(type(value))
        references = tuple(
            (key, self.reference(part, part_path(path, key), inside)) for key, part in parts.items()
        )
        option = getattr(value, "default_factory", getattr(value, "maxlen", None))
        self.nodes[index] = ObjectNode(
            type(value),
            references,
            option if isinstance(value, defaultdict | deque) else None,
            tuple(_named_attributes(value)) if type(value) is not container_of(type(value)) else (),
        )
        self.spans[index] = first, len(self.nodes), len(self.leaves)
        return ObjectReference("object", index)

    def graph(self, *roots: ObjectReference) -> ObjectGraph:
        """Return the graph of everything that the walk has reached."""
        nodes = tuple(node for node in self.nodes if node is not None)
        return ObjectGraph(roots, nodes, tuple(self.paths), tuple(self.leaf_paths))


def flatten(values: Sequence[Any]) -> tuple[ObjectGraph, list[Any]]:
    """Return the ObjectGraph of values, and its leaves."""
    walk = ObjectWalk({})
    roots = [walk.reference(value, "") for value in values]
    return walk.graph(*roots), walk.leaves


def part_path(path: str, key: Key) -> str:
    """Path of a part in Python syntax."""
    kind, name = key
    return f"{path}[{name!r}]" if kind == ITEM else f"{path}.{name}" if path else str(name)


def shown(value: Any) -> str:
    """Text of a value for a message."""
    if isinstance(value, torch.Tensor):
        return "a tensor"
    text = repr(value) if isinstance(value, (*_COMPARED, tuple)) else kind_of(value)
    return text if len(text) <= 60 else kind_of(value)


def is_native(kind: type) -> bool:
    return kind in _NATIVE or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def refuse_hidden_tensors(value: Any, path: str) -> None:
    """Raise ``CompileError`` if a value other than a container holds a tensor without data."""
    if _hides_tensors(value):
        raise CompileError(
            f"The model returns or stores {kind_of(value)} as '{path}' that holds a tensor of the call, and "
            "a program cannot return such a value; return the tensor itself, or an object with it."
        )


def _hides_tensors(value: Any) -> bool:
    """Return whether a value such as a function or a generator holds a tensor without data."""
    if type(value) in _ATOMS or isinstance(value, _OPAQUE):
        return False
    seen, todo = {id(value)}, [value]
    while todo and len(seen) < _MOST_HIDDEN:
        for part in gc.get_referents(todo.pop()):
            if isinstance(part, FakeTensor | FunctionalTensor):
                return True
            is_namespace = isinstance(part, dict) and "__builtins__" in part
            if id(part) in seen or is_namespace or isinstance(part, (*_OPAQUE, types.CodeType)):
                continue
            seen.add(id(part))
            todo.append(part)
    return False


# Python state that code can reach: attributes, items of containers, cells of closures, globals, classes.
#
# An ``ObjectState`` is recorded before a model is called; later it reports the changes, and restores the recorded
# state.


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
    # The globals of user code may be state; libraries of models do not have such state.
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
