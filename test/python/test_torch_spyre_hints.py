# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decisions in the public form of torch-spyre: blocks in source files, the hints of programs, the files with them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import spyre_mlir
from spyre_mlir import CompileError
from spyre_mlir.driver.hint_files import (
    SourceCall,
    call_of,
    statements_of,
    with_blocks,
    with_called,
    with_imports,
)
from spyre_mlir.zoo import suite

ROOT = Path(__file__).parents[2]

SOURCE = '''"""A docstring."""

from __future__ import annotations

import torch

AT_IMPORT = torch.ones(2)


def f(x, items):
    text = """
  of two lines"""
    for item in (x + item for item in items):
        x = x * item
    y = lambda: x + 1
    if x is not None: x = x + 2
    a = x; b = a
    return (
        g(x) + y() +
        self.down(x)
    )
'''


def line_of(text: str) -> int:
    return SOURCE[: SOURCE.index(text)].count("\n") + 1


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "source.py").write_text(SOURCE)
    return str(tmp_path / "source.py")


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("x = x * item", (14, 14)),
        ("y() +", (18, 21)),
        # A statement of a module runs at import, a header has a body, and two statements share a line.
        ("AT_IMPORT", None),
        ("for item", None),
        ("if x is", None),
        ("a = x; b", None),
        # A lambda is called later.
        ("y = lambda", None),
    ],
)
def test_the_statement_at_a_line(source: str, line: str, lines: tuple[int, int] | None) -> None:
    found = list(statements_of([(source, line_of(line))]))
    assert [(each.first, each.last) for each in found] == ([lines] if lines else [])


def test_a_lambda_runs_at_the_line_of_its_call(source: str) -> None:
    frames = [(source, line_of("y = lambda")), (source, line_of("y() +"))]
    assert [each.first for each in statements_of(frames)] == [18]


def test_a_file_that_does_not_exist_has_no_statements() -> None:
    assert not list(statements_of([("nothing.py", 1)]))


def test_the_call_of_an_attribute(source: str) -> None:
    assert call_of([(source, line_of("y() +"))], "down") == SourceCall(source, 20, 8, 17)
    assert call_of([(source, line_of("y() +"))], "up") is None


def test_text_with_blocks_and_calls(source: str) -> None:
    call = call_of([(source, line_of("y() +"))], "down")
    assert call is not None
    text = with_called(SOURCE, [(call, "hinted(", ", {})")])
    text = with_imports(
        with_blocks(text, [(11, 12, "h(1)"), (14, 14, "h(2)"), (18, 21, "h(3)")]), "import h\n"
    )
    ast.parse(text)
    assert '    with h(1):\n        text = """\n  of two lines"""\n' in text
    assert "        with h(2):\n            x = x * item\n" in text
    assert "        return (\n            g(x)" in text and "hinted(self.down, {})(x)" in text
    assert text.index("from __future__") < text.index("import h\n") < text.index("import torch")


# The keys of layer_512 are repeated only under joint planning, which the trials of single hints do not use.
@pytest.mark.parametrize("name", ["softmax", "attention_512", "layer_norm", "mlp", "conv_block", "layer_512"])
def test_hints_reproduce_the_time_of_the_plan(name: str) -> None:
    model, inputs = suite.program(name, suite.REDUCED, weights=False)
    hints = spyre_mlir.compile(model, inputs, sencores=8).torch_spyre_hints()
    assert hints.hinted_us <= 1.02 * hints.plan_us


MODEL = '''"""A model."""
import torch
from torch import nn


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Linear(512, 256)

    def forward(self, x, y):
        a = torch.exp(x)
        b = a * 2 + y
        c = torch.sigmoid(
            b
        )
        d = c * a + x
        return self.down(d)
'''

#: The host computes the sine, between two bundles.
SEVERAL = MODEL.replace("a * 2 + y", "torch.sin(a * 2 + y)")

SCRIPT = """
import inspect
import sys
import warnings

import torch
import torch_spyre
from torch_spyre._inductor import config

import spyre_mlir
from model import Mlp

torch.manual_seed(0)
model = Mlp().half().eval()
inputs = torch.rand(4096, 512).half(), torch.rand(4096, 512).half()
import spyre_hints

# The hints of this compiler have tiles alone.
if "work_div" not in inspect.signature(torch_spyre._inductor.spyre_hint).parameters:
    hint = torch_spyre._inductor.spyre_hint
    spyre_hints.spyre_hint = sys.modules["model"].spyre_hint = lambda tiles=(), work_div=(): hint(tiles=dict(tiles))

with torch.no_grad():
    expected = model(*inputs)
inputs = spyre_hints.to_device(model, *inputs)
form = sys.argv[1]
if form == "patch":
    spyre_hints.EDITS.clear()
options = {"tile_for_lx": False}
with torch.no_grad(), spyre_hints.hints(model, *inputs):
    result = torch.compile(model, backend=spyre_mlir.torch_backend, options=options)(*inputs)
program = spyre_mlir.torch_backend.programs[-1]
print(program.metrics()["predicted_us"], float((result.cpu() - expected).abs().max()) < 1e-2)
"""


@pytest.fixture(scope="module", params=[MODEL, SEVERAL], ids=["one bundle", "two bundles"])
def hinted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, spyre_mlir.Program]:
    """A folder with a model and the files of its hints, and the program."""
    folder = tmp_path_factory.mktemp("hinted")
    (folder / "model.py").write_text(request.param)
    (folder / "script.py").write_text(SCRIPT)
    sys.path.insert(0, str(folder))
    try:
        import model  # pyright: ignore[reportMissingImports]

        module = model.Mlp().half().eval()
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("model", None)
    inputs = torch.rand(4096, 512).half(), torch.rand(4096, 512).half()
    program = spyre_mlir.compile(module, inputs, sencores=4)
    program.torch_spyre_hints().save(folder)
    (folder / "model.mlir").write_text(program.source_text())
    return folder, program


@pytest.mark.parametrize("form", ["patch", "context"])
def test_the_unchanged_compiler_follows_the_files(hinted: tuple[Path, spyre_mlir.Program], form: str) -> None:
    folder, program = hinted
    source = (folder / "model.py").read_text()
    if form == "patch":
        subprocess.run(["git", "init", "-q", "."], cwd=folder, check=True)
        subprocess.run(["git", "apply", "hints.patch"], cwd=folder, check=True)
    try:
        command = [sys.executable, "-W", "ignore", "-m", "spyre_mlir.torch_spyre", "script.py", form]
        environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "SPYRE_CACHE": "0"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    finally:
        (folder / "model.py").write_text(source)
    assert not done.returncode, done.stderr
    time, is_right = done.stdout.split()
    assert is_right == "True"
    hints = program.torch_spyre_hints()
    assert float(time) == pytest.approx(hints.hinted_us, rel=0.02)
    if program.is_one_bundle:
        assert hints.hinted_us == pytest.approx(program.metrics()["predicted_us"], rel=0.02)


def test_the_command(hinted: tuple[Path, spyre_mlir.Program], tmp_path: Path) -> None:
    folder, _ = hinted
    command = [
        sys.executable,
        "-m",
        "spyre_mlir.tools.spyre_compile",
        str(folder / "model.mlir"),
        "-o",
        str(tmp_path / "out"),
        "--emit",
        "torch-spyre",
    ]
    done = subprocess.run([*command, "--sencores", "4"], cwd=folder, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    assert (
        done.stdout == (tmp_path / "out" / "hints.patch").read_text() == (folder / "hints.patch").read_text()
    )
    assert (tmp_path / "out" / "spyre_hints.py").read_text() == (folder / "spyre_hints.py").read_text()


@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
def test_hints_of_several_bundles_name_dims_of_inputs_and_parameters() -> None:
    """A value that the host computes has no name in the model, so only dims of arguments are named."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a = torch.exp(x)
        b = torch.sin(a)
        return b * y

    program = spyre_mlir.compile(function, (torch.rand(512, 512).half(),) * 2, sencores=8)
    assert [step.name for step in program.steps] == ["device_0", "host_0", "device_1"]
    hints = program.torch_spyre_hints()
    assert set(hints.arguments) == {"x", "y"} == set(hints.inputs)
    assert {*hints.dims} == {name for dims in hints.arguments.values() for name in dims}
    assert {name for hint in hints.hints for name in (*hint.tiles, *hint.work_div)} <= {*hints.dims}
    assert {each.partition(":")[0] for hint in hints.hints for each in hint.operations} == {
        "device_0",
        "device_1",
    }
    assert hints.hinted_us <= 1.02 * hints.plan_us == pytest.approx(1.02 * program.metrics()["predicted_us"])


@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
def test_a_program_without_bundles_has_no_hints() -> None:
    program = spyre_mlir.compile(lambda x: torch.sort(x, 0)[0], (torch.rand(64, 64).half(),))
    with pytest.raises(CompileError, match="one bundle"):
        program.torch_spyre_hints()
