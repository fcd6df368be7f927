# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An oracle of the compiler's decisions: small programs whose legal plans are enumerated and priced by the timeline."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmarks.measure import apart
from benchmarks.registry import Metrics, Noted, benchmark

if TYPE_CHECKING:
    from spyre_mlir.experiments.tuning import TuningSpace

COLUMNS = ("ours_us", "optimum_us", "ratio", "priced", "points")

#: Rows and columns of the reductions, normalisations and chains: long, wide, and with a partial stick at the end.
_MATRICES = (
    (32, 131072), (32, 32768), (8, 100000), (64, 8192), (128, 4096), (512, 1024), (4096, 64), (3, 1000), (1, 65536),
    (67, 130),
)  # fmt: skip

#: Rows, contracted elements and columns of the matmuls.
_PRODUCTS = (
    (1, 4096, 4096), (16, 1024, 8192), (64, 8192, 256), (512, 512, 512), (32, 25600, 64), (100, 300, 500),
)  # fmt: skip

#: Names of the programs that ``make check`` prices.
CHECKED = (
    "sum 32x32768", "sum 8x100000", "amax 128x4096", "mean of rows 512x1024", "sum of columns 4096x64",
    "softmax 67x130", "rms_norm 64x8192", "gelu 3x1000", "matmul 16x1024x8192", "matmul 100x300x500",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A function and the shapes of its inputs in fp16."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]


def programs() -> dict[str, Case]:
    """Return the programs of the list by name: every function of a matrix at every size, and products."""
    import torch

    of_matrix: dict[str, Callable[..., Any]] = {
        "sum": lambda x: x.sum(-1),
        "amax": lambda x: x.amax(-1),
        "mean of rows": lambda x: (x * x).mean(-1),
        "sum of columns": lambda x: x.sum(0),
        "softmax": lambda x: torch.softmax(x, -1),
        "rms_norm": lambda x: torch.nn.functional.rms_norm(x, x.shape[-1:]),
        "gelu": torch.nn.functional.gelu,
        "centred": lambda x: torch.exp(x - x.amax(-1, keepdim=True)),
    }
    cases = {
        f"{name} {rows}x{columns}": Case(function, ((rows, columns),))
        for name, function in of_matrix.items()
        for rows, columns in _MATRICES
    }
    for rows, depth, columns in _PRODUCTS:
        size = f"{rows}x{depth}x{columns}"
        cases[f"matmul {size}"] = Case(torch.matmul, ((rows, depth), (depth, columns)))
    for heads, queries, keys in ((32, 1, 4096), (8, 128, 128), (16, 512, 512)):
        shapes = tuple((1, heads, length, 64) for length in (queries, keys, keys))
        attention = torch.nn.functional.scaled_dot_product_attention
        cases[f"attention {heads}x{queries}x{keys}"] = Case(attention, shapes)
    image = ((1, 64, 28, 28), (64, 64, 3, 3))
    cases["conv 64x28x28"] = Case(functools.partial(torch.nn.functional.conv2d, padding=1), image)
    return cases


def random_program(seed: int) -> Case:
    """Return one to four operations on a random matrix, with broadcasts of its rows and columns."""
    import torch

    rng = random.Random(seed)
    shape = rng.choice((1, 3, 8, 64, 100, 512, 4096)), rng.choice((64, 130, 1000, 4096, 25600))
    steps: tuple[Callable[[Any], Any], ...] = (
        lambda x: x * x + 1,
        torch.exp,
        lambda x: x - x.amax(-1, keepdim=True),
        lambda x: x / (1 + x.abs().sum(-1, keepdim=True)),
        lambda x: x * x[:1],
        lambda x: x.sum(0, keepdim=True),
    )
    chosen = [rng.choice(steps) for _ in range(rng.randint(1, 4))]
    return Case(lambda x: functools.reduce(lambda value, step: step(value), chosen, x), (shape,))


@benchmark(ratio_geomean=1.01, ratio_max=1.05)
def exhaustive(only: str = "", seeds: str = "20", bound: str = "200") -> Metrics:
    """Predicted times of small programs over the least time of their enumerated plans, on 32 cores.

    A plan is a combination of divisions of the operations, layouts of arguments and loops; the compiler places its
    buffers, and the timeline of its bundle is its price. ``--bound`` limits the plans of a program: above it, plans
    with alike divisions come first, then changes of one choice of the best plan so far. ``priced`` and ``points`` are
    the numbers of priced plans and of all plans. ``--only`` is a part of a name; ``--seeds`` is the number of random
    programs. Notes name the choices that differ.
    """
    names = [name for name in (*programs(), *(f"seed {seed}" for seed in range(int(seeds)))) if only in name]
    metrics: dict[str, float] = {}
    notes: list[str] = [f"at most {bound} plans of each program"]
    for name in names:
        row, differing = apart(priced, name, int(bound))
        metrics |= {f"{name}.{column}": value for column, value in row.items()}
        notes += [f"{name}: {text}" for text in differing]
        print(
            f"{name}: {row['ours_us']:.2f} {row['optimum_us']:.2f} {row['ratio']:.3f}", *differing, flush=True
        )
    ratios = [metrics[f"{name}.ratio"] for name in names]
    geomean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) if ratios else 1.0
    return Noted({**metrics, "ratio_geomean": geomean, "ratio_max": max(ratios, default=1.0)}, notes, COLUMNS)


def priced(name: str, bound: int) -> tuple[dict[str, float], list[str]]:
    """Return the figures of a program by column, and the choices in which the best plan differs from ours."""
    import torch

    import spyre_mlir
    from spyre_mlir.errors import CompileError

    case = random_program(int(name.split()[1])) if name.startswith("seed ") else programs()[name]
    inputs = tuple(torch.empty(shape, dtype=torch.float16) for shape in case.shapes)
    ours = spyre_mlir.compile(case.function, inputs)
    space = _every_division(ours)
    best, least = dict[str, int](), ours.metrics()["predicted_us"]
    known: dict[tuple[tuple[str, int], ...], float] = {(): least}

    def price(point: Mapping[str, int]) -> float:
        key = tuple(sorted(point.items()))
        if key not in known:
            try:
                options, plan = space.call(point)
                program = spyre_mlir.compile(case.function, inputs, plan=plan, **options)
                known[key] = program.metrics()["predicted_us"]
            except CompileError:
                known[key] = math.inf
        return known[key]

    sizes = {parameter: len(choices) for parameter, choices in space.parameters().items()}
    points = math.prod(size + 1 for size in sizes.values())
    proposals = _all(sizes) if points <= bound else _alike(space)
    improved = True
    while improved:
        improved = False
        for point in proposals:
            if len(known) > bound:
                break
            if (us := price(point)) < least:
                best, least, improved = dict(point), us, True
        proposals = _neighbours(best, sizes) if points > bound and len(known) <= bound else iter(())
    row = {
        "ours_us": known[()],
        "optimum_us": least,
        "ratio": known[()] / least,
        "priced": len(known),
        "points": points,
    }
    return row, [space.text(parameter, number) for parameter, number in best.items()]


def _every_division(program: Any) -> TuningSpace:
    """Return the choices of a tuning without options, and with every legal division, the cheapest first."""
    import numpy as np

    from spyre_mlir.analysis.aliasing import functions
    from spyre_mlir.analysis.kept_usage import usage_of
    from spyre_mlir.dialects import sdsc
    from spyre_mlir.dialects.targets import target_of
    from spyre_mlir.division_search.work_division import SplitTable
    from spyre_mlir.experiments.tuning import TuningSpace, module_at
    from spyre_mlir.pipelines import SpyrePipeline
    from spyre_mlir.rewriting.divider import blocked_dims

    space, divisions = TuningSpace.of(program), {}
    module = module_at(program, SpyrePipeline(), "divided")
    with module.context:
        cores = target_of(module.operation).cores
        for func in functions(module.operation):
            for user in usage_of(func).ops:
                name, units = sdsc.name_of(user.op), user.space.units
                if name is None or not units:
                    continue
                limits = cores, (1,) * len(units), blocked_dims(user.op), not user.space.symbolic
                table = SplitTable.of_space(user.opcode, user.space, *limits)
                order = np.argsort(table.cost_ns, kind="stable")
                divisions[name] = [{"slices": row} for row in table.splits[order].tolist()]
    return replace(space, divisions=divisions, options={})


def _all(sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Yield every combination of choices."""
    for numbers in itertools.product(*(range(-1, size) for size in sizes.values())):
        yield {name: number for name, number in zip(sizes, numbers, strict=True) if number >= 0}


def _alike(space: TuningSpace) -> Iterator[dict[str, int]]:
    """Yield a point for each division: all operations that can have the division have it."""
    by_slices: dict[tuple[int, ...], dict[str, int]] = {}
    for ranks in itertools.zip_longest(*(_numbered(name, all_) for name, all_ in space.divisions.items())):
        for parameter, number, slices in filter(None, ranks):
            by_slices.setdefault(slices, {})[parameter] = number
    yield from by_slices.values()


def _numbered(name: str, choices: Sequence[Any]) -> list[tuple[str, int, tuple[int, ...]]]:
    return [(f"divide {name}", number, tuple(choice["slices"])) for number, choice in enumerate(choices)]


def _neighbours(point: Mapping[str, int], sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Yield the points that differ in one choice, the first choices of all parameters first."""
    for number in range(-1, max(sizes.values(), default=0)):
        for name, size in sizes.items():
            if number < size and point.get(name, -1) != number:
                changed = {**point, name: number}
                yield {key: value for key, value in changed.items() if value >= 0}
