# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that mark a loop in a graph: ``loop_begin``, the operations of one iteration, ``loop_end``.

    *carried, *tiles, mark = loop_begin(carried, wholes, dims, sizes, trips)
    ...
    *carried, *wholes = loop_end(mark, carried, tiles, dims, trips)

Iteration i gets the tiles at offset ``i * size`` of each of the ``wholes``; ``loop_end`` concatenates its tiles along a
dim. A graph with marks can only be compiled: executed directly, it would compute one iteration.
"""

from __future__ import annotations

import contextlib
import contextvars
import operator
from collections.abc import Iterator, Sequence
from typing import NoReturn

import torch
from torch import Tensor
from torch.fx import Graph, Node

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.assertions import CHECK
from spyre_mlir.frontend.graph_edits import operands_of
from spyre_mlir.frontend.random_numbers import is_random
from spyre_mlir.frontend.refusals import refusal_at


def _refuse() -> NoReturn:
    raise CompileError("A graph with marks of loops has no meaning but for the compiler; compile it.")


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


@contextlib.contextmanager
def marking_loops() -> Iterator[None]:
    """Context of a capture by the compiler, in which ``for_each_tile`` inserts marks."""
    token = _MARKING.set(True)
    try:
        yield
    finally:
        _MARKING.reset(token)


def is_marking() -> bool:
    """Return whether the compiler is capturing the running code."""
    return _MARKING.get()


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
            if any(source not in inside for source in _written(node)):
                raise refusal_at(
                    node,
                    "An iteration changes a tensor from outside of its loop; carry it: give it as 'carried' and return "
                    "its new value.",
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
                    "An iteration is traced once, so all would have its random numbers; draw them before the loop.",
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
                    "What an iteration computes is read outside of its loop; return it from the iteration.",
                )


def _written(node: Node) -> list[Node]:
    """The tensors that an operation changes in place, as the bases of its view operands."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return []
    arguments = node.target._schema.arguments
    operands = operands_of(node)
    written = [
        operands.get(argument.name)
        for argument in arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return [_base(operand) for operand in written if isinstance(operand, Node)]


def _base(node: Node) -> Node:
    """The base tensor of a chain of views."""
    while isinstance(node.target, torch._ops.OpOverload) and any(
        result.alias_info is not None for result in node.target._schema.returns
    ):
        node = node.all_input_nodes[0]
    return node
