"""The first panel: what the program is, moves and takes, in a few numbers."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from spyre_mlir.report.html import bytes_text, count, time_text
from spyre_mlir.report.lx_map import iterations_text
from spyre_mlir.report.program_facts import ProgramFacts
from spyre_mlir.timeline.events import PARTS


def panel(facts: ProgramFacts) -> str:
    """Cards with a name, a number and what it means."""
    cards = "\n".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd><dd>{escape(meaning)}</dd></div>"
        for name, value, meaning in _cards(facts)
    )
    return f'<dl class="cards">\n{cards}\n</dl>'


def _cards(facts: ProgramFacts) -> Iterator[tuple[str, str, str]]:
    yield "operations", f"{len(facts.operations):,}", _opcodes(facts)
    if facts.map.loops:
        yield "loops", f"{len(facts.map.loops):,}", _loops(facts)
    yield "cores", *_cores(facts)
    yield "device memory traffic", bytes_text(facts.traffic), _traffic(facts)
    yield "lower bound", bytes_text(facts.argument_bytes), _lower_bound(facts)
    map_ = facts.map
    share = f"{map_.peak:,} of {map_.capacity:,} bytes per core, {map_.peak / max(map_.capacity, 1):.0%}"
    yield "LX high water", bytes_text(map_.peak), f"{share}; {count(len(map_.placed), 'buffer')} in LX"
    yield (
        "spills",
        f"{len(map_.spilled):,}",
        f"buffers in device memory, which move {map_.spilled_traffic:,} bytes",
    )
    yield "restickifies", f"{facts.restickifies:,}", "operations that only change the stick of a tensor"
    yield "predicted time", time_text(facts.timeline.total_ns), _bracket(facts)
    yield "bound by", facts.timeline.bound_by if facts.operations else "nothing", _parts(facts)


def _opcodes(facts: ProgramFacts) -> str:
    first, more = facts.opcodes[:6], facts.opcodes[6:]
    names = [f"{number} {name}" for name, number in first]
    return ", ".join(names + ([f"{sum(number for _, number in more)} others"] if more else []))


def _loops(facts: ProgramFacts) -> str:
    nests = [f"{iterations_text(nest)} iterations" for nest in facts.map.nests()]
    first, more = nests[:6], nests[6:]
    return ", ".join(first + ([f"{len(more)} others"] if more else []))


def _cores(facts: ProgramFacts) -> tuple[str, str]:
    used = [operation.cores for operation in facts.operations]
    if not used:
        return "0", "no operation"
    return f"{max(used)}", f"at most; mean {sum(used) / len(used):.1f}, least {min(used)}"


def _traffic(facts: ProgramFacts) -> str:
    return f"{facts.read_bytes:,} bytes read, {facts.written_bytes:,} written"


def _lower_bound(facts: ProgramFacts) -> str:
    over = (
        f"; the program moves {facts.traffic / facts.argument_bytes:.2f} times that"
        if facts.argument_bytes
        else ""
    )
    return f"each argument once, {facts.argument_bytes:,} bytes{over}"


def _bracket(facts: ProgramFacts) -> str:
    low, high = time_text(facts.timeline.lower_ns), time_text(facts.timeline.upper_ns)
    return f"{low} if all overlaps, {high} if nothing does; it ranks plans and is no promise"


def _parts(facts: ProgramFacts) -> str:
    shares = facts.timeline.shares
    return ", ".join(f"{part} {getattr(shares, part) / max(shares.total, 1):.0%}" for part in PARTS)
