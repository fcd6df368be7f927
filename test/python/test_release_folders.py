# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folders that releases have written: this version reads and runs them, and refuses formats that it does not know."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import spyre_mlir
from spyre_mlir.errors import CompileError
from spyre_mlir.tools import spyre_report
from spyre_mlir.version import VERSION

RELEASES = Path(__file__).parent / "releases"
FOLDERS = sorted(path for path in RELEASES.glob("*/*") if path.is_dir())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_folder_of_a_release_runs(folder, tmp_path):
    program = spyre_mlir.load(folder)
    x = (np.arange(512, dtype=np.float16) / 512).reshape(8, 64)
    count = sum(argument.kind == "input" for argument in program.arguments)
    results = program.run({**program.arrays, **dict.fromkeys(program_inputs(program), x)})
    assert count and np.array_equal(results[0], np.load(folder.with_suffix(".npy")))
    assert {step.bundle.manifest.made["version"] for step in program.bundles} == {folder.parent.name}
    assert spyre_report.main([str(folder), "-o", str(tmp_path / "page.html")]) == 0
    assert f"spyre-mlir {folder.parent.name} · " in (tmp_path / "page.html").read_text()


def program_inputs(program: spyre_mlir.Program) -> list[str]:
    return [argument.name for argument in program.arguments if argument.kind == "input"]


@pytest.mark.parametrize(
    "name", ["bundle/manifest.json", "program/program.json", "program/device_0/manifest.json"]
)
def test_a_later_format_is_read_only_where_it_says_so(name, tmp_path):
    folder = tmp_path / Path(name).parts[0]
    shutil.copytree(RELEASES / "0.1.0" / folder.name, folder)
    path = tmp_path / name
    plain = json.loads(path.read_text()) | {"version": 2, "made": {"version": "0.9.1"}, "later": [1]}
    path.write_text(json.dumps(plain))
    both = f"must be 1, the format of spyre-mlir {VERSION}; the folder was written by spyre-mlir 0.9.1 in format 2"
    with pytest.raises(CompileError, match=both):
        spyre_mlir.load(folder)
    path.write_text(json.dumps(plain | {"readable_as": 2}))
    with pytest.raises(CompileError, match=both):
        spyre_mlir.load(folder)
    path.write_text(json.dumps(plain | {"readable_as": 1}))
    assert spyre_mlir.load(folder).bundles
