# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs in a REPL and in a notebook: one line, a summary with a picture, and a line while a simulation runs."""

from __future__ import annotations

import base64
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

import spyre_mlir

ROOT = Path(spyre_mlir.__file__).parents[1]
X = torch.ones(64, 64).half()


def with_host(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(torch.exp(x)) @ x


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (torch.exp, r"<spyre_mlir\.Program: 1 bundle, 1 operation, [\d.]+ us predicted>"),
        (
            with_host,
            r"<spyre_mlir\.Program: 2 bundles, 1 function of the host, 2 operations, [\d.]+ us on the device, "
            r"about \d+ us in total \(\d+ to \d+ by assumed rates of the host\)>",
        ),
        (lambda x: x, r"<spyre_mlir\.Program: nothing runs on the device>"),
    ],
)
def test_a_program_is_one_line(model: object, text: str) -> None:
    program = spyre_mlir.compile(model, (X,), sencores=2)
    assert re.fullmatch(text, repr(program)) and repr(program) == str(program)


@pytest.mark.parametrize("model", [torch.exp, with_host, lambda x: x])
def test_a_notebook_shows_summary_and_timeline(model: object) -> None:
    """Small, in one piece, and without styles, scripts or identifiers that could collide with other cells."""
    program = spyre_mlir.compile(model, (X,), sencores=2)
    text = program._repr_html_()
    root = ElementTree.fromstring(text)
    assert len(text) < 50_000
    assert not {"style", "script", "link"} & {each.tag for each in root.iter()}
    assert not [each for each in root.iter() if each.get("id")]
    (pre,) = root.iter("pre")
    assert pre.text is not None and pre.text.splitlines()[0] in program.summary()
    (image,) = root.iter("img")
    kind, _, data = image.get("src", "").partition(",")
    assert kind == "data:image/svg+xml;base64" and image.get("alt")
    assert ElementTree.fromstring(base64.b64decode(data)).tag.endswith("svg")


def test_dir_of_a_program_has_what_one_asks_it() -> None:
    names = dir(spyre_mlir.compile(torch.exp, (X,), sencores=2))
    assert {"summary", "report", "metrics", "remarks", "timeline", "save", "bundles", "steps", "plan"} <= set(
        names
    )


SCRIPT = """
import sys
import numpy as np
from spyre_mlir.simulator import sequence_run
import spyre_mlir
{session}
sequence_run.PATIENCE_SECONDS = sequence_run.INTERVAL_SECONDS = 0.0
program = spyre_mlir.compile('''
func.func @main(%x: tensor<64x128xf16>) -> tensor<64x128xf16> {{
  %e = tensor.empty() : tensor<64x128xf16>
  %y = linalg.exp ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  %z = linalg.tanh ins(%y : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %z : tensor<64x128xf16>
}}''', sencores=2)
program(np.zeros((64, 128), np.float16))
"""


@pytest.mark.parametrize(
    ("session", "is_terminal", "expected"),
    [
        ("sys.ps1 = '>>> '", True, "\r[1/2] simulate > exp\x1b[K\r[2/2] simulate > tanh\x1b[K\r\x1b[K"),
        ("sys.ps1 = '>>> '", False, ""),
        ("", True, ""),
    ],
)
def test_a_long_simulation_shows_where_it_is(session: str, is_terminal: bool, expected: str) -> None:
    """In an interactive session on a terminal; a script, a pipe and a notebook see nothing."""
    ours, terminal = pty.openpty()
    read, write = os.pipe()
    stderr = terminal if is_terminal else write
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPYRE_LOG": "", "COLUMNS": "80"}
    command = [sys.executable, "-c", SCRIPT.format(session=session)]
    subprocess.run(command, env=environment, stderr=stderr, check=True)
    for end in (terminal, write):
        os.close(end)
    try:
        text = os.read(ours if is_terminal else read, 4000).decode()
    except OSError:  # the terminal has nothing and is closed
        text = ""
    assert text == expected
    for end in (ours, read):
        os.close(end)
