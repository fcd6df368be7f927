# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operations that random programs are drawn from: each draws its operands and options, and appends a statement.

Operations that compare or round numbers (comparisons, casts to integers, argmax, sort) take certain values only, and
operations that select one of several values take values without ties: else the result depends on the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from fuzz_programs import BRAIN, HALF, SINGLE, Draw, Value
from torch import Tensor


@dataclass(frozen=True)
class Operation:
    """A named way to draw a statement, and how often."""

    name: str
    weight: float
    draw: Callable[[Draw], object]


OPERATIONS: list[Operation] = []


def operation(
    weight: float = 1.0, registry: list[Operation] = OPERATIONS
) -> Callable[[Callable[[Draw], object]], Callable[[Draw], object]]:
    """Register a function that draws, among all operations or in a list of some kind of programs."""

    def register(function: Callable[[Draw], object]) -> Callable[[Draw], object]:
        registry.append(Operation(function.__name__, weight, function))
        return function

    return register


def certain(value: Value) -> bool:
    return value.certain


def no_nan(value: Value) -> bool:
    return not value.typed.isnan().any()


#: Functions of one number; the first ones give exact results of exact numbers.
_EXACT_UNARY = ("torch.relu({0})", "{0}.abs()", "-{0}", "F.relu6({0})", "F.hardtanh({0})", "{0}.clone()",
                "torch.square({0})", "F.threshold({0}, 0.5, 2.0)", "{0}.clamp(-2.0, 2.0)", "{0}.clamp(min=0.0)",
                "{0}.contiguous()", "torch.positive({0})")  # fmt: skip
_UNARY = ("torch.exp({0})", "torch.tanh({0})", "torch.sigmoid({0})", "F.gelu({0})", "F.silu({0})",
          "F.gelu({0}, approximate='tanh')", "torch.sqrt({0}.abs())", "torch.rsqrt({0}.abs() + 0.5)",
          "torch.log({0}.abs() + 1)", "torch.log1p({0}.abs())", "torch.expm1({0})", "torch.sin({0})",
          "torch.cos({0})", "torch.erf({0})", "F.softplus({0})", "F.elu({0})", "F.leaky_relu({0}, 0.1)",
          "F.mish({0})", "F.hardswish({0})", "F.hardsigmoid({0})", "F.selu({0})", "torch.reciprocal({0}.abs() + 0.5)",
          "torch.atan({0})", "torch.exp2({0})", "torch.pow({0}, 2)", "torch.pow({0}.abs() + 0.1, 1.5)",
          "torch.pow({0}, 3)", "F.logsigmoid({0})", "torch.log2({0}.abs() + 0.5)", "torch.sinh({0}.clamp(-3, 3))",
          "torch.rad2deg({0})", "F.softsign({0})", "F.tanhshrink({0})", "F.celu({0})", "torch.log({0})",
          "torch.sqrt({0})", "1 / {0}", "torch.acos({0}.clamp(-0.9, 0.9))")  # fmt: skip
_CONSTANTS = ("0.0", "1.0", "2.0", "-1.0", "0.5", "3.0", "0.1", "-7.25", "1e-4", "1e4", "6e4", "-6e4",
              "float('inf')", "-float('inf')", "1e-7", "1e30")  # fmt: skip


@operation(3)
def unary(d: Draw) -> None:
    value = d.floating()
    if value is None:
        return
    if d.chance(0.3):
        d.emit(d.rng.choice(_EXACT_UNARY), value, certain=True)
    else:
        d.emit(d.rng.choice(_UNARY), value)


@operation(3)
def binary(d: Draw) -> None:
    value = d.floating()
    if value is None:
        return
    text = d.rng.choice(("{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} / ({1}.abs() + 0.5)", "torch.maximum({0}, {1})",
                         "torch.minimum({0}, {1})", "{0} / {1}", "torch.add({0}, {1}, alpha=2)",
                         "torch.atan2({0}, {1})", "torch.hypot({0}, {1})", "torch.lerp({0}, {1}, 0.3)",
                         "torch.rsub({0}, {1})", "torch.logaddexp({0}, {1})", "torch.fmax({0}, {1})"))  # fmt: skip
    d.emit(text, value, d.like(value), certain="/" not in text and "2(" not in text and "torch.l" not in text)


@operation(2)
def with_constant(d: Draw) -> None:
    value, constant = d.floating(), d.rng.choice(_CONSTANTS)
    if value is None:
        return
    text = d.rng.choice(("{0} + C", "{0} * C", "C - {0}", "{0}.clamp(min=C)", "{0}.clamp(max=C)", "{0} / C",
                         "torch.full_like({0}, C) + {0}", "torch.where({0} == {0}, {0}, C)", "{0}.sub(C)"))  # fmt: skip
    d.emit(text.replace("C", constant), value, certain="/" not in text)


@operation(1)
def comparison(d: Draw) -> None:
    value = d.any(certain, lambda v: not v.is_bool)
    if value is None:
        return
    sign = d.rng.choice((">", "<", ">=", "<=", "==", "!="))
    if d.chance(0.5):
        d.emit(f"{{0}} {sign} {d.rng.choice((0, 1, -2))}", value, certain=True)
    else:
        other = d.like(value)
        if other.certain:
            d.emit(f"{{0}} {sign} {{1}}", value, other, certain=True)


@operation(1)
def boolean(d: Draw) -> None:
    value = d.any(lambda v: v.is_bool)
    if value is None:
        value = d.new(d.shape(1, 3), "torch.bool")
    if d.chance(0.4):
        texts = ("~{0}", "{0}.any()", "{0}.all()", "{0}.sum()", "{0}.any(-1)", "{0}.long()", "{0}.half()",
                 "{0}.all(0, keepdim=True)", "{0}.float()", "{0}.to(torch.int32)")  # fmt: skip
        d.emit(d.rng.choice(texts), value, certain=True)
    else:
        d.emit(d.rng.choice(("{0} & {1}", "{0} | {1}", "{0} ^ {1}", "torch.logical_and({0}, {1})")), value,
               d.like(value), certain=True)  # fmt: skip


@operation(2)
def integer(d: Draw) -> None:
    value = d.any(lambda v: v.is_integer)
    if value is None or d.chance(0.2):
        kinds = ("torch.int64", "torch.int32", "torch.int8", "torch.uint8")
        value = d.new(d.shape(1, 3), d.rng.choices(kinds, (5, 4, 1, 1))[0])
    choice = d.rng.random()
    if choice < 0.35:
        text = d.rng.choice(("{0} + 3", "{0} * 2", "-{0}", "{0}.abs()", "{0} // 3", "{0} % 5", "{0}.sum()", "~{0}",
                             "{0}.sum(0)", "{0}.float()", "{0}.half()", "{0}.amax(-1)", "{0} - 1", "{0} // -2",
                             "{0}.clamp(-3, 3)", "{0} >> 1", "{0} << 2", "{0} & 6", "{0} % -3", "{0}.prod(-1)",
                             "{0}.cumsum(0)", "{0}.to(torch.int32)", "{0}.long()", "{0}.bool()", "{0}.sign()",
                             "{0}.min()", "torch.square({0})", "torch.remainder({0}, 4)", "{0}.pow(2)",
                             "torch.fmod({0}, 3)", "torch.div({0}, 3, rounding_mode='trunc')"))  # fmt: skip
        d.emit(text, value, certain=True)
    elif choice < 0.7:
        text = d.rng.choice(("{0} + {1}", "{0} - {1}", "{0} * {1}", "torch.maximum({0}, {1})", "{0} & {1}", "{0} ^ {1}",
                             "{0} // ({1}.abs() + 1)", "{0} % ({1}.abs() + 1)", "torch.minimum({0}, {1})"))  # fmt: skip
        d.emit(text, value, d.like(value), certain=True)
    elif choice < 0.85:
        d.emit(d.rng.choice(("{0} * 0.5", "{0} / 4", "torch.exp({0} * 0.1)")), value)
    else:
        other = d.floating()
        if other is not None:
            d.emit(d.rng.choice(("{0} + {1}", "{0} * {1}")), value, other, certain=True)


@operation(1.5)
def cast(d: Draw) -> None:
    value = d.any()
    if value is None:
        return
    if value.is_float and d.chance(0.25):
        if value.certain and bool((value.exact.abs() < 120).all()):
            target = d.rng.choice(("torch.int32", "torch.int64", "torch.bool", "torch.int8"))
            text = d.rng.choice(
                ("{0}", "torch.round({0})", "torch.floor({0})", "torch.ceil({0})", "torch.trunc({0})")
            )
            d.emit(f"{text}.to({target})", value, certain=True)
        return
    d.emit(f"{{0}}.to({d.rng.choice((HALF, SINGLE, BRAIN, d.float_type))})", value, certain=True)


@operation(1)
def rounding(d: Draw) -> None:
    value = d.any(certain, lambda v: v.is_float)
    if value is not None:
        d.emit(d.rng.choice(("torch.round({0})", "torch.floor({0})", "torch.ceil({0})", "torch.trunc({0})",
                             "torch.sign({0})", "torch.frac({0})", "{0} % 3", "torch.isnan({0})",
                             "torch.isinf({0})", "torch.signbit({0})")), value, certain=True)  # fmt: skip


# Views and moves.


@operation(2)
def reshape(d: Draw) -> None:
    value = d.any(rank=(1, 4))
    if value is None:
        return
    shape, dim = value.shape, d.rng.randrange(value.rank)
    choice = d.rng.random()
    if choice < 0.4 and dim + 1 < len(shape):
        shape[dim : dim + 2] = [shape[dim] * shape[dim + 1]]
    elif choice < 0.8:
        divisors = [n for n in range(1, shape[dim] + 1) if shape[dim] % n == 0] or [1]
        first = d.rng.choice(divisors)
        shape[dim : dim + 1] = [first, shape[dim] // first]
    else:
        shape = [-1] if value.typed.numel() else [0]
    d.emit(f"{{0}}.{d.rng.choice(('reshape', 'view'))}({shape})", value, certain=True)


@operation(2)
def permute(d: Draw) -> None:
    value = d.any(rank=(2, 4))
    if value is None:
        return
    if d.chance(0.5):
        d.emit(f"{{0}}.transpose({d.dim(value)}, {d.dim(value)})", value, certain=True)
    else:
        d.emit(f"{{0}}.permute({d.rng.sample(range(value.rank), value.rank)})", value, certain=True)


@operation(3)
def index(d: Draw) -> None:
    value = d.any(rank=(1, 4))
    if value is None:
        return
    parts = []
    for size in value.shape:
        choice = d.rng.random()
        if choice < 0.45 or size == 0:
            parts.append(":")
        elif choice < 0.6:
            parts.append(str(d.rng.randrange(-size, size)))
        elif choice < 0.65:
            parts.append("None")
            parts.append(":")
        else:
            start, stop = d.rng.randrange(size), d.rng.randint(1, size)
            step = d.rng.choice(("", "", ":2", ":3"))
            parts.append(f"{start}:{stop}{step}" if start < stop or d.chance(0.05) else f":{stop}{step}")
    d.emit(f"{{0}}[{', '.join(parts)}]", value, certain=True)


@operation(2)
def view(d: Draw) -> None:
    value = d.any(rank=(1, 4))
    if value is None:
        return
    dim = d.dim(value)
    size = value.shape[dim]
    step = d.rng.randint(1, 3)
    texts = [
        f"{{0}}.unsqueeze({dim})", f"{{0}}.squeeze({dim})", "{0}.squeeze()", "{0}.flatten()",
        f"{{0}}.flatten({d.rng.randrange(value.rank)})", f"{{0}}.select({dim}, {max(0, size - 1)})",
        f"{{0}}.narrow({dim}, {size // 3}, {max(1, size // 2)})", "{0}.mT", f"{{0}}.movedim({dim}, 0)",
        f"{{0}}.unfold({dim}, {d.rng.randint(1, min(4, max(1, size)))}, {step})", "{0}.unsqueeze(0)",
        f"{{0}}.chunk(2, {dim})[-1]", f"{{0}}.split({max(1, size // 2)}, {dim})[0]", "{0}.diagonal()",
        f"{{0}}.expand({d.rng.randint(1, 3)}, *{value.shape})", f"{{0}}.tensor_split(3, {dim})[1]",
        f"{{0}}.swapaxes({dim}, -1)", f"{{0}}.unbind({dim})[0]", "torch.atleast_2d({0})",
    ]  # fmt: skip
    d.emit(d.rng.choice(texts), value, certain=True)


@operation(2)
def move(d: Draw) -> None:
    value = d.any(rank=(1, 4))
    if value is None:
        return
    dim, shift = d.dim(value), d.rng.randint(-5, 70)
    texts = [
        f"{{0}}.flip({dim})", f"{{0}}.roll({shift}, {dim})", f"{{0}}.roll({shift})", "{0}.tril()", "{0}.triu(1)",
        f"{{0}}.repeat({d.rng.randint(1, 3)}, *{[1] * value.rank})", f"{{0}}.repeat_interleave(2, {dim})",
        "{0}.tile(2)", "{0}.rot90()", "torch.tril({0}, -1)", "torch.diag_embed({0})", "{0}.fliplr()",
        f"torch.cat(({{0}}, {{0}}), {dim})", f"torch.stack(({{0}}, {{0}}), {dim})",
    ]  # fmt: skip
    d.emit(d.rng.choice(texts), value, certain=True)


@operation(1.5)
def concatenate(d: Draw) -> None:
    value = d.any(rank=(1, 4))
    if value is None:
        return
    dim, shape = d.rng.randrange(value.rank), value.shape
    if d.chance(0.3):
        other = d.new(shape, value.dtype)
        d.emit(f"torch.stack(({{0}}, {{1}}), {d.rng.randint(0, value.rank)})", value, other, certain=True)
        return
    shape[dim] = d.rng.choice((0, 1, 2, 5, 33, 64) if d.chance(0.1) else (1, 2, 5, 33, 64))
    if math.prod(shape) <= 3000:
        d.emit(f"torch.cat(({{0}}, {{1}}), {dim})", value, d.new(shape, value.dtype), certain=True)


@operation(1)
def pad(d: Draw) -> None:
    value = d.any(rank=(1, 4))
    if value is None:
        return
    amounts = [d.rng.choice((0, 0, 1, 3, 33, -1)) for _ in range(2 * d.rng.randint(1, min(2, value.rank)))]
    choice = d.rng.random()
    if choice < 0.7 or not value.is_float:
        number = d.rng.choice(
            ("0", "1", "-3", "float('inf')", "-float('inf')") if value.is_float else ("0", "1")
        )
        d.emit(f"F.pad({{0}}, {amounts}, value={number})", value, certain=True)
    else:
        mode = d.rng.choice(("reflect", "replicate", "circular"))
        d.emit(f"F.pad({{0}}, {[abs(a) % 3 for a in amounts]}, mode='{mode}')", value, certain=True)


# In place.


@operation(1.5)
def in_place(d: Draw) -> None:
    value = d.any(rank=(0, 4))
    if value is None or value.is_bool:
        return
    if value.is_float:
        text, exact = d.rng.choice((
            ("{0}.neg_()", True), ("{0}.mul_(2)", True), ("{0}.add_(1)", True), ("{0}.zero_()", True),
            ("{0}.fill_(3)", True), ("{0}.relu_()", True), ("{0}.exp_()", False), ("{0}.sigmoid_()", False),
            ("{0}.clamp_(max=1)", True), ("{0}.abs_()", True), ("{0}.tanh_()", False), ("{0}.div_(3)", False),
        ))  # fmt: skip
    else:
        text, exact = (
            d.rng.choice(("{0}.add_(2)", "{0}.neg_()", "{0}.zero_()", "{0}.mul_(3)", "{0}.abs_()")),
            True,
        )
    if d.chance(0.4) and value.rank:
        part = d.rng.choice(("[0]", "[..., 0]", "[1:]", "[..., ::2]", "[-1:]", "[None]"))
        text = text.replace("{0}", "{0}" + part)
    d.update(text, value, certain=exact)


@operation(1)
def in_place_with(d: Draw) -> None:
    value = d.any(lambda v: v.is_float, rank=(1, 4))
    if value is None:
        return
    part = d.rng.choice(("", "", "[0]", "[1:]", "[..., :1]", "[..., ::2]"))
    try:
        shape = list(eval(f"x{part}.shape", {"x": value.typed}))
    except IndexError:
        return
    other = d.new([1 if d.chance(0.2) else size for size in shape], value.dtype)
    if part and d.chance(0.5):
        # An assignment is a statement, so it is the method that it calls.
        item = {"[0]": "0", "[1:]": "slice(1, None)", "[..., :1]": "(..., slice(None, 1))",
                "[..., ::2]": "(..., slice(None, None, 2))"}[part]  # fmt: skip
        d.update(f"{{0}}.__setitem__({item}, {{1}})", value, other, certain=True)
    else:
        name = d.rng.choice(("add_", "mul_", "copy_", "sub_"))
        d.update(f"{{0}}{part}.{name}({{1}})", value, other, certain=True)


@operation(2)
def select(d: Draw) -> None:
    """Chosen by a condition, from another value or a constant."""
    value = d.any(rank=(0, 4))
    if value is None or value.is_bool:
        return
    fitting = [v for v in d.values if v.is_bool and v.certain and v.shape == value.shape]
    condition = d.rng.choice(fitting) if fitting else d.new(value.shape, "torch.bool")
    choice = d.rng.random()
    if choice < 0.4:
        d.emit("torch.where({0}, {1}, {2})", condition, value, d.like(value), certain=True)
    else:
        floats = ("0.0", "-float('inf')", "float('inf')", "-1e4", "1.5")
        number = d.rng.choice(floats) if value.is_float else d.rng.choice(("0", "3"))
        text = d.rng.choice(
            ("{0}.masked_fill({1}, N)", "torch.where({1}, {0}, N)", "torch.where({1}, N, {0})")
        )
        d.emit(text.replace("N", number), value, condition, certain=True)


def distinct_rows(dim: int) -> Callable[[Value], bool]:
    """Return a test of a value: all elements along ``dim`` are different."""

    def test(value: Value) -> bool:
        ordered = value.exact.double().sort(dim).values
        return bool((ordered.diff(dim=dim) > 0).all())

    return test


def finite(x: Tensor) -> bool:
    return bool(torch.isfinite(x).all())
