# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Device files, the target that modules and bundles carry, and programs for other devices."""

from __future__ import annotations

import ast
import operator
from pathlib import Path
from typing import Any

import pytest
import torch
from targets import device_file
from test_quantized import Dequantised

import spyre_mlir
from spyre_mlir.bundle import read_bundle, write_bundle
from spyre_mlir.bundle.validate import validate
from spyre_mlir.dialects import context
from spyre_mlir.dialects.targets import TARGET, target_of
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import run_pipeline
from spyre_mlir.target.target import Target, compiling_for, default_target, packaged_target

#: Other devices, as changes of the packaged file.
DEVICES: dict[str, dict[str, Any]] = {
    "64 cores": {"cores": {"count": 64, "usable": 64}},
    "16 cores": {"cores": {"count": 16, "usable": 16}},
    "1 MiB of LX": {"lx": {"bytes": 1 << 20}},
    "sticks of 64": {"stick": {"bytes": 64}, "lx": {"alignment_bytes": 64}, "hbm": {"alignment_bytes": 64}},
    "sticks of 256": {
        "stick": {"bytes": 256},
        "lx": {"alignment_bytes": 256},
        "hbm": {"alignment_bytes": 256},
    },
}


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = torch.nn.Linear(200, 384), torch.nn.GELU(), torch.nn.Linear(384, 136), torch.nn.Softmax(-1)
    return torch.nn.Sequential(*layers).half()


@pytest.mark.parametrize("name", DEVICES)
def test_a_program_for_another_device_is_right(name: str, tmp_path: Path) -> None:
    x, layers = torch.randn(96, 200).half(), model()
    program = spyre_mlir.compile(layers, (x,), device=device_file(tmp_path, **DEVICES[name]))
    assert program.bundle.target.differences() == DEVICES[name]
    assert validate(program.bundle) == []
    assert max(design.cores for design in program.bundle.designs.values()) <= program.bundle.target.cores
    torch.testing.assert_close(program(x).float(), layers.float()(x.float()), atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("name", DEVICES)
def test_an_int8_layer_for_another_device_is_right(name: str, tmp_path: Path) -> None:
    layer = Dequantised()
    x = torch.randint(-5, 6, (2, 17, 200), generator=torch.Generator().manual_seed(1)).to(torch.int8)
    program = spyre_mlir.compile(layer, (x,), device=device_file(tmp_path, **DEVICES[name]), fallback=False)
    assert "batchmatmulint8" in {design.opcode for design in program.bundle.designs.values()}
    assert validate(program.bundle) == []
    assert torch.equal(program(x), layer(x))


@pytest.mark.parametrize("name", DEVICES)
def test_the_device_of_the_environment_decides_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program for a device does not change if SPYRE_DEVICE names a very different device."""
    (tmp_path / "other").mkdir()
    path = device_file(tmp_path, **DEVICES[name])
    small = device_file(
        tmp_path / "other",
        cores={"count": 3, "usable": 3},
        lx={"bytes": 1 << 18, "alignment_bytes": 32},
        stick={"bytes": 32},
        hbm={"alignment_bytes": 32, "span_bytes": 1 << 20},
    )
    inputs = (torch.randn(96, 200, generator=torch.Generator().manual_seed(5)).half(),)
    expected = spyre_mlir.compile(model(), inputs, device=path).bundle
    monkeypatch.setenv("SPYRE_DEVICE", small)
    assert spyre_mlir.compile(model(), inputs, device=path).bundle == expected


def test_more_cores_are_used(tmp_path: Path) -> None:
    x = torch.randn(4096, 512).half()
    program = spyre_mlir.compile(torch.exp, (x,), device=device_file(tmp_path, **DEVICES["64 cores"]))
    assert {design.cores for design in program.bundle.designs.values()} == {64}


# -- a bundle keeps its target ------------------------------------------------------------------------------


def test_a_bundle_on_disk_has_its_target(tmp_path: Path) -> None:
    x = torch.randn(64, 64).half()
    program = spyre_mlir.compile(torch.exp, (x,), sencores=4)
    write_bundle(program.bundle, tmp_path / "bundle")
    assert '"usable": 4' in (tmp_path / "bundle" / "manifest.json").read_text()
    assert read_bundle(tmp_path / "bundle") == program.bundle


def test_a_bundle_for_the_packaged_device_does_not_name_it(tmp_path: Path) -> None:
    program = spyre_mlir.compile(torch.exp, (torch.randn(64, 64).half(),))
    write_bundle(program.bundle, tmp_path / "bundle")
    assert "target" not in (tmp_path / "bundle" / "manifest.json").read_text()


# -- a module carries its target ------------------------------------------------------------------------------


def test_attach_target() -> None:
    with context(), ir.Location.unknown():
        module = ir.Module.parse("module {}")
        run_pipeline(module, "attach-target{sencores=2 lx-frac-avail=0.5},canonicalize")
        text = "{cores = {usable = 2 : i64}, lx = {backend_fraction = 5.000000e-01 : f64}}"
        assert str(module.operation.attributes[TARGET]) == text
        assert target_of(module) == packaged_target().with_cores(2).with_backend_fraction(0.5)


def test_a_module_keeps_the_default_target_that_passes_ran_for() -> None:
    """The output of spyre-opt --device is for that device in the next run, too."""
    module = ir.Module.parse("module {}", context())
    run_pipeline(module, "canonicalize")
    assert TARGET not in module.operation.attributes
    with compiling_for(packaged_target().with_cores(4)):
        run_pipeline(module, "canonicalize")
    assert target_of(module).cores == 4


def test_a_malformed_target_of_a_module() -> None:
    with context(), ir.Location.unknown():
        module = ir.Module.parse("module attributes {sdsc.target = {cores = {number = 2 : i64}}} {}")
        with pytest.raises(CompileError, match=r"unknown field cores\.number"):
            target_of(module)


# -- device files -------------------------------------------------------------------------------------------

FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "no number": ({"stick": {"bytes": "128"}}, "field stick.bytes of the device must be an integer"),
    "a truth value": ({"cores": {"count": True}}, "field cores.count of the device must be an integer"),
    "not finite": (
        {"hbm": {"access_ns": float("inf")}},
        "field hbm.access_ns of the device must be a number",
    ),
    "no number at all": (
        {"hbm": {"access_ns": float("nan")}},
        "access_ns of the device must be a number, 0 or",
    ),
    "too small": ({"hbm": {"one_way_bytes_per_ns": 5e-324}}, "must be a number, 0 or of 1e-09 to 2.81e"),
    "too large for a float": (
        {"array": {"stream_exponent": 10**400}},
        "stream_exponent of the device must be",
    ),
    "a steep power": (
        {"sharing": {"contention_exponent": 1000}},
        "contention_exponent; it must be in -8 to 8",
    ),
    "unknown": ({"lx": {"size": 1}}, "unknown field lx.size; known are bytes"),
    "no multiple": (
        {"lx": {"bytes": 1000}},
        "1000 for lx.bytes; it must be a multiple of lx.alignment_bytes, 128",
    ),
    "other alignment": ({"stick": {"bytes": 64}}, "lx.alignment_bytes; it must be stick.bytes, 64"),
    "sticks": ({"stick": {"bytes": 96}}, "96 for stick.bytes; it must be a power of two"),
    "no cores": ({"cores": {"count": 0}}, "0 for cores.count; it must be above 0"),
    "too many cores": ({"cores": {"usable": 33}}, "33 for cores.usable; at most 32 are possible"),
    "all of LX": ({"lx": {"reserved_bytes": 2097152}}, "lx.reserved_bytes must be less than lx.bytes"),
    "a part": ({"lx": {"backend_fraction": 1.5}}, "1.5 for lx.backend_fraction; it must be in 0 to 1"),
    "saturation": (
        {"hbm": {"saturation": [0.5]}},
        "it must have a part, above 0 to 1, for each number of cores",
    ),
    "speedup": (
        {"array": {"speedup": {"SENINT8": "4"}}},
        "array.speedup of the device must be a table of numbers",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_device_file_with_a_fault(name: str, tmp_path: Path) -> None:
    """The error is one sentence with file and field, for any file."""
    sections, message = FAULTS[name]
    path = device_file(tmp_path, **sections).replace("Infinity", "inf")
    text = Path(path).read_text().replace("Infinity", "inf").replace("NaN", "nan")
    Path(path).write_text(text)
    with pytest.raises(CompileError, match=message) as raised:
        Target.read(path)
    assert raised.value.location == path


def test_a_device_file_of_some_fields(tmp_path: Path) -> None:
    """Other fields are those of the packaged file; as many cores are usable as there are."""
    (tmp_path / "device.toml").write_text("[cores]\ncount = 16\n[host]\ncall_ns = [1, 2]\n")
    target = Target.read(str(tmp_path / "device.toml"))
    assert (target.cores, target.device_cores, target.host.call_ns) == (16, 16, (1, 2))
    assert target.hbm_bytes == packaged_target().hbm_bytes
    (tmp_path / "device.toml").write_text("cores = 16")
    with pytest.raises(CompileError, match="'cores' must be a table"):
        Target.read(str(tmp_path / "device.toml"))
    (tmp_path / "device.toml").write_text("[host]\ncall_ns = [2, 1]\n")
    with pytest.raises(CompileError, match=r"for host\.call_ns; it must be a least above 0 and a most"):
        Target.read(str(tmp_path / "device.toml"))


def test_a_file_that_is_no_toml(tmp_path: Path) -> None:
    (tmp_path / "device.toml").write_text("cores = ")
    with pytest.raises(CompileError, match="The device file is not TOML"):
        Target.read(str(tmp_path / "device.toml"))


def test_an_empty_variable_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPYRE_DEVICE", "SENCORES", "DXP_LX_FRAC_AVAIL"):
        monkeypatch.setenv(name, "")
    assert default_target() == packaged_target()


def test_the_file_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPYRE_DEVICE", device_file(tmp_path, **DEVICES["64 cores"]))
    monkeypatch.setenv("SENCORES", "40")
    assert (default_target().device_cores, default_target().cores) == (64, 40)
    with compiling_for(packaged_target()):
        assert default_target() is packaged_target()


def test_tables_of_a_target_give_it_back() -> None:
    target = packaged_target().with_cores(3).with_backend_fraction(0.25)
    assert Target.of_sections(target.sections(), "here") == target
    assert packaged_target().overlaid(target.differences(), "here") == target


#: Numbers of the packaged device that occur elsewhere, by file: the count, and their meaning.
OTHER_MEANINGS = {
    "bundle/replacing.py": (1, "the status of a process that a signal ended"),
    "driver/checking.py": (1, "the bits of 1/8 in float8"),
    "dialects/parser_limits.py": (1, "characters of ASCII"),
    "frontend/piecewise.py": (1, "programs before a warning"),
    "torch_spyre/public/_inductor/config.py": (1, "the default of max_buckets in torch-spyre"),
    "experiments/tuning.py": (2, "digits of a digest; the first integer that is no seed"),
    "frontend/decompositions.py": (1, "the exponent of the largest DL16"),
    "frontend/selection.py": (1, "the exponent of the largest DL16"),
    "host/scalar_ops.py": (1, "halvings of an exponent"),
    "host/number_types.py": (1, "the sign bit of 8"),
    "ktir/memory_tiles.py": (1, "elements between two memories"),
    "layout_search/minimum_cost.py": (1, "entries of a table"),
    "report/layout_picture.py": (2, "pixels"),
    "report/html.py": (1, "pixels"),
    "simulator/compiled.py": (1, "elements of a short row"),
    "simulator/ranges.py": (1, "the end of the numbers of 8 bits"),
    "target/element_types.py": (2, "bits of f32 and of i32"),
    "target/formats.py": (4, "numbers of formats"),
}


def _whole(node: ast.AST) -> int | None:
    """The value of an expression of whole numbers; None for any other."""
    try:
        if isinstance(node, ast.Constant | ast.BinOp) and not isinstance(value := _evaluated(node), bool):
            return value
    except (TypeError, ValueError, ArithmeticError):
        return None
    return None


def _evaluated(node: ast.AST) -> int | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int) else None
    operators = {
        ast.Mult: operator.mul,
        ast.LShift: operator.lshift,
        ast.Add: operator.add,
        ast.Sub: operator.sub,
    }
    if not isinstance(node, ast.BinOp) or type(node.op) not in operators:
        return None
    left, right = _evaluated(node.left), _evaluated(node.right)
    if left is None or right is None or (isinstance(node.op, ast.LShift) and right > 64):
        return None
    return operators[type(node.op)](left, right)


def test_cores_sticks_and_bytes_of_lx_stand_in_the_device_file_alone() -> None:
    """No file of the compiler writes 32, 128 or 2 MiB, but for numbers that mean something else.

    The zoo has programs, whose sizes are their own.
    """
    device = packaged_target()
    numbers = {device.device_cores, device.stick_bytes, device.lx_bytes}
    package = Path(spyre_mlir.__file__).parent
    counts = {}
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).parts[0] == "zoo":
            continue
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if count := sum(_whole(node) in numbers for node in nodes):
            counts[path.relative_to(package).as_posix()] = count
    assert counts == {name: count for name, (count, _) in OTHER_MEANINGS.items()}
