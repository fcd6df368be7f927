"""Which iteration dims lie in sticks before layouts are chosen, so that tiles do not cut these.

As a rule of thumb the last dim of a tensor lies in its sticks, except where it is the result of a reduction over the
stick, or is computed from such results alone: these have one element per stick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spyre_mlir.dialects.structured import Structured, element_of, shape_of
from spyre_mlir.layout.stick_layout import elements_per_stick
from spyre_mlir.mlir import ir
from spyre_mlir.passes._memory import COPIES
from spyre_mlir.passes._view_ops import VIEWS
from spyre_mlir.target.ops import DEVICE_OPS, Kind

_SAME_STICK = (*VIEWS, *COPIES, "stick.pin")


@dataclass
class Sticks:
    """What is known of the sticks of the values that have been visited; ``sparse`` have one element in each."""

    sparse: set[ir.Value] = field(default_factory=set)

    def visit(self, op: ir.Operation, generic: Structured | None) -> None:
        """Takes note of an operation; ``generic`` is what it computes. To be called in program order."""
        if generic is not None and generic.opcode:
            if self._is_sparse(generic):
                self.sparse.add(generic.result)
        elif op.name in _SAME_STICK and op.operands[0] in self.sparse:
            self.sparse.add(op.results[0])

    def of(self, generic: Structured) -> Mapping[int, int]:
        """The iteration dims that lie in sticks of operands, and the elements of the longest of these."""
        found: dict[int, int] = {}
        for value, dims in zip((*generic.inputs, generic.result), generic.maps, strict=True):
            sized = [
                dim for dim, size in zip(dims, shape_of(value), strict=True) if dim is not None and size > 1
            ]
            if sized and value not in self.sparse:
                found[sized[-1]] = max(found.get(sized[-1], 1), elements_per_stick(element_of(value)))
        return found

    def _is_sparse(self, generic: Structured) -> bool:
        """Whether a result has one element per stick."""
        kind = DEVICE_OPS[generic.opcode].kind if generic.opcode in DEVICE_OPS else None
        tensors = [value for value in generic.inputs if shape_of(value)]
        if kind is Kind.MATMUL:
            return False
        return kind is Kind.REDUCE_STICK or (bool(tensors) and self.sparse.issuperset(tensors))
