# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""View ops: the upstream ops that are views of a device buffer, as transforms of a ``BufferView``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from spyre_mlir.analysis.loops import index_of, initial_of, offsets_of
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import Structured, defining_op, shape_of
from spyre_mlir.layout import BufferView
from spyre_mlir.layout.space import SlidingWindow, Windows
from spyre_mlir.layout.view_transforms import (
    Collapse,
    Expand,
    Offsets,
    Slice,
    Slide,
    Transpose,
    ViewTransform,
    applied,
)
from spyre_mlir.mlir import ir

VIEWS = (
    "tensor.expand_shape",
    "tensor.collapse_shape",
    "tensor.extract_slice",
    "linalg.transpose",
    "sdsc.windows",
)

#: MLIR's ``ShapedType::kDynamic``, which marks an operand in the list of static offsets.
_DYNAMIC = -(1 << 63)


def view_of(op: ir.Operation, source: BufferView) -> BufferView:
    """Return the view of a view op's result, given the view of its source; ``ViewError`` if it cannot be a view."""
    return applied(step_of(op), source)


def step_of(op: ir.Operation) -> ViewTransform:
    """Return the view transform of a view op."""
    if op.name == "linalg.transpose":
        return Transpose(tuple(ir.DenseI64ArrayAttr(op.attributes["permutation"])))
    if op.name == "tensor.extract_slice":
        return _slice(op, op.operands[0], op.results[0])
    if op.name == "sdsc.windows":
        return _slide(op)
    groups = reassociation_of(op)
    return Expand(groups, shape_of(op.results[0])) if op.name == "tensor.expand_shape" else Collapse(groups)


def reassociation_of(op: ir.Operation) -> tuple[tuple[int, ...], ...]:
    """Return the groups of dims that a reshape merges or splits."""
    groups = op.attributes["reassociation"]
    return tuple(tuple(ir.IntegerAttr(entry).value for entry in group) for group in groups)


def _slide(op: ir.Operation) -> Slide:
    dims, *steps = (tuple(ir.DenseI64ArrayAttr(op.attributes[name])) for name in sdsc.WINDOW_NUMBERS)
    shape = shape_of(op.results[0])
    places = [dim + number for number, dim in enumerate(dims)]
    return Slide(dims, tuple((shape[place], shape[place + 1]) for place in places), *steps)


def windows_of(generic: Structured) -> Windows:
    """Return the windows of a sliding device operation in terms of its iteration dims; () for other operations."""
    view = defining_op(generic.inputs[0]) if generic.inputs else None
    if view is None or view.name != "sdsc.windows":
        return ()
    step, dims, source = _slide(view), generic.maps[0], shape_of(view.operands[0])
    windows = []
    for number, dim in enumerate(step.dims):
        output, kernel = dims[dim + number], dims[dim + number + 1]
        if output is None or kernel is None:
            raise error_at(generic.op, f"'{generic.opcode}' does not iterate over the windows of its input")
        steps = (step.strides[number], step.dilations[number], step.before[number])
        windows.append(SlidingWindow(step.sizes[number][1], *steps, source[dim], output, kernel))
    return tuple(windows)


def place_of(op: ir.Operation) -> Slice:
    """Return the slice of the destination that a ``tensor.insert_slice`` fills."""
    return _slice(op, op.operands[1], op.operands[0])


def moves_of(op: ir.Operation, slice_: Slice, whole: BufferView) -> dict[ir.Value, int]:
    """Return the elements by which the slice of a slice op moves per iteration, keyed by loop variable.

    ``whole`` is the view of the sliced tensor. Raise ``CompileError`` if the slice does not move in equal steps.
    """
    if not slice_.moves:
        return {}
    moves: dict[ir.Value, int] = {}
    operands = list(op.operands)[len(op.operands) - len(slice_.moves) :]
    for operand, advance in zip(operands, slice_.advances(whole).values(), strict=True):
        index = index_of(operand)
        if index is None or index.moves is None or any(step < 0 for step in index.moves.values()):
            raise error_at(op, f"the offset of this '{op.name}' does not rise by equal steps per iteration")
        for key, step in index.moves.items():
            variable = cast("ir.Value", key)
            moves[variable] = moves.get(variable, 0) + int(step * advance)
    return {variable: elements for variable, elements in moves.items() if elements}


def _slice(op: ir.Operation, whole: ir.Value, part: ir.Value) -> Slice:
    """Return the slice of ``whole`` in which ``part`` lies according to a slice op; offsets may depend on loops."""
    offsets, sizes, steps = (
        tuple(ir.DenseI64ArrayAttr(op.attributes["static_" + key])) for key in ("offsets", "sizes", "strides")
    )
    dropped = tuple(dropped_dims(sizes, shape_of(part)))
    if _DYNAMIC in (*sizes, *steps):
        raise error_at(op, f"'{op.name}' needs constant sizes and strides")
    for dim, (offset, size, step, extent) in enumerate(
        zip(offsets, sizes, steps, shape_of(whole), strict=True)
    ):
        first = 0 if offset == _DYNAMIC else offset
        if size < 1 or step < 1 or first < 0 or first + (size - 1) * step >= extent:
            raise error_at(
                op, f"the slice of dim {dim} of this '{op.name}' is not inside of its {extent} elements"
            )
    if _DYNAMIC not in offsets:
        return Slice(offsets, sizes, steps, dropped)
    dims = [dim for dim, offset in enumerate(offsets) if offset == _DYNAMIC]
    first = len(op.operands) - len(dims)
    moves = {}
    for number, dim in enumerate(dims, first):
        reach = (sizes[dim] - 1) * steps[dim] + 1
        # An offset that does not follow from loops may have any value that keeps the slice inside its source.
        anywhere = Offsets(0, 1, shape_of(whole)[dim] - reach + 1)
        moves[dim] = offsets_of(op.operands[number]) or anywhere
    begins = tuple(moves[dim].first if dim in moves else offset for dim, offset in enumerate(offsets))
    return Slice(begins, sizes, steps, dropped, tuple(moves.items()))


def insert_region(op: ir.Operation) -> tuple[list[int], list[int]]:
    """Return the offsets, with a marker for dynamic ones, and the sizes of a ``tensor.insert_slice``."""
    offsets = list(ir.DenseI64ArrayAttr(op.attributes["static_offsets"]))
    return offsets, list(ir.DenseI64ArrayAttr(op.attributes["static_sizes"]))


def dropped_dims(sizes: Sequence[int], shape: tuple[int, ...]) -> list[int]:
    """Return the dims of size 1 of a slice that are missing from its rank-reduced ``shape``."""
    dropped, remaining = [], list(shape)
    for dim, size in enumerate(sizes):
        # Of several dims of size 1 the first are dropped: the choice does not change the memory.
        spare = len(sizes) - dim > len(remaining)
        if remaining and remaining[0] == size and not (size == 1 and spare):
            remaining.pop(0)
        else:
            dropped.append(dim)
    return dropped


def root_dim(value: ir.Value, dim: int) -> tuple[ir.Value | None, int]:
    """Return the source of a chain of views, and the dim of the source that is ``dim`` of the value.

    None through a slice of the dim, and for a source that ops other than its defining op write to: insertions, a loop.
    """
    root, dim = _viewed_dim(value, dim)
    op = None if root is None else defining_op(root)
    inserted = op is not None and op.name == "tensor.insert_slice"
    return (None, 0) if root is None or inserted or initial_of(root) is not None else (root, dim)


def is_written_at_an_index(value: ir.Value, dim: int) -> bool:
    """Return whether parts of a tensor are inserted along ``dim`` at offsets that are known only at run time."""
    root, dim = _viewed_dim(value, dim)
    op = None if root is None else defining_op(root)
    while op is not None and op.name == "tensor.insert_slice":
        if insert_region(op)[0][dim] == _DYNAMIC:
            return True
        op = defining_op(op.operands[1])
    return False


def _viewed_dim(value: ir.Value, dim: int) -> tuple[ir.Value | None, int]:
    """Return the source of a chain of views, and its dim that is ``dim`` of the value; None if a slice cuts it."""
    while (op := defining_op(value)) is not None and op.name in VIEWS:
        if op.name == "linalg.transpose":
            dim = list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))[dim]
        elif op.name == "tensor.extract_slice":
            sizes = list(ir.DenseI64ArrayAttr(op.attributes["static_sizes"]))
            dropped = dropped_dims(sizes, shape_of(op.results[0]))
            dim = [kept for kept in range(len(sizes)) if kept not in dropped][dim]
            if sizes[dim] != shape_of(op.operands[0])[dim]:
                return None, 0
        elif op.name == "sdsc.windows":
            slid = list(ir.DenseI64ArrayAttr(op.attributes["dims"]))
            sources = range(len(shape_of(op.operands[0])))
            places = [place for source in sources for place in (source,) * (1 + (source in slid))]
            if places[dim] in slid:
                return None, 0
            dim = places[dim]
        else:
            groups = reassociation_of(op)
            source, result = shape_of(op.operands[0]), shape_of(op.results[0])
            # The source dims that alone are the result's dim, apart from dims of one element.
            if op.name == "tensor.expand_shape":
                index = next(position for position, group in enumerate(groups) if dim in group)
                dims = [index] if source[index] == result[dim] else []
            else:
                dims = [merged for merged in groups[dim] if source[merged] > 1]
            if len(dims) != 1:
                return None, 0
            (dim,) = dims
        value = op.operands[0]
    return value, dim
