# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A pass with ten planted faults, for spyre-reduce: five that refuse a program, five that change its numbers."""

from dataclasses import dataclass
from typing import ClassVar

from spyre_mlir.analysis.aliasing import all_ops, functions
from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass


def _body(op: ir.Operation) -> list[str]:
    """The names of the operations in the body of a structured operation."""
    return (
        [inner.operation.name for inner in op.regions[0].blocks[0].operations][:-1] if len(op.regions) else []
    )


def _reads(op: ir.Operation, name: str) -> bool:
    """Whether an operand is computed by the operation ``name`` of a body."""
    return any(
        (producer := defining_op(value)) is not None and name in _body(producer) for value in op.operands
    )


def _reduces(op: ir.Operation) -> bool:
    return "iterator_types" in op.attributes and "reduction" in str(op.attributes["iterator_types"])


#: The operations at which a fault happens, by number: a number above 4 changes the numbers of the operation.
TRIGGERS = (
    lambda op: "arith.subf" in _body(op) and _reads(op, "arith.mulf"),
    lambda op: "arith.addf" in _body(op) and _reads(op, "arith.maximumf") and _reads(op, "arith.mulf"),
    lambda op: _reduces(op) and _reads(op, "arith.subf"),
    lambda op: (
        "arith.mulf" in _body(op)
        and not _reduces(op)
        and any(_reduces(producer) for producer in _producers(op))
    ),
    lambda op: (
        sum("arith.mulf" in _body(producer) for producer in _producers(op)) > 1 and _reads(op, "arith.mulf")
    ),
    lambda op: "arith.maximumf" in _body(op) and not _reduces(op) and _reads(op, "arith.mulf"),
    lambda op: (
        "arith.subf" in _body(op) and any(_reads(producer, "arith.maximumf") for producer in _producers(op))
    ),
    lambda op: "arith.addf" in _body(op) and _reads(op, "math.exp"),
    lambda op: _reduces(op) and _reads(op, "arith.mulf"),
    lambda op: "arith.mulf" in _body(op) and _reads(op, "arith.subf") and not _reduces(op),
)


def _producers(op: ir.Operation) -> list[ir.Operation]:
    return [producer for value in op.operands if (producer := defining_op(value)) is not None]


@dataclass(frozen=True)
class PlantFault(Pass):
    """Fail, or replace a number, at the operations of ``TRIGGERS[kind]``."""

    name: ClassVar[str] = "plant-fault"
    kind: int = 0

    def run(self, module: ir.Operation) -> None:
        (func,) = functions(module)
        for op in [op for op in all_ops(func) if op.name == "linalg.generic"]:
            if not TRIGGERS[self.kind](op):
                continue
            if self.kind < 5:
                raise KeyError(f"planted {self.kind}")
            # The fault reads the operand of a producer instead of its result.
            for index, value in enumerate(list(op.operands)[:-1]):
                earlier = [
                    other for producer in [defining_op(value)] if producer for other in producer.operands
                ]
                if earlier and earlier[0].type == value.type:
                    op.operands[index] = earlier[0]
                    break
