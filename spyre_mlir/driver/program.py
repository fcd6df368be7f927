# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A compiled program: run it on the simulator, ask what it costs, save it and load it."""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle import write_bundle
from spyre_mlir.bundle.model import KernelArgument, Transfer
from spyre_mlir.bundle.transfer import same_moves
from spyre_mlir.driver.build import Built, Value, built_at
from spyre_mlir.driver.host_rerun import run_on_host
from spyre_mlir.driver.program_figures import ProgramFigures
from spyre_mlir.driver.program_folder import read_program, write_program
from spyre_mlir.driver.report_files import write_report
from spyre_mlir.driver.steps import BundleStep, Step, run_steps
from spyre_mlir.errors import CompileError, RangeWarning, listed
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.host_transfer import DmaTuples, layout_of_tuples
from spyre_mlir.layout.requests import device_dtype
from spyre_mlir.report.report_forms import form_of
from spyre_mlir.simulator import IntegerRangeError, Statistics, described
from spyre_mlir.target.formats import IEEE
from spyre_mlir.target.target import Target
from spyre_mlir.tensors.device_state import DeviceState
from spyre_mlir.tensors.device_tensor import DeviceTensor, element_type, laid_out, to_device


@dataclass(frozen=True)
class Traffic:
    """HBM bytes of one run, counted by the simulator. ``by_op`` lists (opcode, read, written) per execution."""

    read_bytes: int
    written_bytes: int
    by_op: tuple[tuple[str, int, int], ...]

    @classmethod
    def of(cls, runs: Sequence[Statistics]) -> Traffic:
        """Return the traffic of several bundles, each of which ran once."""
        return cls(
            sum(run.read_bytes for run in runs),
            sum(run.write_bytes for run in runs),
            tuple((op.opcode, op.read_bytes, op.write_bytes) for run in runs for op in run.executes.values()),
        )


#: The operands of one call by name, and what makes of the results what the caller gets.
Bound = tuple[dict[str, NDArray[Any] | DeviceTensor], Callable[[list[NDArray[Any]]], Any]]


class Program(ProgramFigures):
    """A compiled program: its steps, and what the host needs to call it.

    Most programs are one bundle; ``bundle``, ``module`` (the IR at the bundle level) and ``last_run`` are its.
    ``steps`` are bundles and host functions in turn where the device cannot run all (``spyre_mlir/driver/steps.py``).
    ``arrays`` are weights and constants by name, ``remarks`` the decisions of all passes, ``compile_seconds`` the
    time of the pipeline, ``import_seconds`` that of the frontend before it (0 for MLIR), ``passes`` that of each
    pass, ``lx_frac_avail`` the part of LX that it may not use. ``state`` are the arguments that stay in device memory
    from one call to the next, by name (docs/serving.md). ``is_instance``: it
    is one of ``at``.
    """

    is_instance: bool = False

    def __init__(self, built: Built, numerics: str | None = None) -> None:
        self._built = built
        self.steps: Sequence[Step] = built.steps
        self.arguments: list[Value] = built.arguments
        self.results: list[Value] = built.results
        self.compile_seconds: float = built.seconds
        self.import_seconds: float = 0.0
        self.passes: Sequence[tuple[str, float]] = built.passes
        self.numerics: str = numerics or _needed_numerics(self.bundles)
        self.arrays: dict[str, NDArray[Any]] = self._only.arrays if self.is_one_bundle else {}
        self._bind: Callable[..., Bound] = self._by_position
        self._plan_text: Callable[[], str] | None = None
        # For pickles: the calling convention of a model, and what makes a program of a stored one.
        self.signature: Any = None
        self.state: DeviceState = DeviceState()
        self.restore: Callable[[Any], Program] | None = None

    def __reduce__(self) -> tuple[Callable[[Any], Program], tuple[Any]]:
        # That module makes programs, so this one cannot import it by name.
        return importlib.import_module("spyre_mlir.driver.program_pickling").reduced(self)

    @property
    def returned(self) -> list[str]:
        """The names of the values that ``results`` are."""
        return self._built.returned

    @property
    def inputs(self) -> list[Value]:
        """The arguments that a call gives, in order."""
        return [argument for argument in self.arguments if argument.kind == "input"]

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Runs the program on the simulator and returns what the model would (arrays for a .mlir program).

        A ``DeviceTensor`` is taken where its layout is that of the argument.
        """
        return self.call(*self._bind(*inputs, **named))

    def call(
        self,
        operands: Mapping[str, NDArray[Any] | DeviceTensor],
        finish: Callable[[list[NDArray[Any]]], Any],
    ) -> Any:
        """Runs the program on what a call gives, by name; what ``finish`` makes of its results."""
        arrays = {
            name: self._on_the_host(name, value) if isinstance(value, DeviceTensor) else value
            for name, value in operands.items()
        }
        return finish(self.run({**self.arrays, **arrays}))

    def run(self, arrays: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """The results as host arrays, from the arrays of all arguments by name; each step in turn.

        The host runs a call with 64-bit integers that the device has not, if the linalg of the program is at hand.
        """
        try:
            values = run_steps(self.steps, arrays, self.numerics)
        except IntegerRangeError as error:
            if not (source := self.source_text()):
                raise
            return run_on_host(source, self.arguments, arrays, error)
        losses = (loss for step in self.bundles if step.last_run for loss in step.last_run.losses)
        for sentence in described(losses):
            warnings.warn(sentence, RangeWarning, stacklevel=2)
        return [values[name] for name in self._built.returned]

    def _by_position(self, *inputs: Any, **named: Any) -> Bound:
        if named:
            raise CompileError(
                f"The inputs of this program are given by position, not by name as '{next(iter(named))}'."
            )
        if len(inputs) != len(self.inputs):
            raise CompileError(f"The program takes {len(self.inputs)} inputs, not {len(inputs)}.")
        operands = {
            argument.name: value if isinstance(value, DeviceTensor) else _array(argument.name, value)
            for argument, value in zip(self.inputs, inputs, strict=True)
        }
        return operands, _one_or_all

    def to_device(self, name: str, array: Any) -> DeviceTensor:
        """Lay out an array as the program takes the input ``name``, to stay on the device from one call to the next."""
        for step in self.bundles:
            for argument in step.bundle.manifest.arguments:
                if argument.name == name and argument.kind == "input":
                    host = to_device(array, dtype=argument.host_dtype).numpy()
                    if host.shape != argument.host_shape:
                        raise CompileError(
                            f"The input '{name}' has shape {list(argument.host_shape)}, not {list(host.shape)}."
                        )
                    layout = layout_of_argument(argument, step.bundle.target)
                    return laid_out(host, argument.host_dtype, layout)
        names = listed(value.name for value in self.inputs)
        raise CompileError(f"The device takes no input '{name}'; the inputs of the program are {names}.")

    def _on_the_host(self, name: str, value: DeviceTensor) -> NDArray[Any]:
        """The array of a tensor that lies as the bundles want it; the simulator loads it into its own memory."""
        # State is laid out again for a bundle that wants it otherwise.
        for step in self.bundles if self.state.get(name) is not value else ():
            for argument in step.bundle.manifest.arguments:
                if argument.name == name:
                    _check_layout(argument, value)
        return value.numpy()

    def at(self, **sizes: int) -> Program:
        """Return the program at these run-time sizes, for its figures and for calls; weights are shared.

        A call of the program itself takes the sizes from its inputs, and its figures are those of the largest ones.
        ``CompileError`` for a size that it does not have.
        """
        program = Program(built_at(self._built, sizes), self.numerics)
        program.arrays, program.state = self.arrays, self.state
        program.import_seconds = self.import_seconds
        program.is_instance = True
        return program

    def traffic(self) -> Traffic:
        """The HBM bytes of the last run, all bundles together."""
        runs = [step.last_run for step in self.bundles]
        if None in runs:
            raise CompileError("The program has not run yet; call it first.")
        return Traffic.of([run.statistics for run in runs if run is not None])

    def lay_out_weights(self) -> None:
        """Lays out weights and constants for the device once, and not before every call.

        Later calls take these bytes, as long as ``arrays`` has the same arrays: what changes in them is not seen.
        """
        for step in self.bundles:
            step.lay_out(self.arrays, self.numerics)

    def save(self, folder: str | Path, *, lay_out_weights: bool = False) -> None:
        """Writes the folder of the program, parameters and constants included, so that ``spyre-run`` can run it.

        It is a bundle, or a folder of bundles and host functions. The remarks are there too, for ``spyre-report``.
        With ``lay_out_weights`` what bundles take is written as the bytes that the device holds, to be mapped when it
        is read; it then runs with the numerics of this program only.
        """
        laid_out_for = self.numerics if lay_out_weights else None
        if self.is_one_bundle:
            write_bundle(self.bundle, folder, self.arrays, self.remarks, laid_out_for)
        else:
            write_program(folder, self._built, self.arrays, laid_out_for)

    @classmethod
    def load(cls, folder: str | Path, numerics: str | None = None) -> Program:
        """The program in a folder that ``save`` wrote; it is called with arrays by position."""
        built, arrays = read_program(folder)
        program = cls(built, numerics)
        program.arrays.update(arrays)
        return program

    def plan(self) -> dict[str, Any]:
        """Return the decisions about every operation, to be edited and given to ``compile`` as ``plan``.

        ``docs/plans.md`` says what is in it. The program is compiled once more for it, with the same plan file if
        it was made with one. Only a program that is one bundle has a plan.
        """
        if self._plan_text is None or not self.is_one_bundle:
            raise CompileError("Only a program that compile made, of one bundle, has a plan.")
        return json.loads(self._plan_text())

    def report(self, path: str | Path) -> Path:
        """Write a report to exactly this path, and return it; its ending says what it is.

        ``.html`` is a page, that of ``spyre-report`` with the time of each pass; of a program of several steps one with
        all of them. ``.json`` has the figures and the data of the page, ``.svg`` is the timeline. Findings, which the
        first two begin with, need trials: see ``findings``.
        """
        report = self.as_report(Path(path).stem, findings=form_of(path) != ".svg")
        return write_report(report, path)


def layout_of_argument(argument: KernelArgument, target: Target) -> StickLayout:
    """Return the layout in which a bundle takes or gives an argument."""
    moves = argument.transfer
    tuples = DmaTuples(moves.ranges, moves.host_strides, moves.device_strides, moves.bounds)
    return layout_of_tuples(
        target, tuples, argument.host_shape, device_dtype(element_type(argument.host_dtype))
    )


def _needed_numerics(steps: Sequence[BundleStep]) -> str:
    """Return the numerics of the simulator where the caller names none: DL16 as soon as one bundle needs that."""
    return next((numerics for step in steps if (numerics := step.bundle.manifest.numerics)), IEEE)


def _array(name: str, value: Any) -> NDArray[Any]:
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as error:
        raise CompileError(f"The input '{name}' is not an array: {str(error).rstrip('.')}.") from error


def _check_layout(argument: KernelArgument, value: DeviceTensor) -> None:
    """A tensor with the numbers of an argument lies as this wants it; other numbers the simulator tells."""
    is_like = value.shape == argument.host_shape and value.dtype == argument.host_dtype
    if is_like and not same_moves(value.transfer, argument.transfer):
        raise CompileError(
            f"The input '{argument.name}' has another layout than the program takes: Program.to_device lays it out so, "
            f"compiling with tensors of the device takes them as they lie. The program takes it as "
            f"{_described(argument.device_size, argument.transfer)}, not as "
            f"{_described(value.layout.device_size, value.transfer)}."
        )


def _described(device_size: Sequence[int], transfer: Transfer) -> str:
    return f"device size {list(device_size)} with host strides {list(transfer.host_strides)}"


def _one_or_all(arrays: list[NDArray[Any]]) -> Any:
    return arrays[0] if len(arrays) == 1 else tuple(arrays)
