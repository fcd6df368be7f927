# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program in KTIR: a call runs it on ktir-cpu, ``save`` writes its text and its manifest."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.folder import ARRAYS, MANIFEST, write_arrays
from spyre_mlir.bundle.json_fields import from_plain, load, to_plain, write_json
from spyre_mlir.bundle.regular_files import read_text
from spyre_mlir.bundle.replacing import replacing
from spyre_mlir.bundle.transfer import from_raw, gather, lay_out
from spyre_mlir.compile_lock import without_cycle_search
from spyre_mlir.dialects import context
from spyre_mlir.driver.program import Program
from spyre_mlir.errors import CompileError
from spyre_mlir.faults import entry_points
from spyre_mlir.ktir.function_lowering import FunctionArgument, KtirManifest, lowered
from spyre_mlir.ktir.ktir_text import to_text
from spyre_mlir.ktir.operand_tiles import ELEMENTS
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.report.summary import table
from spyre_mlir.simulator import Schedule
from spyre_mlir.target.formats import FORMATS, IEEE, INT32, Numerics

# Run KTIR programs with ktir-cpu, an optional package; read and write their folders.

_TYPES = {"f16": np.float16, "f32": np.float32, "i32": np.int32}
_NUMERICS = Numerics(IEEE)
#: The LX size for a program whose tensors exceed the device's LX by the interpreter's count.
_LARGE_LX_MIB = 256


@dataclass(frozen=True)
class InterpreterRun:
    """``outputs`` by argument name, and the latency report of the interpreter's own model."""

    outputs: dict[str, NDArray[Any]]
    latency: object | None = None


def interpreter_module() -> ModuleType:
    """Import ktir-cpu; raise ``CompileError`` if it is not installed."""
    try:
        return importlib.import_module("ktir_cpu")
    except ImportError:
        message = "KTIR programs are run by ktir-cpu, which is not installed: put the folder that holds"
        raise CompileError(
            f"{message} 'ktir_cpu' of torch-spyre/ktir-cpu on PYTHONPATH (docs/ktir.md)."
        ) from None


def run_interpreter(
    text: str, manifest: KtirManifest, arrays: Mapping[str, NDArray[Any]], latency: bool = False
) -> InterpreterRun:
    """Run a program on host arrays by name.

    If the tensors of a program exceed LX by the interpreter's count, which includes tensors that the device streams,
    the program runs again with a larger LX, and a ``RuntimeWarning`` is issued.
    """
    module = interpreter_module()
    missing = [name for argument in manifest.arguments if argument.kind != "result"
               and (name := argument.array_name) not in arrays]  # fmt: skip
    if missing:
        raise CompileError(f"The program needs the array '{missing[0]}'; give it by --inputs, or in a call.")
    memories: dict[str, NDArray[Any] | int] = {
        f"arg{k}": _memory(memory, manifest, arrays) for k, memory in enumerate(manifest.memories)
    }
    sources = {argument.name: argument.array_name for argument in manifest.arguments}
    for number, index in enumerate(manifest.indices, len(manifest.memories)):
        # ``index.value`` checks the range of an index argument.
        memories[f"arg{number}"] = index.value(np.asarray(arrays[sources[index.argument]]))
    interpreter = module.KTIRInterpreter(latency_config=module.HardwareConfig() if latency else None)
    images = _executed(interpreter, text, manifest, memories)
    if images is None:
        sentence = "The interpreter counts more bytes of LX than the device has; the program ran with"
        warnings.warn(f"{sentence} {_LARGE_LX_MIB} MiB.", RuntimeWarning, stacklevel=2)
        interpreter = module.KTIRInterpreter(latency_config=module.HardwareConfig(lx_size_mb=_LARGE_LX_MIB))
        images = _executed(interpreter, text, manifest, memories)
    if images is None:
        raise CompileError(f"The interpreter counts more than {_LARGE_LX_MIB} MiB of LX for this program.")
    outputs, keys = {}, [(memory.memory, memory.element) for memory in manifest.memories]
    for argument in manifest.arguments:
        if argument.kind == "result":
            image = images[f"arg{keys.index((argument.parameter, ELEMENTS[argument.data_format]))}"]
            host = np.zeros(argument.host_shape, FORMATS[argument.data_format].raw)
            gather(np.ascontiguousarray(image).view(np.uint8), 0, host, argument.transfer)
            outputs[argument.name] = from_raw(host, argument.host_dtype, argument.data_format, _NUMERICS)
    return InterpreterRun(outputs, interpreter.get_latency_report() if latency else None)


def _executed(
    interpreter: Any, text: str, manifest: KtirManifest, memories: Mapping[str, NDArray[Any] | int]
) -> Mapping[str, NDArray[Any]] | None:
    """Run a program; return its memories, or None if LX is too small."""
    said = io.StringIO()
    try:
        # The interpreter prints the cause of an error before it raises.
        with contextlib.redirect_stdout(said), np.errstate(all="ignore"):
            interpreter.load(text)
            return interpreter.execute_function(manifest.function, **memories)
    except Exception as error:
        # If LX overflows in a region, an error on leaving the region hides the MemoryError.
        if isinstance(error, MemoryError) or isinstance(error.__context__, MemoryError):
            return None
        # The first printed line names the innermost operation.
        reason = next(iter(said.getvalue().splitlines()), str(error)).removesuffix(".")
        raise CompileError(f"The interpreter refused the program: {reason}.") from error


def _memory(
    memory: FunctionArgument, manifest: KtirManifest, arrays: Mapping[str, NDArray[Any]]
) -> NDArray[Any]:
    """Return the content of a memory: host arguments in their layouts, zeros elsewhere."""
    image = np.zeros(memory.bytes, np.uint8)
    for argument in manifest.arguments:
        same = argument.parameter == memory.memory and ELEMENTS[argument.data_format] == memory.element
        if same and argument.kind != "result":
            try:
                # Padding of int32 is 0, so that the interpreter does not use it as a position.
                if argument.fill is None and argument.data_format == INT32:
                    argument = replace(argument, fill=0.0)
                lay_out(argument, np.asarray(arrays[argument.array_name]), _NUMERICS, image)
            except ValueError as error:
                raise CompileError(f"The argument '{argument.name}' does not fit: {error}") from None
    return image.view(_TYPES[memory.element])


# Folders of KTIR programs: ``program.mlir``, ``manifest.json`` and ``constants.npz``; the latency table of a run.

#: The file name of the KTIR text in a folder.
KTIR = "program.mlir"
_TEXT_BYTES = 1 << 28


def write_ktir(
    folder: str | Path, text: str, manifest: KtirManifest, arrays: Mapping[str, np.ndarray]
) -> None:
    """Write the folder of a program; an existing program is replaced."""
    with replacing(folder) as fresh:
        (fresh / KTIR).write_text(text, encoding="utf-8")
        write_json(fresh / MANIFEST, to_plain(manifest, for_json=True))
        if arrays:
            write_arrays(fresh / ARRAYS, arrays)


def is_ktir(folder: str | Path) -> bool:
    """Return whether a folder holds a program in KTIR."""
    return (Path(folder) / KTIR).is_file()


def read_ktir(folder: str | Path) -> tuple[str, KtirManifest]:
    """Return the KTIR text in a folder, and its manifest."""
    folder = Path(folder)
    text = read_text(folder / KTIR, _TEXT_BYTES)
    return text, from_plain(KtirManifest, load(folder / MANIFEST), from_json=True)


def latency_table(run: InterpreterRun, predicted_us: float) -> str:
    """Return a table of the predicted time by the timeline and by the interpreter's model, with its bottleneck."""
    report: Any = run.latency
    rows = [("timeline", f"{predicted_us:,.1f} us")]
    rows.append(("interpreter", f"{report.kernel_time_us:,.1f} us, bound by {report.bottleneck}"))
    return table(rows)


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
    def of(cls, program: object, addresses: bool = False) -> KtirProgram:
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

    def run(self, arrays: Mapping[str, np.ndarray], schedule: Schedule | None = None) -> list[np.ndarray]:
        """Run on ktir-cpu with the ``arrays`` of all arguments by name; return the results as host arrays.

        Raises:
            CompileError: A ``schedule`` is given: ktir-cpu runs the operations in the order of the program.
        """
        if schedule is not None:
            raise CompileError("A schedule requires bundles; compile the program for the target 'bundle'.")
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
