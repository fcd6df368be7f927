# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests that ``make check`` leaves out, and tests that run in one process."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import CASES, rank, shared_scope

#: 40 random cases in two tests, 50 of a product, and one test of each other kind.
TESTS = """
import pytest

@pytest.mark.parametrize("kind", ["a", "b"])
@pytest.mark.parametrize("seed", range(20))
def test_random(seed, kind, tmp_path):
    (tmp_path / "once").touch(exist_ok=False)
    with open("ran", "a") as ran:
        print(kind, seed, file=ran)

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


def checkout(folder: Path, tests: str) -> None:
    """Write a file of tests with the configuration of these here."""
    (folder / "test_some.py").write_text(tests)
    (folder / "pytest.ini").write_text(CONFIGURATION)
    for name in ("conftest.py", "seeds.py"):
        shutil.copy(Path(__file__).with_name(name), folder)


@pytest.mark.parametrize("processes", [[], ["-n", "2", "--dist", "loadfile"]], ids=["one", "two"])
def test_what_is_left_out_is_counted(processes: list[str], tmp_path: Path) -> None:
    """The count is right for any number of processes; without the mark all tests run."""
    checkout(tmp_path, TESTS)

    def seeds() -> list[str]:
        cases = (tmp_path / "ran").read_text().splitlines()
        (tmp_path / "ran").unlink()
        return sorted(cases)

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "pytest", "-q", *processes, *arguments]
        environment = without_limits()
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout

    checked = run("-m", "not exhaustive")
    assert re.search(r"^50 tests were deselected", checked, re.MULTILINE)
    assert "6 passed" in checked
    few = seeds()
    assert len(few) == CASES and {case[0] for case in few} == {"a", "b"}
    every = run()
    assert "56 passed" in every and "deselected" not in every
    assert seeds() == sorted(f"{kind} {seed}" for kind in "ab" for seed in range(20))


def without_limits() -> dict[str, str]:
    """Return the environment of an inner run of pytest, which has none of the limits of the outer run."""
    limits = ("SPYRE_RANDOM_CASES", "SPYRE_SLOW_PART")
    return {name: value for name, value in os.environ.items() if name not in limits}


FAILING = """
import pytest

@pytest.mark.parametrize("seed", range(20))
def test_random(seed):
    if seed == 3:
        pytest.skip("three")
    assert seed % 7 != 5
"""


def test_a_failure_names_its_seeds(tmp_path: Path) -> None:
    """The first in the message, all in the report; the environment limits their number, and chooses one."""
    checkout(tmp_path, FAILING)

    def run(**variables: str) -> str:
        environment = {**without_limits(), "SPYRE_RANDOM_CASES": "0", **variables}
        command = [sys.executable, "-m", "pytest", "-q", "-rfs"]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout

    report = run()
    failing = {
        int(seed) for text in re.findall(r"seeds fail: \[([\d, ]+)\]", report) for seed in text.split(",")
    }
    assert failing == {5, 12, 19}
    assert re.search(r"^FAILED \S+test_random\S.* - seed (5|12|19): assert", report, re.MULTILINE)
    assert "seed 12: assert" in run(SPYRE_SEED="12") and "seeds fail: [12]" in run(SPYRE_SEED="12")
    assert "1 skipped: three" in run(SPYRE_SEED="3")
    assert "1 passed" in run(SPYRE_SEED="4")


ORDERED = """
import pytest

@pytest.mark.parametrize("case", range(8))
@pytest.mark.sampled(8)
def test_order(case):
    with open("order", "a") as order:
        print(case, file=order)
"""


def test_slow_tests_are_left_out_and_the_order_can_be_random(tmp_path: Path) -> None:
    checkout(tmp_path, ORDERED)
    (tmp_path / "durations.json").write_text(
        '{"test_some.py::test_order[3]": 1.5, "test_some.py::test_order[4]": 0.1}'
    )

    def order(*arguments: str, part: str = "", hash_seed: str = "0") -> list[int]:
        command = [sys.executable, "-m", "pytest", "-q", *arguments]
        environment = {**os.environ, "SPYRE_SLOW_PART": part, "PYTHONHASHSEED": hash_seed}
        subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        cases = [int(line) for line in (tmp_path / "order").read_text().splitlines()]
        (tmp_path / "order").unlink()
        return cases

    assert order() == list(range(8))
    assert order("-m", "not exhaustive") == [0, 1, 2, 4, 5, 6, 7]
    slow = {f"test_some.py::test_order[{case}]": 9.5 - case for case in range(8)}
    durations = tmp_path / "durations.json"
    recorded = durations.read_text()
    durations.write_text(json.dumps(slow))
    assert order("-m", "not exhaustive") == [7], "Of a file of slow tests, the fastest runs."
    durations.write_text(json.dumps(dict.fromkeys(slow, 1.5)))
    chosen = [order("-m", "not exhaustive", hash_seed=str(seed)) for seed in range(4)]
    assert chosen == [[0]] * 4, "Processes choose the same test of equal times; xdist refuses a difference."
    durations.write_text(recorded)
    one, other = order("--shuffle", "1"), order("--shuffle", "2")
    assert sorted(one) == sorted(other) == list(range(8)) and one != other
    assert order("--shuffle", "1") == one
    # Of the slow test, one of three parts has it; the others run in each part.
    parts = [order(part=f"{number}/3") for number in (16, 17, 18)]
    assert sorted(map(len, parts)) == [7, 7, 8] and all({*part, 3} == set(range(8)) for part in parts)


def test_durations_of_tests_that_do_not_run_stay(tmp_path: Path) -> None:
    """A test that became fast loses its record; the file keeps the time of all its tests."""
    checkout(tmp_path, ORDERED)
    others = {"test_other.py::test_x": 3.0, "test_some.py": 2.0, "test_some.py::test_order[4]": 1.5}
    durations = tmp_path / "durations.json"
    durations.write_text(json.dumps({**others, "test_some.py::test_order[3]": 1.5}))
    command = [sys.executable, "-m", "pytest", "-q", "--record-durations", "test_some.py::test_order[3]"]
    subprocess.run(command, cwd=tmp_path, env=without_limits(), capture_output=True, check=True)
    assert json.loads(durations.read_text()) == others


def test_a_program_is_the_sample_of_all_its_tests() -> None:
    """The programs of two files of ``BY_PROGRAM`` are sampled in one order."""
    names = [f"program{number}" for number in range(20)]

    def ranked(path: str) -> list[str]:
        return sorted(names, key=lambda name: rank(f"test/python/{path}::test_x[{name}-4]"))

    assert ranked("test_programs.py") == ranked("test_traffic.py") != names


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
