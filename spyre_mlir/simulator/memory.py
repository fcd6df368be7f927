"""Simulated memory: one flat HBM, one LX per core, and beside every byte who wrote it.

The shadow of a memory has the same size and is read through the same windows. It holds one 16-bit tag
per two bytes: who wrote them. So one comparison finds uninitialised bytes and stale ones, which were
overwritten through another buffer since. Elements of 1 byte have a tag of one byte each: the host alone writes them,
and no tag of a buffer has a byte that could be the host's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

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


@dataclass
class Memory:
    """Bytes and their shadow. Pages cost nothing until they are touched (the arrays start as zero pages)."""

    size: int
    data: NDArray[np.uint8] = field(init=False, repr=False)
    shadow: NDArray[np.uint8] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            self.data = np.zeros(self.size, np.uint8)
            self.shadow = np.zeros(self.size, np.uint8)
        # numpy raises ValueError for a size beyond its own limit.
        except (MemoryError, ValueError):
            text = f"this machine has no memory for the {self.size} bytes of the bundle."
            raise SimulationError("capacity", text) from None


@dataclass(frozen=True)
class AddressRange:
    """An address range ``[start, end)`` that a buffer names, and the tag of what is written through it."""

    name: str
    start: int
    end: int
    tag: int
    lx: bool = False


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
        self._hbm: Memory | None = None
        self._lx: dict[int, Memory] = {}

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
        self.regions[name] = AddressRange(name, start + offset, start + offset + size, tag)

    def _check_lx(self, name: str, address: int, size: int) -> None:
        if address % self.target.lx_alignment_bytes:
            text = f"an LX address must be a multiple of {self.target.lx_alignment_bytes}."
            raise SimulationError("alignment", text, tensor=name, address=address)
        if address < 0 or address + size > self.lx_limit_bytes:
            text = f"it ends at {address + size}, beyond the {self.lx_limit_bytes} usable bytes of LX."
            raise SimulationError("lx-capacity", text, tensor=name, address=address)

    @property
    def hbm(self) -> Memory:
        """The memory, made at its first use: nothing can be allocated afterwards."""
        if self._hbm is None:
            self._hbm = Memory(self._next)
        return self._hbm

    def lx(self, core: int) -> Memory:
        """The scratchpad of a core, made at its first use."""
        if core not in self._lx:
            self._lx[core] = Memory(self.target.lx_bytes)
        return self._lx[core]

    def wipe_lx(self) -> None:
        """Forget what the scratchpads hold: reading it from now on is reading what nobody wrote."""
        self._lx.clear()

    def memory(self, region: AddressRange, core: int) -> Memory:
        return self.lx(core) if region.lx else self.hbm

    def owner(self, tag: int) -> str:
        """Who a tag stands for, as words for a message."""
        if tag in _WORDS:
            return _WORDS[tag]
        names = [region.name for region in self.regions.values() if region.tag == tag]
        return f"buffer '{names[0]}'"
