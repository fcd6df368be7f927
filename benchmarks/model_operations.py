# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operations of models on the device: lists in the public format of torch-spyre, and lists of the zoo's models."""

from __future__ import annotations

from collections import Counter

from benchmarks.programs import operation_lists
from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.errors import CompileError
from spyre_mlir.files import write_text

#: Columns of the table: cases; outcomes on the device; compilations at full shape.
COLUMNS = (
    "cases", "right_eager", "right_compiled", "wrong", "refused", "host", "slow", "not_run", "full", "predicted_us",
)  # fmt: skip


@benchmark()
def model_operations(
    path: str = "", models: str = "", every: int = 1, full: int = 1, save: str = ""
) -> Metrics:
    """Operations of models: compiled at full shape, and run on the device in eager and compiled mode.

    ``path`` is an operation list in the format of torch-spyre; ``models`` are names of models of the zoo, whose
    operations ``save`` writes to a list. ``every`` takes each n-th case; ``full`` compiles at full shape.
    """
    lists_of = operation_lists()
    lists = {name: lists_of.recorded(name) for name in models.split(",") if name}
    if path:
        lists[path.rpartition("/")[2].removesuffix(".yaml")] = lists_of.read_cases(path)
    if not lists:
        raise CompileError("There is no list; give --path FILE.yaml, or --models NAME,NAME.")
    if save:
        write_text(save, lists_of.list_text([case for cases in lists.values() for case in cases]))
    metrics: dict[str, float] = {}
    notes: list[str] = []
    for name, cases in lists.items():
        counts, predicted_us = Counter[str](), 0.0
        for case in cases[::every]:
            outcomes, us, note = lists_of.run_case(case, full)
            counts.update(["cases", *outcomes])
            predicted_us += us
            notes += [f"{name}: {case}: {note}"] if note else []
        row = name.replace(".", "_")
        metrics |= {f"{row}.{column}": float(counts[column]) for column in COLUMNS[:-1]}
        metrics[f"{row}.{COLUMNS[-1]}"] = round(predicted_us, 1)
    return Noted(metrics, notes, COLUMNS)
