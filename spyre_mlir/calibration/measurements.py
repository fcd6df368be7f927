# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables (CSV) of measured programs: a line with the column names, then one line per program.

    lx_backend_fraction,cores_b,cores_m,cores_n,cores_k,B,M,N,K,measured_us
    0.2,1,4,8,1,1,512,4096,4096,317.36

A line is a matmul of ``B`` batches of M x K by K x N; ``cores_b`` .. ``cores_k`` are the slices of each dim, and
``measured_us`` is the time of one run in microseconds. Optional columns: ``source`` (a name), ``dtype`` (default f16),
``lx_backend_fraction`` (the part of LX that the back end had; default: the device's). Alternatively, a line is a
compiled program: the columns are ``bundle``, a folder next to the table, ``measured_us`` and ``source``.

Operands of a matmul have the default layouts of torch-spyre: blocks of rows for one matrix; the batch innermost before
the stick for a batch. Costs are computed as in the search for splits (``division_search/work_division.py``).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
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
from spyre_mlir.layout.orders import from_order
from spyre_mlir.layout.space import Space
from spyre_mlir.records import dataclass
from spyre_mlir.tables import TableRow, quoted, read_rows
from spyre_mlir.target.target import Target
from spyre_mlir.timeline import timeline

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
    # The first line determines which of the two kinds of table it is.
    names = [name.strip() for name in text.removeprefix("\ufeff").partition("\n")[0].split(",")]
    is_of_bundles = "bundle" in names
    columns, count = (_BUNDLE_COLUMNS, 2) if is_of_bundles else (_MATMUL_COLUMNS, 9)
    source = "<stdin>" if path == "-" else path
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
