# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations on complex tensors as operations on their parts, by the rules of PyTorch's ``ComplexTensor``."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch._subclasses.complex_tensor import ComplexTensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.graph_edits import call_before, metadata_for, schema_name
from spyre_mlir.frontend.locations import source_of

aten = torch.ops.aten

#: Types of the parts of complex numbers.
REAL_TYPES = {
    torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64,
}  # fmt: skip


#: Names of transforms whose operands are real.
_OF_REAL = ("fft_rfft", "fft_ihfft", "_fft_r2c")

#: Operations that move the elements of both parts, for which PyTorch does not have a rule.
_BY_PARTS = {
    aten.roll.default, aten.triu.default, aten.tril.default, torch.ops.prims.squeeze.default,
    torch.ops.prims.transpose.default, torch.ops.prims.broadcast_in_dim.default,
}  # fmt: skip


class ComplexParts(NamedTuple):
    """A complex value as its real and its imaginary part, nodes or numbers."""

    real: Any
    imaginary: Any


def is_complex(node: Any) -> bool:
    """Return whether a node is a complex tensor."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    return isinstance(value, Tensor) and value.is_complex()


def is_transform(node: Node) -> bool:
    """Return whether a node is a Fourier transform, whose operands or result may be real; shifts are not transforms."""
    name = schema_name(node)
    return name.startswith(("fft_", "_fft_")) and not name.endswith(("shift", "freq"))


def expanded(node: Node, parts: Mapping[Node, Any], table: Mapping[Any, Callable[..., Any]]) -> Any:
    """Insert the operations on parts that replace a node; return the result, with ``ComplexParts`` in it.

    ``parts`` maps complex operands to their parts. ``CompileError`` if PyTorch does not have a rule.
    """
    sources = [part for source in node.all_input_nodes for part in _nodes(source, parts)]
    mode = next(
        value.fake_mode for value in pytree.tree_leaves(node.meta["val"]) if isinstance(value, FakeTensor)
    )

    structure: list[pytree.TreeSpec] = []

    def function(*tensors: Tensor) -> list[Tensor]:
        """Return the parts of all results as a flat list."""
        rest = iter(tensors)
        values = {
            source: _joined([next(rest) for _ in _nodes(source, parts)]) for source in node.all_input_nodes
        }
        args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
        with _Transforms():
            result = _called(node, args, kwargs)
        if isinstance(result, ComplexTensor) and not is_complex(node):
            # Norms and variances are real.
            result = result.re
        is_pair = lambda leaf: isinstance(leaf, ComplexTensor)  # noqa: E731
        result = pytree.tree_map_only(
            ComplexTensor, lambda x: ComplexParts(x.re, x.im), result, is_leaf=is_pair
        )
        leaves, spec = pytree.tree_flatten(result)
        structure.append(spec)
        return leaves

    try:
        with mode:
            traced = make_fx(function, decomposition_table=dict(table))(
                *(part.meta["val"] for part in sources)
            )
    except (RuntimeError, NotImplementedError, TypeError, AssertionError) as error:
        raise CompileError(
            f"{node.target} of complex numbers is not supported; compute it on their real and imaginary parts.",
            source_of(node),
        ) from error
    copies = dict(zip(traced.graph.find_nodes(op="placeholder"), sources, strict=True))
    for step in traced.graph.nodes:
        if step.op in ("call_function", "get_attr"):
            copies[step] = _copied(node, step, copies, traced)
    results = cast(list, map_arg(traced.graph.output_node().args[0], copies.__getitem__))
    return pytree.tree_unflatten(results, structure[0])


def _nodes(source: Node, parts: Mapping[Node, Any]) -> Sequence[Node]:
    return parts[source] if source in parts else (source,)


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else ComplexTensor(*tensors)


def _called(node: Node, args: Any, kwargs: Any) -> Any:
    """Result of an operation. If the operands are real and the result is complex, they are converted to complex."""
    has_complex = any(isinstance(leaf, ComplexTensor) for leaf in pytree.tree_leaves((args, kwargs)))
    if not has_complex and not schema_name(node).startswith(_OF_REAL):
        dtype: torch.dtype = node.meta["val"].dtype
        real = REAL_TYPES.get(dtype, dtype)
        args, kwargs = pytree.tree_map_only(Tensor, lambda x: _as_complex(x, real), (args, kwargs))
    return node.target(*args, **kwargs)  # type: ignore[operator]


class _Transforms(TorchDispatchMode):
    """Mode in which Fourier transforms of all kinds are computed as products with matrices."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _BY_PARTS and isinstance(args[0], ComplexTensor):
            return ComplexTensor(*(func(part, *args[1:]) for part in (args[0].re, args[0].im)))
        return cast(Callable[..., Any], TRANSFORMS.get(func, func))(*args, **(kwargs or {}))


def _as_complex(x: Tensor, real: torch.dtype) -> Tensor:
    x = x.to(real)
    return ComplexTensor(x, torch.zeros_like(x))


def _copied(node: Node, step: Node, copies: Mapping[Node, Node], traced: Any) -> Node:
    """Copy one node of a traced call into the graph, before ``node``."""
    if step.op == "get_attr":
        constant = getattr(traced, cast(str, step.target))
        return call_before(node, aten.full.default, [], constant.item(), dtype=constant.dtype)
    args, kwargs = cast(tuple, map_arg((step.args, step.kwargs), copies.__getitem__))
    if step.target is not operator.getitem:
        return call_before(node, cast(torch._ops.OpOverload, step.target), *args, **kwargs)
    with node.graph.inserting_before(node):
        part = node.graph.call_function(operator.getitem, args)
    part.meta = metadata_for(node, args[0].meta["val"][args[1]])
    return part


# -- Fourier transforms -------------------------------------------------------------------------------


def _scale(x: Tensor, dims: Sequence[int], normalization: int, sizes: Sequence[int] | None = None) -> float:
    """Scale factor of a transform: PyTorch encodes no factor as 0, 1 / sqrt(n) as 1 and 1 / n as 2."""
    count = math.prod(sizes or (x.shape[dim] for dim in dims))
    return (1.0, count**-0.5, 1.0 / count)[normalization]


def _waves(size: int, count: int, sign: float, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the angles ``sign * 2 pi j k / size`` for all j and the first ``count`` k."""
    # Modulo the size, so that the angles are small and exact.
    turns = torch.arange(size)[:, None] * torch.arange(count)[None, :] % size
    angle = turns.to(torch.float64) * (sign * 2 * math.pi / size)
    return torch.cos(angle).to(like.dtype), torch.sin(angle).to(like.dtype)


def _transformed(re: Tensor, im: Tensor | None, dim: int, count: int, sign: float) -> tuple[Tensor, Tensor]:
    """Transform along one dim: products with a matrix of waves."""
    cosines, sines = _waves(re.shape[dim], count, sign, re)
    re = re.movedim(dim, -1)
    real, imaginary = re @ cosines, re @ sines
    if im is not None:
        im = im.movedim(dim, -1)
        real, imaginary = real - im @ sines, imaginary + im @ cosines
    return real.movedim(-1, dim), imaginary.movedim(-1, dim)


def transform_complex(x: Tensor, dims: Sequence[int], normalization: int, forward: bool) -> Tensor:
    """``_fft_c2c`` as a product with a matrix of waves for each dim."""
    assert isinstance(x, ComplexTensor)
    re, im = x.re, x.im
    for dim in dims:
        re, im = _transformed(re, im, dim, re.shape[dim], -1.0 if forward else 1.0)
    factor = _scale(x, dims, normalization)
    return ComplexTensor(re * factor, im * factor)


def transform_real(x: Tensor, dims: Sequence[int], normalization: int, onesided: bool) -> Tensor:
    """``_fft_r2c``: the last dim is real, so the first half of its result determines the rest."""
    size = x.shape[dims[-1]]
    re, im = _transformed(x, None, dims[-1], size // 2 + 1 if onesided else size, -1.0)
    for dim in dims[:-1]:
        re, im = _transformed(re, im, dim, re.shape[dim], -1.0)
    factor = _scale(x, dims, normalization)
    return ComplexTensor(re * factor, im * factor)


def transform_to_real(x: Tensor, dims: Sequence[int], normalization: int, last: int) -> Tensor:
    """``_fft_c2r``: the last dim has ``last`` real results; its second half is the conjugate of the first half."""
    assert isinstance(x, ComplexTensor)
    re, im = x.re, x.im
    for dim in dims[:-1]:
        re, im = _transformed(re, im, dim, re.shape[dim], 1.0)
    dim, count = dims[-1], last // 2 + 1
    re, im = re.narrow(dim, 0, count).movedim(dim, -1), im.narrow(dim, 0, count).movedim(dim, -1)
    cosines, sines = (wave[:count] for wave in _waves(last, last, 1.0, re))
    # Each pair of conjugates sums to twice the real part; the first and the middle number do not have a conjugate.
    index = torch.arange(count)
    weight = torch.where((index == 0) | (2 * index == last), 1.0, 2.0).to(re.dtype)[:, None]
    result = re @ (cosines * weight) - im @ (sines * weight)
    sizes = [*(x.shape[other] for other in dims[:-1]), last]
    return result.movedim(-1, dim) * _scale(x, dims, normalization, sizes)


TRANSFORMS: dict[Any, Callable[..., Any]] = {
    aten._fft_c2c.default: transform_complex,
    aten._fft_r2c.default: transform_real,
    aten._fft_c2r.default: transform_to_real,
}
