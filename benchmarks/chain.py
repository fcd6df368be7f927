# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Growth of compile time with the size of a program."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.measure import Run, tool
from benchmarks.registry import Metrics, benchmark

SHAPE = "256x512"
SLOWEST = 6

_BODIES = (
    "%r = arith.addf %a, %b : f16",
    "%r = arith.mulf %a, %b : f16",
    "%r = math.tanh %a : f16",
    "%r = arith.subf %a, %b : f16",
)


@benchmark(**{"1000_ops_seconds": 8, "growth_to_4000": 4.5, "growth_of_fan_to_2000": 4.5})
def chain() -> Metrics:
    """1000 and 4000 elementwise ops in a row through spyre-opt --spyre-pipeline, with the slowest passes.

    The growth is of processor time, which other processes of the machine disturb least. In a fan, every op also reads
    one computed value; the fan grows from 500 to 2000 ops.
    """
    small, large = _runs(text(1000), 3), _runs(text(4000), 2)
    fans = [_processor_seconds(_runs(text(length, fan=True), 2)) for length in (500, 2000)]
    metrics = {
        "1000_ops_seconds": min(run.seconds for run in small),
        "4000_ops_seconds": min(run.seconds for run in large),
        "growth_to_4000": _processor_seconds(large) / _processor_seconds(small),
        "growth_of_fan_to_2000": fans[1] / fans[0],
    }
    for length in (1000, 4000):
        times = _passes(text(length))
        metrics.update({f"{length}_ops.{name}_seconds": times[name] for name in list(times)[:SLOWEST]})
    return metrics


def text(length: int, *, fan: bool = False) -> str:
    """Return a function of ``length`` generic ops, each on the result of the previous op and on %x.

    In a ``fan``, %x is computed, too; otherwise %x is the argument.
    """
    tensor = f"tensor<{SHAPE}xf16>"
    lines = [
        "#id = affine_map<(d0, d1) -> (d0, d1)>",
        f"func.func @main(%{'in' if fan else 'x'}: {tensor}) -> {tensor} {{",
        f"  %e = tensor.empty() : {tensor}",
    ]
    if fan:
        lines.append(f"  %x = linalg.exp ins(%in : {tensor}) outs(%e : {tensor}) -> {tensor}")
    value = "%x"
    for index in range(length):
        lines += [
            f"  %v{index} = linalg.generic {{indexing_maps = [#id, #id, #id],"
            f' iterator_types = ["parallel", "parallel"]}}',
            f"      ins({value}, %x : {tensor}, {tensor}) outs(%e : {tensor}) {{",
            "  ^bb0(%a: f16, %b: f16, %o: f16):",
            f"    {_BODIES[index % len(_BODIES)]}",
            "    linalg.yield %r : f16",
            f"  }} -> {tensor}",
        ]
        value = f"%v{index}"
    return "\n".join([*lines, f"  return {value} : {tensor}", "}", ""])


def _runs(program: str, times: int) -> list[Run]:
    """Return runs of spyre-opt on a program."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain.mlir"
        path.write_text(program, encoding="utf-8")
        return [tool("spyre-opt", path, "--spyre-pipeline") for _ in range(times)]


def _processor_seconds(runs: list[Run]) -> float:
    return min(run.processor_seconds for run in runs)


def _passes(program: str) -> dict[str, float]:
    """Return the seconds of each pass, slowest first, summed over the runs of a pass."""
    from spyre_mlir import dialects
    from spyre_mlir.mlir import ir
    from spyre_mlir.pipelines import SpyrePipeline, Timing, run_pipeline

    timing = Timing()
    times: dict[str, float] = {}
    run_pipeline(ir.Module.parse(program, dialects.context()), SpyrePipeline().pipeline(), timing=timing)
    for name, seconds in timing:
        bare = name.split("{")[0]
        times[bare] = times.get(bare, 0.0) + seconds
    return dict(sorted(times.items(), key=lambda item: -item[1]))
