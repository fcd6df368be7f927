# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs of device operations in nested loops over tensors, as tiling writes them."""

from __future__ import annotations

import random

import numpy as np

SIZES = (64, 128, 192)
_BODIES = {"tanh": "math.tanh %a0", "add": "arith.addf %a0, %a1", "sub": "arith.subf %a0, %a1"}


def random_loop_program(rng: random.Random) -> tuple[str, dict[str, np.ndarray]]:
    """The text of ``@main`` with one to three loop nests in a row, and its inputs by name."""
    return _Writer(rng).program()


class _Writer:
    """``known`` are the tensors that the current block may read, by name."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.known: dict[str, tuple[int, int]] = {}
        self.names = 0

    def program(self) -> tuple[str, dict[str, np.ndarray]]:
        arguments = []
        for number in range(3):
            shape = (self.rng.choice(SIZES), self.rng.choice(SIZES))
            kind = self.rng.choice(("input", "input", "parameter"))
            self.known[f"%x{number}"] = shape
            host = f'{{sdsc.host = #sdsc.host<"x{number}", "{kind}", "f16">}}'
            arguments.append(f"%x{number}: {_type(shape)} {host}")
        inputs = {name[1:]: _array(shape, seed) for seed, (name, shape) in enumerate(self.known.items())}
        for constant in (0, 1, 2, 3, 4, 6):
            self._line(f"%c{constant} = arith.constant {constant} : index")
        shape = self.rng.choice(list(self.known.values()))
        result = self._initial(shape)
        for _ in range(self.rng.randint(1, 3)):
            result = self._nest(result, shape, self.rng.randint(1, 2), [])
            self.known[result] = shape
        lines = "\n".join(self.lines)
        head = f"func.func @main({', '.join(arguments)}) -> {_type(shape)}"
        return f"{head} {{\n{lines}\nreturn {result} : {_type(shape)}\n}}\n", inputs

    def _line(self, text: str) -> None:
        self.lines.append(text)

    def _new(self) -> str:
        self.names += 1
        return f"%v{self.names}"

    def _initial(self, shape: tuple[int, int]) -> str:
        """Return a first tensor: an argument, or a function of an argument."""
        source = next(name for name, other in self.known.items() if other == shape)
        return self._operation("tanh", [(source, "d0, d1")], shape) if self.rng.random() < 0.6 else source

    def _nest(self, initial: str, shape: tuple[int, int], depth: int, around: list[str]) -> str:
        """A loop that carries a buffer, and perhaps one in it."""
        trips = self.rng.choice((2, 3, 4))
        variable, carried, result = self._new(), self._new(), self._new()
        self._line(
            f"{result} = scf.for {variable} = %c0 to %c{trips} step %c1 "
            f"iter_args({carried} = {initial}) -> ({_type(shape)}) {{"
        )
        outside, self.known = dict(self.known), self.known | {carried: shape}
        if depth > 1:
            following = self._nest(carried, shape, depth - 1, [*around, variable])
        else:
            following = self._tile(carried, shape, trips, variable)
        self.known = outside
        self._line(f"scf.yield {following} : {_type(shape)}\n}}")
        return result

    def _tile(self, carried: str, shape: tuple[int, int], trips: int, variable: str) -> str:
        """Compute one tile and insert it into the buffer, or compute the whole buffer again."""
        dim = self.rng.randrange(2)
        if shape[dim] % trips or self.rng.random() < 0.2:
            return self._compute(shape, [(carried, "d0, d1"), *self._whole(shape)])
        size = shape[dim] // trips
        offset = self._new()
        self._line(f"{offset} = affine.apply affine_map<(d0) -> (d0 * {size})>({variable})")
        tile = (size, shape[1]) if dim == 0 else (shape[0], size)
        parts = [(self._part(shape, dim, offset, tile), offset)]
        if self.rng.random() < 0.6:
            parts.append((self._part(shape, dim, self.rng.choice(("0", offset)), tile), "0"))
        self.rng.shuffle(parts)
        for part, place in parts:
            following = self._new()
            self._line(
                f"{following} = tensor.insert_slice {part} into {carried}{_place(dim, place, tile)} : "
                f"{_type(tile)} into {_type(shape)}"
            )
            carried = following
            if self.rng.random() < 0.3:
                self.known[carried] = shape
                parts.append((self._part(shape, dim, offset, tile), "0"))
        return carried

    def _part(self, shape: tuple[int, int], dim: int, offset: str, tile: tuple[int, int]) -> str:
        """A tile computed from tiles at one offset, and from whole tensors."""
        sources = [
            (self._slice(name, other, dim, offset, tile), self.rng.choice(_turns(tile)))
            for name, other in self._pick(shape)
        ]
        return self._compute(tile, sources + self._whole(tile))

    def _pick(self, shape: tuple[int, int]) -> list[tuple[str, tuple[int, int]]]:
        alike = [(name, other) for name, other in self.known.items() if other == shape]
        return self.rng.sample(alike, min(len(alike), self.rng.randint(1, 2)))

    def _whole(self, shape: tuple[int, int]) -> list[tuple[str, str]]:
        """Tensors that are read as a whole, turned or not."""
        found = [(name, "d0, d1") for name, other in self.known.items() if other == shape]
        found += [(name, "d1, d0") for name, other in self.known.items() if other == shape[::-1]]
        return self.rng.sample(found, min(len(found), self.rng.randint(0, 2)))

    def _slice(
        self, source: str, shape: tuple[int, int], dim: int, offset: str, tile: tuple[int, int]
    ) -> str:
        made = self._new()
        place = _place(dim, offset, tile)
        self._line(f"{made} = tensor.extract_slice {source}{place} : {_type(shape)} to {_type(tile)}")
        return made

    def _compute(self, shape: tuple[int, int], sources: list[tuple[str, str]]) -> str:
        made, *others = sources
        made = (self._operation("tanh", [made], shape), "d0, d1")
        for other in others:
            made = (self._operation(self.rng.choice(("add", "sub")), [made, other], shape), "d0, d1")
        return made[0]

    def _operation(self, opcode: str, sources: list[tuple[str, str]], shape: tuple[int, int]) -> str:
        made, empty = self._new(), self._new()
        types = ", ".join(_type(shape if dims == "d0, d1" else shape[::-1]) for _, dims in sources)
        maps = ", ".join(f"affine_map<(d0, d1) -> ({dims})>" for _, dims in [*sources, ("", "d0, d1")])
        scalars = ", ".join(f"%a{number}: f16" for number in range(len(sources)))
        self._line(f"{empty} = tensor.empty() : {_type(shape)}")
        self._line(
            f'{made} = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel"]}} '
            f"ins({', '.join(name for name, _ in sources)} : {types}) outs({empty} : {_type(shape)}) "
            f'attrs = {{sdsc.op = #sdsc.op<"{opcode}", {{}}>}} {{\n^bb0({scalars}, %o: f16):\n'
            f"%r = {_BODIES[opcode]} : f16\nlinalg.yield %r : f16\n}} -> {_type(shape)}"
        )
        return made


def _type(shape: tuple[int, int]) -> str:
    return f"tensor<{shape[0]}x{shape[1]}xf16>"


def _turns(shape: tuple[int, int]) -> list[str]:
    return ["d0, d1", "d1, d0"] if shape[0] == shape[1] else ["d0, d1"]


def _place(dim: int, offset: str, tile: tuple[int, int]) -> str:
    offsets = f"{offset}, 0" if dim == 0 else f"0, {offset}"
    return f"[{offsets}] [{tile[0]}, {tile[1]}] [1, 1]"


def _array(shape: tuple[int, int], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 0.5, shape).astype(np.float16)
