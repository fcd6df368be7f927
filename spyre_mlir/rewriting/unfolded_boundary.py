# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arguments and results of a whole function, while layers come back into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spyre_mlir.analysis.planned_layers import FoldedLayers, FunctionArguments
from spyre_mlir.dialects import sdsc
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting.layer_folding import named_attributes, set_function_type


class UnfoldedBoundary:
    """The boundary of a function on the way back to the whole one; new arguments are like those that stayed.

    ``results`` are the values of results by their numbers in the whole function, as far as they differ from what the
    function returns for them.
    """

    def __init__(self, func: ir.Operation, whole: ir.Operation, repetitions: Sequence[FoldedLayers]) -> None:
        self.func, self._whole_attributes = func, named_attributes(whole)
        self.names = {
            ir.StringAttr(entry["spyre.name"]).value: number
            for number, entry in enumerate(self._whole_attributes)
        }
        self.results: dict[int, ir.Value] = {}
        #: Of each result that was left out that of the first of the equal layers.
        self._equal = {
            number: column[0]
            for layers in repetitions
            for column in layers.results
            for number in column[layers.kept :]
        }
        self._count = len(whole.regions[0].blocks[0].operations[-1].operands)
        self._stays = [number for number in range(self._count) if number not in self._equal]
        block = func.regions[0].blocks[0]
        self.block, self.values = block, list(block.arguments)
        self._returned = list(block.operations[len(block.operations) - 1].operation.operands)
        arguments = FunctionArguments(func, self.names)
        self.entries, self.numbers = arguments.attributes, arguments.numbers
        self._suffixes = [
            ir.StringAttr(entry[sdsc.HOST].label).value.removeprefix(name)
            for entry, name in zip(arguments.attributes, arguments.array_names, strict=True)
        ]
        self._index = {key: index for index, key in enumerate(zip(self.numbers, self._suffixes, strict=True))}

    def returned(self, number: int) -> ir.Value:
        """Return the value that the function returned before layers came back for a result that stayed."""
        return self._returned[self._stays.index(number)]

    def argument(self, whole_number: int, like: int) -> ir.Value:
        """Return the argument of a host array that lies in memory as argument ``like`` does; a new one if need be."""
        key = whole_number, self._suffixes[like]
        if key not in self._index:
            self._index[key] = len(self.values)
            self.values.append(self.block.add_argument(self.values[like].type, self.values[like].location))
            self.numbers.append(whole_number)
            self._suffixes.append(self._suffixes[like])
            self.entries.append(self._renamed(self.entries[like], whole_number, self._suffixes[like]))
        return self.values[self._index[key]]

    def _renamed(
        self, entry: Mapping[str, ir.Attribute], whole_number: int, suffix: str
    ) -> dict[str, ir.Attribute]:
        name = self._whole_attributes[whole_number]["spyre.name"]
        host: Any = entry[sdsc.HOST]
        label = ir.StringAttr.get(f"{ir.StringAttr(name).value}{suffix}")
        renamed = {**entry, "spyre.name": name, sdsc.HOST: type(host).get(label, host.kind, host.dtype)}
        return {**renamed, sdsc.SOURCE: name} if sdsc.SOURCE in entry else renamed

    def write(self) -> None:
        """Write arguments, in the order of the whole function, and results; both get their attributes."""
        self._write_arguments()
        terminator = self.block.operations[len(self.block.operations) - 1].operation
        returned = dict(zip(self._stays, terminator.operands, strict=True)) | self.results
        attributes = {}
        if "res_attrs" in self.func.attributes:
            entries = ir.ArrayAttr(self.func.attributes["res_attrs"])
            attributes = dict(zip(self._stays, entries, strict=True))
        with ir.InsertionPoint(terminator), terminator.location:
            ir.Operation.create("func.return", operands=[returned[number] for number in range(self._count)])
        terminator.erase()
        if attributes:
            self._write_result_attributes(attributes)
        set_function_type(self.func)

    def _write_arguments(self) -> None:
        # Arrays that passes added come last, and so do further layouts of an array.
        order = sorted(
            range(len(self.values)),
            key=lambda index: (
                bool(self._suffixes[index]),
                len(self.names) if self.numbers[index] is None else self.numbers[index],
                self._suffixes[index],
                index,
            ),
        )
        for index in order:
            value = self.values[index]
            value.replace_all_uses_with(self.block.add_argument(value.type, value.location))
        for _ in order:
            self.block.erase_argument(0)
        self.func.attributes["arg_attrs"] = ir.ArrayAttr.get(
            [ir.DictAttr.get(self._with_update(index)) for index in order]
        )

    def _with_update(self, index: int) -> dict[str, ir.Attribute]:
        """Return the attributes of an argument, which names the result that updates it by its whole number."""
        entry, number = self.entries[index], self.numbers[index]
        if sdsc.UPDATED not in entry or number is None:
            return entry
        return {**entry, sdsc.UPDATED: self._whole_attributes[number][sdsc.UPDATED]}

    def _write_result_attributes(self, attributes: Mapping[int, ir.Attribute]) -> None:
        """Write the attributes of each result: of one that came back those of a result of an equal layer."""
        entries = []
        for number in range(self._count):
            entry = {
                named.name: named.attr for named in ir.DictAttr(attributes[self._equal.get(number, number)])
            }
            host = entry.get(sdsc.HOST)
            if host is not None:
                entry[sdsc.HOST] = type(host).get(ir.StringAttr.get(f"result{number}"), host.kind, host.dtype)
            entries.append(ir.DictAttr.get(entry))
        self.func.attributes["res_attrs"] = ir.ArrayAttr.get(entries)
