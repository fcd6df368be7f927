# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch operations one by one, as models use them: name -> factory of (fp16 module, inputs).

``CASES`` are operations and layers as models write them, ``SAMPLES`` (op_samples.py) operations on random shapes.
Every factory seeds torch by its name, as in programs.py, whose ``check_close`` is the tolerance here, too.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from programs import Apply, GeluMlp, Program, SwiGlu, _rmsnorm_by_hand, rotary_tables, rotate
from torch import Tensor, nn

CASES: dict[str, Callable[[], Program]] = {}

#: An input: the shape of normal numbers, or a function that makes the input.
Input = tuple[int, ...] | Callable[[], Tensor]


def program(name: str, make_model: Callable[[], Any], inputs: tuple[Input, ...]) -> Program:
    """Return a seeded model in fp16 with its inputs; floating-point inputs are fp16, other inputs are unchanged."""
    torch.manual_seed(zlib.crc32(name.encode()))
    model = make_model()
    module = model if isinstance(model, nn.Module) else Apply(model)
    made = [torch.randn(each) if isinstance(each, tuple) else each() for each in inputs]
    return module.eval().half(), tuple(x.half() if x.is_floating_point() else x for x in made)


def _module(name: str, make_model: Callable[[], Any], *inputs: Input) -> None:
    CASES[name] = lambda: program(name, make_model, inputs)


def _function(name: str, function: Callable, *inputs: Input) -> None:
    _module(name, lambda: function, *inputs)


def positive(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.rand(shape) * 1.5 + 0.5


def distinct(*shape: int) -> Callable[[], Tensor]:
    """Numbers without ties: which of two equal ones is first is nobody's business."""

    def make() -> Tensor:
        count = int(torch.tensor(shape).prod())
        return (torch.randperm(count).float() - count // 2).reshape(shape) / 16

    return make


def indices(limit: int, *shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randint(0, limit, shape)


def different_indices(limit: int, count: int) -> Callable[[], Tensor]:
    return lambda: torch.randperm(limit)[:count]


def booleans(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.rand(shape) > 0.4


def small_integers(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randint(-100, 100, shape, dtype=torch.int8)


def _softmaxes_and_norms() -> None:
    _function("softmax_dim0", lambda x: torch.softmax(x, 0), (33, 65))
    _function("softmax_dimm1", lambda x: torch.softmax(x, -1), (33, 65))
    _function(
        "softmax_dimm1_f32acc", lambda x: torch.softmax(x, -1, dtype=torch.float32).to(x.dtype), (33, 65)
    )
    _function("softmax_manual", _softmax_by_hand, (33, 65))
    _function("log_softmax", lambda x: torch.log_softmax(x, -1), (33, 65))
    _function("logsumexp", lambda x: torch.logsumexp(x, -1), (33, 65))
    _module("layernorm", lambda: nn.LayerNorm(128), (2, 17, 128))
    _module("nn_rmsnorm", lambda: nn.RMSNorm(128, eps=1e-6), (2, 17, 128))
    _function("hf_rmsnorm", _rmsnorm_by_hand, (2, 17, 128), (128,))
    _function(
        "rmsnorm_fp16",
        lambda x, w: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-3) * w,
        (2, 17, 128),
        (128,),
    )
    _module("batchnorm_eval", _trained_batch_norm, (2, 16, 9, 9))
    _module("groupnorm", lambda: nn.GroupNorm(4, 16), (2, 16, 9, 9))


def _softmax_by_hand(x: Tensor) -> Tensor:
    e = torch.exp(x - x.max(-1, keepdim=True).values)
    return e / e.sum(-1, keepdim=True)


def _trained_batch_norm() -> nn.Module:
    norm = nn.BatchNorm2d(16)
    norm.running_mean, norm.running_var = torch.randn(16), torch.rand(16) + 0.5
    return norm


def _matmuls() -> None:
    _module("linear_bias", lambda: nn.Linear(64, 130), (2, 17, 64))
    _module("linear_nobias", lambda: nn.Linear(64, 130, bias=False), (2, 17, 64))
    _module("linear_2d", lambda: nn.Linear(65, 130), (17, 65))
    _function("mm", torch.mm, (33, 65), (65, 130))
    _function("bmm", torch.bmm, (3, 33, 65), (3, 65, 34))
    _function("matmul_4d", torch.matmul, (2, 3, 17, 64), (2, 3, 64, 33))
    _function("matmul_4d_t", lambda a, b: a @ b.transpose(-1, -2), (2, 3, 17, 64), (2, 3, 33, 64))
    _function("matmul_bcast", torch.matmul, (2, 3, 17, 64), (64, 33))
    _function("mv", torch.mv, (33, 65), (65,))
    _function(
        "einsum_bhqd", lambda q, k: torch.einsum("bqhd,bkhd->bhqk", q, k), (2, 17, 3, 64), (2, 33, 3, 64)
    )
    _function("int_mm_i8", torch._int_mm, small_integers(32, 64), small_integers(64, 40))
    _function("linear_f32acc", lambda x, w: (x.float() @ w.float().T).to(x.dtype), (17, 64), (65, 64))
    _function(
        "baddbmm",
        lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=2),
        (3, 17, 33),
        (3, 17, 64),
        (3, 64, 33),
    )
    _function("outer_kron", lambda x, y: (torch.outer(x, y), torch.kron(x, y)), (17,), (65,))


class GeluTanhMlp(GeluMlp):
    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Experts(nn.Module):
    """Experts of one matrix each, mixed by ``route`` from the scores of a router."""

    def __init__(self, route: Callable[[Tensor], Tensor], hidden: int = 64, experts: int = 4) -> None:
        super().__init__()
        self.route, self.router = route, nn.Linear(hidden, experts, bias=False)
        self.weights = nn.Parameter(torch.randn(experts, hidden, hidden) / 8)

    def forward(self, x: Tensor) -> Tensor:
        gates = self.route(self.router(x))
        return (torch.einsum("th,ehf->tef", x, self.weights) * gates.unsqueeze(-1)).sum(1)


def _scattered_gates(scores: Tensor) -> Tensor:
    values, chosen = scores.topk(2, -1)
    return torch.zeros_like(scores).scatter(-1, chosen, values.softmax(-1))


def _one_hot_gates(scores: Tensor) -> Tensor:
    values, chosen = scores.topk(2, -1)
    return (F.one_hot(chosen, scores.shape[-1]).to(scores.dtype) * values.softmax(-1).unsqueeze(-1)).sum(-2)


class LoopedExperts(Experts):
    """Every expert computes the tokens that chose it: how many is known only when it runs."""

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.router(x).argmax(-1)
        result = torch.zeros_like(x)
        for expert, weight in enumerate(self.weights):
            (rows,) = torch.where(chosen == expert)
            result = result.index_add(0, rows, x[rows] @ weight)
        return result


def _mlps_and_experts() -> None:
    _module("gelu_mlp", lambda: GeluMlp(64, 130), (17, 64))
    _module("gelu_tanh_mlp", lambda: GeluTanhMlp(64, 130), (17, 64))
    _module("swiglu_mlp", lambda: SwiGlu(64, 130), (17, 64))
    _module("moe_dense", lambda: Experts(lambda scores: scores.softmax(-1)), (17, 64))
    _module("moe_topk_scatter", lambda: Experts(_scattered_gates), (17, 64))
    _module("moe_topk_onehot", lambda: Experts(_one_hot_gates), (17, 64))
    _module("moe_dynamic_where", lambda: LoopedExperts(torch.sigmoid), (17, 64))
    for implementation in ("eager", "batched_mm", "grouped_mm"):
        _module(
            f"hf_mixtral_moe_{implementation}",
            lambda implementation=implementation: _mixtral_experts(implementation),
            (1, 17, 64),
        )


def _mixtral_experts(implementation: str) -> nn.Module:
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    configuration = MixtralConfig(
        hidden_size=64, intermediate_size=96, num_local_experts=4, num_experts_per_tok=2
    )
    configuration._experts_implementation = implementation
    return _InDoubleBatched(_initialised(MixtralSparseMoeBlock(configuration)))


class _InDoubleBatched(nn.Module):
    """Experts whose reference in float64 takes the only implementation that PyTorch has for it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Any:
        return self.model(x)

    def double(self) -> nn.Module:
        for module in self.modules():
            if hasattr(module, "config"):
                module.config._experts_implementation = "batched_mm"
        return super().double()


def _initialised(module: nn.Module) -> nn.Module:
    """With numbers in parameters that a class leaves as memory was."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape) / 8)
    return module


def _attention_by_hand(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -1e4)
    return scores.softmax(-1) @ v


class FusedAttention(nn.Module):
    def __init__(self, hidden: int = 64, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))


def _attention() -> None:
    sdpa = F.scaled_dot_product_attention
    heads = ((1, 2, 17, 64),) * 3
    grouped = ((1, 4, 17, 64), (1, 2, 17, 64), (1, 2, 17, 64))
    _function("sdpa", sdpa, *heads)
    _function("sdpa_causal", lambda q, k, v: sdpa(q, k, v, is_causal=True), *heads)
    _function("sdpa_gqa", lambda q, k, v: sdpa(q, k, v, enable_gqa=True), *grouped)
    _function("sdpa_mask_bool", lambda q, k, v, m: sdpa(q, k, v, attn_mask=m), *heads, booleans(17, 17))
    _function("sdpa_mask_float", lambda q, k, v, m: sdpa(q, k, v, attn_mask=m), *heads, (17, 17))
    _function("attn_manual", _attention_by_hand, *heads)
    _function("attn_manual_causal", lambda q, k, v: _attention_by_hand(q, k, v, causal=True), *heads)
    _module("mha_fused_qkv", FusedAttention, (2, 17, 64))
    _module("nn_multihead_attention", _MultiheadAttention, (2, 17, 64))


class _MultiheadAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


def _table(which: int, sequence: int = 17, dim: int = 32) -> Callable[[], Tensor]:
    return lambda: rotary_tables(sequence, dim)[which]


def _rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of neighbours, not of halves."""
    even, odd = x[..., ::2], x[..., 1::2]
    c, s = cos[..., ::2], sin[..., ::2]
    return torch.stack((even * c - odd * s, even * s + odd * c), -1).flatten(-2)


def _rotate_complex(x: Tensor, angle: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous())
    turned = pairs * torch.polar(torch.ones_like(angle.float()), angle.float())
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)


def _rotate_by_position(x: Tensor, position: Tensor) -> Tensor:
    frequency = 10000.0 ** (-torch.arange(0, x.shape[-1], 2, dtype=torch.float32) / x.shape[-1])
    angle = torch.cat((position[:, None].float() * frequency,) * 2, -1)
    return rotate(x, angle.cos().to(x.dtype), angle.sin().to(x.dtype))


def _rotary() -> None:
    x = (1, 2, 17, 32)
    _function("rotary_half", rotate, x, _table(0), _table(1))
    _function("rotary_interleaved", _rotate_pairs, x, _table(0), _table(1))
    _function("rotary_complex", _rotate_complex, x, positive(17, 16))
    _function("rotary_compute_cos", _rotate_by_position, x, indices(100, 17))


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def _put(cache: Tensor, position: Tensor, new: Tensor) -> Tensor:
    cache = cache.clone()
    cache[:, :, position] = new
    return cache


def _write_in_place(q: Tensor, new: Tensor, cache: Tensor, position: Tensor) -> Tensor:
    cache.index_copy_(2, position, new)
    return _attend(q, cache, cache)


class _CacheBuffer(nn.Module):
    cache: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.randn(1, 2, 33, 64))

    def forward(self, q: Tensor, new: Tensor, position: Tensor) -> Tensor:
        return _write_in_place(q, new, self.cache, position)


def _decoding() -> None:
    one, cache, position = (1, 2, 1, 64), (1, 2, 33, 64), indices(33, 1)
    _function(
        "decode_index_copy",
        lambda q, n, c, p: (kv := c.index_copy(2, p, n), _attend(q, kv, kv)),
        one, one, cache, position,
    )  # fmt: skip
    _function(
        "decode_index_put", lambda q, n, c, p: _attend(q, *(_put(c, p, n),) * 2), one, one, cache, position
    )
    _function(
        "decode_where",
        lambda q, n, c, p: _attend(q, *(torch.where(torch.arange(33)[:, None] == p, n, c),) * 2),
        one, one, cache, position,
    )  # fmt: skip
    _function("decode_cat", lambda q, n, c: (kv := torch.cat((c, n), 2), _attend(q, kv, kv)), one, one, cache)
    _function(
        "decode_slice_scatter",
        lambda q, n, c: (kv := torch.slice_scatter(c, n, 2, 20, 21), _attend(q, kv, kv)),
        one, one, cache,
    )  # fmt: skip
    _function("decode_inplace_inputs", _write_in_place, one, one, cache, position)
    _module("decode_inplace_buffer", _CacheBuffer, one, one, position)


def _elementwise() -> None:
    wide, other = (33, 65), (33, 65)
    _function("add_bias", torch.add, wide, (65,))
    _function("add_scalar", lambda x: x + 0.5, wide)
    _function("relu_sigmoid_tanh", lambda x: torch.relu(x) + torch.sigmoid(x) * torch.tanh(x), wide)
    _function(
        "exp_log_sqrt_rsqrt",
        lambda x: (torch.exp(x), torch.log(x), torch.sqrt(x), torch.rsqrt(x)),
        positive(33, 65),
    )
    _function("silu", F.silu, wide)
    _function("gelu_erf", F.gelu, wide)
    _function("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), wide)
    _function("softplus_mish", lambda x: (F.softplus(x), F.mish(x)), wide)
    _function("clamp_where_cmp", lambda x, y: torch.where(x > y, x.clamp(-0.5, 0.75), y), wide, other)
    _function("pow2_pow3_powf", lambda x: (x**2, x**3, x**1.5), positive(33, 65))
    _function("masked_fill", lambda x, m: x.masked_fill(m, -3.0), wide, booleans(33, 65))
    _function("tril_triu", lambda x: torch.tril(x) + 2 * torch.triu(x, 1), (65, 65))
    _function("dropout_eval", lambda x: F.dropout(x, 0.5, training=False) * 2, wide)
    _function("dropout_train", _what_any_draw_gives, wide)
    _function("cast_f32", lambda x: x.float() * 1.5, wide)
    _function("cast_int", lambda x: (x.to(torch.int32), x.to(torch.int64)), wide)
    _function("cast_i8_roundtrip", lambda x: (x * 20).to(torch.int8).to(x.dtype) / 20, wide)


def _what_any_draw_gives(x: Tensor) -> tuple[Tensor, Tensor]:
    """Zeros, if each element was dropped or doubled; and whether about half of them were dropped."""
    y = F.dropout(x, 0.5, training=True)
    return y * (y - 2 * x), ((y == 0).to(torch.float32).mean() - 0.5).abs() < 0.1


def _reductions() -> None:
    cube = (3, 17, 65)
    _function("sum_mean_dims", lambda x: (x.sum(0), x.mean((0, 2)), x.sum(-1, keepdim=True)), cube)
    _function("amax_amin", lambda x: (x.amax(-1), x.amin(1)), cube)
    _function("max_dim_argmax", lambda x: (*x.max(-1), x.argmax(0)), distinct(17, 33))
    _function("var_std", lambda x: (x.var(-1), x.std(0, correction=0)), (33, 65))
    _function("cumsum", lambda x: x.cumsum(-1), (17, 33))
    _function("cumsum_i64", lambda x: x.cumsum(0), indices(50, 17, 33))
    _function("cumprod", lambda x: x.cumprod(-1), positive(7, 9))
    _function("topk", lambda x: x.topk(3, -1), distinct(17, 65))
    _function("sort", lambda x: x.sort(-1), distinct(7, 33))
    _function("argsort", lambda x: x.argsort(-1, descending=True), distinct(7, 33))
    _function("searchsorted", torch.searchsorted, lambda: torch.sort(torch.randn(33))[0], (17,))


def _gathers() -> None:
    x = (33, 65)
    _function("gather_op", lambda x, i: x.gather(1, i), x, indices(65, 33, 7))
    _function("scatter_op", lambda x, i, s: x.scatter(1, i, s), x, _columns(33, 7, 65), (33, 7))
    _function("scatter_add", lambda x, i, s: x.scatter_add(1, i, s), x, _columns(33, 7, 65), (33, 7))
    _function("index_select", lambda x, i: x.index_select(0, i), x, indices(33, 9))
    _function("index_tensor", lambda x, i: x[i], x, indices(33, 3, 5))
    _function("index_put", lambda x, i, s: x.index_put((i,), s), x, different_indices(33, 5), (5, 65))
    _function("index_add", lambda x, i, s: x.index_add(0, i, s), x, different_indices(33, 5), (5, 65))
    _function("take_along", lambda x, i: torch.take_along_dim(x, i, 1), x, indices(65, 33, 1))
    _module("embedding", lambda: nn.Embedding(100, 64), indices(100, 2, 17))
    _function("one_hot", lambda i: F.one_hot(i, 10), indices(10, 17))
    _function("nonzero", lambda x: x.nonzero(), booleans(7, 9))
    _function("masked_select", lambda x: x[x > 0], x)
    _module("embed_lm_head", EmbedAndHead, indices(100, 2, 17))


def _columns(rows: int, count: int, limit: int) -> Callable[[], Tensor]:
    """Different columns in each row, so that the order of writes does not matter."""
    return lambda: torch.stack([torch.randperm(limit)[:count] for _ in range(rows)])


class EmbedAndHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(100, 64), nn.RMSNorm(64, eps=1e-5)
        self.head = nn.Linear(64, 100, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.embedding(tokens)))


def _data_movement() -> None:
    x, cube = (33, 65), (3, 17, 65)
    _function("slice_basic", lambda x: x[3:20, 5:40] * 2, x)
    _function("slice_step", lambda x: (x[::2] * 2, x[:, 1::3]), x)
    _function("slice_neg", lambda x: x[-5:, :-3] + 1, x)
    _function("select_narrow", lambda x: x.select(1, 3) + x.narrow(0, 1, 1).select(1, 2), cube)
    _function("concat0", lambda x, y: torch.cat((x, y), 0), x, (5, 65))
    _function("concat1", lambda x, y: torch.cat((x, y), 1), x, (33, 7))
    _function("stack", lambda x, y: torch.stack((x, y), 1), x, x)
    _function("split_chunk", lambda x: [2 * part for part in (*x.split([20, 45], 1), *x.chunk(3, 0))], x)
    _function("pad_const", lambda x: (F.pad(x, (1, 2, 3, 0), value=1.5), F.pad(x, (-2, 3))), x)
    _function("pad_reflect", lambda x: F.pad(x, (2, 3), mode="reflect"), x)
    _function("transpose2d", lambda x: x.T * 2, x)
    _function("transpose_contig", lambda x: x.transpose(1, 2).contiguous(), cube)
    _function("permute4d", lambda x: x.permute(0, 2, 3, 1) + 1, (2, 3, 5, 65))
    _function("view_split_heads", lambda x: x.view(2, 17, 2, 32).transpose(1, 2) * 2, (2, 17, 64))
    _function("reshape_through_transpose", lambda x: x.transpose(0, 1).reshape(-1), x)
    _function("reshape_mix", lambda x: x.reshape(4, 3, 8, 5).permute(1, 0, 3, 2).reshape(12, 40), (24, 20))
    _function("flatten_unflatten", lambda x: x.flatten().unflatten(0, (17, -1)) * 2, (3, 17, 10))
    _function("unsqueeze_expand", lambda x: x.unsqueeze(1).expand(-1, 3, -1).contiguous(), x)
    _function("repeat", lambda x: x.repeat(2, 3), x)
    _function("repeat_interleave", lambda x: x.repeat_interleave(3, 0), x)
    _function("flip_roll", lambda x: (x.flip(0), x.flip(1), x.roll(3, 0), x.roll((1, -2), (0, 1))), x)
    _function("as_strided_window", lambda x: x.unfold(0, 4, 2) * 2, (33,))
    _function("arange_iota", lambda x: x + torch.arange(65, dtype=x.dtype), x)


def _control_flow() -> None:
    from torch._higher_order_ops import scan, while_loop
    from torch.utils.checkpoint import checkpoint

    _function(
        "cond_hop",
        lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y * 2, (x,)),
        (17, 65),
    )
    _function(
        "while_loop_hop",
        lambda x: while_loop(
            lambda i, y: i < 3, lambda i, y: (i + 1, y * 0.5), (torch.zeros((), dtype=torch.int64), x)
        ),
        (17, 65),
    )
    _function(
        "scan_hop",
        lambda x: scan(lambda carry, row: (carry + row, (carry + row).clone()), torch.zeros_like(x[0]), x),
        (7, 65),
    )
    _module("checkpoint_hop", lambda: _Checkpointed(checkpoint), (17, 64))


def _zero() -> Tensor:
    return torch.zeros((), dtype=torch.int64)


class _Checkpointed(nn.Module):
    def __init__(self, checkpoint: Callable) -> None:
        super().__init__()
        self.checkpoint, self.linear = checkpoint, nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.checkpoint(lambda y: torch.tanh(self.linear(y)), x, use_reentrant=False)


class BasicBlock(nn.Module):
    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)])
        same = stride == 1 and channels_in == channels
        self.shortcut = nn.Identity() if same else nn.Conv2d(channels_in, channels, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """A ResNet-18 of width 16, for 32 x 32 pixels."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.norm, self.pool = nn.BatchNorm2d(width), nn.MaxPool2d(3, 2, 1)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        blocks = []
        for before, after in itertools.pairwise(widths):
            blocks += [BasicBlock(before, after, 1 if before == after else 2), BasicBlock(after, after, 1)]
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(8 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = self.blocks(self.pool(torch.relu(self.norm(self.stem(x)))))
        return self.head(F.adaptive_avg_pool2d(y, 1).flatten(1))


def _convolutions() -> None:
    image = (1, 16, 9, 11)
    _module("conv2d_3x3", lambda: nn.Conv2d(16, 24, 3, padding=1), image)
    _module("conv2d_s2_dil", lambda: nn.Conv2d(16, 24, 3, stride=2, padding=2, dilation=2), image)
    _module("conv2d_depthwise", lambda: nn.Conv2d(16, 16, 3, padding=1, groups=16), image)
    _module("conv2d_grouped", lambda: nn.Conv2d(16, 24, 3, padding=1, groups=4), image)
    _module(
        "conv1d_causal",
        lambda: nn.Sequential(nn.ConstantPad1d((3, 0), 0.0), nn.Conv1d(16, 24, 4)),
        (2, 16, 17),
    )
    _function("maxpool2d", lambda x: F.max_pool2d(x, 3, 2, 1), image)
    _function("avgpool_adaptive", lambda x: (F.adaptive_avg_pool2d(x, 1), F.avg_pool2d(x, 2)), image)
    _function("interpolate_nearest", lambda x: F.interpolate(x, scale_factor=2), image)
    _function(
        "interpolate_bilinear",
        lambda x: F.interpolate(x, size=(13, 20), mode="bilinear", align_corners=False),
        image,
    )
    _module("resnet18_w16", ResNet18, (1, 3, 32, 32))


_SIZES: dict[str, Any] = dict(
    vocab_size=100, hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=1, max_position_embeddings=64,
)  # fmt: skip


class _Hidden(_InDoubleBatched):
    """A model of transformers that returns its hidden states only."""

    def forward(self, x: Tensor) -> Tensor:
        cached = {"use_cache": False} if self.model.config.model_type in _CACHING else {}
        return self.model(x, return_dict=False, **cached)[0]


_CACHING = {"llama", "granite", "qwen3", "gpt2", "mixtral", "granitemoe", "mamba"}


def _transformers(kind: str, attention: str | None, **sizes: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        configuration = getattr(transformers, kind + "Config")(**sizes)
        if attention is not None:
            configuration._attn_implementation = attention
        class_name = {"T5": "T5EncoderModel"}.get(kind, kind + "Model")
        return _Hidden(getattr(transformers, class_name)(configuration))

    return make


def _hugging_face() -> None:
    tokens = indices(100, 1, 17)
    gpt2 = dict(vocab_size=100, n_embd=64, n_layer=1, n_head=2, n_positions=64)
    vit = dict(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=32,
        patch_size=8,
    )
    for attention in ("eager", "sdpa"):
        _module(f"hf_llama_{attention}", _transformers("Llama", attention, **_SIZES), tokens)
        _module(f"hf_granite_{attention}", _transformers("Granite", attention, **_SIZES), tokens)
        _module(f"hf_bert_{attention}", _transformers("Bert", attention, **_SIZES), tokens)
        _module(f"hf_vit_{attention}", _transformers("ViT", attention, **vit), (1, 3, 32, 32))
        _module(f"hf_gpt2_{attention}", _transformers("GPT2", attention, **gpt2), tokens)
    _module("hf_qwen3_sdpa", _transformers("Qwen3", "sdpa", head_dim=32, **_SIZES), tokens)
    experts = dict(num_local_experts=4, num_experts_per_tok=2)
    _module("hf_mixtral_sdpa", _transformers("Mixtral", "sdpa", **experts, **_SIZES), tokens)
    _module("hf_granitemoe_sdpa", _transformers("GraniteMoe", "sdpa", **experts, **_SIZES), tokens)
    mamba = dict(vocab_size=100, hidden_size=64, num_hidden_layers=1, state_size=8)
    _module("hf_mamba", _transformers("Mamba", None, **mamba), indices(100, 1, 7))
    t5 = dict(vocab_size=100, d_model=64, d_kv=32, d_ff=96, num_layers=1, num_heads=2)
    _module("hf_t5_encoder", _transformers("T5", None, **t5), tokens)
    _module("hf_clip_vision", _transformers("CLIPVision", "sdpa", **vit), (1, 3, 32, 32))


def _llama_block() -> None:
    from programs import LlamaBlock

    _module("hand_llama_block", lambda: LlamaBlock(128, 17, 2, 1, 192), (1, 17, 128))


for _group in (
    _softmaxes_and_norms, _matmuls, _mlps_and_experts, _attention, _rotary, _decoding, _elementwise, _reductions,
    _gathers, _data_movement, _control_flow, _convolutions, _llama_block, _hugging_face,
):  # fmt: skip
    _group()
