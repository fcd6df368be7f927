# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random relayouts, LX memories for them, and what becomes of these memories: stick by stick in plain Python."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from math import prod
from typing import TypeVar

import numpy as np

from spyre_mlir.bundle import rules_design, rules_structure
from spyre_mlir.bundle.model import INPUT, OUTPUT, Design, HeldSlices, Manifest, Operand
from spyre_mlir.simulator.machine import execute
from spyre_mlir.simulator.memory import FIRST_BUFFER, NOBODY, POISON, AddressSpace
from spyre_mlir.simulator.plan import make_plan
from spyre_mlir.simulator.ranges import RangeCheck
from spyre_mlir.simulator.run_outcome import ExecuteStatistics
from spyre_mlir.target.formats import FORMATS, Numerics
from spyre_mlir.target.target import packaged_target

STICK_BYTES, CORES = 128, 32
#: Bytes of each LX that the tests inspect; all buffers are inside.
LX_BYTES = 1 << 18

SOURCE, TARGET, OTHER = FIRST_BUFFER, FIRST_BUFFER + 1, FIRST_BUFFER + 2
Dim = TypeVar("Dim")
Stick = tuple[frozenset[tuple[str, int]], int]  # its position along each dim, and its address
Memories = dict[int, tuple[np.ndarray, np.ndarray]]  # of each core its bytes and, of two bytes each, its tags


_RULES = (
    rules_structure.dims_declared,
    rules_structure.operand_dims,
    rules_structure.core_mapping,
    rules_design.source_slices,
    rules_design.formats,
    rules_design.coverage,
    rules_design.whole_sticks,
    rules_design.stick_rules,
    rules_design.relayout,
    rules_design.disjoint,
)


def diagnostics(design: Design) -> list[str]:
    """Return the messages of the rules on one design."""
    return [sentence for rule in _RULES for sentence in rule(design)]


def _units(design: Design, dim: str) -> int:
    """Positions of a dim that stay together: sticks or rows."""
    operand = design.operands[0]
    if operand.scale[dim] != 1:
        return 1
    return design.sizes[dim] // (operand.stick_elements if dim == operand.stick_dim else 1)


def _split(rng: random.Random, units: int, most: int) -> int:
    """A number of slices with something in each."""
    return rng.choice([n for n in range(1, min(units, most) + 1) if (n - 1) * -(-units // n) < units])


def random_relayout(rng: random.Random) -> Design:
    """A shuffle of up to three dims and a stick, dense or sparse, on up to 32 cores."""
    form = rng.choice(("SEN169_FP16", "IEEE_FP32", "IEEE_INT32"))
    lanes, sparse = FORMATS[form].stick_elements(STICK_BYTES), rng.random() < 0.2
    valid = {dim: rng.randrange(1, 5) for dim in rng.sample(("mb", "x", "y"), rng.randrange(1, 4))}
    sizes = {dim: size + (rng.random() < 0.1) for dim, size in valid.items()}
    scale = dict.fromkeys(valid, 1) | {"out": -2 if sparse else 1}
    units = dict(sizes)
    sizes["out"] = lanes
    if not sparse:
        valid["out"] = rng.randrange(1, 5 * lanes)
        units["out"] = -(-valid["out"] // lanes)
        sizes["out"] = units["out"] * lanes
    held, result = (_random_held(rng, units, rng.randrange(1, CORES + 1)) for _ in range(2))
    cores = max(len(held.core_slices), len(result.core_slices))
    held, result = (_over(each, cores) for each in (held, result))
    slices = dict.fromkeys(sizes, 1) | result.slices
    shares = {
        dim: -(-units.get(dim, 1) // slices[dim]) * (size // units.get(dim, 1)) for dim, size in sizes.items()
    }
    bytes_ = STICK_BYTES * prod(-(-units[dim] // held.slices[dim]) for dim in units)
    low = rng.randrange(4) * STICK_BYTES
    operands = [
        Operand(
            role=role,
            data_format=form,
            memory="lx",
            dim_order=tuple(rng.sample([*scale], len(scale))),
            stick_dim="out",
            stick_elements=lanes,
            scale=scale,
            start=(start,) * cores,
            held=own,
        )
        for role, start, own in (
            (INPUT, low, held),
            (OUTPUT, low + bytes_ + rng.randrange(4) * STICK_BYTES, result),
        )
    ]
    return Design(
        index=0,
        opcode="shuffle",
        unit="sfp",
        data_format=form,
        sizes=sizes,
        slices=slices,
        shares=shares,
        core_slices=tuple(dict.fromkeys(sizes, 0) | (own or {}) for own in result.core_slices),
        operands=tuple(operands),
        padding={dim: sizes[dim] - size for dim, size in valid.items() if sizes[dim] > size},
    )


def splits_of(rng: random.Random, units: dict[Dim, int], room: int) -> dict[Dim, int]:
    """Return slices of each dim, none of them empty, for at most ``room`` cores."""
    splits = {}
    for dim in rng.sample([*units], len(units)):
        splits[dim] = _split(rng, units[dim], room)
        room //= splits[dim]
    return splits


def _combinations(splits: dict[str, int]) -> list[dict[str, int]]:
    return [dict(zip(splits, own, strict=True)) for own in itertools.product(*map(range, splits.values()))]


def _random_held(rng: random.Random, units: dict[str, int], cores: int) -> HeldSlices:
    """Each slice on one core at least; the others hold nothing or what another one holds too."""
    slices = splits_of(rng, units, cores)
    parts = _combinations(slices)
    held = [*parts, *(rng.choice([None, *parts]) for _ in range(cores - len(parts)))]
    rng.shuffle(held)
    return HeldSlices(slices, tuple(held))


def _over(held: HeldSlices, cores: int) -> HeldSlices:
    """Return a distribution over ``cores`` cores, of which the last ones hold nothing."""
    return HeldSlices(held.slices, held.core_slices + (None,) * (cores - len(held.core_slices)))


def sticks(design: Design, operand: Operand, slices: dict[str, int], own: dict[str, int]) -> Iterator[Stick]:
    """Each stick of the slices of a core: its position along the dims that vary, and its address."""
    dims = [dim for dim in operand.dim_order if operand.scale[dim] == 1]
    shares = {dim: -(-_units(design, dim) // slices[dim]) for dim in dims}
    ranges = [
        range(own[dim] * shares[dim], min((own[dim] + 1) * shares[dim], _units(design, dim))) for dim in dims
    ]
    for position in itertools.product(*ranges):
        number, stride = 0, 1
        for dim, at in zip(dims, position, strict=True):
            number += (at - own[dim] * shares[dim]) * stride
            stride *= shares[dim]
        yield frozenset(zip(dims, position, strict=True)), operand.start[0] + number * STICK_BYTES


def held_sticks(design: Design, core: int) -> list[Stick]:
    """The sticks of the source that a core holds."""
    held = design.operands[0].held
    assert held is not None
    own = held.core_slices[core]
    return [] if own is None else list(sticks(design, design.operands[0], held.slices, own))


def _valid_lanes(design: Design, stick: frozenset[tuple[str, int]]) -> int:
    """Return the number of leading elements of a stick that are not padding."""
    at, operand = dict(stick), design.operands[0]
    ends = {dim: design.sizes[dim] - design.padding.get(dim, 0) for dim in at}
    if any(at[dim] >= ends[dim] for dim in at if dim != operand.stick_dim):
        return 0
    if operand.stick_dim not in at:
        return 1
    lanes = operand.stick_elements
    return max(0, min(lanes, ends[operand.stick_dim] - at[operand.stick_dim] * lanes))


def memories(design: Design, rng: np.random.Generator) -> tuple[AddressSpace, Memories]:
    """LX of every core with random bits, the source in it, whose padding has random tags; a space and a copy."""
    space, before = AddressSpace(packaged_target()), {}
    source, target = design.operands
    space.add_buffer("source", "lx", source.start[0], LX_BYTES // 2 - source.start[0])
    space.add_buffer("target", "lx", target.start[0], LX_BYTES - target.start[0])
    for core in range(design.cores):
        memory = space.lx(core)
        memory.data[:LX_BYTES] = rng.integers(0, 256, LX_BYTES, np.uint8)
        tags = memory.shadow.view(np.uint16)
        tags[: LX_BYTES // 2] = rng.choice((NOBODY, POISON, SOURCE, OTHER), LX_BYTES // 2).astype(np.uint16)
        for stick, address in held_sticks(design, core):
            good = _valid_lanes(design, stick) * (STICK_BYTES // source.stick_elements)
            tags[address // 2 : (address + good) // 2] = SOURCE
        before[core] = memory.data[:LX_BYTES].copy(), tags[: LX_BYTES // 2].copy()
    return space, before


def moved(design: Design, space: AddressSpace) -> int:
    """Run the relayout; return the bytes that it reports for the ring."""
    statistics = ExecuteStatistics(0, design.filename, design.opcode, design.cores)
    regions = tuple(space.regions.values())
    plan = make_plan(design, tuple(region.name for region in regions))
    ranges = RangeCheck(Manifest((), (), ()), Numerics())
    for _ in execute(plan, regions, {}, space, Numerics(), statistics, ranges):
        pass
    assert (statistics.runs, statistics.read_bytes, statistics.write_bytes) == (1, 0, 0)
    return statistics.relayout_bytes


def oracle(design: Design, before: Memories) -> tuple[Memories, int]:
    """The memories after a relayout, and the bytes that cores got from others."""
    target = design.operands[1]
    after = {core: (data.copy(), tags.copy()) for core, (data, tags) in before.items()}
    places: dict[frozenset, list[tuple[int, int]]] = {}
    for core in range(design.cores):
        for stick, address in held_sticks(design, core):
            places.setdefault(stick, []).append((core, address))
    bytes_moved = 0
    assert target.held is not None
    for core, own in enumerate(target.held.core_slices):
        for stick, address in sticks(design, target, design.slices, own) if own is not None else ():
            hops = [(min((core - at) % CORES, (at - core) % CORES), at, place) for at, place in places[stick]]
            _, holder, place = min(hops)
            bytes_moved += STICK_BYTES * (holder != core)
            after[core][0][address : address + STICK_BYTES] = before[holder][0][place : place + STICK_BYTES]
            after[core][1][address // 2 : (address + STICK_BYTES) // 2] = _carried(
                before[holder][1][place // 2 : (place + STICK_BYTES) // 2],
                STICK_BYTES // target.stick_elements // 2,
            )
    return after, bytes_moved


def _carried(tags: np.ndarray, width: int) -> list[int]:
    """Return the tags of a stick at its target: sticks that are not wholly written through the source are poison."""
    carried = []
    for begin in range(0, len(tags), width):
        good = all(tag == SOURCE for tag in tags[begin : begin + width])
        carried += [TARGET if good else POISON] * width
    return carried
