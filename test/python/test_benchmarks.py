"""The benchmarks: listed, run, written; their measurements are those of ``make bench``."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import __main__ as command  # noqa: E402
from benchmarks import division, measure, registry, report  # noqa: E402
from benchmarks.chain import text  # noqa: E402
from spyre_mlir.bundle.folder import executed_files  # noqa: E402


def test_every_benchmark_is_listed_with_a_sentence(capsys):
    assert command.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "anchors",
        "chain",
        "compile-time",
        "division",
        "layouts",
        "packing",
        "pages",
        "plan-quality",
        "planning",
        "restickify",
        "simulate",
        "solvers",
        "startup",
        "tiling",
        "timeline",
        "two-ops",
    ]
    assert all(line.endswith(".") for line in lines)


def test_results_are_json_by_name_and_metric(tmp_path, monkeypatch, capsys):
    two = registry.Benchmark("two", lambda: {"a_seconds": 1.0, "count": 3}, {"a_seconds": 0.5, "count": 4})
    monkeypatch.setattr(registry, "load_all", lambda: {"two": two})
    files = [str(tmp_path / name) for name in ("out.json", "page.md")]
    assert command.main(["two", "--json", files[0], "--markdown", files[1]]) == 0
    assert json.loads(Path(files[0]).read_text()) == {"two": {"a_seconds": 1.0, "count": 3}}
    page = Path(files[1]).read_text()
    assert "| a_seconds | 1.000 s | 0.500 s | 200 % MISSED |" in page
    assert "| count     |       3 |       4 |         75 % |" in page
    assert report.machine() in page and report.machine() in capsys.readouterr().out


def test_notes_are_listed_under_the_table(monkeypatch, capsys):
    noted = registry.Noted({"count": 2}, ["x: a rule"])
    monkeypatch.setattr(registry, "load_all", lambda: {"one": registry.Benchmark("one", lambda: noted, {})})
    assert command.main(["one"]) == 0
    assert capsys.readouterr().out.endswith("\n\n* x: a rule\n")


def test_an_unknown_name_is_one_sentence(capsys):
    assert command.main(["startup", "speed"]) == 1
    assert capsys.readouterr().err.startswith("error: There is no benchmark 'speed'; there are anchors,")


def test_a_process_is_measured_and_must_succeed():
    run = measure.tool("spyre-opt", "--version")
    assert 0 < run.processor_seconds and 0 < run.seconds < 30 and run.peak_bytes > 2**20
    with pytest.raises(subprocess.CalledProcessError):
        measure.tool("spyre-opt", "--no-such-pass", "/dev/null")


def test_a_chain_has_one_device_operation_per_op():
    import spyre_mlir

    for program, operations in ((text(10), 10), (text(10, fan=True), 11)):
        bundle = spyre_mlir.compile(program, lx_planning=False).bundle
        assert len(executed_files(bundle.statements)) == operations


def test_a_division_tells_cores_and_balance():
    """33 rows of 4 sticks: 11 x 2 equal slices of 6, or 7 x 4 of at most 5 where 132 / 28 is the mean."""
    even, uneven = (list(division._ops("gelu_mlp", way)) for way in (False, True))
    add = [(ops[1].opcode, ops[1].splits, ops[1].cores, ops[1].largest) for ops in (even, uneven)]
    assert add == [("add", (11, 2), 22, 6), ("add", (7, 4), 28, 5)]
    assert even[1].balance == 1 and uneven[1].balance == pytest.approx(5 * 28 / 132)
