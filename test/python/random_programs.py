# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random PyTorch programs whose numbers are exact: small integers, so that every 16-bit result is the integer.

A program is a list of instructions over a growing list of tensors. Its float64 run gives the exact results, and each
value and each partial sum is checked, while the program is drawn, to be an integer that fp16 represents.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

LARGEST = 2048.0  # all integers up to here are fp16 numbers


@dataclass(frozen=True)
class Drawing:
    """Distribution of programs: ``sizes`` of dims, the fewest ``elements`` of the first input and the most of any.

    Inputs are uniform integers of at most ``largest_input``; there are 1 to ``steps`` of the named ``instructions``.
    """

    sizes: tuple[int, ...]
    elements: tuple[int, int]
    largest_input: int
    steps: int
    instructions: tuple[str, ...]


SMALL = Drawing(
    sizes=(1, 2, 3, 5, 31, 32, 63, 64, 65, 127, 128, 129),
    elements=(1, 12_000),
    largest_input=2,
    steps=7,
    instructions=(
        "unary", "binary", "binary", "reduction", "matmul", "permute", "reshape", "slice", "concatenate", "pad",
        "where", "stack",
    ),
)  # fmt: skip

#: Most operations have work for all cores, and a small LX cannot hold all that lives.
LARGE = Drawing(
    sizes=(1, 3, 32, 64, 65, 96, 128, 192, 256, 320, 512),
    elements=(24_000, 200_000),
    largest_input=1,
    steps=8,
    instructions=(
        "unary", "unary", "binary", "binary", "binary", "reduction", "reduction", "matmul", "matmul", "matmul",
        "permute", "reshape", "slice", "concatenate", "where",
    ),
)  # fmt: skip

#: Programs with some host operations: before, between, after and in parallel with device operations.
MIXED = Drawing(
    sizes=(1, 2, 3, 5, 31, 64, 65, 96),
    elements=(1, 6_000),
    largest_input=2,
    steps=8,
    instructions=(
        "host", "host", "host", "unary", "binary", "reduction", "matmul", "permute", "reshape", "slice",
        "concatenate", "where",
    ),
)  # fmt: skip

Instruction = tuple[Callable[..., Tensor], tuple[int, ...]]


@dataclass
class RandomProgram(nn.Module):
    """``steps`` of a function and its input tensors; ``results`` are the returned tensors."""

    seed: int
    drawing: Drawing = SMALL
    inputs: list[Tensor] = field(default_factory=list)
    steps: list[Instruction] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    text: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        _Maker(self).make()

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        values = dict(enumerate(inputs))
        for at, (function, operands) in enumerate(self.steps):
            values[len(inputs) + at] = function(*(values[operand] for operand in operands))
        return tuple(values[result] for result in self.results)

    __hash__ = nn.Module.__hash__


class _Maker:
    """Draws instructions until there are enough; what would not be exact or too large is drawn again."""

    def __init__(self, program: RandomProgram) -> None:
        self.program = program
        self.drawing = program.drawing
        self.rng = random.Random(program.seed)
        self.values: list[tuple[str, Tensor]] = []  # name and exact value, inputs and steps in order made
        self.drawn: list[tuple[str, Callable[..., Tensor], tuple[str, ...]]] = []

    def make(self) -> None:
        torch.manual_seed(self.program.seed)
        self.input(self.shape())
        wanted = self.rng.randint(1, self.drawing.steps)
        while len(self.drawn) < wanted:
            getattr(self, self.rng.choice(self.drawing.instructions))()
        self.finish()

    def finish(self) -> None:
        """Numbers the tensors: inputs first, then the steps."""
        program = self.program
        steps = {name for name, _, _ in self.drawn}
        names = [name for name, _ in self.values if name not in steps] + [name for name, _, _ in self.drawn]
        at = {name: index for index, name in enumerate(names)}
        program.steps = [(function, tuple(at[o] for o in operands)) for _, function, operands in self.drawn]
        program.inputs = [value.half() for name, value in self.values if name not in steps]
        used = {operand for _, operands in program.steps for operand in operands}
        program.results = [at[name] for name in [name for name, _, _ in self.drawn] if at[name] not in used]
        if self.rng.random() < 0.1:
            program.results.append(self.rng.randrange(len(names)))

    # -- values ---------------------------------------------------------------------------------------

    def input(self, shape: Sequence[int]) -> str:
        name, largest = f"x{len(self.values)}", self.drawing.largest_input
        self.values.append((name, torch.randint(-largest, largest + 1, tuple(shape)).double()))
        self.program.text.append(f"{name} = input{list(shape)}")
        return name

    def value(self, name: str) -> Tensor:
        return dict(self.values)[name]

    def any(self, least_rank: int = 0) -> str | None:
        fit = [name for name, value in self.values if value.dim() >= least_rank]
        # Recent values are taken more often: long chains find more faults than wide programs.
        return fit[-1] if fit and self.rng.random() < 0.6 else self.rng.choice(fit) if fit else None

    def shape(self) -> list[int]:
        fewest, most = self.drawing.elements
        while True:
            shape = [self.rng.choice(self.drawing.sizes) for _ in range(self.rng.randint(1, 4))]
            if fewest <= math.prod(shape) <= most:
                return shape

    def step(self, text: str, function: Callable[..., Tensor], *operands: str, bound: float = 0.0) -> None:
        """Adds an instruction if its result is small enough; ``bound`` is the largest partial sum."""
        result = function(*(self.value(operand) for operand in operands))
        largest = max(bound, result.abs().max().item() if result.numel() else math.inf)
        if largest > LARGEST or result.numel() > self.drawing.elements[1] or result.dim() > 5:
            return
        name = f"t{len(self.values)}"
        self.values.append((name, result))
        self.drawn.append((name, function, operands))
        self.program.text.append(f"{name} = {text.format(*operands)} : {list(result.shape)}")

    # -- instructions ---------------------------------------------------------------------------------

    def unary(self) -> None:
        text, function = self.rng.choice(
            [
                ("-{}", torch.neg),
                ("{}.abs()", torch.abs),
                ("relu({})", torch.relu),
                ("{} + 3", lambda x: x + 3),
                ("2 - {}", lambda x: 2 - x),
                ("{} * -2", lambda x: x * -2),
                ("{}.clone()", torch.clone),
                ("clamp({}, -2, 5)", lambda x: torch.clamp(x, -2, 5)),
                ("{0} * {0}", lambda x: x * x),
            ]
        )
        self.step(text, function, self.any())

    def host(self) -> None:
        """Append an operation that the device does not support: positions of maxima, running sums, orders, rounding."""
        name = self.any(1)
        if name is None:
            return
        dim = self.rng.randrange(self.value(name).dim())
        text, function = self.rng.choice(
            [
                (f"cumsum({{}}, {dim})", lambda x: torch.cumsum(x, dim)),
                (f"sort({{}}, {dim})", lambda x: torch.sort(x, dim)[0]),
                ("round({} / 2)", lambda x: torch.round(x / 2)),
                (
                    f"argmax({{}}, {dim}, keepdim=True)",
                    lambda x: torch.argmax(x, dim, keepdim=True).to(x.dtype),
                ),
                ("{}.long() % 3", lambda x: (x.long() % 3).to(x.dtype)),
            ]
        )
        self.step(
            text, function, name, bound=self.value(name).abs().sum().item() if "cumsum" in text else 0.0
        )

    def partner(self, name: str) -> str:
        """Something that broadcasts with a value: an earlier one, or a new input."""
        shape = list(self.value(name).shape)
        fit = [other for other, value in self.values if _broadcasts(value.shape, shape)]
        if fit and self.rng.random() < 0.5:
            return self.rng.choice(fit)
        kept = shape[self.rng.choice([0, 0, 0, self.rng.randint(0, len(shape))]) :]
        kept = [1 if self.rng.random() < 0.25 else size for size in kept]
        longer = self.rng.random() < 0.1 and len(kept) == len(shape) < 4
        return self.input([self.rng.choice((2, 3)), *kept] if longer else kept)

    def binary(self) -> None:
        name = self.any()
        other = self.partner(name)
        text, function = self.rng.choice(
            [
                ("{} + {}", torch.add),
                ("{} - {}", torch.sub),
                ("{} * {}", torch.mul),
                ("maximum({}, {})", torch.maximum),
                ("minimum({}, {})", torch.minimum),
                ("({} > {}).half()", lambda a, b: (a > b).to(a.dtype)),
            ]
        )
        pair = [name, other] if self.rng.random() < 0.5 else [other, name]
        self.step(text, function, *pair)

    def where(self) -> None:
        name = self.any()
        first = self.partner(name)
        second = self.input(torch.broadcast_shapes(self.value(name).shape, self.value(first).shape))
        self.step("where({0} > {1}, {0}, {2})", _where, name, first, second)

    def reduction(self) -> None:
        name = self.any(1)
        if name is None:
            return
        value = self.value(name)
        dims = tuple(sorted(self.rng.sample(range(value.dim()), self.rng.randint(1, min(2, value.dim())))))
        keep = self.rng.random() < 0.4
        kind = self.rng.choice(("sum", "amax", "amin"))
        bound = value.abs().sum(dims).max().item() if kind == "sum" else 0.0
        function = getattr(torch, kind)
        self.step(
            f"{kind}({{}}, {dims}, keepdim={keep})",
            lambda x: function(x, dim=dims, keepdim=keep),
            name,
            bound=bound,
        )

    def matmul(self) -> None:
        name = self.any(2)
        if name is None or self.value(name).dim() > 4:
            return
        shape = list(self.value(name).shape)
        inner = self.rng.choice(self.drawing.sizes)
        batch = shape[:-2] if self.rng.random() < 0.6 else []
        left = self.rng.random() < 0.5
        weight = [*batch, shape[-1], inner] if left else [*batch, inner, shape[-2]]
        if math.prod(weight) > 4 * self.drawing.elements[1]:
            return
        other = self.input(weight)
        pair = (name, other) if left else (other, name)
        bound = torch.matmul(*(self.value(each).abs() for each in pair)).max().item()
        self.step("{} @ {}", torch.matmul, *pair, bound=bound)

    def permute(self) -> None:
        name = self.any(2)
        if name is None:
            return
        order = self.rng.sample(range(self.value(name).dim()), self.value(name).dim())
        self.step(f"{{}}.permute({order})", lambda x: x.permute(order), name)

    def reshape(self) -> None:
        name = self.any(1)
        if name is None:
            return
        shape = list(self.value(name).shape)
        dim = self.rng.randrange(len(shape))
        if self.rng.random() < 0.5 and dim + 1 < len(shape):
            shape[dim : dim + 2] = [shape[dim] * shape[dim + 1]]
        else:
            divisor = self.rng.choice([n for n in range(1, shape[dim] + 1) if shape[dim] % n == 0])
            shape[dim : dim + 1] = [divisor, shape[dim] // divisor]
        self.step(f"{{}}.reshape({shape})", lambda x: x.reshape(shape), name)

    def slice(self) -> None:
        name = self.any(1)
        if name is None:
            return
        shape = self.value(name).shape
        dim = self.rng.randrange(len(shape))
        start = self.rng.choice(
            [0, self.rng.randrange(shape[dim]), self.rng.randrange(shape[dim]) // 64 * 64]
        )
        stop = self.rng.choice([shape[dim], self.rng.randint(start + 1, shape[dim])])
        step = self.rng.choice((1, 1, 1, 2))
        cut = (slice(None),) * dim + (slice(start, stop, step),)
        if self.rng.random() < 0.2:
            cut = (slice(None),) * dim + (start,)
        self.step(f"{{}}[{cut}]", lambda x: x[cut], name)

    def concatenate(self) -> None:
        name = self.any(1)
        if name is None:
            return
        shape = list(self.value(name).shape)
        dim = self.rng.randrange(len(shape))
        if self.rng.random() < 0.3:
            other = name
        else:
            shape[dim] = self.rng.choice(self.drawing.sizes)
            if math.prod(shape) > self.drawing.elements[1]:
                return
            other = self.input(shape)
        self.step(f"cat(({{}}, {{}}), {dim})", lambda a, b: torch.cat((a, b), dim), name, other)

    def stack(self) -> None:
        name = self.any(1)
        if name is None:
            return
        dim = self.rng.randint(0, self.value(name).dim())
        other = self.input(list(self.value(name).shape))
        self.step(f"stack(({{}}, {{}}), {dim})", lambda a, b: torch.stack((a, b), dim), name, other)

    def pad(self) -> None:
        name = self.any(1)
        if name is None:
            return
        dims = self.rng.randint(1, min(2, self.value(name).dim()))
        amounts = [self.rng.choice((0, 0, 1, 3, 33)) for _ in range(2 * dims)]
        value = self.rng.choice((0.0, -3.0))
        self.step(
            f"pad({{}}, {amounts}, {value})", lambda x: nn.functional.pad(x, amounts, value=value), name
        )


def _where(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return torch.where(a > b, a, c)


def _broadcasts(one: Sequence[int], other: Sequence[int]) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(one), reversed(other), strict=False))
