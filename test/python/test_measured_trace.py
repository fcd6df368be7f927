# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A measured trace next to the plan: kernels join by debug handles; foreign traces are one error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import spyre_mlir
from spyre_mlir.bundle import read_bundle
from spyre_mlir.calibration.fit import read_measurements
from spyre_mlir.errors import CompileError
from spyre_mlir.report.measured_trace import joined, read_trace
from spyre_mlir.report.program_facts import program_facts
from spyre_mlir.target.target import packaged_target
from spyre_mlir.tools import spyre_run


class Block(nn.Module):
    """Two products and a softmax in named modules."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(256, 512, bias=False), nn.Linear(512, 256, bias=False)

    def forward(self, x):
        # Debug handles are of lines: two products in one line would have one.
        gates = self.up(x).softmax(-1)
        return self.down(gates)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("measured") / "block.bundle"
    spyre_mlir.compile(Block().half(), (torch.randn(512, 256).half(),), sencores=8).save(path)
    return path


def kernels(folder: Path, size: int) -> list[list[str]]:
    """The debug handles of the bundle in order, ``size`` to a kernel."""
    bundle = read_bundle(str(folder))
    ids = list(dict.fromkeys(design.debug.id for design in bundle.designs.values() if design.debug))
    return [ids[begin : begin + size] for begin in range(0, len(ids), size)]


def trace(handles: list[list[str]], runs: int = 3, steps: int = 2) -> dict[str, Any]:
    """A trace in the form of torch-spyre #3354: each kernel ``runs`` times, in steps of 5, 10 .. us."""
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 3, "args": {"External id": 1}},
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
    ]
    for run in range(runs):
        for number, named in enumerate(handles):
            key = f"{number:016x}"
            for step in range(steps):
                details = {"provenance_key": key, "debug_handles": named}
                name = f"sdsc_fused_mm_{number}_{key}#{step}"
                begin = 1000.0 * run + 100 * number + 20 * step
                events.append(
                    {
                        "ph": "X",
                        "cat": "kernel",
                        "name": name,
                        "ts": begin,
                        "dur": 5.0 * (step + 1),
                        "args": details,
                    }
                )
    return {"schemaVersion": 1, "traceEvents": events}


def operations(folder: Path) -> Any:
    return program_facts(read_bundle(str(folder))).operations


@pytest.mark.parametrize("size", [1, 2, 100])
def test_all_kernels_of_a_trace_join(folder, size):
    """Each kernel has its operations, and each operation is in one group; a kernel takes the time of its steps."""
    handles = kernels(folder, size)
    found = joined(read_trace(json.dumps(trace(handles)), "t.json"), operations(folder), "t.json")
    assert [kernel.measured_us for group in found for kernel in group.kernels] == [15.0] * len(handles)
    positions = [operation.position for group in found for operation in group.operations]
    assert sorted(positions) == [operation.position for operation in operations(folder)]


def test_kernels_that_share_a_handle_are_one_group(folder):
    first, *others = kernels(folder, 1)
    text = json.dumps(trace([first, first + others[0], *others[1:]]))
    found = joined(read_trace(text, "t.json"), operations(folder), "t.json")
    assert [len(group.kernels) for group in found] == [2] + [1] * (len(others) - 1)


def test_the_tool_compares_and_writes_rows_for_a_calibration(folder, tmp_path, capsys):
    paths = {name: tmp_path / name for name in ("trace.json", "out.json", "rows.csv")}
    paths["trace.json"].write_text(json.dumps(trace(kernels(folder, 1))))
    arguments = [
        "--timeline",
        paths["out.json"],
        "--measured",
        paths["trace.json"],
        "--calibration",
        paths["rows.csv"],
    ]
    assert spyre_run.main([str(folder), *map(str, arguments)]) == 0
    text = capsys.readouterr().out
    assert "0 operations without a measured time" in text and "predicted / measured" in text
    assert {"up", "down"} <= {line.split()[0] for line in text.splitlines() if line}
    events = json.loads(paths["out.json"].read_text())["traceEvents"]
    assert any(event["name"].startswith("sdsc_fused_mm") for event in events)
    assert any(event.get("args", {}).get("name") == "measured" for event in events)
    measured = read_measurements(str(paths["rows.csv"]), packaged_target())
    assert sorted(group.name.split()[0] for group in measured) == ["1x512x256x512", "1x512x512x256"]


def without(value: dict[str, Any], position: int) -> str:
    del value["traceEvents"][position]
    return json.dumps(value)


BROKEN = {
    "cut off": (lambda handles: json.dumps(trace(handles))[:-40], "is not valid JSON"),
    "another file": (lambda handles: json.dumps({"designs": []}), "has no traceEvents"),
    "another profiler": (lambda handles: json.dumps(trace(handles, runs=0)), "No event of the trace has debug_handles"),
    "another program": (lambda handles: json.dumps(trace([["0123456789abcdef"]])), "names the debug handle '0123"),
    "a missing step": (lambda handles: without(trace(handles), 3), "truncated: step 1 of .* has 2 events, other"),
    "no handle": (lambda handles: json.dumps(trace([[]])), "names no debug handle"),
    "other handles": (
        lambda handles: json.dumps(trace(handles)).replace(json.dumps(handles[0]), "[]", 1),
        "differs from the handles of other events",
    ),
    "a time as text": (lambda handles: json.dumps(trace(handles)).replace('"dur": 5.0', '"dur": "5"'), "not a time"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_foreign_or_truncated_trace_is_one_error(folder, name):
    build, message = BROKEN[name]
    with pytest.raises(CompileError, match=message):
        joined(read_trace(build(kernels(folder, 1)), "t.json"), operations(folder), "t.json")


def test_a_measured_trace_requires_a_timeline(folder, capsys):
    assert spyre_run.main([str(folder), "--measured", "trace.json"]) == 1
    assert "--measured requires --timeline" in capsys.readouterr().err
