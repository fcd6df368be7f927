# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program as named arrays, one of them JSON text, for the cache on disk: only data, no code and no pickled objects.

The JSON has the steps with their bundles, host functions as text, remarks and times, the bound, the signature of a
PyTorch model, and the linalg before the pipeline, from which the IR is rebuilt on demand. Weights are not stored, but
constants that the import or the pipeline computed are stored.
"""

from __future__ import annotations

import functools
import json
import pickle
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.design_json import from_json, to_json
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
from spyre_mlir.bundle.json_fields import VERSION as FORMAT
from spyre_mlir.bundle.json_fields import (
    Field,
    load,
    manifest_from_json,
    manifest_to_json,
    padding_to_json,
    require_format,
    with_padding,
    write_json,
)
from spyre_mlir.bundle.model import Bundle, levels_from_json, levels_to_json
from spyre_mlir.bundle.program_text import parse_program, print_program
from spyre_mlir.bundle.regular_files import read_text
from spyre_mlir.bundle.replacing import replacing
from spyre_mlir.bundle.rules_structure import HOST_DTYPES
from spyre_mlir.bundle.transfer import Images, read_images
from spyre_mlir.cost.work import ProgramBound
from spyre_mlir.diagnostics import compile_error
from spyre_mlir.dialects import context, parsed
from spyre_mlir.driver.build import ONLY, Built, Value, values_of
from spyre_mlir.driver.collectives import CollectiveStep, MeshPlace
from spyre_mlir.driver.steps import BundleStep, HostStep, Step
from spyre_mlir.errors import CompileError, counted, first_sentence
from spyre_mlir.files import is_folder
from spyre_mlir.host import HostFunction
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import Remark, Remarks
from spyre_mlir.tensors.device_state import DeviceState
from spyre_mlir.timing import Timing, TimingScope

#: The name of the array with the JSON text.
_JSON = "program"


@dataclass(frozen=True)
class StoredProgram:
    """A program as JSON and arrays, without the options and the weights of the call of ``compile``.

    ``described`` has ``reads``, digests of weights whose values the program depends on, and a model's ``signature``.
    """

    key: str
    described: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]

    @classmethod
    def of(
        cls,
        key: str,
        built: Built,
        source: str,
        bound: ProgramBound | None,
        import_seconds: float,
        reads: Mapping[str, str] | None = None,
        signature: Mapping[str, Any] | None = None,
        arrays: Mapping[str, NDArray[Any]] | None = None,
        weights: Collection[str] = (),
    ) -> StoredProgram:
        """Describe a program that was compiled from the linalg ``source``.

        ``arrays`` belong to the ``signature``; ``weights`` names the arrays that are not stored with the program.
        """
        described = {
            "key": key,
            "reads": reads or {},
            "signature": signature,
            "source": source,
            "arguments": [asdict(value) for value in built.arguments],
            "results": [asdict(value) for value in built.results],
            "returned": built.returned,
            "remarks": built.remarks.json_lines(),
            "seconds": [built.seconds, import_seconds],
            "passes": _scope_to_plain(built.passes.root),
            "bound": bound and [bound.read_bytes, bound.written_bytes, dict(bound.by_format)],
            "steps": [_step_to_plain(step, built.remarks) for step in built.steps],
        }
        constants = {
            f"step.{number}.{name}": array
            for number, step in enumerate(built.steps)
            if isinstance(step, BundleStep)
            for name, array in step.arrays.items()
            if name not in weights
        }
        return cls(key, described, {**(arrays or {}), **constants})

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays, including the JSON text as an array."""
        text = json.dumps(self.described, separators=(",", ":"), allow_nan=False)
        return {**self.arrays, _JSON: np.frombuffer(text.encode(), np.uint8)}

    @classmethod
    def of_arrays(cls, key: str, arrays: Mapping[str, NDArray[Any]]) -> StoredProgram:
        """Create an instance from the arrays of an entry; raise an exception for another ``key`` or damaged data."""
        described = json.loads(arrays[_JSON].tobytes())
        if described["key"] != key:
            raise ValueError("the entry belongs to another program")
        return cls(key, described, {name: array for name, array in arrays.items() if name != _JSON})

    @property
    def source(self) -> str:
        """The text of the linalg before the pipeline; empty if unknown."""
        return self.described["source"]

    @property
    def bound(self) -> ProgramBound | None:
        """The lower bound of the program."""
        return ProgramBound(*self.described["bound"]) if self.described["bound"] else None

    @property
    def import_seconds(self) -> float:
        """The time of the frontend, in seconds."""
        return self.described["seconds"][1]

    @functools.cached_property
    def built(self) -> Built:
        """The steps, arguments and results of the program; any exception if the JSON is damaged."""
        described = self.described
        remarks = Remarks.from_json_lines(described["remarks"])
        timing = Timing()
        timing.root = _scope(described["passes"])
        steps = [self._step(number, step, remarks) for number, step in enumerate(described["steps"])]
        arguments, results = (
            [Value(**{**value, "host_shape": tuple(value["host_shape"])}) for value in described[name]]
            for name in ("arguments", "results")
        )
        seconds, _ = described["seconds"]
        return Built(steps, arguments, results, described["returned"], remarks, timing, seconds)

    def _step(self, number: int, plain: Mapping[str, Any], remarks: Remarks) -> Step:
        name, work = plain["name"], plain["float_operations"]
        inputs, outputs = tuple(plain["inputs"]), tuple(plain["outputs"])
        if "collective" in plain:
            return CollectiveStep.of_plain(plain["collective"])
        if "function" in plain:
            function = HostFunction(parsed(plain["function"], context()))
            return HostStep(name, inputs, outputs, function, plain["operations"], work)
        prefix = f"step.{number}."
        return BundleStep(
            name,
            inputs,
            outputs,
            None,
            bundle_from_json(plain["bundle"], f"step {number} of {self.key}"),
            {key.removeprefix(prefix): array for key, array in self.arrays.items() if key.startswith(prefix)},
            remarks[:] if plain["remarks"] is None else Remarks.from_json_lines(plain["remarks"]),
            [(title, seconds) for title, seconds in plain["passes"]],
            plain["lx_frac_avail"],
            work,
            levels=levels_from_json(plain["levels"]),
        )


def _step_to_plain(step: Step, remarks: Sequence[Remark]) -> dict[str, Any]:
    plain = {
        "name": step.name,
        "inputs": step.inputs,
        "outputs": step.outputs,
        "float_operations": step.float_operations,
    }
    if isinstance(step, CollectiveStep):
        return {**plain, "collective": step.to_plain()}
    if isinstance(step, HostStep):
        return {**plain, "function": step.function.text(), "operations": step.operations}
    # Most programs are one bundle, whose remarks equal the remarks of the program and need not be stored twice.
    is_same = list(step.remarks) == list(remarks)
    return {
        **plain,
        "bundle": bundle_to_json(step.bundle),
        "remarks": None if is_same else Remarks(step.remarks).json_lines(),
        "passes": [list(entry) for entry in step.passes],
        "lx_frac_avail": step.lx_frac_avail,
        "levels": levels_to_json(step.levels),
    }


def _scope_to_plain(scope: TimingScope) -> list[Any]:
    inner = [_scope_to_plain(part) for part in scope.scopes]
    return [scope.name, scope.kind, scope.options, scope.place, scope.seconds, inner]


def _scope(plain: list[Any]) -> TimingScope:
    name, kind, options, place, seconds, inner = plain
    scopes = [_scope(part) for part in inner]
    return TimingScope(name, kind, options, place and tuple(place), seconds, scopes)


# A bundle as one JSON value: the files of a bundle folder, without arrays and remarks.


def bundle_to_json(bundle: Bundle) -> dict[str, Any]:
    """Return the JSON value of a bundle."""
    return {
        "program": print_program(bundle.parameters, bundle.statements),
        "manifest": {**manifest_to_json(bundle.manifest), **padding_to_json(bundle.designs)},
        "designs": {filename: to_json(design) for filename, design in bundle.designs.items()},
    }


def bundle_from_json(value: Any, source: str) -> Bundle:
    """Return the bundle of a JSON value; raise ``CompileError``, which names ``source``, for invalid JSON."""
    root = Field(value, source)
    parameters, statements = parse_program(root["program"].text(), source)
    manifest = manifest_from_json(root["manifest"].value, source)
    designs = {
        filename: from_json(design.value, source, manifest.target)
        for filename, design in root["designs"].members()
    }
    return Bundle(parameters, statements, with_padding(designs, root["manifest"].value, source), manifest)


# Pickling of programs: the stored form, the options of the caller, and the calling convention.
#
# A restored program runs, and has the figures, the reports and the plan of the pickled program. It has no findings,
# because trials compile the model again and the pickle contains only the weights of the model.

_KEY = "pickle"


@dataclass(frozen=True)
class _PickledProgram:
    """A program without IR; ``signature`` is the pickled signature of a PyTorch model, or empty.

    ``images`` has, for each bundle, the device images read from a folder; other images are recomputed on demand.
    """

    stored: StoredProgram
    restore: Callable[..., Any]
    signature: bytes
    arrays: Mapping[str, NDArray[Any]]
    images: Sequence[Images]
    state: DeviceState

    def program(self) -> Any:
        """Create the program."""
        arrays, signature = self.arrays, None
        if self.signature:
            with warnings.catch_warnings():
                # PyTorch warns about one of its own classes, which the structure of the inputs contains.
                warnings.simplefilter("ignore", FutureWarning)
                signature = pickle.loads(self.signature)
            arrays = {**signature.weights(), **arrays}
        program = self.restore(self.stored, arrays=arrays, signature=signature, state=self.state)
        for step, images in zip(program.bundles, self.images, strict=True):
            step.images = images
        return program


def reduced(
    stored: Callable[..., StoredProgram],
    restore: Callable[..., Any],
    built: Built,
    arrays: Mapping[str, NDArray[Any]],
    signature: Any,
    state: DeviceState,
) -> tuple[Callable[[_PickledProgram], Any], tuple[_PickledProgram]]:
    """Return the value of ``Program.__reduce__``; raise ``CompileError`` if a model's signature does not pickle.

    ``stored`` is ``Program.stored``, and ``restore`` creates a program from its value.
    """
    weights, data = {}, b""
    if signature is not None:
        weights = signature.weights()
        try:
            data = pickle.dumps(signature)
        # A signature may contain arbitrary objects, such as random functions and user-defined types.
        except Exception as error:
            reason = str(error).rstrip(".")
            raise CompileError(
                f"The program cannot be pickled, because an input or a result of its model cannot: {reason}."
            ) from None
    is_one_bundle = len(built.steps) == len(built.bundles) == 1
    pickled = _PickledProgram(
        stored(_KEY, weights=weights.keys()),
        restore,
        data,
        # Weights that share memory with the model are part of the signature, because a call may change them.
        {
            name: arrays[name]
            for name in (weights if is_one_bundle else arrays)
            if not _is_same(arrays[name], weights.get(name))
        },
        [Images() if step.images.made_of else step.images for step in built.bundles],
        state,
    )
    return _PickledProgram.program, (pickled,)


def _is_same(array: NDArray[Any], weight: NDArray[Any] | None) -> bool:
    return weight is not None and array.__array_interface__ == weight.__array_interface__


# A program of several steps as a folder: ``program.json``, a bundle or a ``.mlir`` per step, the host's weights.
#
#     program.json        the steps in order, the inputs and outputs of each step, the arguments and the results
#     device_0/           a bundle, as ``spyre_mlir/bundle/folder.py`` writes it
#     host_0.mlir         a host function, @main, in linalg
#     device_0_1/         one of the bundles into which a device function is split; program.json marks the non-terminal
#                         bundles, manifest.json has the LX buffers that a bundle leaves and expects
#     constants.npz       the weights and constants that host functions read
#
# The folder is written atomically, and its content is deterministic.


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
    if len(built.steps) == 1 and isinstance(only := built.steps[0], BundleStep) and built.place is None:
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
            if isinstance(step, CollectiveStep):
                entry.update(kind="collective", **step.to_plain())
                continue
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
        made = next((step.bundle.manifest.made for step in built.steps if isinstance(step, BundleStep)), {})
        program = {"version": FORMAT, "made": dict(made)} if made else {"version": FORMAT}
        program |= {
            "arguments": arguments,
            "steps": described,
            "results": results,
            "returned": built.returned,
        }
        write_json(
            fresh / STEPS, program | ({"mesh": asdict(built.place)} if built.place is not None else {})
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
    if "version" in root:
        require_format(root)
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
    place = None
    if "mesh" in root:
        mesh = root["mesh"]
        place = MeshPlace(mesh["rank"].integer(), mesh["shape"].integers(), mesh["names"].texts())
        if not 0 <= place.rank < place.size:
            mesh.fail(f"has no rank {place.rank}")
    built = Built(steps, arguments, results, [item.text() for item in returned], place=place)
    return built, read_arrays(folder)


def _value(item: Field) -> Value:
    shape = item["host_shape"].integers()
    if min(shape, default=0) < 0:
        item["host_shape"].fail("must not have a negative size")
    if item["host_dtype"].text() not in _HOST_DTYPES:
        item["host_dtype"].fail(f"must be one of {', '.join(sorted(_HOST_DTYPES))}")
    is_unsigned = "is_unsigned" in item and item["is_unsigned"].boolean()
    return Value(item["name"].text(), item["kind"].text(), shape, item["host_dtype"].text(), is_unsigned)


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
    if kind == "collective":
        try:
            return CollectiveStep.of_plain(item.value)
        except (ValueError, TypeError, KeyError) as error:
            item.fail(f"does not describe a collective: {first_sentence(error)}")
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
        item["kind"].fail(f"must be 'bundle', 'host' or 'collective' but is '{kind}'")
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
