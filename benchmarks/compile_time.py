# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Time and memory of the pipeline at realistic sizes, and the time of the steps around it."""

from __future__ import annotations

import tempfile
import time
from typing import Any

from benchmarks.chain import text
from benchmarks.measure import apart, peak_bytes, seconds
from benchmarks.programs import CHOSEN, programs, suite_linalg
from benchmarks.registry import Metrics, Noted, benchmark

LENGTHS = (64, 256, 1024, 4096)

#: Programs of the suite, by the names of their metrics.
LAYERS = {"granite_layer": "layer_512", "layers_12": "layers_12"}

#: Number of measurements of each pipeline; the shortest counts.
TIMES = 2

COLUMNS = ("import_seconds", "pipeline_seconds", "write_seconds")


@benchmark(
    **{
        "granite_layer_s": 4,
        "layers_12_s": 8,
        "chain_1024_s": 8,
        "chain_growth_per_op": 1.25,
        "peak_gb": 1.5,
    }
)
def compile_time() -> Metrics:
    """Seconds of the pipeline: a Granite-like layer, 12 of them, chains of up to 4096 ops; and of the steps around it.

    The layers of the suite are compiled at full size on 32 cores, in a process each, best of 2; ``peak_gb`` (10^9
    bytes) is the largest memory of a process, with its imports, PyTorch included. The growth compares the time per op
    at 4096 ops with the time per op at 64 or more ops. The table lists programs of the tests: import is torch.export
    and torch-mlir.
    """
    metrics: dict[str, float] = {}
    peaks = []
    for name, member in LAYERS.items():
        pipeline, imported, peak = apart(_layers, member)
        metrics |= {f"{name}_s": pipeline, f"{name}_import_s": imported, f"{name}_peak_gb": peak / 1e9}
        peaks.append(peak)
    chains = {length: apart(_chain, length) for length in LENGTHS}
    for length, (pipeline, peak) in chains.items():
        metrics |= {f"chain_{length}_s": pipeline, f"chain_{length}_peak_gb": peak / 1e9}
        peaks.append(peak)
    last = LENGTHS[-1]
    per_op = {length: pipeline / length for length, (pipeline, _) in chains.items()}
    metrics["chain_growth_per_op"] = max(per_op[last] / per_op[length] for length in LENGTHS[:-1])
    metrics["peak_gb"] = max(peaks) / 1e9
    return Noted({**metrics, **apart(_steps)}, [], COLUMNS)


def _layers(name: str) -> tuple[float, float, int]:
    """Return the seconds of the pipeline and of the import, and the largest memory, of a program of the suite."""
    suite_linalg("softmax")  # without the time of lazy imports
    begun = time.perf_counter()
    module = suite_linalg(name)
    imported = time.perf_counter() - begun
    return _pipeline_seconds(module), imported, peak_bytes()


def _chain(length: int) -> tuple[float, int]:
    """Return the seconds of the pipeline and the largest memory of ``length`` ops in a row."""
    return _pipeline_seconds(text(length)), peak_bytes()


def _pipeline_seconds(source: Any) -> float:
    import spyre_mlir

    spyre_mlir.compile(text(2))
    return min(spyre_mlir.compile(source).compile_seconds for _ in range(TIMES))


def _steps() -> dict[str, float]:
    """Return the seconds of import, pipeline and writing of programs of the tests."""
    import spyre_mlir

    factories = programs()
    spyre_mlir.compile(*factories["add_1d_64"]())
    metrics = {}
    for name in CHOSEN:
        model, inputs = factories[name]()
        begun = time.perf_counter()
        program = spyre_mlir.compile(model, inputs)
        whole = time.perf_counter() - begun
        with tempfile.TemporaryDirectory() as folder:
            write = seconds(lambda program=program, folder=folder: program.save(f"{folder}/bundle"))
        metrics[f"{name}.import_seconds"] = whole - program.compile_seconds
        metrics[f"{name}.pipeline_seconds"] = program.compile_seconds
        metrics[f"{name}.write_seconds"] = write
    return metrics
