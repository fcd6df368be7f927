"""The view operations of a tensor on the device: those of PyTorch, by name, arguments, sizes and strides."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from spyre_mlir.errors import CompileError
from spyre_mlir.layout.strided import StridedView


class ViewStep(NamedTuple):
    """A view operation of PyTorch: the overload of ``torch.ops.aten`` and its arguments after the tensor.

    ``number`` is that of its result, if it has several.
    """

    name: str
    arguments: tuple[Any, ...]
    number: int | None = None


class DeviceViews:
    """The part of a tensor that makes views; none of them moves a byte but ``reshape`` where no strides do it."""

    strided: StridedView

    def view_as(self, strided: StridedView, step: ViewStep) -> Self:
        raise NotImplementedError

    def contiguous(self) -> Self:
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
        """The strides on the host, in elements, as those of PyTorch."""
        return self.strided.strides

    def storage_offset(self) -> int:
        """The element of the storage that it begins at, in the order of the host."""
        return self.strided.offset

    def is_contiguous(self) -> bool:
        """Whether its strides are those of a dense row-major array."""
        dense = StridedView.whole(self.shape).strides
        return all(
            size == 1 or own == other
            for size, own, other in zip(self.shape, self.stride(), dense, strict=True)
        )

    @property
    def T(self) -> Self:
        """The dims in reverse."""
        return self.permute(*reversed(range(self.ndim)))

    def t(self) -> Self:
        """The transpose of a matrix; what has fewer dims as it is."""
        if self.ndim > 2:
            raise CompileError(f"t() takes a tensor of at most 2 dims, not one of {self.ndim}.")
        return self.T

    def permute(self, *dims: Any) -> Self:
        order = [_dim(dim, self.ndim) for dim in sizes_of(dims)]
        if sorted(order) != list(range(self.ndim)):
            raise CompileError(f"permute takes each of the {self.ndim} dims once, not {order}.")
        return self.view_as(self.strided.permute(order), ViewStep("permute.default", (order,)))

    def transpose(self, first: int, second: int) -> Self:
        order = list(range(self.ndim))
        first, second = _dim(first, self.ndim), _dim(second, self.ndim)
        order[first], order[second] = order[second], order[first]
        return self.permute(order)

    def view(self, *shape: Any) -> Self:
        """The same elements in another shape; a CompileError where that takes a copy."""
        sizes = _sizes(sizes_of(shape), self.shape)
        strided = self.strided.view(sizes)
        if strided is None:
            raise CompileError(
                f"A tensor of {list(self.shape)} with strides {list(self.stride())} has no view of {sizes}; "
                "reshape copies it."
            )
        return self.view_as(strided, ViewStep("view.default", (sizes,)))

    def reshape(self, *shape: Any) -> Self:
        """The same elements in another shape: a view where there is one, else a copy made on the device."""
        sizes = _sizes(sizes_of(shape), self.shape)
        if self.strided.view(sizes) is None:
            return self.contiguous().view(sizes)
        return self.view(sizes)

    def flatten(self) -> Self:
        """All elements in one dim."""
        return self.reshape(-1)

    def unsqueeze(self, dim: int) -> Self:
        at = _dim(dim, self.ndim + 1)
        return self.view_as(self.strided.unsqueeze(at), ViewStep("unsqueeze.default", (at,)))

    def squeeze(self, dim: int | None = None) -> Self:
        """Without dims of one element: all of them, or one."""
        dims = list(range(self.ndim)) if dim is None else [_dim(dim, self.ndim)]
        return self.view_as(self.strided.squeeze(dims), ViewStep("squeeze.dims", (dims,)))

    def expand(self, *shape: Any) -> Self:
        """Dims of one element repeated, new ones in front; -1 keeps a size."""
        sizes = sizes_of(shape)
        new = len(sizes) - self.ndim
        if new < 0:
            raise CompileError(f"A tensor of {list(self.shape)} does not expand to {sizes}.")
        pairs = list(zip(sizes, [*sizes[:new], *self.shape], strict=True))
        wanted = [own if size == -1 else size for size, own in pairs]
        if any(own not in (1, size) for size, (_, own) in zip(wanted[new:], pairs[new:], strict=True)) or any(
            size < 1 for size in wanted
        ):
            raise CompileError(f"A tensor of {list(self.shape)} does not expand to {sizes}.")
        return self.view_as(self.strided.expand(wanted), ViewStep("expand.default", (wanted,)))

    def select(self, dim: int, index: int) -> Self:
        dim = _dim(dim, self.ndim)
        size = self.shape[dim]
        if not -size <= index < size:
            raise CompileError(f"Index {index} is outside the {size} elements of dim {dim}.")
        return self.view_as(
            self.strided.select(dim, index % size), ViewStep("select.int", (dim, index % size))
        )

    def __getitem__(self, index: Any) -> Self:
        """Numbers, slices with a positive step, None and ``...``, as in PyTorch."""
        found: Any = self
        dim, items = 0, self._expanded(index if isinstance(index, tuple) else (index,))
        for item in items:
            if item is None:
                found = found.unsqueeze(dim)
            elif isinstance(item, slice):
                found = found._sliced(dim, item)
            else:
                found = found.select(dim, operator.index(item))
                continue
            dim += 1
        return found

    def _expanded(self, index: tuple[Any, ...]) -> list[Any]:
        """An index with one item for each dim that it speaks of, ``...`` as slices."""
        for item in index:
            if not (item is None or item is Ellipsis or isinstance(item, slice) or _is_index(item)):
                raise CompileError(
                    f"A view takes numbers, slices, None and '...', not {item!r}; torch indexes by tensors."
                )
        taken = sum(item is not None and item is not Ellipsis for item in index)
        if taken > self.ndim:
            raise CompileError(f"{taken} indices are too many for a tensor of {self.ndim} dims.")
        if sum(item is Ellipsis for item in index) > 1:
            raise CompileError("An index has '...' at most once.")
        items: list[Any] = []
        for item in index:
            items.extend([slice(None)] * (self.ndim - taken) if item is Ellipsis else [item])
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
    return hasattr(item, "__index__") and not isinstance(item, bool)


def sizes_of(given: Sequence[Any]) -> list[int]:
    """Integers given one by one or as one sequence."""
    values = given[0] if len(given) == 1 and isinstance(given[0], Sequence) else given
    try:
        return [operator.index(value) for value in values]
    except TypeError:
        raise CompileError(f"Sizes and dims are integers, not {list(values)!r}.") from None


def _dim(dim: int, rank: int) -> int:
    if not -rank <= dim < rank:
        raise CompileError(f"There is no dim {dim}; the tensor has {rank} dims.")
    return dim % rank


def _sizes(sizes: list[int], shape: Sequence[int]) -> list[int]:
    """The sizes of a shape with as many elements as another, where one may be -1."""
    elements, known = math.prod(shape), math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) == 1 and known > 0 and elements % known == 0:
        sizes = [elements // known if size == -1 else size for size in sizes]
    if math.prod(sizes) != elements or min(sizes, default=1) < 1:
        raise CompileError(f"A tensor of {list(shape)} has no shape {sizes}: it has {elements} elements.")
    return sizes
