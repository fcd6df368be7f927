# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lowers hints and dim names to decisions: the loops around each operation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import ClassVar

from spyre_mlir.analysis.aliasing import COPIES, all_ops
from spyre_mlir.analysis.plan_pins import Pins, set_pins
from spyre_mlir.analysis.view_ops import VIEWS
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects.hint_attributes import (
    DIMS,
    HINTS,
    TILING,
    dim_sizes_of,
    dims_of,
    hints_in,
    hints_of,
    tiling_attr,
    without_hints,
)
from spyre_mlir.dialects.structured import Known, Structured, element_of, shape_of, structured
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.layout.stick_layout import elements_per_stick
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import DEVICE_OPS, Kind
from spyre_mlir.tiling import (
    Hint,
    HintError,
    HintTree,
    NamedIteration,
    TiledLoop,
    check_dims,
    divided_slices,
    name_tiles,
    tiled_loops,
    why_whole,
)


@dataclass(frozen=True)
class LowerHints(Pass):
    """Write ``sdsc.tiling``, the loops around each operation, from ``sdsc.hints`` and ``sdsc.dims``.

        {sdsc.hints = [{id = 3, tiles = [{dim = "M", count = 8}]}], sdsc.dims = [["M"], ["K"], ["N"]]}
        -> {sdsc.tiling = [{loop = "3.M", dim = 0, tiles = 8}]}

    The loops are in the order of the hints and their tiles, but loops over reduced dims are inside the other loops
    (``tiling.tiled_loops``). A hint that cannot be followed in any program is an error. A hint without an operation to
    tile, and an operation that a hint cannot tile, are warnings.

    Before: ``propagate-named-dims`` and ``split-named-dims``. After: no hints or names on operations, and plain
    locations.
    """

    name: ClassVar[str] = "lower-hints"

    def run_on(self, func: ir.Operation) -> None:
        ops = all_ops(func)
        marked = [op for op in ops if HINTS in op.attributes or DIMS in op.attributes]
        if marked:
            _HintLowering(self, func).run(ops)
        for op in marked:
            for name in (HINTS, DIMS):
                if name in op.attributes:
                    del op.attributes[name]
        if any(hints_in(op.location) is not None for op in ops):
            func.walk(_PlainLocations().write)


class _HintLowering:
    """Lowering of the hints of one function."""

    def __init__(self, owner: LowerHints, func: ir.Operation) -> None:
        self.owner = owner
        self.sizes = dim_sizes_of(func)
        self.hints: dict[ir.Attribute, tuple[Hint, ...]] = {}
        self.tree = HintTree()
        self.iterations = NamedIterations()
        # By hint and dim: tiles are multiples of this number of elements, so that all tiles are whole sticks.
        self.units: dict[tuple[int, str], int] = {}
        self.first: dict[tuple[int, str], ir.Operation] = {}  # where each hint cuts each dim first
        self.followed: set[tuple[int, str]] = set()
        self.warned: set[tuple[int, str]] = set()

    def run(self, ops: Sequence[ir.Operation]) -> None:
        marked = [generic for op in ops if (generic := self.iterations.visit(op)) is not None]
        for generic in marked:
            # Make the tiles of a hint whole sticks in all operations that follow it.
            hints, iteration = self._hints(generic.op), self.iterations.of(generic)
            try:
                check_dims(iteration, self.sizes)
            except HintError as error:
                raise error_at(generic.op, str(error)) from None
            for key in ((hint.id, name) for hint in hints for name, _ in hint.tiles if name in self.sizes):
                unit = iteration.unit_of(key[1], self.sizes[key[1]])
                self.units[key] = math.lcm(self.units.get(key, 1), unit)
        # All tiles are aligned first, because operations that share a hint share its loop.
        for generic in marked:
            self._lower(generic)
        for (number, name), op in self.first.items():
            if (number, name) not in self.followed:
                reason = f"hint {number} cuts '{name}', but no operation under it iterates over '{name}'"
                self.owner.warn(op, reason)

    def _lower(self, generic: Structured) -> None:
        op = generic.op
        hints, iteration = self._hints(op), self.iterations.of(generic)
        names = [(hint.id, name) for hint in hints for name, _ in hint.tiles]
        units = {name: self.units[number, name] for number, name in names if name in self.sizes}
        try:
            self.tree.add(hints)
            loops = tiled_loops(hints, iteration, self.sizes, target_of(op), units)
            slices = divided_slices(hints, iteration, self.sizes, loops, target_of(op).cores)
        except HintError as error:
            raise error_at(op, str(error)) from None
        tiles = name_tiles(hints, iteration, self.sizes, units)
        for hint in hints:
            for name, _ in hint.slices:
                self.first.setdefault((hint.id, name), op)
                if iteration.dims_of(name):
                    self.followed.add((hint.id, name))
            for name, count in hint.tiles:
                self.first.setdefault((hint.id, name), op)
                dims = iteration.dims_of(name)
                reason = why_whole(hint, name, count, iteration, tiles)
                if len(dims) > 1 and reason is None:
                    reason = (
                        f"iteration dims {sorted(dims)} are named '{name}'; hint {hint.id} cuts dim {dims[0]}"
                    )
                if reason is not None and (hint.id, name) not in self.warned:
                    self.warned.add((hint.id, name))
                    self.owner.warn(op, reason)
                if dims or reason is not None:
                    self.followed.add((hint.id, name))
        if slices is not None:
            set_pins(op, Pins(slices=slices))
            shown = " x ".join(map(str, slices))
            self.owner.remark(op, "division", f"a hint divides the operation into {shown} slices of its dims")
        if loops:
            op.attributes[TILING] = tiling_attr(loops)
            self.owner.remark(op, "tiling", _shown(hints, loops, iteration))

    def _hints(self, op: ir.Operation) -> tuple[Hint, ...]:
        attr = op.attributes[HINTS]
        # Attributes are uniqued in a context, so thousands of operations share one parsed value.
        if attr not in self.hints:
            self.hints[attr] = hints_of(attr, op.location)
        return self.hints[attr]


def _shown(hints: Sequence[Hint], loops: Sequence[TiledLoop], iteration: NamedIteration) -> str:
    """Describe the loops of an operation, and how they differ from the hints."""
    cuts = []
    for loop in loops:
        size, tiles = iteration.sizes[loop.dim], f"{loop.tiles} tiles"
        if loop.tile is not None:
            tiles += f" of {loop.tile}, the last of {size - (loop.tiles - 1) * loop.tile}"
        cuts.append(f"loop {loop.loop} cuts dim {loop.dim} of {size} elements into {tiles}")
    text = ", ".join(cuts)
    # In the order in which the hints are written.
    counts = {f"{hint.id}.{name}": count for hint in hints for name, count in hint.tiles}
    fewer = [f"{counts[loop.loop]} by {loop.loop}" for loop in loops if loop.tiles != counts[loop.loop]]
    if fewer:
        text += f"; the hint asks for {', '.join(fewer)}, but all tiles except the last are equal and whole sticks"
    written = [f"{hint.id}.{name}" for hint in hints for name, _ in hint.tiles]
    inside = [
        loop.loop
        for index, loop in enumerate(loops)
        if any(written.index(other.loop) > written.index(loop.loop) for other in loops[:index])
    ]
    if inside:
        verb = "is" if len(inside) == 1 else "are"
        text += f"; {', '.join(inside)}, over reduced dims, {verb} moved inside"
    return text


class _PlainLocations(dict[ir.Attribute, ir.Location | None]):
    """A map from each location to the location without hints (None: it has no hints). Many ops share few locations."""

    def write(self, op: ir.Operation) -> ir.WalkResult:
        """Remove the hints from the locations of an op and of the arguments of its blocks."""
        plain = self[op.location.attr]
        if plain is not None:
            op.location = plain
        for argument in (
            block_argument
            for region in op.regions
            for block in region.blocks
            for block_argument in block.arguments
        ):
            plain = self[argument.location.attr]
            if plain is not None:
                argument.set_location(plain)
        return ir.WalkResult.ADVANCE

    def __missing__(self, attr: ir.Attribute) -> ir.Location | None:
        location = ir.Location.from_attr(attr, attr.context)
        self[attr] = None if hints_in(location) is None else without_hints(location)
        return self[attr]


# Named iteration spaces: the names of the dims of an operation with hints, and the dims that are in sticks.
#
# Layouts are chosen later. As a rule of thumb the last dim of a tensor is in its sticks. The exceptions have one
# element per stick: results of a reduction over the stick dim, and tensors computed only from such results.


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
