# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementwise operations from the 16-bit codes of operands to those of results, without arrays of float32 between.

They give the bits that ``compute`` gives between decoding and encoding.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.simulator.compute import Work, compute
from spyre_mlir.simulator.plan import Plan
from spyre_mlir.target.formats import (
    BIT_TRUE,
    DL16_BIAS_STEP,
    DL16_NAN_CODE,
    Numerics,
    all_numbers,
    lookup,
)
from spyre_mlir.target.ops import DL16, Kind, scalar_expression

#: Scalar functions that are compiled, by the number that stands for them there.
_FUNCTIONS = {"add": 0, "sub": 1, "mul": 2, "realdiv": 3}

#: Elements from which compiled functions of two operands pay.
_COMPILED = 1 << 16

#: The codes of results, and the largest finite magnitude before rounding if that is known.
CodeResults = tuple[NDArray[np.uint16], float | None]

#: A function of the codes of operands; None if the numbers themselves need a look.
CodeFunction = Callable[[Sequence[NDArray[np.uint16]]], CodeResults | None]


def code_function(plan: Plan, numerics: Numerics) -> CodeFunction | None:
    """Return the function of codes of a design; None if each element is more than a function of one or two codes."""
    op, design = plan.op, plan.design
    if op.kind is not Kind.POINTWISE or op.is_copy or design.masks or op.expression is None:
        return None
    if any(operand.data_format != DL16 for operand in design.operands):
        return None
    if op.arity == 1:
        return functools.partial(_look_up, op.name, tuple(plan.work.constants.items()), numerics.mode)
    expression = scalar_expression(op.expression)
    if not isinstance(expression, tuple) or expression[1:] != op.operands or expression[0] not in _FUNCTIONS:
        return None
    return functools.partial(_compute, _FUNCTIONS[expression[0]], numerics.mode == BIT_TRUE)


def smallest(function: CodeFunction) -> int:
    """Return the number of elements of a result from which a function of codes pays."""
    return _COMPILED if isinstance(function, functools.partial) and function.func is _compute else 0


def _look_up(
    opcode: str, constants: tuple[tuple[str, float], ...], mode: str, codes: Sequence[NDArray[np.uint16]]
) -> CodeResults:
    return lookup(_result_codes(opcode, constants, mode), codes[0]), None


@functools.lru_cache(maxsize=64)
def _result_codes(opcode: str, constants: tuple[tuple[str, float], ...], mode: str) -> NDArray[np.uint16]:
    """Table of the 16-bit results of an operation for all 16-bit codes."""
    return Numerics(mode).store(compute(opcode, [all_numbers(mode)], Work(constants=dict(constants))), DL16)


def _compute(function: int, is_dl16: bool, codes: Sequence[NDArray[np.uint16]]) -> CodeResults | None:
    if max(array.size for array in codes) < _COMPILED:
        return None
    return _compiled().compute_codes(function, codes, is_dl16, DL16_BIAS_STEP, DL16_NAN_CODE)


@functools.cache
def _compiled() -> ModuleType:
    """The compiled functions, which import numba."""
    return importlib.import_module("spyre_mlir.simulator.compiled_elementwise")
