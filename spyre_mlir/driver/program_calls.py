# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of a compiled program: bind and lay out the inputs, and run the steps on the simulator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.model import KernelArgument, Transfer
from spyre_mlir.bundle.transfer import same_moves
from spyre_mlir.dialects import context as new_context
from spyre_mlir.dialects import parsed
from spyre_mlir.driver.build import Value
from spyre_mlir.driver.program_figures import ProgramFigures
from spyre_mlir.driver.steps import run_steps
from spyre_mlir.errors import CompileError, HostWorkWarning, RangeWarning, listed
from spyre_mlir.faults import entry_points
from spyre_mlir.host import HostFunction
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.host_transfer import DmaTuples, layout_of_tuples
from spyre_mlir.layout.requests import device_dtype
from spyre_mlir.simulator import IntegerRangeError, described
from spyre_mlir.target.target import Target
from spyre_mlir.tensors.device_state import DeviceState
from spyre_mlir.tensors.device_tensor import DeviceTensor, element_type, laid_out, to_device

#: The operands of one call by name, and the function that converts the results for the caller.
Bound = tuple[dict[str, NDArray[Any] | DeviceTensor], Callable[[list[NDArray[Any]]], Any]]


@entry_points
class ProgramCalls(ProgramFigures):
    """The arguments of a program and its calls; ``Program`` sets and documents the attributes."""

    arguments: list[Value]
    results: list[Value]
    numerics: str
    state: DeviceState
    #: Tensors of the model on the meta device; with any, the program has a plan and figures but cannot run.
    missing: Sequence[str]
    _bind: Callable[..., Bound]

    @property
    def returned(self) -> list[str]:
        """The names of the values that a call returns, in the order of ``results``."""
        return self._built.returned

    @property
    def inputs(self) -> list[Value]:
        """The arguments that a call passes, in order."""
        return [argument for argument in self.arguments if argument.kind == "input"]

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run the program on the simulator and return the results of the model.

        Args:
            *inputs: PyTorch tensors for a model, arrays for a module, by position. A ``DeviceTensor`` is accepted if
                its layout is the layout of the argument.
            **named: Keyword inputs of a model.

        Returns:
            The return value of the model; for a module, an array, or a tuple of several arrays.
        """
        self._require_numbers()
        return self.call(*self._bind(*inputs, **named))

    def call(
        self,
        operands: Mapping[str, NDArray[Any] | DeviceTensor],
        finish: Callable[[list[NDArray[Any]]], Any],
    ) -> Any:
        """Run the program on ``operands`` by name; return its results after conversion by ``finish``."""
        arrays = {
            name: self._on_the_host(name, value) if isinstance(value, DeviceTensor) else value
            for name, value in operands.items()
        }
        return finish(self.run({**self.arrays, **arrays}))

    def run(self, arrays: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Run all steps in order and return the results as host arrays.

        If the call has 64-bit integers that do not fit into the device's 32-bit integers, the host runs the whole call,
        provided that the linalg of the program is available.

        Args:
            arrays: The arrays of all arguments by name, including parameters and constants.
        """
        self._require_numbers()
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

    def _require_numbers(self) -> None:
        """Raise ``CompileError`` if the program was compiled from the shapes of a model, without its values."""
        if self.missing:
            others = f" and {len(self.missing) - 1:,} more tensors" if len(self.missing) > 1 else ""
            raise CompileError(
                f"The program has no numbers, because {self.missing[0]}{others} of the model were on the meta device: "
                "it has a plan and figures alone; compile the model with its weights to run or save it."
            )

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
        """Lay out an array in the layout of an input, so that it stays on the device between calls.

        Args:
            name: The name of the input.
            array: A numpy array or a PyTorch tensor, in the shape of the input.

        Raises:
            CompileError: The device does not have such an input, or the array has another shape.
        """
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
        """Check the layout of a device tensor and return its host array, which the simulator loads into its memory."""
        # The layout of state is not checked: it is laid out again for a bundle that requires another layout.
        for step in self.bundles if self.state.get(name) is not value else ():
            for argument in step.bundle.manifest.arguments:
                if argument.name == name:
                    _check_layout(argument, value)
        host = value.numpy()
        # MLIR integers are signless.
        return host.view(np.int8) if value.dtype == "uint8" else host


def layout_of_argument(argument: KernelArgument, target: Target) -> StickLayout:
    """Return the layout in which a bundle reads or writes an argument."""
    moves = argument.transfer
    tuples = DmaTuples(moves.ranges, moves.host_strides, moves.device_strides, moves.bounds)
    return layout_of_tuples(
        target, tuples, argument.host_shape, device_dtype(element_type(argument.host_dtype))
    )


def _array(name: str, value: Any) -> NDArray[Any]:
    try:
        # numpy rejects PyTorch tensors that require gradients or have the negative bit set.
        return np.asarray(value.detach().resolve_neg() if hasattr(value, "resolve_neg") else value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise CompileError(f"The input '{name}' is not an array: {str(error).rstrip('.')}.") from error


def _check_layout(argument: KernelArgument, value: DeviceTensor) -> None:
    """Raise ``CompileError`` if a tensor and an argument differ in layout; the simulator checks shape and dtype."""
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


# A program as one host function, for calls with integers that do not fit into the device's integers.
#
# The device has 32-bit integers, and whether 64-bit values fit is known only at the call. If they do not fit, the call
# has had no effect yet, and the host runs all of it.


def run_on_host(
    source: str, arguments: Sequence[Value], arrays: Mapping[str, NDArray[Any]], error: IntegerRangeError
) -> list[NDArray[Any]]:
    """Run the linalg text of a program on the host, after the device has rejected integers with ``error``.

    Issue a warning. Raise ``error`` if the host does not support all operations.
    """
    try:
        function = HostFunction(parsed(source, new_context()))
    except CompileError:
        raise error from error.__cause__
    warnings.warn(
        f"The host runs all of this call, as the device has integers of 32 bits: {error.message}",
        HostWorkWarning,
        stacklevel=4,
    )
    return function(*(arrays[argument.name] for argument in arguments))
