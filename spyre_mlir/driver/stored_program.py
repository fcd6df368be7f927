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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.design_json import from_json, to_json
from spyre_mlir.bundle.json_fields import (
    Field,
    manifest_from_json,
    manifest_to_json,
    padding_to_json,
    with_padding,
)
from spyre_mlir.bundle.model import Bundle, levels_from_json, levels_to_json
from spyre_mlir.bundle.program_text import parse_program, print_program
from spyre_mlir.bundle.transfer import Images
from spyre_mlir.cost.bound import ProgramBound
from spyre_mlir.dialects import context, parsed
from spyre_mlir.driver.build import Built, Value
from spyre_mlir.driver.steps import BundleStep, HostStep, Step
from spyre_mlir.errors import CompileError
from spyre_mlir.host import HostFunction
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
