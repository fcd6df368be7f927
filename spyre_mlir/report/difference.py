# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Differences of two bundles, as data, as text and as a page of HTML.

Operations are matched in program order by module, source line and opcode; then, between matches, by module and opcode;
finally by opcode alone, because lines move when a source is edited, and modules may be renamed. A buffer is matched by
the operation that writes it, an argument by its name. The names of symbols, buffers and modules and the lines of the
source do not count as differences; the host values of constants and parameters are not compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from html import escape
from typing import Any, Generic, TypeVar

from spyre_mlir.bundle.model import Bundle
from spyre_mlir.records import dataclass
from spyre_mlir.report.html import Markup, count, shell, table
from spyre_mlir.report.program_facts import (
    ADDRESS,
    BYTES,
    CORES,
    ITERATIONS,
    MEMORY,
    READ,
    TIME,
    WRITTEN,
    BufferFacts,
    Fact,
    Facts,
    Operation,
    ProgramFacts,
    operand_name,
    program_facts,
)
from spyre_mlir.tables import aligned

#: Facts that are not reported if one of the listed facts differs, because that fact is more informative.
_FOLLOWS = {
    "core map": (CORES, "slices"),
    "runs": (ITERATIONS,),
    "loops": ("device size", "host type"),
    "device strides": ("device size", "host type"),
    "bounds": ("device size", "host type"),
}

#: Facts that are reported for an operation or buffer that only one bundle has.
_OPERATION_FACTS, _BUFFER_FACTS = (CORES, ITERATIONS, READ, WRITTEN, TIME), (MEMORY, ADDRESS, BYTES)

_SAME = "no difference"

#: Totals that explain a difference of times, with the singulars that are not the plural without its s.
_EXPLAINING = ("operations", "restickifies", READ, WRITTEN, "buffers in the pool")
_SINGULAR = {"restickifie": "restickify", "buffers in the pool": "buffers in device memory"}

#: Totals of which more is better; of the buffers in LX, neither is. Fraction of the time that is not worth a row.
_MORE_IS_BETTER, _NEUTRAL, _NOISE = (
    {"cores in the mean"},
    {"buffers in LX", "LX peak (bytes)", "loops"},
    0.002,
)

#: The model itself, in the table of modules.
_MODEL = "(model)"

#: Explanations of the tables.
_NOTES = (
    "Slices are their number x their size, dims of a layout innermost first.",
    "Bytes of device memory are padded bytes of one run; a load that several cores share counts once.",
    "Bytes of a buffer in LX are for one core.",
    "Times are from the timeline: the time of an operation is its part of the program's time.",
)

_Matched = TypeVar("_Matched")
_Operations = tuple[Operation | None, Operation | None]


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
    def growth(self) -> float:
        """The number in B minus the number in A; 0 for texts."""
        if isinstance(self.before, str) or isinstance(self.after, str):
            return 0.0
        return self.after - self.before

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
    def sides(self) -> list[_Matched]:
        """The item in A and in B, without a side that does not have it."""
        return [item for item in (self.before, self.after) if item is not None]

    @property
    def one(self) -> _Matched:
        """The item in B, or in A if B does not have it."""
        return self.sides[-1]


@dataclass(frozen=True)
class Difference:
    """Difference of two bundles: all totals, the opcodes of either bundle, all operations and all buffers."""

    totals: tuple[Change, ...]
    opcodes: tuple[Change, ...]
    operations: tuple[Pair[Operation], ...]
    buffers: tuple[Pair[BufferFacts], ...]

    @property
    def total_us(self) -> tuple[float, float]:
        """The predicted time of A and of B."""
        (time,) = (change for change in self.totals if change.what == TIME)
        return float(time.before), float(time.after)

    @property
    def headline(self) -> str:
        """The time, then the totals that explain it: ``B takes 8.4 % less: 102.1 -> 93.6 us, 1 restickify less``."""
        before, after = self.total_us
        percent = 100 * (after - before) / before if before else 0.0
        words = (
            f"{abs(percent):.1f} % {'less' if after < before else 'more'}"
            if abs(percent) >= 0.05
            else "as long"
        )
        parts = [f"B takes {words}: {before:,.1f} -> {after:,.1f} us"]
        for change in self.totals:
            if change.what not in _EXPLAINING or not change.is_difference:
                continue
            number = change.growth
            percent = change.percent or 0.0
            if change.what in (READ, WRITTEN):
                parts += [f"{abs(percent):.1f} % {'less' if number < 0 else 'more'} {change.what}"] * (
                    abs(percent) >= 0.1
                )
            else:
                noun = change.what.removesuffix("s") if abs(number) == 1 else change.what
                parts.append(
                    f"{abs(number):,.0f} {_SINGULAR.get(noun, noun)} {'less' if number < 0 else 'more'}"
                )
        return ", ".join(parts)

    def modules(self) -> list[Change]:
        """Return the times of modules that differ, in microseconds, the largest difference first."""
        times: dict[str, list[float]] = {}
        for pair in self.operations:
            for side, operation in enumerate((pair.before, pair.after)):
                if operation is not None:
                    times.setdefault(pair.one.module or _MODEL, [0.0, 0.0])[side] += float(
                        operation.facts[TIME]
                    )
        changes = [Change(module, round(a, 3), round(b, 3)) for module, (a, b) in times.items()]
        shown = [change for change in changes if abs(change.growth) > self._noise_us]
        return sorted(shown, key=lambda change: -abs(change.growth)) if len(changes) > 1 else []

    def is_noise(self, pair: Pair[Any]) -> bool:
        """Return whether only times of a pair differ, by less than ``_NOISE`` of the time of the program."""
        times = [change for change in pair.changes if change.what == TIME]
        is_small = all(abs(change.growth) <= self._noise_us for change in times)
        return bool(times) and len(times) == len(pair.changes) and is_small

    @property
    def _noise_us(self) -> float:
        return _NOISE * max(self.total_us)

    def __bool__(self) -> bool:
        """Return whether anything differs."""
        totals = any(change.is_difference for change in self.totals)
        return totals or any(pair.status != "same" for pair in (*self.operations, *self.buffers))


def difference(before: Bundle, after: Bundle) -> Difference:
    """Return the difference of A (``before``) and B; ``CompileError`` for an inconsistent bundle."""
    return facts_difference(program_facts(before), program_facts(after))


def facts_difference(before: ProgramFacts, after: ProgramFacts) -> Difference:
    """Return the difference of two bundles by their facts."""
    keys: tuple[Callable[[Operation], object], ...] = (
        lambda operation: (operation.module, operation.source, operation.opcode),
        lambda operation: (operation.module, operation.opcode),
        lambda operation: operation.opcode,
    )
    matched = list(_aligned(before.operations, after.operations, keys))
    buffers = list(_matched_buffers(before, after, matched))
    names = {a.name: b.name for a, b in buffers if a is not None and b is not None}
    opcodes = [dict(sorted(facts.opcodes)) for facts in (before, after)]
    return Difference(
        totals=tuple(_side_by_side(before.totals, after.totals)),
        opcodes=tuple(_side_by_side(opcodes[0], opcodes[1], 0)),
        operations=tuple(_operation_pair(a, b, names) for a, b in matched),
        buffers=tuple(Pair(a, b, _changes(a.facts, b.facts) if a and b else ()) for a, b in buffers),
    )


# -- matching ----------------------------------------------------------------------------------------------


def _aligned(
    before: Sequence[Operation], after: Sequence[Operation], keys: Sequence[Callable[[Operation], object]]
) -> Iterator[_Operations]:
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


def _equal(pairs: Iterable[tuple[object, object]]) -> int:
    """Return the number of equal pairs before the first unequal pair."""
    count = 0
    for a, b in pairs:
        if a != b:
            break
        count += 1
    return count


def _matched_buffers(
    before: ProgramFacts, after: ProgramFacts, operations: Sequence[_Operations]
) -> Iterator[tuple[BufferFacts | None, BufferFacts | None]]:
    """Yield the buffers of A with their matches, in the order of A; then the buffers that only B has."""

    def identity(buffer: BufferFacts, writer: int | None) -> object:
        """Return the key that a buffer and its match have in common; ``writer`` is a position in B."""
        return buffer.name if buffer.is_argument or writer is None else writer

    writers = {a.position: b.position for a, b in operations if a is not None and b is not None}
    unmatched = {
        identity(buffer, buffer.writer and buffer.writer.position): buffer for buffer in after.buffers
    }
    for buffer in before.buffers:
        # -1 is not a position in B: a buffer whose writer has no match has no match either.
        writer = None if buffer.writer is None else writers.get(buffer.writer.position, -1)
        yield buffer, unmatched.pop(identity(buffer, writer), None)
    yield from ((None, buffer) for buffer in unmatched.values())


# -- comparing ---------------------------------------------------------------------------------------------


def _operation_pair(
    before: Operation | None, after: Operation | None, names: dict[str, str]
) -> Pair[Operation]:
    """Return the pair of two operations; ``names`` maps the buffers of A to the matching buffers of B."""
    if before is None or after is None:
        return Pair(before, after)
    changes = list(_changes(before.facts, after.facts))
    # A changed memory of an operand is more informative than the name of its buffer.
    reported = {change.what for change in changes}
    for number, (a, b) in enumerate(zip(before.buffers, after.buffers, strict=True)):
        name = operand_name(before.buffers, number)
        if names.get(a) != b and name not in reported:
            changes.append(Change(f"{name} buffer", a, b))
    return Pair(before, after, tuple(changes))


def _changes(before: Facts, after: Facts) -> tuple[Change, ...]:
    """Return the facts that differ, without facts that follow from others."""
    change_by_name = {item.what: item for item in _side_by_side(before, after) if item.is_difference}
    follows = {what for what, causes in _FOLLOWS.items() if change_by_name.keys() & set(causes)}
    return tuple(change for what, change in change_by_name.items() if what not in follows)


def _side_by_side(before: Facts, after: Facts, absent: Fact = "") -> Iterator[Change]:
    """Yield all facts in the order of A, then the facts that only B has."""
    for what in dict.fromkeys((*before, *after)):
        yield Change(what, before.get(what, absent), after.get(what, absent))


# -- text --------------------------------------------------------------------------------------------------


def text(difference: Difference, before: str = "A", after: str = "B") -> str:
    """Return the difference as lines of text; ``before`` and ``after`` name the bundles."""
    opcodes = [change for change in difference.opcodes if change.is_difference]
    modules, (operations, noise) = difference.modules()[:_MOST_MODULES], _split_rows(difference)
    buffers = _buffer_rows(difference)
    sections = [
        [f"A: {before}", f"B: {after}", *([difference.headline] if difference else [])],
        aligned([_CHANGE_HEADS, *_change_rows(difference.totals)], "<>>>"),
        ["opcodes:", *aligned([_CHANGE_HEADS, *_change_rows(opcodes)], "<>>>")]
        if opcodes
        else [f"opcodes: {_SAME}"],
        aligned([("module (us)", *_CHANGE_HEADS[1:]), *_change_rows(modules)], "<>>>") if modules else (),
        [
            _headline("operations", difference.operations),
            *_pair_table(("", "A", "B", "operation", "source", ""), operations, _OPERATION_FACTS, "<>><<<"),
            *([_noise_text(noise)] if noise else []),
        ],
        [
            _headline("buffers", difference.buffers),
            *_pair_table(("", "A", "B", "written by", ""), buffers, _BUFFER_FACTS, "<<<<<"),
        ],
        _NOTES if difference else (),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


_CHANGE_HEADS = ("", "A", "B", "change")

#: Maximum number of modules in the table.
_MOST_MODULES = 12


def _split_rows(
    difference: Difference,
) -> tuple[list[tuple[_Pair, tuple[str, ...]]], list[tuple[_Pair, tuple[str, ...]]]]:
    """Return the rows of operations, and the rows of operations whose times differ a little and nothing else."""
    rows = _operation_rows(difference)
    return [row for row in rows if not difference.is_noise(row[0])], [
        row for row in rows if difference.is_noise(row[0])
    ]


def _noise_text(noise: Sequence[object]) -> str:
    return (
        f"{count(len(noise), 'operation')} more, whose time differs by at most {_NOISE:.1%} of the program's"
    )


def _change_rows(changes: Iterable[Change]) -> list[tuple[str, ...]]:
    return [(change.what, _fact(change.before), _fact(change.after), _growth(change)) for change in changes]


def _pair_table(
    head: tuple[str, ...], rows: Sequence[tuple[_Pair, tuple[str, ...]]], of_one: Sequence[str], sides: str
) -> list[str]:
    """Format differing pairs; of an item that only one bundle has, the nonempty facts among ``of_one``."""
    lines = [head]
    for pair, cells in rows:
        if pair.status == "changed":
            facts = (
                f"{change.what} {_fact(change.before)} -> {_fact(change.after)}" for change in pair.changes
            )
        else:
            facts = (f"{what} {_fact(pair.one.facts[what])}" for what in of_one if pair.one.facts[what] != "")
        lines.append((pair.status, *cells, "; ".join(facts)))
    return aligned(lines, sides) if rows else []


# -- rows of text and page ---------------------------------------------------------------------------------

_Pair = Pair[Operation] | Pair[BufferFacts]


def _headline(what: str, pairs: Sequence[Pair]) -> str:
    """Return the numbers of equal, changed, and one-sided pairs as a line."""
    counts = Counter(pair.status for pair in pairs)
    if counts.keys() <= {"same"}:
        return f"{what}: {_SAME}"
    statuses = ("same", "changed", "only in A", "only in B")
    return f"{what}: " + ", ".join(f"{counts[status]:,} {status}" for status in statuses if counts[status])


def _operation_rows(difference: Difference) -> list[tuple[_Pair, tuple[str, ...]]]:
    """Return the differing operations: positions in A and B, opcode, and place, of both bundles if it differs."""
    rows: list[tuple[_Pair, tuple[str, ...]]] = []
    for pair in difference.operations:
        if pair.status != "same":
            positions = ("-" if side is None else str(side.position) for side in (pair.before, pair.after))
            modules = (f"in {side.module}" if side.module else "" for side in pair.sides)
            places = (
                f"{side.source} {module}".strip() for side, module in zip(pair.sides, modules, strict=True)
            )
            rows.append((pair, (*positions, pair.one.opcode, _joined(places))))
    return rows


def _buffer_rows(difference: Difference) -> list[tuple[_Pair, tuple[str, ...]]]:
    """Return the differing buffers: names in A and B, and the operation that writes them; the host for an input."""
    rows: list[tuple[_Pair, tuple[str, ...]]] = []
    for pair in difference.buffers:
        if pair.status != "same":
            names = ("-" if side is None else side.name for side in (pair.before, pair.after))
            writers = _joined(side.writer.opcode for side in pair.sides if side.writer)
            rows.append((pair, (*names, writers or "the host")))
    return rows


def _joined(words: Iterable[str]) -> str:
    return " / ".join(dict.fromkeys(filter(None, words)))


def _fact(value: Fact) -> str:
    """Format a fact: numbers with separators, floats with three decimals."""
    if isinstance(value, str):
        return value or "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def _growth(change: Change) -> str:
    """Return the growth of a number as text."""
    if not change.is_difference:
        return "same"
    return "" if change.percent is None else f"{change.percent:+,.1f} %"


# -- page ----------------------------------------------------------------------------------------------------


def _verdict(before: float, after: float) -> str:
    """Return the class of a number of which less is better."""
    return "gain" if after < before else "loss" if after > before else ""


def _coloured(changes: Iterable[Change]) -> list[tuple[str, ...]]:
    """Return the rows of changes, with gains and losses marked."""
    changes, rows = list(changes), []
    for change, (*cells, growth) in zip(changes, _change_rows(changes), strict=True):
        if growth and not isinstance(change.before, str) and change.what not in _NEUTRAL:
            sides = (
                (change.after, change.before)
                if change.what in _MORE_IS_BETTER
                else (change.before, change.after)
            )
            growth = Markup(f'<span class="{_verdict(*map(float, sides))}">{escape(growth)}</span>')
        rows.append((*cells, growth))
    return rows


def page(difference: Difference, before: str = "A", after: str = "B") -> str:
    """Return the difference as the text of an HTML file; ``before`` and ``after`` name the bundles."""
    opcodes = [change for change in difference.opcodes if change.is_difference]
    modules, (operations, noise) = difference.modules()[:_MOST_MODULES], _split_rows(difference)
    headline = escape(difference.headline if difference else _SAME)
    parts = [
        f"<h1>A: {escape(before)}<br/>B: {escape(after)}</h1>",
        f'<p class="headline {_verdict(*difference.total_us)}">{headline}</p>',
        *(f"<p>{escape(note)}</p>" for note in _NOTES),
        "<h2>totals</h2>",
        table("totals", _CHANGE_HEADS, _coloured(difference.totals), "<>>>"),
        *(
            ["<h2>modules (us)</h2>", table("modules", _CHANGE_HEADS, _coloured(modules), "<>>>")]
            if modules
            else []
        ),
        "<h2>opcodes</h2>" if opcodes else f"<h2>opcodes: {_SAME}</h2>",
        *([table("opcodes", _CHANGE_HEADS, _change_rows(opcodes), "<>>>")] if opcodes else []),
        f"<h2>{_headline('operations', difference.operations)}</h2>",
        *_pairs_html("operations", ("operation", "source"), operations, _OPERATION_FACTS),
        *(
            [
                f"<details><summary>{_noise_text(noise)}</summary>",
                *_pairs_html("small", ("operation", "source"), noise, _OPERATION_FACTS),
                "</details>",
            ]
            if noise
            else []
        ),
        f"<h2>{_headline('buffers', difference.buffers)}</h2>",
        *_pairs_html("buffers", ("written by",), _buffer_rows(difference), _BUFFER_FACTS),
    ]
    return shell(f"Difference of {before} and {after}", parts)


def _pairs_html(
    identifier: str,
    columns: Sequence[str],
    rows: Sequence[tuple[_Pair, tuple[str, ...]]],
    of_one: Sequence[str],
) -> Iterator[str]:
    """Yield a table with a line for each change of a pair; for an item of one bundle only, the facts ``of_one``."""
    if not rows:
        return
    names = ("", "A", "B", *columns, "what", "in A", "in B", "change")
    heads = "".join(f"<th>{name}</th>" for name in names)
    yield f'<div class="wide"><table id="{identifier}" class="pairs"><thead><tr>{heads}</tr></thead>'
    for pair, cells in rows:
        facts = ((what, pair.one.facts[what]) for what in of_one)
        changes = pair.changes or [
            Change(what, value, "-") if pair.after is None else Change(what, "-", value)
            for what, value in facts
        ]
        over = f' rowspan="{len(changes)}"'
        status = f'<td{over} class="status {pair.status.replace(" ", "-")}">{pair.status}</td>'
        lead = status + "".join(f"<td{over}>{escape(cell)}</td>" for cell in cells)
        lines = []
        for change in changes:
            # An address has no growth.
            growth = "" if change.what == ADDRESS else _growth(change)
            sides = (escape(change.what), escape(_fact(change.before)), escape(_fact(change.after)), growth)
            lines.append("".join(f"<td>{cell}</td>" for cell in sides))
        yield f"<tbody><tr>{lead}{'</tr><tr>'.join(lines)}</tr></tbody>"
    yield "</table></div>"
