# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Completion of a shell's command line, asked as a shell asks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from spyre_mlir import passes
from spyre_mlir.passes.base import is_ours
from spyre_mlir.pipelines import upstream
from spyre_mlir.tools import _completion


def completions(line: str) -> list[str]:
    """Return the completions of argcomplete at the end of a command line."""
    pytest.importorskip("argcomplete")
    tool = line.split()[0].replace("-", "_")
    variables = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_STDOUT_FILENAME": "/dev/stdout"}
    place = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_COMP_WORDBREAKS": " \t\n"}
    command = [sys.executable, "-m", f"spyre_mlir.tools.{tool}"]
    done = subprocess.run(command, env=os.environ | variables | place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [text.strip() for text in done.stdout.split("\n") if text.strip()]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("spyre-opt --mlir-timing-d", "--mlir-timing-display"),
        ("spyre-opt --mlir-timing-display l", "list"),
        ("spyre-opt --spyre-pipeline --to-level pl", "placed"),
        ("spyre-opt --choose-l", "--choose-layouts"),
        ("spyre-opt --affine-loop-ti", "--affine-loop-tile"),
        ("spyre-opt --list-passes choose-l", "choose-layouts"),
        ("spyre-compile --save-pl", "--save-plan"),
        ("spyre-run --time", "--timeline"),
    ],
)
def test_the_end_of_a_line_is_completed(line, expected):
    assert completions(line) == [expected]


def test_names_of_passes_are_those_of_the_package():
    """Names of passes come from names of files, because completion must not import the bindings."""
    ours = {name for name, pass_ in passes.load_all().items() if is_ours(pass_)}
    assert ours == set(_completion.pass_names()) - set(upstream.names())


def test_a_missing_package_is_one_sentence():
    code = (
        "import sys; sys.modules['argcomplete'] = None; from spyre_mlir.tools.spyre_run import main; main([])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"_ARGCOMPLETE": "1"}, capture_output=True, text=True
    )
    assert done.stderr == "error: Completion needs 'argcomplete': pip install 'spyre-mlir[completion]'.\n"
