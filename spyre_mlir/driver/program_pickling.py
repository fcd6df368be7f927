# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pickling of programs: the JSON and the arrays of a cache entry, the options of the caller, the calling convention.

A restored program runs, and has the figures, the reports and the plan of the pickled program. It has no findings,
because trials compile the model again and the pickle contains only the weights of the model.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from spyre_mlir.bundle.images import Images
from spyre_mlir.driver.build import Built
from spyre_mlir.driver.program import Program
from spyre_mlir.driver.stored_program import StoredProgram
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.tensors.device_state import DeviceState

_KEY = "pickle"


@dataclass(frozen=True)
class _PickledProgram:
    """A program without IR; ``signature`` is the pickled signature of a PyTorch model, or empty.

    ``images`` has, for each bundle, the device images read from a folder; other images are recomputed on demand.
    """

    stored: StoredProgram
    restore: Callable[[StoredProgram], Program] | None
    numerics: str
    signature: bytes
    arrays: Mapping[str, NDArray[Any]]
    images: Sequence[Images]
    state: DeviceState

    def program(self) -> Program:
        """Create the program."""
        restored = (
            self.stored.program(self.numerics, _no_linalg)
            if self.restore is None
            else self.restore(self.stored)
        )
        if self.signature:
            # Imports torch.
            from spyre_mlir.driver.model_program import bind_model

            with warnings.catch_warnings():
                # PyTorch warns about one of its own classes, which the structure of the inputs contains.
                warnings.simplefilter("ignore", FutureWarning)
                signature = pickle.loads(self.signature)
            bind_model(restored, signature)
        restored.arrays.update(self.arrays)
        for step, images in zip(restored.bundles, self.images, strict=True):
            step.images = images
        restored.state = self.state
        return restored


def reduced(program: Program) -> tuple[Callable[[_PickledProgram], Program], tuple[_PickledProgram]]:
    """Return the value of ``Program.__reduce__``; raise ``CompileError`` if a model's signature does not pickle."""
    signature, weights = program.signature, {}
    if signature is not None:
        # Imports torch.
        from spyre_mlir.driver.model_program import weights_of

        weights = weights_of(signature)
    names = weights.keys() if program.is_one_bundle else program.arrays.keys()
    pickled = _PickledProgram(
        StoredProgram.of(_KEY, program, program.source_text(), weights=weights.keys()),
        program.restore,
        program.numerics,
        b"" if signature is None else _signature_bytes(signature),
        # Weights that share memory with the model are part of the signature, because a call may change them.
        {
            name: program.arrays[name]
            for name in names
            if not _is_same(program.arrays[name], weights.get(name))
        },
        [Images() if step.images.made_of else step.images for step in program.bundles],
        program.state,
    )
    return _PickledProgram.program, (pickled,)


def _is_same(array: NDArray[Any], weight: NDArray[Any] | None) -> bool:
    return weight is not None and array.__array_interface__ == weight.__array_interface__


def _signature_bytes(signature: Any) -> bytes:
    try:
        return pickle.dumps(signature)
    # A signature may contain arbitrary objects, such as random functions and user-defined types.
    except Exception as error:
        reason = str(error).rstrip(".")
        raise CompileError(
            f"The program does not pickle, for what its model takes or returns does not: {reason}."
        ) from None


def _no_linalg(module: ir.Module) -> Built:
    raise CompileError("A program that was read from a folder has no IR.")
