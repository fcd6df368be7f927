# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layer folding: remove most of the repeated layers of a function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spyre_mlir.analysis.aliasing import argument_attributes
from spyre_mlir.analysis.repeated_layers import OperationSequence, RepeatedLayers
from spyre_mlir.dialects import sdsc
from spyre_mlir.mlir import ir


def named_attributes(func: ir.Operation) -> list[dict[str, ir.Attribute]]:
    """Return the attributes of each argument, with a name: arguments without a name are named by their number."""
    entries = argument_attributes(func)
    for number, entry in enumerate(entries):
        entry.setdefault("spyre.name", ir.StringAttr.get(f"arg{number}"))
    return entries


class LayerFolding:
    """Removal of all layers of each repetition except ``kept`` layers; layer ``r`` stands for layer ``r + shift``.

    A shift larger than the number of removed layers is reduced to this number.
    """

    def __init__(
        self,
        func: ir.Operation,
        sequence: OperationSequence,
        repetitions: Sequence[RepeatedLayers],
        kept: int,
        shift: int = 0,
    ) -> None:
        self.func, self.sequence, self.kept = func, sequence, kept
        self.repetitions = [(layers, min(shift, layers.count - kept)) for layers in repetitions]
        self.locations = [op.location for op in self.sequence.items]

    def apply(self) -> None:
        """Rewrite the function in place."""
        positions = self._fold_results()
        for layers, shift in self.repetitions:
            self._fold(layers, shift)
        self._fold_arguments(positions)

    def _fold_results(self) -> Mapping[int, int]:
        """Return only results of the kept layers; map result numbers of the whole function to the new numbers."""
        dropped: set[int] = set()
        stands_for: dict[int, int] = {}
        for layers, shift in self.repetitions:
            for column in layers.results:
                dropped.update(column[self.kept :])
                stands_for.update({column[layer + shift]: column[layer] for layer in range(self.kept)})
        terminator = self.sequence.items[-1]
        stays = [number for number in range(len(terminator.operands)) if number not in dropped]
        operands = [terminator.operands[number] for number in stays]
        with ir.InsertionPoint(terminator), terminator.location:
            self.sequence.items[-1] = ir.Operation.create("func.return", operands=operands)
        terminator.erase()
        if "res_attrs" in self.func.attributes:
            entries = list(ir.ArrayAttr(self.func.attributes["res_attrs"]))
            self.func.attributes["res_attrs"] = ir.ArrayAttr.get([entries[number] for number in stays])
        index = {number: position for position, number in enumerate(stays)}
        return index | {number: index[other] for number, other in stands_for.items()}

    def _fold(self, layers: RepeatedLayers, shift: int) -> None:
        """Erase the removed layers; readers of the last removed layer read the last kept layer."""
        items, end = self.sequence.items, layers.first + self.kept * layers.period
        for index in range(end, layers.end):
            stays = items[end - layers.period + (index - layers.first) % layers.period]
            for value, other in zip(items[index].results, stays.results, strict=True):
                value.replace_all_uses_with(other)
        for op in reversed(items[end : layers.end]):
            op.erase()
        for index in range(layers.first, end) if shift else ():
            items[index].location = self.locations[index + shift * layers.period]

    def _fold_arguments(self, positions: Mapping[int, int]) -> None:
        """Erase the arguments of the removed layers, and renumber the results that update arguments."""
        block, arguments = self.func.regions[0].blocks[0], self.sequence.arguments
        dropped: set[int] = set()
        for layers, shift in self.repetitions:
            for column in layers.arguments:
                # In reverse order, so that an argument is not replaced after another one was replaced by it.
                for layer in reversed(range(self.kept if shift else 0)):
                    arguments[column[layer]].replace_all_uses_with(arguments[column[layer + shift]])
                dropped.update(column[:shift], column[shift + self.kept :])
        entries = named_attributes(self.func)
        for entry in entries:
            if sdsc.UPDATED in entry:
                number = ir.IntegerAttr(entry[sdsc.UPDATED])
                # The result of a removed argument is removed, too.
                entry[sdsc.UPDATED] = ir.IntegerAttr.get(number.type, positions.get(number.value, -1))
        for number in sorted(dropped, reverse=True):
            block.erase_argument(number)
            del entries[number]
        self.func.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(entry) for entry in entries])
        set_function_type(self.func)


def set_function_type(func: ir.Operation) -> None:
    """Update the type of a function from its arguments and returned values."""
    block = func.regions[0].blocks[0]
    terminator = block.operations[len(block.operations) - 1].operation
    types = [value.type for value in block.arguments], [value.type for value in terminator.operands]
    func.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*types))
