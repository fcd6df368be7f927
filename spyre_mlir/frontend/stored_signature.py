# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A signature as plain values and arrays, without the model's tensors, which come from the capture at load time.

Tensors that the import computed, for instance folded weights and masks, are stored as arrays of their bytes. Operations
are stored as names of PyTorch views, so reading them runs no other code. ``Uncached`` is raised for values without such
a form: random numbers, whose function is code, and computed tensors that share the memory of an input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from spyre_mlir.bundle.model import IndexBounds
from spyre_mlir.errors import Uncached
from spyre_mlir.frontend.signature import (
    Argument,
    Complex,
    Fixed,
    Leaf,
    Number,
    ResultType,
    Signature,
    Update,
    View,
    ViewCall,
)
from spyre_mlir.frontend.view_names import view_name, view_operation

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


def _state(program: ExportedProgram) -> dict[str, Any]:
    return {**program.constants, **program.state_dict}


class _SignatureWriter:
    """Arguments are numbered on first use, because outputs may be views of arguments that the program does not take."""

    def __init__(self, program: ExportedProgram) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        self._state = {id(tensor): name for name, tensor in _state(program).items()}
        leaves = pytree.tree_leaves(program.example_inputs)
        self._dtypes = {name: tensor.dtype for name, tensor in _state(program).items()}
        self._sources = {_memory(tensor): name for name, tensor in _state(program).items()}
        self._inputs = {_memory(leaf) for leaf in leaves if isinstance(leaf, Tensor)}
        self._arguments: list[Argument] = []

    def plain(self, signature: Signature) -> dict[str, Any]:
        """Convert a signature except its trees, which the capture contains."""
        taken = [self._argument(argument) for argument in signature.arguments]
        described = {
            "taken": taken,
            "results": [[list(result.shape), _dtype_name(result.dtype)] for result in signature.results],
            "leaves": [self._leaf(leaf) for leaf in signature.leaves],
            "updates": [
                [self._argument(update.argument), self._leaf(update.value)] for update in signature.updates
            ],
            "numbers": [[leaf, self._value(value)] for leaf, value in signature.numbers.items()],
        }
        return {**described, "arguments": [self._described(argument) for argument in self._arguments]}

    def _argument(self, argument: Argument) -> int:
        for index, known in enumerate(self._arguments):
            if known is argument or known.name == argument.name:
                return index
        self._arguments.append(argument)
        return len(self._arguments) - 1

    def _described(self, argument: Argument) -> dict[str, Any]:
        bounds = argument.index_bounds
        return {
            "name": argument.name,
            "kind": argument.kind,
            "tensor": self._data(argument),
            "leaf": argument.leaf,
            "dims": list(argument.dims),
            "index_bounds": None if bounds is None else asdict(bounds),
            "source_bytes": argument.source_bytes,
            "cast_from": argument.cast_from,
        }

    def _data(self, argument: Argument) -> dict[str, Any] | None:
        """Origin of the data of an argument: the call, the state of the model, or the import."""
        if argument.tensor is None:
            return None
        if argument.leaf is not None:
            return {"leaf": argument.leaf}
        if argument.cast_from is not None:
            return {"cast": argument.cast_from, "dtype": _dtype_name(argument.tensor.dtype)}
        if id(argument.tensor) in self._state:
            return {"state": self._state[id(argument.tensor)]}
        if _memory(argument.tensor) in self._sources:
            return {"view": self._view(argument.tensor)}
        return {"array": self._array(argument.tensor)}

    def _view(self, tensor: Tensor) -> dict[str, Any]:
        """A view of the state of the model, which follows in-place changes of the state."""
        name = self._sources[_memory(tensor)]
        if self._dtypes[name] != tensor.dtype:
            raise Uncached(f"has a view of '{name}' in another type")
        place = {"shape": list(tensor.shape), "stride": tensor.stride(), "offset": tensor.storage_offset()}
        return {"name": name, "dtype": _dtype_name(tensor.dtype), **place}

    def _array(self, tensor: Tensor) -> dict[str, Any]:
        """Add the bytes of a computed tensor to the arrays."""
        is_shared = _memory(tensor) in self._inputs or _memory(tensor) in self._sources
        if (
            is_shared
            or not tensor.is_contiguous()
            or tensor.device.type != "cpu"
            or type(tensor) is not Tensor
        ):
            raise Uncached("has a constant that is no array of its own")
        name = f"signature.{len(self.arrays)}"
        self.arrays[name] = tensor.detach().reshape(-1).view(torch.uint8).numpy()
        return {"name": name, "dtype": _dtype_name(tensor.dtype), "shape": list(tensor.shape)}

    def _leaf(self, leaf: Leaf) -> list[Any]:
        if isinstance(leaf, Complex):
            raise Uncached("returns complex numbers")
        if isinstance(leaf, Number):
            return ["number", self._leaf(leaf.tensor)]
        if isinstance(leaf, Fixed):
            return ["fixed", self._value(leaf.value)]
        base = (
            ["result", leaf.base] if isinstance(leaf.base, int) else ["argument", self._argument(leaf.base)]
        )
        return ["view", base, [self._step(step) for step in leaf.steps]]

    def _step(self, step: ViewCall) -> list[Any]:
        return [view_name(step.operation), self._value(list(step.args)), self._value(dict(step.kwargs))]

    def _value(self, value: Any) -> Any:
        """Convert a Python value to JSON, tagged if JSON does not have the type."""
        if type(value) in _PLAIN:
            return value
        if type(value) is float:
            return {"float": value.hex()}
        if isinstance(value, Tensor):
            return {"array": self._array(value)}
        if isinstance(value, torch.dtype):
            return {"dtype": _dtype_name(value)}
        if isinstance(value, tuple | list):
            return [self._value(item) for item in value]
        if type(value) is dict and all(type(key) is str for key in value):
            return {"dict": {key: self._value(item) for key, item in value.items()}}
        raise Uncached(f"returns a {type(value).__name__}, or takes one")


class _SignatureReader:
    """The inverse of ``_SignatureWriter``."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], program: ExportedProgram) -> None:
        self._arrays = arrays
        self._program = program
        self._state = _state(program)
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
            return self._view(data["view"])
        return self._state[data["state"]] if "state" in data else self._array(data["array"])

    def _view(self, entry: Mapping[str, Any]) -> Tensor:
        source = self._state[entry["name"]].detach()
        if source.dtype != _dtype(entry["dtype"]):
            raise ValueError(f"'{entry['name']}' has another type")
        return source.as_strided(entry["shape"], entry["stride"], entry["offset"])

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
        return View(base, tuple(self._step(step) for step in rest[0]))

    def _step(self, step: list[Any]) -> ViewCall:
        name, args, kwargs = step
        return ViewCall(view_operation(name), tuple(self._value(args)), self._value(kwargs))

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


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name} is no type of elements")
    return dtype
