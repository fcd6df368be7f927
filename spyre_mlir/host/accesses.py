# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Accesses of a structured op to its operands: affine maps as views of numpy arrays with an axis per loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from spyre_mlir.host.block import check_indices, failure
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass

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
            return self._gathered(array, shape)
        strides, start = [0] * len(shape), 0
        for (coefficients, constant), stride in zip(self.linear, array.strides, strict=True):
            start += constant * stride
            strides = [total + factor * stride for total, factor in zip(strides, coefficients, strict=True)]
        if not start:
            return as_strided(array, shape, strides)
        first = tuple(slice(constant, None) for _, constant in self.linear)
        return as_strided(array[first], shape, strides)

    def _gathered(self, array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """Copy of the elements that a map with divisions accesses, as no view has them."""
        indices = _index_arrays(self.map, self.extents, self.op)
        for dim, (index, size) in enumerate(zip(indices, self.shape, strict=True)):
            check_indices(self.op, index, size, dim, "reads at")
        return array[tuple(np.broadcast_arrays(*indices))].reshape(shape)


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
        raise failure(op, "has a loop that is no dim of an operand, so its size is not known")
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


def _index_arrays(map_: ir.AffineMap, extents: tuple[int, ...], op: ir.Operation) -> list[NDArray[Any]]:
    """Index in each dim of the operand, as arrays with an axis per loop that broadcast."""
    loops = [
        np.arange(extent).reshape([-1 if axis == dim else 1 for axis in range(len(extents))])
        for dim, extent in enumerate(extents)
    ]
    return [np.asarray(_evaluated(expression, loops, op)) for expression in map_.results]


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
