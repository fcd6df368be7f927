# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spyre-calibrate: measured and predicted times, recovery of known constants, one error for a wrong input."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from spyre_mlir.calibration.fit import (
    device_text,
    fit,
    fit_quality,
    fitted_constants,
    read_measurements,
    regret,
    spearman,
)
from spyre_mlir.errors import CompileError
from spyre_mlir.target.target import Target, packaged_target, packaged_text
from spyre_mlir.tools.spyre_calibrate import main, picture

HEAD = "lx_backend_fraction,cores_b,cores_m,cores_n,cores_k,B,M,N,K,measured_us"
SHAPES = ((1, 512, 4096, 4096), (1, 64, 1024, 4096), (64, 32, 576, 128), (1, 2048, 512, 512))
SPLITS = ((1, 4, 8, 1), (1, 32, 1, 1), (1, 8, 2, 2), (1, 1, 1, 2), (1, 2, 1, 1))
MARKED = "array.split_sum_slowdown", "array.multiply_adds_per_ns", "hbm.access_ns"


def fits(shape: tuple[int, ...], split: tuple[int, ...]) -> bool:
    units = (shape[0], shape[1], shape[2] // 64, shape[3] // 64)
    return all(count % slices == 0 for count, slices in zip(units, split, strict=True))


def line(
    shape: tuple[int, ...], split: tuple[int, ...], time: float | str, fraction: float | str = 0.2
) -> str:
    return ",".join(map(str, (fraction, *split, *shape, time)))


def table(tmp_path: Path, times: list[float] | None = None) -> Path:
    """A table of all shapes and splits, 1 ms each unless there are other times (us)."""
    keys = [(shape, split) for shape in SHAPES for split in SPLITS if fits(shape, split)]
    times = times or [1000.0] * len(keys)
    path = tmp_path / "measured.csv"
    rows = [line(*key, time) for key, time in zip(keys, times, strict=True)]
    path.write_text("\n".join([HEAD, *rows, ""]), encoding="utf-8")
    return path


def synthetic(tmp_path: Path, device: Target) -> Path:
    """Return a table whose times are predictions of the model for a device."""
    groups = read_measurements(str(table(tmp_path)), device)
    times = np.concatenate([group.predicted_ns(device) for group in groups]) / 1000
    return table(tmp_path, times.tolist())


def marked(*paths: str) -> str:
    """The packaged device file with these constants marked as fitted alone."""
    constants = {constant.path: constant.line for constant in fitted_constants(packaged_text(), "spyre.toml")}
    lines = packaged_text().splitlines()
    for path, number in constants.items():
        if path not in paths:
            lines[number] = lines[number].replace("fitted", "constant")
    return "\n".join(lines)


TRUE = {"array.split_sum_slowdown": 3.0, "array.multiply_adds_per_ns": 700.0, "hbm.access_ns": 4000.0}


def test_known_constants_come_back(tmp_path: Path) -> None:
    """Times priced with other constants are fitted to a part in a hundred, and to no error on unseen shapes."""
    device = packaged_target()
    measurements = read_measurements(str(synthetic(tmp_path, device.with_numbers(TRUE))), device)
    result = fit(measurements, device, fitted_constants(marked(*MARKED), "spyre.toml"))
    values = {constant.constant.path: constant.value for constant in result.constants}
    assert values == pytest.approx(TRUE, rel=1e-2)
    assert not any(constant.problem for constant in result.constants)
    assert result.unseen is not None and result.unseen.rms_log < 0.01
    assert list(result.unseen_by_shape) == ["x".join(map(str, shape)) for shape in SHAPES]


def test_a_constant_that_no_row_depends_on_is_not_identified(tmp_path: Path) -> None:
    """Matmuls do not depend on the vector unit: its constant keeps its value, with a note."""
    device = packaged_target()
    measurements = read_measurements(str(synthetic(tmp_path, device)), device)
    result = fit(measurements, device, fitted_constants(marked("vector.sticks_per_ns"), "spyre.toml"))
    assert result.constants[0].value == 6.0
    assert result.constants[0].note == "not identified: all from 0.5 to 100 are as good"


def test_constants_that_change_together_are_not_identified(tmp_path: Path) -> None:
    """One split of one compute-bound matmul: only the product of rate and slowdown of a split sum is known."""
    path = tmp_path / "one.csv"
    rows = [line((1, size, 4096, 4096), (1, 4, 4, 2), size * 4) for size in (512, 1024, 2048)]
    path.write_text("\n".join([HEAD, *rows]), encoding="utf-8")
    measurements = read_measurements(str(path), packaged_target())
    constants = fitted_constants(marked(*MARKED[:2]), "spyre.toml")
    problems = [constant.problem for constant in fit(measurements, packaged_target(), constants).constants]
    assert problems == [
        "not identified alone, only together with array.split_sum_slowdown",
        "not identified alone, only together with array.multiply_adds_per_ns",
    ]


def test_no_prediction_is_faster_than_bytes_or_multiply_adds_at_their_peaks(tmp_path: Path) -> None:
    device = packaged_target()
    for group in read_measurements(str(table(tmp_path)), device):
        b, m, n, k = map(int, group.shape.split("x"))
        predicted = group.predicted_ns(device)
        assert (predicted >= 2 * b * (m * k + k * n + m * n) / 204.8).all()
        assert (predicted >= b * m * n * k / (32 * 1536)).all()


def test_figures_of_a_table_by_hand(tmp_path: Path) -> None:
    """All predictions twice the measured times: bias 2, RMS log(2), the same ranks, no regret."""
    device = packaged_target()
    path = synthetic(tmp_path, device)
    times = [float(row.rpartition(",")[2]) / 2 for row in path.read_text(encoding="utf-8").splitlines()[1:]]
    figures = fit_quality(
        [(group, device) for group in read_measurements(str(table(tmp_path, times)), device)]
    )
    assert figures.rows == len(times)
    assert figures.rank_correlation == pytest.approx(1)
    assert (figures.bias, figures.rms_log) == pytest.approx((2, math.log(2)))
    assert figures.regret_geomean == figures.regret_max == 1


def test_regret_is_the_time_of_our_choice_over_the_best(tmp_path: Path) -> None:
    device = packaged_target()
    path = tmp_path / "two.csv"
    rows = [line(SHAPES[0], (1, 4, 8, 1), 600), line(SHAPES[0], (1, 32, 1, 1), 400)]
    path.write_text("\n".join([HEAD, *rows]), encoding="utf-8")
    (group,) = read_measurements(str(path), device)
    assert group.splits[group.choice(device)] == "1_4_8_1"
    assert regret(group, device) == 1.5
    figures = fit_quality([(group, device)])
    assert figures.regret_geomean == pytest.approx(1.5) and figures.rank_correlation == -1


def test_rank_correlation_of_equal_values() -> None:
    assert spearman([5, 5, 9], [1, 2, 3]) == pytest.approx(3**0.5 / 2)
    assert math.isnan(spearman([1, 1], [1, 2]))


def test_a_new_device_file_differs_in_the_constants_alone() -> None:
    """Comments stay, a second fit replaces the notes of the first, and the file is a device."""
    constants = fitted_constants(marked(*MARKED), "spyre.toml")
    text = packaged_text()
    for note in ("earlier", "second"):
        values = [{**TRUE, "hbm.access_ns": 4000.04}[constant.path] for constant in constants]
        text = device_text(text, constants, values, dict.fromkeys(MARKED, note), f"{note}.")
        constants = [c for c in fitted_constants(text, "new.toml") if c.path in MARKED]
    assert text.startswith("# Fitted by spyre-calibrate second.\n") and "earlier" not in text
    assert text.count("[fit: second]") == 3
    changes = Target.of_text(text, "new.toml").differences()
    assert changes == {
        "hbm": {"access_ns": 4000},
        "array": {"multiply_adds_per_ns": 700, "split_sum_slowdown": 3},
    }
    before, after = (
        [line.partition("#")[1:] for line in lines.splitlines()]
        for lines in (packaged_text(), text.replace(" [fit: second]", ""))
    )
    assert after[1:] == before


def test_the_tool_writes_a_device_that_every_tool_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """--device of the written file gives the figures of the fit; two runs give the same bytes."""
    device = tmp_path / "marked.toml"
    device.write_text(marked(*MARKED), encoding="utf-8")
    path = str(synthetic(tmp_path, packaged_target().with_numbers(TRUE)))
    written = []
    for run in ("a", "b"):
        new, figures, svg = (str(tmp_path / f"{run}.{kind}") for kind in ("toml", "json", "svg"))
        assert main([path, "--device", str(device), "-o", new, "--json", figures, "--picture", svg]) == 0
        written.append([Path(name).read_text(encoding="utf-8") for name in (new, figures, svg)])
    assert written[0] == written[1]
    before = json.loads(written[0][1])
    assert before["rms_log"] > 0.1 > 0.02 > before["fit"]["leave_one_shape_out"]["rms_log"]
    assert before["fit"]["constants"]["hbm.access_ns"]["identified"] is True
    assert main([path, "--device", str(tmp_path / "a.toml"), "--json", str(tmp_path / "c.json")]) == 0
    after = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
    for name in ("rows", "rank_correlation", "rms_log", "bias", "regret_geomean", "regret_max"):
        assert after[name] == before["fit"][name]
    assert "our choice" in capsys.readouterr().out


def test_a_folder_of_bundles(tmp_path: Path) -> None:
    """A bundle is priced by its timeline, also on another device."""
    import spyre_mlir

    text = """func.func @main(%x: tensor<64x1024xf16>, %y: tensor<64x1024xf16>) -> tensor<64x1024xf16> {
      %e = tensor.empty() : tensor<64x1024xf16>
      %0 = linalg.add ins(%x, %y : tensor<64x1024xf16>, tensor<64x1024xf16>)
                      outs(%e : tensor<64x1024xf16>) -> tensor<64x1024xf16>
      return %0 : tensor<64x1024xf16>
    }"""
    program = spyre_mlir.compile(text)
    program.save(str(tmp_path / "add.bundle"))
    (tmp_path / "measured.csv").write_text("bundle,measured_us\nadd.bundle,12.5\n", encoding="utf-8")
    (group,) = read_measurements(str(tmp_path), packaged_target())
    assert group.predicted_ns(packaged_target())[0] == program.timeline().total_ns
    slow = packaged_target().with_numbers({"hbm.access_ns": 50_000})
    assert group.predicted_ns(slow)[0] > 50_000
    assert main([str(tmp_path)]) == 0


GOOD = line(SHAPES[0], (1, 4, 8, 1), 300)
COLUMNS = "cores_b, cores_m, cores_n, cores_k, B, M, N, K, measured_us, source, lx_backend_fraction, dtype"


def timed(time: str) -> str:
    """A table whose only time is this text."""
    return f"{HEAD}\n{line(SHAPES[0], (1, 4, 8, 1), time)}"


def split(shape: tuple[int, ...], slices: tuple[int, ...]) -> str:
    return f"{HEAD}\n{line(shape, slices, 300)}"


#: A table, the place of its error and the message.
ERRORS = (
    ("", ":1:1", "The first line has to name the columns; there is no 'cores_b'."),
    (HEAD, "", "The table has no measured time."),
    (
        HEAD.replace("_us", "_ms"),
        ":1:1",
        "The first line has to name the columns; there is no 'measured_us'.",
    ),
    (f"{HEAD},colour", ":1:73", f"There is no column 'colour'; there are {COLUMNS}."),
    (f"{HEAD}\n{GOOD},1", ":2:1", "The line has 11 cells for 10 columns."),
    (f'{HEAD}\n"', ":2:1", "The file is not valid CSV: unexpected end of data."),
    (timed("0"), ":2:29", "A measured time must be above 0 us and finite, not 0."),
    (timed("-3.5"), ":2:29", "A measured time must be above 0 us and finite, not -3.5."),
    (timed("1e999"), ":2:29", "A measured time must be above 0 us and finite, not 1e999."),
    (timed("3 ms"), ":2:29", "The column 'measured_us' has microseconds as a number, not '3 ms'."),
    (timed("nan"), ":2:29", "The column 'measured_us' has microseconds as a number, not 'nan'."),
    (
        timed("0.3"),
        ":2:29",
        "The time of 0.3 us is not possible: the bytes alone take 204.8 us at the peak of the memory. Is it in another"
        " unit?",
    ),
    (split(SHAPES[0], (1, 3, 8, 1)), ":2:7", "3 slices do not divide M = 512."),
    (split(SHAPES[1], (1, 1, 3, 1)), ":2:9", "3 slices do not divide N = 1024 of 16 sticks."),
    (split(SHAPES[0], (1, 8, 8, 1)), ":2:5", "The split takes 64 cores; the device has 32."),
    (split((1, 0, 64, 64), (1, 1, 1, 1)), ":2:15", "The column 'M' has numbers from 1, not 0."),
    (
        split((1, 1 << 40, 64, 64), (1, 1, 1, 1)),
        ":2:13",
        "An operand of the matmul has more than 120259084288 bytes.",
    ),
    (
        f"{HEAD}\n{line(SHAPES[0], (1, 4, 8, 1), 300, 1.5)}",
        ":2:1",
        "The column 'lx_backend_fraction' has fractions of LX, 0 to 1, not 1.5.",
    ),
    (f"{HEAD},dtype\n{GOOD},f64", ":2:33", "The element type 'f64' is unknown; there are f16, bf16."),
    ("bundle,measured_us\nnothing,3", ":2:1", "There is no folder 'nothing' in the folder of the table."),
)


@pytest.mark.parametrize(("text", "place", "message"), ERRORS, ids=[message[:40] for *_, message in ERRORS])
def test_what_is_wrong_is_one_error_with_its_row(
    text: str, place: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text, encoding="utf-8")
    assert main([str(path), "-o", str(tmp_path / "new.toml")]) == 1
    assert capsys.readouterr().err == f"{path}{place}: error: {message}\n"
    assert not (tmp_path / "new.toml").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("fitted", "constant", "No constant of the device file is marked as fitted"),
        (
            "fitted 10 to 10000",
            "fitted 10 to 20",
            "is to be fitted from 10 to 20; its value must lie between",
        ),
    ],
)
def test_marks_that_cannot_be_fitted(old: str, new: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        fitted_constants(packaged_text().replace(old, new), "card.toml")


def test_a_fit_without_scipy_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    assert main([str(table(tmp_path)), "-o", str(tmp_path / "new.toml")]) == 1
    assert "the extra 'calibrate' of spyre-mlir has it" in capsys.readouterr().err
    assert main([str(table(tmp_path))]) == 0


def test_a_picture_of_one_point_and_of_odd_names() -> None:
    svg = picture("a<b>.csv", [("one & only", "x", 5.0, 5.0)], "1 row")
    assert "a&lt;b&gt;.csv" in svg and "one &amp; only" in svg and svg.count('class="point"') == 2


def test_other_names_of_pictures_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main([str(table(tmp_path)), "--picture", "plot.png"]) == 1
    assert capsys.readouterr().err == "error: The name 'plot.png' of the picture must end in .svg.\n"
