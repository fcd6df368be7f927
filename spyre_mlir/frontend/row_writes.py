# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes of rows at computed positions into a changed argument, such as a cache that a decoding step fills.

``index_copy`` and ``index_put`` of few rows into an argument whose new value shares its memory become
``spyre::insert_rows``: the host reads the positions, and each row is inserted at its position. All other writes become
comparisons with every position on the device, or run on the host (``selection.py``).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg

from spyre_mlir.frontend import selection
from spyre_mlir.frontend.graph_edits import call_before, copy_calls, operands_of, operation_name
from spyre_mlir.frontend.outputs import UPDATES
from spyre_mlir.records import dataclass

aten = torch.ops.aten

#: Above this number of rows, one copy per row takes longer than a comparison.
MOST_ROWS = 64

_MOVED_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.int32)
_INDEX_TYPES = (torch.int32, torch.int64)

#: The names of the operands of operations that write rows, in order.
_OPERANDS = {
    "index_copy": ("self", "dim", "index", "source"),
    "index_put": ("self", "indices", "values", "accumulate"),
}


@torch.library.custom_op(
    "spyre::insert_rows",
    mutates_args=(),
    schema="(Tensor x, int[] dims, Tensor[] indices, int[] elements, Tensor[] rows, bool negative, str operation)"
    " -> Tensor",
)
def insert_rows(
    x: Tensor,
    dims: Sequence[int],
    indices: Sequence[Tensor],
    elements: Sequence[int],
    rows: Sequence[Tensor],
    negative: bool,
    operation: str,
) -> Tensor:
    """Copy of ``x`` with ``rows``, which have size 1 in ``dims``, written at positions in these dims one after another.

    Position ``k`` in dim ``j`` is element ``elements[j * len(rows) + k]`` of ``indices[j]``.
    """
    result = x.clone()
    for number, row in enumerate(rows):
        part = result
        for axis, (dim, index) in enumerate(zip(dims, indices, strict=True)):
            position = int(index.reshape(-1)[elements[axis * len(rows) + number]])
            part = part.narrow(dim, position + x.shape[dim] if position < 0 else position, 1)
        part.copy_(row)
    return result


@insert_rows.register_fake
def _(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x)


INSERT_ROWS = torch.ops.spyre.insert_rows.default


@dataclass(frozen=True)
class RowWrite:
    """An ``index_copy`` or ``index_put``: the ``indices`` of ``dims`` broadcast to ``shape``, one row per element."""

    dims: tuple[int, ...]
    indices: tuple[Any, ...]  # tensors, or their nodes
    shape: tuple[int, ...]

    @property
    def first(self) -> int:
        """The first dim of the values that belongs to the indices: dims[0] if the dims are consecutive, else 0."""
        in_a_row = self.dims[-1] - self.dims[0] == len(self.dims) - 1
        return self.dims[0] if in_a_row else 0


def _row_write(name: str, operands: Mapping[str, Any]) -> RowWrite | None:
    """Return the write of a call on tensors; None if the call does not write rows, or the device cannot insert them."""
    x = operands["self"]
    if name == "index_copy":
        indexed = [(operands["dim"] % max(x.ndim, 1), operands["index"])]
    else:
        indexed = [(dim, index) for dim, index in enumerate(operands["indices"]) if index is not None]
    if operands.get("accumulate", False) or not indexed:
        return None
    dims, indices = zip(*indexed, strict=True)
    shape = tuple(torch.broadcast_shapes(*(index.shape for index in indices)))
    is_moved = x.dtype in _MOVED_TYPES and all(index.dtype in _INDEX_TYPES for index in indices)
    # The last dim is the stick dim, and the device writes whole sticks.
    is_moved = is_moved and x.ndim > 1 and x.ndim - 1 not in dims and x.numel() > 0
    return RowWrite(dims, indices, shape) if is_moved and 1 <= math.prod(shape) <= MOST_ROWS else None


def _write_of(node: Node) -> RowWrite | None:
    """Return the write of a node, with nodes as ``indices``; None for another operation."""
    name = operation_name(node)
    if name not in _OPERANDS or node.op != "call_function":
        return None
    operands = operands_of(node)
    write = _row_write(name, map_arg(operands, lambda operand: operand.meta["val"]))
    if write is None:
        return None
    indices = [operands["index"]] if name == "index_copy" else operands["indices"]
    return replace(write, indices=tuple(index for index in indices if index is not None))


def _deferred(form: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Form of an operation that is kept if it may be a write of rows, until the whole graph is known."""

    def deferred(x: Tensor, *arguments: Any, **named: Any) -> Any:
        call = dict(zip(_OPERANDS[name], (x, *arguments), strict=False)) | named
        return NotImplemented if _row_write(name, call) is not None else form(x, *arguments, **named)

    return deferred


FORMS = {
    aten.index_copy.default: _deferred(selection.index_copy, "index_copy"),
    aten.index_put.default: _deferred(selection.index_put, "index_put"),
}


def write_rows(program: ExportedProgram) -> None:
    """Turn each write of rows that the device supports into an ``insert_rows``; decompose all other writes."""
    in_place = dict(_in_place(program))
    for node in list(program.graph.nodes):
        write = _write_of(node)
        if write is None:
            continue
        if node in in_place and all(map(_is_of_the_host, write.indices)):
            whole = in_place[node]
            # After that nobody reads the write to a part of the whole, so it is dead.
            _replace(program, whole, _inserted(node, write, whole))
            continue
        # A write without rows to insert is decomposed, or kept as a call if it has no decomposition.
        form = selection.index_copy if operation_name(node) == "index_copy" else selection.index_put
        operands = list(node.all_input_nodes)

        def function(*tensors: Tensor, node=node, form=form, operands=operands) -> Any:
            values = dict(zip(operands, tensors, strict=True))
            args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
            result = form(*args, **kwargs)
            return node.target(*args, **kwargs) if result is NotImplemented else result

        values = [operand.meta["val"] for operand in operands]
        with values[0].fake_mode, torch.no_grad():
            parts = make_fx(function)(*values)
        _replace(program, node, copy_calls(node, parts.graph, operands))


def _in_place(program: ExportedProgram) -> Iterator[tuple[Node, Node]]:
    """Yield the writes that together make the new value of an argument, which then shares its memory.

    Each write comes with the whole after it: the write itself, or the node that puts the changed part back.
    """
    placeholders = program.graph.find_nodes(op="placeholder")
    arguments = {
        (spec.target if spec.target is not None else node.name): node
        for node, spec in zip(placeholders, program.graph_signature.input_specs, strict=True)
    }
    outputs = cast(Sequence[Any], program.graph.output_node().args[0])
    for value, spec in zip(outputs, program.graph_signature.output_specs, strict=True):
        if spec.kind not in UPDATES or not isinstance(value, Node):
            continue
        writes = []
        while (write := _write_that_makes(value)) is not None:
            writes.append((write, value))
            value = base_of(write) if value.target in _VIEWS else operands_of(value)["self"]
        if value is arguments.get(spec.target):
            yield from writes


def _write_that_makes(whole: Node) -> Node | None:
    """Return the write that makes a new value: the value itself, a write to a part, or a write to a view."""
    if _write_of(whole) is not None:
        return whole
    return _written_part(whole) or _written_view(whole)


def _written_part(whole: Node) -> Node | None:
    """Return the write whose result is put back into the whole at the place of the part; None if there is none."""
    if whole.target is not aten.slice_scatter.default:
        return None
    operands = operands_of(whole)
    dim, start, part = operands.get("dim", 0), operands.get("start") or 0, operands["src"]
    if part.target is not aten.unsqueeze.default or part.args[1] != dim or operands.get("end") != start + 1:
        return None
    write = part.args[0]
    if _write_of(write) is None or len(write.users) > 1 or len(part.users) > 1:
        return None
    source = operands_of(write)["self"]
    is_same = source.target is aten.select.int and source.args == (operands["self"], dim, start)
    return write if is_same and start >= 0 else None


def _is_of_the_host(index: Node) -> bool:
    """Return whether an index is computed from integers alone, which the host computes."""
    tensor = index.meta.get("val")
    if not isinstance(tensor, Tensor) or tensor.is_floating_point() or tensor.is_complex():
        return False
    return all(map(_is_of_the_host, index.all_input_nodes))


def _inserted(node: Node, write: RowWrite, whole: Node) -> Node:
    """Insert the rows of a write, each a slice of the values, into the whole."""
    operands, name = operands_of(node), operation_name(node)
    values = operands["source" if name == "index_copy" else "values"]
    shape, first = operands["self"].meta["val"].shape, write.first
    rest = [size for dim, size in enumerate(shape) if dim not in write.dims]
    if name == "index_put":
        values = call_before(node, aten.expand.default, values, [*rest[:first], *write.shape, *rest[first:]])
    row_shape = [1 if dim in write.dims else size for dim, size in enumerate(shape)]
    rows = []
    for number in range(math.prod(write.shape)):
        # The dims of the indices are counted in row-major order, like the elements of the indices.
        part, remaining = values, number
        for axis in reversed(range(len(write.shape))):
            remaining, position = divmod(remaining, write.shape[axis])
            part = call_before(node, aten.slice.Tensor, part, first + axis, position, position + 1)
        rows.append(call_before(node, aten.reshape.default, part, row_shape))
    entries = []
    for dim, index in zip(write.dims, write.indices, strict=True):
        # For each element of the broadcast index, its position in the index itself.
        sizes = tuple(index.meta["val"].shape)
        numbers = torch.arange(math.prod(sizes)).reshape(sizes).expand(write.shape)
        entries.append((dim, index, numbers.reshape(-1).tolist()))
    negative = name == "index_put"
    if whole.target in _VIEWS:
        base = base_of(node)
        entries, rows, negative = _into_base(node, entries, rows, negative)
    else:
        base = operands_of(whole)["self"]
    if whole.target is aten.slice_scatter.default:
        # The whole has one more dim, at one position of which the part is: another index.
        dim, start = (operands_of(whole)[key] for key in ("dim", "start"))
        entries = [(position + (position >= dim), index, numbers) for position, index, numbers in entries]
        index = call_before(node, aten.full.default, [1], start, dtype=torch.int64)
        entries.append((dim, index, [0] * len(rows)))
        rows = [call_before(node, aten.unsqueeze.default, row, dim) for row in rows]
    entries.sort(key=operator.itemgetter(0))
    dims, indices, elements = (list(column) for column in zip(*entries, strict=True))
    numbers = [number for numbers in elements for number in numbers]
    return call_before(node, INSERT_ROWS, base, dims, indices, numbers, rows, negative, f"aten.{name}")


def _into_base(
    write: Node, entries: list[Any], rows: list[Node], negative: bool
) -> tuple[list[Any], list[Node], bool]:
    """Convert an insertion into a view, with a dim, an index and its elements per entry, to one into its base."""
    view, shape = cast(Node, write.args[0]), _shape(base_of(write))
    parts = base_dims(write, [dim for dim, *_ in entries])
    assert parts is not None, "the caller has asked"
    if negative and any(len(part) > 1 for part in parts):
        # Negative indices become non-negative; an index that is out of range stays out of range.
        for place, (dim, index, elements) in enumerate(entries):
            below = call_before(write, aten.lt.Scalar, index, 0)
            counted = call_before(write, aten.add.Tensor, index, _shape(view)[dim])
            entries[place] = dim, call_before(write, aten.where.self, below, counted, index), elements
        negative = False
    addressed = []
    for (_, index, elements), part in zip(entries, parts, strict=True):
        for dim in part:
            digit, inner = index, math.prod(shape[d] for d in part if d > dim)
            if inner > 1:
                digit = call_before(write, aten.div.Tensor_mode, digit, inner, rounding_mode="floor")
            if dim != part[0]:
                digit = call_before(write, aten.remainder.Scalar, digit, shape[dim])
            addressed.append((dim, digit, elements))
    if view.target is aten.permute.default:
        order = _order(view)
        operation, sizes = aten.permute.default, [order.index(dim) for dim in range(len(order))]
    else:
        dims = {dim for dim, *_ in addressed}
        operation = aten.reshape.default
        sizes = [1 if dim in dims else size for dim, size in enumerate(shape)]
    return addressed, [call_before(write, operation, row, sizes) for row in rows], negative


def _replace(program: ExportedProgram, old: Node, new: Node) -> None:
    """Replace one node by another, also among the outputs of the program."""
    old.replace_all_uses_with(new, propagate_meta=False)
    for spec in program.graph_signature.output_specs:
        if spec.arg.name == old.name:
            spec.arg.name = new.name
    old.graph.erase_node(old)


# Writes of rows through a permuted or reshaped view of a cache, rewritten as writes to the cache itself.

_RESHAPES = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)
_VIEWS = (aten.permute.default, *_RESHAPES)


def _written_view(whole: Node) -> Node | None:
    """Return the write to a view of the old value, if ``whole`` undoes the view; None if there is none."""
    if whole.target not in _VIEWS:
        return None
    write = cast(Node, whole.args[0])
    if len(write.users) > 1 or write.op != "call_function" or not write.args:
        return None
    view = write.args[0]
    if not isinstance(view, Node) or view.target not in _VIEWS:
        return None
    if _shape(whole) != _shape(base_of(write)) or _shape(view) != _shape(write):
        return None
    if whole.target is aten.permute.default and view.target is aten.permute.default:
        order, back = _order(view), _order(whole)
        is_undone = [order[dim] for dim in back] == [*range(len(order))]
    else:
        is_undone = whole.target in _RESHAPES and view.target in _RESHAPES
    described = _write_of(write) if is_undone else None
    return write if described and base_dims(write, described.dims) else None


def base_of(write: Node) -> Node:
    """Return the tensor that a write to a view changes."""
    return cast(Node, cast(Node, write.args[0]).args[0])


def base_dims(write: Node, dims: Sequence[int]) -> list[list[int]] | None:
    """Return, for each dim of a view, its dims in the base; None if they are not whole dims or include the last."""
    view, base = cast(Node, write.args[0]), base_of(write)
    if view.target is aten.permute.default:
        parts = [[_order(view)[dim]] for dim in dims]
    else:
        parts = [_parts(_shape(view), _shape(base), dim) for dim in dims]
    is_addressed = all(part and len(_shape(base)) - 1 not in part for part in parts)
    return parts if is_addressed else None


def _parts(view: Sequence[int], base: Sequence[int], dim: int) -> list[int]:
    """Return the consecutive base dims that one dim of a reshape consists of; empty if there are none."""
    before, end = math.prod(view[:dim]), math.prod(view[: dim + 1])
    first = next((d for d in range(len(base)) if math.prod(base[:d]) == before and base[d] > 1), None)
    if first is None:
        return []
    last = next((d for d in range(first, len(base)) if math.prod(base[: d + 1]) == end), None)
    return [] if last is None else [d for d in range(first, last + 1) if base[d] > 1]


def _order(view: Node) -> list[int]:
    dims = cast(Sequence[int], operands_of(view)["dims"])
    return [dim % len(dims) for dim in dims]


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)
