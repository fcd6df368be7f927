# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The findings of a program: provide the search with the program's figures and with trial compilations.

A trial compiles the source of a program again, with another option or with an edit of the model.
"""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from spyre_mlir import logs
from spyre_mlir.driver.program import Program
from spyre_mlir.driver.steps import HostStep
from spyre_mlir.errors import CompileError
from spyre_mlir.findings import Batch, HostWork, ModelEdit, PlannedProgram, Remedy, Resize, remedies, search
from spyre_mlir.findings.search import LEAST_SAVING, ExampleInput
from spyre_mlir.records import dataclass
from spyre_mlir.report.findings import ProgramFinding
from spyre_mlir.report.html import bytes_text
from spyre_mlir.timeline import Timeline

_LOGGER = logging.getLogger("spyre_mlir.findings")


@dataclass(frozen=True)
class Trials:
    """The call of ``compile`` that produced a program, with the ``options`` that the caller passed.

    The source is a module, which has no edits; the frontend extends the class for models. ``inputs()`` returns the
    example inputs.
    """

    source: Any
    inputs: Callable[[], Any]
    options: Mapping[str, Any]
    compile: Callable[..., Any]

    is_model = False

    @property
    def inputs_on_device(self) -> frozenset[int]:
        """The indices of device tensors among the tensors of a call."""
        return frozenset()

    def released(self) -> Trials:
        """Return the same trials without references to the tensors of the caller."""
        return self

    def unchanged(self) -> Any:
        """Compile the program again without a change."""
        return self.program(Remedy("", "", "", "no change", 0.0))

    def program(self, remedy: Remedy) -> Any:
        """Compile the program with a change; return None if the change does not apply or does not compile."""
        options = {**self.options, **remedy.options, "cache": False}
        options = {name: value for name, value in options.items() if value is not None}
        try:
            source, inputs = (self.source, self.inputs()) if remedy.edit is None else self.edited(remedy.edit)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return self.compile(source, inputs, **options)
        # The user's model runs with inputs it was not written for; any exception means the change does not apply.
        except Exception as reason:
            _LOGGER.debug("No finding, '%s' cannot be tried: %s", remedy.text, reason)
            return None

    def compared(self, model: Any, inputs: Sequence[Any], numerics: str) -> Any:
        """Return the errors of the model's modules on the simulator against the CPU."""
        raise CompileError(
            "A module in MLIR has no PyTorch modules to compare; spyre-compile --check compares it."
        )

    def edited(self, edit: ModelEdit) -> tuple[Any, Any]:
        """Return the source and its inputs after an edit; any exception means that the edit does not apply."""
        raise NotImplementedError(f"a module in MLIR has no edit {edit}")


@dataclass(frozen=True)
class FindingSearch:
    """The search for the findings of programs by ``trials``."""

    trials: Trials

    def released(self) -> FindingSearch:
        """Return the search without references to the tensors of the caller."""
        return FindingSearch(self.trials.released())

    def changes(self, program: Program) -> list[str]:
        """Return the texts of the changes worth a trial, by the program's figures, the most promising first."""
        return [remedy.text for remedy in remedies(planned(program, self.trials))]

    def __call__(
        self, program: Program, budget: float = math.inf, tried: list[str] | None = None
    ) -> tuple[ProgramFinding, ...]:
        """Return the changes that trials have shown to make the program faster, the largest saving first.

        No trial begins after ``budget`` seconds. ``tried`` receives the texts of the changes that were tried.
        """
        begun, tried = time.monotonic(), [] if tried is None else tried
        count = len(self.changes(program))

        def trial(remedy: Remedy) -> PlannedProgram | None:
            if time.monotonic() - begun > budget:
                return None
            tried.append(remedy.text)
            logs.show_wait(f"finding: trial {len(tried)} of {count}, {remedy.text}")
            changed = self.trials.program(remedy)
            if not isinstance(changed, Program) or not _fits(program, changed, remedy):
                return None
            return planned(changed, self.trials)

        findings = search(planned(program, self.trials), trial)
        logs.clear_progress()
        if findings and not _is_reproduced(program, self.trials):
            findings = ()
        found = [*findings, *buffer_findings(program.timelines)]
        return (
            tuple(sorted(found, key=lambda finding: -finding.saved_us))
            if len(found) > len(findings)
            else findings
        )


def buffer_findings(timelines: Sequence[Timeline]) -> Iterator[ProgramFinding]:
    """Yield the copies that wait for a buffer in use, if a second buffer saves at least ``LEAST_SAVING``."""
    total_us = math.fsum(line.total_ns for line in timelines) / 1000
    for line in timelines:
        for wait in line.buffer_waits:
            if wait.saved_us < LEAST_SAVING * total_us:
                continue
            copy, before = line.executions[wait.position], line.executions[wait.position - 1]
            yield ProgramFinding(
                f"The load of '{wait.buffer}' waits for the operation before, {before.opcode}, to end.",
                f"'{wait.buffer}' has bytes of '{wait.used}' in LX, which that operation uses.",
                copy.origin.module,
                copy.source,
                f"a second buffer of {bytes_text(wait.bytes)}: pin '{wait.buffer}' to free bytes of LX in a plan file",
                total_us,
                total_us - wait.saved_us,
            )


def _is_reproduced(program: Program, trials: Trials) -> bool:
    """Return whether compiling the program again gives the same time; otherwise trials are not comparable.

    Dim names, hints and the environment may have changed since the program was compiled.
    """
    again = trials.unchanged()
    return isinstance(again, Program) and planned(again, trials).ns == planned(program, trials).ns


def planned(program: Program, trials: Trials) -> PlannedProgram:
    """Return the description of a program for the search for findings."""
    on_device = trials.inputs_on_device
    steps = [step for step in program.steps if isinstance(step, HostStep)]
    made = {name for step in steps for name in step.outputs}
    taken = {name for step in steps for name in step.inputs}
    moved = 0
    for transfers in program.transfers():
        moved += sum(argument.bytes for argument in transfers.to_device if argument.array_name in made)
        moved += sum(argument.bytes for argument in transfers.to_host if argument.array_name in taken)
    return PlannedProgram(
        parts=[(step.bundle, step.facts()) for step in program.bundles],
        device_ns=math.fsum(line.total_ns for line in program.timelines),
        host=HostWork(
            sum(step.float_operations for step in steps), sum(step.operations for step in steps), moved
        ),
        remarks=program.pass_remarks,
        inputs=[
            ExampleInput(position, value.name, value.host_shape, value.host_dtype, position in on_device)
            for position, value in enumerate(program.inputs)
        ],
        result_shapes=[value.host_shape for value in program.results],
        options=trials.options,
        is_model=trials.is_model,
    )


def _fits(program: Program, changed: Program, remedy: Remedy) -> bool:
    """Return whether the result shapes of a changed program are the original shapes, adapted to the edit."""
    pairs = list(zip(program.results, changed.results, strict=False))
    if len(program.results) != len(changed.results):
        return False
    if isinstance(remedy.edit, Batch):
        count, times = remedy.edit.size, remedy.edit.times
        return all(
            was.host_shape[1:] == new.host_shape[1:] and new.host_shape[:1] == (count * times,)
            for was, new in pairs
        )
    if isinstance(remedy.edit, Resize):
        size, to = remedy.edit.size, remedy.edit.to
        return all(
            tuple(to if extent == size else extent for extent in was.host_shape) == new.host_shape
            for was, new in pairs
        )
    return all(was.host_shape == new.host_shape for was, new in pairs)
