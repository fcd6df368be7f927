# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes of rows at computed positions into a changed argument, such as a cache that a decoding step fills.

``index_copy`` and ``index_put`` of few rows into an argument whose new value shares its memory become
``spyre::insert_rows``: the host reads the positions, and each row is inserted at its position. All other writes become
comparisons with every position on the device, or run on the host (``selection.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg

from spyre_mlir.frontend import selection
from spyre_mlir.frontend.graph_edits import call_before, metadata_for, operands_of, operation_name
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
    def count(self) -> int:
        """The number of rows."""
        return math.prod(self.shape)

    @property
    def first(self) -> int:
        """The first dim of the values that belongs to the indices: dims[0] if the dims are consecutive, else 0."""
        in_a_row = self.dims[-1] - self.dims[0] == len(self.dims) - 1
        return self.dims[0] if in_a_row else 0


def row_write(x: Any, dims: Sequence[int], indices: Sequence[Any]) -> RowWrite | None:
    """Return the write of rows at indices, given with shapes and types; None if the device cannot insert the rows."""
    shape = tuple(torch.broadcast_shapes(*(index.shape for index in indices)))
    write = RowWrite(tuple(dims), tuple(indices), shape)
    is_moved = x.dtype in _MOVED_TYPES and all(index.dtype in _INDEX_TYPES for index in indices)
    # The last dim is the stick dim, and the device writes whole sticks.
    is_moved = is_moved and x.ndim > 1 and x.ndim - 1 not in dims and x.numel() > 0
    return write if is_moved and 1 <= write.count <= MOST_ROWS else None


def _described(name: str, operands: Mapping[str, Any]) -> RowWrite | None:
    """Return the write of a call on tensors; None if the call does not write rows."""
    x = operands["self"]
    if name == "index_copy":
        return row_write(x, [operands["dim"] % max(x.ndim, 1)], [operands["index"]])
    if operands.get("accumulate", False):
        return None
    indexed = [(dim, index) for dim, index in enumerate(operands["indices"]) if index is not None]
    return row_write(x, *zip(*indexed, strict=True)) if indexed else None


def _write_of(node: Node) -> RowWrite | None:
    """Return the write of a node, with nodes as ``indices``; None for another operation."""
    name = operation_name(node)
    if name not in _OPERANDS or node.op != "call_function":
        return None
    operands = operands_of(node)
    write = _described(name, map_arg(operands, lambda operand: operand.meta["val"]))
    if write is None:
        return None
    indices = [operands["index"]] if name == "index_copy" else operands["indices"]
    return replace(write, indices=tuple(index for index in indices if index is not None))


def _deferred(form: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Form of an operation that is kept if it may be a write of rows, until the whole graph is known."""

    def deferred(x: Tensor, *arguments: Any, **named: Any) -> Any:
        """Apply the form, unless the call writes rows."""
        call = dict(zip(_OPERANDS[name], (x, *arguments), strict=False)) | named
        return NotImplemented if _described(name, call) is not None else form(x, *arguments, **named)

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
        else:
            _replace(program, node, _compared(node))


def _in_place(program: ExportedProgram) -> Iterator[tuple[Node, Node]]:
    """Yield the writes that together make the new value of an argument, which then shares its memory.

    Each write comes with the whole after it: the write itself, or the node that puts the changed part back.
    """
    arguments = {
        (spec.target if spec.target is not None else node.name): node
        for node, spec in zip(
            program.graph.find_nodes(op="placeholder"), program.graph_signature.input_specs, strict=True
        )
    }
    outputs = cast(Sequence[Any], program.graph.output_node().args[0])
    for value, spec in zip(outputs, program.graph_signature.output_specs, strict=True):
        if spec.kind not in UPDATES or not isinstance(value, Node):
            continue
        writes = []
        while (write := _write_that_makes(value)) is not None:
            writes.append((write, value))
            value = _changed_by(write, value)
        if value is arguments.get(spec.target):
            yield from writes


def _write_that_makes(whole: Node) -> Node | None:
    """Return the write that makes a new value: the value itself, a write to a part, or a write to a view."""
    if _write_of(whole) is not None:
        return whole
    return _written_part(whole) or _written_view(whole)


def _changed_by(write: Node, whole: Node) -> Node:
    """Return the old value of the tensor that a write changes."""
    return base_of(write) if _written_view(whole) is not None else operands_of(whole)["self"]


def _written_view(whole: Node) -> Node | None:
    """Return the write to a view of the old value that the whole undoes; None if there is none."""
    source = viewed_source(whole)
    write = None if source is None else _write_of(source)
    return source if source is not None and write and base_dims(source, write.dims) else None


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
    for number in range(write.count):
        # The dims of the indices are counted in row-major order, like the elements of the indices.
        part, remaining = values, number
        for axis in reversed(range(len(write.shape))):
            remaining, position = divmod(remaining, write.shape[axis])
            part = call_before(node, aten.slice.Tensor, part, first + axis, position, position + 1)
        rows.append(call_before(node, aten.reshape.default, part, row_shape))
    elements = tuple(_elements(index.meta["val"].shape, write.shape) for index in write.indices)
    insertion = RowInsertion(write.dims, write.indices, elements, tuple(rows), name == "index_put")
    if _written_view(whole) is not None:
        insertion = inserted_into_base(node, node, insertion)
    elif whole is not node:
        insertion = _inserted_into_part(node, whole, insertion)
    numbers = [number for numbers in insertion.elements for number in numbers]
    return call_before(
        node,
        INSERT_ROWS,
        _changed_by(node, whole),
        list(insertion.dims),
        list(insertion.indices),
        numbers,
        list(insertion.rows),
        insertion.negative,
        f"aten.{name}",
    )


def _inserted_into_part(node: Node, whole: Node, insertion: RowInsertion) -> RowInsertion:
    """Convert an insertion into a part of the whole, at one position of a dim, to an insertion into the whole."""
    dim, start = (operands_of(whole)[key] for key in ("dim", "start"))
    dims = [position + (position >= dim) for position in insertion.dims]
    # The position of the part is another index, and dims are ascending.
    before = sum(position < dim for position in dims)
    index = call_before(node, aten.full.default, [1], start, dtype=torch.int64)
    return replace(
        insertion,
        dims=(*dims[:before], dim, *dims[before:]),
        indices=(*insertion.indices[:before], index, *insertion.indices[before:]),
        elements=(
            *insertion.elements[:before],
            (0,) * len(insertion.rows),
            *insertion.elements[before:],
        ),
        rows=tuple(call_before(node, aten.unsqueeze.default, row, dim) for row in insertion.rows),
    )


def _elements(shape: Sequence[int], broadcast: Sequence[int]) -> tuple[int, ...]:
    """Return, for each element of a broadcast tensor, its index in the original tensor."""
    numbers = torch.arange(math.prod(shape)).reshape(tuple(shape)).expand(tuple(broadcast))
    return tuple(numbers.reshape(-1).tolist())


def _compared(node: Node) -> Node:
    """Decompose a write that does not insert rows; return the call itself if it has no form."""
    form: Callable[..., Any] = (
        selection.index_copy if operation_name(node) == "index_copy" else selection.index_put
    )
    operands = list(node.all_input_nodes)

    def function(*tensors: Tensor) -> Any:
        """Apply the form to its operands, in the order of the nodes."""
        values: Any = dict(zip(operands, tensors, strict=True))
        args, kwargs = cast(Any, map_arg((node.args, node.kwargs), values.__getitem__))
        result = form(*args, **kwargs)
        return cast(Callable[..., Any], node.target)(*args, **kwargs) if result is NotImplemented else result

    values = [operand.meta["val"] for operand in operands]
    with values[0].fake_mode, torch.no_grad():
        parts = make_fx(function)(*values)
    return _copied(node, parts.graph, operands)


def _copied(node: Node, parts: Graph, operands: Sequence[Node]) -> Node:
    """Copy the calls of a traced function before a node, and return the result."""
    copies: dict[Node, Node] = {}
    remaining = iter(operands)
    with node.graph.inserting_before(node):
        for part in parts.nodes:
            if part.op == "placeholder":
                copies[part] = next(remaining)
            elif part.op == "output":
                return copies[cast(Node, part.args[0])]
            else:
                copies[part] = node.graph.node_copy(part, copies.__getitem__)
                copies[part].meta = metadata_for(node, part.meta["val"])
    raise AssertionError("a traced graph has an output")


def _replace(program: ExportedProgram, old: Node, new: Node) -> None:
    """Replace one node by another, also among the outputs of the program."""
    old.replace_all_uses_with(new, propagate_meta=False)
    for spec in program.graph_signature.output_specs:
        if spec.arg.name == old.name:
            spec.arg.name = new.name
    old.graph.erase_node(old)


# Writes of rows through a permuted or reshaped view of a cache, rewritten as writes to the cache itself.

_RESHAPES = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)


@dataclass(frozen=True)
class RowInsertion:
    """The operands of an ``insert_rows``: ``rows`` of size 1 in the ascending ``dims``, at positions in these."""

    dims: tuple[int, ...]
    indices: tuple[Node, ...]
    elements: tuple[tuple[int, ...], ...]  # of each index, one element number per row
    rows: tuple[Node, ...]
    negative: bool


def viewed_source(whole: Node) -> Node | None:
    """Return the write to a view that ``whole`` puts back, if ``whole`` undoes the view; None if there is none."""
    if whole.target not in (aten.permute.default, *_RESHAPES):
        return None
    write = cast(Node, whole.args[0])
    if len(write.users) > 1 or write.op != "call_function" or not write.args:
        return None
    view = write.args[0]
    if not isinstance(view, Node) or view.target not in (aten.permute.default, *_RESHAPES):
        return None
    is_same = _shape(whole) == _shape(base_of(write)) and _shape(view) == _shape(write)
    if whole.target is aten.permute.default and view.target is aten.permute.default:
        order, back = _order(view), _order(whole)
        is_undone = [order[dim] for dim in back] == [*range(len(order))]
    else:
        is_undone = whole.target in _RESHAPES and view.target in _RESHAPES
    return write if is_same and is_undone else None


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


def inserted_into_base(position: Node, write: Node, insertion: RowInsertion) -> RowInsertion:
    """Convert an insertion into a view to an insertion into its base; nodes are built before ``position``."""
    view, shape = cast(Node, write.args[0]), _shape(base_of(write))
    parts = base_dims(write, insertion.dims)
    assert parts is not None, "the caller has asked"
    if any(len(part) > 1 for part in parts):
        insertion = _from_the_front(position, insertion, _shape(view))
    addressed = []
    for index, elements, part in zip(insertion.indices, insertion.elements, parts, strict=True):
        for dim in part:
            inner = math.prod(shape[d] for d in part if d > dim)
            size = shape[dim] if dim != part[0] else None
            addressed.append((dim, _digit(position, index, inner, size), elements))
    addressed.sort(key=lambda entry: entry[0])
    dims, indices, elements = zip(*addressed, strict=True)
    row_shape = [1 if dim in dims else size for dim, size in enumerate(shape)]
    if view.target is aten.permute.default:
        order = _order(view)
        back = [order.index(dim) for dim in range(len(order))]
        rows = tuple(call_before(position, aten.permute.default, row, back) for row in insertion.rows)
    else:
        rows = tuple(call_before(position, aten.reshape.default, row, row_shape) for row in insertion.rows)
    return replace(insertion, dims=dims, indices=indices, elements=elements, rows=rows)


def _from_the_front(position: Node, insertion: RowInsertion, shape: Sequence[int]) -> RowInsertion:
    """Convert negative indices to non-negative ones; an index that is out of range stays out of range."""
    if not insertion.negative:
        return insertion
    indices = []
    for index, dim in zip(insertion.indices, insertion.dims, strict=True):
        below = call_before(position, aten.lt.Scalar, index, 0)
        counted = call_before(position, aten.add.Tensor, index, shape[dim])
        indices.append(call_before(position, aten.where.self, below, counted, index))
    return replace(insertion, indices=tuple(indices), negative=False)


def _digit(position: Node, index: Node, inner: int, size: int | None) -> Node:
    """Build ``index // inner``, and the remainder of the quotient by ``size`` if a size is given."""
    if inner > 1:
        index = call_before(position, aten.div.Tensor_mode, index, inner, rounding_mode="floor")
    return index if size is None else call_before(position, aten.remainder.Scalar, index, size)


def _order(view: Node) -> list[int]:
    dims = cast(Sequence[int], operands_of(view)["dims"])
    return [dim % len(dims) for dim in dims]


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)
