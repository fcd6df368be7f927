# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of torch.compile are kept, and have pages in a folder with an index."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

import spyre_mlir
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.dynamo import graph_breaks
from spyre_mlir.frontend.torch_programs import MOST_PROGRAMS, ReportFolder, TorchBackend

ROOT = Path(spyre_mlir.__file__).parents[1]
X = torch.linspace(-1, 1, 64 * 64).reshape(64, 64).half()


@pytest.fixture(autouse=True)
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[TorchBackend]:
    """The backend without programs of other tests; pages are written to the folder of a test."""
    monkeypatch.delenv("SPYRE_REPORT_DIR", raising=False)
    torch._dynamo.reset()
    spyre_mlir.torch_backend.programs.clear()
    yield spyre_mlir.torch_backend
    spyre_mlir.torch_backend.programs.clear()
    torch._dynamo.reset()


def broken(x: torch.Tensor) -> torch.Tensor:
    y = torch.exp(x)
    torch._dynamo.graph_break()
    z = torch.tanh(y)
    if z.sum() > 0:
        z = z + 1
    return z * 2


def index(folder: Path) -> tuple[list[list[str]], list[list[str]]]:
    """The rows of graphs and of graph breaks in the index."""
    text = (folder / "index.html").read_text(encoding="utf-8")
    root = ElementTree.fromstring(text.partition("\n")[2])
    tables = {table.get("id"): table for table in root.iter("table")}
    rows = {
        name: [["".join(cell.itertext()) for cell in row] for row in list(table.iter("tr"))[1:]]
        for name, table in tables.items()
    }
    return rows["graphs"], rows.get("breaks", [])


def test_programs_are_kept_in_order(backend: TorchBackend) -> None:
    """One program per graph and shape; users may clear the list."""
    model = torch.compile(broken, backend=backend, options={"sencores": 2})
    model(X)
    assert [step.name for program in backend.programs for step in program.steps] == ["device_0"] * 3
    assert [program.facts().opcodes[0][0] for program in backend.programs][:2] == ["exp", "tanh"]
    assert "predicted time" in backend.programs[0].summary()
    model(X[:32])
    assert len(backend.programs) == 6
    backend.programs.clear()
    model(X[:32])
    assert backend.programs == []


def test_the_list_is_bounded(backend: TorchBackend) -> None:
    """Else a model of many shapes would hold everything that it ever compiled."""
    compiled = TorchBackend(lambda function, inputs, **_: object())
    graphs: list = []
    torch.compile(torch.exp, backend=lambda graph, inputs: graphs.append(graph) or graph)(X)
    run = compiled(graphs[0], [X])
    for rows in range(1, MOST_PROGRAMS + 3):
        with pytest.raises(TypeError):
            run(X[:rows])  # no program at all
    assert len(compiled.programs) == MOST_PROGRAMS


def test_every_graph_has_a_page(
    backend: TorchBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index links each program, with times whose shares are of the sum; breaks have place and reason."""
    monkeypatch.setenv("SPYRE_REPORT_DIR", str(tmp_path / "a" / "reports"))
    torch.compile(broken, backend=backend, options={"sencores": 2})(X)
    folder = tmp_path / "a" / "reports"
    graphs, breaks = index(folder)
    assert [row[0].rpartition("_")[0] for row in graphs] == ["graph_0_0", "graph_1_0", "graph_2_0"]
    assert all(Path(row[1].split(":")[0]).name == Path(__file__).name for row in graphs)
    assert [row[1].split(",")[0] for row in graphs] == ["broken"] * 3
    data = json.loads((folder / "graphs.json").read_text())
    assert [graph["predicted_us"] for graph in data["graphs"]] == [
        program.metrics()["predicted_us"] for program in backend.programs
    ]
    shares = [float(row[6].rstrip("%")) for row in graphs]
    assert sum(shares) == pytest.approx(100, abs=0.2)
    for row, program in zip(graphs, backend.programs, strict=True):
        page = (folder / f"{row[0]}.html").read_text(encoding="utf-8")
        assert page == program.report(tmp_path / f"{row[0]}.html").read_text(encoding="utf-8")
    lines = Path(__file__).read_text().splitlines()
    for row in breaks:
        place, _, number = row[0].rpartition(":")
        assert place == f"broken, {__file__}" and lines[int(number) - 1].strip() == row[1]
    assert "torch._dynamo.graph_break()" in breaks[0][1] and breaks[0][2].startswith("Call to `torch._dynamo")
    assert breaks[1][2].startswith("A branch depends on the value of a tensor")
    assert len(breaks) == len(graph_breaks()) == 2


def test_forward_and_backward_have_pages(
    backend: TorchBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPYRE_REPORT_DIR", str(tmp_path))
    model = torch.compile(nn.Sequential(nn.Linear(64, 64), nn.Tanh()).half(), backend=backend)
    model(X).sum().backward()
    graphs, breaks = index(tmp_path)
    assert [row[0].split("_")[0] for row in graphs] == ["forward", "backward"]
    assert graphs[0][1] == graphs[1][1] == "Sequential" and breaks == []
    assert len(backend.programs) == 2


def test_what_runs_on_the_host_has_a_page(
    backend: TorchBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of several steps is one page there too."""
    monkeypatch.setenv("SPYRE_REPORT_DIR", str(tmp_path))
    torch.compile(lambda x: torch.sin(torch.exp(x)) @ x, backend=backend)(X)
    ((name, *_, operations, on_host, _, _),) = index(tmp_path)[0]
    assert (operations, on_host) == ("2", "1")
    assert (tmp_path / f"{name}.html").read_text(encoding="utf-8").count("<iframe") == 2


SCRIPT = """
import sys, torch, spyre_mlir
x = torch.ones(64, 64).half()
def model(x):
    y = torch.exp(x)
    torch._dynamo.graph_break()
    return torch.tanh(y)
model = torch.compile(model, backend="spyre", options={"sencores": int(sys.argv[1])})
for rows in (64, 32):
    model(x[:rows])
"""


def test_processes_share_a_folder(tmp_path: Path) -> None:
    """At the same time: none loses what another one adds, equal graphs have one name, and nothing is left over."""
    (tmp_path / "model.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPYRE_REPORT_DIR": str(tmp_path / "reports")}
    processes = [
        subprocess.Popen([sys.executable, "model.py", cores], cwd=tmp_path, env=environment)
        for cores in ("2", "4", "2")
    ]
    assert [process.wait() for process in processes] == [0, 0, 0]
    graphs, breaks = index(tmp_path / "reports")
    names = [row[0] for row in graphs]
    assert len(names) == len(set(names)) == 8 and len(breaks) == 1
    files = {path.name for path in (tmp_path / "reports").iterdir()}
    assert files == {f"{name}.html" for name in names} | {"index.html", "graphs.json", ".lock"}


def test_a_folder_that_cannot_be_used_is_an_error(
    backend: TorchBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report is not missing silently."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPYRE_REPORT_DIR", str(tmp_path / "file"))
    with pytest.raises(CompileError, match=r"The folder '.*file' of SPYRE_REPORT_DIR cannot be made"):
        ReportFolder.of_environment()
    (tmp_path / "graphs.json").write_text("[1]")
    with pytest.raises(CompileError, match="is not a list of graphs; remove it"):
        ReportFolder(tmp_path).add([], [])


def test_names_of_files_hold_nothing_of_the_user(tmp_path: Path) -> None:
    """Names are shown as text, not markup."""
    graph = {
        "name": "graph_0_0_1", "kind": "graph", "compile_id": "0/0", "place": "<a>.py:1", "function": "<lambda>",
        "inputs": ["<b>"], "operations": 1, "host_operations": 0, "predicted_us": 1.0,
    }  # fmt: skip
    entry = {
        "place": "<a>.py:2",
        "function": "<lambda>",
        "line": "<i>",
        "reason": "<u>",
        "details": "<s>\n<q>",
    }
    ReportFolder(tmp_path).add([graph], [entry])
    assert index(tmp_path)[0][0][1:3] == ["<lambda>, <a>.py:1", "<b>"]
    assert index(tmp_path)[1] == [["<lambda>, <a>.py:2", "<i>", "<u><s><q>"]]
