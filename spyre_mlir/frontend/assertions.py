# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Assertions of a model as ``spyre::check`` of a tensor, which the program checks when it runs (``cf.assert``).

PyTorch writes an assertion on a tensor (``_assert_async``), or on numbers that are read from tensors
(``_assert_scalar``, by ``torch._check``). Such numbers are computed as tensors without dims.
"""

from __future__ import annotations

import contextlib
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast
from unittest import mock

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import canonicalize_bool_expr
from torch.fx.node import has_side_effect

from spyre_mlir.errors import ALWAYS_FAILS, FailedAssertionError, UncapturedError
from spyre_mlir.frontend.graph_edits import call_before, operands_of
from spyre_mlir.frontend.locations import module_of, refusal_at, source_of

aten = torch.ops.aten


@torch.library.custom_op("spyre::check", mutates_args=(), schema="(Tensor condition, str text) -> ()")
def check(condition: Tensor, text: str) -> None:
    """Mark a condition, a bool without dims, that the program checks. The operation itself does nothing."""


@check.register_fake
def _(condition: Tensor, text: str) -> None:
    return None


CHECK = torch.ops.spyre.check.default
# The operation stays in a graph although nothing reads it.
has_side_effect(CHECK)


#: Functions of numbers, with the operations on tensors without dims that compute them.
_FUNCTIONS: dict[Any, Callable[..., Node]] = {
    function: lambda position, *operands, target=target: call_before(position, target, *operands)
    for function, target in {
        operator.add: aten.add.Tensor, operator.sub: aten.sub.Tensor, operator.mul: aten.mul.Tensor,
        operator.truediv: aten.div.Tensor, operator.mod: aten.remainder.Tensor, operator.neg: aten.neg.default,
        operator.pow: aten.pow.Tensor_Tensor, operator.abs: aten.abs.default,
        operator.eq: aten.eq.Tensor, operator.ne: aten.ne.Tensor, operator.lt: aten.lt.Tensor,
        operator.le: aten.le.Tensor, operator.gt: aten.gt.Tensor, operator.ge: aten.ge.Tensor,
        operator.and_: aten.logical_and.default, operator.or_: aten.logical_or.default,
        operator.not_: aten.logical_not.default, torch.sym_not: aten.logical_not.default,
        torch.sym_ite: aten.where.self, torch.sym_max: aten.maximum.default, torch.sym_min: aten.minimum.default,
    }.items()
} | {
    operator.floordiv: lambda position, a, b: call_before(position, aten.div.Tensor_mode, a, b, rounding_mode="floor"),
    torch.sym_float: lambda position, a: call_before(position, aten._to_copy.default, a, dtype=torch.float64),
    torch.sym_int: lambda position, a: call_before(position, aten._to_copy.default, a, dtype=torch.int64),
}  # fmt: skip

#: The condition in PyTorch's text of an assertion, and the symbols in the condition that depend on values.
_EXPRESSION, _SYMBOL = re.compile(r"expression (.*) on node"), re.compile(r"\b\w*u\w*\d+\b")

#: Operations that read the only element of a tensor.
_READS = (aten.item.default, aten._local_scalar_dense.default)


@contextlib.contextmanager
def recording_texts() -> Iterator[list[tuple[Any, str]]]:
    """Context that records the conditions of ``torch._check`` on numbers with their texts, which PyTorch drops."""
    recorded: list[tuple[Any, str]] = []
    original = torch._check_with

    def check_with(error_type: Any, condition: Any, message: Any = None) -> None:
        """Record the text of a condition that depends on values, then call PyTorch's own check."""
        if isinstance(condition, torch.SymBool) and callable(message):
            # A text that contains numbers of tensors is not known yet.
            with contextlib.suppress(Exception):
                recorded.append((canonicalize_bool_expr(condition.node.expr), str(message())))
        original(error_type, condition, cast(Any, message))

    with mock.patch.object(torch, "_check_with", check_with):
        yield recorded


def write_texts(graph: Graph, recorded: Sequence[tuple[Any, str]]) -> None:
    """Give assertions on numbers the recorded text of the same condition, or of one that reads the same numbers.

    The text that PyTorch gives the assertion contains the expression of the condition.
    """
    for node in graph.find_nodes(op="call_function", target=aten._assert_scalar.default):
        if not (named := _EXPRESSION.search(str(node.args[1]))):
            continue
        symbols = set(_SYMBOL.findall(named[1]))
        same = (text for condition, text in recorded if str(condition) == named[1])
        related = (text for condition, text in recorded if symbols & {str(s) for s in condition.free_symbols})
        node.args = (node.args[0], next(same, None) or next(related, None) or node.args[1])


def write_assertions(graph_module: GraphModule) -> None:
    """Replace every assertion of a graph, and of the bodies of its control flow, by a ``spyre::check``."""
    for module in graph_module.modules():
        if isinstance(module, GraphModule):
            for node in list(module.graph.nodes):
                if node.target in _ASSERTIONS:
                    for condition, text in _ASSERTIONS[node.target](node):
                        call_before(node, CHECK, condition, text)
                    module.graph.erase_node(node)
            module.graph.eliminate_dead_code()


def asserts(graph: Graph) -> bool:
    """Return whether a graph has an assertion."""
    return bool(graph.find_nodes(op="call_function", target=CHECK))


def guard(check: Node, condition: Node, is_taken: bool) -> None:
    """Change an assertion so that it checks only where ``condition``, a bool of one element, equals ``is_taken``."""
    condition = call_before(check, aten.reshape.default, condition, [])
    if is_taken:
        condition = call_before(check, aten.logical_not.default, condition)
    asserted, text = check.args
    check.args = (call_before(check, aten.logical_or.default, condition, asserted), text)


def settle_assertions(graph: Graph, known: Mapping[Node, Any]) -> None:
    """Drop assertions that are known to hold. Raise ``FailedAssertionError`` for an assertion that is known to fail."""
    for node in list(graph.find_nodes(op="call_function", target=CHECK)):
        condition, text = cast(tuple[Node, str], node.args)
        if condition in known and not known[condition]:
            raise FailedAssertionError(
                f"{ALWAYS_FAILS}: {text.rstrip('.')}.", source_of(node), "", module_of(node)
            )
        if condition in known:
            graph.erase_node(node)


def _of_tensor(node: Node) -> Iterator[tuple[Node, str]]:
    """Condition and text of an assertion on a tensor of one element, which holds unless the element is 0."""
    operands = operands_of(node)
    condition = cast(Node, operands["self"])
    if condition.meta["val"].dtype != torch.bool:
        condition = call_before(node, aten.ne.Scalar, condition, 0)
    if condition.meta["val"].ndim:
        condition = call_before(node, aten.reshape.default, condition, [])
    yield condition, operands.get("assert_msg") or "The value of the asserted tensor is 0"


def _of_range(node: Node) -> Iterator[tuple[Node, str]]:
    """Conditions and texts of an assertion that a number lies between two known bounds."""
    operands = operands_of(node)
    for name, function in (("min", operator.ge), ("max", operator.le)):
        number, bound = operands["size"], operands.get(name)
        if bound is None or not isinstance(number, Node):
            continue
        condition = _FUNCTIONS[function](node, _as_tensor(node, number), _as_tensor(node, bound))
        yield condition, f"A number is not {'at least' if name == 'min' else 'at most'} {bound}"


def _of_number(node: Node) -> Iterator[tuple[Node, str]]:
    """Condition and text of an assertion on a number; none if the number is known and the assertion holds."""
    condition, text = cast(Sequence[Any], node.args)[:2]
    if isinstance(condition, Node) or not condition:
        tensor = _as_tensor(node, condition)
        is_bool = tensor.meta["val"].dtype == torch.bool
        yield tensor if is_bool else call_before(node, aten.ne.Scalar, tensor, 0), text


_ASSERTIONS: dict[Any, Callable[[Node], Iterator[tuple[Node, str]]]] = {
    aten._assert_async.default: _of_tensor,
    aten._assert_async.msg: _of_tensor,
    aten._functional_assert_async.msg: _of_tensor,
    aten._assert_scalar.default: _of_number,
    aten.sym_constrain_range.default: _of_range,
    aten.sym_constrain_range_for_size.default: _of_range,
    # PyTorch compared sizes and types while it traced the model.
    aten._assert_tensor_metadata.default: lambda node: iter(()),
}


def _as_tensor(node: Node, number: Any) -> Node:
    """A number of the assertion ``node`` as a tensor without dims, computed before the assertion."""
    value = number.meta.get("val") if isinstance(number, Node) else number
    if isinstance(value, (bool, int, float)):
        dtypes = {bool: torch.bool, int: torch.int64, float: torch.float64}
        return call_before(node, aten.full.default, [], value, dtype=dtypes[type(value)])
    if number.target in _READS:
        tensor = cast(Node, number.args[0])
        dtype = tensor.meta["val"].dtype
        wide = torch.float64 if dtype.is_floating_point else dtype if dtype == torch.bool else torch.int64
        tensor = call_before(node, aten.reshape.default, tensor, [])
        return call_before(node, aten._to_copy.default, tensor, dtype=wide)
    if number.target in _FUNCTIONS:
        return _FUNCTIONS[number.target](node, *(_as_tensor(node, operand) for operand in number.args))
    raise refusal_at(
        node,
        f"This assertion depends on a number that '{number.target}' computes, which a program cannot check; assert a "
        "condition on tensors, with torch._assert_async.",
        UncapturedError,
    )
