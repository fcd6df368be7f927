# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ctrl-C: every tool reports the interrupt, ends with status 130, and does not change files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import spyre_mlir
from spyre_mlir.tools import _common

ROOT = Path(spyre_mlir.__file__).parents[1]
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]

PROGRAM = """
func.func @main(%x: tensor<64x128xf16>) -> tensor<64x128xf16> {
  %e = tensor.empty() : tensor<64x128xf16>
  %y = linalg.exp ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %y : tensor<64x128xf16>
}
"""

#: A pass that interrupts the process that runs it, as the terminal does.
INTERRUPT = """
import os
import signal

from spyre_mlir.passes.base import Pass


class Interrupt(Pass):
    name = "interrupt"

    def run(self, module):
        os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_tool_ends_with_130(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_common.ArgumentParser, "parse_args", interrupted)
    module, _, function = SCRIPTS[name].partition(":")
    main = getattr(__import__(module, fromlist=[function]), function)
    assert main([]) == 130
    assert capsys.readouterr() == ("", "interrupted\n")


@pytest.mark.parametrize("tool", ["opt", "compile"])
def test_a_signal_leaves_files_as_they_were(tool: str, tmp_path: Path) -> None:
    """In the middle of a pass, the bindings in between; the next run of the tool finds what there was."""
    (tmp_path / "x.mlir").write_text(PROGRAM)
    (tmp_path / "own.py").write_text(INTERRUPT)
    (tmp_path / "out.mlir").write_text("before")
    arguments = {
        "opt": ["--interrupt", "-o", "out.mlir", "--remarks", "remarks.jsonl"],
        "compile": ["--passes", "placed=interrupt", "-o", "out.bundle", "--report", "out.html"],
    }[tool]
    files = sorted(path.name for path in tmp_path.iterdir())
    done = subprocess.run(
        [sys.executable, "-m", f"spyre_mlir.tools.spyre_{tool}", "x.mlir", "--load", "own.py", *arguments],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        # A job in the background of a shell ignores the signal, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == files
    assert (tmp_path / "out.mlir").read_text() == "before"


def test_a_program_in_python_is_interrupted_as_python_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exception comes through the bindings, and the compiler works again after it."""
    from spyre_mlir.passes.place_in_hbm import PlaceInHbm

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(PlaceInHbm, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            spyre_mlir.compile(PROGRAM)
    assert spyre_mlir.compile(PROGRAM).is_one_bundle
