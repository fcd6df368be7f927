# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Eight bits end to end: bits of the casts, and layers with weights and activations of int8 and fp8."""

import numpy as np
import pytest
import torch
from eight_bit_modules import FP8, Case, Layer, example, random_case, tolerance
from torch import Tensor, nn

import spyre_mlir
import spyre_mlir.frontend.folding
from spyre_mlir.bundle.validate import validate
from spyre_mlir.driver.steps import BundleStep
from spyre_mlir.host.number_types import NUMBER_TYPES
from spyre_mlir.simulator.run_outcome import SimulationError
from spyre_mlir.target.formats import encode_fp8

HALVES = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(torch.float16).reshape(256, 256)


def opcodes(program: spyre_mlir.Program) -> list[str]:
    """The operations of a program that has no step of the host."""
    assert all(isinstance(step, BundleStep) for step in program.steps)
    return [design.opcode for step in program.steps for design in step.bundle.designs.values()]


def number_of(code: int) -> float:
    """The number of an FP8 code, from the definition of the format."""
    sign, exponent, mantissa = -1.0 if code >> 7 else 1.0, code >> 3 & 15, code & 7
    if (exponent, mantissa) == (15, 7):
        return float("nan")
    return sign * (mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10))


def wide_samples() -> Tensor:
    """Return float32 numbers around all numbers of FP8: these, the midpoints, the neighbours of both; and others."""
    numbers = np.array([number_of(code) for code in range(0x7F)], np.float32)
    points = np.concatenate(
        [numbers, (numbers[1:] + numbers[:-1]) / 2, np.float32([1e-30, 464, 480, 1e5, 3e38, np.inf])]
    )
    around = [np.nextafter(points, np.float32(to)) for to in (-np.inf, np.inf)]
    rng = np.random.default_rng(0)
    drawn = rng.standard_normal(4096).astype(np.float32) * np.float32(2.0) ** rng.integers(-14, 11, 4096)
    positive = np.concatenate([points, *around, drawn])
    every = np.concatenate([positive, -positive, np.float32([np.nan])])
    return torch.from_numpy(np.resize(every.astype(np.float32), (96, 128)))


# -- bits -------------------------------------------------------------------------------------------------


def test_all_codes_become_16_bits():
    """The numbers of all 256 codes, which PyTorch and the definition of the format agree on."""
    codes = torch.arange(256).to(torch.uint8).reshape(2, 128)
    program = spyre_mlir.compile(
        lambda x: x.to(torch.float16), (codes.view(FP8),), sencores=1, fallback=False
    )
    assert opcodes(program) == ["fp8todl16"]
    expected = np.array([number_of(code) for code in range(256)]).reshape(2, 128)
    np.testing.assert_array_equal(program(codes.view(FP8)).double().numpy(), expected)
    np.testing.assert_array_equal(codes.view(FP8).double().numpy(), expected)


def test_all_16_bit_numbers_become_fp8():
    """To nearest, ties to even; subnormals, zeros with their sign; numbers out of range, infinities too, saturate."""
    program = spyre_mlir.compile(lambda x: x.to(FP8), (HALVES,), sencores=4, fallback=False)
    assert opcodes(program) == ["qfp8ch"]
    assert torch.equal(program(HALVES).view(torch.uint8), HALVES.to(FP8).view(torch.uint8))


def test_float32_is_rounded_to_fp8_once():
    """The device casts by way of 16 bits, which the program rounds before; zeros have no sign there."""
    x = wide_samples()
    program = spyre_mlir.compile(lambda x: x.to(FP8), (x,), sencores=2, fallback=False)
    result, expected = program(x).float(), x.to(FP8).float()
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("scale", [1.0, 3.7])
def test_16_bits_are_scaled_in_float32_and_rounded_once(scale):
    """Operations between x.float() and the cast to fp8 are not folded to 16 bits."""

    def quantise(x: Tensor) -> Tensor:
        return (x.float() / scale).clamp(-448, 448).to(FP8)

    x = torch.randn(64, 192, generator=torch.Generator().manual_seed(0)).half() * 40
    program = spyre_mlir.compile(quantise, (x,), sencores=2, fallback=False)
    assert torch.equal(program(x).float(), quantise(x).float())


def test_the_simulator_and_the_host_round_like_pytorch():
    x = wide_samples()
    expected = x.to(FP8).view(torch.uint8).numpy()
    not_a_number = np.isnan(x.numpy())
    for codes in (encode_fp8(x.numpy()), NUMBER_TYPES["f8E4M3FN"].to_host(x.numpy())):
        np.testing.assert_array_equal(codes[~not_a_number], expected[~not_a_number])
        assert (codes[not_a_number] & 0x7F == 0x7F).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_rounding_to_integers(dtype):
    """Ties to even, and numbers that are integers anyway."""
    x = torch.cat([torch.arange(-256, 256) / 4, torch.tensor([2.0**14 + 1, -60000.0, 0.49999, 1e-7] * 16)])
    x = x.to(dtype).reshape(9, 64)
    program = spyre_mlir.compile(torch.round, (x,), sencores=1, fallback=False)
    assert torch.equal(program(x), torch.round(x))


def test_numbers_become_int8_towards_zero_and_none_outside():
    x = (torch.arange(-128 * 4, 128 * 4) / 4).half().reshape(16, 64)
    program = spyre_mlir.compile(lambda x: x.to(torch.int8), (x,), sencores=1, fallback=False)
    assert torch.equal(program(x), x.to(torch.int8))
    x[3, 5] = 128
    with pytest.raises(
        SimulationError, match=r"128 is not an 8-bit integer; clamp to -128 .. 127 before the cast"
    ):
        program(x)


@pytest.mark.parametrize("shape", [(64, 128), (200, 96), (33, 1280), (3, 40, 64), (70, 6)])
def test_int8_becomes_16_bits_by_a_product_with_a_unit_matrix(shape):
    x = torch.randint(-128, 128, shape, generator=torch.Generator().manual_seed(0)).to(torch.int8)
    program = spyre_mlir.compile(lambda x: x.half() * 0.5, (x,), sencores=4, fallback=False)
    assert "batchmatmulint8" in opcodes(program)
    assert torch.equal(program(x), x.half() * 0.5)


@pytest.mark.parametrize("columns", [1, 5, 33, 127, 129])
@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_results_of_8_bits_with_odd_rows(dtype, columns):
    """The last number of a row shares two bytes with padding."""
    x = torch.linspace(-60, 60, 4 * columns).reshape(4, columns).half()
    program = spyre_mlir.compile(lambda x: (x * 2).to(dtype), (x,), sencores=4)
    assert torch.equal(program(x).float(), (x * 2).to(dtype).float())


def test_views_and_copies_of_8_bits():
    class Views(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            codes = x.to(FP8)
            return codes.t().contiguous(), codes[3:20], x.round().to(torch.int8).reshape(-1)

    x = torch.randn(64, 192, generator=torch.Generator().manual_seed(0)).half() * 3
    program = spyre_mlir.compile(Views(), (x,), sencores=4, verify_each=True)
    for result, expected in zip(program(x), Views()(x), strict=True):
        assert result.dtype == expected.dtype and torch.equal(result.float(), expected.float())


# -- layers -----------------------------------------------------------------------------------------------


def check(program: spyre_mlir.Program, case: Case, layer: Layer, x: Tensor) -> None:
    """A program is valid, and its result as near to the exact one as PyTorch's."""
    for step in program.steps:
        if isinstance(step, BundleStep):
            assert not (findings := validate(step.bundle)), "\n".join(map(str, findings))
    exact = layer(x, exact=True)
    error = (program(x).double() - exact).abs().max().item()
    assert error <= tolerance(layer(x), exact), case


@pytest.mark.sampled(40)
@pytest.mark.parametrize("seed", range(200))
def test_random_layers(seed, monkeypatch):
    """Weights and activations of 8 bits in all forms; with most seeds small weights keep 8 bits, too."""
    if seed % 4:
        monkeypatch.setattr(spyre_mlir.frontend.folding, "SMALLEST_ELEMENTS", 0)
    case = random_case(seed)
    layer, x = Layer(case, seed), example(case, seed + 1)
    program = spyre_mlir.compile(layer, (x,), sencores=(1, 4, 32)[seed % 3], verify_each=True, fallback=False)
    check(program, case, layer, x)


def _case(**fields) -> Case:
    usual = {
        "dtype": torch.float16, "weight": FP8, "activations": None, "scales": "channel", "tokens": True, "late": False,
        "bias": True, "rows": (64,), "inner": 512, "columns": 384,
    }  # fmt: skip
    return Case(**{**usual, **fields})


@pytest.mark.parametrize("weight", [FP8, torch.int8])
@pytest.mark.parametrize("activations", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_weights_are_read_once_in_8_bits(weight, activations, late):
    """The bytes of a run: the weight, and less than a tenth of it for rows, scales and unit matrices."""
    case = _case(
        weight=weight, activations=weight if activations else None, late=late or activations, rows=(4,)
    )
    layer, x = Layer(case, 0), example(case, 1)
    program = spyre_mlir.compile(layer, (x,), sencores=8, fallback=False)
    check(program, case, layer, x)
    assert layer.weight.numel() <= program.traffic().read_bytes < 1.2 * layer.weight.numel()


def test_a_weight_that_others_read_too_is_widened_ahead_of_time():
    """Rows of a table that is also the weight of the last layer: the lookup does not widen the whole table."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", Layer(_case(), 0).weight)

        def forward(self, index: Tensor) -> Tensor:
            table = self.table.half() / 448
            return table[index] @ table.t()

    index = torch.tensor([3, 5, 3, 200])
    program = spyre_mlir.compile(Tied(), (index,), sencores=4)
    torch.testing.assert_close(program(index), Tied()(index), rtol=2e-3, atol=2e-3)
    assert not any(
        "fp8" in design.opcode for step in program.steps for design in step.bundle.designs.values()
    )


@pytest.mark.parametrize("weight", [FP8, torch.int8])
def test_layers_under_torch_compile(weight):
    case = _case(weight=weight, activations=weight, rows=(2, 16))
    layer, x = Layer(case, 0), example(case, 1)
    result = torch.compile(layer, backend=spyre_mlir.torch_backend)(x)
    exact = layer(x, exact=True)
    assert (result.double() - exact).abs().max().item() <= tolerance(layer(x), exact)


# A part of the program runs on the host; test_host_work_warning.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, FP8, None])
def test_scaled_mm_has_the_type_asked_for(dtype):
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(shape, generator=generator).to(FP8) for shape in ((32, 128), (80, 128)))

    def product(x: Tensor) -> Tensor:
        return torch._scaled_mm(
            x, w.t(), scale_a=torch.tensor(0.5), scale_b=torch.tensor(0.25), out_dtype=dtype
        )

    result, expected = spyre_mlir.compile(product, (x,), sencores=4)(x), product(x)
    assert result.dtype == expected.dtype
    step = {torch.float32: 2**-20, torch.float16: 2**-8}.get(
        dtype, 2**-3 if expected.itemsize == 1 else 2**-7
    )
    torch.testing.assert_close(result.double(), expected.double(), rtol=step, atol=2**-9)


def test_int8_weights_of_aten():
    """``_weight_int8pack_mm``, which torchao's weight-only layers are on the CPU."""
    case = _case(weight=torch.int8, bias=False)
    layer, x = Layer(case, 0), example(case, 1)
    scale = layer.scale.reshape(-1)
    program = spyre_mlir.compile(
        lambda x: torch._weight_int8pack_mm(x, layer.weight, scale), (x,), sencores=4, fallback=False
    )
    check(program, case, layer, x)


def test_a_layer_of_the_operations_of_pt2e():
    """Quantise and dequantise with zero points, as PyTorch's quantisation flow exports them."""
    pytest.importorskip("torch.ao.quantization.fx._decomposed")
    ops = torch.ops.quantized_decomposed

    class Exported(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = Layer(_case(weight=torch.int8, inner=256, columns=320), 0)
            self.register_buffer("weight", layer.weight)
            self.register_buffer("scale", layer.scale.float().reshape(-1))
            self.register_buffer("zero", torch.zeros(320, dtype=torch.int64))

        def forward(self, x: Tensor) -> Tensor:
            codes = ops.quantize_per_tensor(x, 0.03, 4, -128, 127, torch.int8)
            x = ops.dequantize_per_tensor(codes, 0.03, 4, -128, 127, torch.int8)
            weight = ops.dequantize_per_channel(self.weight, self.scale, self.zero, 0, -128, 127, torch.int8)
            return torch.nn.functional.linear(x, weight).half()

    x = torch.randn(16, 256, generator=torch.Generator().manual_seed(1))
    program = spyre_mlir.compile(Exported(), (x,), sencores=4)
    expected = Exported()(x)
    assert (program(x).double() - expected.double()).abs().max() <= 2e-3 * expected.abs().max()
