# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The stick rules of every kind of operation, as one table: legality, candidates and messages follow from the table.

A *stick constraint* names the role of the dim that may be in the stick (reduced, contracted, ..) and the operands
that share this dim: an operand that has the dim has it in its stick, and an operand without the dim is stick-sparse. A
*dim-count constraint* bounds the number of dims of a role. The roles of dims follow from the iteration alone. One
rule holds for all operations: a dim in the stick of any operand is padded to whole sticks in all operands.

``StickDims`` are iteration dims, one per operand, the result last; None is stick-sparse. ``StickDims`` are normalised:
a dim of size 1, or one that the operand does not have, is None. Messages use iteration dims, and count inputs
from 1, as "Tensor Layouts" does.

Source: torch-spyre's "Tensor Layouts", per-operation stick and padding constraints, and the checks of its compiler.
"""

from __future__ import annotations

import enum
import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from spyre_mlir.errors import CompileError
from spyre_mlir.layout.stick_layout import elements_per_stick, filling_counts
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import KINDS, Kind
from spyre_mlir.target.target import Target


@dataclass(frozen=True)
class Iteration:
    """The iteration of an operation for the stick rules: extents of its dims, the dims of each operand, element types.

    The last operand is the result. ``windows`` are the dims of a window and the dims that it slides along, which
    do not follow from ``present``; only pooling and convolution have windows. ``labels`` are the dims in messages, by
    default their indices.
    """

    target: Target
    sizes: tuple[int, ...]
    present: tuple[frozenset[int], ...]
    reduced: frozenset[int]
    dtypes: tuple[str, ...]
    windows: frozenset[int] = frozenset()
    labels: tuple[str, ...] = ()

    def label(self, dim: int) -> str:
        """Return a dim as messages name it."""
        return self.labels[dim] if self.labels else str(dim)

    def reordered(self, inputs: Sequence[int]) -> Iteration:
        """Return the iteration with original input ``inputs[k]`` at position ``k``."""
        order = (*inputs, len(self.present) - 1)
        if order == tuple(range(len(order))):
            return self
        return replace(
            self,
            present=tuple(self.present[operand] for operand in order),
            dtypes=tuple(self.dtypes[operand] for operand in order),
        )


class Role(enum.Enum):
    """The role of a dim in an operation."""

    REDUCED = "reduced"
    KEPT = "kept"
    CONTRACTED = "contracted"
    ROW = "row"
    COLUMN = "column"
    BATCH = "batch"
    WINDOW = "window"
    SELECTED = "k"
    NORMALISED = "normalised"
    NONE = "no"


def dims_of(role: Role, iteration: Iteration, *, sized: bool = False) -> list[int]:
    """Return all dims of a role, ascending; with ``sized`` only the dims that have more than one element."""
    present, reduced = iteration.present, iteration.reduced
    first, second = (*present, frozenset[int]())[:2]
    dims = {
        Role.REDUCED: reduced,
        Role.KEPT: present[-1],
        Role.CONTRACTED: (reduced - iteration.windows) & first & second,
        Role.ROW: first - second - reduced,
        Role.COLUMN: second - first - reduced,
        Role.BATCH: (first & second) - reduced,
        Role.WINDOW: iteration.windows,
        Role.SELECTED: frozenset(range(len(iteration.sizes))).difference(*present[:-1]),
        Role.NORMALISED: first - second,
        Role.NONE: frozenset[int](),
    }
    return [dim for dim in sorted(dims[role]) if not sized or iteration.sizes[dim] > 1]


StickDims = tuple[int | None, ...]

#: For each operand the digits of its stick, outermost first, as (dim, elements); None is a dim that is missing.
Sticks = tuple[tuple[tuple[int | None, int], ...], ...]


@dataclass(frozen=True)
class StickAssignment:
    """One legal assignment of stick dims to the operands of an operation.

    ``opcode``: a reduction over the stick dim has another opcode than one over other dims. ``stick_dims``: the
    iteration dim in the stick of each operand, in the original operand order. ``inputs``: the original input at each
    position; (1, 0) is a matmul with its operands swapped. ``padded_dims``: each (operand, iteration dim) that must be
    padded to whole sticks of another operand, beyond the operand's own stick; also in the original operand order.
    """

    opcode: str
    stick_dims: StickDims
    inputs: tuple[int, ...]
    padded_dims: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class StickConstraint:
    """One dim that ``operands`` (empty: all) share as their stick dim.

    The dim has ``role`` but not ``excluded``, and is a dim of operand ``reference``. ``sparse``: the operands may also
    be stick-sparse; without it they are stick-sparse only if every such dim has size 1.
    """

    role: Role
    operands: tuple[int, ...] = ()
    reference: int = 0
    excluded: Role | None = None
    sparse: bool = False

    def stick_dims(self, iteration: Iteration) -> StickDims:
        """Return the dims that satisfy the constraint, from the last (the default stick) to the first, then None."""
        present = iteration.present[self.reference]
        excluded = () if self.excluded is None else dims_of(self.excluded, iteration)
        dims = [dim for dim in dims_of(self.role, iteration, sized=True) if dim in present]
        dims = [dim for dim in reversed(dims) if dim not in excluded]
        return (*dims, None) if self.sparse or not dims else tuple(dims)

    def operand_indices(self, iteration: Iteration) -> tuple[int, ...]:
        """Return the operands that share the dim, as indices from 0."""
        count = len(iteration.present)
        return tuple(index % count for index in self.operands) or tuple(range(count))


@dataclass(frozen=True)
class DimCountConstraint:
    """Bounds for the number of dims of a role; ``sized`` counts only dims of more than one element."""

    role: Role
    minimum: int = 0
    maximum: int | None = None
    sized: bool = False

    def problem(self, iteration: Iteration) -> str | None:
        """Return a sentence if an iteration has too few or too many dims of the role, else None."""
        dims = dims_of(self.role, iteration, sized=self.sized)
        if self.minimum <= len(dims) and (self.maximum is None or len(dims) <= self.maximum):
            return None
        noun = f"{self.role.value} dims" if len(dims) > 1 else f"{self.role.value} dim"
        of = " of more than one element" if self.sized else ""
        names = ", ".join(map(iteration.label, dims))
        count = f"{len(dims)} {noun}{of} [{names}]" if dims else f"no {noun}{of}"
        if self.minimum == self.maximum:
            expected = f"exactly {self.minimum}" if self.minimum else "none"
        else:
            expected = f"at least {self.minimum}" if self.maximum is None else f"at most {self.maximum}"
        return f"it has {count}; expected {expected}"


@dataclass(frozen=True)
class Rule:
    """The rule of one kind of operation, with ``sentence`` as its text.

    ``input_orders``: the orders in which the inputs may come (empty: the given order). ``distinct``: the stick
    constraints have different dims. ``neutral``: padding of dims of this role holds the neutral value of the operation.
    """

    sentence: str
    stick_constraints: tuple[StickConstraint, ...]
    dim_counts: tuple[DimCountConstraint, ...] = ()
    input_orders: tuple[tuple[int, ...], ...] = ()
    distinct: bool = False
    neutral: Role | None = None


_REDUCES_NOTHING = DimCountConstraint(Role.REDUCED, maximum=0)
_REDUCES = DimCountConstraint(Role.REDUCED, minimum=1)
_ONE_STICK = (StickConstraint(Role.KEPT, reference=-1, sparse=True),)
_PRODUCT_STICKS = (StickConstraint(Role.CONTRACTED, (0,)), StickConstraint(Role.COLUMN, (1, -1), reference=1))

RULES: dict[Kind, Rule] = {
    Kind.POINTWISE: Rule(
        "all operands of a pointwise operation have one stick", _ONE_STICK, (_REDUCES_NOTHING,)
    ),
    Kind.CAST: Rule("both sides of a cast have one stick", _ONE_STICK, (_REDUCES_NOTHING,)),
    Kind.REDUCE_STICK: Rule(
        "a reduction over the stick reduces the dim in the stick and no other, its result is sparse",
        (StickConstraint(Role.REDUCED),),
        (_REDUCES, DimCountConstraint(Role.REDUCED, maximum=1, sized=True)),
        neutral=Role.REDUCED,
    ),
    Kind.REDUCE_OTHER: Rule(
        "a reduction over other dims than the stick keeps the stick in its result",
        (StickConstraint(Role.KEPT, sparse=True),),
        (_REDUCES,),
    ),
    Kind.MATMUL: Rule(
        "a matmul has the contracted dim in the stick of input 1, its columns in the sticks of input 2 and the result",
        _PRODUCT_STICKS,
        (
            DimCountConstraint(Role.REDUCED, 1, 1),
            DimCountConstraint(Role.CONTRACTED, minimum=1),
            DimCountConstraint(Role.COLUMN, 1, 1),
            DimCountConstraint(Role.ROW, maximum=2),
            DimCountConstraint(Role.BATCH, maximum=2),
        ),
        input_orders=((0, 1), (1, 0)),
        neutral=Role.CONTRACTED,
    ),
    Kind.CONVOLUTION: Rule(
        "a convolution has its input channels in the stick of input 1, its output channels in the others",
        _PRODUCT_STICKS,
        (DimCountConstraint(Role.CONTRACTED, 1, 1), DimCountConstraint(Role.COLUMN, 1, 1)),
        neutral=Role.CONTRACTED,
    ),
    Kind.NORMALISE: Rule(
        "a normalisation has the normalised dim in the stick of all operands that have it",
        (StickConstraint(Role.NORMALISED),),
        (_REDUCES_NOTHING, DimCountConstraint(Role.NORMALISED, 1, 1)),
    ),
    Kind.POOLING: Rule(
        "pooling never has a dim of its window in the stick",
        (StickConstraint(Role.KEPT, excluded=Role.WINDOW, sparse=True),),
        (DimCountConstraint(Role.WINDOW, minimum=1),),
    ),
    Kind.TOP_K: Rule(
        "a top-k has neither the reduced dim nor k in the stick",
        (StickConstraint(Role.KEPT, excluded=Role.SELECTED, sparse=True),),
        (_REDUCES,),
    ),
    Kind.RESTICKIFY: Rule(
        "a restickify moves the stick from one dim to another",
        (
            StickConstraint(Role.KEPT, (0,), sparse=True),
            StickConstraint(Role.KEPT, (-1,), reference=-1, sparse=True),
        ),
        (_REDUCES_NOTHING,),
        distinct=True,
    ),
    Kind.GATHER: Rule(
        "a gather has a dim of its rows in the stick of the table and of the result, its index is sparse",
        (
            StickConstraint(Role.NONE, (0,), sparse=True),
            StickConstraint(Role.COLUMN, (1, -1), reference=1, sparse=True),
        ),
    ),
    Kind.RELAYOUT: Rule("both sides of a shuffle have one stick", _ONE_STICK, (_REDUCES_NOTHING,)),
}

_ONE_BYTE = (
    ((Role.CONTRACTED, None),),
    ((Role.COLUMN, None), (Role.CONTRACTED, 2)),
)
_FOUR_BITS = (
    ((Role.CONTRACTED, None), (Role.ROW, 2), (Role.CONTRACTED, 16)),
    ((Role.COLUMN, None), (Role.CONTRACTED, 4)),
)

#: Sticks of several digits for each input, outermost first; None is the count that fills the stick. The elements of
#: the last digit are contiguous. All other sticks hold one dim, by element type. The SuperDSC specification writes
#: the digits innermost first, [K=2, N=64]: in the transfer of torch-spyre (csrc/spyre_mem.cpp) two elements of K are
#: neighbours.
STICKS: dict[str, tuple[tuple[tuple[Role, int | None], ...], ...]] = {
    "batchmatmulfp8": _ONE_BYTE,
    "batchmatmulint8": _ONE_BYTE,
    "batchmatmulint4": _FOUR_BITS,
    "conv2dfp8": _ONE_BYTE,
    "conv2dint8": _ONE_BYTE,
    "conv2dint4": _FOUR_BITS,
}


# -- candidates ---------------------------------------------------------------------------------------


@functools.cache
def stick_assignments(opcode: str, iteration: Iteration) -> tuple[StickAssignment, ...]:
    """Return all legal assignments of an operation or of its variants (``max``, ``maxnonstick``), in a fixed order.

    Assignments that keep the stick come before assignments that reduce it, inputs in the given order before swapped
    operands, the last dim before the first, sparse last. Raise ``CompileError`` for an unknown operation.
    """
    # The order decides between assignments of equal cost, so it affects results.
    assignments = []
    for name in _variants(opcode):
        rule = RULES[KINDS[name]]
        for inputs in _orders(rule, iteration):
            reordered, original = iteration.reordered(inputs), (*inputs, len(inputs))
            if _first_problem(rule, reordered) is not None:
                continue
            choices = [constraint.stick_dims(reordered) for constraint in rule.stick_constraints]
            for choice in itertools.product(*choices):
                if rule.distinct and len(set(choice)) < len(choice):
                    continue
                stick_dims: list[int | None] = [None] * len(reordered.present)
                for constraint, dim in zip(rule.stick_constraints, choice, strict=True):
                    for operand in constraint.operand_indices(reordered):
                        stick_dims[operand] = dim if dim in reordered.present[operand] else None
                # A dim is padded in an operand if another operand has a longer stick of the dim.
                counts = [_elements_of(stick) for stick in _sticks(name, reordered, stick_dims)]
                padded_dims = [
                    (original[operand], dim)
                    for dim, elements in _stick_elements(counts).items()
                    for operand, present in enumerate(reordered.present)
                    if dim in present and counts[operand].get(dim, 1) < elements
                ]
                # ``original`` maps positions to operands, and ``original.index`` maps operands to positions.
                in_order = tuple(stick_dims[original.index(operand)] for operand in range(len(stick_dims)))
                assignments.append(StickAssignment(name, in_order, inputs, tuple(sorted(padded_dims))))
    return tuple(assignments)


def _orders(rule: Rule, iteration: Iteration) -> tuple[tuple[int, ...], ...]:
    return rule.input_orders or (tuple(range(len(iteration.present) - 1)),)


def _variants(opcode: str) -> tuple[str, ...]:
    """Return the opcodes of one operation: a reduction has two, depending on whether it reduces the stick dim."""
    stick_name = opcode.removesuffix("nonstick")
    names = tuple(name for name in (stick_name + "nonstick", stick_name) if name in KINDS)
    if not names:
        raise CompileError(f"'{opcode}' is not a device operation, so it has no stick rule.")
    return names


# -- sticks and padding ----------------------------------------------------------------------------------


def stick_digits(iteration: Iteration, assignment: StickAssignment) -> Sticks:
    """Return the (dim, elements) pairs in the stick of each operand, outermost first, in the original operand order.

    A sparse operand has no pairs. A stick of several digits keeps the entry of a dim of size 1, and has None for a
    missing dim. The product of the elements in the pairs of one stick is the number of its elements.
    """
    reordered = iteration.reordered(assignment.inputs)
    original = (*assignment.inputs, len(assignment.inputs))
    sticks = _sticks(assignment.opcode, reordered, [assignment.stick_dims[operand] for operand in original])
    return tuple(sticks[original.index(operand)] for operand in range(len(sticks)))


def neutral_padding(
    iteration: Iteration, assignment: StickAssignment, padded: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """Return the (operand, dim) whose padding must hold the neutral value of the operation (``target.ops.NEUTRAL``).

    ``padded`` are the extents of the iteration dims with padding.
    """
    role = RULES[KINDS[assignment.opcode]].neutral
    if role is None:
        return ()
    reordered = iteration.reordered(assignment.inputs)
    dims = [dim for dim in dims_of(role, reordered) if padded[dim] > iteration.sizes[dim]]
    operands = enumerate(iteration.present)
    return tuple((operand, dim) for operand, present in operands for dim in dims if dim in present)


def _sticks(opcode: str, reordered: Iteration, stick_dims: Sequence[int | None]) -> Sticks:
    """Return the sticks of the operands in the order of the rule."""
    packed = STICKS.get(opcode, ())
    sticks: list[tuple[tuple[int | None, int], ...]] = []
    for operand, (dtype, stick_dim) in enumerate(zip(reordered.dtypes, stick_dims, strict=True)):
        if operand >= len(packed):
            is_sparse = stick_dim is None
            sticks.append(() if is_sparse else ((stick_dim, elements_per_stick(reordered.target, dtype)),))
            continue
        elements = elements_per_stick(reordered.target, dtype)
        counts = filling_counts([count for _, count in packed[operand]], elements)
        digits: list[tuple[int | None, int]] = []
        for (role, _), count in zip(packed[operand], counts, strict=True):
            # The last dim of the role, if possible of more than one element.
            dims = dims_of(role, reordered, sized=True) or dims_of(role, reordered)
            digits.append((dims[-1] if dims else None, count))
        sticks.append(tuple(digits))
    return tuple(sticks)


def _stick_elements(counts: Sequence[dict[int, int]]) -> dict[int, int]:
    """Return the elements of the longest stick of each dim."""
    # Lengths are powers of two: a multiple of the longest stick is a multiple of all sticks.
    dims = dict.fromkeys(itertools.chain.from_iterable(counts))
    return {dim: max(elements.get(dim, 1) for elements in counts) for dim in dims}


def _elements_of(digits: tuple[tuple[int | None, int], ...]) -> dict[int, int]:
    """Return the elements of each dim in one stick."""
    dims = dict.fromkeys(dim for dim, _ in digits if dim is not None)
    return {dim: math.prod(count for other, count in digits if other == dim) for dim in dims}


# -- messages -----------------------------------------------------------------------------------------


def violation(opcode: str, iteration: Iteration, stick_dims: Sequence[int | None]) -> str | None:
    """Return why an operation with its inputs in the given order cannot have these stick dims; None if it can.

    ``max`` and ``maxnonstick`` are two operations here, and the operands of a matmul are not swapped.
    """
    if opcode not in KINDS:
        raise CompileError(f"'{opcode}' is not a device operation, so it has no stick rule.")
    rule = RULES[KINDS[opcode]]
    # Dim counts are checked first: if a dim that the rule needs is missing, the stick constraints expect sparse sticks.
    problem = _first_problem(rule, iteration) or _misplaced_stick(rule, iteration, stick_dims)
    return problem and f"{problem}: {rule.sentence}"


def _misplaced_stick(rule: Rule, iteration: Iteration, stick_dims: Sequence[int | None]) -> str | None:
    """Return a sentence about the first operand whose stick violates a constraint."""
    sticks = tuple(
        dim if dim is not None and dim in present and iteration.sizes[dim] > 1 else None
        for dim, present in zip(stick_dims, iteration.present, strict=True)
    )
    for constraint in rule.stick_constraints:
        allowed, stick_dim = constraint.stick_dims(iteration), sticks[constraint.reference]
        reference = _operand(iteration, constraint.reference)
        if stick_dim not in allowed:
            return f"{reference} {_has(iteration, stick_dim)}; expected {_expected(iteration, constraint)}"
        for operand in constraint.operand_indices(iteration):
            required = stick_dim if stick_dim in iteration.present[operand] else None
            if sticks[operand] == required:
                continue
            if required is not None:
                expected = f"dim {iteration.label(required)} as in {reference}"
            elif stick_dim is None:
                expected = f"it sparse as {reference}"
            else:
                expected = f"it sparse, as it lacks dim {iteration.label(stick_dim)} of {reference}"
            return f"{_operand(iteration, operand)} {_has(iteration, sticks[operand])}; expected {expected}"
    if rule.distinct and sticks[0] == sticks[-1]:
        return f"input 1 {_has(iteration, sticks[0])}, and so it is in the result"
    return None


def stick_violation(opcode: str, iteration: Iteration, sticks: Sticks) -> str | None:
    """Return why operands with several dims in the stick do not have the sticks of the operation; None if they do.

    ``sticks`` has the (dim, elements) pairs of each operand, () for an operand with at most one dim in the stick.
    """
    expected_sticks = _sticks(opcode, iteration, [None] * len(iteration.present))
    for operand, (actual, digits) in enumerate(zip(sticks, expected_sticks, strict=True)):
        expected = digits if len(digits) > 1 else ()
        if actual != expected:
            texts = (
                " x ".join(f"{count} of dim {dim}" for dim, count in stick) for stick in (actual, expected)
            )
            description, expectation = texts
            name = _operand(iteration, operand)
            return (
                f"{name} has {description or 'one dim at most'} in the stick; "
                f"expected {expectation or 'one dim there'}: {sentence(opcode)}"
            )
    return None


def sentence(opcode: str) -> str:
    """Return the rule of an operation, as a clause."""
    return RULES[KINDS[opcode]].sentence


def why_no_form(opcode: str, iteration: Iteration) -> str:
    """Return why an operation has no stick assignment, with its variants and with swapped operands included."""
    names, reasons = _variants(opcode), []
    for rule in (RULES[KINDS[name]] for name in names):
        problems = (_first_problem(rule, iteration.reordered(inputs)) for inputs in _orders(rule, iteration))
        distinct = dict.fromkeys(problem or "all its dims have one element" for problem in problems)
        reasons.append(f"{'; with its operands swapped '.join(distinct)}: {rule.sentence}")
    if len(names) == 1 and KINDS[names[0]] is Kind.REDUCE_STICK:
        reasons.append(f"there is no '{names[0]}nonstick'")
    return "; ".join(reasons)


def _first_problem(rule: Rule, reordered: Iteration) -> str | None:
    problems = (constraint.problem(reordered) for constraint in rule.dim_counts)
    return next(filter(None, problems), None)


def _operand(iteration: Iteration, index: int) -> str:
    count = len(iteration.present)
    return "the result" if index % count == count - 1 else f"input {index + 1}"


def _has(iteration: Iteration, stick_dim: int | None) -> str:
    return "is sparse" if stick_dim is None else f"has dim {iteration.label(stick_dim)} in the stick"


def _expected(iteration: Iteration, constraint: StickConstraint) -> str:
    """The allowed stick dims of a constraint, in words."""
    stick_dims = constraint.stick_dims(iteration)
    dims = [iteration.label(dim) for dim in sorted(dim for dim in stick_dims if dim is not None)]
    if not dims:
        return "it sparse"
    exclusion = f", never a {constraint.excluded.value} dim" if constraint.excluded else ""
    role = constraint.role.value
    description = f"the {role} dim {dims[0]}" if len(dims) == 1 else f"a {role} dim of [{', '.join(dims)}]"
    return description + (" or sparse" if None in stick_dims else "") + exclusion
