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
    HeldSlices,
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
    """Builder of the design of one operation, from its space and division."""

    def __init__(
        self,
        opcode: str,
        space: Space,
        division: Division,
        constants: Mapping[str, float],
        masks: Mapping[int, float],
        in_lx: Collection[int] = (),
        distributions: Mapping[int, Distribution] | None = None,
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
        self.distributions = (
            distributions or {}
        )  # by operand: what the cores hold of it, in slices of the dims that it has
        units = shares_of(space.units, division.splits)
        granules = (extent // count for extent, count in zip(space.padded, space.units, strict=True))
        self.shares = [share * granule for share, granule in zip(units, granules, strict=True)]
        self.labels = self._labels()
        self.extra: dict[str, int] = {}  # labels without a dim: synthetic sticks and fillers, and their size
        self.fillers: set[str] = set()

    def build(self, index: int, starts: Callable[[int, int, int], int], debug: DebugHandle | None) -> Design:
        """Return the design; ``starts(operand, core, byte offset in the buffer)`` is the symbol, or the LX address."""
        space, padded = self.space, self.space.padded
        geometries = self._geometries()
        roles = self._roles(geometries)
        slices = {label: split for label, split in zip(self.labels, self.division.splits, strict=True)}
        shares = dict(zip(self.labels, self.shares, strict=True))
        cores = self.division.owners
        operands = tuple(
            Operand(
                role=roles[operand],
                data_format=DATA_FORMATS[view.dtype],
                memory="lx" if operand in self.in_lx else "hbm",
                dim_order=geometry.dim_order,
                stick_dim=geometry.stick_dim,
                stick_elements=view.elements_per_stick // math.prod(geometry.beside.values()),
                scale=self._scales(geometry),
                start=tuple(
                    starts(operand, core, self._offset_bytes(operand, cores[core]))
                    for core in range(len(cores))
                ),
                gap=geometry.gap,
                held=self._held(operand),
                beside=geometry.beside,
            )
            for operand, (view, geometry) in enumerate(zip(space.views, geometries, strict=True))
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
                {**dict(zip(self.labels, owner, strict=True)), **dict.fromkeys(self.extra, 0)}
                for owner in cores
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
        """Return the dim called ``out``: the stick of the output, or of the first input that has one."""
        views = (self.space.views[-1], *self.space.views)
        stick_dims = [view.main_stick_dim for view in views if view.main_stick_dim is not None]
        return stick_dims[0] if stick_dims else None

    def _matmul_labels(self) -> tuple[str, ...]:
        rows, columns, _ = self.space.present
        batch, row_labels = iter(("x", "y")), iter(("mb", "i"))
        labels = []
        for dim in range(len(self.space.sizes)):
            if dim in self.space.reduced:
                labels.append("in")
            elif dim in rows and dim in columns:
                labels.append(next(batch))
            else:
                labels.append(next(row_labels) if dim in rows else "out")
        return tuple(labels)

    # -- geometry -------------------------------------------------------------------------------------

    def _geometries(self) -> list[Geometry]:
        """Return the geometries of all operands; a filler of one is a dim of size 1 of all."""
        geometries = [self._geometry(operand) for operand in range(len(self.space.views))]
        return [
            replace(
                geometry, dim_order=(*geometry.dim_order, *sorted(self.fillers - set(geometry.dim_order)))
            )
            for geometry in geometries
        ]

    def _geometry(self, operand: int) -> Geometry:
        """Order the dims of an operand by stride; distances between them become gaps, in device memory."""
        view, present = self.space.views[operand], self.space.present[operand]
        order: list[str] = []
        gap: dict[str, int] = {}
        scale = {label: 1 if dim in present else -1 for dim, label in enumerate(self.labels)}
        stick = self._stick_label(view, present, scale)
        strides = self._strides(operand)
        axes = sorted(view.axes, key=lambda axis: (strides[axis.dim], axis.stride))
        without_axis = {dim for dim in present if view.axis_of(dim) is None}
        stride = view.elements_per_stick
        if view.main_stick_dim is not None and view.main_stick_dim in without_axis:
            order.append(stick)  # within one stick: innermost
            without_axis.discard(view.main_stick_dim)
        for axis in axes:
            if operand not in self.in_lx or operand in self.parts:
                self._close_gap(operand, order, gap, stride, strides[axis.dim])
            order.append(self.labels[axis.dim])
            stride = strides[axis.dim] * self._steps(operand, axis.dim)
        order += [self.labels[dim] for dim in sorted(without_axis)]
        if stick not in order:
            order.append(stick)
        order += [label for dim, label in enumerate(self.labels) if dim not in present and label != stick]
        beside = {self.labels[axis.dim]: axis.size for axis in reversed(view.stick_axes)}
        beside.pop(stick, None)
        return Geometry(tuple(order), stick, scale, gap, beside)

    def _strides(self, operand: int) -> dict[int, int]:
        """Return the elements from one position of a dim to the next, in device memory or of a part in LX.

        A dim of which a core has one position has none of its own there: it is behind all others.
        """
        view = self.space.views[operand]
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
        view, extent = self.space.views[operand], self.space.padded[dim]
        if operand in self.parts:
            extent = min(self.shares[dim], extent)
        return extent // view.stick_elements(dim)

    def _close_gap(
        self, operand: int, order: list[str], gap: dict[str, int], stride: int, expected: int
    ) -> None:
        """Make the dims so far reach ``expected`` elements, by a gap behind the last one."""
        if expected == stride:
            return
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
        label = next(label for label in _LABELS if label not in self.labels and label not in self.extra)
        self.extra[label] = 1
        self.fillers.add(label)
        return label

    def _stick_label(self, view: BufferView, present: frozenset[int], scale: dict[str, int]) -> str:
        """Return the label of the stick dim; a sparse operand has a stick with one valid element."""
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
        """Return a scale for each dim in the operand's order; labels that other operands added are not its dims."""
        return {label: geometry.scale.get(label, 1) for label in geometry.dim_order}

    def _held(self, operand: int) -> HeldSlices | None:
        """Return the slices of an operand that each core holds, by label, where they are not those of the division."""
        if operand not in self.distributions:
            return None
        labels = [self.labels[dim] for dim in sorted(self.space.present[operand])]
        slices = dict(zip(labels, self.distributions[operand].splits, strict=True))
        owners = self.distributions[operand].owners
        return HeldSlices(
            slices,
            tuple(None if owner is None else dict(zip(labels, owner, strict=True)) for owner in owners),
        )

    def _offset_bytes(self, operand: int, slices: tuple[int, ...]) -> int:
        """Return the offset of a core's slice of an operand in its buffer, or in what the core holds of it in LX."""
        if operand in self.parts:
            return self.parts[operand].offset * device().stick_bytes
        if operand in self.in_lx:
            return 0
        view = self.space.views[operand]
        elements = view.offset
        for axis in view.axes:
            elements += slices[axis.dim] * self.shares[axis.dim] // axis.divisor * axis.stride
        return elements * ELEMENT_BYTES[view.dtype]

    # -- roles, masks, constants ----------------------------------------------------------------------

    def _roles(self, geometries: list[Geometry]) -> list[str]:
        """Return the shared layout entry that each operand uses; at most four differ."""
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
        """Return the first position and the length of the padding that each mask covers."""
        for dim in self.masks:
            if self.labels[dim] not in padding:
                raise CompileError(f"'{self.opcode}' masks d{dim}, which has no padding")
        return {self.labels[dim]: (self.space.sizes[dim], padding[self.labels[dim]]) for dim in self.masks}

    def _constants(self, data_format: str) -> tuple[Constant, ...]:
        """Return the one value of all masks first, then the constants of the operation."""
        values = sorted(set(self.masks.values()))
        if len(values) > 1:
            raise CompileError(f"'{self.opcode}' has masks of {values}; a design has room for one value")
        constants = [
            Constant("maskValue", data_format, constant_bits(value, data_format)) for value in values
        ]
        for name in self.op.constants:
            value = self.constants[name]
            constants.append(Constant(name, data_format, constant_bits(value, data_format)))
        return tuple(constants)


def identity_of(design: Design) -> tuple:
    """Return a key that designs share if one file serves both: all but index and debug handle."""
    operands = [
        (
            operand.role,
            operand.data_format,
            operand.memory,
            operand.dim_order,
            operand.stick_dim,
            *_items(operand.beside),
            operand.start,
            *_items(operand.scale, operand.gap),
            operand.held and _distribution_key(operand.held),
        )
        for operand in design.operands
    ]
    facts = _items(design.sizes, design.slices, design.padding, design.masks)
    owners = _items(*design.core_slices)
    return (design.opcode, design.mask_constant, design.constants, *facts, owners, *operands)


def _distribution_key(distribution: HeldSlices) -> tuple:
    return _items(distribution.slices), tuple(
        None if owner is None else _items(owner) for owner in distribution.core_slices
    )


def _items(*members: dict) -> tuple:
    return tuple(tuple(member.items()) for member in members)
