# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Classification of the outputs of a structured op over its reduction loops: folds, and last selected values.

fold      yield f(out, x)                        x does not read an output; f is associative: one numpy reduction
selected  yield select(c(x, out), v(x), here)    the last x whose condition holds: the index of a maximum
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class Combiner:
    """An associative function: on numbers, on i1, and on ``count`` equal values."""

    function: np.ufunc
    of_booleans: np.ufunc
    repeated: Callable[[NDArray[Any], int], NDArray[Any]] = lambda value, count: value

    def ufunc(self, dtype: np.dtype) -> np.ufunc:
        """Return the function on values of this type."""
        return self.of_booleans if dtype == np.bool_ else self.function


def _repeated_sum(value: NDArray[Any], count: int) -> NDArray[Any]:
    return value & bool(count % 2) if value.dtype == np.bool_ else value * value.dtype.type(count)


def _repeated_product(value: NDArray[Any], count: int) -> NDArray[Any]:
    if value.dtype == np.bool_:
        return value
    result, square = np.ones_like(value), value
    while count:
        result = result * square if count & 1 else result
        square, count = square * square, count >> 1
    return result


def _repeated_parity(value: NDArray[Any], count: int) -> NDArray[Any]:
    return value if count % 2 else np.zeros_like(value)


_SUM = Combiner(np.add, np.logical_xor, _repeated_sum)
COMBINERS = {
    "arith.addf": _SUM, "arith.addi": _SUM,
    **dict.fromkeys(("arith.mulf", "arith.muli"), Combiner(np.multiply, np.logical_and, _repeated_product)),
    "arith.maximumf": Combiner(np.maximum, np.maximum), "arith.minimumf": Combiner(np.minimum, np.minimum),
    "arith.maxnumf": Combiner(np.fmax, np.fmax), "arith.minnumf": Combiner(np.fmin, np.fmin),
    "arith.maxsi": Combiner(np.maximum, np.logical_and), "arith.minsi": Combiner(np.minimum, np.logical_or),
    "arith.andi": Combiner(np.bitwise_and, np.logical_and), "arith.ori": Combiner(np.bitwise_or, np.logical_or),
    "arith.xori": Combiner(np.bitwise_xor, np.logical_xor, _repeated_parity),
}  # fmt: skip


@dataclass(frozen=True)
class Fold:
    """``combiner(out, value)``, the result of ``op``; ``factors`` are the factors of ``value`` if it is a product."""

    combiner: Combiner
    op: ir.Operation
    value: ir.Value
    factors: tuple[ir.Value, ...] = ()


@dataclass(frozen=True)
class Selected:
    """``select(condition, value, out)``, the result of ``op``; if ``holds`` is False, the last two are swapped."""

    op: ir.Operation
    condition: ir.Value
    value: ir.Value
    holds: bool


def classify(block: ir.Block, outputs: Sequence[ir.Value]) -> list[Fold | Selected] | None:
    """Return the kind of each output; None if one has no kind, or depends on an output that is not a fold."""
    dependent = dependents(block, outputs)
    *_, end = block.operations
    kinds = [
        _fold(value, out, dependent) or _selected(value, out, block)
        for value, out in zip(end.operation.operands, outputs, strict=True)
    ]
    if any(kind is None for kind in kinds):
        return None
    known = [kind for kind in kinds if kind is not None]
    # Exclusive folds at each point are arrays, but the selected value before a point is not known.
    unread = [out for out, kind in zip(outputs, known, strict=True) if isinstance(kind, Selected)]
    loose = dependents(block, unread)
    for kind in known:
        if isinstance(kind, Selected) and (kind.condition in loose or kind.value in loose):
            return None
    return known


def dependents(block: ir.Block, sources: Sequence[ir.Value]) -> set[ir.Value]:
    """Return the values of a block that depend on ``sources``, including ``sources``."""
    dependent = set(sources)
    for entry in block.operations:
        if any(value in dependent for value in entry.operation.operands):
            dependent.update(entry.operation.results)
    return dependent


def _fold(value: ir.Value, out: ir.Value, dependent: set[ir.Value]) -> Fold | None:
    """Return a fold by an op of the output and a value that does not depend on an output; None for another op."""
    op = defining_op(value)
    if op is None or op.name not in COMBINERS:
        return None
    lhs, rhs = op.operands
    other = rhs if lhs == out else lhs
    if out not in (lhs, rhs) or other in dependent:
        return None
    # A product that is only summed is known by its factors.
    product = defining_op(other)
    products = (("arith.addf", "arith.mulf"), ("arith.addi", "arith.muli"))
    is_product = product is not None and (op.name, product.name) in products and str(other.type) != "i1"
    is_summed = is_product and sum(1 for _ in other.uses) == 1
    factors = tuple(product.operands) if product is not None and is_summed else ()
    return Fold(COMBINERS[op.name], op, other, factors)


def _selected(value: ir.Value, out: ir.Value, block: ir.Block) -> Selected | None:
    """Return a selection by a ``select`` between the output and another value; None for another op."""
    op = defining_op(value)
    if op is None or op.name != "arith.select":
        return None
    condition, first, second = op.operands
    if out == second and first != out:
        return Selected(op, condition, first, True)
    return Selected(op, condition, second, False) if out == first else None


def fold(
    combiner: Combiner, values: NDArray[Any], extents: Sequence[int], loops: Sequence[int], wide: np.dtype
) -> NDArray[Any]:
    """Fold values over loops, even if the values lack the loops; the loops remain as axes of size 1."""
    values = values.astype(wide, copy=False)
    present = tuple(loop for loop in loops if values.shape[loop] > 1)
    if present:
        values = combiner.ufunc(wide).reduce(values, axis=present, keepdims=True, dtype=wide)
    # Loops that the values do not depend on repeat the values.
    count = int(np.prod([extents[loop] for loop in loops if loop not in present]))
    return values if count == 1 else combiner.repeated(values, count)


def exclusive_folds(
    combiner: Combiner, init: NDArray[Any], values: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the fold before each element of the last axis, and the whole fold; ``init`` has size 1 there."""
    running = combiner.ufunc(values.dtype).accumulate(np.concatenate([init, values], axis=-1), axis=-1)
    return running[..., :-1], running[..., -1:]


def last_selected(condition: NDArray[Any], values: NDArray[Any], init: NDArray[Any]) -> NDArray[Any]:
    """Return the value at the last index of the last axis where the condition holds, else ``init`` of size 1 there."""
    count = condition.shape[-1]
    # argmax finds the first maximum: in reverse order, the last index.
    last = count - 1 - np.argmax(condition[..., ::-1], axis=-1, keepdims=True)
    chosen = np.take_along_axis(values, last, axis=-1)
    return np.where(np.any(condition, axis=-1, keepdims=True), chosen, init)
