# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fit quality of predicted against measured times, and the device constants that fit best. No IR.

The error of a row is log(predicted / measured), so a factor of two counts alike in both directions. A fit starts from
the values of the device file and minimises the sum of squared errors over the constants between their bounds
(``scipy.optimize.least_squares``). Then each constant is varied alone: values for which the sum grows by at most its
variance per row are as good. If this range spans the bounds, the rows do not identify the constant, and it keeps its
value. Nor do the rows identify constants that can change together at no cost: a singular direction of the Jacobian.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle import read_bundle
from spyre_mlir.bundle.model import Bundle
from spyre_mlir.cost.cost_model import least_ns, operation_cost
from spyre_mlir.cost.of_space import even_work
from spyre_mlir.cost.work import OperationWork
from spyre_mlir.division.slices import Splits
from spyre_mlir.division_search.work_division import by_cost
from spyre_mlir.errors import CompileError
from spyre_mlir.files import read_text
from spyre_mlir.layout import BufferView
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.view import from_order
from spyre_mlir.records import dataclass
from spyre_mlir.tables import TableRow, column_names, quoted, read_rows
from spyre_mlir.target.target import Target, is_integer
from spyre_mlir.timeline import timeline

# Tables (CSV) of measured programs: a line with the column names, then one line per program.
#
#     lx_backend_fraction,cores_b,cores_m,cores_n,cores_k,B,M,N,K,measured_us
#     0.2,1,4,8,1,1,512,4096,4096,317.36
#
# A line is a matmul of ``B`` batches of M x K by K x N; ``cores_b`` .. ``cores_k`` are the slices of each dim, and
# ``measured_us`` is the time of one run in microseconds. Optional columns: ``source`` (a name), ``dtype`` (default
# f16), ``lx_backend_fraction`` (the part of LX that the back end had; default: the device's). Alternatively, a line is
# a compiled program: the columns are ``bundle``, a folder next to the table, ``measured_us`` and ``source``.
#
# Operands of a matmul have the default layouts of torch-spyre: blocks of rows for one matrix; the batch innermost
# before the stick for a batch. Costs are computed as in the search for splits (``division_search/work_division.py``).

#: Dims of a product C[b, m, n] = sum over k of A[b, m, k] W[b, k, n], in this order.
BATCH, ROWS, COLUMNS, DEPTH = range(4)
_OPERANDS = ((BATCH, ROWS, DEPTH), (BATCH, DEPTH, COLUMNS), (BATCH, ROWS, COLUMNS))

#: Device dims of A, W and C, outermost first.
Orders = Sequence[Sequence[int]]

#: Blocks of adjacent rows, as the array loads them; the default layouts of a batched product.
BLOCKS: Orders = ((DEPTH, ROWS), (COLUMNS, DEPTH), (COLUMNS, ROWS))
BATCH_INNERMOST: Orders = ((ROWS, DEPTH, BATCH), (DEPTH, COLUMNS, BATCH), (ROWS, COLUMNS, BATCH))

_MATMUL = "batchmatmul"
_DTYPES = ("f16", "bf16")
_CORES = ("cores_b", "cores_m", "cores_n", "cores_k")
_SIZES = ("B", "M", "N", "K")
_TIME = "measured_us"
_MATMUL_COLUMNS = (*_CORES, *_SIZES, _TIME, "source", "lx_backend_fraction", "dtype")
_BUNDLE_COLUMNS = ("bundle", _TIME, "source")
#: File name of the table in a folder of bundles.
_FOLDER_TABLE = "measured.csv"

_MAX_BYTES, _MAX_ROWS = 1 << 24, 20_000
#: A time below this part of the bytes' time at the memory's peak rate must be in another unit.
_IMPOSSIBLE = 0.1


class Measurements(Protocol):
    """Measured programs that differ only in their split, so that one of them is our choice."""

    @property
    def name(self) -> str:
        """Name of the measured program, without the split."""
        ...

    @property
    def shape(self) -> str:
        """The sizes; a fit excludes the measurements of one shape at a time."""
        ...

    @property
    def splits(self) -> tuple[str, ...]:
        """The split of each row."""
        ...

    @property
    def measured_ns(self) -> NDArray[np.float64]:
        """The time of each row."""
        ...

    def predicted_ns(self, target: Target) -> NDArray[np.float64]:
        """Return the predicted time of each row."""
        ...

    def choice(self, target: Target) -> int:
        """Return the index of the row whose split the search would choose."""
        ...


@dataclass(frozen=True, eq=False)
class MatmulMeasurements:
    """Times of one matmul in several splits, on a ``device`` whose back end keeps a part of LX."""

    name: str
    shape: str
    splits: tuple[str, ...]
    measured_ns: NDArray[np.float64]
    slices: Splits
    sizes: tuple[int, ...]
    dtype: str
    fraction: float
    device: Target

    @functools.cached_property
    def work(self) -> OperationWork:
        """The work of all rows: fields that depend on the split are arrays."""
        return even_work(_MATMUL, self._space(self.device), tuple(self.slices))

    def predicted_ns(self, target: Target) -> NDArray[np.float64]:
        work = replace(self.work, target=target.with_backend_fraction(self.fraction))
        # No program is faster than its bytes at the peak rate; the timeline also applies this floor last.
        return np.maximum(operation_cost(work).total_ns, least_ns(work)) + np.zeros(len(self.splits))

    def choice(self, target: Target) -> int:
        return int(by_cost(_MATMUL, self._space(target), self.slices)[0])

    def _space(self, target: Target) -> Space:
        orders = BLOCKS if self.sizes[BATCH] == 1 else BATCH_INNERMOST
        return matmul_space(target.with_backend_fraction(self.fraction), self.sizes, orders, self.dtype)


@dataclass(frozen=True, eq=False)
class BundleMeasurement:
    """The time of one bundle."""

    name: str
    shape: str
    measured_ns: NDArray[np.float64]
    bundle: Bundle
    splits: tuple[str, ...] = ("",)

    def predicted_ns(self, target: Target) -> NDArray[np.float64]:
        ours = self.bundle.target
        target = target.with_cores(ours.cores).with_backend_fraction(ours.lx_backend_fraction)
        return np.array([timeline(self.bundle.for_target(target)).total_ns])

    def choice(self, target: Target) -> int:
        return 0


def matmul_space(target: Target, sizes: Sequence[int], orders: Orders, dtype: str = "f16") -> Space:
    """Return the space of a product of batch, rows, columns and depth; dims that ``orders`` leave out are outermost."""
    views = []
    for dims, order in zip(_OPERANDS, orders, strict=True):
        shape = [sizes[dim] for dim in dims]
        layout = from_order(target, shape, dtype, 2, [dims.index(dim) for dim in order])
        views.append(BufferView.of(layout).rename(dims, len(sizes), sizes))
    return Space(tuple(sizes), tuple(views), tuple(map(frozenset, _OPERANDS)), frozenset({DEPTH}))


def read_measurements(path: str, device: Target) -> list[Measurements]:
    """Read a table, or the table of a folder; ``CompileError`` with the place of a line that has no cost."""
    if path != "-" and Path(path).is_dir():
        path = str(Path(path) / _FOLDER_TABLE)
    text = read_text(path, _MAX_BYTES)
    source = "<stdin>" if path == "-" else path
    # The first line determines which of the two kinds of table it is.
    is_of_bundles = "bundle" in column_names(text, source)
    columns, count = (_BUNDLE_COLUMNS, 2) if is_of_bundles else (_MATMUL_COLUMNS, 9)
    too_many = f"The table has more than {_MAX_ROWS} measured times."
    rows = read_rows(text, source, columns[:count], columns, _MAX_ROWS, too_many)
    if not rows:
        raise CompileError("The table has no measured time.", source)
    if is_of_bundles:
        return [_bundle(row, Path(path).parent) for row in rows]
    # By shape, type and part of LX, in the order of the table.
    groups: dict[tuple[tuple[int, ...], str, float], list[TableRow]] = {}
    for row in rows:
        # The sizes, the element type, and the part of LX of the back end.
        sizes = tuple(row.at_least_1(column) for column in _SIZES)
        if max(math.prod(sizes[dim] for dim in dims) for dims in _OPERANDS) * 2 > device.hbm_bytes:
            raise row.error("B", f"An operand of the matmul has more than {device.hbm_bytes} bytes.")
        dtype = row.cells.get("dtype") or "f16"
        if dtype not in _DTYPES:
            known = ", ".join(_DTYPES)
            raise row.error("dtype", f"The element type {quoted(dtype)} is unknown; there are {known}.")
        column, fraction = "lx_backend_fraction", device.lx_backend_fraction
        if row.cells.get(column):
            fraction = row.decimal(column)
            if not 0 <= fraction <= 1:
                raise row.error(
                    column, f"The column '{column}' has fractions of LX, 0 to 1, not {fraction:g}."
                )
        groups.setdefault((sizes, dtype, fraction), []).append(row)
    return [_matmul(*key, members, device) for key, members in groups.items()]


def _bundle(row: TableRow, folder: Path) -> Measurements:
    name = row.cells["bundle"]
    if not name or not (folder / name).is_dir():
        raise row.error("bundle", f"There is no folder {quoted(name)} in the folder of the table.")
    measured = BundleMeasurement(
        name, name, np.array([_nanoseconds(row, 0)]), read_bundle(str(folder / name))
    )
    measured.predicted_ns(measured.bundle.target)  # a bundle without a cost is an error of its line
    return measured


def _matmul(
    sizes: tuple[int, ...], dtype: str, fraction: float, rows: Sequence[TableRow], device: Target
) -> Measurements:
    space = matmul_space(device.with_backend_fraction(fraction), sizes, BLOCKS, dtype)
    floor = sum(math.prod(sizes[dim] for dim in dims) for dims in _OPERANDS) * 2 / device.peak_bytes_per_ns
    slices = [_slices(row, space, device) for row in rows]
    shape = "x".join(map(str, sizes))
    return MatmulMeasurements(
        f"{shape} {dtype} at {fraction:g}",
        shape,
        tuple("_".join(map(str, split)) for split in slices),
        np.array([_nanoseconds(row, floor) for row in rows]),
        np.array(slices).T,
        sizes,
        dtype,
        fraction,
        device,
    )


def _slices(row: TableRow, space: Space, device: Target) -> tuple[int, ...]:
    slices = tuple(row.at_least_1(column) for column in _CORES)
    if math.prod(slices) > device.device_cores:
        wanted = math.prod(slices)
        raise row.error("cores_b", f"The split takes {wanted} cores; the device has {device.device_cores}.")
    for column, size, units, split in zip(_SIZES, space.sizes, space.units, slices, strict=True):
        if units % split:
            sticks, place = f" of {units} sticks" if units != size else "", f"cores_{column.lower()}"
            raise row.error(place, f"{split} slices do not divide {column} = {size}{sticks}.")
    return slices


def _nanoseconds(row: TableRow, floor: float) -> float:
    """Return the measured time; ``floor`` (ns) is the time of the bytes at the memory's peak rate."""
    text = row.cells[_TIME]
    try:
        time = row.decimal(_TIME) * 1000
    except CompileError:
        problem = f"The column '{_TIME}' has microseconds as a number, not {quoted(text)}."
        raise row.error(_TIME, problem) from None
    if not 0 < time < math.inf:
        raise row.error(_TIME, f"A measured time must be above 0 us and finite, not {text}.")
    if time < _IMPOSSIBLE * floor:
        raise row.error(
            _TIME,
            f"The time of {text} us is not possible: the bytes alone take {floor / 1000:.4g} us at the peak of the"
            " memory. Is it in another unit?",
        )
    return time


_NUMBER = r"-?\d+(?:\.\d*)?(?:e-?\d+)?"
_SECTION = re.compile(r"\s*\[(\w+)\]")
_MARKED = re.compile(
    rf"(?P<key>\s*\w+\s*=\s*)(?P<value>{_NUMBER})(?P<space>\s*)#(?P<mark>.*\bfitted (?P<low>{_NUMBER})"
    rf" to (?P<high>{_NUMBER}))(?: \[fit: [^\]]*\])?(?P<rest>.*)"
)
_HEAD = "# Fitted by spyre-calibrate "


@dataclass(frozen=True)
class FittedConstant:
    """A number of a device file: section and key, value, bounds; ``line`` counts from 0."""

    path: str
    value: float
    low: float
    high: float
    line: int
    is_integer: bool

    @property
    def is_logarithmic(self) -> bool:
        """Return whether the constant is fitted on a logarithmic scale: equal factors are equal steps."""
        return self.low > 0

    def fraction_of(self, value: float) -> float:
        """Return where a value lies between the bounds, 0 to 1."""
        value = min(max(value, self.low), self.high)
        if self.is_logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def value_of(self, fraction: float) -> float:
        """Return the value at a ``fraction`` (0 to 1) of the way between the bounds."""
        if self.is_logarithmic:
            return self.low * (self.high / self.low) ** fraction
        return self.low + fraction * (self.high - self.low)

    def text(self, value: float) -> str:
        """Return a value as text for the file: a whole number, or four digits."""
        return str(round(value)) if self.is_integer else f"{value:.4g}"


def fitted_constants(text: str, source: str) -> list[FittedConstant]:
    """Return the marked constants of a device file; ``CompileError`` if there are none or bounds are invalid."""
    constants, section = [], ""
    for number, line in enumerate(text.splitlines()):
        if header := _SECTION.match(line):
            section = header[1]
        if match := _MARKED.fullmatch(line):
            key = match["key"].partition("=")[0].strip()
            value, low, high = (float(match[name]) for name in ("value", "low", "high"))
            if not low <= value <= high or low == high:
                raise CompileError(
                    f"The constant {key} = {match['value']} is to be fitted from {match['low']} to"
                    f" {match['high']}; its value must lie between two such bounds.",
                    f"{source}:{number + 1}",
                )
            path = f"{section}.{key}"
            constants.append(FittedConstant(path, value, low, high, number, is_integer(path)))
    if not constants:
        raise CompileError(
            "No constant of the device file is marked as fitted: write 'fitted LOW to HIGH' into the comment of each.",
            source,
        )
    return constants


def device_text(
    text: str,
    constants: Sequence[FittedConstant],
    values: Sequence[float],
    notes: Mapping[str, str],
    head: str,
) -> str:
    """Return a device file with new values of constants; ``notes`` by path follow comments, ``head`` is line 1."""
    lines = text.splitlines()
    for constant, value in zip(constants, values, strict=True):
        match = _MARKED.fullmatch(lines[constant.line])
        assert match is not None
        number = match["value"] if value == constant.value else constant.text(value)
        # Comments stay in their column.
        space = " " * max(1, len(match["value"]) + len(match["space"]) - len(number))
        note = f" [fit: {notes[constant.path]}]"
        lines[constant.line] = f"{match['key']}{number}{space}#{match['mark']}{note}{match['rest']}"
    # The line of an earlier fit is no longer true.
    return "\n".join([f"{_HEAD}{head}", *(line for line in lines if not line.startswith(_HEAD)), ""])


Floats = NDArray[np.float64]

#: Bisection steps between the best value of a constant and a bound that find the end of its range.
_HALVINGS = 9
#: A direction of the Jacobian is singular below this part of the largest one; its constants have at least this share.
_SINGULAR, _SHARE = 1e-3, 0.3
#: Step of the finite differences, as a part of the range between bounds: larger than the kink of a maximum.
_STEP = 1e-4
#: Relative change of the constants, and of the sum of squares, below which a fit stops.
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class FitQuality:
    """Figures that compare predicted with measured times; a figure is None if there are too few times.

    ``bias`` is the geometric mean of predicted / measured. The regret of a matmul measured in several splits is the
    measured time of the split that we choose divided by the measured time of the best split.
    """

    rows: int
    rank_correlation: float | None
    rms_log: float
    bias: float
    regret_geomean: float | None
    regret_max: float | None


@dataclass(frozen=True)
class ConstantFit:
    """The fitted value of a constant; values from ``low`` to ``high`` are as good.

    ``problem`` says why the rows do not identify the constant; it is empty if they do.
    """

    constant: FittedConstant
    value: float
    low: float
    high: float
    problem: str

    @property
    def note(self) -> str:
        """Describe how well the rows identify the constant."""
        return (
            self.problem or f"{self.constant.text(self.low)} to {self.constant.text(self.high)} are as good"
        )


@dataclass(frozen=True)
class Fit:
    """Fitted constants, and the fit quality on shapes excluded from the fit: overall (``unseen``) and by shape."""

    constants: tuple[ConstantFit, ...]
    unseen: FitQuality | None
    unseen_by_shape: dict[str, FitQuality]


Predictions = Sequence[tuple[Measurements, Target]]


def spearman(first: Sequence[float] | Floats, second: Sequence[float] | Floats) -> float:
    """Return the correlation of the ranks; equal values get the mean of their ranks. NaN if all values are equal."""
    deviations = []
    for values in (first, second):
        _, places, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
        ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
        deviations.append(ranks - ranks.mean())
    scale = math.sqrt(math.prod(float(values @ values) for values in deviations))
    return float(deviations[0] @ deviations[1]) / scale if scale else math.nan


def fit_quality(predictions: Predictions) -> FitQuality:
    """Return the fit quality of pairs of measurements and the target that they are predicted for."""
    predicted = np.concatenate([measured.predicted_ns(target) for measured, target in predictions])
    times = np.concatenate([measured.measured_ns for measured, _ in predictions])
    errors = np.log(predicted / times)
    rank = spearman(predicted, times)
    regrets = [regret(measured, target) for measured, target in predictions if len(measured.splits) > 1]
    return FitQuality(
        len(times),
        None if math.isnan(rank) else rank,
        math.sqrt(float(np.mean(errors**2))),
        math.exp(float(np.mean(errors))),
        math.exp(math.fsum(map(math.log, regrets)) / len(regrets)) if regrets else None,
        max(regrets, default=None),
    )


def regret(measured: Measurements, target: Target) -> float:
    """Return the measured time of the split that we choose divided by the measured time of the best split."""
    return float(measured.measured_ns[measured.choice(target)] / measured.measured_ns.min())


def fit(measurements: Sequence[Measurements], target: Target, constants: Sequence[FittedConstant]) -> Fit:
    """Fit the constants of a target to all measurements, then once per shape to all measurements of other shapes."""
    problem = _LeastSquares(measurements, target, constants)
    best, jacobian = problem.solve([constant.value for constant in constants])
    fits = problem.identify(best, jacobian)
    unseen: list[tuple[Measurements, Target]] = []
    by_shape: dict[str, FitQuality] = {}
    shapes = list(dict.fromkeys(measured.shape for measured in measurements))
    for shape in shapes if len(shapes) > 1 else ():
        others = [measured for measured in measurements if measured.shape != shape]
        values, _ = _LeastSquares(others, target, constants).solve(best)
        folded = target.with_numbers(_numbers(constants, values))
        fold = [(measured, folded) for measured in measurements if measured.shape == shape]
        by_shape[shape] = fit_quality(fold)
        unseen += fold
    return Fit(tuple(fits), fit_quality(unseen) if unseen else None, by_shape)


def contradicted(
    measurements: Sequence[Measurements], target: Target, constants: Sequence[FittedConstant]
) -> dict[str, float]:
    """Return the fitted value, by path, of each constant whose present value is not among those that are as good."""
    problem = _LeastSquares(measurements, target, constants)
    best, jacobian = problem.solve([constant.value for constant in constants])
    fits = problem.identify(best, jacobian)
    return {
        found.constant.path: found.value
        for found in fits
        if not found.problem and not found.low <= found.constant.value <= found.high
    }


class _LeastSquares:
    """The least-squares problem of measurements over constants; a variable is a constant's place between its bounds.

    Places are shifted to 1 .. 2, because scipy takes differences relative to a variable, which fails at 0.
    """

    def __init__(
        self, measurements: Sequence[Measurements], target: Target, constants: Sequence[FittedConstant]
    ) -> None:
        self.measurements, self.target, self.constants = measurements, target, constants
        self.measured = np.concatenate([measured.measured_ns for measured in measurements])

    def errors(self, values: Sequence[float]) -> Floats:
        """Return log(predicted / measured) of each row for the given values of the constants."""
        target = self.target.with_numbers(_numbers(self.constants, values))
        predicted = np.concatenate([measured.predicted_ns(target) for measured in self.measurements])
        return np.log(predicted / self.measured)

    def solve(self, start: Sequence[float]) -> tuple[list[float], Floats]:
        """Return the best values, and the Jacobian there of the errors with respect to the constants' places."""
        try:
            from scipy.optimize import least_squares
        except ImportError:
            raise CompileError(
                "A fit needs SciPy, which is not installed; the extra 'calibrate' of spyre-mlir has it."
            ) from None
        solution = least_squares(
            lambda places: self.errors(self._values(places)),
            [1 + constant.fraction_of(value) for constant, value in zip(self.constants, start, strict=True)],
            bounds=(1, 2),
            diff_step=_STEP,
            xtol=_TOLERANCE,
            ftol=_TOLERANCE,
        )
        return self._values(solution.x), solution.jac

    def _values(self, places: Floats) -> list[float]:
        return [
            constant.value_of(float(place) - 1)
            for constant, place in zip(self.constants, places, strict=True)
        ]

    def identify(self, best: Sequence[float], jacobian: Floats) -> list[ConstantFit]:
        """Return the fits of all constants from their best values: the range, and why rows do not identify it."""
        errors = self.errors(best)
        square = float(errors @ errors)
        # An exact fit has no variance except for rounding, which must not narrow a range to nothing.
        limit = square + max(square / max(1, len(errors) - len(best)), 1e-9)
        partners = _singular(jacobian)
        fits = []
        for number, constant in enumerate(self.constants):
            low, high = self._range(best, number, limit)
            problem = ""
            if (low, high) == (constant.low, constant.high):
                problem = f"not identified: all from {constant.low:g} to {constant.high:g} are as good"
            elif partners[number]:
                names = ", ".join(self.constants[other].path for other in partners[number])
                problem = f"not identified alone, only together with {names}"
            value = constant.value if low == constant.low and high == constant.high else best[number]
            fits.append(ConstantFit(constant, value, low, high, problem))
        return fits

    def _range(self, best: Sequence[float], number: int, limit: float) -> tuple[float, float]:
        """Return the least and largest value of a constant for which the sum of squares is within ``limit``."""
        constant = self.constants[number]

        def is_good(value: float) -> bool:
            errors = self.errors([*best[:number], value, *best[number + 1 :]])
            return float(errors @ errors) <= limit

        def end(bound: float) -> float:
            if is_good(bound):
                return bound
            good, bad = constant.fraction_of(best[number]), constant.fraction_of(bound)
            for _ in range(_HALVINGS):
                middle = (good + bad) / 2
                good, bad = (middle, bad) if is_good(constant.value_of(middle)) else (good, middle)
            return constant.value_of(good)

        return end(constant.low), end(constant.high)


def _numbers(constants: Sequence[FittedConstant], values: Sequence[float]) -> dict[str, float]:
    return {constant.path: value for constant, value in zip(constants, values, strict=True)}


def _singular(jacobian: Floats) -> list[list[int]]:
    """Return for each column the others with which it can change at no cost; constant columns have none."""
    partners: list[list[int]] = [[] for _ in range(jacobian.shape[1])]
    norms = np.linalg.norm(jacobian, axis=0)
    varying = np.flatnonzero(norms > 1e-9)
    if len(varying) < 2:
        return partners
    _, sizes, directions = np.linalg.svd(jacobian[:, varying] / norms[varying], full_matrices=True)
    # Fewer rows than constants leave directions without a size.
    sizes = np.append(sizes, np.zeros(len(varying) - len(sizes)))
    for size, direction in zip(sizes, directions, strict=True):
        members = varying[np.abs(direction) > _SHARE].tolist()
        if size < _SINGULAR * sizes[0] and len(members) > 1:
            for member in members:
                partners[member] += [other for other in members if other not in (member, *partners[member])]
    return partners
