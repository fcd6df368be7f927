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
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree

from spyre_mlir.bundle.model import IndexBounds
from spyre_mlir.errors import CompileError, Uncached, counted, first_sentence, kind_of
from spyre_mlir.frontend.call_objects import CallInputs, CallOutcome, Inputs, as_call, input_path
from spyre_mlir.frontend.object_graphs import LEAVES
from spyre_mlir.frontend.sharded_models import is_sharded, local_tensor
from spyre_mlir.frontend.storage import shares_memory
from spyre_mlir.records import dataclass
from spyre_mlir.target.element_types import dtype_name
from spyre_mlir.tensors.device_tensor import DeviceTensor

INPUT, PARAMETER, CONSTANT = "input", "parameter", "constant"


#: Maximum number of dims of a numpy array, and so of a tensor in a program.
MOST_DIMS = 64


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
    tensor: Tensor | None = None
    leaf: int | None = None
    dims: tuple[str, ...] = ()
    draw: Callable[[], Tensor] | None = None
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
        if isinstance(self.value, Tensor):
            return torch.equal(self.value, other.value)
        return self.value == other.value


#: Functions that make views of outputs, in addition to PyTorch's operations.
_FUNCTIONS = {"reshape": torch.reshape, "getitem": operator.getitem}


def view_name(operation: Any) -> str:
    """Return the name of an operation that makes an output a view; ``Uncached`` if it is not PyTorch's."""
    name = next((name for name, function in _FUNCTIONS.items() if function is operation), None)
    if name is not None:
        return name
    if not isinstance(operation, torch._ops.OpOverload) or operation.namespace != "aten":
        raise Uncached(f"returns a view by {operation}")
    return str(operation)


def view_operation(name: str) -> Any:
    """Return the view operation of a name; ``ValueError`` for anything else that the name refers to."""
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    library, packet, overload = name.split(".")
    operation = getattr(getattr(torch.ops.aten, packet), overload)
    if library != "aten" or not isinstance(operation, torch._ops.OpOverload) or not operation.is_view:
        raise ValueError(f"{name} is not a view operation")
    return operation


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

    def weights(self) -> dict[str, np.ndarray]:
        """The weights and constants of the model by name, as arrays that share memory with its tensors."""
        weights = (argument for argument in self.arguments if argument.kind != "input")
        return {argument.name: to_numpy(argument.tensor) for argument in weights}

    def bind(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], state: Mapping[str, DeviceTensor] | None = None
    ) -> Call:
        """Bind the inputs of one call of the model; raise ``CompileError`` for inputs that do not match.

        ``state`` maps names of buffers to buffers on the device, which replace the buffers of the model.
        """
        if is_sharded(None, (args, kwargs)):
            args, kwargs = pytree.tree_map(local_tensor, (tuple(args), dict(kwargs)))
        leaves, inputs = self.leaves_of(args, kwargs)
        for position, number in self.numbers.items():
            # True equals 1 in Python, but gives another program.
            if type(leaves[position]) is not type(number) or leaves[position] != number:
                given = "a tensor" if isinstance(leaves[position], Tensor) else repr(leaves[position])
                raise CompileError(
                    f"The program was compiled for {number!r} as input {position}, not for {given}."
                )
        drawn = {argument.name: argument.draw() for argument in self.random if argument.draw is not None}
        call = Call(self, leaves, drawn, state or {}, inputs)
        for update in self.updates:
            call.check_change(update.argument)
        return call

    def example(self, argument: Argument, inputs: Inputs) -> Any:
        """Return the value of a call argument in example inputs."""
        assert argument.leaf is not None, "the call gives it"
        return self.leaves_of(*as_call(inputs))[0][argument.leaf]

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
    drawn: dict[str, Tensor]
    state: Mapping[str, DeviceTensor]
    inputs: CallInputs | None = None

    def check_change(self, argument: Argument) -> None:
        """Raise ``CompileError`` if a changed argument shares memory with another argument."""
        changed = self._operand(argument)
        if isinstance(changed, Tensor) and shares_memory(changed):
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
        results = []
        for array, result in zip(arrays, self.signature.results, strict=True):
            # A constant result has the largest sizes of a program with run-time sizes.
            if array.ndim == len(result.shape) and array.size > math.prod(result.shape):
                array = array[tuple(map(slice, result.shape))]
            results.append(to_tensor(array, result.dtype).reshape(result.shape))
        changes = [
            # Cloned before the first copy: a new value may be a view of another changed argument.
            (self._operand(update.argument), self._value(update.value, results).clone())
            for update in self.signature.updates
        ]
        with torch.no_grad():
            for old, new in changes:
                if isinstance(old, DeviceTensor):
                    new = new.to(getattr(torch, old.dtype))
                    # DeviceTensor.write takes bfloat16 as the float32 numbers that numpy() returns.
                    old.write(to_numpy(new.float() if new.dtype == torch.bfloat16 else new))
                else:
                    old.copy_(new)
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
        if not argument.part:
            return tensor
        if not isinstance(tensor, Tensor) or not tensor.is_complex():
            raise CompileError(f"The input '{argument.name.rpartition('.')[0]}' must be a complex tensor.")
        return getattr(tensor.detach().resolve_conj(), argument.part)

    def _value(self, leaf: Leaf, results: Sequence[Tensor]) -> Any:
        """Return the tensor or number of a leaf in this call."""
        if isinstance(leaf, Number):
            return self._value(leaf.tensor, results).item()
        if isinstance(leaf, Complex):
            return torch.complex(*(self._value(part, results) for part in leaf))
        if isinstance(leaf, Fixed):
            # The caller may change the value.
            return leaf.value.clone() if isinstance(leaf.value, Tensor) else leaf.value
        base = results[leaf.base] if isinstance(leaf.base, int) else self._operand(leaf.base)
        if isinstance(base, DeviceTensor):
            # A copy, because PyTorch cannot view a tensor on the device.
            base = to_tensor(base.numpy(), getattr(torch, base.dtype))
        for step in leaf.steps:
            base = step.operation(base, *step.args, **step.kwargs)
        return base


def _share_memory(one: Any, other: Any) -> bool:
    """Return whether two tensors share a storage; tensors without elements do not."""
    if isinstance(one, DeviceTensor):
        return isinstance(other, DeviceTensor) and one.storage is other.storage
    tensors = isinstance(one, Tensor) and isinstance(other, Tensor)
    if not tensors or not one.numel() or not other.numel():
        return False
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


class _Star:
    """Placeholder for a leaf in a printed structure."""

    def __repr__(self) -> str:
        return "*"


def _structure_error(expected: pytree.TreeSpec, actual: pytree.TreeSpec) -> str:
    """Sentence about inputs of an unexpected structure."""
    if expected.num_leaves != actual.num_leaves:
        return f"The program takes {counted(expected.num_leaves, 'input')}, not {actual.num_leaves}."
    # The message shows the structures with a star for each leaf: the repr of a tree is too long.
    structures = (
        repr(pytree.tree_unflatten([_Star()] * tree.num_leaves, tree)) for tree in (expected, actual)
    )
    return "The program takes inputs of the structure {}, not {}.".format(*structures)


#: Types that numpy does not support, with the types of their bits.
_BITS = {torch.bfloat16: torch.uint16, torch.float8_e4m3fn: torch.uint8}


def to_numpy(tensor: Any, name: str = "value") -> np.ndarray:
    """Tensor as an array in the same memory. bfloat16 becomes uint16 bits and fp8 uint8 bits, for lack of numpy types.

    uint8 becomes int8 with the same bytes, because integers of MLIR are signless.
    """
    if not isinstance(tensor, Tensor):
        raise CompileError(f"The input '{name}' must be a tensor, not {kind_of(tensor)}.")
    bits = torch.int8 if tensor.dtype == torch.uint8 else _BITS.get(tensor.dtype)
    try:
        tensor = tensor.detach().cpu().resolve_neg()
        return tensor.numpy() if bits is None else tensor.view(bits).numpy()
    # A tensor without data, a sparse, nested or quantized tensor, or a tensor with more dims than numpy supports.
    except (RuntimeError, TypeError, ValueError) as error:
        raise CompileError(f"The input '{name}' is not an array: {first_sentence(error)}.") from None


def state_of(program: ExportedProgram) -> dict[str, Any]:
    """Return the parameters, buffers and constants of an exported program by name."""
    return {**program.constants, **program.state_dict}


def without_repeats(tensor: Tensor) -> Tensor:
    """Return a view of a tensor in which expanded dims (stride 0), whose elements are one, have size 1."""
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dim] > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def to_tensor(array: np.ndarray, dtype: torch.dtype) -> Tensor:
    """Convert an array to a tensor, the inverse of ``to_numpy``; other arrays are converted to ``dtype``."""
    # A copy, because from_numpy shares the memory of the array.
    tensor = torch.from_numpy(np.array(array, order="C"))
    if (tensor.dtype, dtype) == (torch.int8, torch.uint8):
        return tensor.view(dtype)
    if dtype in _BITS and tensor.dtype == _BITS[dtype]:
        return tensor.view(dtype)
    return tensor.to(dtype)


def _is_view(node: Node) -> bool:
    """Return whether a node views its operand; ``as_strided`` views memory, which differs here."""
    if node.target is operator.getitem:
        return _is_view(node.all_input_nodes[0])
    return (
        isinstance(node.target, torch._ops.OpOverload)
        and node.target.is_view
        and node.target is not torch.ops.aten.as_strided.default
    )


def view_origin(node: Node) -> tuple[Node, tuple[ViewCall, ...]]:
    """Tensor that a node is a view of, or the node itself, and the view transforms from that tensor to the node."""
    steps: list[ViewCall] = []
    while _is_view(node):
        source, *args = node.args
        if not isinstance(source, Node):
            break
        # If the strides in a call differ from the example's, the view may be a copy.
        replayed = torch.reshape if node.target is torch.ops.aten.view.default else node.target
        steps.append(ViewCall(cast(Callable[..., Any], replayed), tuple(args), dict(node.kwargs)))
        node = source
    return node, tuple(reversed(steps))


# A signature as plain values and arrays, without the model's tensors, which come from the capture at load time.
#
# Tensors that the import computed, for instance folded weights and masks, are stored as arrays of their bytes.
# Operations are stored as names of PyTorch views, so reading them runs no other code. ``Uncached`` is raised for values
# without such a form: random numbers, whose function is code, and computed tensors that share the memory of an input.


_PLAIN = (type(None), bool, int, str)


def signature_to_plain(
    signature: Signature, program: ExportedProgram
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Convert a signature of a captured program to JSON values and named arrays; ``Uncached`` if this is impossible."""
    if signature.random:
        raise Uncached("draws random numbers")
    if any(argument.part for argument in signature.arguments):
        raise Uncached("takes complex numbers")
    writer = _SignatureWriter(program)
    return writer.plain(signature), writer.arrays


def signature_from_plain(
    plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], program: ExportedProgram
) -> Signature:
    """Convert back, with the tensors of another capture of equal text; damaged values raise some exception."""
    return _SignatureReader(arrays, program).signature(plain)


class _SignatureWriter:
    """Arguments are numbered on first use, because outputs may be views of arguments that the program does not take."""

    def __init__(self, program: ExportedProgram) -> None:
        state, leaves = state_of(program), pytree.tree_leaves(program.example_inputs)
        self.arrays: dict[str, NDArray[Any]] = {}
        self._state = {id(tensor): name for name, tensor in state.items()}
        self._dtypes = {name: tensor.dtype for name, tensor in state.items()}
        self._sources = {_memory(tensor): name for name, tensor in state.items()}
        self._inputs = {_memory(leaf) for leaf in leaves if isinstance(leaf, Tensor)}
        self._arguments: list[Argument] = []

    def plain(self, signature: Signature) -> dict[str, Any]:
        """Convert a signature except its trees, which the capture contains."""
        described = {
            "taken": [self._argument(argument) for argument in signature.arguments],
            "results": [[list(result.shape), dtype_name(result.dtype)] for result in signature.results],
            "leaves": [self._leaf(leaf) for leaf in signature.leaves],
            "updates": [
                [self._argument(update.argument), self._leaf(update.value)] for update in signature.updates
            ],
            "numbers": [[leaf, self._value(value)] for leaf, value in signature.numbers.items()],
        }
        arguments = [
            {
                "name": argument.name,
                "kind": argument.kind,
                "tensor": self._data(argument),
                "leaf": argument.leaf,
                "dims": list(argument.dims),
                "index_bounds": None if argument.index_bounds is None else asdict(argument.index_bounds),
                "source_bytes": argument.source_bytes,
                "cast_from": argument.cast_from,
            }
            for argument in self._arguments
        ]
        return {**described, "arguments": arguments}

    def _argument(self, argument: Argument) -> int:
        for index, known in enumerate(self._arguments):
            if known is argument or known.name == argument.name:
                return index
        self._arguments.append(argument)
        return len(self._arguments) - 1

    def _data(self, argument: Argument) -> dict[str, Any] | None:
        """Origin of the data of an argument: the call, the state of the model, or the import."""
        tensor = argument.tensor
        if tensor is None:
            return None
        if argument.leaf is not None:
            return {"leaf": argument.leaf}
        if argument.cast_from is not None:
            return {"cast": argument.cast_from, "dtype": dtype_name(tensor.dtype)}
        if id(tensor) in self._state:
            return {"state": self._state[id(tensor)]}
        if _memory(tensor) not in self._sources:
            return {"array": self._array(tensor)}
        # A view of the state of the model follows in-place changes of the state.
        name = self._sources[_memory(tensor)]
        if self._dtypes[name] != tensor.dtype:
            raise Uncached(f"has a view of '{name}' in another type")
        place = {"shape": list(tensor.shape), "stride": tensor.stride(), "offset": tensor.storage_offset()}
        return {"view": {"name": name, "dtype": dtype_name(tensor.dtype), **place}}

    def _array(self, tensor: Tensor) -> dict[str, Any]:
        """Add the bytes of a computed tensor to the arrays."""
        is_shared = _memory(tensor) in self._inputs or _memory(tensor) in self._sources
        if (
            is_shared
            or not tensor.is_contiguous()
            or tensor.device.type != "cpu"
            or type(tensor) is not Tensor
        ):
            raise Uncached("has a constant that is not a separate dense array on the host")
        name = f"signature.{len(self.arrays)}"
        self.arrays[name] = tensor.detach().reshape(-1).view(torch.uint8).numpy()
        return {"name": name, "dtype": dtype_name(tensor.dtype), "shape": list(tensor.shape)}

    def _leaf(self, leaf: Leaf) -> list[Any]:
        if isinstance(leaf, Complex):
            raise Uncached("returns complex numbers")
        if isinstance(leaf, Number):
            return ["number", self._leaf(leaf.tensor)]
        if isinstance(leaf, Fixed):
            return ["fixed", self._value(leaf.value)]
        if isinstance(leaf.base, int):
            base = ["result", leaf.base]
        else:
            base = ["argument", self._argument(leaf.base)]
        steps = [
            [view_name(step.operation), self._value(list(step.args)), self._value(dict(step.kwargs))]
            for step in leaf.steps
        ]
        return ["view", base, steps]

    def _value(self, value: Any) -> Any:
        """Convert a Python value to JSON, tagged if JSON does not have the type."""
        if type(value) in _PLAIN:
            return value
        if type(value) is float:
            return {"float": value.hex()}
        if isinstance(value, Tensor):
            return {"array": self._array(value)}
        if isinstance(value, torch.dtype):
            return {"dtype": dtype_name(value)}
        if isinstance(value, tuple | list):
            return [self._value(item) for item in value]
        if type(value) is dict and all(type(key) is str for key in value):
            return {"dict": {key: self._value(item) for key, item in value.items()}}
        raise Uncached(f"returns {kind_of(value)}, or takes one")


class _SignatureReader:
    """The inverse of ``_SignatureWriter``."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], program: ExportedProgram) -> None:
        self._arrays = arrays
        self._program = program
        self._state = state_of(program)
        self._leaves = pytree.tree_leaves(program.example_inputs)
        self._arguments: list[Argument] = []

    def signature(self, plain: Mapping[str, Any]) -> Signature:
        """Return the signature, with the trees of the capture."""
        self._arguments = [self._argument(entry) for entry in plain["arguments"]]
        spec = self._program.call_spec
        assert spec.in_spec is not None and spec.out_spec is not None
        return Signature(
            [self._arguments[index] for index in plain["taken"]],
            [ResultType(tuple(shape), _dtype(name)) for shape, name in plain["results"]],
            [self._leaf(leaf) for leaf in plain["leaves"]],
            [Update(self._arguments[index], self._leaf(leaf)) for index, leaf in plain["updates"]],
            {leaf: self._value(value) for leaf, value in plain["numbers"]},
            [],
            spec.in_spec,
            spec.out_spec,
        )

    def _argument(self, entry: Mapping[str, Any]) -> Argument:
        bounds = entry["index_bounds"]
        return Argument(
            entry["name"],
            entry["kind"],
            self._data(entry["tensor"]),
            entry["leaf"],
            tuple(entry["dims"]),
            None,
            None if bounds is None else IndexBounds(**bounds),
            entry["source_bytes"],
            cast_from=entry["cast_from"],
        )

    def _data(self, data: Mapping[str, Any] | None) -> Tensor | None:
        if data is None:
            return None
        if "leaf" in data:
            return self._leaves[data["leaf"]].detach()
        if "cast" in data:
            return self._state[data["cast"]].detach().to(_dtype(data["dtype"]))
        if "view" in data:
            entry = data["view"]
            source = self._state[entry["name"]].detach()
            if source.dtype != _dtype(entry["dtype"]):
                raise ValueError(f"'{entry['name']}' has another type")
            return source.as_strided(entry["shape"], entry["stride"], entry["offset"])
        return self._state[data["state"]] if "state" in data else self._array(data["array"])

    def _array(self, entry: Mapping[str, Any]) -> Tensor:
        data = np.ascontiguousarray(self._arrays[entry["name"]], dtype=np.uint8)
        if not data.size:
            # An array without elements may have stride 0, and its bytes cannot be viewed as another type.
            return torch.empty(entry["shape"], dtype=_dtype(entry["dtype"]))
        return torch.from_numpy(data).view(_dtype(entry["dtype"])).reshape(entry["shape"])

    def _leaf(self, leaf: list[Any]) -> Any:
        kind, value, *rest = leaf
        if kind == "number":
            return Number(self._leaf(value))
        if kind == "fixed":
            return Fixed(self._value(value))
        base = value[1] if value[0] == "result" else self._arguments[value[1]]
        steps = [
            ViewCall(view_operation(name), tuple(self._value(args)), self._value(kwargs))
            for name, args, kwargs in rest[0]
        ]
        return View(base, tuple(steps))

    def _value(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._value(item) for item in value]
        if not isinstance(value, dict):
            return value
        ((kind, inner),) = value.items()
        if kind == "dict":
            return {key: self._value(item) for key, item in inner.items()}
        return {"float": float.fromhex, "array": self._array, "dtype": _dtype}[kind](inner)


def _memory(tensor: Tensor) -> int:
    """Identity of the memory of a tensor."""
    return tensor.untyped_storage()._cdata


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name} is not a dtype")
    return dtype
