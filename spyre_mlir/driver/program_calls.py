# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of a compiled program: bind and lay out the inputs, and run the steps on the simulator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir import eager_mode
from spyre_mlir.bundle.model import KernelArgument, Transfer
from spyre_mlir.bundle.transfer import same_moves
from spyre_mlir.dialects import context as new_context
from spyre_mlir.dialects import parsed
from spyre_mlir.driver.build import Built, Value
from spyre_mlir.driver.steps import run_steps
from spyre_mlir.errors import CompileError, HostWorkWarning, RangeWarning, counted, first_sentence, listed
from spyre_mlir.host import HostFunction
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.host_transfer import DmaTuples, layout_of_tuples
from spyre_mlir.layout.requests import device_dtype
from spyre_mlir.simulator import IntegerRangeError, described
from spyre_mlir.target.target import Target
from spyre_mlir.tensors import device_tensor
from spyre_mlir.tensors.device_state import DeviceState
from spyre_mlir.tensors.device_tensor import DeviceTensor, element_type, laid_out

#: The operands of one call by name, and the function that converts the results for the caller.
Bound = tuple[dict[str, NDArray[Any] | DeviceTensor], Callable[[list[NDArray[Any]]], Any]]


def bind(
    arguments: Sequence[Value],
    results: Sequence[Value],
    signature: Any,
    state: DeviceState,
    inputs_only: bool,
    inputs: Sequence[Any],
    named: Mapping[str, Any],
) -> Bound:
    """Bind the inputs of a call by the ``signature`` of a model, or without one by position to the ``arguments``.

    Without a signature the results are arrays, or tensors if an input is a tensor of PyTorch.

    ``inputs_only``: weights and constants of the signature are not bound, because the program has its own.
    """
    if signature is not None:
        call = signature.bind(inputs, named, state)
        pairs = zip(signature.arguments, call.operands(), strict=True)
        bound = {
            argument.name: value for argument, value in pairs if not inputs_only or argument.kind == "input"
        }
        return bound, call.finish
    if named:
        raise CompileError(
            f"The inputs of this program are given by position, not by name as '{next(iter(named))}'."
        )
    if len(inputs) != len(arguments):
        raise CompileError(f"The program takes {counted(len(arguments), 'input')}, not {len(inputs)}.")
    operands, convert = dict(zip((argument.name for argument in arguments), inputs, strict=True)), list
    if any(hasattr(value, "resolve_neg") for value in inputs):
        operands, convert = eager_mode.load().bind_tensors(operands, results)
    operands = {
        name: value if isinstance(value, DeviceTensor) else _array(name, value)
        for name, value in operands.items()
    }
    return operands, lambda arrays: arrays[0] if len(arrays := convert(arrays)) == 1 else tuple(arrays)


def _array(name: str, value: Any) -> NDArray[Any]:
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise CompileError(f"The input '{name}' is not an array: {first_sentence(error)}.") from error


def run_or_fall_back(
    built: Built, arrays: Mapping[str, NDArray[Any]], numerics: str, source_text: Callable[[], str]
) -> list[NDArray[Any]]:
    """Run all steps and return the results as host arrays; warn of values that leave the range of their format.

    The device has 32-bit integers, and whether 64-bit values fit is known only at the call. If they do not fit, the
    call has had no effect yet, and the host runs all of it from the linalg text, if there is one.
    """
    try:
        values = run_steps(built.steps, arrays, numerics)
    except IntegerRangeError as error:
        if not (source := source_text()):
            raise
        try:
            function = HostFunction(parsed(source, new_context()))
        except CompileError:
            raise error from error.__cause__
        warnings.warn(
            f"The host runs this call, because the device has 32-bit integers: {error.message}",
            HostWorkWarning,
            stacklevel=4,
        )
        return function(*(arrays[argument.name] for argument in built.arguments))
    losses = (loss for step in built.bundles if step.last_run for loss in step.last_run.losses)
    for sentence in described(losses):
        warnings.warn(sentence, RangeWarning, stacklevel=3)
    return [values[name] for name in built.returned]


def to_device(built: Built, name: str, array: Any) -> DeviceTensor:
    """Lay out an array in the layout of an input; see ``Program.to_device``."""
    for step in built.bundles:
        for argument in step.bundle.manifest.arguments:
            if argument.name == name and argument.kind == "input":
                host = device_tensor.to_device(array, dtype=argument.host_dtype).numpy()
                if host.shape != argument.host_shape:
                    raise CompileError(
                        f"The input '{name}' has shape {list(argument.host_shape)}, not {list(host.shape)}."
                    )
                layout = layout_of_argument(argument, step.bundle.target)
                return laid_out(host, argument.host_dtype, layout)
    names = listed(value.name for value in built.inputs)
    raise CompileError(f"The program has no input '{name}' on the device; its inputs are {names}.")


def layout_of_argument(argument: KernelArgument, target: Target) -> StickLayout:
    """Return the layout in which a bundle reads or writes an argument."""
    moves = argument.transfer
    tuples = DmaTuples(moves.ranges, moves.host_strides, moves.device_strides, moves.bounds)
    return layout_of_tuples(
        target, tuples, argument.host_shape, device_dtype(element_type(argument.host_dtype))
    )


def on_the_host(
    built: Built, state: DeviceState, operands: Mapping[str, NDArray[Any] | DeviceTensor]
) -> dict[str, NDArray[Any]]:
    """Return operands as host arrays, which the simulator loads into its memory; check layouts of device tensors."""
    arrays = {}
    for name, value in operands.items():
        if not isinstance(value, DeviceTensor):
            arrays[name] = value
            continue
        # The layout of state is not checked: it is laid out again for a bundle that requires another layout.
        for step in built.bundles if state.get(name) is not value else ():
            for argument in step.bundle.manifest.arguments:
                if argument.name == name:
                    _check_layout(argument, value)
        host = value.numpy()
        # MLIR integers are signless.
        arrays[name] = host.view(np.int8) if value.dtype == "uint8" else host
    return arrays


def _check_layout(argument: KernelArgument, value: DeviceTensor) -> None:
    """Raise ``CompileError`` if a tensor and an argument differ in layout; the simulator checks shape and dtype."""
    is_like = value.shape == argument.host_shape and value.dtype == argument.host_dtype
    if is_like and not same_moves(value.transfer, argument.transfer):
        raise CompileError(
            f"The input '{argument.name}' has {_described(value.layout.device_size, value.transfer)}, but the program "
            f"accepts {_described(argument.device_size, argument.transfer)}; convert the input with "
            "Program.to_device, or compile with tensors in this layout."
        )


def _described(device_size: Sequence[int], transfer: Transfer) -> str:
    return f"device size {list(device_size)} with host strides {list(transfer.host_strides)}"
