# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Panel of the timeline: bars of a core's engines, the memory and the ring, drawn by the script of the page."""

from __future__ import annotations

from spyre_mlir.report.html import chart, legend_line
from spyre_mlir.report.lx_picture import FILLS
from spyre_mlir.report.program_facts import ProgramFacts

#: Colour of bars of several operations, which belong to no category.
_SEVERAL = "#a3a3a3"


def panel(facts: ProgramFacts) -> str:
    """Return the chart with an explanation."""
    if not facts.timeline.run.total:
        return "<p>The program takes no time.</p>"
    note = (
        "<p>A load waits for its first byte before the memory reads. Bars too close to be told apart are one, as pale"
        " as the engine is idle in between; zoom in with Ctrl and the wheel, drag to move, click on a bar for its"
        " operation. <code>spyre-run --timeline trace.json</code> writes the same for Perfetto, with counters.</p>"
    )
    fills = legend_line([*FILLS.items(), ("several operations", _SEVERAL)])
    return note + fills + chart("timeline-chart", "Timeline", facts.timeline.target.device_cores)
