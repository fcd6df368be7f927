# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that a host function refuses, and errors of a run, which never end the process."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from host_functions import elementwise, evaluator

import spyre_mlir
from spyre_mlir.errors import CompileError
from spyre_mlir.tools.spyre_run import main as spyre_run
from spyre_mlir.tools.spyre_validate import main as spyre_validate

# -- refusals ----------------------------------------------------------------------------------------------

REFUSED = {
    "a call of LLVM": ("""llvm.func @system(!llvm.ptr) -> i32
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %p = llvm.mlir.zero : !llvm.ptr
  %r = llvm.call @system(%p) : (!llvm.ptr) -> i32
  return %x : tensor<2xf32>
}""", "'llvm.func' is not allowed in the module of a host function"),
    "LLVM inside": ("""func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %p = llvm.mlir.zero : !llvm.ptr
  return %x : tensor<2xf32>
}""", "A host function cannot run 'llvm.mlir.zero'"),
    "a second function": ("""func.func private @other()
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  func.call @other() : () -> ()
  return %x : tensor<2xf32>
}""", "The module of a host function is one function"),
    "a call of itself": ("""func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %y = func.call @main(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %y : tensor<2xf32>
}""", "A host function cannot run 'func.call'"),
    "memory": ("""func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %m = memref.alloc() : memref<2xf32>
  return %x : tensor<2xf32>
}""", "A host function cannot run 'memref.alloc'"),
    "LLVM in a body": (elementwise(["f32"], "f32", "%u = llvm.mlir.undef : f32\n%r = arith.addf %u, %a0 : f32", 2),
                       "A host function cannot run 'llvm.mlir.undef'"),
    "a tensor of 2^40 elements": ("""func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %m = tensor.empty() : tensor<1099511627776xf32>
  return %x : tensor<2xf32>
}""", "'tensor.empty' has a tensor of 4398046511104 bytes; the host's limit is"),
    "a dynamic shape": ("""func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %y = tensor.cast %x : tensor<2xf32> to tensor<?xf32>
  return %x : tensor<2xf32>
}""", r"tensors of static shape, not on tensor<\?xf32>"),
    "numbers that the host has not": (elementwise(["f32"], "f32", "%b = arith.truncf %a0 : f32 to f8E5M2\n"
                                                  "%r = arith.extf %b : f8E5M2 to f32", 2),
                                      "no numbers of the type f8E5M2"),
    "too much work": ("""func.func @main(%x: tensor<65536x16384xi8>) -> tensor<65536xi8> {
  %e = tensor.empty() : tensor<65536xi8>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>,
      affine_map<(i, j, k) -> (i)>], iterator_types = ["parallel", "reduction", "reduction"]}
      ins(%x, %x : tensor<65536x16384xi8>, tensor<65536x16384xi8>) outs(%e : tensor<65536xi8>) {
  ^bb0(%a: i8, %b: i8, %o: i8):
    %s = arith.maxsi %a, %b : i8
    %t = arith.maxsi %s, %o : i8
    linalg.yield %t : i8
  } -> tensor<65536xi8>
  return %r : tensor<65536xi8>
}""", "scalar operations; the host's limit for one op"),
    "an op of one bit that is divided": (
        elementwise(["i1", "i1"], "i1", "%r = arith.divui %a0, %a1 : i1", 2), "divides numbers of one bit"),
    "nothing": ("", "The module of a host function is one function with a body"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_rule_is_refused_before_it_runs(name: str) -> None:
    text, words = REFUSED[name]
    with pytest.raises(CompileError, match=words):
        evaluator(text)


def test_a_pad_without_its_operand_is_refused() -> None:
    """-2^63 represents an operand that is absent."""
    text = """func.func @main(%x: tensor<2xf32>) -> tensor<4xf32> {
  %z = arith.constant 0.0 : f32
  %y = tensor.pad %x low[-9223372036854775808] high[1] {
  ^bb0(%i: index):
    tensor.yield %z : f32
  } : tensor<2xf32> to tensor<4xf32>
  return %y : tensor<4xf32>
}"""
    with pytest.raises(CompileError, match="has 0 operands for the unknown numbers of static_low"):
        evaluator(text)(np.ones(2, np.float32))


def test_deep_nesting_is_refused() -> None:
    depth = 90
    begin, end = "scf.if %c {\n" * depth, "}\n" * depth
    with pytest.raises(CompileError, match="is nested deeper than 64 regions"):
        evaluator(f"""func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
  %c = arith.constant true
  {begin}{end}return %x : tensor<2xf32>
}}""")


# A part of the program runs on the host; test_host_work_warning.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
def test_a_folder_that_calls_the_system_is_neither_valid_nor_run(tmp_path: Path, capsys) -> None:
    """A folder is data: a host function with a shell command in it is one diagnostic of the tools."""
    x = torch.ones(3, 4).half()
    spyre_mlir.compile(lambda x: torch.sort(x * 2, 0)[0], (x,)).save(tmp_path / "p")
    path, proof = tmp_path / "p" / "host_0.mlir", tmp_path / "proof"
    lines = path.read_text().splitlines()
    first = next(k for k, line in enumerate(lines) if "func.func @main" in line)
    lines[first:first] = [
        f'llvm.mlir.global internal constant @command("touch {proof}\\00")',
        "llvm.func @system(!llvm.ptr) -> i32",
    ]
    lines[first + 3 : first + 3] = [
        "%p = llvm.mlir.addressof @command : !llvm.ptr", "%s = llvm.call @system(%p) : (!llvm.ptr) -> i32",
    ]  # fmt: skip
    path.write_text("\n".join(lines))
    np.savez(tmp_path / "in.npz", x.numpy())
    assert spyre_validate([str(tmp_path / "p")]) == 1
    assert spyre_run([str(tmp_path / "p"), "--inputs", str(tmp_path / "in.npz")]) == 1
    error = capsys.readouterr().err
    assert error.count("error:") == 2 and "'llvm." in error and not proof.exists()


# -- errors of a run ---------------------------------------------------------------------------------------


def rows(i: torch.Tensor) -> torch.Tensor:
    return i[:, None].expand(len(i), 2).contiguous()


INDEXED = {
    "aten.gather": lambda x, i: torch.gather(x, 0, rows(i)),
    "aten.index_select": lambda x, i: torch.index_select(torch.sort(x, 0)[0], 0, i),
    "aten.embedding": lambda x, i: F.embedding(i, torch.sort(x, 0)[0].float()),
    "aten.index_put": lambda x, i: x.clone().index_put_((i,), torch.ones(len(i), 2).half()),
    "aten.index_add": lambda x, i: x.index_add(0, i, torch.ones(len(i), 2).half()),
    "aten.scatter": lambda x, i: x.scatter(0, rows(i), torch.ones(len(i), 2).half()),
    "aten.scatter_add": lambda x, i: x.scatter_add(0, rows(i), torch.ones(len(i), 2).half()),
}


# A part of the program runs on the host; test_host_work_warning.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
@pytest.mark.parametrize("name", INDEXED)
def test_an_index_out_of_bounds_is_an_error_that_names_it(name: str) -> None:
    """The error names the index, as in PyTorch, for any index, and the program can run after it."""
    x, i = torch.arange(16.0).reshape(8, 2).half(), torch.tensor([0, 3, 2, 5, 1, 7])
    program = spyre_mlir.compile(INDEXED[name], (x, i))
    assert torch.equal(program(x, i).double(), INDEXED[name](x, i).double())
    for bad in (8, 9, 300_000_000, -9):
        outside = (
            f"index {bad} of dim 0, which has the indices 0 to 7|is {bad}, but the|{bad} is out of range"
        )
        with pytest.raises(CompileError, match=outside):
            program(x, torch.tensor([0, 3, bad, 5, 1, 7]))
    assert torch.equal(program(x, i).double(), INDEXED[name](x, i).double())


DIVIDED = {
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "fmod": torch.fmod,
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
}


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("name", DIVIDED)
def test_an_integer_division_by_zero_is_an_error(name: str, dtype: torch.dtype) -> None:
    a, b = torch.tensor([7, -7, 5, -5, 6], dtype=dtype), torch.tensor([2, 2, -2, -3, 3], dtype=dtype)
    program = spyre_mlir.compile(DIVIDED[name], (a, b))
    assert torch.equal(program(a, b), DIVIDED[name](a, b))
    with pytest.raises(CompileError, match=r"divides an integer by 0"):
        program(a, torch.tensor([2, 0, 2, 2, 2], dtype=dtype))


def test_large_integers_are_divided_exactly() -> None:
    a, b = torch.tensor([(1 << 62) + 1, -(1 << 62) - 1]), torch.tensor([3, 3])
    for model in (lambda a, b: a // b, lambda a, b: a // 5 + b):
        assert torch.equal(spyre_mlir.compile(model, (a, b))(a, b), model(a, b))


HOSTILE_CONSTANTS = {
    "a division by 0": (lambda x: x + torch.tensor([7, 5]) % torch.tensor([0, 2]), "divides an integer by 0"),
    "an index of 3e8": (
        lambda x: x + torch.gather(torch.arange(8), 0, torch.tensor([300_000_000, 1])), "holds 300000000, but",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_CONSTANTS)
def test_constants_that_cannot_be_folded_are_errors_of_the_run(name: str) -> None:
    model, words = HOSTILE_CONSTANTS[name]
    x = torch.tensor([1, 2])
    with pytest.raises(CompileError, match=words):
        spyre_mlir.compile(model, (x,))(x)


def test_constants_of_mlir_are_not_folded_where_they_would_be_errors() -> None:
    text = """
#id = affine_map<(d0) -> (d0)>
func.func @main(%x: tensor<2xi64>) -> tensor<2xi64> {
  %a = arith.constant dense<[7, 5]> : tensor<2xi64>
  %b = arith.constant dense<[0, 2]> : tensor<2xi64>
  %e = tensor.empty() : tensor<2xi64>
  %q = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%a, %b : tensor<2xi64>, tensor<2xi64>) outs(%e : tensor<2xi64>) {
  ^bb0(%p: i64, %d: i64, %o: i64):
    %r = arith.remsi %p, %d : i64
    linalg.yield %r : i64
  } -> tensor<2xi64>
  %s = linalg.add ins(%x, %q : tensor<2xi64>, tensor<2xi64>) outs(%e : tensor<2xi64>) -> tensor<2xi64>
  return %s : tensor<2xi64>
}"""
    with pytest.raises(CompileError, match=r"'arith.remsi' divides an integer by 0"):
        spyre_mlir.compile(text)(np.array([1, 2]))


# A part of the program runs on the host; test_host_work_warning.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
def test_a_folder_names_what_its_host_function_cannot_run(tmp_path: Path) -> None:
    x = torch.ones(3, 4).half()
    spyre_mlir.compile(lambda x: torch.sort(x * 2, 0)[0], (x,)).save(tmp_path / "p")
    steps = json.loads((tmp_path / "p" / "program.json").read_text())["steps"]
    (name,) = [step["name"] for step in steps if step["kind"] == "host"]
    path = tmp_path / "p" / f"{name}.mlir"
    path.write_text(path.read_text().replace("tm_tensor.sort", "tm_tensor.topk"))
    assert spyre_validate([str(tmp_path / "p")]) == 1
