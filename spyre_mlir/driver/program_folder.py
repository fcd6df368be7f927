# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program of several steps as a folder: ``program.json``, a bundle or a ``.mlir`` per step, the host's weights.

    program.json        the steps in order, the inputs and outputs of each step, the arguments and the results
    device_0/           a bundle, as ``spyre_mlir/bundle/folder.py`` writes it
    host_0.mlir         a host function, @main, in linalg
    device_0_1/         one of the bundles into which a device function is split; program.json marks the non-terminal
                        bundles, manifest.json has the LX buffers that a bundle leaves and expects
    constants.npz       the weights and constants that host functions read

The folder is written atomically, and its content is deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from spyre_mlir.bundle.folder import (
    ARRAYS,
    STEPS,
    is_program,
    read_arrays,
    read_bundle,
    write_arrays,
    write_bundle,
    write_files,
)
from spyre_mlir.bundle.json_fields import Field, load, write_json
from spyre_mlir.bundle.regular_files import read_text
from spyre_mlir.bundle.replacing import replacing
from spyre_mlir.bundle.rules_manifest import HOST_DTYPES
from spyre_mlir.bundle.transfer import read_images
from spyre_mlir.diagnostics import compile_error
from spyre_mlir.dialects import context, parsed
from spyre_mlir.driver.build import ONLY, Built, Value, values_of
from spyre_mlir.driver.steps import BundleStep, HostStep, Step
from spyre_mlir.errors import counted
from spyre_mlir.files import is_folder
from spyre_mlir.host import HostFunction
from spyre_mlir.mlir import ir
from spyre_mlir.remarks import Remark

#: The largest text of a host function, in bytes; it may contain constants.
_HOST_TEXT_BYTES = 1 << 28

#: The host dtypes.
_HOST_DTYPES = {dtype for dtypes in HOST_DTYPES.values() for dtype in dtypes}


def write_program(
    folder: str | Path,
    built: Built,
    arrays: dict[str, np.ndarray],
    remarks: Sequence[Remark],
    laid_out_for: str | None = None,
) -> None:
    """Write a program as a folder; an existing program is replaced. ``arrays`` are weights by name.

    A program of one bundle is the folder of the bundle, with ``remarks``. If ``laid_out_for`` names numerics, the
    weights of bundles are written as device images for them.
    """
    if len(built.steps) == 1 and isinstance(only := built.steps[0], BundleStep):
        write_bundle(only.bundle, folder, arrays, remarks, laid_out_for)
        return
    with replacing(folder) as fresh:
        described = []
        for step, moved in zip(built.steps, built.transfers(), strict=True):
            entry: dict[str, object] = {
                "name": step.name,
                "kind": "host" if isinstance(step, HostStep) else "bundle",
                "float_operations": step.float_operations,
                "inputs": list(step.inputs),
                "outputs": list(step.outputs),
            }
            described.append(entry)
            if isinstance(step, HostStep):
                (fresh / f"{step.name}.mlir").write_text(step.function.text(), encoding="utf-8")
                continue
            weights = {name: arrays[name] for name in step.inputs if name in arrays}
            (fresh / step.name).mkdir()
            write_files(
                step.bundle, fresh / step.name, {**step.arrays, **weights}, step.remarks, laid_out_for
            )
            if step.bundle.manifest.non_terminal:
                entry["non_terminal"] = True
            # For human readers only: the transfers are not read back.
            results = {argument.name: name for name, argument in step.written}
            entry["transfers"] = {
                "to_device": [argument.name for argument in moved.to_device],
                "kept": [argument.name for argument in moved.resident],
                "to_host": [results[argument.name] for argument in moved.to_host],
            }
        # The weights of bundles are in their own folders; this folder holds only the weights that host steps
        # read.
        read = {name for step in built.steps if isinstance(step, HostStep) for name in step.inputs}
        host_arrays = {name: array for name, array in arrays.items() if name in read}
        if host_arrays:
            write_arrays(fresh / ARRAYS, host_arrays)
        arguments, results = (
            [{**asdict(value), "host_shape": list(value.host_shape)} for value in values]
            for values in (built.arguments, built.results)
        )
        write_json(
            fresh / STEPS,
            {"arguments": arguments, "steps": described, "results": results, "returned": built.returned},
        )


def read_program(folder: str | Path) -> tuple[Built, dict[str, np.ndarray]]:
    """Read the steps of a program folder or of a bundle folder, and the arrays of weights and constants.

    Raise ``CompileError``, with the name of the file, for a missing or damaged file or an input that no step produces.
    """
    folder = Path(folder)
    if not is_folder(folder) or not is_program(folder):
        bundle, arrays = read_bundle(folder), read_arrays(folder)
        values = values_of(bundle.manifest)
        arguments = [value for value in values if value.kind != "result"]
        results = [value for value in values if value.kind == "result"]
        inputs, outputs = (tuple(value.name for value in group) for group in (arguments, results))
        images = read_images(folder, bundle.manifest.arguments)
        step = BundleStep(ONLY, inputs, outputs, None, bundle, arrays, images=images)
        return Built([step], arguments, results, list(outputs)), arrays
    root = load(folder / STEPS)
    arguments, results = ([_value(item) for item in root[name].items()] for name in ("arguments", "results"))
    known = {argument.name for argument in arguments}
    steps: list[Step] = []
    for item in root["steps"].items():
        step = _read_step(item, folder, known)
        known.update(step.outputs)
        steps.append(step)
    returned = root["returned"].items()
    for item in returned:
        _require_known(item, known)
    if len(returned) != len(results):
        root["returned"].fail(f"must name the {counted(len(results), 'result')}")
    return Built(steps, arguments, results, [item.text() for item in returned]), read_arrays(folder)


def _value(item: Field) -> Value:
    shape = item["host_shape"].integers()
    if min(shape, default=0) < 0:
        item["host_shape"].fail("must not have a negative size")
    if item["host_dtype"].text() not in _HOST_DTYPES:
        item["host_dtype"].fail(f"must be one of {', '.join(sorted(_HOST_DTYPES))}")
    return Value(item["name"].text(), item["kind"].text(), shape, item["host_dtype"].text())


def _require_known(item: Field, known: set[str]) -> None:
    if item.text() not in known:
        item.fail(f"names '{item.text()}', which is neither an argument nor an output of an earlier step")


def _read_step(item: Field, folder: Path, known: set[str]) -> Step:
    """Return the step of a program that ``item`` describes; ``CompileError`` for a name or a file that is not valid."""
    name, inputs, outputs = item["name"].text(), item["inputs"].texts(), item["outputs"].texts()
    # The name becomes a path, which must not lead out of the folder; the same holds for the link checked below.
    if not name.isidentifier():
        item["name"].fail("must be a plain name of a step")
    for field in item["inputs"].items():
        _require_known(field, known)
    for field in item["outputs"].items():
        if field.text() in known:
            field.fail(f"names '{field.text()}', which is already defined")
    work = item["float_operations"].integer()
    kind = item["kind"].text()
    if kind == "host":
        path = folder / f"{name}.mlir"
        try:
            module = parsed(read_text(path, _HOST_TEXT_BYTES), context(), str(path))
        except ir.MLIRError as error:
            raise compile_error(error, f"The file '{path}' cannot be parsed.") from error
        function = HostFunction(module)
        counts = function.counts
        if counts != (len(inputs), len(outputs)):
            item.fail(
                f"has {counted(len(inputs), 'input')} and {counted(len(outputs), 'output')}, but its function "
                f"{counts[0]} and {counts[1]}"
            )
        return HostStep(name, inputs, outputs, function, function.operations, work)
    if kind != "bundle":
        item["kind"].fail(f"must be 'bundle' or 'host' but is '{kind}'")
    if (folder / name).is_symlink():
        item["name"].fail("must name a folder of the program, not a link")
    bundle = read_bundle(folder / name)
    if bundle.manifest.non_terminal != ("non_terminal" in item and item["non_terminal"].boolean()):
        item.fail("and the manifest of its bundle must both say that it is non-terminal, or neither")
    arguments = [
        argument
        for argument in bundle.manifest.arguments
        if argument.kind != "result" and argument.source is None
    ]
    names = {argument.name for argument in arguments}
    missing = next((value for value in inputs if value not in names), None)
    if missing is not None:
        item["inputs"].fail(f"names '{missing}', which is not an argument of the bundle")
    results = sum(argument.kind == "result" for argument in bundle.manifest.arguments)
    if len(outputs) != results:
        item["outputs"].fail(f"must name the {counted(results, 'result')} of the bundle")
    arrays, images = read_arrays(folder / name), read_images(folder / name, bundle.manifest.arguments)
    return BundleStep(name, inputs, outputs, None, bundle, arrays, float_operations=work, images=images)
