# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cost model against measured times by source: each source is predicted with constants fitted to the others.

The tables of AdnanHoque/torch-spyre are not part of the repository. ``SPYRE_TEST_DATA`` has them in its folder
``measured`` under their names: ``matmul.csv``, the four text tables ``diag_hmi_..`` (wall times of products, of which
3 ms are the launch) and ``hierarchy_rows.csv`` (wall times of programs with and without a restickify).
"""

from __future__ import annotations

import csv
import functools
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.calibration import fit
from spyre_mlir.cost.cost_model import least_ns, operation_cost
from spyre_mlir.cost.of_space import even_work
from spyre_mlir.cost.work import OperationWork
from spyre_mlir.division_search.work_division import by_cost
from spyre_mlir.layout import BufferView
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.view import from_order
from spyre_mlir.target.target import Target, packaged_target, packaged_text

#: Nanoseconds of a launch in the text tables, and the least time above it that says something.
_LAUNCH_NS, _LEAST_NS = 3_000_000, 700_000
#: The same of the programs with a restickify, whose launch cancels in a difference; the spread of a median is 5 us.
_LEAST_DIFFERENCE_NS = 8_000

_SPLITS = {"pure-M": (32, 1, 1), "pure-N": (1, 32, 1), "pure-K": (1, 1, 32), "natural": (32, 1, 1)}
#: Columns and reduced dim of the named products.
_NAMED = {
    "DSv3 o_proj": (7168, 16384), "DSv3 down_proj": (7168, 2048), "L3-70B kv_proj": (1024, 8192),
    "Mixtral kv_proj": (1024, 4096), "DSv3 q_a_proj": (1536, 7168),
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A measured product: rows, columns and reduced dim, their slices, and whether cores of a sum are neighbours."""

    source: str
    sizes: tuple[int, int, int]
    slices: tuple[int, int, int]
    is_scattered: bool
    measured_ns: float


@dataclass(frozen=True, eq=False)
class Products:
    """The splits of one product in one table; ``shape`` is the source, which a fit leaves out as a whole."""

    name: str
    shape: str
    rows: tuple[Row, ...]

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple("_".join(map(str, row.slices)) + ("s" if row.is_scattered else "") for row in self.rows)

    @property
    def measured_ns(self) -> NDArray[np.float64]:
        return np.array([row.measured_ns for row in self.rows])

    @functools.cached_property
    def _works(self) -> tuple[OperationWork, OperationWork]:
        """The work of all rows, and the same with cores of a sum that are not neighbours."""
        space = fit.matmul_space(packaged_target(), (1, *self.rows[0].sizes), fit.BLOCKS)
        slices = np.array([(1, *row.slices) for row in self.rows]).T
        work = even_work("batchmatmul", space, tuple(slices))  # type: ignore[arg-type]
        return work, replace(work, scattered=True)

    def predicted_ns(self, target: Target) -> NDArray[np.float64]:
        near, far = (
            np.maximum(operation_cost(replace(work, target=target)).total_ns, least_ns(work))
            for work in self._works
        )
        return np.where([row.is_scattered for row in self.rows], far, near) + np.zeros(len(self.rows))

    def choice(self, target: Target) -> int:
        """Return the choice of the search; it does not have splits whose cores of a sum are apart."""
        near = [number for number, row in enumerate(self.rows) if not row.is_scattered]
        space = fit.matmul_space(target, (1, *self.rows[0].sizes), fit.BLOCKS)
        slices = np.array([(1, *self.rows[number].slices) for number in near]).T
        return near[int(by_cost("batchmatmul", space, slices)[0])]


@dataclass(frozen=True, eq=False)
class Restickifies:
    """One restickify of a square tensor: the difference of a program with it and the program without it."""

    name: str
    size: int
    times: tuple[float, ...]
    shape: str = "restickify"
    splits: tuple[str, ...] = ("",)

    @property
    def measured_ns(self) -> NDArray[np.float64]:
        return np.array([float(np.median(self.times))])

    def predicted_ns(self, target: Target) -> NDArray[np.float64]:
        views = [
            BufferView.of(from_order(target, (self.size,) * 2, "f16", stick, (stick, 1 - stick)))
            for stick in (0, 1)
        ]
        space = Space((self.size,) * 2, tuple(views), (frozenset({0, 1}),) * 2)
        slices = (min(target.cores, self.size // 64), 1)
        return np.array([operation_cost(even_work("ReStickifyOpHBM", space, slices)).total_ns])

    def choice(self, target: Target) -> int:
        return 0


def _cells(path: Path) -> Iterator[list[str]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("|"):
            yield [cell.strip() for cell in line.split("|")[1:-1]]


def _slices(text: str) -> tuple[int, int, int] | None:
    numbers = re.search(r"\((\d+),\s*(\d+),\s*(\d+)\)", text)
    if numbers is None:
        return _SPLITS.get(text)
    one, two, three = map(int, numbers.groups())
    return one, two, three


def _row(
    table: str, sizes: tuple[int, int, int], slices: tuple[int, int, int], mode: str, wall_ms: str
) -> Row | None:
    """Return a row of the text tables; None if its time is too close to the launch.

    Without ``kf`` the cores of a sum are apart by the slices of rows and columns.
    """
    time = float(wall_ms) * 1e6 - _LAUNCH_NS
    is_scattered = slices[2] > 1 and slices[0] * slices[1] > 1 and mode != "kf"
    return Row(table, sizes, slices, is_scattered, time) if time >= _LEAST_NS else None


def _product_rows(folder: Path) -> Iterator[Row | None]:
    """Yield the rows of the four text tables."""
    for cells in _cells(folder / "diag_hmi_bw_split_pattern_results.txt"):
        if len(cells) == 8 and (slices := _slices(cells[3])) and (sizes := _slices(cells[1])):
            yield _row("split pattern", sizes, slices, "", cells[4])
    for cells in _cells(folder / "diag_hmi_bw_pure_m_results.txt"):
        if len(cells) == 10 and cells[1].isdigit() and re.fullmatch(r"[\d.]+", cells[5]):
            rows, columns, depth = map(int, cells[1:4])
            yield _row("rows", (rows, columns, depth), (32, 1, 1), "", cells[5])
    for cells in _cells(folder / "diag_hmi_bw_k_split_results.txt"):
        if len(cells) == 5 and re.fullmatch(r"[\d.]+", cells[2]):
            name, _, rows = cells[0].rpartition(" M=")
            slices = _slices(cells[1].removesuffix("kf").removesuffix("id"))
            if slices is not None:
                yield _row("sums", (int(rows), *_NAMED[name]), slices, cells[1][-2:], cells[2])
    for cells in _cells(folder / "diag_hmi_cost_model_calibrate_results.txt"):
        match = re.match(r"(.*?) M=(\d+)", cells[0])
        if match is not None and len(cells) == 7:
            # A K split without numbers is 16 x 2.
            slices = _slices(cells[0]) or _SPLITS.get(cells[1]) or (1, 16, 2)
            yield _row("calibration", (int(match[2]), *_NAMED[match[1]]), slices, cells[1], cells[2])


def products(folder: Path) -> list[Products]:
    """Return the products of the text tables, by table and sizes."""
    groups: dict[tuple[str, tuple[int, int, int]], list[Row]] = {}
    for row in filter(None, _product_rows(folder)):
        groups.setdefault((row.source, row.sizes), []).append(row)
    return [
        Products(f"{table}, {'x'.join(map(str, sizes))}", "wall times", tuple(rows))
        for (table, sizes), rows in groups.items()
    ]


def restickifies(path: Path) -> list[Restickifies]:
    """Return the restickifies of programs with a control: products and a sum, each with one operand to restickify."""
    multiplied = ("matmul_lhs_wrong_stick", "matmul_rhs_wrong_stick", "linear_weight_transposed")
    controls = {**dict.fromkeys(multiplied, "matmul_control"), "pointwise_transpose_add": "pointwise_control"}
    with path.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["status"] == "ok"]
    times = {(row["mode"], row["case"], int(row["size"])): 1e6 * float(row["median_ms"]) for row in rows}
    found: dict[tuple[str, int], list[float]] = {}
    for (mode, case, size), time in times.items():
        control = times.get((mode, controls.get(case, ""), size))
        if control is not None and time - control >= _LEAST_DIFFERENCE_NS:
            found.setdefault((case, size), []).append(time - control)
    return [Restickifies(f"{case}, {size}", size, tuple(each)) for (case, size), each in found.items()]


def all_measurements(folder: Path) -> list[fit.Measurements]:
    """Return all measured rows; the shape of each is its source."""
    table = fit.read_measurements(str(folder / "matmul.csv"), packaged_target())
    swept = [
        replace(group, shape=f"profiler, {group.fraction:g} of LX")
        for group in table
        if isinstance(group, fit.MatmulMeasurements)
    ]
    return [*swept, *products(folder), *restickifies(folder / "hierarchy_rows.csv")]


@benchmark(one_minus_rank_correlation=0.08, rms_log_error=0.35, regret_percent=5)
def measured_sources(unexplained: float = 0.69) -> Metrics:
    """Measured times by source, each source predicted with constants fitted to the others (leave one source out).

    A constant differs from the device file's only where the other sources contradict its value.

    Rank correlation, RMS of log(predicted / measured) and regret of the chosen split (geometric mean), over all rows
    and by source. The notes name rows whose error is above ``unexplained``, a factor of two.
    """
    folder = Path(os.environ.get("SPYRE_TEST_DATA", "")) / "measured"
    if not (folder / "diag_hmi_bw_k_split_results.txt").exists():
        return Noted(
            {}, [f"{folder} does not have the tables of AdnanHoque/torch-spyre; see docs/sources.md."]
        )
    measurements = all_measurements(folder)
    device = packaged_target()
    constants = fit.fitted_constants(packaged_text(), "spyre.toml")
    unseen: list[tuple[fit.Measurements, Target]] = []
    metrics: dict[str, float] = {}
    for source in dict.fromkeys(group.shape for group in measurements):
        others = [group for group in measurements if group.shape != source]
        target = device.with_numbers(fit.contradicted(others, device, constants))
        fold = [(group, target) for group in measurements if group.shape == source]
        unseen += fold
        metrics |= _figures(f"{source}.", fold)
    metrics = {
        **_figures("", unseen),
        **_figures("packaged.", [(group, device) for group in measurements]),
        **metrics,
    }
    return Noted(metrics, list(_unexplained(measurements, device, unexplained)))


def _figures(prefix: str, predictions: Sequence[tuple[fit.Measurements, Target]]) -> dict[str, float]:
    quality = fit.fit_quality(predictions)
    figures = {"rows": quality.rows, "one_minus_rank_correlation": 1 - (quality.rank_correlation or 0),
               "rms_log_error": quality.rms_log}  # fmt: skip
    if quality.regret_geomean is not None:
        figures["regret_percent"] = 100 * (quality.regret_geomean - 1)
    return {f"{prefix}{name}": value for name, value in figures.items()}


def _unexplained(measurements: Sequence[fit.Measurements], device: Target, limit: float) -> Iterator[str]:
    """Yield the rows whose prediction is off by more than a factor, with both times."""
    for group in measurements:
        predicted = group.predicted_ns(device)
        for split, measured, ours in zip(group.splits, group.measured_ns, predicted, strict=True):
            if abs(math.log(ours / measured)) > limit:
                yield f"{group.name}, {split}: measured {measured / 1000:.0f} us, predicted {ours / 1000:.0f}"
