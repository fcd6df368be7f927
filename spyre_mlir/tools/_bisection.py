# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bisection of spyre-opt: the pass and the options without which a program does not show a fault.

A fault is a difference between the simulator and the CPU, or a metric above a limit. Where the IR between passes can
be evaluated on the CPU, a binary search finds the first pass after which its numbers differ. Later passes are left out
one by one; a pass without which the program compiles and has no fault causes it or lets a later pass cause it.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from spyre_mlir import logs
from spyre_mlir.bundle import write_bundle
from spyre_mlir.dialects import parsed
from spyre_mlir.driver.checking import compare, random_arguments
from spyre_mlir.driver.program import Program
from spyre_mlir.errors import CompileError, with_suggestion
from spyre_mlir.experiments.reduction import smallest
from spyre_mlir.host import HostEvaluator
from spyre_mlir.lowering.export import export
from spyre_mlir.mlir import ir
from spyre_mlir.options import show_value
from spyre_mlir.passes.decompose_softmax import DecomposeSoftmax
from spyre_mlir.pipelines import Pipeline, SpyrePipeline, run_pipeline
from spyre_mlir.pipelines.pipeline_options import PRESETS
from spyre_mlir.pipelines.printing import Observer
from spyre_mlir.pipelines.text import PipelineStep
from spyre_mlir.remarks import Remarks

#: The check that compares with the CPU.
SIMULATOR = "simulator"

_LIMIT = re.compile(r"(\w+)\s*>\s*([-+.\de]+)")


def bisection(module: ir.Operation, text: str, check: str) -> Iterator[str]:
    """Yield the lines of the report on a pipeline with the options ``text``; ``check`` is --bisect's value.

    Raises:
        CompileError: The check is not known, or the program does not have the fault.
    """
    search = _Bisection(module, check)
    pipeline = SpyrePipeline.parse(text)
    fault = search.fault_of(pipeline.pipeline())
    if fault is None:
        raise CompileError(f"The program does not have the fault '{check}', so there is nothing to bisect.")
    yield f"fault: {fault}"
    yield from search.passes(pipeline.pipeline())
    yield from search.options(pipeline)


class _Texts(Observer):
    """The IR after each pass, as text."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def passed(self, step: PipelineStep, operation: ir.Operation) -> None:
        self.texts.append(str(operation.get_asm(enable_debug_info=True)))


class _Bisection:
    def __init__(self, module: ir.Operation, check: str) -> None:
        self._text, self._context = str(module.get_asm(enable_debug_info=True)), module.context
        limit = _LIMIT.fullmatch(check.strip())
        if check != SIMULATOR and limit is None:
            raise CompileError(
                f"--bisect takes '{SIMULATOR}' or a limit such as 'total_us>90', not '{check}'."
            )
        self._metric, self._limit = (limit[1], float(limit[2])) if limit else ("", 0.0)

    def fault_of(self, pipeline: Pipeline) -> str | None:
        """Return a sentence about the fault of the compiled program; None without it."""
        return self._fault_after(self._text, pipeline)

    def passes(self, pipeline: Pipeline) -> Iterator[str]:
        """Yield lines that name the passes."""
        begin, text, steps = 0, self._text, pipeline.steps
        if not self._metric:
            texts = _Texts()
            self._run(self._parsed(text), pipeline, [texts])
            wrong = self._first_wrong(texts.texts)
            if wrong is not None:
                number = f"number {wrong + 1} of {len(steps)}"
                yield f"pass: {steps[wrong]} ({number}); the numbers differ after it, on the CPU"
                return
            begin = self._evaluated(texts.texts)
            text = texts.texts[begin - 1] if begin else text
            yield f"passes 1 to {begin} keep the numbers" if begin else "no pass can be evaluated by itself"
        found = []
        for index, step in enumerate(steps[begin:], begin):
            logs.show_progress(f"bisect: without {step.name} ({index + 1} of {len(steps)})")
            if step.name.startswith("verify-"):
                continue
            try:
                rest = Pipeline(steps[begin:index] + steps[index + 1 :])
                if self._fault_after(text, rest) is None:
                    found.append(f"pass: {step} (number {index + 1} of {len(steps)}); the fault needs it")
            # The pipeline needs the pass: without it no program results.
            except Exception:
                continue
        logs.clear_progress()
        yield from found or ["pass: none can be left out alone such that the fault vanishes"]

    def options(self, pipeline: SpyrePipeline) -> Iterator[str]:
        """Yield lines about the options: the given ones that the fault needs, and others that remove it."""
        given = pipeline.changed()
        needed = smallest(list(given), lambda names: self._is_faulty({name: given[name] for name in names}))
        if given:
            texts = [f"{name}={show_value(given[name])}" for name in needed]
            yield f"options that the fault needs: {' '.join(texts) or 'none of those given'}"
        for name, value in {**PRESETS["seed"], "lx_planning": False}.items():
            if name not in given:
                logs.show_progress(f"bisect: {name}={show_value(value)}")
                if not self._is_faulty({**given, name: value}, refused=True):
                    yield f"no fault with {name.replace('_', '-')}={show_value(value)}"
        logs.clear_progress()

    def _is_faulty(self, options: dict[str, Any], refused: bool = False) -> bool:
        try:
            return self.fault_of(SpyrePipeline(**options).pipeline()) is not None
        except CompileError:
            return refused

    def _parsed(self, text: str) -> ir.Operation:
        return parsed(text, self._context).operation

    def _run(self, module: ir.Operation, pipeline: Pipeline, observers: Sequence[Observer] = ()) -> None:
        run_pipeline(module, pipeline, remarks=Remarks(), observers=observers)

    def _fault_after(self, text: str, pipeline: Pipeline) -> str | None:
        module = self._parsed(text)
        self._run(module, pipeline)
        with tempfile.TemporaryDirectory() as folder:
            bundle, arrays = export(
                ir.Module.parse(str(module.get_asm(enable_debug_info=True)), self._context)
            )
            write_bundle(bundle, folder + "/bundle", arrays)
            program = Program.load(folder + "/bundle")
        if self._metric:
            metrics = program.metrics()
            if self._metric not in metrics:
                raise CompileError(
                    with_suggestion(
                        f"The metric '{self._metric}' does not exist", self._metric, list(metrics)
                    )
                )
            value = metrics[self._metric]
            return (
                f"{self._metric} is {value:,.6g}, above {self._limit:,.6g}" if value > self._limit else None
            )
        numbers, references = self._numbers(program)
        outputs = program.run({**program.arrays, **numbers})
        wrong = [
            each
            for each in compare(program.results, outputs, references, program.numerics)
            if not each.passed
        ]
        return str(wrong[0]) if wrong else None

    def _numbers(self, program: Program) -> tuple[dict[str, np.ndarray], Sequence[np.ndarray]]:
        arguments = random_arguments(program.arguments)
        if self._references is None:
            self._arguments = list(arguments.values())
            self._program = program
            self._references = self._original(*self._arguments)
        return arguments, self._references

    _references: Sequence[np.ndarray] | None = None

    @cached_property
    def _original(self) -> HostEvaluator:
        module = self._parsed(self._text)
        DecomposeSoftmax().run(module)
        return HostEvaluator(module)

    def _evaluation(self, text: str) -> bool | None:
        """Return whether the IR between two passes has the numbers of the source; None if the CPU cannot run it."""
        assert self._references is not None
        try:
            outputs = HostEvaluator(self._parsed(text))(*self._arguments)
            compared = compare(self._program.results, outputs, self._references, self._program.numerics)
        # The evaluator runs linalg; IR of later levels is refused in many ways.
        except Exception:
            return None
        return all(each.passed for each in compared)

    def _evaluated(self, texts: Sequence[str]) -> int:
        """Return the number of leading texts up to the last one that the CPU can run, by a binary search."""
        low, high = 0, len(texts)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._evaluation(texts[middle]) is not None else (low, middle)
        return low

    def _first_wrong(self, texts: Sequence[str]) -> int | None:
        """Return the index of the first text with other numbers; None if all that the CPU can run have the numbers."""
        low, high = 0, self._evaluated(texts)
        if high == 0 or self._evaluation(texts[high - 1]):
            return None
        while low < high - 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._evaluation(texts[middle - 1]) else (low, middle)
        return high - 1
