# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Seeded random problems of each kind of algorithm: small ones, the edges among them."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from spyre_mlir.cost.work import OperandWork, OperationWork
from spyre_mlir.division.slices import legal_splits
from spyre_mlir.division_search.joint_choice import JointProblem, JointTable
from spyre_mlir.division_search.work_division import DivisionOfOperation, SplitTable
from spyre_mlir.layout_search.layout_choice import LayoutProblem
from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace
from spyre_mlir.target.target import packaged_target
from spyre_mlir.tiling.tiling_choice import TilingCandidate, TilingProblem

_TARGET = packaged_target()

#: A sum that eliminations of random problems stay below.
_ENTRIES, _WIDTH = 1 << 16, 50


def random_buffers(seed: int) -> tuple[tuple[LifetimeBoundBuffer, ...], MemorySpace]:
    """Return buffers with live ranges that compete for a memory; none at the first seed."""
    rng = random.Random(seed)
    buffers: list[LifetimeBoundBuffer] = []
    for index in range(rng.randrange(1, 40) if seed else 0):
        first, last = sorted(rng.sample(range(30), 2))
        parents = [b.name for b in buffers if b.uses[-1] == first and rng.random() < 0.5]
        size = rng.randrange(1, 64) * rng.choice((1, _TARGET.stick_bytes))
        buffers.append(LifetimeBoundBuffer(str(index), size, (first, last), rng.random() < 0.3, parents[:1]))
    return tuple(buffers), MemorySpace(rng.choice((0, 4096, 16384, 1 << 20)), _TARGET.stick_bytes)


def random_division(seed: int) -> DivisionOfOperation:
    """Return an operation of one to four dims, with committed and blocked ones."""
    rng = random.Random(seed)
    dims = rng.randrange(1, 5)
    units = tuple(rng.choice((1, 2, 3, 5, 8, 12, 24, 64, 100)) for _ in range(dims))
    cores, uneven = rng.choice((1, 2, 8, _TARGET.cores)), rng.random() < 0.3
    reduced = frozenset({dims - 1} if dims > 1 and rng.random() < 0.5 else ())
    committed = [1] * dims
    if rng.random() < 0.3 and units[0] % 2 == 0 and cores > 1:
        committed[0] = 2
    blocked = frozenset({rng.randrange(dims)} if rng.random() < 0.3 else ())
    table = functools.partial(_split_table, units, cores, tuple(committed), blocked, uneven, seed)
    return DivisionOfOperation(
        rng.choice(("add", "sum", "batchmatmul")), units, tuple(64 * count for count in units), reduced,
        tuple(committed), blocked, cores, uneven, rng.random() < 0.5, table,
    )  # fmt: skip


def _split_table(
    units: tuple[int, ...],
    cores: int,
    committed: tuple[int, ...],
    blocked: frozenset[int],
    uneven: bool,
    seed: int,
) -> SplitTable:
    splits = legal_splits(units, cores, committed, blocked, uneven).T.copy()
    cost = math.prod(units) * 10.0 / splits.prod(axis=1) + np.random.default_rng(seed).integers(
        0, 100, len(splits)
    )
    arrays = splits, cost, cost / 2
    for array in arrays:
        array.setflags(write=False)
    return SplitTable(*arrays)


def random_layouts(seed: int) -> LayoutProblem:
    """Return tensors in a graph, of which some states do not go together; one choice always is possible."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    counts = tuple(rng.randrange(1, 6) for _ in range(rng.randrange(1, 14)))
    possible = [rng.randrange(count) for count in counts]
    tables = {}
    for variable, count in enumerate(counts):
        if count == 1:
            continue
        scopes = [(variable,)]
        scopes += [(other, variable) for other in range(variable) if counts[other] > 1 and rng.random() < 0.3]
        for scope in scopes:
            tables[scope] = _costs(numbers, [counts[v] for v in scope], [possible[v] for v in scope])
    return LayoutProblem(counts, tables, ("",) * len(counts), _ENTRIES, _WIDTH)


def random_joint(seed: int) -> JointProblem:
    """Return operations in a chain, with a buffer between neighbours."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    operations = rng.randrange(1, 8)
    candidates = [rng.randrange(1, 6) for _ in range(operations)]
    placements = [rng.randrange(1, 5) for _ in range(operations - 1)]
    counts = (*candidates, *placements)
    tables = [
        JointTable((index,), index, numbers.integers(0, 1000, (3, count)).astype(float))
        for index, count in enumerate(candidates)
    ]
    for buffer in range(operations - 1):
        variable = operations + buffer
        for index in (buffer, buffer + 1):
            planes = np.zeros((3, counts[index], counts[variable]))
            planes[0] = _costs(numbers, planes.shape[1:], (0, 0))
            tables.append(JointTable((index, variable), index, planes))
    splits = tuple(tuple((1 + state,) for state in range(count)) for count in candidates)
    return JointProblem(counts, (*(1 for _ in candidates), *placements), splits, tuple(tables))


def _costs(
    numbers: np.random.Generator, shape: list[int] | tuple[int, ...], possible: list[int] | tuple[int, ...]
):
    """Return costs of which a fifth is infinite, but not that of a possible choice."""
    costs = numbers.integers(0, 10_000, shape).astype(float)
    costs[numbers.random(shape) < 0.2] = math.inf
    costs[tuple(possible)] = 5000.0
    return costs


def random_tiling(seed: int) -> TilingProblem:
    """Return candidates of which some cannot be compiled; one out of reach always has one that can."""
    rng = random.Random(seed)
    purpose = rng.choice(("span", "lx"))
    counts = sorted(rng.sample(range(2, 64), rng.randrange(1, 8)))
    candidates = tuple(TilingCandidate(rng.randrange(1, 9), ((rng.randrange(2), count),)) for count in counts)
    times = [None if rng.random() < 0.3 else float(rng.randrange(1, 1000)) for _ in candidates]
    untiled = float(rng.randrange(1, 1000))
    if purpose == "span":
        times[-1] = 500.0
    return TilingProblem(
        purpose, "add", (4096, 4096), 1 << 22, 1 << 20, candidates, times.__getitem__,
        lambda _: untiled if purpose == "lx" else None, lambda index: index % 2 == 0,
    )  # fmt: skip


def random_works(seed: int) -> Iterator[OperationWork]:
    """Yield the work of an operation, of the array or of the vector unit, and again on twice as many cores."""
    rng = random.Random(seed)
    on_array = rng.random() < 0.5
    cores, size = rng.choice((1, 2, 4, 8, 16)), rng.choice((_TARGET.stick_bytes, 4096, 1 << 20, 1 << 26))
    operands = tuple(
        OperandWork(
            writes, size, -(-size // cores), rng.choice((1, 1, cores)), min(size, 4096), rng.random() < 0.3
        )
        for writes in (False, False, True)
    )
    work = OperationWork(
        _TARGET, "batchmatmul" if on_array else "add", cores,
        sticks_per_core=0 if on_array else size // _TARGET.stick_bytes // cores,
        multiply_adds_per_core=size * 64 // cores if on_array else 0, rows_per_core=64 if on_array else 0,
        parts=rng.choice((1, 1, 2)), outputs_per_core=size // 2 // cores, results=size // 2, broadcast=False,
        operands=operands,
    )  # fmt: skip
    yield work
    yield replace(work, cores=2 * cores)
