# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs that the device cannot run whole: numbers, folders, remarks, errors."""

from __future__ import annotations

import copy
import itertools
import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from random_programs import MIXED, RandomProgram

import spyre_mlir
from spyre_mlir.bundle.validate import validate
from spyre_mlir.driver.program import Program
from spyre_mlir.driver.program_figures import host_share
from spyre_mlir.driver.steps import BundleStep, HostStep
from spyre_mlir.errors import CompileError
from spyre_mlir.tools.spyre_compile import main as spyre_compile
from spyre_mlir.tools.spyre_report import main as spyre_report
from spyre_mlir.tools.spyre_run import main as spyre_run
from spyre_mlir.tools.spyre_validate import main as spyre_validate

# A part of each program runs on the host; test_host_work_warning.py tests the warning.
pytestmark = pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")

SIN = """
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<8x65xT>) -> tensor<8x65xT> {
  %e = tensor.empty() : tensor<8x65xT>
  %0 = linalg.exp ins(%x : tensor<8x65xT>) outs(%e : tensor<8x65xT>) -> tensor<8x65xT>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%0 : tensor<8x65xT>) outs(%e : tensor<8x65xT>) {
  ^bb0(%a: T, %b: T):
    %s = math.sin %a : T
    linalg.yield %s : T
  } -> tensor<8x65xT>
  %2 = linalg.add ins(%1, %0 : tensor<8x65xT>, tensor<8x65xT>) outs(%e : tensor<8x65xT>) -> tensor<8x65xT>
  return %2 : tensor<8x65xT>
}
"""


def sin_program(element: str = "f16") -> str:
    return SIN.replace("T>", f"{element}>").replace(": T", f": {element}").replace("xT", f"x{element}")


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_are_exact(seed: int) -> None:
    """Every result has the numbers of float64; every bundle is valid; device and host take turns."""
    model, rng = RandomProgram(seed, MIXED), random.Random(seed)
    inputs = tuple(model.inputs)
    program = spyre_mlir.compile(model, inputs, verify_each=True, sencores=rng.randint(1, 32))
    assert not [finding for step in program.bundles for finding in validate(step.bundle)]
    with torch.no_grad():
        expected = model(*(x.double() for x in inputs))
    for result, exact in zip(program(*inputs), expected, strict=True):
        assert torch.equal(result.double(), exact), "\n".join(model.text)
    kinds = [type(step) for step in program.steps]
    assert all(one is not other for one, other in itertools.pairwise(kinds))


@pytest.mark.parametrize("element", ["f16", "f32", "bf16"])
def test_element_types_cross_between_host_and_device(element: str) -> None:
    program = spyre_mlir.compile(sin_program(element))
    assert [step.name for step in program.steps] == ["device_0", "host_0", "device_1"]
    x = np.random.default_rng(3).standard_normal((8, 65)).astype(np.float32)
    given = {"f16": x.astype(np.float16), "f32": x}.get(element, x)
    got = program(given).astype(np.float64)
    exact = np.exp(given.astype(np.float64))
    error = np.abs(got - (np.sin(exact) + exact)).max() / exact.max()
    assert error < {"f16": 2e-3, "f32": 1e-6, "bf16": 2e-2}[element]


def test_booleans_cross_between_host_and_device() -> None:
    """A comparison on the device, an order of its result on the host, a choice by it on the device."""

    def model(x: torch.Tensor) -> torch.Tensor:
        large = x > 0
        return torch.where(large, x * 2, torch.sort(large.long(), 0)[0].to(x.dtype))

    x = torch.randint(-3, 4, (33, 65)).half()
    assert torch.equal(spyre_mlir.compile(model, (x,))(x), model(x))


def test_64_bit_integers_do_not_overflow_unnoticed() -> None:
    i = torch.tensor([100_000, -3])
    assert torch.equal(spyre_mlir.compile(lambda i: i * i + 1, (i,))(i), i * i + 1)


def test_an_argument_can_be_for_the_host_alone_or_for_nobody() -> None:
    """Both read a tied weight; only the host reads positions; an input without a use is accepted."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(40, 64)

        def forward(self, positions: torch.Tensor, unused: torch.Tensor) -> torch.Tensor:
            x = torch.sort(self.embed(positions), -1)[0]
            return x @ self.embed.weight.T

    torch.manual_seed(1)
    model = Model().half().eval()
    inputs = (torch.arange(0, 40, 3), torch.zeros(3))
    program = spyre_mlir.compile(model, inputs)
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(*inputs)
    assert (program(*inputs).double() - exact).abs().max() < 2e-3 * exact.abs().max()


def test_without_the_fallback_it_is_an_error_with_its_place(tmp_path: Path, capsys) -> None:
    path = tmp_path / "sin.mlir"
    path.write_text(sin_program())
    with pytest.raises(CompileError, match=r"'math.sin' has no device operation") as caught:
        spyre_mlir.compile(path, fallback=False)
    assert caught.value.location == f"{path}:9:10"
    assert spyre_compile([str(path), "-o", str(tmp_path / "out"), "--no-fallback"]) == 1
    assert "math.sin" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_what_the_host_cannot_run_either_is_the_device_s_error() -> None:
    with pytest.raises(CompileError, match=r"complex<f32> is not supported by the device"):
        spyre_mlir.compile(
            "func.func @main(%x: tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>> {\n"
            "  return %x : tensor<4xcomplex<f32>>\n}"
        )


def test_the_summary_says_what_is_where_and_why() -> None:
    program = spyre_mlir.compile(sin_program())
    text = program.summary()
    assert "2 on the device, 1 on the host" in text
    assert "1 x 'math.sin' has no device operation" in text
    # exp, sin and add of 520 elements: a third of them on the host
    assert host_share(program.steps) == pytest.approx(1 / 3)
    assert "33.33% of the floating-point operations" in text


def test_a_program_of_several_steps_has_no_single_bundle() -> None:
    program = spyre_mlir.compile(sin_program())
    for ask in (
        lambda: program.bundle,
        lambda: program.module,
        program.facts,
        program.plan,
        program.timeline,
    ):
        with pytest.raises(CompileError):
            ask()
    program(np.ones((8, 65), np.float16))
    assert program.traffic().read_bytes == sum(
        step.last_run.statistics.read_bytes for step in program.bundles if step.last_run is not None
    )


def test_a_model_that_computes_nothing_has_no_steps() -> None:
    """Its results are its inputs themselves, or constants."""
    x = torch.ones(3, 4).half()
    program = spyre_mlir.compile(lambda x: (x, x.T, torch.zeros(2), None), (x,))
    same, turned, zeros, nothing = program(x)
    assert not program.steps and same is x and nothing is None
    assert torch.equal(turned, x.T) and torch.equal(zeros, torch.zeros(2))
    assert "0 on the device, 0 on the host" in program.summary()


@pytest.mark.parametrize("dtype", (torch.int8, torch.uint8, torch.int16, torch.float64))
def test_parts_of_what_the_device_cannot_write_are_the_host_s(dtype: torch.dtype) -> None:
    x, y = torch.arange(128).reshape(8, 16).to(dtype), torch.ones(8, 64).half()
    part, moved = spyre_mlir.compile(lambda x, y: (x[:, 1:5].t()[1:].clone(), y * 2), (x, y))(x, y)
    assert torch.equal(part, x[:, 1:5].t()[1:]) and torch.equal(moved, y * 2)


def test_a_tensor_without_elements_is_the_host_s() -> None:
    x = torch.ones(0, 5).half()
    assert spyre_mlir.compile(lambda x: x * 2, (x,))(x).shape == (0, 5)


def test_what_the_device_runs_whole_is_one_bundle() -> None:
    program = spyre_mlir.compile(sin_program().replace("math.sin", "math.tanh"))
    assert program.is_one_bundle and isinstance(program.steps[0], BundleStep)


# -- boundaries --------------------------------------------------------------------------------------------


def test_what_lives_over_a_host_call_is_saved_once_and_loaded_once() -> None:
    """exp's result is read before the call and after it: LX serves within a bundle, device memory between them."""
    source = sin_program().replace("math.sin", "math.cos")
    source = source.replace(
        "%2 = linalg.add ins(%1, %0",
        "%p = linalg.mul ins(%0, %0 : tensor<8x65xf16>, tensor<8x65xf16>) outs(%e : tensor<8x65xf16>)"
        " -> tensor<8x65xf16>\n  %q = linalg.add ins(%p, %0 : tensor<8x65xf16>, tensor<8x65xf16>)"
        " outs(%e : tensor<8x65xf16>) -> tensor<8x65xf16>\n  %2 = linalg.add ins(%1, %q",
    )
    program = spyre_mlir.compile(source, sencores=8)
    first, host, last = program.steps
    assert isinstance(host, HostStep)
    program(np.ones((8, 65), np.float16))
    assert isinstance(first, BundleStep) and isinstance(last, BundleStep)
    assert first.last_run is not None and last.last_run is not None
    stick_bytes = 8 * 2 * 128  # 8 rows of two sticks
    written = first.last_run.statistics.write_bytes
    assert written == stick_bytes * len(first.outputs)
    assert last.last_run.statistics.read_bytes == stick_bytes * len(last.inputs)


def test_a_bundle_finds_nothing_in_lx() -> None:
    """Each run begins with LX that holds nothing: what an earlier bundle left there cannot be read unnoticed."""
    program = spyre_mlir.compile(sin_program())
    names = {buffer.name for step in program.bundles for buffer in step.bundle.manifest.buffers}
    crossing = {name for step in program.steps for name in step.outputs}
    for step in program.bundles:
        known = {argument.name for argument in step.bundle.manifest.arguments}
        assert set(step.inputs) <= known
        assert all(buffer.base != "lx" for buffer in step.bundle.manifest.buffers if buffer.name in crossing)
    assert names


def names(arguments) -> list[str]:
    return [argument.name for argument in arguments]


def test_a_value_stays_in_device_memory_over_a_host_call() -> None:
    """The host reads device_0's result, which is not copied back for device_1."""
    first, host, last = moved = spyre_mlir.compile(sin_program()).transfers()
    table = [line.split()[:-3] for line in str(moved).splitlines()]
    assert ["0", "to", "the", "device", "arg0"] in [row[:5] for row in table] and len(table) == 6
    assert (names(first.to_device), names(first.to_host), names(first.resident)) == (
        ["arg0"],
        ["result0"],
        [],
    )
    assert host == type(host)()
    assert (names(last.to_device), names(last.resident), names(last.to_host)) == (
        ["host_0.0"], ["device_0.0"], ["result0"],
    )  # fmt: skip


def test_a_value_that_is_wanted_otherwise_goes_by_way_of_the_host() -> None:
    """The value has its columns in sticks; the later bundle reads it with its rows in sticks."""
    program = spyre_mlir.compile(sin_program())
    (made,) = [each for each in program.bundles[0].bundle.manifest.arguments if each.kind == "result"]
    last = program.bundles[1]
    other = spyre_mlir.to_device(np.zeros((8, 65), np.float16), stick_dims=[0])
    changed = [
        replace(each, transfer=other.transfer, device_size=other.layout.device_size, bytes=other.layout.bytes)
        if each.name == "device_0.0"
        else each
        for each in last.bundle.manifest.arguments
    ]
    assert made.transfer != other.transfer
    last.bundle = replace(last.bundle, manifest=replace(last.bundle.manifest, arguments=tuple(changed)))
    moved = program.transfers()[2]
    assert "device_0.0" in names(moved.to_device) and not moved.resident


def test_weights_are_not_moved_at_calls() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(64).half())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sort(x * self.scale, 0)[0]

    first, _ = spyre_mlir.compile(Model().eval(), (torch.ones(8, 64).half(),)).transfers()
    assert names(first.to_device) == ["x"]


# -- folders -----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    spyre_mlir.compile(sin_program()).save(tmp_path / "program")
    return tmp_path / "program"


def test_a_saved_program_runs(folder: Path, tmp_path: Path, capsys) -> None:
    x = np.random.default_rng(1).standard_normal((8, 65)).astype(np.float16)
    np.savez(tmp_path / "in.npz", x)
    arguments = ["--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "out.npz"), "--stats"]
    assert spyre_run([str(folder), *arguments]) == 0
    assert "host_0: on the host" in capsys.readouterr().out
    expected = spyre_mlir.compile(sin_program())(x)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["result0"], expected)
    np.testing.assert_array_equal(Program.load(folder)(x), expected)


def test_every_bundle_of_a_folder_is_validated(folder: Path, capsys) -> None:
    assert spyre_validate([str(folder)]) == 0
    assert capsys.readouterr().out.count("valid") == 2
    design = next((folder / "device_1").glob("sdsc_*.json"))
    design.write_text(design.read_text().replace('"numCoresUsed_": ', '"numCoresUsed_": 1'))
    assert spyre_validate([str(folder)]) == 1


def test_tools_for_one_bundle_say_which_there_are(folder: Path, capsys, tmp_path: Path) -> None:
    assert spyre_report(["--lx", str(folder), "-o", str(tmp_path / "page.html")]) == 1
    assert f"several bundles; name one, as in '{folder / 'device_0'}'" in capsys.readouterr().err


def test_the_same_program_is_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    spyre_mlir.compile(sin_program()).save(tmp_path / "again")
    files = sorted(path.relative_to(folder) for path in folder.rglob("*.*"))
    assert files == sorted(path.relative_to(tmp_path / "again") for path in (tmp_path / "again").rglob("*.*"))
    for path in files:
        assert (folder / path).read_bytes() == (tmp_path / "again" / path).read_bytes(), path


def test_weights_are_saved_with_the_steps_that_read_them(tmp_path: Path) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Parameter(torch.arange(12.0).half().reshape(3, 4))
            self.scale = torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0, 4.0]).half())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sort(self.table, 0, descending=True)[0] + x * self.scale

    model, x = Model().eval(), torch.ones(3, 4).half()
    spyre_mlir.compile(model, (x,)).save(tmp_path / "p")
    (got,) = [Program.load(tmp_path / "p")(x.numpy())]
    np.testing.assert_array_equal(got, model(x).detach().numpy())


EDITS = {
    "a value that nobody makes": (
        lambda root: root["steps"][1].update(inputs=["nothing"]),
        "steps[1].inputs[0] names 'nothing', which is neither",
    ),
    "a value made twice": (
        lambda root: root["steps"][2].update(outputs=["device_0.0"]),
        "steps[2].outputs[0] names 'device_0.0', which is already defined",
    ),
    "an unknown kind": (
        lambda root: root["steps"][0].update(kind="gpu"),
        "must be 'bundle', 'host' or 'collective'",
    ),
    "a path as a name": (lambda root: root["steps"][0].update(name="../x"), "must be a plain name"),
    "too many outputs": (
        lambda root: root["steps"][0].update(outputs=["device_0.0", "more"]),
        "must name the 1 result of the bundle",
    ),
    "inputs that the function does not take": (
        lambda root: root["steps"][1].update(inputs=["device_0.0", "arg0"]),
        "has 2 inputs and 1 output, but its function 1 and 1",
    ),
    "an input that is no argument": (
        lambda root: root["steps"][0].update(inputs=["arg0"]) or root["steps"][2].update(inputs=["arg0"]),
        "names 'arg0', which is not an argument of the bundle",
    ),
    "no result": (lambda root: root.update(returned=[]), "must name the 1 result"),
    "a result that nobody makes": (lambda root: root.update(returned=["lost"]), "names 'lost'"),
}


@pytest.mark.parametrize("case", EDITS)
def test_a_damaged_folder_is_one_diagnostic(folder: Path, capsys, case: str) -> None:
    edit, words = EDITS[case]
    path = folder / "program.json"
    root = json.loads(path.read_text())
    edit(root)
    path.write_text(json.dumps(root))
    assert spyre_run([str(folder)]) == 1
    error = capsys.readouterr().err
    assert error.count("error:") == 1 and words in error and "program.json" in error


def test_a_host_function_that_does_not_parse(folder: Path, capsys) -> None:
    (folder / "host_0.mlir").write_text("func.func @main(")
    assert spyre_run([str(folder)]) == 1
    assert "host_0.mlir" in capsys.readouterr().err
