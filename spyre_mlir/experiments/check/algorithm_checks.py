# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The base test suite of algorithms, for those of anybody: ``checks_of`` a class, each to be run by pytest or alone.

    @pytest.mark.parametrize("check", checks_of(MyDivision), ids=str)
    def test_my_division(check):
        check.run()

An answer has to be legal, the same for the same problem, leave the problem as it was and come in bounded time; the
algorithm pickles; programs that it decides about compute what the host does.
"""

from __future__ import annotations

import contextlib
import pickle
import signal
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from spyre_mlir.algorithms import REGISTRIES, Algorithm
from spyre_mlir.cost.replaced_model import CostModel
from spyre_mlir.dialects import context, parsed
from spyre_mlir.division_search.joint_choice import JointDivider
from spyre_mlir.division_search.work_division import WorkDivision
from spyre_mlir.driver.checking import compare, random_arguments
from spyre_mlir.driver.compilation import compile
from spyre_mlir.driver.problem_files import problem_text
from spyre_mlir.experiments.check import random_problems
from spyre_mlir.host import HostEvaluator
from spyre_mlir.layout_search.layout_choice import LayoutChoice
from spyre_mlir.problems import Problems, collecting
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad import MemoryPlanSolver
from spyre_mlir.scratchpad.buffers import PlanError
from spyre_mlir.scratchpad.check import check_plan
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.tiling.tiling_choice import TilingChoice

#: Seconds of a problem at most, and of a program.
_MOST_SECONDS, _MOST_PROGRAM_SECONDS = 20, 120


class CheckFailure(AssertionError):
    """A property that an algorithm lacks; the text is a sentence."""


class _OutOfTime(BaseException):
    """The end of the time of a check: no code of a user catches it as an ``Exception``."""


@dataclass(frozen=True)
class Check:
    """One check of an algorithm.

    Attributes:
        name: What is checked.
        run: It raises ``CheckFailure``, or the ``CompileError`` of the algorithm.
    """

    name: str
    run: Callable[[], None]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class ProblemTask:
    """A problem for an algorithm: ``solve`` gives the checked answer, ``describe`` the problem as it is now."""

    problem: Any
    solve: Callable[[Any, Any], Any]
    describe: Callable[[Any], Any]


def checks_of(cls: type[Algorithm], seeds: int = 30, saved: Sequence[Any] = ()) -> list[Check]:
    """Return the checks of an algorithm: random problems, saved ones, those of programs, programs.

    Args:
        cls: The class of the algorithm.
        seeds: The number of random problems of each form.
        saved: Problems of ``read_problem``; those of other kinds are left out.
    """
    kind = next(kind for kind in _TASKS if issubclass(cls, kind))
    random_tasks = [task for seed in range(seeds) for task in _TASKS[kind](seed)]
    saved_tasks = [task for problem in saved if (task := _task_of(kind, problem)) is not None]
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
            # Another object each time: nothing may be left over from an answer before.
            answers = [task.solve(cls(), task.problem) for _ in range(2)]
        if answers[0] != answers[1]:
            raise CheckFailure(f"It is not deterministic: the answers to problem {number} differ.")
        if task.describe(task.problem) != before:
            raise CheckFailure(f"It changes problem {number}, which is of others, too.")


@contextlib.contextmanager
def _limited(seconds: int, what: str) -> Iterator[None]:
    """Context that ends with a failure after so many seconds, where signals can be had."""
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


def _task_of(kind: type[Algorithm], problem: Any) -> ProblemTask | None:
    """Return the task of a problem; None if it is not one of the kind."""
    text = repr if kind in (CostModel, TilingChoice) else problem_text
    if kind is MemoryPlanSolver:
        return ProblemTask(problem, _place, _describe_buffers) if isinstance(problem, tuple) else None
    if kind is CostModel:
        return ProblemTask(problem, _costs, text)
    solve = {
        WorkDivision: WorkDivision.splits,
        LayoutChoice: LayoutChoice.minimum,
        JointDivider: JointDivider.solve,
        TilingChoice: TilingChoice.index,
    }[kind]
    names = {
        WorkDivision: "DivisionOfOperation", LayoutChoice: "LayoutProblem", JointDivider: "JointProblem",
        TilingChoice: "TilingProblem",
    }  # fmt: skip
    # Not that of the base: one that an algorithm has overridden is what the compiler calls.
    call = lambda algorithm, asked: getattr(algorithm, solve.__name__)(asked)  # noqa: E731
    return ProblemTask(problem, call, text) if type(problem).__name__ == names[kind] else None


def _tasks(kind: type[Algorithm], make: Callable[[int], Any], seed: int) -> Iterator[ProblemTask]:
    problem = make(seed)
    for part in problem if isinstance(problem, types.GeneratorType) else (problem,):
        task = _task_of(kind, part)
        assert task is not None
        yield task


def _maker(kind: type[Algorithm], make: Callable[[int], Any]) -> Callable[[int], Iterator[ProblemTask]]:
    return lambda seed: _tasks(kind, make, seed)


#: What makes the random tasks of a seed.
_TASKS: dict[type[Algorithm], Callable[[int], Iterator[ProblemTask]]] = {
    kind: _maker(kind, make)
    for kind, make in (
        (MemoryPlanSolver, random_problems.random_buffers),
        (WorkDivision, random_problems.random_division),
        (LayoutChoice, random_problems.random_layouts),
        (JointDivider, random_problems.random_joint),
        (TilingChoice, random_problems.random_tiling),
        (CostModel, random_problems.random_works),
    )
}

#: Kinds whose problems a compilation tells, and by which name.
_COLLECTED: dict[type[Algorithm], str] = {
    MemoryPlanSolver: "buffers", WorkDivision: "division", LayoutChoice: "layout", JointDivider: "joint",
}  # fmt: skip


def _tasks_of_programs(kind: type[Algorithm]) -> list[ProblemTask]:
    """Return the problems that the compiler's own algorithms get for the programs."""
    problems = Problems()
    for text, options in PROGRAMS.values():
        with collecting(problems):
            compile(text, cache=False, **options)
    kinds = [problem for of in problems.by_bundle.values() for problem in of.get(_COLLECTED[kind], ())]
    return [task for problem in kinds if (task := _task_of(kind, problem)) is not None]


# -- programs ------------------------------------------------------------------------------------------


def _run(cls: type[Algorithm], name: str) -> None:
    """Compile a program with an algorithm, twice, run it on the simulator of bytes, and compare with the host."""
    text, options = PROGRAMS[name]
    option = next(option for option, registry in REGISTRIES.items() if registry is cls.registry)
    with _limited(_MOST_PROGRAM_SECONDS, f"program '{name}'"):
        keywords = {**options, option: cls.name, "cache": False, "verify_each": True, "fallback": False}
        program, again = (compile(text, **keywords) for _ in range(2))
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

#: Intermediates that do not fit, of which tiles are made.
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

#: Programs by name, each with options that leave much to decide.
PROGRAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "projection": (_PROJECTION, {}),
    "rows": (_ROWS, {"sencores": 6}),
    "chain": (_CHAIN, {"lx_frac_avail": 0.95}),
}
