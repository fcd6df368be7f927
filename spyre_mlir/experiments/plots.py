# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plots of experiment results with matplotlib: lines, points and Pareto fronts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spyre_mlir.errors import CompileError
from spyre_mlir.experiments.extras import imported

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("line", "scatter", "pareto")
_INCHES = (8.0, 4.8)

#: Settings for reproducible files: without them, a file contains a date and random element names.
_SETTINGS = {"svg.hashsalt": "spyre-mlir"}
_METADATA = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}

Series = list[tuple[Any, Any]]


def plot(
    rows: Sequence[Mapping[str, Any]], x: str, y: str, by: Sequence[str], kind: str, path: str | Path | None
) -> Figure:
    """Draw column ``y`` over column ``x``; ``Results.plot`` documents the arguments."""
    if kind not in KINDS:
        raise CompileError(f"There is no plot '{kind}'; there are {', '.join(KINDS)}.")
    series: dict[str, Series] = {}
    for row in rows:
        if row.get(x) is not None and row.get(y) is not None:
            series.setdefault(", ".join(str(row.get(name)) for name in by), []).append((row[x], row[y]))
    if not series:
        raise CompileError(f"No row has both '{x}' and '{y}', so there is nothing to draw.")
    # Created without pyplot, which has windows and global state.
    figure = imported("matplotlib.figure", "experiments").Figure(_INCHES, layout="constrained")
    axes = figure.add_subplot(xlabel=x, ylabel=y)
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
    if by:
        axes.legend(title=", ".join(by))
    axes.grid(alpha=0.3)
    if path is not None:
        matplotlib = imported("matplotlib", "experiments")
        try:
            with matplotlib.rc_context(_SETTINGS):
                figure.savefig(path, metadata=_METADATA.get(Path(path).suffix))
        except (OSError, ValueError) as error:
            raise CompileError(f"The plot cannot be written: {error}.", str(path)) from None
    return figure


def pareto_front(points: Series) -> Series:
    """Return the points that no other point dominates (less is better), sorted by the first number."""
    front: Series = []
    for point in sorted(set(points)):
        if not front or point[1] < front[-1][1]:
            front.append(point)
    return front


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
