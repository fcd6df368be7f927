# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operands of a design in its labels: order of dims, stick, scales and gaps. No IR.

An operand in device memory is a part of the whole tensor, whose strides its dims and gaps say. One in LX is this
core's slice alone: the same dims in the same order, one behind the other; or a part of what the core has there, with
gaps again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from spyre_mlir.division.subviews import Subview
from spyre_mlir.errors import CompileError
from spyre_mlir.layout import BufferView
from spyre_mlir.layout.space import Space
from spyre_mlir.lowering.design_labels import LABELS, STICK
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import DEVICE_OPS, Kind

SECOND_STICK = "in"


@dataclass(frozen=True)
class Geometry:
    """An operand in the labels of a design: dim order (innermost first), stick, scales, and gaps in elements.

    ``beside`` are the elements of other dims in a stick, the innermost first.
    """

    dim_order: tuple[str, ...]
    stick_dim: str
    scale: dict[str, int]
    gap: dict[str, int]
    beside: dict[str, int]


class GeometryBuilder:
    """Builder of the geometries of one operation's operands.

    ``shares`` are the positions of each dim that a core has, ``in_lx`` the operands in LX, ``parts`` those of them that
    are a part of what a core has there. ``extra`` has the labels without a dim, synthetic sticks and fillers, with
    their sizes once the geometries are built.
    """

    def __init__(
        self,
        opcode: str,
        space: Space,
        labels: tuple[str, ...],
        shares: Sequence[int],
        in_lx: Collection[int],
        parts: Mapping[int, Subview],
    ) -> None:
        self.opcode, self.space, self.labels, self.shares = opcode, space, labels, shares
        self.in_lx, self.parts = in_lx, parts
        self.extra: dict[str, int] = {}
        self.fillers: set[str] = set()

    def geometries(self) -> list[Geometry]:
        """Return the geometries of all operands; a filler of one is a dim of size 1 of all."""
        geometries = [self._geometry(operand) for operand in range(len(self.space.views))]
        # The kernels of casts loop over rows, so a tensor of nothing but its stick gets one.
        if DEVICE_OPS[self.opcode].kind is Kind.CAST and len({*self.labels, *self.extra}) == 1:
            self._filler()
        return [
            replace(
                geometry, dim_order=(*geometry.dim_order, *sorted(self.fillers - set(geometry.dim_order)))
            )
            for geometry in geometries
        ]

    def _geometry(self, operand: int) -> Geometry:
        """Order the dims of an operand by stride; distances between them become gaps, in device memory."""
        view, present = self.space.footprint(operand), self.space.present[operand]
        if operand == 0:
            present -= {window.kernel for window in self.space.windows}
        order: list[str] = []
        gap: dict[str, int] = {}
        scale = {label: 1 if dim in present else -1 for dim, label in enumerate(self.labels)}
        stick = self._stick_label(view, present, scale)
        strides = self._strides(operand)
        axes = sorted(view.axes, key=lambda axis: (strides[axis.dim], axis.stride))
        without_axis = {dim for dim in present if view.axis_of(dim) is None}
        stride = view.elements_per_stick
        # A dim within one stick has no axis, and is inside of all others.
        if view.main_stick_dim is not None and view.main_stick_dim in without_axis:
            order.append(stick)
            without_axis.discard(view.main_stick_dim)
        for axis in axes:
            # In LX a core's slice is dense, so there are no gaps to say.
            if operand not in self.in_lx or operand in self.parts:
                self._close_gap(operand, order, gap, stride, strides[axis.dim])
            order.append(self.labels[axis.dim])
            stride = strides[axis.dim] * self._steps(operand, axis.dim)
        order += [self.labels[dim] for dim in sorted(without_axis)]
        if stick not in order:
            order.append(stick)
        listed = self._listed_absent(operand)
        order += [self.labels[dim] for dim in sorted(listed) if self.labels[dim] != stick]
        beside = {self.labels[axis.dim]: axis.size for axis in reversed(view.stick_axes)}
        beside.pop(stick, None)
        return Geometry(tuple(order), stick, scale, gap, beside)

    def _listed_absent(self, operand: int) -> frozenset[int]:
        """Return the dims that an operand lists though it does not vary along them, at a scale of -1.

        A matmul, a convolution or a pooling tells its dims apart by which operands list them, so there absent dims are
        not listed. Batch dims that
        the rows are repeated for are: what only columns and result list is the one dim that columns bring in.
        """
        present, kind = self.space.present[operand], DEVICE_OPS[self.opcode].kind
        if kind.slides:
            return frozenset()
        if kind is not Kind.MATMUL:
            return frozenset(range(len(self.labels))) - present
        if operand != 0:
            return frozenset()
        stick = self.space.views[1].main_stick_dim
        return self.space.present[1] - present - self.space.reduced - {stick}

    def _strides(self, operand: int) -> dict[int, int]:
        """Return the elements from one position of a dim to the next, in device memory or of a part in LX.

        A dim of which a core has one position has none of its own there: it is behind all others.
        """
        view = self.space.footprint(operand)
        if operand not in self.parts:
            return {axis.dim: axis.stride for axis in view.axes}
        part, per_stick = self.parts[operand], view.elements_per_stick
        several = [axis for axis in view.axes if self._steps(operand, axis.dim) > 1]
        strides = {axis.dim: part.stride(axis.stride) * per_stick for axis in several}
        behind = max(
            (stride * self._steps(operand, dim) for dim, stride in strides.items()), default=per_stick
        )
        return {axis.dim: strides.get(axis.dim, behind) for axis in view.axes}

    def _steps(self, operand: int, dim: int) -> int:
        """Return the positions of a dim that the design walks in memory: rows, or sticks for the stick dim."""
        view, extent = self.space.views[operand], self.space.accessed(operand, self.space.padded)[dim]
        if operand in self.parts:
            extent = min(self.space.accessed(operand, self.shares)[dim], extent)
        elif operand == 0:
            # Of what windows slide over the design has all positions, also those that none touches.
            extent = next((window.size for window in self.space.windows if window.output == dim), extent)
        return extent // view.stick_elements(dim)

    def _close_gap(
        self, operand: int, order: list[str], gap: dict[str, int], stride: int, expected: int
    ) -> None:
        """Make the dims so far reach ``expected`` elements, by a gap behind the last one."""
        if expected == stride:
            return
        # A gap stands behind a dim, so the innermost one needs a dim before it.
        if not order:
            order.append(self._filler())
        last = order[-1]
        per_stick = 1
        if last in self.extra:
            base, extent = stride, 1
        else:
            dim = self.labels.index(last)
            per_stick = self.space.views[operand].stick_elements(dim)
            extent = self._steps(operand, dim)
            base = stride // extent
        if expected % base or expected < stride:
            raise CompileError(f"'{self.opcode}' cannot address an operand: stride {expected} after {stride}")
        gap[last] = (expected // base - extent) * per_stick

    def _filler(self) -> str:
        """Add a dim of size 1 whose only purpose is its gap, and return its label."""
        label = next(label for label in LABELS if label not in self.labels and label not in self.extra)
        self.extra[label] = 1
        self.fillers.add(label)
        return label

    def _stick_label(self, view: BufferView, present: frozenset[int], scale: dict[str, int]) -> str:
        """Return the label of the stick dim; a sparse operand has a stick with one valid element."""
        if view.main_stick_dim is not None:
            return self.labels[view.main_stick_dim]
        for label in (STICK, SECOND_STICK):
            if label not in self.labels:
                self.extra[label] = max(self.extra.get(label, 1), view.elements_per_stick)
                scale[label] = -2
                return label
            if self.labels.index(label) not in present:
                scale[label] = -2
                return label
        raise CompileError(f"'{self.opcode}' has a sparse operand but no dim left for its stick")
