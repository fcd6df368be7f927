# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies what was planned for one layer to those that were left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.operation_sequence import OperationSequence
from spyre_mlir.analysis.planned_layers import FoldedLayers
from spyre_mlir.dialects import sdsc
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.passes.fold_repeated_layers import FoldRepeatedLayers
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.layer_unfolding import LayerUnfolding


class NotPeriodic(Exception):
    """The plan of the layers that stayed goes on differently from layer to layer, so none of them can be copied."""


@dataclass(frozen=True)
class UnfoldRepeatedLayers(Pass):
    """Bring back the layers that ``fold-repeated-layers`` left out, as copies of one that is planned.

    Two layers that stayed have to be planned alike, scratchpad and all (``analysis/planned_layers.py``): then any
    number of copies may stand between them. Copies read the arguments of their own layer, and have the source lines of
    that. Where no two are alike the pass raises ``NotPeriodic``, and ``run_pipeline`` plans the whole program instead.

    What was left out is known from the module in front of ``fold-repeated-layers``, which ``run_pipeline`` keeps: a
    module that another process folded stays as it is. ``reuse=false`` plans each layer that was left out by itself,
    where the one that is copied stands, for a test that both give the same program.

    Before, level *divided* with placements in LX, and after: the whole program at that level.
    """

    name: ClassVar[str] = "unfold-repeated-layers"
    is_evaluated: ClassVar[bool] = False
    reuse: bool = True

    def run(self, module: ir.Operation) -> None:
        """Leave a module as it is: alone, the pass does not know what was left out."""

    def unfold(
        self,
        module: ir.Operation,
        whole: ir.Operation,
        folding: FoldRepeatedLayers,
        planned: Callable[[int], ir.Operation],
    ) -> bool:
        """Rewrite ``module`` in place, and return whether there was anything to bring back.

        ``whole`` is what it was before ``folding`` left layers out, ``planned`` plans it with another ``shift``.
        """
        if sdsc.FOLDED not in module.attributes:
            return False
        (whole_func,) = functions(whole)
        sequence = OperationSequence(whole_func.regions[0].blocks[0])
        repetitions = [
            FoldedLayers.of(sequence, layers, folding.kept)
            for layers in folding.repetitions(whole_func, sequence)
        ]
        most = 0 if self.reuse else max(layers.copies for layers in repetitions)
        modules = [planned(shift) for shift in range(1, most + 1)]
        funcs = [functions(operation)[0] for operation in (module, *modules)]
        unfolding = LayerUnfolding.of(funcs, whole_func, repetitions)
        if unfolding is None:
            raise NotPeriodic
        unfolding.apply()
        del module.attributes[sdsc.FOLDED]
        copies = sum(layers.copies for layers in repetitions)
        self.remark(funcs[0], "layers", f"{copies} layers are copies of one that is planned")
        return True
