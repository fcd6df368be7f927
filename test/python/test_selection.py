# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ``make check`` leaves out, and which tests run in one process."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import CASES, shared_scope

#: 40 random cases, 50 of a product, and one test of each other kind.
TESTS = """
import pytest

@pytest.mark.parametrize("kind", ["a", "b"])
@pytest.mark.parametrize("seed", range(20))
def test_random(seed, kind):
    assert seed < 20

@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", range(50))
def test_product(case):
    assert case < 50

@pytest.mark.exhaustive
def test_large():
    pass

def test_small():
    pass
"""
CONFIGURATION = "[pytest]\nmarkers =\n    exhaustive\n    sampled(count)\n"


@pytest.mark.parametrize("processes", [[], ["-n", "2", "--dist", "loadfile"]], ids=["one", "two"])
def test_what_is_left_out_is_counted(processes: list[str], tmp_path: Path) -> None:
    """By any number of processes; without the mark all run."""
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(CONFIGURATION)
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "pytest", "-q", *processes, *arguments]
        # Whatever limit this run has, that one has none.
        environment = {name: value for name, value in os.environ.items() if name != "SPYRE_RANDOM_CASES"}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout

    checked, every = run("-m", "not exhaustive"), run()
    selected = CASES + 3 + 1
    assert re.search(rf"^{92 - selected} tests were deselected", checked, re.MULTILINE)
    assert f"{selected} passed" in checked
    assert "92 passed" in every and "deselected" not in every


@pytest.mark.parametrize(
    ("nodeid", "scope"),
    [
        ("test/python/test_programs.py::test_fewer_cores_equal_pytorch[sdpa-4]", "sdpa"),
        ("test/python/test_traffic.py::test_the_simulator_counts_the_same[sdpa-7-True]", "sdpa"),
        ("test/python/test_traffic_agreement.py::test_the_whole_moves_what_is_told[exp, then others]", "exp"),
        ("test/python/test_programs.py::test_few_programs_share_sums", "test/python/test_programs.py"),
        ("test/python/test_masks.py::test_each_mask_is_needed[sdpa-4]", "test/python/test_masks.py"),
    ],
)
def test_tests_of_a_program_run_in_one_process(nodeid: str, scope: str) -> None:
    assert shared_scope(nodeid) == scope
