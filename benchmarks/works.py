"""Programs for the cost model: compiled ones, and products divided by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from spyre_mlir.cost.of_space import operation_work
from spyre_mlir.cost.work import OperationWork
from spyre_mlir.division import Division
from spyre_mlir.layout import BufferView
from spyre_mlir.layout.orders import from_order
from spyre_mlir.layout.space import Space
from spyre_mlir.target.device import device
from spyre_mlir.timeline import Timeline

#: Dims of a product C[b, m, n] = sum over k of A[b, m, k] W[b, k, n], in this order.
BATCH, ROWS, COLUMNS, DEPTH = range(4)
_OPERANDS = ((BATCH, ROWS, DEPTH), (BATCH, DEPTH, COLUMNS), (BATCH, ROWS, COLUMNS))

#: Device dims of A, W and C, outermost first.
Orders = Sequence[Sequence[int]]


def matmul(sizes: Sequence[int], splits: Sequence[int], orders: Orders) -> OperationWork:
    """A product of batch, rows, columns and depth, in slices of each; dims that ``orders`` leave out are outermost."""
    views = []
    for dims, order in zip(_OPERANDS, orders, strict=True):
        shape = [sizes[dim] for dim in dims]
        layout = from_order(device(), shape, "f16", 2, [dims.index(dim) for dim in order])
        views.append(BufferView.of(layout).rename(dims, len(sizes), sizes))
    space = Space(tuple(sizes), tuple(views), tuple(map(frozenset, _OPERANDS)), frozenset({DEPTH}))
    return operation_work("batchmatmul", space, Division.of(splits, space.units, space.reduced))


def compiled(function: Callable, *shapes: Sequence[int], **options: Any) -> Timeline:
    """The predicted time of a function of tensors."""
    import torch

    import spyre_mlir

    inputs = tuple(torch.zeros(*shape, dtype=torch.float16) for shape in shapes)
    return spyre_mlir.compile(function, inputs, **options).timeline()
