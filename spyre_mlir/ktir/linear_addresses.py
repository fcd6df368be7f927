# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Addresses of a bundle as linear forms: a memory, bytes from its start, and bytes per iteration of enclosing loops."""

from __future__ import annotations

from collections.abc import Mapping

from spyre_mlir.bundle.model import Add, Allocate, Apply, Extract, IndexConstant
from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class LinearAddress:
    """``offset`` bytes plus the sum of coefficient * value over ``terms``.

    The values are memories, by the name of their parameter or allocation, and loop variables.
    """

    offset: int
    terms: Mapping[str, int]

    def plus(self, other: LinearAddress, factor: int = 1) -> LinearAddress:
        """Return the sum with ``factor`` times another address."""
        terms = dict(self.terms)
        for name, coefficient in other.terms.items():
            terms[name] = terms.get(name, 0) + factor * coefficient
        return LinearAddress(self.offset + factor * other.offset, {k: v for k, v in terms.items() if v})


class AddressValues:
    """Linear forms of the values of a bundle by name, for all statements passed to ``define``."""

    def __init__(self) -> None:
        self.values: dict[str, LinearAddress] = {}
        self.memories: set[str] = set()

    def define(self, statement: Extract | Allocate | IndexConstant | Add | Apply) -> None:
        """Record the value of a statement; ``CompileError`` for a value that is not an address."""
        match statement:
            case Extract():
                if statement.what != "value":
                    raise CompileError(
                        f"KTIR has no parameter whose {statement.what} is read: pass sizes as constants."
                    )
                value = self._memory(statement.parameter)
            case Allocate():
                value = self._memory(statement.result)
            case IndexConstant():
                value = LinearAddress(statement.value, {})
            case Add():
                value = self.values[statement.lhs].plus(self.values[statement.rhs])
            case Apply():
                value = LinearAddress(statement.offset, {})
                names = (*statement.dims, *statement.symbols)
                for name, coefficient in zip(names, statement.coefficients, strict=True):
                    value = value.plus(self.values[name], coefficient)
        self.values[statement.result] = value

    def define_variable(self, name: str) -> None:
        """Record a loop variable."""
        self.values[name] = LinearAddress(0, {name: 1})

    def constant(self, name: str) -> int:
        """Return the number of a value; ``CompileError`` for a value that is only known at run time."""
        value = self.values[name]
        if value.terms:
            raise CompileError(f"The bounds of a loop are constants, but '%{name}' is none.")
        return value.offset

    def _memory(self, name: str) -> LinearAddress:
        self.memories.add(name)
        return LinearAddress(0, {name: 1})
