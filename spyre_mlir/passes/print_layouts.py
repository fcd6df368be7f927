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

    A view and a part of another buffer are listed without bytes. Destinations (``tensor.empty``) are left
    out, because they represent the result of their op. After ``resolve-padding``, the padding column includes the
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
        self.results = self._results()

    def tensors(self) -> list[ListedTensor]:
        listed = [self._argument(index) for index, value in enumerate(self.arguments) if _is_tensor(value)]
        for op in all_ops(self.func):
            # The destination of an op is not listed, but an empty tensor that insertions or a loop fill is.
            is_filled = any(
                use.owner.operation.name in (LOOP, "tensor.insert_slice")
                for value in op.results
                for use in value.uses
            )
            if op.name != "linalg.fill" and (op.name != "tensor.empty" or is_filled):
                listed += [self._value(op, value) for value in op.results if _is_tensor(value)]
        return listed

    def _argument(self, index: int) -> ListedTensor:
        value, host = self.arguments[index], self.hosts[index]
        kind = ir.StringAttr(host.kind).value if host is not None else "argument"
        origin = ", ".join([kind, *self.results.get(value, [])])
        return ListedTensor(
            self._name(value),
            "-",
            self.memory.layout(value),
            origin,
            self._line(value),
            padding=stick.padding_of(self.attributes[index]),
        )

    def _value(self, op: ir.Operation, value: ir.Value) -> ListedTensor:
        buffer = self.memory.place(value).buffer
        return ListedTensor(
            self._name(value),
            sdsc.opcode_of(op) or op.name,
            self.memory.layout(value),
            ", ".join([*self._related(op, value, buffer), *self.results.get(value, [])]) or "intermediate",
            self._line(value),
            owns_buffer=buffer == value,
            restickified=op.name == "stick.restickify",
            padding=stick.padding_of(op.attributes),
        )

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

    def _results(self) -> dict[ir.Value, list[str]]:
        """Return for each returned value, and for its buffer, the names of the result on the host."""
        returned = list(terminator(self.func.regions[0].blocks[0]).operands)
        hosts: list[sdsc.HostAttr | None] = [None] * len(returned)
        if "res_attrs" in self.func.attributes:
            entries = [ir.DictAttr(entry) for entry in ir.ArrayAttr(self.func.attributes["res_attrs"])]
            hosts = [entry[sdsc.HOST] if sdsc.HOST in entry else None for entry in entries]
        named: dict[ir.Value, list[str]] = {}
        for index, (value, host) in enumerate(zip(returned, hosts, strict=True)):
            label = f"result{index}" if host is None else ir.StringAttr(host.label).value
            for alias in dict.fromkeys([value, self.memory.place(value).buffer]):
                named.setdefault(alias, []).append(label)
        return named

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
