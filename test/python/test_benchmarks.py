# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The list, the runs and the files of the benchmarks; ``make bench`` measures."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import __main__ as command  # noqa: E402
from benchmarks import (  # noqa: E402
    division,
    fingerprints,
    measure,
    mutation,
    plan_quality,
    registry,
    report,
    solvers,
    suite_runs,
)
from benchmarks.chain import text  # noqa: E402
from benchmarks.plan_quality import Quality  # noqa: E402
from spyre_mlir.bundle.model import executes_of  # noqa: E402
from spyre_mlir.errors import CompileError  # noqa: E402


def test_every_benchmark_is_listed_with_a_sentence(capsys):
    assert command.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "adapters",
        "anchors",
        "architectures",
        "attention",
        "cascades",
        "chain",
        "compile-time",
        "conformance",
        "division",
        "eight-bits",
        "equal-layers",
        "exhaustive",
        "families",
        "fingerprints",
        "floors",
        "fuzz",
        "hot-spots",
        "import-time",
        "inter-tile",
        "ktir",
        "large-model",
        "layouts",
        "lsp",
        "measured-sources",
        "meshes",
        "model-operations",
        "models",
        "mutation",
        "op-cases",
        "opinfo",
        "packing",
        "pages",
        "peer-tests",
        "plan-quality",
        "planning",
        "program-cache",
        "races",
        "ratios",
        "reduction",
        "relayouts",
        "report-page",
        "restickify",
        "simulate",
        "solvers",
        "startup",
        "suite-runs",
        "sweep",
        "tiling",
        "timeline",
        "tune",
        "two-ops",
    ]
    assert all(line.endswith(".") for line in lines)


def test_planted_faults_are_texts_of_the_package():
    """Each once, in a file that tests reach; the fault is another text, and Python."""
    assert len(mutation.FAULTS) >= 20 and len({fault.name for fault in mutation.FAULTS}) == len(
        mutation.FAULTS
    )
    for fault in mutation.FAULTS:
        text = fault.mutated((ROOT / "spyre_mlir" / fault.path).read_text(encoding="utf-8"))
        compile(text, fault.path, "exec")


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


def test_columns_are_a_table_of_their_own():
    """The part of a name before the last point is the row of the table; missing cells are empty."""
    noted = registry.Noted({"a.b.us": 1.5, "a.b.cores": 32, "all": 2, "c.us": 3}, [], ("us", "cores"))
    text = report.table(registry.Benchmark("one", lambda: noted, {"all": 4}), noted)
    columns, rest = (table.splitlines() for table in text.split("\n\n"))
    assert columns == [
        "|     |   us | cores |",
        "| --- | ---: | ----: |",
        "| a.b | 1.50 |    32 |",
        "| c   |    3 |       |",
    ]
    assert [line.split("|")[1].strip() for line in rest] == ["metric", "------", "all"]


def test_a_way_behind_the_best_is_told():
    """With how far, and joint planning counts as slower only if it is; the bound is one for all ways."""
    best = Quality(300, 150, 2000.0, 2100.0, 500.0, 100.0, 32, 32.0, 4, 0.1)
    ways = {"sequential": replace(best, predicted_ns=2200.0), "joint": best}
    assert list(plan_quality._lost("x", ways)) == ["x: sequential is predicted 10 % slower than joint"]
    assert not plan_quality._is_slower(ways)
    assert plan_quality._is_slower({"sequential": best, "joint": ways["sequential"]})
    assert plan_quality._bound_ns([best, replace(best, vector_ns=0.0)]) == 500.0


def test_memory_is_that_of_the_process_alone():
    """Memory of this process is not counted; memory of the other process is."""
    held = bytearray(2**28)
    assert measure.apart(held_bytes, 2**27) - measure.apart(held_bytes, 0) == pytest.approx(2**27, rel=0.2)
    assert measure.apart(held_bytes, 0) < len(held) < measure.peak_bytes()


def held_bytes(size: int) -> int:
    """Return the largest memory of this process after an allocation of ``size`` bytes."""
    bytearray(size)
    return measure.peak_bytes()


def test_layers_one_by_one_are_the_model():
    """The reference of large models, which are in float32 one layer at a time."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 8)).half()
    inputs = (torch.randn(3, 64).half(),)
    with torch.no_grad():
        own, exact = suite_runs._results(model, inputs)
        assert torch.equal(own, model(*inputs))
        assert torch.equal(exact, model.float()(inputs[0].float()))


def test_an_unknown_name_is_one_sentence(capsys):
    assert command.main(["startup", "speed"]) == 1
    assert capsys.readouterr().err.startswith("error: There is no benchmark 'speed'; there are adapters,")


def test_a_solver_of_a_loaded_file_is_compared(tmp_path, monkeypatch, capsys):
    """``--load`` makes it one more of those that the benchmark 'solvers' runs; others are as they were."""
    from spyre_mlir.scratchpad import MemoryPlanSolver
    from spyre_mlir.scratchpad import solvers as own

    registry = MemoryPlanSolver.registry
    monkeypatch.setattr(
        registry, "classes", {n: c for n, c in registry.classes.items() if not c.is_foreign()}
    )
    monkeypatch.setattr(own, "SOLVERS", registry.classes)
    lines = ["from spyre_mlir.scratchpad.solvers import SOLVERS, register"]
    lines.append("register(type('Own', (SOLVERS['greedy'],), {'name': 'test-own', '__module__': __name__}))")
    (tmp_path / "own.py").write_text("\n".join(lines))
    assert solvers._loaded() == ()
    assert command.main(["--load", str(tmp_path / "own.py")]) == 0
    assert solvers._loaded() == ("test-own",)


def test_a_process_is_measured_and_must_succeed():
    run = measure.tool("spyre-opt", "--version")
    assert 0 < run.processor_seconds and 0 < run.seconds < 30 and run.peak_bytes > 2**20
    with pytest.raises(subprocess.CalledProcessError):
        measure.tool("spyre-opt", "--no-such-pass", "/dev/null")


def test_a_chain_has_one_device_operation_per_op():
    import spyre_mlir

    for program, operations in ((text(10), 10), (text(10, fan=True), 11)):
        bundle = spyre_mlir.compile(program, lx_planning=False).bundle
        assert len(executes_of(bundle.statements)) == operations


def test_a_division_tells_cores_and_balance():
    """33 rows of 4 sticks: 11 x 2 equal slices of 6, or 7 x 4 of at most 5 where 132 / 28 is the mean."""
    even, uneven = (list(division._ops("gelu_mlp", way)) for way in (False, True))
    add = [(ops[1].opcode, ops[1].splits, ops[1].cores, ops[1].largest) for ops in (even, uneven)]
    assert add == [("add", (11, 2), 22, 6), ("add", (7, 4), 28, 5)]
    assert even[1].balance == 1 and uneven[1].balance == pytest.approx(5 * 28 / 132)


def test_fingerprints_of_another_commit(tmp_path):
    """Report the name of a file that differs, a program that is absent and a program that is refused."""
    digests = {"suite/mlp": {"bundle.mlir": "1", "sdsc_0.json": "2"}, "zoo/vit": {"bundle.mlir": "3"}}
    lines = fingerprints.differences({**digests, "tests/add": {"bundle.mlir": "4"}}, digests)
    assert lines == ["tests/add: no longer among the programs"]
    changed = {"suite/mlp": {"bundle.mlir": "1", "sdsc_0.json": "5"}, "zoo/vit": {}}
    assert fingerprints.differences(digests, changed) == [
        "suite/mlp: 1 of 2 files differ, first sdsc_0.json", "zoo/vit: refused",
    ]  # fmt: skip
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(CompileError, match="cannot be read"):
        fingerprints.read(str(tmp_path / "bad.json"))
