# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Timeline of a bundle and its bottlenecks: a simulated machine, its trace, the roofline. Pure Python, no IR."""

from spyre_mlir.timeline.timeline import Execution, Timeline, timeline, timeline_of

__all__ = ["Execution", "Timeline", "timeline", "timeline_of"]
