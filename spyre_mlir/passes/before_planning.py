# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Base class of passes before scratchpad planning, which decide by the program that planning would produce."""

from __future__ import annotations

from collections.abc import Sequence

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.buffer_uses import Usage
from spyre_mlir.analysis.lx_candidates import Candidate, Rules, candidates
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import EvaluatingPass, Evaluator
from spyre_mlir.passes.scratchpad_planning import ScratchpadPlanning
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad import MemorySpace
from spyre_mlir.scratchpad.instance import Instance


@dataclass(frozen=True)
class BeforePlanning(EvaluatingPass):
    """A pass that changes a function if the change makes the planned program cheaper."""

    def eligible(self, usage: Usage, evaluator: Evaluator) -> list[Candidate]:
        """Return the buffers that may be in LX according to the options of ``scratchpad-planning``."""
        planning = evaluator.behind(ScratchpadPlanning.name)
        # A user-defined pipeline may not contain scratchpad-planning; its default options are then the best guess.
        if not isinstance(planning, ScratchpadPlanning):
            planning = ScratchpadPlanning()
        rules = Rules(MemorySpace.of_lx(usage.memory.target), planning.in_place, frozenset(planning.lx_ops))
        return [candidate for candidate in candidates(usage, rules) if not candidate.reasons]


def fit(eligible: Sequence[Candidate], space: MemorySpace) -> bool:
    """Return whether the capacity is at least the peak of live bytes if all the buffers are in LX."""
    return Instance.of([candidate.buffer for candidate in eligible], space).load <= space.capacity


def replace_function(func: ir.Operation, module: ir.Module) -> None:
    """Replace a function by its changed copy, which is the only function of ``module``."""
    (changed,) = functions(module.operation)
    changed.detach_from_parent()
    ir.InsertionPoint(func).insert(changed)
    func.erase()
