# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cache on disk of ``compile``: a served program is the compiled one, and whatever changes a program is a miss."""

from __future__ import annotations

import ast
import contextlib
import json
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from programs import PROGRAMS
from torch import nn

import spyre_mlir
from spyre_mlir.driver import program_cache
from spyre_mlir.passes.base import PASSES, Pass
from spyre_mlir.target.target import packaged_text

PACKAGE = Path(spyre_mlir.__file__).parent

EXP = """
func.func @main(%x: tensor<64x128xf16>) -> tensor<64x128xf16> {
  %e = tensor.empty() : tensor<64x128xf16>
  %y = linalg.exp ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  %z = linalg.tanh ins(%y : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %z : tensor<64x128xf16>
}
"""


def entries(tmp_path: Path) -> list[Path]:
    return sorted(tmp_path.glob("cache/*/*.npz"))


@contextlib.contextmanager
def served(cache_log: pytest.LogCaptureFixture, expected: bool = True) -> Iterator[None]:
    """Check whether one compilation inside uses the cache."""
    cache_log.clear()
    yield
    lines = [record.getMessage() for record in cache_log.records]
    assert any("no pass runs" in line for line in lines) == expected, lines


def files(program: spyre_mlir.Program, folder: Path) -> dict[str, bytes]:
    program.save(folder)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def text(program: spyre_mlir.Program) -> str:
    return str(program.module.operation.get_asm(enable_debug_info=True))


class Outputs(nn.Module):
    """A model with a state, and outputs of all kinds: views, numbers, constants, None."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64).half() / 8)
        self.register_buffer("count", torch.zeros(64, dtype=torch.float16))
        self.register_buffer("table", torch.arange(64).half() / 64)

    def forward(self, x: torch.Tensor, *, scale: float) -> dict[str, Any]:
        self.count.add_(1)
        y = x @ self.weight * scale + self.table
        constants = {"positions": torch.arange(4), "empty": torch.zeros(3, 0, dtype=torch.float16)}
        return {"y": y, "view": y.t(), "input": x[:2], "none": None, "three": 3, **constants}


def convolution() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 64, 3), nn.BatchNorm2d(64), nn.ReLU())
    model[1].running_mean.normal_()
    return model.eval().half()


def mixed(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(torch.exp(x)) @ x.t()


torch.manual_seed(0)
X = torch.randn(64, 64).half()

#: Programs of every kind: one bundle, a state, folded weights, a function of the host, a sequence of bundles.
SAMPLES: dict[str, Callable[[], tuple[Any, Any, dict[str, Any]]]] = {
    "outputs": lambda: (Outputs(), {"x": X, "scale": 0.5}, {}),
    "folded": lambda: (convolution(), (torch.randn(1, 4, 8, 8).half(),), {}),
    "host": lambda: (mixed, (X,), {}),
    "sequence": lambda: (lambda x: torch.tanh(torch.exp(x) @ x), (X,), {"bundle_operations": 2}),
    "layouts": lambda: (torch.exp, (X,), {"layouts": {0: {"stick_dims": [0]}}}),
    "mlir": lambda: (EXP, (), {}),
    "attention": lambda: (*PROGRAMS["sdpa_causal"](), {}),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_served_program_is_the_compiled_one(
    name: str, cache_log: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """All that is public is equal, to the byte: files, page, figures, remarks, warnings, times, the IR, the plan."""
    programs, shown = [], []
    for is_served in (False, True):
        torch.manual_seed(1)
        model, inputs, options = SAMPLES[name]()
        with served(cache_log, is_served), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            programs.append(spyre_mlir.compile(model, inputs, sencores=4, **options))
        shown.append([str(warning.message) for warning in caught])
    compiled, loaded = programs
    assert not compiled.is_one_bundle or name not in ("host", "sequence")
    assert shown[0] == shown[1]
    assert files(compiled, tmp_path / "one") == files(loaded, tmp_path / "two")
    for ask in (
        spyre_mlir.Program.summary, spyre_mlir.Program.metrics, spyre_mlir.Program.bound,
        lambda program: program.remarks, lambda program: program.passes.report(),
        lambda program: [list(step.passes) for step in program.bundles], lambda program: program.numerics,
        lambda program: [(step.inputs, step.outputs, step.float_operations) for step in program.steps],
        lambda program: (program.arguments, program.results, program.returned, program.lx_frac_avail),
    ):  # fmt: skip
        assert ask(compiled) == ask(loaded)
    if compiled.is_one_bundle:
        assert text(compiled) == text(loaded)
        assert compiled.plan() == loaded.plan()


def test_results_outputs_and_changes_in_place_are_those_of_the_model(
    cache_log: pytest.LogCaptureFixture,
) -> None:
    torch.manual_seed(1)
    model = Outputs()
    compiled = spyre_mlir.compile(model, {"x": X, "scale": 0.5})
    first = compiled(x=X, scale=0.5)
    assert model.count[0] == 1
    model.count.zero_()
    with served(cache_log):
        loaded = spyre_mlir.compile(model, {"x": X, "scale": 0.5})
    second = loaded(x=X, scale=0.5)
    assert model.count[0] == 1 and first.keys() == second.keys()
    for name, value in first.items():
        same = torch.equal(value, second[name]) if isinstance(value, torch.Tensor) else value == second[name]
        assert same, name
    assert second["view"].untyped_storage().data_ptr() == second["y"].untyped_storage().data_ptr()
    assert second["input"].untyped_storage().data_ptr() == X.untyped_storage().data_ptr()
    with pytest.raises(spyre_mlir.CompileError, match=r"compiled for 0\.5"):
        loaded(x=X, scale=0.25)


def test_weights_are_those_of_the_model_at_hand(cache_log: pytest.LogCaptureFixture) -> None:
    """Weights that the import does not read are bound, not stored: another checkpoint is served."""
    one, two = (nn.Linear(64, 64, bias=False).half() for _ in range(2))
    spyre_mlir.compile(one, (X,))
    with served(cache_log):
        program = spyre_mlir.compile(two, (X,))
    assert (program(X) - two(X)).abs().max() < 0.01
    with torch.no_grad():
        two.weight.mul_(2)
    assert (program(X) - two(X)).abs().max() < 0.01


def test_weights_that_are_folded_are_part_of_the_key(cache_log: pytest.LogCaptureFixture) -> None:
    model, x = convolution(), torch.randn(1, 4, 8, 8).half()
    spyre_mlir.compile(model, (x,))
    with served(cache_log):
        spyre_mlir.compile(model, (x,))
    for change in (model[0].weight, model[1].weight, model[1].running_var):
        with torch.no_grad():
            change.mul_(1.5)
        with served(cache_log, False):
            program = spyre_mlir.compile(model, (x,))
        assert (program(x) - model(x)).abs().max() < 0.02


FACTOR = 2.0


class Scaled(nn.Module):
    """A model that depends on an attribute, a global, a buffer and a closure."""

    def __init__(self, closure: float = 1.0) -> None:
        super().__init__()
        self.power = 2
        self.inverse = lambda y: y / closure
        self.register_buffer("offset", torch.linspace(0, 1, 64).half(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # The offset is folded with the positions.
        return self.inverse(x**self.power * FACTOR + (self.offset + torch.arange(64)))


def _attribute(model: Scaled, monkeypatch: pytest.MonkeyPatch) -> None:
    model.power = 3


def _global(model: Scaled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "FACTOR", 3.0)


def _buffer(model: Scaled, monkeypatch: pytest.MonkeyPatch) -> None:
    model.offset[5] += 1


def _closure(model: Scaled, monkeypatch: pytest.MonkeyPatch) -> None:
    model.inverse = Scaled(2.0).inverse


def _code(model: Scaled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scaled, "forward", lambda self, x: x - self.offset)


@pytest.mark.parametrize("change", [_attribute, _global, _buffer, _closure, _code])
def test_another_model_is_another_program(
    change: Callable, cache_log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Scaled().half()
    spyre_mlir.compile(model, (X,))
    with served(cache_log):
        spyre_mlir.compile(model, (X,))
    change(model, monkeypatch)
    with served(cache_log, False):
        program = spyre_mlir.compile(model, (X,))
    assert torch.allclose(program(X), model(X), rtol=0.01, atol=0.05)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SENCORES", "2"), ("LX_PLANNING", "0"), ("CO_OPTIMIZING_LX_PLANNING", "0"), ("LAYOUT_SOLVER", "greedy"),
        ("DXP_LX_FRAC_AVAIL", "0.5"), ("CO_OPTIMIZER", "strategy-b"),
    ],
)  # fmt: skip
def test_variables_of_the_environment_are_part_of_the_key(
    variable: str, value: str, cache_log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    spyre_mlir.compile(EXP)
    with served(cache_log):
        spyre_mlir.compile(EXP)
    monkeypatch.setenv(variable, value)
    with served(cache_log, False):
        spyre_mlir.compile(EXP)


@pytest.mark.parametrize(
    "options",
    [
        {"sencores": 2}, {"precision": "strict"}, {"verify_each": True}, {"bundle_operations": 1},
        {"layouts": {0: {"stick_dims": [0]}}}, {"layouts": {"result0": {"stick_dims": [0]}}}, {"fallback": False},
    ],
)  # fmt: skip
def test_options_are_part_of_the_key(options: dict[str, Any], cache_log: pytest.LogCaptureFixture) -> None:
    for model, inputs in ((EXP, ()), (torch.exp, (X,))):
        spyre_mlir.compile(model, inputs)
        with served(cache_log, False):
            spyre_mlir.compile(model, inputs, **options)
        with served(cache_log):
            spyre_mlir.compile(model, inputs, **options)


def test_example_inputs_and_their_layouts_are_part_of_the_key(cache_log: pytest.LogCaptureFixture) -> None:
    spyre_mlir.compile(torch.exp, (X,))
    inputs = (X[:32], X.float(), spyre_mlir.to_device(X, stick_dims=[0]), spyre_mlir.to_device(X))
    for x in inputs:
        with served(cache_log, False):
            spyre_mlir.compile(torch.exp, (x,))
    with served(cache_log):
        spyre_mlir.compile(torch.exp, (torch.randn(64, 64).half(),))


def test_hints_and_named_dims_are_part_of_the_key(cache_log: pytest.LogCaptureFixture) -> None:
    """Hints have other numbers in each capture of a process, and are the same hints."""
    tiles = {"M": 2}

    def hinted(x: torch.Tensor) -> torch.Tensor:
        with spyre_mlir.spyre_hint(tiles=tiles):
            return torch.exp(x) + 1

    spyre_mlir.declare_tensor_dim("M", 64)
    spyre_mlir.declare_tensor_dim("K", 64)
    for is_served, change in ((False, {}), (True, {}), (False, {"M": 4})):
        tiles |= change
        x = X.clone()
        spyre_mlir.name_tensor_dims(x, ["M", "K"])
        with served(cache_log, is_served):
            spyre_mlir.compile(hinted, (x,))
    spyre_mlir.name_tensor_dims(x, ["K", "M"])
    with served(cache_log, False):
        spyre_mlir.compile(hinted, (x,))


def test_contents_of_files_are_part_of_the_key(cache_log: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """Keys contain the contents of a program, a device file and a plan file, not their names."""
    source, device, plan = tmp_path / "exp.mlir", tmp_path / "device.toml", tmp_path / "plan.json"
    source.write_text(EXP)
    device.write_text(packaged_text())
    plan.write_text(json.dumps(spyre_mlir.compile(EXP, cache=False).plan()))
    edits = {
        source: EXP.replace("linalg.exp", "linalg.sqrt"),
        device: packaged_text().replace("access_ns = ", "access_ns = 1"),
        plan: plan.read_text().replace('{"lx": 0}', '"hbm"'),
    }
    for path, edited in edits.items():
        options = {"device": {"device": device}, "plan": {"plan": plan}}.get(path.stem, {})
        assert edited != path.read_text()
        for is_served in (False, True):
            with served(cache_log, is_served):
                spyre_mlir.compile(source if path is source else EXP, **options)
        path.write_text(edited)
        with served(cache_log, False):
            spyre_mlir.compile(source if path is source else EXP, **options)


def test_the_code_of_the_package_is_part_of_the_key(
    cache_log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An edit of a file is another key, of the same size too; a process from before it has no cache."""
    folder = tmp_path / "package"
    (folder / "passes").mkdir(parents=True)
    (folder / "passes" / "one.py").write_text("LIMIT = 1")
    monkeypatch.setattr(program_cache, "_PACKAGE", folder)
    before = program_cache.package_digest()
    assert before == program_cache.package_digest()
    (folder / "passes" / "one.py").write_text("LIMIT = 2")
    assert program_cache.package_digest() != before
    newest = (folder / "passes" / "one.py").stat().st_ctime_ns
    monkeypatch.setattr(program_cache, "LOADED_NS", newest)
    spyre_mlir.compile(EXP)
    assert "may be older than" in cache_log.text and not entries(tmp_path)


def test_a_pass_of_the_user_has_no_cache(
    cache_log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    methods = {"__module__": "user", "run": lambda self, module: None}
    pass_ = type("OfTheUser", (Pass,), methods)
    pass_.name = "of-the-user"
    monkeypatch.setitem(PASSES, "of-the-user", pass_)
    spyre_mlir.compile(EXP, insert=("of-the-user@cse",))
    assert "the user-defined pass 'of-the-user'" in cache_log.text and not entries(tmp_path)


def test_what_has_no_key_is_compiled_and_told(cache_log: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    def random(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(64)

    spyre_mlir.compile(random, (X.float(),))
    assert "draws random numbers" in cache_log.text and not entries(tmp_path)


def test_off_by_option_and_by_the_environment(
    cache_log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spyre_mlir.compile(EXP, cache=False)
    monkeypatch.setenv("SPYRE_CACHE", "0")
    spyre_mlir.compile(EXP)
    assert not (tmp_path / "cache").exists()
    spyre_mlir.compile(EXP, cache=True)
    assert len(entries(tmp_path)) == 1
    monkeypatch.setenv("SPYRE_CACHE", "off")
    with pytest.raises(spyre_mlir.CompileError, match="SPYRE_CACHE must be 0 or 1, not 'off'"):
        spyre_mlir.compile(EXP)


@pytest.mark.parametrize("damage", ["truncated", "json", "another", "number", "folder"])
def test_a_damaged_entry_is_compiled_again(
    damage: str, cache_log: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    spyre_mlir.compile(EXP)
    (path,) = entries(tmp_path)
    with np.load(path) as archive:
        arrays = dict(archive)
    described = json.loads(arrays["program"].tobytes())
    described |= {"another": {"key": "0" * 64}, "number": {"seconds": "many"}}.get(damage, {})
    edited = json.dumps(described).encode()[: -1 if damage == "json" else None]
    np.savez(path, **{**arrays, "program": np.frombuffer(edited, np.uint8)})
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-100])
    if damage == "folder":
        path.unlink()
        path.mkdir()
    with served(cache_log, False):
        program = spyre_mlir.compile(EXP)
    assert "of the cache is not used" in cache_log.text
    assert np.isfinite(program(np.ones((64, 128), np.float16))).all()
    if damage != "folder":
        with served(cache_log):
            spyre_mlir.compile(EXP)


def test_a_folder_that_cannot_be_written(
    cache_log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPYRE_CACHE_DIR", str(tmp_path / "file"))
    spyre_mlir.compile(EXP)
    assert "is not written to the cache" in cache_log.text


def test_the_ir_of_a_program_whose_files_have_changed(
    cache_log: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(spyre_mlir.compile(EXP, cache=False).plan()))
    spyre_mlir.compile(EXP, plan=plan)
    with served(cache_log):
        program = spyre_mlir.compile(EXP, plan=plan)
    plan.write_text(plan.read_text().replace('{"lx": 0}', '"hbm"'))
    with pytest.raises(spyre_mlir.CompileError, match="has changed since"):
        program.module  # noqa: B018 - the property compiles


def test_variables_that_the_package_reads_are_known() -> None:
    """A variable that changes programs is part of the key; other variables only set folders, use and logs."""
    without_effect = {
        "SPYRE_LOG", "SPYRE_TRACEBACK", "SPYRE_CACHE", "SPYRE_CACHE_DIR", "SPYRE_CACHE_SIZE", "XDG_CACHE_HOME",
        "SPYRE_REPORT_DIR", "SOURCE_DATE_EPOCH",
        "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS",  # set for workers, not read
    }  # fmt: skip
    read = set()
    for path in PACKAGE.rglob("*.py"):
        # Variables of torch-spyre become options, which are part of the key.
        if "torch_spyre" in path.parts:
            continue
        source = path.read_text(encoding="utf-8")
        if "environ" in source or "getenv" in source:
            names = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
            read |= {name for name in names if re.fullmatch(r"[A-Z]+(_[A-Z]+)*", str(name)) and len(name) > 7}
    assert read == {*program_cache.VARIABLES} | without_effect


def test_who_reads_the_numbers_of_the_model_notes_it() -> None:
    """The data of an argument is used where reads are noted, where numbers are always part of the key, or in calls."""
    known = {
        "folding.py", "complex_numbers.py",  # which note their reads, or cast parameters for calls
        "assertions.py", "exported.py", "importer.py",  # of buffers and constants alone
        "signature.py",
    }  # fmt: skip
    using = {
        path.name
        for path in (PACKAGE / "frontend").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("tensor", "state_dict")
        and isinstance(node.ctx, ast.Load) and "argument" in ast.unparse(node.value)
    }  # fmt: skip
    assert using <= known
