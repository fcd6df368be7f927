# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Leaves out repeated layers, so that later passes plan one layer for all of them."""

from __future__ import annotations

import math
from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.repeated_layers import OperationSequence, RepeatedLayers, repeated_layers
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.layer_folding import LayerFolding


@dataclass(frozen=True)
class FoldRepeatedLayers(Pass):
    """Leave out all but a few of the equal layers of a program; ``unfold-repeated-layers`` restores them.

    Layers are consecutive equal groups of operations (``analysis/repeated_layers.py``), each with separate weights.
    The passes between the two passes plan the few layers that are kept, and the decisions for one layer are copied to
    the layers left out. The module attribute ``sdsc.folded`` records that layers were left out.

    ``kept`` layers of each repetition are kept: with fewer than 3, no two of them have equal neighbours.
    All layers are kept if fewer than ``least_operations`` would be left out, because these are planned as fast.
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
        """Return the repetitions of a function whose layers the pass mostly leaves out."""
        return repeated_layers(func, sequence, self.kept, self.least_operations)


# A lower bound of the device memory that the arguments of a function need, from their types alone.

#: The device stores wider elements in at least this number of bits.
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
    """Return whether an operation reads a whole value; if a value is sliced, the device may need only a part of it."""
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
