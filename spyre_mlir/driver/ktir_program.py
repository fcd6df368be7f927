# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program in KTIR: called, it runs on ktir-cpu; saved, it is a text and what its caller must know."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from spyre_mlir.dialects import context
from spyre_mlir.driver.build import without_cycle_search
from spyre_mlir.driver.ktir_folder import write_ktir
from spyre_mlir.driver.ktir_interpreter import InterpreterRun, run_interpreter
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
        addresses: The text has addresses of device memory, and not the arguments of a function.
        last_interpreter_run: What the interpreter made of the last call.
    """

    addresses: bool = False
    last_interpreter_run: InterpreterRun | None = None

    @classmethod
    def of(cls, program: Program | PiecewiseProgram, addresses: bool = False) -> KtirProgram:
        """Return a program in KTIR; ``CompileError`` where KTIR has no form for it, or it has several steps."""
        if not isinstance(program, Program) or not program.is_one_bundle:
            raise CompileError(
                "A program in KTIR is one function for the device, but a part of this one runs on the host."
            )
        new = cls.__new__(cls)
        new.__dict__.update(program.__dict__)
        new.addresses = addresses
        new.ktir  # noqa: B018 what has no form is an error of the compilation
        return new

    @functools.cached_property
    def ktir(self) -> tuple[str, KtirManifest]:
        """The text of the program, and what its caller must know."""
        with without_cycle_search(), context(), ir.Location.unknown():
            module = ir.Module.create()
            with ir.InsertionPoint(module.body):
                manifest = lowered(self.bundle, _FUNCTION, self.addresses)
            return to_text(module), manifest

    def run(self, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Return the results as host arrays, by ktir-cpu, from ``arrays`` of all arguments by name."""
        self._require_numbers()
        self.last_interpreter_run = run_interpreter(*self.ktir, arrays)
        outputs = self.last_interpreter_run.outputs
        return [outputs[argument.name] for argument in self.ktir[1].arguments if argument.kind == "result"]

    def save(self, folder: str | Path, *, lay_out_weights: bool = False) -> None:
        """Write the folder of the program: text, manifest, and the values of weights and constants.

        Args:
            folder: The folder.
            lay_out_weights: There are no laid out weights in KTIR: only False.

        Raises:
            CompileError: Weights are to be laid out.
        """
        self._require_numbers()
        if lay_out_weights:
            raise CompileError("Weights of a KTIR program are saved as arrays of the host, not laid out.")
        text, manifest = self.ktir
        predicted = self.timeline().total_ns / 1000
        write_ktir(folder, text, replace(manifest, predicted_us=predicted), self.arrays)
