# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Differences between two bundles, A and B: totals, operations and buffers side by side.

Operations are matched in program order by module, source line and opcode; then, between matches, by module and opcode;
finally by opcode alone, because lines move when a source is edited, and modules may be renamed. A buffer is matched by
the operation that writes it, an argument by its name. The names of symbols, buffers and modules and the lines of the
source do not count as differences; the host values of constants and parameters are not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Generic, TypeVar

from spyre_mlir.bundle.model import Bundle
from spyre_mlir.records import dataclass
from spyre_mlir.report.bundle_facts import (
    CORES,
    ITERATIONS,
    BufferFacts,
    BundleFacts,
    Fact,
    Facts,
    OperationFacts,
    bundle_facts,
    operand_name,
)

#: Facts that are not reported if one of the listed facts differs, because that fact is more informative.
_FOLLOWS = {
    "core map": (CORES, "slices"),
    "runs": (ITERATIONS,),
    "loops": ("device size", "host type"),
    "device strides": ("device size", "host type"),
    "bounds": ("device size", "host type"),
}

_Matched = TypeVar("_Matched")
_Key = Callable[[OperationFacts], object]


@dataclass(frozen=True)
class Change:
    """A fact in A and in B; it is an empty text on a side that does not have the fact."""

    what: str
    before: Fact
    after: Fact

    @property
    def percent(self) -> float | None:
        """Growth of a number in percent; None for texts, and if the number was 0."""
        if isinstance(self.before, str) or isinstance(self.after, str) or not self.before:
            return None
        return 100 * (self.after - self.before) / self.before

    @property
    def is_difference(self) -> bool:
        """True if A and B differ."""
        return self.before != self.after


@dataclass(frozen=True)
class Pair(Generic[_Matched]):
    """An item in A and in B (None if a side does not have it), with its changes if both sides have it."""

    before: _Matched | None
    after: _Matched | None
    changes: tuple[Change, ...] = ()

    @property
    def status(self) -> str:
        """'same', 'changed', 'only in A' or 'only in B'."""
        if self.after is None:
            return "only in A"
        if self.before is None:
            return "only in B"
        return "changed" if self.changes else "same"

    @property
    def one(self) -> _Matched:
        """The item in B, or in A if B does not have it."""
        side = self.before if self.after is None else self.after
        assert side is not None
        return side


@dataclass(frozen=True)
class Difference:
    """Difference of two bundles: all totals, the opcodes of either bundle, all operations and all buffers."""

    totals: tuple[Change, ...]
    opcodes: tuple[Change, ...]
    operations: tuple[Pair[OperationFacts], ...]
    buffers: tuple[Pair[BufferFacts], ...]

    def __bool__(self) -> bool:
        """Return whether anything differs."""
        totals = any(change.is_difference for change in self.totals)
        return totals or any(pair.status != "same" for pair in (*self.operations, *self.buffers))


def difference(before: Bundle, after: Bundle) -> Difference:
    """Return the difference of A (``before``) and B; ``CompileError`` for an inconsistent bundle."""
    return facts_difference(bundle_facts(before), bundle_facts(after))


def facts_difference(before: BundleFacts, after: BundleFacts) -> Difference:
    """Return the difference of two bundles by their facts."""
    matched = list(_aligned(before.operations, after.operations, (_by_source, _by_module, _by_opcode)))
    buffers = list(_matched_buffers(before, after, matched))
    names = {a.name: b.name for a, b in buffers if a is not None and b is not None}
    return Difference(
        totals=tuple(_side_by_side(before.totals, after.totals)),
        opcodes=tuple(_side_by_side(before.opcodes, after.opcodes, 0)),
        operations=tuple(_operations(a, b, names) for a, b in matched),
        buffers=tuple(Pair(a, b, _changes(a.facts, b.facts) if a and b else ()) for a, b in buffers),
    )


# -- matching ----------------------------------------------------------------------------------------------


def _by_source(operation: OperationFacts) -> object:
    return operation.module, operation.source, operation.step.opcode


def _by_module(operation: OperationFacts) -> object:
    return operation.module, operation.step.opcode


def _by_opcode(operation: OperationFacts) -> object:
    return operation.step.opcode


def _aligned(
    before: Sequence[OperationFacts], after: Sequence[OperationFacts], keys: Sequence[_Key]
) -> Iterator[tuple[OperationFacts | None, OperationFacts | None]]:
    """Yield pairs in the order of both programs: operations with equal first keys; between them, by the next key."""
    if not (keys and before and after):
        yield from ((operation, None) for operation in before)
        yield from ((None, operation) for operation in after)
        return
    key, *others = keys
    a = b = 0
    for at_a, at_b, size in _blocks(list(map(key, before)), list(map(key, after))):
        yield from _aligned(before[a:at_a], after[b:at_b], others)
        a, b = at_a + size, at_b + size
        yield from zip(before[at_a:a], after[at_b:b], strict=True)


def _blocks(before: Sequence[object], after: Sequence[object]) -> Iterator[tuple[int, int, int]]:
    """Yield runs of equal keys as (index in A, index in B, length), and finally an empty run at the ends.

    Equal keys at both ends are excluded from the search, because many repeated keys would take long.
    """
    shorter = min(len(before), len(after))
    head = _equal(zip(before, after, strict=False))
    tail = min(_equal(zip(reversed(before), reversed(after), strict=False)), shorter - head)
    end_a, end_b = len(before) - tail, len(after) - tail
    yield 0, 0, head
    inside = SequenceMatcher(None, before[head:end_a], after[head:end_b], autojunk=False)
    for a, b, size in inside.get_matching_blocks()[:-1]:
        yield head + a, head + b, size
    yield end_a, end_b, tail
    yield len(before), len(after), 0


def _equal(pairs: Iterator[tuple[object, object]]) -> int:
    """Return the number of equal pairs before the first unequal pair."""
    count = 0
    for a, b in pairs:
        if a != b:
            break
        count += 1
    return count


def _matched_buffers(
    before: BundleFacts,
    after: BundleFacts,
    operations: Sequence[tuple[OperationFacts | None, OperationFacts | None]],
) -> Iterator[tuple[BufferFacts | None, BufferFacts | None]]:
    """Yield the buffers of A with their matches, in the order of A; then the buffers that only B has."""
    writers = {a.step.position: b.step.position for a, b in operations if a is not None and b is not None}
    unmatched = {
        _identity(candidate, candidate.writer and candidate.writer.position): candidate
        for candidate in after.buffers
    }
    for buffer in before.buffers:
        # -1 is not a position in B: a buffer whose writer has no match has no match either.
        writer = None if buffer.writer is None else writers.get(buffer.writer.position, -1)
        yield buffer, unmatched.pop(_identity(buffer, writer), None)
    yield from ((None, buffer) for buffer in unmatched.values())


def _identity(buffer: BufferFacts, writer: int | None) -> object:
    """Return the key that a buffer and its match have in common; ``writer`` is a position in B."""
    return buffer.name if buffer.is_argument or writer is None else writer


# -- comparing ---------------------------------------------------------------------------------------------


def _operations(
    before: OperationFacts | None, after: OperationFacts | None, names: dict[str, str]
) -> Pair[OperationFacts]:
    """Return the pair of two operations; ``names`` maps the buffers of A to the matching buffers of B."""
    if before is None or after is None:
        return Pair(before, after)
    changes = _changes(before.facts, after.facts)
    # A changed memory of an operand is more informative than the name of its buffer.
    names_changed = {change.what for change in changes}
    return Pair(before, after, (*changes, *_other_buffers(before, after, names, names_changed)))


def _other_buffers(
    before: OperationFacts, after: OperationFacts, names: dict[str, str], reported: set[str]
) -> Iterator[Change]:
    """Yield the operands that are different buffers in the same memory."""
    for number, (a, b) in enumerate(zip(before.buffers, after.buffers, strict=True)):
        name = operand_name(before.buffers, number)
        if names.get(a) != b and name not in reported:
            yield Change(f"{name} buffer", a, b)


def _changes(before: Facts, after: Facts) -> tuple[Change, ...]:
    """Return the facts that differ, without facts that follow from others."""
    change_by_name = {item.what: item for item in _side_by_side(before, after) if item.is_difference}
    follows = {what for what, causes in _FOLLOWS.items() if change_by_name.keys() & set(causes)}
    return tuple(change for what, change in change_by_name.items() if what not in follows)


def _side_by_side(before: Facts, after: Facts, absent: Fact = "") -> Iterator[Change]:
    """Yield all facts in the order of A, then the facts that only B has."""
    for what in dict.fromkeys((*before, *after)):
        yield Change(what, before.get(what, absent), after.get(what, absent))
