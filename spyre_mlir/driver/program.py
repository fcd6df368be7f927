# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A compiled program: run it on the simulator, query its costs, save it and load it."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from spyre_mlir.bundle import write_bundle
from spyre_mlir.driver.build import Built, Value, built_at
from spyre_mlir.driver.program_calls import Bound, ProgramCalls
from spyre_mlir.driver.program_folder import read_program, write_program
from spyre_mlir.driver.report_files import write_report
from spyre_mlir.driver.steps import BundleStep, Step
from spyre_mlir.errors import CompileError
from spyre_mlir.faults import entry_points
from spyre_mlir.records import dataclass
from spyre_mlir.report.program_report import form_of
from spyre_mlir.simulator import Statistics
from spyre_mlir.target.formats import IEEE, require_mode
from spyre_mlir.tensors.device_state import DeviceState


@dataclass(frozen=True)
class Traffic:
    """HBM bytes of one run, counted by the simulator.

    Attributes:
        read_bytes: Bytes of device memory read.
        written_bytes: Bytes of device memory written.
        by_op: Opcode, bytes read and bytes written of each execution, in order.
    """

    read_bytes: int
    written_bytes: int
    by_op: tuple[tuple[str, int, int], ...]

    @classmethod
    def of(cls, runs: Sequence[Statistics]) -> Traffic:
        """Return the total traffic of one run of each of several bundles."""
        return cls(
            sum(run.read_bytes for run in runs),
            sum(run.write_bytes for run in runs),
            tuple((op.opcode, op.read_bytes, op.write_bytes) for run in runs for op in run.executes.values()),
        )


@entry_points
class Program(ProgramCalls):
    """A compiled program: its steps, and the data that the host needs to call it.

    Most programs are one bundle; ``bundle``, ``module`` (the IR at the bundle level) and ``last_run`` refer to it.

    Attributes:
        steps: One bundle, or bundles and host functions in order (``spyre_mlir/driver/steps.py``).
        arguments: Inputs, parameters and constants, in the order of the module.
        results: The values that a call returns.
        arrays: Weights and constants by name.
        numerics: The numerics of the simulator, "ieee" or "dl16".
        compile_seconds: The time of the pipeline, in seconds.
        import_seconds: The time of the frontend, in seconds; 0 for MLIR.
        passes: Each pass with its seconds, in execution order.
        signature: The calling convention of a PyTorch model; None for a module.
        missing: Tensors of the model on the meta device; with any, the program has a plan and figures but cannot run.
        state: The arguments that stay in device memory from one call to the next, by name (docs/serving.md).
    """

    is_instance: bool = False

    def __init__(self, built: Built, numerics: str | None = None) -> None:
        """Create a program from ``built`` steps, with the ``numerics`` of the simulator; ``compile`` calls this."""
        self._built = built
        self.steps: Sequence[Step] = built.steps
        self.arguments: list[Value] = built.arguments
        self.results: list[Value] = built.results
        self.compile_seconds: float = built.seconds
        self.import_seconds: float = 0.0
        self.passes: Sequence[tuple[str, float]] = built.passes
        require_mode(numerics)
        self.numerics: str = numerics or _needed_numerics(self.bundles)
        self.arrays: dict[str, NDArray[Any]] = self._only.arrays if self.is_one_bundle else {}
        self._bind: Callable[..., Bound] = self._by_position
        self._plan_text: Callable[[], str] | None = None
        # For pickling: the calling convention of a model, and the function that restores a stored program.
        self.signature: Any = None
        self.state: DeviceState = DeviceState()
        self.missing: Sequence[str] = ()
        self.restore: Callable[[Any], Program] | None = None

    def __reduce__(self) -> tuple[Callable[[Any], Program], tuple[Any]]:
        self._require_numbers()
        # Imported on use: that module imports this one.
        return importlib.import_module("spyre_mlir.driver.program_pickling").reduced(self)

    def at(self, **sizes: int) -> Program:
        """Return the program specialized to run-time sizes, for its figures and for calls; the weights are shared.

        The program itself takes the sizes of a call from the inputs; its figures are for the largest sizes.

        Args:
            **sizes: Elements of each dynamic dim, by its name.

        Raises:
            CompileError: The program does not have such a size.
        """
        program = Program(built_at(self._built, sizes), self.numerics)
        program.arrays, program.state = self.arrays, self.state
        program.import_seconds = self.import_seconds
        program.is_instance, program.missing = True, self.missing
        return program

    def drop_numbers(self, missing: tuple[str, ...]) -> None:
        """Drop the arrays and keep the plan and the figures: the ``missing`` tensors of the model have no values."""
        self.missing = missing
        # Constants may have been computed from the stand-ins for missing values.
        self.arrays.clear()

    def drop_ir(self) -> None:
        """Drop the IR and everything derived from it: the plan, the bound and the findings. Keep the linalg text."""
        super().drop_ir()
        self._plan_text = None

    def traffic(self) -> Traffic:
        """Return the HBM bytes of the last run, summed over all bundles.

        Raises:
            CompileError: The program has not run yet.
        """
        runs = [step.last_run for step in self.bundles]
        if None in runs:
            raise CompileError("The program has not run yet; call it first.")
        return Traffic.of([run.statistics for run in runs if run is not None])

    def lay_out_weights(self) -> None:
        """Lay out weights and constants for the device once, instead of before every call.

        Later calls use these bytes while ``arrays`` has the same array objects; changes of their elements are ignored.
        """
        self._require_numbers()
        for step in self.bundles:
            step.lay_out(self.arrays, self.numerics)

    def save(self, folder: str | Path, *, lay_out_weights: bool = False) -> None:
        """Write the program to a folder, including parameters and constants, so that ``spyre-run`` can run it.

        The folder is a bundle, or contains bundles and host functions. It includes the remarks, for ``spyre-report``.

        Args:
            folder: The output folder; an existing bundle is replaced.
            lay_out_weights: Write the weights of bundles as device images, which are memory-mapped when the folder is
                read. The loaded program then supports only the numerics of this program.

        Raises:
            CompileError: The folder contains something other than a bundle.
        """
        self._require_numbers()
        laid_out_for = self.numerics if lay_out_weights else None
        built = _with_numerics(self._built, self.numerics)
        only = built.steps[0] if self.is_one_bundle else None
        if isinstance(only, BundleStep):
            write_bundle(only.bundle, folder, self.arrays, self.remarks, laid_out_for)
        else:
            write_program(folder, built, self.arrays, laid_out_for)

    @classmethod
    def load(cls, folder: str | Path, numerics: str | None = None) -> Program:
        """Load a program from a folder that ``save`` wrote; call it with arrays by position.

        Args:
            folder: The folder.
            numerics: Numerics of the simulator, "ieee" or "dl16"; the numerics of the saved program by default.

        Raises:
            CompileError: The folder is not a program, a file of it is damaged (the message names it), or ``numerics``
                is unknown.
        """
        built, arrays = read_program(folder)
        program = cls(built, numerics)
        program.arrays.update(arrays)
        return program

    def plan(self) -> dict[str, Any]:
        """Return the decisions about every operation, to be edited and passed to ``compile`` as ``plan``.

        ``docs/plans.md`` describes the format. This compiles the program again, with the same plan file if it was
        compiled with one.

        Raises:
            CompileError: The program is not one bundle, or was read from a folder.
        """
        if self._plan_text is None or not self.is_one_bundle:
            raise CompileError("Only a program that compile made, of one bundle, has a plan.")
        return json.loads(self._plan_text())

    def report(self, path: str | Path) -> Path:
        """Write a report, and return its path.

        ``.html`` and ``.json`` reports begin with the findings, which need trials: see ``findings``.

        Args:
            path: The output file, whose ending selects the format. ``.html`` is the page of ``spyre-report``, with the
                time of each pass and all steps of the program. ``.json`` has the figures and the data of the page.
                ``.svg`` is the timeline.
        """
        report = self.as_report(Path(path).stem, findings=form_of(path) != ".svg")
        return write_report(report, path)


def _needed_numerics(steps: Sequence[BundleStep]) -> str:
    """Return the default numerics of a program: the numerics that a bundle requires, else IEEE."""
    return next((numerics for step in steps if (numerics := step.bundle.manifest.numerics)), IEEE)


def _with_numerics(built: Built, numerics: str) -> Built:
    """Return ``built`` with bundles that require ``numerics``, unless ``numerics`` is their default already."""
    if numerics == _needed_numerics([step for step in built.steps if isinstance(step, BundleStep)]):
        return built
    steps: list[Step] = []
    for step in built.steps:
        if isinstance(step, BundleStep):
            manifest = replace(step.bundle.manifest, numerics=numerics)
            step = replace(step, bundle=replace(step.bundle, manifest=manifest))
        steps.append(step)
    return replace(built, steps=steps)
