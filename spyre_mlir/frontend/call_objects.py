# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs of a call as a graph of objects and as pytrees, and the results and changes of a call.

``CallInputs`` is the graph of the inputs of a call. ``CallOutcome`` contains the results of a call and the changes of
objects among its inputs. It is a pytree of the tensors in it, so that a trace of PyTorch can return it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from torch.utils import _pytree as pytree

from spyre_mlir.errors import CompileError, kind_of
from spyre_mlir.frontend import object_graphs
from spyre_mlir.records import dataclass

#: Example inputs: a tuple, or a mapping from the names of keyword inputs.
Inputs = Sequence[Any] | Mapping[str, Any]


def as_call(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword inputs of a call, from example inputs."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    raise CompileError(
        "The example inputs are a tuple of tensors, or a mapping from the names of keyword inputs, "
        f"not {kind_of(inputs)}; give one input as (x,)."
    )


@dataclass(frozen=True)
class _ObjectForm:
    """An object among the inputs of a call, without its leaves: the nodes of the graph that are in the object."""

    root: object_graphs.ObjectReference
    nodes: tuple[object_graphs.ObjectNode, ...]
    names: tuple[str, ...] = field(compare=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> _ObjectForm:
        return self

    def __repr__(self) -> str:
        return f"a {self.nodes[0].kind.__name__}" if self.nodes else "an object that exists already"


@dataclass(frozen=True)
class ObjectParts:
    """The tensors of one object among the inputs of a call, as a pytree."""

    leaves: tuple[Any, ...]
    form: _ObjectForm

    def __repr__(self) -> str:
        return repr(self.form)


def _named_parts(parts: ObjectParts) -> tuple[list[tuple[Any, Any]], _ObjectForm]:
    pairs = zip(parts.form.names, parts.leaves, strict=True)
    return [(pytree.GetAttrKey(name), leaf) for name, leaf in pairs], parts.form


pytree.register_pytree_node(
    ObjectParts,
    lambda parts: (list(parts.leaves), parts.form),
    lambda leaves, form: ObjectParts(tuple(leaves), form),
    flatten_with_keys_fn=_named_parts,
)


class CallInputs:
    """Inputs of a call as a graph, and as a pytree in which an object of any class is represented by its tensors.

    Attributes:
        graph: The graph. Its roots are the tuple of the positional inputs and the dict of the keyword inputs.
        leaves: The tensors of the graph.
        objects: The objects by node.
        call: Both roots as pytrees: objects that pytrees do not support are ``ObjectParts``.
    """

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str] = ()) -> None:
        """Walk the inputs; ``names`` are the names of the positional inputs, for messages."""
        walk = object_graphs.ObjectWalk({})
        by_position = walk.reference(tuple(args), "input", False)
        by_name = walk.reference(dict(kwargs), "input", False)
        walk.paths = [input_path(path, names) for path in walk.paths]
        self.graph = walk.graph(by_position, by_name)
        self.leaves, self.objects = walk.leaves, walk.objects
        self._spans = walk.spans
        seen: set[int] = set()
        self.call: tuple[tuple[Any, ...], dict[str, Any]] = (
            self._carried(by_position, seen),
            self._carried(by_name, seen),
        )

    @classmethod
    def of_leaves(cls, args: Sequence[Any]) -> CallInputs:
        """Return positional inputs that are all tensors, without their graph."""
        inputs = cls.__new__(cls)
        inputs.leaves, inputs.objects, inputs.call = list(args), [tuple(args), {}], (tuple(args), {})
        return inputs

    def _carried(self, reference: object_graphs.ObjectReference, seen: set[int]) -> Any:
        """Return a part of the inputs as a pytree."""
        if reference.kind == "leaf":
            return self.leaves[reference.value]
        if reference.kind == "constant":
            return reference.value
        index = reference.value
        node = self.graph.nodes[index]
        if object_graphs.is_native(node.kind) and index not in seen:
            seen.add(index)
            items = [(key, self._carried(part, seen)) for (_, key), part in node.parts]
            if issubclass(node.kind, dict):
                return node.kind(items)
            values = [item for _, item in items]
            return values if node.kind is list else object_graphs.new_tuple(node.kind, values)
        if index in seen:
            return ObjectParts((), _ObjectForm(reference, (), ()))
        first, end, last = self._spans[index]
        seen.update(range(index, end))
        prefix = self.graph.paths[index]
        paths = (path.removeprefix(prefix) for path in self.graph.leaf_paths[first:last])
        names = tuple(re.sub(r"[^a-zA-Z0-9]+", "_", path).strip("_") or "value" for path in paths)
        form = _ObjectForm(reference, self.graph.nodes[index:end], names)
        return ObjectParts(tuple(self.leaves[first:last]), form)


def input_path(path: str, names: Sequence[str] = ()) -> str:
    """Path of an object among the inputs, with the name of the input."""
    match = re.match(r"input\[(?:(\d+)|'(\w+)')\]", path)
    if match is None:
        return path
    position, name = match.groups()
    if name is None:
        name = names[int(position)] if int(position) < len(names) else f"input {position}"
    return name + path[match.end() :]


def plain_call(
    call: tuple[Sequence[Any], Mapping[str, Any]], graph: object_graphs.ObjectGraph
) -> tuple[list[Any], list[Any], list[Any]]:
    """Build the inputs that a graph describes from the leaves of a pytree; return roots, objects and leaves."""
    args, kwargs = call
    # Restore the order of the graph: a tracer may pass the names in another order.
    names = [key for (_, key), _ in graph.nodes[graph.roots[1].value].parts]
    ordered = (args, {name: kwargs[name] for name in names})
    leaves = [leaf for leaf in pytree.tree_leaves(ordered) if isinstance(leaf, object_graphs.LEAVES)]
    return *graph.build(leaves), leaves


@dataclass(frozen=True)
class InputChange:
    """The new parts of a changed object among the inputs of a call."""

    index: int
    parts: tuple[tuple[object_graphs.Key, object_graphs.ObjectReference], ...]


@dataclass(frozen=True)
class CallOutcomeForm:
    """The result and the changes of a call, without their tensors.

    The root of ``graph`` is the result; ``changes`` are the changes of objects among the ``inputs``. ``effect`` sets
    the attributes that the first call of the model sets in the model, such as a cache of its shapes.
    """

    graph: object_graphs.ObjectGraph
    changes: tuple[InputChange, ...]
    inputs: object_graphs.ObjectGraph
    effect: ModelEffect | None = field(default=None, compare=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> CallOutcomeForm:
        # The constants are objects of the model, which are not copied.
        return self

    def __repr__(self) -> str:
        return "result"


class ModelEffect:
    """Attributes that a call sets in the model, in Python. A pickled program does not contain them: it has no model."""

    def __init__(self, apply: Callable[[], None] | None) -> None:
        self._apply = apply

    @property
    def acts(self) -> bool:
        """True if there are attributes to set."""
        return self._apply is not None

    def __call__(self) -> None:
        """Set the attributes."""
        if self._apply is not None:
            self._apply()

    def __reduce__(self) -> tuple[type[ModelEffect], tuple[None]]:
        return ModelEffect, (None,)


@dataclass(frozen=True)
class CallOutcome:
    """The result and the changes of a call of a model, with the tensors as leaves."""

    leaves: tuple[Any, ...]
    form: CallOutcomeForm

    @classmethod
    def of(
        cls,
        result: Any,
        inputs: CallInputs,
        objects: Sequence[Any],
        before: Mapping[int, Mapping[object_graphs.Key, Any]],
        input_leaves: Sequence[Any],
        known: Mapping[int, Any],
    ) -> CallOutcome:
        """Describe the outcome of a call whose inputs were built as ``objects`` with the parts ``before``.

        ``known`` maps identities to the objects of the model, which results share with the model.
        """
        references = {key: object_graphs.ObjectReference("constant", value) for key, value in known.items()}
        references |= {
            id(objects[index]): object_graphs.ObjectReference("input", index) for index in sorted(before)
        }
        leaf_indices = {id(leaf): index for index, leaf in enumerate(input_leaves)}
        walk = object_graphs.ObjectWalk(references)
        root = walk.reference(result, "result")
        changes = []
        for index, parts in before.items():
            now = object_graphs.contents(objects[index]) or {}
            if list(now) == list(parts) and all(
                object_graphs.is_same(now[key], part) for key, part in parts.items()
            ):
                continue
            old = {id(part): key for key, part in parts.items()}
            changed = []
            for key, part in now.items():
                if id(part) in old:
                    reference = object_graphs.ObjectReference("kept", old[id(part)])
                elif id(part) in leaf_indices:
                    reference = object_graphs.ObjectReference("input leaf", leaf_indices[id(part)])
                else:
                    reference = walk.reference(part, object_graphs.part_path(inputs.graph.paths[index], key))
                changed.append((key, reference))
            changes.append(InputChange(index, tuple(changed)))
        graph = walk.graph(root)
        # A constant may contain a tensor of the call, such as a generator or a function.
        named = [(path, node.parts) for path, node in zip(graph.paths, graph.nodes, strict=True)]
        named += [("an input", change.parts) for change in changes]
        pairs = [(object_graphs.part_path(path, key), part) for path, parts in named for key, part in parts]
        for path, part in (("the result", root), *pairs):
            if part.kind == "constant":
                object_graphs.refuse_hidden_tensors(part.value, path)
        return cls(tuple(walk.leaves), CallOutcomeForm(graph, tuple(changes), inputs.graph))

    def finish(self, inputs: CallInputs) -> Any:
        """Apply the changes to the objects among the inputs, and return the result."""
        form = self.form
        (result,), made = form.graph.build(self.leaves, inputs.objects)
        builder_values = {
            "leaf": self.leaves,
            "object": made,
            "input": inputs.objects,
            "input leaf": inputs.leaves,
        }
        before = {
            change.index: object_graphs.contents(inputs.objects[change.index]) or {}
            for change in form.changes
        }
        for change in form.changes:
            parts = {}
            for key, part in change.parts:
                values = before[change.index] if part.kind == "kept" else builder_values.get(part.kind)
                parts[key] = part.value if values is None else values[part.value]
            object_graphs.set_contents(inputs.objects[change.index], parts)
        if form.effect is not None:
            form.effect()
        return result


def _named_leaves(outcome: CallOutcome) -> tuple[list[tuple[Any, Any]], CallOutcomeForm]:
    return [(pytree.SequenceKey(index), leaf) for index, leaf in enumerate(outcome.leaves)], outcome.form


pytree.register_pytree_node(
    CallOutcome,
    lambda outcome: (list(outcome.leaves), outcome.form),
    lambda leaves, form: CallOutcome(tuple(leaves), form),
    flatten_with_keys_fn=_named_leaves,
)
