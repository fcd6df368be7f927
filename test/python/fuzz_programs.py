# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random PyTorch programs: typed values in the order made, and statements drawn over them (``fuzz_operations.py``).

While a program is drawn PyTorch evaluates it, in its own types and in float64. A statement that PyTorch refuses, or
whose result says nothing (too large, ill-conditioned), is drawn again. ``draw(seed)`` is a function of its seed alone.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import fuzz_loops
import torch
from fuzz_case import Case, Statement, in_float64, quiet_float64
from fuzz_inputs import EXACT_EVERYWHERE, FLOATS, Input
from torch import Tensor

SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129)

#: The most elements of a value.
ELEMENTS = 6_000

HALF, BRAIN, SINGLE = "torch.float16", "torch.bfloat16", "torch.float32"

#: Relative error of PyTorch's own result above which a value says nothing.
ILL_CONDITIONED = 0.05

Test = Callable[["Value"], bool]


@dataclass
class Value:
    """A tensor of the program: as PyTorch computes it in its own type and in float64.

    ``certain``: every arithmetic gives exactly these numbers, so that comparing or rounding them is well defined.
    """

    name: str
    typed: Tensor
    exact: Tensor
    certain: bool

    @property
    def shape(self) -> list[int]:
        return list(self.typed.shape)

    @property
    def rank(self) -> int:
        return self.typed.dim()

    @property
    def dtype(self) -> str:
        return str(self.typed.dtype)

    @property
    def is_float(self) -> bool:
        return self.typed.is_floating_point()

    @property
    def is_bool(self) -> bool:
        return self.typed.dtype == torch.bool

    @property
    def is_integer(self) -> bool:
        return not self.is_float and not self.is_bool


class Draw:
    """A program that is being drawn: its values so far and what operations draw from."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.values: list[Value] = []
        self.inputs: list[Input] = []
        self.statements: list[Statement] = []
        self.float_type = self.rng.choices((HALF, BRAIN, SINGLE), (10, 2, 2))[0]
        self.options = self._options()

    def _options(self) -> dict[str, Any]:
        rng, options = self.rng, {}
        if rng.random() < 0.6:
            options["sencores"] = rng.choice((1, 2, 3, 4, 7, 8, 16, 31, 32))
        if rng.random() < 0.25:
            options["precision"] = "strict"
        numerics = rng.choices((None, "ieee", "dl16"), (5, 2, 3))[0]
        if numerics:
            options["numerics"] = numerics
        return options

    @property
    def bit_true(self) -> bool:
        return self.options.get("numerics") == "dl16"

    # -- choices of operands and options

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def any(self, *tests: Test, rank: tuple[int, int] = (0, 4)) -> Value | None:
        """A value that passes the tests, the newest ones more often; sometimes, or without any, a new float input."""
        low, high = rank
        fitting = [v for v in self.values if low <= v.rank <= high and all(test(v) for test in tests)]
        if not fitting:
            return None
        return self.rng.choices(fitting, [1.6**k for k in range(len(fitting))])[0]

    def floating(self, rank: tuple[int, int] = (0, 4), *tests: Test) -> Value | None:
        """A value of floating type, or a new one."""
        value = self.any(lambda v: v.is_float, *tests, rank=rank)
        if value is None and not tests:
            return self.new(self.shape(max(1, rank[0]), min(3, rank[1])))
        return value

    def dim(self, value: Value) -> int:
        """A dim of a value, counted from the end in one of four."""
        dim = self.rng.randrange(value.rank)
        return dim - value.rank if self.chance(0.25) else dim

    def shape(self, low: int = 1, high: int = 4) -> list[int]:
        rank = self.rng.randint(low, high)
        shape: list[int] = []
        for _ in range(rank):
            fitting = [size for size in SIZES if math.prod(shape) * size <= ELEMENTS // 2]
            shape.append(self.rng.choice(fitting))
        return shape

    def like(self, value: Value) -> Value:
        """A value of the same class of types that broadcasts to another's shape, or of which the other is a part."""
        same = [
            v
            for v in self.values
            if (v.is_float, v.is_bool) == (value.is_float, value.is_bool)
            and _broadcasts(v.shape, value.shape)
        ]
        if same and self.chance(0.6):
            return self.rng.choice(same)
        shape = value.shape[self.rng.choice((0, 0, 0, min(1, value.rank))) :]
        return self.new([1 if self.chance(0.25) else size for size in shape], value.dtype)

    def new(self, shape: Sequence[int], dtype: str = "", values: str = "", role: str = "") -> Value:
        """A new input, or a buffer."""
        dtype = dtype or self.float_type
        if not values:
            plain = "normal" if dtype in (HALF, BRAIN, SINGLE) else "any"
            values = (
                self.rng.choice([name for name in FLOATS if name != "mask"]) if self.chance(0.35) else plain
            )
            if dtype not in (HALF, BRAIN, SINGLE):
                values = "any"
        role = role or ("buffer" if self.inputs and self.chance(0.15) else "input")
        given = Input(f"x{len(self.inputs)}", tuple(shape), dtype, values, self.rng.randrange(2**31), role)
        self.inputs.append(given)
        typed = given.tensor()
        exact = typed.double() if typed.is_floating_point() else typed.clone()
        certain = not typed.is_floating_point() or not self.bit_true or values in EXACT_EVERYWHERE
        self.values.append(Value(given.name, typed, exact, certain))
        return self.values[-1]

    # -- statements

    def emit(self, text: str, *operands: Value, certain: bool = False) -> Value | None:
        """Appends ``name = text``; None if PyTorch refuses, or the result says nothing.

        ``certain`` results are exact where their operands are.
        """
        name = f"v{len(self.statements)}"
        statement = Statement(name, text, tuple(v.name for v in operands))
        try:
            typed, exact = self._evaluate(statement)
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
            return None
        if not isinstance(typed, Tensor) or typed.numel() > ELEMENTS or typed.dim() > 5:
            return None
        if not self._says_something(typed, exact):
            return None
        self.statements.append(statement)
        exactly = certain and all(v.certain for v in operands) and self._is_exact(typed, exact)
        self.values.append(Value(name, typed, exact, exactly))
        return self.values[-1]

    def update(self, text: str, target: Value, *operands: Value, certain: bool = False) -> bool:
        """Appends a statement that changes a value in place, with all values that share its memory."""
        statement = Statement("", text, (target.name, *(v.name for v in operands)))
        try:
            self._evaluate(statement)
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
            return False
        self.statements.append(statement)
        memory = target.typed.untyped_storage().data_ptr()
        for value in self.values:
            if value.typed.untyped_storage().data_ptr() == memory:
                exactly = certain and all(v.certain for v in operands)
                value.certain = value.certain and exactly and self._is_exact(value.typed, value.exact)
        return True

    def _evaluate(self, statement: Statement) -> tuple[Any, Any]:
        code = statement.text.format(*statement.operands)
        names = {"torch": torch, "F": torch.nn.functional, **fuzz_loops.PLAIN}
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            typed = eval(code, {**names, **{v.name: v.typed for v in self.values}})
        with quiet_float64():
            exact = eval(in_float64(code), {**names, **{v.name: v.exact for v in self.values}})
        return typed, exact

    def _is_exact(self, typed: Tensor, exact: Tensor) -> bool:
        if not torch.equal(typed.double().nan_to_num(-77), exact.double().nan_to_num(-77)):
            return False
        if not self.bit_true or not typed.is_floating_point():
            return True
        mantissa, _ = torch.frexp(torch.nan_to_num(exact, 0, 0, 0))
        return bool((mantissa * 2**10 == torch.round(mantissa * 2**10)).all())

    def _says_something(self, typed: Tensor, exact: Tensor) -> bool:
        if typed.shape != exact.shape:
            return False
        if not typed.is_floating_point():
            return torch.equal(typed, exact)
        if not typed.numel():
            return True
        regular = torch.isfinite(typed) & torch.isfinite(exact)
        if not regular.any():
            return self.chance(0.05)
        largest = float(exact[regular].abs().max())
        error = float((typed.double()[regular] - exact[regular]).abs().max())
        return error <= ILL_CONDITIONED * largest or largest == 0

    def finish(self) -> Case:
        """The case: some of the values are returned, the last one among them."""
        made = [v for v in self.values if v.name.startswith("v")] or self.values[:1]
        results = [made[-1].name]
        for value in made[:-1]:
            if self.chance(0.2 if len(made) > 2 else 0.4):
                results.insert(0, value.name)
        if self.chance(0.05):
            results.append(self.rng.choice(self.values).name)
        structure = self.rng.choices(("tuple", "list", "dict"), (8, 1, 1))[0]
        results = list(dict.fromkeys(results)) if structure == "dict" else results
        used = {name for s in self.statements for name in s.operands} | set(results)
        inputs = tuple(each for each in self.inputs if each.name in used)
        return Case(inputs, tuple(self.statements), tuple(results), structure, self.chance(0.1), self.options)


def _broadcasts(one: Sequence[int], other: Sequence[int]) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(one), reversed(other), strict=False))


def draw(seed: int) -> Case:
    """The program of a seed: one to nine statements."""
    import fuzz_reductions  # noqa: F401  registers its operations
    from fuzz_operations import OPERATIONS

    drawing = Draw(seed)
    drawing.new(drawing.shape(1, 4))
    return drawn(drawing, OPERATIONS, drawing.rng.choice((1, 1, 2, 2, 3, 4, 5, 6, 7, 9)))


def drawn(drawing: Draw, operations: Sequence[Any], steps: int) -> Case:
    """Return the program of a drawing, with inputs and ``steps`` statements of operations."""
    weights = [operation.weight for operation in operations]
    tries = 0
    while len(drawing.statements) < steps and tries < 200:
        tries += 1
        drawing.rng.choices(operations, weights)[0].draw(drawing)
    if not any(v.name.startswith("v") for v in drawing.values):
        drawing.emit("{0} + 1", drawing.values[0])
    return drawing.finish()
