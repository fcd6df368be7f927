# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compile time of the choice of layouts, and its growth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.chain import text
from benchmarks.programs import programs
from benchmarks.registry import Metrics, benchmark

#: The passes that choose layouts and padding; pipelines write options after the names.
PASSES = ("choose-layouts", "resolve-padding")

CHAINS = (1000, 4000)
LAYERS = 12
TIMES = 3


@benchmark(
    **{
        "1000_ops.share_percent": 10,
        "4000_ops.share_percent": 10,
        "12_layers.share_percent": 10,
        "growth_to_4000": 4.5,
        "growth_of_12_layers": 13,
    }
)
def layouts() -> Metrics:
    """Share of the layout passes in the time of the pipeline: chains, and a stack of 12 Llama-style blocks.

    The growth of a stack is relative to one layer. The time of a pass is the shortest of three runs.
    """
    chains = {length: seconds_of_passes(lambda length=length: parsed(text(length))) for length in CHAINS}
    stacks = {layers: seconds_of_passes(stack(layers)) for layers in (1, LAYERS)}
    metrics = {}
    for name, times in ((f"{length}_ops", chains[length]) for length in CHAINS):
        metrics |= _metrics(name, times)
    metrics |= _metrics(f"{LAYERS}_layers", stacks[LAYERS])
    metrics["growth_to_4000"] = _layout_seconds(chains[4000]) / _layout_seconds(chains[1000])
    metrics[f"growth_of_{LAYERS}_layers"] = _layout_seconds(stacks[LAYERS]) / _layout_seconds(stacks[1])
    return metrics


def _metrics(name: str, times: dict[str, float]) -> dict[str, float]:
    metrics = {f"{name}.{each}_seconds": times[each] for each in PASSES if each in times}
    metrics[f"{name}.pipeline_seconds"] = sum(times.values())
    metrics[f"{name}.share_percent"] = 100 * _layout_seconds(times) / sum(times.values())
    return metrics


def _layout_seconds(times: dict[str, float]) -> float:
    return sum(times.get(name, 0) for name in PASSES)


def seconds_of_passes(module: Callable[[], Any]) -> dict[str, float]:
    """Return the seconds of each pass in the run in which it was fastest."""
    runs = [_passes(module()) for _ in range(TIMES)]
    return {name: min(times[name] for times in runs) for name in runs[0]}


def _passes(module: Any) -> dict[str, float]:
    """Return the seconds of each pass, summed over the runs of a pass."""
    from spyre_mlir.pipelines import SpyrePipeline, Timing, run_pipeline

    timing = Timing()
    times: dict[str, float] = {}
    run_pipeline(module, SpyrePipeline().pipeline(), timing=timing)
    for name, seconds in timing:
        bare = name.split("{")[0]
        times[bare] = times.get(bare, 0.0) + seconds
    return times


def parsed(program: str) -> Any:
    from spyre_mlir import dialects
    from spyre_mlir.mlir import ir

    return ir.Module.parse(program, dialects.context())


def stack(layers: int) -> Callable[[], Any]:
    """Parse a stack of the blocks of the end-to-end tests, imported once."""
    from torch import nn

    from spyre_mlir import dialects
    from spyre_mlir.frontend import import_torch

    block, inputs = programs()["llama_block"]()
    blocks = nn.Sequential(*(type(block)(512, 128, 8, 4, 1024) for _ in range(layers))).eval().half()
    imported = str(import_torch(blocks, inputs, context=dialects.context()).module)
    return lambda: parsed(imported)
