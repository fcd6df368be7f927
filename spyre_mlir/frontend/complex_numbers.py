# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Complex tensors as pairs of real tensors: rotary embeddings are often written as products of complex numbers.

A node with a complex result becomes two nodes, its parts; the readers of the node read the parts. A complex argument
becomes two arguments: a call passes the two parts of a tensor to the program, and joins the parts that it returns.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.complex_tensor import ComplexTensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from spyre_mlir.errors import UnsupportedDtypeError
from spyre_mlir.frontend.content_reads import note_read
from spyre_mlir.frontend.graph_edits import call_before, metadata_for, schema_name
from spyre_mlir.frontend.locations import source_of
from spyre_mlir.frontend.signature import INPUT, Argument, view_origin

aten = torch.ops.aten

#: Operations that move elements apply to each part separately.
_MOVES = {
    aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.unsqueeze.default, aten.squeeze.dim,
    aten.squeeze.dims, aten.expand.default, aten.permute.default, aten.transpose.int, aten.slice.Tensor,
    aten.select.int, aten.clone.default, aten.alias.default, aten.index.Tensor, aten.index_select.default,
}  # fmt: skip
_CONVERT = torch.ops.prims.convert_element_type.default
_SUMS = {aten.add.Tensor, aten.sub.Tensor}


def split_complex_numbers(
    graph: Graph, arguments: dict[Node, Argument], table: Mapping[Any, Callable[..., Any]]
) -> None:
    """Rewrite complex nodes as real nodes, in place. A complex argument becomes ``<name>.real`` and ``<name>.imag``.

    The output gets ``ComplexParts`` in place of a complex result that is not a view of an argument. ``table`` contains
    the decompositions of the operations that PyTorch's rules compute on parts.
    """
    if any(map(is_complex, graph.nodes)) or any(map(is_transform, graph.nodes)):
        _Splitting(graph, arguments, table).run()


class _Splitting:
    def __init__(
        self, graph: Graph, arguments: dict[Node, Argument], table: Mapping[Any, Callable[..., Any]]
    ) -> None:
        self.graph = graph
        self.arguments = arguments
        self.table = table
        self.parts: dict[Node, Any] = {}
        self.insertion_point: Node | None = None

    def run(self) -> None:
        """Split the nodes in order, so that the parts of all operands are known."""
        replaced = []
        for node in list(self.graph.nodes):
            self.insertion_point = node
            if node.op == "placeholder" and is_complex(node):
                replacement = self._argument(node)
            elif node.target is aten._assert_tensor_metadata.default:
                self.graph.erase_node(node)
                continue
            elif node.op == "call_function":
                replacement = self._split(node)
            else:
                continue
            if isinstance(replacement, Node):
                node.replace_all_uses_with(replacement)
            elif replacement is not None:
                self.parts[node] = replacement
            if replacement is not None:
                replaced.append(node)
        # Parts in place of complex results, except views of arguments, which a call returns as views.
        output = self.graph.output_node()
        output.args = (
            tuple(
                self.parts[value]
                if value in self.parts and view_origin(value)[0].op != "placeholder"
                else value
                for value in cast(Sequence[Any], output.args[0])
            ),
        )
        # The reverse order erases readers before their operands.
        for node in reversed(replaced):
            if not node.users and node.op != "placeholder":
                self.graph.erase_node(node)

    def _call(self, target: Any, *args: Any, **named: Any) -> Node:
        assert self.insertion_point is not None
        return call_before(self.insertion_point, target, *args, **named)

    def _argument(self, node: Node) -> ComplexParts | None:
        """Two arguments in place of a complex argument; None for random numbers."""
        argument = self.arguments.get(node)
        if argument is None or argument.draw is not None:
            return None
        is_given = argument.leaf is not None or argument.kind == INPUT
        if not is_given:
            note_read(argument.name)
        parts = []
        # The order is reversed, because each placeholder is inserted right after the node.
        for part in ("imag", "real"):
            with self.graph.inserting_after(node):
                placeholder = self.graph.placeholder(f"{node.name}_{part}")
            placeholder.meta = metadata_for(node, getattr(node.meta["val"], part).contiguous())
            split = argument._replace(name=f"{argument.name}.{part}")
            if is_given:
                split = split._replace(part=part)
            elif argument.tensor is not None:
                split = split._replace(tensor=getattr(argument.tensor.resolve_conj(), part).contiguous())
            self.arguments[placeholder] = split
            parts.append(placeholder)
        return ComplexParts(*reversed(parts))

    def _split(self, node: Node) -> ComplexParts | Node | None:
        """Parts of a complex result, or the real node in its place; None for a real operation or if no rule exists."""
        args: list[Any] = [
            self.parts.get(operand, operand) if isinstance(operand, Node) else operand
            for operand in node.args
        ]
        target = node.target
        if target is aten.view_as_complex.default:
            return ComplexParts(*(self._call(aten.select.int, args[0], -1, index) for index in (0, 1)))
        if target is aten.polar.default:
            return ComplexParts(
                self._call(aten.mul.Tensor, args[0], self._call(aten.cos.default, args[1])),
                self._call(aten.mul.Tensor, args[0], self._call(aten.sin.default, args[1])),
            )
        if target is aten.complex.default:
            return ComplexParts(*args)
        if target is operator.getitem and node.args[0] in self.parts:
            return args[0][node.args[1]]
        is_split = any(source in self.parts for source in node.all_input_nodes)
        if not is_split and not is_complex(node) and not is_transform(node):
            return None
        simple = self._split_simply(node, args) if is_split else None
        if simple is not None:
            return simple
        if not node.all_input_nodes:
            # A tensor that contains one complex number.
            if target not in (aten.full.default, aten.scalar_tensor.default):
                raise UnsupportedDtypeError(f"{target} of complex numbers is not supported.", source_of(node))
            real = REAL_TYPES[node.meta["val"].dtype]
            size, number = ([], *node.args)[-2:]
            numbers = complex(number).real, complex(number).imag  # type: ignore[arg-type]
            return ComplexParts(*(self._call(aten.full.default, size, part, dtype=real) for part in numbers))
        if target is operator.getitem:
            source = node.all_input_nodes[0].target
            raise UnsupportedDtypeError(
                f"{source} gives complex numbers, which is not supported.", source_of(node)
            )
        return expanded(node, self.parts, self.table)

    def _split_simply(self, node: Node, args: list[Any]) -> ComplexParts | Node | None:
        """Parts of a result by the fewest operations; None for an operation without a simple rule."""
        target = node.target
        if target is aten.view_as_real.default:
            return self._call(
                aten.cat.default, [self._call(aten.unsqueeze.default, part, -1) for part in args[0]], -1
            )
        # ComplexParts is a pair: index 0 is the real part, index 1 the imaginary part.
        if target is _CONVERT:
            parts, dtype = args
            if dtype in REAL_TYPES:
                return ComplexParts(*(self._call(_CONVERT, part, REAL_TYPES[dtype]) for part in parts))
            if dtype == torch.bool:
                not_zero = [self._call(aten.ne.Scalar, part, 0) for part in parts]
                return self._call(aten.logical_or.default, *not_zero)
            # A real type has the real part alone.
            return self._call(_CONVERT, parts.real, dtype)
        if target in (aten.real.default, aten.imag.default):
            return args[0][target is aten.imag.default]
        if target is aten._conj.default:
            return ComplexParts(args[0].real, self._call(aten.neg.default, args[0].imaginary))
        if target is aten.mul.Tensor and not any(isinstance(factor, complex) for factor in args):
            return self._product(node, *args)
        if target in _SUMS and all(isinstance(operand, ComplexParts) for operand in args) and not node.kwargs:
            return ComplexParts(*(self._call(target, *parts) for parts in zip(*args, strict=True)))
        if target in _MOVES and isinstance(args[0], ComplexParts):
            return ComplexParts(*(self._call(target, part, *args[1:], **node.kwargs) for part in args[0]))
        return None

    def _product(self, node: Node, one: Any, other: Any) -> ComplexParts | None:
        """(a + bi) (c + di) = (ac - bd) + (ad + bc) i; a real factor scales both parts."""
        if not isinstance(one, ComplexParts):
            one, other = other, one
        # A product of complex32 numbers is rounded once.
        if node.meta["val"].dtype == torch.complex32:
            return None
        if not isinstance(other, ComplexParts):
            multiply = aten.mul.Tensor if isinstance(other, Node) else aten.mul.Scalar
            return ComplexParts(*(self._call(multiply, part, other) for part in one))
        products = [[self._call(aten.mul.Tensor, a, b) for b in other] for a in one]
        return ComplexParts(
            self._call(aten.sub.Tensor, products[0][0], products[1][1]),
            self._call(aten.add.Tensor, products[0][1], products[1][0]),
        )


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

    The operations follow the rules of PyTorch's ``ComplexTensor``. ``parts`` maps complex operands to their parts.
    ``UnsupportedDtypeError`` if PyTorch does not have a rule.
    """
    sources = [part for source in node.all_input_nodes for part in _nodes(source, parts)]
    fakes = (leaf for leaf in pytree.tree_leaves(node.meta["val"]) if isinstance(leaf, FakeTensor))
    mode = next(fakes).fake_mode
    structure: list[pytree.TreeSpec] = []

    def function(*tensors: Tensor) -> list[Tensor]:
        """Return the parts of all results as a flat list."""
        rest = iter(tensors)
        values: dict[Node, Tensor] = {}
        for source in node.all_input_nodes:
            pair = [next(rest) for _ in _nodes(source, parts)]
            values[source] = pair[0] if len(pair) == 1 else ComplexTensor(*pair)
        args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
        with _Transforms():
            has_complex = any(isinstance(leaf, ComplexTensor) for leaf in pytree.tree_leaves((args, kwargs)))
            if not has_complex and not schema_name(node).startswith(_OF_REAL):
                # The operands are real and the result is complex.
                dtype: torch.dtype = node.meta["val"].dtype
                real = REAL_TYPES.get(dtype, dtype)

                def as_complex(x: Tensor) -> Tensor:
                    x = x.to(real)
                    return ComplexTensor(x, torch.zeros_like(x))

                args, kwargs = pytree.tree_map_only(Tensor, as_complex, (args, kwargs))
            result = node.target(*args, **kwargs)  # type: ignore[operator]
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
        raise UnsupportedDtypeError(
            f"{node.target} of complex numbers is not supported; compute it on their real and imaginary parts.",
            source_of(node),
        ) from error
    copies = dict(zip(traced.graph.find_nodes(op="placeholder"), sources, strict=True))
    for step in traced.graph.nodes:
        if step.op == "get_attr":
            constant = getattr(traced, cast(str, step.target))
            copies[step] = call_before(node, aten.full.default, [], constant.item(), dtype=constant.dtype)
        elif step.op == "call_function":
            args, kwargs = cast(tuple, map_arg((step.args, step.kwargs), copies.__getitem__))
            if step.target is not operator.getitem:
                copies[step] = call_before(node, cast(OpOverload, step.target), *args, **kwargs)
                continue
            with node.graph.inserting_before(node):
                copies[step] = node.graph.call_function(operator.getitem, args)
            copies[step].meta = metadata_for(node, args[0].meta["val"][args[1]])
    results = cast(list, map_arg(traced.graph.output_node().args[0], copies.__getitem__))
    return pytree.tree_unflatten(results, structure[0])


def _nodes(source: Node, parts: Mapping[Node, Any]) -> Sequence[Node]:
    return parts[source] if source in parts else (source,)


class _Transforms(TorchDispatchMode):
    """Mode in which Fourier transforms of all kinds are computed as products with matrices."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _BY_PARTS and isinstance(args[0], ComplexTensor):
            return ComplexTensor(*(func(part, *args[1:]) for part in (args[0].re, args[0].im)))
        return cast(Callable[..., Any], TRANSFORMS.get(func, func))(*args, **(kwargs or {}))


# -- Fourier transforms -------------------------------------------------------------------------------


def _waves(size: int, count: int, sign: float, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the angles ``sign * 2 pi j k / size`` for all j and the first ``count`` k."""
    # Modulo the size, so that the angles are small and exact.
    turns = torch.arange(size)[:, None] * torch.arange(count)[None, :] % size
    angle = turns.to(torch.float64) * (sign * 2 * math.pi / size)
    return torch.cos(angle).to(like.dtype), torch.sin(angle).to(like.dtype)


def _factor(normalization: int, sizes: Iterable[int]) -> float:
    """Scale factor of a transform: PyTorch encodes no factor as 0, 1 / sqrt(n) as 1 and 1 / n as 2."""
    count = math.prod(sizes)
    return (1.0, count**-0.5, 1.0 / count)[normalization]


def _transformed(
    re: Tensor, im: Tensor | None, dims: Sequence[int], sign: float, count: int | None = None
) -> tuple[Tensor, Tensor]:
    """Transform along dims, to ``count`` results or to all: products with matrices of waves."""
    for dim in dims:
        cosines, sines = _waves(re.shape[dim], re.shape[dim] if count is None else count, sign, re)
        re = re.movedim(dim, -1)
        real, imaginary = re @ cosines, re @ sines
        if im is not None:
            im = im.movedim(dim, -1)
            real, imaginary = real - im @ sines, imaginary + im @ cosines
        re, im = real.movedim(-1, dim), imaginary.movedim(-1, dim)
    return re, cast(Tensor, im)


def _transform_complex(x: Tensor, dims: Sequence[int], normalization: int, forward: bool) -> Tensor:
    """``_fft_c2c`` as a product with a matrix of waves for each dim."""
    assert isinstance(x, ComplexTensor)
    re, im = _transformed(x.re, x.im, dims, -1.0 if forward else 1.0)
    factor = _factor(normalization, (x.shape[dim] for dim in dims))
    return ComplexTensor(re * factor, im * factor)


def _transform_real(x: Tensor, dims: Sequence[int], normalization: int, onesided: bool) -> Tensor:
    """``_fft_r2c``: the last dim is real, so the first half of its result determines the rest."""
    size = x.shape[dims[-1]]
    re, im = _transformed(x, None, dims[-1:], -1.0, size // 2 + 1 if onesided else size)
    re, im = _transformed(re, im, dims[:-1], -1.0)
    factor = _factor(normalization, (x.shape[dim] for dim in dims))
    return ComplexTensor(re * factor, im * factor)


def _transform_to_real(x: Tensor, dims: Sequence[int], normalization: int, last: int) -> Tensor:
    """``_fft_c2r``: the last dim has ``last`` real results; its second half is the conjugate of the first half."""
    assert isinstance(x, ComplexTensor)
    re, im = _transformed(x.re, x.im, dims[:-1], 1.0)
    dim, count = dims[-1], last // 2 + 1
    re, im = re.narrow(dim, 0, count).movedim(dim, -1), im.narrow(dim, 0, count).movedim(dim, -1)
    cosines, sines = (wave[:count] for wave in _waves(last, last, 1.0, re))
    # Each pair of conjugates sums to twice the real part; the first and the middle number do not have a conjugate.
    index = torch.arange(count)
    weight = torch.where((index == 0) | (2 * index == last), 1.0, 2.0).to(re.dtype)[:, None]
    result = re @ (cosines * weight) - im @ (sines * weight)
    return result.movedim(-1, dim) * _factor(normalization, (*(x.shape[other] for other in dims[:-1]), last))


TRANSFORMS: dict[Any, Callable[..., Any]] = {
    aten._fft_c2c.default: _transform_complex,
    aten._fft_r2c.default: _transform_real,
    aten._fft_c2r.default: _transform_to_real,
}
