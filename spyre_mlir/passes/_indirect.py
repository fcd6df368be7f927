"""Lookups in a table, ``tensor.extract`` at an index that is data: what ``embedding`` and ``index_select`` become."""

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
from spyre_mlir.passes._terms import Terms


def gathered_rows(terms: Terms, op: ir.Operation) -> ir.Value | None:
    """The device operation that a lookup is; None for another op, or a lookup that is no gather of rows.

        %y = linalg.generic ins(%i : tensor<3xi64>) outs(..) { tensor.extract %table[%in, %d1] }
    ->  %y = linalg.generic ins(%i, %table) outs(..) {sdsc.op = #sdsc.op<"gather", {}>}, reduced over the rows

    One dim of the table is indexed by the one input, each other one by an iteration dim of its own, all of it; the
    result has all iteration dims in order. A negative index is none: PyTorch's embedding refuses it.
    """
    generic = structured(op)
    extract = None if generic is None else _extract_of(generic)
    if generic is None or extract is None:
        return None
    table, *indices = extract.operands
    dims = [_iteration_dim(index, generic) for index in indices]
    positions = generic.maps[0]
    if dims.count(_ROW) != 1 or not _is_gather(generic, shape_of(table), dims):
        return None
    rank = len(generic.extents)
    row = dims.index(_ROW)
    return device_op(
        "gather",
        [terms.materialize(generic.inputs[0], op.location), terms.materialize(table, op.location)],
        [positions, tuple(rank if dim == _ROW else dim for dim in dims)],
        [*generic.extents, shape_of(table)[row]],
        element_of(terms.materialize(table, op.location)),
        location=op.location,
        reduced=[rank],
    )


#: Stands for the dim of the table that is indexed by data.
_ROW = -1


def _extract_of(generic: Structured) -> ir.Operation | None:
    """The lookup whose value is the result of an op."""
    if len(generic.inputs) != 1 or generic.reduced:
        return None
    yielded = list(generic.body.operations)[-1].operation.operands[0]
    extract = defining_op(yielded)
    return extract if extract is not None and extract.name == "tensor.extract" else None


def _iteration_dim(index: ir.Value, generic: Structured) -> int | None:
    """The iteration dim that counts an index, ``_ROW`` for one that is the input; None for any other."""
    op = defining_op(index)
    if op is None:
        return None
    if op.name == "linalg.index":
        return ir.IntegerAttr(op.attributes["dim"]).value
    is_input = op.name == "arith.index_cast" and op.operands[0] == generic.body.arguments[0]
    return _ROW if is_input else None


def _is_gather(generic: Structured, table: tuple[int, ...], dims: Sequence[int | None]) -> bool:
    """Whether an op reads whole rows: its dims are those of its positions and of the rows, apart, in full."""
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
