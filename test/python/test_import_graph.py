# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tests that ``make check-changed`` runs: those that reach a changed file, and not all of them."""

from __future__ import annotations

import changed as command
import pytest
from import_graph import TESTS, lit_tests, module_of, modules, python_tests, reached


@pytest.mark.parametrize(
    ("changed", "test", "other"),
    [
        ("spyre_mlir/scratchpad/solvers.py", "test_scratchpad_cp_sat.py", "test_layout_picture.py"),
        ("spyre_mlir/passes/auto_tiling.py", "test_tiling_examples.py", "test_layout_picture.py"),
        ("spyre_mlir/target/spyre.toml", "test_cost.py", "test_selection.py"),
        ("spyre_mlir/frontend/convolutions.py", "test_convolution.py", "test_layout_picture.py"),
        ("test/python/layout_graphs.py", "test_layout_choice.py", "test_layout_picture.py"),
        ("test/python/test_cost.py", "test_cost.py", "test_layout_picture.py"),
        ("docs/design.md", "test_readme.py", "test_layout_picture.py"),
    ],
)
@pytest.mark.sampled(7)
def test_tests_that_reach_a_file(changed: str, test: str, other: str) -> None:
    names = {name.removeprefix("test/python/") for name in python_tests([changed])}
    assert test in names and other not in names


def test_lit_tests_name_a_pass_that_reaches_a_file() -> None:
    assert "test/passes/auto-tiling.mlir" in lit_tests(["spyre_mlir/passes/auto_tiling.py"])
    assert lit_tests(["test/passes/auto-tiling.mlir"]) == ["test/passes/auto-tiling.mlir"]
    assert lit_tests(["docs/design.md"]) == []


def test_a_whole_compilation_is_not_followed() -> None:
    """Else every change would run every test; what only such tests reach has the programs end to end."""
    programs = reached("test_programs")
    assert "spyre_mlir.driver.compilation" not in programs and "spyre_mlir.frontend.importer" in programs
    assert {name.partition("::")[0] for name in command.END_TO_END} == {"test/python/test_programs.py"}


def test_every_file_of_the_tests_is_in_the_graph() -> None:
    assert {module_of(path) for path in TESTS.glob("*.py")} <= modules().keys()
