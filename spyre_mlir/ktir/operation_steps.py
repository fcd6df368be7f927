# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of an operation whose tiles fill much of LX: the label along which it is cut, and the size of a step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import reduce

from spyre_mlir.bundle.core_slices import OperandAxis, reduced_dims
from spyre_mlir.bundle.identity_table import IdentityTable
from spyre_mlir.bundle.model import Design
from spyre_mlir.ktir.operand_tiles import OperandTile, operand_tile
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import DEVICE_OPS, Kind

#: Bytes of the tiles of an operation, in f32, from which it runs in steps: half of LX.
LARGE_BYTES = 1 << 20
#: The number of bytes whose load takes as long as the overhead of a step.
_TRIP_BYTES = 1 << 15
_NUMBER_BYTES = 4

_ELEMENTWISE = (Kind.POINTWISE, Kind.CAST, Kind.RESTICKIFY)
_COMBINING = (Kind.REDUCE_STICK, Kind.REDUCE_OTHER, Kind.MATMUL)


@dataclass(frozen=True)
class OperationStep:
    """``count`` positions of a label, ``weight`` elements apart; ``trips`` is the number of steps on each core."""

    label: str
    weight: int
    count: int
    trips: dict[int, int]


Steps = tuple[OperationStep, ...]

#: Steps of designs, which many operations share.
_STEPS: IdentityTable[int, Steps] = IdentityTable()


def steps_of(design: Design) -> Steps:
    """Return the steps of a design, each nested in the previous ones; only the last may be along a reduced label."""
    steps = _STEPS.entries_of(design)
    if 0 not in steps:
        steps[0] = _steps_of(design)
    return steps[0]


def runs_in_loop(design: Design) -> bool:
    """Return whether a design runs in a loop: over steps, or over the positions of its windows."""
    return DEVICE_OPS[design.opcode].kind.slides or bool(steps_of(design))


def _steps_of(design: Design) -> Steps:
    if DEVICE_OPS[design.opcode].kind not in (*_ELEMENTWISE, *_COMBINING):
        return ()
    tiles = [operand_tile(design, k) for k in range(len(design.operands))]
    if _bytes([math.prod(tile.shape) for tile in tiles]) <= LARGE_BYTES:
        return ()
    single = [step for label in _labels(design, tiles) for step in _candidates(label, tiles)]
    best = min(((step,) for step in single), key=lambda steps: _cost(steps, tiles), default=())
    if not best or not _cost(best, tiles)[0]:
        return best
    outer = [step for step in single if step.label not in reduced_dims(design)]
    pairs = ((one, other) for one in outer for other in single if one.label != other.label)
    return min((best, *pairs), key=lambda steps: _cost(steps, tiles))


def _bytes(elements: list[int]) -> int:
    """Return the bytes of tensors with these numbers of elements, plus one intermediate tensor, in f32."""
    return _NUMBER_BYTES * (sum(elements) + max(elements))


def _cost(steps: Steps, tiles: list[OperandTile]) -> tuple:
    """Return the cost that the best steps minimise: first the bytes above the limit, then the bytes that take time."""
    elements, loaded = [], 0
    trips = math.prod(max(step.trips.values()) for step in steps)
    for tile in tiles:
        cuts = (max(step.trips.values()) for step in steps if _outer_axis(tile, step.label) is not None)
        part = math.prod(tile.shape) // math.prod(cuts)
        elements.append(part)
        loaded += part * trips if tile is not tiles[-1] else 0
    excess = max(_bytes(elements) - LARGE_BYTES, 0)
    return excess, _NUMBER_BYTES * loaded + _TRIP_BYTES * trips, [step.label for step in steps]


def _labels(design: Design, tiles: list[OperandTile]) -> list[str]:
    """Return the labels along which an operation may be cut, in order."""
    *inputs, output = ({axis.dim for axis in tile.axes} for tile in tiles)
    reduced = reduced_dims(design)
    if DEVICE_OPS[design.opcode].kind in _ELEMENTWISE:
        return sorted(output)
    # Cores that share sums wait for each other, but the number of steps may differ from core to core.
    kept = set() if any(design.slices[label] > 1 for label in reduced) else output
    return sorted(kept | (set.intersection(*inputs) & reduced))


def _candidates(label: str, tiles: list[OperandTile]) -> Iterator[OperationStep]:
    """Yield the steps along a label that divide the part of every core, the longest first."""
    outer = [(tile, number) for tile in tiles if (number := _outer_axis(tile, label)) is not None]
    weight = max(tile.axes[number].weight for tile, number in outer)
    positions: dict[int, int] = {}
    for tile, number in outer:
        axis = tile.axes[number]
        for core, counts in tile.counts.items():
            elements = axis.weight * counts[number]
            if elements % weight or positions.setdefault(core, elements // weight) != elements // weight:
                return
        if axis.weight * axis.count != weight * max(positions.values()):
            return
    common = reduce(math.gcd, positions.values())
    for count in range(common, 0, -1):
        trips = {core: number // count for core, number in positions.items()}
        if common % count == 0 and max(trips.values()) > 1:
            yield OperationStep(label, weight, count, trips)


def _outer_axis(tile: OperandTile, label: str) -> int | None:
    """Return the index of the axis of a label with the largest weight; None if there is none."""
    axes = [number for number, axis in enumerate(tile.axes) if axis.dim == label]
    return max(axes, key=lambda number: tile.axes[number].weight, default=None)


def narrowed_axes(tile: OperandTile, label: str, weight: int, count: int) -> dict[int, int]:
    """Return the axes of a tile that a step cuts, each with its number of positions in the step."""
    number = _outer_axis(tile, label)
    if number is None or not _is_cut(tile.axes[number], weight * count):
        return {}
    return {number: weight * count // tile.axes[number].weight}


def _is_cut(axis: OperandAxis, elements: int) -> bool:
    return axis.weight * axis.count > elements
