# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quality of work division, and the cost of its passes."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.chain import text
from benchmarks.layouts import parsed, seconds_of_passes
from benchmarks.programs import CHOSEN, programs
from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.target.target import default_target

#: The passes that divide operations and check the division; pipelines write options after the names.
PASSES = ("span-reduction", "work-distribution", "verify-divided", "verify-ownership")

CHAINS = (1000, 4000)


@dataclass(frozen=True)
class OpDivision:
    """Division of an operation: slices of its dims, cores in use, and the largest and mean slice in units of work."""

    opcode: str
    splits: tuple[int, ...]
    units: tuple[int, ...]
    cores: int
    largest: int
    mean: float

    def __str__(self) -> str:
        return f"{list(self.splits)}: {self.cores} cores, balance {self.balance:.2f}"

    @property
    def balance(self) -> float:
        """Return the largest share over the mean share of the cores in use: 1 is even."""
        return self.largest / self.mean


@benchmark(**{"1000_ops.share_percent": 15, "4000_ops.share_percent": 15, "growth_to_4000": 4.5})
def division() -> Metrics:
    """Cores in use and balance over the ops of all programs of the tests, even and uneven; share of the passes.

    The notes list the ops of a few programs. The time of a pass is the shortest of three runs.
    """
    even, uneven = ({name: list(_ops(name, way)) for name in programs()} for way in (False, True))
    pairs = {name: list(zip(even[name], uneven[name], strict=True)) for name in even}
    every = [pair for found in pairs.values() for pair in found]
    metrics = {
        **_metrics("even", [one for one, _ in every]),
        **_metrics("uneven", [other for _, other in every]),
        "ops_with_a_smaller_share_if_uneven": sum(other.largest < one.largest for one, other in every),
        "ops_with_a_larger_share_if_uneven": sum(other.largest > one.largest for one, other in every),
        **_costs(),
    }
    return Noted(metrics, [note for name in CHOSEN for note in _notes(name, pairs[name])])


def _metrics(name: str, ops: list[OpDivision]) -> Metrics:
    return {
        f"{name}.ops": len(ops),
        f"{name}.ops_on_all_cores": sum(op.cores == default_target().cores for op in ops),
        f"{name}.mean_cores": sum(op.cores for op in ops) / len(ops),
        f"{name}.mean_balance": sum(op.balance for op in ops) / len(ops),
        f"{name}.worst_balance": max(op.balance for op in ops),
    }


def _notes(name: str, pairs: list[tuple[OpDivision, OpDivision]]) -> Iterator[str]:
    """Yield the ops of a program that leave a core idle, even or uneven, without duplicates."""
    for one, other in dict.fromkeys(pairs):
        if min(one.cores, other.cores) < default_target().cores:
            yield f"{name}: {one.opcode} of {list(one.units)} in {one}; uneven {other}"


def _ops(name: str, uneven: bool) -> Iterator[OpDivision]:
    """Yield the divisions of the operations of a program."""
    from spyre_mlir.analysis.aliasing import AliasAnalysis, all_ops, functions, is_compute
    from spyre_mlir.pipelines import SpyrePipeline, run_pipeline

    module = parsed(_imported(name))
    run_pipeline(
        module, SpyrePipeline(uneven_splits=uneven, co_optimizing_lx_planning=False).pipeline("divided")
    )
    for func in functions(module.operation):
        memory = AliasAnalysis(func)
        yield from (_divided(memory, op) for op in all_ops(func) if is_compute(op))


def _divided(memory: Any, op: Any) -> OpDivision:
    from spyre_mlir.dialects import sdsc
    from spyre_mlir.division.slices import shares_of

    opcode, space, _ = memory.space(op)
    splits = sdsc.division_of(op).splits
    cores = math.prod(splits)
    largest = math.prod(shares_of(space.units, splits))
    return OpDivision(opcode, splits, space.units, cores, largest, math.prod(space.units) / cores)


@functools.cache
def _imported(name: str) -> str:
    from spyre_mlir import dialects
    from spyre_mlir.frontend import import_torch

    model, inputs = programs()[name]()
    return str(import_torch(model, inputs, context=dialects.context()).module)


def _costs() -> Metrics:
    """Return the share of the passes in the time of the pipeline on chains, and their growth."""
    times = {length: seconds_of_passes(lambda length=length: parsed(text(length))) for length in CHAINS}
    metrics: dict[str, float] = {}
    for length, seconds in times.items():
        metrics |= {f"{length}_ops.{name}_seconds": seconds[name] for name in PASSES}
        metrics[f"{length}_ops.share_percent"] = 100 * _own(seconds) / sum(seconds.values())
    small, large = (_own(times[length]) for length in CHAINS)
    return {**metrics, "growth_to_4000": large / small}


def _own(times: dict[str, float]) -> float:
    return sum(times[name] for name in PASSES)
