# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gaps: the parts of a buffer's live range between consecutive uses, which plans may keep or not.

If a gap is kept, the buffer occupies its bytes at both ends and between them, and the use at the end reads them for
free. If not, this use reads them from device memory. A buffer that is written first and has a gap that is not kept is
also written to device memory, once.

So each gap is a separate buffer for ``buffer_selection.py``. It shares its bytes with the previous gap at the use
between them. The write is the extra loss of the group of all gaps of a buffer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.selection_problem import Group


@dataclass(frozen=True)
class Gap:
    """A gap from one use of a buffer to the next: the saving, and the ``extra`` saving if all gaps are kept.

    ``buffer`` is the index of the buffer in the instance, ``number`` the index of the gap in the buffer. Unit: bytes.
    """

    buffer: int
    number: int
    start: int
    end: int
    saving: int
    extra: int


def gaps_of(instance: Instance) -> list[Gap]:
    """Return the gaps that fit alone and save traffic, in order of time."""
    gaps = [gap for index, buffer in enumerate(instance.buffers) for gap in _gaps(index, buffer)]
    gaps = [gap for gap in gaps if instance.fits[gap.buffer] and gap.saving + gap.extra > 0]
    # ``gap_instance`` keeps this order, and an ``Instance`` is in the order of first uses.
    return sorted(gaps, key=lambda gap: (gap.start, gap.buffer, gap.number))


def _gaps(buffer_index: int, buffer: LifetimeBoundBuffer) -> Iterator[Gap]:
    """Yield the gaps of a buffer; a buffer with one use has a single gap, from this use to itself."""
    first, *others = buffer.traffic_of_each_use
    if not others:
        yield Gap(buffer_index, 0, buffer.first, buffer.last, 0, max(0, buffer.saving))
        return
    # The traffic of the first use is saved only if all gaps are kept.
    extra = max(0, first - buffer.traffic_if_placed)
    for number, ((start, end), saving) in enumerate(
        zip(itertools.pairwise(buffer.uses), others, strict=True)
    ):
        yield Gap(buffer_index, number, start, end, saving, extra)


def groups_of(gaps: Sequence[Gap]) -> list[Group]:
    """Return the group of gaps of each buffer that saves more if all its gaps are kept."""
    members: dict[int, list[int]] = {}
    for index, gap in enumerate(gaps):
        members.setdefault(gap.buffer, []).append(index)
    return [
        Group(tuple(indices), gaps[indices[0]].extra)
        for indices in members.values()
        if gaps[indices[0]].extra
    ]


def gap_instance(instance: Instance, gaps: Sequence[Gap]) -> Instance:
    """Return an instance of the gaps as buffers.

    The parent of a gap is the previous gap. The parents of a first gap are the gaps of the buffer's parents that end
    there: the address of a buffer that is not kept any longer is free, even if the buffer is read later.
    """
    index = {(gap.buffer, gap.number): gap_index for gap_index, gap in enumerate(gaps)}
    ending: dict[tuple[int, int], list[int]] = {}
    for gap_index, gap in enumerate(gaps):
        ending.setdefault((gap.buffer, gap.end), []).append(gap_index)
    number = {buffer.name: gap_index for gap_index, buffer in enumerate(instance.buffers)}
    parents = []
    for gap in gaps:
        if gap.number:
            # The previous gap is in the list as well: either all gaps of a buffer save traffic or none,
            # since ``check_buffers`` refuses later uses that move nothing.
            parents.append((index[gap.buffer, gap.number - 1],))
            continue
        buffer = instance.buffers[gap.buffer]
        able = [number[name] for name in buffer.in_place_parents]
        able = [parent for parent in able if _has_room_for(instance, parent, gap.buffer)]
        parents.append(
            tuple(gap_index for parent in able for gap_index in ending.get((parent, gap.start), ()))
        )
    gap_index = np.array([gap.buffer for gap in gaps], np.int64)
    return Instance(
        tuple(instance.buffers[gap.buffer] for gap in gaps), instance.space, starts=np.array([gap.start for gap in
        gaps], np.int64), ends=np.array([gap.end for gap in gaps], np.int64), sizes=instance.sizes[gap_index],
        savings=np.array([gap.saving for gap in gaps], np.int64), parents=tuple(parents),
    )  # fmt: skip


def _has_room_for(instance: Instance, parent: int, child: int) -> bool:
    """Return whether a buffer could take the address of another buffer."""
    single = instance.buffers[parent].copies == instance.buffers[child].copies == 1
    return single and bool(instance.sizes[child] <= instance.sizes[parent])
