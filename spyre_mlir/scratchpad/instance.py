# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A planning problem as arrays, and the lower bounds of its plans."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.optimization.arrays import Array, distinct
from spyre_mlir.optimization.bipartite import Child, most_shared
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.buffers import (
    LIMIT,
    LifetimeBoundBuffer,
    MemorySpace,
    PlanError,
    check_buffers,
)


@dataclass(frozen=True, eq=False)
class Instance:
    """A planning problem: buffers in the order of their first use (ties as given), and one array entry for each.

    Attributes:
        buffers: The buffers.
        space: The memory that they share.
        starts: The time of the first use of each.
        ends: The time of the last use of each, at which it is still live.
        sizes: Aligned bytes of each, copies included.
        savings: Bytes of traffic that an address of each saves.
        parents: For each the indices of the buffers whose address it can take: their last use is its first use, and it
            is not larger.
    """

    buffers: tuple[LifetimeBoundBuffer, ...]
    space: MemorySpace
    starts: Array
    ends: Array
    sizes: Array
    savings: Array
    parents: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, buffers: Sequence[LifetimeBoundBuffer], space: MemorySpace) -> Instance:
        """Return the instance of ``buffers``, in any order, that share ``space``.

        Raises:
            PlanError: The buffers are invalid, or have or move 2^60 bytes or more together.
        """
        check_buffers(buffers)
        ordered = tuple(sorted(buffers, key=lambda buffer: buffer.first))
        index_of = {buffer.name: index for index, buffer in enumerate(ordered)}

        def accepts(parent: LifetimeBoundBuffer, child: LifetimeBoundBuffer) -> bool:
            fits = space.bytes_of(child) <= space.bytes_of(parent)
            return fits and parent.last == child.first and parent.copies == child.copies == 1

        total = max(sum(map(space.bytes_of, ordered)), sum(buffer.traffic_if_spilled for buffer in ordered))
        if total >= LIMIT:
            raise PlanError("The buffers have or move 2^60 bytes or more together, more than can be planned.")
        return cls(
            ordered,
            space,
            starts=_array(buffer.first for buffer in ordered),
            ends=_array(buffer.last for buffer in ordered),
            sizes=_array(space.bytes_of(buffer) for buffer in ordered),
            savings=_array(buffer.saving for buffer in ordered),
            parents=tuple(
                tuple(
                    parent
                    for parent in dict.fromkeys(index_of[name] for name in child.in_place_parents)
                    if accepts(ordered[parent], child)
                )
                for child in ordered
            ),
        )

    def __len__(self) -> int:
        return len(self.buffers)

    def subset(self, keep: Sequence[int]) -> Instance:
        """Return the instance of the buffers ``keep``, by rising index; parents outside of it are removed."""
        new = {old: number for number, old in enumerate(keep)}
        parents = tuple(tuple(new[p] for p in self.parents[old] if p in new) for old in keep)
        indices = np.asarray(keep, np.int64)
        return Instance(
            tuple(self.buffers[old] for old in keep),
            self.space, self.starts[indices], self.ends[indices], self.sizes[indices], self.savings[indices], parents,
        )  # fmt: skip

    @functools.cached_property
    def fits(self) -> NDArray[np.bool_]:
        """Return whether each buffer fits alone."""
        return self.sizes <= self.space.capacity

    @functools.cached_property
    def shareable(self) -> Array:
        """Per buffer the bytes that it can share at its first use: its size if it has a parent, else 0."""
        return np.where([bool(parents) for parents in self.parents], self.sizes, 0)

    @functools.cached_property
    def times(self) -> Array:
        """The times at which buffers begin, ascending; the load is highest at one of these times."""
        return distinct(self.starts)

    @functools.cached_property
    def loads(self) -> Array:
        """Per entry of ``times`` the minimum bytes of the live buffers, with in-place pairs shared."""
        return self.load_of(np.ones(len(self), bool))

    def load_of(self, selected: NDArray[np.bool_]) -> Array:
        """Return the ``loads`` of ``selected`` buffers (flags); a pair is shared only if both are selected."""
        sizes = np.where(selected, self.sizes, 0)
        begin, end = self._live_times
        change = np.zeros(len(self.times) + 1, np.int64)
        np.add.at(change, begin, sizes)
        np.subtract.at(change, end, sizes)
        # Sizes come and go: the running sum of the changes is the load.
        load = np.cumsum(change)[:-1]
        (lone, rows, parents), rivals = self._sharing
        if len(lone):
            # No other buffer can share with its parents at that time, so any parent is possible.
            shares = np.logical_or.reduceat(selected[parents], rows) & selected[lone]
            load[begin[lone]] -= np.where(shares, self.sizes[lone], 0)
        for time, children in rivals:
            load[time] -= shared_bytes(children, selected)
        return load

    def live_at(self, time: int, selected: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Return the ``selected`` buffers (flags) that are live at a ``time``, by rising index."""
        return np.flatnonzero(selected & (self.starts <= time) & (self.ends >= time))

    @functools.cached_property
    def _live_times(self) -> tuple[Array, Array]:
        """Per buffer the half-open range of entries of ``times`` at which it is live."""
        begin = np.searchsorted(self.times, self.starts)
        return begin, np.searchsorted(self.times, self.ends, side="right")

    @functools.cached_property
    def _sharing(self) -> tuple[tuple[Array, Array, Array], list[tuple[int, list[Child]]]]:
        """The children that may share bytes at their first use.

        First the children that begin alone, the row at which the parents of each begin, and those parents; then each
        entry of ``times`` at which several children begin, with these children.
        """
        begin = self._live_times[0].tolist()
        indices = np.flatnonzero(self.shareable > 0).tolist()
        children = (Child(index, int(self.sizes[index]), self.parents[index]) for index in indices)
        groups = itertools.groupby(children, key=lambda child: begin[child.item])
        by_time = [(time, list(group)) for time, group in groups]
        alone = [children[0] for _, children in by_time if len(children) == 1]
        rows = itertools.accumulate((len(child.parents) for child in alone), initial=0)
        parents = _array(parent for child in alone for parent in child.parents)
        lone = _array(child.item for child in alone), _array(rows)[:-1], parents
        return lone, [(time, children) for time, children in by_time if len(children) > 1]

    @property
    def load(self) -> int:
        """The largest load, called LOAD in the literature: no plan of all buffers has a lower peak."""
        return int(self.loads.max(initial=0))


def shared_bytes(children: Iterable[Child], selected: NDArray[np.bool_]) -> int:
    """Return the bytes that ``selected`` children (flags) can share with selected parents."""
    return most_shared(
        [
            child._replace(parents=tuple(parent for parent in child.parents if selected[parent]))
            for child in children
            if selected[child.item]
        ]
    )


def _array(values) -> Array:
    return np.fromiter(values, np.int64)
