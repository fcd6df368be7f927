# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The relayouts of a Granite model, row by row: right to the byte, owned, priced, and on chip in programs of ours."""

from __future__ import annotations

import dataclasses
import math
import random
import sys
from pathlib import Path

import numpy as np
import pytest
from relayouts import SOURCE, moved
from simulator_programs import Program
from test_cost_ring import random_relayout

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.granite import INTER_TILE, RELAYOUTS, ModelRelayout, Pieces
from benchmarks.relayouts import PROGRAMS, compiled, residence, without_ring
from spyre_mlir.bundle.model import Design, HeldSlices
from spyre_mlir.bundle.validate import validate
from spyre_mlir.cost.ring_traffic import relayout_ns, relayout_traffic, transfers_of
from spyre_mlir.division.relayout import Distribution, Relayout
from spyre_mlir.simulator import run
from spyre_mlir.simulator.memory import AddressSpace
from spyre_mlir.target.target import packaged_target

TARGET = packaged_target()
STICK_BYTES = TARGET.stick_bytes
NAMES = [row.name for row in RELAYOUTS]

#: Pieces of the source, of the target, copies, sources that meet a piece of the target, from the "Granite LX relayout
#: inventory"; and the bytes that go from core to core where it has them.
PUBLISHED = {
    "P12": (16, 32, 1, 2, 3145728), "P09": (16, 8, 4, 2, 12582912), "P03": (32, 8, 4, 4, 12582912),
    "P04": (32, 8, 4, 4, 12582912), "P06": (32, 32, 1, 4, 3145728), "P01": (32, 1, 32, 32, 32505856),
    "P02": (32, 1, 32, 32, 32505856), "P13": (32, 1, 28, 32, 222208), "P05": (32, 8, 1, 4, 3145728),
    "P10": (8, 8, 4, 1, 196608), "P11": (8, 8, 4, 1, 196608), "P07": (16, 8, 4, 2, 393216),
    "P08": (32, 32, 1, 1, 983040), "P14": (32, 32, 1, 1, None), "P14, the row alone": (4, 32, 1, 1, 7936),
    "D1, x 32": (32, 1, 32, 32, None), "D1, x 28": (32, 1, 28, 32, None), "D1, x 25": (32, 1, 25, 32, None),
    "D1, x 16": (32, 1, 16, 32, None), "D2": (25, 1, 32, 25, None), "D3": (32, 8, 4, 4, None),
    "D4": (32, 16, 2, 4, None), "D5": (32, 16, 2, 32, None), "D6": (32, 32, 1, 2, None),
    "D7": (32, 1, 1, 32, 7936), "D8": (1, 1, 32, 1, 3968), "D9": (32, 8, 1, 4, 47616), "D10": (8, 8, 4, 1, 15872),
    "D11, x 32": (2, 1, 32, 2, 7936), "D11, x 8": (2, 1, 8, 2, 1792), "D12, 8 inputs": (32, 32, 1, 8, 1376256),
    "D12, 1 input": (32, 32, 1, 1, 1474560), "D13": (16, 1, 1, 16, 1920), "D14": (1, 32, 1, 1, 7936),
}  # fmt: skip


@pytest.fixture(params=RELAYOUTS, ids=NAMES)
def row(request) -> ModelRelayout:
    return request.param


@pytest.fixture(params=(*RELAYOUTS, *INTER_TILE), ids=[*NAMES, *(row.name for row in INTER_TILE)])
def transported(request) -> ModelRelayout:
    """A row of either list of relayouts."""
    return request.param


#: The operations of "Inter-tile communications in KTIR", section 9.3, and the number of relayouts of each.
DELIVERIES = {
    "I1": ("gather x, in, out", 3), "I2": ("gather in", 1), "I3": ("gather in", 6), "I4": ("gather mb", 15),
    "I5": ("gather mb", 3), "I6": ("all_to_all mb / out", 6), "I7": ("all_to_all x / mb", 3),
    "I8": ("all_to_all out / mb", 1), "I9": ("scatter y", 12), "I10": ("scatter out", 1), "I11": ("consume", 0),
}  # fmt: skip


def test_the_measured_relayouts_of_the_dialect_are_here():
    assert {row.name: (row.operation, row.count) for row in INTER_TILE} == DELIVERIES
    assert sum(row.count for row in INTER_TILE) == 51
    for row in INTER_TILE:
        sources = {
            sum(_meet(row, source, target) for source in _parts(row.source)) for target in _parts(row.target)
        }
        assert sources == {row.sources}


def test_every_row_of_the_list_is_here():
    assert NAMES == list(PUBLISHED) == list(PROGRAMS)


def test_a_row_has_the_pieces_of_the_list(row: ModelRelayout):
    """Each piece of the target meets the listed number of pieces of the source, by their common elements."""
    *counts, bytes_ = PUBLISHED[row.name]
    sources = {
        sum(_meet(row, source, target) for source in _parts(row.source)) for target in _parts(row.target)
    }
    assert [row.source.count, row.target.count, row.target.copies] == counts[:3]
    assert sources == {row.sources} == {counts[3]}
    if bytes_ is not None:
        assert relayout_traffic(row.relayout(TARGET)).moved_bytes == bytes_


def _parts(pieces: Pieces) -> list[dict[str, int]]:
    parts = {tuple(part.items()): part for part in pieces.owners() if part is not None}
    return list(parts.values())


def _meet(row: ModelRelayout, source: dict[str, int], target: dict[str, int]) -> bool:
    """Return whether two pieces have a common element."""

    def ends(pieces: Pieces, part: dict[str, int], label: str) -> tuple[int, int]:
        share = row.sizes[label] // pieces.slices.get(label, 1)
        return part.get(label, 0) * share, (part.get(label, 0) + 1) * share

    sides = (
        (ends(row.source, source, label), ends(row.target, target, label)) for label in (*source, *target)
    )
    return all(one[0] < other[1] and other[0] < one[1] for one, other in sides)


# -- transport ---------------------------------------------------------------------------------------------


def _label(row: ModelRelayout, label: str) -> str:
    """The name of a dim in a design, where the dim of the stick is ``out``."""
    if label == list(row.sizes)[-1]:
        return "out"
    return "x1" if label == "out" else label


def held(row: ModelRelayout, pieces: Pieces) -> HeldSlices:
    """A distribution over the dims of a design."""
    labels = [_label(row, label) for label in row.labels]

    def named(part: dict[str, int], rest: int) -> dict[str, int]:
        return dict.fromkeys(labels, rest) | {_label(row, label): index for label, index in part.items()}

    parts = (None if part is None else named(part, 0) for part in pieces.owners())
    return HeldSlices(named(pieces.slices, 1), tuple(parts))


def units_of(row: ModelRelayout) -> list[int]:
    """Rows of each dim, or sticks."""
    units = [row.sizes[label] for label in row.labels]
    return units if row.sparse else [*units[:-1], units[-1] // 64]


def shares_of(row: ModelRelayout, pieces: Pieces) -> list[int]:
    return [
        count // pieces.slices.get(label, 1) for count, label in zip(units_of(row), row.labels, strict=True)
    ]


def program_of(row: ModelRelayout) -> Program:
    """x in pieces on the first cores, from there to the sources of the row, to its targets, and back for z."""
    program, sizes = Program(), {_label(row, label): row.sizes[label] for label in row.labels}
    size = int(np.prod(shares_of(row, row.source))) * STICK_BYTES
    places = {"e": 0, "s": size, "t": 2 * size, "u": 0}
    program.tensor("x", sizes, kind="input")
    for name, address in places.items():
        program.tensor(name, sizes, lx=address)
    program.tensor("z", sizes, kind="result")
    source, target = (held(row, pieces) for pieces in (row.source, row.target))
    written = program.op("identity", "x", "e", splits=source.slices)
    plain = HeldSlices(
        source.slices, tuple({label: part[label] for label in sizes} for part in written.core_slices)
    )
    program.shuffle("e", "s", plain, source)
    program.shuffle("s", "t", source, target)
    program.shuffle("t", "u", target, plain)
    program.op("identity", "u", "z", splits=plain.slices)
    return program


def test_a_row_in_a_program(transported: ModelRelayout):
    """The bundle is valid, with the cores of the row; the result equals the input."""
    bundle = program_of(transported).bundle()
    assert validate(bundle) == []
    shape = [transported.sizes[label] for label in transported.labels]
    x = np.random.default_rng(7).standard_normal(shape).astype(np.float16)
    np.testing.assert_array_equal(run(bundle, {"x": x}).outputs["z"], x)


def piece_of(row: ModelRelayout, value: np.ndarray, pieces: Pieces, part: dict[str, int]) -> np.ndarray:
    """The sticks of a piece of ``value``, whose axes are the dims of the row and then the bytes of a stick."""
    index = []
    for label, share in zip(row.labels, shares_of(row, pieces), strict=True):
        index.append(slice(part.get(label, 0) * share, (part.get(label, 0) + 1) * share))
    return value[tuple(index)]


def image_of(design: Design, row: ModelRelayout, sticks: np.ndarray) -> np.ndarray:
    """The bytes of a piece in LX: its sticks one behind the other, the first dim of the operand innermost."""
    labels = [_label(row, label) for label in row.labels]
    order = [labels.index(dim) for dim in reversed(design.operands[0].dim_order) if dim in labels]
    return np.transpose(sticks, [*order, len(labels)]).ravel()


def test_a_row_is_right_to_the_byte(transported: ModelRelayout):
    """Each core has its piece of the target in LX, and all else as it was: by slices of the value in numpy."""
    design, rng = program_of(transported).designs["sdsc_2.json"], np.random.default_rng(11)
    value = rng.integers(0, 256, (*units_of(transported), STICK_BYTES), np.uint8)
    space, expected = AddressSpace(TARGET), {}
    start, end = (operand.start[0] for operand in design.operands)
    target_bytes = int(np.prod(shares_of(transported, transported.target))) * STICK_BYTES
    space.add_buffer("source", "lx", start, end - start)
    space.add_buffer("target", "lx", end, target_bytes)
    sources, targets, seen = (
        transported.source.owners(),
        transported.target.owners(),
        end + target_bytes + 4096,
    )
    seen = min(seen, space.lx(0).data.size)
    for core in range(design.cores):
        memory = space.lx(core)
        memory.data[:seen] = rng.integers(0, 256, seen, np.uint8)
        if core < len(sources) and (part := sources[core]) is not None:
            image = image_of(design, transported, piece_of(transported, value, transported.source, part))
            memory.data[start : start + len(image)] = image
            memory.shadow[start : start + len(image)].view(np.uint16)[:] = SOURCE
        expected[core] = memory.data[:seen].copy()
        if core < len(targets) and (part := targets[core]) is not None:
            image = image_of(design, transported, piece_of(transported, value, transported.target, part))
            expected[core][end : end + len(image)] = image
    bytes_ = moved(design, space)
    for core, data in expected.items():
        np.testing.assert_array_equal(space.lx(core).data[: len(data)], data)
    assert bytes_ == relayout_traffic(transported.relayout(TARGET)).moved_bytes


# -- transfers ---------------------------------------------------------------------------------------------


def sticks_in_lx(relayout: Relayout, distribution: Distribution) -> dict[int, np.ndarray]:
    """For each core the sticks that it has, by their place in LX; -1 where a smaller last slice leaves a gap."""
    numbers = np.arange(int(np.prod(relayout.units))).reshape(relayout.units)
    shares = [-(-count // split) for count, split in zip(relayout.units, distribution.splits, strict=True)]
    images = {}
    for core, part in enumerate(distribution.owners):
        if part is None:
            continue
        image = np.full(shares, -1)
        begins = [index * share for index, share in zip(part, shares, strict=True)]
        piece = numbers[tuple(slice(at, at + share) for at, share in zip(begins, shares, strict=True))]
        image[tuple(slice(0, count) for count in piece.shape)] = piece
        images[core] = np.transpose(image, relayout.order[::-1]).ravel()
    return images


def places(relayout: Relayout, distribution: Distribution, first: int, counts: np.ndarray) -> np.ndarray:
    """Return the addresses of the sticks of a transfer in LX on one side."""
    stride, strides = 1, dict[int, int]()
    for dim in relayout.order:
        strides[dim], stride = stride, stride * -(-relayout.units[dim] // distribution.splits[dim])
    positions = np.indices(tuple(map(int, counts))).reshape(len(counts), -1)
    return first + sum((positions[dim] * strides[dim] for dim in strides), np.zeros(positions.shape[1], int))


def check_transfers(relayout: Relayout) -> None:
    """Transfers in numpy: each target gets every stick of its piece once, and from a core that has it."""
    sources, wanted = (sticks_in_lx(relayout, part) for part in (relayout.source, relayout.target))
    results = {core: np.full_like(image, -1) for core, image in wanted.items()}
    transfers = transfers_of(relayout)
    for index, (source, target) in enumerate(zip(transfers.sources, transfers.targets, strict=True)):
        taken, put = (
            places(relayout, part, offsets[index], transfers.counts[index])
            for part, offsets in (
                (relayout.source, transfers.source_offsets),
                (relayout.target, transfers.target_offsets),
            )
        )
        assert (results[target][put] == -1).all()
        results[target][put] = sources[source][taken]
    for core, image in wanted.items():
        np.testing.assert_array_equal(results[core], image)


def test_the_transfers_of_a_row(transported: ModelRelayout):
    check_transfers(transported.relayout(TARGET))


@pytest.mark.parametrize("seed", range(150))
def test_transfers_of_random_distributions(seed: int):
    """Uneven slices, several dims at once, cores without a part, parts on several cores, any number of cores."""
    check_transfers(random_relayout(random.Random(seed)))


# -- prices ------------------------------------------------------------------------------------------------


def received_bytes(row: ModelRelayout) -> int:
    """Bytes that the core that gets most gets from others."""
    sources, targets, most = row.source.owners(), row.target.owners(), 0
    numbers = np.arange(int(np.prod(units_of(row)))).reshape((*units_of(row), 1))
    for core, part in enumerate(targets):
        if part is None:
            continue
        wanted = set(piece_of(row, numbers, row.target, part).ravel())
        here = sources[core] if core < len(sources) else None
        if here is not None:
            wanted -= set(piece_of(row, numbers, row.source, here).ravel())
        most = max(most, len(wanted))
    return most * STICK_BYTES


def test_a_row_takes_at_least_its_bytes_over_two_links(transported: ModelRelayout):
    """A core has two links, one to either side."""
    nanoseconds = relayout_ns(transported.relayout(TARGET))
    assert math.isfinite(nanoseconds) and nanoseconds > 0
    assert nanoseconds >= received_bytes(transported) / (2 * TARGET.ring.link_bytes_per_ns)


def test_more_bytes_are_never_cheaper(transported: ModelRelayout):
    """Each dim with two and four times as many."""
    for label in transported.labels:
        larger = (
            dataclasses.replace(
                transported, sizes={**transported.sizes, label: transported.sizes[label] * factor}
            )
            for factor in (1, 2, 4)
        )
        prices = [relayout_ns(each.relayout(TARGET)) for each in larger]
        assert prices == sorted(prices)


# -- programs ----------------------------------------------------------------------------------------------


#: Rows whose consumer may read device memory, where prices say so: reshaped values are cut along parts of a dim that no
#: relayout can name, and the value of P03 needs most of LX on each core.
MAY_BE_IN_MEMORY = ("P03", "P04", "D3")


def test_the_value_of_a_row_stays_on_chip(row: ModelRelayout):
    """A program of the row's shape keeps the value in LX, and takes no longer than through device memory."""
    program = PROGRAMS[row.name]
    result, apart = compiled(program), compiled(program, co_optimizing_lx_planning=False)
    reasons = residence(program, result).reasons
    assert not reasons or row.name in MAY_BE_IN_MEMORY, reasons
    assert validate(result.bundle) == []
    # The cost model does not distinguish times within one percent.
    assert result.timeline().total_ns <= 1.01 * min(apart.timeline().total_ns, without_ring(program))
