"""What the cores of one operation compute: each batch of cores in one call, batches beside one another in threads."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.simulator.access import OperandAccesses
from spyre_mlir.simulator.compute import Work, combine_partials, compute
from spyre_mlir.simulator.core_batches import CoreBatch, SplitForm, merged_shape, single_batch
from spyre_mlir.simulator.gather import check_positions
from spyre_mlir.simulator.memory import AddressSpace
from spyre_mlir.simulator.operand_reader import OperandReader
from spyre_mlir.simulator.plan import Plan
from spyre_mlir.simulator.ranges import RangeCheck, check_integers
from spyre_mlir.simulator.simulation_error import SimulationError
from spyre_mlir.simulator.workers import run_tasks
from spyre_mlir.target.formats import BIT_TRUE, FORMATS, IEEE, Numerics, all_numbers, lookup
from spyre_mlir.target.ops import DL16, FP8, INT8, Kind

#: Operands and their result.
_Computed = tuple[list[NDArray], NDArray]


@dataclass(frozen=True, eq=False)
class BatchResult:
    """The raw bits that a batch of cores makes, with the axis of cores, in the form of the batch.

    ``total`` has the numbers where they need a look before they are rounded, ``infinite`` what may have been computed
    of infinities (``RangeCheck``).
    """

    batch: CoreBatch
    raw: NDArray
    total: NDArray | None = None
    infinite: list[_Computed] = field(default_factory=list)


class BatchRun:
    """Computes the results of one execution, its numbers looked at by ``ranges``."""

    def __init__(
        self,
        plan: Plan,
        space: AddressSpace,
        numerics: Numerics,
        inputs: Sequence[OperandAccesses],
        ranges: RangeCheck,
        index: int,
    ) -> None:
        self._plan, self._numerics, self._inputs = plan, numerics, inputs
        self._ranges, self._index = ranges, index
        self._reader = OperandReader(plan, space, numerics, inputs, plan.batches)
        self._reader_of_one = functools.partial(OperandReader, plan, space, numerics, inputs, ())
        self._is_tabulated = _has_table(plan) and not ranges.is_amplified(index)

    def results(self) -> list[BatchResult]:
        """The results of all batches; an error is the first that the cores one by one have."""
        batches = self._plan.batches
        order = sorted(range(len(batches)), key=lambda index: self._reader.load_order(batches[index]))
        tasks = [functools.partial(self._result, batches[index]) for index in order]
        try:
            results = dict(zip(order, run_tasks(tasks), strict=True))
        except SimulationError:
            self._reader = self._reader_of_one()
            for group in self._plan.groups:
                self._result(single_batch(group, self._plan.work))
            raise
        return [results[index] for index in range(len(order))]

    def look_at(self, results: Sequence[BatchResult]) -> None:
        """Give the range check the numbers that need a look, core by core in the order of the plan."""
        plan, ranges = self._plan, self._ranges
        if plan.design.operands[-1].data_format == DL16 and not plan.op.is_copy:
            ranges.note_plain(any(result.total is None and result.raw.size for result in results))
        order = {group: index for index, group in enumerate(plan.groups)}
        places = [
            (order[group], result, index)
            for result in results
            if result.total is not None or result.infinite
            for index, group in enumerate(result.batch.groups)
        ]
        for _, result, index in sorted(places, key=lambda place: place[0]):
            split = result.batch.split
            for operands, numbers in result.infinite:
                of_core = [_by_label(x, index, split) for x in operands]
                ranges.computed(plan, of_core, _by_label(numbers, index, split))
            if result.total is not None:
                # A function, since the operands are needed for the rare overflow only.
                operands_of = functools.partial(self._operands_of, result.batch.groups[index][-1])
                ranges.stored(plan, self._index, _by_label(result.total, index, split), operands_of)

    def _operands_of(self, core: int) -> list[NDArray]:
        reader, batch = self._reader_of_one(), single_batch((core,), self._plan.work)
        return [reader.numbers(k, batch, [core])[0] for k in range(len(self._inputs))]

    def _result(self, batch: CoreBatch) -> BatchResult:
        plan, split = self._plan, batch.split
        box = plan.boxes[-1][batch.groups[0][-1]]
        shape = (len(batch.groups), *(split.windows[-1].shape if split else box.valid))
        form = plan.design.operands[-1].data_format
        # A slice of padding alone computes nothing.
        if 0 in shape:
            return BatchResult(batch, np.zeros(shape, FORMATS[form].raw))
        if self._is_tabulated and (raw := self._tabulated(batch)) is not None:
            return BatchResult(batch, np.broadcast_to(raw, shape))
        infinite: list[_Computed] = []
        partials = [self._partial(batch, list(cores), infinite) for cores in zip(*batch.groups, strict=True)]
        total = combine_partials(plan.op.name, partials)
        if plan.op.formats[0] in (INT8, FP8) and self._numerics.mode == IEEE:
            for index, group in enumerate(batch.groups):
                _check_sum(plan, _of_core(total, index), group[-1])
        # Bits as they are: conversion to numbers and back would change NaN.
        if plan.op.is_copy:
            return BatchResult(batch, np.broadcast_to(total, shape))
        raw = np.broadcast_to(self._numerics.store(total, form), shape)
        is_plain = form != DL16 or self._ranges.is_plain(self._index, total)
        return BatchResult(batch, raw, None if is_plain else total, infinite)

    def _tabulated(self, batch: CoreBatch) -> NDArray | None:
        """Look up 16-bit results by the 16-bit codes of the operand; None if some need a look as numbers."""
        mode = self._numerics.mode
        codes = self._reader.bits(0, batch, [group[0] for group in batch.groups], [])
        if self._ranges.has_last(codes):
            return None
        table = _result_codes(self._plan.op.name, tuple(self._plan.work.constants.items()), mode)
        raw = lookup(table, codes)
        return raw if self._ranges.are_plain(raw) else None

    def _partial(self, batch: CoreBatch, cores: list[int], infinite: list[_Computed]) -> NDArray:
        """What some cores compute, of a split reduction a part of the result."""
        plan = self._plan
        operands = [self._reader.numbers(k, batch, cores) for k in range(len(self._inputs))]
        if plan.op.kind is Kind.GATHER:
            check_positions(plan, [operand[cores[0]] for operand in self._inputs], [x[0] for x in operands])
        if plan.op.name == "fp32toint32":
            for index, core in enumerate(cores):
                check_integers(plan, core, _of_core(operands[0], index))
        if plan.op.kind.on_array:
            products = [
                compute(plan.op.name, [_of_core(x, index) for x in operands], plan.work)
                for index in range(len(cores))
            ]
            result = products[0][None] if len(products) == 1 else np.stack(products)
        else:
            result = compute(plan.op.name, operands, batch.work)
        if self._ranges.reads_infinities(plan, operands):
            infinite.append((operands, result))
        return result


def _of_core(array: NDArray, index: int) -> NDArray:
    """The entry of a core, which is that of all cores if there is one."""
    return array[index if len(array) > 1 else 0]


def _by_label(array: NDArray, index: int, split: SplitForm | None) -> NDArray:
    """The entry of a core with one axis for each label."""
    entry = _of_core(array, index)
    return entry.reshape(merged_shape(split, (1, *entry.shape))) if split else entry


def _has_table(plan: Plan) -> bool:
    """Return whether each element of the result is a function of one 16-bit code, without masks."""
    op, form = plan.op, plan.design.operands[0].data_format
    return (
        op.kind is Kind.POINTWISE
        and op.arity == 1
        and not op.is_copy
        and form == DL16
        and not plan.design.masks
    )


@functools.lru_cache(maxsize=64)
def _result_codes(opcode: str, constants: tuple[tuple[str, float], ...], mode: str) -> NDArray[np.uint16]:
    """Table of the 16-bit results of an operation for all 16-bit codes."""
    return Numerics(mode).store(compute(opcode, [all_numbers(mode)], Work(constants=dict(constants))), DL16)


def _check_sum(plan: Plan, total: NDArray, core: int) -> None:
    """Sums of 8-bit products that are scaled afterwards: DL16 holds them, IEEE fp16 in its place does not."""
    largest = float(np.abs(total[np.isfinite(total)]).max(initial=0))
    if largest > float(np.finfo(np.float16).max):
        text = f"a sum of {largest:.0f} has no place in IEEE fp16; run with the numerics '{BIT_TRUE}'."
        raise SimulationError("range", text, design=plan.design, core=core)
