"""What the ring of the cores is used for, and its links, in a line."""

from __future__ import annotations

from spyre_mlir.report.html import count
from spyre_mlir.report.program_facts import ProgramFacts
from spyre_mlir.timeline.links import LinkUse, busiest


def ring_text(facts: ProgramFacts) -> str:
    """How many operations use it, and its busiest link; of a program of which some do."""
    using = [each.execution for each in facts.operations if each.execution.links is not None]
    shuffles = sum(each.work.relayout is not None for each in using)
    kinds = ((shuffles, "shuffle"), (len(using) - shuffles, "split reduction"))
    users = ", ".join(count(number, noun) for number, noun in kinds if number)
    most = busiest(facts.timeline.links)
    return f"{users}; most from {most.name}: {most.bytes:,} bytes"


def link_text(facts: ProgramFacts, use: LinkUse) -> str:
    """What a link carries, and for what part of the program's time it is busy."""
    share = use.busy_ps / max(facts.timeline.run.total, 1)
    return f"{use.name}: {use.bytes:,} bytes, {share:.1%} of the time"
