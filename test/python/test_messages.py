# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Messages to users: one short sentence each, with the line and the module of the model, and no IR of the compiler."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bad_programs
import pytest
import torch
from bad_programs import BAD

from spyre_mlir import compile
from spyre_mlir.errors import LONGEST, CompileError, RangeWarning, brief, listed

#: Parts of MLIR models, or of messages of PyTorch, that must not occur in a sentence.
RAW = re.compile(r"%\w+ =|%arg|<\{|!torch|torch\.export cannot|FakeTensor|OpOverload|\n")

#: Refused before any code of the model runs, or because of the call.
WITHOUT_A_LINE = {
    "missing input", "too many inputs", "unknown option", "wrong option", "too many cores", "precision", "autocast",
    "layouts", "layout dims", "no model", "no inputs", "no file", "uint16", "input uint32", "float8", "quantized",
    "sparse", "other shape", "other type", "other count", "other number", "no tensor", "index outside",
    "many parameters",
}  # fmt: skip

#: Cases that compile and run, with a warning.
WARNED = {"host work", "host work of many", "range", "scores", "tolist"}


def messages_of(name: str) -> list[str]:
    """Return the messages that a program writes to stderr."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            BAD[name]()
            texts = []
        except CompileError as error:
            texts = [str(error)]
    return [*texts, *(str(each.message) for each in caught)]


@pytest.mark.parametrize("name", BAD)
def test_a_message_is_a_short_sentence(name):
    texts = messages_of(name)
    assert texts, "Nothing is said."
    for text in texts:
        assert len(text) <= 300 and text.endswith("."), text
        assert not RAW.search(text), text


@pytest.mark.parametrize("name", sorted(BAD.keys() - WITHOUT_A_LINE - WARNED))
def test_an_error_says_where(name):
    (text,) = messages_of(name)
    is_mlir = name.endswith("MLIR")
    assert re.match(r"-:\d+:\d+: error: " if is_mlir else r".*bad_programs\.py:\d+(:0)?: error: ", text), text


@pytest.mark.parametrize(
    "name, words",
    (
        ("dtypes", "matmul in 'layers.1': Its operands are float16 and float32"),
        ("linear dtypes", "linear in 'layers.1.function'"),
        ("no fallback", "sin in 'layers.1': "),
        ("nonzero", "nonzero in 'layers.1': The size of dim 0"),
        ("raises lines", "in 'layers.1': The model raises RuntimeError: first line."),
        ("allclose", "allclose in 'layers.1': Its result is only known when the program runs"),
        ("missing input", "cannot be called with these example inputs: missing a required argument: 'y'."),
        ("many parameters", "2.bias and 35 more"),
        ("unknown option", "its options: sencores, "),
        ("host work", "autocast=torch.float16"),
        ("host work of many", "and 4 more reasons."),
    ),
)
def test_an_error_names_the_operation_and_the_module(name, words):
    assert any(words in text for text in messages_of(name)), messages_of(name)


def test_stderr_has_no_causes(tmp_path):
    """For an error that a script does not catch, Python prints the line of the script and the message."""
    script = tmp_path / "script.py"
    script.write_text("from bad_programs import BAD\nBAD['raises']()\n")
    folder = Path(bad_programs.__file__).parent
    run = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=_environment(folder),
        check=False,
    )
    assert run.returncode == 1 and "direct cause" not in run.stderr
    assert max(map(len, run.stderr.replace(str(folder), "").splitlines())) <= 300
    assert "SPYRE_TRACEBACK=1 shows the rest" in run.stderr.splitlines()[-1]


def _environment(folder: Path) -> dict[str, str]:
    import os

    return {
        **os.environ,
        "PYTHONPATH": f"{folder.parents[1]}:{folder}",
        "SPYRE_CACHE": "0",
        "SPYRE_TRACEBACK": "",
    }


def test_the_traceback_lifts_the_bound(monkeypatch):
    long = "word " * 100 + "\nsecond line"
    assert len(str(CompileError(long))) <= LONGEST
    assert len(str(RangeWarning(long))) <= LONGEST
    monkeypatch.setenv("SPYRE_TRACEBACK", "1")
    assert str(CompileError(long)) == f"error: {long}"


def test_long_lists_and_texts_are_cut():
    assert listed("abcdefg") == "a, b, c, d, e, f, g" and listed("abcdefgh") == "a, b, c, d, e, f and 2 more"
    assert listed(()) == "none" and brief("short.") == "short."
    assert brief("x" * 400).endswith("x ... (SPYRE_TRACEBACK=1 shows the rest).")


def test_the_remedy_is_never_cut():
    """A remedy longer than most of the space is cut as the rest of the message."""
    remedy = "compile the model with autocast=torch.float16"
    for most in (LONGEST, 200):
        text = brief(f"{'word ' * 100}; and more; {remedy}.", most)
        assert text.endswith(f"word ... (SPYRE_TRACEBACK=1 shows the rest); {remedy}.") and len(text) <= most
    assert len(brief(f"A problem; {'word ' * 100}.")) <= LONGEST


@pytest.mark.parametrize("folder", ("", "/a" * 100))
def test_a_message_is_the_same_in_every_folder(folder: str) -> None:
    """The length of a location does not shorten the message after it."""
    text = str(CompileError("word " * 100, f"{folder}/model.py:1:2"))
    assert text.removeprefix(folder) == str(CompileError("word " * 100, "/model.py:1:2"))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


X = torch.ones(4, 64)

#: User errors, and their messages: the likely cause, and the remedy.
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "onnx": (lambda: compile("model.onnx"), "is not MLIR; import it to linalg with torch-mlir"),
    "pt2": (lambda: compile("model.pt2"), "is not MLIR; give the exported program that torch.export.load"),
    "weights": (lambda: compile("model.safetensors"), "create the model, load the weights into it"),
    "path of weights": (lambda: compile(Path("a/model.pth")), "create the model, load the weights into it"),
    "script": (lambda: compile("model.py"), "import it, and give the model that it defines"),
    "hub": (
        lambda: compile("meta-llama/Llama-3.1-8B"),
        "nor the path of an .mlir file; give a PyTorch model, such as",
    ),
    "class": (lambda: compile(Model, (X,)), "'Model' is a class; give an instance of it, as Model()"),
    "a tensor": (
        lambda: compile(Model(), X),
        "are a tuple of tensors, .*not a Tensor; give one input as .x,.",
    ),
    "numpy": (lambda: compile(Model(), (X.numpy(),)), "Input 0 is an array of numpy; give a tensor"),
    "no inputs": (lambda: compile(lambda: X + 1, ())(X), "takes 0 inputs, not 1"),
    "number of inputs": (lambda: compile(lambda x: x + 1, (X,))(X, X), "takes 1 input, not 2"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_of_a_user(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(CompileError, match=message) as raised, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call()
    assert "SPYRE_TRACEBACK" not in str(raised.value)
