"""One divided, placed operation as a SuperDSC design: labels, sizes, slices, operands, masks. No IR.

An operand in device memory is a part of the whole tensor, whose strides its dims and gaps say. One in LX is this
core's slice alone: the same dims in the same order, one behind the other; or a part of what the core has there, with
gaps again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from spyre_mlir.bundle.model import (
    INPUT,
    KERNEL,
    KERNEL_IDX,
    OUTPUT,
    Constant,
    DebugHandle,
    Design,
    Held,
    Operand,
)
from spyre_mlir.division import Division
from spyre_mlir.division.relayout import Distribution
from spyre_mlir.division.slices import shares_of
from spyre_mlir.division.subviews import Subview
from spyre_mlir.errors import CompileError
from spyre_mlir.layout import BufferView
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.stick_layout import ELEMENT_BYTES
from spyre_mlir.target.device import device
from spyre_mlir.target.element_types import DATA_FORMATS
from spyre_mlir.target.formats import constant_bits
from spyre_mlir.target.ops import DEVICE_OPS, Kind

_LABELS = ("mb", "x", "y", "i", "j", "x1", "r", "c", "ij", "rc", "kij", "sij")
_STICK, _SECOND_STICK = "out", "in"


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


class DesignBuilder:
    """Builds the design of one operation from its space and division."""

    def __init__(
        self,
        opcode: str,
        space: Space,
        division: Division,
        constants: Mapping[str, float],
        masks: Mapping[int, float],
        in_lx: Collection[int] = (),
        held: Mapping[int, Distribution] | None = None,
        parts: Mapping[int, Subview] | None = None,
    ) -> None:
        self.opcode = opcode
        self.op = DEVICE_OPS[opcode]
        self.space = space
        self.division = division
        self.constants = constants
        self.masks = masks  # by iteration dim: what its padding reads as
        self.in_lx = in_lx  # operands by number
        self.parts = parts or {}  # by operand: where it is in what a core has in LX, if that is more
        self.held = held or {}  # by operand: what the cores hold of it, in slices of the dims that it has
        units = shares_of(space.units, division.splits)
        granules = (extent // count for extent, count in zip(space.padded, space.units, strict=True))
        self.shares = [share * granule for share, granule in zip(units, granules, strict=True)]
        self.labels = self._labels()
        self.extra: dict[str, int] = {}  # labels without a dim: synthetic sticks and fillers, and their size
        self.fillers: set[str] = set()

    def build(self, index: int, starts: Callable[[int, int, int], int], debug: DebugHandle | None) -> Design:
        """The design; ``starts(operand, core, byte offset in the buffer)`` gives the symbol, or the address in LX."""
        space, padded = self.space, self.space.padded
        geometries = self._geometries()
        roles = self._roles(geometries)
        slices = {label: split for label, split in zip(self.labels, self.division.splits, strict=True)}
        shares = dict(zip(self.labels, self.shares, strict=True))
        cores = self.division.owners
        operands = tuple(
            Operand(
                role=roles[at],
                data_format=DATA_FORMATS[view.dtype],
                memory="lx" if at in self.in_lx else "hbm",
                dim_order=geometry.dim_order,
                stick_dim=geometry.stick_dim,
                stick_elements=view.elements_per_stick // math.prod(geometry.beside.values()),
                scale=self._scales(geometry),
                start=tuple(
                    starts(at, core, self._offset_bytes(at, cores[core])) for core in range(len(cores))
                ),
                gap=geometry.gap,
                held=self._held(at),
                beside=geometry.beside,
            )
            for at, (view, geometry) in enumerate(zip(space.views, geometries, strict=True))
        )
        sizes = {**dict(zip(self.labels, padded, strict=True)), **self.extra}
        padding = {
            label: extent - size
            for label, extent, size in zip(self.labels, padded, space.sizes, strict=True)
            if extent > size
        }
        ones = dict.fromkeys(self.extra, 1)
        masks = self._masks(padding)
        return Design(
            index=index,
            opcode=self.opcode,
            unit=self.op.unit,
            data_format=operands[self.op.first_data].data_format,
            sizes=sizes,
            slices={**slices, **ones},
            shares={**shares, **self.extra},
            core_slices=tuple(
                {**dict(zip(self.labels, own, strict=True)), **dict.fromkeys(self.extra, 0)} for own in cores
            ),
            operands=operands,
            padding=padding,
            masks=masks,
            mask_constant=0 if masks else -1,
            constants=self._constants(operands[0].data_format),
            debug=debug,
        )

    # -- labels ---------------------------------------------------------------------------------------

    def _labels(self) -> tuple[str, ...]:
        if self.op.kind is Kind.MATMUL:
            return self._matmul_labels()
        stick = self._main_stick()
        spare = iter(_LABELS)
        labels = []
        for dim in range(len(self.space.sizes)):
            label = _STICK if dim == stick else next(spare, None)
            if label is None:
                raise CompileError(f"'{self.opcode}' iterates over more dims than a design has labels")
            labels.append(label)
        return tuple(labels)

    def _main_stick(self) -> int | None:
        """The dim called ``out``: the stick of the output, or of the first input that has one."""
        views = (self.space.views[-1], *self.space.views)
        lanes = [view.main_stick_dim for view in views if view.main_stick_dim is not None]
        return lanes[0] if lanes else None

    def _matmul_labels(self) -> tuple[str, ...]:
        rows, columns, _ = self.space.present
        batch, own_rows = iter(("x", "y")), iter(("mb", "i"))
        labels = []
        for dim in range(len(self.space.sizes)):
            if dim in self.space.reduced:
                labels.append("in")
            elif dim in rows and dim in columns:
                labels.append(next(batch))
            else:
                labels.append(next(own_rows) if dim in rows else "out")
        return tuple(labels)

    # -- geometry -------------------------------------------------------------------------------------

    def _geometries(self) -> list[Geometry]:
        """Those of all operands; a filler of one is a dim of size 1 of all."""
        made = [self._geometry(at) for at in range(len(self.space.views))]
        return [
            replace(each, dim_order=(*each.dim_order, *sorted(self.fillers - set(each.dim_order))))
            for each in made
        ]

    def _geometry(self, at: int) -> Geometry:
        """Orders the dims of an operand by stride; what lies between them becomes a gap, in device memory."""
        view, present = self.space.views[at], self.space.present[at]
        order: list[str] = []
        gap: dict[str, int] = {}
        scale = {label: 1 if dim in present else -1 for dim, label in enumerate(self.labels)}
        stick = self._stick_label(view, present, scale)
        strides = self._strides(at)
        axes = sorted(view.axes, key=lambda axis: (strides[axis.dim], axis.stride))
        without_axis = {dim for dim in present if view.axis_of(dim) is None}
        stride = view.elements_per_stick
        if view.main_stick_dim is not None and view.main_stick_dim in without_axis:
            order.append(stick)  # within one stick: innermost
            without_axis.discard(view.main_stick_dim)
        for axis in axes:
            if at not in self.in_lx or at in self.parts:
                self._close_gap(at, order, gap, stride, strides[axis.dim])
            order.append(self.labels[axis.dim])
            stride = strides[axis.dim] * self._steps(at, axis.dim)
        order += [self.labels[dim] for dim in sorted(without_axis)]
        if stick not in order:
            order.append(stick)
        order += [label for dim, label in enumerate(self.labels) if dim not in present and label != stick]
        beside = {self.labels[axis.dim]: axis.size for axis in reversed(view.stick_axes)}
        beside.pop(stick, None)
        return Geometry(tuple(order), stick, scale, gap, beside)

    def _strides(self, at: int) -> dict[int, int]:
        """Elements from one position of a dim to the next, in device memory or of a part in LX.

        A dim of which a core has one position has none of its own there: it is behind all others.
        """
        view = self.space.views[at]
        if at not in self.parts:
            return {axis.dim: axis.stride for axis in view.axes}
        part, per_stick = self.parts[at], view.elements_per_stick
        several = [axis for axis in view.axes if self._steps(at, axis.dim) > 1]
        strides = {axis.dim: part.stride(axis.stride) * per_stick for axis in several}
        behind = max((stride * self._steps(at, dim) for dim, stride in strides.items()), default=per_stick)
        return {axis.dim: strides.get(axis.dim, behind) for axis in view.axes}

    def _steps(self, at: int, dim: int) -> int:
        """Positions of a dim that the design walks in memory: rows, or sticks for the stick dim."""
        view, extent = self.space.views[at], self.space.padded[dim]
        if at in self.parts:
            extent = min(self.shares[dim], extent)
        return extent // view.stick_elements(dim)

    def _close_gap(self, at: int, order: list[str], gap: dict[str, int], stride: int, wanted: int) -> None:
        """Makes the dims so far reach ``wanted`` elements, by a gap behind the last one."""
        if wanted == stride:
            return
        if not order:
            order.append(self._filler())
        last = order[-1]
        per_stick = 1
        if last in self.extra:
            base, extent = stride, 1
        else:
            dim = self.labels.index(last)
            per_stick = self.space.views[at].stick_elements(dim)
            extent = self._steps(at, dim)
            base = stride // extent
        if wanted % base or wanted < stride:
            raise CompileError(f"'{self.opcode}' cannot address an operand: stride {wanted} after {stride}")
        gap[last] = (wanted // base - extent) * per_stick

    def _filler(self) -> str:
        """A dim of size 1 whose only purpose is its gap."""
        label = next(label for label in _LABELS if label not in self.labels and label not in self.extra)
        self.extra[label] = 1
        self.fillers.add(label)
        return label

    def _stick_label(self, view: BufferView, present: frozenset[int], scale: dict[str, int]) -> str:
        """The label of the stick dim; a sparse operand has a stick with one valid lane."""
        if view.main_stick_dim is not None:
            return self.labels[view.main_stick_dim]
        for label in (_STICK, _SECOND_STICK):
            if label not in self.labels:
                self.extra[label] = max(self.extra.get(label, 1), view.elements_per_stick)
                scale[label] = -2
                return label
            if self.labels.index(label) not in present:
                scale[label] = -2
                return label
        raise CompileError(f"'{self.opcode}' has a sparse operand but no dim left for its stick")

    def _scales(self, geometry: Geometry) -> dict[str, int]:
        """A scale for each dim in the operand's order; labels that other operands added are not its dims."""
        return {label: geometry.scale.get(label, 1) for label in geometry.dim_order}

    def _held(self, at: int) -> Held | None:
        """What the cores hold of an operand, by label, where that is not what the division says."""
        if at not in self.held:
            return None
        labels = [self.labels[dim] for dim in sorted(self.space.present[at])]
        slices = dict(zip(labels, self.held[at].splits, strict=True))
        owners = self.held[at].owners
        return Held(
            slices, tuple(None if own is None else dict(zip(labels, own, strict=True)) for own in owners)
        )

    def _offset_bytes(self, at: int, slices: tuple[int, ...]) -> int:
        """Where a core's slice of an operand begins in the buffer, in LX in what the core has of it."""
        if at in self.parts:
            return self.parts[at].offset * device().stick_bytes
        if at in self.in_lx:
            return 0
        view = self.space.views[at]
        elements = view.offset
        for axis in view.axes:
            elements += slices[axis.dim] * self.shares[axis.dim] // axis.divisor * axis.stride
        return elements * ELEMENT_BYTES[view.dtype]

    # -- roles, masks, constants ----------------------------------------------------------------------

    def _roles(self, geometries: list[Geometry]) -> list[str]:
        """Which shared layout entry each operand uses; at most four differ."""
        if self.op.kind is Kind.MATMUL:
            return [INPUT, KERNEL, OUTPUT]
        if self.op.kind is Kind.GATHER:
            return [KERNEL_IDX, KERNEL, OUTPUT]
        keys = [
            (geometry.dim_order, geometry.stick_dim, view.elements_per_stick)
            for geometry, view in zip(geometries, self.space.views, strict=True)
        ]
        roles = {keys[-1]: OUTPUT}
        spare = iter((INPUT, KERNEL, KERNEL_IDX))
        for key in keys[:-1]:
            if key not in roles:
                role = next(spare, None)
                if role is None:
                    raise CompileError(f"'{self.opcode}' has operands in more than four layouts")
                roles[key] = role
        return [roles[key] for key in keys]

    def _masks(self, padding: dict[str, int]) -> dict[str, tuple[int, int]]:
        """First position and length of the padding that each mask covers."""
        for dim in self.masks:
            if self.labels[dim] not in padding:
                raise CompileError(f"'{self.opcode}' masks d{dim}, which has no padding")
        return {self.labels[dim]: (self.space.sizes[dim], padding[self.labels[dim]]) for dim in self.masks}

    def _constants(self, data_format: str) -> tuple[Constant, ...]:
        """The one value of all masks first, then those of the operation."""
        values = sorted(set(self.masks.values()))
        if len(values) > 1:
            raise CompileError(f"'{self.opcode}' has masks of {values}; a design has room for one value")
        made = [Constant("maskValue", data_format, constant_bits(value, data_format)) for value in values]
        for name in self.op.constants:
            value = self.constants[name]
            made.append(Constant(name, data_format, constant_bits(value, data_format)))
        return tuple(made)


def identity_of(design: Design) -> tuple:
    """What two designs of one file have in common: all but index and debug handle."""
    operands = [
        (
            each.role,
            each.data_format,
            each.memory,
            each.dim_order,
            each.stick_dim,
            *_items(each.beside),
            each.start,
            *_items(each.scale, each.gap),
            each.held and _held(each.held),
        )
        for each in design.operands
    ]
    facts = _items(design.sizes, design.slices, design.padding, design.masks)
    owners = _items(*design.core_slices)
    return (design.opcode, design.mask_constant, design.constants, *facts, owners, *operands)


def _held(held: Held) -> tuple:
    return _items(held.slices), tuple(None if own is None else _items(own) for own in held.core_slices)


def _items(*members: dict) -> tuple:
    return tuple(tuple(member.items()) for member in members)
