# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of a compiled program: bind and lay out the inputs, and run the steps on the simulator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir import eager_mode
from spyre_mlir.bundle.model import KernelArgument, Transfer
from spyre_mlir.bundle.transfer import same_moves
from spyre_mlir.dialects import context as new_context
from spyre_mlir.dialects import parsed
from spyre_mlir.driver.build import Built, Value
from spyre_mlir.driver.steps import BundleStep, HostStep, Step, run_steps
from spyre_mlir.errors import CompileError, HostWorkWarning, RangeWarning, counted, first_sentence, listed
from spyre_mlir.host import HostFunction
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.host_transfer import DmaTuples, layout_of_tuples
from spyre_mlir.layout.requests import device_dtype
from spyre_mlir.records import dataclass
from spyre_mlir.simulator import IntegerRangeError, Schedule, described
from spyre_mlir.target.element_types import dtype_name
from spyre_mlir.target.target import Target
from spyre_mlir.tensors import device_tensor
from spyre_mlir.tensors.device_state import DeviceState
from spyre_mlir.tensors.device_tensor import DeviceTensor, element_type, has_form, laid_out, to_plain

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
    built: Built,
    arrays: Mapping[str, NDArray[Any]],
    numerics: str,
    source_text: Callable[[], str],
    schedule: Schedule | None = None,
) -> list[NDArray[Any]]:
    """Run all steps and return the results as host arrays; warn of values that leave the range of their format.

    The device has 32-bit integers, and whether 64-bit values fit is known only at the call. If they do not fit, the
    call has had no effect yet, and the host runs all of it from the linalg text, if there is one.
    """
    try:
        values = run_steps(built.steps, arrays, numerics, schedule)
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
    warn_of_losses(built)
    return [values[name] for name in built.returned]


def warn_of_losses(built: Built) -> None:
    """Warn of values of the last run that left the range of their format."""
    losses = (loss for step in built.bundles if step.last_run for loss in step.last_run.losses)
    for sentence in described(losses):
        warnings.warn(sentence, RangeWarning, stacklevel=4)


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


# The option ``state`` of ``compile``: arguments that stay in device memory from one call of a program to the next.


@dataclass(frozen=True)
class StateRequest:
    """The state that a caller requests: ``every`` changed buffer, or arguments by name.

    A value in ``given`` is the device tensor of a shared state, another initial value, or None for the model's value.
    """

    every: bool = False
    given: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, option: Any) -> StateRequest:
        """Parse the option: True, names, or a mapping such as the ``state`` of another program."""
        if option is None or isinstance(option, bool):
            return cls(every=bool(option))
        if isinstance(option, Mapping):
            return cls(given=dict(option))
        names = [option] if isinstance(option, str) else option
        if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
            raise CompileError(
                f"The option 'state' is True, names of arguments, or a mapping from them to tensors, not {option!r}."
            )
        return cls(given=dict.fromkeys(names))

    def __bool__(self) -> bool:
        return self.every or bool(self.given)

    @property
    def layouts(self) -> dict[str | int, StickLayout]:
        """The layouts of the shared tensors, which are on the device already."""
        return {name: value.layout for name, value in self.given.items() if isinstance(value, DeviceTensor)}

    def with_layouts(self, chosen: Mapping[str | int, Any]) -> dict[str | int, Any]:
        """Return the layouts that the caller chose together with the layouts of the shared tensors."""
        if twice := sorted(str(name) for name in self.layouts.keys() & chosen.keys()):
            raise CompileError(
                f"The layout of '{twice[0]}' is fixed by the state that the program shares; give the option "
                "'layouts' to the first program of the state."
            )
        return {**chosen, **self.layouts}

    def check(self, signature: Any) -> None:
        """Raise ``CompileError`` for a name that is not an argument of the model."""
        names = list(_arguments(signature))
        for name in self.given:
            if name not in names:
                raise CompileError(
                    f"There is no argument '{name}' to keep as state; the arguments of the model are "
                    f"{listed(names, name)}."
                )

    def tensors(self, built: Built, signature: Any, inputs: Any) -> DeviceState:
        """Create the state of a model's program, which was compiled with example ``inputs``."""
        self.check(signature)
        given = dict(self.given)
        if self.every:
            updated = [update.argument for update in signature.updates]
            # Tensors without elements are not state.
            given = {
                argument.name: None
                for argument in updated
                if argument.leaf is None and argument.tensor.numel()
            }
        return DeviceState(
            {name: _tensor(built, signature, name, value, inputs) for name, value in given.items()}
        )


def _arguments(signature: Any) -> dict[str, Any]:
    """Return the arguments of a model by name, including buffers that it writes but does not read."""
    updated = {update.argument.name: update.argument for update in signature.updates}
    return {**{argument.name: argument for argument in signature.arguments}, **updated}


def _tensor(built: Built, signature: Any, name: str, value: Any, inputs: Any) -> DeviceTensor:
    """Return the state tensor of an argument: the shared tensor, or a new tensor with an initial value.

    A new tensor has the layout in which a bundle reads it, else in which one writes it, else the default layout. If the
    device does not support its type, it is stored in host format.
    """
    argument = _arguments(signature)[name]
    own = argument.tensor if argument.leaf is None else signature.example(argument, inputs)
    value = own if value is None else value
    dtype = dtype_name(own.dtype)
    if isinstance(value, DeviceTensor):
        tensor = value
    else:
        written = None
        try:
            if not has_form(dtype):
                tensor = to_plain(value, dtype)
            elif _readers(built.steps, name):
                tensor = to_device(built, name, value)
            else:
                tensor = device_tensor.to_device(value)
                written = _written(built.steps, _new_values(built, signature).get(name))
        except CompileError as error:
            raise CompileError(
                f"The state '{name}' cannot stay on the device; keep it in another type, or name in 'state' the "
                f"buffers that stay: {error.message}"
            ) from None
        if written is not None:
            step, result = written
            layout = layout_of_argument(result, step.bundle.target)
            tensor = laid_out(tensor.numpy(), tensor.dtype, layout)
    expected = next((argument for argument in built.arguments if argument.name == name), None)
    if expected is not None and (tensor.shape, tensor.dtype) != (expected.host_shape, dtype):
        raise CompileError(
            f"The state '{name}' is {list(tensor.shape)} {tensor.dtype}, but the model takes "
            f"{list(expected.host_shape)} {dtype}."
        )
    return tensor


def resident_state(built: Built, signature: Any, state: DeviceState) -> dict[str, str]:
    """Return the state that no call transfers: the name of each argument, and of its new value ("" if unchanged).

    State that a host function reads or writes is transferred, and so is a new value in other memory than the old value.
    """
    if signature is None:
        return {}
    new_values = _new_values(built, signature)
    resident = {}
    for name, tensor in state.items():
        readers = _readers(built.steps, name)
        is_of_the_host = any(isinstance(step, HostStep) and name in step.inputs for step in built.steps)
        if tensor.storage.form is None or is_of_the_host:
            continue
        if not all(same_moves(reader.transfer, tensor.transfer) for reader in readers):
            continue
        if any(update.argument.name == name for update in signature.updates):
            # The new value must be in the memory of the old value, which may be unread.
            written = _written(built.steps, new_values.get(name))
            if written is None or not same_moves(written[1].transfer, tensor.transfer):
                continue
            if any(reader.parameter != written[1].parameter for reader in readers):
                continue
        resident[name] = new_values.get(name, "")
    return resident


def _new_values(built: Built, signature: Any) -> dict[str, str]:
    """Return, by argument name, the name of the program value that is the new value of the argument."""
    return {name: built.returned[index] for index, name in signature.updated().items()}


def _readers(steps: Sequence[Step], name: str) -> list[KernelArgument]:
    """Return the arguments of bundles that read an array of the program."""
    bundles = (step.bundle for step in steps if isinstance(step, BundleStep))
    arguments = (argument for bundle in bundles for argument in bundle.manifest.arguments)
    return [argument for argument in arguments if argument.kind != "result" and argument.array_name == name]


def _written(steps: Sequence[Step], value: str | None) -> tuple[BundleStep, KernelArgument] | None:
    """Return the bundle that writes a value, and its argument for the value; None if no bundle writes it."""
    for step in steps:
        if isinstance(step, BundleStep) and value in step.outputs:
            return step, dict(step.written)[value]
    return None
