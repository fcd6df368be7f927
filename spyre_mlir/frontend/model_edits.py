# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Edits of a PyTorch model and its example inputs, to evaluate changes that a user could make."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from spyre_mlir.dialects import context as new_context
from spyre_mlir.driver.program_findings import Trials
from spyre_mlir.findings import Batch, Freeze, Halve, ModelEdit, MovedStick, Resize, Untranspose
from spyre_mlir.frontend.importer import capture_torch, import_torch
from spyre_mlir.frontend.module_pairs import check_padding_safety
from spyre_mlir.tensors.device_tensor import DeviceTensor, to_device

#: Maximum number of bytes of weights that are copied for an evaluation.
_MOST_COPIED = 4 << 30

_TRANSPOSES = frozenset({
    torch.t, torch.transpose, torch.permute, torch.swapaxes, torch.swapdims, torch.movedim, torch.moveaxis,
    torch.adjoint, torch.Tensor.t, torch.Tensor.transpose, torch.Tensor.permute, torch.Tensor.swapaxes,
    torch.Tensor.swapdims, torch.Tensor.movedim, torch.Tensor.moveaxis, torch.Tensor.adjoint,
    *(vars(torch._C.TensorBase)[name].__get__ for name in ("T", "mT", "H", "mH")),
})  # fmt: skip


class ModelTrials(Trials):
    """The call of ``compile`` that produced the program of a model."""

    is_model = True

    @property
    def inputs_on_device(self) -> frozenset[int]:
        return places_on_device(self.inputs)

    def edited(self, edit: ModelEdit) -> tuple[Any, Any]:
        match edit:
            case Resize(size, to):
                return resized(self.source, self.inputs, size, to)
            case MovedStick(key, stick_dim):
                return with_stick_dim(self.source, self.inputs, key, stick_dim)
            case Untranspose(lines):
                return untransposed(self.source, self.inputs, lines)
            case Batch(size, times):
                return batched(self.source, self.inputs, size, times)
            case Freeze(keys):
                return frozen(self.source, self.inputs, keys)
            case Halve():
                return halved(self.source, self.inputs)


class UneditableError(Exception):
    """Raised for a model or inputs that an edit does not support."""


def resized(model: Any, inputs: Any, size: int, to: int) -> tuple[Any, Any]:
    """Return the model with inputs of ``to`` rows wherever they had ``size``; the last row is repeated.

    ``DifferentPrograms`` if the first rows of the results are not proven to equal the results of the model.
    """

    def resize(tensor: torch.Tensor) -> torch.Tensor:
        for dim, extent in enumerate(tensor.shape):
            if extent == size:
                rows = torch.arange(to, device=tensor.device).clamp(max=size - 1)
                tensor = tensor.index_select(dim, rows)
        return tensor

    larger, context = _mapped(resize, inputs), new_context()
    imported = [
        import_torch(capture_torch(model, example, None), example, context=context)
        for example in (inputs, larger)
    ]
    check_padding_safety(*imported)
    return model, larger


def places_on_device(inputs: Any) -> frozenset[int]:
    """Return the indices of device tensors among the tensors of a call."""
    leaves = pytree.tree_leaves(inputs)
    return frozenset(
        place for place, index in enumerate(_tensors(leaves)) if isinstance(leaves[index], DeviceTensor)
    )


def _tensors(leaves: Sequence[Any]) -> list[int]:
    """The indices of the tensors among the leaves of the inputs; numbers are not inputs of a program."""
    return [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor | DeviceTensor)]


def with_stick_dim(model: Any, inputs: Any, key: tuple[int, str], stick_dim: int) -> tuple[Any, Any]:
    """Return the model with the device input that ``key`` names laid out along ``stick_dim``."""
    leaves, structure = pytree.tree_flatten(inputs)
    index = _tensors(leaves)[key[0]]
    if isinstance(inputs, Mapping):
        index = list(inputs).index(key[1])
    leaves[index] = to_device(leaves[index].numpy(), stick_dims=[stick_dim])
    return model, pytree.tree_unflatten(leaves, structure)


def untransposed(model: Any, inputs: Any, lines: Collection[tuple[str, int]]) -> tuple[Any, Any]:
    """Return the model in which transposes in the functions that contain these lines return their argument."""
    return _Untransposed(model, frozenset(lines)), inputs


class _Untransposed(torch.nn.Module):
    """A model without the transposes in the functions that contain given lines."""

    def __init__(self, model: Callable[..., Any], lines: frozenset[tuple[str, int]]) -> None:
        super().__init__()
        self.model = model
        self._lines = lines

    def forward(self, *inputs: Any, **named: Any) -> Any:
        with _WithoutTransposes(self._lines):
            return self.model(*inputs, **named)


class _WithoutTransposes(TorchFunctionMode):
    """Context in which transposes in functions that contain given lines return their argument."""

    def __init__(self, lines: frozenset[tuple[str, int]]) -> None:
        super().__init__()
        self._lines = lines

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if function in _TRANSPOSES:
            code = sys._getframe(1).f_code
            numbers = {line for _, _, line in code.co_lines()}
            if any(file == code.co_filename and line in numbers for file, line in self._lines):
                return args[0]
        return function(*args, **(kwargs or {}))


def batched(model: Any, inputs: Any, size: int, times: int) -> tuple[Any, Any]:
    """Return the model with ``times`` as many samples in every input whose first dim is ``size``."""

    def repeat(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() and tensor.shape[0] == size:
            return torch.cat([tensor] * times)
        return tensor

    return model, _mapped(repeat, inputs)


def halved(model: Any, inputs: Any) -> tuple[Any, Any]:
    """Return a float16 copy of the model and its inputs; for a function only the inputs are converted."""

    def half(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.half() if tensor.dtype in (torch.float32, torch.float64) else tensor

    if not isinstance(model, torch.nn.Module):
        return model, _mapped(half, inputs)
    if sum(tensor.nbytes for tensor in model.state_dict().values()) > _MOST_COPIED:
        raise UneditableError("the weights are too large for a copy")
    return copy.deepcopy(model).half(), _mapped(half, inputs)


def frozen(model: Any, inputs: Any, keys: Sequence[tuple[int, str]]) -> tuple[Any, Any]:
    """Return the model as a function of the other inputs, with the inputs that ``keys`` name as buffers."""
    leaves = pytree.tree_leaves(inputs)
    if len(leaves) != len(inputs):
        raise UneditableError("the inputs are nested")
    if isinstance(inputs, Mapping):
        values = {name: inputs[name] for _, name in keys}
        others = {name: value for name, value in inputs.items() if name not in values}
        return _Frozen(model, {}, values), others
    tensors = _tensors(leaves)
    chosen = {tensors[place]: leaves[tensors[place]] for place, _ in keys}
    return _Frozen(model, chosen, {}), tuple(v for index, v in enumerate(inputs) if index not in chosen)


class _Frozen(torch.nn.Module):
    """A model in which some inputs are buffers."""

    def __init__(
        self, model: Callable[..., Any], positions: Mapping[int, Any], names: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.model = model
        self._positions, self._names = list(positions), list(names)
        for number, value in enumerate([*positions.values(), *names.values()]):
            self.register_buffer(f"frozen_{number}", value)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        count = len(self._positions) + len(self._names)
        buffers = iter([getattr(self, f"frozen_{number}") for number in range(count)])
        places = {position: next(buffers) for position in self._positions}
        given = iter(inputs)
        total = len(inputs) + len(places)
        whole = [places[position] if position in places else next(given) for position in range(total)]
        return self.model(*whole, **named, **{name: next(buffers) for name in self._names})


def _mapped(function: Callable[[torch.Tensor], torch.Tensor], inputs: Any) -> Any:
    """The inputs with ``function`` applied to each tensor; a device tensor is rejected, because it has a layout."""
    if any(isinstance(leaf, DeviceTensor) for leaf in pytree.tree_leaves(inputs)):
        raise UneditableError("an input is a tensor of the device")
    return pytree.tree_map_only(torch.Tensor, function, inputs)
