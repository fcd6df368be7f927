# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of random programs that work along dims: reductions, norms, scans, sorting, matmuls, windows, lookups."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from fuzz_operations import certain, no_nan, operation
from fuzz_programs import Draw, Value


def _dims(d: Draw, value: Value) -> str:
    count = d.rng.randint(1, value.rank)
    dims = d.rng.sample(range(value.rank), count)
    return str(dims[0] if count == 1 and d.chance(0.7) else dims)


@operation(3)
def reduction(d: Draw) -> None:
    value = d.floating((1, 4))
    if value is None:
        return
    dims, keep = _dims(d, value), d.rng.choice(("", ", keepdim=True"))
    one, order = d.dim(value), d.rng.choice(("1", "2", "3", "float('inf')"))
    text, exact = d.rng.choice((
        (f"{{0}}.sum({dims}{keep})", False), (f"{{0}}.mean({dims}{keep})", False),
        (f"{{0}}.amax({dims}{keep})", True), (f"{{0}}.amin({dims}{keep})", True), ("{0}.sum()", False),
        (f"{{0}}.std({dims}{keep})", False), (f"{{0}}.var({dims}, correction=0{keep})", False),
        (f"torch.logsumexp({{0}}, {dims}{keep})", False), ("{0}.mean()", False), ("{0}.max()", True),
        (f"{{0}}.prod({one}{keep})", False), (f"{{0}}.norm(dim={one}{keep})", False),
        (f"torch.linalg.vector_norm({{0}}, {order}, dim={dims})", False),
        (f"{{0}}.max({one}{keep}).values", True), (f"{{0}}.norm(1, {one})", False),
        (f"torch.aminmax({{0}}, dim={one}).max", True), (f"{{0}}.var({one})", False),
        (f"torch.var_mean({{0}}, {one})[1]", False), (f"{{0}}.nansum({one})", False),
        (f"{{0}}.count_nonzero({one})", False),
    ))  # fmt: skip
    if "count" in text and not value.certain:
        return
    d.emit(text, value, certain=exact)


@operation(3)
def softmax(d: Draw) -> None:
    value = d.floating((1, 4))
    if value is None:
        return
    dim = d.dim(value)
    masked = value
    if d.chance(0.3):
        mask = d.new(
            [value.shape[dim]] if dim % value.rank == value.rank - 1 else value.shape, value.dtype, "mask"
        )
        masked = d.emit("{0} + {1}", value, mask, certain=True)
    elif d.chance(0.2):
        condition = d.new(value.shape, "torch.bool")
        number = d.rng.choice(("-float('inf')", "-1e4"))
        masked = d.emit(f"{{0}}.masked_fill({{1}}, {number})", value, condition, certain=True)
    if masked is None:
        return
    text = d.rng.choice(("torch.softmax({0}, D)", "torch.softmax({0}, D)", "torch.log_softmax({0}, D)",
                         "F.softmin({0}, D)", "torch.softmax({0}, D, dtype=torch.float32)",
                         "torch.logcumsumexp({0}, D)"))  # fmt: skip
    d.emit(text.replace("D", str(dim)), masked)


@operation(3)
def norm(d: Draw) -> None:
    value = d.floating((2, 4))
    if value is None:
        return
    last = value.shape[-1:] if d.chance(0.7) else value.shape[-2:]
    choice = d.rng.random()
    if choice < 0.45:
        weights = [d.new(last, value.dtype) for _ in range(d.rng.randint(0, 2))]
        operands = "".join(f", {{{k + 1}}}" for k in range(len(weights)))
        d.emit(f"F.layer_norm({{0}}, {last}{operands})", value, *weights)
    elif choice < 0.65:
        weights = [d.new(last, value.dtype) for _ in range(d.rng.randint(0, 1))]
        epsilon = d.rng.choice(("", ", eps=1e-5" if weights else ", None, 1e-6"))
        d.emit(f"F.rms_norm({{0}}, {last}{', {1}' if weights else ''}{epsilon})", value, *weights)
    elif choice < 0.8:
        d.emit(f"F.normalize({{0}}, dim={d.dim(value)})", value)
    else:
        channels = value.shape[1]
        groups = d.rng.choice([n for n in range(1, channels + 1) if channels % n == 0] or [1])
        d.emit(d.rng.choice((f"F.group_norm({{0}}, {groups})", "F.instance_norm({0})")), value)


@operation(1.5)
def scan(d: Draw) -> None:
    value = d.floating((1, 3))
    if value is None:
        return
    dim = d.dim(value)
    d.emit(d.rng.choice((f"{{0}}.cumsum({dim})", f"{{0}}.cumsum({dim})", f"{{0}}.cummax({dim}).values",
                         f"{{0}}.clamp(-1, 1).cumprod({dim})", f"{{0}}.diff(dim={dim})",
                         f"torch.trapezoid({{0}}, dim={dim})")), value)  # fmt: skip


@operation(1.5)
def ordering(d: Draw) -> None:
    value = d.any(certain, no_nan, lambda v: not v.is_bool, rank=(1, 3))
    if value is None or not value.typed.numel():
        return
    dim = d.rng.randrange(value.rank)
    size = value.shape[dim]
    ordered = value.exact.double().sort(dim).values
    # Gradients by ties depend on their order, which only a stable sort defines.
    ties = bool((ordered.diff(dim=dim) == 0).any())
    texts = [f"{{0}}.sort(dim={dim}, stable=True).values",
             f"{{0}}.sort(dim={dim}, stable=True, descending=True).values",
             f"{{0}}.topk({min(3, size)}, {dim}).values", f"{{0}}.amax({dim})",
             f"{{0}}.sort({dim}, stable=True).indices", f"{{0}}.kthvalue({(size + 1) // 2}, {dim}).values"]  # fmt: skip
    if not ties:
        texts += [f"{{0}}.argmax({dim})", f"{{0}}.argmin({dim}, keepdim=True)", f"{{0}}.argsort({dim})",
                  f"{{0}}.topk({min(3, size)}, {dim}).indices", f"{{0}}.max({dim}).indices",
                  f"{{0}}.min({dim}).indices", f"{{0}}.median({dim}).values"]  # fmt: skip
    d.emit(d.rng.choice(texts), value, certain=True)


@operation(3)
def matmul(d: Draw) -> None:
    value = d.floating((1, 4))
    if value is None:
        return
    shape, size = value.shape, d.rng.choice((1, 2, 3, 8, 17, 32, 64, 65))
    if value.rank == 1:
        d.emit("{0} @ {1}", value, d.new([shape[0], size], value.dtype, "weights"))
        return
    choice = d.rng.random()
    if choice < 0.3:
        weight = d.new([size, shape[-1]], value.dtype, "weights")
        if d.chance(0.5):
            d.emit("F.linear({0}, {1}, {2})", value, weight, d.new([size], value.dtype))
        else:
            d.emit("F.linear({0}, {1})", value, weight)
    elif choice < 0.6:
        batch = shape[:-2] if d.chance(0.5) else []
        if d.chance(0.5):
            d.emit("{0} @ {1}", value, d.new([*batch, shape[-1], size], value.dtype, "weights"))
        else:
            d.emit("{1} @ {0}", value, d.new([*batch, size, shape[-2]], value.dtype, "weights"))
    elif choice < 0.75:
        d.emit("{0} @ {0}.mT", value)
    elif choice < 0.85 and value.rank == 2:
        other = d.new([shape[1], size], value.dtype, "weights")
        d.emit("torch.addmm({2}, {0}, {1})", value, other, d.new([size], value.dtype))
    elif choice < 0.9:
        d.emit("{0} @ {1}", value, d.new([shape[-1]], value.dtype, "weights"))
    elif value.rank == 3:
        sums = d.rng.choice(("bij,bkj->bik", "bij,bij->bi", "bij,bij->j"))
        d.emit(f"torch.einsum('{sums}', {{0}}, {{1}})", value, d.new(shape, value.dtype, "weights"))
    elif value.rank == 2:
        sums = d.rng.choice(("ij,ij->ji", "ij,kj->ik", "ij,kj->"))
        d.emit(f"torch.einsum('{sums}', {{0}}, {{1}})", value, d.new(shape, value.dtype, "weights"))


@operation(1.5)
def attention(d: Draw) -> None:
    heads, rows, keys, size = (
        d.rng.choice(s) for s in ((1, 2, 4), (1, 3, 17, 32), (1, 2, 16, 33), (4, 16, 33))
    )
    batch = d.rng.choice(([], [1], [2]))
    style = d.rng.choice(("normal", "normal", "large mean", "negative"))
    query = d.new([*batch, heads, rows, size], values=style)
    grouped = heads > 1 and len(batch) > 0 and d.chance(0.3)
    kind = d.rng.choice(("", "", "causal", "float", "bool"))
    keys = rows if kind == "causal" else keys
    key, value = (d.new([*batch, heads // 2 if grouped else heads, keys, size]) for _ in range(2))
    options = ", enable_gqa=True" if grouped else ""
    if d.chance(0.3):
        options += f", scale={d.rng.choice((0.1, 1.0))}"
    operands = [query, key, value]
    if kind == "causal":
        options += ", is_causal=True"
    elif kind:
        operands.append(
            d.new([rows, keys], "torch.bool") if kind == "bool" else d.new([rows, keys], values="mask")
        )
        options += ", attn_mask={3}"
    d.emit(f"F.scaled_dot_product_attention({{0}}, {{1}}, {{2}}{options})", *operands)


@operation(1)
def convolution(d: Draw) -> None:
    dims = d.rng.choice((1, 2))
    groups = d.rng.choice((1, 1, 1, 2))
    into, out = (groups * d.rng.choice((1, 2, 3, 8)) for _ in range(2))
    sizes = [d.rng.choice((4, 5, 7, 12)) for _ in range(dims)]
    kernel = [d.rng.choice((1, 2, 3)) for _ in range(dims)]
    style = d.rng.choice(("normal", "normal", "large mean", "small"))
    x = d.new([d.rng.choice((1, 2)), into, *sizes], values=style)
    weight = d.new([out, into // groups, *kernel], values="weights")
    options = f"stride={d.rng.choice((1, 2))}, padding={d.rng.choice((0, 1))}, groups={groups}"
    options += d.rng.choice(("", "", ", dilation=2"))
    if d.chance(0.5):
        d.emit(f"F.conv{dims}d({{0}}, {{1}}, {{2}}, {options})", x, weight, d.new([out]))
    else:
        d.emit(f"F.conv{dims}d({{0}}, {{1}}, {options})", x, weight)


@operation(1)
def pooling(d: Draw) -> None:
    dims = d.rng.choice((1, 2))
    value = d.any(lambda v: v.is_float, rank=(dims + 1, dims + 2))
    if value is None:
        value = d.new([2, d.rng.choice((1, 3, 8)), *(d.rng.choice((4, 5, 7, 12)) for _ in range(dims))])
    kernel, stride = d.rng.choice((2, 3)), d.rng.choice((1, 2))
    text, exact = d.rng.choice((
        (f"F.max_pool{dims}d({{0}}, {kernel}, {stride})", True),
        (f"F.max_pool{dims}d({{0}}, {kernel}, {stride}, padding=1)", True),
        (f"F.avg_pool{dims}d({{0}}, {kernel}, {stride})", False),
        (f"F.avg_pool{dims}d({{0}}, {kernel}, {stride}, padding=1, count_include_pad=False)", False),
        (f"F.adaptive_avg_pool{dims}d({{0}}, {d.rng.choice((1, 2, 3))})", False),
        (f"F.adaptive_max_pool{dims}d({{0}}, {d.rng.choice((1, 2))})", True),
        ("F.interpolate({0}, scale_factor=2, mode='nearest')", True),
        (f"F.lp_pool{dims}d({{0}}, 2, {kernel})", False),
    ))  # fmt: skip
    d.emit(text, value, certain=exact)


@operation(2)
def lookup(d: Draw) -> None:
    value = d.any(rank=(1, 3))
    if value is None or value.is_bool or not value.typed.numel():
        return
    dim = d.rng.randrange(value.rank)
    size = value.shape[dim]
    count = d.rng.choice((1, 2, 5, 33))
    choice = d.rng.random()
    if choice < 0.4:
        rows = d.new([count], d.rng.choice(("torch.int64", "torch.int64", "torch.int32")))
        rows = _below(d, rows, size)
        axes = ":, " * dim
        text = d.rng.choice((f"torch.index_select({{0}}, {dim}, {{1}})", f"{{0}}[{axes}{{1}}]"))
        d.emit(text, value, rows, certain=True)
    elif choice < 0.6:
        shape = value.shape
        shape[dim] = count
        if math.prod(shape) <= 3000:
            places = _below(d, d.new(shape, "torch.int64"), size)
            d.emit(f"torch.gather({{0}}, {dim}, {{1}})", value, places, certain=True)
    elif choice < 0.75 and value.rank == 2 and value.is_float:
        rows = _below(d, d.new(d.rng.choice(([count], [2, count])), "torch.int64"), value.shape[0])
        text = d.rng.choice(("F.embedding({1}, {0})", "F.embedding({1}, {0}, padding_idx=0)"))
        d.emit(text, value, rows, certain=True)
    elif value.rank == 2 and value.is_float:
        rows = _below(d, d.new([2, min(count, 5)], "torch.int64"), value.shape[0])
        mode = d.rng.choice(("sum", "mean", "max"))
        weighted = mode == "sum" and d.chance(0.5)
        operands = [value, rows, *([d.new(rows.shape, value.dtype)] if weighted else [])]
        weights = ", per_sample_weights={2}" if weighted else ""
        d.emit(f"F.embedding_bag({{1}}, {{0}}, mode='{mode}'{weights})", *operands)


@operation(2)
def scatter(d: Draw) -> None:
    value = d.any(lambda v: not v.is_bool, rank=(1, 3))
    if value is None or not value.typed.numel():
        return
    dim = d.rng.randrange(value.rank)
    signed = dim - value.rank if d.chance(0.3) else dim
    size = value.shape[dim]
    count = d.rng.randint(1, min(size, 5))
    shape = value.shape
    shape[dim] = count
    rows = _different(d, count, size)
    choice = d.rng.random()
    if choice < 0.35:
        name = d.rng.choice(("index_copy", "index_add"))
        d.emit(
            f"torch.{name}({{0}}, {signed}, {{1}}, {{2}})",
            value,
            rows,
            d.new(shape, value.dtype),
            certain=True,
        )
    elif choice < 0.55:
        d.emit(f"torch.index_fill({{0}}, {signed}, {{1}}, 2)", value, rows, certain=True)
    elif choice < 0.8:
        view = [1] * value.rank
        view[dim] = count
        index = f"{{1}}.view({view}).expand({shape})"
        name = d.rng.choice(("scatter", "scatter_add"))
        d.emit(
            f"torch.{name}({{0}}, {signed}, {index}, {{2}})",
            value,
            rows,
            d.new(shape, value.dtype),
            certain=True,
        )
    else:
        rest = d.new([count, *value.shape[1:]], value.dtype)
        rows = _different(d, count, value.shape[0]) if count <= value.shape[0] else None
        if rows is not None:
            accumulate = d.rng.choice(("", ", accumulate=True"))
            d.emit(f"torch.index_put({{0}}, ({{1}},), {{2}}{accumulate})", value, rows, rest, certain=True)


def _below(d: Draw, value: Value, size: int) -> Value:
    """The newest input with other elements: indices below a size."""
    d.inputs[-1] = replace(d.inputs[-1], values=f"below {max(1, size)}")
    value.typed = d.inputs[-1].tensor()
    value.exact = value.typed.clone()
    return value


def _different(d: Draw, count: int, size: int) -> Value:
    """A new input of different indices below a size."""
    value = d.new([count], "torch.int64")
    chosen = torch.tensor(d.rng.sample(range(size), count))
    d.inputs[-1] = d.inputs[-1].with_elements(chosen)
    value.typed, value.exact = chosen, chosen.clone()
    return value


@operation(1)
def creation(d: Draw) -> None:
    """Tensors that the model makes itself."""
    size = d.rng.choice((1, 3, 16, 33, 65))
    text = d.rng.choice((f"torch.arange({size})", f"torch.ones({size}, 3)", f"torch.zeros({size})",
                         f"torch.eye({size})",
                         f"torch.linspace(0, 1, {size})", f"torch.arange({size}, dtype=torch.float16)",
                         f"torch.full(({size},), float('-inf'), dtype=torch.float16).triu(1)",
                         f"torch.full(({size}, {size}), float('-inf'), dtype=torch.float16).triu(1)"))  # fmt: skip
    d.emit(text, certain=True)
