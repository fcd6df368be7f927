# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The one-page summary of a compiled program: operations, traffic, time, and reasons. It needs no run.

Bytes are planned bytes: padded device bytes, a load that several cores share counts once, and all runs of loops count.
Everything except the seconds is the same for the same input and options.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from spyre_mlir.report.findings import ProgramFinding, finding_rows
from spyre_mlir.report.html import bytes_text, count
from spyre_mlir.report.lx_map import LxMap, iterations_text
from spyre_mlir.report.modules import module_lines
from spyre_mlir.report.program_facts import Operation, OperationKind, ProgramFacts
from spyre_mlir.simulator.run_outcome import Statistics
from spyre_mlir.tables import aligned
from spyre_mlir.timeline.events import OVERLAPPED, PARTS
from spyre_mlir.timeline.timeline import Timeline

Row = tuple[str, str]

#: Maximum width of a text next to a name, in characters.
WIDTH = 80
#: Maximum number of named opcodes, kinds of decisions (most frequent first) and passes (slowest first).
MOST_NAMED = 6
SLOWEST = 3


def summarize(
    facts: ProgramFacts,
    compile_seconds: float,
    statistics: Statistics | None = None,
    findings: Sequence[ProgramFinding] = (),
    untried: str = "",
) -> str:
    """Return the summary as lines of text; the plan is compared with ``statistics`` of the last run."""
    map_, modules = facts.map, module_lines(facts.operations)
    kinds = Counter(remark.kind for remark in facts.remarks).most_common()
    high_water = f"{map_.peak:,} of {_bytes(map_.capacity)} per core, {map_.peak / max(map_.capacity, 1):.0%}"
    rows = [
        *finding_rows(findings),
        *_wrapped("operations", f"{len(facts.operations):,}" + _listed(": ", facts.opcodes)),
        *_loops(map_),
        ("cores", _cores(facts)),
        *_traffic(facts),
        *(_simulated(facts, statistics) if statistics is not None else ()),
        ("LX high water", f"{high_water}; {count(len(map_.placed), 'buffer')} in LX"),
        *_moves(facts),
        *_spills(facts),
        *_time(facts),
        *zip(("modules", *[""] * len(modules)), modules, strict=False),
        *_wrapped("decisions", f"{len(facts.remarks):,}" + _listed(": ", kinds)),
        *_wrapped("findings", untried),
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


def _cores(facts: ProgramFacts) -> str:
    used, device_cores = [op.cores for op in facts.operations], facts.timeline.target.device_cores
    if not used:
        return "no operation"
    if min(used) == max(used):
        return f"{used[0]} of {device_cores}"
    return f"{min(used)} to {max(used)} of {device_cores}, mean {sum(used) / len(used):.1f}"


def _moves(facts: ProgramFacts) -> Iterator[Row]:
    """Yield the operations that only move data: restickifies, and copies into and out of LX."""
    restickifies, into, out = list[Operation](), list[Operation](), list[Operation]()
    for operation in facts.operations:
        first, *_, last = operation.execution.work.operands
        if operation.execution.is_restickify:
            restickifies.append(operation)
        if operation.category == "clone" and first.in_lx != last.in_lx:
            (into if last.in_lx else out).append(operation)
    yield "restickifies", _moving(restickifies)
    yield "clones", f"into LX {_moving(into)}; out of LX {_moving(out)}" if into or out else "0"


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
    differing = []
    for operation in facts.operations:
        # An operation that did not run moved nothing.
        ran = statistics.executes.get(operation.position)
        read, written = (ran.read_bytes, ran.write_bytes) if ran else (0, 0)
        if (read, written) != (operation.read_bytes, operation.written_bytes):
            differing.append(f"{_bytes(read)} read, {_bytes(written)} written by {operation.name}")
    if not differing:
        yield "simulated", f"{moved}, as planned"
        return
    yield "simulated", "NOT AS PLANNED, which is a bug of the compiler or of the simulator:"
    yield "", f"  {moved} by the program"
    for text in differing[:MOST_NAMED]:
        yield "", f"  {text}"
    if len(differing) > MOST_NAMED:
        yield "", f"  and so on for {len(differing) - MOST_NAMED:,} more"


def _spills(facts: ProgramFacts) -> Iterator[Row]:
    """Yield the spilled buffers by their first reported reason, the largest traffic first."""
    map_ = facts.map
    if not map_.spilled:
        yield "spills", "0"
        return
    share = map_.spilled_traffic / max(facts.traffic, 1)
    spills = f"{count(len(map_.spilled), 'buffer')} in device memory"
    yield "spills", f"{spills}, {_bytes(map_.spilled_traffic)} of traffic, {share:.0%}"
    counts, moved = Counter[str](), Counter[str]()
    for buffer in map_.spilled:
        # The first reason without its details.
        reason = buffer.reasons[0].partition(":")[0] if buffer.reasons else "the bundle does not say"
        counts[reason] += 1
        moved[reason] += buffer.traffic
    width = max(map(len, moved))
    for reason, bytes_ in moved.most_common():
        yield "", f"  {reason:<{width}}  {count(counts[reason], 'buffer')}, {_bytes(bytes_)}"
    largest = max(map_.spilled, key=lambda spill: spill.traffic)
    writer = ""
    if largest.writer is not None:
        step = map_.steps[largest.writer]
        source = f" at {step.source.rpartition('/')[2]}" if step.source else ""
        module = f" in {step.module}" if step.module else ""
        writer = f"step {step.position}, {step.opcode}{module}{source}, "
    why = f": {largest.reasons[0]}" if largest.reasons else ""
    yield from _wrapped(
        "", f"the most: {largest.name} of {writer}{_bytes(largest.traffic)}{why}", indent="  "
    )


# -- time --------------------------------------------------------------------------------------------------


def _time(facts: ProgramFacts) -> Iterator[Row]:
    yield "predicted time", str(facts.timeline)
    yield "overlap", overlap_text([facts.timeline])
    yield from _wrapped("buffer waits", buffer_waits_text(facts.timeline))
    shares = facts.timeline.shares
    if shares.total:
        parts = Counter({part: getattr(shares, part) for part in PARTS}).most_common()
        yield "time bound by", ", ".join(f"{part} {time / shares.total:.0%}" for part, time in parts)
        widths = [round(_BAR * sum(time for _, time in parts[:end]) / shares.total) for end in range(5)]
        bar = "".join(part[0] * (widths[end + 1] - widths[end]) for end, (part, _) in enumerate(parts))
        yield "", f"[{bar}]"
        kinds = facts.kinds
        cells = [_KIND_HEADS, *(_kind_cells(kind, shares.total) for kind in kinds[:_KINDS])]
        lines = aligned(cells, "<<>>>>")
        if others := kinds[_KINDS:]:
            rest = sum(kind.shares.total for kind in others) / shares.total
            lines.append(f"{count(len(others), 'other')}, {rest:.0%}")
        yield from zip(("by kind", *[""] * len(lines)), lines, strict=False)
    if facts.timeline.links:
        yield from _wrapped("ring", facts.ring_text)


#: Characters of the bar of limiting resources, number of kinds of operations in the table, and the heads of the table.
_BAR, _KINDS, _KIND_HEADS = 60, 4, ("", "shape", "count", "share", "us", "us each")


def _kind_cells(kind: OperationKind, total: int) -> tuple[str, ...]:
    us = kind.microseconds
    shape = kind.shape if len(kind.shape) <= 30 else kind.shape[:28] + ".."
    return (
        kind.opcode,
        shape,
        f"{kind.runs:,}",
        f"{kind.shares.total / total:.0%}",
        f"{us:,.1f}",
        f"{us / kind.runs:,.2f}",
    )


def overlap_text(timelines: Sequence[Timeline]) -> str:
    """Return the setting that the predicted times assume, and the sequential time."""
    settings = {line.overlap: None for line in timelines} or {OVERLAPPED: None}
    sequential = sum(line.sequential_ps for line in timelines) / 1e6
    return f"{', '.join(settings)}; sequential {sequential:,.1f} us"


def buffer_waits_text(timeline: Timeline) -> str:
    """Return the copies that wait for a buffer in use, and the price of the waits; empty without any."""
    waits = timeline.buffer_waits
    if not waits or not waits[0].saved_ps:
        return ""
    size = bytes_text(waits[0].bytes)
    most = f"a second buffer of {size} for '{waits[0].buffer}' would save {waits[0].saved_us:,.1f} us"
    waiting = "1 copy waits" if len(waits) == 1 else f"{len(waits):,} copies wait"
    return f"{waiting} for a buffer in use, {timeline.buffer_wait_ns / 1000:,.1f} us; {most}"


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
    in_passes = f"of which {len(passes)} passes {whole:.2f} s; the slowest:"
    yield "compile time", f"{compile_seconds:.2f} s, {in_passes}"
    for name, time in slowest:
        yield "", f"  {time:6.3f} s  {time / max(whole, 1e-9):4.0%}  {name}"


# -- words -------------------------------------------------------------------------------------------------


def _listed(before: str, counts: Sequence[tuple[str, int]]) -> str:
    """Format counts, the most frequent ones by name: ``2 add, 1 exp, 7 others``."""
    words = [f"{number:,} {name}" for name, number in counts[:MOST_NAMED]]
    if others := sum(number for _, number in counts[MOST_NAMED:]):
        words.append(count(others, "other"))
    return before + ", ".join(words) if words else ""


def _wrapped(name: str, text: str, indent: str = "") -> Iterator[Row]:
    """Yield a long text in lines that fit."""
    lines = textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent or "  ")
    yield from zip((name, *[""] * len(lines)), lines, strict=False)


def _bytes(count: int) -> str:
    return f"{count:,} bytes"
