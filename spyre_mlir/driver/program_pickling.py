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
from spyre_mlir.driver.program_calls import weights_of
from spyre_mlir.driver.stored_program import StoredProgram
from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass
from spyre_mlir.tensors.device_state import DeviceState

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
            arrays = {**weights_of(signature), **arrays}
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
        weights = weights_of(signature)
        try:
            data = pickle.dumps(signature)
        # A signature may contain arbitrary objects, such as random functions and user-defined types.
        except Exception as error:
            reason = str(error).rstrip(".")
            raise CompileError(
                f"The program does not pickle, for what its model takes or returns does not: {reason}."
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
