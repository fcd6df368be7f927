# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Execution of one operation on its cores: each batch of cores reads, computes and writes in one call, in threads.

A core never reads what another core writes (``check_conflicts``), so a batch may write before others have read.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.records import dataclass
from spyre_mlir.simulator.access import (
    Access,
    OperandAccesses,
    access_error,
    bad_read,
    check_positions,
    element_text,
)
from spyre_mlir.simulator.boxes import StridedWindow, slice_range
from spyre_mlir.simulator.memory import HOST, PARTIAL, POISON, POISON_BYTE, AddressSpace, CoreViews, spread
from spyre_mlir.simulator.plan import (
    CoreBatch,
    MaskedRange,
    Plan,
    SplitForm,
    Work,
    combine_partials,
    compute,
    masked_ranges,
    single_batch,
)
from spyre_mlir.simulator.ranges import RangeCheck, check_bytes, check_integers, check_sum
from spyre_mlir.simulator.run_outcome import SimulationError
from spyre_mlir.simulator.workers import compiled, run_tasks
from spyre_mlir.target import formats
from spyre_mlir.target.ops import DL16, INT8, Kind, scalar_expression

#: Operands and their result.
_Computed = tuple[list[NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True, eq=False)
class BatchNumbers:
    """Numbers of a batch of cores for the range check, with the axis of cores, in the form of the batch.

    ``total`` is the result if rounding it may lose something, with the operands of an elementwise operation;
    ``infinite`` are pairs of operands and result in which infinities may take part.
    """

    batch: CoreBatch
    is_plain: bool = False
    total: NDArray[Any] | None = None
    operands: list[NDArray[Any]] = field(default_factory=list)
    infinite: list[_Computed] = field(default_factory=list)


class BatchRun:
    """Runs the batches of one execution."""

    def __init__(
        self,
        plan: Plan,
        space: AddressSpace,
        numerics: formats.Numerics,
        inputs: Sequence[OperandAccesses],
        writer: ResultWriter,
        ranges: RangeCheck,
        index: int,
    ) -> None:
        self._plan, self._space, self._numerics, self._inputs = plan, space, numerics, inputs
        self._writer, self._ranges, self._index = writer, ranges, index
        self._reader = OperandReader(plan, space, numerics, inputs, plan.batches)
        self._codes, self._fewest_codes = code_function(plan, numerics)
        self._form, self._is_copy = plan.design.operands[-1].data_format, plan.op.is_copy
        self._shapes: dict[int, tuple[int, ...]] = {}

    def keep(self) -> None:
        """Keep what the next run prepares, for later runs on the same memory."""
        self._reader.keep()
        self._writer.keep()

    def run(self) -> None:
        """Run all batches; an error is the first error that the cores raise if they run one by one."""
        self._ranges.begin()
        batches = self._plan.batches
        if len(batches) > 1:
            batches = sorted(batches, key=self._reader.load_order)
        outcomes = run_tasks([functools.partial(self._outcome, batch) for batch in batches])
        errors = [outcome for outcome in outcomes if isinstance(outcome, SimulationError)]
        if errors:
            failed = {
                group
                for batch, outcome in zip(batches, outcomes, strict=True)
                if outcome in errors
                for group in batch.groups
            }
            self._reader = OperandReader(self._plan, self._space, self._numerics, self._inputs, ())
            for group in self._plan.groups:
                if group in failed:
                    self._run_batch(single_batch(group, self._plan.work))
            raise errors[0]
        self._look_at([outcome for outcome in outcomes if isinstance(outcome, BatchNumbers)])
        self._ranges.finish(self._plan)

    def run_in_parts(self, rng: random.Random, bursts: int) -> Iterator[None]:
        """Run the cores one after the other in a random order, each in some ``bursts``, one for each item.

        A part sees what the parts before it wrote, and what other operations wrote between two items.
        """
        self._reader = OperandReader(self._plan, self._space, self._numerics, self._inputs, ())
        parts, numbers = list(itertools.product(self._plan.groups, range(bursts))), list[BatchNumbers]()
        for group, burst in rng.sample(parts, len(parts)):
            numbers.append(self._run_batch(single_batch(group, self._plan.work), (burst, bursts)))
            yield
        # After the parts, because operations that run in between have the same state.
        self._ranges.begin()
        self._look_at(numbers)
        self._ranges.finish(self._plan)

    def _outcome(self, batch: CoreBatch) -> BatchNumbers | SimulationError:
        try:
            return self._run_batch(batch)
        except SimulationError as error:
            return error

    def _look_at(self, numbers: Sequence[BatchNumbers]) -> None:
        """Pass the numbers that need a range check to it, core by core in the order of the plan."""
        plan, ranges = self._plan, self._ranges
        ranges.note_plain(any(batch.is_plain for batch in numbers))
        if all(batch.total is None and not batch.infinite for batch in numbers):
            return
        order = {group: index for index, group in enumerate(plan.groups)}
        places = [
            (order[group], batch, index)
            for batch in numbers
            if batch.total is not None or batch.infinite
            for index, group in enumerate(batch.batch.groups)
        ]
        for _, batch, index in sorted(places, key=lambda place: place[0]):
            of_core = functools.partial(_of_core, index=index, split=batch.batch.split)
            for operands, result in batch.infinite:
                ranges.computed(plan, [of_core(x) for x in operands], of_core(result))
            if batch.total is not None:
                ranges.stored(plan, self._index, of_core(batch.total), [of_core(x) for x in batch.operands])

    def _run_batch(self, batch: CoreBatch, part: tuple[int, int] = (0, 1)) -> BatchNumbers:
        plan, shape, form = self._plan, self._shape(batch), self._form
        # A slice that is only padding computes nothing.
        if 0 in shape:
            self._writer.write(batch, np.zeros(shape, formats.FORMATS[form].raw))
            return BatchNumbers(batch)
        has_codes = self._codes is not None and math.prod(shape) >= self._fewest_codes
        if has_codes and (raw := self._computed_codes(batch)) is not None:
            self._writer.write(batch, raw if raw.shape == shape else np.broadcast_to(raw, shape), part)
            return BatchNumbers(batch, is_plain=True)
        computed = [self._partial(batch, list(cores)) for cores in zip(*batch.groups, strict=True)]
        infinite = [pair for pair in computed if self._ranges.reads_infinities(plan, pair[0])]
        total = combine_partials(plan.op.name, [result for _, result in computed])
        if plan.op.multiplies_bytes and self._numerics.mode == formats.IEEE:
            for index, group in enumerate(batch.groups):
                check_sum(plan, group[-1], _of_core(total, index))
        # The bits are copied unchanged: conversion to numbers and back would change NaN.
        raw = total if self._is_copy else self._numerics.store(total, form)
        self._writer.write(batch, raw if raw.shape == shape else np.broadcast_to(raw, shape), part)
        if form != DL16 or self._is_copy:
            return BatchNumbers(batch, infinite=infinite)
        if self._ranges.is_plain(self._index, total):
            return BatchNumbers(batch, is_plain=True, infinite=infinite)
        operands = computed[-1][0] if plan.elementwise else []
        return BatchNumbers(batch, total=total, operands=operands, infinite=infinite)

    def _shape(self, batch: CoreBatch) -> tuple[int, ...]:
        """Return the shape of the result of a batch, with the axis of cores."""
        if id(batch) not in self._shapes:
            box = self._plan.boxes[-1][batch.groups[0][-1]]
            counts = batch.split.windows[-1].shape if batch.split else box.valid
            self._shapes[id(batch)] = (len(batch.groups), *counts)
        return self._shapes[id(batch)]

    def _computed_codes(self, batch: CoreBatch) -> NDArray[Any] | None:
        """Return the 16-bit results from the 16-bit codes of operands; None if some need a range check as numbers."""
        cores = [group[0] for group in batch.groups]
        codes = [self._reader.codes(k, batch, cores) for k in range(len(self._inputs))]
        if any(self._ranges.has_last(x) for x in codes):
            return None
        assert self._codes is not None
        computed = self._codes(codes)
        if computed is None:
            return None
        raw, largest = computed
        if largest is None:
            is_plain = self._ranges.are_plain(self._index, raw)
        else:
            is_plain = self._ranges.is_plain_size(self._index, largest)
        return raw if is_plain else None

    def _partial(self, batch: CoreBatch, cores: list[int]) -> _Computed:
        """Return the operands and the result of some cores; of a split reduction, a partial result."""
        plan = self._plan
        operands = [self._reader.numbers(k, batch, cores) for k in range(len(self._inputs))]
        if plan.op.kind is Kind.GATHER:
            check_positions(plan, [operand[cores[0]] for operand in self._inputs], [x[0] for x in operands])
        if plan.op.name == "fp32toint32":
            for index, core in enumerate(cores):
                check_integers(plan, core, _of_core(operands[0], index))
        result = compute(plan.op.name, operands, batch.work)
        if plan.op.result == INT8:
            for index, core in enumerate(cores):
                check_bytes(plan, core, _of_core(result, index))
        return operands, result


def _of_core(array: NDArray[Any], index: int, split: SplitForm | None = None) -> NDArray[Any]:
    """Return the entry of a core, with one axis for each label; a single entry is shared by all cores."""
    entry = array[index if len(array) > 1 else 0]
    if split is None:
        return entry
    # The axes of the split form come after an axis of cores.
    return entry.reshape([math.prod(entry.shape[axis - 1] for axis in axes) for axes in split.axes])


# Elementwise operations from the 16-bit codes of operands to the codes of results, without float32 arrays in between.
#
# The results have the same bits as ``compute`` between decoding and encoding.

#: Scalar functions that are compiled, by their code there.
_FUNCTIONS = {"add": 0, "sub": 1, "mul": 2, "realdiv": 3}

#: The number of elements from which compiled functions of two operands are faster.
_COMPILED = 1 << 16

#: The codes of results, and the largest finite magnitude before rounding if it is known.
CodeResults = tuple[NDArray[np.uint16], float | None]

#: A function of the codes of operands; None if the numbers themselves need a range check.
CodeFunction = Callable[[Sequence[NDArray[np.uint16]]], CodeResults | None]


def code_function(plan: Plan, numerics: formats.Numerics) -> tuple[CodeFunction | None, int]:
    """Return the function of codes of a design, and the number of elements from which it is faster.

    The function is None if an element is not a function of one or two codes.
    """
    op, design, mode = plan.op, plan.design, numerics.mode
    if op.kind is not Kind.POINTWISE or op.is_copy or design.masks or op.expression is None:
        return None, 0
    if any(operand.data_format != DL16 for operand in design.operands):
        return None, 0
    constants = tuple(plan.work.constants.items())

    def look_up(codes: Sequence[NDArray[np.uint16]]) -> CodeResults:
        return formats.lookup(_result_codes(op.name, constants, mode), codes[0]), None

    if op.arity == 1:
        return look_up, 0
    expression = scalar_expression(op.expression)
    if not isinstance(expression, tuple) or expression[1:] != op.operands or expression[0] not in _FUNCTIONS:
        return None, 0
    function = _FUNCTIONS[expression[0]]

    def computed(codes: Sequence[NDArray[np.uint16]]) -> CodeResults | None:
        if max(array.size for array in codes) < _COMPILED:
            return None
        return compiled().compute_codes(
            function, codes, mode == formats.BIT_TRUE, formats.DL16_BIAS_STEP, formats.DL16_NAN_CODE
        )

    return computed, _COMPILED


@functools.lru_cache(maxsize=64)
def _result_codes(opcode: str, constants: tuple[tuple[str, float], ...], mode: str) -> NDArray[np.uint16]:
    """Return the table of the 16-bit results of an operation for all 16-bit codes."""
    return formats.Numerics(mode).store(
        compute(opcode, [formats.all_numbers(mode)], Work(constants=dict(constants))), DL16
    )


# Operands of one execution as numbers: read for several cores at once, checked, masked and converted.

#: An operand at its address in a memory, equal for cores that load the same elements in one form.
_LoadKey = tuple[int, int, int, int]


class OperandReader:
    """Reader of the operands of one execution; numbers that several of ``batches`` load from HBM are converted once.

    Arrays have a leading axis of cores, of extent 1 if all cores read one place. Errors name the element only for
    a batch of one core.
    """

    def __init__(
        self,
        plan: Plan,
        space: AddressSpace,
        numerics: formats.Numerics,
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
        #: Bits of kept reads that are read directly as views of memory.
        self._plain: dict[tuple[int, int, int], NDArray[Any]] = {}
        self._is_copy = plan.op.is_copy
        self._forms = [operand.data_format for operand in plan.design.operands]

    def keep(self) -> None:
        """Keep later reads: places whose writers are then known, and views of these places."""
        self._kept, self._is_shared = {}, set()

    def numbers(self, k: int, batch: CoreBatch, cores: Sequence[int]) -> NDArray[Any]:
        """Return the numbers of an operand on some cores; for copies, its bits."""
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
            # The last reader that needs the numbers removes them.
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
        """Return a sort key, the place of the largest shared operand: few shared operands are then live at once."""
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
        """Read the bits of an operand at its distinct places; all but ``masked`` positions must have been written."""
        key = (k, id(batch), cores[0])
        if self._kept is not None and key in self._kept:
            bits = self._kept[key].bits()
            return bits if batch.split else self._kept[key].merged(bits)
        places = list(dict.fromkeys(self._places[k][core] for core in cores))
        window = batch.split.windows[k] if batch.split else self._inputs[k].boxes[cores[0]].read_window
        raw = formats.FORMATS[self._plan.design.operands[k].data_format].raw
        views = CoreViews(self._memories[k], window, places, raw)
        if self._kept is not None:
            self._kept[key] = views.keep()
        tags = (self._inputs[k].region.tag, HOST)
        if self._space.is_checked and not views.are_written_by(tags):
            self._check_tags(k, batch, cores, views, masked)
        bits = views.bits()
        return bits if batch.split else views.merged(bits)

    def codes(self, k: int, batch: CoreBatch, cores: Sequence[int]) -> NDArray[Any]:
        """Read the bits of an operand without masks on some cores."""
        plain = self._plain.get((k, id(batch), cores[0]))
        if plain is not None:
            return plain
        return self._by_core(k, cores, self._bits(k, batch, cores, []))

    def _load_key(self, k: int, batch: CoreBatch, cores: Sequence[int]) -> _LoadKey | None:
        operand, places = self._inputs[k], self._places[k]
        first = places[cores[0]]
        if operand.region.lx or any(places[core] != first for core in cores):
            return None
        return (k, first, id(operand.boxes[cores[0]]), id(batch.split))

    def _read(self, k: int, batch: CoreBatch, cores: Sequence[int]) -> NDArray[Any]:
        """Read the numbers of an operand (for copies, its bits), with masked positions replaced."""
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
            key = (k, id(batch), cores[0])
            if self._kept[key].is_one_view:
                self._plain[key] = bits
        if not batch.split:
            self._check_padding(operand[cores[0]], batch, cores, numbers)
        if plan.design.operands[k].windows:
            return slid(plan, operand[cores[0]], numbers[0])[None]
        return self._by_core(k, cores, numbers)

    def _by_core(self, k: int, cores: Sequence[int], numbers: NDArray[Any]) -> NDArray[Any]:
        """Expand numbers of distinct places to one entry per core; a single place keeps one entry."""
        if len(numbers) in (1, len(cores)):
            return numbers
        places: dict[int, int] = {}
        return numbers[[places.setdefault(self._places[k][core], len(places)) for core in cores]]

    def _check_tags(
        self, k: int, batch: CoreBatch, cores: Sequence[int], views: CoreViews, masked: Sequence[MaskedRange]
    ) -> None:
        """Check that every element was last written through this buffer or by the host."""
        tags = views.tags() if batch.split else views.merged(views.tags())
        good = tags == spread(self._inputs[k].region.tag, tags.dtype)
        if good.all():
            return
        # The host comes second, because most reads are of data that an operation wrote.
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
        """Check that padding of a reduced dim reads as the neutral value: any other value would change the result."""
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
    """Raise the error of a batch of several cores, which are then run one by one to name the first core that fails."""
    if len(cores) > 1 or batch.split:
        raise SimulationError("batch", f"an operand of the cores {list(cores)} cannot be read.")


def _masked_part(masked: MaskedRange) -> tuple[slice, ...]:
    """Return the index of the elements that a mask covers, with an axis of cores."""
    axis, first, last = masked
    return (slice(None),) * (axis + 1) + (slice(first, last),)


# Windows that slide over an operand: from the positions in memory to a view with an axis for each window.


def slid(plan: Plan, access: Access, numbers: NDArray[Any]) -> NDArray[Any]:
    """Return the part of an operand that a core reads by windows, an axis for each dim of the design; a view of a copy.

    ``numbers`` has the positions that are in memory; padding positions get the neutral number of the operation.
    """
    design, operand = plan.design, plan.design.operands[access.operand]
    labels = list(design.sizes)
    counts = {label: slice_range(design, operand, label, access.core)[1] for label in operand.windows}
    padding = [(0, 0)] * numbers.ndim
    for label, window in operand.windows.items():
        axis = labels.index(label)
        first = design.core_slices[access.core][label] * design.shares[label] * window.stride - window.before
        before = access.box.origin[axis] - first
        reached = (counts[label] - 1) * window.stride + window.reach
        padding[axis] = (before, max(reached - before - numbers.shape[axis], 0))
    if any(amount != (0, 0) for amount in padding):
        numbers = np.pad(numbers, padding, constant_values=plan.neutral[0])
    shape, strides = list(numbers.shape), list(numbers.strides)
    for label, window in operand.windows.items():
        axis, kernel = labels.index(label), labels.index(window.kernel)
        step = strides[axis]
        shape[axis], strides[axis] = counts[label], step * window.stride
        shape[kernel], strides[kernel] = window.extent, step * window.dilation
    return np.lib.stride_tricks.as_strided(numbers, shape, strides, writeable=False)


class ResultWriter:
    """Writer of the results of core batches to their addresses in a buffer."""

    def __init__(self, plan: Plan, space: AddressSpace, outputs: OperandAccesses) -> None:
        self._outputs, self._tag = outputs, outputs.region.tag
        self._raw = formats.FORMATS[plan.design.operands[-1].data_format].raw
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

    def write(self, batch: CoreBatch, bits: NDArray[Any], part: tuple[int, int] = (0, 1)) -> None:
        """Store the valid part; the rest of the sticks becomes poison that must not be read.

        ``part`` is the number of a burst and the number of bursts. A result with padding is written by each burst.
        """
        if (plain := self._plain.get(id(batch))) is not None:
            plain.write(bits.reshape(plain.shape))
            return
        cores, raw = [group[-1] for group in batch.groups], self._raw
        box = self._outputs.boxes[cores[0]]
        if not box.padded:
            window = batch.split.windows[-1] if batch.split else box.whole
            views, is_tagged = self._views(batch, True, window)
            views.write(bits.reshape(len(cores), *window.shape), part)
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
