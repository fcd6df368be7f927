# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The programs that the end-to-end tests compile: name -> factory of (fp16 module, fp16 inputs).

Every factory seeds torch by the program's name, so a program is the same in every process and order.
``check_close`` is the one tolerance: four times PyTorch's own fp16 error against float64.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spyre_mlir.zoo.blocks import AppliedFunction as Apply
from spyre_mlir.zoo.blocks import GeluMlp, LlamaBlock, Program, SwiGlu, rotary_tables, rotate

PROGRAMS: dict[str, Callable[[], Program]] = {}


def _register(name: str, make: Callable[[], tuple[nn.Module | Callable, Sequence[Tensor]]]) -> None:
    def factory() -> Program:
        torch.manual_seed(zlib.crc32(name.encode()))
        model, inputs = make()
        module = model if isinstance(model, nn.Module) else Apply(model)
        return module.eval().half(), tuple(x.half() if x.is_floating_point() else x for x in inputs)

    PROGRAMS[name] = factory


def _function(name: str, function: Callable, *shapes: tuple[int, ...], positive: bool = False) -> None:
    """A program of a function and the shapes of its inputs: normal, or uniform in [0.5, 2] numbers."""

    def make():
        return function, [torch.rand(s) * 1.5 + 0.5 if positive else torch.randn(s) for s in shapes]

    _register(name, make)


def _columns(x: Tensor, index: Tensor) -> Tensor:
    return x.index_select(1, index) * 2


def _module(name: str, make_module: Callable[[], nn.Module], *shapes: tuple[int, ...]) -> None:
    _register(name, lambda: (make_module(), [torch.randn(shape) for shape in shapes]))


def _softmaxes() -> None:
    for dim in (0, -1):
        suffix = "0" if dim == 0 else "last"
        _function(f"softmax_dim_{suffix}_512x1024", lambda x, dim=dim: torch.softmax(x, dim), (512, 1024))
        for shape in ((63, 65), (64, 64), (1, 65), (65, 1)):
            name = f"softmax_dim_{suffix}_{shape[0]}x{shape[1]}"
            _function(name, lambda x, dim=dim: torch.softmax(x, dim), shape)
    _function("softmax_dim_1_of_3", lambda x: torch.softmax(x, 1), (3, 65, 66))
    _function("log_softmax_last", lambda x: torch.log_softmax(x, -1), (65, 130))
    _function("log_softmax_dim_0", lambda x: torch.log_softmax(x, 0), (63, 64))


def _blocks() -> None:
    _module("layernorm", lambda: nn.LayerNorm(128), (65, 128))
    _module("layernorm_odd", lambda: nn.LayerNorm(65), (2, 7, 65))
    _module("layernorm_plain", lambda: nn.LayerNorm(64, elementwise_affine=False), (63, 64))
    _module("rmsnorm", lambda: nn.RMSNorm(128, eps=1e-5), (65, 128))
    _module("rmsnorm_odd", lambda: nn.RMSNorm(63), (2, 7, 63))
    _module("gelu_mlp", lambda: GeluMlp(64, 256), (33, 64))
    _module("swiglu_mlp", lambda: SwiGlu(64, 192), (1, 33, 64))
    _module("linear_bias", lambda: nn.Linear(67, 130), (3, 5, 67))
    _module("batchnorm", lambda: nn.BatchNorm1d(65), (33, 65))
    _module("llama_block", lambda: LlamaBlock(512, 128, 8, 4, 1024), (1, 128, 512))
    _module("llama_block_small", lambda: LlamaBlock(128, 33, 2, 1, 192), (1, 33, 128))


def _attention() -> None:
    sdpa = F.scaled_dot_product_attention
    shapes = ((1, 2, 65, 64), (1, 2, 66, 64), (1, 2, 66, 64))
    _function("sdpa", sdpa, *shapes)
    _function("sdpa_causal", lambda q, k, v: sdpa(q, k, v, is_causal=True), *shapes)
    _function("sdpa_scale", lambda q, k, v: sdpa(q, k, v, scale=0.25), *shapes)
    grouped = ((1, 4, 33, 64), (1, 2, 65, 64), (1, 2, 65, 64))
    _function("sdpa_grouped", lambda q, k, v: sdpa(q, k, v, enable_gqa=True), *grouped)
    _register("sdpa_mask_bool", lambda: (_masked(sdpa), [*map(torch.randn, shapes), _bool_mask(65, 66)]))
    _register("sdpa_mask_float", lambda: (_masked(sdpa), [*map(torch.randn, shapes), torch.randn(65, 66)]))
    _register(
        "sdpa_mask_constant", lambda: (_ConstantMask(_bool_mask(65, 66)), [torch.randn(s) for s in shapes])
    )


def _masked(sdpa: Callable) -> Callable:
    return lambda q, k, v, mask: sdpa(q, k, v, attn_mask=mask)


def _bool_mask(rows: int, columns: int) -> Tensor:
    """A random mask whose row 3 sees nothing."""
    mask = torch.rand(rows, columns) > 0.4
    mask[3] = False
    return mask


class _ConstantMask(nn.Module):
    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)


def _matmuls() -> None:
    _function("matmul_67x71x256", torch.matmul, (67, 71), (71, 256))
    _function("matmul_1x4096x11", torch.matmul, (1, 4096), (4096, 11))
    _function("matmul_3x65x130x64", torch.matmul, (3, 65, 130), (3, 130, 64))
    _function("matmul_3d_2d", torch.matmul, (3, 65, 64), (64, 63))
    _function("matmul_4d", torch.matmul, (2, 3, 33, 64), (2, 3, 64, 65))
    _function("matmul_transposed", lambda a, b: a @ b.T, (65, 64), (63, 64))
    _function("matmul_bias", lambda a, b, c: torch.addmm(c, a, b), (33, 65), (65, 64), (64,))
    _function("matmul_vector", torch.matmul, (65, 130), (130,))


def _reductions() -> None:
    kinds = {"sum": torch.sum, "amax": torch.amax, "amin": torch.amin, "mean": torch.mean}
    cases = (
        ("0", (63, 65), (0,)), ("1", (65, 63), (1,)), ("all", (64, 65), (0, 1)), ("1_of_1", (65, 1), (1,)),
        ("0_of_1", (1, 64), (0,)), ("0_of_3", (3, 65, 64), (0,)), ("1_of_3", (2, 63, 65), (1,)),
        ("2_of_3", (2, 63, 65), (2,)), ("0_2_of_3", (3, 5, 65), (0, 2)), ("all_of_3", (3, 5, 65), (0, 1, 2)),
    )  # fmt: skip
    for kind, reduce in kinds.items():
        for suffix, shape, dims in cases:
            _function(f"{kind}_{suffix}", lambda x, reduce=reduce, dims=dims: reduce(x, dim=dims), shape)
        keep = f"{kind}_keepdim"
        _function(keep, lambda x, reduce=reduce: x - reduce(x, dim=(-1,), keepdim=True), (65, 130))
    _function("sum_whole", torch.sum, (64, 65))
    _function("mean_whole", torch.mean, (64, 65))
    _function("var_last", lambda x: torch.var(x, -1), (33, 65))
    _function("std_dim_0", lambda x: torch.std(x, 0, correction=0), (33, 65))


def _elementwise() -> None:
    unary = {
        "exp": torch.exp, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "silu": F.silu, "relu": torch.relu,
        "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "abs": torch.abs,
        "neg": torch.neg, "clamp": lambda x: torch.clamp(x, -0.5, 0.75),
        "clamp_min": lambda x: torch.clamp(x, min=0.25), "pow_2": lambda x: x**2,
        "add_scalar": lambda x: x + 0.5, "rsub_scalar": lambda x: 1 - x, "mul_scalar": lambda x: x * 3,
        "div_scalar": lambda x: x / 7, "square": torch.square, "relu6": F.relu6, "leaky_relu": F.leaky_relu,
        "softplus": F.softplus, "mish": F.mish, "floor": torch.floor, "clone": torch.clone,
        "where_scalar": lambda x: torch.where(x > 0.25, x, 0.0),
    }  # fmt: skip
    for name, function in unary.items():
        _function(name, function, (65, 130))
    for name in ("log", "sqrt", "rsqrt", "reciprocal"):
        _function(name, getattr(torch, name), (65, 130), positive=True)
    for name in ("add", "sub", "mul", "maximum", "minimum"):
        _function(name, getattr(torch, name), (63, 65), (63, 65))
    _function("div", torch.div, (63, 65), (63, 65), positive=True)
    for name in ("gt", "ge", "lt", "le", "eq", "ne"):
        compare = getattr(torch, name)
        _function(
            f"where_{name}", lambda x, y, compare=compare: torch.where(compare(x, y), x, y * 2), (65,), (65,)
        )
    _function("compare_to_half", lambda x, y: (x > y).half() * x, (65, 64), (65, 64))
    _function("logical_and", lambda x, y: torch.where((x > 0) & (y > 0), x, y), (65, 64), (65, 64))


def _broadcasts() -> None:
    _function("add_row", torch.add, (65, 130), (130,))
    _function("add_column", torch.add, (65, 130), (65, 1))
    _function("mul_outer", torch.mul, (65, 1), (1, 66))
    _function("add_rank_3", torch.add, (3, 1, 65), (5, 1))
    _function("expand", lambda x: x.expand(5, 65) * 2, (1, 65))
    for size in (1, 63, 64, 65):
        _function(f"add_1d_{size}", torch.add, (size,), (size,))


def _data_movement() -> None:
    _function("transpose_2", lambda x: x.T.contiguous(), (65, 130))
    _function("transpose_3", lambda x: x.transpose(1, 2).contiguous(), (3, 65, 66))
    _function("permute_3", lambda x: x.permute(2, 0, 1).contiguous(), (3, 5, 65))
    _function("permute_4", lambda x: x.permute(0, 2, 1, 3).contiguous(), (2, 3, 5, 64))
    _function("transpose_4", lambda x: x.transpose(-1, -2) + 1, (2, 3, 33, 65))
    _function("slice_rows", lambda x: x[3:40] * 2, (65, 130))
    _function("slice_columns", lambda x: x[:, 64:128] * 2, (33, 192))
    _function("slice_odd", lambda x: x[:, 3:70] + x[:, 5:72], (33, 130))
    _function("slice_step", lambda x: x[::2] * 2, (33, 65))
    _function("select", lambda x: x[:, 1] + x[:, 2], (3, 5, 65))
    _function("chunk", lambda x: torch.mul(*x.chunk(2, -1)), (33, 128))
    _function("cat_rows", lambda x, y: torch.cat((x, y), 0), (3, 65), (5, 65))
    _function("cat_columns", lambda x, y: torch.cat((x, y), 1) * 2, (33, 64), (33, 65))
    _function("stack", lambda x, y: torch.stack((x, y)), (33, 65), (33, 65))
    _function("pad", lambda x: F.pad(x, (1, 2, 0, 3)), (33, 65))
    _function("pad_value", lambda x: F.pad(x, (0, 63), value=1.5) * 2, (33, 65))
    _function("split_heads", lambda x: x.view(2, 33, 3, 64).transpose(1, 2) * 2, (2, 33, 192))
    _function("merge_heads", lambda x: x.transpose(1, 2).flatten(-2) * 2, (2, 3, 33, 64))
    _function("flatten", lambda x: x.flatten() * 2, (3, 5, 65))
    _function("unsqueeze", lambda x: x.unsqueeze(1) * 2, (5, 65))
    _function("repeat_interleave", lambda x: x.repeat_interleave(2, dim=0) * 2, (3, 65))


def _constants_and_casts() -> None:
    _function("constant_tensor", lambda x: x + torch.arange(65, dtype=x.dtype), (33, 65))
    _function("constant_full", lambda x: x * torch.full((65,), 0.5, dtype=x.dtype), (33, 65))
    _function("constant_tril", lambda x: x * torch.tril(torch.ones(65, 65, dtype=x.dtype)), (65, 65))
    _function("cast_float", lambda x: (x.float() * 1.0009765625).half(), (33, 65))
    _function("cast_float_sum", lambda x: x.float().sum(-1).half(), (33, 65))
    _function("cast_float_exp", lambda x: torch.exp(x.float()).to(x.dtype), (33, 65))
    _function("rmsnorm_by_hand", _rmsnorm_by_hand, (33, 128), (128,))
    _register("embedding", lambda: (nn.Embedding(50, 100), [torch.randint(0, 50, (3, 7))]))
    _register("index_select", lambda: (_columns, [torch.randn(3, 20, 65), torch.randint(0, 20, (9,))]))
    _register("rotary", lambda: (rotate, [torch.randn(1, 2, 33, 64), *rotary_tables(33, 64)]))
    _function(
        "several_results", lambda x, y: {"sum": x + y, "none": None, "pair": (x * y, 3)}, (33, 65), (33, 65)
    )


def _rmsnorm_by_hand(x: Tensor, weight: Tensor) -> Tensor:
    """The RMS norm of Hugging Face: in float, rounded before the weight."""
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


for _group in (
    _softmaxes, _blocks, _attention, _matmuls, _reductions, _elementwise, _broadcasts, _data_movement,
    _constants_and_casts,
):  # fmt: skip
    _group()


def _leaves(value: Any) -> list[Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def _to_double(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


class _InDouble(torch.utils._python_dispatch.TorchDispatchMode):
    """Runs a program's own casts to 16 and 32 bits as casts to 64."""

    supports_higher_order_operators = True

    # Dynamo never compiles a function again that it has skipped for a mode, here the body of torch.cond in later tests.
    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        narrow = (torch.float16, torch.float32)
        args, kwargs = torch.utils._pytree.tree_map(
            lambda leaf: torch.float64 if isinstance(leaf, torch.dtype) and leaf in narrow else leaf,
            (args, kwargs or {}),
        )
        return operation(*args, **kwargs)


#: Of the largest value.
FLOOR = 1e-3
#: Of the random numbers of a model, as dropout draws them in each of the runs that are compared.
SEED = 0


def error_bound(
    model: nn.Module, inputs: Sequence[Tensor], floor: float = FLOOR
) -> list[tuple[Tensor, float]]:
    """For each result: its value in float64, and how far from it a 16-bit result may be; integers are exact."""
    with torch.no_grad():
        torch.manual_seed(SEED)
        own = _leaves(model(*inputs))
        torch.manual_seed(SEED)
        with _InDouble():
            exact = _leaves(copy.deepcopy(model).double()(*map(_to_double, inputs)))
    bounds = []
    for mine, reference in zip(own, exact, strict=True):
        if not mine.is_floating_point():
            bounds.append((mine.double(), 0.0))
            continue
        largest = reference.abs().max().item()
        own_error = (mine.double() - reference).abs().max().item()
        bounds.append((reference, max(4 * own_error, floor * largest)))
    return bounds


def check_close(
    name: str, got: Any, model: nn.Module, inputs: Sequence[Tensor], floor: float = FLOOR
) -> None:
    """Assert that the tensors or arrays in ``got`` are as good as PyTorch's own results, up to a factor 4."""
    results = [
        torch.as_tensor(np.asarray(x)) for x in torch.utils._pytree.tree_leaves(got) if hasattr(x, "shape")
    ]
    bounds = error_bound(model, inputs, floor)
    assert len(results) == len(bounds), f"{name}: {len(results)} results instead of {len(bounds)}"
    for index, (result, (reference, bound)) in enumerate(zip(results, bounds, strict=True)):
        assert result.shape == reference.shape, f"{name}: result {index} has the shape {tuple(result.shape)}"
        error = (result.double() - reference).abs().max().item()
        assert error <= bound, f"{name}: result {index} is off by {error:.3e}, more than {bound:.3e}"
