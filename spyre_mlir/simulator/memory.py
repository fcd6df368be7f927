# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Simulated memory: the allocations of HBM, the LX of the cores, and beside every byte who wrote it.

The shadow of a memory has the same size and is read through the same windows. It holds one 16-bit tag
per two bytes: who wrote them. So one comparison finds uninitialised bytes and stale ones, which were
overwritten through another buffer since. Elements of 1 byte have a tag of one byte each: the host alone writes them,
and no tag of a buffer has a byte that could be the host's.

Most sticks were written as a whole, so each has a tag of its own: where that is not 0, it stands for all its bytes, and
the shadow of these is neither read nor there. Bytes cost what the bundle touches of them: an argument is laid out when
something reads it first, and given back behind its last use.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.records import dataclass
from spyre_mlir.simulator.simulation_error import SimulationError
from spyre_mlir.target.target import Target

#: Tags: nobody; the host; padding that an operation wrote over; a part of a sum that another core finished; from
#: FIRST_BUFFER on, one per buffer.
NOBODY, HOST, POISON, PARTIAL, FIRST_BUFFER = 0, 1, 2, 3, 4
_WORDS = {
    NOBODY: "nobody",
    HOST: "the host",
    POISON: "an operation's padding",
    PARTIAL: "a part of a sum",
}
# A byte of no tag, which stands for any buffer in the shadow of an element of 1 byte.
_NO_BYTE = 0xFF
_DIGITS = _NO_BYTE - FIRST_BUFFER
# Tags of two bytes, of which the upper one may be 0 as well.
_MOST_BUFFERS = _DIGITS * (1 + _DIGITS)

#: The tag in that of a stick, above which is the number of bytes that carry it, 0 if all do.
_TAG, _COUNT_SHIFT = np.uint32(0xFFFF), np.uint32(16)

#: What an operation leaves in the padding of its result: NaN in every float format.
POISON_BYTE = 0xFF

_FIRST_ADDRESS = 1 << 20
_GUARD_BYTES = 4096


def tag_pattern(tag: int, bytes_: int) -> int:
    """The shadow of one element of ``bytes_`` bytes whose bytes all carry ``tag``."""
    if bytes_ == 1:
        return tag if tag < FIRST_BUFFER else _NO_BYTE
    return tag * sum(1 << 16 * i for i in range(bytes_ // 2))


def spread(tag: int, raw: np.dtype) -> np.integer:
    """``tag_pattern`` as a scalar of the raw element type."""
    return raw.type(tag_pattern(tag, raw.itemsize))


def buffer_tag(number: int) -> int:
    """The tag of a buffer: two bytes of which none is that of another tag; the upper one is 0 for the first buffers."""
    upper, lower = divmod(number, _DIGITS)
    return (FIRST_BUFFER + lower) + ((FIRST_BUFFER + upper - 1) << 8 if upper else 0)


def stick_tag(tag: int, raw: np.dtype, first_bytes: int = 0) -> int:
    """The tag of a stick whose elements of type ``raw`` all carry ``tag``: what is in the shadow of its first bytes.

    With ``first_bytes`` only these carry it; the others are poison.
    """
    return (tag_pattern(tag, 1) * 0x101 if raw.itemsize == 1 else tag) | first_bytes << int(_COUNT_SHIFT)


def is_partial(tags: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Return which sticks carry their tag in their first bytes alone."""
    return tags > _TAG


def carries(tags: NDArray[np.uint32], tag: int, wanted_bytes: int) -> NDArray[np.bool_]:
    """Return which sticks carry a ``stick_tag`` in their first bytes, if not in all."""
    return ((tags & _TAG) == tag) & ((tags >> _COUNT_SHIFT) >= wanted_bytes)


class Memory:
    """Bytes and their shadow. Pages cost nothing until they are touched (the arrays start as zero pages).

    ``stick_tags`` has the tag of each stick that was written as a whole (``stick_tag``); 0 where the shadow tells them
    byte by byte.
    ``base`` is the simulated address of the first byte.
    """

    def __init__(self, size: int, stick_bytes: int, base: int = 0) -> None:
        self.stick_bytes, self.base = stick_bytes, base
        try:
            self.data = np.zeros(size, np.uint8)
            self._shadow = np.zeros(size, np.uint8)
            self.stick_tags = np.zeros(-(-size // stick_bytes), np.uint32)
        # numpy raises ValueError for a size beyond its own limit.
        except (MemoryError, ValueError):
            text = f"this machine has no memory for the {size} bytes of the bundle."
            raise SimulationError("capacity", text) from None

    @property
    def shadow(self) -> NDArray[np.uint8]:
        """The tags of all bytes, to read and to write: no stick has a tag of its own any more."""
        return self.shadow_of(0, self.data.size)

    def shadow_of(self, begin: int, end: int) -> NDArray[np.uint8]:
        """The shadow of the whole memory, which from now on tells the tags of the bytes from ``begin`` to ``end``."""
        unit = self.stick_bytes
        first, last = begin // unit, -(-end // unit)
        tags = self.stick_tags[first:last]
        # The last stick of an odd size is no whole one.
        whole = min(last, self.data.size // unit) - first
        sticks = self._shadow[first * unit : (first + whole) * unit].view(np.uint16).reshape(whole, unit // 2)
        self.spread(sticks, tags[:whole])
        if tags[whole:].any():
            self._shadow[(first + whole) * unit :].view(np.uint16)[...] = tags[whole] & _TAG
        tags[...] = 0
        return self._shadow

    @staticmethod
    def spread(shadow: NDArray[np.uint16], tags: NDArray[np.uint32]) -> None:
        """Put the tags of sticks into their shadow, which from now on tells them; it has a last axis for a stick."""
        whole = tags != 0
        if not whole.any():
            return
        shadow[whole] = (tags[whole] & _TAG)[:, None]
        counts = tags >> _COUNT_SHIFT
        for count in set(counts[whole].tolist()) - {0}:
            sticks, (words, odd) = counts == count, divmod(count, 2)
            shadow[sticks, words + odd :] = POISON
            # Of elements of one byte the last one of the tag may share its word with padding.
            if odd:
                shadow[sticks, words] = (tags[sticks] & 0xFF) | POISON << 8
        tags[whole] = 0

    def part(self, begin: int, end: int) -> Memory:
        """The bytes from ``begin`` to ``end``, whole sticks, as a memory that shares them."""
        part = object.__new__(Memory)
        part.stick_bytes, part.base = self.stick_bytes, self.base + begin
        part.data, part._shadow = self.data[begin:end], self._shadow[begin:end]
        part.stick_tags = self.stick_tags[begin // self.stick_bytes : -(-end // self.stick_bytes)]
        return part

    def forget_writers(self) -> None:
        """Give up the shadow and the tags of sticks, which nothing reads any more."""
        self._shadow, self.stick_tags = np.zeros(0, np.uint8), np.zeros(0, np.uint32)

    def own(self) -> None:
        """Make the bytes writable, which those of a mapped file are not."""
        if not self.data.flags.writeable:
            self.data = self.data.copy()


@dataclass(frozen=True)
class AddressRange:
    """An address range ``[start, end)`` that a buffer names, and the tag of what is written through it.

    In HBM it is a part of an ``allocation``.
    """

    name: str
    start: int
    end: int
    tag: int
    lx: bool = False
    allocation: str = ""


#: Puts what the host has into the memory of an allocation.
Load = Callable[[Memory], None]


class AddressSpace:
    """HBM with its allocations, the LX of the cores, and the buffers in them.

    Simulated addresses start at ``_FIRST_ADDRESS`` so that a missing base is seen; between allocations
    lies a guard gap that belongs to nobody.
    """

    def __init__(self, target: Target) -> None:
        self.target, self.lx_limit_bytes = target, target.usable_lx_bytes
        self.allocations: dict[str, tuple[int, int]] = {}
        self.regions: dict[str, AddressRange] = {}
        self._next = _FIRST_ADDRESS
        self._hbm: dict[str, Memory] = {}
        self._loads: dict[str, list[Load]] = {}
        self._lx: Memory | None = None
        self._is_kept = False

    def keep(self) -> None:
        """Give back no memory from now on."""
        self._is_kept = True

    @property
    def most_bytes(self) -> int:
        """Bytes of the memory that is there once all of it is used."""
        of_hbm = sum(size for _, size in self.allocations.values())
        return of_hbm + self.target.device_cores * self.lx_row_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of the memory that is there."""
        return sum(memory.data.nbytes for memory in self._held)

    @property
    def _held(self) -> list[Memory]:
        return [*self._hbm.values(), *([self._lx] if self._lx is not None else [])]

    def keep_bytes_alone(self) -> int:
        """Forget who wrote the bytes of the memory that is there; return the number of bytes."""
        for memory in self._held:
            memory.forget_writers()
        return self.held_bytes

    def allocate(self, name: str, size: int) -> int:
        """Reserve HBM for a parameter or a `device_mem_allocate`; returns its address."""
        unit = self.target.hbm_alignment_bytes
        address = self._next
        self.allocations[name] = (address, size)
        self._next = -(-(address + size) // unit) * unit + _GUARD_BYTES
        return address

    def add_buffer(self, name: str, base: str, offset: int, size: int) -> None:
        """Name a part of an allocation, or of every core's LX (``base`` "lx")."""
        if len(self.regions) == _MOST_BUFFERS:
            raise SimulationError(
                "manifest", f"the simulator can tell {_MOST_BUFFERS} buffers apart, not more."
            )
        tag = buffer_tag(len(self.regions))
        if name in self.regions:
            raise SimulationError("manifest", "this buffer is described twice.", tensor=name)
        if base == "lx":
            self._check_lx(name, offset, size)
            self.regions[name] = AddressRange(name, offset, offset + size, tag, lx=True)
            return
        if base not in self.allocations:
            text = f"its base '{base}' is no parameter or allocation."
            raise SimulationError("manifest", text, tensor=name)
        start, capacity = self.allocations[base]
        if offset < 0 or offset + size > capacity:
            text = f"bytes [{offset}, {offset + size}) are outside its base '{base}' of {capacity} bytes."
            raise SimulationError("out-of-bounds", text, tensor=name)
        self.regions[name] = AddressRange(name, start + offset, start + offset + size, tag, allocation=base)

    def _check_lx(self, name: str, address: int, size: int) -> None:
        if address % self.target.lx_alignment_bytes:
            text = f"an LX address must be a multiple of {self.target.lx_alignment_bytes}."
            raise SimulationError("alignment", text, tensor=name, address=address)
        if address < 0 or address + size > self.lx_limit_bytes:
            text = f"it ends at {address + size}, beyond the {self.lx_limit_bytes} usable bytes of LX."
            raise SimulationError("lx-capacity", text, tensor=name, address=address)

    def hbm(self, allocation: str) -> Memory:
        """The memory of an allocation, made and loaded at its first use."""
        if allocation not in self._hbm:
            base, size = self.allocations[allocation]
            self._hbm[allocation] = Memory(size, self.target.stick_bytes, base)
        for load in self._loads.pop(allocation, ()):
            load(self._hbm[allocation])
        return self._hbm[allocation]

    @property
    def loaded(self) -> frozenset[str]:
        """The allocations that have memory now."""
        return frozenset(self._hbm)

    def load(self, allocation: str, load: Load) -> None:
        """Fill an allocation when something uses it next."""
        self._loads.setdefault(allocation, []).append(load)

    def finish_loads(self) -> None:
        """Do the loads that nothing has needed so far, for what they check."""
        for allocation in list(self._loads):
            self.hbm(allocation)
            self.release(allocation)

    def release(self, allocation: str) -> None:
        """Give back the memory of an allocation that nothing reads any more."""
        if not self._is_kept:
            self._hbm.pop(allocation, None)

    @property
    def lx_row_bytes(self) -> int:
        """The distance from one core's scratchpad to the next in the memory of all: as much as a buffer uses."""
        end = max((region.end for region in self.regions.values() if region.lx), default=0)
        return -(-end // self.target.stick_bytes) * self.target.stick_bytes

    @property
    def lx_of_all(self) -> Memory:
        """The scratchpads of all cores, made at their first use: no buffer can be added afterwards."""
        if self._lx is None:
            self._lx = Memory(self.target.device_cores * self.lx_row_bytes, self.target.stick_bytes)
        return self._lx

    def lx(self, core: int) -> Memory:
        """The scratchpad of a core."""
        row = self.lx_of_all.data.size // self.target.device_cores
        return self.lx_of_all.part(core * row, (core + 1) * row)

    def wipe_lx(self) -> None:
        """Forget what the scratchpads hold: reading it from now on is reading what nobody wrote."""
        if not self._is_kept:
            self._lx = None

    def memory(self, region: AddressRange) -> Memory:
        """The memory that a region is in: that of its allocation, or the scratchpads of all cores."""
        return self.lx_of_all if region.lx else self.hbm(region.allocation)

    def place(self, region: AddressRange, core: int, address: int) -> int:
        """The place of an address of a region in its memory, on a core."""
        if not region.lx:
            return address - self.allocations[region.allocation][0]
        return address + core * (self.lx_of_all.data.size // self.target.device_cores)

    def owner(self, tag: int) -> str:
        """Who a tag stands for, as words for a message."""
        if tag in _WORDS:
            return _WORDS[tag]
        names = [region.name for region in self.regions.values() if region.tag == tag]
        return f"buffer '{names[0]}'"
