# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The base test suite for any algorithm: ``checks_of`` returns the checks of a class, for pytest or for direct calls.

    @pytest.mark.parametrize("check", checks_of(MyDivision), ids=str)
    def test_my_division(check):
        check.run()

The checks: an answer is legal, deterministic, computed in bounded time and does not modify the problem; the algorithm
pickles; programs compiled with the algorithm compute the same results as the host.
"""

from __future__ import annotations

import contextlib
import functools
import math
import pickle
import random
import signal
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from spyre_mlir.algorithms import REGISTRIES, Algorithm
from spyre_mlir.cost.replaced_model import CostModel
from spyre_mlir.cost.work import OperandWork, OperationWork
from spyre_mlir.dialects import context, parsed
from spyre_mlir.division.slices import legal_splits
from spyre_mlir.division_search.joint_choice import JointDivider, JointProblem, JointTable
from spyre_mlir.division_search.work_division import DivisionOfOperation, SplitTable, WorkDivision
from spyre_mlir.driver.checking import compare, random_arguments
from spyre_mlir.driver.compilation import compile_mlir
from spyre_mlir.driver.problem_files import problem_text
from spyre_mlir.host import HostEvaluator
from spyre_mlir.layout_search.layout_choice import LayoutChoice, LayoutProblem
from spyre_mlir.problems import Problems, collecting
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad import MemoryPlanSolver
from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace, PlanError
from spyre_mlir.scratchpad.check import check_plan
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.target.target import packaged_target
from spyre_mlir.tiling.tiling_choice import TilingCandidate, TilingChoice, TilingProblem

# Seeded random problems for each kind of algorithm: small problems, including edge cases.

_TARGET = packaged_target()

#: The limits of entries and width in random layout problems.
_ENTRIES, _WIDTH = 1 << 16, 50


def random_buffers(seed: int) -> tuple[tuple[LifetimeBoundBuffer, ...], MemorySpace]:
    """Return buffers with live ranges that compete for a memory; seed 0 has no buffers."""
    rng = random.Random(seed)
    buffers: list[LifetimeBoundBuffer] = []
    for index in range(rng.randrange(1, 40) if seed else 0):
        first, last = sorted(rng.sample(range(30), 2))
        parents = [b.name for b in buffers if b.uses[-1] == first and rng.random() < 0.5]
        size = rng.randrange(1, 64) * rng.choice((1, _TARGET.stick_bytes))
        buffers.append(LifetimeBoundBuffer(str(index), size, (first, last), rng.random() < 0.3, parents[:1]))
    return tuple(buffers), MemorySpace(rng.choice((0, 4096, 16384, 1 << 20)), _TARGET.stick_bytes)


def random_division(seed: int) -> DivisionOfOperation:
    """Return an operation of one to four dims, some of them committed or blocked."""
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
    """Return a graph of tensors in which some states are incompatible; at least one choice is possible."""
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
            tables[scope] = _random_costs(numbers, [counts[v] for v in scope], [possible[v] for v in scope])
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
            planes[0] = _random_costs(numbers, planes.shape[1:], (0, 0))
            tables.append(JointTable((index, variable), index, planes))
    splits = tuple(tuple((1 + state,) for state in range(count)) for count in candidates)
    return JointProblem(counts, (*(1 for _ in candidates), *placements), splits, tuple(tables))


def _random_costs(
    numbers: np.random.Generator, shape: list[int] | tuple[int, ...], possible: list[int] | tuple[int, ...]
):
    """Return costs of which a fifth is infinite, except for the cost of one possible choice."""
    costs = numbers.integers(0, 10_000, shape).astype(float)
    costs[numbers.random(shape) < 0.2] = math.inf
    costs[tuple(possible)] = 5000.0
    return costs


def random_tiling(seed: int) -> TilingProblem:
    """Return candidates of which some cannot be compiled; if tiling is required (span), at least one can."""
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
        times.__getitem__,
    )  # fmt: skip


def random_operations(seed: int) -> Iterator[OperationWork]:
    """Yield the work of an operation on the array or the vector unit, and the same work on twice as many cores."""
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


#: Maximum seconds for a problem, and for a program.
_MOST_SECONDS, _MOST_PROGRAM_SECONDS = 20, 120


class CheckFailure(AssertionError):
    """A failed check: a property that an algorithm does not have; the text is a sentence."""


class _OutOfTime(BaseException):
    """The time limit of a check; a ``BaseException``, so that user code does not catch it as an ``Exception``."""


@dataclass(frozen=True)
class Check:
    """One check of an algorithm.

    Attributes:
        name: The property that is checked.
        run: Run the check; raises ``CheckFailure``, or the ``CompileError`` of the algorithm.
    """

    name: str
    run: Callable[[], None]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class ProblemTask:
    """A problem for an algorithm: ``solve`` returns the checked answer, ``describe`` the state of the problem."""

    problem: Any
    solve: Callable[[Any, Any], Any]
    describe: Callable[[Any], Any]


def checks_of(cls: type[Algorithm], seeds: int = 30, saved: Sequence[Any] = ()) -> list[Check]:
    """Return the checks of an algorithm: random problems, saved problems, problems of programs, and programs.

    Args:
        cls: The class of the algorithm.
        seeds: The number of seeds for random problems.
        saved: Problems from ``read_problem``; problems of other kinds are skipped.
    """
    kind = next(kind for kind in _RANDOM if issubclass(cls, kind))
    made = [_RANDOM[kind](seed) for seed in range(seeds)]
    problems = [
        part for each in made for part in (each if isinstance(each, types.GeneratorType) else (each,))
    ]
    random_tasks, saved_tasks = _tasks(kind, problems), _tasks(kind, saved)
    checks = [
        Check("pickles", lambda: _pickles(cls)),
        Check(f"{len(random_tasks)} random problems", lambda: _solve(cls, random_tasks)),
    ]
    if saved_tasks:
        checks.append(Check(f"{len(saved_tasks)} saved problems", lambda: _solve(cls, saved_tasks)))
    if kind in _COLLECTED:
        checks.append(Check("problems of programs", lambda: _solve(cls, _tasks_of_programs(kind))))
    return checks + [Check(f"program '{name}'", lambda name=name: _run(cls, name)) for name in PROGRAMS]


# -- properties ----------------------------------------------------------------------------------------


def _pickles(cls: type[Algorithm]) -> None:
    try:
        pickle.loads(pickle.dumps(cls()))
    except Exception as error:
        raise CheckFailure(f"It does not pickle: {type(error).__name__}: {error}.") from None


def _solve(cls: type[Algorithm], tasks: Sequence[ProblemTask]) -> None:
    for number, task in enumerate(tasks):
        with _limited(_MOST_SECONDS, f"problem {number}"):
            before = task.describe(task.problem)
            # A new instance each time, so that no state is left over from the previous answer.
            answers = [task.solve(cls(), task.problem) for _ in range(2)]
        if answers[0] != answers[1]:
            raise CheckFailure(f"It is not deterministic: the answers to problem {number} differ.")
        if task.describe(task.problem) != before:
            raise CheckFailure(f"It changes problem {number}, which it must not modify.")


@contextlib.contextmanager
def _limited(seconds: int, what: str) -> Iterator[None]:
    """Context that fails after a number of ``seconds``; without limit if signals are unavailable."""
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, frame: types.FrameType | None) -> None:
        raise _OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    except _OutOfTime:
        raise CheckFailure(f"It takes more than {seconds} s for {what}.") from None
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# -- problems ------------------------------------------------------------------------------------------


def _place(solver: MemoryPlanSolver, problem: Any) -> Any:
    buffers, space = problem
    plan = solver.plan(buffers, space)
    try:
        check_plan(buffers, space, plan)
    except PlanError as error:
        raise CheckFailure(str(error)) from None
    return plan


def _describe_buffers(problem: Any) -> bytes:
    instance = Instance.of(*problem)
    return b"".join(
        array.tobytes() for array in (instance.starts, instance.ends, instance.sizes, instance.savings)
    )


def _costs(model: CostModel, work: Any) -> list[float]:
    parts = [model.evaluate(part, work) for part in ("compute_ns", "memory_ns", "ring_ns")]
    streams = [model.evaluate("stream_ns", work, operand) for operand in work.operands]
    moving = [time for time, operand in zip(streams, work.operands, strict=True) if not operand.in_lx]
    if sum(moving) > parts[1] * (1 + 1e-9):
        raise CheckFailure(
            f"The streams of '{work.opcode}' take {sum(moving)} ns, its memory_ns only {parts[1]}."
        )
    slowdowns = [model.evaluate("burst_slowdown", work, operand) for operand in work.operands]
    return [*parts, *streams, *slowdowns]


def _tasks(kind: type[Algorithm], problems: Sequence[Any]) -> list[ProblemTask]:
    if kind is MemoryPlanSolver:
        pairs = (problem for problem in problems if isinstance(problem, tuple))
        return [ProblemTask(problem, _place, _describe_buffers) for problem in pairs]
    if kind is CostModel:
        return [ProblemTask(problem, _costs, repr) for problem in problems]
    problem_type, method = {
        WorkDivision: (DivisionOfOperation, "splits"), LayoutChoice: (LayoutProblem, "minimum"),
        JointDivider: (JointProblem, "solve"), TilingChoice: (TilingProblem, "index"),
    }[kind]  # fmt: skip

    def solve(algorithm: Any, problem: Any) -> Any:
        """Call the method by its name, which finds an overridden method, as in the compiler."""
        return getattr(algorithm, method)(problem)

    text = repr if kind is TilingChoice else problem_text
    return [ProblemTask(problem, solve, text) for problem in problems if type(problem) is problem_type]


#: Functions from a seed to a random problem, or to several, by kind.
_RANDOM: dict[type[Algorithm], Callable[[int], Any]] = {
    MemoryPlanSolver: random_buffers, WorkDivision: random_division, LayoutChoice: random_layouts,
    JointDivider: random_joint, TilingChoice: random_tiling, CostModel: random_operations,
}  # fmt: skip

#: Kinds whose problems a compilation collects, with the name under which they are collected.
_COLLECTED: dict[type[Algorithm], str] = {
    MemoryPlanSolver: "buffers", WorkDivision: "division", LayoutChoice: "layout", JointDivider: "joint",
}  # fmt: skip


def _tasks_of_programs(kind: type[Algorithm]) -> list[ProblemTask]:
    """Return the problems that the compiler's own algorithms receive for the programs."""
    problems = Problems()
    for text, options in PROGRAMS.values():
        with collecting(problems):
            compile_mlir(text, cache=False, **options)
    kinds = [problem for of in problems.by_bundle.values() for problem in of.get(_COLLECTED[kind], ())]
    return _tasks(kind, kinds)


# -- programs ------------------------------------------------------------------------------------------


def _run(cls: type[Algorithm], name: str) -> None:
    """Compile a program twice with an algorithm, run it on the byte-level simulator, and compare with the host."""
    text, options = PROGRAMS[name]
    option = next(option for option, registry in REGISTRIES.items() if registry is cls.registry)
    with _limited(_MOST_PROGRAM_SECONDS, f"program '{name}'"):
        keywords = {**options, option: cls.name, "cache": False, "verify_each": True, "fallback": False}
        program, again = (compile_mlir(text, **keywords) for _ in range(2))
        if str(program.module) != str(again.module):
            raise CheckFailure(f"It is not deterministic: two compilations of '{name}' differ.")
        arguments = random_arguments(program.arguments)
        references = HostEvaluator(parsed(text, context()).operation)(*arguments.values())
        outputs = program.run(arguments)
        wrong = [
            str(row)
            for row in compare(program.results, outputs, references, program.numerics)
            if not row.passed
        ]
    if wrong:
        raise CheckFailure(f"The program '{name}' computes something else: {'; '.join(wrong)}.")


_PROJECTION = """
func.func @main(%x: tensor<64x256xf16>, %w: tensor<256x512xf16>) -> tensor<64x512xf16> {
  %e = tensor.empty() : tensor<64x512xf16>
  %zero = arith.constant 0.0 : f16
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<64x512xf16>) -> tensor<64x512xf16>
  %m = linalg.matmul ins(%x, %w : tensor<64x256xf16>, tensor<256x512xf16>)
      outs(%f : tensor<64x512xf16>) -> tensor<64x512xf16>
  %y = linalg.tanh ins(%m : tensor<64x512xf16>) outs(%e : tensor<64x512xf16>) -> tensor<64x512xf16>
  return %y : tensor<64x512xf16>
}
"""

_ROWS = """
func.func @main(%x: tensor<96x192xf16>) -> tensor<96x192xf16> {
  %e = tensor.empty() : tensor<96x192xf16>
  %r = tensor.empty() : tensor<96xf16>
  %zero = arith.constant 0.0 : f16
  %a = linalg.tanh ins(%x : tensor<96x192xf16>) outs(%e : tensor<96x192xf16>) -> tensor<96x192xf16>
  %f = linalg.fill ins(%zero : f16) outs(%r : tensor<96xf16>) -> tensor<96xf16>
  %s = linalg.reduce { arith.addf } ins(%a : tensor<96x192xf16>) outs(%f : tensor<96xf16>) dimensions = [1]
  %b = linalg.broadcast ins(%s : tensor<96xf16>) outs(%e : tensor<96x192xf16>) dimensions = [1]
  %y = linalg.sub ins(%a, %b : tensor<96x192xf16>, tensor<96x192xf16>)
      outs(%e : tensor<96x192xf16>) -> tensor<96x192xf16>
  return %y : tensor<96x192xf16>
}
"""

#: A program with intermediates that do not fit, so that they are tiled.
_CHAIN = """
func.func @main(%x: tensor<1024x1024xf16>) -> tensor<1024x1024xf16> {
  %e = tensor.empty() : tensor<1024x1024xf16>
  %a = linalg.exp ins(%x : tensor<1024x1024xf16>) outs(%e : tensor<1024x1024xf16>) -> tensor<1024x1024xf16>
  %b = linalg.tanh ins(%a : tensor<1024x1024xf16>) outs(%e : tensor<1024x1024xf16>) -> tensor<1024x1024xf16>
  %c = linalg.mul ins(%a, %b : tensor<1024x1024xf16>, tensor<1024x1024xf16>)
      outs(%e : tensor<1024x1024xf16>) -> tensor<1024x1024xf16>
  %d = linalg.add ins(%c, %b : tensor<1024x1024xf16>, tensor<1024x1024xf16>)
      outs(%e : tensor<1024x1024xf16>) -> tensor<1024x1024xf16>
  return %d : tensor<1024x1024xf16>
}
"""

#: Programs by name, each with options that leave many decisions open.
PROGRAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "projection": (_PROJECTION, {}),
    "rows": (_ROWS, {"sencores": 6}),
    "chain": (_CHAIN, {"lx_frac_avail": 0.95}),
}
