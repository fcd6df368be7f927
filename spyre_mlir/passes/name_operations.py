"""Gives device operations the names that plan files call them by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.mlir import ir
from spyre_mlir.passes._memory import COPIES, all_ops, argument_attributes, functions, is_compute
from spyre_mlir.passes._view_ops import VIEWS
from spyre_mlir.passes.base import Pass


@dataclass(frozen=True)
class NameOperations(Pass):
    """Name the device operations that have no name yet; names that are there stay.

    Of the level *device ops* an operation is called by its opcode and its number among those with that opcode, in
    program order: ``exp.0``. What the compiler inserts later is called by what it copies (an operation or an
    argument), what it is, and its number among those of that kind: ``exp.0/restickify.0``, ``x/clone.0``. So no
    name depends on what is inserted elsewhere. ``constant``, ``buffer`` (put together from parts) and ``loop``
    stand for what has no name of its own.

    ``inserted`` says that the operations without a name were inserted.

        sdsc.name = "exp.0"
    """

    name: ClassVar[str] = "name-operations"
    inserted: bool = False

    def run(self, module: ir.Operation) -> None:
        funcs = functions(module)
        ops = [op for func in funcs for op in all_ops(func) if is_compute(op)]
        counts: dict[str, int] = {}
        for name in filter(None, map(sdsc.name_of, ops)):
            stem, _, number = name.rpartition(".")
            counts[stem] = max(counts.get(stem, 0), int(number) + 1)
        labels = {value: label for func in funcs for value, label in _labels(func).items()}
        for op in ops:
            if sdsc.NAME in op.attributes:
                continue
            stem = f"{_origin(op.operands[0], labels)}/{_kind(op)}" if self.inserted else _kind(op)
            op.attributes[sdsc.NAME] = ir.StringAttr.get(f"{stem}.{counts.get(stem, 0)}", op.context)
            counts[stem] = counts.get(stem, 0) + 1


def _kind(op: ir.Operation) -> str:
    """The opcode; of a copy the name of the op, for its opcode depends on layouts."""
    return op.name.rpartition(".")[2] if op.name in COPIES else sdsc.opcode_of(op) or op.name


def _labels(func: ir.Operation) -> dict[ir.Value, str]:
    """What the host calls each argument."""
    arguments = func.regions[0].blocks[0].arguments
    return {
        value: ir.StringAttr(attributes[sdsc.HOST].label).value
        for value, attributes in zip(arguments, argument_attributes(func), strict=True)
        if sdsc.HOST in attributes
    }


def _origin(value: ir.Value, labels: dict[ir.Value, str]) -> str:
    """The name of what makes a value, or makes what it is a view of."""
    op = defining_op(value)
    if op is None:
        return labels.get(value, "loop")
    if op.name in (*VIEWS, "stick.pin"):
        return _origin(op.operands[0], labels)
    if op.name == "arith.constant":
        return "constant"
    return sdsc.name_of(op) or ("loop" if op.name.startswith("scf.") else "buffer")
