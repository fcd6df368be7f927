# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bugs that were found once, each by the smallest program that shows it."""

from __future__ import annotations

import pytest
import torch

import spyre_mlir
from spyre_mlir.bundle.validate import validate


def tensor(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).half()


def check(model, *inputs: torch.Tensor, tolerance: float = 2e-3) -> None:
    result = spyre_mlir.compile(model, inputs, verify_each=True)(*inputs)
    expected = model(*inputs)
    assert result.shape == expected.shape and result.dtype == expected.dtype
    scale = expected.double().abs().max().item()
    assert (result.double() - expected.double()).abs().max().item() <= tolerance * scale


def test_a_transpose_inside_an_f32_island_is_kept() -> None:
    """A cast whose operand was transposed moved its data; folding the cast away lost the transpose."""
    check(lambda a: (a.t().float() * a.float()).half(), tensor(64, 64))


def test_an_outer_product_is_no_contraction() -> None:
    """A matmul over a dim of size 1 has no sum; its second operand is indexed (k, n)."""
    check(lambda a, b: a @ b, tensor(65, 1), tensor(1, 70, seed=1))


def test_the_fill_of_a_pad_comes_before_what_is_padded() -> None:
    """The copy of the operand was emitted first and the fill wrote over it."""
    check(lambda a: torch.nn.functional.pad(a, (1, 2, 0, 3), value=2.0), tensor(33, 65))


def test_a_slice_with_steps_gets_room_for_whole_steps() -> None:
    """33 rows by steps of 2 end in a half step: the strides of the outer dims were not multiples of the step."""
    check(lambda a: a[::2] * 2, tensor(33, 65))


def test_a_full_sum_rounds_once() -> None:
    """The row sums of a sum over all dims were rounded to fp16 before they were added."""
    x = tensor(64, 130)
    result = spyre_mlir.compile(lambda a: a.sum(), (x,))(x)
    assert abs(result.double() - x.double().sum()) <= 2e-3 * abs(x.double().sum())


def test_one_argument_returned_twice_is_two_results() -> None:
    """Clones were pure, so CSE made one buffer of two results."""
    x = tensor(65, 70)
    first, second = spyre_mlir.compile(lambda a: (a, a), (x,))(x)
    assert torch.equal(first, x) and torch.equal(second, x)


def test_rms_norm_takes_the_epsilon_of_float32() -> None:
    """PyTorch's default epsilon is the epsilon of the type in which it computes."""
    check(lambda a: torch.nn.functional.rms_norm(a, (70,)), tensor(65, 70) * 0.02)


def test_a_tensor_without_elements_is_refused() -> None:
    """In MLIR; of a model in PyTorch such a result is known when it is compiled."""
    text = """
    func.func @main(%x: tensor<0x5xf16>, %e: tensor<0x5xf16>) -> tensor<0x5xf16> {
      %y = linalg.exp ins(%x : tensor<0x5xf16>) outs(%e : tensor<0x5xf16>) -> tensor<0x5xf16>
      return %y : tensor<0x5xf16>
    }"""
    with pytest.raises(spyre_mlir.CompileError, match="no elements"):
        spyre_mlir.compile(text, fallback=False)
    assert spyre_mlir.compile(lambda a: a * 2, (tensor(0, 5),))(tensor(0, 5)).shape == (0, 5)


def test_a_design_names_the_source_line_and_the_aten_op() -> None:
    """The metadata of a location comes by its base class; the handle had no ATen op."""
    program = spyre_mlir.compile(lambda a: torch.tanh(a), (tensor(65, 70),))
    (design,) = program.bundle.designs.values()
    assert design.debug is not None and design.debug.aten_op == "aten.tanh.default"
    assert design.debug.file == __file__


def test_a_mask_computed_from_indices_is_folded_away() -> None:
    """The folded op was not erased, and was refused for its linalg.index."""
    text = """
    #m = affine_map<(a, b) -> (a, b)>
    func.func @main(%x: tensor<33x65xf16>) -> tensor<33x65xf16> {
      %e = tensor.empty() : tensor<33x65xi1>
      %mask = linalg.generic {indexing_maps = [#m], iterator_types = ["parallel", "parallel"]}
          outs(%e : tensor<33x65xi1>) {
      ^bb0(%o: i1):
        %i = linalg.index 0 : index
        %j = linalg.index 1 : index
        %c = arith.cmpi sge, %i, %j : index
        linalg.yield %c : i1
      } -> tensor<33x65xi1>
      %zero = arith.constant 0.0 : f16
      %e2 = tensor.empty() : tensor<33x65xf16>
      %y = linalg.generic {indexing_maps = [#m, #m, #m], iterator_types = ["parallel", "parallel"]}
          ins(%mask, %x : tensor<33x65xi1>, tensor<33x65xf16>) outs(%e2 : tensor<33x65xf16>) {
      ^bb0(%p: i1, %a: f16, %o: f16):
        %r = arith.select %p, %a, %zero : f16
        linalg.yield %r : f16
      } -> tensor<33x65xf16>
      return %y : tensor<33x65xf16>
    }
    """
    x = tensor(33, 65)
    result = spyre_mlir.compile(text)(x.numpy())
    assert torch.equal(torch.from_numpy(result), torch.tril(x))


def test_a_design_says_what_made_it() -> None:
    """The transform history of the debug handle was always empty."""
    program = spyre_mlir.compile(
        lambda a, b: torch.nn.functional.silu(a) @ b.t(), (tensor(65, 70), tensor(33, 70))
    )
    history = {
        design.opcode: design.debug.transforms for design in program.bundle.designs.values() if design.debug
    }
    assert [step[:2] for step in history["silu"]] == [("fusion", "fuse-device-ops")]
    assert [step[:2] for step in history["ReStickifyOpHBM"]] == [("remap", "choose-layouts")]
    assert history["batchmatmul"] == ()


def test_a_span_beyond_the_limit_is_an_error_unless_tiles_bring_it_into_reach() -> None:
    """A core would address 512 MiB of one tensor; only verify_each saw it."""
    text = """
    #m = affine_map<(a, b) -> (a, b)>
    func.func @main(%x: tensor<4194304x64xf16>) -> tensor<4194304x64xf16> {
      %e = tensor.empty() : tensor<4194304x64xf16>
      %y = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]}
          ins(%x : tensor<4194304x64xf16>) outs(%e : tensor<4194304x64xf16>) {
      ^bb0(%a: f16, %o: f16):
        %r = arith.negf %a : f16
        linalg.yield %r : f16
      } -> tensor<4194304x64xf16>
      return %y : tensor<4194304x64xf16>
    }
    """
    with pytest.raises(spyre_mlir.CompileError, match=r"cannot be split legally.*the limit is 268431360"):
        spyre_mlir.compile(text, sencores=1, tile_for_span=False)
    assert spyre_mlir.compile(text, sencores=1).bundle.designs
    assert spyre_mlir.compile(text, sencores=4).bundle.designs


def test_an_island_with_a_constant_beyond_fp16_stays_f32() -> None:
    """The constant was cut to 65504, so the result was wrong by a factor of 15."""
    check(lambda a: ((a.float() * 1000) * 1000 / 1e6).half(), tensor(65, 70))


@pytest.mark.parametrize("lx_planning", (True, False))
def test_integers_can_be_copied(lx_planning: bool) -> None:
    """The validator refused copies of integers as an unsupported operation; two other checks accepted them."""
    x = torch.arange(4 * 65, dtype=torch.int32).reshape(4, 65)
    program = spyre_mlir.compile(lambda a: (a, a + a, a * a), (x,), lx_planning=lx_planning)
    assert not validate(program.bundle)
    for result, expected in zip(program(x), (x, x + x, x * x), strict=True):
        assert torch.equal(result, expected)
