"""Programs as planning of the scratchpads would leave them: what passes before it go by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spyre_mlir.mlir import ir
from spyre_mlir.options import from_environment
from spyre_mlir.passes._lx_candidates import Candidate, Rules, candidates
from spyre_mlir.passes._memory import functions, usable_lx_bytes
from spyre_mlir.passes._prices import Price, price_of
from spyre_mlir.passes._usage import Usage
from spyre_mlir.passes.base import Pass
from spyre_mlir.passes.scratchpad_planning import ScratchpadPlanning
from spyre_mlir.remarks import Remarks
from spyre_mlir.scratchpad import MemorySpace
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.target.device import device
from spyre_mlir.timing import scope


@dataclass(frozen=True)
class BeforePlanning(Pass):
    """A pass that changes a function if that makes its plan better; its options are those of the planning."""

    layout_solver: str = from_environment("LAYOUT_SOLVER", "portfolio")
    order_by_size: bool = False
    lx_frac_avail: float = from_environment("DXP_LX_FRAC_AVAIL", device().lx_backend_fraction)
    in_place: bool = True
    lx_ops: tuple[str, ...] = ()

    @property
    def space(self) -> MemorySpace:
        """The scratchpad of a core."""
        return MemorySpace(usable_lx_bytes(self.lx_frac_avail), device().lx_alignment_bytes)

    def able(self, usage: Usage) -> list[Candidate]:
        """The buffers that may be in LX."""
        rules = Rules(self.space.capacity, self.in_place, frozenset(self.lx_ops))
        return [each for each in candidates(usage, rules) if not each.reasons]

    def load(self, able: Sequence[Candidate]) -> int:
        """Bytes per core that the buffers need at once, if all of them are in LX."""
        return Instance.of([each.buffer for each in able], self.space).load

    @property
    def planning(self) -> ScratchpadPlanning:
        """The pass that plans the function in the end."""
        return ScratchpadPlanning(
            self.layout_solver, self.order_by_size, self.lx_frac_avail, self.in_place, self.lx_ops
        )

    @scope("plan")
    def price(self, func: ir.Operation) -> Price:
        """What a function costs once it is planned; the function stays as it is."""
        with func.location, Remarks().collecting():
            module = ir.Module.create()
            ir.InsertionPoint(module.body).insert(func.clone())
            self.planning.run(module.operation)
            return price_of(Usage(functions(module.operation)[0]))


def replace_function(func: ir.Operation, changed: ir.Operation) -> None:
    """Puts a changed clone of a function in its place."""
    ir.InsertionPoint(func).insert(changed)
    func.erase()
