# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LX candidates: the buffers of a divided function that may be in LX, and the reasons why others are ineligible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from spyre_mlir.analysis import core_ownership
from spyre_mlir.analysis.buffer_uses import BufferAccesses, Usage
from spyre_mlir.analysis.loops import bundle_number
from spyre_mlir.cost.cost_model import burst_slowdown
from spyre_mlir.cost.of_space import hbm_bytes, operation_work
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.division.ownership import local_bytes
from spyre_mlir.layout import ViewError
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad import eligibility
from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace
from spyre_mlir.scratchpad.eligibility import Reason, ordered
from spyre_mlir.target.ops import DEVICE_OPS

#: The values in the two buffers of a pair, each with a flag for the second buffer; values of the first come first.
Pair = list[tuple[ir.Value, bool]]


def pairs_of(roots: Iterable[ir.Value]) -> list[Pair]:
    """Return the ping-pong pairs among some buffers."""
    pairs: dict[int, Pair] = {}
    for root in roots:
        owner = defining_op(root)
        number = None if owner is None else sdsc.ping_pong_of(owner)
        if number is not None:
            pair, second = number
            pairs.setdefault(pair, []).append((root, second))
    return [sorted(pair, key=lambda member: member[1]) for pair in pairs.values()]


def second_at(size: int, alignment: int) -> int:
    """Return the offset from the first of two adjacent buffers of ``size`` bytes to the second, in bytes."""
    return -(-size // alignment) * alignment


@dataclass(frozen=True)
class Rules:
    """The scratchpad of a core; whether results may be in place; the opcodes allowed in LX (empty: all)."""

    space: MemorySpace
    in_place: bool
    opcodes: frozenset[str]


@dataclass(frozen=True)
class Candidate:
    """A buffer that an operation writes; ``reasons`` why it is ineligible for LX, empty if it is eligible.

    The buffer's traffic includes ``unmoved_bytes``, which the program does not move: bytes that shuffles of the buffer
    would load from device memory, although a shuffle needs its source in LX, and the time of a clone's short runs
    in bytes. For a ping-pong pair, ``root`` is a value in the first buffer, and ``paired`` has the other values, each
    with a flag for the second buffer, which is ``distance`` bytes after the first.
    """

    root: ir.Value
    buffer: LifetimeBoundBuffer
    reasons: tuple[Reason, ...]
    unmoved_bytes: int = 0
    paired: tuple[tuple[ir.Value, bool], ...] = ()
    distance: int = 0

    @property
    def saved(self) -> int:
        """The bytes of device memory traffic that the program saves with the buffer in LX."""
        return self.buffer.saving - self.unmoved_bytes

    @property
    def spilled_bytes(self) -> int:
        """The bytes that accesses move through device memory with the buffer in device memory."""
        return self.buffer.traffic_if_spilled - self.unmoved_bytes

    def addresses(self, address: int) -> dict[ir.Value, int]:
        """Return the address of every value of the candidate if the planner places it at ``address``."""
        paired = {root: address + is_second * self.distance for root, is_second in self.paired}
        return {self.root: address, **paired}


@dataclass(frozen=True)
class BufferDivision:
    """The size and traffic of a buffer under the divisions of the operations that access it.

    ``spilled_traffic`` and ``placed_traffic`` are bytes of its accesses with the buffer in device memory and in LX;
    ``unmoved_bytes`` are part of the first but are not moved by the program. ``size`` is in bytes per core.
    """

    size: int
    reasons: tuple[Reason, ...]
    spilled_traffic: int
    placed_traffic: int
    unmoved_bytes: int = 0


def candidates(usage: Usage, rules: Rules) -> list[Candidate]:
    """Return all buffers except those that the host fills, in the order of their first accesses."""
    if rules not in usage.candidates:
        buffers = {root: buffer for root, buffer in usage.buffers.items() if not buffer.from_host}
        eligible = candidates_of(
            usage, rules, {root: facts_of(buffers[root], usage, rules) for root in buffers}
        )
        usage.candidates[rules] = tuple(_with_pairs(eligible, rules.space))
    return list(usage.candidates[rules])


def _with_pairs(candidates: Sequence[Candidate], space: MemorySpace) -> list[Candidate]:
    """Replace all candidates in the two buffers of a ping-pong pair by one candidate."""
    by_root = {candidate.root: candidate for candidate in candidates}
    pairs = {
        members[0][0]: _pair([(by_root[root], second) for root, second in members], space)
        for members in pairs_of(by_root)
    }
    if not pairs:
        return list(candidates)
    inside = {root for pair in pairs.values() for root in pair.addresses(0)}
    names, combined = {by_root[root].buffer.name for root in inside}, list[Candidate]()
    for root, candidate in by_root.items():
        if root in pairs:
            combined.append(pairs[root])
        elif root not in inside:
            # Other candidates cannot overwrite a buffer of a pair.
            parents = tuple(name for name in candidate.buffer.in_place_parents if name not in names)
            buffer = replace(candidate.buffer, in_place_parents=parents)
            combined.append(replace(candidate, buffer=buffer))
    return combined


def _pair(members: Sequence[tuple[Candidate, bool]], space: MemorySpace) -> Candidate:
    """Combine the buffers of a pair for the planner: two copies, live while any of the buffers is live."""
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
    unmoved_bytes = sum(candidate.unmoved_bytes for candidate in candidates)
    paired = tuple((candidate.root, second) for candidate, second in members[1:])
    distance = second_at(buffer.size, space.alignment)
    return Candidate(first.root, buffer, reasons, unmoved_bytes, paired, distance)


def facts_of(buffer: BufferAccesses, usage: Usage, rules: Rules) -> BufferDivision:
    """Return the facts of a buffer that operations write. Optional clones of it exist only if it is in LX."""
    partial = buffer.partial_accesses
    # Every core reserves the bytes of the holder or of the largest write: an address is the same on all cores.
    holders = [(access.user, access.operand) for access in buffer.writes]
    if partial is not None and partial.holder is not None:
        holders = [partial.holder]
    size = max(local_bytes(user.space, operand, user.division) for user, operand in holders)
    placed = 0
    for access in buffer.accesses:
        copy = access.user
        # A shuffle stays within LX; another clone also transfers data to or from device memory.
        if access.optional and copy.opcode != core_ownership.SHUFFLE:
            total, _ = hbm_bytes(copy.space, 0 if copy.values[-1] == buffer.root else 1, copy.division)
            placed += total * copy.executions
    shuffles = [access for access in buffer.reads if access.user.opcode == core_ownership.SHUFFLE]
    unmoved_bytes = sum(access.hbm_bytes for access in shuffles)
    # A clone for one reader moves as many bytes as it saves: its purpose is to avoid short runs of the reader. The
    # additional time of these runs counts as the bytes that whole bursts would move in this time.
    is_clone = any(access.optional for access in buffer.writes)
    for access in buffer.reads if is_clone else ():
        if access not in shuffles:
            work = operation_work(access.user.opcode, access.user.space, access.user.division)
            slowdown = burst_slowdown(work, work.operands[access.operand])
            unmoved_bytes += round(access.hbm_bytes * (slowdown - 1))
    reasons, opcode = list(ineligibility_reasons(buffer, usage)), _opcode(buffer, usage)
    if rules.opcodes and opcode not in rules.opcodes:
        reasons.insert(0, eligibility.OperationExcluded(opcode))
    if size > rules.space.capacity:
        reasons.append(eligibility.TooLarge(size, rules.space.capacity))
    traffic = buffer.hbm_bytes + unmoved_bytes
    return BufferDivision(size, ordered(reasons), traffic, placed, unmoved_bytes)


def candidates_of(usage: Usage, rules: Rules, facts: Mapping[ir.Value, BufferDivision]) -> list[Candidate]:
    """Return the buffers with known facts in the form for the planner."""
    names = {root: f"{number}" for number, root in enumerate(facts)}
    candidates = []
    for root, fact in facts.items():
        live_range = usage.memory.live_ranges[root]
        parents = usage.in_place(live_range.uses[0]) if rules.in_place and not fact.reasons else []
        eligible = tuple(names[parent] for parent in parents if parent in facts and not facts[parent].reasons)
        buffer = LifetimeBoundBuffer(
            names[root],
            fact.size,
            live_range.uses,
            live_range.first_use_is_read,
            eligible,
            spilled_traffic=fact.spilled_traffic,
            placed_traffic=fact.placed_traffic,
        )
        candidates.append(Candidate(root, buffer, fact.reasons, fact.unmoved_bytes))
    return candidates


def _opcode(buffer: BufferAccesses, usage: Usage) -> str:
    """Return the opcode that computed the values of a buffer, before shuffles moved them to other cores."""
    producer = buffer.writes[0].user
    if producer.opcode != core_ownership.SHUFFLE:
        return producer.opcode
    return _opcode(usage.buffers[usage.root(producer.values[0])], usage)


def ineligibility_reasons(buffer: BufferAccesses, usage: Usage) -> tuple[Reason, ...]:
    """Return why a buffer that operations write is ineligible for LX, apart from its size; empty if it is eligible."""
    reasons, copy = ordered(_reasons(buffer, usage)), buffer.writes[0]
    if reasons or not copy.optional or copy.user.opcode == core_ownership.SHUFFLE:
        return reasons
    source = usage.buffers[usage.root(copy.user.values[0])]
    # A copy of a buffer in LX is for readers that cannot read the buffer there.
    is_second = not source.from_host and next(_reasons(source, usage), None) is None
    return (eligibility.CopyInMemory(),) if is_second else ()


def _reasons(buffer: BufferAccesses, usage: Usage) -> Iterator[Reason]:
    """Yield the reasons why a buffer cannot be in LX, in any order."""
    if buffer.root in usage.results:
        yield eligibility.ReadByHost()
    if sdsc.EVICTED in buffer.writes[0].user.op.attributes:
        yield eligibility.Evicted()
    if len({bundle_number(access.user.op) for access in buffer.accesses}) > 1:
        yield eligibility.CrossesBundles()
    if not buffer.reads:
        yield eligibility.NoReader()
    for access in buffer.reads:
        if access.operand in DEVICE_OPS[access.user.opcode].indirect:
            yield eligibility.IndirectAccess(access.user.opcode)
        if DEVICE_OPS[access.user.opcode].kind.takes_sticks_apart and access.user.division.cores > 1:
            yield eligibility.ReadAcrossCores(access.user.division.cores)
    partial = buffer.partial_accesses
    if partial is None:
        yield from _ownership(buffer)
        return
    # A core may access only parts that it holds in the holder's distribution.
    for access in buffer.accesses:
        opcode, does = access.user.opcode, "writes" if access.writes else "reads"
        if access.moving:
            yield eligibility.MovingPart(opcode, does)
            continue
        problem = core_ownership.access_mismatch(partial, access.user, access.operand)
        if isinstance(problem, eligibility.NoHolder):
            yield problem
        elif problem is not None:
            yield eligibility.DivisionMismatch(problem, opcode, f"{does} a part of it")


def _ownership(buffer: BufferAccesses) -> Iterator[Reason]:
    """Yield reasons of reads: each core has to read data that it has written itself, unless a shuffle moves it."""
    distributions: list[core_ownership.WrittenDistribution] = []
    for writer in buffer.writes:
        try:
            distribution = core_ownership.written_distribution(
                writer.user.space, writer.operand, writer.user.division
            )
        except ViewError as error:
            yield eligibility.NoRegion(str(error))
            return
        distributions.append(distribution)
        for access in buffer.reads:
            # A design has one address for all iterations.
            if access.moving:
                yield eligibility.MovingPart(access.user.opcode, "reads")
                continue
            problem = core_ownership.read_mismatch(distribution, access.user, access.operand)
            if problem is not None:
                yield eligibility.DivisionMismatch(problem, access.user.opcode, "reads it")
    is_shuffled = any(access.user.opcode == core_ownership.SHUFFLE for access in buffer.reads)
    if is_shuffled and any(each.complete != distributions[0].complete for each in distributions):
        yield eligibility.MixedDistributions()
