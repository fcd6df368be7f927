# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program in KTIR: a call runs it on ktir-cpu, ``save`` writes its text and its manifest."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from spyre_mlir.compile_lock import without_cycle_search
from spyre_mlir.dialects import context
from spyre_mlir.driver.ktir_interpreter import InterpreterRun, run_interpreter, write_ktir
from spyre_mlir.driver.piecewise import PiecewiseProgram
from spyre_mlir.driver.program import Program
from spyre_mlir.errors import CompileError
from spyre_mlir.faults import entry_points
from spyre_mlir.ktir.function_lowering import lowered
from spyre_mlir.ktir.ktir_manifest import KtirManifest
from spyre_mlir.ktir.ktir_text import to_text
from spyre_mlir.mlir import ir

_FUNCTION = "main"


@entry_points
class KtirProgram(Program):
    """A program of one bundle, in KTIR.

    Attributes:
        addresses: Whether the text uses addresses of device memory instead of function arguments.
        last_interpreter_run: The outputs and the latency report of the last call.
    """

    addresses: bool = False
    last_interpreter_run: InterpreterRun | None = None

    @classmethod
    def of(cls, program: Program | PiecewiseProgram, addresses: bool = False) -> KtirProgram:
        """Convert a program to KTIR; raise ``CompileError`` if it has several steps or KTIR cannot express it."""
        if not isinstance(program, Program) or not program.is_one_bundle:
            raise CompileError(
                "A program in KTIR is one function for the device, but a part of this one runs on the host."
            )
        new = cls.__new__(cls)
        new.__dict__.update(program.__dict__)
        new.addresses = addresses
        new.ktir  # noqa: B018 a program that KTIR cannot express is an error here, not at the first call
        return new

    @functools.cached_property
    def ktir(self) -> tuple[str, KtirManifest]:
        """The text of the program, and its manifest."""
        with without_cycle_search(), context(), ir.Location.unknown():
            module = ir.Module.create()
            with ir.InsertionPoint(module.body):
                manifest = lowered(self.bundle, _FUNCTION, self.addresses)
            return to_text(module), manifest

    def run(self, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Run on ktir-cpu with the ``arrays`` of all arguments by name; return the results as host arrays."""
        self._require_numbers()
        self.last_interpreter_run = run_interpreter(*self.ktir, arrays)
        outputs = self.last_interpreter_run.outputs
        return [outputs[argument.name] for argument in self.ktir[1].arguments if argument.kind == "result"]

    def save(self, folder: str | Path, *, lay_out_weights: bool = False) -> None:
        """Write the folder of the program: text, manifest, and the values of weights and constants.

        Args:
            folder: The output folder.
            lay_out_weights: Must be False; KTIR does not support weights in device layouts.

        Raises:
            CompileError: ``lay_out_weights`` is True.
        """
        self._require_numbers()
        if lay_out_weights:
            raise CompileError("Weights of a KTIR program are saved as arrays of the host, not laid out.")
        text, manifest = self.ktir
        predicted = self.timeline().total_ns / 1000
        write_ktir(folder, text, replace(manifest, predicted_us=predicted), self.arrays)
