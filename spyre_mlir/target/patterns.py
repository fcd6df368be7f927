# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Patterns of operations that a single device operation replaces, in the order in which they are tried.

A pattern is an expression of device operations whose names are operands and constants of the replacing operation.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field

from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass
from spyre_mlir.target.expressions import COMMUTATIVE, Expression, applications_of

#: The name in a pattern for a constant of an operation that may be any number.
ANY = "_"


@dataclass(frozen=True)
class Pattern:
    """``expression`` equals ``opcode`` on the operands and constants that it names, and on the constants ``fixed``."""

    expression: tuple
    opcode: str
    operands: tuple[str, ...]
    constants: tuple[str, ...] = ()
    fixed: Mapping[str, float] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of functions and numbers in the expression."""
        applications = list(applications_of(self.expression))
        numbers = (argument for call in applications for argument in call[1:] if isinstance(argument, float))
        return len(applications) + sum(1 for _ in numbers)


def operand_orders(opcode: str, count: int) -> list[tuple[int, ...]]:
    """Return the permitted orders of the operands of an operation, beginning with the given order."""
    order = tuple(range(count))
    return list(itertools.permutations(order)) if opcode in COMMUTATIVE else [order]


def ordered(patterns: Iterable[Pattern]) -> list[Pattern]:
    """Sort patterns, the largest expressions first."""
    return sorted(patterns, key=lambda pattern: -pattern.size)


def require_distinct(patterns: Iterable[Pattern]) -> None:
    """Raise ``CompileError`` for equal patterns of different operations."""
    opcodes: dict[Expression, str] = {}
    for pattern in ordered(patterns):
        opcode = opcodes.setdefault(_normal_form(pattern.expression), pattern.opcode)
        if opcode != pattern.opcode:
            raise CompileError(
                f"The device operations '{opcode}' and '{pattern.opcode}' are both fused from {pattern.expression}: "
                f"write the pattern of one of them in another way, or leave it out."
            )


def _normal_form(expression: Expression) -> Expression:
    """Return one representative of all expressions that differ only in names and in the order of swappable operands."""
    return min((_numbered(reordered, {}) for reordered in _reordered(expression)), key=repr)


def _reordered(expression: Expression) -> Iterator[Expression]:
    if not isinstance(expression, tuple):
        yield expression
        return
    opcode, *arguments = expression
    for order in operand_orders(opcode, len(arguments)):
        for swapped in itertools.product(*(list(_reordered(arguments[index])) for index in order)):
            yield (opcode, *swapped)


def _numbered(expression: Expression, names: dict[str, str]) -> Expression:
    """Return an expression with each name replaced by its index, in the order in which names occur."""
    if isinstance(expression, tuple):
        return (expression[0], *(_numbered(argument, names) for argument in expression[1:]))
    return names.setdefault(expression, f"#{len(names)}") if isinstance(expression, str) else expression
