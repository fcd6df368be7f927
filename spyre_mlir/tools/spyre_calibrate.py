# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spyre-calibrate: compare the cost model with measured times, and fit constants to them.

    spyre-calibrate measured.csv
    spyre-calibrate measured.csv --json figures.json --picture measured.svg
    spyre-calibrate measured.csv --device card.toml -o fitted.toml
    spyre-calibrate FOLDER

The table (CSV) has one measured matmul per line, with the columns B, M, N, K (sizes), cores_b, cores_m, cores_n,
cores_k (slices) and measured_us; the columns source, dtype and lx_backend_fraction are optional. Or it has one
compiled program per line, with the columns bundle (a folder next to the table) and measured_us. For a FOLDER, the table
is FOLDER/measured.csv.

The output has predicted and measured times in microseconds, then the rank correlation, the RMS of the logarithm of
predicted / measured, the bias (geometric mean of the ratio) and the regret of our choice: for each matmul that was
measured in several splits, the measured time of the compiler's choice divided by the measured time of the best split.

-o fits the constants that the device file marks as fitted, which takes up to a minute, and writes a device file for
--device. Constants that the rows do not determine are marked in the file and in the output. The errors on unseen shapes
come from fits to all shapes but one.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spyre_mlir import files
from spyre_mlir.errors import CompileError
from spyre_mlir.report.html import CHARACTER, MARGIN, LogPlot, Page
from spyre_mlir.tools import _common

if TYPE_CHECKING:
    from spyre_mlir.calibration.fit import Fit, FitQuality, Measurements
    from spyre_mlir.target.target import Target


@_common.tool
def main(argv: Sequence[str] | None = None) -> int:
    """Run spyre-calibrate; return 0 on success, 1 after a diagnostic on stderr."""
    options = _parser().parse_args(argv)

    from spyre_mlir.calibration.fit import fit_quality, read_measurements
    from spyre_mlir.target.target import Target, packaged_text

    if options.picture and not options.picture.endswith(".svg"):
        raise CompileError(f"The name '{options.picture}' of the picture must end in .svg.")
    path = options.device or os.environ.get("SPYRE_DEVICE")
    text, source = (files.read_text(path), path) if path else (packaged_text(), "spyre.toml")
    device = Target.of_text(text, source)
    measurements = read_measurements(options.file, device)
    figures = fit_quality([(measured, device) for measured in measurements])
    lines = [*_rows(measurements, device), "", *_figures("this device", figures)]
    regrets = {group.name: _regret(group, device) for group in measurements if len(group.splits) > 1}
    summary: dict[str, Any] = {**asdict(figures), "regrets": regrets}
    if options.output:
        fit, fitted_text, device, figures = _fitted(text, source, device, measurements, options.file)
        lines += ["", *_figures("fitted", figures), *_fit_lines(fit)]
        summary["fit"] = {
            **asdict(figures),
            "leave_one_shape_out": None if fit.unseen is None else asdict(fit.unseen),
            "shapes": {shape: asdict(unseen) for shape, unseen in fit.unseen_by_shape.items()},
            "constants": {
                result.constant.path: {
                    "before": result.constant.value,
                    "value": result.value,
                    "as_good": [result.low, result.high],
                    "identified": not result.problem,
                }
                for result in fit.constants
            },
        }
        files.write_text(options.output, fitted_text)
    if options.json:
        files.write_text(options.json, json.dumps(summary, indent=2) + "\n")
    if options.picture:
        # Series, name, predicted and measured time (us) of each row.
        points = [
            (group.name, f"{group.name} {split}".strip(), predicted / 1000, measured / 1000)
            for group in measurements
            for split, predicted, measured in zip(
                group.splits, group.predicted_ns(device), group.measured_ns, strict=True
            )
        ]
        rank = figures.rank_correlation
        quality = f"{figures.rows} rows: {'' if rank is None else f'rank correlation {rank:.3f}, '}"
        quality += f"RMS of log {figures.rms_log:.3f}, bias {figures.bias:.3f}"
        files.write_text(options.picture, picture(Path(options.file).name, points, quality))
    # The table goes to stderr if another output goes to stdout.
    is_stdout = "-" in (options.output, options.json)
    print("\n".join(lines), file=sys.stderr if is_stdout else sys.stdout)
    return 0


def _fitted(
    text: str, source: str, device: Target, measurements: Sequence[Measurements], table: str
) -> tuple[Fit, str, Target, FitQuality]:
    """Fit the marked constants; return the fit, the text of the new device file, its target and its figures."""
    from spyre_mlir.calibration.fit import device_text, fit, fit_quality, fitted_constants
    from spyre_mlir.target.target import Target

    constants = fitted_constants(text, source)
    result = fit(measurements, device, constants)
    values = [constant.value for constant in result.constants]
    notes = {constant.constant.path: constant.note for constant in result.constants}
    head = f"to {sum(len(group.splits) for group in measurements)} rows of {Path(table).name}."
    fitted_text = device_text(text, constants, values, notes, head)
    # The figures are computed from the text of the file, whose numbers are rounded.
    fitted = Target.of_text(fitted_text, source)
    return result, fitted_text, fitted, fit_quality([(group, fitted) for group in measurements])


# -- text --------------------------------------------------------------------------------------------------


def _rows(measurements: Sequence[Measurements], device: Target) -> Iterator[str]:
    """Yield a block for each matmul: the regret of our choice, and the rows with our choice marked."""
    yield f"{'split':>14} {'predicted':>11} {'measured':>11} {'ratio':>7}   us"
    for group in measurements:
        is_choice = len(group.splits) > 1
        yield f"{group.name}{f': regret {_regret(group, device):.3f}' if is_choice else ''}"
        choice = group.choice(device) if is_choice else None
        predicted = group.predicted_ns(device) / 1000
        for number, (split, time) in enumerate(zip(group.splits, group.measured_ns / 1000, strict=True)):
            mark = "  our choice" if number == choice else ""
            ratio = predicted[number] / time
            yield f"{split:>14} {predicted[number]:11.2f} {time:11.2f} {ratio:7.3f}{mark}"


def _regret(group: Measurements, device: Target) -> float:
    from spyre_mlir.calibration.fit import regret

    return regret(group, device)


def _figures(title: str, figures: FitQuality) -> Iterator[str]:
    yield f"{title}: {figures.rows} rows"
    for name, value in asdict(figures).items():
        if name != "rows":
            yield f"  {name:<18}{'-' if value is None else f'{value:.4f}'}"


def _fit_lines(fit: Fit) -> Iterator[str]:
    if fit.unseen is None:
        yield "All rows have one shape, so no shape can be left out of a fit."
    else:
        yield from _figures("fitted, on the shapes that each fit left out", fit.unseen)
        for shape, figures in fit.unseen_by_shape.items():
            yield f"  {shape:<24} RMS of log {figures.rms_log:.3f}, bias {figures.bias:.3f}"
    yield "constants"
    for result in fit.constants:
        constant = result.constant
        values = f"{constant.text(constant.value):>7} -> {constant.text(result.value):<9}"
        yield f"  {constant.path:<28}{values} {result.note}"


def _parser() -> _common.ArgumentParser:
    parser = _common.ArgumentParser("spyre-calibrate", __doc__)
    parser.add_argument(
        "file", metavar="FILE.csv", help="table of measured times, a folder with measured.csv, or - for stdin"
    )
    _common.add_output(
        parser, "-o --output", "NEW.toml", "fit constants to the times, and write them as a device file"
    )
    _common.add_output(
        parser, "--json", "FILE.json", "write the figures of the comparison as JSON, - for stdout"
    )
    _common.add_output(parser, "--picture", "FILE.svg", "draw a plot of measured over predicted times")
    return parser


#: Pixels: the side of the plot, the space for the labels of its axes, a line of the legend.
_SIDE, _LABELS, _LINE = 520, 76, 18

#: Fill and shape of a series; the second shape follows after six colours.
_FILLS = ("#2171b5", "#d94801", "#238b45", "#6a51a3", "#a50f15", "#737373")
_SHAPES = ("M -4 0 a 4 4 0 1 0 8 0 a 4 4 0 1 0 -8 0 Z", "M -4 -4 H 4 V 4 H -4 Z", "M 0 -5 L 5 4 H -5 Z")

_STYLE = """
.axis { stroke: #595959; stroke-width: 1; fill: none; }
.tick { stroke: #e0e0e0; stroke-width: 0.8; }
.equal { stroke: #1a1a1a; stroke-width: 1.4; }
.twice { stroke: #595959; stroke-width: 1; stroke-dasharray: 5 4; }
.point { stroke: #ffffff; stroke-width: 0.7; fill-opacity: 0.85; }
.point:hover { stroke: #000000; stroke-width: 2.4; }
"""

#: Series, name, predicted and measured time (us).
Point = tuple[str, str, float, float]


def picture(name: str, points: Sequence[Point], quality: str) -> str:
    """Return the picture of the points of the table ``name``, with the line ``quality`` about the fit."""
    page = Page(_STYLE)
    title = f"Measured over predicted time of {name}"
    page.text(MARGIN, MARGIN, title, "heading")
    page.text(MARGIN, MARGIN + 1.4 * _LINE, quality)
    times = [time for point in points for time in point[2:]]
    # Equal axes, so that equal times are on the diagonal, with a little space around the points.
    powers = math.log10(min(times)) - 0.1, math.log10(max(times)) + 0.1
    plot = LogPlot(MARGIN + _LABELS, MARGIN + 2.6 * _LINE, _SIDE, _SIDE, powers, powers)
    ticks = [
        time
        for power in range(math.floor(powers[0]), math.ceil(powers[1]))
        for time in (digit * 10.0**power for digit in (1, 2, 5))
        if powers[0] <= math.log10(time) <= powers[1]
    ]
    plot.draw(page, ticks, ticks, ("predicted (us)", "measured (us)"))
    left, top, right, bottom = plot.left, plot.top, plot.left + _SIDE, plot.top + _SIDE
    _line(page, "equal", left, bottom, right, top)
    # A factor of two moves the diagonal by this much.
    step = _SIDE * math.log10(2) / (powers[1] - powers[0])
    if step < _SIDE:
        _line(page, "twice", left + step, bottom, right, top + step)
        _line(page, "twice", left, bottom - step, right - step, top)
    label = "predicted twice as long"
    # Below the end of its line, which falls by as much as the text is wide.
    page.text(right - 6, top + step + len(label) * CHARACTER + 16, label, anchor="end")
    series = list(dict.fromkeys(point[0] for point in points))
    for kind, text, predicted, measured in points:
        tooltip = f"{text}: measured {measured:.5g} us, predicted {predicted:.5g} us"
        _point(page, series.index(kind), plot.x(predicted), plot.y(measured), tooltip)
    for number, kind in enumerate(series):
        x, y = plot.left + _SIDE + MARGIN, plot.top + 12 + number * _LINE
        _point(page, number, x, y - 4, kind)
        page.text(x + 12, y, kind)
    return page.svg(title, quality)


def _line(page: Page, kind: str, x1: float, y1: float, x2: float, y2: float) -> None:
    page.add(f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>')


def _point(page: Page, number: int, x: float, y: float, tooltip: str) -> None:
    fill, shape = _FILLS[number % len(_FILLS)], _SHAPES[number // len(_FILLS) % len(_SHAPES)]
    page.add(
        f'<path class="point" transform="translate({x:.2f} {y:.2f})" d="{shape}" fill="{fill}">'
        f"<title>{escape(tooltip)}</title></path>",
        x + CHARACTER,
        y + CHARACTER,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
