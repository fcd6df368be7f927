# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reproducers: files of a run that has crashed, and pipelines whose text must be escaped."""

from __future__ import annotations

import signal
import subprocess
import sys

from spyre_mlir import dialects
from spyre_mlir.pipelines.printing import Reproducer

PASS = """
import os
from dataclasses import dataclass
from typing import ClassVar
from spyre_mlir.passes.base import Pass

@dataclass(frozen=True)
class TestAbort(Pass):
    name: ClassVar[str] = "test-abort"

    def run(self, module):
        os.abort()
"""


def test_a_crash_of_native_code_leaves_the_reproducer(tmp_path):
    (tmp_path / "own.py").write_text(PASS)
    (tmp_path / "a.mlir").write_text("func.func @main() { return }\n")
    flags = ["--load", "own.py", "--cse", "--test-abort", "--mlir-pass-pipeline-crash-reproducer=r.mlir"]
    command = [sys.executable, "-m", "spyre_mlir.tools.spyre_opt", "a.mlir", *flags]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == -signal.SIGABRT
    text = (tmp_path / "r.mlir").read_text()
    assert Reproducer.parse(text, "r.mlir") == Reproducer(
        "builtin.module(cse,test-abort)", files={"own.py": PASS}
    )
    assert "func.func @main" in text


def test_any_text_of_a_pipeline_comes_back():
    module = dialects.parsed("", dialects.context()).operation
    for pipeline in ('a{x="b c"}', r"a{x=\}", "a{x={y}}", "a{x=ä}"):
        reproducer = Reproducer(pipeline, verify_each=False)
        text = reproducer.text(module)
        assert Reproducer.parse(text, "-") == reproducer
        dialects.parsed(text, module.context)
