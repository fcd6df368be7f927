# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The one-page summary of a compiled program: operations, traffic, time, and reasons. It needs no run.

Bytes are planned bytes: padded device bytes, a load that several cores share counts once, and all runs of loops count.
Everything except the seconds is the same for the same input and options.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from spyre_mlir.report.finding_rows import finding_rows
from spyre_mlir.report.findings import ProgramFinding
from spyre_mlir.report.lx_map import LxMap, SpilledBuffer, iterations_text
from spyre_mlir.report.module_text import module_lines
from spyre_mlir.report.program_facts import Operation, ProgramFacts
from spyre_mlir.report.ring_text import ring_text
from spyre_mlir.simulator.statistics import Statistics
from spyre_mlir.timeline.events import PARTS

Row = tuple[str, str]

#: Maximum width of a text next to a name, in characters.
WIDTH = 80
#: Maximum number of named opcodes, kinds of decisions (most frequent first) and passes (slowest first).
MOST_NAMED = 6
SLOWEST = 5


def summarize(
    facts: ProgramFacts,
    compile_seconds: float,
    statistics: Statistics | None = None,
    findings: Sequence[ProgramFinding] = (),
) -> str:
    """Return the summary as lines of text; the plan is compared with ``statistics`` of the last run."""
    rows = [
        *finding_rows(findings),
        *_wrapped("operations", f"{len(facts.operations):,}" + _listed(": ", facts.opcodes)),
        *_loops(facts.map),
        (
            "cores",
            _cores([operation.cores for operation in facts.operations], facts.timeline.target.device_cores),
        ),
        *_traffic(facts),
        *(_simulated(facts, statistics) if statistics is not None else ()),
        *_scratchpads(facts.map),
        *_changes(facts),
        *_spills(facts),
        *_time(facts),
        *_modules(facts),
        *_wrapped("decisions", f"{len(facts.remarks):,}" + _listed(": ", _kinds(facts))),
        *_passes(facts.passes, compile_seconds),
    ]
    return table(rows)


def table(rows: Sequence[Row]) -> str:
    """Format rows in two columns, the first as wide as its longest entry."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in rows)


# -- operations --------------------------------------------------------------------------------------------


def _loops(map_: LxMap) -> Iterator[Row]:
    """Yield the number of loops, and the iterations of nested loops."""
    if not map_.loops:
        return
    nests = map_.nests()
    words = list(map(iterations_text, nests[:MOST_NAMED]))
    if len(nests) > MOST_NAMED:
        words.append(f"{len(nests) - MOST_NAMED:,} more")
    yield from _wrapped("loops", f"{len(map_.loops):,}: {', '.join(words)} iterations")


def _cores(used: Sequence[int], device_cores: int) -> str:
    if not used:
        return "no operation"
    if min(used) == max(used):
        return f"{used[0]} of {device_cores}"
    return f"{min(used)} to {max(used)} of {device_cores}, mean {sum(used) / len(used):.1f}"


def _changes(facts: ProgramFacts) -> Iterator[Row]:
    """Yield the operations that only move data: restickifies, and copies into and out of LX."""
    yield (
        "restickifies",
        _moving([operation for operation in facts.operations if operation.execution.is_restickify]),
    )
    into = [
        operation
        for operation in facts.operations
        if operation.category == "clone" and _memories(operation) == (False, True)
    ]
    out = [
        operation
        for operation in facts.operations
        if operation.category == "clone" and _memories(operation) == (True, False)
    ]
    if into or out:
        yield "clones", f"into LX {_moving(into)}; out of LX {_moving(out)}"
    else:
        yield "clones", "0"


def _memories(operation: Operation) -> tuple[bool, bool]:
    """Return whether the first operand is in LX, and whether the result is in LX."""
    first, *_, last = operation.execution.work.operands
    return first.in_lx, last.in_lx


def _moving(operations: Sequence[Operation]) -> str:
    """Format the number of operations, and the bytes that they move."""
    moved = f", which move {_bytes(sum(operation.traffic for operation in operations))}" if operations else ""
    return f"{len(operations):,}{moved}"


# -- memory ------------------------------------------------------------------------------------------------


def _traffic(facts: ProgramFacts) -> Iterator[Row]:
    yield "HBM read", f"{_bytes(facts.read_bytes)} planned"
    yield "HBM written", f"{_bytes(facts.written_bytes)} planned"
    least = facts.argument_bytes
    times = f"; the plan is {facts.traffic / least:.2f} times that" if least else ""
    yield "lower bound", f"{_bytes(least)}, each argument and result once{times}"


def _simulated(facts: ProgramFacts, statistics: Statistics) -> Iterator[Row]:
    """Yield the traffic of a run, and its deviations from the plan."""
    moved = f"{_bytes(statistics.read_bytes)} read, {_bytes(statistics.write_bytes)} written"
    differing = [
        operation for operation in facts.operations if _ran(operation, statistics) != _planned(operation)
    ]
    if not differing:
        yield "simulated", f"{moved}, as planned"
        return
    yield "simulated", "NOT AS PLANNED, which is a bug of the compiler or of the simulator:"
    yield "", f"  {moved} by the program"
    for operation in differing[:MOST_NAMED]:
        read, written = _ran(operation, statistics)
        yield "", f"  {_bytes(read)} read, {_bytes(written)} written by {operation.name}"
    if len(differing) > MOST_NAMED:
        yield "", f"  and so on for {len(differing) - MOST_NAMED:,} more"


def _planned(operation: Operation) -> tuple[int, int]:
    return operation.read_bytes, operation.written_bytes


def _ran(operation: Operation, statistics: Statistics) -> tuple[int, int]:
    """Return the bytes that all runs of an operation read and wrote; 0 if it did not run."""
    execute = statistics.executes.get(operation.position)
    return (execute.read_bytes, execute.write_bytes) if execute else (0, 0)


def _scratchpads(map_: LxMap) -> Iterator[Row]:
    share = map_.peak / max(map_.capacity, 1)
    yield (
        "LX high water",
        f"{map_.peak:,} of {_bytes(map_.capacity)} per core, {share:.0%}; {_buffers(len(map_.placed))} in LX",
    )


def _spills(facts: ProgramFacts) -> Iterator[Row]:
    """Yield the spilled buffers by their first reported reason, the largest traffic first."""
    map_ = facts.map
    if not map_.spilled:
        yield "spills", "0"
        return
    share = map_.spilled_traffic / max(facts.traffic, 1)
    yield (
        "spills",
        f"{_buffers(len(map_.spilled))} in device memory, {_bytes(map_.spilled_traffic)} of traffic, {share:.0%}",
    )
    counts, moved = Counter[str](), Counter[str]()
    for buffer in map_.spilled:
        counts[_barrier(buffer)] += 1
        moved[_barrier(buffer)] += buffer.traffic
    width = max(map(len, moved))
    for barrier, bytes_ in moved.most_common():
        yield "", f"  {barrier:<{width}}  {_buffers(counts[barrier])}, {_bytes(bytes_)}"
    yield from _wrapped("", _largest(map_), indent="  ")


def _barrier(buffer: SpilledBuffer) -> str:
    """Return the first reason without its details."""
    return buffer.reasons[0].partition(":")[0] if buffer.reasons else "the bundle does not say"


def _largest(map_: LxMap) -> str:
    buffer = max(map_.spilled, key=lambda spill: spill.traffic)
    why = f": {buffer.reasons[0]}" if buffer.reasons else ""
    return f"the most: {buffer.name} of {_writer(map_, buffer)}{_bytes(buffer.traffic)}{why}"


def _writer(map_: LxMap, buffer: SpilledBuffer) -> str:
    if buffer.writer is None:
        return ""
    step = map_.steps[buffer.writer]
    source = f" at {step.source.rpartition('/')[2]}" if step.source else ""
    return f"step {step.position}, {step.opcode}{source}, "


# -- time --------------------------------------------------------------------------------------------------


def _time(facts: ProgramFacts) -> Iterator[Row]:
    yield "predicted time", str(facts.timeline)
    shares = facts.timeline.shares
    if shares.total:
        parts = Counter({part: getattr(shares, part) for part in PARTS}).most_common()
        yield "time bound by", ", ".join(f"{part} {time / shares.total:.0%}" for part, time in parts)
    if facts.timeline.links:
        yield from _wrapped("ring", ring_text(facts))


def _modules(facts: ProgramFacts) -> Iterator[Row]:
    """Yield the modules of the model that take most of the time; nothing if the program has no modules."""
    name = "modules"
    for line in module_lines(facts.operations):
        yield name, line
        name = ""


def _passes(passes: Sequence[tuple[str, float]], compile_seconds: float) -> Iterator[Row]:
    """Yield the seconds of the slowest passes; passes of one name are added up, whatever their options."""
    if not passes:
        yield "compile time", f"{compile_seconds:.2f} s"
        return
    seconds: dict[str, float] = {}
    for text, time in passes:
        name = text.partition("{")[0]
        seconds[name] = seconds.get(name, 0.0) + time
    whole = sum(seconds.values())
    slowest = sorted(seconds.items(), key=lambda item: -item[1])[:SLOWEST]
    yield (
        "compile time",
        f"{compile_seconds:.2f} s, of which {len(passes)} passes {whole:.2f} s; the slowest:",
    )
    for name, time in slowest:
        yield "", f"  {time:6.3f} s  {time / max(whole, 1e-9):4.0%}  {name}"


# -- words -------------------------------------------------------------------------------------------------


def _kinds(facts: ProgramFacts) -> list[tuple[str, int]]:
    return Counter(remark.kind for remark in facts.remarks).most_common()


def _listed(before: str, counts: Sequence[tuple[str, int]]) -> str:
    """Format counts, the most frequent ones by name: ``2 add, 1 exp, 7 others``."""
    named, others = counts[:MOST_NAMED], counts[MOST_NAMED:]
    words = [f"{count:,} {name}" for name, count in named]
    if others:
        more = sum(count for _, count in others)
        words.append(f"{more:,} other{'s' if more != 1 else ''}")
    return before + ", ".join(words) if words else ""


def _wrapped(name: str, text: str, indent: str = "") -> Iterator[Row]:
    """Yield a long text in lines that fit."""
    lines = textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent or "  ")
    yield from zip((name, *[""] * len(lines)), lines, strict=False)


def _bytes(count: int) -> str:
    return f"{count:,} bytes"


def _buffers(count: int) -> str:
    return f"{count:,} buffer{'s' if count != 1 else ''}"
