# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of the tests in KTIR on ktir-cpu: the numbers that run and are right, and reasons of the others."""

from __future__ import annotations

import importlib.util
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from benchmarks.programs import ktir_programs, programs
from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.errors import CompileError, listed

#: Programs of KTIR, programs that are right as tensors and at addresses, and runs that need a larger LX.
COLUMNS = ("programs", "tensors", "addresses", "larger_lx")


@benchmark(
    tensors_not_right_percent=5, addresses_not_right_percent=20, larger_lx=0, emission_of_12_layers_seconds=1
)
def ktir(group: str = "", cores: int = 7) -> Metrics:
    """KTIR: programs that ktir-cpu runs with right numbers, of all groups or one, in both modes.

    Programs with host operations, or with number formats that KTIR does not support, are not counted.
    """
    metrics: dict[str, float] = {"emission_of_12_layers_seconds": _emission_seconds()}
    if importlib.util.find_spec("ktir_cpu") is None:
        return Noted(metrics, ["ktir-cpu is not on PYTHONPATH, so nothing was run."])
    tests = ktir_programs()
    groups = {name: cases for name, cases in tests.groups().items() if group in ("", name)}
    if not groups:
        raise CompileError(f"There is no group '{group}'; there are {listed(tests.groups(), group)}.")
    counts: dict[str, Counter[str]] = {name: Counter() for name in groups}
    reasons: list[str] = []
    for name, cases in groups.items():
        for case in cases:
            _count(counts[name], reasons, case, tests.outcome(case, cases[case], cores))
    total = sum(counts.values(), Counter())
    for mode in ("tensors", "addresses"):
        metrics[f"{mode}_not_right_percent"] = 100 - 100 * total[mode] / max(total["programs"], 1)
    metrics["larger_lx"] = total["larger_lx"]
    metrics |= {f"{name}.{column}": counts[name][column] for name in groups for column in COLUMNS}
    return Noted(metrics, [f"{cores} cores", *reasons], COLUMNS)


def _count(
    counts: Counter[str], reasons: list[str], name: str, outcomes: Mapping[bool, tuple[str, str]]
) -> None:
    """Count the outcome of a program in both modes; add the reason if it is not right."""
    if any(kind == "outside" for kind, _ in outcomes.values()):
        return
    counts["programs"] += 1
    for addresses, (kind, reason) in outcomes.items():
        mode = "addresses" if addresses else "tensors"
        counts[mode] += kind == "right"
        counts["larger_lx"] += reason == "LX"
        if kind != "right":
            reasons.append(f"{name}, {mode}: {kind}: {reason}")


def _emission_seconds() -> float:
    """Return the CPU seconds to emit the text of twelve layers, without planning."""
    import torch

    programs()  # its module becomes importable
    from programs import LlamaBlock  # pyright: ignore[reportAttributeAccessIssue]

    import spyre_mlir
    from spyre_mlir.driver.ktir_program import KtirProgram

    layers: Any = torch.nn.Sequential(*(LlamaBlock(2048, 512, 32, 8, 8192) for _ in range(12))).half().eval()
    program = spyre_mlir.compile(layers, (torch.randn(1, 512, 2048).half(),))
    begun = time.process_time()
    KtirProgram.of(program)
    return time.process_time() - begun
