# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conversion of one divided, placed operation to a SuperDSC design: labels, sizes, slices, operands, masks. No IR."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace

from spyre_mlir.bundle import model
from spyre_mlir.division import Division
from spyre_mlir.division.ownership import Subview
from spyre_mlir.division.relayout import Relayout
from spyre_mlir.errors import CompileError
from spyre_mlir.layout import BufferView
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.stick_layout import ELEMENT_BYTES
from spyre_mlir.records import dataclass
from spyre_mlir.target.element_types import DATA_FORMATS
from spyre_mlir.target.formats import constant_bits
from spyre_mlir.target.ops import DEVICE_OPS, Kind

#: The constant that masked elements read as, under the name that the device's kernels use.
MASK_VALUE = "samv-maskvalue"


#: The bytes by which an address moves per unit of each run-time size, by the name of the size.
Slopes = tuple[tuple[str, int], ...]


class DesignBuilder:
    """Builder of the design of one operation, from its space and division.

    ``masks`` maps an iteration dim to the number that its padding reads as. ``in_lx`` are the indices of operands in
    LX; ``parts`` has the subviews of operands that are a part of a core's buffer in LX. A shuffle has a ``relayout``,
    whose distributions are the slices of its operands. Cores may receive copies of the same part; no dim counts copies.
    """

    def __init__(
        self,
        opcode: str,
        space: Space,
        division: Division,
        constants: Mapping[str, float],
        masks: Mapping[int, float],
        in_lx: Collection[int] = (),
        relayout: Relayout | None = None,
        parts: Mapping[int, Subview] | None = None,
    ) -> None:
        if relayout is not None:
            # A shuffle's space without the dim of copies, and the result's slices; the first for cores
            # without one.
            rank = len(relayout.units)
            # The dim of copies is the last dim, and it is not present in any operand.
            views = tuple(replace(view, shape=view.shape[:rank]) for view in space.views)
            owners = tuple(slices or (0,) * rank for slices in relayout.target.owners)
            symbolic = tuple((dim, size) for dim, size in space.symbolic if dim < rank)
            result = Space(space.sizes[:rank], views, space.present, halos=space.halos, symbolic=symbolic)
            space, division = result, Division(relayout.target.splits, owners)
        self.opcode = opcode
        self.op = DEVICE_OPS[opcode]
        self.space = space
        self.division = division
        self.constants = constants
        self.masks = masks
        self.in_lx = in_lx
        self.parts = parts or {}
        self.distributions = () if relayout is None else (relayout.source, relayout.target)
        self.shares = division.slice_elements(space.units, space.granules)
        self.labels = labels_of(opcode, space)
        self.geometry = GeometryBuilder(opcode, space, self.labels, self.shares, self.in_lx, self.parts)

    def build(
        self, index: int, starts: Callable[[int, int, int], int], debug: model.DebugHandle | None
    ) -> model.Design:
        """Return the design; ``starts(operand, core, byte offset in the buffer)`` is the symbol, or the LX address."""
        space, labels, op = self.space, self.labels, self.op
        # Geometries come first because they add labels, which all other fields need.
        geometries = self.geometry.geometries()
        extra = self.geometry.extra
        operands = self._operands(geometries, starts)
        padding = {
            label: extent - size
            for label, extent, size in zip(labels, space.padded, space.sizes, strict=True)
            if extent > size
        }
        for dim in self.masks:
            if labels[dim] not in padding:
                raise CompileError(f"'{self.opcode}' masks d{dim}, which has no padding")
        self._check_symbolic({dim for dim, label in enumerate(labels) if label in padding})
        masked = sorted(set(self.masks.values()))
        if len(masked) > 1:
            raise CompileError(f"'{self.opcode}' has masks of {masked}; a design has one mask value")
        # The mask value follows the constants of the operation.
        constants = [(name, self.constants[name]) for name in op.constants]
        constants += [(MASK_VALUE, value) for value in masked]
        data_format = operands[0].data_format
        return model.Design(
            index=index,
            opcode=self.opcode,
            unit=op.unit,
            data_format=operands[op.first_data].data_format,
            sizes=dict(zip(labels, space.padded, strict=True)) | extra,
            slices=dict(zip(labels, self.division.splits, strict=True)) | dict.fromkeys(extra, 1),
            shares=dict(zip(labels, self.shares, strict=True)) | extra,
            core_slices=tuple(
                dict(zip(labels, owner, strict=True)) | dict.fromkeys(extra, 0)
                for owner in self.division.owners
            ),
            operands=operands,
            padding=padding,
            masks={labels[dim]: (space.sizes[dim], padding[labels[dim]]) for dim in self.masks},
            mask_constant=len(op.constants) if self.masks else -1,
            constants=tuple(
                model.Constant(name, data_format, constant_bits(value, data_format))
                for name, value in constants
            ),
            debug=debug,
            symbolic={
                labels[dim]: model.SymbolicSize(0, size.step, size.tag) for dim, size in space.symbolic
            },
        )

    # -- run-time sizes: each slice is the same fraction of its dim, at addresses linear in the size ---

    def _check_symbolic(self, padding: Collection[int]) -> None:
        """Raise ``CompileError`` unless slices are equal and symbolic dims have no windows and no ``padding``."""
        space = self.space
        slid = {dim for operand in range(len(space.views)) for dim, _ in space.slid(operand)}
        for dim, size in space.symbolic:
            held = (held.splits[dim] for held in self.distributions if dim < len(held.splits))
            unequal = any(space.units[dim] % split for split in (self.division.splits[dim], *held))
            if dim in padding or dim in slid or unequal:
                raise CompileError(
                    f"'{self.opcode}' has padding, windows or unequal slices along d{dim}, which follows the run-time "
                    f"size '{size.name}'"
                )

    def slopes(self) -> list[list[Slopes]]:
        """Return the slopes of the start of each operand on each core; none for operands in LX."""
        return [
            [
                () if operand in self.in_lx else self._slopes(operand, slices)
                for slices in self.division.owners
            ]
            for operand in range(len(self.space.views))
        ]

    def _slopes(self, operand: int, slices: tuple[int, ...]) -> Slopes:
        """Return the slopes of the start of a slice in device memory."""
        view, slopes = self.space.footprint(operand), dict[str, int]()
        for dim, size in self.space.symbolic:
            axes = [axis for axis in view.axes if axis.dim == dim]
            first = slices[dim] * self.shares[dim]
            if not first or not axes:
                continue
            # The offset at the largest size. At other sizes the offset is proportional to the size.
            at_largest = first // axes[0].divisor * axes[0].stride * ELEMENT_BYTES[view.dtype]
            slope, remainder = divmod(at_largest, size.max_value)
            if len(axes) > 1 or remainder:
                raise CompileError(
                    f"'{self.opcode}' cannot address slices of d{dim}, which follows the run-time size '{size.name}'"
                )
            slopes[size.name] = slopes.get(size.name, 0) + slope
        return tuple(sorted(slopes.items()))

    # -- operands -------------------------------------------------------------------------------------

    def _windows(self, operand: int) -> dict[str, model.WindowDim]:
        """Return the windows that slide over an operand, keyed by the label of the dim that each slides along."""
        return {
            self.labels[window.output]: model.WindowDim(
                window.extent,
                window.stride,
                window.dilation,
                window.before,
                window.size,
                self.labels[window.kernel],
            )
            for window in (self.space.windows if operand == 0 else ())
        } | {
            # A halo is a window with stride 1 whose positions are not an iteration dim.
            self.labels[dim]: model.WindowDim(halo.extent, 1, 1, halo.before, halo.size, "")
            for dim, halo in (self.space.halos if operand else ())
        }

    def _operands(
        self, geometries: list[Geometry], starts: Callable[[int, int, int], int]
    ) -> tuple[model.Operand, ...]:
        roles, cores = self._roles(geometries), self.division.owners
        return tuple(
            model.Operand(
                role=roles[operand],
                data_format=DATA_FORMATS[view.dtype],
                memory="lx" if operand in self.in_lx else "hbm",
                dim_order=geometry.dim_order,
                stick_dim=geometry.stick_dim,
                stick_elements=view.elements_per_stick // math.prod(geometry.other_elements.values()),
                # Without the labels that other operands added.
                scale={label: geometry.scale.get(label, 1) for label in geometry.dim_order},
                start=tuple(
                    starts(operand, core, self._offset_bytes(operand, cores[core]))
                    for core in range(len(cores))
                ),
                gap=geometry.gap,
                held=self._held(operand),
                other_elements=geometry.other_elements,
                windows=self._windows(operand),
            )
            for operand, (view, geometry) in enumerate(zip(self.space.views, geometries, strict=True))
        )

    def _held(self, operand: int) -> model.HeldSlices | None:
        """Return the slices of an operand that each core holds, by label, if they differ from the division."""
        if not self.distributions:
            return None
        labels = [self.labels[dim] for dim in sorted(self.space.present[operand])]
        slices = dict(zip(labels, self.distributions[operand].splits, strict=True))
        owners = self.distributions[operand].owners
        return model.HeldSlices(
            slices,
            tuple(None if owner is None else dict(zip(labels, owner, strict=True)) for owner in owners),
        )

    def _offset_bytes(self, operand: int, slices: tuple[int, ...]) -> int:
        """Return the byte offset of a core's slice of an operand in the buffer, or in the core's part of it in LX."""
        if operand in self.parts:
            return self.parts[operand].offset * self.space.target.stick_bytes
        if operand in self.in_lx:
            return 0
        view = self.space.footprint(operand)
        elements = view.offset
        first = [index * share for index, share in zip(slices, self.shares, strict=True)]
        for window in self.space.windows if operand == 0 else ():
            first[window.output] = window.accessed(first[window.output], 1)[0]
        for axis in view.axes:
            elements += first[axis.dim] // axis.divisor * axis.stride
        return elements * ELEMENT_BYTES[view.dtype]

    def _roles(self, geometries: list[Geometry]) -> list[str]:
        """Return the shared layout entry that each operand uses; a design has at most four entries."""
        if self.op.kind.on_array:
            return [model.INPUT, model.KERNEL, model.OUTPUT]
        if self.op.kind is Kind.GATHER:
            return [model.KERNEL_IDX, model.KERNEL, model.OUTPUT]
        keys = [
            (frozenset(geometry.dim_order), geometry.stick_dim, view.elements_per_stick)
            for geometry, view in zip(geometries, self.space.views, strict=True)
        ]
        # Roles are assigned in torch-spyre's order. The names have no meaning here; only the order of first use counts.
        spare, roles = iter((model.OUTPUT, model.KERNEL, model.INPUT, model.KERNEL_IDX)), {}
        for key in keys:
            if key not in roles:
                role = next(spare, None)
                if role is None:
                    raise CompileError(f"'{self.opcode}' has operands in more than four layouts")
                roles[key] = role
        return [roles[key] for key in keys]


@functools.lru_cache(maxsize=1 << 10)
def design_template(
    opcode: str,
    space: Space,
    division: Division,
    constants: tuple[tuple[str, float], ...],
    masks: tuple[tuple[int, float], ...],
    in_lx: tuple[int, ...],
    relayout: Relayout | None,
    parts: tuple[tuple[int, Subview], ...],
) -> tuple[model.Design, tuple, list[list[Slopes]]]:
    """Return a design whose starts are byte offsets in buffers, its key, and the slopes of the starts.

    Layers of a model share templates: designs with equal keys and starts differ only in index and debug handle. Slopes
    are the bytes by which a start moves with each run-time size; the offsets are for the largest sizes.
    """
    builder = DesignBuilder(
        opcode, space, division, dict(constants), dict(masks), in_lx, relayout, dict(parts)
    )
    design = builder.build(0, lambda operand, core, offset: offset, None)
    return design, _key(design), builder.slopes() if space.symbolic else []


def _key(design: model.Design) -> tuple:
    def held(slices: model.HeldSlices) -> tuple:
        owners = tuple(None if owner is None else _items(owner) for owner in slices.core_slices)
        return _items(slices.slices), owners

    operands = [
        (
            operand.role,
            operand.data_format,
            operand.memory,
            operand.dim_order,
            operand.stick_dim,
            *_items(operand.other_elements),
            *_items(operand.scale, operand.gap),
            operand.held and held(operand.held),
            *_items(operand.windows),
        )
        for operand in design.operands
    ]
    facts = _items(design.sizes, design.slices, design.padding, design.masks, design.symbolic)
    owners = _items(*design.core_slices)
    return (design.opcode, design.mask_constant, design.constants, *facts, owners, *operands)


def _items(*members: dict) -> tuple:
    return tuple(tuple(member.items()) for member in members)


# The operands of a design in terms of its labels: order of dims, stick, scales and gaps. No IR.
#
# An operand in device memory is a part of the whole tensor, whose strides are described by dims and gaps. An operand in
# LX is the core's slice alone, with the same dims in the same order and without gaps; or it is a part of the core's
# buffer there, again with gaps.

SECOND_STICK = "in"


@dataclass(frozen=True)
class Geometry:
    """An operand in the labels of a design: dim order (innermost first), stick, scales, and gaps in elements.

    ``other_elements`` has the number of elements of each other dim in a stick, innermost first.
    """

    dim_order: tuple[str, ...]
    stick_dim: str
    scale: dict[str, int]
    gap: dict[str, int]
    other_elements: dict[str, int]


@dataclass
class GeometryBuilder:
    """Builder of the geometries of one operation's operands.

    ``shares`` are the positions of each dim per core, ``in_lx`` the operands in LX, ``parts`` the subviews of operands
    that are a part of a core's buffer in LX. After the geometries are built, ``extra`` has the sizes of the labels
    without an iteration dim: synthetic sticks and fillers.
    """

    opcode: str
    space: Space
    labels: tuple[str, ...]
    shares: Sequence[int]
    in_lx: Collection[int]
    parts: Mapping[int, Subview]
    extra: dict[str, int] = field(default_factory=dict)
    fillers: set[str] = field(default_factory=set)

    def geometries(self) -> list[Geometry]:
        """Return the geometries of all operands. A filler that one operand needs is a dim of size 1 in all operands."""
        geometries = [self._geometry(operand) for operand in range(len(self.space.views))]
        # The kernels of casts loop over rows, so a tensor that has only a stick dim gets a row dim.
        if DEVICE_OPS[self.opcode].kind is Kind.CAST and len({*self.labels, *self.extra}) == 1:
            self._filler()
        return [
            replace(
                geometry, dim_order=(*geometry.dim_order, *sorted(self.fillers - set(geometry.dim_order)))
            )
            for geometry in geometries
        ]

    def _geometry(self, operand: int) -> Geometry:
        """Return the geometry of an operand: dims ordered by stride, and gaps for the distances between dims."""
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
        # A dim within one stick has no axis, and it is the innermost dim.
        if view.main_stick_dim is not None and view.main_stick_dim in without_axis:
            order.append(stick)
            without_axis.discard(view.main_stick_dim)
        for axis in axes:
            # In LX a core's slice is dense, so it does not have gaps.
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
        """Return the dims that an operand lists, with a scale of -1, although it does not vary along them.

        The dims of a matmul, a convolution or a pooling are distinguished by the operands that list them, so absent
        dims are not listed there. Batch dims for which the rows of a matmul are repeated are an exception: only the dim
        of the columns may be listed by columns and result alone.
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
        """Return the stride of each dim in elements, in device memory or in a part of an LX buffer.

        In an LX part, a dim of which a core has a single position has no stride of its own: it is made outermost.
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
        """Return the positions of a dim that the design iterates over in memory: rows, or sticks for the stick dim."""
        view, extent = self.space.views[operand], self.space.accessed(operand, self.space.padded)[dim]
        if operand in self.parts:
            extent = min(self.space.accessed(operand, self.shares)[dim], extent)
        elif operand == 0:
            # The design has all positions of a dim that windows slide along, including positions that no window reads.
            extent = next((window.size for window in self.space.windows if window.output == dim), extent)
        return extent // view.stick_elements(dim)

    def _close_gap(
        self, operand: int, order: list[str], gap: dict[str, int], stride: int, expected: int
    ) -> None:
        """Extend the dims so far to ``expected`` elements by a gap after the last dim."""
        if expected == stride:
            return
        # A gap belongs to the dim before it, so an innermost gap needs a filler dim.
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
        """Add a dim of size 1 that only carries a gap, and return its label."""
        label = next(label for label in LABELS if label not in self.labels and label not in self.extra)
        self.extra[label] = 1
        self.fillers.add(label)
        return label

    def _stick_label(self, view: BufferView, present: frozenset[int], scale: dict[str, int]) -> str:
        """Return the label of the stick dim. The stick of a sparse operand has a single valid element."""
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


# Labels of the iteration dims of a design, by the kind of its operation.

#: The label of the stick of the output, and of most operands.
STICK = "out"
#: Labels of the dims that are not in a stick, in the order in which operations use them.
LABELS = ("mb", "x", "y", "i", "j", "x1", "r", "c", "ij", "rc", "kij", "sij")
#: Labels of the dims of a matmul except its columns ``out``, its innermost row ``mb`` and ``in``, innermost first.
MATMUL_LABELS = ("x", "y", "kj", "ki")
#: Labels of the dims that windows slide along, innermost first. The label of a window's own dim has the prefix k.
WINDOW_LABELS = ("j", "i")


def labels_of(opcode: str, space: Space) -> tuple[str, ...]:
    """Return the label of each dim; ``CompileError`` if there are more dims than labels."""
    kind = DEVICE_OPS[opcode].kind
    if kind.slides:
        return _window_labels(space)
    if kind is Kind.MATMUL:
        rows, columns, _ = space.present
        generated, outer = columns - rows - space.reduced, iter(MATMUL_LABELS)
        labels = {dim: "in" for dim in space.reduced} | {dim: "out" for dim in generated}
        # As in torch-spyre, the innermost row is mb, and the outer dims follow, whether they are rows or batch dims.
        row = max(rows - columns, default=None)
        if row is not None:
            labels[row] = "mb"
        for dim in reversed(range(len(space.sizes))):
            if dim not in labels:
                labels[dim] = next(outer)
        return tuple(labels[dim] for dim in range(len(space.sizes)))
    stick = _main_stick(space)
    spare = iter(LABELS)
    labels = []
    for dim in range(len(space.sizes)):
        label = STICK if dim == stick else next(spare, None)
        if label is None:
            raise CompileError(f"'{opcode}' iterates over more dims than a design has labels")
        labels.append(label)
    return tuple(labels)


def _window_labels(space: Space) -> tuple[str, ...]:
    """Return mb, i, j, out, in, ki, kj for the dims: the last window slides along j, and channels are in the sticks."""
    labels: dict[int, str] = {}
    for window, ending in zip(reversed(space.windows), WINDOW_LABELS, strict=False):
        labels[window.output], labels[window.kernel] = ending, f"k{ending}"
    stick, contracted = _main_stick(space), space.reduced - set(labels)
    labels |= dict.fromkeys(contracted, "in")
    if stick is not None:
        labels[stick] = STICK
    spare = iter(("mb", *WINDOW_LABELS, *LABELS))
    for dim in reversed(range(len(space.sizes))):
        if dim not in labels:
            labels[dim] = next(label for label in spare if label not in labels.values())
    return tuple(labels[dim] for dim in range(len(space.sizes)))


def _main_stick(space: Space) -> int | None:
    """Return the dim labelled ``out``: the stick dim of the output, or of the first input that has a stick dim."""
    views = (space.views[-1], *space.views)
    stick_dims = [view.main_stick_dim for view in views if view.main_stick_dim is not None]
    return stick_dims[0] if stick_dims else None
