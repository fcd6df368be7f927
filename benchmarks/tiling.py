# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Traffic and predicted time saved by tiling, and its compile time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.layouts import LAYERS, seconds_of_passes, stack
from benchmarks.measure import seconds
from benchmarks.registry import Metrics, Noted, benchmark

PASSES = (
    "attach-hints",
    "propagate-named-dims",
    "lower-hints",
    "online-softmax",
    "auto-tiling",
    "coarse-tiling",
)

HEADS, COLUMNS = 32, 128
LENGTHS = (512, 4096, 32768)

#: Bytes of one of the tensors of ``y = a + b; z = y * c``: 64 MiB.
SHAPE = (8192, 4096)


@benchmark(
    **{
        **{f"attention_{length}.compile_seconds": 5 for length in LENGTHS},
        **{f"attention_{length}.times_moved": 1.6 for length in LENGTHS},
        "pointwise.times_moved": 1,
        "1_layers.share_percent": 25,
        f"{LAYERS}_layers.share_percent": 25,
        "growth_from_3_layers": 4.5,
    }
)
def tiling() -> Metrics:
    """Attention of 32 heads of 128 and y = a + b; z = y * c of 64 MiB each, 32 cores; the share of the tiling passes.

    ``times_moved`` is the traffic over the bytes of inputs and results, which have to move once; ``_us`` are predicted
    times, tiled and not. Layers are Llama-style blocks; the growth is of the time of the tiling passes from 3 to 12
    layers. The time of a pass is the shortest of three runs; other seconds are of one run.
    """
    import spyre_mlir

    spyre_mlir.compile(_attention, _tensors(1, 1, 64, 64))  # the measured time excludes imports
    metrics, notes = {}, []
    for length in LENGTHS:
        found, note = _saved(f"attention_{length}", _attention, _tensors(1, HEADS, length, COLUMNS))
        metrics |= found
        notes.append(note)
    found, note = _saved("pointwise", _add_and_multiply, _tensors(*SHAPE))
    metrics |= found
    shares = {layers: seconds_of_passes(stack(layers)) for layers in (1, 3, LAYERS)}
    for layers, times in shares.items():
        metrics[f"{layers}_layers.tiling_seconds"] = _tiling_seconds(times)
        metrics[f"{layers}_layers.share_percent"] = 100 * _tiling_seconds(times) / sum(times.values())
    metrics["growth_from_3_layers"] = _tiling_seconds(shares[LAYERS]) / _tiling_seconds(shares[3])
    return Noted(metrics, [*notes, note])


def _saved(name: str, function: Callable, inputs: tuple[Any, ...]) -> tuple[dict[str, float], str]:
    """Return seconds, traffic and predicted time of a program tiled and not tiled, and the chosen loops."""
    import spyre_mlir
    from spyre_mlir.errors import CompileError

    programs = []
    metrics = {
        f"{name}.compile_seconds": seconds(lambda: programs.append(spyre_mlir.compile(function, inputs)))
    }
    (tiled,) = programs
    arguments = sum(argument.bytes for argument in tiled.bundle.manifest.arguments)
    metrics[f"{name}.tiled_us"] = _microseconds(tiled)
    metrics[f"{name}.times_moved"] = _moved(tiled) / arguments
    note = f"{name}: {_loops(tiled)}"
    try:
        untiled = spyre_mlir.compile(function, inputs, tile_attention=False, tile_for_lx=False)
        metrics[f"{name}.untiled_us"] = _microseconds(untiled)
    except CompileError as error:
        note += f"; without tiling it cannot be compiled: {error.message}"
    return metrics, note


def _microseconds(program: Any) -> float:
    return program.timeline().total_ns / 1000


def _moved(program: Any) -> int:
    return sum(each.read_bytes + each.written_bytes for each in program.timeline().executions)


def _loops(program: Any) -> str:
    """Return the loops of a program, in order, as reported by coarse-tiling."""
    return (
        "; ".join(remark.reason for remark in program.remarks if remark.pass_name == "coarse-tiling")
        or "no loops"
    )


def _tiling_seconds(times: dict[str, float]) -> float:
    return sum(times.get(name, 0) for name in PASSES)


def _tensors(*shape: int) -> tuple[Any, ...]:
    import torch

    return tuple(torch.empty(shape, dtype=torch.float16) for _ in range(3))


def _attention(q: Any, k: Any, v: Any) -> Any:
    from torch.nn.functional import scaled_dot_product_attention

    return scaled_dot_product_attention(q, k, v)


def _add_and_multiply(a: Any, b: Any, c: Any) -> Any:
    y = a + b
    return y * c
