# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The iteration space of an operation under hints: the names of its dims, and which of them lie in sticks.

As a rule of thumb the last dim of a tensor lies in its sticks, except where it is the result of a reduction over the
stick, or is computed from such results alone: these have one element per stick. Layouts are chosen later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from spyre_mlir.analysis.aliasing import COPIES
from spyre_mlir.analysis.view_ops import VIEWS
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects.hint_attributes import DIMS, HINTS, dims_of
from spyre_mlir.dialects.structured import Known, Structured, element_of, shape_of, structured
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.layout.stick_layout import elements_per_stick
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import DEVICE_OPS, Kind
from spyre_mlir.tiling import NamedIteration

_SAME_STICK = (*VIEWS, *COPIES, "stick.pin")


@dataclass
class NamedIterations:
    """The named iterations of a function; ``sparse`` are the visited values that have one element per stick."""

    sparse: set[ir.Value] = field(default_factory=set)
    known: Known = field(default_factory=dict)

    def visit(self, op: ir.Operation) -> Structured | None:
        """The device operation that is next in program order if it is under hints; None for any other op."""
        generic = structured(op, self.known)
        if generic is not None and generic.opcode:
            if _is_sparse(generic, self.sparse):
                self.sparse.add(generic.result)
            return generic if HINTS in op.attributes else None
        if op.name in _SAME_STICK and op.operands[0] in self.sparse:
            self.sparse.add(op.results[0])
        return None

    def of(self, generic: Structured) -> NamedIteration:
        """The iteration space of an operation that ``visit`` returned."""
        op = generic.op
        if DIMS not in op.attributes:
            raise error_at(op, f"this operation has {HINTS} but no {DIMS}; run propagate-named-dims first")
        dims, sizes = dims_of(op), generic.extents
        if len(dims) != len(sizes):
            raise error_at(op, f"{DIMS} names {len(dims)} iteration dims, but there are {len(sizes)}")
        return NamedIteration(dims, sizes, frozenset(generic.reduced), _sticks(generic, self.sparse))


def _is_sparse(generic: Structured, sparse: set[ir.Value]) -> bool:
    """Return whether a result has one element per stick."""
    kind = DEVICE_OPS[generic.opcode].kind if generic.opcode in DEVICE_OPS else None
    tensors = [value for value in generic.inputs if shape_of(value)]
    if kind is Kind.MATMUL:
        return False
    return kind is Kind.REDUCE_STICK or (bool(tensors) and sparse.issuperset(tensors))


def _sticks(generic: Structured, sparse: set[ir.Value]) -> Mapping[int, int]:
    """The iteration dims that lie in sticks of operands, and the elements of the longest of these.

    Positions in a table lie one to a stick.
    """
    elements: dict[int, int] = {}
    target = target_of(generic.op)
    index = DEVICE_OPS[generic.opcode].index if generic.opcode in DEVICE_OPS else None
    operands = zip((*generic.inputs, generic.result), generic.maps, strict=True)
    for number, (value, dims) in enumerate(operands):
        if number == index:
            continue
        # A dim of one element fills no stick: the last dim with more is in it.
        sized = [dim for dim, size in zip(dims, shape_of(value), strict=True) if dim is not None and size > 1]
        if sized and value not in sparse:
            elements[sized[-1]] = max(
                elements.get(sized[-1], 1), elements_per_stick(target, element_of(value))
            )
    return elements
