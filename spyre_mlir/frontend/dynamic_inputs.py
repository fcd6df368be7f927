# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs with dynamic dims: the position of these dims, their sizes in a call, and the inputs at another size.

The names of the example inputs (``name_tensor_dims``) define where a dynamic dim is, or PyTorch's marks of dims. A
tensor dim may consist of a dynamic dim and further dims inside it, like the rows of a flattened matrix.
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from spyre_mlir.compile_lock import assigned
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.call_objects import plain_call
from spyre_mlir.frontend.exported import Inputs, as_call, call_inputs
from spyre_mlir.frontend.hints import dim_sizes, dims_of_size, name_tensor_dims, names_of
from spyre_mlir.frontend.importer import Imported
from spyre_mlir.frontend.module_pairs import leading_slices
from spyre_mlir.frontend.signature import INPUT, leaves_of
from spyre_mlir.records import dataclass
from spyre_mlir.tensors.device_tensor import DeviceTensor
from spyre_mlir.tiling import NamedDim
from spyre_mlir.tiling.names import split, whole


class DimOccurrence(NamedTuple):
    """Dim ``dim`` of the input ``leaf``, which has ``inner`` elements for each position of ``name``."""

    leaf: int
    dim: int
    name: str
    inner: int

    def positions(self, shape: Sequence[int], sizes: Mapping[str, int]) -> list[int]:
        """Index along the dim of the source of each element, for ``sizes``; copies of the last position pad."""
        have, want = shape[self.dim], sizes[self.name] * self.inner
        return [*range(min(have, want)), *(have - self.inner + k % self.inner for k in range(want - have))]


class DynamicInputs:
    """The inputs of a model with the dynamic dims ``names``, from the example of one call.

    The dims are at the ``occurrences``, or where the names of the example define them.
    """

    def __init__(
        self,
        model: Any,
        example_inputs: Inputs,
        names: Sequence[str],
        occurrences: Sequence[DimOccurrence] = (),
    ) -> None:
        if isinstance(model, ExportedProgram):
            raise CompileError("A program that torch.export has made has static dims; pass the model itself.")
        walked = call_inputs(example_inputs)
        self._graph = walked.graph
        self._leaves, self._tree = pytree.tree_flatten(walked.call)
        named = (place for leaf in range(len(self._leaves)) for place in self._places_of(leaf, names))
        self._places = list(occurrences) or list(named)
        dims = {place.name for place in self._places}
        for name in names:
            if name not in dims:
                raise CompileError(
                    f"No example input has the dynamic dim '{name}' with more than one element; "
                    "declare_tensor_dim and name_tensor_dims say which dims the inputs have."
                )

    def _places_of(self, leaf: int, dynamic: Sequence[str]) -> Iterator[DimOccurrence]:
        """Dims of one input that contain a dynamic dim; ``CompileError`` if it is not the outermost part of the dim."""
        tensor, dim_names = self._leaves[leaf], names_of(self._leaves[leaf])
        if not set(dim_names) & set(dynamic):
            return
        if isinstance(tensor, DeviceTensor):
            raise CompileError(
                f"Input {leaf} has a dynamic dim, so it cannot be on the device already; choose with layouts."
            )
        sizes = dim_sizes()
        dims = whole(NamedDim(name, sizes[name]) for name in dim_names)
        for dim, parts in enumerate(split(dims, tensor.shape)):
            mentioned = {name for part in parts for name in part.mentioned} & set(dynamic)
            if not mentioned:
                continue
            name, *inner = (part.name for part in parts)
            if name is None or name not in dynamic or None in inner or set(inner) & set(dynamic):
                raise CompileError(
                    f"Dim {dim} of input {leaf} is not made of the dynamic dim '{min(mentioned)}' "
                    "and whole dims inside of it."
                )
            yield DimOccurrence(leaf, dim, name, tensor.shape[dim] // sizes[name])

    def sizes(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> dict[str, int]:
        """Sizes of the dynamic dims in a call, by name."""
        return self._sizes(leaves_of(self._tree, inputs, named))

    @property
    def example_sizes(self) -> dict[str, int]:
        """Sizes of the dynamic dims in the example inputs, by name."""
        return self._sizes(self._leaves)

    def _sizes(self, leaves: Sequence[Any]) -> dict[str, int]:
        """Sizes of the dynamic dims in these leaves; ``CompileError`` if inputs disagree."""
        sizes: dict[str, int] = {}
        for leaf, dim, name, inner in self._places:
            shape = tuple(getattr(leaves[leaf], "shape", ()))
            if dim >= len(shape) or shape[dim] % inner or not shape[dim]:
                raise CompileError(
                    f"Dim {dim} of input {leaf} of shape {list(shape)} "
                    f"does not have {inner} elements for each position of '{name}'."
                )
            size = shape[dim] // inner
            if sizes.setdefault(name, size) != size:
                raise CompileError(
                    f"Dim '{name}' has size {size} in input {leaf} and {sizes[name]} in another input."
                )
        return sizes

    @contextlib.contextmanager
    def at_sizes(self, sizes: Mapping[str, int]) -> Iterator[Inputs]:
        """Example inputs at other sizes; inside the context, the declared dims have these sizes."""
        with dims_of_size(sizes):
            leaves = list(self._leaves)
            for place in self._places:
                # Rows of the example are repeated, so that indices among its values stay in range.
                along = torch.tensor(place.positions(leaves[place.leaf].shape, sizes))
                leaves[place.leaf] = leaves[place.leaf].detach().index_select(place.dim, along)
            # Names belong to a tensor object, and index_select has returned a new object.
            for leaf in {place.leaf for place in self._places}:
                if dim_names := names_of(self._leaves[leaf]):
                    name_tensor_dims(leaves[leaf], dim_names)
            (args, kwargs), *_ = plain_call(pytree.tree_unflatten(leaves, self._tree), self._graph)
            yield kwargs or args

    def padded(
        self,
        smaller: Imported,
        inputs: Sequence[Any],
        named: Mapping[str, Any],
        sizes: Mapping[str, int],
        state: Mapping[str, DeviceTensor],
        masks: Mapping[str, np.ndarray],
    ) -> tuple[dict[str, Any], Callable[[list[np.ndarray]], Any]]:
        """Operands, by name, of the program for larger ``sizes`` that runs in place of the ``smaller`` program.

        Also the function that turns the results of the larger program into the result of the model. ``state`` is the
        state of both programs, and ``masks`` are the masks of the larger program.
        """
        call = smaller.signature.bind(inputs, named, state)
        operands: dict[str, Any] = dict(masks)
        for argument, array in zip(smaller.arguments, call.operands(), strict=True):
            if argument.kind == INPUT:
                for place in self._places:
                    if place.leaf == argument.leaf:
                        array = array.take(place.positions(array.shape, sizes), place.dim)
                operands[argument.name] = array
        shapes = [result.shape for result in smaller.signature.results]

        def finish(arrays: list[np.ndarray]) -> Any:
            """Cut the results to the shapes of the smaller program, and return them as the model does."""
            cut = [array[leading_slices(shape)] for array, shape in zip(arrays, shapes, strict=True)]
            return call.finish(cut)

        return operands, finish


# Dynamic dims as PyTorch declares them: marks of inputs, ``torch.export.Dim``, exported programs with sizes.
#
#     torch._dynamo.mark_dynamic(x, 1, min=64, max=4096)
#     compile(model, (x,), dynamic={"x": {1: torch.export.Dim("S", min=64, max=4096)}})
#
# PyTorch does not have a granularity. Here it is 64, the elements of a stick of 16-bit numbers, or the largest smaller
# power of two that divides the largest size.


#: The elements of a stick of 16-bit numbers.
_STICK = 64


class DynamicMarks(NamedTuple):
    """The dynamic dims of a model: granularity and largest size by name, and their occurrences in the inputs."""

    model: Any
    dims: dict[str, tuple[int, int]]
    occurrences: tuple[DimOccurrence, ...]


#: Whether marks of inputs are ignored, because the caller requests a program for their current sizes.
_ignored: contextvars.ContextVar[bool] = contextvars.ContextVar("ignored", default=False)


def ignoring_marks() -> AbstractContextManager[Any]:
    """Context in which programs are compiled for the sizes of their inputs, and marks are ignored."""
    return assigned(_ignored, True)


def example_inputs_of(model: Any) -> Inputs:
    """Return the example inputs of an exported program with symbolic sizes; empty for any other model.

    Raises ``CompileError`` if such a program takes keyword inputs in addition to others.
    """
    if not isinstance(model, ExportedProgram) or model.example_inputs is None or not model.range_constraints:
        return ()
    args, kwargs = model.example_inputs
    if args and kwargs:
        raise CompileError(
            "An exported program with dynamic sizes takes inputs by position or by keyword, not both; compile a "
            "function of all inputs that calls program.module()."
        )
    return kwargs or args


def marks_of_inputs(model: Any, inputs: Inputs) -> DynamicMarks | None:
    """Return the dims that ``torch._dynamo.mark_dynamic`` or ``torch.export`` made dynamic; None if there are none.

    Dims of several inputs are one dim if they have the same size and the same range.
    """
    leaves = pytree.tree_leaves(call_inputs(inputs).call)
    if isinstance(model, ExportedProgram):
        ranges = list(_exported_ranges(model, leaves))
        model = model.module() if ranges else model
    else:
        ranges = [] if _ignored.get() else list(_marked_ranges(leaves))
    for range_ in ranges:
        if not range_.most:
            raise CompileError(
                f"Dim {range_.dim} of input {range_.leaf} is dynamic without a largest size, for which a program is "
                "planned; give mark_dynamic max=."
            )
    return _marks(model, leaves, ranges) if ranges else None


def marks_of_shapes(model: Any, inputs: Inputs, shapes: Any) -> DynamicMarks:
    """Return the dims that ``shapes``, the ``dynamic_shapes`` of ``torch.export``, makes dynamic."""
    args, kwargs = as_call(inputs)
    try:
        names = list(inspect.signature(getattr(model, "forward", model)).parameters)
    except (TypeError, ValueError):  # a function of C
        raise CompileError(
            f"The inputs of {model!r} have no names for dynamic dims; give a Python function that calls it."
        ) from None
    entries = shapes.items() if isinstance(shapes, Mapping) else zip(names, shapes, strict=False)
    leaves = pytree.tree_leaves(call_inputs(inputs).call)
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    ranges = []
    for name, dims in entries:
        leaf = next((index for index, tensor in enumerate(leaves) if tensor is given.get(name)), None)
        sizes = [] if dims is None else [dims] if not isinstance(dims, Mapping | tuple | list) else dims
        for dim, size in sizes.items() if isinstance(sizes, Mapping) else enumerate(sizes):
            if size is None:
                continue
            # The maximum of a Dim without a largest size is a sympy infinity.
            if leaf is None or not isinstance(getattr(size, "max", None), int):
                raise CompileError(
                    f"The option 'dynamic' takes pairs of granularity and largest size by name, or for each input a "
                    f"torch.export.Dim with a largest size by dim; '{name}' has {dims!r}."
                )
            ranges.append(DimRange(leaf, dim, size.max, str(size.__name__)))
    return _marks(model, leaves, ranges)


class DimRange(NamedTuple):
    """Dim ``dim`` of the input ``leaf``, with up to ``most`` positions; dims of the same ``name`` are one dim."""

    leaf: int
    dim: int
    most: int
    name: str = ""


def _marked_ranges(leaves: Sequence[Any]) -> Iterator[DimRange]:
    """Yield the dims of inputs that ``torch._dynamo.mark_dynamic`` marked; ``most`` is 0 if none is given."""
    for leaf, tensor in enumerate(leaves):
        marks = getattr(tensor, "_dynamo_dynamic_range", ()) if isinstance(tensor, torch.Tensor) else ()
        for mark in sorted(marks, key=lambda mark: mark.dim):
            yield DimRange(leaf, mark.dim, int(mark.max or 0))


def _exported_ranges(program: ExportedProgram, leaves: Sequence[Any]) -> Iterator[DimRange]:
    inputs = set(program.graph_signature.user_inputs)
    places = [node for node in program.graph.find_nodes(op="placeholder") if node.name in inputs]
    for leaf, node in enumerate(places[: len(leaves)]):
        for dim, size in enumerate(getattr(node.meta.get("val"), "shape", ())):
            if isinstance(size, torch.SymInt):
                most = program.range_constraints[size.node.expr].upper
                if not most.is_Integer:
                    raise CompileError(
                        f"Dim {dim} of input {leaf} of the exported program has no largest size; give its Dim max=."
                    )
                yield DimRange(leaf, dim, int(most), str(size))


def _marks(model: Any, leaves: Sequence[Any], ranges: Sequence[DimRange]) -> DynamicMarks:
    """Return the dims of ranges; dims of one name, or of one size and range, are one dim."""
    names: dict[Any, str] = {}
    dims: dict[str, tuple[int, int]] = {}
    occurrences = []
    for range_ in ranges:
        key = range_.name or (leaves[range_.leaf].shape[range_.dim], range_.most)
        name = names.setdefault(key, range_.name or f"dim{range_.dim}_of_input{range_.leaf}")
        dims[name] = math.gcd(range_.most, _STICK), range_.most
        occurrences.append(DimOccurrence(range_.leaf, range_.dim, name, 1))
    return DynamicMarks(model, dims, tuple(occurrences))


# Graphs of Dynamo with sizes as inputs, as functions of their tensors, whose shapes determine the sizes.


@dataclass(frozen=True)
class SizedGraph:
    """The inputs of a graph that are sizes: ``numbers`` maps the index of each to a tensor and a dim of it."""

    numbers: Mapping[int, tuple[int, int]]

    @classmethod
    def of(cls, graph: GraphModule) -> SizedGraph | None:
        """Return the sizes of a graph; None if there are none, or if a size is not a dim of an input."""
        values = [node.meta.get("example_value") for node in graph.graph.nodes if node.op == "placeholder"]
        dims = {
            str(size): (position, dim)
            for position, value in enumerate(values)
            if isinstance(value, torch.Tensor)
            for dim, size in enumerate(value.shape)
            if isinstance(size, torch.SymInt)
        }
        symbols = {
            position: str(value) for position, value in enumerate(values) if isinstance(value, torch.SymInt)
        }
        if not symbols or not dims.keys() >= set(symbols.values()):
            return None
        return cls({position: dims[symbol] for position, symbol in symbols.items()})

    def marks(self, inputs: Sequence[Any]) -> list[tuple[int, int]]:
        """Return the dims marked with a largest size, as (input, dim); empty unless all sizes are marked."""
        marked = [(range_.leaf, range_.dim) for range_ in _marked_ranges(inputs) if range_.most]
        return marked if set(marked) >= set(self.numbers.values()) else []

    def tensors(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the inputs that are not sizes."""
        return [value for position, value in enumerate(inputs) if position not in self.numbers]

    def function(self, model: Callable[..., Any]) -> Callable[..., Any]:
        """Return the graph, ``model``, as a function of the inputs that are not sizes."""
        numbers = self.numbers
        names = list(inspect.signature(model).parameters.values())

        def sized(*tensors: Any) -> Any:
            """Run the graph with the sizes of the given tensors."""
            remaining = iter(tensors)
            inputs: list[Any] = [0 if number in numbers else next(remaining) for number in range(len(names))]
            for number, (tensor, dim) in numbers.items():
                inputs[number] = inputs[tensor].shape[dim]
            return model(*inputs)

        kept = [parameter for position, parameter in enumerate(names) if position not in numbers]
        sized.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]
        return sized
