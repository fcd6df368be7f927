# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks of a compiled program: races, and a comparison with a reference on seeded random arguments.

Floating-point arguments are standard normal numbers; a parameter of rank 2 or more is divided by the square root
of its longest dim, so that deep programs stay in range. Integers are uniform in [-8, 8), booleans are fair
coins. A floating-point result passes if its largest error is at most ``TOLERANCES[dtype]`` times the largest
reference value, with NaN and infinities at the same places. Integer and boolean results must be equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from spyre_mlir.bundle.sequence import join
from spyre_mlir.bundle.validate import races
from spyre_mlir.driver.steps import Step, sequences
from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass
from spyre_mlir.tables import aligned
from spyre_mlir.target.formats import BIT_TRUE

SEED = 20

DISTRIBUTION = (
    "floats normal(0, 1), parameters of rank >= 2 divided by the root of their longest dim, "
    "integers uniform in [-8, 8), booleans fair"
)

#: Tolerances relative to the largest value: ten rounding steps of a 16-bit format, and more steps for float32, whose
#: errors depend on the order of long sums. The reference accumulates in float64 and rounds once per operation.
TOLERANCES = {"float16": 1e-2, "bfloat16": 4e-2, "float32": 1e-4, "float64": 1e-4}

#: DL16 has one bit of mantissa less than float16.
BIT_TRUE_FACTOR = 2


class HostArray(Protocol):
    """Interface of an argument or a result on the host, such as ``build.Value`` or a manifest's argument."""

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
    """The largest error of one result against its reference, and the largest allowed error.

    Attributes:
        name: The name of the result.
        error: The largest error, or the number of wrong elements of integers.
        bound: The largest allowed error.
        measure: "largest error" or "wrong elements".
    """

    name: str
    error: float
    bound: float
    measure: str = "largest error"

    @property
    def passed(self) -> bool:
        """True if the error is at most the bound."""
        return self.error <= self.bound

    def __str__(self) -> str:
        verdict = "PASS" if self.passed else "FAIL"
        return f"{verdict}  {self.name}: {self.measure} {self.error:.3g}, allowed {self.bound:.3g}"


@dataclass(frozen=True)
class ModuleComparison(Comparison):
    """The error of a module's result; its ``name`` is the path of the module.

    Attributes:
        ulp: The error in units in the last place of the largest value.
    """

    ulp: float = 0.0


class ModuleComparisons(tuple[ModuleComparison, ...]):
    """The comparisons of all modules in the order in which they end, printed as a table."""

    @property
    def first(self) -> ModuleComparison | None:
        """The first module whose error exceeds the rule of ``spyre-compile --check``; None without one."""
        return next((each for each in self if not each.passed), None)

    def __str__(self) -> str:
        rows = [("module", "largest error", "allowed", "ulp", "")]
        for each in self:
            verdict = "" if each.passed else "first above" if each is self.first else "above"
            rows.append((each.name, f"{each.error:.3g}", f"{each.bound:.3g}", f"{each.ulp:.3g}", verdict))
        return "\n".join(aligned(rows, "<>>><"))


def require_no_races(steps: Sequence[Step]) -> None:
    """Raise ``CompileError`` for the first race in a sequence of bundles (docs/concurrency.md)."""
    for unit in sequences(steps):
        if not isinstance(unit, list):
            continue
        for finding in races(join([step.bundle for step in unit]), unit[0].lx_frac_avail):
            raise CompileError(finding.message, finding.where)


def random_arguments(arguments: Sequence[HostArray], seed: int = SEED) -> dict[str, np.ndarray]:
    """Generate arrays by name for inputs and parameters, in the types of the host functions' evaluator."""
    generator = np.random.default_rng(seed)
    arrays = {}
    for argument in arguments:
        shape, dtype = argument.host_shape, argument.host_dtype
        if argument.kind not in ("input", "parameter"):
            continue
        if dtype == "bool":
            arrays[argument.name] = generator.random(shape) < 0.5
            continue
        if dtype == "float8_e4m3fn":  # numpy lacks it: bits of numbers from 1/8 to 2, and signs
            bits = generator.integers(0x20, 0x40, shape) | generator.integers(0, 2, shape) << 7
            arrays[argument.name] = bits.astype(np.uint8)
            continue
        if dtype not in TOLERANCES:
            bounds = getattr(argument, "index_bounds", None)
            low, high = (bounds.lower, bounds.upper) if bounds else (0 if dtype.startswith("u") else -8, 8)
            arrays[argument.name] = generator.integers(low, high, shape).astype(dtype)
            continue
        values = generator.standard_normal(shape)
        if argument.kind == "parameter" and len(shape) > 1:
            values /= math.sqrt(max(shape))
        if dtype == "bfloat16":  # numpy lacks it: the upper half of the bits of float32
            bits = values.astype(np.float32).view(np.uint32) >> np.uint32(16)
            arrays[argument.name] = bits.astype(np.uint16)
        else:
            arrays[argument.name] = values.astype(dtype)
    return arrays


def compare(
    results: Sequence[HostArray],
    outputs: Sequence[np.ndarray],
    references: Sequence[np.ndarray],
    numerics: str,
) -> list[Comparison]:
    """Compare each result of a run with the reference result at the same index."""
    triples = zip(results, outputs, references, strict=True)
    return [_comparison(result, output, reference, numerics) for result, output, reference in triples]


def _comparison(argument: HostArray, output: np.ndarray, reference: np.ndarray, numerics: str) -> Comparison:
    if argument.host_dtype not in TOLERANCES:
        wrong = int(np.count_nonzero(output != reference))
        return Comparison(argument.name, float(wrong), 0.0, "wrong elements")
    output, reference = _float64(output), _float64(reference)
    tolerance = TOLERANCES[argument.host_dtype] * (BIT_TRUE_FACTOR if numerics == BIT_TRUE else 1)
    finite = np.isfinite(reference)
    # Relative to the largest value of the tensor, not to each value: small differences of large numbers
    # have the rounding error of the large numbers.
    bound = tolerance * float(np.abs(reference[finite]).max(initial=0.0))
    if not np.array_equal(output[~finite], reference[~finite], equal_nan=True):
        return Comparison(argument.name, math.inf, bound)
    errors = np.abs(output[finite] - reference[finite])
    error = float(errors.max(initial=0.0))
    # Report an infinite error instead of NaN, for readability; neither is within the bound.
    return Comparison(argument.name, math.inf if math.isnan(error) else error, bound)


def _float64(array: np.ndarray) -> np.ndarray:
    """Convert an array of floats to float64; uint16 holds the bits of bfloat16."""
    if array.dtype == np.uint16:
        array = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return array.astype(np.float64)
