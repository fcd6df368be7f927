# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Norms, statistics and what else PyTorch computes in f32: as exact as PyTorch whatever the inputs are like."""

import pytest
import torch
import torch.nn.functional as F
from programs import Apply, check_close
from torch import Tensor

import spyre_mlir

ROWS, COLUMNS = 4, 192


def _inputs(kind: str, shape: tuple[int, ...] = (ROWS, COLUMNS)) -> Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(17))
    numbers = {
        "ordinary": x,
        "large mean": x + 20,
        "constant rows": torch.full(shape, 2.7),
        "small spread": 10 + 0.01 * (torch.arange(x.numel()) % 3).reshape(shape),
        "large": x.sign() * (300 + 200 * x.abs().clamp(max=1)),
        "small": x * 1e-4,
    }
    return numbers[kind].half()


KINDS = ("ordinary", "large mean", "constant rows", "small spread", "large", "small")


def _softmax_backward(grad: Tensor, weights: Tensor) -> Tensor:
    return torch.ops.aten._softmax_backward_data(grad, weights, -1, grad.dtype)


def _llama_norm(x: Tensor) -> Tensor:
    wide = x.float() if x.dtype == torch.float16 else x
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


STATISTICS = {
    "rms_norm": lambda x: F.rms_norm(x, (COLUMNS,)),
    "llama norm": _llama_norm,
    "layer_norm": lambda x: F.layer_norm(x, (COLUMNS,)),
    "layer_norm of two dims": lambda x: F.layer_norm(x.reshape(2, 2, COLUMNS), (2, COLUMNS)),
    "group_norm": lambda x: F.group_norm(x.reshape(2, 4, -1), 2),
    "batch_norm": lambda x: F.batch_norm(x.reshape(4, 4, -1), None, None, training=True),
    "std": lambda x: torch.std(x, -1),
    "vector_norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "normalize": lambda x: F.normalize(x, dim=-1),
}


@pytest.mark.parametrize("precision", ["device", "strict"])
@pytest.mark.parametrize("name", STATISTICS)
def test_norms_and_statistics_are_as_exact_as_pytorch_for_any_inputs(name: str, precision: str) -> None:
    model = Apply(STATISTICS[name])
    program = spyre_mlir.compile(model, (_inputs("ordinary"),), precision=precision)
    assert program.is_one_bundle
    for kind in KINDS:
        x = _inputs(kind)
        check_close(f"{name} of {kind} inputs", program(x), model, (x,))


# Numbers leave the range of the format; test_range.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.RangeWarning")
def test_variances_of_small_spread_are_exact_where_fp16_holds_them() -> None:
    model = Apply(lambda x: torch.var_mean(x, -1))
    program = spyre_mlir.compile(model, (_inputs("ordinary"),))
    for kind in ("ordinary", "large mean", "constant rows", "small spread", "small"):
        check_close(kind, program(_inputs(kind)), model, (_inputs(kind),))


@pytest.mark.parametrize(("mean", "peak"), [(0, 1), (5, 8), (20, 3)])
def test_the_backward_of_softmax_does_not_lose_what_gradients_have_in_common(mean: int, peak: int) -> None:
    generator = torch.Generator().manual_seed(mean)
    weights = torch.softmax(torch.randn(5, 53, generator=generator) * peak, -1).half()
    inputs = ((torch.randn(5, 53, generator=generator) + mean).half(), weights)
    model = Apply(_softmax_backward)
    check_close("softmax backward", spyre_mlir.compile(model, inputs)(*inputs), model, inputs)


@pytest.mark.parametrize("queries", [2, 5, 8])
def test_small_causal_attention_is_as_exact_as_pytorch(queries: int) -> None:
    generator = torch.Generator().manual_seed(queries)
    inputs = tuple(torch.randn(1, 2, queries, 16, generator=generator).half() for _ in range(3))
    model = Apply(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    check_close("attention", spyre_mlir.compile(model, inputs)(*inputs), model, inputs)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_over_windows_are_rounded_once(kind: str) -> None:
    weight = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(3)).half()

    def windows(x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        return F.conv1d(x, weight), F.avg_pool1d(x, 7, 1), F.avg_pool2d(x.unsqueeze(0), 3, 2, 1)

    model, inputs = Apply(windows), (_inputs(kind, (2, 3, 24)), weight)
    check_close(kind, spyre_mlir.compile(model, inputs)(*inputs), model, inputs)


def test_a_convolution_of_one_channel_in_bands_has_work_in_every_slice() -> None:
    generator = torch.Generator().manual_seed(1)
    inputs = tuple(torch.randn(shape, generator=generator).half() for shape in ((1, 1, 8, 8), (16, 1, 3, 3)))
    model = Apply(lambda x, weight: F.conv2d(x, weight, padding=1))
    check_close("convolution", spyre_mlir.compile(model, inputs)(*inputs), model, inputs)


DISTANCES = {
    "pairwise": lambda x, y: F.pairwise_distance(x, y),
    "pairwise of order 1": lambda x, y: F.pairwise_distance(x, y, p=1),
    "dist": lambda x, y: torch.dist(x, y).reshape(1),
}


# Numbers leave the range of the format; test_range.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.RangeWarning")
@pytest.mark.parametrize("name", DISTANCES)
def test_distances_are_as_exact_as_pytorch_for_any_inputs(name: str) -> None:
    """Differences of 0 with an epsilon, and differences whose squares fp16 cannot represent."""
    model = Apply(DISTANCES[name])
    ordinary = _inputs("ordinary")
    program = spyre_mlir.compile(model, (ordinary, ordinary))
    for kind in KINDS:
        x = _inputs(kind)
        for y in (x, x.flip(0), (x.float() * 1.001).half()):
            check_close(f"{name} of {kind} inputs", program(x, y), model, (x, y))


def _near_0(scale: float) -> Tensor:
    return (torch.randn(5, 65, generator=torch.Generator().manual_seed(2)) * scale).half()


CANCELLING = {
    "elu": F.elu,
    "elu of 1.5": lambda x: F.elu(x, 1.5),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 1.3),
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "below": lambda x: F.gelu(-x.abs() * 4, approximate="tanh"),
}


# Numbers leave the range of the format; test_range.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.RangeWarning")
@pytest.mark.parametrize("name", CANCELLING)
def test_functions_whose_formula_cancels_are_exact_near_0(name: str) -> None:
    model = Apply(CANCELLING[name])
    program = spyre_mlir.compile(model, (_near_0(1),))
    for scale in (1e-6, 1e-5, 1e-3, 1e-2, 1):
        check_close(f"{name} at {scale}", program(_near_0(scale)), model, (_near_0(scale),))


def test_a_sum_that_is_infinite_in_pytorch_too_is_a_warning() -> None:
    """The program itself rounds the sum to fp16, so the later float32 operations do not matter."""
    x = torch.full((4, 192), 20.0).half()
    program = spyre_mlir.compile(lambda x: (x * x).sum(-1), (x,))
    with pytest.warns(spyre_mlir.RangeWarning, match="76800 became inf"):
        assert torch.isinf(program(x)).all()


@pytest.mark.parametrize("form", ["plain", "causal", "bool", "float", "scale of 1"])
@pytest.mark.parametrize("mean", [0, 20])
def test_strict_attention_does_not_round_large_scores(form: str, mean: int) -> None:
    """Scores of 3200 are off by 1 in fp16, their distances from the largest are not."""
    generator = torch.Generator().manual_seed(mean)
    shapes = ((1, 4, 17, 33), (1, 2, 17, 33), (1, 2, 17, 33))
    query, key, value = ((torch.randn(shape, generator=generator) + mean).half() for shape in shapes)
    seen = torch.rand(17, 17, generator=generator) > 0.4
    seen[3] = False
    mask = torch.where(seen, 0.0, -float("inf")).half()
    mask[3] = -1e4
    masks = {"bool": (seen,), "float": (mask,)}.get(form, ())
    options: dict = {"enable_gqa": True, "is_causal": form == "causal"}
    if form == "scale of 1":
        query, options["scale"] = query if not mean else query / 4, 1.0
    model = Apply(lambda q, k, v, *mask: F.scaled_dot_product_attention(q, k, v, *mask, **options))
    inputs = (query, key, value, *masks)
    program = spyre_mlir.compile(model, inputs, precision="strict")
    assert program.is_one_bundle
    check_close(form, program(*inputs), model, inputs)


# A part of the program runs on the host; test_host_work_warning.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
def test_logarithms_of_f32_beyond_fp16_are_those_of_f32():
    """A number that fp16 has as 0, subnormal or infinity has a finite logarithm."""
    x = torch.tensor([[1e-30, 1e-9, 3e-6, 1.0, 1e5, 1e30]])
    torch.testing.assert_close(spyre_mlir.compile(torch.log, (x,))(x), torch.log(x))


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


#: Functions of numbers that fp16 rounds to 0, or of which it leaves few digits, whose results it has.
NEAR_0 = {
    "log of a softmax": lambda x: torch.log(_softmax(x)),
    "log of a sigmoid": lambda x: torch.log(torch.sigmoid(x)),
    "log of what is left of 1": lambda x: torch.log(1 - torch.sigmoid(x + 8)),
    "log of a hyperbolic tangent": lambda x: torch.log(1 + torch.tanh(x / 4)),
    "log of a small multiple": lambda x: torch.log(torch.exp(x) * 0.01),
    "log of shares": lambda x: torch.log(x.exp() / x.exp().sum(-1, keepdim=True)),
    "root of a softmax": lambda x: torch.sqrt(_softmax(x)),
    "inverse root": lambda x: torch.rsqrt(_softmax(x)) * 1e-3,
    "reciprocal": lambda x: 1e-6 / _softmax(x / 2),
    "quotient of exponentials": lambda x: torch.exp(x - 3) / torch.exp(x),
    "product of exponentials": lambda x: torch.exp(x) * torch.exp(-x),
    "two large factors": lambda x: torch.exp(x - 10) * 3e4 * 3e4,
    "a small divisor": lambda x: _softmax(x) / 2e-5,
    "entropy": lambda x: -(_softmax(x) * (_softmax(x) + 1e-9).log()).sum(-1),
    "divergence": lambda x: (_softmax(x) * (_softmax(x).log() - _softmax(x / 2).log())).sum(-1),
    "shares of the largest": lambda x: _softmax(x)[:, 1:3] / _softmax(x)[:, 1:3].sum(-1, keepdim=True),
}


# A part of the program runs on the host; test_host_work_warning.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
@pytest.mark.parametrize("name", NEAR_0)
def test_numbers_that_fp16_rounds_to_0_keep_what_follows_finite(name: str) -> None:
    x = torch.tensor([[0, -20, -15, 5.0], [3, -1, -9, 2]]).half()
    model = Apply(lambda x: NEAR_0[name](x.float()).half())
    result = spyre_mlir.compile(model, (x,))(x)
    torch.testing.assert_close(result, NEAR_0[name](x.double()).half(), rtol=4e-3, atol=1e-3)


@pytest.mark.parametrize(
    "name",
    [
        "log_softmax",
        "logsumexp",
        "cross_entropy",
        "silu",
        "softplus",
        "logsigmoid",
        "cosine",
        "bounded divisor",
    ],
)
def test_logarithms_and_quotients_of_what_cannot_be_near_0_stay_on_the_device(name: str) -> None:
    models = {
        "log_softmax": lambda x: F.log_softmax(x.float(), -1).half(),
        "logsumexp": lambda x: torch.logsumexp(x.float(), -1).half(),
        "cross_entropy": lambda x: F.cross_entropy(x.float(), x.float().softmax(-1)).half(),
        "silu": lambda x: (x.float() / (1 + torch.exp(-x.float()))).half(),
        "softplus": lambda x: torch.log(1 + torch.exp(x.float())).half(),
        "logsigmoid": lambda x: (x.float().clamp(max=0) - torch.log(1 + torch.exp(-x.float().abs()))).half(),
        "cosine": lambda x: F.cosine_similarity(x.float(), x.float().flip(0) + 1, dim=-1).half(),
        "bounded divisor": lambda x: (x.float() / x.float().abs().clamp(min=0.5)).half(),
    }
    x = _inputs("ordinary")
    program = spyre_mlir.compile(Apply(models[name]), (x,))
    assert program.is_one_bundle
    check_close(name, program(x), Apply(models[name]), (x,))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (x * y, (x.float() * y.float()).half()),
        lambda x, y: (x * y, (x.float() * y.float()).half().t()),
        lambda x, y: (x * y, (x.float() * y.float()).half()[1:3], (x.float() * y.float()).half()),
    ],
)
def test_results_that_become_one_value_are_all_there(function):
    """Products of fp16 in f32 run as fp16, after which CSE makes them one operation."""
    x, y = torch.randn(5, 64).half(), torch.randn(5, 64).half()
    for one, other in zip(spyre_mlir.compile(function, (x, y))(x, y), function(x, y), strict=True):
        assert torch.equal(one, other)


def test_a_layer_norm_is_as_exact_with_its_statistics():
    """Eager tensors of the device, and compilers, call the operation that returns mean and deviation."""
    x = _inputs("small spread", (3, 43))
    native = torch.ops.aten.native_layer_norm
    made = spyre_mlir.compile(lambda x: native(x, [43], None, None, 1e-5), (x,))(x)
    for one, other in zip(made, native(x.double(), [43], None, None, 1e-5), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2e-3, atol=2e-3)
