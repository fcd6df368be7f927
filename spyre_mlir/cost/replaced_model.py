# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""User-defined cost models: the interface, and the dispatch of the functions of ``cost_model.py`` by target."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, ClassVar, Generic, ParamSpec

import numpy as np

from spyre_mlir.algorithms import REGISTRIES, Algorithm, Registry
from spyre_mlir.cost.work import OperandWork, OperationWork
from spyre_mlir.target.target import ANALYTIC

_Arguments = ParamSpec("_Arguments")


class CostModel(Algorithm):
    """Times of the parts of an operation, in nanoseconds, by which everything in the compiler ranks plans.

    A work is plain data (``cost/work.py``) whose fields are single numbers. Compute and memory overlap, the ring and
    the wait for the first byte of each access do not: ``OperationCost`` adds them up. The sum of a work's stream times
    must not exceed its ``memory_ns``, or the bounds of searches are wrong.
    """

    registry: ClassVar[Registry[CostModel]] = REGISTRIES["cost_model"]

    @abc.abstractmethod
    def compute_ns(self, work: OperationWork) -> float:
        """Return the compute nanoseconds of the busiest core for ``work``, without waiting for operands."""

    @abc.abstractmethod
    def memory_ns(self, work: OperationWork) -> float:
        """Return the nanoseconds to move all operands of a ``work`` that are not ``in_lx``."""

    def ring_ns(self, work: OperationWork) -> float:
        """Return the nanoseconds of a relayout over the ring, or to add up partial results, as ``work`` says."""
        return CostModel.registry.make(ANALYTIC).ring_ns(work)

    def stream_ns(self, work: OperationWork, operand: OperandWork) -> float:
        """Return the nanoseconds to move one operand, in LX or not.

        By default, the ``memory_ns`` of the work if this operand is the only one to move.

        Args:
            work: The operation.
            operand: The operand.
        """
        return self.memory_ns(replace(work, operands=(replace(operand, in_lx=False),)))

    def burst_slowdown(self, work: OperationWork, operand: OperandWork) -> float:
        """Return the ratio of the time to move an ``operand`` of ``work`` in its runs to the time in whole bursts."""
        burst = work.target.burst_bytes
        longer = replace(
            operand,
            run_bytes=max(burst, operand.run_bytes),
            batch_run_bytes=max(burst, operand.batch_run_bytes),
        )
        least = self.stream_ns(work, longer)
        return self.stream_ns(work, operand) / least if least else 1.0

    def evaluate(self, part: str, work: OperationWork, *operands: OperandWork) -> Any:
        """Return a checked part of the cost of a work; an array if fields of the work are arrays."""
        arrays = [value for value in _numbers(work, *operands) if isinstance(value, np.ndarray)]
        if not arrays:
            return self._checked(part, work, operands)
        count = max(array.size for array in arrays)
        entries = range(count)
        singles = (
            (_entry(work, index), tuple(_entry(operand, index) for operand in operands)) for index in entries
        )
        return np.array([self._checked(part, *single) for single in singles])

    def _checked(self, part: str, work: OperationWork, operands: tuple[OperandWork, ...]) -> float:
        problem = f"'{work.opcode}' on {work.cores} cores"
        with self.guarded(problem):
            number = getattr(self, part)(work, *operands)
        return self.checked_number(number, part, problem)


class ReplaceableFormula(Generic[_Arguments]):
    """A formula of a work and its operands that another model replaces if the target names one."""

    def __init__(self, formula: Callable[_Arguments, Any]) -> None:
        functools.update_wrapper(self, formula)
        self.formula, self.part = formula, formula.__name__

    def __call__(self, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> Any:
        """Return the result of the formula, or of the model that replaces it."""
        name = arguments[0].target.cost_model  # type: ignore
        if name == ANALYTIC:
            return self.formula(*arguments, **named)
        return _model(CostModel.registry.find(name)).evaluate(self.part, *arguments)  # type: ignore


#: Decorator of a formula that a user-defined model can replace.
replaceable = ReplaceableFormula


@functools.lru_cache(maxsize=16)
def _model(cls: type[CostModel]) -> CostModel:
    return CostModel.registry.make(cls.name)


def _numbers(*parts: OperationWork | OperandWork) -> Iterator[Any]:
    """Yield the fields of works and of their operands."""
    for part in parts:
        for field in fields(part):
            value = getattr(part, field.name)
            yield from _numbers(*value) if field.name == "operands" else (value,)


def _entry(part: Any, index: int) -> Any:
    """Return a work or an operand with one entry of each of its arrays."""
    changes = {}
    for field in fields(part):
        value = getattr(part, field.name)
        if isinstance(value, np.ndarray):
            changes[field.name] = value.item(index if value.size > 1 else 0)
        elif isinstance(value, np.generic):
            changes[field.name] = value.item()
        elif field.name == "operands":
            changes[field.name] = tuple(_entry(operand, index) for operand in value)
    return replace(part, **changes)
