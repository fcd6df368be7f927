# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs over named dims: views that merge, split and permute named axes, under one or two levels of hints.

A value knows which named axes each of its dims is made of, outermost first. The same program without names and hints is
its reference. ``python test/python/fuzz_named_dims.py 400`` runs 400 programs and prints a table.
"""

from __future__ import annotations

import math
import random
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from programs import Apply, check_close

import spyre_mlir
from spyre_mlir import clear_tensor_dims, declare_tensor_dim, name_tensor_dims, spyre_hint
from spyre_mlir.bundle.model import Loop
from spyre_mlir.bundle.validate import validate
from spyre_mlir.faults import faults_kept

#: Of the largest value: eight operations, each of which rounds to 16 bits, also where PyTorch does not (softmax).
FLOOR = 4e-3

#: The axes of each dim of a value.
Axes = tuple[tuple[str, ...], ...]

_SIZES = (2, 2, 3, 4, 8, 16, 64, 64, 128)
_LARGEST = 2**15
_UNARY = ("torch.tanh({})", "torch.relu({})", "torch.sigmoid({})", "{} * 0.5", "torch.exp(-torch.abs({}))")
_BINARY = ("{} + {}", "{} * {}", "{} - {}", "torch.maximum({}, {})")
_REDUCTIONS = ("{}.sum({})", "{}.mean({})", "{}.amax({})")


@dataclass(frozen=True)
class Value:
    name: str
    axes: Axes

    @property
    def all_axes(self) -> tuple[str, ...]:
        return tuple(axis for own in self.axes for axis in own)


@dataclass(frozen=True)
class Tiles:
    """A hint around the statements from ``first`` to before ``last``."""

    first: int
    last: int
    tiles: dict[str, int]


@dataclass
class NamedProgram:
    """Statements over inputs with named storage, and the hints around them, the outer one first."""

    seed: int
    sizes: dict[str, int] = field(default_factory=dict)
    inputs: list[Value] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    hints: list[Tiles] = field(default_factory=list)
    result: str = ""

    def shape(self, axes: Axes) -> list[int]:
        return [math.prod(self.sizes[axis] for axis in own) for own in axes]

    def source(self, *, hinted: bool = True) -> str:
        lines = [f"def model({', '.join(each.name for each in self.inputs)}):"]
        open_: list[Tiles] = []
        for at, statement in enumerate(self.statements):
            open_ = [each for each in open_ if at < each.last]
            for each in self.hints if hinted else ():
                if each.first == at:
                    lines.append(f"{'    ' * (len(open_) + 1)}with spyre_hint(tiles={each.tiles}):")
                    open_.append(each)
            lines.append(f"{'    ' * (len(open_) + 1)}{statement}")
        return "\n".join([*lines, f"    return {self.result}", ""])

    def text(self) -> str:
        """All that one needs to run it again."""
        inputs = (f"{each.name} {self.shape(each.axes)} names {list(each.all_axes)}" for each in self.inputs)
        return "\n".join([f"seed {self.seed}, sizes {self.sizes}", *inputs, self.source()])

    def function(self, *, hinted: bool = True) -> Callable:
        names: dict = {"torch": torch, "spyre_hint": spyre_hint}
        exec(compile(self.source(hinted=hinted), f"named_{self.seed}.py", "exec"), names)
        return names["model"]

    def tensors(self) -> list[torch.Tensor]:
        """The inputs, numbers of one size."""
        generator = torch.Generator().manual_seed(self.seed)
        return [torch.randn(self.shape(each.axes), generator=generator).half() for each in self.inputs]

    def declare(self, tensors: Sequence[torch.Tensor]) -> None:
        clear_tensor_dims()
        for name, size in self.sizes.items():
            declare_tensor_dim(name, size)
        for each, tensor in zip(self.inputs, tensors, strict=True):
            name_tensor_dims(tensor, list(each.all_axes))


def named_program(seed: int) -> NamedProgram:
    """The program of a seed."""
    return _Writer(random.Random(f"named dims {seed}"), NamedProgram(seed)).write()


class _Writer:
    """``values`` are those that the next statement may read."""

    def __init__(self, rng: random.Random, program: NamedProgram) -> None:
        self.rng = rng
        self.program = program
        self.values: list[Value] = []

    def write(self) -> NamedProgram:
        first = [self._axis() for _ in range(self.rng.randint(2, 4))]
        self.program.sizes[self.rng.choice(first)] = 128
        self.values = [self._input(self._fitting(first))]
        steps = (
            (self._merge, 4), (self._split, 3), (self._permute, 2), (self._unary, 3), (self._binary, 3),
            (self._broadcast, 1), (self._reduce, 1), (self._softmax, 1), (self._product, 3), (self._batched, 2),
        )  # fmt: skip
        count = self.rng.randint(3, 8)
        while len(self.program.statements) < count:
            self.rng.choices([step for step, _ in steps], [weight for _, weight in steps])[0]()
        self.program.result = self.values[-1].name
        self._hints()
        return self.program

    # -- axes and inputs -------------------------------------------------------------------------------

    def _axis(self) -> str:
        name = chr(ord("A") + len(self.program.sizes))
        self.program.sizes[name] = self.rng.choice(_SIZES)
        return name

    def _fitting(self, axes: Sequence[str]) -> list[str]:
        """Return as many of the axes as fit the size limit together."""
        kept: list[str] = []
        for axis in axes:
            if self._elements([*kept, axis]) <= _LARGEST:
                kept.append(axis)
        return kept

    def _elements(self, axes: Sequence[str]) -> int:
        return math.prod(self.program.sizes[axis] for axis in axes)

    def _input(self, axes: Sequence[str], *, merged: bool = True) -> Value:
        """A new argument whose storage has the axes in this order, some neighbours merged in its shape."""
        groups: list[tuple[str, ...]] = []
        for axis in axes:
            if merged and groups and self.rng.random() < 0.3:
                groups[-1] = (*groups[-1], axis)
            else:
                groups.append((axis,))
        made = Value(f"x{len(self.program.inputs)}", tuple(groups))
        self.program.inputs.append(made)
        return made

    # -- statements ------------------------------------------------------------------------------------

    def _value(self) -> Value:
        return self.values[-1] if self.rng.random() < 0.8 else self.rng.choice(self.values)

    def _make(self, text: str, axes: Axes) -> None:
        name = f"v{len(self.program.statements)}"
        self.program.statements.append(f"{name} = {text}")
        self.values.append(Value(name, axes))

    def _shaped(self, name: str, axes: Axes) -> str:
        return f"{name}.reshape({self.program.shape(axes)})"

    def _like(self, value: Value, axes: Axes) -> str:
        """A value of the same axes in another order and grouping."""
        if value.axes == axes:
            return value.name
        apart = [(axis,) for axis in value.all_axes]
        order = [value.all_axes.index(axis) for own in axes for axis in own]
        return self._shaped(f"{self._shaped(value.name, tuple(apart))}.permute({order})", axes)

    def _merge(self) -> None:
        value = self._value()
        if len(value.axes) > 1:
            at = self.rng.randrange(len(value.axes) - 1)
            axes = (*value.axes[:at], value.axes[at] + value.axes[at + 1], *value.axes[at + 2 :])
            self._make(self._shaped(value.name, axes), axes)

    def _split(self) -> None:
        value = self._value()
        several = [at for at, own in enumerate(value.axes) if len(own) > 1]
        if several:
            at = self.rng.choice(several)
            own = value.axes[at]
            cut = self.rng.randint(1, len(own) - 1)
            axes = (*value.axes[:at], own[:cut], own[cut:], *value.axes[at + 1 :])
            self._make(self._shaped(value.name, axes), axes)

    def _permute(self) -> None:
        value = self._value()
        if len(value.axes) > 1:
            order = self.rng.sample(range(len(value.axes)), len(value.axes))
            self._make(f"{value.name}.permute({order})", tuple(value.axes[at] for at in order))

    def _unary(self) -> None:
        value = self._value()
        self._make(self.rng.choice(_UNARY).format(value.name), value.axes)

    def _binary(self) -> None:
        """An operation of a value and an input, or an earlier value, of the same axes in any order and grouping."""
        value = self._value()
        alike = [each for each in self.values if sorted(each.all_axes) == sorted(value.all_axes)]
        if len(alike) > 1 and self.rng.random() < 0.5:
            other = self.rng.choice(alike)
        else:
            axes = list(value.all_axes)
            if self.rng.random() < 0.4:
                self.rng.shuffle(axes)
            other = self._input(axes)
        self._make(
            self.rng.choice(_BINARY).format(value.name, f"({self._like(other, value.axes)})"), value.axes
        )

    def _broadcast(self) -> None:
        """With an input of some of the axes."""
        value = self._value()
        axes = [axis for axis in value.all_axes if self.rng.random() < 0.5]
        if axes:
            other = self._input(axes)
            apart = tuple((axis,) for axis in value.all_axes)
            shape = [self.program.sizes[axis] if axis in axes else 1 for axis in value.all_axes]
            text = f"{self._shaped(value.name, apart)} + {other.name}.reshape({shape})"
            self._make(f"({text}).reshape({self.program.shape(value.axes)})", value.axes)

    def _reduce(self) -> None:
        value = self._value()
        if len(value.axes) > 1:
            at = self.rng.randrange(len(value.axes))
            text = self.rng.choice(_REDUCTIONS).format(value.name, at)
            self._make(text, (*value.axes[:at], *value.axes[at + 1 :]))

    def _softmax(self) -> None:
        value = self._value()
        self._make(f"torch.softmax({value.name}, -1)", value.axes)

    def _product(self) -> None:
        """With a weight that has the axes of the last dim, and a new one."""
        value = self._value()
        axis = self._axis()
        rest = self._elements([each for own in value.axes[:-1] for each in own])
        inner = self._elements(value.axes[-1])
        if len(value.axes) < 2 or max(rest, inner) * self.program.sizes[axis] > _LARGEST:
            del self.program.sizes[axis]
            return
        weight = self._input([*value.axes[-1], axis])
        other = self._shaped(weight.name, (value.axes[-1], (axis,)))
        self._make(f"({value.name} @ {other}) * {inner**-0.5:.4f}", (*value.axes[:-1], (axis,)))

    def _batched(self) -> None:
        """With a value of the same outer axes, as scores are made."""
        value = self._value()
        axis = self._axis()
        *outer, rows, last = ((), (), *value.axes)[-max(len(value.axes), 2) :]
        flat = [each for own in outer for each in own]
        largest = max(self._elements(rows), self._elements(last))
        if len(value.axes) < 3 or self._elements([*flat, axis]) * largest > _LARGEST:
            del self.program.sizes[axis]
            return
        other = self._input([*flat, axis, *last])
        shaped = self._shaped(other.name, (*outer, (axis,), last))
        scale = self._elements(last) ** -0.5
        self._make(f"({value.name} @ {shaped}.transpose(-1, -2)) * {scale:.4f}", (*outer, rows, (axis,)))

    # -- hints -----------------------------------------------------------------------------------------

    def _hints(self) -> None:
        program, rng = self.program, self.rng
        used = sorted({axis for each in program.inputs for axis in each.all_axes})
        names = rng.sample(used, min(len(used), rng.randint(1, 3)))
        tiles = {name: self._count(program.sizes[name]) for name in names}
        end = len(program.statements)
        first = rng.choice((0, 0, rng.randrange(end)))
        last = rng.choice((end, end, rng.randint(first + 1, end)))
        if len(names) == 1 or rng.random() < 0.5:
            program.hints = [Tiles(first, last, tiles)]
            return
        inner = names[-1]
        begin = rng.randrange(first, last)
        program.hints = [
            Tiles(first, last, {name: count for name, count in tiles.items() if name != inner}),
            Tiles(begin, rng.randint(begin + 1, last), {inner: tiles[inner]}),
        ]

    def _count(self, size: int) -> int:
        return self.rng.choice([count for count in (2, 3, 4, 8) if size % count == 0])


# -- running -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """Result of a program.

    ``loops`` that it has, dims that were ``split`` and that were ``copied`` for it, bytes that it moves, and bytes that
    it moves without hints (0: not asked for). A ``problem`` without names says why the program is none to compare with.
    """

    loops: int = 0
    split: int = 0
    copied: int = 0
    moved: int = 0
    unhinted: int = 0
    problem: str = ""


@faults_kept()
def run(program: NamedProgram, *, with_unhinted: bool = True, **options) -> Outcome:
    """Compile with all checks, validate, and compare with float64; ``AssertionError`` for a wrong program."""
    tensors, plain = program.tensors(), program.function(hinted=False)
    unhinted = 0
    if with_unhinted:
        try:
            unhinted = _moved(_ran(plain, tensors, **options))
        except spyre_mlir.CompileError as error:
            return Outcome(problem=str(error))
    program.declare(tensors)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = spyre_mlir.compile(program.function(), tensors, verify_each=True, **options)
    finally:
        clear_tensor_dims()
    findings = [finding for step in made.bundles for finding in validate(step.bundle)]
    assert not findings, "\n".join([program.text(), *map(str, findings)])
    check_close(program.text(), made(*tensors), Apply(plain), tensors, FLOOR)
    splits = [each.reason for each in made.remarks if each.pass_name == "split-named-dims"]
    loops = sum(_loops(step.bundle.statements) for step in made.bundles)
    return Outcome(loops, len(splits), sum("a copy" in each for each in splits), _moved(made), unhinted)


def _ran(function: Callable, tensors: Sequence[torch.Tensor], **options) -> spyre_mlir.Program:
    made = spyre_mlir.compile(function, tensors, **options)
    made(*tensors)
    return made


def _moved(program: spyre_mlir.Program) -> int:
    traffic = program.traffic()
    return traffic.read_bytes + traffic.written_bytes


def _loops(statements: Sequence) -> int:
    return sum(1 + _loops(each.body) for each in statements if isinstance(each, Loop))


def outcomes(seeds: Iterable[int]) -> Iterator[tuple[NamedProgram, Outcome | Exception]]:
    """Yield the program of each seed and its outcome."""
    for seed in seeds:
        program = named_program(seed)
        try:
            yield program, run(program)
        except Exception as error:
            yield program, error


def table(found: Sequence[tuple[NamedProgram, Outcome | Exception]]) -> str:
    """Counts of what came of programs, and their bytes by those without hints."""
    right = [each for _, each in found if isinstance(each, Outcome) and not each.problem]
    ratios = sorted(each.moved / each.unhinted for each in right if each.loops and each.unhinted)
    rows = {
        "programs": len(found),
        "with two levels of hints": sum(len(program.hints) > 1 for program, _ in found),
        "right": len(right),
        "wrong or an error": sum(isinstance(each, Exception) for _, each in found),
        "an error without names, too": sum(
            isinstance(each, Outcome) and bool(each.problem) for _, each in found
        ),
        "with loops": sum(each.loops > 0 for each in right),
        "with loops in loops or in a row": sum(each.loops > 1 for each in right),
        "with a dim split for a name inside of it": sum(each.split > 0 for each in right),
        "of these with a copy": sum(each.copied > 0 for each in right),
    }
    lines = [f"{count:6} {what}" for what, count in rows.items()]
    if ratios:
        at = [ratios[int(part * (len(ratios) - 1))] for part in (0, 0.5, 0.9, 1)]
        lines.append("bytes with loops by bytes without hints: " + ", ".join(f"{each:.2f}" for each in at))
        lines.append("  (least, median, nine of ten, most)")
    return "\n".join(lines)


def main(count: int, first: int = 0) -> int:
    """Runs programs, prints those that are wrong and the table; the number of those that are wrong."""
    found = []
    for program, outcome in outcomes(range(first, first + count)):
        found.append((program, outcome))
        if isinstance(outcome, Exception):
            print(f"{type(outcome).__name__}: {outcome}\n{program.text()}", flush=True)
    print(table(found))
    return sum(isinstance(outcome, Exception) for _, outcome in found)


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:]))))
