"""What programs do, for the cost model: compiled ones, and products divided by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from spyre_mlir.cost.of_space import operation_work
from spyre_mlir.cost.reuse import with_reuse
from spyre_mlir.cost.work import OperationWork
from spyre_mlir.division import Division
from spyre_mlir.layout import BufferView
from spyre_mlir.layout.orders import from_order
from spyre_mlir.layout.space import Space

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
        layout = from_order(shape, "f16", 2, [dims.index(dim) for dim in order])
        views.append(BufferView.of(layout).rename(dims, len(sizes), sizes))
    space = Space(tuple(sizes), tuple(views), tuple(map(frozenset, _OPERANDS)), frozenset({DEPTH}))
    return operation_work("batchmatmul", space, Division.of(splits, space.units, space.reduced))


def compiled(function: Callable, *shapes: Sequence[int], **options: Any) -> tuple[OperationWork, ...]:
    """The operations of a function of tensors, with the placements of the pipeline's plan and what is reused."""
    import torch

    from spyre_mlir.dialects import context
    from spyre_mlir.frontend import import_torch
    from spyre_mlir.passes._memory import functions, is_in_lx
    from spyre_mlir.passes._usage import Usage
    from spyre_mlir.pipelines import SpyrePipeline, run_pipeline

    module = torch.nn.Module()
    module.forward = function
    inputs = tuple(torch.zeros(*shape, dtype=torch.float16) for shape in shapes)
    program = import_torch(module, inputs, context=context())
    assert program.module is not None, "the function computes nothing"
    run_pipeline(program.module, SpyrePipeline(**options).pipeline("placed"))
    (func,) = functions(program.module.operation)
    usage = Usage(func)
    buffers = [tuple(map(usage.root, each.values)) for each in usage.ops]
    works = [
        operation_work(
            each.opcode,
            each.space,
            each.division,
            frozenset(number for number, root in enumerate(roots) if is_in_lx(root)),
        )
        for each, roots in zip(usage.ops, buffers, strict=True)
    ]
    return tuple(with_reuse(works, buffers, usage.results))
