# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One-line texts about the use of the ring and of its links."""

from __future__ import annotations

from spyre_mlir.report.html import count
from spyre_mlir.report.program_facts import ProgramFacts
from spyre_mlir.timeline.links import LinkUse, busiest


def ring_text(facts: ProgramFacts) -> str:
    """Return the number of operations on the ring and the busiest link, for a program that uses the ring."""
    using = [execution.execution for execution in facts.operations if execution.execution.links is not None]
    shuffles = sum(execution.work.relayout is not None for execution in using)
    kinds = ((shuffles, "shuffle"), (len(using) - shuffles, "split reduction"))
    users = ", ".join(count(number, noun) for number, noun in kinds if number)
    link = busiest(facts.timeline.links)
    return f"{users}; most from {link.name}: {link.bytes:,} bytes"


def link_text(facts: ProgramFacts, use: LinkUse) -> str:
    """Return the bytes on a link, and the fraction of the program's time for which the link is busy."""
    share = use.busy_ps / max(facts.timeline.run.total, 1)
    return f"{use.name}: {use.bytes:,} bytes, {share:.1%} of the time"
