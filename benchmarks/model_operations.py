# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operations of models on the device: lists in the public format of torch-spyre, and lists of the zoo's models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchmarks.programs import operation_lists
from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.errors import CompileError
from spyre_mlir.files import write_text

#: Columns of the table: cases; outcomes on the device; compilations at full shape.
COLUMNS = (
    "cases", "right_eager", "right_compiled", "wrong", "refused", "host", "slow", "not_run", "full", "predicted_us",
    "host_percent",
)  # fmt: skip


@benchmark(host_percent_of_all=2)
def model_operations(
    path: str = "", models: str = "", every: int = 1, full: int = 1, save: str = ""
) -> Metrics:
    """Operations of models: compiled at full shape, and run on the device in eager and compiled mode.

    ``path`` is an operation list in the format of torch-spyre; ``models`` are names of models of the zoo, whose
    operations ``save`` writes to a list. ``every`` takes each n-th case. With ``full`` 1, cases are also compiled at
    full shape, with 2 they do not run; ``host_percent`` is the host's share of floating-point operations at this shape.
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
    notes, of_all = list[str](), []
    for name, cases in lists.items():
        counts, figures = Counter[str](), []
        for case in cases[::every]:
            outcomes, at_full, note = lists_of.run_case(case, full)
            counts.update(["cases", *outcomes])
            figures.append(at_full)
            notes += [f"{name}: {case}: {note}"] if note else []
        row = name.replace(".", "_")
        metrics |= {f"{row}.{column}": float(counts[column]) for column in COLUMNS[:-2]}
        metrics[f"{row}.predicted_us"] = round(sum(each.predicted_us for each in figures), 1)
        metrics[f"{row}.host_percent"] = _host_percent(figures)
        of_all += figures
    metrics["host_percent_of_all"] = _host_percent(of_all)
    return Noted(metrics, notes, COLUMNS)


def _host_percent(figures: Sequence[Any]) -> float:
    operations = sum(each.operations for each in figures)
    return 100 * sum(each.on_host for each in figures) / max(operations, 1)
