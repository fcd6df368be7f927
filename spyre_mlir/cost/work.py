"""The work of an operation as facts without IR or bundle, so that ``model.py`` can cost either.

``of_space.py`` takes the facts from a divided iteration space.
"""

from __future__ import annotations

from dataclasses import dataclass

from spyre_mlir.division.relayout import Relayout
from spyre_mlir.target.ops import KINDS, Kind
from spyre_mlir.target.target import Target


@dataclass(frozen=True)
class OperandWork:
    """One access of an operation to a buffer.

    ``bytes`` are those of the device buffer that are accessed, padding included, of all cores; what several cores
    load alike counts once. ``core_bytes`` are those of the busiest core, ``fan_out`` the cores that share each
    load (1: none), ``run_bytes`` what a core moves contiguously. An operand ``in_lx`` moves nothing through
    device memory.
    """

    writes: bool
    bytes: int
    core_bytes: int
    fan_out: int
    run_bytes: int
    in_lx: bool = False

    @property
    def moved_bytes(self) -> int:
        """Bytes of device memory by the plan."""
        return 0 if self.in_lx else self.bytes


@dataclass(frozen=True)
class OperationWork:
    """One execution of a divided operation on a target; everything ``per_core`` is of the busiest core.

    ``sticks_per_core`` are the sticks that its vector unit passes: positions of the iteration space, 64 of a
    2-byte lane dim at a time; 0 on the array. ``multiply_adds_per_core`` and ``rows_per_core`` (of the first
    matrix) are those of a matmul, else 0. ``parts`` are the slices of the reduced dims, whose partial results
    are added over the ring, ``outputs_per_core`` the elements of the result, ``results`` those of all cores.
    ``broadcast`` says that an operand is repeated along a dim of the result. The output is the last operand.
    ``relayout`` is what a shuffle does, and all that it does: both its operands are in LX.
    """

    target: Target
    opcode: str
    cores: int
    sticks_per_core: int
    multiply_adds_per_core: int
    rows_per_core: int
    parts: int
    outputs_per_core: int
    results: int
    broadcast: bool
    operands: tuple[OperandWork, ...]
    relayout: Relayout | None = None

    @property
    def kind(self) -> Kind:
        return KINDS[self.opcode]

    @property
    def on_array(self) -> bool:
        """Return whether the array of multiply-adds computes, not the vector unit."""
        return self.kind.on_array

    @property
    def read_bytes(self) -> int:
        """Bytes of device memory read by the plan."""
        return sum(operand.moved_bytes for operand in self.operands if not operand.writes)

    @property
    def written_bytes(self) -> int:
        """Bytes of device memory written by the plan."""
        return sum(operand.moved_bytes for operand in self.operands if operand.writes)
