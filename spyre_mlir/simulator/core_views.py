# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One window at the addresses of several cores in one memory, as arrays with a leading axis of cores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.simulator.boxes import StridedWindow
from spyre_mlir.simulator.memory import POISON, Memory, carries, spread, stick_tag

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

    def write(self, bits: NDArray[Any]) -> None:
        """Write elements in the split shape of the window."""
        if self._kept is not None and len(self._kept) == 1:
            self._kept[0][1][...] = bits
            return
        for cores, view in self._data_views():
            view[...] = bits[cores]

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
