# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bars of the engines of a core, the memory and the ring over time, which the script of the page draws."""

from __future__ import annotations

from spyre_mlir.report.html import chart, legend_line
from spyre_mlir.report.lx_picture import FILLS
from spyre_mlir.report.program_facts import ProgramFacts

#: What is bright and belongs to no category: bars of several operations.
_SEVERAL = "#a3a3a3"


def panel(facts: ProgramFacts) -> str:
    """The chart and how to read it."""
    if not facts.timeline.run.total:
        return "<p>The program takes no time.</p>"
    note = (
        "<p>A load waits for its first byte before the memory reads. Bars too close to be told apart are one, as pale"
        " as the engine is idle in between; zoom in with Ctrl and the wheel, drag to move, click on a bar for its"
        " operation. <code>spyre-run --timeline trace.json</code> writes the same for Perfetto, with counters.</p>"
    )
    fills = legend_line([*FILLS.items(), ("several operations", _SEVERAL)])
    return note + fills + chart("timeline-chart", "Timeline", facts.timeline.target.device_cores)
