# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The zoo: every name is a program, without torch where possible, and the wheel contains the zoo."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch

import spyre_mlir
from spyre_mlir import zoo
from spyre_mlir.errors import CompileError
from spyre_mlir.zoo import families, models, suite

ROOT = Path(__file__).parents[2]


def output_of(code: str) -> str:
    """Return the output of a new process that runs in another folder and without torch."""
    without = "import sys; sys.modules.update(torch=None, transformers=None)\n"
    options = {
        "cwd": "/",
        "env": {"PYTHONPATH": str(ROOT)},
        "capture_output": True,
        "text": True,
        "check": True,
    }
    return subprocess.run([sys.executable, "-c", without + code], **options).stdout.strip()


def test_names_are_those_of_the_programs():
    texts = [each.name for each in resources.files(zoo).joinpath("linalg").iterdir()]
    members = {
        "linalg": sorted(name.removesuffix(".mlir") for name in texts),
        "suite": suite.SUITE, "suite-reduced": suite.SUITE, "families": families.FAMILIES,
        "models": models.MODELS, "models-reduced": models.MODELS,
    }  # fmt: skip
    assert list(zoo.names()) == [f"{group}/{name}" for group, every in members.items() for name in every]
    assert zoo.names("linalg") == tuple(name for name in zoo.names() if name.startswith("linalg/"))


def test_names_and_texts_need_no_torch():
    code = "from spyre_mlir import zoo; print(len(zoo.names()), zoo.load('linalg/softmax')[1][0].shape)"
    assert output_of(code) == f"{len(zoo.names())} (512, 1024)"


def test_without_torch_the_error_names_the_extra():
    code = "from spyre_mlir import zoo, CompileError\ntry: zoo.load('suite/mlp')\nexcept CompileError as e: print(e)"
    assert output_of(code).endswith("pip install 'spyre-mlir[torch]'.")


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_without_transformers_the_error_names_the_extra(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(CompileError, match=r"pip install 'spyre-mlir\[zoo\]'"):
        zoo.load(f"models-reduced/{name}")
    assert zoo.load("models-reduced/resnet")


def test_an_unknown_name_is_told_with_those_like_it():
    with pytest.raises(CompileError, match="The zoo has no 'suite/mpl'; it has suite/mlp"):
        zoo.load("suite/mpl")


@pytest.mark.parametrize("name", ["suite-reduced/mlp", "models-reduced/resnet", "linalg/softmax"])
def test_a_program_is_the_same_each_time(name):
    """Drawing a program does not change the caller's random generator."""
    state = torch.get_rng_state()
    (model, inputs), (again, same) = zoo.load(name), zoo.load(name)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(np.array_equal(one, other) for one, other in zip(inputs, same, strict=True))
    if isinstance(model, str):
        assert model == again
    else:
        pairs = zip(model.parameters(), again.parameters(), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("name", ["suite/mlp", "families/swiglu_1", "linalg/mlp", "models-reduced/resnet"])
def test_a_reference_pickles_and_is_an_import_path(name):
    """It loads without weights, so that a plan of a large program uses no memory."""
    assert pickle.loads(pickle.dumps(getattr(zoo, name))).args == (name,)
    model, inputs = pickle.loads(pickle.dumps(zoo.reference(name)))()
    assert inputs and (isinstance(model, str) or callable(model))
    with pytest.raises(AttributeError, match="no attribute 'suite/none'"):
        getattr(zoo, "suite/none")


@pytest.mark.parametrize("name", zoo.names("linalg"))
def test_a_text_is_a_program(name):
    """The inputs of a text are the inputs of its program."""
    text, inputs = zoo.load(name)
    taken = spyre_mlir.compile(text, inputs).inputs
    assert [array.shape for array in inputs] == [value.host_shape for value in taken]


@pytest.mark.parametrize("name", ["rms_norm", "conv_block"])
def test_a_text_has_the_plan_of_its_model(name):
    times = [
        spyre_mlir.compile(*zoo.load(f"{group}/{name}")).metrics()["predicted_us"]
        for group in ("linalg", "suite")
    ]
    assert times[0] == times[1]


def test_locations_are_those_of_the_zoo():
    """A program of the zoo is as the user's own: diagnostics name its lines."""
    program = spyre_mlir.compile(*zoo.load("suite-reduced/mlp"), sencores=2)
    assert "zoo/blocks.py" in str(program.plan()["operations"])


@pytest.mark.documents
def test_the_wheel_has_the_zoo(tmp_path):
    """From the wheel alone, which is on the path and not installed, a text is loaded."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(
        ROOT / "spyre_mlir", tmp_path / "spyre_mlir", ignore=shutil.ignore_patterns("__pycache__")
    )
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
        str(ROOT),
    ]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    code = (
        f"import sys; sys.path.insert(0, {str(wheel)!r}); from spyre_mlir import zoo; "
        "assert zoo.__file__.startswith(sys.path[0]); print(len(zoo.load('linalg/softmax')[0]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=True)
    assert int(done.stdout) == len(zoo.load("linalg/softmax")[0])
