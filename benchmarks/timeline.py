# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Time to compute a timeline."""

from __future__ import annotations

from benchmarks.chain import text
from benchmarks.measure import best, seconds
from benchmarks.programs import programs
from benchmarks.registry import Metrics, Noted, benchmark

CHAIN = 5000


@benchmark(block_seconds=5, chain_seconds=5)
def timeline() -> Metrics:
    """The timeline and its trace, of a Llama-style block (2048 wide, 512 tokens, 32 cores) and of 5000 ops in a row.

    The programs are compiled before the measurement; best of 3.
    """
    import spyre_mlir

    programs()
    compiled = block()
    chain = spyre_mlir.compile(text(CHAIN))
    metrics = {
        "block_seconds": best(lambda: seconds(lambda: _trace(compiled))),
        "block_operations": len(compiled.timeline().executions),
        "block_trace_bytes": len(_trace(compiled)),
        "chain_seconds": best(lambda: seconds(lambda: _trace(chain))),
        "chain_trace_bytes": len(_trace(chain)),
    }
    return Noted(metrics, [f"block: {compiled.timeline()}", f"chain: {chain.timeline()}"])


def block():
    """Return a compiled block of 32 heads, 8 of keys and values, and an MLP of 5632."""
    import torch
    from programs import LlamaBlock  # pyright: ignore[reportAttributeAccessIssue]

    import spyre_mlir

    model = LlamaBlock(2048, 512, 32, 8, 5632).eval().half()
    return spyre_mlir.compile(model, (torch.zeros(1, 512, 2048).half(),))


def _trace(program) -> str:
    from spyre_mlir.report.lx_map import lx_map
    from spyre_mlir.timeline.trace import trace_text

    found, taken = program.timeline(), lx_map(program.bundle)
    return trace_text(found, [taken.occupancy(group[0]).load for group in found.core_groups])
