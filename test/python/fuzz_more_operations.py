# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of one kind of random programs each: loops, writes of rows, bytes, types, special values, assertions."""

from __future__ import annotations

from fuzz_inputs import SPECIAL
from fuzz_operations import Operation, certain, operation
from fuzz_programs import BRAIN, HALF, SINGLE, Draw, Value

LOOPS: list[Operation] = []
ROWS: list[Operation] = []
BYTES: list[Operation] = []
MIXED: list[Operation] = []
SPECIALS: list[Operation] = []
ASSERTIONS: list[Operation] = []

DOUBLE = "torch.float64"
INTEGERS = ("torch.int8", "torch.uint8", "torch.int32", "torch.int64")

# Loops. A result of a body does not alias its operands, as PyTorch requires.

_STEPS = (
    "c * 0.5 + t", "torch.maximum(c, t)", "torch.tanh(t - c)", "c - t * 0.5", "c.clone()", "(c + t) * 0.5",
    "torch.where(c > t, t * 0.5, c)", "c.neg()", "t.clone()",
)  # fmt: skip
_WHOLE_STEPS = (
    "c + t", "torch.maximum(c, t)", "t - c", "c.clone()", "c.neg()", "c & t", "torch.where(c > t, t, c)",
)  # fmt: skip
_MAPS = (
    "torch.tanh(t) * 2", "t + 1", "torch.relu(t)", "t.flip(0) * 2", "t.cumsum(0)", "t - t.amax()", "t * t",
)  # fmt: skip


def _number(d: Draw, low: int = 1) -> Value | None:
    """A floating value, or in one of four an integer one."""
    if d.chance(0.25):
        value = d.any(lambda v: v.is_integer and v.dtype in ("torch.int32", "torch.int64"), rank=(low, 3))
        return value or d.new(d.shape(low, 3), "torch.int32")
    return d.floating((low, 3))


def _step(d: Draw, value: Value) -> str:
    return d.rng.choice(_STEPS if value.is_float else _WHOLE_STEPS)


def _rows(d: Draw, value: Value) -> str:
    """The first rows of a value."""
    trips = min(value.shape[0], d.rng.choice((1, 2, 3, 5, 8)))
    return "{0}" if trips == value.shape[0] else f"{{0}}[:{trips}]"


@operation(3, LOOPS)
def scan(d: Draw) -> None:
    value = _number(d)
    if value is None or not value.typed.numel():
        return
    rows = _rows(d, value)
    state = d.new(value.shape[1:], value.dtype)
    turned, part = d.rng.choice(("", ", reverse=True")), d.rng.randrange(2)
    first, second = _step(d, value), _step(d, value)
    if d.chance(0.3):
        other = d.new(value.shape[1:], value.dtype)
        body = f"lambda s, t: ([{first.replace('c', 's[1]', 1) if first.startswith('c') else 's[1] + t'}, s[0] + t], "
        body += "(s[0] - t))"
        pick = d.rng.choice(("[0][0]", "[0][1]", "[1]"))
        d.emit(f"scan({body}, [{{1}}, {{2}}], {rows}{turned}){pick}", value, state, other)
    else:
        d.emit(f"scan(lambda c, t: ({first}, {second}), {{1}}, {rows}{turned})[{part}]", value, state)


@operation(2, LOOPS)
def associative_scan(d: Draw) -> None:
    value = _number(d)
    if value is None or not value.typed.numel():
        return
    dim, turned = d.rng.randrange(value.rank), d.rng.choice(("", ", reverse=True"))
    end = f"{dim}{turned}, combine_mode='generic')"
    combine = d.rng.choice(("a + b", "torch.maximum(a, b)", "torch.minimum(a, b)"))
    if value.is_float and d.chance(0.4):
        decays = d.new(value.shape, value.dtype, "small")
        combine = "(a[0] * b[0], a[1] * b[0] + b[1])"
        d.emit(f"associative_scan(lambda a, b: {combine}, ({{1}}, {{0}}), {end}[1]", value, decays)
    else:
        d.emit(f"associative_scan(lambda a, b: {combine}, {{0}}, {end}", value)


@operation(2, LOOPS)
def map_rows(d: Draw) -> None:
    value = d.floating((2, 3))
    if value is None or not value.typed.numel():
        return
    rows = _rows(d, value)
    if d.chance(0.4):
        d.emit(
            f"map_rows(lambda t: torch.tanh(t) + {{1}}, {rows})", value, d.new(value.shape[1:], value.dtype)
        )
    else:
        d.emit(f"map_rows(lambda t: {d.rng.choice(_MAPS)}, {rows})", value)


@operation(2, LOOPS)
def while_loop(d: Draw) -> None:
    value = _number(d)
    if value is None:
        return
    other = d.new(value.shape, value.dtype)
    first, width, trips = d.rng.randint(-3, 3), d.rng.randint(1, 3), d.rng.choice((0, 1, 2, 5))
    step = _step(d, value).replace("t ", "{1} ").replace(" t", " {1}").replace("t.clone", "{1}.clone")
    body = f"lambda i, c: (i + {width}, {step})"
    condition = f"i < {first + width * trips}"
    if value.is_integer and d.chance(0.3):
        body, condition = (
            "lambda i, c: (i + 1, c + 1)",
            f"(c.sum() < {d.rng.choice((0, 50, 1000))}) & (i < {first + 4})",
        )
    d.emit(f"while_loop(lambda i, c: {condition}, {body}, (torch.tensor({first}), {{0}}))[1]", value, other)


@operation(3, LOOPS)
def for_each_tile(d: Draw) -> None:
    value = d.floating((1, 3))
    if value is None or not value.typed.numel():
        return
    dim = d.rng.randrange(value.rank)
    size = value.shape[dim]
    tile = d.rng.randint(max(1, -(-size // 6)), size)
    end = f"dim={dim}, tile={tile}, out_dim={dim}"
    if d.chance(0.5):
        body = d.rng.choice(
            ("torch.exp(p * 0.1) + 1", "p * 2", f"p - p.amax({dim}, keepdim=True)", "torch.softmax(p, -1)")
        )
        d.emit(f"for_each_tile(lambda p: {body}, {{0}}, {end})", value)
        return
    small = [1 if k == dim else n for k, n in enumerate(value.shape)]
    carry = d.rng.choice(
        (f"torch.maximum(c, p.amax({dim}, keepdim=True))", f"c + p.sum({dim}, keepdim=True) * 0.1")
    )
    row = d.rng.choice(("p * 2", "p + c", "torch.tanh(p - c)"))
    text = f"for_each_tile(lambda c, p: ({carry}, {row}), {{0}}, carried={{1}}, {end})[{d.rng.randrange(2)}]"
    d.emit(text, value, d.new(small, value.dtype))


@operation(1, LOOPS)
def cond(d: Draw) -> None:
    value = d.floating((1, 3))
    if value is None:
        return
    decides = d.new(d.shape(1, 1), d.rng.choice(("torch.bool", "torch.int32")))
    test = (
        d.rng.choice(("{1}.any()", "{1}.all()"))
        if decides.is_bool
        else d.rng.choice(("{1}.sum() > 0", "{1}[0] < 0"))
    )
    branches = d.rng.choice(
        ("lambda t: t * 2, lambda t: t - 1", "lambda t: torch.tanh(t), lambda t: t.clone()")
    )
    d.emit(f"cond({test}, {branches}, ({{0}},))", value, decides)


# Rows and parts that are written in place.


def _target(d: Draw) -> Value | None:
    """A value of an input or a buffer, or one made from it."""
    return d.any(lambda v: not v.is_bool and v.typed.numel() > 0, rank=(1, 3))


@operation(4, ROWS)
def written_rows(d: Draw) -> None:
    """One row at a position that differs in each call, sums at several positions, or distinct rows."""
    from fuzz_reductions import _below, _different

    value = _target(d)
    if value is None:
        return
    dim = d.rng.randrange(value.rank)
    size, shape, signed = value.shape[dim], value.shape, d.chance(0.2)
    name = d.rng.choice(("index_copy_", "index_copy_", "index_add_", "index_fill_", "scatter_", "scatter_add_",
                         "index_put_", "index_reduce_"))  # fmt: skip
    place = dim - value.rank if signed else dim
    several = name in ("index_add_", "scatter_add_", "index_fill_")
    shape[dim] = count = d.rng.randint(1, 3) if several else 1
    if not several and d.chance(0.4):
        shape[dim] = count = d.rng.randint(1, min(size, 3))
        rows = _different(d, count, size)
    else:
        rows = _below(d, d.new([count], "torch.int64", role="input"), size)
    if name == "index_fill_":
        d.update(f"{{0}}.index_fill_({place}, {{1}}, 2)", value, rows, certain=True)
        return
    source = d.new(shape, value.dtype)
    if name.startswith("scatter"):
        view = [count if k == dim else 1 for k in range(value.rank)]
        index = f"{{1}}.view({view}).expand({shape})"
        d.update(f"{{0}}.{name}({place}, {index}, {{2}})", value, rows, source, certain=True)
    elif name == "index_put_":
        axes = ", ".join(["slice(None)"] * dim + ["{1}"])
        d.update(f"{{0}}.__setitem__(({axes},), {{2}})", value, rows, source, certain=True)
    elif name == "index_reduce_":
        d.update(f"{{0}}.index_reduce_({place}, {{1}}, {{2}}, 'amax')", value, rows, source, certain=True)
    else:
        d.update(f"{{0}}.{name}({place}, {{1}}, {{2}})", value, rows, source, certain=True)


_PARTS = (
    "[:2]", "[-1]", "[..., 1:3]", "[..., ::2]", ".view(-1)[3:9]", ".mT[:1]", "[None]", ".flatten()[::3]",
    "[..., -1:]", ".unsqueeze(-1)[..., 0]", ".select(0, 0)", ".unfold(0, 2, 2)", ".diagonal()",
    ".expand(2, *{0}.shape)[0]", ".chunk(2)[0]", ".transpose(0, -1)",
)  # fmt: skip


@operation(3, ROWS)
def written_views(d: Draw) -> None:
    """A view, which is written as a whole."""
    value = _target(d)
    if value is None:
        return
    part = d.rng.choice(_PARTS)
    write = d.rng.choice(
        (".zero_()", ".add_(1)", ".mul_(2)", ".fill_(3)", ".copy_({1})", ".sub_({1})", ".neg_()")
    )
    operands = [d.new([], value.dtype)] if "{1}" in write else []
    d.update(f"{{0}}{part}{write}", value, *operands, certain=True)


@operation(2, ROWS)
def shifted(d: Draw) -> None:
    """A buffer that moves, as a window of a cache does, or is masked or replaced as a whole."""
    value = _target(d)
    if value is None:
        return
    text = d.rng.choice(("{0}.copy_({0}.roll(1, 0))", "{0}.copy_(torch.cat(({0}[1:], {1}[:1])))", "{0}.copy_({1})",
                         "{0}.masked_fill_({1} > 0, 2)", "{0}[1:].copy_({0}[:-1].clone())", "{0}.add_({1})",
                         "{0}.copy_({0} * 0.5 + {1} * 0.5)", "{0}[:1].copy_({1}[-1:])"))  # fmt: skip
    operands = [d.new(value.shape, value.dtype)] if "{1}" in text else []
    d.update(text, value, *operands, certain="0.5" not in text)


@operation(1, ROWS)
def read_rows(d: Draw) -> None:
    """A result that depends on the written rows."""
    value = _target(d)
    if value is not None:
        d.emit(
            d.rng.choice(("{0} * 2", "{0}.clone()", "{0}[0] + 1", "{0}.sum(0)", "{0}.amax(-1)")),
            value,
            certain=True,
        )


# Bytes.

_OF_BYTES = (
    "{0}.half()", "{0}.float()", "{0}.bfloat16()", "{0}.to(torch.int32)", "{0}.long()",
    "{0}.to(torch.int8)", "{0}.to(torch.uint8)", "{0}.bool()", "{0}.float() / 255", "{0}.half() * 0.25",
    "{0}.to(torch.int32) - 3", "{0} + 3", "{0} - 1", "{0} * 2", "{0} // 3", "{0} % 5", "{0} >> 1",
    "{0} << 1", "{0} & 15", "{0} | 3", "{0} ^ 255", "~{0}", "-{0}", "{0}.abs()", "{0}.sum()", "{0}.sum(0)",
    "{0}.amax(-1)", "{0}.amin()", "{0}.cumsum(0)", "{0}.float().mean(-1)", "{0}.prod(-1)",
    "{0}.sort(-1).values", "{0}.flip(0)", "{0}.clamp(3, 100)", "{0}.sign()", "torch.where({0} > 7, {0}, 0)",
    "{0}.argmax(-1)", "{0}.pow(2)", "torch.fmod({0}, 7)", "{0} / 4", "{0} * 0.5", "{0}.to(torch.int16)",
    "{0}.double()", "{0}.any(-1)", "{0}.amax(-1).half()", "torch.square({0})", "{0}.max()",
    "{0}.sum(-1, dtype=torch.int8)", "{0}.sum(-1, dtype=torch.float32)", "torch.bitwise_left_shift({0}, 1)",
    "torch.exp({0}.float() * 0.01)", "torch.softmax({0}.half() * 0.125, -1)", "{0} * {0}",
    "{0}.repeat_interleave(2, -1)", "torch.div({0}, 3, rounding_mode='trunc')", "torch.remainder({0}, -3)",
    "{0}.eq(200)", "{0} > 100", "{0} < 0",
)  # fmt: skip


def _is_byte(value: Value) -> bool:
    return value.dtype in ("torch.int8", "torch.uint8")


@operation(5, BYTES)
def byte_unary(d: Draw) -> None:
    value = d.any(_is_byte)
    if value is not None:
        d.emit(d.rng.choice(_OF_BYTES), value, certain=True)


@operation(3, BYTES)
def byte_binary(d: Draw) -> None:
    value = d.any(_is_byte)
    if value is None:
        return
    dtype = (
        value.dtype
        if d.chance(0.6)
        else d.rng.choice(("torch.int8", "torch.uint8", d.float_type, "torch.int32"))
    )
    other = d.new(
        value.shape[d.rng.choice((0, 0, min(1, value.rank))) :], dtype, "" if "float" in dtype else "codes"
    )
    text = d.rng.choice(("{0} + {1}", "{0} - {1}", "{0} * {1}", "torch.maximum({0}, {1})", "{0} > {1}", "{0} == {1}",
                         "{0} & {1}", "{0} / ({1} + 300)", "torch.where({0} < {1}, {0}, {1})", "torch.cat(({0}, {0}))",
                         "{1} - {0}", "{0} // ({1} | 1)", "{0} <= {1}"))  # fmt: skip
    d.emit(text, value, other, certain="/ " not in text)


@operation(3, BYTES)
def quantised(d: Draw) -> None:
    """Numbers from bytes and bytes from numbers, with a scale per tensor or channel and a zero point."""
    value = d.any(_is_byte, rank=(1, 3))
    if value is None:
        return
    kind = d.rng.choice((HALF, SINGLE))
    if d.chance(0.5):
        scale = d.new([value.shape[-1]], kind, "positive")
        text = d.rng.choice((f"({{0}}.to({kind}) - 128) * {{1}}", f"{{0}}.to({kind}) * {{1}}", "{0} * {1}",
                             "({0}.to(torch.int32) - 3) * {1}"))  # fmt: skip
        d.emit(text, value, scale)
    else:
        low, high, to = d.rng.choice(((-128, 127, "torch.int8"), (0, 255, "torch.uint8")))
        source = d.new(value.shape, kind, "integers" if d.chance(0.7) else "")
        text = d.rng.choice((f"({{0}} * 64).round().clamp({low}, {high}).to({to})",
                             f"({{0}} / 0.25 + 3).round().clamp({low}, {high}).to({to})",
                             f"(({{0}} * 16).round().clamp({low}, {high}).to({to}).half() - 3) / 16"))  # fmt: skip
        if source.certain:
            d.emit(text, source, certain=True)


@operation(2, BYTES)
def byte_product(d: Draw) -> None:
    value = d.any(_is_byte, rank=(2, 2))
    if value is None:
        return
    inner = value.shape[1]
    if d.chance(0.4) and value.dtype == "torch.int8":
        d.emit("torch._int_mm({0}, {1})", value, d.new([inner, 32], "torch.int8", "codes"), certain=True)
        return
    x = d.new([d.rng.choice((1, 5, 64)), inner], HALF, "weights")
    text = d.rng.choice(("F.linear({1}, {0}.half() * 0.01)", "{1} @ ({0}.half() * 0.01).T",
                         "F.linear({1}, ({0}.half() - 128) * 0.01)", "F.linear({1}, {0}.half()) * 0.01"))  # fmt: skip
    d.emit(text, value, x)


# Mixed types.

_TWO_OF_ANY = (
    "{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} / {1}", "torch.maximum({0}, {1})",
    "torch.where({0} > {1}, {0}, {1})", "{0} == {1}", "{0} < {1}", "{0} >= {1}",
    "torch.add({0}, {1}, alpha=2)", "torch.fmin({0}, {1})", "{0} // {1}", "torch.clamp({0}, min={1})",
    "torch.logical_and({0}, {1})", "{0} & {1}", "{0} % {1}", "torch.pow({0}, {1})",
    "torch.logical_xor({0}, {1})", "torch.minimum({0}, {1})", "{0} ^ {1}", "torch.ne({0}, {1})",
    "torch.hypot({0}, {1})", "torch.atan2({0}, {1})", "torch.lerp({0}, {1}, 0.5)",
    "torch.copysign({0}, {1})", "torch.div({0}, {1}, rounding_mode='floor')",
)  # fmt: skip
_ONE_OF_ANY = (
    "{0} + 1", "{0} + 1.5", "{0} + True", "{0} * 2", "{0} * 0.5", "{0} / 2", "{0} // 2", "-{0}", "{0} ** 2",
    "{0} ** 0.5", "{0} == 1", "{0} > 0.5", "{0}.sum()", "{0}.sum(-1)", "{0}.mean(-1)", "{0}.amax(-1)",
    "{0}.prod()", "{0}.cumsum(-1)", "{0}.sum(dtype=torch.float32)", "{0}.sum(-1, dtype=torch.int32)",
    "{0}.mean(dtype=torch.float32)", "torch.full_like({0}, 2)", "torch.ones_like({0}, dtype=torch.float16)",
    "torch.sqrt({0}.abs())", "torch.exp({0} * 0.1)", "torch.sigmoid({0})", "{0}.clamp(0, 2)",
    "{0}.clamp(0.5, 2.5)", "torch.relu({0})", "{0}.any()", "{0}.all(-1)", "~{0}", "2 - {0}", "1.5 - {0}",
    "2 ** {0}", "{0}.abs()", "torch.where({0} > 0, {0}, 1)", "torch.where({0} > 0, {0}, 1.5)",
    "torch.where({0} > 0, 1, 0)", "torch.where({0} > 0, 1.5, 0)", "{0}.argmax(-1)",
    "{0}.masked_fill({0} > 0, 2)", "{0}.sign()", "torch.floor({0})", "torch.round({0})",
    "{0}.count_nonzero()", "torch.isnan({0})", "{0}.std(-1)", "torch.softmax({0}, -1, dtype=torch.float32)",
    "{0}.norm()", "{0}.sort(-1).values", "torch.sin({0})", "torch.logical_not({0})", "{0}.max(-1).values",
    "{0}.type_as(torch.ones(1))", "torch.square({0})", "{0}.cumprod(-1)", "torch.nn.functional.gelu({0})",
    "torch.trunc({0})", "{0}.var(-1)", "torch.atan({0})",
)  # fmt: skip


def any_type(d: Draw) -> str:
    """A type of PyTorch that inputs may have, 16 bits most often."""
    return d.rng.choices((HALF, BRAIN, SINGLE, DOUBLE, *INTEGERS, "torch.bool"), (4, 3, 3, 1, 2, 2, 3, 3, 3))[
        0
    ]


def _new_of_any(d: Draw, shape: list[int]) -> Value:
    dtype = any_type(d)
    return d.new(shape, dtype, "integers" if "float" in dtype else "any")


@operation(4, MIXED)
def two_of_any(d: Draw) -> None:
    value = d.any(certain)
    if value is None:
        return
    same = [v for v in d.values if v.certain and v.shape == value.shape]
    other = d.rng.choice(same) if d.chance(0.4) else _new_of_any(d, value.shape if d.chance(0.6) else [])
    operands = (value, other) if d.chance(0.6) else (other, value)
    d.emit(d.rng.choice(_TWO_OF_ANY), *operands, certain=True)


@operation(3, MIXED)
def one_of_any(d: Draw) -> None:
    value = d.any(certain)
    if value is not None:
        d.emit(d.rng.choice(_ONE_OF_ANY), value, certain=True)


@operation(2, MIXED)
def several_of_any(d: Draw) -> None:
    value = d.any(certain, rank=(1, 3))
    if value is None:
        return
    other = _new_of_any(d, value.shape)
    condition = d.new(value.shape, "torch.bool")
    text = d.rng.choice(("torch.cat(({0}, {1}))", "torch.stack(({0}, {1}))", "torch.where({2}, {0}, {1})",
                         "torch.addcmul({0}, {1}, {0})", "{0}.to({1}.dtype)", "torch.where({2}, {1}, 2.5)",
                         "torch.where({2}, {0}, 3)", "{0}.masked_fill({2}, 1)", "torch.cat(({0}, {2}, {1}))",
                         "{0}.type_as({1})", "torch.masked_fill({1}, {2}, {0}.sum())"))  # fmt: skip
    operands = [value, other, condition][: 3 if "{2}" in text else 2]
    d.emit(text, *operands, certain=True)


@operation(1, MIXED)
def changed_of_any(d: Draw) -> None:
    """In place the type stays."""
    value = d.any(certain, lambda v: not v.is_bool)
    if value is None:
        return
    other = _new_of_any(d, value.shape)
    text = d.rng.choice(
        ("{0}.add_({1})", "{0}.mul_({1})", "{0}.copy_({1})", "{0}.add_(1)", "{0}.mul_(2)", "{0}.sub_({1})")
    )
    d.update(text, value, *([other] if "{1}" in text else []), certain=True)


# Special values.

_SPECIAL_UNARY = (
    "torch.exp({0})", "torch.tanh({0})", "torch.sigmoid({0})", "F.gelu({0})", "F.silu({0})",
    "torch.sqrt({0})", "torch.rsqrt({0})", "torch.log({0})", "torch.log1p({0})", "torch.expm1({0})",
    "torch.sin({0})", "torch.erf({0})", "F.softplus({0})", "F.elu({0})", "F.leaky_relu({0}, 0.1)",
    "F.mish({0})", "F.hardswish({0})", "F.hardsigmoid({0})", "torch.reciprocal({0})", "1 / {0}",
    "torch.atan({0})", "torch.exp2({0})", "{0} ** 2", "{0} ** 3", "{0} ** 0.5", "{0} ** -1", "{0} ** -0.5",
    "{0} ** 1.5", "2 ** {0}", "F.logsigmoid({0})", "torch.log2({0})", "torch.log10({0})", "F.softsign({0})",
    "F.tanhshrink({0})", "torch.acos({0})", "torch.asin({0})", "torch.relu({0})", "F.relu6({0})",
    "F.hardtanh({0})", "{0}.abs()", "-{0}", "torch.sign({0})", "torch.isnan({0})", "torch.isinf({0})",
    "torch.isfinite({0})", "torch.signbit({0})", "torch.floor({0})", "torch.ceil({0})", "torch.round({0})",
    "torch.trunc({0})", "torch.frac({0})", "{0} % 3", "{0} // 2", "torch.fmod({0}, 2)",
    "torch.nan_to_num({0})", "torch.nan_to_num({0}, 1.0, 2.0, -2.0)", "{0}.clamp(-1, 1)",
    "{0}.clamp(min=0)", "{0}.clamp(max=float('inf'))", "torch.where({0} > 0, {0}, 0.0)",
    "torch.where({0} == {0}, {0}, 0.0)", "torch.where({0} < 0, -{0}, {0})", "{0} == 0", "{0} > 0",
    "{0} != {0}", "{0} * 0", "{0} - {0}", "{0} / {0}", "{0} + float('inf')", "{0} * float('inf')",
    "torch.cosh({0})", "torch.sinh({0})", "torch.logit({0})", "torch.erfc({0})", "torch.sinc({0})",
    "F.threshold({0}, 0.5, 2.0)", "torch.asinh({0})", "torch.atanh({0})", "torch.cos({0})",
    "F.hardshrink({0})", "F.softshrink({0})", "{0} / 0", "F.celu({0})", "F.selu({0})", "torch.square({0})",
    "torch.deg2rad({0})", "torch.special.entr({0})", "torch.where(torch.isinf({0}), 1.0, {0})",
    "torch.maximum({0}, -{0})", "F.relu({0}) - {0}", "1 / -{0}",
)  # fmt: skip
_SPECIAL_BINARY = (
    "{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} / {1}", "torch.maximum({0}, {1})",
    "torch.minimum({0}, {1})", "torch.fmax({0}, {1})", "torch.fmin({0}, {1})", "torch.atan2({0}, {1})",
    "torch.hypot({0}, {1})", "torch.pow({0}, {1})", "torch.fmod({0}, {1})", "torch.remainder({0}, {1})",
    "torch.floor_divide({0}, {1})", "torch.copysign({0}, {1})", "torch.isclose({0}, {1})",
    "torch.logaddexp({0}, {1})", "torch.xlogy({0}, {1})", "torch.where({0} > {1}, {0}, {1})",
    "torch.where({0} < {1}, {0}, {1})", "{0} > {1}", "{0} <= {1}", "{0} == {1}", "{0} != {1}",
    "torch.heaviside({0}, {1})", "torch.div({0}, {1}, rounding_mode='trunc')",
    "torch.div({0}, {1}, rounding_mode='floor')",
    "torch.where({0} >= {1}, {1}, {0})", "torch.logical_and({0}, {1})", "torch.nextafter({0}, {1})",
    "torch.clamp({0}, max={1})", "torch.logaddexp2({0}, {1})", "torch.rsub({0}, {1})",
    "torch.isclose({0}, {1}, equal_nan=True)", "torch.where(torch.isnan({0}), {1}, {0})", "torch.dist({0}, {1})",
    "torch.lerp({0}, {1}, 0.3)", "torch.lerp({0}, {1}, 0.75)", "torch.addcmul({0}, {1}, {0})",
    "torch.addcdiv({0}, {1}, {0})",
)  # fmt: skip
_SPECIAL_ALONG = (
    "{0}.amax(D)", "{0}.amin(D)", "{0}.max(D).values", "{0}.sum(D)", "{0}.mean(D)", "{0}.nansum(D)",
    "{0}.prod(D)", "torch.softmax({0}, D)", "torch.log_softmax({0}, D)", "torch.logsumexp({0}, D)",
    "{0}.norm(dim=D)", "{0}.var(D)", "{0}.argmax(D)", "{0}.any(D)", "{0}.all(D)", "{0}.count_nonzero(D)",
    "{0}.cumsum(D)", "{0}.cummax(D).values", "{0}.sort(D).values", "torch.aminmax({0}, dim=D).min",
    "{0}.norm(float('inf'), D)", "{0}.argmin(D)", "{0}.std(D)", "{0}.topk(2, D).values",
    "torch.nanmean({0}, D)", "F.normalize({0}, dim=D)", "{0}.max()", "{0}.sum()", "torch.cumprod({0}, D)",
    "torch.logcumsumexp({0}, D)", "{0}.nanmedian(D).values", "{0}.median(D).values",
)  # fmt: skip


@operation(3, SPECIALS)
def special_unary(d: Draw) -> None:
    value = d.any(lambda v: v.is_float)
    if value is not None:
        d.emit(d.rng.choice(_SPECIAL_UNARY), value, certain=True)


@operation(3, SPECIALS)
def special_binary(d: Draw) -> None:
    value = d.any(lambda v: v.is_float)
    if value is not None:
        other = d.new(value.shape, value.dtype, SPECIAL)
        d.emit(
            d.rng.choice(_SPECIAL_BINARY),
            *((value, other) if d.chance(0.5) else (other, value)),
            certain=True,
        )


@operation(2, SPECIALS)
def special_along(d: Draw) -> None:
    value = d.any(lambda v: v.is_float, rank=(1, 3))
    if value is not None:
        d.emit(d.rng.choice(_SPECIAL_ALONG).replace("D", str(d.dim(value))), value, certain=True)


# Assertions.


@operation(1, ASSERTIONS)
def assertion(d: Draw) -> None:
    """An assertion that holds: booleans are all true, or integers are not negative."""
    if d.chance(0.5):
        value = d.new(d.shape(1, 2), "torch.bool", "true", role="input")
        test = d.rng.choice(
            ("{0}.all()", "{0}.any()", "{0}.sum() == {0}.numel()", "~(~{0}).any()", "{0}.all(0).all()")
        )
    else:
        value = d.new(d.shape(1, 2), d.rng.choice(("torch.int64", "torch.int32")), "below 8", role="input")
        test = d.rng.choice(
            (
                "({0} >= 0).all()",
                "({0}.min() >= 0)",
                "({0}.sum() >= 0)",
                "({0}.amax() < 8)",
                "({0} > -1).all()",
            )
        )
    d.update(f"torch._assert_async({test}, 'it must hold')", value, certain=True)


@operation(1, ASSERTIONS)
def guarded(d: Draw) -> None:
    """Operations that the importers of PyTorch guard by assertions."""
    value = d.floating((2, 3))
    if value is None:
        return
    size = value.shape[-1]
    text = d.rng.choice((f"F.adaptive_max_pool1d({{0}}, {d.rng.randint(1, size)})",
                         f"F.adaptive_avg_pool1d({{0}}, {d.rng.randint(1, size)})",
                         f"{{0}}.unflatten(-1, ({size}, -1))", f"{{0}}.split({max(1, size // 2)}, -1)[0]",
                         f"F.interpolate({{0}}, size={d.rng.randint(1, 2 * size)})",
                         f"F.max_pool1d({{0}}, {d.rng.randint(1, 3)}, ceil_mode=True)"))  # fmt: skip
    d.emit(text, value)
