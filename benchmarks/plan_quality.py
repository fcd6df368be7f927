# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quality of plans of the suite, against the least traffic and the bound of the cost model."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import families
from benchmarks.measure import apart
from benchmarks.programs import suite, suite_linalg
from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.target.target import default_target

#: Ways to plan, as options of the pipeline: separate divisions, the search of torch-spyre, joint planning.
WAYS: Mapping[str, Mapping[str, Any]] = {
    "sequential": {"co_optimizing_lx_planning": False},
    "strategy_b": {"co_optimizer": "strategy-b"},
    "joint": {},
}

COLUMNS = (
    "traffic_over_bound", "time_over_bound", "predicted_us", "sequential_us", "most_cores", "mean_cores", "operations",
    "pipeline_seconds",
)  # fmt: skip

#: Predictions with a smaller relative difference are equal: sums of rounded picoseconds differ by as much.
EQUAL = 1e-6


@dataclass(frozen=True)
class Quality:
    """One plan of a program; times in nanoseconds, of both settings of overlap (docs/concurrency.md).

    ``array_ns`` is the time of its multiply-adds on all cores with full arrays, ``vector_ns`` the time of other work.
    """

    traffic: int
    least_traffic: int
    predicted_ns: float
    sequential_ns: float
    array_ns: float
    vector_ns: float
    most_cores: int
    mean_cores: float
    operations: int
    pipeline_seconds: float

    @property
    def traffic_over_bound(self) -> float:
        return self.traffic / self.least_traffic


@benchmark(**{"joint.traffic_over_bound_geomean": 1.05, "joint.slower_than_another": 0}, **families.TARGETS)
def plan_quality(only: str = "") -> Metrics:
    """Traffic and predicted time of the suite at full size on 32 cores, over their lower bounds, by way to plan.

    Programs are not run. Operations overlap in ``predicted_us``, and do not in ``sequential_us``. The bound of traffic
    is each argument once. The bound of time is the time of this traffic at the rate of one direction, or the compute on
    32 full arrays, whichever is longer. ``mean_cores`` is weighted by
    time. ``neighbours`` are rows for the MLP of torch-spyre #2765, where a joint division saved 17 % of the time and
    used 79 % instead of 66 % of the sustained rate of the array. The families (benchmark 'families'; ``--only`` is a
    regular expression of their names) are compiled in one way, and their bound is ``Program.bound``, which does not
    depend on the plan. Metrics without a way, such as ``time_over_bound_geomean``, are metrics of the families.
    """
    found = {name: apart(_qualities, name) for name in suite().SUITE}
    metrics = {}
    for name, ways in found.items():
        bound_ns = _bound_ns(ways.values())
        for way, quality in ways.items():
            metrics |= {f"{name}.{way}.{key}": value for key, value in _columns(quality, bound_ns).items()}
    for way in WAYS:
        for column in ("traffic_over_bound", "time_over_bound"):
            ratios = [metrics[f"{name}.{way}.{column}"] for name in found]
            metrics[f"{way}.{column}_geomean"] = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    lost = [note for name, ways in found.items() for note in _lost(name, ways)]
    slower = [name for name, ways in found.items() if _is_slower(ways)]
    metrics["joint.slower_than_another"] = len(slower)
    judged, told = families.all_measured(only)
    columns = (*COLUMNS, "bound_us")
    metrics |= _neighbours(found["mlp"])
    metrics |= {key: value for key, value in judged.items() if key.rpartition(".")[2] in columns}
    metrics |= {**families.summary(judged), "not_compiled": judged["not_compiled"]}
    return Noted(metrics, [*lost, *told], columns)


def _qualities(name: str) -> dict[str, Quality]:
    import spyre_mlir

    module = suite_linalg(name)
    return {way: _quality(spyre_mlir.compile(module, **options)) for way, options in WAYS.items()}


def _quality(program: Any) -> Quality:
    facts = program.facts()
    operations, executions = facts.operations, facts.timeline.executions
    total_ns = math.fsum(each.execution.total_ns for each in operations)
    return Quality(
        traffic=facts.traffic,
        least_traffic=facts.argument_bytes,
        predicted_ns=facts.timeline.total_ns,
        sequential_ns=facts.timeline.sequential_ns,
        array_ns=_evenly(executions, "multiply_adds_per_core") / default_target().array.multiply_adds_per_ns,
        vector_ns=_evenly(executions, "sticks_per_core") / default_target().vector_sticks_per_ns,
        most_cores=max(each.cores for each in operations),
        mean_cores=math.fsum(each.cores * each.execution.total_ns for each in operations) / total_ns,
        operations=len(operations),
        pipeline_seconds=program.compile_seconds,
    )


def _evenly(executions: Sequence[Any], per_core: str) -> float:
    """Return the sum of a figure ``per_core`` over all executions, spread evenly over all cores of the device."""
    amounts = (each.runs * each.work.cores * getattr(each.work, per_core) for each in executions)
    return math.fsum(amounts) / default_target().cores


def _bound_ns(plans: Collection[Quality]) -> float:
    """Return one bound for all ways: a plan with copies has additional work, so the least of any way counts."""
    least = min(plan.least_traffic for plan in plans) / default_target().one_way_bytes_per_ns
    return max(least, min(plan.array_ns + plan.vector_ns for plan in plans))


def _columns(plan: Quality, bound_ns: float) -> dict[str, float]:
    return {
        "traffic_over_bound": plan.traffic_over_bound,
        "time_over_bound": plan.predicted_ns / bound_ns,
        "predicted_us": plan.predicted_ns / 1000,
        "sequential_us": plan.sequential_ns / 1000,
        "most_cores": plan.most_cores,
        "mean_cores": plan.mean_cores,
        "operations": plan.operations,
        "pipeline_seconds": plan.pipeline_seconds,
    }


def _lost(name: str, ways: Mapping[str, Quality]) -> Iterator[str]:
    """Yield a note for each way that is predicted slower than the best way, with the difference in percent."""
    best = min(ways, key=lambda way: ways[way].predicted_ns)
    for way, plan in ways.items():
        slowdown = plan.predicted_ns / ways[best].predicted_ns - 1
        if slowdown > EQUAL:
            yield f"{name}: {way} is predicted {100 * slowdown:.2g} % slower than {best}"


def _is_slower(ways: Mapping[str, Quality]) -> bool:
    return ways["joint"].predicted_ns > min(plan.predicted_ns for plan in ways.values()) * (1 + EQUAL)


def _neighbours(ways: Mapping[str, Quality]) -> dict[str, float]:
    """Return the MLP of torch-spyre #2765, with separate divisions and with joint planning."""
    alone, together = ways["sequential"], ways["joint"]
    before, after = alone.predicted_ns, together.predicted_ns
    return {
        "neighbours.sequential_us": before / 1000,
        "neighbours.joint_us": after / 1000,
        "neighbours.saved_percent": 100 * (1 - after / before),
        "neighbours.sequential_array_percent": 100 * alone.array_ns / before,
        "neighbours.joint_array_percent": 100 * together.array_ns / after,
    }
