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
from collections.abc import Callable, Iterator, Sequence
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
    do not follow from ``present``; only pooling and convolution have windows.
    """

    target: Target
    sizes: tuple[int, ...]
    present: tuple[frozenset[int], ...]
    reduced: frozenset[int]
    dtypes: tuple[str, ...]
    windows: frozenset[int] = frozenset()

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


_MEANING: dict[Role, Callable[[Iteration, int], bool]] = {
    Role.REDUCED: lambda it, dim: dim in it.reduced,
    Role.KEPT: lambda it, dim: dim in it.present[-1],
    Role.CONTRACTED: lambda it, dim: (
        dim in it.reduced and dim not in it.windows and dim in it.present[0] & it.present[1]
    ),
    Role.ROW: lambda it, dim: dim in it.present[0] - it.present[1] - it.reduced,
    Role.COLUMN: lambda it, dim: dim in it.present[1] - it.present[0] - it.reduced,
    Role.BATCH: lambda it, dim: dim in (it.present[0] & it.present[1]) - it.reduced,
    Role.WINDOW: lambda it, dim: dim in it.windows,
    Role.SELECTED: lambda it, dim: not any(dim in present for present in it.present[:-1]),
    Role.NORMALISED: lambda it, dim: dim in it.present[0] - it.present[1],
    Role.NONE: lambda it, dim: False,
}


def dims_of(role: Role, iteration: Iteration) -> list[int]:
    """Return all dims of a role, ascending."""
    return [dim for dim in range(len(iteration.sizes)) if is_of(role, iteration, dim)]


def sized_dims_of(role: Role, iteration: Iteration) -> list[int]:
    """Return the dims of a role that have more than one element, ascending."""
    return [dim for dim in dims_of(role, iteration) if iteration.sizes[dim] > 1]


def is_of(role: Role, iteration: Iteration, dim: int) -> bool:
    """Return whether a dim has a role."""
    return _MEANING[role](iteration, dim)


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
        dims = [dim for dim in sized_dims_of(self.role, iteration) if dim in present]
        if self.excluded is not None:
            dims = [dim for dim in dims if not is_of(self.excluded, iteration, dim)]
        return (*reversed(dims), None) if self.sparse or not dims else tuple(reversed(dims))

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
        dims = (sized_dims_of if self.sized else dims_of)(self.role, iteration)
        if self.minimum <= len(dims) and (self.maximum is None or len(dims) <= self.maximum):
            return None
        noun = f"{self.role.value} dims" if len(dims) > 1 else f"{self.role.value} dim"
        of = " of more than one element" if self.sized else ""
        count = f"{len(dims)} {noun}{of} {dims}" if dims else f"no {noun}{of}"
        return f"it has {count}; expected {self._expected()}"

    def _expected(self) -> str:
        if self.minimum == self.maximum:
            return f"exactly {self.minimum}" if self.minimum else "none"
        return f"at least {self.minimum}" if self.maximum is None else f"at most {self.maximum}"


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
_PRODUCT_STICKS = (StickConstraint(Role.CONTRACTED, (0,)), StickConstraint(Role.COLUMN, (1, -1), reference=1))

RULES: dict[Kind, Rule] = {
    Kind.POINTWISE: Rule(
        "all operands of a pointwise operation have one stick",
        (StickConstraint(Role.KEPT, reference=-1, sparse=True),),
        (_REDUCES_NOTHING,),
    ),
    Kind.CAST: Rule(
        "both sides of a cast have one stick",
        (StickConstraint(Role.KEPT, reference=-1, sparse=True),),
        (_REDUCES_NOTHING,),
    ),
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
        "a matmul has the contracted dim in the stick of input 1, its columns in those of input 2 and the result",
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
        "a restickify goes from the stick of one dim to that of another",
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
    Kind.RELAYOUT: Rule(
        "both sides of a shuffle have one stick",
        (StickConstraint(Role.KEPT, reference=-1, sparse=True),),
        (_REDUCES_NOTHING,),
    ),
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
    return tuple(assignment for name in _variants(opcode) for assignment in _assignments_of(name, iteration))


def _assignments_of(opcode: str, iteration: Iteration) -> Iterator[StickAssignment]:
    rule = RULES[KINDS[opcode]]
    for inputs in _orders(rule, iteration):
        reordered = iteration.reordered(inputs)
        if _first_problem(rule, reordered) is not None:
            continue
        choices = [constraint.stick_dims(reordered) for constraint in rule.stick_constraints]
        for stick_dims in itertools.product(*choices):
            if rule.distinct and len(set(stick_dims)) < len(stick_dims):
                continue
            yield _assignment(opcode, rule, reordered, inputs, stick_dims)


def _assignment(
    opcode: str, rule: Rule, reordered: Iteration, inputs: tuple[int, ...], choice: StickDims
) -> StickAssignment:
    """Return the assignment with dim ``choice[k]`` for constraint ``k``; ``reordered`` has the order of ``inputs``."""
    stick_dims: list[int | None] = [None] * len(reordered.present)
    for constraint, dim in zip(rule.stick_constraints, choice, strict=True):
        for operand in constraint.operand_indices(reordered):
            stick_dims[operand] = dim if dim in reordered.present[operand] else None
    original = (*inputs, len(inputs))
    padded_dims = _padded_dims(reordered, _sticks(opcode, reordered, stick_dims))
    return StickAssignment(
        opcode,
        # ``original`` maps positions to operands, and ``original.index`` maps operands to positions.
        tuple(stick_dims[original.index(operand)] for operand in range(len(stick_dims))),
        inputs,
        tuple(sorted((original[operand], dim) for operand, dim in padded_dims)),
    )


def _orders(rule: Rule, iteration: Iteration) -> tuple[tuple[int, ...], ...]:
    return rule.input_orders or (tuple(range(len(iteration.present) - 1)),)


def _variants(opcode: str) -> tuple[str, ...]:
    """Return the opcodes of one operation: a reduction has two, depending on whether it reduces the stick dim."""
    stick_name = opcode.removesuffix("nonstick")
    names = tuple(name for name in (stick_name + "nonstick", stick_name) if name in KINDS)
    if not names:
        raise CompileError(f"'{opcode}' is no device operation, so it has no stick rule.")
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


def neutral_padding(iteration: Iteration, assignment: StickAssignment) -> tuple[tuple[int, int], ...]:
    """Return the (operand, dim) whose padding must hold the neutral value of the operation (``target.ops.NEUTRAL``)."""
    role = RULES[KINDS[assignment.opcode]].neutral
    if role is None:
        return ()
    reordered = iteration.reordered(assignment.inputs)
    elements = _stick_elements([_elements_of(digits) for digits in stick_digits(iteration, assignment)])
    padded = [dim for dim in dims_of(role, reordered) if iteration.sizes[dim] % elements.get(dim, 1)]
    return tuple(
        (operand, dim)
        for operand, present in enumerate(iteration.present)
        for dim in padded
        if dim in present
    )


def _sticks(opcode: str, reordered: Iteration, stick_dims: Sequence[int | None]) -> Sticks:
    """Return the sticks of the operands in the order of the rule."""
    packed = STICKS.get(opcode, ())
    sticks: list[tuple[tuple[int | None, int], ...]] = []
    # ``STICKS`` has only the inputs of some operations: the loop below adds all other operands.
    for digits, dtype in zip(packed, reordered.dtypes, strict=False):
        counts = filling_counts([count for _, count in digits], elements_per_stick(reordered.target, dtype))
        sticks.append(
            tuple((_one(role, reordered), count) for (role, _), count in zip(digits, counts, strict=True))
        )
    for dtype, stick_dim in list(zip(reordered.dtypes, stick_dims, strict=True))[len(sticks) :]:
        sticks.append(
            () if stick_dim is None else ((stick_dim, elements_per_stick(reordered.target, dtype)),)
        )
    return tuple(sticks)


def _one(role: Role, iteration: Iteration) -> int | None:
    """Return the last dim of a role, if possible of more than one element; None if no dim has the role."""
    dims = sized_dims_of(role, iteration) or dims_of(role, iteration)
    return dims[-1] if dims else None


def _stick_elements(counts: Sequence[dict[int, int]]) -> dict[int, int]:
    """Return the elements of the longest stick of each dim."""
    # Lengths are powers of two: a multiple of the longest stick is a multiple of all sticks.
    longest: dict[int, int] = {}
    for elements in counts:
        for dim, count in elements.items():
            longest[dim] = max(longest.get(dim, 1), count)
    return longest


def _elements_of(digits: tuple[tuple[int | None, int], ...]) -> dict[int, int]:
    """Elements of each dim in one stick."""
    elements: dict[int, int] = {}
    for dim, count in digits:
        if dim is not None:
            elements[dim] = elements.get(dim, 1) * count
    return elements


def _padded_dims(reordered: Iteration, sticks: Sticks) -> list[tuple[int, int]]:
    """Return each (operand, dim) that must be padded because another operand has a longer stick of the dim."""
    counts = [_elements_of(stick) for stick in sticks]
    longest = _stick_elements(counts)
    return [
        (operand, dim)
        for operand, (present, own_elements) in enumerate(zip(reordered.present, counts, strict=True))
        for dim, elements in longest.items()
        if dim in present and own_elements.get(dim, 1) < elements
    ]


# -- messages -----------------------------------------------------------------------------------------


def violation(opcode: str, iteration: Iteration, stick_dims: Sequence[int | None]) -> str | None:
    """Return why an operation with its inputs in the given order cannot have these stick dims; None if it can.

    ``max`` and ``maxnonstick`` are two operations here, and the operands of a matmul are not swapped.
    """
    if opcode not in KINDS:
        raise CompileError(f"'{opcode}' is no device operation, so it has no stick rule.")
    rule = RULES[KINDS[opcode]]
    problem = _first_problem(rule, iteration)
    # Dim counts are checked first: if a dim that the rule needs is missing, the stick constraints expect sparse sticks.
    problem = problem or next(_misplaced(rule, iteration, _normalised(iteration, stick_dims)), None)
    return problem and f"{problem}: {rule.sentence}"


def stick_violation(opcode: str, iteration: Iteration, sticks: Sticks) -> str | None:
    """Return why operands with several dims in the stick do not have the sticks of the operation; None if they do.

    ``sticks`` has the (dim, elements) pairs of each operand, () for an operand with at most one dim in the stick.
    """
    expected_sticks = _sticks(opcode, iteration, [None] * len(iteration.present))
    for operand, (actual, digits) in enumerate(zip(sticks, expected_sticks, strict=True)):
        expected = digits if len(digits) > 1 else ()
        if actual != expected:
            expectation = _several(expected) if expected else "one dim there"
            description = _several(actual) if actual else "one dim at most"
            name = _operand(iteration, operand)
            return f"{name} has {description} in the stick; expected {expectation}: {sentence(opcode)}"
    return None


def _several(digits: tuple[tuple[int | None, int], ...]) -> str:
    return " x ".join(f"{count} of dim {dim}" for dim, count in digits)


def sentence(opcode: str) -> str:
    """Return the rule of an operation, as a clause."""
    return RULES[KINDS[opcode]].sentence


def why_no_form(opcode: str, iteration: Iteration) -> str:
    """Return why an operation has no stick assignment, with its variants and with swapped operands included."""
    names = _variants(opcode)
    reasons = [_why_none(RULES[KINDS[name]], iteration) for name in names]
    if len(names) == 1 and KINDS[names[0]] is Kind.REDUCE_STICK:
        reasons.append(f"there is no '{names[0]}nonstick'")
    return "; ".join(reasons)


def _why_none(rule: Rule, iteration: Iteration) -> str:
    problems = [_first_problem(rule, iteration.reordered(inputs)) for inputs in _orders(rule, iteration)]
    reasons = [problem or "all its dims have one element" for problem in problems]
    return f"{'; with its inputs turned round '.join(dict.fromkeys(reasons))}: {rule.sentence}"


def _first_problem(rule: Rule, reordered: Iteration) -> str | None:
    problems = (constraint.problem(reordered) for constraint in rule.dim_counts)
    return next(filter(None, problems), None)


def _normalised(iteration: Iteration, stick_dims: Sequence[int | None]) -> StickDims:
    return tuple(
        stick_dim
        if stick_dim is not None and stick_dim in present and iteration.sizes[stick_dim] > 1
        else None
        for stick_dim, present in zip(stick_dims, iteration.present, strict=True)
    )


def _misplaced(rule: Rule, iteration: Iteration, stick_dims: StickDims) -> Iterator[str]:
    """Yield a sentence for each operand whose stick violates a constraint."""
    for constraint in rule.stick_constraints:
        allowed, stick_dim = constraint.stick_dims(iteration), stick_dims[constraint.reference]
        reference = _operand(iteration, constraint.reference)
        if stick_dim not in allowed:
            yield f"{reference} {_has(stick_dim)}; expected {_expected(constraint, allowed)}"
        for operand in constraint.operand_indices(iteration):
            required = stick_dim if stick_dim in iteration.present[operand] else None
            if stick_dims[operand] != required:
                expected = _as(reference, stick_dim, required)
                yield f"{_operand(iteration, operand)} {_has(stick_dims[operand])}; expected {expected}"
    if rule.distinct and stick_dims[0] == stick_dims[-1]:
        yield f"input 1 {_has(stick_dims[0])}, and so it is in the result"


def _operand(iteration: Iteration, index: int) -> str:
    return (
        "the result" if index % len(iteration.present) == len(iteration.present) - 1 else f"input {index + 1}"
    )


def _has(stick_dim: int | None) -> str:
    return "is sparse" if stick_dim is None else f"has dim {stick_dim} in the stick"


def _as(reference: str, stick_dim: int | None, required: int | None) -> str:
    """The expected stick of an operand that shares the dim of ``reference``."""
    if required is not None:
        return f"dim {required} as in {reference}"
    return (
        f"it sparse as {reference}"
        if stick_dim is None
        else f"it sparse, as it lacks dim {stick_dim} of {reference}"
    )


def _expected(constraint: StickConstraint, stick_dims: StickDims) -> str:
    """The allowed stick dims of a constraint, in words."""
    dims = sorted(dim for dim in stick_dims if dim is not None)
    if not dims:
        return "it sparse"
    exclusion = f", never a {constraint.excluded.value} dim" if constraint.excluded else ""
    description = (
        f"the {constraint.role.value} dim {dims[0]}"
        if len(dims) == 1
        else f"a {constraint.role.value} dim of {dims}"
    )
    return description + (" or sparse" if None in stick_dims else "") + exclusion
