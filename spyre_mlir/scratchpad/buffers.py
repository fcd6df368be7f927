# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Input of a memory planner: buffers with lifetimes, and the memory that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Self

from spyre_mlir.records import dataclass
from spyre_mlir.target.target import Target, default_target

#: Bytes and positions in time are below this limit in absolute value, so that sums and differences fit 64 bits.
LIMIT = 1 << 60


class PlanError(ValueError):
    """Error for buffers or a memory that cannot be planned; the message names the problem."""


@dataclass(frozen=True, init=False)
class LifetimeBoundBuffer:
    """A buffer of ``size`` bytes, live from its first use to its last use, both included.

    The planner minimises traffic, in bytes of device memory. In a scratchpad ``size`` counts the bytes of one core, and
    traffic the bytes of all cores.

    Attributes:
        name: The name, which is unique among the buffers of a plan.
        size: Bytes of one copy.
        uses: The positions of the operations that use the buffer, rising; the first use writes it.
        first_use_is_read: Whether the first use reads the buffer instead, so that it has to be loaded.
        in_place_parents: Names of buffers; the buffer may take the address of one of them at its first use, if this is
            the last use of the parent and the buffer is not larger.
        copies: Number of consecutive copies: 2 for ping-pong (double buffering).
        spilled_traffic: Bytes that the buffer moves without an address; by default its size at every use.
        placed_traffic: Bytes that the buffer moves with an address; by default none, or its size once if the first use
            is a read.
        traffic_of_uses: Bytes of each use without an address, all but the first above 0. Replaces
            ``spilled_traffic``, which is divided into equal parts.
    """

    name: str
    size: int
    uses: tuple[int, ...]
    first_use_is_read: bool = False
    in_place_parents: tuple[str, ...] = ()
    copies: int = 1
    spilled_traffic: int | None = None
    placed_traffic: int | None = None
    traffic_of_uses: tuple[int, ...] | None = None

    def __init__(
        self,
        name: str,
        size: int,
        uses: Sequence[int] = (),
        first_use_is_read: bool = False,
        in_place_parents: Sequence[str] = (),
        copies: int = 1,
        spilled_traffic: int | None = None,
        placed_traffic: int | None = None,
        traffic_of_uses: tuple[int, ...] | None = None,
        *,
        start_time: int | None = None,
        end_time: int | None = None,
    ) -> None:
        """Create a buffer, from its ``uses`` or from times, as in "Scratchpad (LX) optimization".

        ``start_time`` is the operation of the first use, ``end_time`` the operation after the last use (the columns
        lower and upper of ``spyre-plan``). The uses are then the first and the last operation.

        Raises:
            PlanError: The times are invalid; ``check_buffers`` checks everything else.
        """
        if isinstance(uses, int):
            raise PlanError(f"Buffer '{name}' has uses {uses}; pass times by keyword, as start_time={uses}.")
        if start_time is not None or end_time is not None:
            if uses or start_time is None or end_time is None:
                raise PlanError(f"Buffer '{name}' takes either uses, or both start_time and end_time.")
            if end_time <= start_time:
                raise PlanError(
                    f"Buffer '{name}' is live from {start_time} to before {end_time}; the end is after the start."
                )
            uses = tuple(dict.fromkeys((start_time, end_time - 1)))
        # The class is frozen, so its setter raises.
        vars(self).update(
            name=name,
            size=size,
            uses=tuple(uses),
            first_use_is_read=first_use_is_read,
            in_place_parents=tuple(in_place_parents),
            copies=copies,
            spilled_traffic=spilled_traffic,
            placed_traffic=placed_traffic,
            traffic_of_uses=traffic_of_uses,
        )

    @property
    def start_time(self) -> int:
        """The operation of the first use."""
        return self.first

    @property
    def end_time(self) -> int:
        """The operation after the last use."""
        return self.last + 1

    @property
    def first(self) -> int:
        """The operation of the first use."""
        return self.uses[0]

    @property
    def last(self) -> int:
        """The operation of the last use."""
        return self.uses[-1]

    @property
    def traffic_if_spilled(self) -> int:
        """Bytes of device memory that the buffer moves without an address."""
        if self.traffic_of_uses is not None:
            return sum(self.traffic_of_uses)
        if self.spilled_traffic is not None:
            return self.spilled_traffic
        return self.size * self.copies * len(self.uses)

    @property
    def traffic_if_placed(self) -> int:
        """Bytes of device memory that the buffer moves with an address."""
        if self.placed_traffic is not None:
            return self.placed_traffic
        return self.size * self.copies if self.first_use_is_read else 0

    @property
    def traffic_of_each_use(self) -> tuple[int, ...]:
        """Bytes that each use moves if the buffer has no address."""
        if self.traffic_of_uses is not None:
            return self.traffic_of_uses
        # The first use gets the remainder, so that the uses add up to the total.
        per_use, rest = divmod(self.traffic_if_spilled, len(self.uses))
        return (per_use + rest, *[per_use] * (len(self.uses) - 1))

    @property
    def saving(self) -> int:
        """Bytes of device memory that an address saves."""
        return self.traffic_if_spilled - self.traffic_if_placed


@dataclass(frozen=True)
class MemorySpace:
    """A memory from address 0.

    Attributes:
        capacity: The size in bytes.
        alignment: Every address is a multiple of this number of bytes, a power of two; by default the alignment of the
            scratchpads of the default target.
    """

    capacity: int
    alignment: int = field(default_factory=lambda: default_target().lx_alignment_bytes)

    def __post_init__(self) -> None:
        if self.capacity < 0:
            raise PlanError(f"The capacity is {self.capacity} bytes; it cannot be negative.")
        if max(self.capacity, self.alignment) >= LIMIT:
            raise PlanError("The capacity and the alignment of a memory must be less than 2^60 bytes.")
        if self.alignment < 1 or self.alignment & (self.alignment - 1):
            raise PlanError(f"The alignment is {self.alignment} bytes; it must be a power of two.")

    @classmethod
    def of_lx(cls, target: Target) -> Self:
        """Return the part of a core's scratchpad of ``target`` that the compiler may use."""
        return cls(target.usable_lx_bytes, target.lx_alignment_bytes)

    @classmethod
    def of_pool(cls, target: Target) -> Self:
        """Return the device memory of a ``target`` that the allocations of a program share."""
        return cls(target.pool_bytes, target.hbm_alignment_bytes)

    def bytes_of(self, buffer: LifetimeBoundBuffer) -> int:
        """Return the bytes that a ``buffer`` needs, including its copies and the rounding to the alignment."""
        return -(-buffer.size // self.alignment) * self.alignment * buffer.copies


def check_buffers(buffers: Sequence[LifetimeBoundBuffer]) -> Mapping[str, LifetimeBoundBuffer]:
    """Return the buffers by name; raise ``PlanError`` for the first invalid buffer."""
    named: dict[str, LifetimeBoundBuffer] = {}
    for buffer in buffers:
        if buffer.name in named:
            raise PlanError(f"Two buffers are called '{buffer.name}'.")
        named[buffer.name] = buffer
        problem = _problem(buffer)
        if problem is not None:
            raise PlanError(f"Buffer '{buffer.name}' {problem}.")
    for buffer in buffers:
        missing = next((name for name in buffer.in_place_parents if name not in named), None)
        if missing is not None:
            raise PlanError(f"Buffer '{buffer.name}' is in place of '{missing}', which is not a buffer.")
    # Check that parents have no cycles, depth first without recursion: chains are as long as programs.
    acyclic: set[str] = set()
    for start in named:
        path: dict[str, None] = {}
        stack = [(start, iter(named[start].in_place_parents))]
        while stack:
            name, parents = stack[-1]
            path[name] = None
            parent = next((candidate for candidate in parents if candidate not in acyclic), None)
            if parent is None:
                acyclic.add(name)
                path.pop(name)
                stack.pop()
            elif parent in path:
                circle = [*list(path)[list(path).index(parent) :], parent]
                raise PlanError(f"In-place parents form a cycle: {' -> '.join(circle)}.")
            else:
                stack.append((parent, iter(named[parent].in_place_parents)))
    return named


def _problem(buffer: LifetimeBoundBuffer) -> str | None:
    if buffer.size < 1:
        return f"has {buffer.size} bytes; a buffer has at least 1"
    if buffer.copies < 1:
        return f"has {buffer.copies} copies; a buffer has at least 1"
    if not buffer.uses:
        return "is never used"
    if max(-buffer.uses[0], buffer.uses[-1], buffer.size, buffer.copies) >= LIMIT:
        return "has a value of 2^60 or more; bytes, copies and times must be smaller"
    if any(b < a for a, b in zip(buffer.uses, buffer.uses[1:], strict=False)):
        return f"has uses {list(buffer.uses)}, which do not rise"
    if buffer.traffic_of_uses is not None and len(buffer.traffic_of_uses) != len(buffer.uses):
        return f"has traffic for {len(buffer.traffic_of_uses)} of its {len(buffer.uses)} uses"
    if buffer.traffic_of_uses is not None and any(moved < 1 for moved in buffer.traffic_of_uses[1:]):
        return f"has a use that moves nothing, in {list(buffer.traffic_of_uses)}"
    if buffer.traffic_if_spilled < 0 or buffer.traffic_if_placed < 0:
        return "has negative traffic"
    return None
