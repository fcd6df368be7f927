# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the cores of one operation do: each batch of cores reads, computes and writes in one call, batches in threads.

No core reads what another one writes (``conflicts``), so a batch writes before others have read.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.records import dataclass
from spyre_mlir.simulator.access import OperandAccesses
from spyre_mlir.simulator.code_functions import code_function, smallest
from spyre_mlir.simulator.compute import combine_partials, compute
from spyre_mlir.simulator.core_batches import CoreBatch, SplitForm, merged_shape, single_batch
from spyre_mlir.simulator.gather import check_positions
from spyre_mlir.simulator.memory import AddressSpace
from spyre_mlir.simulator.operand_reader import OperandReader
from spyre_mlir.simulator.plan import Plan
from spyre_mlir.simulator.ranges import RangeCheck, check_bytes, check_integers
from spyre_mlir.simulator.result_writer import ResultWriter
from spyre_mlir.simulator.simulation_error import SimulationError
from spyre_mlir.simulator.workers import run_tasks
from spyre_mlir.target.formats import BIT_TRUE, FORMATS, IEEE, Numerics
from spyre_mlir.target.ops import DL16, INT8, Kind

#: Operands and their result.
_Computed = tuple[list[NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True, eq=False)
class BatchNumbers:
    """Numbers of a batch of cores that the range check looks at, with the axis of cores, in the form of the batch.

    ``total`` is the result where rounding it may lose something, with the operands of an elementwise operation;
    ``infinite`` are operands and results where infinities may have gone into them.
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
        numerics: Numerics,
        inputs: Sequence[OperandAccesses],
        writer: ResultWriter,
        ranges: RangeCheck,
        index: int,
    ) -> None:
        self._plan, self._numerics, self._inputs = plan, numerics, inputs
        self._writer, self._ranges, self._index = writer, ranges, index
        self._reader = OperandReader(plan, space, numerics, inputs, plan.batches)
        self._reader_of_one = functools.partial(OperandReader, plan, space, numerics, inputs, ())
        self._codes = code_function(plan, numerics)
        self._fewest_codes = smallest(self._codes) if self._codes else 0
        self._form, self._is_copy = plan.design.operands[-1].data_format, plan.op.is_copy
        self._shapes: dict[int, tuple[int, ...]] = {}

    def keep(self) -> None:
        """Keep what a run makes ready, for more runs on the same memory after the next."""
        self._reader.keep()
        self._writer.keep()

    def run(self) -> None:
        """Run all batches; an error is the first that the cores one by one have."""
        batches = self._plan.batches
        if len(batches) == 1:
            self._run_alone(batches[0])
            return
        order = sorted(range(len(batches)), key=lambda index: self._reader.load_order(batches[index]))
        outcomes = run_tasks([functools.partial(self._outcome, batches[index]) for index in order])
        errors = [outcome for outcome in outcomes if isinstance(outcome, SimulationError)]
        if errors:
            failed = {
                group
                for index, outcome in zip(order, outcomes, strict=True)
                if outcome in errors
                for group in batches[index].groups
            }
            self._reader = self._reader_of_one()
            for group in self._plan.groups:
                if group in failed:
                    self._run_batch(single_batch(group, self._plan.work))
            raise errors[0]
        self._look_at([outcome for outcome in outcomes if isinstance(outcome, BatchNumbers)])

    def _run_alone(self, batch: CoreBatch) -> None:
        """Run the only batch."""
        try:
            numbers = self._run_batch(batch)
        except SimulationError:
            self._reader = self._reader_of_one()
            for group in self._plan.groups:
                self._run_batch(single_batch(group, self._plan.work))
            raise
        self._look_at([numbers])

    def _outcome(self, batch: CoreBatch) -> BatchNumbers | SimulationError:
        try:
            return self._run_batch(batch)
        except SimulationError as error:
            return error

    def _look_at(self, numbers: Sequence[BatchNumbers]) -> None:
        """Give the range check the numbers that need a look, core by core in the order of the plan."""
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
            of_core = functools.partial(_by_label, index=index, split=batch.batch.split)
            for operands, result in batch.infinite:
                ranges.computed(plan, [of_core(x) for x in operands], of_core(result))
            if batch.total is not None:
                ranges.stored(plan, self._index, of_core(batch.total), [of_core(x) for x in batch.operands])

    def _run_batch(self, batch: CoreBatch) -> BatchNumbers:
        plan, shape, form = self._plan, self._shape(batch), self._form
        # A slice of padding alone computes nothing.
        if 0 in shape:
            self._writer.write(batch, np.zeros(shape, FORMATS[form].raw))
            return BatchNumbers(batch)
        has_codes = self._codes is not None and math.prod(shape) >= self._fewest_codes
        if has_codes and (raw := self._computed_codes(batch)) is not None:
            self._writer.write(batch, raw if raw.shape == shape else np.broadcast_to(raw, shape))
            return BatchNumbers(batch, is_plain=True)
        computed = [self._partial(batch, list(cores)) for cores in zip(*batch.groups, strict=True)]
        infinite = [pair for pair in computed if self._ranges.reads_infinities(plan, pair[0])]
        total = combine_partials(plan.op.name, [result for _, result in computed])
        if plan.op.multiplies_bytes and self._numerics.mode == IEEE:
            for index, group in enumerate(batch.groups):
                _check_sum(plan, _of_core(total, index), group[-1])
        # Bits as they are: conversion to numbers and back would change NaN.
        raw = total if self._is_copy else self._numerics.store(total, form)
        self._writer.write(batch, raw if raw.shape == shape else np.broadcast_to(raw, shape))
        if form != DL16 or self._is_copy:
            return BatchNumbers(batch, infinite=infinite)
        if self._ranges.is_plain(self._index, total):
            return BatchNumbers(batch, is_plain=True, infinite=infinite)
        operands = computed[-1][0] if plan.elementwise else []
        return BatchNumbers(batch, total=total, operands=operands, infinite=infinite)

    def _shape(self, batch: CoreBatch) -> tuple[int, ...]:
        """The shape of the result of a batch, with the axis of cores."""
        if id(batch) not in self._shapes:
            box = self._plan.boxes[-1][batch.groups[0][-1]]
            counts = batch.split.windows[-1].shape if batch.split else box.valid
            self._shapes[id(batch)] = (len(batch.groups), *counts)
        return self._shapes[id(batch)]

    def _computed_codes(self, batch: CoreBatch) -> NDArray[Any] | None:
        """16-bit results of 16-bit codes of operands; None if some need a look as numbers."""
        cores = [group[0] for group in batch.groups]
        codes = [self._reader.codes(k, batch, cores) for k in range(len(self._inputs))]
        if any(self._ranges.has_last(x) for x in codes):
            return None
        assert self._codes is not None
        computed = self._codes(codes)
        if computed is None:
            return None
        raw, largest = computed
        is_plain = (
            self._ranges.are_plain(self._index, raw)
            if largest is None
            else self._ranges.is_plain_size(self._index, largest)
        )
        return raw if is_plain else None

    def _partial(self, batch: CoreBatch, cores: list[int]) -> _Computed:
        """What some cores compute, of a split reduction a part of the result, and of what."""
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


def _of_core(array: NDArray[Any], index: int) -> NDArray[Any]:
    """The entry of a core, which is that of all cores if there is one."""
    return array[index if len(array) > 1 else 0]


def _by_label(array: NDArray[Any], index: int, split: SplitForm | None) -> NDArray[Any]:
    """The entry of a core with one axis for each label."""
    entry = _of_core(array, index)
    return entry.reshape(merged_shape(split, (1, *entry.shape))) if split else entry


def _check_sum(plan: Plan, total: NDArray[Any], core: int) -> None:
    """Sums of 8-bit products that are scaled afterwards: DL16 holds them, IEEE fp16 in its place does not."""
    largest = float(np.abs(total[np.isfinite(total)]).max(initial=0))
    if largest > float(np.finfo(np.float16).max):
        text = f"a sum of {largest:.0f} has no place in IEEE fp16; run with the numerics '{BIT_TRUE}'."
        raise SimulationError("range", text, design=plan.design, core=core)
