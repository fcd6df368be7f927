# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs with dynamic dims: the position of these dims, their sizes in a call, and the inputs at another size.

The names of the example inputs (``name_tensor_dims``) define where a dynamic dim is. A tensor dim may consist of a
dynamic dim and further dims inside it, like the rows of a flattened matrix.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.call_objects import plain_call
from spyre_mlir.frontend.exported import Inputs, call_inputs
from spyre_mlir.frontend.hints import dim_sizes, dims_of_size, name_tensor_dims, names_of
from spyre_mlir.frontend.importer import Imported
from spyre_mlir.frontend.module_pairs import leading_slices
from spyre_mlir.frontend.signature import INPUT, leaves_of
from spyre_mlir.tensors.device_tensor import DeviceTensor
from spyre_mlir.tiling import NamedDim
from spyre_mlir.tiling.names import split, whole


class DimOccurrence(NamedTuple):
    """Dim ``dim`` of the input ``leaf``, which has ``inner`` elements for each position of ``name``."""

    leaf: int
    dim: int
    name: str
    inner: int

    def positions(self, shape: Sequence[int], sizes: Mapping[str, int]) -> list[int]:
        """Index along the dim of the source of each element, for ``sizes``; copies of the last position pad."""
        have, want = shape[self.dim], sizes[self.name] * self.inner
        return [*range(min(have, want)), *(have - self.inner + k % self.inner for k in range(want - have))]


class DynamicInputs:
    """The inputs of a model with the dynamic dims ``names``, from the example of one call.

    The dims are at the ``occurrences``, or where the names of the example define them.
    """

    def __init__(
        self,
        model: Any,
        example_inputs: Inputs,
        names: Sequence[str],
        occurrences: Sequence[DimOccurrence] = (),
    ) -> None:
        if isinstance(model, ExportedProgram):
            raise CompileError(
                "A program that torch.export has made has one size of each dim; give the model itself."
            )
        walked = call_inputs(example_inputs)
        self._graph = walked.graph
        self._leaves, self._tree = pytree.tree_flatten(walked.call)
        named = (place for leaf in range(len(self._leaves)) for place in self._places_of(leaf, names))
        self._places = list(occurrences) or list(named)
        dims = {place.name for place in self._places}
        for name in names:
            if name not in dims:
                raise CompileError(
                    f"No example input has the dynamic dim '{name}' with more than one element; "
                    "declare_tensor_dim and name_tensor_dims say which dims the inputs have."
                )

    def _places_of(self, leaf: int, dynamic: Sequence[str]) -> Iterator[DimOccurrence]:
        """Dims of one input that contain a dynamic dim; ``CompileError`` if it is not the outermost part of the dim."""
        tensor, dim_names = self._leaves[leaf], names_of(self._leaves[leaf])
        if not set(dim_names) & set(dynamic):
            return
        if isinstance(tensor, DeviceTensor):
            raise CompileError(
                f"Input {leaf} has a dynamic dim, so it cannot be on the device already; choose with layouts."
            )
        sizes = dim_sizes()
        for dim, parts in enumerate(
            split(whole(NamedDim(name, sizes[name]) for name in dim_names), tensor.shape)
        ):
            mentioned = {name for part in parts for name in part.mentioned} & set(dynamic)
            if not mentioned:
                continue
            name, *inner = (part.name for part in parts)
            if name is None or name not in dynamic or None in inner or set(inner) & set(dynamic):
                raise CompileError(
                    f"Dim {dim} of input {leaf} is not made of the dynamic dim '{min(mentioned)}' "
                    "and whole dims inside of it."
                )
            yield DimOccurrence(leaf, dim, name, tensor.shape[dim] // sizes[name])

    def sizes(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> dict[str, int]:
        """Sizes of the dynamic dims in a call, by name."""
        return self._sizes(leaves_of(self._tree, inputs, named))

    @property
    def example_sizes(self) -> dict[str, int]:
        """Sizes of the dynamic dims in the example inputs, by name."""
        return self._sizes(self._leaves)

    def _sizes(self, leaves: Sequence[Any]) -> dict[str, int]:
        """Sizes of the dynamic dims in these leaves; ``CompileError`` if inputs disagree."""
        sizes: dict[str, int] = {}
        for leaf, dim, name, inner in self._places:
            shape = tuple(getattr(leaves[leaf], "shape", ()))
            if dim >= len(shape) or shape[dim] % inner or not shape[dim]:
                raise CompileError(
                    f"Dim {dim} of input {leaf} of shape {list(shape)} "
                    f"does not have {inner} elements for each position of '{name}'."
                )
            size = shape[dim] // inner
            if sizes.setdefault(name, size) != size:
                raise CompileError(
                    f"Dim '{name}' has size {size} in input {leaf} and {sizes[name]} in another one."
                )
        return sizes

    @contextlib.contextmanager
    def at_sizes(self, sizes: Mapping[str, int]) -> Iterator[Inputs]:
        """Example inputs at other sizes; inside the context, the declared dims have these sizes."""
        with dims_of_size(sizes):
            leaves = list(self._leaves)
            for place in self._places:
                # Rows of the example are repeated, so that indices among its values stay in range.
                along = torch.tensor(place.positions(leaves[place.leaf].shape, sizes))
                leaves[place.leaf] = leaves[place.leaf].detach().index_select(place.dim, along)
            # Names belong to a tensor object, and index_select has returned a new object.
            for leaf in {place.leaf for place in self._places}:
                if dim_names := names_of(self._leaves[leaf]):
                    name_tensor_dims(leaves[leaf], dim_names)
            (args, kwargs), *_ = plain_call(pytree.tree_unflatten(leaves, self._tree), self._graph)
            yield kwargs or args

    def padded(
        self,
        smaller: Imported,
        inputs: Sequence[Any],
        named: Mapping[str, Any],
        sizes: Mapping[str, int],
        state: Mapping[str, DeviceTensor],
    ) -> tuple[dict[str, Any], Callable[[list[np.ndarray]], Any]]:
        """Operands, by name, of the program for larger ``sizes`` that runs in place of the ``smaller`` program.

        Also the function that turns the results of the larger program into the result of the model. ``state`` is the
        state of both programs.
        """
        call = smaller.signature.bind(inputs, named, state)
        operands = {}
        for argument, array in zip(smaller.arguments, call.operands(), strict=True):
            if argument.kind == INPUT:
                for place in self._places:
                    if place.leaf == argument.leaf:
                        array = array.take(place.positions(array.shape, sizes), place.dim)
                operands[argument.name] = array
        shapes = [result.shape for result in smaller.signature.results]

        def finish(arrays: list[np.ndarray]) -> Any:
            """Cut the results to the shapes of the smaller program, and return them as the model does."""
            cut = [array[leading_slices(shape)] for array, shape in zip(arrays, shapes, strict=True)]
            return call.finish(cut)

        return operands, finish
