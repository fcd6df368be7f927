# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Named iteration spaces: the names of the dims of an operation with hints, and the dims that are in sticks.

Layouts are chosen later. As a rule of thumb the last dim of a tensor is in its sticks. The exceptions have one element
per stick: results of a reduction over the stick dim, and tensors computed only from such results.
"""

from __future__ import annotations

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
    """The named iteration spaces of a function; ``sparse`` are the visited values that have one element per stick."""

    sparse: set[ir.Value] = field(default_factory=set)
    known: Known = field(default_factory=dict)

    def visit(self, op: ir.Operation) -> Structured | None:
        """Visit the next op in program order; return it if it is a device operation with hints, else None."""
        generic = structured(op, self.known)
        if generic is not None and generic.opcode:
            kind = DEVICE_OPS[generic.opcode].kind if generic.opcode in DEVICE_OPS else None
            tensors = [value for value in generic.inputs if shape_of(value)]
            has_sparse_inputs = bool(tensors) and self.sparse.issuperset(tensors)
            if kind is Kind.REDUCE_STICK or (kind is not Kind.MATMUL and has_sparse_inputs):
                self.sparse.add(generic.result)
            return generic if HINTS in op.attributes else None
        if op.name in _SAME_STICK and op.operands[0] in self.sparse:
            self.sparse.add(op.results[0])
        return None

    def of(self, generic: Structured) -> NamedIteration:
        """Return the iteration space of an operation that ``visit`` returned."""
        op = generic.op
        if DIMS not in op.attributes:
            raise error_at(op, f"this operation has {HINTS} but no {DIMS}; run propagate-named-dims first")
        dims, sizes = dims_of(op), generic.extents
        if len(dims) != len(sizes):
            raise error_at(op, f"{DIMS} names {len(dims)} iteration dims, but there are {len(sizes)}")
        # The iteration dims that are in sticks of operands, with the elements of the longest stick of each.
        sticks: dict[int, int] = {}
        target = target_of(op)
        index = DEVICE_OPS[generic.opcode].index if generic.opcode in DEVICE_OPS else None
        operands = zip((*generic.inputs, generic.result), generic.maps, strict=True)
        for number, (value, dims_of_value) in enumerate(operands):
            shape = zip(dims_of_value, shape_of(value), strict=True)
            # A dim of one element does not fill a stick: the last dim of more than one element is in it.
            sized = [dim for dim, size in shape if dim is not None and size > 1]
            # The index operand of a lookup has one element per stick.
            if number != index and sized and value not in self.sparse:
                elements = elements_per_stick(target, element_of(value))
                sticks[sized[-1]] = max(sticks.get(sized[-1], 1), elements)
        return NamedIteration(dims, sizes, frozenset(generic.reduced), sticks)
