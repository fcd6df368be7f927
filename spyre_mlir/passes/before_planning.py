"""Programs as planning of the scratchpads would leave them: what passes before it go by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spyre_mlir.analysis.buffer_uses import Usage
from spyre_mlir.analysis.lx_candidates import Candidate, Rules, candidates
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import EvaluatingPass, Evaluator
from spyre_mlir.passes.scratchpad_planning import ScratchpadPlanning
from spyre_mlir.scratchpad import MemorySpace
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.target.device import device


@dataclass(frozen=True)
class BeforePlanning(EvaluatingPass):
    """A pass that changes a function if the planned program then costs less."""

    lx_frac_avail: float | None = None

    @property
    def space(self) -> MemorySpace:
        """Memory space of the scratchpad of one core."""
        return MemorySpace(self.target.usable_lx_bytes, device().lx_alignment_bytes)

    def eligible(self, usage: Usage, evaluator: Evaluator) -> list[Candidate]:
        """Return the buffers that may be in LX by the options of the planning."""
        planning = evaluator.behind(ScratchpadPlanning.name)
        # A pipeline that a user wrote may lack the planning; its defaults are then the best guess.
        if not isinstance(planning, ScratchpadPlanning):
            planning = ScratchpadPlanning()
        rules = Rules(self.space.capacity, planning.in_place, frozenset(planning.lx_ops))
        return [candidate for candidate in candidates(usage, rules) if not candidate.reasons]

    def load(self, eligible: Sequence[Candidate]) -> int:
        """Return the bytes per core that the buffers need at once, if all of them are in LX."""
        return Instance.of([candidate.buffer for candidate in eligible], self.space).load


def replace_function(func: ir.Operation, changed: ir.Operation) -> None:
    """Put a changed clone of a function in its place."""
    ir.InsertionPoint(func).insert(changed)
    func.erase()
