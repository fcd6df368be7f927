# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matmuls of int8 and fp8 on the device: numbers at odd sizes, traffic, stick forms, what stays on the host."""

from __future__ import annotations

import random
from dataclasses import replace

import bundles
import numpy as np
import pytest
import torch
from suite_checks import check_traffic
from torch import Tensor, nn

import spyre_mlir
from spyre_mlir.bundle.design_json import from_json, to_json
from spyre_mlir.bundle.model import Loop
from spyre_mlir.bundle.validate import validate
from spyre_mlir.cost.cost_model import multiply_adds_per_ns
from spyre_mlir.driver.steps import BundleStep
from spyre_mlir.errors import CompileError
from spyre_mlir.simulator.memory import FIRST_BUFFER, buffer_tag
from spyre_mlir.simulator.run_outcome import SimulationError
from spyre_mlir.target.target import packaged_target

FP8 = torch.float8_e4m3fn
SCALE = 1 / 128

#: By element type: the type of the sum, how an element is widened, multiplied, added, and the zero.
_OPS = {
    "i8": ("i32", "arith.extsi", "arith.muli", "arith.addi", "0"),
    "f8E4M3FN": ("f32", "arith.extf", "arith.mulf", "arith.addf", "0.0"),
}


def matmul(
    rows: int,
    inner: int,
    columns: int,
    element: str,
    *,
    batch: int = 0,
    turned: bool = False,
    result: str = "f16",
) -> str:
    """x @ w, or x @ w^T if ``turned``, in a program of linalg: int8 scaled in f32, fp8 rounded; ``result`` as is."""
    wide, extend, multiply, add, zero = _OPS[element]
    lead, dims = ([batch], "b, ") if batch else ([], "")
    shapes = [
        [*lead, rows, inner],
        [*lead, *((columns, inner) if turned else (inner, columns))],
        [*lead, rows, columns],
    ]
    x, w, y = ("x".join(map(str, shape)) for shape in shapes)
    space, kinds = f"({dims}m, n, k)", '"parallel", ' * (3 if batch else 2) + '"reduction"'
    right = f"({dims}n, k)" if turned else f"({dims}k, n)"
    maps = [f"affine_map<{space} -> {each}>" for each in (f"({dims}m, k)", right, f"({dims}m, n)")]
    last, value = _ending(y, wide, result, 3 if batch else 2)
    return f"""
func.func @main(%x: tensor<{x}x{element}>, %w: tensor<{w}x{element}>) -> tensor<{y}x{result}> {{
  %z = arith.constant dense<{zero}> : tensor<{y}x{wide}>
  %s = linalg.generic {{indexing_maps = [{", ".join(maps)}], iterator_types = [{kinds}]}}
      ins(%x, %w : tensor<{x}x{element}>, tensor<{w}x{element}>) outs(%z : tensor<{y}x{wide}>) {{
  ^bb0(%a: {element}, %b: {element}, %o: {wide}):
    %l = {extend} %a : {element} to {wide}
    %r = {extend} %b : {element} to {wide}
    %p = {multiply} %l, %r : {wide}
    %t = {add} %o, %p : {wide}
    linalg.yield %t : {wide}
  }} -> tensor<{y}x{wide}>
{last}
  return {value} : tensor<{y}x{result}>
}}"""


def _ending(shape: str, wide: str, result: str, rank: int) -> tuple[str, str]:
    """Return the statements after the sum, and their value."""
    if result == wide:
        return "", "%s"
    body = [f"%f = arith.constant {SCALE} : f32", "%v = arith.mulf %i, %f : f32"]
    if wide == "i32":
        body = [body[0], "%i = arith.sitofp %a : i32 to f32", body[1]]
    else:
        body = ["%f = arith.constant 1.0 : f32", "%v = arith.mulf %a, %f : f32"]
    if result == "f16":
        body += ["%h = arith.truncf %v : f32 to f16"]
    dims = ", ".join(f"d{at}" for at in range(rank))
    same, kinds = f"affine_map<({dims}) -> ({dims})>", ", ".join(['"parallel"'] * rank)
    lines = "\n    ".join(body)
    text = f"""  %e = tensor.empty() : tensor<{shape}x{result}>
  %y = linalg.generic {{indexing_maps = [{same}, {same}], iterator_types = [{kinds}]}}
      ins(%s : tensor<{shape}x{wide}>) outs(%e : tensor<{shape}x{result}>) {{
  ^bb0(%a: {wide}, %o: {result}):
    {lines}
    linalg.yield {"%h" if result == "f16" else "%v"} : {result}
  }} -> tensor<{shape}x{result}>"""
    return text, "%y"


def numbers(
    shape: tuple[int, ...], element: str, seed: int, largest: int = 6
) -> tuple[np.ndarray, np.ndarray]:
    """An array as the host gives it, and its values: integers, or normal numbers rounded by PyTorch to fp8."""
    generator = torch.Generator().manual_seed(seed)
    if element == "i8":
        made = torch.randint(-largest, largest + 1, shape, generator=generator).to(torch.int8).numpy()
        return made, made.astype(np.float64)
    rounded = torch.randn(shape, generator=generator).to(FP8)
    return rounded.view(torch.uint8).numpy(), rounded.double().numpy()


def opcodes(program: spyre_mlir.Program) -> list[list[str]]:
    """The operations of each step, none of a step of the host."""
    return [
        [design.opcode for design in step.bundle.designs.values()] if isinstance(step, BundleStep) else []
        for step in program.steps
    ]


def _case(seed: int) -> dict:
    """Return a random case without a product of two vectors, which is not a matmul."""
    choice = random.Random(seed)
    rows = choice.choice([1, 3, 33, 65, 130])
    return {
        "rows": rows,
        "inner": choice.choice([2, 5, 64, 127, 129, 200, 256]),
        "columns": choice.choice([1 if rows > 1 else 64, 2, 70, 128, 192]),
        "element": choice.choice(list(_OPS)),
        "batch": choice.choice([0, 0, 3]),
        "turned": choice.random() < 0.5,
    }


@pytest.mark.parametrize("seed", range(16))
def test_random_matmuls(seed):
    """Any size, orientation and number of cores: each sum is rounded to DL16 once, and the traffic equals the plan."""
    case, choice = _case(seed), random.Random(seed + 1000)
    numerics = choice.choice(["ieee", "dl16"])
    program = spyre_mlir.compile(
        matmul(**case), sencores=choice.choice([1, 4, 32]), numerics=numerics, verify_each=True
    )
    assert not (findings := validate(program.bundle)), "\n".join(map(str, findings))
    lead = (case["batch"],) if case["batch"] else ()
    x, left = numbers((*lead, case["rows"], case["inner"]), case["element"], seed)
    turned = (case["columns"], case["inner"]) if case["turned"] else (case["inner"], case["columns"])
    w, right = numbers((*lead, *turned), case["element"], seed + 1)
    expected = left @ (right.swapaxes(-1, -2) if case["turned"] else right)
    expected *= SCALE if case["element"] == "i8" else 1
    result = program(x, w).astype(np.float64)
    np.testing.assert_allclose(result, expected, rtol=2**-8, atol=2**-9 * np.abs(expected).max())
    check_traffic(program)


@pytest.mark.parametrize(
    ("shape", "frac"), [((256, 384, 512), 0.95), ((512, 256, 2048), 0.8), ((512, 256, 2048), 0.9)]
)
def test_a_matmul_in_tiles(shape, frac):
    """Tiles of the operands of an int8 matmul are whole sticks."""
    rows, inner, columns = shape
    program = spyre_mlir.compile(
        matmul(*shape, "i8"), sencores=2, lx_frac_avail=frac, numerics="dl16", verify_each=True
    )
    assert any(isinstance(each, Loop) for each in program.bundle.statements)
    x, left = numbers((rows, inner), "i8", 1, 127)
    w, right = numbers((inner, columns), "i8", 2, 127)
    np.testing.assert_allclose(program(x, w), left @ right * SCALE, rtol=2**-7, atol=0.5)
    check_traffic(program)


class Dequantised(nn.Module):
    """An int8 linear layer as quantisers write it: one scale per column."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        weight = torch.randint(-5, 6, (72, 200), generator=generator).to(torch.int8)
        self.register_buffer("weight", weight)
        self.register_buffer("scale", torch.rand(72, generator=generator) / 10)

    def forward(self, x: Tensor) -> Tensor:
        sums = torch._int_mm(x.reshape(-1, 200), self.weight.t())
        return (sums.float() * self.scale).half().reshape(2, 17, 72)


def test_an_int8_layer_of_pytorch():
    """``torch._int_mm`` and its scales run on the device; small sums are exact, so the numbers are PyTorch's."""
    model = Dequantised()
    x = torch.randint(-5, 6, (2, 17, 200), generator=torch.Generator().manual_seed(1)).to(torch.int8)
    program = spyre_mlir.compile(model, (x,), sencores=4, fallback=False, verify_each=True)
    assert opcodes(program) == [["batchmatmulint8", "dl16tofp32", "mul", "fp32todl16"]]
    assert torch.equal(program(x), model(x))


class Scaled(nn.Module):
    """``torch._scaled_mm`` with a scale per row, one for all weights, and a bias."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.register_buffer("weight", torch.randn(48, 208, generator=generator).to(FP8))
        self.register_buffer("scale", torch.rand((), generator=generator) + 0.5)
        self.register_buffer("bias", torch.randn(48, generator=generator).half())

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return torch._scaled_mm(
            x, self.weight.t(), scale_a=scale, scale_b=self.scale, bias=self.bias, out_dtype=torch.float16
        )


@pytest.mark.parametrize("numerics", ["ieee", "dl16"])
def test_an_fp8_layer_of_pytorch(numerics, tmp_path):
    """``torch._scaled_mm`` runs on the device, also from the folder that it is saved in."""
    model, x = Scaled(), torch.randn(33, 208, generator=torch.Generator().manual_seed(1)).to(FP8)
    scale = torch.tensor(0.25)
    program = spyre_mlir.compile(model, (x, scale), sencores=4, numerics=numerics, fallback=False)
    assert opcodes(program)[0][0] == "batchmatmulfp8"
    exact = x.double() @ model.weight.double().t() * 0.25 * model.scale.double() + model.bias.double()
    result = program(x, scale)
    assert (result.double() - exact).abs().max() <= 2**-8 * exact.abs().max()
    program.save(tmp_path / "layer")
    again = spyre_mlir.Program.load(tmp_path / "layer", numerics)
    np.testing.assert_array_equal(again(x.view(torch.uint8).numpy(), scale.numpy()), result.numpy())


def test_weights_of_fp8_beside_fp16_are_cast_ahead_of_time():
    """A matmul does not accept both types; the constant weight is cast to fp16 data."""

    class Layer(Scaled):
        def forward(self, x: Tensor) -> Tensor:
            return x @ self.weight.half().t()

    model, x = Layer(), torch.randn(5, 208, generator=torch.Generator().manual_seed(1)).half()
    program = spyre_mlir.compile(model, (x,), sencores=4, fallback=False)
    (found,) = opcodes(program)
    # A copy of an operand may bring it into LX, but nothing converts.
    assert set(found) - {"identity"} == {"batchmatmul"}
    assert (program(x) - model(x)).abs().max() < 0.05


@pytest.mark.parametrize("result", ["i32", "f32"])
def test_a_sum_that_shows_all_its_bits_stays_on_the_host(result):
    """DL16 would round it: an i32 result, or an f32 one, is computed by the host, exactly."""
    program = spyre_mlir.compile(matmul(33, 200, 70, "i8", result=result), sencores=4)
    assert opcodes(program)[0] == [] and not any("int8" in each for step in opcodes(program) for each in step)
    x, left = numbers((33, 200), "i8", 1, 127)
    w, right = numbers((200, 70), "i8", 2, 127)
    np.testing.assert_array_equal(program(x, w), left @ right * (1 if result == "i32" else SCALE))


def test_without_the_host_such_a_sum_is_an_error():
    with pytest.raises(
        CompileError, match="'batchmatmulint8' gives f16 \\(SEN169_FP16\\), not i32"
    ) as raised:
        spyre_mlir.compile(matmul(33, 200, 70, "i8", result="i32"), fallback=False)
    assert raised.value.location.endswith(":4:8")


@pytest.mark.parametrize("numerics", ["ieee", "dl16"])
def test_a_sum_beyond_ieee_fp16_that_is_scaled(numerics):
    """Between a matmul and the cast that scales it, sums are in DL16, whatever the numerics."""
    x, w = np.full((4, 200), 127, np.int8), np.full((200, 64), 127, np.int8)
    program = spyre_mlir.compile(matmul(4, 200, 64, "i8"), sencores=1, numerics=numerics)
    np.testing.assert_allclose(program(x, w), np.full((4, 64), 3225800 * SCALE), rtol=2**-9)


def test_a_sum_beyond_ieee_fp16_is_an_error_there():
    """DL16 holds it, IEEE fp16 in its place does not: an error that names the numerics, not an infinity."""
    x, w = np.full((4, 200), 0x7E, np.uint8), np.full((200, 64), 0x7E, np.uint8)
    text = matmul(4, 200, 64, "f8E4M3FN")
    with pytest.raises(
        SimulationError, match=r"a sum of 40140800 exceeds the range of IEEE fp16; .* 'dl16'"
    ) as raised:
        spyre_mlir.compile(text, sencores=1)(x, w)
    assert raised.value.kind == "range"


def test_arrays_of_another_type_are_refused():
    program = spyre_mlir.compile(matmul(4, 128, 64, "f8E4M3FN"), sencores=1)
    with pytest.raises(CompileError, match="the array is int8, but the argument is float8_e4m3fn"):
        program(np.zeros((4, 128), np.int8), np.zeros((128, 64), np.uint8))


def test_unwritten_padding_of_pairs_is_found():
    """K = 127: the partner of its last element is padding that the host leaves alone, one byte of two."""
    program = spyre_mlir.compile(matmul(4, 127, 64, "i8"), sencores=1)
    bundle = program.bundle
    (name,) = (name for name, design in bundle.designs.items() if design.opcode == "batchmatmulint8")
    unmasked = replace(bundle.designs[name], masks={}, mask_constant=-1, constants=())
    program.steps[0].bundle = replace(bundle, designs={**bundle.designs, name: unmasked})
    with pytest.raises(SimulationError) as raised:
        program(np.ones((4, 127), np.int8), np.ones((127, 64), np.int8))
    assert raised.value.kind == "padding"


def test_tags_of_buffers_share_no_byte_with_others():
    """A shadow of one byte identifies the writer, for the tag of any buffer."""
    tags = [buffer_tag(number) for number in range(3000)]
    assert len(set(tags)) == 3000 and max(tags) <= 0xFFFF
    for tag in tags:
        assert all(byte == 0 or FIRST_BUFFER <= byte < 0xFF for byte in (tag >> 8, tag & 0xFF)) and tag & 0xFF


def test_the_design_of_an_int8_matmul():
    """The design follows the interface: 128 of K in a stick, 2 of K with 64 columns, innermost first; read back."""
    program = spyre_mlir.compile(matmul(64, 200, 64, "i8"), sencores=1)
    design = next(iter(program.bundle.designs.values()))
    json = to_json(design)
    body = json["0_batchmatmulint8"]["dscs_"][0]["batchmatmulint8"]
    sticks = {
        role: (layout["stickDimOrder_"], layout["stickSize_"])
        for role, layout in body["primaryDsInfo_"].items()
    }
    assert sticks == {
        "INPUT": (["in"], [128]), "KERNEL": (["in", "out"], [2, 64]), "OUTPUT": (["out"], [64]),
    }  # fmt: skip
    formats = [(each["dataFormat_"], each["wordLength"]) for each in body["labeledDs_"]]
    assert formats == [("SENINT8", 1), ("SENINT8", 1), ("SEN169_FP16", 2)]
    assert from_json(json, "sdsc_0.json", design.target) == bundles.in_file(design)


@pytest.mark.parametrize(
    ("other_elements", "sentence"),
    [
        ({}, "Tensor1 has nothing next to out in its stick; expected 2 of in."),
        ({"in": 4}, "Tensor1 has 4 of in next to out in its stick; expected 2 of in."),
        ({"out": 2}, "Tensor1 has out next to out in its stick; expected another dim of scale 1."),
    ],
)
def test_other_sticks_are_findings(other_elements, sentence):
    """The validator knows the stick of the second input."""
    bundle = spyre_mlir.compile(matmul(64, 256, 64, "i8"), sencores=1).bundle
    (name, design), *_ = bundle.designs.items()
    left, right, result = design.operands
    broken = replace(design, operands=(left, replace(right, other_elements=other_elements), result))
    findings = [str(each) for each in validate(replace(bundle, designs={**bundle.designs, name: broken}))]
    assert any(sentence in each for each in findings)


def test_rates_of_the_array():
    """fp8 at twice, int8 at four times the rate of fp16 (``spyre.toml``, speedup)."""
    base = multiply_adds_per_ns(packaged_target(), "batchmatmul")
    rates = [
        multiply_adds_per_ns(packaged_target(), name) / base for name in ("batchmatmulfp8", "batchmatmulint8")
    ]
    assert rates == [2, 4]
