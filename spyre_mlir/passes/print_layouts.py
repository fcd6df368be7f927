# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints the device layout of every tensor."""

from __future__ import annotations

import sys
from pathlib import PurePath
from typing import ClassVar

from spyre_mlir.analysis.aliasing import COPIES, AliasAnalysis, all_ops, argument_attributes, functions
from spyre_mlir.analysis.loops import LOOP, terminator
from spyre_mlir.analysis.view_ops import VIEWS
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.errors import CompileError
from spyre_mlir.layout.listing import ListedTensor, listing
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class PrintLayouts(Pass):
    """Print a table of all tensors to stderr, in program order, with totals for each function.

        tensor  op   shape    type  device size  stick    padding    bytes  origin   location
        x       -    512x240  f16   4x512x64     d1 x 64  d1 + 16  262,144  input    example.mlir:3
        %1      exp  512x240  f16   4x512x64     d1 x 64  d1 + 16  262,144  result0  example.mlir:5
        total: buffers 2, bytes 524,288, padding 32,768 (6.2 %), restickifies 0 (0 bytes)

    A view and a part of another buffer are listed without bytes. Destinations (``tensor.empty``) are
    omitted, because they represent the result of their op. After ``resolve-padding``, the padding column includes the
    contents: ``d1 + 16: undefined``. The pass does not change the module.

    Before: level *laid out* or later, while there are tensors.
    """

    name: ClassVar[str] = "print-layouts"

    def run(self, module: ir.Operation) -> None:
        sys.stderr.write("\n".join(listing(name, tensors) for name, tensors in laid_out_tensors(module)))
        sys.stderr.flush()


def laid_out_tensors(module: ir.Operation) -> list[tuple[str, list[ListedTensor]]]:
    """Return the tensors of each function in program order; ``CompileError`` if a tensor has no layout."""
    funcs = functions(module)
    values = [value for func in funcs for value in func.regions[0].blocks[0].arguments]
    values += [result for func in funcs for op in all_ops(func) for result in op.results]
    if not any(_is_tensor(value) and stick.has_layout(value.type) for value in values):
        where = location_of(funcs[0].location) if funcs else location_of(module.location)
        raise CompileError(
            "this module has no layouts; run choose-layouts, or --spyre-pipeline --to-level=laid-out, first",
            where,
        )
    return [(ir.StringAttr(func.attributes["sym_name"]).value, _Lister(func).tensors()) for func in funcs]


class _Lister:
    """Lister of the tensors of one function, with the origin of each."""

    def __init__(self, func: ir.Operation) -> None:
        self.func, self.memory = func, AliasAnalysis(func)
        self.arguments = list(func.regions[0].blocks[0].arguments)
        self.state = ir.AsmState(func)
        self.attributes = argument_attributes(func)
        self.hosts = [attrs.get(sdsc.HOST) for attrs in self.attributes]
        #: For each returned value, and for its buffer, the names of the result on the host.
        self.results: dict[ir.Value, list[str]] = {}
        entries = [{}] * len(terminator(func.regions[0].blocks[0]).operands)
        if "res_attrs" in func.attributes:
            entries = [ir.DictAttr(entry) for entry in ir.ArrayAttr(func.attributes["res_attrs"])]
        for index, value in enumerate(terminator(func.regions[0].blocks[0]).operands):
            host = entries[index][sdsc.HOST] if sdsc.HOST in entries[index] else None
            label = f"result{index}" if host is None else ir.StringAttr(host.label).value
            for alias in dict.fromkeys([value, self.memory.place(value).buffer]):
                self.results.setdefault(alias, []).append(label)

    def tensors(self) -> list[ListedTensor]:
        """Return the tensors of the function with their layouts: arguments first, then results of ops in order."""
        listed = []
        for value, host, attributes in zip(self.arguments, self.hosts, self.attributes, strict=True):
            if _is_tensor(value):
                kind = ir.StringAttr(host.kind).value if host is not None else "argument"
                origin = ", ".join([kind, *self.results.get(value, [])])
                padding, layout = stick.padding_of(attributes), self.memory.layout(value)
                name, line = self._name(value), self._line(value)
                listed.append(ListedTensor(name, "-", layout, origin, line, padding=padding))
        for op in all_ops(self.func):
            # The destination of an op is not listed, but an empty tensor that insertions or a loop fill is.
            users = [use.owner.operation.name for value in op.results for use in value.uses]
            is_filled = LOOP in users or "tensor.insert_slice" in users
            if op.name == "linalg.fill" or (op.name == "tensor.empty" and not is_filled):
                continue
            for value in filter(_is_tensor, op.results):
                buffer = self.memory.place(value).buffer
                origins = [*self._related(op, value, buffer), *self.results.get(value, [])]
                listed.append(
                    ListedTensor(
                        self._name(value),
                        sdsc.opcode_of(op) or op.name,
                        self.memory.layout(value),
                        ", ".join(origins) or "intermediate",
                        self._line(value),
                        owns_buffer=buffer == value,
                        restickified=op.name == "stick.restickify",
                        padding=stick.padding_of(op.attributes),
                    )
                )
        return listed

    def _related(self, op: ir.Operation, value: ir.Value, buffer: ir.Value) -> list[str]:
        """Return a text that states which value this value is a view, part or copy of, or that it is a constant."""
        if op.name in VIEWS:
            return [f"view of {self._name(op.operands[0])}"]
        if op.name == "tensor.insert_slice":
            return [f"{self._name(buffer)} with {self._name(op.operands[0])}"]
        if buffer != value:
            return [f"part of {self._name(buffer)}"]
        if op.name in COPIES:
            return [f"copy of {self._name(op.operands[0])}"]
        return ["constant"] if op.name == "arith.constant" else []

    def _name(self, value: ir.Value) -> str:
        """Return the host's name of an argument, or the name of the value in the printed IR."""
        if value in self.arguments:
            host = self.hosts[ir.BlockArgument(value).arg_number]
            if host is not None:
                return ir.StringAttr(host.label).value
        return value.get_name(self.state)

    def _line(self, value: ir.Value) -> str:
        """Return ``file:line`` without folders, because a table is read together with its source."""
        file, _, rest = location_of(value.location).rpartition(":")[0].rpartition(":")
        return f"{PurePath(file).name}:{rest}" if rest else ""


def _is_tensor(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType)
