"""How compile time grows with the size of a program."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.measure import tool
from benchmarks.registry import Metrics, benchmark

SHAPE = "256x512"
SLOWEST = 6

_BODIES = (
    "%r = arith.addf %a, %b : f16",
    "%r = arith.mulf %a, %b : f16",
    "%r = math.tanh %a : f16",
    "%r = arith.subf %a, %b : f16",
)


@benchmark(**{"1000_ops_seconds": 8, "growth_to_4000": 4.5})
def chain() -> Metrics:
    """1000 and 4000 elementwise ops in a row through spyre-opt --spyre-pipeline, with the slowest passes.

    The growth is that of processor time, which other processes of the machine disturb least.
    """
    with tempfile.TemporaryDirectory() as folder:
        small, large = (_written(Path(folder), length) for length in (1000, 4000))
        of_small, of_large = (
            [tool("spyre-opt", path, "--spyre-pipeline") for _ in range(3)] for path in (small, large)
        )
        passes = {length: _passes(path) for length, path in ((1000, small), (4000, large))}
    processor = [min(run.processor_seconds for run in runs) for runs in (of_small, of_large)]
    metrics = {
        "1000_ops_seconds": min(run.seconds for run in of_small),
        "4000_ops_seconds": min(run.seconds for run in of_large),
        "growth_to_4000": processor[1] / processor[0],
    }
    for length, times in passes.items():
        metrics.update({f"{length}_ops.{name}_seconds": times[name] for name in list(times)[:SLOWEST]})
    return metrics


def text(length: int) -> str:
    """A function of ``length`` generic ops, each on the result of the one before."""
    tensor = f"tensor<{SHAPE}xf16>"
    lines = [
        "#id = affine_map<(d0, d1) -> (d0, d1)>",
        f"func.func @main(%x: {tensor}) -> {tensor} {{",
        f"  %e = tensor.empty() : {tensor}",
    ]
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


def _written(folder: Path, length: int) -> Path:
    path = folder / f"chain_{length}.mlir"
    path.write_text(text(length), encoding="utf-8")
    return path


def _passes(path: Path) -> dict[str, float]:
    """The seconds of each pass, slowest first; those of a pass that runs several times are added up."""
    from spyre_mlir import dialects
    from spyre_mlir.mlir import ir
    from spyre_mlir.pipelines import SpyrePipeline, Timing, run_pipeline

    timing = Timing()
    times: dict[str, float] = {}
    run_pipeline(
        ir.Module.parseFile(str(path), dialects.context()), SpyrePipeline().pipeline(), timing=timing
    )
    for name, seconds in timing:
        bare = name.split("{")[0]
        times[bare] = times.get(bare, 0.0) + seconds
    return dict(sorted(times.items(), key=lambda item: -item[1]))
