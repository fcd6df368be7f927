# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs in KTIR on ktir-cpu, if it can be imported: their numbers, and the results of a wrong plan."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from programs import PROGRAMS, Apply, check_close
from targets import device_file

import spyre_mlir
from spyre_mlir.bundle.model import Bundle
from spyre_mlir.dialects import context
from spyre_mlir.driver.ktir_program import KtirProgram, read_ktir, run_interpreter
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend import import_torch
from spyre_mlir.ktir import function_lowering
from spyre_mlir.ktir.ktir_text import parse_ktir, to_text

needs_interpreter = pytest.mark.skipif(
    importlib.util.find_spec("ktir_cpu") is None, reason="ktir-cpu is not on PYTHONPATH"
)

#: One program for each form, with the number of cores.
FORMS = (
    ("exp", 4), ("add_column", 7), ("cast_float_sum", 4), ("softmax_dim_last_63x65", 7), ("sum_0_2_of_3", 32),
    ("matmul_4d", 7), ("matmul_1x4096x11", 32), ("transpose_3", 4), ("sdpa", 4), ("embedding", 4), ("index_select", 4),
    ("layernorm_odd", 4), ("llama_block_small", 4), ("cat_columns", 7), ("std_dim_0", 32), ("where_gt", 1),
)  # fmt: skip


def _compiled(name: str, cores: int, **options) -> tuple[KtirProgram, dict[str, np.ndarray]]:
    """A program of the linalg in KTIR, and the arrays of a call."""
    model, inputs = PROGRAMS[name]()
    imported = import_torch(model, inputs, context=context())
    program = spyre_mlir.compile(imported.module, target="ktir", sencores=cores, **options)
    assert isinstance(program, KtirProgram)
    operands = zip(imported.arguments, imported.operands(*inputs), strict=True)
    return program, {**program.arrays, **{argument.name: array for argument, array in operands}}


def _check(name: str, cores: int, **options) -> None:
    model, inputs = PROGRAMS[name]()
    program, arrays = _compiled(name, cores, **options)
    finish = import_torch(model, inputs, context=context()).bind(*inputs).finish
    check_close(name, finish(program.run(arrays)), model, inputs)


@needs_interpreter
@pytest.mark.parametrize(("name", "cores"), FORMS)
def test_numbers_are_those_of_pytorch(name: str, cores: int) -> None:
    _check(name, cores)


@needs_interpreter
@pytest.mark.parametrize(("name", "cores"), FORMS[::3])
def test_numbers_at_the_addresses_of_the_plan(name: str, cores: int) -> None:
    _check(name, cores, ktir_addresses=True)


def _overlapping(bundle: Bundle) -> Bundle:
    """A plan whose buffers in LX all begin at the first address."""
    moved = {buffer.name: buffer.offset for buffer in bundle.manifest.buffers if buffer.base == "lx"}
    assert len(set(moved.values())) > 1
    least = min(moved.values())
    buffers = tuple(
        replace(buffer, offset=least) if buffer.name in moved else buffer
        for buffer in bundle.manifest.buffers
    )
    designs = {
        name: replace(
            design,
            operands=tuple(
                replace(operand, start=(least,) * len(operand.start)) if operand.memory == "lx" else operand
                for operand in design.operands
            ),
        )
        for name, design in bundle.designs.items()
    }
    return replace(bundle, designs=designs, manifest=replace(bundle.manifest, buffers=buffers))


@needs_interpreter
@pytest.mark.filterwarnings("ignore:The interpreter counts more bytes:RuntimeWarning")
@pytest.mark.parametrize("addresses", [False, True])
def test_loops_carry_their_values(addresses: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention in tiles of keys, whose running sums are iter_args, or memory of LX."""
    monkeypatch.setattr(function_lowering, "_SHARED_BYTES", 1 << 30)
    torch.manual_seed(0)
    inputs = tuple(torch.randn(1, 2, 1024, 64).half() for _ in range(3))
    model = Apply(lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
    program = spyre_mlir.compile(model, inputs, target="ktir", sencores=4, ktir_addresses=addresses)
    assert isinstance(program, KtirProgram)
    assert ("iter_args" in program.ktir[0]) != addresses and "scf.for" in program.ktir[0]
    check_close("attention in tiles", program(*inputs), model, inputs)


@needs_interpreter
def test_buffers_that_overlap_are_wrong_numbers() -> None:
    program, arrays = _compiled("softmax_dim_last_63x65", 4, ktir_addresses=True)
    right = program.run(arrays)
    program.steps[0].bundle = _overlapping(program.bundle)
    del program.__dict__["ktir"]
    assert not np.allclose(program.run(arrays)[0], right[0], equal_nan=False)


@needs_interpreter
def test_a_folder_runs_as_the_program(tmp_path: Path) -> None:
    program, arrays = _compiled("rmsnorm", 4)
    expected = program.run(arrays)
    program.save(tmp_path / "rmsnorm")
    text, manifest = read_ktir(tmp_path / "rmsnorm")
    result = run_interpreter(text, manifest, arrays, latency=True)
    assert np.array_equal(result.outputs["result0"], expected[0])
    assert result.latency is not None and manifest.predicted_us > 0


def test_the_text_is_the_same_every_time() -> None:
    assert _compiled("sdpa", 4)[0].ktir == _compiled("sdpa", 4)[0].ktir


def test_the_text_is_read_back() -> None:
    text, _ = _compiled("sdpa", 7)[0].ktir
    assert to_text(parse_ktir(text, context())) == text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%t = ktdp.lod %x", "5:10: error: 'ktdp.lod' is not an operation of KTIR"),
        ("%t = ktdp.load %x -> tensor<4xf16>", "5:23: error: ':' is expected here"),
        (
            "%v = ktdp.construct_memory_view %a, sizes: [4, strides: [1]",
            "5:48: error: this '[' is never closed",
        ),
        ("%c = arith.addi %a, %b : index", "5:25: error: use of undeclared SSA value name"),
    ],
)
def test_what_is_no_ktir_is_one_error(line: str, message: str) -> None:
    lines = (
        "// A kernel.",
        "module {",
        "  func.func @f(%a: index) {",
        "    // Of one op.",
        f"    {line}",
        "    return",
    )
    text = "\n".join((*lines, "  }", "}"))
    with pytest.raises(CompileError) as error:
        parse_ktir(text, context(), "kernel.mlir")
    assert str(error.value).startswith(f"kernel.mlir:{message}")


# A part of the program runs on the host; test_host_work_warning.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
def test_work_for_the_host_is_refused() -> None:
    function = torch.nn.Module()
    function.forward = lambda x: torch.linalg.qr(x.float())[0].half() + 1
    with pytest.raises(CompileError, match="a part of this one runs on the host"):
        spyre_mlir.compile(function, (torch.ones(4, 4).half(),), target="ktir")


def test_bfloat16_is_refused() -> None:
    """The range of bfloat16 differs from f16: the numbers would be wrong without an error."""
    with pytest.raises(CompileError, match="bfloat16 numbers"):
        spyre_mlir.compile(Apply(lambda x: x + 1), (torch.ones(4, 64).bfloat16(),), target="ktir")


def test_a_relayout_is_read_from_the_scratchpads_of_all() -> None:
    text, _ = _compiled("sdpa", 4)[0].ktir
    assert "ktdp.construct_distributed_memory_view" in text and "<ct_local, ct_id = 3>" in text
    assert text.count("ktdp.inter_tile_reduce") == text.count("ktdp.construct_distributed_memory_view")


def test_a_missing_array_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything runs, so this needs no interpreter."""
    program, arrays = _compiled("exp", 1)
    monkeypatch.setitem(__import__("sys").modules, "ktir_cpu", ModuleType("ktir_cpu"))
    (name,) = arrays
    with pytest.raises(CompileError, match=f"needs the array '{name}'"):
        program.run({})


def test_without_the_interpreter_the_error_says_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    program, arrays = _compiled("exp", 1)
    monkeypatch.setitem(__import__("sys").modules, "ktir_cpu", None)
    with pytest.raises(CompileError, match="torch-spyre/ktir-cpu on PYTHONPATH"):
        program.run(arrays)


class _RowWritten(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(128, 64).half())

    def forward(self, row: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.keys.index_copy_(0, position, row)
        return self.keys * 2


@needs_interpreter
@pytest.mark.parametrize("addresses", [False, True])
def test_positions_of_a_call_are_arguments(addresses: bool, tmp_path: Path) -> None:
    """Each call writes its own row; one that is not there is an error."""
    example = (torch.ones(1, 64).half(), torch.tensor([5]))
    options: dict[str, Any] = {"sencores": 4, "target": "ktir", "ktir_addresses": addresses}
    program, model = spyre_mlir.compile(_RowWritten(), example, **options), _RowWritten()
    for position in (5, 127, 0):
        row = torch.full((1, 64), position + 1.0).half()
        assert torch.equal(program(row, torch.tensor([position])), model(row, torch.tensor([position])))
    with pytest.raises(CompileError, match="out of range"):
        program(example[0], torch.tensor([128]))
    assert isinstance(program, KtirProgram)
    program.save(tmp_path / "rows")
    assert read_ktir(tmp_path / "rows")[1].indices == program.ktir[1].indices != ()


def test_a_larger_scratchpad_than_its_place_is_refused(tmp_path: Path) -> None:
    """The addresses of LX would overlap the addresses of another memory."""
    device = device_file(tmp_path, lx={"bytes": 8388608})
    model, inputs = PROGRAMS["exp"]()
    with pytest.raises(CompileError, match="for an LX of 8388608 bytes; in KTIR it may have 4194304"):
        spyre_mlir.compile(model, inputs, device=device, target="ktir")
