# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The results of a sweep: one row per point, as tables and, with the optional packages of an extra, as plots."""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spyre_mlir.driver.program_figures import METRICS
from spyre_mlir.errors import CompileError, listed
from spyre_mlir.files import write_text
from spyre_mlir.records import dataclass
from spyre_mlir.tables import aligned

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

#: Columns that differ from one run to the next.
TIMES = ("compile_s", "import_s", "wall_s", "cpu_s")

#: The column with the version of the compiler, and the column of ``Results.relative``.
COMPILER, RATIO = "compiler", "of_baseline"

Row = Mapping[str, Any]

#: The kinds of plots, and the size of a plot in inches.
KINDS = ("line", "scatter", "pareto")
_INCHES, _MOST_COLUMNS = (8.0, 4.8), 3

#: Settings for reproducible files: without them, a file contains a date and random element names.
_SETTINGS = {"svg.hashsalt": "spyre-mlir"}
_METADATA = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def imported(package: str, extra: str) -> Any:
    """Import a module of an optional package; raise ``CompileError``, which names the extra, if it is missing."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError:
        raise CompileError(
            f"This needs {package.partition('.')[0]}, which is not installed: pip install 'spyre-mlir[{extra}]'."
        ) from None


def written_figure(figure: Figure, path: str | Path) -> Figure:
    """Write a plot to a file, with equal bytes for equal plots, and return it."""
    matplotlib = imported("matplotlib", "experiments")
    try:
        with matplotlib.rc_context(_SETTINGS):
            figure.savefig(path, metadata=_METADATA.get(Path(path).suffix))
    except (OSError, ValueError) as error:
        raise CompileError(f"The plot cannot be written: {error}.", str(path)) from None
    return figure


@dataclass(frozen=True)
class Results(Sequence[Row]):
    """Rows in the order of the points: program, values of the axes, figures, error, seconds.

    The figures are the figures of ``Program.metrics``; a point without figures has the text of an error.
    ``wall_s`` and ``cpu_s`` are the seconds for compiling the program and computing the figures.

    Attributes:
        rows: A mapping from columns to values for each point.
        axes: The names of the axes.
        computed: The number of points that were compiled for these rows; the other points were in the store, or equal
            to another point.
        failures: The number of points that failed, not counting programs that the compiler rejected.
    """

    rows: tuple[Row, ...]
    axes: tuple[str, ...]
    computed: int = 0
    failures: int = 0

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns, with the columns of ``TIMES`` last."""
        figures = (name for name in METRICS if name not in TIMES)
        ratio = (RATIO,) if any(RATIO in row for row in self.rows) else ()
        return (*self.axes, *figures, *ratio, COMPILER, "error", *TIMES)

    def relative(self, column: str, **baseline: Any) -> Results:
        """Return the results with the column ``of_baseline``: ``column`` divided by its value at the baseline.

        The baseline of a row is the row with these values and with the row's values of all other axes; a row without
        such a row has no value.

        Args:
            column: A column of numbers.
            baseline: Values of axes.

        Raises:
            CompileError: A column does not exist, or no row is a baseline.
        """
        for name in (column, *baseline):
            self._check_column(name)
        others = [axis for axis in self.axes if axis not in baseline]
        values = {
            tuple(row.get(axis) for axis in others): row.get(column)
            for row in self.rows
            if all(row.get(name) == value for name, value in baseline.items())
        }
        if not any(values.values()):
            texts = ", ".join(f"{name}={value}" for name, value in baseline.items())
            raise CompileError(f"No row with {texts} has a '{column}', so the ratio has no baseline.")
        rows = []
        for row in self.rows:
            value, base = row.get(column), values.get(tuple(row.get(axis) for axis in others))
            rows.append({**row, RATIO: value / base} if value is not None and base else row)
        return replace(self, rows=tuple(rows))

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a data frame."""
        frame = imported("pandas", "experiments").DataFrame
        return frame.from_records([dict(row) for row in self.rows], columns=list(self.columns))

    def to_csv(self, path: str | Path | None = None, *, times: bool = True) -> str:
        """Return the rows as CSV.

        Args:
            path: A file to write the text to.
            times: Include the columns of seconds; without them, the text is the same for every run.
        """
        names = [name for name in self.columns if times or name not in TIMES]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(names)
        for row in self.rows:
            # Booleans are written as in the text of options; None becomes an empty cell.
            cells = [row.get(name) for name in names]
            writer.writerow([str(cell).lower() if isinstance(cell, bool) else cell for cell in cells])
        if path is not None:
            write_text(str(path), text.getvalue())
        return text.getvalue()

    def plot(
        self,
        *,
        x: str,
        y: str,
        by: str | Sequence[str] = (),
        kind: str = "line",
        path: str | Path | None = None,
    ) -> Figure:
        """Plot one column over another; this needs the extra ``experiments``.

        Each program has its own axes, unless ``by`` or ``x`` is the program. An axis of three or more powers of two is
        logarithmic.

        Args:
            x: The column of the horizontal axis.
            y: The column of the vertical axis.
            by: Columns that group the rows: there is one series for each combination of their values.
            kind: "line", "scatter" or "pareto": points, and a line through the points that no other point dominates;
                less is better in both columns.
            path: A file to write the plot to.

        Raises:
            CompileError: A column or a kind does not exist, no row has both values, a line would join rows that differ
                in a column outside of ``by``, or the file cannot be written.
        """
        names = (by,) if isinstance(by, str) else tuple(by)
        for name in (x, y, *names):
            self._check_column(name)
        if kind not in KINDS:
            raise CompileError(f"There is no plot '{kind}'; there are {', '.join(KINDS)}.")
        rows = [row for row in self.rows if row.get(x) is not None and row.get(y) is not None]
        if not rows:
            raise CompileError(f"No row has both '{x}' and '{y}', so there is nothing to draw.")
        if kind == "line":
            self._require_series(rows, x, names)
        facets: dict[str, list[Row]] = {}
        for row in rows:
            facets.setdefault("" if "program" in (x, *names) else str(row.get("program", "")), []).append(row)
        # Created without pyplot, which has windows and global state.
        width, height = _INCHES
        columns = min(len(facets), _MOST_COLUMNS)
        lines = -(-len(facets) // columns)
        size = (width * (1 + 0.6 * (columns - 1)), height * lines)
        figure = imported("matplotlib.figure", "experiments").Figure(size, layout="constrained")
        for number, (program, members) in enumerate(facets.items(), 1):
            axes = figure.add_subplot(
                lines, columns, number, xlabel=x, ylabel=y, title=program if len(facets) > 1 else ""
            )
            self._draw(axes, members, x, y, names, kind)
        return figure if path is None else written_figure(figure, path)

    def _require_series(self, rows: Sequence[Row], x: str, names: Sequence[str]) -> None:
        """Raise ``CompileError`` if two rows of one series have the same ``x``: a line through both has no meaning."""
        seen: dict[tuple[Any, ...], Row] = {}
        for row in rows:
            key = (row.get("program"), row[x], *(row.get(name) for name in names))
            other = seen.setdefault(key, row)
            if other is not row:
                differing = [axis for axis in self.axes if row.get(axis) != other.get(axis)]
                raise CompileError(
                    f"Two rows of one line have {x}={row[x]}; name in 'by' what differs: {listed(differing)}."
                )

    def _draw(self, axes: Any, rows: Sequence[Row], x: str, y: str, names: Sequence[str], kind: str) -> None:
        """Draw the series of one program."""
        series: dict[str, list[tuple[Any, Any]]] = {}
        for row in rows:
            series.setdefault(", ".join(str(row.get(name)) for name in names), []).append((row[x], row[y]))
        for direction, column in (("x", x), ("y", y)):
            if _are_powers_of_two([row[column] for row in rows]):
                getattr(axes, f"set_{direction}scale")("log", base=2)
                getattr(axes, f"{direction}axis").set_major_formatter("{x:g}")
        for label, points in series.items():
            if kind == "line":
                # Points whose first values are not all numbers keep the order of the rows.
                is_sorted = all(_is_number(point[0]) for point in points)
                ordered = sorted(points, key=lambda point: point[0]) if is_sorted else points
                axes.plot(*zip(*ordered, strict=True), marker="o", markersize=4, label=label)
                continue
            drawn = axes.scatter(*zip(*points, strict=True), s=18, label=label)
            if kind == "pareto":
                if not all(_is_number(value) for point in points for value in point):
                    raise CompileError("A Pareto front needs two columns of numbers.")
                front = pareto_front(points)
                axes.plot(*zip(*front, strict=True), drawstyle="steps-post", color=drawn.get_facecolor()[0])
        if names:
            axes.legend(title=", ".join(names))
        axes.grid(alpha=0.3)

    def table(self, columns: Iterable[str] = ()) -> str:
        """Return the rows as a text table, with the given ``columns``, or by default the axes and a few figures."""
        names = list(columns)
        for name in names:
            self._check_column(name)
        if not names:
            times = ["predicted_us"]
            # The host's time decides if any program has some.
            if any(row.get("total_us") != row.get("predicted_us") for row in self.rows):
                times.append("total_us")
            few = (*times, "hbm_read_bytes", "hbm_written_bytes", "lx_peak_bytes", "error", "cpu_s")
            names = [
                name
                for name in (*self.axes, *few)
                if name in self.columns and (name != "error" or any(row["error"] for row in self.rows))
            ]
        cells = [names, *([_short(row.get(name)) for name in names] for row in self.rows)]
        is_number = (
            all(row.get(name) is None or _is_number(row[name]) for row in self.rows) for name in names
        )
        return "\n".join(aligned(cells, "".join(">" if number else "<" for number in is_number)))

    def _check_column(self, name: str) -> None:
        if name not in self.columns:
            raise CompileError(f"There is no column '{name}'; the columns are {listed(self.columns, name)}.")


def _short(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}"
    first = str(value).strip().partition("\n")[0]
    return first if len(first) <= 60 else first[:57] + "..."


def pareto_front(points: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return the points that no other point dominates (less is better), sorted by the first number."""
    front: list[tuple[Any, Any]] = []
    for point in sorted(set(points)):
        if not front or point[1] < front[-1][1]:
            front.append(point)
    return front


def _are_powers_of_two(values: Sequence[Any]) -> bool:
    """Return whether at least three different values are all powers of two."""
    numbers = set(values)
    return len(numbers) > 2 and all(
        isinstance(value, int) and not isinstance(value, bool) and value > 0 and not value & (value - 1)
        for value in numbers
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
