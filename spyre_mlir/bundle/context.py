# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lookups on a bundle that the rules share: the executes, their loops, and the value of every symbol."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

from spyre_mlir.bundle import model
from spyre_mlir.bundle.instances import largest
from spyre_mlir.records import dataclass

Diagnostic = tuple[str, str]  # a whole sentence, and the file or place it is about


@dataclass(frozen=True)
class LoopRange:
    """The values of one loop's induction variable; ``atom`` names it in a ``Linear``."""

    atom: str
    lower: int
    upper: int
    step: int

    @property
    def count(self) -> int:
        # The upper bound is excluded, as in scf.for; one below the lower bound means no iteration.
        return max(0, -(-(self.upper - self.lower) // self.step))

    @property
    def last(self) -> int:
        return self.lower + (self.count - 1) * self.step


@dataclass(frozen=True)
class Linear:
    """A value of the program: ``offset`` + the sum of coefficient * atom.

    Atoms are parameters, allocations and induction variables; ``terms`` are sorted and not zero.
    """

    offset: int = 0
    terms: tuple[tuple[str, int], ...] = ()

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        offset = self.offset + factor * other.offset
        # Most sums add a constant: these need no new dict.
        if not other.terms:
            return Linear(offset, self.terms)
        terms = dict(self.terms)
        for atom, coefficient in other.terms:
            terms[atom] = terms.get(atom, 0) + factor * coefficient
        # Sorted and without zeros, so that equal values compare equal.
        return Linear(offset, tuple(sorted((atom, value) for atom, value in terms.items() if value)))


@dataclass(frozen=True)
class ExecuteStep:
    """One execute: its place in program order, the loops around it, outermost first, and where it comes from."""

    position: int
    execute: model.Execute
    design: model.Design
    loops: tuple[LoopRange, ...]
    values: dict[int, Linear]  # by symbol id
    origin: model.Origin

    @property
    def where(self) -> str:
        return f"bundle.mlir, execute {self.position} of {name(self.design)}"

    @property
    def runs(self) -> int:
        """The number of runs of the execute, over all loops around it."""
        return math.prod(loop.count for loop in self.loops)


#: The program as a tree of steps: a loop is its range with the steps of its body.
Tree = list["ExecuteStep | tuple[LoopRange, Tree]"]


def name(design: model.Design) -> str:
    """Return the name of a design in messages."""
    return f"{design.filename} ({design.opcode})"


def each_design(rule: Callable[[model.Design], Iterator[str]]) -> Callable[[Context], Iterator[Diagnostic]]:
    """Return a rule on a bundle that applies a rule on one design to each design."""

    def check(context: Context) -> Iterator[Diagnostic]:
        for design in context.bundle.designs.values():
            for sentence in rule(design):
                yield sentence, name(design)

    return check


class Context:
    """A bundle with lookups. Query steps and values only after the structure rules hold.

    A bundle with run-time sizes is taken at its largest sizes. ``target`` is the target of the bundle,
    ``lx_backend_fraction`` the fraction of LX that the back end keeps, if given.
    """

    def __init__(self, bundle: model.Bundle, lx_backend_fraction: float | None = None) -> None:
        self.bundle = largest(bundle)
        self.target = bundle.target
        #: Results of analyses, by their class.
        self.analyses: dict[type, Any] = {}
        if lx_backend_fraction is not None:
            self.target = self.target.with_backend_fraction(lx_backend_fraction)

    @functools.cached_property
    def executes(self) -> list[model.Execute]:
        """The executes in program order; an execute in a loop counts once."""
        return model.executes_of(self.bundle.statements)

    @functools.cached_property
    def buffers(self) -> dict[str, model.Buffer]:
        return {buffer.name: buffer for buffer in self.bundle.manifest.buffers}

    @functools.cached_property
    def arguments(self) -> dict[str, list[model.KernelArgument]]:
        """The kernel arguments by the name of their parameter; memory that is updated in place has two arguments."""
        arguments: dict[str, list[model.KernelArgument]] = {}
        for argument in self.bundle.manifest.arguments:
            arguments.setdefault(argument.parameter, []).append(argument)
        return arguments

    @functools.cached_property
    def allocations(self) -> dict[str, int]:
        """The bytes of each device_mem_allocate."""
        statements = self.bundle.statements
        return {
            statement.result: statement.bytes
            for statement in statements
            if isinstance(statement, model.Allocate)
        }

    @functools.cached_property
    def bases(self) -> set[str]:
        """The atoms that stand for an address."""
        addresses = {parameter.name for parameter in self.bundle.parameters if parameter.is_address}
        return addresses | self.allocations.keys()

    @functools.cached_property
    def indices(self) -> tuple[LoopRange, ...]:
        """The ranges of the parameters that are not addresses; the name of the parameter is the atom."""
        return tuple(
            LoopRange(parameter.name, 0, parameter.max_value + 1, parameter.granularity or 1)
            for parameter in self.bundle.parameters
            if parameter.max_value is not None
        )

    @functools.cached_property
    def tree(self) -> Tree:
        origins = self.bundle.manifest.execute_origins()
        return _TreeBuilder(self.bundle.designs, origins).build(self.bundle.statements, (), {})

    @functools.cached_property
    def steps(self) -> list[ExecuteStep]:
        """The executes with their loops and values, in program order."""

        def flatten(tree: Tree) -> Iterator[ExecuteStep]:
            for node in tree:
                yield from [node] if isinstance(node, ExecuteStep) else flatten(node[1])

        return list(flatten(self.tree))

    def ranges(self, step: ExecuteStep) -> tuple[LoopRange, ...]:
        """Return everything that changes the addresses of an execute: the loops around it and the program's indices."""
        return (*step.loops, *self.indices)

    def uses(self, step: ExecuteStep) -> tuple[str, ...]:
        """The buffer of each operand of an execute."""
        return self.bundle.manifest.uses[step.position]


class _TreeBuilder:
    """Evaluates the program symbolically, statement by statement."""

    def __init__(self, designs: dict[str, model.Design], origins: list[model.Origin]) -> None:
        self.designs = designs
        self.origins = origins
        self.positions = 0
        self.loops = 0

    def build(
        self, statements: tuple[model.Statement, ...], loops: tuple[LoopRange, ...], outer: dict[str, Linear]
    ) -> Tree:
        # A copy: values of a loop's body are not visible after the loop.
        values, tree = dict(outer), []
        for statement in statements:
            if isinstance(statement, model.Loop):
                names = (statement.lower, statement.upper, statement.step)
                lower, upper, step = (values[name].offset for name in names)
                # Adjacent loops may use one name; the number makes their variables distinct.
                self.loops += 1
                range_ = LoopRange(f"%{statement.induction} of loop {self.loops}", lower, upper, step)
                inner = {**values, statement.induction: Linear(0, ((range_.atom, 1),))}
                tree.append((range_, self.build(statement.body, (*loops, range_), inner)))
            elif isinstance(statement, model.Execute):
                operands = (values[operand] for operand in statement.operands)
                symbols = dict(zip(statement.symbol_ids, operands, strict=True))
                position, design = self.positions, self.designs[statement.filename]
                self.positions += 1
                origin = self.origins[position] if self.origins else design.origin
                tree.append(ExecuteStep(position, statement, design, loops, symbols, origin))
            else:
                values[statement.result] = evaluate(statement, values)
        return tree


def evaluate(statement: model.Statement, values: dict[str, Linear]) -> Linear:
    """Return the value of a statement, given the values before it; an address is its memory plus bytes."""
    match statement:
        case model.IndexConstant(_, value):
            return Linear(value)
        case model.Add(_, lhs, rhs):
            return values[lhs].plus(values[rhs])
        case model.Apply(_, dims, symbols, coefficients, offset):
            total = Linear(offset)
            for operand, coefficient in zip((*dims, *symbols), coefficients, strict=True):
                total = total.plus(values[operand], coefficient)
            return total
        # All extracts of a parameter are one address, so the atom is the parameter and not the result.
        case model.Extract(_, parameter, "value"):
            return Linear(0, ((parameter, 1),))
        case model.Extract(result) | model.Allocate(result):
            return Linear(0, ((result, 1),))
    raise AssertionError(statement)
