"""The stick rules of every kind of operation, as one table: legality, candidates and messages come from it.

A rule has *seats*. A seat names the role of the dim that may sit in the stick (reduced, contracted, ..) and
the operands that share that dim: each of them has it in its stick, and one that lacks it is stick-sparse.
*Limits* say how many dims of a role an operation takes. What dims have which role follows from the iteration
alone. One law holds for all: a dim in the stick of any operand has room for whole sticks in all of them.

Lanes are iteration dims, one per operand, the result last; None is stick-sparse. They are normalised: a dim
of size 1, or one that the operand has not, is None. In messages dims are those of the iteration, and inputs
are counted from 1, as the hardware's documents do.

Source: torch-spyre's "Tensor Layouts", per-operation stick and padding constraints, and the checks of its compiler.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spyre_mlir.errors import CompileError
from spyre_mlir.layout.roles import Iteration, Role, dims_of, is_of, sized_dims_of
from spyre_mlir.layout.stick_layout import elements_per_stick
from spyre_mlir.target.ops import KINDS, Kind

Lanes = tuple[int | None, ...]

#: Per operand the digits of its stick, outermost first, as (dim, elements); None is a dim it has not.
Sticks = tuple[tuple[tuple[int | None, int], ...], ...]


@dataclass(frozen=True)
class Form:
    """One legal way to lay out an operation.

    ``opcode``: a reduction changes its name with the form. ``lanes``: the iteration dim in the stick of each
    operand, in the original operand order. ``inputs``: the original input at each seat; (1, 0) is a matmul
    turned round. ``wholes``: (operand, iteration dim) that must have room for whole sticks of some other
    operand, more than the operand's own stick gives; original operand order too.
    """

    opcode: str
    lanes: Lanes
    inputs: tuple[int, ...]
    wholes: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Seat:
    """One dim that ``operands`` (empty: all) share as their stick.

    A dim sits there if it has ``role``, not ``never``, and ``leader`` has it. ``sparse``: the seat may stay
    empty; without it only if every such dim has size 1.
    """

    role: Role
    operands: tuple[int, ...] = ()
    leader: int = 0
    never: Role | None = None
    sparse: bool = False

    def options(self, iteration: Iteration) -> Lanes:
        """What may sit here: dims from the last (the default stick) to the first, then sparse."""
        has = iteration.present[self.leader]
        dims = [dim for dim in sized_dims_of(self.role, iteration) if dim in has]
        if self.never is not None:
            dims = [dim for dim in dims if not is_of(self.never, iteration, dim)]
        return (*reversed(dims), None) if self.sparse or not dims else tuple(reversed(dims))

    def members(self, iteration: Iteration) -> tuple[int, ...]:
        """The operands that share this seat, as indices from 0."""
        count = len(iteration.present)
        return tuple(at % count for at in self.operands) or tuple(range(count))


@dataclass(frozen=True)
class Limit:
    """How many dims of a role an operation takes; ``sized`` counts only those of more than one element."""

    role: Role
    least: int = 0
    most: int | None = None
    sized: bool = False

    def problem(self, iteration: Iteration) -> str | None:
        """The sentence if an iteration has too few or too many."""
        dims = (sized_dims_of if self.sized else dims_of)(self.role, iteration)
        if self.least <= len(dims) and (self.most is None or len(dims) <= self.most):
            return None
        noun = f"{self.role.value} dims" if len(dims) > 1 else f"{self.role.value} dim"
        of = " of more than one element" if self.sized else ""
        found = f"{len(dims)} {noun}{of} {dims}" if dims else f"no {noun}{of}"
        return f"it has {found}; expected {self._expected()}"

    def _expected(self) -> str:
        if self.least == self.most:
            return f"exactly {self.least}" if self.least else "none"
        return f"at least {self.least}" if self.most is None else f"at most {self.most}"


@dataclass(frozen=True)
class Rule:
    """The rule of one kind: ``orders`` are the orders of its inputs (empty: as they stand).

    ``distinct``: its seats hold different dims. ``neutral``: padding of dims of that role holds the neutral
    value of the operation. ``sentence`` says the rule.
    """

    sentence: str
    seats: tuple[Seat, ...]
    limits: tuple[Limit, ...] = ()
    orders: tuple[tuple[int, ...], ...] = ()
    distinct: bool = False
    neutral: Role | None = None


_REDUCES_NOTHING = Limit(Role.REDUCED, most=0)
_REDUCES = Limit(Role.REDUCED, least=1)
_PRODUCT_SEATS = (Seat(Role.CONTRACTED, (0,)), Seat(Role.COLUMN, (1, -1), leader=1))

RULES: dict[Kind, Rule] = {
    Kind.POINTWISE: Rule(
        "all operands of a pointwise operation have one stick",
        (Seat(Role.KEPT, leader=-1, sparse=True),),
        (_REDUCES_NOTHING,),
    ),
    Kind.CAST: Rule(
        "both sides of a cast have one stick",
        (Seat(Role.KEPT, leader=-1, sparse=True),),
        (_REDUCES_NOTHING,),
    ),
    Kind.REDUCE_STICK: Rule(
        "a reduction over the stick reduces the dim in the stick and no other, its result is sparse",
        (Seat(Role.REDUCED),),
        (_REDUCES, Limit(Role.REDUCED, most=1, sized=True)),
        neutral=Role.REDUCED,
    ),
    Kind.REDUCE_OTHER: Rule(
        "a reduction over other dims than the stick keeps the stick in its result",
        (Seat(Role.KEPT, sparse=True),),
        (_REDUCES,),
    ),
    Kind.MATMUL: Rule(
        "a matmul has the contracted dim in the stick of input 1, its columns in those of input 2 and the result",
        _PRODUCT_SEATS,
        (
            Limit(Role.REDUCED, 1, 1),
            Limit(Role.CONTRACTED, least=1),
            Limit(Role.COLUMN, 1, 1),
            Limit(Role.ROW, most=2),
            Limit(Role.BATCH, most=2),
        ),
        orders=((0, 1), (1, 0)),
        neutral=Role.CONTRACTED,
    ),
    Kind.CONVOLUTION: Rule(
        "a convolution has its input channels in the stick of input 1, its output channels in the others",
        _PRODUCT_SEATS,
        (Limit(Role.CONTRACTED, 1, 1), Limit(Role.COLUMN, 1, 1)),
        neutral=Role.CONTRACTED,
    ),
    Kind.NORMALISE: Rule(
        "a normalisation has the normalised dim in the stick of all operands that have it",
        (Seat(Role.NORMALISED),),
        (_REDUCES_NOTHING, Limit(Role.NORMALISED, 1, 1)),
    ),
    Kind.POOLING: Rule(
        "pooling never has a dim of its window in the stick",
        (Seat(Role.KEPT, never=Role.WINDOW, sparse=True),),
        (Limit(Role.WINDOW, least=1),),
    ),
    Kind.TOP_K: Rule(
        "a top-k has neither the reduced dim nor k in the stick",
        (Seat(Role.KEPT, never=Role.SELECTED, sparse=True),),
        (_REDUCES,),
    ),
    Kind.RESTICKIFY: Rule(
        "a restickify goes from the stick of one dim to that of another",
        (Seat(Role.KEPT, (0,), sparse=True), Seat(Role.KEPT, (-1,), leader=-1, sparse=True)),
        (_REDUCES_NOTHING,),
        distinct=True,
    ),
    Kind.GATHER: Rule(
        "a gather has a dim of its rows in the stick of the table and of the result, its index is sparse",
        (Seat(Role.NONE, (0,), sparse=True), Seat(Role.COLUMN, (1, -1), leader=1, sparse=True)),
    ),
    Kind.RELAYOUT: Rule(
        "both sides of a shuffle have one stick",
        (Seat(Role.KEPT, leader=-1, sparse=True),),
        (_REDUCES_NOTHING,),
    ),
}

_ONE_BYTE = (
    ((Role.CONTRACTED, 128),),
    ((Role.COLUMN, 64), (Role.CONTRACTED, 2)),
)
_FOUR_BITS = (
    ((Role.CONTRACTED, 8), (Role.ROW, 2), (Role.CONTRACTED, 16)),
    ((Role.COLUMN, 64), (Role.CONTRACTED, 4)),
)

#: Sticks of several digits, per input, outermost first: the elements of the last digit lie side by side. All other
#: sticks hold one dim, by element type. The interface writes them innermost first, [K=2, N=64]: in the transfer of
#: torch-spyre (spyre_mem.cpp) two elements of K are neighbours.
STICKS: dict[str, tuple[tuple[tuple[Role, int], ...], ...]] = {
    "batchmatmulfp8": _ONE_BYTE,
    "batchmatmulint8": _ONE_BYTE,
    "batchmatmulint4": _FOUR_BITS,
    "conv2dfp8": _ONE_BYTE,
    "conv2dint8": _ONE_BYTE,
    "conv2dint4": _FOUR_BITS,
}


# -- candidates ---------------------------------------------------------------------------------------


@functools.cache
def forms(opcode: str, iteration: Iteration) -> tuple[Form, ...]:
    """All legal forms of an operation or of its sisters (``max``, ``maxnonstick``), in a fixed order.

    A form that keeps its stick comes before the one that reduces it, inputs as they stand before inputs
    turned round, the last dim before the first, sparse last. ``CompileError`` for an unknown operation.
    """
    return tuple(form for name in _sisters(opcode) for form in _forms_of(name, iteration))


def _forms_of(opcode: str, iteration: Iteration) -> Iterator[Form]:
    rule = RULES[KINDS[opcode]]
    for inputs in _orders(rule, iteration):
        seated = iteration.seated(inputs)
        if any(limit.problem(seated) for limit in rule.limits):
            continue
        for chosen in itertools.product(*(seat.options(seated) for seat in rule.seats)):
            if rule.distinct and len(set(chosen)) < len(chosen):
                continue
            yield _form(opcode, rule, seated, inputs, chosen)


def _form(opcode: str, rule: Rule, seated: Iteration, inputs: tuple[int, ...], chosen: Lanes) -> Form:
    """The form with ``chosen[k]`` in seat ``k`` of a rule; ``seated`` has its inputs in the order of ``inputs``."""
    lanes: list[int | None] = [None] * len(seated.present)
    for seat, dim in zip(rule.seats, chosen, strict=True):
        for at in seat.members(seated):
            lanes[at] = dim if dim in seated.present[at] else None
    original = (*inputs, len(inputs))
    back = {at: k for k, at in enumerate(original)}
    wholes = _wholes(seated, _sticks(opcode, seated, lanes))
    return Form(
        opcode,
        tuple(lanes[back[at]] for at in range(len(lanes))),
        inputs,
        tuple(sorted((original[at], dim) for at, dim in wholes)),
    )


def _orders(rule: Rule, iteration: Iteration) -> tuple[tuple[int, ...], ...]:
    return rule.orders or (tuple(range(len(iteration.present) - 1)),)


def _sisters(opcode: str) -> tuple[str, ...]:
    """The names that one operation has in its different forms."""
    stick = opcode.removesuffix("nonstick")
    names = tuple(name for name in (stick + "nonstick", stick) if name in KINDS)
    if not names:
        raise CompileError(f"'{opcode}' is no device operation, so it has no stick rule.")
    return names


# -- sticks and room ----------------------------------------------------------------------------------


def stick_digits(iteration: Iteration, form: Form) -> Sticks:
    """What the stick of each operand holds, original operand order: ((dim, elements), ..), outermost first.

    Empty for a sparse operand. A format of several digits keeps the place of a dim of size 1, and of a
    missing one as None. The sizes of one stick multiply to its elements.
    """
    seated = iteration.seated(form.inputs)
    original = (*form.inputs, len(form.inputs))
    sticks = _sticks(form.opcode, seated, [form.lanes[at] for at in original])
    return tuple(sticks[original.index(at)] for at in range(len(sticks)))


def neutral_padding(iteration: Iteration, form: Form) -> tuple[tuple[int, int], ...]:
    """(operand, dim) whose padding must hold the neutral value of the operation (``target.ops.NEUTRAL``)."""
    role = RULES[KINDS[form.opcode]].neutral
    if role is None:
        return ()
    seated = iteration.seated(form.inputs)
    granules = _granules([_counts(stick) for stick in stick_digits(iteration, form)])
    padded = [dim for dim in dims_of(role, seated) if iteration.sizes[dim] % granules.get(dim, 1)]
    return tuple((at, dim) for at, has in enumerate(iteration.present) for dim in padded if dim in has)


def _sticks(opcode: str, seated: Iteration, lanes: Sequence[int | None]) -> Sticks:
    """The sticks of operands in seat order."""
    several = STICKS.get(opcode, ())
    made = [tuple((_one(role, seated), count) for role, count in digits) for digits in several]
    for dtype, lane in list(zip(seated.dtypes, lanes, strict=True))[len(made) :]:
        made.append(() if lane is None else ((lane, elements_per_stick(dtype)),))
    return tuple(made)


def _one(role: Role, iteration: Iteration) -> int | None:
    """The dim of a role that its digits count, the last of more than one element if any; None without one."""
    dims = sized_dims_of(role, iteration) or dims_of(role, iteration)
    return dims[-1] if dims else None


def _granules(counts: Sequence[dict[int, int]]) -> dict[int, int]:
    """Per dim the elements of its longest stick; lengths are powers of two, so whole ones are whole for all."""
    found: dict[int, int] = {}
    for own in counts:
        for dim, count in own.items():
            found[dim] = max(found.get(dim, 1), count)
    return found


def _counts(stick: tuple[tuple[int | None, int], ...]) -> dict[int, int]:
    """Elements of each dim in one stick."""
    found: dict[int, int] = {}
    for dim, count in stick:
        if dim is not None:
            found[dim] = found.get(dim, 1) * count
    return found


def _wholes(seated: Iteration, sticks: Sticks) -> list[tuple[int, int]]:
    """Operands that have a dim of somebody's stick but not, by their own, room for whole ones of it."""
    counts = [_counts(stick) for stick in sticks]
    granules = _granules(counts)
    return [
        (at, dim)
        for at, (has, own) in enumerate(zip(seated.present, counts, strict=True))
        for dim, granule in granules.items()
        if dim in has and own.get(dim, 1) < granule
    ]


# -- messages -----------------------------------------------------------------------------------------


def violation(opcode: str, iteration: Iteration, lanes: Sequence[int | None]) -> str | None:
    """Why these lanes are no form of this very operation with its inputs as they stand; None if they are.

    ``max`` and ``maxnonstick`` are two operations here, and a matmul is not turned round.
    """
    if opcode not in KINDS:
        raise CompileError(f"'{opcode}' is no device operation, so it has no stick rule.")
    rule = RULES[KINDS[opcode]]
    problem = _first_problem(rule, iteration)
    problem = problem or next(_misplaced(rule, iteration, _normalised(iteration, lanes)), None)
    return problem and f"{problem}: {rule.sentence}"


def stick_violation(opcode: str, iteration: Iteration, sticks: Sticks) -> str | None:
    """Why ``sticks``, the (dim, elements) of operands whose sticks hold several dims, are not those of an operation.

    () stands for an operand whose sticks hold one dim or less.
    """
    rule = RULES[KINDS[opcode]]
    made = _sticks(opcode, iteration, [None] * len(iteration.present))
    for at, (held, digits) in enumerate(zip(sticks, made, strict=True)):
        expected = digits if len(digits) > 1 else ()
        if held != expected:
            wanted = _several(expected) if expected else "one dim there"
            found = _several(held) if held else "one dim at most"
            return f"{_operand(iteration, at)} has {found} in the stick; expected {wanted}: {rule.sentence}"
    return None


def _several(digits: tuple[tuple[int | None, int], ...]) -> str:
    return " x ".join(f"{count} of dim {dim}" for dim, count in digits)


def sentence(opcode: str) -> str:
    """The rule of an operation, as a clause."""
    return RULES[KINDS[opcode]].sentence


def why_no_form(opcode: str, iteration: Iteration) -> str:
    """Which limits leave an operation, its sisters and its turned form without a legal one (``forms`` is empty)."""
    sisters = _sisters(opcode)
    reasons = [_why_none(RULES[KINDS[name]], iteration) for name in sisters]
    if len(sisters) == 1 and KINDS[sisters[0]] is Kind.REDUCE_STICK:
        reasons.append(f"there is no '{sisters[0]}nonstick'")
    return "; ".join(reasons)


def _why_none(rule: Rule, iteration: Iteration) -> str:
    problems = [_first_problem(rule, iteration.seated(inputs)) for inputs in _orders(rule, iteration)]
    found = [problem or "all its dims have one element" for problem in problems]
    return f"{'; with its inputs turned round '.join(dict.fromkeys(found))}: {rule.sentence}"


def _first_problem(rule: Rule, seated: Iteration) -> str | None:
    return next(filter(None, (limit.problem(seated) for limit in rule.limits)), None)


def _normalised(iteration: Iteration, lanes: Sequence[int | None]) -> Lanes:
    return tuple(
        lane if lane is not None and lane in has and iteration.sizes[lane] > 1 else None
        for lane, has in zip(lanes, iteration.present, strict=True)
    )


def _misplaced(rule: Rule, iteration: Iteration, lanes: Lanes) -> Iterator[str]:
    """A sentence for each operand whose stick is not what its seat allows."""
    for seat in rule.seats:
        options, chosen = seat.options(iteration), lanes[seat.leader]
        leader = _operand(iteration, seat.leader)
        if chosen not in options:
            yield f"{leader} {_has(chosen)}; expected {_expected(seat, options)}"
        for at in seat.members(iteration):
            wanted = chosen if chosen in iteration.present[at] else None
            if lanes[at] != wanted:
                expected = _as(leader, chosen, wanted)
                yield f"{_operand(iteration, at)} {_has(lanes[at])}; expected {expected}"
    if rule.distinct and lanes[0] == lanes[-1]:
        yield f"input 1 {_has(lanes[0])}, and so it is in the result"


def _operand(iteration: Iteration, at: int) -> str:
    return "the result" if at % len(iteration.present) == len(iteration.present) - 1 else f"input {at + 1}"


def _has(lane: int | None) -> str:
    return "is sparse" if lane is None else f"has dim {lane} in the stick"


def _as(leader: str, chosen: int | None, wanted: int | None) -> str:
    """What an operand that follows ``leader`` is expected to have."""
    if wanted is not None:
        return f"dim {wanted} as in {leader}"
    return f"it sparse as {leader}" if chosen is None else f"it sparse, as it lacks dim {chosen} of {leader}"


def _expected(seat: Seat, options: Lanes) -> str:
    """What a seat takes, in words."""
    dims = sorted(dim for dim in options if dim is not None)
    if not dims:
        return "it sparse"
    spared = f", never a {seat.never.value} dim" if seat.never else ""
    plural = (
        f"the {seat.role.value} dim {dims[0]}" if len(dims) == 1 else f"a {seat.role.value} dim of {dims}"
    )
    return plural + (" or sparse" if None in options else "") + spared
