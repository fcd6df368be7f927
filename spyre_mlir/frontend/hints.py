# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names of tensor dims and hints on how to tile them, from the source of a model to its FX graph.

::

    declare_tensor_dim("M", 64)
    name_tensor_dims(x, ["M", "K"])          # x consists of M rows of K elements, whatever its shape
    with spyre_hint(tiles={"M": 8}):         # in the model: operations in this block are tiled in 8 along M
        y = x @ w

Every ``with`` that is entered is one hint. The number of a hint increases, so an inner hint has a larger number than
the hints around it, and a loop over layers makes one hint per layer. Hints use the annotations of
``torch.fx.traceback``, which torch.export, torch.compile and decompositions pass on from node to node;
``resolve_hints`` stores them on each node in their final form. Outside a compiler they have no effect.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.eval_frame import skip_code
from torch.fx import Graph, GraphModule, Node
from torch.fx.traceback import annotate, preserve_node_meta
from torch.utils.weak import WeakIdKeyDictionary

from spyre_mlir.dialects.hint_attributes import HINTS
from spyre_mlir.errors import CompileError, kind_of
from spyre_mlir.frontend.locations import source_of
from spyre_mlir.tensors.device_tensor import DeviceTensor
from spyre_mlir.tiling import Hint

#: The key of an annotation is this prefix and the number of the hint; the underscore hides it from other readers.
HINT_PREFIX = "_spyre_hint."

_sizes: dict[str, int] = {}
#: Names of tensors by identity: the names are removed when the tensor is collected.
_names: Any = WeakIdKeyDictionary()
_numbers = itertools.count(1)


def declare_tensor_dim(name: str, size: int) -> None:
    """Declare a named dim, for all models of this process.

    Args:
        name: The name of the dim.
        size: The number of its elements.

    Raises:
        CompileError: The name is empty, the size is not positive, or the name already has another size.
    """
    if not isinstance(name, str) or not name:
        raise CompileError(f"The name of a dim is a text that is not empty, not {name!r}.")
    if not _is_positive(size):
        raise CompileError(f"The size of dim '{name}' must be a positive integer, not {size!r}.")
    if _sizes.get(name, size) != size:
        raise CompileError(
            f"Dim '{name}' is declared with size {_sizes[name]} already, so it cannot have size {size}; "
            "take another name, or start again with clear_tensor_dims()."
        )
    _sizes[name] = size


@contextlib.contextmanager
def dims_of_size(sizes: Mapping[str, int]) -> Iterator[None]:
    """Context in which declared dims have other sizes: a model with dynamic dims is compiled at one size of each."""
    before = dict(_sizes)
    _sizes.update(sizes)
    try:
        yield
    finally:
        _sizes.clear()
        _sizes.update(before)


def redeclare_tensor_dim(name: str, size: int) -> None:
    """Declare a named dim; a declaration with another size, and the names of tensors with that dim, are removed."""
    if _sizes.get(name, size) != size:
        del _sizes[name]
        for tensor in [tensor for tensor, names in _names.items() if name in names]:
            del _names[tensor]
    declare_tensor_dim(name, size)


def clear_tensor_dims() -> None:
    """Remove all declared dims, and the names of all tensors."""
    _sizes.clear()
    _names.clear()


def name_tensor_dims(tensor: Any, names: Sequence[str]) -> Any:
    """Set the declared dims that an input or a parameter consists of, and return the tensor.

    A function that ``torch.compile`` traces may name its inputs: each call of its graph names the tensors of the call.
    The number of names may differ from the number of dims: only the number of elements must be equal.

    Args:
        tensor: A PyTorch tensor, or a tensor on the device.
        names: The names of the dims, outermost first, in memory order.

    Raises:
        CompileError: A name is undeclared or occurs twice, the sizes do not match the tensor, or a model is exported.
    """
    if torch.compiler.is_dynamo_compiling():
        return _name_in_graph(tensor, names)
    if torch.compiler.is_compiling():
        _refuse_inside_of_a_model()
    if not isinstance(tensor, (torch.Tensor, DeviceTensor)):
        raise CompileError(f"Only the dims of a tensor can be named, not the dims of {kind_of(tensor)}.")
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise CompileError(f"The names of dims are a list of texts, not {names!r}.")
    for position, name in enumerate(names):
        if not isinstance(name, str) or name not in _sizes:
            raise CompileError(
                f"Dim {name!r} is not declared; call declare_tensor_dim({name!r}, size) first."
            )
        if name in names[:position]:
            raise CompileError(f"A tensor cannot have the dim '{name}' twice.")
    shape = tuple(tensor.shape)
    if math.prod(shape) != math.prod(_sizes[name] for name in names):
        sizes = ", ".join(f"{name} = {_sizes[name]}" for name in names)
        raise CompileError(
            f"The dims {sizes or 'none'} do not make up a tensor of shape {list(shape)}: the product of their sizes "
            f"must be {math.prod(shape)}."
        )
    _names[tensor] = tuple(names)
    return tensor


@torch._dynamo.allow_in_graph
def _name_in_graph(tensor: torch.Tensor, names: Sequence[str]) -> torch.Tensor:
    """Return the tensor: in a graph of Dynamo, a call marks an input with names."""
    return tensor


def take_input_names(graph: GraphModule) -> list[tuple[int, Sequence[str]]]:
    """Remove the marks of named inputs from a graph of Dynamo, and return (input, names) of each mark.

    Raises:
        CompileError: A mark is not on an input.
    """
    marks = graph.graph.find_nodes(op="call_function", target=_name_in_graph)
    inputs, found = graph.graph.find_nodes(op="placeholder"), []
    for mark in marks:
        tensor, names = mark.args
        if tensor not in inputs:
            raise CompileError(
                "name_tensor_dims names the dims of inputs and parameters, and this tensor is computed by the "
                "function; name the inputs of the function.",
                source_of(mark),
            )
        found.append((inputs.index(tensor), names))
        mark.replace_all_uses_with(tensor)
        graph.graph.erase_node(mark)
    if marks:
        graph.recompile()
    return found


# Dynamo calls this function at trace time: an exception in traced code would only cause a graph break.
@torch.compiler.assume_constant_result
def _refuse_inside_of_a_model() -> None:
    raise CompileError(
        "name_tensor_dims names the dims of inputs and parameters: call it before the model is compiled, not inside."
    )


def names_of(tensor: Any) -> tuple[str, ...]:
    """Names of the dims of a tensor; () if the tensor does not have names."""
    names = _names.get(tensor) if _names and isinstance(tensor, (torch.Tensor, DeviceTensor)) else None
    return names or ()


def dim_sizes() -> dict[str, int]:
    """Return the size of every declared dim, in elements."""
    return dict(_sizes)


def spyre_hint(
    *,
    tiles: Mapping[str, int] | None = None,
    work_div: Mapping[str, int] | None = None,
    ignores_undeclared: bool = False,
    **others: Any,
) -> contextlib.AbstractContextManager[None]:
    """Tile the operations inside a context in the code of a model, and divide them over cores.

    Args:
        tiles: For each named dim, the number of tiles of equal size; the first dim is the outermost.
        work_div: For each named dim, the number of equal slices, which different cores compute. An operation with one
            of these dims is divided along them only. An inner context replaces the number of an outer context.
        ignores_undeclared: Whether names that are not declared have no effect, as in torch-spyre, or are errors.
        **others: Values for user-defined passes, which ``hint_values`` reads at every level. The compiler ignores them,
            and a remark names each key.
    """
    for option, counts in (("tiles", tiles), ("work_div", work_div)):
        if counts is not None and not isinstance(counts, Mapping):
            _refuse_counts(option, kind_of(counts))
    counts = dict(tiles or {}), dict(work_div or {}), ignores_undeclared
    annotation = annotate({_new_annotation_key(): counts, **others})
    return annotation if torch.compiler.is_dynamo_compiling() else _recorded(annotation)


# As _refuse_inside_of_a_model, Dynamo calls this function at trace time.
@torch.compiler.assume_constant_result
def _refuse_counts(option: str, kind: str) -> None:
    raise CompileError(f"The option '{option}' of a hint is a mapping such as {{'M': 8}}, not {kind}.")


@contextlib.contextmanager
def _recorded(annotation: contextlib.AbstractContextManager[Any]) -> Iterator[None]:
    """Annotation that torch.export keeps even if its caller does not request it, as Dynamo does."""
    with annotation, preserve_node_meta():
        yield


# After a graph break Dynamo would compile this function alone, and cannot return an annotation from it.
skip_code(spyre_hint.__code__)


# A trace sees the key as a constant: the counter is not part of the model.
@torch.compiler.assume_constant_result
def _new_annotation_key() -> str:
    return f"{HINT_PREFIX}{next(_numbers)}"


def hint_number(key: str) -> int | None:
    """Return the number of the hint whose annotation has this key; None for other annotations."""
    prefix, _, number = key.rpartition(".")
    return int(number) if f"{prefix}." == HINT_PREFIX else None


def resolve_hints(graph: Graph) -> bool:
    """Set ``node.meta["sdsc.hints"]``, the hints around an operation, outermost first; return whether any exist.

    Hint ids are numbered within one graph, from 1, so they do not depend on earlier compilations.
    """
    # The tiles and slices of every hint around a node, by the number of the hint.
    hinted: dict[Node, dict[int, Any]] = {}
    for node in graph.nodes:
        for key, value in (node.meta.get("custom") or {}).items():
            number = hint_number(key)
            if node.op != "placeholder" and number is not None:
                *counts, ignores_undeclared = value
                if ignores_undeclared:
                    counts = [{name: each[name] for name in each if name in _sizes} for each in counts]
                hinted.setdefault(node, {})[number] = counts
    numbers = sorted({number for annotated in hinted.values() for number in annotated})
    ids = {number: hint_id for hint_id, number in enumerate(numbers, start=1)}
    for node, annotated in hinted.items():
        hints = [
            Hint(ids[number], *(tuple(each.items()) for each in annotated[number]))
            for number in sorted(annotated)
        ]
        for name, count in itertools.chain(*(hint.tiles + hint.slices for hint in hints)):
            if not isinstance(name, str) or not _is_positive(count):
                raise CompileError(
                    f"A hint gives names of dims, and numbers of parts, which must be positive, not {name!r}: "
                    f"{count!r}.",
                    source_of(node),
                )
        node.meta[HINTS] = tuple(hints)
    return bool(hinted)


def _is_positive(number: Any) -> bool:
    """Return whether a number is a positive integer; True, a Python integer, is not accepted."""
    return isinstance(number, int) and not isinstance(number, bool) and number > 0
