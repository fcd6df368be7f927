# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The first panel: operations, traffic and time of the program in a few numbers."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from spyre_mlir.report.html import bytes_text, count, time_text
from spyre_mlir.report.lx_map import iterations_text
from spyre_mlir.report.program_facts import ProgramFacts
from spyre_mlir.timeline.events import PARTS

#: A name, a number and its meaning.
_Card = tuple[str, str, str]


def panel(facts: ProgramFacts) -> str:
    """Return the most important figures in large type, and the others below them."""
    return f"{_list('figures', _figures(facts))}\n{_list('cards', _cards(facts))}"


def _list(kind: str, cards: Iterator[_Card]) -> str:
    inside = "\n".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd><dd>{escape(meaning)}</dd></div>"
        for name, value, meaning in cards
    )
    return f'<dl class="{kind}">\n{inside}\n</dl>'


def _figures(facts: ProgramFacts) -> Iterator[_Card]:
    """Yield the rates that the program attains, with their peaks."""
    rates, target = facts.rates, facts.timeline.target
    yield "predicted time", time_text(facts.timeline.total_ns), _bracket(facts)
    yield "calls per second", _rate_text(rates.calls_per_second), "one behind the other, without the host"
    if (rows := rates.rows) is not None:
        shape = "x".join(map(str, rows.shape))
        meaning = f"{count(rows.count, 'row')} of {rows.argument} ({shape}) in a call"
        yield "rows per second", _rate_text(rows.count * rates.calls_per_second), meaning
    peak = f"multiply-adds of all {target.device_cores} cores in that time, at the rate of their format"
    yield "of the card's peak", f"{rates.array_part:.1%}", peak
    bandwidth = f"{target.peak_bytes_per_ns:g} GB/s of device memory"
    yield "of its bandwidth", f"{rates.memory_part:.1%}", bandwidth
    cores = f"{rates.mean_cores:.1f} of {count(rates.device_cores, 'core')}"
    yield "cores at work", cores, f"mean over the time{_least_cores(facts)}"


def _rate_text(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:,.3g}"


def _least_cores(facts: ProgramFacts) -> str:
    used = [operation.cores for operation in facts.operations]
    return f"; least {min(used)}, most {max(used)}" if used else ""


def _cards(facts: ProgramFacts) -> Iterator[_Card]:
    yield "operations", f"{len(facts.operations):,}", _opcodes(facts)
    if facts.map.loops:
        yield "loops", f"{len(facts.map.loops):,}", _loops(facts)
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
    yield "bound by", facts.timeline.bound_by if facts.operations else "nothing", _parts(facts)


def _opcodes(facts: ProgramFacts) -> str:
    first, more = facts.opcodes[:6], facts.opcodes[6:]
    names = [f"{number} {name}" for name, number in first]
    return ", ".join(names + ([f"{sum(number for _, number in more)} others"] if more else []))


def _loops(facts: ProgramFacts) -> str:
    nests = [f"{iterations_text(nest)} iterations" for nest in facts.map.nests()]
    first, more = nests[:6], nests[6:]
    return ", ".join(first + ([f"{len(more)} others"] if more else []))


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
