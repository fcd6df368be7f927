# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The standard streams of the tools: one diagnostic for a full disk or a closed stream, silence without a reader."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = 'func.func @f() attributes {a = "µ"} {\n  return\n}\n'
FULL = "error: The output cannot be written: No space left on device.\n"


def run_shell(command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command, in which ``spyre-opt`` is the tool of this tree."""
    (folder / "in.mlir").write_text(PROGRAM, encoding="utf-8")
    script = f'spyre-opt() {{ "{sys.executable}" -m spyre_mlir.tools.spyre_opt "$@"; }}\n{command}'
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), **variables}
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("flags", ("in.mlir", "in.mlir --emit-bytecode", "--help", "--version"))
@pytest.mark.parametrize("unbuffered", ("", "1"))
def test_a_full_disk_is_one_diagnostic(tmp_path: Path, flags: str, unbuffered: str) -> None:
    run = run_shell(f"spyre-opt {flags} > /dev/full", tmp_path, PYTHONUNBUFFERED=unbuffered)
    assert (run.returncode, run.stderr) == (1, FULL)


@pytest.mark.parametrize(
    "command, reason",
    (
        ("spyre-opt in.mlir >&-", "The output cannot be written: Bad file descriptor."),
        ("spyre-opt <&-", "The file '-' cannot be read: Bad file descriptor."),
    ),
)
def test_a_closed_stream_is_one_diagnostic(tmp_path: Path, command: str, reason: str) -> None:
    run = run_shell(command, tmp_path)
    assert (run.returncode, run.stderr) == (1, f"error: {reason}\n")


def test_without_stderr_a_program_is_still_written(tmp_path: Path) -> None:
    run = run_shell("spyre-opt in.mlir --cse --mlir-timing 2>&-", tmp_path)
    assert run.returncode == 0 and run.stdout.startswith("module {")


def test_a_reader_that_leaves_is_no_noise(tmp_path: Path) -> None:
    run = run_shell("spyre-opt --list-passes | true", tmp_path)
    assert (run.returncode, run.stderr) == (0, "")


def test_what_is_printed_is_utf_8_in_every_locale(tmp_path: Path) -> None:
    run = run_shell("spyre-opt in.mlir --mlir-print-op-generic", tmp_path, PYTHONIOENCODING="ascii")
    assert run.returncode == 0 and "\\C2\\B5" in run.stdout
    script = "from spyre_mlir.tools import _common; _common.prepare(); print('µ\\udcff')"
    run = run_shell(f'"{sys.executable}" -c "{script}"', tmp_path, PYTHONIOENCODING="ascii")
    assert run.stdout == "µ\\udcff\n"


def test_an_argument_that_is_not_utf_8_is_one_diagnostic(tmp_path: Path) -> None:
    run = run_shell(r"spyre-opt $'\xff.mlir'", tmp_path)
    assert run.returncode == 1
    assert run.stderr.startswith(r"error: The argument '\udcff.mlir' is not text in UTF-8: ")
