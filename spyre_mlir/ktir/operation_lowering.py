# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lowering of one execution of a design to KTIR: its operands as tensors, in the digits that they have in common.

The contents of scratchpads are tensors: the value of each LX buffer at a point of the program, and parts of it. A value
holds its whole buffer: the sticks of a core, one after the other, in any shape. If the sticks have one valid element
each, the value holds only these elements.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from spyre_mlir.bundle.context import Linear
from spyre_mlir.bundle.core_slices import finishing_cores, reduced_dims
from spyre_mlir.bundle.model import Buffer, Design, IdentityTable
from spyre_mlir.dialects.structured import shape_of
from spyre_mlir.errors import CompileError
from spyre_mlir.ktir import operand_tiles
from spyre_mlir.ktir.memory_tiles import MemoryTile, MemoryTiles
from spyre_mlir.ktir.tensor_builder import CoreValues, TensorBuilder
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.tensor_builders import extracted, inserted
from spyre_mlir.target.formats import constant_value
from spyre_mlir.target.ops import DEVICE_OPS, NEUTRAL, DeviceOp, Kind


@dataclass(frozen=True)
class LxTensorAccess:
    """The access of an operation to an LX buffer: a tile from ``offset`` elements on, of sticks of ``per_stick``."""

    name: str
    tile: operand_tiles.OperandTile
    element: str
    offset: int
    per_stick: int


@dataclass(frozen=True)
class _BufferSlice:
    """A part of a tensor of ``shape``: ``sizes`` positions from ``offsets`` on, by ``strides``."""

    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


class ScratchpadValues:
    """The tensors in buffers; ``elements`` is the number of elements of each, one per stick for sparse buffers."""

    def __init__(self, build: TensorBuilder, elements: dict[str, int], sparse: frozenset[str]) -> None:
        self.build, self.elements, self.sparse = build, elements, sparse
        self.values: dict[str, ir.Value] = {}

    def read(self, access: LxTensorAccess) -> ir.Value:
        """Return the part of a value that an operation reads."""
        value = self.values.get(access.name)
        if value is None:
            raise CompileError(f"'{access.name}' is read in LX before any operation writes it.")
        part = self._part(access)
        if part is None:
            return self.build.reshaped(value, access.tile.shape)
        whole = self.build.reshaped(value, part.shape)
        taken = extracted(whole, part.offsets, part.sizes, part.strides)
        return self.build.reshaped(taken, access.tile.shape)

    def write(self, access: LxTensorAccess, value: ir.Value) -> None:
        """Update a value with the part that an operation writes."""
        part = self._part(access)
        if part is not None:
            if any(stride > 1 for stride in part.strides):
                raise CompileError(
                    f"'{access.name}' is written in LX at positions that are not side by side."
                )
            whole = self.build.reshaped(self.initial(access.name, access.element), part.shape)
            value = inserted(self.build.reshaped(value, part.sizes), whole, part.offsets)
        self.values[access.name] = value

    def initial(self, name: str, element: str) -> ir.Value:
        """Return the value of a buffer; zeros if it does not have one yet."""
        if name in self.values:
            return self.values[name]
        return self.build.filled([self.elements[name]], element, 0)

    def is_slice(self, access: LxTensorAccess, writes: bool) -> bool:
        """Return whether the accessed elements are a slice of the tensor of the buffer."""
        try:
            part = self._part(access)
        except CompileError:
            return False
        return part is None or not writes or max(part.strides) == 1

    def is_whole(self, access: LxTensorAccess) -> bool:
        """Return whether an access covers all of the buffer, in memory order."""
        return self._part(access) is None

    def _part(self, access: LxTensorAccess) -> _BufferSlice | None:
        """Return the part of the buffer that an access covers; None for all of it."""
        unit = self._unit(access)
        if unit > 1 and access.tile.axes[-1].stride < unit and access.tile.shape[-1] > 1:
            raise CompileError(f"'{access.name}' is accessed as sticks of one element and of several.")
        axes = zip(access.tile.axes, access.tile.shape, strict=True)
        steps = [(max(axis.stride // unit, 1), count) for axis, count in axes if count > 1]
        total, offset = self.elements[access.name], access.offset // self._unit(access)
        dims: list[tuple[int, int, int, int]] = []
        rest = total
        for index, (stride, count) in enumerate(steps):
            # If the stride does not divide the rest, the unit is the extent of the inner axes, with strided positions.
            inner = steps[index + 1][0] * steps[index + 1][1] if index + 1 < len(steps) else 1
            part = stride if rest % stride == 0 else inner
            first, offset = divmod(offset, part)
            step = stride // part
            if rest % part or stride % part or first + (count - 1) * step >= rest // part:
                raise CompileError(
                    f"'{access.name}' is accessed in parts of LX that are not slices of a tensor."
                )
            dims.append((rest // part, first, count, step))
            rest = part
        if rest > 1:
            dims.append((rest, offset, 1, 1))
        shape, offsets, sizes, strides = zip(*dims, strict=True) if dims else ((1,), (0,), (1,), (1,))
        return None if math.prod(sizes) == total else _BufferSlice(shape, offsets, sizes, strides)

    def _unit(self, access: LxTensorAccess) -> int:
        return access.per_stick if access.name in self.sparse else 1


#: Bytes of the tiles of an operation, in f32, from which it runs in steps: half of LX.
LARGE_BYTES = 1 << 20
#: The number of bytes whose load takes as long as the overhead of a step.
_TRIP_BYTES = 1 << 15
_NUMBER_BYTES = 4

_ELEMENTWISE = (Kind.POINTWISE, Kind.CAST, Kind.RESTICKIFY)
_COMBINING = (Kind.REDUCE_STICK, Kind.REDUCE_OTHER, Kind.MATMUL)


@dataclass(frozen=True)
class OperationStep:
    """A step of an operation along a label: its positions, and the number of steps on each core."""

    digit: operand_tiles.TileDigit
    trips: dict[int, int]


Steps = tuple[OperationStep, ...]

#: Steps of designs, which many operations share.
_STEPS: IdentityTable[int, Steps] = IdentityTable()


def steps_of(design: Design) -> Steps:
    """Return the steps of a design, each nested in the previous ones; only the last may be along a reduced label."""
    steps = _STEPS.entries_of(design)
    if 0 not in steps:
        steps[0] = _best_steps(design)
    return steps[0]


def runs_in_loop(design: Design) -> bool:
    """Return whether a design runs in a loop: over steps, or over the positions of its windows."""
    return DEVICE_OPS[design.opcode].kind.slides or bool(steps_of(design))


def _best_steps(design: Design) -> Steps:
    kind, reduced = DEVICE_OPS[design.opcode].kind, reduced_dims(design)
    if kind not in (*_ELEMENTWISE, *_COMBINING):
        return ()
    tiles = [operand_tiles.operand_tile(design, k) for k in range(len(design.operands))]
    if _bytes([math.prod(tile.shape) for tile in tiles]) <= LARGE_BYTES:
        return ()
    # The labels along which the operation may be cut.
    *inputs, labels = ({axis.dim for axis in tile.axes} for tile in tiles)
    if kind in _COMBINING:
        # Cores that share sums wait for each other, but the number of steps may differ from core to core.
        if any(design.slices[label] > 1 for label in reduced):
            labels = set()
        labels |= set.intersection(*inputs) & reduced
    single = [step for label in sorted(labels) for step in _candidates(label, tiles)]
    best = min(((step,) for step in single), key=lambda steps: _cost(steps, tiles), default=())
    if not best or not _cost(best, tiles)[0]:
        return best
    outer = [step for step in single if step.digit.label not in reduced]
    pairs = ((one, other) for one in outer for other in single if one.digit.label != other.digit.label)
    return min((best, *pairs), key=lambda steps: _cost(steps, tiles))


def _bytes(elements: list[int]) -> int:
    """Return the bytes of tensors with these numbers of elements, plus one intermediate tensor, in f32."""
    return _NUMBER_BYTES * (sum(elements) + max(elements))


def _cost(steps: Steps, tiles: list[operand_tiles.OperandTile]) -> tuple:
    """Return the cost that the best steps minimise: first the bytes above the limit, then the bytes that take time."""
    elements, loaded = [], 0
    trips = math.prod(max(step.trips.values()) for step in steps)
    for tile in tiles:
        cuts = (max(step.trips.values()) for step in steps if tile.outer_axis(step.digit.label) is not None)
        part = math.prod(tile.shape) // math.prod(cuts)
        elements.append(part)
        loaded += part * trips if tile is not tiles[-1] else 0
    excess = max(_bytes(elements) - LARGE_BYTES, 0)
    return excess, _NUMBER_BYTES * loaded + _TRIP_BYTES * trips, [step.digit.label for step in steps]


def _candidates(label: str, tiles: list[operand_tiles.OperandTile]) -> Iterator[OperationStep]:
    """Yield the steps along a label that divide the part of every core, the longest first."""
    outer = [(tile, number) for tile in tiles if (number := tile.outer_axis(label)) is not None]
    weight = max(tile.axes[number].divisor for tile, number in outer)
    positions: dict[int, int] = {}
    for tile, number in outer:
        axis = tile.axes[number]
        for core, counts in tile.counts.items():
            elements = axis.divisor * counts[number]
            if elements % weight or positions.setdefault(core, elements // weight) != elements // weight:
                return
        if axis.divisor * tile.shape[number] != weight * max(positions.values()):
            return
    common = math.gcd(*positions.values())
    for count in range(common, 0, -1):
        trips = {core: number // count for core, number in positions.items()}
        if common % count == 0 and max(trips.values()) > 1:
            yield OperationStep(operand_tiles.TileDigit(label, weight, count), trips)


@dataclass(frozen=True)
class Tensor:
    """A tensor, and the digit of each of its dims."""

    value: ir.Value
    digits: tuple[operand_tiles.TileDigit, ...]


@dataclass
class ProgramState:
    """State that the operations of a function share: builders, memories, contents of scratchpads, enclosing loops.

    ``scratchpads`` is None if all buffers in LX are memory, at the addresses of the plan.
    """

    build: TensorBuilder
    cores: CoreValues
    memory: MemoryTiles
    scratchpads: ScratchpadValues | None
    loops: int = 0


class OperationLowering:
    """Builder of one execution: ``buffers`` are the buffers by operand, ``addresses`` by operand and core."""

    def __init__(
        self,
        state: ProgramState,
        design: Design,
        buffers: Sequence[Buffer],
        addresses: Sequence[tuple[Linear | None, ...]],
    ) -> None:
        self.state, self.design, self.buffers, self.addresses = state, design, buffers, addresses
        self.build = state.build
        self.op: DeviceOp = DEVICE_OPS[design.opcode]
        self.tiles = [operand_tiles.operand_tile(design, k) for k in range(len(design.operands))]
        self.shifts: list[dict[int, ir.Value]] = [{} for _ in self.tiles]
        self.starts: dict[str, ir.Value] = {}
        self.steps: Sequence[OperationStep] = steps_of(design)
        self.weights = operand_tiles.common_digits(tile.digits for tile in self.tiles)
        self.reduced = reduced_dims(design)
        self.elements = [element_of_format(design, k) for k in range(len(design.operands))]

    # -- operands -----------------------------------------------------------------------------------------------

    def digits(self, k: int) -> tuple[operand_tiles.TileDigit, ...]:
        """Return the digits of an operand, in memory order."""
        return operand_tiles.refined(self.tiles[k].digits, self.weights)

    def tensor(self, k: int) -> Tensor:
        """Load an operand, with the neutral number of the operation in its masked padding."""
        digits = self.digits(k)
        value = self.build.reshaped(self.loaded(k), operand_tiles.shape_of_digits(digits))
        return Tensor(self._masked(value, digits), digits)

    def loaded(self, k: int) -> ir.Value:
        """Load an operand without masks."""
        if self.is_tensor(k):
            assert self.state.scratchpads is not None
            return self.state.scratchpads.read(self.access(k))
        return self.state.memory.load(self.place(k))

    def store(self, result: Tensor) -> None:
        """Store the result, cast to its type."""
        k = len(self.tiles) - 1
        value = self.arranged(result, self.digits(k))
        value = self.build.reshaped(self.build.cast(value, self.elements[k]), self.tiles[k].shape)
        if self.is_tensor(k):
            assert self.state.scratchpads is not None
            self.state.scratchpads.write(self.access(k), value)
        else:
            self.state.memory.store(self.place(k), value)

    def is_tensor(self, k: int) -> bool:
        """Return whether an operand is in LX as a tensor and not as memory."""
        scratchpads = self.state.scratchpads
        return scratchpads is not None and self.buffers[k].name in scratchpads.elements

    def access(self, k: int) -> LxTensorAccess:
        """Return the access to a buffer in LX."""
        return buffer_access(self.design, k, self.buffers[k])

    def place(self, k: int) -> MemoryTile:
        """Return the memory tile of an operand, on all cores."""
        writes = k == len(self.tiles) - 1
        finishing = finishing_cores(self.design) if writes else None
        addresses = tuple(
            address if finishing is None or core in finishing else None
            for core, address in enumerate(self.addresses[k])
        )
        is_local = self.design.operands[k].memory == "lx"
        shape = operand_tiles.operand_tile(self.design, k).shape
        return MemoryTile(self.tiles[k], self.elements[k], addresses, shape, is_local, self.shifts[k])

    # -- steps --------------------------------------------------------------------------------------------------

    def at(self, steps: Mapping[operand_tiles.TileDigit, ir.Value]) -> OperationLowering:
        """Return the lowering of one step along each digit, given the index of the step; operands are in memory."""

        def multiple(number: ir.Value, factor: int) -> ir.Value:
            key = number, factor
            return self.state.memory.once("multiple", key, lambda: self.build.times(number, factor))

        part = copy.copy(self)
        part.tiles, part.shifts, part.starts = [], [], dict(self.starts)
        for tile, shifts in zip(self.tiles, self.shifts, strict=True):
            cuts = {axis: (count, steps[step]) for step in steps for axis, count in tile.cuts(step).items()}
            part.tiles.append(tile.narrowed({axis: count for axis, (count, _) in cuts.items()}))
            new = {axis: multiple(number, count) for axis, (count, number) in cuts.items()}
            part.shifts.append({**shifts, **new})
        for step, number in steps.items():
            part.starts[step.label] = multiple(number, step.weight * step.count)
        return part

    def loop(
        self,
        body: Callable[[OperationLowering, ir.Value | None], ir.Value | None],
        initial: ir.Value | None = None,
    ) -> ir.Value | None:
        """Build a loop over the first of the steps: ``body`` gets the lowering of each step, and the iter_arg."""
        step, *rest = self.steps
        trips = [step.trips.get(core, 0) for core in range(self.state.cores.cores)]

        def iteration(number: ir.Value, carried: ir.Value | None) -> ir.Value | None:
            part = self.at({step.digit: number})
            part.steps = rest
            return body(part, carried)

        return self.state.memory.counted_loop(self.state.cores.value(trips), initial, iteration)

    # -- digits -------------------------------------------------------------------------------------------------

    def arranged(self, tensor: Tensor, digits: Sequence[operand_tiles.TileDigit]) -> ir.Value:
        """Return a tensor with its dims in the order of ``digits``, repeated along the digits that the tensor lacks."""
        tensor = self._without(tensor, digits)
        where = {(digit.label, digit.weight): dim for dim, digit in enumerate(tensor.digits)}
        kept = [digit for digit in digits if (digit.label, digit.weight) in where]
        value = tensor.value
        if kept and any(
            tensor.digits[where[digit.label, digit.weight]].count != digit.count for digit in kept
        ):
            raise CompileError(f"The operands of '{self.design.opcode}' differ in the positions of a dim.")
        if len(kept) > 1:
            value = self.build.transposed(value, [where[digit.label, digit.weight] for digit in kept])
        if len(kept) == len(digits):
            return value
        if not kept:
            value = self.build.reshaped(value, (1,) * len(digits)) if len(digits) > 1 else value
            value = extracted(value, [0] * len(digits), [1] * len(digits), [1] * len(digits), ())
        new = [dim for dim, digit in enumerate(digits) if digit not in kept]
        return self.build.broadcast(value, operand_tiles.shape_of_digits(digits), new)

    def _without(self, tensor: Tensor, digits: Sequence[operand_tiles.TileDigit]) -> Tensor:
        """Return the first position of each dim that ``digits`` lack; all other positions of the dim are padding."""
        wanted = {(digit.label, digit.weight) for digit in digits}
        extra = [digit for digit in tensor.digits if (digit.label, digit.weight) not in wanted]
        if not extra:
            return tensor
        for digit in extra:
            size = self.design.sizes[digit.label] - self.design.padding.get(digit.label, 0)
            if size != 1:
                raise CompileError(
                    f"'{self.design.opcode}' leaves out dim '{digit.label}' of {size} positions."
                )
        sizes = [1 if digit in extra else digit.count for digit in tensor.digits]
        kept = tuple(digit for digit in tensor.digits if digit not in extra)
        value = extracted(tensor.value, [0] * len(sizes), sizes, [1] * len(sizes))
        return Tensor(self.build.reshaped(value, operand_tiles.shape_of_digits(kept)), kept)

    # -- masks --------------------------------------------------------------------------------------------------

    @functools.cached_property
    def neutral(self) -> float:
        """The number that masked padding reads as."""
        if self.design.opcode in NEUTRAL:
            return NEUTRAL[self.design.opcode]
        constant = self.design.constants[self.design.mask_constant]
        return constant_value(constant.bits, constant.data_format)

    def _masked(self, value: ir.Value, digits: Sequence[operand_tiles.TileDigit]) -> ir.Value:
        design = self.design
        limits = {label: start for label, (start, _) in design.masks.items()}
        for label in self.reduced if self.op.kind.combines else ():
            if design.sizes[label] % design.shares[label]:
                limits.setdefault(label, design.sizes[label])
        limits = {
            label: limits[label] for label in {digit.label: None for digit in digits} if label in limits
        }
        ends = {label: self.build.number(limit) for label, limit in limits.items()}
        return self.bounded(value, digits, ends, {label: self._first(label) for label in limits})

    def bounded(
        self,
        value: ir.Value,
        digits: Sequence[operand_tiles.TileDigit],
        ends: Mapping[str, ir.Value],
        firsts: Mapping[str, ir.Value | None],
    ) -> ir.Value:
        """Return a tensor whose elements at label positions from ``ends`` on, counted from ``firsts``, are neutral."""
        if not ends:
            return value
        build, element = self.build, str(ir.RankedTensorType(value.type).element_type)
        fill = build.scalar(self.neutral, element)
        factors = {digit.weight: build.number(digit.weight) for digit in digits if digit.label in ends}

        def body(args: Sequence[ir.Value], index: Callable[[int], ir.Value]) -> ir.Value:
            number = args[0]
            for label, end in ends.items():
                position = firsts[label]
                for dim, digit in enumerate(digits):
                    if digit.label == label:
                        step = index(dim)
                        if digit.weight > 1:
                            step = build.op("arith.muli", build.index, step, factors[digit.weight])
                        position = step if position is None else build.add(step, position)
                assert position is not None
                is_valid = build.compare(_LESS, position, end)
                number = build.op("arith.select", number.type, is_valid, number, fill)
            return number

        return build.generic([value], build.empty(shape_of(value), element), body)

    def _first(self, label: str) -> ir.Value | None:
        """Return this core's first position of a label; None for 0."""
        firsts = [slices[label] * self.design.shares[label] for slices in self.design.core_slices]
        firsts += [0] * (self.state.cores.cores - len(firsts))
        first, start = self.state.cores.value(firsts) if any(firsts) else None, self.starts.get(label)
        return start if first is None else first if start is None else self.build.add(first, start)


_LESS = 2


def element_of_format(design: Design, k: int) -> str:
    """Return the element type of an operand; ``CompileError`` for a format that KTIR does not support."""
    name = design.operands[k].data_format
    if name not in operand_tiles.ELEMENTS:
        raise CompileError(f"KTIR has no numbers of the format {name}, which '{design.opcode}' has.")
    return operand_tiles.ELEMENTS[name]


def buffer_access(design: Design, k: int, buffer: Buffer) -> LxTensorAccess:
    """Return the access of operand ``k`` to its buffer in LX."""
    operand = design.operands[k]
    element = element_of_format(design, k)
    size = design.target.stick_bytes // operand.elements_per_stick
    # The address is the same on all cores.
    begin = operand.start[0]
    return LxTensorAccess(
        buffer.name,
        operand_tiles.operand_tile(design, k),
        element,
        (begin - buffer.offset) // size,
        operand.elements_per_stick,
    )
