# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scalar ops of a ``linalg`` body that are several device operations: comparisons, extremes that ignore NaN, powers.

``apply`` makes one device operation of an opcode and nodes, and folds it where these are constants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from spyre_mlir.diagnostics import error_at
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting import body_operations as scalar
from spyre_mlir.rewriting.node_builder import Node

Apply = Callable[..., Node]


class ComparedNodes(NamedTuple):
    """A condition, and the one that is false exactly where it is true, if that is one operation less."""

    condition: Node
    complement: Node | None = None


def compared(apply: Apply, predicate: int, first: Node, second: Node) -> ComparedNodes:
    """ComparedNodes by a predicate of ``arith.cmpf``; one that is true for NaN is the complement of another one."""
    if predicate in scalar.COMPARISONS:
        return ComparedNodes(apply(scalar.COMPARISONS[predicate], [first, second]))
    if predicate in (6, 8):  # "one" and "ueq": smaller or larger, or neither
        one = apply("maximum", [apply(opcode, [first, second]) for opcode in ("lesserthan", "greaterthan")])
        return ComparedNodes(one) if predicate == 6 else _complement_of(apply, one)
    if predicate in (7, 14):  # "ord" and "uno": both are numbers, or not
        same, combine = ("equal", "mul") if predicate == 7 else ("notequal", "maximum")
        return ComparedNodes(apply(combine, [apply(same, [node, node]) for node in (first, second)]))
    if predicate in scalar.COMPLEMENTS:
        opposite = scalar.COMPARISONS[scalar.COMPLEMENTS[predicate]]
        return _complement_of(apply, apply(opposite, [first, second]))
    return ComparedNodes(Node(None, constant=float(predicate == 15)))


def _complement_of(apply: Apply, condition: Node) -> ComparedNodes:
    return ComparedNodes(apply("equal", [condition, Node(None, constant=0.0)]), condition)


def extreme_without_nan(apply: Apply, opcode: str, first: Node, second: Node) -> Node:
    """The larger or smaller of two numbers; if one is NaN, the other."""
    element = next((node.element for node in (first, second) if node.value is not None), "f32")
    result = apply(opcode, [first, second])
    for node, other in ((second, first), (first, second)):
        result = apply("where3", [apply("equal", [node, node]), result, other], element)
    return result


def in_place_of_nan(apply: Apply, node: Node, number: float) -> Node:
    """A node with a number in the place of each NaN."""
    return apply("where3", [apply("equal", [node, node]), node, Node(None, constant=number)], node.element)


def power(apply: Apply, op: ir.Operation, base: Node, exponent: Node) -> Node:
    """A power as a chain of products, roots or a reciprocal."""
    if exponent.constant is not None and base.value is None:
        with np.errstate(all="ignore"):
            return Node(None, constant=float(np.float64(base.constant or 0.0) ** exponent.constant))
    chain = scalar.power(exponent.constant) if exponent.constant is not None else None
    if chain is None:
        raise error_at(
            op, "a power with this exponent has no device operation; 1, 2, 3, 4, 0.5, -0.5 and -1 have"
        )
    node = base
    for step in chain:
        if step == "mul":
            node = apply("mul", [node, base])
        elif step == "square":
            node = apply("mul", [node, node])
        elif step != "identity":
            node = apply(step, [node])
    return node
