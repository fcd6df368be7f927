# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writer of the result of one execution to memory: the computed bits, and the tags of their writer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.simulator.access import Access, OperandAccesses
from spyre_mlir.simulator.boxes import StridedWindow
from spyre_mlir.simulator.core_batches import CoreBatch
from spyre_mlir.simulator.core_views import CoreViews
from spyre_mlir.simulator.memory import PARTIAL, POISON, POISON_BYTE, AddressSpace, spread
from spyre_mlir.simulator.plan import Plan
from spyre_mlir.target.formats import FORMATS


class ResultWriter:
    """Writer of the results of core batches to their addresses in a buffer."""

    def __init__(self, plan: Plan, space: AddressSpace, outputs: OperandAccesses) -> None:
        self._outputs, self._tag = outputs, outputs.region.tag
        self._raw = FORMATS[plan.design.operands[-1].data_format].raw
        self._memory = space.memory(outputs.region)
        self._memory.own()
        self._places = {
            core: space.place(outputs.region, core, address) for core, address in outputs.addresses.items()
        }

        self._kept: dict[tuple[int, bool], CoreViews] | None = None
        #: Views of results without padding, for kept writes.
        self._plain: dict[int, CoreViews] = {}

    def keep(self) -> None:
        """Keep views of the written memory, whose tags do not change after the first write."""
        self._kept = {}

    def _views(self, batch: CoreBatch, is_whole: bool, window: StridedWindow) -> tuple[CoreViews, bool]:
        """Return views of a window of a batch, and whether their tags are already written."""
        key = (id(batch), is_whole)
        if self._kept is not None and key in self._kept:
            return self._kept[key], True
        places = [self._places[group[-1]] for group in batch.groups]
        views = CoreViews(self._memory, window, places, self._raw)
        if self._kept is not None:
            self._kept[key] = views.keep()
        return views, False

    def write(self, batch: CoreBatch, bits: NDArray[Any]) -> None:
        """Store the valid part; the rest of the sticks becomes poison that must not be read."""
        if (plain := self._plain.get(id(batch))) is not None:
            plain.write(bits.reshape(plain.shape))
            return
        cores, raw = [group[-1] for group in batch.groups], self._raw
        box = self._outputs.boxes[cores[0]]
        if not box.padded:
            window = batch.split.windows[-1] if batch.split else box.whole
            views, is_tagged = self._views(batch, True, window)
            views.write(bits.reshape(len(cores), *window.shape))
            if not is_tagged:
                views.write_tag(self._tag)
            if self._kept is not None:
                self._plain[id(batch)] = views
            return
        whole, is_tagged = self._views(batch, True, box.whole)
        poison = int.from_bytes(bytes([POISON_BYTE]) * raw.itemsize)
        if box.is_sparse:
            window = box.read_window
            # A copy in place reads the memory that the poison overwrites.
            bits = bits.reshape(len(cores), *window.shape).copy()
            whole.fill(poison)
            self._views(batch, False, window)[0].write(bits)
            if not is_tagged:
                whole.write_tag(self._tag, window.bytes_in_stick(raw) or 0)
            return
        valid = tuple(slice(count) for count in box.valid)
        values = np.full((len(cores), *box.extents), poison, raw)
        values[(slice(None), *valid)] = bits.reshape(len(cores), *box.valid)
        whole.write(values.reshape(len(cores), *box.whole.shape))
        if not is_tagged:
            tags = np.full(box.extents, spread(POISON, raw))
            tags[valid] = spread(self._tag, raw)
            whole.write_tags(tags.reshape(box.whole.shape))

    def leave_part(self, access: Access) -> None:
        """Record that a core of a split reduction that does not finish it holds only a partial sum, not to be read."""
        views = CoreViews(self._memory, access.box.whole, [self._places[access.core]], self._raw)
        views.write_tag(PARTIAL)
