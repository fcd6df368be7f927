# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attaches the names of iteration dims to all operations under hints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from spyre_mlir.analysis.aliasing import COPIES, all_ops, argument_attributes
from spyre_mlir.analysis.loops import LOOP, carried_values
from spyre_mlir.analysis.view_ops import VIEWS, place_of, step_of
from spyre_mlir.dialects import hint_attributes, sdsc
from spyre_mlir.dialects.structured import Known, Structured, shape_of, structured
from spyre_mlir.layout.host_transfer import HostView
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import DEVICE_OPS, Kind
from spyre_mlir.tiling import DigitRun, NamedDim, Names, UnnamedDim, names

_SAME_DIMS = (*COPIES, "stick.pin")
_ASSEMBLED = "its parts are concatenated"


@dataclass(frozen=True)
class PropagateNamedDims(Pass):
    """Write ``sdsc.hints`` and ``sdsc.dims``, the names of each iteration dim, on the operations of a function.

    Hints come from locations, names from the arguments: ``sdsc.dims = ["M", "K"]`` names their storage, outermost
    first, and ``sdsc.dim_sizes`` of the function has the sizes. Names propagate through operations by indexing maps and
    through views by sizes. An iteration dim gets its names from the first operand that has names for all of the dim.

        %p = linalg.generic ins(%x, %y) {sdsc.op = #sdsc.op<"batchmatmul", {}>} .. loc(fused<{sdsc.hints = [..]}>[..])
        -> {sdsc.op = .., sdsc.hints = [..], sdsc.dims = [["M"], ["K"], ["N"]]}

    The pass warns if names that a hint may need are missing, do not fit a shape, or contradict each other. The
    operation then gets the known names, and ``[]`` for a dim without a name. A function without hints is not
    changed. Before: level *device ops*. After: ``lower-hints`` reads the attributes.
    """

    name: ClassVar[str] = "propagate-named-dims"

    def run_on(self, func: ir.Operation) -> None:
        ops = all_ops(func)
        # Without hints no pass reads names, so warnings about names would be noise.
        if any(hint_attributes.hints_in(op.location) is not None for op in ops):
            NamePropagation(self, func).run(ops)


class NamePropagation:
    """Names of the values of one function; ``owner`` reports the warnings."""

    def __init__(self, owner: Pass, func: ir.Operation) -> None:
        self.owner = owner
        self.func = func
        self.names: dict[ir.Value, Names] = {}
        self.warned: set[tuple[str, NamedDim | UnnamedDim]] = set()
        # unnamed dims of arguments, each with the first operation under hints that iterates over the dim
        self.nameless: dict[UnnamedDim, ir.Operation] = {}
        # by hints: the names that they tile, each with the id of the innermost hint that tiles it
        self.tiled: dict[ir.Attribute, dict[str, int]] = {}
        self.known: Known = {}

    def run(self, ops: Sequence[ir.Operation]) -> None:
        sizes = hint_attributes.dim_sizes_of(self.func)
        arguments = self.func.regions[0].blocks[0].arguments
        for argument, attributes in zip(arguments, argument_attributes(self.func), strict=True):
            view = sdsc.host_view_of(ir.DictAttr.get(attributes), shape_of(argument))
            host = attributes.get(sdsc.HOST)
            label = argument.arg_number if host is None else f"'{ir.StringAttr(host.label).value}'"
            dim_names = hint_attributes.argument_dims(attributes, self.func.location)
            self.names[argument] = self._argument(f"argument {label}", dim_names, view, sizes)
        for op in ops:
            self._visit(op)
        if self.nameless:
            first, *others = self.nameless
            more = f" and {len(others)} more" if others else ""
            reason = f"a hint cannot tile a dim without a name: {first.reason}{more}"
            self.owner.warn(self.nameless[first], reason)

    def _visit(self, op: ir.Operation) -> None:
        """Name the dims of the results of an operation."""
        if op.name in VIEWS:
            self.names[op.results[0]] = names.viewed(step_of(op), self._of(op.operands[0]))
        elif op.name in _SAME_DIMS:
            self.names[op.results[0]] = self._of(op.operands[0])
        elif op.name == "tensor.insert_slice":
            self._insertion(op)
        elif op.name == LOOP:
            for carried in carried_values(op):
                self.names[carried.argument] = self.names[carried.result] = self._of(carried.initial)
        elif (generic := structured(op, self.known)) is not None and generic.opcode:
            self._device_op(generic)

    def _argument(
        self, name: str, dim_names: tuple[str, ...], view: HostView, sizes: dict[str, int]
    ) -> Names:
        """Return the dims of an argument, a ``view`` of its host array, from the names of the array."""
        array = view.array_shape
        # The reason is kept, so that a warning about a hint can state which argument lacks the name.
        if not dim_names:
            return tuple(names.unnamed(size, f"dim {dim} of {name}") for dim, size in enumerate(view.shape))
        undeclared = [dim_name for dim_name in dim_names if dim_name not in sizes]
        if undeclared:
            return self._misfit(view, f"{name} names the dim '{undeclared[0]}', which is not declared")
        parts = names.whole(NamedDim(dim_name, sizes[dim_name]) for dim_name in dim_names)
        shown = f"{name} of shape {list(array)} has the dims {_shown(parts)}"
        if math.prod([part.size for part in parts]) != math.prod(array):
            return self._misfit(view, f"{shown}, which have another number of elements")
        if any(isinstance(part.dim, UnnamedDim) for dim in names.split(parts, array) for part in dim):
            self.owner.warn(self.func, f"{shown}, which do not align with its shape")
        return tuple(
            names.unnamed(size) if outer else names.covered(parts, size, stride, view.offset)
            for size, (*outer, (_, stride)) in zip(view.shape, view.dims, strict=True)
        )

    def _misfit(self, view: HostView, reason: str) -> Names:
        self.owner.warn(self.func, reason)
        return tuple(names.unnamed(size) for size in view.shape)

    # -- operations -----------------------------------------------------------------------------------

    def _of(self, value: ir.Value) -> Names:
        """Return the names of a value; a constant, or a buffer that is not yet written, has no names."""
        if value not in self.names:
            self.names[value] = tuple(names.unnamed(size) for size in shape_of(value))
        return self.names[value]

    def _device_op(self, generic: Structured) -> None:
        op, maps = generic.op, generic.maps
        described = DEVICE_OPS.get(generic.opcode)
        # A dim that is looked up cannot be tiled.
        looked_up = generic.reduced if described is not None and described.kind is Kind.GATHER else ()
        dims = []
        for dim, size in enumerate(generic.extents):
            candidates = [
                self._of(value)[operand.index(dim)]
                for value, operand in zip(generic.inputs, maps, strict=False)
                if dim in operand
            ]
            named = candidates and dim not in looked_up
            dims.append(
                self._agreed(op, f"iteration dim {dim}", candidates) if named else names.unnamed(size)
            )
        self.names[generic.result] = tuple(() if dim is None else dims[dim] for dim in maps[-1])
        op.attributes[hint_attributes.DIMS] = hint_attributes.dims_attr(
            [names.labels(parts) for parts in dims]
        )
        hints = hint_attributes.hints_in(op.location)
        if hints is not None:
            op.attributes[hint_attributes.HINTS] = hints
            if hints not in self.tiled:
                parsed = hint_attributes.hints_of(hints, op.location)
                self.tiled[hints] = {name: hint.id for hint in parsed for name, _ in hint.tiles}
            for dim, parts in enumerate(dims):
                self._check_names(op, dim, parts, self.tiled[hints])

    def _insertion(self, op: ir.Operation) -> None:
        """Name the dims of an assembled buffer by its names, and by the part's names for dims that the part fills."""
        part, buffer = self._of(op.operands[0]), self._of(op.operands[1])
        place, shape = place_of(op), shape_of(op.operands[1])
        dims = [dim for dim in range(len(shape)) if dim not in place.dropped]
        parts = dict(zip(dims, part, strict=True))
        self.names[op.results[0]] = tuple(
            self._assembled(op, dim, buffer[dim], parts.get(dim, ()), place.sizes[dim] == shape[dim])
            for dim in range(len(shape))
        )

    def _assembled(
        self, op: ir.Operation, dim: int, buffer: DigitRun, part: DigitRun, fills: bool
    ) -> DigitRun:
        """Return the names of a dim after an insertion; ``fills`` states that the part covers the whole dim."""
        if fills:
            return self._agreed(op, f"dim {dim} of the result", [buffer, part])
        lost = [name for name in names.mentioned(part) if name not in names.mentioned(buffer)]
        if not lost or names.labels(buffer):
            return buffer
        size = math.prod([digits.size for digits in buffer])
        return names.unnamed(size, _ASSEMBLED, [*lost, *names.mentioned(buffer)])

    def _agreed(self, op: ir.Operation, what: str, candidates: Sequence[DigitRun]) -> DigitRun:
        """Return the names of a dim, given the names in several operands; warn if they contradict each other."""
        chosen = names.best(candidates)
        other = next((parts for parts in candidates if names.contradict(chosen, parts)), None)
        if other is not None:
            self.owner.warn(op, f"{what} is {_shown(chosen)} for one operand and {_shown(other)} for another")
        return chosen

    # -- warnings -------------------------------------------------------------------------------------

    def _check_names(self, op: ir.Operation, dim: int, parts: DigitRun, tiled: dict[str, int]) -> None:
        """Warn once about each name that a hint cannot tile here, and record dims without a name."""
        usable = names.labels(parts)
        for part in parts:
            if isinstance(part.dim, UnnamedDim) and part.dim.reason and not part.dim.lost:
                self.nameless.setdefault(part.dim, op)
            for name in sorted(part.mentioned - {*usable}):
                if name in tiled and (name, part.dim) not in self.warned:
                    self.warned.add((name, part.dim))
                    reason = f": {part.dim.reason}" if isinstance(part.dim, UnnamedDim) else ""
                    what = f"iteration dim {dim} does not begin with all of '{name}'{reason}"
                    self.owner.warn(op, f"{what}; hint {tiled[name]} does not tile it")


def _shown(parts: DigitRun) -> str:
    """Format the names of a dim as ``M = 64, K = 256``."""
    return ", ".join(f"{part.name or 'unnamed'} = {part.size}" for part in parts)
