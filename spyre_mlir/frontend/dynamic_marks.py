# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dynamic dims as PyTorch declares them: marks of example inputs, ``torch.export.Dim``, exported programs with sizes.

    torch._dynamo.mark_dynamic(x, 1, min=64, max=4096)
    compile(model, (x,), dynamic={"x": {1: torch.export.Dim("S", min=64, max=4096)}})

PyTorch does not have a granularity. Here it is 64, the elements of a stick of 16-bit numbers, or the largest smaller
power of two that divides the largest size.
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.dynamic_inputs import DimOccurrence
from spyre_mlir.frontend.exported import Inputs, as_call, call_inputs

#: The elements of a stick of 16-bit numbers.
_STICK = 64


class DynamicMarks(NamedTuple):
    """The dynamic dims of a model: granularity and largest size by name, and their occurrences in the inputs."""

    model: Any
    dims: dict[str, tuple[int, int]]
    occurrences: tuple[DimOccurrence, ...]


#: Whether marks of inputs are ignored, because the caller wants a program for their current sizes.
_ignored: contextvars.ContextVar[bool] = contextvars.ContextVar("ignored", default=False)


@contextlib.contextmanager
def ignoring_marks() -> Iterator[None]:
    """Context in which programs are compiled for the sizes of their inputs, and marks are ignored."""
    token = _ignored.set(True)
    try:
        yield
    finally:
        _ignored.reset(token)


def marks_of_inputs(model: Any, inputs: Inputs) -> DynamicMarks | None:
    """Return the dims that ``torch._dynamo.mark_dynamic`` or ``torch.export`` made dynamic; None if there are none.

    Dims of several inputs are one dim if they have the same size and the same range.
    """
    leaves, _ = pytree.tree_flatten(call_inputs(inputs).call)
    if isinstance(model, ExportedProgram):
        ranges = list(_exported_ranges(model, leaves))
        model = model.module() if ranges else model
    else:
        ranges = [] if _ignored.get() else list(marked_ranges(leaves))
    for range_ in ranges:
        if not range_.most:
            raise CompileError(
                f"Dim {range_.dim} of input {range_.leaf} is dynamic without a largest size; a program is planned for "
                "that, so give mark_dynamic max=."
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
    leaves, _ = pytree.tree_flatten(call_inputs(inputs).call)
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    ranges = []
    for name, dims in entries:
        leaf = next((index for index, tensor in enumerate(leaves) if tensor is given.get(name)), None)
        pairs = dims.items() if isinstance(dims, Mapping) else enumerate(dims or ())
        for dim, size in pairs:
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


def marked_ranges(leaves: Sequence[Any]) -> Iterator[DimRange]:
    """Yield the dims of inputs that ``torch._dynamo.mark_dynamic`` marked; ``most`` is 0 if none is given."""
    for leaf, tensor in enumerate(leaves):
        marks = getattr(tensor, "_dynamo_dynamic_range", ()) if isinstance(tensor, torch.Tensor) else ()
        for mark in sorted(marks, key=lambda mark: mark.dim):
            yield DimRange(leaf, mark.dim, int(mark.max or 0))


def _exported_ranges(program: ExportedProgram, leaves: Sequence[Any]) -> Iterator[DimRange]:
    inputs = set(program.graph_signature.user_inputs)
    places = [node for node in program.graph.nodes if node.op == "placeholder" and node.name in inputs]
    for leaf, node in enumerate(places[: len(leaves)]):
        shape = getattr(node.meta.get("val"), "shape", ())
        for dim, size in enumerate(shape):
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
