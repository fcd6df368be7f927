# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conversions between layouts in programs, and the rule that forces each."""

from __future__ import annotations

from typing import Any

from benchmarks.programs import programs
from benchmarks.registry import Metrics, Noted, benchmark

RESTICKIFY = "ReStickifyOpHBM"

#: Count and moved HBM bytes of the best known plan of each program; the others need no conversion. Source, 2026-11-21:
#: ``choose`` proves these plans optimal (bound = cost), and so does an exhaustive search over all plans
#: (``test/python/layout_graphs.py``) of each program of this table.
BEST_KNOWN: dict[str, tuple[int, int]] = {
    "llama_block": (2, 524_288),
    "llama_block_small": (2, 65_536),
    "sdpa": (1, 65_536),
    "sdpa_causal": (1, 65_536),
    "sdpa_scale": (1, 65_536),
    "sdpa_grouped": (1, 65_536),
    "sdpa_mask_bool": (1, 65_536),
    "sdpa_mask_float": (1, 65_536),
    "sdpa_mask_constant": (1, 65_536),
    "matmul_transposed": (1, 16_384),
    "matmul_vector": (1, 24_960),
    "slice_odd": (1, 49_152),
    "pad": (1, 549_120),
    "pad_value": (1, 32_768),
    "flatten": (1, 249_600),
    "rotary": (2, 65_536),
}


@benchmark(
    **{"all.count_to_best_known": 1.0, "all.moved_to_best_known": 1.0, "plans_not_proven": 0},
    **{f"{name}.moved_to_best_known": 1.0 for name in BEST_KNOWN},
)
def restickify() -> Metrics:
    """Conversions of layout in the programs of the tests: count and HBM bytes, against the best plan known.

    Of each program with a conversion; a note per conversion names the stick rule that forces it.
    """
    counts, moved, notes, gaps = {}, {}, [], 0
    for name, (program, reasons, proven) in ((each, _run(each)) for each in programs()):
        gaps += not proven
        each = [read + written for opcode, read, written in program.traffic().by_op if opcode == RESTICKIFY]
        if each or name in BEST_KNOWN:
            counts[name], moved[name] = len(each), sum(each)
            notes += [f"{name}: {reason}" for reason in reasons]
    return Noted(_metrics(counts, moved) | {"plans_not_proven": gaps}, notes)


def _run(name: str) -> tuple[Any, list[str], bool]:
    """Return the program after a run, its reasons for conversions, and whether its layouts are proven optimal."""
    import spyre_mlir

    model, inputs = programs()[name]()
    program = spyre_mlir.compile(model, inputs)
    program(*inputs)
    chosen = [remark for remark in program.remarks if remark.pass_name == "choose-layouts"]
    reasons = [remark.reason for remark in chosen if remark.kind == "restickify"]
    proven = all(remark.after == remark.before for remark in chosen if remark.kind == "layouts")
    return program, reasons, proven


def _metrics(counts: dict[str, int], moved: dict[str, int]) -> dict[str, float]:
    """Return totals, then a few lines per program; the ratio to a best plan without traffic uses one byte."""
    best = {name: BEST_KNOWN.get(name, (0, 0)) for name in counts}
    metrics: dict[str, float] = {
        "all.count": sum(counts.values()),
        "all.moved_bytes": sum(moved.values()),
        "all.count_to_best_known": sum(counts.values()) / max(1, sum(count for count, _ in best.values())),
        "all.moved_to_best_known": sum(moved.values()) / max(1, sum(each for _, each in best.values())),
    }
    for name, count in counts.items():
        metrics[f"{name}.count"] = count
        metrics[f"{name}.moved_bytes"] = moved[name]
        metrics[f"{name}.moved_to_best_known"] = moved[name] / max(1, best[name][1])
    return metrics
