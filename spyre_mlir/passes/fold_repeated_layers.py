# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Leaves out layers that repeat, so that what follows plans one of them for all."""

from __future__ import annotations

import math
from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.operation_sequence import OperationSequence
from spyre_mlir.analysis.repeated_layers import RepeatedLayers, repeated_layers
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.layer_folding import LayerFolding


@dataclass(frozen=True)
class FoldRepeatedLayers(Pass):
    """Leave out all but a few of the equal layers of a program; ``unfold-repeated-layers`` brings them back.

    Layers are equal groups of operations in a row (``analysis/repeated_layers.py``), each with weights of its own.
    The passes between the two plan the few that stay, and what they decide for one is copied to those left out. The
    attribute ``sdsc.folded`` of the module says that there are any.

    ``kept`` layers stay of those that are like the one before: with fewer than 3 no two of them are among equals.
    Layers stay, too, where those left out would have less than ``least_operations``, which are planned as fast.
    Arguments that device memory has no room for are refused here, before what is left of them is planned.
    With ``shift`` a layer that stays stands for the one so many layers on, as far as there is one: it has the weights
    and source lines of that.

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
        """Return the repetitions of a function, of which the pass leaves most layers out."""
        return repeated_layers(func, sequence, self.kept, self.least_operations)


# Bytes of device memory that the arguments of a function take at least, from their types alone.

#: The device holds wider elements in as many bits.
_MOST_BITS = 16


def require_room(func: ir.Operation) -> None:
    """Raise ``CompileError`` if the arguments of a function at level *linalg* are larger than device memory."""
    arguments = func.regions[0].blocks[0].arguments
    taken = sum(_least_bytes(argument.type) for argument in arguments if _is_read_whole(argument))
    device = target_of(func).hbm_bytes
    if taken > device:
        text = f"arguments take at least {taken} bytes, the device has {device}"
        raise error_at(func, f"{text}: compile fewer layers, or weights of 8 bits")


def _is_read_whole(value: ir.Value) -> bool:
    """Return whether an operation computes with all of a value; of one that is sliced the device gets a part."""
    users = [use.owner.operation for use in value.uses]
    return any(
        _is_read_whole(user.results[0])
        if user.name == "linalg.transpose"
        else user.name.startswith("linalg.")
        for user in users
    )


def _least_bytes(type_: ir.Type) -> int:
    if not isinstance(type_, ir.RankedTensorType) or not type_.has_static_shape:
        return 0
    element = type_.element_type
    if not isinstance(element, ir.FloatType | ir.IntegerType):
        return 0
    return math.prod(type_.shape) * (min(element.width, _MOST_BITS) // 8)
