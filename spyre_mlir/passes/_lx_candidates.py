"""Which buffers of a divided function may be in LX, and what bars the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import maker_of
from spyre_mlir.division import Division, core_view, mismatch
from spyre_mlir.division.ownership import local_bytes
from spyre_mlir.errors import CompileError
from spyre_mlir.layout import ViewError
from spyre_mlir.mlir import ir
from spyre_mlir.passes._usage import Access, Touched, Usage
from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer
from spyre_mlir.scratchpad.eligibility import Barrier, Reason, ordered
from spyre_mlir.scratchpad.liveness import Life, lifetimes
from spyre_mlir.target.device import device
from spyre_mlir.target.ops import DEVICE_OPS, Kind


def usable_bytes(lx_frac_avail: float) -> int:
    """Bytes of LX per core that passes may plan, the backend's part being ``lx_frac_avail``."""
    try:
        return device().usable_lx_bytes(lx_frac_avail)
    except ValueError as error:
        raise CompileError(str(error)) from None


@dataclass(frozen=True)
class Rules:
    """``capacity`` in bytes per core; whether results may go in place; the only opcodes in LX, all if empty."""

    capacity: int
    in_place: bool
    opcodes: frozenset[str]


@dataclass(frozen=True)
class Candidate:
    """A buffer that an operation makes; ``reasons`` bar it from LX, none if it may be there."""

    root: ir.Value
    buffer: LifetimeBoundBuffer
    reasons: tuple[Reason, ...]


def candidates(usage: Usage, rules: Rules) -> list[Candidate]:
    """All buffers but those that the host fills, in the order in which they are first touched."""
    lives = lifetimes(usage.steps())
    made = {root: touched for root, touched in usage.buffers.items() if not touched.given}
    names = {root: f"{number}" for number, root in enumerate(made)}
    sizes = {root: _local_bytes(touched) for root, touched in made.items()}
    barred = {root: _barred(touched, usage, rules, sizes[root]) for root, touched in made.items()}
    found = []
    for root, touched in made.items():
        life = lives[root]
        parents = usage.in_place(life.uses[0]) if rules.in_place and not barred[root] else []
        able = (parent for parent in parents if parent in made and not barred[parent])
        buffer = _buffer(names[root], sizes[root], touched, life, tuple(names[parent] for parent in able))
        found.append(Candidate(root, buffer, barred[root]))
    return found


def _buffer(
    name: str, size: int, touched: Touched, life: Life, parents: tuple[str, ...]
) -> LifetimeBoundBuffer:
    """The planner's view. An optional clone without an address is not there, so only its reads count then."""
    optional = sdsc.OPTIONAL in maker_of(touched.root).attributes
    placed = 0
    if optional:
        clone = touched.writes[0].user
        placed = Access(life.uses[0], clone, 0).hbm_bytes
    spilled = sum(access.hbm_bytes for access in (touched.reads if optional else touched.accesses))
    return LifetimeBoundBuffer(
        name, size, life.uses, life.first_use_is_read, parents, spilled_traffic=spilled, placed_traffic=placed
    )


def _local_bytes(touched: Touched) -> int:
    """Bytes per core: what the operation that writes most of the buffer leaves on each core."""
    return max(local_bytes(each.user.space, each.operand, each.user.division) for each in touched.writes)


def _barred(touched: Touched, usage: Usage, rules: Rules, size: int) -> tuple[Reason, ...]:
    return ordered(_reasons(touched, usage, rules, size))


def _reasons(touched: Touched, usage: Usage, rules: Rules, size: int) -> Iterator[Reason]:
    maker = touched.writes[0].user
    if rules.opcodes and maker.opcode not in rules.opcodes:
        yield Reason(Barrier.OPERATION, f"'{maker.opcode}' is not among lx-ops")
    if touched.root in usage.results:
        yield Reason(Barrier.BOUNDARY, "the host reads it")
    if not touched.reads:
        yield Reason(Barrier.NO_READER, "no operation reads it")
    for access in touched.reads:
        if DEVICE_OPS[access.user.opcode].kind is Kind.RESTICKIFY and access.user.division.cores > 1:
            yield Reason(Barrier.RESTICKIFY, f"{access.user.division.cores} cores exchange parts of it")
    if len(touched.writes) > 1 or touched.writes[0].user.values[-1] != touched.root:
        yield Reason(Barrier.PARTIAL, "it is put together from parts")
    else:
        yield from _ownership(touched)
    if size > rules.capacity:
        yield Reason(Barrier.TOO_LARGE, f"{size} bytes per core, LX has {rules.capacity}")


def _ownership(touched: Touched) -> Iterator[Reason]:
    """Each reader's cores have to find what they read where the writer's cores left it."""
    (writer,) = touched.writes
    try:
        written = writer.core_view
    except ViewError as error:
        yield Reason(Barrier.PARTIAL, str(error))
        return
    for access in touched.reads:
        if _whole(access) != _whole(writer):
            yield Reason(Barrier.PARTIAL, f"'{access.user.opcode}' reads another part than is written")
            continue
        try:
            problem = mismatch(written, access.core_view)
        except ViewError as error:
            problem = str(error)
        if problem is not None:
            detail = problem.removeprefix(f"{Barrier.MISMATCH.value}: ")
            yield Reason(Barrier.MISMATCH, f"'{access.user.opcode}' reads it: {detail}")


def _whole(access: Access):
    """The region of the buffer that all cores together touch."""
    splits = (1,) * len(access.user.space.sizes)
    return core_view(access.user.space, access.operand, Division.mixed_radix(splits)).regions
