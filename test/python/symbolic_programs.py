# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random linalg programs with run-time sizes, and their results at a size by numpy in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

GRANULARITY = 64

#: Dims of a value by name: "S" and "T" are run-time sizes, numbers are fixed.
Dims = tuple[str | int, ...]


@dataclass
class SymbolicProgramText:
    """A program of up to two run-time sizes: its text, and the result by numpy from the inputs at a size."""

    rng: np.random.Generator
    largest: dict[str, int]
    lines: list[str] = field(default_factory=list)
    values: list[tuple[str, Dims]] = field(default_factory=list)
    inputs: list[tuple[str, Dims, bool]] = field(default_factory=list)
    evaluate: list[tuple[str, Callable[[dict], np.ndarray]]] = field(default_factory=list)

    @classmethod
    def of_seed(cls, seed: int) -> SymbolicProgramText:
        """Make the program of a seed: three to eight operations on one or two inputs."""
        rng = np.random.default_rng(seed)
        steps = [int(rng.integers(2, 5)) for _ in range(2)]
        program = cls(rng, {name: GRANULARITY * count for name, count in zip("ST", steps, strict=True)})
        program.argument(("S", int(rng.choice([64, 128, 96]))))
        if rng.random() < 0.4:
            program.argument(("T" if rng.random() < 0.5 else "S", int(rng.choice([64, 128]))))
        for _ in range(int(rng.integers(3, 9))):
            program.step()
        return program

    def argument(self, dims: Dims, weight: bool = False) -> tuple[str, Dims]:
        """Add an argument."""
        name = f"{'w' if weight else 'x'}{len(self.inputs)}"
        self.inputs.append((name, dims, weight))
        if not weight:
            self.values.append((name, dims))
        return name, dims

    def type(self, dims: Dims) -> str:
        """The type of a tensor, at the largest sizes."""
        return f"tensor<{'x'.join(str(self.largest.get(dim, dim)) for dim in dims)}xf16>"

    def add(self, text: str, dims: Dims, evaluate: Callable[[dict], np.ndarray]) -> None:
        """Add an operation; its text has {r}, {e} and {t} for the result, its destination and its type."""
        name = f"v{len(self.evaluate)}"
        self.lines.append(f"%{name}_e = tensor.empty() : {self.type(dims)}")
        self.lines.append(text.format(r=f"%{name}", e=f"%{name}_e", t=self.type(dims)))
        self.evaluate.append((name, evaluate))
        self.values.append((name, dims))

    def pick(self, rank: int = 2) -> tuple[str, Dims]:
        """Choose a value, later ones more often."""
        values = [value for value in self.values if len(value[1]) == rank]
        return values[min(int(self.rng.integers(0, len(values) + 2)), len(values) - 1)]

    # -- operations -----------------------------------------------------------------------------------

    def step(self) -> None:
        """Add one operation of a random kind."""
        kinds = [
            self.unary,
            self.binary,
            self.linear,
            self.scores,
            self.reduction,
            self.transpose,
            self.softmax,
        ]
        kinds[int(self.rng.integers(0, len(kinds)))]()

    def unary(self) -> None:
        """Add tanh, abs or a negation."""
        (x, dims), kind = self.pick(), int(self.rng.integers(0, 3))
        op, function = (("math.tanh", np.tanh), ("math.absf", np.abs), ("arith.negf", np.negative))[kind]
        self.generic([(x, dims)], dims, f"%o = {op} %a : f16", lambda env: function(env[x]))

    def binary(self) -> None:
        """Add a sum or a product of two values of equal dims, or of a value and a row or a column of it."""
        x, dims = self.pick()
        others = [value for value in self.values if value[1] in (dims, dims[:1], dims[1:])]
        y, other = others[int(self.rng.integers(0, len(others)))]
        op, function = (("arith.addf", np.add), ("arith.mulf", np.multiply))[int(self.rng.integers(0, 2))]
        is_column = len(other) == 1 and other == dims[:1]

        def evaluate(env: dict) -> np.ndarray:
            right = env[y][:, None] if is_column else env[y]
            return function(env[x], right) / 2

        kept = (0, 1) if len(other) == 2 else (0,) if is_column else (1,)
        body = (
            f"%p = {op} %a, %b : f16\n      %h = arith.constant 0.5 : f16\n      %o = arith.mulf %p, %h : f16"
        )
        self.generic([(x, dims), (y, other)], dims, body, evaluate, [(0, 1), kept])

    def generic(
        self,
        operands: list[tuple[str, Dims]],
        dims: Dims,
        body: str,
        evaluate: Callable[[dict], np.ndarray],
        maps: list[tuple[int, ...]] | None = None,
    ) -> None:
        """Add an elementwise operation."""
        rank = len(dims)
        iteration = ", ".join(f"d{dim}" for dim in range(rank))
        maps = [*(maps or [tuple(range(rank))] * len(operands)), tuple(range(rank))]
        texts = ", ".join(
            f"affine_map<({iteration}) -> ({', '.join(f'd{dim}' for dim in map_)})>" for map_ in maps
        )
        kinds = ", ".join(['"parallel"'] * rank)
        names, types = (
            ", ".join(f"%{name}" for name, _ in operands),
            ", ".join(self.type(other) for _, other in operands),
        )
        arguments = ", ".join(f"%{letter}: f16" for letter, _ in zip("ab", operands, strict=False))
        self.add(
            f"{{r}} = linalg.generic {{{{indexing_maps = [{texts}], iterator_types = [{kinds}]}}}} "
            f"ins({names} : {types}) outs({{e}} : {{t}}) {{{{\n    ^bb0({arguments}, %z: f16):\n      {body}\n"
            "      linalg.yield %o : f16\n    }} -> {t}",
            dims,
            evaluate,
        )

    def linear(self) -> None:
        """Add a product with a weight, where the depth is fixed."""
        x, dims = self.pick()
        if not isinstance(dims[1], int):
            self.unary()
            return
        w, _ = self.argument((dims[1], int(self.rng.choice([64, 128, 192]))), weight=True)
        columns = self.inputs[-1][1][1]
        self.matmul((x, dims), (w, self.inputs[-1][1]), (dims[0], columns))

    def scores(self) -> None:
        """Add a product of two values: rows by a transposed value, or by one of as many rows as this has columns."""
        (x, dims), (y, other) = self.pick(), self.pick()
        if dims[1] == other[0]:
            self.matmul((x, dims), (y, other), (dims[0], other[1]))
        elif dims[1] == other[1]:
            self.transposed((y, other))
            self.matmul((x, dims), (self.evaluate[-1][0], other[::-1]), (dims[0], other[0]))
        else:
            self.unary()

    def matmul(self, x: tuple[str, Dims], y: tuple[str, Dims], dims: Dims) -> None:
        """Add a product, divided by the square root of the largest depth."""
        depth = self.largest.get(x[1][1], x[1][1])
        scale = 1 / float(np.sqrt(depth))
        name = f"f{len(self.evaluate)}"
        self.lines += [
            f"%{name}_e = tensor.empty() : {self.type(dims)}",
            f"%{name} = linalg.fill ins(%zero : f16) outs(%{name}_e : {self.type(dims)}) -> {self.type(dims)}",
        ]
        self.add(
            f"{{r}} = linalg.matmul ins(%{x[0]}, %{y[0]} : {self.type(x[1])}, {self.type(y[1])}) "
            f"outs(%{name} : {{t}}) -> {{t}}",
            dims,
            lambda env: env[x[0]] @ env[y[0]],
        )
        product = self.evaluate[-1][0]
        body = f"%h = arith.constant {scale:.6f} : f16\n      %o = arith.mulf %a, %h : f16"
        self.generic([(product, dims)], dims, body, lambda env: env[product] * float(np.float16(scale)))
        # The product itself may be large, so later steps read the scaled product.
        self.values = [value for value in self.values if value[0] != product]

    def reduction(self) -> None:
        """Add a maximum or a scaled sum along one dim."""
        (x, dims), along = self.pick(), int(self.rng.integers(0, 2))
        kept = 1 - along
        is_max = self.rng.random() < 0.5
        start, op = ("%lowest", "arith.maximumf") if is_max else ("%zero", "arith.addf")
        name, result = f"f{len(self.evaluate)}", (dims[kept],)
        self.lines += [
            f"%{name}_e = tensor.empty() : {self.type(result)}",
            f"%{name} = linalg.fill ins({start} : f16) outs(%{name}_e : {self.type(result)}) -> {self.type(result)}",
        ]
        kinds = ", ".join('"reduction"' if dim == along else '"parallel"' for dim in (0, 1))
        self.add(
            "{r} = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, "
            f"affine_map<(d0, d1) -> (d{kept})>], iterator_types = [{kinds}]}}}} "
            f"ins(%{x} : {self.type(dims)}) outs(%{name} : {{t}}) {{{{\n    ^bb0(%a: f16, %z: f16):\n"
            f"      %o = {op} %a, %z : f16\n      linalg.yield %o : f16\n    }}}} -> {{t}}",
            result,
            (lambda env: env[x].max(along)) if is_max else (lambda env: env[x].sum(along)),
        )
        if not is_max:
            total = self.evaluate[-1][0]
            scale = 1 / self.largest.get(dims[along], dims[along])
            body = f"%h = arith.constant {scale:.6f} : f16\n      %o = arith.mulf %a, %h : f16"
            self.generic([(total, result)], result, body, lambda env: env[total] * float(np.float16(scale)))
            self.values = [value for value in self.values if value[0] != total]

    def transpose(self) -> None:
        """Add a transpose."""
        self.transposed(self.pick())

    def transposed(self, value: tuple[str, Dims]) -> None:
        """Add the transpose of a value."""
        x, dims = value
        self.add(
            f"{{r}} = linalg.transpose ins(%{x} : {self.type(dims)}) outs({{e}} : {{t}}) permutation = [1, 0]",
            dims[::-1],
            lambda env: env[x].T,
        )

    def softmax(self) -> None:
        """Add a softmax along the last dim."""
        x, dims = self.pick()

        def evaluate(env: dict) -> np.ndarray:
            shifted = np.exp(env[x] - env[x].max(1, keepdims=True))
            return shifted / shifted.sum(1, keepdims=True)

        self.add(
            f"{{r}} = linalg.softmax dimension(1) ins(%{x} : {self.type(dims)}) outs({{e}} : {{t}}) -> {{t}}",
            dims,
            evaluate,
        )

    # -- whole program --------------------------------------------------------------------------------

    @property
    def result(self) -> tuple[str, Dims]:
        """The value that the program returns, the last of its steps."""
        return self.values[-1]

    def module(self) -> str:
        """The text of the module."""
        arguments = []
        for name, dims, _ in self.inputs:
            marks = ", ".join(
                f'd{position} = ["{dim}", 1 : i64]'
                for position, dim in enumerate(dims)
                if dim in self.largest
            )
            symbolic = f"sdsc.symbolic = {{{marks}}}, " if marks else ""
            arguments.append(f'%{name}: {self.type(dims)} {{{symbolic}spyre.name = "{name}"}}')
        sizes = ", ".join(
            f"{name} = array<i64: {GRANULARITY}, {most}>" for name, most in self.largest.items()
        )
        body = "\n  ".join(self.lines)
        returned = self.type(self.result[1])
        return (
            f"func.func @main({', '.join(arguments)}) -> {returned} attributes {{sdsc.sizes = {{{sizes}}}}} {{\n"
            f"  %zero = arith.constant 0.0 : f16\n  %lowest = arith.constant 0xFC00 : f16\n  {body}\n"
            f"  return %{self.result[0]} : {returned}\n}}\n"
        )

    def arrays(self, sizes: dict[str, int], rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Random arrays of the arguments at these sizes."""
        return {
            name: rng.standard_normal([sizes.get(dim, dim) for dim in dims]).astype(np.float16)
            for name, dims, _ in self.inputs
        }

    def expected(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """The result by numpy."""
        env = {name: array.astype(np.float64) for name, array in arrays.items()}
        for name, evaluate in self.evaluate:
            env[name] = evaluate(env)
        return env[self.result[0]]
