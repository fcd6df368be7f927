# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The option ``state`` of ``compile``: arguments that stay in device memory from one call of a program to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from spyre_mlir.bundle.model import KernelArgument
from spyre_mlir.bundle.transfer import same_moves
from spyre_mlir.driver.build import Built
from spyre_mlir.driver.program_calls import layout_of_argument, to_device
from spyre_mlir.driver.steps import BundleStep, HostStep, Step
from spyre_mlir.errors import CompileError, listed
from spyre_mlir.layout import StickLayout
from spyre_mlir.records import dataclass
from spyre_mlir.target.element_types import dtype_name
from spyre_mlir.tensors import device_tensor
from spyre_mlir.tensors.device_state import DeviceState
from spyre_mlir.tensors.device_tensor import DeviceTensor, has_form, laid_out, to_plain


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
