"""Where the time between a PyTorch model and a bundle on disk goes."""

from __future__ import annotations

import tempfile
import time

from benchmarks.measure import seconds
from benchmarks.programs import CHOSEN, programs
from benchmarks.registry import Metrics, benchmark


@benchmark()
def compile_time() -> Metrics:
    """Seconds of import (torch.export, torch-mlir), pipeline and writing, of programs of the tests."""
    import spyre_mlir

    factories = programs()
    warm, inputs = factories["add_1d_64"]()
    spyre_mlir.compile(warm, inputs)
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
