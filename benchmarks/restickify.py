"""How much the layouts of a program cost in conversions."""

from __future__ import annotations

from benchmarks.programs import programs
from benchmarks.registry import Metrics, benchmark

RESTICKIFY = "ReStickifyOpHBM"


@benchmark()
def restickify() -> Metrics:
    """Conversions of layout in the programs of the tests: how many, and the HBM bytes they move."""
    import spyre_mlir

    counts, moved = {}, {}
    for name, factory in programs().items():
        model, inputs = factory()
        program = spyre_mlir.compile(model, inputs)
        program(*inputs)
        each = [read + written for opcode, read, written in program.traffic().by_op if opcode == RESTICKIFY]
        if each:
            counts[name], moved[name] = len(each), sum(each)
    metrics = {"all.count": sum(counts.values()), "all.moved_bytes": sum(moved.values())}
    for name in counts:
        metrics |= {f"{name}.count": counts[name], f"{name}.moved_bytes": moved[name]}
    return metrics
