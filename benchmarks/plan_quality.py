"""How good plans of whole layers are, against the least traffic and the bound of the cost model."""

from __future__ import annotations

import functools
import math
import multiprocessing
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from benchmarks.programs import programs
from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.cost.model import compute_ns
from spyre_mlir.target.device import device

#: Ways to plan, as options of the pipeline: each pass for itself, and all that the pipeline has.
WAYS: Mapping[str, Mapping[str, Any]] = {
    "alone": {"co_optimizing_lx_planning": False, "tile_attention": False, "tile_for_lx": False},
    "default": {},
}


@benchmark()
def plan_quality() -> Metrics:
    """Traffic over its lower bound and predicted time over that of the bound, of layers at full size on 32 cores.

    Nothing is run. The bound of the time is that of the least traffic at the rate of one direction, or of the compute
    of the plan spread over all cores, whatever takes longer. The models are large, so they have a process of their own.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as apart:
        return Noted(*apart.submit(_measured).result())


def _measured() -> tuple[dict[str, float], list[str]]:
    import spyre_mlir

    ratios: dict[str, list[float]] = {way: [] for way in WAYS}
    metrics: dict[str, float] = {}
    notes = []
    for name, make in suite().items():
        model, inputs = make()
        for way, options in WAYS.items():
            begun = time.perf_counter()
            program = spyre_mlir.compile(model, inputs, **options)
            seconds = time.perf_counter() - begun
            facts, predicted = program.facts(), program.timeline()
            ratio = facts.traffic / facts.argument_bytes
            ratios[way].append(ratio)
            metrics[f"{name}.{way}.traffic_over_bound"] = ratio
            metrics[f"{name}.{way}.predicted_us"] = predicted.total_ns / 1000
            metrics[f"{name}.{way}.time_over_bound"] = predicted.total_ns / _bound_ns(facts)
            metrics[f"{name}.{way}.pipeline_seconds"] = program.compile_seconds
            notes.append(
                f"{name}, {way}: {len(facts.operations)} operations, {seconds:.1f} s with the import"
            )
    for way, found in ratios.items():
        metrics[f"{way}.traffic_over_bound_geomean"] = math.exp(math.fsum(map(math.log, found)) / len(found))
    return metrics, notes


def _bound_ns(facts: Any) -> float:
    memory = facts.argument_bytes / device().one_way_bytes_per_ns
    works = ((each.runs, each.work) for each in facts.timeline.executions)
    compute = math.fsum(runs * compute_ns(work) * work.cores / device().cores for runs, work in works)
    return max(memory, compute)


def suite() -> dict[str, Callable[[], tuple[Any, tuple]]]:
    """Factories of (model, inputs) by name, at full size."""
    return {
        "softmax": functools.partial(_function, lambda torch, x: torch.softmax(x, -1), (512, 4096)),
        "rmsnorm": functools.partial(
            _function, lambda torch, x: torch.nn.functional.rms_norm(x, (4096,)), (512, 4096)
        ),
        "layernorm": functools.partial(
            _function, lambda torch, x: torch.nn.functional.layer_norm(x, (4096,)), (512, 4096)
        ),
        "swiglu_mlp": _swiglu,
        "attention_512": functools.partial(_attention, 32, 32, 512, 512),
        "attention_4096": functools.partial(_attention, 32, 32, 4096, 4096),
        "decode_4096": functools.partial(_attention, 32, 8, 1, 4096),
        "layer_64": functools.partial(_layers, 64, 1),
        "layer_512": functools.partial(_layers, 512, 1),
        "layers_512": functools.partial(_layers, 512, 12),
    }


def _function(body: Callable, shape: tuple[int, ...]) -> tuple[Any, tuple]:
    import torch

    return _applied(lambda x: body(torch, x)), (torch.zeros(shape, dtype=torch.float16),)


def _applied(function: Callable) -> Any:
    programs()
    from programs import Apply  # type: ignore[import-not-found]

    return Apply(function)


def _swiglu() -> tuple[Any, tuple]:
    import torch

    programs()
    from programs import SwiGlu  # type: ignore[import-not-found]

    return SwiGlu(4096, 12800).half(), (torch.zeros(512, 4096, dtype=torch.float16),)


def _attention(heads: int, groups: int, rows: int, keys: int) -> tuple[Any, tuple]:
    import torch

    shapes = ((1, heads, rows, 128), (1, groups, keys, 128), (1, groups, keys, 128))
    inputs = tuple(torch.zeros(shape, dtype=torch.float16) for shape in shapes)
    attend = torch.nn.functional.scaled_dot_product_attention
    return _applied(lambda q, k, v: attend(q, k, v, enable_gqa=heads != groups)), inputs


def _layers(sequence: int, count: int) -> tuple[Any, tuple]:
    """Granite-like layers, whose weights are one number each: nothing is run, so they take no memory."""
    import torch

    programs()
    from programs import LlamaBlock, rotary_tables  # type: ignore[import-not-found]

    layers = []
    for _ in range(count):
        with torch.device("meta"):
            layer = LlamaBlock(4096, sequence, 32, 8, 12800).eval()
        for name, weight in list(layer.named_parameters()):
            owner, _, leaf = name.rpartition(".")
            number = torch.zeros(1, dtype=torch.float16).expand(weight.shape)
            setattr(layer.get_submodule(owner), leaf, torch.nn.Parameter(number))
        layer.cos, layer.sin = (table.half() for table in rotary_tables(sequence, 128))
        layers.append(layer)
    model = layers[0] if count == 1 else torch.nn.Sequential(*layers)
    return model, (torch.zeros(1, sequence, 4096, dtype=torch.float16),)
