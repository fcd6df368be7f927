# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes scalar functions that the device does not have as several operations that it has."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.analysis.aliasing import all_ops, functions
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import Map, Structured, device_op, element_of, maker_of, structured
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.target.expansions import EXPANSIONS
from spyre_mlir.target.expressions import Expression


@dataclass(frozen=True)
class ExpandScalarFunctions(Pass):
    """Replace log1p, expm1 and hyperbolic functions that no fused operation took up, on 16-bit numbers.

    The expressions are in ``target/expansions.py``; on f32 the functions stay, and are for the host.

        log1p(x)   ->   u = x + 1; where(u == 1, x, where(u > 16, log(u), x * (log(u) / (u - 1))))
    """

    name: ClassVar[str] = "expand-scalar-functions"

    def run(self, module: ir.Operation) -> None:
        """Rewrite ``module`` in place."""
        for func in functions(module):
            for op in [op for op in all_ops(func) if sdsc.opcode_of(op) in EXPANSIONS]:
                generic = structured(op)
                if generic is not None and element_of(generic.result) == "f16" and len(generic.inputs) == 1:
                    self._expand(generic)

    def _expand(self, generic: Structured) -> None:
        with ir.InsertionPoint(generic.op), generic.op.location:
            result, _ = _ExpandedFunction(generic).value(EXPANSIONS[generic.opcode])
        maker = maker_of(result)
        reason = f"the device has no '{generic.opcode}'"
        self.remark(generic.op, "expansion", reason)
        sdsc.inherit(maker, generic.op)
        sdsc.record(maker, "expansion", self.name, reason)
        generic.op.results[0].replace_all_uses_with(result)
        generic.op.erase()


class _ExpandedFunction:
    """Operations of an expression in the place of a function, at the current insertion point; equal parts once."""

    def __init__(self, generic: Structured) -> None:
        self.generic = generic
        self.values: dict[Expression, tuple[ir.Value, Map]] = {"x": (generic.inputs[0], generic.maps[0])}

    def value(self, expression: Expression) -> tuple[ir.Value, Map]:
        """Return the value of an expression, and its dims among those of the function."""
        if expression not in self.values:
            self.values[expression] = (
                self._application(*expression)
                if isinstance(expression, tuple)
                else self._constant(float(expression))
            )
        return self.values[expression]

    def _application(self, opcode: str, *arguments: Expression) -> tuple[ir.Value, Map]:
        operands = [self.value(argument) for argument in arguments]
        result_map = self.generic.maps[-1]
        result = device_op(
            opcode,
            [value for value, _ in operands],
            [dims for _, dims in operands],
            self.generic.extents,
            "f16",
            location=self.generic.op.location,
            result_map=result_map,
        )
        return result, result_map

    def _constant(self, number: float) -> tuple[ir.Value, Map]:
        element = ir.F16Type.get()
        splat = ir.DenseElementsAttr.get_splat(
            ir.RankedTensorType.get([], element), ir.FloatAttr.get(element, number)
        )
        return ir.Operation.create("arith.constant", [splat.type], attributes={"value": splat}).result, ()
