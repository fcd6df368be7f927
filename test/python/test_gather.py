# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lookups on the device: numbers, traffic, the form of an access in the SuperDSC schema, and refusals."""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import bundles
import numpy as np
import pytest
import torch
from bundle_edits import tensor
from cpu_reference import CpuReference
from torch import nn

import spyre_mlir
from spyre_mlir import CompileError, Program
from spyre_mlir.bundle.design_json import from_json, to_json
from spyre_mlir.bundle.model import KERNEL, KERNEL_IDX, OUTPUT
from spyre_mlir.bundle.validate import validate
from spyre_mlir.dialects import context
from spyre_mlir.frontend import import_torch
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline
from spyre_mlir.simulator import SimulationError, run
from spyre_mlir.target.target import default_target

STICK = 128


def select(dim: int) -> Callable[..., torch.Tensor]:
    return lambda x, index: x.index_select(dim, index)


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def positions(rows: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, rows, shape, generator=torch.Generator().manual_seed(rows))


def opcodes(program: Program) -> list[str]:
    return [design.opcode for design in program.bundle.designs.values()]


CASES: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "rows of odd size": (select(0), (numbers(50, 100).half(), positions(50, 5))),
    "rows of two dims": (select(0), (numbers(9, 5, 70).half(), positions(9, 11))),
    "a dim in the middle": (select(1), (numbers(3, 20, 70).half(), positions(20, 7))),
    "columns": (select(1), (numbers(7, 70).half(), positions(70, 9))),
    "elements of a vector": (select(0), (numbers(50).half(), positions(50, 5))),
    "one position": (select(0), (numbers(50, 64).half(), positions(50, 1))),
    "one row again and again": (select(0), (numbers(1, 65).half(), torch.zeros(6, dtype=torch.int64))),
    "more positions than rows": (select(0), (numbers(3, 65).half(), positions(3, 40))),
    "positions of two dims": (nn.Embedding(50, 65).half().requires_grad_(False), (positions(50, 3, 7),)),
    "32-bit positions": (nn.Embedding(50, 65).half().requires_grad_(False), (positions(50, 7).int(),)),
    "float32": (nn.Embedding(20, 33).requires_grad_(False), (positions(20, 7),)),
    "bfloat16": (select(0), (numbers(20, 33).bfloat16(), positions(20, 7))),
    "integers": (select(0), (positions(99, 20, 33).int(), positions(20, 7))),
    "a table that is computed": (
        lambda x, i: torch.neg(x)[:, :64].index_select(0, i), (numbers(9, 99).half(), positions(9, 5)),
    ),
    "positions that are computed": (
        lambda x, i: x.index_select(0, i + i), (numbers(9, 64).half(), positions(4, 5).int()),
    ),
    "positions from the end": (
        lambda x, i: x[i], (numbers(9, 65).half(), torch.tensor([[0, -1, 8], [-9, 3, -2]])),
    ),
    "rows that are used": (
        lambda x, i: torch.neg(torch.abs(x.index_select(0, i))), (numbers(9, 65).half(), positions(9, 5)),
    ),
}  # fmt: skip


@functools.cache
def compiled(name: str, sencores: int = 4) -> Program:
    model, inputs = CASES[name]
    return spyre_mlir.compile(model, inputs, sencores=sencores, fallback=False, verify_each=True)


@pytest.mark.parametrize("sencores", [1, 4, 32])
@pytest.mark.parametrize("name", CASES)
def test_numbers(name: str, sencores: int) -> None:
    """Rows are copied: the bits are PyTorch's, and nothing is left to the host."""
    model, inputs = CASES[name]
    program = compiled(name, sencores)
    assert torch.equal(program(*inputs), model(*inputs))
    assert "gather" in opcodes(program)
    assert validate(program.bundle) == []


def test_every_level_can_be_executed() -> None:
    """At each level before the bundle upstream's lowering of the IR gives the same rows."""
    model, inputs = CASES["rows of two dims"]
    imported = import_torch(model, inputs, context=context())
    stages = SpyrePipeline().stages()
    table, index = (each.numpy() for each in inputs)
    run_pipeline(imported.module, stages[0][1])
    (found,) = CpuReference(imported.module)(table, index.astype(np.int32))
    np.testing.assert_array_equal(found, table[index])


def test_a_known_position() -> None:
    """The same row for all positions is a slice, not a lookup: it is read once."""
    table, x = nn.Embedding(9, 65).half().requires_grad_(False), numbers(2, 5, 65).half()
    program = spyre_mlir.compile(lambda x: x - table(torch.full((2, 5), 3)), (x,), sencores=2, fallback=False)
    assert torch.equal(program(x), x - table.weight[3])
    assert opcodes(program) == ["sub"]


def test_positions_of_two_lookups() -> None:
    """Both lookups read positions from device memory, laid out by the host: integers are not restickified."""

    def model(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x[i] * 2, torch.neg(y[i])

    x, y = (numbers(11, 128, 2, 128).half() + number for number in range(2))
    index = torch.tensor([[1, 2, 3, -4, 5], [6, 7, 8, 9, 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = spyre_mlir.compile(model, (x, y, index), fallback=False, verify_each=True)
    for got, expected in zip(program(x, y, index), model(x, y, index), strict=True):
        assert torch.equal(got, expected)
    assert opcodes(program).count("gather") == 2 and "ReStickifyOpHBM" not in opcodes(program)
    assert not [remark for remark in program.remarks if "readers of one buffer" in str(remark)]


# -- traffic ------------------------------------------------------------------------------------------


def test_only_the_rows_that_are_read_move() -> None:
    """Two sticks for each of 5 rows, one for each position; 45 other rows of the table stay where they are."""
    program = compiled("rows of odd size")
    program(*CASES["rows of odd size"][1])
    assert program.traffic().read_bytes == 5 * 2 * STICK + 5 * STICK
    assert program.traffic().written_bytes == 5 * 2 * STICK
    assert "as planned" in program.summary()


def test_cores_share_what_they_read_alike() -> None:
    """Two cores on the columns of the same rows read each position once."""
    program = compiled("one position", 1)
    program(*CASES["one position"][1])
    assert program.traffic().read_bytes == 2 * STICK


def test_rows_are_contiguous() -> None:
    """The host lays a table out row by row, so that a row is one burst, and positions one to a stick."""
    index, table = (numbers(50, 256).half(), positions(50, 12))[::-1]
    embedding = nn.Embedding.from_pretrained(table)
    program = spyre_mlir.compile(embedding, (index,), sencores=4)
    sizes = {each.name: each.device_size for each in program.bundle.manifest.arguments}
    assert sizes["weight"] == (50, 4, 64)
    assert sizes["input"] == (12, 32)


def test_a_table_beyond_the_span_of_a_core() -> None:
    """Each row has a separate address, so a table may be larger than the span of a core."""
    rows = default_target().span_bytes // (1024 * 2) + 1000
    text = f"""#i = affine_map<(d0, d1) -> (d0)>
    #id = affine_map<(d0, d1) -> (d0, d1)>
    func.func @main(%t: tensor<{rows}x1024xf16> {{spyre.kind = "parameter", spyre.name = "t"}}, %i: tensor<8xi64>)
        -> tensor<8x1024xf16> {{
      %e = tensor.empty() : tensor<8x1024xf16>
      %y = linalg.generic {{indexing_maps = [#i, #id], iterator_types = ["parallel", "parallel"]}}
          ins(%i : tensor<8xi64>) outs(%e : tensor<8x1024xf16>) {{
      ^bb0(%in: i64, %o: f16):
        %a = arith.index_cast %in : i64 to index
        %b = linalg.index 1 : index
        %v = tensor.extract %t[%a, %b] : tensor<{rows}x1024xf16>
        linalg.yield %v : f16
      }} -> tensor<8x1024xf16>
      return %y : tensor<8x1024xf16>
    }}"""
    module = ir.Module.parse(text, context())
    run_pipeline(module, SpyrePipeline(sencores=4, verify_each=True).pipeline())


def test_tables_and_positions_stay_in_device_memory() -> None:
    """Tables and positions of lookups are not eligible for LX, and the reason is reported."""
    for name in ("a table that is computed", "positions that are computed"):
        program = compiled(name)
        reasons = [reason for each in program.bundle.manifest.buffers for reason in each.reasons]
        assert "indirect access: 'gather' reads it" in reasons
        for design in program.bundle.designs.values():
            if design.opcode == "gather":
                assert [operand.memory for operand in design.operands[:2]] == ["hbm", "hbm"]


# -- the form in a design -----------------------------------------------------------------------------


def test_the_form_of_an_indirect_access() -> None:
    """An identity whose table is read by pages of one row, through an index of 32-bit positions."""
    (design,) = compiled("rows of odd size").bundle.designs.values()
    value = to_json(design)
    assert list(value) == ["0_identity"]
    dsc = value["0_identity"]["dscs_"][0]["identity"]
    index, table, _ = dsc["scheduleTree_"]
    assert (index["indirectAllocType_"], index["indexTensorType_"]) == ("index_tensor", "index")
    assert index["relatedIndirectAccessAlloc_"] == table["name_"]
    assert table["indirectAllocType_"] == "value_tensor"
    assert table["relatedIndirectAccessAlloc_"] == index["name_"]
    assert dict(zip(table["layoutDimOrder_"], table["maxDimSizes_"], strict=True)) == {
        "out": 128,
        "x": 1,
        "mb": -1,
    }
    assert [each["dsType_"] for each in dsc["labeledDs_"]] == [KERNEL_IDX, KERNEL, OUTPUT]
    assert dsc["labeledDs_"][0]["wordLength"] == 4
    assert dsc["labeledDs_"][0]["memOrg_"] == {"hbm": {"isPresent": 1}}
    (compute,) = dsc["computeOp_"]
    assert compute["opFuncName"] == "identity"
    assert compute["inputLabeledDs"] == ["Tensor1-idx1"]
    assert compute["indirectAccessIndexLabeledDs"] == ["Tensor0-idx0"]
    assert from_json(json.loads(json.dumps(value)), "file", design.target) == bundles.in_file(design)


def test_the_folder_runs_by_itself(tmp_path: Path) -> None:
    """Saved, read back and run without the compiler."""
    name = "positions of two dims"
    compiled(name).save(tmp_path / "bundle")
    (index,) = CASES[name][1]
    found = Program.load(tmp_path / "bundle")(index.numpy())
    np.testing.assert_array_equal(found, compiled(name)(index).numpy())


# -- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [50, -1])
def test_a_position_of_no_row(wrong: int) -> None:
    """Too large or negative: where the host has no bounds, the error names the position and where it is."""
    table, index = CASES["rows of odd size"][1]
    index = index.clone()
    index[3] = wrong
    bundle = compiled("rows of odd size", 1).bundle
    arguments = tuple(replace(argument, index_bounds=None) for argument in bundle.manifest.arguments)
    unchecked = replace(bundle, manifest=replace(bundle.manifest, arguments=arguments))
    with pytest.raises(SimulationError, match=f"mb 3 is {wrong}, but the table has 50 rows.") as caught:
        run(unchecked, {"x": table.numpy(), "index": index.numpy()})
    assert caught.value.kind == "position"


def test_positions_of_another_format() -> None:
    """The simulator reads no positions that are floats."""
    program = compiled("rows of odd size")
    broken = tensor(program.bundle, 0, data_format="IEEE_FP32")
    with pytest.raises(SimulationError, match="the format IEEE_FP32; expected IEEE_INT32"):
        run(broken, {"x": numbers(50, 100).half().numpy(), "index": positions(50, 5).numpy()})


def test_other_lookups_are_the_hosts() -> None:
    """Elements by position, not rows, are looked up there, with PyTorch's numbers."""

    def model(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return torch.gather(x, 0, i[:, None].expand(5, 64))

    x, index = numbers(9, 64).half(), positions(9, 5)
    program = spyre_mlir.compile(lambda x, i: model(x, i) * 2, (x, index), sencores=2)
    assert [step.name for step in program.steps] == ["host_0", "device_0"]
    assert torch.equal(program(x, index), model(x, index) * 2)
    with pytest.raises(CompileError):
        spyre_mlir.compile(lambda x, i: model(x, i) * 2, (x, index), fallback=False)
