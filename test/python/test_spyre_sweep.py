# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spyre-sweep: a sweep from a file, continued, drawn, and one diagnostic with its line for an error."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from experiment_programs import CHAIN, KILLER

from spyre_mlir.errors import CompileError
from spyre_mlir.experiments import Results
from spyre_mlir.experiments.results import pareto_front
from spyre_mlir.tools import spyre_sweep
from spyre_mlir.tools.spyre_sweep import SweepSpec

SPEC = """\
programs = ["chain.mlir"]
store = "rows.sqlite"
columns = ["program", "sencores", "layout-solver", "predicted_us", "error"]

[axes]
sencores = [2, 64]
layout-solver = ["greedy", "portfolio"]
device.lx.bytes = [1048576]

[executor]
workers = 1

[plot]
x = "sencores"
y = "predicted_us"
by = "layout-solver"
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "chain.mlir").write_text(CHAIN)
    (tmp_path / "spec.toml").write_text(SPEC)
    return tmp_path / "spec.toml"


def test_a_table_a_csv_and_a_plot(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Paths are relative to the file; a second run computes nothing and writes the same bytes."""
    files = [spec.parent / name for name in ("rows.csv", "plot.svg")]
    written = []
    for computed in (4, 0):
        assert spyre_sweep.main([str(spec), "--csv", str(files[0]), "--plot", str(files[1])]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].split() == ["program", "sencores", "layout_solver", "predicted_us", "error"]
        assert lines[1].startswith("chain.mlir         2  greedy") and len(lines) == 6
        assert lines[-1] == f"4 points, {computed} computed, 2 refused, 0 failed"
        written.append([file.read_bytes() for file in files])
    assert written[0] == written[1]


def test_a_point_that_fails_is_the_exit_status(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Workers import the files of --load, too; errors in them name file and line."""
    text = KILLER.format(name="fails", flag="", once=False).replace("os.kill", "1 // 0, os.kill")
    (spec.parent / "own.py").write_text(text)
    spec.write_text(SPEC.replace('["greedy", "portfolio"]', '["fails"]').replace("[2, 64]", "2"))
    assert (
        spyre_sweep.main(
            [str(spec), "--load", str(spec.parent / "own.py"), "--csv", str(spec.parent / "rows.csv")]
        )
        == 1
    )
    assert capsys.readouterr().out.splitlines()[-1] == "1 point, 1 computed, 0 refused, 1 failed"
    error = "own.py:15:13: error: The solver 'fails' fails for 2 buffers"
    assert error in (spec.parent / "rows.csv").read_text()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[axes]", "[axes", "spec.toml:5:6: error: The sweep is not TOML: "),
        ("store =", "stor =", "spec.toml:2:1: error: A sweep has no 'stor'; there are programs, axes, store,"),
        ('store = "rows.sqlite"', "", "spec.toml:1:1: error: The sweep has no 'store'."),
        ('"chain.mlir"', "3", "spec.toml:1:1: error: 'programs' must be a text or a list of texts."),
        ("workers = 1", "workers = 0", "spec.toml:11:1: error: 'workers' must be a number, 1 or more."),
        ("sencores = [2", "layout-solvr = 2\nsencores = [2", "spec.toml:6:1: error: There is no option 'layout-solvr'"),
        ("[2, 64]", '["x"]', "spec.toml:6:1: error: The axis 'sencores': The option 'sencores'"),
        ("device.lx.bytes", "device.lx.byts", "spec.toml:8:1: error: The axis 'device.lx.byts': The device has an"),
        ("device.lx.bytes", "device.lx", "spec.toml:8:1: error: 'lx' must be a table of fields of the device."),
        ('x = "sencores"', 'z = "sencores"', "spec.toml:14:1: error: The table 'plot' has no 'z'; there are x, y"),
        ('x = "sencores"', "", "spec.toml:13:1: error: A plot needs a table 'plot' with 'x' and 'y'."),
        ('"error"]', '"eror"]', "spec.toml:3:1: error: There is no column 'eror'; the columns are error, "),
        ('y = "predicted_us"', 'y = "us"', "spec.toml:15:1: error: There is no column 'us'; the columns are"),
        ('y = "predicted_us"', "y = 2", "spec.toml:15:1: error: 'y' must be a text."),
        ('by = "layout-solver"', 'kind = "pie"', "spec.toml:16:1: error: There is no plot 'pie'; there are line,"),
        ("chain.mlir", "none.mlir", "none.mlir' cannot be read"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_diagnostic(
    old: str, new: str, message: str, spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec.write_text(SPEC.replace(old, new, 1))
    assert spyre_sweep.main([str(spec), "--plot", "x.svg"]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not (spec.parent / "rows.sqlite").exists()


def test_tables_of_a_specification(tmp_path: Path) -> None:
    """Programs by name, a device that is the default by an empty name, fields of a device as a table."""
    (tmp_path / "spec.toml").write_text(
        'programs = {a = "x/a.mlir", b = "models:mlp(2)"}\nstore = "s"\n'
        '[axes]\nplan = ["", "p.json"]\n[axes.device.lx]\nbytes = 4\n[executor]\nscheduler = "tcp://x:1"\n'
    )
    spec = SweepSpec.read(str(tmp_path / "spec.toml"))
    assert spec.programs == {"a": str(tmp_path / "x/a.mlir"), "b": "models:mlp(2)"}
    assert spec.axes == {"plan": {"": None, "p.json": str(tmp_path / "p.json")}, "device.lx.bytes": 4}
    assert (spec.scheduler, spec.workers) == ("tcp://x:1", None)


ROWS = tuple(
    {"program": name, "sencores": cores, "predicted_us": time, "error": "", "wall_s": 1.0}
    for name, cores, time in [("a", 2, 4.0), ("a", 1, 6.0), ("b", 1, 5.0), ("b", 2, 5.0)]
)
RESULTS = Results(ROWS, ("program", "sencores"))


@pytest.mark.parametrize("kind", ["line", "scatter", "pareto"])
def test_plots(kind: str, tmp_path: Path) -> None:
    """Equal rows give equal bytes."""
    pytest.importorskip("matplotlib")
    pictures = []
    for name in ("a.svg", "b.svg"):
        figure = RESULTS.plot(x="sencores", y="predicted_us", by="program", kind=kind, path=tmp_path / name)
        pictures.append((tmp_path / name).read_bytes())
    assert pictures[0] == pictures[1]
    (axes,) = figure.axes
    assert axes.get_xlabel() == "sencores" and [
        text.get_text() for text in axes.get_legend().get_texts()
    ] == [
        "a",
        "b",
    ]
    if kind == "line":
        assert [list(line.get_xdata()) for line in axes.lines] == [[1, 2], [1, 2]]


def test_a_pareto_front_has_what_no_point_beats() -> None:
    assert pareto_front([(3, 1), (1, 5), (2, 5), (2, 3), (3, 2), (1, 5)]) == [(1, 5), (2, 3), (3, 1)]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        (
            {"x": "core", "y": "predicted_us"},
            "There is no column 'core'; the columns are sencores, mean_cores, ",
        ),
        (
            {"x": "sencores", "y": "predicted_us", "kind": "pie"},
            "There is no plot 'pie'; there are line, scatter, pareto.",
        ),
        ({"x": "sencores", "y": "predicted_us", "path": "none/x.svg"}, "The plot cannot be written: "),
        ({"x": "sencores", "y": "predicted_us", "path": "x.xyz"}, "The plot cannot be written: "),
        (
            {"x": "program", "y": "predicted_us", "kind": "pareto"},
            "A Pareto front needs two columns of numbers.",
        ),
        ({"x": "sencores", "y": "compile_s"}, "No row has both 'sencores' and 'compile_s'"),
    ],
)
def test_what_cannot_be_drawn_is_one_error(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message.replace("(", r"\(")):
        RESULTS.plot(**keywords)


@pytest.mark.parametrize("package", ["pandas", "matplotlib"])
def test_an_extra_that_is_missing_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(name, name=name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(
        CompileError, match=rf"This needs {package}, .*: pip install 'spyre-mlir\[experiments\]'\."
    ):
        RESULTS.to_pandas() if package == "pandas" else RESULTS.plot(x="sencores", y="predicted_us")


def test_columns_and_table() -> None:
    """The columns do not depend on the points; missing values are empty."""
    refused = {"program": "c", "sencores": 1, "error": "no", "wall_s": 0.0}
    results = Results((*ROWS, refused), ("program", "sencores"))
    names = ("program", "sencores", "predicted_us")
    assert results.columns[:3] == names and results.columns == RESULTS.columns
    assert results.columns[-5:] == ("error", "compile_s", "import_s", "wall_s", "cpu_s")
    assert results.table([*names, "error"]).splitlines()[4:] == [
        "b               2         5.000", "c               1             -  no",
    ]  # fmt: skip
    assert results.to_csv(times=False).splitlines()[-1] == "c,1" + 18 * "," + ",no"


def test_each_program_has_its_axes_and_powers_of_two_are_logarithmic() -> None:
    pytest.importorskip("matplotlib")
    rows = tuple(
        {"program": name, "sencores": cores, "predicted_us": 8.0 / cores, "error": ""}
        for name in ("a", "b")
        for cores in (1, 2, 4, 8)
    )
    figure = Results(rows, ("program", "sencores")).plot(x="sencores", y="predicted_us")
    assert [axes.get_title() for axes in figure.axes] == ["a", "b"]
    assert {axes.get_xscale() for axes in figure.axes} == {"log"}
    assert all(line.get_marker() == "o" for axes in figure.axes for line in axes.lines)
    (axes,) = RESULTS.plot(x="sencores", y="predicted_us", by="program").axes
    assert axes.get_xscale() == "linear"


def test_a_line_does_not_join_rows_that_differ_in_another_axis() -> None:
    pytest.importorskip("matplotlib")
    rows = tuple(
        {"program": "a", "sencores": cores, "matmul": rule, "predicted_us": 1.0, "error": ""}
        for cores in (1, 2)
        for rule in ("cost", "specified")
    )
    results = Results(rows, ("program", "sencores", "matmul"))
    with pytest.raises(
        CompileError, match="Two rows of one line have sencores=1; name in 'by' what differs: matmul"
    ):
        results.plot(x="sencores", y="predicted_us")
    results.plot(x="sencores", y="predicted_us", by="matmul")


def test_figures_relative_to_a_baseline() -> None:
    relative = RESULTS.relative("predicted_us", sencores=1)
    assert [row["of_baseline"] for row in relative] == [4.0 / 6.0, 1.0, 1.0, 1.0]
    assert "of_baseline" in relative.columns and "of_baseline" not in RESULTS.columns
    with pytest.raises(CompileError, match="No row with sencores=3 has a 'predicted_us'"):
        RESULTS.relative("predicted_us", sencores=3)
    with pytest.raises(CompileError, match="There is no column 'cores'"):
        RESULTS.relative("predicted_us", cores=3)
