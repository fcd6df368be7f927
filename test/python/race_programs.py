# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bundles of elementwise operations on two cores, with any placement of their buffers, and faults planted in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from bundle_edits import design, manifest
from bundles import (
    STICK_BYTES,
    _bundle,
    argument,
    operand,
    relayout_bundle,
    two_core_design,
)

from spyre_mlir.bundle.model import (
    INPUT,
    OUTPUT,
    Add,
    Allocate,
    Buffer,
    Bundle,
    Execute,
    Extract,
    IndexConstant,
    Loop,
    Manifest,
    Statement,
)

#: Bytes of a (128, 256) tensor in device memory, of the part of a core in it, of a part in LX, and of one row in LX.
WHOLE, CORE, PART, ROW = 128 * 4 * STICK_BYTES, 64 * STICK_BYTES, 64 * 4 * STICK_BYTES, STICK_BYTES

A, B, C, D = (index * PART for index in range(4))

#: Bytes of the pool: room for four tensors.
POOL = 4 * WHOLE

Step = tuple[str, ...]


def program(*steps: Step, trips: int = 0, pool: Mapping[str, int] = {}, **lx: int) -> Bundle:
    """Return operations (opcode, source, ..., result), by rows, from x in device memory to z.

    ``lx`` and ``pool`` are the addresses of other buffers, and with ``trips`` all steps but the last are in a loop. A
    name with ``+n`` is the buffer ``n`` rows further on.
    """
    arguments = argument("x", "input", "arg0", 128, 256), argument("z", "result", "arg1", 128, 256)
    buffers = [Buffer("x", "arg0", 0, WHOLE), Buffer("z", "arg1", 0, WHOLE)]
    buffers += [Buffer(name, "lx", address, PART) for name, address in lx.items()]
    buffers += [Buffer(name, "pool", address, WHOLE + 64 * ROW) for name, address in pool.items()]
    by_name = {each.name: each for each in buffers}
    statements: list[Statement] = [Allocate("pool", POOL)]
    body, designs, symbols = list[Statement](), [], dict[str, int]()
    for parameter in ("arg0", "arg1"):
        statements.append(Extract(f"{parameter}_base", parameter))

    def address(buffer: Buffer, rows: int, core: int) -> str:
        name = f"{buffer.name}_{rows}_{core}"
        if name not in symbols:
            base = "pool" if buffer.base == "pool" else f"{buffer.base}_base"
            place = buffer.offset + core * CORE + rows * ROW
            statements.extend([IndexConstant(f"{name}_offset", place), Add(name, base, f"{name}_offset")])
            symbols[name] = -1 - len(symbols)
        return name

    uses = []
    for index, (opcode, *names) in enumerate(steps):
        operands, values = [], list[str]()
        for number, text in enumerate(names):
            name, _, rows = text.partition("+")
            buffer, shift = by_name[name], int(rows or 0)
            role = OUTPUT if number == len(names) - 1 else INPUT
            if buffer.base == "lx":
                start = (buffer.offset + shift * ROW,) * 2
            else:
                values += [address(buffer, shift, core) for core in range(2)]
                start = tuple(symbols[value] for value in values[-2:])
            operands.append(operand(role, "mb out", start))
        # One symbol has one value.
        values = list(dict.fromkeys(values))
        body.append(Execute(f"sdsc_{index}.json", tuple(values), tuple(symbols[v] for v in values)))
        designs.append(two_core_design(index, opcode, tuple(operands)))
        uses.append(tuple(text.partition("+")[0] for text in names))
    if trips:
        bounds = [
            IndexConstant("zero", 0),
            IndexConstant("one", 1),
            IndexConstant("trips", trips),
        ]
        body = [*bounds, Loop("i", "zero", "trips", "one", tuple(body[:-1])), body[-1]]
    made = Manifest(arguments, tuple(buffers), tuple(uses))
    return _bundle("arg0 arg1", [*statements, *body], designs, made)


def exchanged(bundle: Bundle, first: int, second: int) -> Bundle:
    """Return the bundle with two executes, outside of loops, exchanged."""
    places = [k for k, statement in enumerate(bundle.statements) if isinstance(statement, Execute)]
    statements, uses = list(bundle.statements), list(bundle.manifest.uses)
    one, other = places[first], places[second]
    statements[one], statements[other] = statements[other], statements[one]
    uses[first], uses[second] = uses[second], uses[first]
    return manifest(replace(bundle, statements=tuple(statements)), uses=tuple(uses))


@dataclass(frozen=True)
class Fault:
    """A fault of a class: the good bundle, the bundle with the fault, and the executes of the race, the write first.

    ``is_seen`` is False if no order of operations and cores changes the results: a core reads all of its part before it
    writes.
    """

    kind: str
    good: Callable[[], Bundle]
    bad: Callable[[], Bundle]
    pair: tuple[int | None, int]
    is_seen: bool = True


def _double_buffer(a: int, b: int, ahead: int = 0) -> Callable[[], Bundle]:
    """Two tiles in turn: each is copied to LX, computed, and added; the second copy runs ``ahead`` of its turn."""

    def make() -> Bundle:
        steps = [("identity", "x", "a"), ("abs", "a", "c"), ("tanh", "x", "b"), ("add", "c", "b", "z")]
        steps.insert(2 - ahead, steps.pop(2))
        return program(*steps, a=a, b=b, c=C)

    return make


def _freed(freed: int) -> Callable[[], Bundle]:
    """e is read after f, which does not depend on e, is written at ``freed``."""
    steps = [("exp", "x", "e"), ("abs", "x", "f"), ("tanh", "e", "g"), ("add", "f", "g", "z")]
    return lambda: program(*steps, e=A, f=freed, g=C)


def _carried(state: int) -> Callable[[], Bundle]:
    """A state s of a loop: its successor t is computed before the last read of s, and then moves back."""
    steps = [("abs", "s", "t"), ("add", "s", "u", "u"), ("identity", "t", "s"), ("identity", "u", "z")]
    init = [("tanh", "x", "s"), ("exp", "x", "u")]

    def make() -> Bundle:
        bundle = program(*init, *steps, trips=3, s=A, t=state, u=C)
        # The first values are computed before the loop.
        statements = list[Statement]()
        for each in bundle.statements:
            if isinstance(each, Loop):
                statements += [*each.body[:2], replace(each, body=each.body[2:])]
            else:
                statements.append(each)
        return replace(bundle, statements=tuple(statements))

    return make


def _evicted(second: int) -> Callable[[], Bundle]:
    """p and q are evicted to the pool, and p is reloaded."""
    steps = [
        ("exp", "x", "a"), ("identity", "a", "p"), ("tanh", "x", "b"), ("identity", "b", "q"),
        ("identity", "p", "c"), ("identity", "q", "d"), ("add", "c", "d", "z"),
    ]  # fmt: skip
    return lambda: program(*steps, pool={"p": 0, "q": second}, a=A, b=B, c=C, d=D)


def _spilled() -> Bundle:
    """The old copy p and the new copy q of a tile are at one address of the pool; q is reloaded."""
    steps = [
        ("exp", "x", "a"), ("identity", "a", "p"), ("abs", "p", "b"), ("identity", "b", "q"), ("identity", "q", "c"),
        ("add", "c", "b", "z"),
    ]  # fmt: skip
    return program(*steps, pool={"p": 0, "q": 0}, a=A, b=B, c=C)


def _halo() -> Bundle:
    """The second operation reads one row beyond the rows of its core."""
    steps = [("exp", "x", "p"), ("abs", "p", "q"), ("add", "q", "p", "z")]
    return program(*steps, pool={"p": 0, "q": 2 * WHOLE})


def _relayout(target: int) -> Bundle:
    """The relayout of ``bundles.py`` with its result at an address."""
    bundle = relayout_bundle()
    for position, number in ((1, 1), (2, 0)):
        operands = list(bundle.designs[f"sdsc_{position}.json"].operands)
        operands[number] = replace(operands[number], start=(target, target))
        bundle = design(bundle, position, operands=tuple(operands))
    buffers = [replace(b, offset=target) if b.name == "t" else b for b in bundle.manifest.buffers]
    return manifest(bundle, buffers=tuple(buffers))


def _in_pool(*, first: str, second: str, opcode: str = "abs") -> Callable[[], Bundle]:
    """An operation from a part of a buffer of the pool to another part; 64 rows follow the first 128."""
    steps = [("exp", "x", "p+64"), ("tanh", "x", "p"), (opcode, first, second), ("identity", "p", "z")]
    return lambda: program(*steps, pool={"p": 0})


def _shifted_in_lx(rows: int) -> Callable[[], Bundle]:
    """An operation in LX whose result begins ``rows`` after its source."""
    steps = [("exp", "x", "a"), ("abs", "a", "b"), ("identity", "b", "z")]
    return lambda: program(*steps, a=A, b=A + rows * ROW)


def _accumulated(*, first: bool, trips: int = 0) -> Callable[[], Bundle]:
    initial = [("exp", "x", "s")] if first else []
    steps = [*initial, ("add", "x", "s", "s"), ("identity", "s", "z")]
    return lambda: program(*steps, trips=trips, s=A)


def _sticks_of_two(rows: int) -> Callable[[], Bundle]:
    """Core 1 writes ``rows`` before the end of the rows of core 0."""

    def make() -> Bundle:
        bundle = program(("exp", "x", "p"), ("identity", "p", "z"), pool={"p": 0})
        statements = [
            replace(each, value=each.value - rows * ROW)
            if isinstance(each, IndexConstant) and each.result == "p_0_1_offset"
            else each
            for each in bundle.statements
        ]
        return replace(bundle, statements=tuple(statements))

    return make


_HALF = PART // 2
_freed_good, _evicted_good, _spilled_good = _freed(B), _evicted(2 * WHOLE), _spilled
_turns = _double_buffer(A, B)
_in_place = _in_pool(first="p", second="p")

FAULTS = [
    Fault("swapped buffer halves", _double_buffer(A, B, 1), _double_buffer(A, A, 1), (1, 2)),
    Fault("swapped buffer halves", _double_buffer(A, B, 1), _double_buffer(A, A + _HALF, 1), (1, 2)),
    Fault("prefetch one step too far", _double_buffer(A, A), _double_buffer(A, A, 1), (1, 2)),
    Fault("prefetch one step too far", _turns, lambda: exchanged(_double_buffer(A, A)(), 1, 2), (1, 2)),
    Fault("buffer freed one step early", _freed_good, _freed(A), (1, 2)),
    Fault("buffer freed one step early", _freed_good, _freed(ROW), (1, 2)),
    Fault("buffer freed one step early", _freed_good, _freed(PART - ROW), (1, 2)),
    Fault("buffer freed one step early", _freed_good, _freed(_HALF), (1, 2)),
    Fault("missing wait on a ring step", relayout_bundle, lambda: exchanged(relayout_bundle(), 1, 2), (2, 1)),
    Fault("missing wait on a ring step", relayout_bundle, lambda: exchanged(relayout_bundle(), 0, 1), (1, 0)),
    Fault("halo read before it is written", _halo, lambda: exchanged(_halo(), 0, 1), (1, 0)),
    Fault("halo read before it is written", _halo, lambda: exchanged(_halo(), 1, 2), (2, 1)),
    Fault("overlapping shifted regions in place", _in_place, _in_pool(first="p+1", second="p"), (2, 2)),
    Fault("overlapping shifted regions in place", _in_place, _in_pool(first="p", second="p+64"), (2, 2)),
    Fault("overlapping shifted regions in place", _shifted_in_lx(256), _shifted_in_lx(1), (1, 1), False),
    Fault("overlapping shifted regions in place", _shifted_in_lx(0), _shifted_in_lx(255), (1, 1), False),
    Fault("accumulate without initial write", _accumulated(first=True), _accumulated(first=False), (None, 0)),
    Fault(
        "accumulate without initial write",
        _accumulated(first=True),
        _accumulated(first=False, trips=3),
        (None, 0),
    ),
    Fault("relayout in place", relayout_bundle, lambda: _relayout(0), (1, 1)),
    Fault("relayout in place", relayout_bundle, lambda: _relayout(_HALF), (1, 1)),
    Fault("loop-carried state written before its last read", _carried(B), _carried(A), (2, 3)),
    Fault("loop-carried state written before its last read", _carried(B), _carried(A + ROW), (2, 3)),
    Fault("cache row written while it is read", _in_place, _in_pool(first="p", second="p+63"), (2, 2)),
    Fault("cache row written while it is read", _in_place, _in_pool(first="p+32", second="p"), (2, 2)),
    Fault("two cores own one stick", _sticks_of_two(0), _sticks_of_two(1), (0, 0)),
    Fault("two cores own one stick", _sticks_of_two(0), _sticks_of_two(64), (0, 0)),
    Fault("eviction overlapping reload", _evicted_good, _evicted(0), (3, 4)),
    Fault("eviction overlapping reload", _evicted_good, _evicted(WHOLE - ROW), (3, 4)),
    Fault("reload of a stale copy", _spilled_good, lambda: exchanged(_spilled(), 3, 4), (4, 3)),
    Fault("reload of a stale copy", _evicted_good, lambda: exchanged(_evicted(2 * WHOLE)(), 1, 4), (4, 1)),
]  # fmt: skip
