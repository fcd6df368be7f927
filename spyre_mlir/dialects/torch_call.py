# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of PyTorch kernels on the host, for ops without a linalg form: ``tosa.custom`` with a domain of PyTorch.

    %1 = tosa.custom %0 {
      domain_name = "aten", operator_name = "lgamma.default", implementation_attrs = "",
      sdsc.call = {arguments = {self = {operand = 0}}, kept = array<i64: 0>,
                   operands = ["float16"], results = ["float16"]}
    } : (tensor<8xf16>) -> tensor<8xf16>

The arguments have the names of the operator's schema. Integers do not have a sign in linalg, so ``sdsc.call`` has the
PyTorch types of operands and results. We cannot declare an operation for calls: the bindings require one type for all
operands of a variadic list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects.attributes import from_attribute, to_attribute
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass

#: The operation, and the attribute of a call.
TORCH_CALL, CALL = "tosa.custom", "sdsc.call"

#: The library of PyTorch's collectives, whose calls are steps of their own. A name of their group lists its ranks:
#: "ranks 0,1".
COLLECTIVES, RANKS = "_c10d_functional", "ranks "

#: Keys of an argument that is not a plain number or text: the index of an operand, and an element type.
OPERAND, DTYPE = "operand", "dtype"


def is_torch_call(op: ir.Operation) -> bool:
    """Return whether an operation is a call of a PyTorch kernel."""
    return op.name == TORCH_CALL and CALL in op.attributes


def is_collective(op: ir.Operation) -> bool:
    """Return whether an operation is a call of a collective."""
    return is_torch_call(op) and ir.StringAttr(op.attributes["domain_name"]).value == COLLECTIVES


@dataclass(frozen=True)
class TorchCall:
    """Operator of PyTorch, such as ``aten.lgamma.default``, with its arguments by name.

    An argument is a number, a text, None, ``{"operand": 0}``, ``{"dtype": "float16"}``, or a list of these.
    ``operands`` and ``results`` are PyTorch's names of the element types; ``kept`` are the indices of the kept results
    of the operator, in ascending order.
    """

    operator: str
    arguments: Mapping[str, Any]
    operands: Sequence[str]
    results: Sequence[str]
    kept: Sequence[int]

    def build(self, operands: Sequence[ir.Value], result_types: Sequence[ir.Type]) -> Sequence[ir.Value]:
        """Build the call at the current insertion point and location; return its results."""
        domain, _, name = self.operator.partition(".")
        call = {
            "arguments": dict(self.arguments),
            "kept": list(self.kept),
            "operands": list(self.operands),
            "results": list(self.results),
        }
        attributes = {"domain_name": domain, "operator_name": name, "implementation_attrs": "", CALL: call}
        return ir.Operation.create(
            TORCH_CALL,
            results=list(result_types),
            operands=list(operands),
            attributes={key: to_attribute(value) for key, value in attributes.items()},
        ).results

    @classmethod
    def of(cls, op: ir.Operation) -> TorchCall:
        """Read the call of an operation; ``CompileError`` for attributes that do not describe a call."""
        domain, name = (ir.StringAttr(op.attributes[key]).value for key in ("domain_name", "operator_name"))
        call = from_attribute(op.attributes[CALL]) if CALL in op.attributes else None
        if not isinstance(call, dict) or set(call) != {"arguments", "kept", "operands", "results"}:
            raise error_at(
                op, f"'{op.name}' needs the attribute '{CALL}' = {{arguments, kept, operands, results}}"
            )
        kept = call["kept"]
        is_sound = (
            isinstance(call["arguments"], dict)
            and isinstance(kept, list)
            and all(type(number) is int for number in kept)
            and kept == sorted({number for number in kept if number >= 0})
            and len(kept) == len(op.results)
            and _are_texts(call["operands"], len(op.operands))
            and _are_texts(call["results"], len(op.results))
        )
        if not is_sound:
            raise error_at(
                op,
                f"'{CALL}' has arguments by name, and a type for each operand and each result that is kept",
            )
        return cls(f"{domain}.{name}", **call)


def _are_texts(value: Any, count: int) -> bool:
    return isinstance(value, list) and len(value) == count and all(isinstance(entry, str) for entry in value)
