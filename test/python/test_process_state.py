# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests are independent of other tests in their process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import spyre_mlir
from spyre_mlir.loading import load, loaded_files


@pytest.mark.parametrize("size", [64, 128])
def test_each_test_has_dims_of_its_own(size: int) -> None:
    """The second of the two would be refused if the first were still known."""
    spyre_mlir.declare_tensor_dim("rows", size)


@pytest.mark.parametrize("run", [1, 2])
def test_each_test_begins_in_the_same_place(run: int, tmp_path: Path) -> None:
    """The folder and the environment of the test before are restored."""
    assert "SPYRE_OF_A_TEST" not in os.environ and Path.cwd().name != "elsewhere"
    os.environ["SPYRE_OF_A_TEST"] = "1"
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    os.chdir(folder)


@pytest.mark.parametrize("run", [1, 2])
def test_each_test_has_loaded_no_file(run: int, tmp_path: Path) -> None:
    """Tools pass the files of ``--load`` to their workers."""
    assert loaded_files() == []
    file = tmp_path / "own.py"
    file.write_text("")
    load(str(file))
