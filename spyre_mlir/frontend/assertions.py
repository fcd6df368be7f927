# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Assertions of a model as ``spyre::check`` of a tensor, which the program checks when it runs (``cf.assert``).

PyTorch writes an assertion on a tensor (``_assert_async``), or on numbers that are read from tensors
(``_assert_scalar``, by ``torch._check``). Such numbers are computed as tensors without dims.
"""

from __future__ import annotations

import contextlib
import math
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

from spyre_mlir.analysis.integer_ranges import Interval
from spyre_mlir.bundle.model import IndexBounds
from spyre_mlir.errors import ALWAYS_FAILS, CompileError, FailedAssertionError, UncapturedError
from spyre_mlir.frontend.graph_edits import call_before, operands_of, operation_name
from spyre_mlir.frontend.locations import module_of, refusal_at, source_of
from spyre_mlir.frontend.signature import Argument

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


# Range checks of the indices that a model takes from its arguments.
#
# The device compares an index with positions. An index out of range equals none of them, and no error is reported. So
# the host knows the range of each argument that is used as an index, and checks the numbers that a call passes.

#: An index operand of an operation and its range, upper end excluded.
IndexUse = tuple[Node, tuple[int, int]]


def _along_dim(node: Node, negative: bool = False) -> Iterator[IndexUse]:
    """Index of ``op(x, dim, index)``, with its range."""
    operands = operands_of(node)
    shape = operands["self"].meta["val"].shape
    size = shape[operands["dim"]] if shape else 1
    yield operands["index"], (-size if negative else 0, size)


def _per_dim(node: Node) -> Iterator[IndexUse]:
    """Indices of ``op(x, indices)``, one for each of the first dims, with their ranges; masks are skipped."""
    operands = operands_of(node)
    for size, index in zip(operands["self"].meta["val"].shape, operands["indices"], strict=False):
        if index is not None and index.meta["val"].dtype not in (torch.bool, torch.uint8):
            yield index, (-size, size)


def _of_table_or_classes(node: Node) -> Iterator[IndexUse]:
    """Index of ``embedding(weight, indices)`` or ``one_hot(self, num_classes)``, if the number of classes is known."""
    operands = operands_of(node)
    if "weight" in operands:
        yield operands["indices"], (0, operands["weight"].meta["val"].shape[0])
    elif operands.get("num_classes", -1) >= 0:
        yield operands["self"], (0, operands["num_classes"])


_USES: dict[str, Callable[[Node], Iterator[IndexUse]]] = {
    **dict.fromkeys(("index", "index_put", "_unsafe_index", "_unsafe_index_put"), _per_dim),
    **dict.fromkeys(("gather", "scatter", "scatter_add", "scatter_reduce", "index_select"), _along_dim),
    **dict.fromkeys(("index_add", "index_copy", "index_reduce"), _along_dim),
    "index_fill": lambda node: _along_dim(node, negative=True),
    "embedding": _of_table_or_classes,
    "one_hot": _of_table_or_classes,
}


#: Operations that become comparisons on the device, where an invalid index matches no position.
_COMPARISONS = frozenset(_USES) - {"index", "_unsafe_index", "gather", "index_select", "embedding"}


def _origin(node: Node) -> Node:
    """First node with the same elements as ``node``, up to their order and integer type."""
    while operation_name(node) in REARRANGEMENTS and not node.meta["val"].dtype.is_floating_point:
        node = cast(Node, node.args[0])
    return node


def index_bounds(graph: Graph) -> dict[str, IndexBounds]:
    """Range allowed by all uses of a placeholder's elements as indices, by the name of the placeholder."""
    bounds: dict[str, IndexBounds] = {}
    for node, index, lower, upper in _uses(graph):
        origin = _origin(index)
        # Each use narrows the range, but the error names the first operation.
        if origin.op == "placeholder":
            known = bounds.get(origin.name, IndexBounds(lower, upper, f"aten.{operation_name(node)}"))
            narrower = max(lower, known.lower), min(upper, known.upper)
            bounds[origin.name] = IndexBounds(*narrower, known.operation)
    return bounds


def check_computed_indices(graph: Graph) -> None:
    """Make the host look up, and thereby check, each index that the model computes and that may be out of range.

    The table contains all positions, so that an index maps to itself; integer operations run on the host.
    """
    #: Ranges of the elements of the nodes that the analysis can bound.
    ranges: dict[Node, Interval] = {}
    for node in graph.nodes:
        if node.op == "call_function" and (computed := _range(node, ranges)) is not None:
            ranges[node] = computed
    # A list, because look-ups are inserted during the iteration.
    for node, index, lower, upper in list(_uses(graph)):
        if operation_name(node) not in _COMPARISONS or _origin(index).op == "placeholder":
            continue
        computed = ranges.get(index)
        if computed is not None and lower <= computed.lower and computed.upper < upper:
            continue
        position = index
        if lower:
            # The operation accepts negative indices, which count from the end; gather does not.
            is_from_end = call_before(node, aten.lt.Scalar, index, 0)
            from_start = call_before(node, aten.add.Tensor, index, upper)
            position = call_before(node, aten.where.self, is_from_end, from_start, index)
        positions = call_before(node, aten.arange.default, upper)
        # A table of one dim requires an index of one dim.
        flat = call_before(node, aten.reshape.default, position, [-1])
        checked = call_before(node, aten.gather.default, positions, 0, flat)
        checked = call_before(node, aten.reshape.default, checked, list(index.meta["val"].shape))
        checked = call_before(node, aten._to_copy.default, checked, dtype=index.meta["val"].dtype)
        node.replace_input_with(index, checked)


def _uses(graph: Graph) -> Iterator[tuple[Node, Node, int, int]]:
    """Every operation with each of its indices and the range that it accepts, upper end excluded."""
    for node in graph.nodes:
        if node.op == "call_function" and operation_name(node) in _USES:
            for index, (lower, upper) in _USES[operation_name(node)](node):
                yield node, index, lower, upper


def check_known_indices(node: Node, argument: Argument) -> None:
    """Raise ``CompileError`` for a constant or a buffer that contains an index out of its range."""
    bounds, tensor = argument.index_bounds, argument.tensor
    if bounds is None or tensor is None:
        return
    outside = tensor[(tensor < bounds.lower) | (tensor >= bounds.upper)]
    if outside.numel():
        raise CompileError(
            f"'{argument.name}' holds {int(outside[0])}, but it is an index of {bounds.operation}, which takes "
            f"{bounds.lower} to {bounds.upper - 1}.",
            source_of(next(iter(node.users), node)),
        )


# Interval analysis of the integers that a model computes.

#: Operations whose result contains exactly the elements of their first operand.
REARRANGEMENTS = frozenset(
    "_to_copy _unsafe_view alias clone contiguous detach detach_ expand flatten lift_fresh_copy permute reshape "
    "squeeze t to transpose unflatten unsqueeze view view_as".split()
)


#: Operations whose second result contains the positions of the first result's elements along a dim.
_WITH_POSITIONS = frozenset("topk sort max min kthvalue mode median cummax cummin".split())


def _range(node: Node, ranges: Mapping[Node, Interval]) -> Interval | None:
    """Range of a node's elements from the ranges of its operands; None if unknown."""
    if node.target is operator.getitem:
        source, number = cast(Node, node.args[0]), node.args[1]
        is_position = number == 1 and operation_name(source) in _WITH_POSITIONS
        return _of_dim(source, ranges) if is_position else None
    if not _is_integer(node):
        return None
    if node.meta["val"].dtype == torch.bool:
        return Interval(0, 1)
    name = operation_name(node)
    if name in REARRANGEMENTS:
        return _of(node.args[0], ranges) if _is_integer(node.args[0]) else None
    rule = _RULES.get(name)
    return None if rule is None else rule(node, ranges)


def _of(value: object, ranges: Mapping[Node, Interval]) -> Interval | None:
    """Range of an operand, which is a node or a number; None if unknown."""
    if isinstance(value, bool | int):
        return Interval(int(value), int(value))
    return ranges.get(value) if isinstance(value, Node) else None


def _is_integer(value: object) -> bool:
    """Return whether a value is a node of an integer or boolean tensor."""
    tensor = value.meta.get("val") if isinstance(value, Node) else None
    return isinstance(tensor, torch.Tensor) and not (tensor.is_floating_point() or tensor.is_complex())


def _sum(node: Node, ranges: Mapping[Node, Interval], sign: int = 1) -> Interval | None:
    """Range of ``add``; with a ``sign`` of -1 the range of ``sub``."""
    lhs, rhs = (_of(operand, ranges) for operand in node.args[:2])
    if lhs is None or rhs is None or node.kwargs.get("alpha", 1) != 1:
        return None
    return Interval.sum(lhs, rhs) if sign > 0 else Interval.difference(lhs, rhs)


def _of_operands(
    combine: Callable[..., Interval | None], first: int, last: int
) -> Callable[[Node, Mapping[Node, Interval]], Interval | None]:
    """Range of an operation from the known ranges of its operands ``first`` up to ``last``."""

    def rule(node: Node, ranges: Mapping[Node, Interval]) -> Interval | None:
        operands = [_of(operand, ranges) for operand in node.args[first:last]]
        return None if None in operands else combine(*operands)

    return rule


def _clamped(node: Node, ranges: Mapping[Node, Interval]) -> Interval | None:
    """Range of ``clamp``, from its limits or from the range of its operand."""
    operands, source = operands_of(node), _of(node.args[0], ranges)
    least = _of(operands.get("min"), ranges) or source
    greatest = _of(operands.get("max"), ranges) or source
    if least is None or greatest is None or least.lower > greatest.upper:
        return None
    return Interval(least.lower, greatest.upper)


def _positions(node: Node, ranges: Mapping[Node, Interval]) -> Interval | None:
    """Range of ``arange``."""
    operands = operands_of(node)
    start, end, step = operands.get("start", 0), operands["end"], operands.get("step", 1)
    if not all(isinstance(number, int) for number in (start, end, step)):
        return None
    # The end is excluded, and a step may skip the last positions before the end.
    last = start + step * (math.ceil((end - start) / step) - 1)
    return Interval(min(start, last), max(start, last))


def _of_dim(node: Node, ranges: Mapping[Node, Interval]) -> Interval | None:
    """Range of the position of an element along a dim, or in the whole tensor."""
    operands = operands_of(node)
    # The default dim of these operations is the last dim; other operations flatten the tensor.
    default = -1 if operation_name(node) in ("topk", "sort", "argsort", "kthvalue", "mode") else None
    shape, dim = operands["self"].meta["val"].shape, operands.get("dim", default)
    return Interval(0, (math.prod(shape) if dim is None else shape[dim] if shape else 1) - 1)


_RULES: dict[str, Callable[[Node, Mapping[Node, Interval]], Interval | None]] = {
    "add": _sum,
    "sub": lambda node, ranges: _sum(node, ranges, -1),
    "mul": _of_operands(Interval.product, 0, 2),
    # The result has the sign of the divisor.
    "remainder": _of_operands(
        lambda divisor: Interval(0, divisor.upper - 1) if divisor.lower > 0 else None, 1, 2
    ),
    "clamp": _clamped,
    "where": _of_operands(Interval.union, 1, 3),
    "arange": _positions,
    "argmax": _of_dim,
    "argmin": _of_dim,
    "argsort": _of_dim,
    "full": lambda node, ranges: _of(node.args[1], ranges),
    "full_like": lambda node, ranges: _of(node.args[1], ranges),
    "zeros": lambda node, ranges: Interval(0, 0),
    "zeros_like": lambda node, ranges: Interval(0, 0),
    "ones": lambda node, ranges: Interval(1, 1),
    "ones_like": lambda node, ranges: Interval(1, 1),
}
