# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folds repeated layers, so that later passes plan one layer for all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from spyre_mlir.analysis.aliasing import argument_attributes, functions
from spyre_mlir.analysis.repeated_layers import OperationSequence, RepeatedLayers, repeated_layers
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.outlining import set_function_type


@dataclass(frozen=True)
class FoldRepeatedLayers(Pass):
    """Remove all but a few of the equal layers of a program; ``unfold-repeated-layers`` restores them.

    Layers are consecutive equal groups of operations (``analysis/repeated_layers.py``), each with separate weights.
    The passes between the two passes plan the few layers that are kept, and the decisions for one layer are copied to
    the folded layers. The module attribute ``sdsc.folded`` records that layers were folded.

    ``kept`` layers of each repetition are kept: with fewer than 3, no two of them have equal neighbours.
    All layers are kept if fewer than ``least_operations`` would be folded, because these are planned as fast.
    Arguments that do not fit in device memory are refused here, before only a part of them is planned.
    With ``shift``, a kept layer represents the layer ``shift`` layers later, if there is one, and has the weights and
    source lines of that layer.

    Before:
        %1 = layer(%0, %w0); %2 = layer(%1, %w1); ..; %48 = layer(%47, %w47)
    After:
        %1 = layer(%0, %w0); %2 = layer(%1, %w1); %3 = layer(%2, %w2)
    """

    name: ClassVar[str] = "fold-repeated-layers"
    is_evaluated: ClassVar[bool] = False
    kept: int = 3
    least_operations: int = 100
    shift: int = 0

    def run(self, module: ir.Operation) -> None:
        if sdsc.FOLDED in module.attributes:
            del module.attributes[sdsc.FOLDED]
        funcs = functions(module)
        if len(funcs) != 1 or len(funcs[0].regions[0].blocks) != 1:
            return
        (func,) = funcs
        require_room(func)
        sequence = OperationSequence(func.regions[0].blocks[0])
        repetitions = self.repetitions(func, sequence)
        if not repetitions:
            return
        for layers in repetitions:
            text = (
                f"{layers.count} equal layers of {layers.period} operations: {self.kept} are planned for all"
            )
            self.remark(sequence.items[layers.first], "layers", text)
        LayerFolding(func, sequence, repetitions, self.kept, self.shift).apply()
        module.attributes[sdsc.FOLDED] = ir.UnitAttr.get(module.context)

    def repetitions(self, func: ir.Operation, sequence: OperationSequence) -> list[RepeatedLayers]:
        """Return the repetitions of a function of which the pass removes most layers."""
        return repeated_layers(func, sequence, self.kept, self.least_operations)


# A lower bound of the device memory that the arguments of a function need, from their types alone.

#: The device stores wider elements in at least this number of bits.
_MOST_BITS = 16


def require_room(func: ir.Operation) -> None:
    """Raise ``CompileError`` if the arguments of a function at level *linalg* are larger than device memory."""
    taken = 0
    for argument in func.regions[0].blocks[0].arguments:
        type_ = argument.type
        if not isinstance(type_, ir.RankedTensorType) or not type_.has_static_shape:
            continue
        element = type_.element_type
        if isinstance(element, ir.FloatType | ir.IntegerType) and _is_read_whole(argument):
            taken += math.prod(type_.shape) * (min(element.width, _MOST_BITS) // 8)
    device = target_of(func).hbm_bytes
    if taken > device:
        text = f"arguments take at least {taken} bytes, the device has {device}"
        remedy = "compile fewer layers, weights of 8 bits, or for several cards (spyre_mlir.memory)"
        raise error_at(func, f"{text}: {remedy}")


def _is_read_whole(value: ir.Value) -> bool:
    """Return whether an operation reads a whole value; if a value is sliced, the device may need only a part of it."""
    users = [use.owner.operation for use in value.uses]
    return any(
        _is_read_whole(user.results[0])
        if user.name == "linalg.transpose"
        else user.name.startswith("linalg.")
        for user in users
    )


def named_attributes(func: ir.Operation) -> list[dict[str, ir.Attribute]]:
    """Return the attributes of each argument, with a name: arguments without a name are named by their number."""
    entries = argument_attributes(func)
    for number, entry in enumerate(entries):
        entry.setdefault("spyre.name", ir.StringAttr.get(f"arg{number}"))
    return entries


class LayerFolding:
    """Removal of all layers of each repetition except ``kept`` layers; layer ``r`` represents layer ``r + shift``.

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
            # Erase the removed layers; readers of the last removed layer read the last kept layer.
            items, end = self.sequence.items, layers.first + self.kept * layers.period
            for index in range(end, layers.end):
                stays = items[end - layers.period + (index - layers.first) % layers.period]
                for value, other in zip(items[index].results, stays.results, strict=True):
                    value.replace_all_uses_with(other)
            for op in reversed(items[end : layers.end]):
                op.erase()
            for index in range(layers.first, end) if shift else ():
                items[index].location = self.locations[index + shift * layers.period]
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
