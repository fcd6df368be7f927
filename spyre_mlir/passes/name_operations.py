# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Assigns device operations the names that plan files use."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.analysis.aliasing import COPIES, all_ops, argument_attributes, functions, is_compute
from spyre_mlir.analysis.view_ops import VIEWS
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass

#: Placeholders in names for sources that have no name.
NAMELESS = ("constant", "buffer", "loop")


@dataclass(frozen=True)
class NameOperations(Pass):
    """Name the device operations that have no name yet, and keep existing names.

    At the level *device ops* an operation is named by its opcode (for a reduction, without ``nonstick``) and its
    number among the operations with that opcode, in program order: ``exp.0``. An operation that the compiler inserts
    later is named by its source (an operation or an argument), its kind, and its number among operations of that kind:
    ``exp.0/restickify.0``, ``x/clone.0``. Therefore a name does not depend on operations inserted elsewhere.
    ``constant``, ``buffer`` (assembled from parts) and ``loop`` represent unnamed sources. If a pass splits an
    operation, the first part keeps the name and the others are named as its parts: for a sum over tiles, ``sum.0`` sums
    the first tile, ``sum.0/part.0`` another tile, and ``sum.0/part.0/add.0`` adds that to the previous sum.

    ``inserted`` says that the operations without a name were inserted.

        sdsc.name = "exp.0"
    """

    name: ClassVar[str] = "name-operations"
    is_evaluated: ClassVar[bool] = False
    inserted: bool = False

    def run(self, module: ir.Operation) -> None:
        funcs = functions(module)
        labels: dict[ir.Value, str] = {}
        for func in funcs:
            arguments = func.regions[0].blocks[0].arguments
            for value, attributes in zip(arguments, argument_attributes(func), strict=True):
                if sdsc.HOST in attributes:
                    labels[value] = ir.StringAttr(attributes[sdsc.HOST].label).value
        names: set[str] = set()
        #: The next number of each stem: above all existing ones, so that all names stay unique.
        numbers: dict[str, int] = {}
        unnamed = []
        for op in [op for func in funcs for op in all_ops(func) if is_compute(op)]:
            name = sdsc.name_of(op)
            # If a pass rewrites one operation into several, all inherit its name, and the first keeps the name.
            if name is None or name in names:
                unnamed.append(op)
                continue
            names.add(name)
            stem, _, number = name.rpartition(".")
            if number.isdecimal():
                numbers[stem] = max(numbers.get(stem, 0), int(number) + 1)
        for op in unnamed:
            if op.name in COPIES:
                kind = op.name.rpartition(".")[2]
            else:
                kind = (sdsc.opcode_of(op) or op.name).removesuffix("nonstick")
            stem, whole = kind, sdsc.name_of(op)
            if whole is not None:
                stem = f"{whole}/part"
            elif self.inserted:
                # The first operand with a name is the source.
                origins = [_origin(value, labels) for value in op.operands]
                source = next((origin for origin in origins if origin not in NAMELESS), origins[0])
                stem = f"{source}/{stem}"
            count = numbers.get(stem, 0)
            numbers[stem] = count + 1
            op.attributes[sdsc.NAME] = ir.StringAttr.get(f"{stem}.{count}", op.context)


def _origin(value: ir.Value, labels: dict[ir.Value, str]) -> str:
    """Return the name of the op that defines a value or the source of a view."""
    op = defining_op(value)
    if op is None:
        return labels.get(value, "loop")
    if op.name in (*VIEWS, "stick.pin"):
        return _origin(op.operands[0], labels)
    if op.name == "arith.constant":
        return "constant"
    return sdsc.name_of(op) or ("loop" if op.name.startswith("scf.") else "buffer")
