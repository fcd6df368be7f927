# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Simulated memory: the allocations of HBM, the LX of the cores, and a shadow that records the writer of each byte.

The shadow of a memory has the same size and is read through the same windows. It holds one 16-bit tag
per two bytes, which identifies their writer. So one comparison finds uninitialised bytes and stale bytes, which were
overwritten through another buffer. Elements of 1 byte have a tag of one byte each: the host is their only writer,
and the tags of buffers do not contain a byte that equals the host's tag.

Most sticks are written as a whole, so each stick has its own tag: a tag other than 0 stands for all bytes of the stick,
whose shadow is then neither read nor allocated. The bundle pays only for the bytes it accesses: an argument is laid out
before its first read, and freed after its last use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.records import dataclass
from spyre_mlir.simulator.boxes import StridedWindow
from spyre_mlir.simulator.run_outcome import SimulationError
from spyre_mlir.target.target import Target

#: Tags: nobody; the host; padding that an operation wrote over; a partial sum that another core finished; from
#: FIRST_BUFFER on, one per buffer.
NOBODY, HOST, POISON, PARTIAL, FIRST_BUFFER = 0, 1, 2, 3, 4
_WORDS = {NOBODY: "nobody", HOST: "the host", POISON: "an operation's padding", PARTIAL: "a part of a sum"}
# A byte that is not a tag; it represents any buffer in the shadow of an element of 1 byte.
_NO_BYTE = 0xFF
_DIGITS = _NO_BYTE - FIRST_BUFFER
# Tags have two bytes, of which the upper one may also be 0.
_MOST_BUFFERS = _DIGITS * (1 + _DIGITS)

#: The tag inside of a stick tag; the bits above it are the number of bytes that carry the tag, 0 for all bytes.
_TAG, _COUNT_SHIFT = np.uint32(0xFFFF), np.uint32(16)

#: The byte that an operation leaves in the padding of its result: NaN in every float format.
POISON_BYTE = 0xFF

_FIRST_ADDRESS = 1 << 20
_GUARD_BYTES = 4096


def tag_pattern(tag: int, bytes_: int) -> int:
    """Return the shadow of one element of ``bytes_`` bytes whose bytes all carry ``tag``."""
    if bytes_ == 1:
        return tag if tag < FIRST_BUFFER else _NO_BYTE
    return tag * sum(1 << 16 * i for i in range(bytes_ // 2))


def spread(tag: int, raw: np.dtype) -> np.integer:
    """Return ``tag_pattern`` as a scalar of the raw element type."""
    return raw.type(tag_pattern(tag, raw.itemsize))


def buffer_tag(number: int) -> int:
    """Return the tag of a buffer: two bytes, neither of them another tag; the upper one is 0 for the first buffers."""
    upper, lower = divmod(number, _DIGITS)
    return (FIRST_BUFFER + lower) + ((FIRST_BUFFER + upper - 1) << 8 if upper else 0)


def stick_tag(tag: int, raw: np.dtype, first_bytes: int = 0) -> int:
    """Return the tag of a stick whose elements of type ``raw`` all carry ``tag``: the shadow of its first bytes.

    With ``first_bytes`` only these bytes carry the tag; the other bytes are poison.
    """
    return (tag_pattern(tag, 1) * 0x101 if raw.itemsize == 1 else tag) | first_bytes << int(_COUNT_SHIFT)


def is_partial(tags: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Return which sticks carry their tag only in their first bytes."""
    return tags > _TAG


def carries(tags: NDArray[np.uint32], tag: int, wanted_bytes: int) -> NDArray[np.bool_]:
    """Return which sticks carry a ``stick_tag`` in their first ``wanted_bytes`` or in all bytes."""
    return ((tags & _TAG) == tag) & ((tags >> _COUNT_SHIFT) >= wanted_bytes)


class Memory:
    """Bytes and their shadow. Memory pages cost nothing until they are accessed (the arrays start as zero pages).

    ``stick_tags`` has the tag of each stick that was written as a whole (``stick_tag``); 0 if the shadow has the tags
    of the stick byte by byte.
    ``base`` is the simulated address of the first byte.
    """

    def __init__(self, size: int, stick_bytes: int, base: int = 0, contents: int = 0) -> None:
        self.stick_bytes, self.base = stick_bytes, base
        try:
            self.data = np.full(size, contents, np.uint8) if contents else np.zeros(size, np.uint8)
            self._shadow = np.zeros(size, np.uint8)
            self.stick_tags = np.zeros(-(-size // stick_bytes), np.uint32)
        # numpy raises ValueError for a size beyond its own limit.
        except (MemoryError, ValueError):
            text = f"this machine has no memory for the {size} bytes of the bundle."
            raise SimulationError("capacity", text) from None

    @property
    def shadow(self) -> NDArray[np.uint8]:
        """The tags of all bytes, for reads and writes: all stick tags move into the shadow."""
        return self.shadow_of(0, self.data.size)

    def shadow_of(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Return the shadow of the whole memory; the stick tags from ``begin`` to ``end`` move into the shadow."""
        self.require_writers()
        unit = self.stick_bytes
        first, last = begin // unit, -(-end // unit)
        tags = self.stick_tags[first:last]
        # If the size is not a multiple of a stick, the last stick is not whole.
        whole = min(last, self.data.size // unit) - first
        sticks = self._shadow[first * unit : (first + whole) * unit].view(np.uint16).reshape(whole, unit // 2)
        self.spread(sticks, tags[:whole])
        if tags[whole:].any():
            self._shadow[(first + whole) * unit :].view(np.uint16)[...] = tags[whole] & _TAG
        tags[...] = 0
        return self._shadow

    @staticmethod
    def spread(shadow: NDArray[np.uint16], tags: NDArray[np.uint32]) -> None:
        """Move the tags of sticks into their shadow and clear the tags; the last axis of the shadow is one stick."""
        whole = tags != 0
        if not whole.any():
            return
        shadow[whole] = (tags[whole] & _TAG)[:, None]
        counts = tags >> _COUNT_SHIFT
        for count in set(counts[whole].tolist()) - {0}:
            sticks, (words, odd) = counts == count, divmod(count, 2)
            shadow[sticks, words + odd :] = POISON
            # For elements of one byte, the last byte of the tag may share its word with padding.
            if odd:
                shadow[sticks, words] = (tags[sticks] & 0xFF) | POISON << 8
        tags[whole] = 0

    def part(self, begin: int, end: int) -> Memory:
        """Return the bytes from ``begin`` to ``end``, whole sticks, as a memory that shares them."""
        part = object.__new__(Memory)
        part.stick_bytes, part.base = self.stick_bytes, self.base + begin
        part.data, part._shadow = self.data[begin:end], self._shadow[begin:end]
        part.stick_tags = self.stick_tags[begin // self.stick_bytes : -(-end // self.stick_bytes)]
        return part

    def forget_writers(self) -> None:
        """Free the shadow and the stick tags, which are not read any more."""
        self._shadow, self.stick_tags = np.zeros(0, np.uint8), np.zeros(0, np.uint32)

    def require_writers(self) -> None:
        """Raise ``SimulationError`` after ``forget_writers``: numpy would not check views of an empty array."""
        if self.data.size and not self.stick_tags.size:
            raise SimulationError("prepared-run", "only an ordinary run knows the writers of this memory.")

    def own(self) -> None:
        """Make the bytes writable; the bytes of a mapped file are copied first."""
        if not self.data.flags.writeable:
            self.data = self.data.copy()


@dataclass(frozen=True)
class AddressRange:
    """The address range ``[start, end)`` of a buffer, and the tag of data written through the buffer.

    In HBM the range is a part of an ``allocation``.
    """

    name: str
    start: int
    end: int
    tag: int
    lx: bool = False
    allocation: str = ""


#: A function that writes the host data to the memory of an allocation.
Load = Callable[[Memory], None]


class AddressSpace:
    """HBM with its allocations, the LX of the cores, and the buffers in them.

    Simulated addresses start at ``_FIRST_ADDRESS`` so that a missing base is detected; allocations are separated
    by a guard gap that does not belong to any of them. ``contents`` is the byte of memory that nothing has written;
    writers of bytes are compared with what reads mean only if ``is_checked``.
    """

    def __init__(self, target: Target, contents: int = 0, is_checked: bool = True) -> None:
        self.target, self.lx_limit_bytes = target, target.usable_lx_bytes
        self.contents, self.is_checked = contents, is_checked
        self.allocations: dict[str, tuple[int, int]] = {}
        self.regions: dict[str, AddressRange] = {}
        self._next = _FIRST_ADDRESS
        self._hbm: dict[str, Memory] = {}
        self._loads: dict[str, list[Load]] = {}
        self._lx: Memory | None = None
        self._is_kept = False

    def keep(self) -> None:
        """Do not free memory from now on."""
        self._is_kept = True

    @property
    def most_bytes(self) -> int:
        """The bytes of the memory after all of it has been used."""
        of_hbm = sum(size for _, size in self.allocations.values())
        return of_hbm + self.target.device_cores * self.lx_row_bytes

    def keep_bytes_alone(self) -> int:
        """Free the shadows of the allocated memory, but not its bytes; return the number of bytes."""
        memories = [*self._hbm.values(), *([self._lx] if self._lx is not None else [])]
        for memory in memories:
            memory.forget_writers()
        return sum(memory.data.nbytes for memory in memories)

    def allocate(self, name: str, size: int) -> int:
        """Reserve HBM for a parameter or a `device_mem_allocate`, and return its address."""
        unit = self.target.hbm_alignment_bytes
        address = self._next
        self.allocations[name] = (address, size)
        self._next = -(-(address + size) // unit) * unit + _GUARD_BYTES
        return address

    def add_buffer(self, name: str, base: str, offset: int, size: int) -> None:
        """Name a part of an allocation, or of every core's LX (``base`` "lx")."""
        if len(self.regions) == _MOST_BUFFERS:
            raise SimulationError("manifest", f"the simulator distinguishes at most {_MOST_BUFFERS} buffers.")
        tag = buffer_tag(len(self.regions))
        if name in self.regions:
            raise SimulationError("manifest", "this buffer is described twice.", tensor=name)
        if base == "lx":
            if offset % self.target.lx_alignment_bytes:
                text = f"an LX address must be a multiple of {self.target.lx_alignment_bytes}."
                raise SimulationError("alignment", text, tensor=name, address=offset)
            if offset < 0 or offset + size > self.lx_limit_bytes:
                text = f"it ends at {offset + size}, beyond the {self.lx_limit_bytes} usable bytes of LX."
                raise SimulationError("lx-capacity", text, tensor=name, address=offset)
            self.regions[name] = AddressRange(name, offset, offset + size, tag, lx=True)
            return
        if base not in self.allocations:
            text = f"its base '{base}' is not a parameter or an allocation."
            raise SimulationError("manifest", text, tensor=name)
        start, capacity = self.allocations[base]
        if offset < 0 or offset + size > capacity:
            text = f"bytes [{offset}, {offset + size}) are outside its base '{base}' of {capacity} bytes."
            raise SimulationError("out-of-bounds", text, tensor=name)
        self.regions[name] = AddressRange(name, start + offset, start + offset + size, tag, allocation=base)

    def hbm(self, allocation: str) -> Memory:
        """Return the memory of an allocation, which is created and loaded at its first use."""
        if allocation not in self._hbm:
            base, size = self.allocations[allocation]
            self._hbm[allocation] = Memory(size, self.target.stick_bytes, base, self.contents)
        for load in self._loads.pop(allocation, ()):
            load(self._hbm[allocation])
        return self._hbm[allocation]

    @property
    def loaded(self) -> frozenset[str]:
        """The allocations that have memory now."""
        return frozenset(self._hbm)

    def load(self, allocation: str, load: Load) -> None:
        """Register a load that fills an allocation at its next use."""
        self._loads.setdefault(allocation, []).append(load)

    def finish_loads(self) -> None:
        """Run the remaining loads for the sake of their checks."""
        for allocation in list(self._loads):
            self.hbm(allocation)
            self.release(allocation)

    def release(self, allocation: str) -> None:
        """Free the memory of an allocation that is not read any more."""
        if not self._is_kept:
            self._hbm.pop(allocation, None)

    @property
    def lx_row_bytes(self) -> int:
        """The distance between the scratchpads of two cores in the shared memory: the end of the last LX buffer."""
        end = max((region.end for region in self.regions.values() if region.lx), default=0)
        return -(-end // self.target.stick_bytes) * self.target.stick_bytes

    @property
    def lx_of_all(self) -> Memory:
        """The scratchpads of all cores, created at their first use; no buffer can be added afterwards."""
        if self._lx is None:
            size = self.target.device_cores * self.lx_row_bytes
            self._lx = Memory(size, self.target.stick_bytes, contents=self.contents)
        return self._lx

    def lx(self, core: int) -> Memory:
        """Return the scratchpad of a core."""
        row = self.lx_of_all.data.size // self.target.device_cores
        return self.lx_of_all.part(core * row, (core + 1) * row)

    def wipe_lx(self) -> None:
        """Discard the contents of the scratchpads: later reads are reads of memory that was never written."""
        if not self._is_kept:
            self._lx = None

    def memory(self, region: AddressRange) -> Memory:
        """Return the memory of a region: the memory of its allocation, or the scratchpads of all cores."""
        return self.lx_of_all if region.lx else self.hbm(region.allocation)

    def place(self, region: AddressRange, core: int, address: int) -> int:
        """Return the offset of an address of a region in its memory, on a core."""
        if not region.lx:
            return address - self.allocations[region.allocation][0]
        return address + core * (self.lx_of_all.data.size // self.target.device_cores)

    def owner(self, tag: int) -> str:
        """Return the owner of a tag as text for a message."""
        if tag in _WORDS:
            return _WORDS[tag]
        names = [region.name for region in self.regions.values() if region.tag == tag]
        return f"buffer '{names[0]}'"


#: Cores, the offset of the first core, and the bytes from one core to the next.
_Run = tuple[slice, int, int]


def runs_of(offsets: Sequence[int]) -> list[_Run]:
    """Return runs of cores whose offsets have equal distances."""
    runs: list[_Run] = []
    begin, count = 0, len(offsets)
    while begin < count:
        end = begin + 1
        step = offsets[end] - offsets[begin] if end < count else 0
        while end < count and offsets[end] - offsets[end - 1] == step:
            end += 1
        runs.append((slice(begin, end), offsets[begin], step))
        begin = end
    return runs


class CoreViews:
    """A window at the ``offsets`` of a memory, one for each of some cores; elements are of type ``raw``."""

    def __init__(self, memory: Memory, window: StridedWindow, offsets: Sequence[int], raw: np.dtype) -> None:
        self._memory, self._window, self._raw = memory, window, raw
        self._runs, self._count = runs_of(offsets), len(offsets)
        # A stick tag describes a stick of the memory, so the offsets must be multiples of the stick size.
        self._is_aligned = all(offset % memory.stick_bytes == 0 for offset in offsets)
        self._kept: list[tuple[slice, NDArray[Any]]] | None = None

    def keep(self) -> CoreViews:
        """Keep views of the bytes, which stay at their addresses from now on."""
        self._kept = list(self._views(self._memory.data, self._raw))
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """The split shape of the window, after the axis of cores."""
        return (self._count, *self._window.shape)

    @property
    def is_one_view(self) -> bool:
        """Return whether ``bits`` is a view of the memory, which is kept."""
        return self._kept is not None and len(self._kept) == 1

    def bits(self) -> NDArray[Any]:
        """Return the elements in the split shape of the window; the result may be a view, so do not write to it."""
        return self._joined(self._data_views())

    def tags(self) -> NDArray[Any]:
        """Return the tags of the elements in the split shape of the window."""
        return self._joined(self._views(self._shadow(), self._raw))

    def merged(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return elements with one axis for each label instead of the split shape, limited to the positions to read."""
        window = self._window
        array = array.reshape(len(array), *window.merged)
        return array if window.trim is None else array[(slice(None), *window.trim)]

    def are_written_by(self, tags: Sequence[int]) -> bool:
        """Return whether each stick was written as a whole by one of ``tags``; if not, check the tags of elements."""
        if not self._is_aligned:
            return False
        wanted = self._window.bytes_in_stick(self._raw)
        first, *others = (stick_tag(tag, self._raw) for tag in tags)
        for view in self._sticks():
            good = view == first
            for tag in () if good.all() else others:
                good |= view == tag
            if good.all():
                continue
            if (
                wanted is None
                or not np.logical_or.reduce(
                    [good, *(carries(view, tag, wanted) for tag in (first, *others))]
                ).all()
            ):
                return False
        return True

    def write(self, bits: NDArray[Any], part: tuple[int, int] = (0, 1)) -> None:
        """Write elements in the split shape of the window: all, or as ``part`` one of several bursts of positions."""
        if self._kept is not None and len(self._kept) == 1:
            self._kept[0][1][...] = bits
            return
        positions: Any = ...
        if (bursts := part[1]) > 1:
            axis = int(np.argmax(self._window.shape))
            ends = (self._window.shape[axis] * number // bursts for number in (part[0], part[0] + 1))
            positions = (slice(None), *[slice(None)] * axis, slice(*ends))
        for cores, view in self._data_views():
            view[positions] = bits[cores][positions]

    def fill(self, bits: int) -> None:
        """Write the same bits to all elements."""
        for _, view in self._data_views():
            view[...] = bits

    def write_tag(self, tag: int, first_bytes: int = 0) -> None:
        """Record that ``tag`` wrote all sticks, or only ``first_bytes`` of each stick, followed by poison."""
        if not self._is_aligned:
            tags = np.full(self._window.shape, spread(tag, self._raw))
            if first_bytes:
                tags[..., first_bytes // self._raw.itemsize :] = spread(POISON, self._raw)
            self.write_tags(tags)
            return
        for view in self._sticks():
            view[...] = stick_tag(tag, self._raw, first_bytes)

    def write_tags(self, tags: NDArray[Any] | np.integer) -> None:
        """Record the writers of the elements, by tags in the split shape, the same on all cores."""
        for _, view in self._views(self._shadow(), self._raw):
            view[...] = tags

    def _views(self, array: NDArray[np.uint8], raw: np.dtype) -> Iterator[tuple[slice, NDArray[Any]]]:
        return self._strided(array, raw, self._window.shape, self._window.strides)

    def _strided(
        self, array: NDArray[np.uint8], raw: np.dtype, shape: Sequence[int], strides: Sequence[int]
    ) -> Iterator[tuple[slice, NDArray[Any]]]:
        for cores, first, step in self._runs:
            yield cores, np.ndarray((cores.stop - cores.start, *shape), raw, array, first, (step, *strides))

    def _data_views(self) -> Iterable[tuple[slice, NDArray[Any]]]:
        return self._views(self._memory.data, self._raw) if self._kept is None else self._kept

    def _joined(self, parts: Iterable[tuple[slice, NDArray[Any]]]) -> NDArray[Any]:
        views = list(parts)
        if len(views) == 1:
            return views[0][1]
        joined = np.empty((self._count, *self._window.shape), self._raw)
        for cores, view in views:
            joined[cores] = view
        return joined

    def _sticks(self) -> Iterator[NDArray[np.uint32]]:
        """Yield views of the tags of the sticks of the window."""
        memory, window = self._memory, self._window
        memory.require_writers()
        unit, bytes_ = memory.stick_bytes, memory.stick_tags.itemsize
        strides = [stride // unit * bytes_ for stride in window.stride_of_sticks]
        for cores, first, step in self._runs:
            shape = (cores.stop - cores.start, *window.count_of_sticks)
            steps = (step // unit * bytes_, *strides)
            yield np.ndarray(shape, np.uint32, memory.stick_tags, first // unit * bytes_, steps)

    def _shadow(self) -> NDArray[np.uint8]:
        """The shadow of the memory, in which the tags of the window are stored per element from now on."""
        memory, window = self._memory, self._window
        if not self._is_aligned:
            return memory.shadow
        shadow = memory.shadow_of(0, 0)
        shape = (*window.count_of_sticks, memory.stick_bytes // 2)
        views = self._strided(shadow, np.dtype(np.uint16), shape, (*window.stride_of_sticks, 2))
        for (_, view), tags in zip(views, self._sticks(), strict=True):
            memory.spread(view, tags)
        return shadow
