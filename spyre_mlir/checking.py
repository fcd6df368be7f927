"""Is a compiled program right? Seeded random arguments, a more exact reference, and the tolerance of the format.

Arguments of floating type are standard normal numbers; a parameter of rank 2 or more is divided by the root
of its longest dim, so that deep programs stay in range. Integers are uniform in [-8, 8), booleans are fair
coins. A result is right if its largest error is at most ``TOLERANCES[dtype]`` of the largest reference value
(NaN and infinities at the same places), and equal if it is an integer or a boolean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from spyre_mlir.target.formats import BIT_TRUE

SEED = 20

DISTRIBUTION = (
    "floats normal(0, 1), parameters of rank >= 2 divided by the root of their longest dim, "
    "integers uniform in [-8, 8), booleans fair"
)

#: Of the largest value: ten rounding steps of a 16-bit format, and more steps of float32, where the order of long
#: sums tells. The reference accumulates in float64 and rounds once per operation.
TOLERANCES = {"float16": 1e-2, "bfloat16": 4e-2, "float32": 1e-4, "float64": 1e-4}

#: DL16 has one bit of mantissa less than float16.
BIT_TRUE_FACTOR = 2


class HostArray(Protocol):
    """What is known of an argument or a result: also a manifest's ``Argument``."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def host_shape(self) -> tuple[int, ...]: ...

    @property
    def host_dtype(self) -> str: ...


@dataclass(frozen=True)
class Comparison:
    """One result against its reference: the largest error, and the largest that is allowed."""

    name: str
    error: float
    bound: float
    what: str = "largest error"

    @property
    def passed(self) -> bool:
        return self.error <= self.bound

    def __str__(self) -> str:
        verdict = "PASS" if self.passed else "FAIL"
        return f"{verdict}  {self.name}: {self.what} {self.error:.3g}, allowed {self.bound:.3g}"


def random_arguments(arguments: Sequence[HostArray], seed: int = SEED) -> dict[str, np.ndarray]:
    """Host arrays by name for the inputs and the parameters, in the form that the evaluator of host functions takes."""
    generator = np.random.default_rng(seed)
    given = [argument for argument in arguments if argument.kind in ("input", "parameter")]
    return {argument.name: _random(argument, generator) for argument in given}


def compare(
    results: Sequence[HostArray],
    outputs: Sequence[np.ndarray],
    references: Sequence[np.ndarray],
    numerics: str,
) -> list[Comparison]:
    """Every result of a run against the reference's, in order."""
    return [_compared(*each, numerics) for each in zip(results, outputs, references, strict=True)]


def _random(argument: HostArray, generator: np.random.Generator) -> np.ndarray:
    shape = argument.host_shape
    if argument.host_dtype == "bool":
        return generator.random(shape) < 0.5
    if argument.host_dtype not in TOLERANCES:
        return generator.integers(-8, 8, shape).astype(argument.host_dtype)
    values = generator.standard_normal(shape)
    if argument.kind == "parameter" and len(shape) > 1:
        values /= math.sqrt(max(shape))
    if argument.host_dtype == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return values.astype(argument.host_dtype)


def _compared(argument: HostArray, got: np.ndarray, reference: np.ndarray, numerics: str) -> Comparison:
    if argument.host_dtype not in TOLERANCES:
        wrong = int(np.count_nonzero(got != reference))
        return Comparison(argument.name, float(wrong), 0.0, "wrong elements")
    if reference.dtype == np.uint16:
        reference = (reference.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if got.dtype == np.uint16:
        got = (got.astype(np.uint32) << np.uint32(16)).view(np.float32)
    got, reference = got.astype(np.float64), reference.astype(np.float64)
    tolerance = TOLERANCES[argument.host_dtype] * (BIT_TRUE_FACTOR if numerics == BIT_TRUE else 1)
    finite = np.isfinite(reference)
    bound = tolerance * float(np.abs(reference[finite]).max(initial=0.0))
    if not np.array_equal(got[~finite], reference[~finite], equal_nan=True):
        return Comparison(argument.name, math.inf, bound)
    errors = np.abs(got[finite] - reference[finite])
    error = float(errors.max(initial=0.0))
    return Comparison(argument.name, math.inf if math.isnan(error) else error, bound)
