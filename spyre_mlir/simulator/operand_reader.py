# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operands of one execution as numbers: read for several cores at once, checked, masked, converted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.simulator.access import Access, OperandAccesses, access_error, bad_read, element_text
from spyre_mlir.simulator.core_batches import CoreBatch, MaskedRange, masked_ranges
from spyre_mlir.simulator.core_views import CoreViews
from spyre_mlir.simulator.memory import HOST, AddressSpace, spread
from spyre_mlir.simulator.plan import Plan
from spyre_mlir.simulator.simulation_error import SimulationError
from spyre_mlir.simulator.window_view import slid
from spyre_mlir.target.formats import FORMATS, Numerics

#: An operand at its place in a memory, equal for cores that load the same elements in one form.
_LoadKey = tuple[int, int, int, int]


class OperandReader:
    """Reads the operands of one execution; numbers that several of ``batches`` load from HBM are converted once.

    Arrays have an axis of cores in front, of extent 1 where all cores read one place. Errors name the element only for
    a batch of one core.
    """

    def __init__(
        self,
        plan: Plan,
        space: AddressSpace,
        numerics: Numerics,
        inputs: Sequence[OperandAccesses],
        batches: Sequence[CoreBatch],
    ) -> None:
        self._plan, self._space, self._numerics, self._inputs = plan, space, numerics, inputs
        self._memories = [space.memory(operand.region) for operand in inputs]
        self._places = [
            {core: space.place(operand.region, core, address) for core, address in operand.addresses.items()}
            for operand in inputs
        ]
        self._lock = threading.Lock()
        self._converted: dict[_LoadKey, Future[NDArray[Any]]] = {}
        keys = (
            self._load_key(k, batch, cores)
            for batch in batches
            for cores in zip(*batch.groups, strict=True)
            for k in range(len(inputs))
        )
        self._pending = Counter(key for key in keys if key is not None)
        self._is_shared = {key for key, count in self._pending.items() if count > 1}
        self._kept: dict[tuple[int, int, int], CoreViews] | None = None
        #: Bits that are read as they lie in memory, of reads that are kept.
        self._plain: dict[tuple[int, int, int], NDArray[Any]] = {}
        self._is_copy = plan.op.is_copy
        self._forms = [operand.data_format for operand in plan.design.operands]

    def keep(self) -> None:
        """Keep what is read from now on: places whose writers are known from here on, and views of them."""
        self._kept, self._is_shared = {}, set()

    def numbers(self, k: int, batch: CoreBatch, cores: Sequence[int]) -> NDArray[Any]:
        """Numbers of an operand on some cores, for copies its bits."""
        plain = self._plain.get((k, id(batch), cores[0]))
        if plain is not None:
            return plain if self._is_copy else self._numerics.load(plain, self._forms[k])
        key = self._load_key(k, batch, cores) if self._is_shared else None
        if key not in self._is_shared:
            return self._read(k, batch, cores)
        assert key is not None
        with self._lock:
            is_first = key not in self._converted
            future = self._converted.setdefault(key, Future())
            # The last that needs them takes them away.
            self._pending[key] -= 1
            if not self._pending[key]:
                del self._converted[key]
        if is_first:
            try:
                future.set_result(self._read(k, batch, cores))
            except BaseException as error:
                future.set_exception(error)
        return future.result()

    def load_order(self, batch: CoreBatch) -> tuple[int, ...]:
        """The place of the largest operand that batches share: in this order few of these are there at a time."""
        core = batch.groups[0][0]
        shared = [
            (operand.boxes[core].accessed_bytes, self._places[k][core])
            for k, operand in enumerate(self._inputs)
            if self._load_key(k, batch, [core]) in self._is_shared
        ]
        return (max(shared)[1],) if shared else (0,)

    def _bits(
        self, k: int, batch: CoreBatch, cores: Sequence[int], masked: Sequence[MaskedRange]
    ) -> NDArray[Any]:
        """Read the bits of an operand at its distinct places, which somebody wrote but where ``masked``."""
        key = (k, id(batch), cores[0])
        if self._kept is not None and key in self._kept:
            bits = self._kept[key].bits()
            return bits if batch.split else self._kept[key].merged(bits)
        views = self._views(k, batch, cores)
        if self._kept is not None:
            self._kept[key] = views.keep()
        tags = (self._inputs[k].region.tag, HOST)
        if not views.are_written_by(tags):
            self._check_tags(k, batch, cores, views, masked)
        bits = views.bits()
        return bits if batch.split else views.merged(bits)

    def codes(self, k: int, batch: CoreBatch, cores: Sequence[int]) -> NDArray[Any]:
        """Read the bits of an operand without masks on some cores."""
        plain = self._plain.get((k, id(batch), cores[0]))
        if plain is not None:
            return plain
        return self._by_core(k, cores, self._bits(k, batch, cores, []))

    def _views(self, k: int, batch: CoreBatch, cores: Sequence[int]) -> CoreViews:
        places = list(dict.fromkeys(self._places[k][core] for core in cores))
        window = batch.split.windows[k] if batch.split else self._inputs[k].boxes[cores[0]].read_window
        raw = FORMATS[self._plan.design.operands[k].data_format].raw
        return CoreViews(self._memories[k], window, places, raw)

    def _load_key(self, k: int, batch: CoreBatch, cores: Sequence[int]) -> _LoadKey | None:
        operand, places = self._inputs[k], self._places[k]
        first = places[cores[0]]
        if operand.region.lx or any(places[core] != first for core in cores):
            return None
        return (k, first, id(operand.boxes[cores[0]]), id(batch.split))

    def _read(self, k: int, batch: CoreBatch, cores: Sequence[int]) -> NDArray[Any]:
        """Read the numbers of an operand, for copies its bits, with masked positions replaced."""
        plan, operand = self._plan, self._inputs[k]
        masked = masked_ranges(plan.design, operand.boxes[cores[0]]) if plan.design.masks else []
        form = plan.design.operands[k].data_format
        bits = self._bits(k, batch, cores, masked)
        numbers = bits if self._is_copy else self._numerics.load(bits, form)
        if masked:
            assert plan.mask_value is not None
            fill = (
                self._numerics.store(np.array(plan.mask_value), form) if plan.op.is_copy else plan.mask_value
            )
            numbers = numbers.copy()
            for part in masked:
                numbers[_masked_part(part)] = fill
        if self._kept is not None and batch.split and not masked and len(numbers) in (1, len(cores)):
            self._keep_plain((k, id(batch), cores[0]), bits)
        if not batch.split:
            self._check_padding(operand[cores[0]], batch, cores, numbers)
        if plan.design.operands[k].windows:
            return slid(plan, operand[cores[0]], numbers[0])[None]
        return self._by_core(k, cores, numbers)

    def _keep_plain(self, key: tuple[int, int, int], bits: NDArray[Any]) -> None:
        """Keep bits that are a view of the memory."""
        assert self._kept is not None
        if self._kept[key].is_one_view:
            self._plain[key] = bits

    def _by_core(self, k: int, cores: Sequence[int], numbers: NDArray[Any]) -> NDArray[Any]:
        """Numbers of distinct places as those of the cores; one entry if there is one place."""
        if len(numbers) in (1, len(cores)):
            return numbers
        places: dict[int, int] = {}
        return numbers[[places.setdefault(self._places[k][core], len(places)) for core in cores]]

    def _check_tags(
        self,
        k: int,
        batch: CoreBatch,
        cores: Sequence[int],
        views: CoreViews,
        masked: Sequence[MaskedRange],
    ) -> None:
        """Every element must have been written, last through this buffer or by the host."""
        tags = views.tags() if batch.split else views.merged(views.tags())
        good = tags == spread(self._inputs[k].region.tag, tags.dtype)
        if good.all():
            return
        # Second, since most reads are of what an operation wrote.
        good |= tags == spread(HOST, tags.dtype)
        for part in masked:
            good[_masked_part(part)] = True
        if good.all():
            return
        access = self._inputs[k][cores[0]]
        _require_one(cores, batch)
        position = tuple(int(i) for i in np.argwhere(~good[0])[0])
        raise bad_read(self._plan, access, int(tags[0][position]), position, self._space)

    def _check_padding(
        self, access: Access, batch: CoreBatch, cores: Sequence[int], numbers: NDArray[Any]
    ) -> None:
        """Padding of a reduced dim reads as the neutral value: another one would change the result."""
        plan, box = self._plan, access.box
        for axis in plan.work.reduced:
            valid, extent = box.valid[axis], box.extents[axis]
            if not box.varies[axis] or valid == extent:
                continue
            wrong = ~np.isin(numbers[_masked_part((axis, valid, extent))], plan.neutral)
            if not wrong.any():
                continue
            _require_one(cores, batch)
            position = [int(i) for i in np.argwhere(wrong[0])[0]]
            position[axis] += valid
            label = tuple(plan.design.sizes)[axis]
            text = (
                f"{element_text(plan, box, position)} is padding of dim '{label}' and reads as "
                f"{numbers[0][tuple(position)]}, but '{plan.op.name}' needs {plan.neutral[0]} there."
            )
            raise access_error(
                plan, access, "padding", text, box.read_window.address_of(tuple(position), access.address)
            )


def _require_one(cores: Sequence[int], batch: CoreBatch) -> None:
    """Raise the error of a batch of several cores, which are then run one by one to name the first."""
    if len(cores) > 1 or batch.split:
        raise SimulationError("batch", f"an operand of the cores {list(cores)} cannot be read.")


def _masked_part(masked: MaskedRange) -> tuple[slice, ...]:
    """The index of what a mask covers, in elements with an axis of cores."""
    axis, first, last = masked
    return (slice(None),) * (axis + 1) + (slice(first, last),)
