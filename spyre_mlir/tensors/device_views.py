# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""View operations of device tensors, with the names, arguments, sizes and strides of PyTorch's operations."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from spyre_mlir.errors import CompileError, counted
from spyre_mlir.layout.strided import StridedView


class ViewStep(NamedTuple):
    """A PyTorch view operation: the overload in ``torch.ops.aten`` and the arguments after the tensor.

    ``number`` is the index of the result, for an operation with several results.
    """

    name: str
    arguments: tuple[Any, ...]
    number: int | None = None


def steps_to(shape: Sequence[int], view: StridedView) -> tuple[ViewStep, ...]:
    """Return view operations that lead from a dense tensor of ``shape`` to a view of its memory.

    The operations are slices, selections, a permutation and an expansion if these produce the view, else a single
    ``as_strided``.
    """
    whole = StridedView.whole(shape)
    strided = ViewStep("as_strided.default", (list(view.shape), list(view.strides), view.offset))
    if not math.prod(view.shape):
        return (strided,)
    steps: list[ViewStep] = []
    place = whole

    def step(name: str, result: StridedView, *arguments: Any) -> None:
        nonlocal place
        if result != place:
            steps.append(ViewStep(name, arguments))
        place = result

    places = _dims_of(whole, view)
    for dim in reversed(range(len(shape))):
        start = view.offset // whole.strides[dim] % shape[dim]
        if dim not in places:
            step("select.int", place.select(dim, start), dim, start)
            continue
        size, every = view.shape[places[dim]], view.strides[places[dim]] // whole.strides[dim]
        # PyTorch ends a slice at the end of its dim.
        stop = min(start + (size - 1) * every + 1, shape[dim])
        step("slice.Tensor", place.slice(dim, start, stop, every), dim, start, stop, every)
    kept = sorted(places)
    order = sorted(range(len(kept)), key=lambda index: places[kept[index]])
    step("permute.default", place.permute(order), order)
    for dim in sorted(set(range(len(view.shape))) - set(places.values())):
        step("unsqueeze.default", place.unsqueeze(dim), dim)
    if all(source in (1, size) for source, size in zip(place.shape, view.shape, strict=True)):
        step("expand.default", place.expand(view.shape), list(view.shape))
    if place.elements == view.elements:
        return tuple(steps)
    return (strided,)


def _dims_of(whole: StridedView, view: StridedView) -> dict[int, int]:
    """Map dims of a dense tensor to the dims of a view that step along them, each at most once.

    A dim of size 1 keeps its stride, from which PyTorch's kernels decide the strides of their results.
    """
    dims: dict[int, int] = {}
    for index, (size, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
        fits = (
            dim
            for dim, unit in enumerate(whole.strides)
            if dim not in dims
            and (whole.shape[dim] > 1) == (size > 1)
            and (stride >= unit and stride % unit == 0 if size > 1 else stride == unit)
        )
        if stride and (dim := next(fits, None)) is not None:
            dims[dim] = index
    return dims


class DeviceViews:
    """Mixin of view operations; they do not move data, except ``reshape`` if no strides describe the result."""

    strided: StridedView

    def view_as(self, strided: StridedView, step: ViewStep) -> Self:
        """Create a view of the same storage."""
        raise NotImplementedError

    def contiguous(self) -> Self:
        """Return a tensor with the strides of a dense array."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape."""
        return self.strided.shape

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)

    def dim(self) -> int:
        """The number of dims."""
        return len(self.shape)

    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def stride(self) -> tuple[int, ...]:
        """The host strides in elements, as in PyTorch."""
        return self.strided.strides

    def storage_offset(self) -> int:
        """The index of the first element in the storage, in host order."""
        return self.strided.offset

    def is_contiguous(self) -> bool:
        """Return whether the strides are the strides of a dense row-major array."""
        dense = StridedView.whole(self.shape).strides
        strides = zip(self.shape, self.stride(), dense, strict=True)
        # The stride of a dim with one element does not matter.
        return all(size == 1 or stride == dense_stride for size, stride, dense_stride in strides)

    @property
    def T(self) -> Self:
        """The view with its dims reversed."""
        return self.permute(*reversed(range(self.ndim)))

    def t(self) -> Self:
        """Transpose a matrix; return a tensor of fewer dims unchanged, raise ``CompileError`` for more dims."""
        if self.ndim > 2:
            raise CompileError(f"t() takes a tensor of at most 2 dims, not one of {self.ndim}.")
        return self.T

    def permute(self, *dims: Any) -> Self:
        """Reorder the dims; raise ``CompileError`` unless ``dims`` names each dim once."""
        order = [_dim(dim, self.ndim) for dim in sizes_of(dims)]
        if sorted(order) != list(range(self.ndim)):
            raise CompileError(f"permute takes each of the {self.ndim} dims once, not {order}.")
        return self.view_as(self.strided.permute(order), ViewStep("permute.default", (order,)))

    def transpose(self, first: int, second: int) -> Self:
        """Swap the dims ``first`` and ``second``."""
        order = list(range(self.ndim))
        first, second = _dim(first, self.ndim), _dim(second, self.ndim)
        order[first], order[second] = order[second], order[first]
        return self.permute(order)

    def view(self, *shape: Any) -> Self:
        """View the elements in another ``shape``; raise ``CompileError`` if that needs a copy."""
        sizes = _sizes(sizes_of(shape), self.shape)
        strided = self.strided.view(sizes)
        if strided is None:
            raise CompileError(
                f"A tensor of {list(self.shape)} with strides {list(self.stride())} has no view of {sizes}; "
                "reshape copies it."
            )
        return self.view_as(strided, ViewStep("view.default", (sizes,)))

    def reshape(self, *shape: Any) -> Self:
        """View the elements in another ``shape`` if possible, else copy them on the device."""
        sizes = _sizes(sizes_of(shape), self.shape)
        if self.strided.view(sizes) is None:
            return self.contiguous().view(sizes)
        return self.view(sizes)

    def flatten(self) -> Self:
        """Reshape to one dim."""
        return self.reshape(-1)

    def unsqueeze(self, dim: int) -> Self:
        """Insert a dim of one element before ``dim``."""
        dim = _dim(dim, self.ndim + 1)
        return self.view_as(self.strided.unsqueeze(dim), ViewStep("unsqueeze.default", (dim,)))

    def squeeze(self, dim: int | None = None) -> Self:
        """Drop all dims of one element, or only ``dim`` if it has one element."""
        dims = list(range(self.ndim)) if dim is None else [_dim(dim, self.ndim)]
        return self.view_as(self.strided.squeeze(dims), ViewStep("squeeze.dims", (dims,)))

    def expand(self, *shape: Any) -> Self:
        """Repeat dims of one element, and add new outer dims.

        Args:
            *shape: The elements of each dim of the result; -1 keeps a size.

        Raises:
            CompileError: A dim with more than one element would change.
        """
        sizes = sizes_of(shape)
        new = len(sizes) - self.ndim
        if new < 0:
            raise CompileError(f"A tensor of {list(self.shape)} does not expand to {sizes}.")
        # A new dim does not have a size to keep: its -1 stays and is rejected as a size.
        sources = [*sizes[:new], *self.shape]
        targets = [source if size == -1 else size for size, source in zip(sizes, sources, strict=True)]
        expands = all(source in (1, size) for size, source in zip(targets, sources, strict=True))
        if not expands or any(size < 1 for size in targets):
            raise CompileError(f"A tensor of {list(self.shape)} does not expand to {sizes}.")
        return self.view_as(self.strided.expand(targets), ViewStep("expand.default", (targets,)))

    def select(self, dim: int, index: int) -> Self:
        """Select one index of a dim and drop the dim.

        Args:
            dim: The dim.
            index: The index; a negative index counts from the end.

        Raises:
            CompileError: The index is outside the dim.
        """
        dim = _dim(dim, self.ndim)
        size = self.shape[dim]
        if not -size <= index < size:
            raise CompileError(f"Index {index} is outside the {size} elements of dim {dim}.")
        return self.view_as(
            self.strided.select(dim, index % size), ViewStep("select.int", (dim, index % size))
        )

    def __getitem__(self, index: Any) -> Self:
        """Index with numbers, slices with a positive step, None and ``...``, as in PyTorch."""
        view: Any = self
        dim, items = 0, self._expanded(index if isinstance(index, tuple) else (index,))
        for item in items:
            if item is None:
                view = view.unsqueeze(dim)
            elif isinstance(item, slice):
                view = view._sliced(dim, item)
            else:
                # The dim is dropped, so the next item applies to the same dim index.
                view = view.select(dim, operator.index(item))
                continue
            dim += 1
        return view

    def _expanded(self, index: tuple[Any, ...]) -> list[Any]:
        """Expand ``...`` in an index to slices, so that each item except None applies to one dim."""
        for item in index:
            if not (item is None or item is Ellipsis or isinstance(item, slice) or _is_index(item)):
                raise CompileError(
                    f"A view takes numbers, slices, None and '...', not {item!r}; torch indexes by tensors."
                )
        indexed = sum(item is not None and item is not Ellipsis for item in index)
        if indexed > self.ndim:
            raise CompileError(f"{indexed} indices are too many for a tensor of {counted(self.ndim, 'dim')}.")
        if sum(item is Ellipsis for item in index) > 1:
            raise CompileError("An index has '...' at most once.")
        items: list[Any] = []
        for item in index:
            items.extend([slice(None)] * (self.ndim - indexed) if item is Ellipsis else [item])
        return items

    def _sliced(self, dim: int, item: slice) -> Self:
        start, stop, step = item.indices(self.shape[dim])
        if step < 1:
            raise CompileError(f"A slice has a positive step, not {step}.")
        if start >= stop:
            raise CompileError(f"The slice {start}:{stop} of dim {dim} has no elements to lay out.")
        strided = self.strided.slice(dim, start, stop, step)
        return self.view_as(strided, ViewStep("slice.Tensor", (dim, start, stop, step)))


def _is_index(item: Any) -> bool:
    # Python treats True as 1, but PyTorch treats it as a mask.
    if isinstance(item, bool):
        return False
    # An array has __index__ too, but it succeeds only for a single element.
    try:
        operator.index(item)
    except TypeError:
        return False
    return True


def sizes_of(arguments: Sequence[Any]) -> list[int]:
    """Convert integers that are passed one by one or as one sequence; raise ``CompileError`` for other values."""
    values = arguments[0] if len(arguments) == 1 and isinstance(arguments[0], Sequence) else arguments
    try:
        return [operator.index(value) for value in values]
    except TypeError:
        raise CompileError(f"Sizes and dims are integers, not {list(values)!r}.") from None


def _dim(dim: int, rank: int) -> int:
    if not _is_index(dim):
        raise CompileError(f"A dim is an integer, not {dim!r}.")
    if not -rank <= dim < rank:
        raise CompileError(f"There is no dim {dim}; the tensor has {counted(rank, 'dim')}.")
    return dim % rank


def _sizes(sizes: list[int], shape: Sequence[int]) -> list[int]:
    """Resolve a -1 in ``sizes`` for the elements of ``shape``; raise ``CompileError`` if the numbers differ."""
    elements, known = math.prod(shape), math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) == 1 and known > 0 and elements % known == 0:
        sizes = [elements // known if size == -1 else size for size in sizes]
    if math.prod(sizes) != elements or min(sizes, default=1) < 1:
        raise CompileError(f"A tensor of {list(shape)} has no shape {sizes}: it has {elements} elements.")
    return sizes
