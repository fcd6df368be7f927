# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lookups in a table, ``tensor.extract`` at an index that is data, such as ``embedding`` and ``index_select``."""

from __future__ import annotations

from collections.abc import Sequence

from spyre_mlir.dialects.structured import (
    Structured,
    defining_op,
    device_op,
    element_of,
    shape_of,
    structured,
)
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting.body_operations import scalar_constant
from spyre_mlir.rewriting.linalg_values import Term, Terms
from spyre_mlir.rewriting.tensor_builders import extracted

#: Stands for the dim of the table that is indexed by data.
_ROW = -1


def gathered_rows(terms: Terms, op: ir.Operation) -> ir.Value | None:
    """Rewrite a lookup as a gather; None for another op, or a lookup that is no gather of rows.

        %y = linalg.generic ins(%i : tensor<3xi64>) outs(..) { tensor.extract %table[%in, %d1] }
    ->  %y = linalg.generic ins(%i, %table) outs(..) {sdsc.op = #sdsc.op<"gather", {}>}, reduced over the rows

    One dim of the table is indexed by the one input, each other one by an iteration dim of its own, all of it; the
    result has all iteration dims in order. A negative index is none (PyTorch's embedding refuses it), unless the
    lookup itself counts it from the end, as ``table[index]`` does: that is computed before.
    """
    generic = structured(op)
    extract = None if generic is None else _extract_of(generic)
    if generic is None or extract is None:
        return None
    source, *indices = extract.operands
    dims = [
        _iteration_dim(index, generic, rows) for index, rows in zip(indices, shape_of(source), strict=True)
    ]
    if dims.count(_ROW) != 1 or not _is_gather(generic, shape_of(source), dims):
        return None
    rank, row = len(generic.extents), dims.index(_ROW)
    rows, table = shape_of(source)[row], terms.materialize(source, op.location)
    positions = terms.materialize(generic.inputs[0], op.location)
    if _position_of(indices[row]) != generic.body.arguments[0]:
        positions = _from_the_end(terms, positions, rows, op.location)
    return device_op(
        "gather",
        [positions, table],
        [generic.maps[0], tuple(rank if dim == _ROW else dim for dim in dims)],
        [*generic.extents, rows],
        element_of(table),
        location=op.location,
        reduced=[rank],
    )


def looked_up_part(terms: Terms, op: ir.Operation) -> Term | None:
    """The slice that a lookup at known positions is, seen with the dims of the result; None for another op.

    %y = linalg.generic outs(..) { tensor.extract %table[%c3, %d1] }    -> row 3 of the table, for all of d0
    """
    generic = structured(op)
    extract = None if generic is None else _extract_of(generic, inputs=0)
    if generic is None or extract is None or generic.maps[-1] != tuple(range(len(generic.extents))):
        return None
    source, *indices = extract.operands
    shape, offsets, dims = shape_of(source), [], []
    for index, size in zip(indices, shape, strict=True):
        number, dim = _number(index), _counted_dim(index)
        if number is not None and not 0 <= number < size:
            return None
        if number is None and (dim is None or dim in dims or generic.extents[dim] != size):
            return None
        offsets.append(0 if number is None else int(number))
        dims.append(dim)
    result_dims = [dim for dim in dims if dim is not None]
    sizes = [1 if dim is None else generic.extents[dim] for dim in dims]
    table = terms.materialize(source, op.location)
    part = extracted(table, offsets, sizes, [1] * len(sizes), [generic.extents[dim] for dim in result_dims])
    return Term(part, tuple(result_dims))


def _from_the_end(terms: Terms, positions: ir.Value, rows: int, location: ir.Location) -> ir.Value:
    """Positions with those below 0 counted from the end: p + rows * (p < 0). The device compares no integers."""
    shape = shape_of(positions)
    every = tuple(range(len(shape)))

    def emit(opcode: str, element: str, *inputs: ir.Value) -> ir.Value:
        maps = [every if shape_of(value) else () for value in inputs]
        return device_op(opcode, inputs, maps, shape, element, location=location)

    numbers = emit("int32tofp32", "f32", positions)
    below = emit("fp32toint32", "i32", emit("lesserthan", "f32", numbers, terms.constant(0, "f32")))
    return emit(
        "addi32toi32", "i32", positions, emit("muli32toi32", "i32", below, terms.constant(rows, "i32"))
    )


def _extract_of(generic: Structured, inputs: int = 1) -> ir.Operation | None:
    """The lookup whose value is the result of an op of so many inputs."""
    if len(generic.inputs) != inputs or generic.reduced:
        return None
    yielded = list(generic.body.operations)[-1].operation.operands[0]
    extract = defining_op(yielded)
    return extract if extract is not None and extract.name == "tensor.extract" else None


def _iteration_dim(index: ir.Value, generic: Structured, rows: int) -> int | None:
    """The iteration dim that counts an index, ``_ROW`` for one that is the input; None for any other."""
    if (counted := _counted_dim(index)) is not None:
        return counted
    position, argument = _position_of(index), generic.body.arguments[0]
    is_input = position is not None and (
        position == argument or _counts_from_the_end(position, argument, rows)
    )
    return _ROW if is_input else None


def _counted_dim(index: ir.Value) -> int | None:
    """The iteration dim that an index is."""
    op = defining_op(index)
    return (
        ir.IntegerAttr(op.attributes["dim"]).value if op is not None and op.name == "linalg.index" else None
    )


def _position_of(index: ir.Value) -> ir.Value | None:
    """The integer that an index is."""
    op = defining_op(index)
    return op.operands[0] if op is not None and op.name == "arith.index_cast" else None


def _counts_from_the_end(position: ir.Value, argument: ir.Value, rows: int) -> bool:
    """Return whether a position is ``argument < 0 ? argument + rows : argument``."""
    select = defining_op(position)
    if select is None or select.name != "arith.select" or select.operands[2] != argument:
        return False
    below, wrapped = (defining_op(value) for value in list(select.operands)[:2])
    if below is None or below.name != "arith.cmpi" or wrapped is None or wrapped.name != "arith.addi":
        return False
    is_below = ir.IntegerAttr(below.attributes["predicate"]).value == _LESS
    compared, added = ((op.operands[0], _number(op.operands[1])) for op in (below, wrapped))
    return is_below and compared == (argument, 0) and added == (argument, rows)


#: The predicate of ``arith.cmpi`` for signed integers.
_LESS = 2


def _number(value: ir.Value) -> float | None:
    op = defining_op(value)
    return None if op is None else scalar_constant(op)


def _is_gather(generic: Structured, table: tuple[int, ...], dims: Sequence[int | None]) -> bool:
    """Return whether an op reads whole rows: its dims are those of its positions and of the rows, each in full."""
    rows = [dim for dim in dims if dim != _ROW]
    positions = [dim for dim in generic.maps[0] if dim is not None]
    everything = list(range(len(generic.extents)))
    return (
        None not in rows
        and generic.maps[-1] == tuple(everything)
        and sorted(str(dim) for dim in (*rows, *positions)) == sorted(map(str, everything))
        and all(
            dim == _ROW or generic.extents[dim or 0] == size for dim, size in zip(dims, table, strict=True)
        )
    )
