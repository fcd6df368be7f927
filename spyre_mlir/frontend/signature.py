# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calling convention of a program as a function like its model: inputs, return value and in-place changes.

A program takes and returns a list of tensors. A model takes and returns tuples, dicts, dataclasses, None and numbers;
it returns its inputs or views of them, and it changes inputs and buffers in place. ``Signature.bind`` checks the inputs
of one call. The resulting ``Call`` has the operands of the program. From the results of the program it reproduces the
effects of the model: it writes new values into the caller's tensors and returns the model's return value, in which
views are views of the same tensors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils import _pytree as pytree

from spyre_mlir.bundle.model import IndexBounds
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.call_objects import CallInputs, CallOutcome, input_path
from spyre_mlir.frontend.object_graphs import LEAVES
from spyre_mlir.frontend.storage import shares_memory
from spyre_mlir.frontend.view_names import view_name, view_operation
from spyre_mlir.records import dataclass
from spyre_mlir.tensors.device_tensor import DeviceTensor

INPUT, PARAMETER, CONSTANT = "input", "parameter", "constant"


class Argument(NamedTuple):
    """One argument of @main.

    ``tensor`` is the parameter, the buffer or the constant; an argument of the call does not have one. ``leaf`` is its
    index among the leaves of the model's inputs. ``dims`` are the named dims that it consists of. A buffer that the
    model changes is an input with a tensor: each call starts from the value that the last call left. Random numbers are
    an input with a ``draw``. An argument that is used as an index has ``index_bounds``. For a constant that the import
    computed, ``source_bytes`` is the size of the model data it is computed from. A ``part``, "real" or "imag", is the
    only part of a complex tensor that the program takes. A parameter converted to another type has the name of the
    original parameter in ``cast_from``.
    """

    name: str
    kind: str
    tensor: torch.Tensor | None = None
    leaf: int | None = None
    dims: tuple[str, ...] = ()
    draw: Callable[[], torch.Tensor] | None = None
    index_bounds: IndexBounds | None = None
    source_bytes: int | None = None
    part: str = ""
    cast_from: str | None = None


@dataclass(frozen=True, eq=False)
class Fixed:
    """A leaf of the model's output that does not depend on the model's inputs."""

    value: Any

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fixed) or type(self.value) is not type(other.value):
            return False
        if isinstance(self.value, torch.Tensor):
            return torch.equal(self.value, other.value)
        return self.value == other.value

    def fresh(self) -> Any:
        """Return the value for one call, which may change it."""
        return self.value.clone() if isinstance(self.value, torch.Tensor) else self.value


class ViewCall(NamedTuple):
    """Operation that returns a view of its first operand; ``args`` are the other operands."""

    operation: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __reduce__(self) -> tuple[Callable[..., ViewCall], tuple[str, tuple[Any, ...], dict[str, Any]]]:
        # PyTorch operations cannot be pickled.
        return _view_call, (view_name(self.operation), self.args, self.kwargs)


def _view_call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ViewCall:
    return ViewCall(view_operation(name), args, kwargs)


class View(NamedTuple):
    """A leaf that is a view of an argument, or of the result with an index; without steps, the base itself."""

    base: Argument | int
    steps: tuple[ViewCall, ...] = ()

    def replay(self, base: Any) -> Any:
        """Apply the view operations to a tensor that replaces the base."""
        for step in self.steps:
            base = step.operation(base, *step.args, **step.kwargs)
        return base


class Number(NamedTuple):
    """A leaf that is the only element of a tensor, as a Python number."""

    tensor: Fixed | View


class Complex(NamedTuple):
    """A complex leaf, given by the leaves of its two parts."""

    real: Fixed | View
    imaginary: Fixed | View


#: Origin of a leaf of the model's return value.
Leaf = Fixed | View | Number | Complex


class Update(NamedTuple):
    """An argument that the model changes in place, and its new value."""

    argument: Argument
    value: Leaf


class ResultType(NamedTuple):
    """Shape and type of one result of @main."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Signature:
    """Arguments and results of a program, and the model's inputs, return value and updates in terms of them.

    ``numbers`` maps input leaves that are not tensors, by index, to the values that the program was compiled for.
    ``random`` are the arguments that each call draws, in this order; the program may not use all of them.
    """

    arguments: list[Argument]
    results: list[ResultType]
    leaves: list[Leaf]
    updates: list[Update]
    numbers: dict[int, Any]
    random: list[Argument]
    input_tree: pytree.TreeSpec = field(repr=False)
    output_tree: pytree.TreeSpec = field(repr=False)

    def updated(self) -> dict[int, str]:
        """The results that are new values of arguments: the names of the arguments by result index."""
        values = ((update.value, update.argument.name) for update in self.updates)
        return {
            value.base: name
            for value, name in values
            if isinstance(value, View) and isinstance(value.base, int) and not value.steps
        }

    def bind(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], state: Mapping[str, DeviceTensor] | None = None
    ) -> Call:
        """Bind the inputs of one call of the model; raise ``CompileError`` for inputs that do not match.

        ``state`` maps names of buffers to buffers on the device, which replace the buffers of the model.
        """
        leaves, inputs = self.leaves_of(args, kwargs)
        for position, number in self.numbers.items():
            # True equals 1 in Python, but gives another program.
            if type(leaves[position]) is not type(number) or leaves[position] != number:
                raise CompileError(
                    f"The program was compiled for {number!r} as input {position}, not for {_text(leaves[position])}."
                )
        drawn = {argument.name: argument.draw() for argument in self.random if argument.draw is not None}
        call = Call(self, leaves, drawn, state or {}, inputs)
        for update in self.updates:
            call.check_change(update.argument)
        return call

    def example(self, argument: Argument, inputs: Sequence[Any] | Mapping[str, Any]) -> Any:
        """Return the value of a call argument in example inputs."""
        assert argument.leaf is not None, "the call gives it"
        is_named = isinstance(inputs, Mapping)
        return self.leaves_of(() if is_named else inputs, inputs if is_named else {})[0][argument.leaf]

    def leaves_of(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], CallInputs | None]:
        """Leaves of inputs that have the structure of the example, and the objects among the inputs."""
        is_plain = not kwargs and all(isinstance(value, LEAVES) for value in args)
        if is_plain and len(args) in self._plain_counts:
            return [_device_tensor_of(value) for value in args], CallInputs.of_leaves(args)
        # A program that the user exported has its own result structure.
        if self.output_tree.type is not CallOutcome:
            return _leaves_of(self.input_tree, (tuple(args), _ordered(self.input_tree, kwargs))), None
        inputs = CallInputs(args, _ordered(self.input_tree, kwargs))
        form = self.output_tree.context
        if difference := form.inputs.difference(inputs.graph):
            path, one, other = difference
            path = input_path(path)
            raise CompileError(
                f"The program was compiled for {one} as {path}, not for {other}; compile it for these inputs too."
            )
        leaves = _leaves_of(self.input_tree, inputs.call)
        if is_plain:
            self._plain_counts.add(len(args))
        return leaves, inputs

    @functools.cached_property
    def _plain_counts(self) -> set[int]:
        """Numbers of positional inputs, all tensors, of earlier calls with the structure of the example."""
        return set()


def leaves_of(expected: pytree.TreeSpec, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Leaves of inputs; raise ``CompileError`` if the structure differs from the expected structure."""
    return _leaves_of(expected, CallInputs(args, _ordered(expected, kwargs)).call)


def _device_tensor_of(leaf: Any) -> Any:
    """The DeviceTensor of a SpyreTensor, found without importing its class; any other leaf unchanged."""
    return getattr(leaf, "device_tensor", leaf)


def _leaves_of(expected: pytree.TreeSpec, call: tuple[tuple[Any, ...], dict[str, Any]]) -> list[Any]:
    leaves, tree = pytree.tree_flatten(call)
    leaves = list(map(_device_tensor_of, leaves))
    if tree != expected:
        raise CompileError(_structure_error(expected, tree))
    return leaves


def _ordered(expected: pytree.TreeSpec, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword inputs in the order of the example; other names are unchanged, and give another structure."""
    names = expected.child(1).context
    return {name: kwargs[name] for name in names} if set(names) == set(kwargs) else dict(kwargs)


@dataclass(frozen=True)
class Call:
    """One call: the ``leaves`` of its inputs, the random numbers ``drawn`` for it, and buffers on the device.

    ``inputs`` contains the objects among the inputs.
    """

    signature: Signature
    leaves: list[Any]
    drawn: dict[str, torch.Tensor]
    state: Mapping[str, DeviceTensor]
    inputs: CallInputs | None = None

    def check_change(self, argument: Argument) -> None:
        """Raise ``CompileError`` if a changed argument shares memory with another argument."""
        changed = self._operand(argument)
        if isinstance(changed, torch.Tensor) and shares_memory(changed):
            raise CompileError(
                f"The model changes '{argument.name}' in place, and elements of the given tensor share memory, "
                "as elements of an expanded tensor do; pass a clone() of it."
            )
        for other in self.signature.arguments:
            # The parts of a complex argument change together with it.
            is_part = bool(other.part) and (other.leaf, other.tensor) == (argument.leaf, argument.tensor)
            if other.name != argument.name and not is_part and _share_memory(changed, self._operand(other)):
                raise CompileError(
                    f"The model changes '{argument.name}' in place, but '{other.name}' lies in the same memory."
                )

    def operands(self) -> list[Any]:
        """Operands of @main as arrays; an input on the device is passed unchanged."""
        named = ((self._operand(argument), argument.name) for argument in self.signature.arguments)
        return [value if isinstance(value, DeviceTensor) else to_numpy(value, name) for value, name in named]

    def finish(self, arrays: Sequence[np.ndarray]) -> Any:
        """Return value of the model, from the results of @main; also write the model's updates to the arguments."""
        results = [
            to_tensor(_at_size(array, result.shape), result.dtype).reshape(result.shape)
            for array, result in zip(arrays, self.signature.results, strict=True)
        ]
        changes = [
            # Cloned before the first copy: a new value may be a view of another changed argument.
            (self._operand(update.argument), self._value(update.value, results).clone())
            for update in self.signature.updates
        ]
        with torch.no_grad():
            for old, new in changes:
                _change(old, new)
        values = [self._value(leaf, results) for leaf in self.signature.leaves]
        outcome = pytree.tree_unflatten(values, self.signature.output_tree)
        return outcome if self.inputs is None else outcome.finish(self.inputs)

    def _operand(self, argument: Argument) -> Any:
        """Return the tensor of an argument in this call."""
        if argument.draw is not None:
            return self.drawn[argument.name]
        if argument.leaf is None:
            tensor = self.state.get(argument.name, argument.tensor)
        else:
            tensor = self.leaves[argument.leaf]
        return _part(tensor, argument) if argument.part else tensor

    def _value(self, leaf: Leaf, results: Sequence[torch.Tensor]) -> Any:
        """Return the tensor or number of a leaf in this call."""
        if isinstance(leaf, Number):
            return self._value(leaf.tensor, results).item()
        if isinstance(leaf, Complex):
            return torch.complex(*(self._value(part, results) for part in leaf))
        if isinstance(leaf, Fixed):
            return leaf.fresh()
        return leaf.replay(results[leaf.base] if isinstance(leaf.base, int) else self._view_base(leaf.base))

    def _view_base(self, argument: Argument) -> Any:
        """Base tensor of an output view; a device tensor is copied, because PyTorch cannot view it."""
        operand = self._operand(argument)
        if not isinstance(operand, DeviceTensor):
            return operand
        return to_tensor(operand.numpy(), getattr(torch, operand.dtype))


def _part(tensor: Any, argument: Argument) -> torch.Tensor:
    """Return the part of a complex tensor that an argument refers to."""
    if not isinstance(tensor, torch.Tensor) or not tensor.is_complex():
        raise CompileError(f"The input '{argument.name.rpartition('.')[0]}' must be a complex tensor.")
    return getattr(tensor.detach().resolve_conj(), argument.part)


def _text(value: Any) -> str:
    return "a tensor" if isinstance(value, torch.Tensor) else repr(value)


def _change(old: Any, new: torch.Tensor) -> None:
    """Write a new value into the tensor of an argument, which may be on the device."""
    if not isinstance(old, DeviceTensor):
        old.copy_(new)
        return
    new = new.to(getattr(torch, old.dtype))
    # DeviceTensor.write takes bfloat16 as the float32 numbers that numpy() returns.
    old.write(to_numpy(new.float() if new.dtype == torch.bfloat16 else new))


def _share_memory(one: Any, other: Any) -> bool:
    """Return whether two tensors share a storage; tensors without elements do not."""
    if isinstance(one, DeviceTensor):
        return isinstance(other, DeviceTensor) and one.storage is other.storage
    tensors = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
    if not tensors or not one.numel() or not other.numel():
        return False
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


class _Star:
    """Placeholder for a leaf in a printed structure."""

    def __repr__(self) -> str:
        return "*"


_STAR = _Star()


def _structure_error(expected: pytree.TreeSpec, actual: pytree.TreeSpec) -> str:
    """Sentence about inputs of an unexpected structure."""
    if expected.num_leaves != actual.num_leaves:
        return f"The program takes {expected.num_leaves} inputs, not {actual.num_leaves}."
    # As their repr, with a star for each leaf: the repr of a tree is too long for a message.
    structures = (repr(pytree.tree_unflatten([_STAR] * tree.num_leaves, tree)) for tree in (expected, actual))
    return "The program takes inputs of the structure {}, not {}.".format(*structures)


def _at_size(array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Cut a constant result, which has the largest sizes of a program with run-time sizes, to ``shape``."""
    is_largest = array.ndim == len(shape) and array.size > math.prod(shape)
    return array[tuple(slice(size) for size in shape)] if is_largest else array


#: Types that numpy does not support, with the types of their bits.
_BITS = {torch.bfloat16: torch.uint16, torch.float8_e4m3fn: torch.uint8}


def to_numpy(tensor: Any, name: str = "value") -> np.ndarray:
    """Tensor as an array in the same memory. bfloat16 becomes uint16 bits and fp8 uint8 bits, for lack of numpy types.

    uint8 becomes int8 with the same bytes, because integers of MLIR are signless.
    """
    if not isinstance(tensor, torch.Tensor):
        raise CompileError(f"The input '{name}' must be a tensor, not a {type(tensor).__name__}.")
    bits = torch.int8 if tensor.dtype == torch.uint8 else _BITS.get(tensor.dtype)
    try:
        tensor = tensor.detach().cpu().resolve_neg()
        return tensor.numpy() if bits is None else tensor.view(bits).numpy()
    # A tensor without data, or a sparse, nested or quantized tensor.
    except (RuntimeError, TypeError) as error:
        raise CompileError(f"The input '{name}' is not an array: {str(error).rstrip('.')}.") from None


def without_repeats(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view of a tensor in which expanded dims (stride 0), whose elements are one, have size 1."""
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dim] > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def to_tensor(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """Convert an array to a tensor, the inverse of ``to_numpy``; other arrays are converted to ``dtype``."""
    # A copy, because from_numpy shares the memory of the array.
    tensor = torch.from_numpy(np.array(array, order="C"))
    if (tensor.dtype, dtype) == (torch.int8, torch.uint8):
        return tensor.view(dtype)
    if dtype in _BITS and tensor.dtype == _BITS[dtype]:
        return tensor.view(dtype)
    return tensor.to(dtype)
