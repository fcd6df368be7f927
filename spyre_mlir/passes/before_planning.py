# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs as planning of the scratchpads would leave them: what passes before it go by."""

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
    """A pass that changes a function if the planned program then costs less."""

    def eligible(self, usage: Usage, evaluator: Evaluator) -> list[Candidate]:
        """Return the buffers that may be in LX by the options of the planning."""
        planning = evaluator.behind(ScratchpadPlanning.name)
        # A pipeline that a user wrote may lack the planning; its defaults are then the best guess.
        if not isinstance(planning, ScratchpadPlanning):
            planning = ScratchpadPlanning()
        rules = Rules(MemorySpace.of_lx(usage.memory.target), planning.in_place, frozenset(planning.lx_ops))
        return [candidate for candidate in candidates(usage, rules) if not candidate.reasons]


def fit(eligible: Sequence[Candidate], space: MemorySpace) -> bool:
    """Return whether the buffers have room for as many bytes as they need at once, if all of them are in LX."""
    return Instance.of([candidate.buffer for candidate in eligible], space).load <= space.capacity


def replace_function(func: ir.Operation, module: ir.Module) -> None:
    """Put the changed copy of a function that a module has in the place of the function."""
    (changed,) = functions(module.operation)
    changed.detach_from_parent()
    ir.InsertionPoint(func).insert(changed)
    func.erase()
