# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs as pickles: the JSON and the arrays of the cache on disk, the choices of the caller, the calling convention.

A restored program runs, and has the figures, the reports and the plan of the one that was pickled, but no findings: the
model that trials would compile again is not in it, only its weights.
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
    """A program without IR; ``signature`` is that of a PyTorch model as a pickle of its own, empty without one.

    ``images`` are those of each step that were read from a folder; others are made again when they are asked for.
    """

    stored: StoredProgram
    restore: Callable[[StoredProgram], Program] | None
    numerics: str
    signature: bytes
    arrays: Mapping[str, NDArray[Any]]
    images: Sequence[Images]
    state: DeviceState

    def program(self) -> Program:
        """Make the program."""
        restored = (
            self.stored.program(self.numerics, _no_linalg)
            if self.restore is None
            else self.restore(self.stored)
        )
        if self.signature:
            # Imports torch.
            from spyre_mlir.driver.model_program import bind_model

            with warnings.catch_warnings():
                # PyTorch warns of a class of its own, which the structure of inputs has.
                warnings.simplefilter("ignore", FutureWarning)
                signature = pickle.loads(self.signature)
            bind_model(restored, signature)
        restored.arrays.update(self.arrays)
        for step, images in zip(restored.bundles, self.images, strict=True):
            step.images = images
        restored.state = self.state
        return restored


def reduced(program: Program) -> tuple[Callable[[_PickledProgram], Program], tuple[_PickledProgram]]:
    """Return the value of ``Program.__reduce__``; ``CompileError`` where inputs or results of a model do not pickle."""
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
        # Weights in the memory of the model are in the signature, where a call may change them.
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
    # Functions that draw random numbers, types of the user: whatever a model takes and returns.
    except Exception as error:
        reason = str(error).rstrip(".")
        raise CompileError(
            f"The program does not pickle, for what its model takes or returns does not: {reason}."
        ) from None


def _no_linalg(module: ir.Module) -> Built:
    raise CompileError("A program that was read from a folder has no IR.")
