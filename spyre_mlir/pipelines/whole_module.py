# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a pipeline knows of a module whose equal layers it leaves out for a while."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.operation_sequence import OperationSequence
from spyre_mlir.bundle.level_lines import LevelLine
from spyre_mlir.mlir import ir
from spyre_mlir.passes.fold_repeated_layers import FoldRepeatedLayers
from spyre_mlir.passes.unfold_repeated_layers import UnfoldRepeatedLayers
from spyre_mlir.remarks import Remarks

#: The most layers of a repetition that stay where fewer are not planned alike, and the least count over those.
_MOST_KEPT, _TIMES_KEPT = 5, 3


class WholeModule:
    """A module in front of the pass that leaves out equal layers; their plans may turn out not to be equal.

    ``run`` runs the steps of the pipeline from one index up to another on a module.
    """

    run: Callable[[int, int, ir.Operation], None]

    def __init__(
        self, operation: ir.Operation, remarks: Remarks | None, levels: dict[str, Sequence[LevelLine]] | None
    ) -> None:
        self._operation, self._remarks = operation, remarks
        #: The lines of the levels that it has been at, None if nobody wants them.
        self.levels = levels
        self._index = self._known = 0
        self._clone: ir.Operation | None = None
        self._folding = FoldRepeatedLayers()
        #: Whether layers that were left out are back.
        self.is_unfolded = False

    def keep(self, index: int, folding: FoldRepeatedLayers) -> None:
        """Keep the module as it is in front of a pass, which is step ``index``."""
        self._index, self._known, self._folding = index, len(self._remarks or ()), folding
        self._clone = self._operation.clone(ip=False)

    def unfold(self, pass_: UnfoldRepeatedLayers, index: int, operation: ir.Operation) -> None:
        """Run the pass that brings layers back, step ``index``, if there was one that left them out."""
        if self._clone is not None:
            self.is_unfolded = pass_.unfold(
                operation, self._clone, self._folding, lambda shift: self._planned(index, shift)
            )

    def _planned(self, index: int, shift: int) -> ir.Operation:
        """Return the module up to a step, with layers that stand for others."""
        assert self._clone is not None
        module = self._clone.clone(ip=False)
        with Remarks().collecting():
            replace(self._folding, shift=shift).run(module)
        self.run(self._index + 1, index, module)
        return module

    def keep_more_layers(self) -> int:
        """Restore the module, leave out one layer fewer, and return the index of the step that follows.

        The first and the last layers are planned with what stands around them: of a few layers no two may be planned
        alike, and of one more two are. Where that would save little, the whole module stays.
        """
        assert self._clone is not None, "layers were left out before"
        folding, clone = replace(self._folding, kept=self._folding.kept + 1), self._clone.clone(ip=False)
        (func,) = functions(clone)
        repetitions = folding.repetitions(func, OperationSequence(func.regions[0].blocks[0]))
        count = max((layers.count for layers in repetitions), default=0)
        if folding.kept > min(_MOST_KEPT, count // _TIMES_KEPT):
            return self.restore()
        self._restore()
        self._clone, self._folding = clone, folding
        folding.run(self._operation)
        return self._index + 1

    def restore(self) -> int:
        """Make the module what it was, and return the index of the step that follows; remarks since then go."""
        self._restore()
        reason = "equal layers are planned differently, one by one, so all are planned"
        self._folding.remark(functions(self._operation)[0], "layers", reason)
        return self._index + 1

    def _restore(self) -> None:
        assert self._clone is not None, "layers were left out before"
        self.is_unfolded = False
        body = self._operation.regions[0].blocks[0]
        for op in reversed(list(body.operations)):
            op.operation.erase()
        for op in list(self._clone.regions[0].blocks[0].operations):
            body.append(op)
        for name in list(self._operation.attributes):
            del self._operation.attributes[name]
        for name in self._clone.attributes:
            self._operation.attributes[name] = self._clone.attributes[name]
        if self._remarks is not None:
            del self._remarks[self._known :]
