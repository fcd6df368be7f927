# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules for structured ops of ``linalg``: the body is evaluated on whole arrays, in blocks of bounded memory.

An operand is a view with an axis per loop, of size 1 where it does not depend on the loop, so the ops of the body
broadcast. Reduction loops, which are not a dim of an output, are one numpy reduction if reductions.py can classify the
body; otherwise they run point by point. A body with control flow runs point by point over all loops.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from spyre_mlir.host import reductions, scalar_ops
from spyre_mlir.host.block import (
    MATMUL_DISCOUNT,
    Block,
    BlockScope,
    Frame,
    Kernel,
    KernelCall,
    check_indices,
    failure,
    only_block,
)
from spyre_mlir.host.number_types import NumberType, is_tensor, number_type, tensor_shape
from spyre_mlir.host.reductions import Fold, Selected
from spyre_mlir.mlir import indexing_maps, ir
from spyre_mlir.records import dataclass

# Names of the structured ops of ``linalg`` that a host function may have.

#: Each op states its maps and has a body.
NAMED_OPS = (
    "generic", "map", "reduce", "transpose", "broadcast", "elementwise", "fill", "copy", "add", "sub", "mul", "div",
    "div_unsigned", "max", "min", "powf", "select", "abs", "ceil", "exp", "floor", "log", "negf", "reciprocal",
    "round", "rsqrt", "sqrt", "square", "tanh", "erf", "dot", "matvec", "vecmat", "matmul", "contract",
    "matmul_transpose_a", "matmul_transpose_b", "batch_matmul", "batch_matmul_transpose_a",
    "batch_matmul_transpose_b", "batch_matvec", "batch_vecmat", "batch_reduce_matmul", "quantized_matmul",
    "quantized_batch_matmul", "mmt4d", "batch_mmt4d",
    "conv_1d", "conv_1d_ncw_fcw", "conv_1d_nwc_wcf", "conv_2d", "conv_2d_nchw_fchw", "conv_2d_nchw_fchw_q",
    "conv_2d_nhwc_fhwc", "conv_2d_nhwc_fhwc_q", "conv_2d_nhwc_hwcf", "conv_2d_nhwc_hwcf_q",
    "conv_2d_ngchw_fgchw", "conv_2d_ngchw_gfchw", "conv_2d_ngchw_gfchw_q", "conv_2d_nhwgc_gfhwc",
    "conv_2d_nhwgc_gfhwc_q", "conv_3d", "conv_3d_ncdhw_fcdhw", "conv_3d_ndhwc_dhwcf", "conv_3d_ndhwc_dhwcf_q",
    "depthwise_conv_1d_ncw_cw", "depthwise_conv_1d_nwc_wc", "depthwise_conv_1d_nwc_wcm",
    "depthwise_conv_2d_nchw_chw", "depthwise_conv_2d_nhwc_hwc", "depthwise_conv_2d_nhwc_hwc_q",
    "depthwise_conv_2d_nhwc_hwcm", "depthwise_conv_2d_nhwc_hwcm_q", "depthwise_conv_3d_ncdhw_cdhw",
    "depthwise_conv_3d_ndhwc_dhwc", "depthwise_conv_3d_ndhwc_dhwcm",
    "pooling_nchw_max", "pooling_nchw_sum", "pooling_ncw_max", "pooling_ncw_sum", "pooling_ndhwc_max",
    "pooling_ndhwc_min", "pooling_ndhwc_sum", "pooling_nhwc_max", "pooling_nhwc_max_unsigned",
    "pooling_nhwc_min", "pooling_nhwc_min_unsigned", "pooling_nhwc_sum", "pooling_nwc_max",
    "pooling_nwc_max_unsigned", "pooling_nwc_min", "pooling_nwc_min_unsigned", "pooling_nwc_sum",
)  # fmt: skip


#: The number of points of the iteration space that are evaluated at once, and of elements that a matrix product reads.
_BLOCK, _MATMUL_BLOCK = 1 << 18, 1 << 24

#: A part of the iteration space: a slice per loop.
Part = tuple[slice, ...]

# Accesses to operands: affine maps as views of numpy arrays with an axis per loop.


#: The coefficients of the loops in a linear expression, and its constant.
Linear = tuple[tuple[int, ...], int]


@dataclass(frozen=True)
class OperandMap:
    """Map of one operand over loops of known extents. ``dims`` are the loops that it depends on."""

    op: ir.Operation
    map: ir.AffineMap
    shape: tuple[int, ...]
    extents: tuple[int, ...]
    linear: tuple[Linear, ...] | None
    dims: frozenset[int]

    @property
    def selects(self) -> bool:
        """Return whether each dim of the operand is a loop of its own or the constant 0."""
        if self.linear is None:
            return False
        terms = [coefficients for coefficients, constant in self.linear if any(coefficients) or constant]
        # A 1 and otherwise zeros; with a single loop only a 1.
        ones = [coefficients.index(1) for coefficients in terms if sorted(coefficients)[-2:] in ([0, 1], [1])]
        return (
            len(ones) == len(terms) == len(set(ones))
            and not any(constant for _, constant in self.linear)
            and all(min(coefficients) == 0 for coefficients in terms)
        )

    @property
    def covers(self) -> bool:
        """Return whether the loops access every element once."""
        return self.selects and math.prod(self.extents[dim] for dim in self.dims) == math.prod(self.shape)

    def view(self, array: NDArray[Any]) -> NDArray[Any]:
        """View of an array with an axis per loop, of size 1 where the operand does not depend on it."""
        shape = tuple(size if dim in self.dims else 1 for dim, size in enumerate(self.extents))
        if self.linear is None:
            # No view has the elements that a map with divisions accesses.
            loops = _indices([slice(0, extent) for extent in self.extents])
            indices = [np.asarray(_evaluated(expression, loops, self.op)) for expression in self.map.results]
            for dim, (index, size) in enumerate(zip(indices, self.shape, strict=True)):
                check_indices(self.op, index, size, dim, "reads at")
            return array[tuple(np.broadcast_arrays(*indices))].reshape(shape)
        strides, start = [0] * len(shape), 0
        for (coefficients, constant), stride in zip(self.linear, array.strides, strict=True):
            start += constant * stride
            strides = [total + factor * stride for total, factor in zip(strides, coefficients, strict=True)]
        if not start:
            return as_strided(array, shape, strides)
        first = tuple(slice(constant, None) for _, constant in self.linear)
        return as_strided(array[first], shape, strides)


def access(
    op: ir.Operation, map_: ir.AffineMap, shape: tuple[int, ...], extents: tuple[int, ...]
) -> OperandMap:
    """Access to an operand of this shape; ``CompileError`` for a map that leaves it."""
    terms = [_linear(expression, len(extents)) for expression in map_.results]
    if any(term is None for term in terms):
        used = frozenset(
            dim for dim in range(len(extents)) if any(_uses(result, dim) for result in map_.results)
        )
        return OperandMap(op, map_, shape, extents, None, used)
    linear = tuple(term for term in terms if term is not None)
    for dim, ((coefficients, constant), size) in enumerate(zip(linear, shape, strict=True)):
        reach = [factor * (extent - 1) for factor, extent in zip(coefficients, extents, strict=True)]
        low, high = (constant + sum(choose(0, distance) for distance in reach) for choose in (min, max))
        # Linear expressions are extreme at corners, so two numbers bound all accesses.
        if math.prod(extents) and not 0 <= low <= high < size:
            raise failure(
                op, f"reaches from {low} to {high} in dim {dim} of an operand, which has {size} indices"
            )
    used = frozenset(
        dim for dim in range(len(extents)) if any(coefficients[dim] for coefficients, _ in linear)
    )
    return OperandMap(op, map_, shape, extents, linear, used)


def loop_extents(
    op: ir.Operation, maps: Sequence[ir.AffineMap], shapes: Sequence[tuple[int, ...]]
) -> tuple[int, ...]:
    """Size of each loop, from the operands that have it as a dim."""
    loops = maps[0].n_dims
    extents: dict[int, int] = {}
    for map_, shape in zip(maps, shapes, strict=True):
        if len(map_.results) != len(shape) or map_.n_dims != loops:
            raise failure(op, f"has the map {map_} for an operand of rank {len(shape)}")
        for expression, size in zip(map_.results, shape, strict=True):
            if (
                isinstance(expression, ir.AffineDimExpr)
                and extents.setdefault(expression.position, size) != size
            ):
                raise failure(
                    op, f"has operands of {size} and {extents[expression.position]} in the same loop"
                )
    if len(extents) != loops:
        raise failure(op, "has a loop that is not a dim of an operand, so its size is not known")
    return tuple(extents[loop] for loop in range(loops))


def _linear(expression: ir.AffineExpr, loops: int) -> Linear | None:
    """Coefficients and constant of an expression; None for one with a division."""
    if isinstance(expression, ir.AffineConstantExpr):
        return (0,) * loops, expression.value
    if isinstance(expression, ir.AffineDimExpr):
        return tuple(int(dim == expression.position) for dim in range(loops)), 0
    if not isinstance(expression, ir.AffineAddExpr | ir.AffineMulExpr):
        return None
    lhs, rhs = _linear(expression.lhs, loops), _linear(expression.rhs, loops)
    if lhs is None or rhs is None:
        return None
    if isinstance(expression, ir.AffineAddExpr):
        return tuple(a + b for a, b in zip(lhs[0], rhs[0], strict=True)), lhs[1] + rhs[1]
    scaled, factor = (lhs, rhs[1]) if not any(rhs[0]) else (rhs, lhs[1])
    return tuple(coefficient * factor for coefficient in scaled[0]), scaled[1] * factor


def _uses(expression: ir.AffineExpr, dim: int) -> bool:
    """Return whether an expression depends on a loop."""
    if isinstance(expression, ir.AffineDimExpr):
        return expression.position == dim
    if isinstance(expression, ir.AffineConstantExpr | ir.AffineSymbolExpr):
        return False
    return _uses(expression.lhs, dim) or _uses(expression.rhs, dim)  # type: ignore[attr-defined]


def _evaluated(expression: ir.AffineExpr, loops: Sequence[NDArray[Any]], op: ir.Operation) -> NDArray[Any]:
    """Value of an expression at all points of the loops."""
    if isinstance(expression, ir.AffineConstantExpr):
        return np.full((1,) * len(loops), expression.value)
    if isinstance(expression, ir.AffineDimExpr):
        return loops[expression.position]
    if isinstance(expression, ir.AffineSymbolExpr):
        raise failure(op, "has a map with symbols, which the host does not know")
    lhs, rhs = (_evaluated(side, loops, op) for side in (expression.lhs, expression.rhs))  # type: ignore[attr-defined]
    if isinstance(expression, ir.AffineAddExpr):
        return lhs + rhs
    if isinstance(expression, ir.AffineMulExpr):
        return lhs * rhs
    if np.any(rhs == 0):
        raise failure(op, "has a map that divides by 0")
    if isinstance(expression, ir.AffineModExpr):
        return lhs % rhs
    return lhs // rhs if isinstance(expression, ir.AffineFloorDivExpr) else -(-lhs // rhs)


_VECTORISED = scalar_ops.NAMES | {"linalg.index", "tensor.extract"}


@dataclass
class StructuredOp:
    """One structured op: accesses and number types of all operands, outputs last; its loops; its body."""

    op: ir.Operation
    accesses: list[OperandMap]
    numbers: list[NumberType]
    inputs: int
    extents: tuple[int, ...]
    parallel: tuple[int, ...]
    reduced: tuple[int, ...]
    body: Block
    read: list[bool]

    @property
    def outputs(self) -> range:
        """Indices of the output operands."""
        return range(self.inputs, len(self.accesses))

    def results(self, operands: Sequence[NDArray]) -> list[NDArray]:
        """Return arrays for the results: new arrays if every element is written, otherwise copies of the outputs."""
        return [
            np.empty(self.accesses[k].shape, self.numbers[k].storage)
            if self.accesses[k].covers
            else np.array(operands[k])
            for k in self.outputs
        ]

    def views(self, operands: Sequence[NDArray]) -> list[NDArray | None]:
        """Return views of the operands that the body reads; an operand that is read several times is widened first."""
        views: list[NDArray | None] = []
        for index, operand in enumerate(operands):
            if not self.read[index]:
                views.append(None)
                continue
            once = self.accesses[index].selects
            source = operand if once else self.numbers[index].widened(operand)
            views.append(self.accesses[index].view(np.asarray(source)))
        return views

    def load(self, views: Sequence[NDArray | None], part: Sequence[slice]) -> list[NDArray | None]:
        """Return the operands as scalars, over a part of the loops."""
        return [
            None if view is None else self.numbers[index].widened(view[_within(view, part)])
            for index, view in enumerate(views)
        ]

    def store(self, target: NDArray, index: int, part: Part, value: NDArray) -> None:
        """Write the value of an operand over a part of the loops."""
        target[_within(target, part)] = self.numbers[index].rounded(value)


def _sizes(part: Part) -> list[int]:
    """Return the number of points of each loop."""
    return [slice_.stop - slice_.start for slice_ in part]


def _within(view: NDArray, part: Sequence[slice]) -> Part:
    """Return the part of a view for a part of the loops; an axis that the view lacks is taken whole."""
    return tuple(slice(None) if size == 1 else slice_ for size, slice_ in zip(view.shape, part, strict=True))


def structured_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for any op with indexing maps and a body that ends with linalg.yield."""
    block = only_block(op)
    values = list(op.operands)
    maps = indexing_maps(op)
    shapes = [tensor_shape(value.type) for value in values]
    if len(maps) != len(values) or len(block.arguments) != len(values):
        raise failure(op, "must have a map and an argument of its body for each operand")
    if any(isinstance(inner, ir.ShapedType) for inner in (argument.type for argument in block.arguments)):
        raise failure(op, "must have a body on scalars")
    extents = loop_extents(op, maps, shapes)
    accesses = [access(op, map_, shape, extents) for map_, shape in zip(maps, shapes, strict=True)]
    inputs = len(values) - len(op.results)
    if any(access_.linear is None for access_ in accesses[inputs:]):
        raise failure(op, "writes by a map with divisions, which has no rule")
    # A loop is parallel if it is by itself, once, a dim of each output.
    parallel = tuple(range(len(extents)))
    for map_ in maps[inputs:]:
        dims = [entry.position for entry in map_.results if isinstance(entry, ir.AffineDimExpr)]
        selects = all(isinstance(entry, ir.AffineDimExpr | ir.AffineConstantExpr) for entry in map_.results)
        alone = set(dims) if selects and len(dims) == len(set(dims)) else set()
        parallel = tuple(dim for dim in parallel if dim in alone)
    reduced = tuple(dim for dim in range(len(extents)) if dim not in parallel)
    body = scope.block(block, "linalg.yield", op)
    # The scalar operations of one point of the loops; a summed product is cheap.
    kinds = reductions.classify(block, list(block.arguments)[inputs:])
    is_product = kinds and all(isinstance(kind, Fold) and kind.factors for kind in kinds)
    weight = 1 / MATMUL_DISCOUNT if is_product else max(1, len(list(block.operations)) - 1)
    scope.charge(op, int(math.prod(extents) * weight))
    read = [any(True for _ in argument.uses) for argument in block.arguments]
    numbers = [number_type(value.type) for value in values]
    structured = StructuredOp(op, accesses, numbers, inputs, extents, parallel, reduced, body, read)
    run = _evaluation(structured, scope)

    def kernel(frame: Frame, *operands: NDArray) -> list[NDArray]:
        """Return the results of the op; without points, its outputs unchanged."""
        if not math.prod(structured.extents):
            return [np.array(operands[k]) for k in structured.outputs]
        results = structured.results(operands)
        targets = [structured.accesses[k].view(r) for k, r in zip(structured.outputs, results, strict=True)]
        # The op may be in the body of another op, whose indices it must not change.
        outer = frame.indices
        run(frame, operands, targets)
        frame.indices = outer
        return results

    return kernel


Evaluation = Callable[[Frame, Sequence[NDArray], list[NDArray]], None]


def _evaluation(structured: StructuredOp, scope: BlockScope) -> Evaluation:
    """Return the evaluation of the op, which writes into the views of its results."""
    block = only_block(structured.op)
    if any(entry.operation.name not in _VECTORISED for entry in list(block.operations)[:-1]):
        return _Serial(structured, ()).run
    if not structured.reduced:
        return _Pointwise(structured).run
    kinds = reductions.classify(block, list(block.arguments)[structured.inputs :])
    if kinds is None:
        return _Serial(structured, structured.parallel).run
    if all(isinstance(kind, Fold) for kind in kinds):
        return _Folds(structured, scope, [kind for kind in kinds if isinstance(kind, Fold)]).run
    return _Selections(structured, scope, kinds).run


def _parts(
    extents: Sequence[int], order: Sequence[int], cost: Callable[[Sequence[int]], int], limit: int
) -> Iterator[Part]:
    """Yield a partition of the loops into parts of a cost up to ``limit``; loops first in ``order`` are cut first."""
    sizes = list(extents)
    while cost(sizes) > limit and any(sizes[loop] > 1 for loop in order):
        loop = next(loop for loop in order if sizes[loop] > 1)
        excess = -(-cost(sizes) // limit)
        sizes[loop] = max(1, min(sizes[loop] - 1, sizes[loop] // excess))
    starts = [range(0, extent, size) for extent, size in zip(extents, sizes, strict=True)]
    for corner in itertools.product(*starts):
        yield tuple(
            slice(start, min(start + size, extent))
            for start, size, extent in zip(corner, sizes, extents, strict=True)
        )


def _indices(part: Sequence[slice]) -> list[NDArray]:
    """Return the values of linalg.index in a part: an array per loop that varies along its own axis."""
    return [
        np.arange(slice_.start, slice_.stop).reshape([-1 if axis == dim else 1 for axis in range(len(part))])
        for dim, slice_ in enumerate(part)
    ]


@dataclass
class _Pointwise:
    """Evaluation without reduction loops: the body once per part."""

    structured: StructuredOp

    def run(self, frame: Frame, operands: Sequence[NDArray], targets: list[NDArray]) -> None:
        """Evaluate the op part by part."""
        structured = self.structured
        views = structured.views(operands)
        for part in _parts(structured.extents, structured.parallel, math.prod, _BLOCK):
            frame.indices = _indices(part)
            values = structured.body.run(frame, structured.load(views, part))  # type: ignore[arg-type]
            for target, index, value in zip(targets, structured.outputs, values, strict=True):
                structured.store(target, index, part, value)


@dataclass
class _Serial:
    """Evaluation point by point over all loops except ``vectorised``."""

    structured: StructuredOp
    vectorised: tuple[int, ...]

    def run(self, frame: Frame, operands: Sequence[NDArray], targets: list[NDArray]) -> None:
        """Evaluate the op point by point."""
        structured, extents = self.structured, self.structured.extents
        views = structured.views(operands)
        serial = [loop for loop in range(len(extents)) if loop not in self.vectorised]

        def vector_size(sizes: Sequence[int]) -> int:
            """The number of points of the vectorised loops."""
            return math.prod(sizes[loop] for loop in self.vectorised)

        for outer in _parts(extents, self.vectorised, vector_size, _BLOCK):
            state = self._initial(views, outer)
            for point in itertools.product(*(range(extents[loop]) for loop in serial)):
                frame.charge(structured.op, structured.body)
                # The part in the operands, and in the state.
                part, inner = list(outer), [slice(None)] * len(outer)
                for loop, index in zip(serial, point, strict=True):
                    part[loop] = inner[loop] = slice(index, index + 1)
                frame.indices = _indices(part)
                loaded = structured.load(views[: structured.inputs], part)
                currents = [value[_within(value, inner)] for value in state]
                values = structured.body.run(frame, [*loaded, *currents])  # type: ignore[list-item]
                for target, value, number in zip(
                    state, values, structured.numbers[structured.inputs :], strict=True
                ):
                    # Sums of floats stay in float64 and are rounded when they are stored.
                    target[_within(target, inner)] = value if number.is_float else number.rounded(value)
            for target, index, value in zip(targets, structured.outputs, state, strict=True):
                structured.store(target, index, outer, value)

    def _initial(self, views: Sequence[NDArray | None], part: Part) -> list[NDArray]:
        """Return the outputs over the vectorised loops, in the accumulation type."""
        structured = self.structured
        state = []
        for index in structured.outputs:
            view, number = views[index], structured.numbers[index]
            if view is None:
                dims = structured.accesses[index].dims
                sizes = zip(_sizes(part), structured.extents, strict=True)
                shape = [
                    size if dim in dims and extent > 1 else 1 for dim, (size, extent) in enumerate(sizes)
                ]
                state.append(np.zeros(shape, number.accumulated))
            else:
                state.append(number.widened(view[_within(view, part)]).astype(number.accumulated))
        return state


class _Reduction:
    """Evaluation of a body in two steps: ops that do not depend on an output, and ops that do."""

    def __init__(self, structured: StructuredOp, scope: BlockScope) -> None:
        self.structured, self.scope = structured, scope
        block = only_block(structured.op)
        dependent = reductions.dependents(block, list(block.arguments)[structured.inputs :])
        slots = {scope.slot(value) for value in dependent}
        # Slots are not cleared at the end of a part, because the next part writes them again.
        calls = [KernelCall(call.kernel, call.operands, call.results) for call in structured.body.calls]
        self.independent = [call for call in calls if not slots.intersection(call.results)]
        self.dependent = [call for call in calls if slots.intersection(call.results)]

    def start(self, frame: Frame, loaded: Sequence[NDArray | None]) -> None:
        """Set the block arguments of the body, and run the ops that do not depend on an output."""
        for slot, value in zip(self.structured.body.arguments, loaded, strict=True):
            frame.values[slot] = value
        for call in self.independent:
            call.run(frame)

    def value(self, frame: Frame, value: ir.Value) -> NDArray:
        """Return the array of a value of the body, with an axis per loop."""
        array = frame.values[self.scope.slot(value)]
        assert array is not None
        # A constant of the body has no axes.
        return np.reshape(array, (1,) * len(self.structured.extents)) if np.ndim(array) == 0 else array

    def initial(self, loaded: Sequence[NDArray | None], k: int) -> NDArray:
        """Return output ``k`` before the reduction, in the accumulation type."""
        value = loaded[self.structured.inputs + k]
        assert value is not None
        return value.astype(self.structured.numbers[self.structured.inputs + k].accumulated)


class _Folds(_Reduction):
    """Evaluation of outputs that are all folds: a numpy reduction, or a product of matrices, per part."""

    def __init__(self, structured: StructuredOp, scope: BlockScope, folds: list[Fold]) -> None:
        super().__init__(structured, scope)
        self.folds = folds
        products = {scope.slot(fold.value) for fold in folds if self._multiplies(fold)}
        self.independent = [call for call in self.independent if not products.intersection(call.results)]

    def run(self, frame: Frame, operands: Sequence[NDArray], targets: list[NDArray]) -> None:
        """Evaluate the op, a part of the parallel loops at a time."""
        structured = self.structured
        views = structured.views(operands)
        for whole in self._parts(structured.extents, structured.parallel):
            self._reduce(frame, views, whole, targets)

    def _parts(self, extents: Sequence[int], loops: Sequence[int]) -> Iterator[Part]:
        """Yield a partition of the loops; for a matrix product only the operands are in memory, not the points."""
        if not any(self._multiplies(fold) for fold in self.folds):
            return _parts(extents, loops, math.prod, _BLOCK)

        def read_elements(sizes: Sequence[int]) -> int:
            """The number of elements of all operands over parts of these sizes."""
            dims = [access_.dims for access_ in self.structured.accesses]
            return sum(math.prod(sizes[dim] for dim in operand) for operand in dims)

        return _parts(extents, loops, read_elements, _MATMUL_BLOCK)

    def _reduce(
        self, frame: Frame, views: Sequence[NDArray | None], whole: Part, targets: list[NDArray]
    ) -> None:
        """Run all reduction loops for a part of the parallel loops."""
        structured = self.structured
        state: list[NDArray] | None = None
        for inner in self._parts(_sizes(whole), structured.reduced):
            part = tuple(
                slice(start.start + offset.start, start.start + offset.stop)
                for start, offset in zip(whole, inner, strict=True)
            )
            loaded, sizes = structured.load(views, part), _sizes(part)
            frame.indices = _indices(part)
            self.start(frame, loaded)
            state = state or [self.initial(loaded, k) for k in range(len(self.folds))]
            for k, (fold, before) in enumerate(zip(self.folds, state, strict=True)):
                if self._multiplies(fold):
                    a, b = (self.value(frame, factor) for factor in fold.factors)
                    value = contraction(a, b, sizes, structured.reduced)
                else:
                    term = self.value(frame, fold.value)
                    value = reductions.fold(fold.combiner, term, sizes, structured.reduced, before.dtype)
                state[k] = fold.combiner.ufunc(before.dtype)(before, value)
        for target, index, value in zip(targets, structured.outputs, state or [], strict=True):
            structured.store(target, index, whole, value)

    def _multiplies(self, fold: Fold) -> bool:
        """Return whether a sum of products has more points than its factors have elements."""
        if not fold.factors or fold.factors[0] == fold.factors[1]:
            return False
        first, second = (self._loops(factor) for factor in fold.factors)
        return first != second

    def _loops(self, value: ir.Value) -> frozenset[int]:
        """Return the loops that a value of the body depends on."""
        block, structured = only_block(self.structured.op), self.structured
        for argument, access_ in zip(block.arguments, structured.accesses, strict=True):
            if value == argument:
                return access_.dims
        op = value.owner.operation if not isinstance(value.owner, ir.Block) else None
        if op is None or op.parent != structured.op:
            return frozenset()
        if op.name == "linalg.index":
            return frozenset({ir.IntegerAttr(op.attributes["dim"]).value})
        return frozenset().union(*(self._loops(operand) for operand in op.operands))


class _Selections(_Reduction):
    """Evaluation of outputs that are folds, or the last value whose condition on the exclusive folds holds."""

    def __init__(self, structured: StructuredOp, scope: BlockScope, kinds: Sequence[Fold | Selected]) -> None:
        super().__init__(structured, scope)
        self.kinds = kinds

    def run(self, frame: Frame, operands: Sequence[NDArray], targets: list[NDArray]) -> None:
        """Evaluate the op, a part of the parallel loops at a time with all reduction loops."""
        structured = self.structured
        views = structured.views(operands)
        for part in _parts(structured.extents, structured.parallel, math.prod, _BLOCK):
            loaded = structured.load(views, part)
            frame.indices = _indices(part)
            for index, value in zip(structured.outputs, self._results(frame, loaded, part), strict=True):
                structured.store(targets[index - structured.inputs], index, part, value)

    def _results(self, frame: Frame, loaded: list[NDArray | None], part: Part) -> list[NDArray]:
        inputs = self.structured.inputs
        self.start(frame, loaded)
        results: dict[int, NDArray] = {}
        for k, kind in enumerate(self.kinds):
            if isinstance(kind, Fold):
                init = self.initial(loaded, k)
                values = self._flat(self.value(frame, kind.value), part).astype(init.dtype, copy=False)
                init = self._flat(init, part, whole=False)
                before, results[k] = reductions.exclusive_folds(kind.combiner, init, values)
                frame.values[self.structured.body.arguments[inputs + k]] = self._with_loops(before, part)
        # Folds are now arrays along the reduction loops, so conditions on them are evaluated at once.
        for call in self.dependent:
            call.run(frame)
        for k, kind in enumerate(self.kinds):
            if isinstance(kind, Selected):
                condition = self._flat(self.value(frame, kind.condition), part)
                values = self._flat(self.value(frame, kind.value), part)
                init = self._flat(self.initial(loaded, k), part, whole=False)
                condition = condition if kind.holds else ~condition
                results[k] = reductions.last_selected(condition, values, init)
        return [self._with_loops(results[k], part) for k in range(len(self.kinds))]

    def _flat(self, value: NDArray, part: Part, whole: bool = True) -> NDArray:
        """Return a value with the parallel loops as axes and all reduction loops as the last (1 without ``whole``)."""
        structured, sizes = self.structured, _sizes(part)
        if not whole:
            sizes = [1 if loop in structured.reduced else size for loop, size in enumerate(sizes)]
        order = (*structured.parallel, *structured.reduced)
        spread = np.broadcast_to(value, sizes).transpose(order)
        return spread.reshape([sizes[loop] for loop in structured.parallel] + [-1])

    def _with_loops(self, value: NDArray, part: Part) -> NDArray:
        """Undo ``_flat``."""
        structured, sizes = self.structured, _sizes(part)
        order = (*structured.parallel, *structured.reduced)
        if value.shape[-1] == 1:
            sizes = [1 if loop in structured.reduced else size for loop, size in enumerate(sizes)]
        return value.reshape([sizes[loop] for loop in order]).transpose(np.argsort(order))


def index_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for linalg.index: the loop's index at each point of the current part."""
    dim = ir.IntegerAttr(op.attributes["dim"]).value
    return lambda frame: (frame.indices[dim],)


def softmax_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for linalg.softmax, rounded once, at its result."""
    dim, number = ir.IntegerAttr(op.attributes["dimension"]).value, number_type(op.operands[0].type)
    if not is_tensor(op.operands[0].type) or not 0 <= dim < len(tensor_shape(op.operands[0].type)):
        raise failure(op, f"has no dim {dim} in its operand")
    scope.charge(op, 4 * math.prod(tensor_shape(op.operands[0].type)))

    def kernel(frame: Frame, source: NDArray, out: NDArray) -> tuple[NDArray]:
        """Softmax in float64."""
        wide = source.astype(np.float64)
        if wide.size:
            wide = np.exp(wide - wide.max(dim, keepdims=True))
            wide /= wide.sum(dim, keepdims=True)
        return (number.stored(wide),)

    return kernel


RULES = {
    **{f"linalg.{name}": structured_rule for name in NAMED_OPS},
    "linalg.index": index_rule,
    "linalg.softmax": softmax_rule,
}


# Contractions: sums of products as matrix products, exact for integers, in float64 for floats.


def contraction(
    a: NDArray[Any], b: NDArray[Any], extents: Sequence[int], summed: Collection[int]
) -> NDArray[Any]:
    """Return ``sum(a * b)`` over the loops ``summed``; each array has an axis per loop, of the loop's extent or of 1.

    The result also has an axis per loop, of size 1 if the loop is summed or neither array depends on it.
    """
    wide = np.dtype(np.float64) if a.dtype.kind == "f" else a.dtype
    factor = 1
    for loop in summed:
        in_a, in_b = a.shape[loop] > 1, b.shape[loop] > 1
        # A loop that only one factor has is summed first, which saves a dim of the product.
        if in_a and not in_b:
            a = a.sum(loop, keepdims=True, dtype=wide)
        elif in_b and not in_a:
            b = b.sum(loop, keepdims=True, dtype=wide)
        elif not in_a:
            factor *= extents[loop]
    product = _product(a, b, [loop for loop in summed if a.shape[loop] > 1])
    # Multiply in the type of the product, in which integers wrap.
    return product if factor == 1 else product * product.dtype.type(factor)


def _product(a: NDArray[Any], b: NDArray[Any], inner: list[int]) -> NDArray[Any]:
    """Contract by one batched matrix product: batches are the loops of both arrays that are not summed."""
    loops = range(a.ndim)
    free = [loop for loop in loops if loop not in inner]
    batch = [loop for loop in free if a.shape[loop] > 1 and b.shape[loop] > 1]
    rows = [loop for loop in free if loop not in batch and b.shape[loop] == 1]
    columns = [loop for loop in free if loop not in batch and b.shape[loop] > 1]
    # Summed axes come after these axes, with size 1.
    order = [*batch, *rows, *columns]
    sizes = [max(a.shape[loop], b.shape[loop]) for loop in order]
    batches, height, depth = (math.prod(a.shape[loop] for loop in axes) for axes in (batch, rows, inner))
    width = math.prod(b.shape[loop] for loop in columns)
    lhs = a.transpose(*batch, *rows, *inner, *columns)
    rhs = b.transpose(*batch, *inner, *columns, *rows)
    is_float = a.dtype.kind == "f"
    # Integers are exact if float64 represents every partial sum, and the integer type represents the result.
    is_exact = False
    if not is_float and a.size and b.size and a.dtype != np.bool_:
        largest = [max(abs(int(array.min())), abs(int(array.max()))) for array in (lhs, rhs)]
        is_exact = largest[0] * largest[1] * depth < min(1 << 53, int(np.iinfo(a.dtype).max))
    if is_float or is_exact:
        left = np.ascontiguousarray(lhs, dtype=np.float64).reshape(batches, height, depth)
        product = left @ np.ascontiguousarray(rhs, dtype=np.float64).reshape(batches, depth, width)
        product = product if is_float else product.astype(a.dtype)
    else:
        # numpy does not have BLAS for integers: this is slow and exact, and wraps at the width.
        left, right = lhs.reshape(batches, height, depth), rhs.reshape(batches, depth, width)
        product = np.matmul(left, right, dtype=a.dtype)
    return product.reshape(sizes + [1] * len(inner)).transpose(np.argsort([*order, *inner]))
