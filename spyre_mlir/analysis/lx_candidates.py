"""Which buffers of a divided function may be in LX, and what bars the others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from spyre_mlir.analysis.buffer_uses import Access, Touched, Usage
from spyre_mlir.analysis.bundle_sequence import bundle_number
from spyre_mlir.analysis.core_ownership import (
    LEFT_APART,
    NO_HOLDER,
    SHUFFLE,
    Divided,
    Left,
    Pieces,
    left_by,
    takes_over,
    why_not_there,
)
from spyre_mlir.analysis.ping_pong import pairs_of, second_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.division.ownership import local_bytes
from spyre_mlir.division.traffic import hbm_bytes
from spyre_mlir.layout import ViewError
from spyre_mlir.mlir import ir
from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer
from spyre_mlir.scratchpad.eligibility import Barrier, Reason, ordered
from spyre_mlir.target.device import device
from spyre_mlir.target.ops import DEVICE_OPS


@dataclass(frozen=True)
class Rules:
    """``capacity`` in bytes per core; whether results may go in place; the only opcodes in LX, all if empty."""

    capacity: int
    in_place: bool
    opcodes: frozenset[str]


@dataclass(frozen=True)
class Candidate:
    """A buffer that an operation makes; ``reasons`` bar it from LX, none if it may be there.

    The planner counts with it the bytes that shuffles of it would load from device memory, ``relayed``: without
    their source in LX they cannot be. Of a ping-pong pair, ``root`` is one that is in the first of its buffers and
    ``paired`` are the others, each with whether it is in the second.
    """

    root: ir.Value
    buffer: LifetimeBoundBuffer
    reasons: tuple[Reason, ...]
    relayed: int = 0
    paired: tuple[tuple[ir.Value, bool], ...] = ()

    @property
    def saved(self) -> int:
        """Bytes of device memory that the program moves less with the buffer in LX."""
        return self.buffer.saving - self.relayed

    def addresses(self, address: int) -> dict[ir.Value, int]:
        """Where all that it stands for is, if the planner puts it at an address."""
        second = address + self.distance
        return {self.root: address, **{root: second if apart else address for root, apart in self.paired}}

    @property
    def distance(self) -> int:
        """Bytes from the first buffer of a pair to the second."""
        return second_at(self.buffer.size, device().lx_alignment_bytes)


@dataclass(frozen=True)
class Facts:
    """What follows for a buffer from the divisions of the operations that touch it.

    Traffic is that of its accesses, with the buffer in device memory and in LX, ``relayed`` that of shuffles which is
    part of the former; ``size`` is in bytes per core.
    """

    size: int
    reasons: tuple[Reason, ...]
    spilled_traffic: int
    placed_traffic: int
    relayed: int = 0


def candidates(usage: Usage, rules: Rules) -> list[Candidate]:
    """All buffers but those that the host fills, in the order in which they are first touched."""
    made = {root: touched for root, touched in usage.buffers.items() if not touched.given}
    return _with_pairs(
        candidates_of(usage, rules, {root: facts_of(made[root], usage, rules) for root in made})
    )


def _with_pairs(candidates: Sequence[Candidate]) -> list[Candidate]:
    """One candidate in the place of all that are in the two buffers of a pair."""
    by_root = {candidate.root: candidate for candidate in candidates}
    pairs = {
        members[0][0]: _pair([(by_root[root], second) for root, second in members])
        for members in pairs_of(by_root)
    }
    if not pairs:
        return list(candidates)
    inside = {root for pair in pairs.values() for root in pair.addresses(0)}
    names = {by_root[root].buffer.name for root in inside}
    return [
        pairs.get(root) or _without_parents(candidate, names)
        for root, candidate in by_root.items()
        if root in pairs or root not in inside
    ]


def _pair(members: Sequence[tuple[Candidate, bool]]) -> Candidate:
    """The buffers of a pair as the planner sees them: two copies, for all the time that one of them is needed."""
    first, candidates = members[0][0], [candidate for candidate, _ in members]
    buffers = [candidate.buffer for candidate in candidates]
    buffer = LifetimeBoundBuffer(
        first.buffer.name,
        max(buffer.size for buffer in buffers),
        sorted({use for buffer in buffers for use in buffer.uses}),
        first.buffer.first_use_is_read,
        copies=2,
        spilled_traffic=sum(buffer.traffic_if_spilled for buffer in buffers),
        placed_traffic=sum(buffer.traffic_if_placed for buffer in buffers),
    )
    reasons = ordered(reason for candidate in candidates for reason in candidate.reasons)
    relayed = sum(candidate.relayed for candidate in candidates)
    paired = tuple((candidate.root, second) for candidate, second in members[1:])
    return Candidate(first.root, buffer, reasons, relayed, paired)


def _without_parents(candidate: Candidate, names: Collection[str]) -> Candidate:
    """A candidate that takes the place of none of some buffers."""
    parents = tuple(name for name in candidate.buffer.in_place_parents if name not in names)
    return replace(candidate, buffer=replace(candidate.buffer, in_place_parents=parents))


def facts_of(touched: Touched, usage: Usage, rules: Rules) -> Facts:
    """Those of a buffer that operations make. Without it in LX, optional clones from it and to it are not there."""
    size = _local_bytes(touched)
    copies = (access.user for access in touched.accesses if access.optional and access.user.opcode != SHUFFLE)
    placed = sum(_other_side(copy, touched) for copy in copies)
    relayed = sum(
        access.hbm_bytes for access in touched.accesses if access.user.opcode == SHUFFLE and not access.writes
    )
    reasons = ordered(_reasons(touched, usage, rules, size))
    return Facts(size, reasons, touched.hbm_bytes + relayed, placed, relayed)


def candidates_of(usage: Usage, rules: Rules, facts: Mapping[ir.Value, Facts]) -> list[Candidate]:
    """The buffers of which facts are known, as the planner sees them."""
    names = {root: f"{number}" for number, root in enumerate(facts)}
    found = []
    for root, own in facts.items():
        life = usage.memory.lives[root]
        parents = usage.in_place(life.uses[0]) if rules.in_place and not own.reasons else []
        able = tuple(names[parent] for parent in parents if parent in facts and not facts[parent].reasons)
        buffer = LifetimeBoundBuffer(
            names[root],
            own.size,
            life.uses,
            life.first_use_is_read,
            able,
            spilled_traffic=own.spilled_traffic,
            placed_traffic=own.placed_traffic,
        )
        found.append(Candidate(root, buffer, own.reasons, own.relayed))
    return found


def _other_side(copy: Divided, touched: Touched) -> int:
    """What a clone from or to a buffer in LX moves."""
    operand = 0 if copy.values[-1] == touched.root else 1
    total, _ = hbm_bytes(copy.space, operand, copy.division)
    return total * copy.executions


def _local_bytes(touched: Touched) -> int:
    """Bytes per core: what the operation that writes most of the buffer leaves on each core, or its holder."""
    pieces = touched.pieces
    if pieces is not None and pieces.holder is not None:
        user, operand = pieces.holder
        return local_bytes(user.space, operand, user.division)
    return max(local_bytes(each.user.space, each.operand, each.user.division) for each in touched.writes)


def _reasons(touched: Touched, usage: Usage, rules: Rules, size: int) -> Iterator[Reason]:
    opcode = _opcode(touched, usage)
    if rules.opcodes and opcode not in rules.opcodes:
        yield Reason(Barrier.OPERATION, f"'{opcode}' is not among lx-ops")
    yield from barred(touched, usage)
    if size > rules.capacity:
        yield Reason(Barrier.TOO_LARGE, f"{size} bytes per core, LX has {rules.capacity}")


def _opcode(touched: Touched, usage: Usage) -> str:
    """The operation that makes what a buffer holds, be it on other cores by a shuffle."""
    maker = touched.writes[0].user
    if maker.opcode != SHUFFLE:
        return maker.opcode
    return _opcode(usage.buffers[usage.root(maker.values[0])], usage)


def barred(touched: Touched, usage: Usage) -> tuple[Reason, ...]:
    """Why a buffer that operations make cannot be in LX whatever its size; empty if it can."""
    return ordered(_barriers(touched, usage))


def _barriers(touched: Touched, usage: Usage) -> Iterator[Reason]:
    if touched.root in usage.results:
        yield Reason(Barrier.BOUNDARY, "the host reads it")
    if sdsc.EVICTED in touched.writes[0].user.op.attributes:
        yield Reason(Barrier.EVICTED, "it was written back to device memory")
    if len({bundle_number(access.user.op) for access in touched.accesses}) > 1:
        yield Reason(Barrier.BUNDLES, "the next bundle finds nothing in LX")
    if not touched.reads:
        yield Reason(Barrier.NO_READER, "no operation reads it")
    for access in touched.reads:
        if access.operand in DEVICE_OPS[access.user.opcode].indirect:
            yield Reason(Barrier.INDIRECT, f"'{access.user.opcode}' reads it")
        if DEVICE_OPS[access.user.opcode].kind.takes_sticks_apart and access.user.division.cores > 1:
            yield Reason(Barrier.RESTICKIFY, f"{access.user.division.cores} cores exchange parts of it")
    pieces = touched.pieces
    yield from _ownership(touched) if pieces is None else _parts(touched, pieces)


def _parts(touched: Touched, pieces: Pieces) -> Iterator[Reason]:
    """Each operation has to touch its part where the holder's cores have it."""
    for access in touched.accesses:
        name, does = access.user.opcode, "writes" if access.writes else "reads"
        if access.moving:
            yield Reason(Barrier.PARTIAL, f"'{name}' {does} a part that moves with a loop")
            continue
        problem = why_not_there(pieces, access.user, access.operand)
        if problem == NO_HOLDER:
            yield Reason(Barrier.PARTIAL, problem.removeprefix(f"{Barrier.PARTIAL.value}: "))
        elif problem is not None:
            detail = problem.removeprefix(f"{Barrier.MISMATCH.value}: ")
            yield Reason(Barrier.MISMATCH, f"'{name}' {does} a part of it: {detail}")


def _ownership(touched: Touched) -> Iterator[Reason]:
    """Each reader's cores have to find what they read where the writers' cores left it."""
    found: list[Left] = []
    for writer in touched.writes:
        try:
            left = left_by(writer.user.space, writer.operand, writer.user.division)
        except ViewError as error:
            yield Reason(Barrier.PARTIAL, str(error))
            return
        found.append(left)
        for access in touched.reads:
            yield from _handover(left, access)
    relayed = any(access.user.opcode == SHUFFLE for access in touched.reads)
    if relayed and any(left.held != found[0].held for left in found):
        yield Reason(Barrier.MISMATCH, LEFT_APART.removeprefix(f"{Barrier.MISMATCH.value}: "))


def _handover(left: Left, access: Access) -> Iterator[Reason]:
    name = access.user.opcode
    if access.moving:
        yield Reason(Barrier.PARTIAL, f"'{name}' reads a part that moves with a loop")
        return
    problem = takes_over(left, access.user, access.operand)
    if problem is not None:
        detail = problem.removeprefix(f"{Barrier.MISMATCH.value}: ")
        yield Reason(Barrier.MISMATCH, f"'{name}' reads it: {detail}")
