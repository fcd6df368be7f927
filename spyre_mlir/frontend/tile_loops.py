# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``for_each_tile``: a loop over the tiles of tensors in order, with values carried from one tile to the next.

Eager, it is a Python loop over slices; captured by ``compile``, one iteration between marks (``py``); traced
by Dynamo, PyTorch's ``scan`` or ``map``. Both become an ``scf.for`` in the bundle of the program.
"""

from __future__ import annotations

import contextvars
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch._higher_order_ops import scan
from torch._higher_order_ops.map import map as map_rows
from torch._ops import OpOverload
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from spyre_mlir.compile_lock import assigned
from spyre_mlir.errors import CompileError, counted
from spyre_mlir.frontend.assertions import CHECK
from spyre_mlir.frontend.graph_edits import operands_of
from spyre_mlir.frontend.locations import refusal_at
from spyre_mlir.frontend.random_numbers import is_random

Dims = int | Sequence[int]


def for_each_tile(
    body: Callable[..., Any],
    *tensors: Tensor,
    dim: Dims = 0,
    tile: int | None = None,
    tiles: int | None = None,
    carried: Any = None,
    out_dim: Dims = 0,
) -> Any:
    """Call a function on each tile of tensors in order; return its results, concatenated.

    ``body`` may read outer tensors, but must not change them, and must not draw random numbers, because it is traced
    only once.

    Args:
        body: ``body(*tiles)`` returns a tensor, a tuple or another tree of tensors, or None. With ``carried`` it is
            ``body(carried, *tiles)``, which returns ``(carried, results)``.
        *tensors: The tensors to cut; all must have the same number of tiles.
        dim: The dim to cut, for all tensors, or one dim per tensor.
        tile: The size of a tile along ``dim``, in elements; the last tile may be smaller.
        tiles: Alternatively, the number of tiles, cut as by ``torch.chunk``.
        carried: A tensor or a tree of tensors that is passed from one tile to the next.
        out_dim: The dim along which results are concatenated.

    Returns:
        The results of all tiles, in the tree of ``body``; with ``carried``, a pair of the values carried after the last
        tile, in their initial shapes and types, and the results.

    Raises:
        CompileError: The tensors cannot be cut into such tiles, or ``body`` returns another structure.
    """
    dims = [dim] * len(tensors) if isinstance(dim, int) else list(dim)
    cut = _Cut(tensors, dims, tile, tiles)
    has_carried = carried is not None
    state, tree = pytree.tree_flatten(carried if has_carried else [])
    state = [value if isinstance(value, Tensor) else torch.as_tensor(value) for value in state]

    def iteration(state: Sequence[Tensor], parts: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor], Any]:
        """Return the next state, the results and their tree for one tile."""
        if not has_carried:
            return [], *_flattened(body(*parts))
        returned = body(pytree.tree_unflatten(list(state), tree), *parts)
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise CompileError(
                "With 'carried', the body of for_each_tile returns a pair: (carried, results)."
            )
        following, following_tree = pytree.tree_flatten(returned[0])
        if tree != following_tree:
            raise CompileError(
                f"The body of for_each_tile returns the carried {following_tree}, but was given {tree}."
            )
        for position, (old, new) in enumerate(zip(state, following, strict=True)):
            if not isinstance(new, Tensor) or new.shape != old.shape or new.dtype != old.dtype:
                found = f"{tuple(new.shape)} {new.dtype}" if isinstance(new, Tensor) else type(new).__name__
                raise CompileError(
                    f"The body of for_each_tile carries {found} as tensor {position}, which began as "
                    f"{tuple(old.shape)} {old.dtype}; both must be the same."
                )
        return following, *_flattened(returned[1])

    # Dynamo traces for any backend, and supports an operator for this loop.
    if torch.compiler.is_dynamo_compiling():
        loop = _scanned
    else:
        loop = _marked if _MARKING.get() else _eager
    state, pieces, result_tree = loop(cut, state, iteration, out_dim)
    wholes = [
        torch.cat(parts, place) if len(parts) > 1 else parts[0] for parts, place in zip(*pieces, strict=True)
    ]
    remaining = iter(wholes)
    results = pytree.tree_map(lambda leaf: None if leaf is None else next(remaining), result_tree)
    return (pytree.tree_unflatten(state, tree), results) if has_carried else results


def _flattened(results: Any) -> tuple[list[Tensor], Any]:
    """The tensors of a tree, and the tree with True for each of them; None is preserved."""
    tree = pytree.tree_map(lambda leaf: None if leaf is None else True, results)
    return [leaf for leaf in pytree.tree_leaves(results) if leaf is not None], tree


class _Cut:
    """Tensors and how they are cut: ``full`` tiles of ``sizes``, and one smaller tile if ``has_rest``.

    ``CompileError`` if they cannot be cut.
    """

    def __init__(
        self, tensors: Sequence[Tensor], dims: Sequence[int], tile: int | None, tiles: int | None
    ) -> None:
        if (tile is None) == (tiles is None):
            raise CompileError("for_each_tile takes either 'tile', elements, or 'tiles', a number of tiles.")
        if not tensors or len(dims) != len(tensors):
            raise CompileError(
                "for_each_tile takes at least one tensor, and one dim for each or one for all."
            )
        for position, (tensor, dim) in enumerate(zip(tensors, dims, strict=True)):
            if not -tensor.ndim <= dim < tensor.ndim:
                raise CompileError(
                    f"Tensor {position} of for_each_tile has {counted(tensor.ndim, 'dim')}, no dim {dim}."
                )
        self.tensors = tensors
        self.dims = [dim % tensor.ndim for tensor, dim in zip(tensors, dims, strict=True)]
        extents = [tensor.shape[dim] for tensor, dim in zip(tensors, self.dims, strict=True)]
        wanted = tile if tile is not None else tiles
        if not isinstance(wanted, int) or wanted < 1 or 0 in extents:
            raise CompileError(
                "for_each_tile takes tiles of at least one element, of tensors that have elements."
            )
        self.sizes = [min(wanted, size) if tile is not None else -(-size // wanted) for size in extents]
        pairs = list(zip(extents, self.sizes, strict=True))
        counts = {-(-extent // size) for extent, size in pairs}
        fulls = {extent // size for extent, size in pairs}
        if len(counts) > 1 or len(fulls) > 1:
            raise CompileError(
                f"The tensors of for_each_tile have {sorted(counts | fulls)} tiles; the numbers must be equal."
            )
        self.full = fulls.pop()
        self.rests = [extent - self.full * size for extent, size in pairs]
        self.has_rest = any(self.rests)

    def tile(self, index: int) -> list[Tensor]:
        """Return the tile of each tensor at an index."""
        sizes = self.sizes if index < self.full else self.rests
        return [
            tensor.narrow(dim, index * size, part)
            for tensor, dim, size, part in zip(self.tensors, self.dims, self.sizes, sizes, strict=True)
        ]


Iteration = Callable[[Sequence[Tensor], Sequence[Tensor]], tuple[list[Tensor], list[Tensor], Any]]
#: The final state; for each result its parts, and the dim along which they are concatenated; and their tree.
Finished = tuple[list[Tensor], tuple[list[list[Tensor]], list[int]], Any]


def _eager(cut: _Cut, state: list[Tensor], iteration: Iteration, out_dim: Dims) -> Finished:
    rows = []
    tree: Any = None
    for index in range(cut.full + cut.has_rest):
        state, results, tree = iteration(state, cut.tile(index))
        rows.append(results)
    parts = [list(column) for column in zip(*rows, strict=True)]
    return state, (parts, _result_dims(rows[0], out_dim)), tree


def _marked(cut: _Cut, state: list[Tensor], iteration: Iteration, out_dim: Dims) -> Finished:
    begin = loop_begin(state, list(cut.tensors), cut.dims, cut.sizes, cut.full)
    following, results, tree = iteration(begin[: len(state)], begin[len(state) : -1])
    dims = _result_dims(results, out_dim)
    ends = loop_end(begin[-1], following, results, dims, cut.full)
    state, parts = list(ends[: len(state)]), [[whole] for whole in ends[len(state) :]]
    if cut.has_rest:
        state, rest, tree = iteration(state, cut.tile(cut.full))
        parts = [[*column, part] for column, part in zip(parts, rest, strict=True)]
    return state, (parts, dims), tree


def _scanned(cut: _Cut, state: list[Tensor], iteration: Iteration, out_dim: Dims) -> Finished:
    """A PyTorch scan over the tiles as rows."""
    # This iteration is only traced for its tree, because a scan must not change outer values.
    _, _, tree = iteration(state, cut.tile(0))

    def step(state: list[Tensor], parts: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the next state and results as separate tensors, which a scan requires."""
        following, results, _ = iteration(state, parts)
        return [value.clone() for value in following], [value.clone() for value in results]

    rows = [
        tensor.narrow(dim, 0, cut.full * size).unflatten(dim, (cut.full, size)).movedim(dim, 0)
        for tensor, dim, size in zip(cut.tensors, cut.dims, cut.sizes, strict=True)
    ]
    if state:
        state, stacked = scan(step, state, rows)
    else:
        stacked = map_rows(lambda parts, *_: step([], parts)[1], rows)
    dims = _result_dims([whole[0] for whole in stacked], out_dim)
    parts = [[whole.movedim(0, dim).flatten(dim, dim + 1)] for whole, dim in zip(stacked, dims, strict=True)]
    if cut.has_rest:
        state, rest, _ = iteration(state, cut.tile(cut.full))
        parts = [[*column, part] for column, part in zip(parts, rest, strict=True)]
    return state, (parts, dims), tree


def _result_dims(results: Sequence[Tensor], out_dim: Dims) -> list[int]:
    dims = [out_dim] * len(results) if isinstance(out_dim, int) else list(out_dim)
    if len(dims) != len(results):
        raise CompileError(f"for_each_tile has {len(dims)} 'out_dim' for {counted(len(results), 'result')}.")
    for result, dim in zip(results, dims, strict=True):
        if not -result.ndim <= dim < result.ndim:
            raise CompileError(
                f"A result of for_each_tile has {counted(result.ndim, 'dim')}, no dim {dim} to concatenate tiles."
            )
    return [dim % result.ndim for result, dim in zip(results, dims, strict=True)]


# Operators that mark a loop in a graph: ``loop_begin``, the operations of one iteration, ``loop_end``.
#
#     *carried, *tiles, mark = loop_begin(carried, wholes, dims, sizes, trips)
#     ...
#     *carried, *wholes = loop_end(mark, carried, tiles, dims, trips)
#
# Iteration i gets the tiles at offset ``i * size`` of each of the ``wholes``; ``loop_end`` concatenates its tiles along
# a dim. A graph with marks can only be compiled: executed directly, it would compute one iteration.


def _refuse() -> NoReturn:
    raise CompileError("Only the compiler can run a graph with loop marks; compile it.")


@torch.library.custom_op(
    "spyre::loop_begin",
    mutates_args=(),
    schema="(Tensor[] carried, Tensor[] wholes, int[] dims, int[] sizes, int trips) -> Tensor[]",
)
def loop_begin(
    carried: Sequence[Tensor], wholes: Sequence[Tensor], dims: Sequence[int], sizes: Sequence[int], trips: int
) -> list[Tensor]:
    """The values at the start of an iteration: carried tensors, tiles, and the mark that ``loop_end`` takes."""
    _refuse()


@torch.library.custom_op(
    "spyre::loop_end",
    mutates_args=(),
    schema="(Tensor mark, Tensor[] carried, Tensor[] tiles, int[] dims, int trips) -> Tensor[]",
)
def loop_end(
    mark: Tensor, carried: Sequence[Tensor], tiles: Sequence[Tensor], dims: Sequence[int], trips: int
) -> list[Tensor]:
    """The results of a loop: the carried tensors after the last iteration, and the concatenated tiles."""
    _refuse()


@loop_begin.register_fake
def _(
    carried: Sequence[Tensor], wholes: Sequence[Tensor], dims: Sequence[int], sizes: Sequence[int], trips: int
) -> list[Tensor]:
    tiles = [_resized(whole, dim, size) for whole, dim, size in zip(wholes, dims, sizes, strict=True)]
    like = (*carried, *wholes)[0]
    return [*map(_dense, carried), *tiles, like.new_empty((), dtype=torch.bool)]


@loop_end.register_fake
def _(
    mark: Tensor, carried: Sequence[Tensor], tiles: Sequence[Tensor], dims: Sequence[int], trips: int
) -> list[Tensor]:
    wholes = [_resized(tile, dim, tile.shape[dim] * trips) for tile, dim in zip(tiles, dims, strict=True)]
    return [*map(_dense, carried), *wholes]


def _dense(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _resized(tensor: Tensor, dim: int, size: int) -> Tensor:
    """A tensor without data that differs in the size of one dim."""
    shape = list(tensor.shape)
    shape[dim] = size
    return tensor.new_empty(shape)


BEGIN, END = torch.ops.spyre.loop_begin.default, torch.ops.spyre.loop_end.default


_MARKING = contextvars.ContextVar("marking", default=False)


def marking_loops() -> AbstractContextManager[Any]:
    """Context of a capture by the compiler, in which ``for_each_tile`` inserts marks."""
    return assigned(_MARKING, True)


def is_mark(node: Node) -> bool:
    """Return whether a node is the begin mark or the end mark of a loop."""
    return node.target in (BEGIN, END)


def is_mark_read(node: Node) -> bool:
    """Return whether a node reads the mark among the results of a ``loop_begin``."""
    source = node.args[0] if node.target is operator.getitem else None
    if not isinstance(source, Node) or source.target is not BEGIN:
        return False
    return bool(node.args[1] == len(source.meta["val"]) - 1)


def end_of(begin: Node) -> Node | None:
    """The end of the loop that a node begins; None if nothing reads the results of the loop."""
    return next((reader for user in begin.users if is_mark_read(user) for reader in user.users), None)


def loops_of(graph: Graph) -> Iterator[tuple[Node, list[Node], Node]]:
    """Yield each loop of a graph, outer loops before inner loops: begin, nodes of an iteration, end."""
    nodes = list(graph.nodes)
    position = {node: index for index, node in enumerate(nodes)}
    for begin in graph.find_nodes(op="call_function", target=BEGIN):
        end = end_of(begin)
        if end is not None:
            yield begin, nodes[position[begin] + 1 : position[end]], end


def check_writes_in_loops(graph: Graph) -> None:
    """Raise ``CompileError`` for an iteration that writes to an outer tensor: traced once, it would write once."""
    for begin, nodes, _ in loops_of(graph):
        inside = {begin, *nodes}
        for node in nodes:
            if not isinstance(node.target, OpOverload):
                continue
            operands = operands_of(node)
            for argument in node.target._schema.arguments:
                source = operands.get(argument.name)
                if (
                    argument.alias_info is None
                    or not argument.alias_info.is_write
                    or not isinstance(source, Node)
                ):
                    continue
                # The base of a chain of views.
                while isinstance(source.target, OpOverload) and any(
                    result.alias_info is not None for result in source.target._schema.returns
                ):
                    source = source.all_input_nodes[0]
                if source not in inside:
                    raise refusal_at(
                        node,
                        "An iteration changes a tensor from outside of its loop; carry it: give it as 'carried' and "
                        "return its new value.",
                    )


def check_loops(graph: Graph) -> None:
    """Raise ``CompileError`` for an iteration that draws random numbers or asserts, or whose tensors are read outside.

    The graph must be functional.
    """
    for begin, nodes, end in loops_of(graph):
        inside = {begin, *nodes}
        for node in nodes:
            if is_random(node):
                raise refusal_at(
                    node,
                    "An iteration is traced once, so all iterations would have the same random numbers; draw them "
                    "before the loop.",
                )
            if node.target is CHECK:
                raise refusal_at(
                    node,
                    "An iteration asserts, and the device does not stop inside of a loop; return the condition from "
                    "the iteration, and assert it after the loop.",
                )
            if any(user not in inside and user is not end for user in node.users):
                raise refusal_at(
                    node,
                    "A value that an iteration computes is read outside of its loop; return it from the iteration.",
                )
