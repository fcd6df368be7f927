# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Infinities and numbers outside the range of the 16-bit format: right results, or a warning."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

import spyre_mlir
from spyre_mlir import CompileError, RangeWarning
from spyre_mlir.errors import HostWorkWarning
from spyre_mlir.simulator import run

HALF, BFLOAT = torch.float16, torch.bfloat16
INF = math.inf


def ran(model, *inputs: torch.Tensor, **options) -> torch.Tensor:
    """Return the result of the program of a function; any warning is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RangeWarning)
        return spyre_mlir.compile(model, inputs, sencores=2, **options)(*inputs)


def normal(*shape: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def full(value: float, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.full((4, 64), value, dtype=dtype)


CAUSAL = torch.full((64, 64), -INF, dtype=HALF).triu(1)


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (lambda x: torch.softmax(x, 0), normal(1, 16)),
        (lambda x: torch.softmax(x + CAUSAL, -1), normal(64, 64)),
        (lambda x: torch.logsumexp(x, 0), normal(1, 64)),
        (lambda x: x.amax(0), normal(1, 64)),
        (lambda x: x.amin(0), normal(1, 64)),
        (lambda x: x.clamp(min=-INF, max=0.5), normal(4, 64)),
        (lambda x: torch.where(x > 0, x, -INF).amax(-1), normal(4, 64)),
        (lambda x: x.masked_fill(x > 0, -INF), normal(4, 64)),
        (lambda x: x + x, full(-INF)),
        (lambda x: x.amax(-1), full(-INF)),
    ],
    ids="softmax causal logsumexp max min clamp where masked sum lowest".split(),
)
def test_infinities_in_dl16_give_what_pytorch_gives(model, x):
    torch.testing.assert_close(ran(model, x, numerics="dl16"), model(x), rtol=1e-2, atol=1e-2)


def test_an_infinity_that_dl16_computes_with_otherwise_is_said():
    x = full(-INF)
    program = spyre_mlir.compile(lambda x: torch.softmax(x, -1), (x,), sencores=2, numerics="dl16")
    with pytest.warns(RangeWarning, match=r"sub.*nan"):
        program(x)


def test_an_infinity_that_dl16_hands_over_in_float32_is_said():
    x = full(-INF)
    program = spyre_mlir.compile(lambda x: x.float(), (x,), sencores=2, numerics="dl16")
    with pytest.warns(RangeWarning, match=r"'result0': 8573157376 in the place of inf"):
        program(x)


def test_an_infinity_that_is_multiplied_in_float32_is_said():
    """The matmul of one column is a product and a sum in float32, where DL16's largest number is an ordinary number."""
    x = torch.tensor([[0.5], [float("inf")]], dtype=torch.bfloat16)
    y = torch.tensor([[0.25, -0.5]], dtype=torch.bfloat16)
    program = spyre_mlir.compile(lambda x, y: x @ y, (x, y))
    with pytest.warns(spyre_mlir.RangeWarning, match="in the place of inf"):
        program(x, y)


def test_an_overflow_of_fp16_is_one_warning_that_says_where():
    x = full(400)
    program = spyre_mlir.compile(lambda x: (x * x) * 2, (x,), sencores=2)
    with pytest.warns(RangeWarning) as caught:
        assert program(x).isinf().all()
    (warning,) = caught
    assert "Numbers that left the range of IEEE fp16: 256," in str(warning.message)
    assert "(mul" in str(warning.message) and "160000 became inf" in str(warning.message)
    assert "test_range.py:" in str(warning.message)


def test_dl16_has_room_where_fp16_overflows():
    x = full(400)
    assert ran(lambda x: (x * x) / 400, x, numerics="dl16")[0, 0] == pytest.approx(400, rel=1e-2)


def test_what_the_program_has_in_float32_may_not_overflow_in_fp16():
    x = full(400)
    step = spyre_mlir.compile(lambda x: x * x, (x,), sencores=2).bundles[0]
    executes = tuple(range(len(step.bundle.manifest.uses)))
    bundle = replace(step.bundle, manifest=replace(step.bundle.manifest, demoted=executes))
    with pytest.raises(CompileError, match=r"160000 is outside the range of IEEE fp16.*strict"):
        run(bundle, {step.inputs[0]: x.numpy()})


def test_masks_at_the_end_of_fp16_are_no_overflow():
    x, mask = full(-20), full(torch.finfo(HALF).min)
    assert ran(lambda x, mask: torch.exp(x + mask), x, mask).eq(0).all()


def test_small_weights_of_a_softmax_are_no_loss():
    x = torch.linspace(-30, 0, 256).reshape(4, 64).to(HALF)
    ran(lambda x: torch.softmax(x, -1), x)


def test_a_tensor_that_becomes_zero_is_said():
    x = full(1e-4)
    program = spyre_mlir.compile(lambda x: x * x, (x,), sencores=2)
    with pytest.warns(RangeWarning, match=r"e-08 became 0"):
        program(x)


def test_a_saved_program_warns_as_it_does_in_memory(tmp_path):
    from spyre_mlir.tools import spyre_run

    x = full(400)
    spyre_mlir.compile(lambda x: x * x, (x,), sencores=2).save(tmp_path / "out")
    np.savez(tmp_path / "in.npz", x.numpy())
    arguments = [str(tmp_path / "out"), "--inputs", str(tmp_path / "in.npz")]
    assert spyre_run.main(arguments) == 0


def test_the_tool_says_it_in_one_line(tmp_path, capfd):
    test_a_saved_program_warns_as_it_does_in_memory(tmp_path)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("warning: Numbers that left the range of IEEE fp16: 256,")


@pytest.mark.parametrize("where", ["memory", "folder"])
def test_programs_with_bfloat16_run_in_dl16(where, tmp_path):
    x = full(1e5, BFLOAT)
    program = spyre_mlir.compile(lambda x: x * 2, (x,), sencores=2)
    assert program.numerics == "dl16"
    program.save(tmp_path / "out")
    if where == "folder":
        program = spyre_mlir.Program.load(tmp_path / "out")
        assert program(x.view(torch.uint16).numpy())[0, 0] == (x * 2)[0, 0]
    else:
        torch.testing.assert_close(program(x), x * 2)


def test_bfloat16_between_other_types_runs_in_dl16_too():
    x = full(3e4)
    made = ran(lambda x: ((x.bfloat16() * 100) / 100).to(HALF), x)
    torch.testing.assert_close(made, x, rtol=1e-2, atol=0)


@pytest.mark.parametrize("value", [1e30, 1e-20])
def test_bfloat16_numbers_that_the_device_has_not_are_refused_on_the_way_in(value):
    with pytest.raises(CompileError, match=r"tensor 'x': it holds 1.*float32"):
        ran(lambda x: x * 2, full(value, BFLOAT))


@pytest.mark.parametrize(("value", "became"), [(2.0**20, "8573157376"), (2.0**-20, "0")])
def test_bfloat16_numbers_that_leave_the_range_between_operations_are_an_error(value, became):
    with pytest.raises(
        CompileError, match=rf"\(mul\): [0-9.]+e[+-][0-9]+ is outside the range of DL16.*{became}.*bfloat16"
    ):
        ran(lambda x: x * x, full(value, BFLOAT))


@pytest.mark.parametrize("value", [2.0**20, 2.0**-30])
def test_bfloat16_in_ieee_fp16_is_refused_too(value):
    with pytest.raises(CompileError, match=r"it holds [0-9.]+.*IEEE fp16"):
        ran(lambda x: x * 2, full(value, BFLOAT), numerics="ieee")


def test_the_mask_of_bfloat16_is_an_infinity():
    def model(x):
        return torch.softmax(x.masked_fill(x < 0, torch.finfo(BFLOAT).min), -1)

    x = normal(4, 64, dtype=BFLOAT)
    torch.testing.assert_close(ran(model, x), model(x), rtol=2e-2, atol=1e-2)


def test_rows_that_a_mask_of_bfloat16_hides_are_zero_as_in_pytorch():
    attention = torch.nn.functional.scaled_dot_product_attention
    x = normal(1, 1, 64, 64, dtype=BFLOAT)
    mask = torch.full((64, 64), -INF, dtype=BFLOAT).triu(0)
    torch.testing.assert_close(ran(attention, x, x, x, mask), attention(x, x, x, mask), rtol=3e-2, atol=2e-2)
    causal = ran(lambda x: attention(x, x, x, is_causal=True), x)
    torch.testing.assert_close(causal, attention(x, x, x, is_causal=True), rtol=3e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (lambda x: x + 1e6, full(1, BFLOAT)),
        (lambda x: x * 1e-7, full(3, BFLOAT)),
        (lambda x: torch.nn.functional.normalize(x, dim=-1), full(0, BFLOAT)),
        (lambda x: torch.nn.functional.normalize(x, dim=-1), normal(4, 64, dtype=BFLOAT)),
        (lambda x: torch.cat([x, torch.full_like(x, 1e6)]), full(1, BFLOAT)),
        (lambda x: x * 1e-12, full(6e4)),
        (lambda x: x / 1e-12, full(0)),
        (lambda x: x * 1e6, full(0.01)),
        (lambda x: x * 1e30, full(0)),
        (lambda x: x / 1e6, full(6e4)),
        (lambda x: x / 1e-7, full(1e-5)),
    ],
    ids=[
        "bf16 + 1e6", "bf16 * 1e-7", "bf16 normalize zeros", "bf16 normalize", "bf16 cat", "fp16 * 1e-12",
        "fp16 0 / 1e-12", "fp16 * 1e6", "fp16 0 * 1e30", "fp16 / 1e6", "fp16 / 1e-7",
    ],
)  # fmt: skip
def test_constants_outside_the_range_of_fp16_keep_their_value(model, x):
    torch.testing.assert_close(ran(model, x), model(x), rtol=1e-2, atol=1e-7)


def test_a_constant_that_no_result_can_hold_is_refused():
    with pytest.raises(CompileError, match=r"outside the range of DL16"):
        ran(lambda x: x * 1e30, full(1, BFLOAT))


@pytest.mark.parametrize("first", [0, 1], ids=["0 // 0", "1 // 0"])
def test_an_integer_division_by_zero_is_an_error(first):
    x = torch.arange(first, 64 + first, dtype=torch.int32)
    y = torch.arange(64, dtype=torch.int32)
    with pytest.raises(CompileError, match=r"division by zero|by 0"):
        ran(torch.floor_divide, x, y)
    with pytest.raises(CompileError, match=r"fp32toint32.*division by zero"):
        ran(lambda x, y: (x.float() / y.float()).to(torch.int32), x, y)


def test_a_float_beyond_32_bits_is_an_integer_of_the_host():
    with pytest.warns(HostWorkWarning, match="3e\\+09 is not a 32-bit integer"):
        result = ran(lambda x: x.to(torch.int64), torch.full((4, 64), 3e9))
    assert result.eq(3_000_000_000).all()


def _attention(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_scores_whose_rounding_an_exponential_amplifies_are_said(dtype):
    """Scores of 400 have steps of a quarter; scores of normal numbers are small enough."""
    torch.manual_seed(3)
    q, k, v = (torch.randn(2, 33, 16).to(dtype) for _ in range(3))
    program = spyre_mlir.compile(_attention, (q, k, v))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program(q, k, v)
    with pytest.warns(RangeWarning, match="may change its exponential by .* 'strict'"):
        program(q + 20, k + 10, v)


@pytest.mark.parametrize("is_causal", [False, True])
def test_scores_of_attention_in_tiles_are_said_too(is_causal, tmp_path):
    """The rewritten softmax keeps the range facts of its matmul."""
    torch.manual_seed(3)
    q, k, v = (torch.randn(1, 2, 256, 64).half() for _ in range(3))

    def model(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    program = spyre_mlir.compile(model, (q, k, v), lx_frac_avail=0.97)
    program.save(tmp_path / "p")
    with pytest.warns(RangeWarning, match="may change its exponential"):
        spyre_mlir.Program.load(tmp_path / "p")(q + 20, k + 10, v)
