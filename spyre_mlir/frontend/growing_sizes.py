# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sizes that grow by one with each call, such as the length of a cache to which each step of a decoder adds a token.

A program has fixed sizes, so each step would compile new programs of the operations on the grown tensor. The operation
that shows the growth is a concatenation: it adds one position to a tensor of the shape that an earlier concatenation
returned. The size of its result is a grown size. Another operation has grown if it differs from an earlier one of its
form only in dims that have become a grown size from the size before.

A concatenation also grows if it replaces the oldest position of an earlier result, as the cache of a sliding window
does: its first program reads the prompt, and every later step reads the result of the step before.

A model has its own grown sizes. The outermost module that is running is the model. All models share the programs, and
so the sizes that have programs.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from dataclasses import field
from operator import itemgetter
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.operations import Application, TensorArgument
from spyre_mlir.records import dataclass
from spyre_mlir.tensors.device_tensor import DeviceTensor, Storage

#: Maximum number of forms of operations, and of the sizes and shapes that are kept for each.
_MAX_FORMS, _MAX_SIZES = 1024, 64

_CAT = torch.ops.aten.cat.default


class GrowingSizesError(CompileError):
    """Raised for an operation whose operands grow with each call: a program of these sizes would run once.

    ``examples`` are results of an earlier program of the operation, without numbers: results of the host get their
    layouts, for which the readers have programs.
    """

    def __init__(self, message: str, examples: Sequence[Any]) -> None:
        super().__init__(message)
        self.examples = examples


#: Sizes of the storages and tensors of an operation, and the order in which the layouts of the storages have the dims.
_Sizes = tuple[tuple[int, ...], Hashable]
#: The operations of one form, with the results of the last program as ``GrowingSizesError`` has them.
_Form = OrderedDict[_Sizes, list[Any]]


@dataclass
class _Model:
    """The grown sizes of a model, the shapes of its concatenations, and the operations that the host runs, by form."""

    grown: deque[int] = field(default_factory=lambda: deque(maxlen=_MAX_SIZES))
    joined: OrderedDict[Hashable, deque[tuple[int, ...]]] = field(default_factory=OrderedDict)
    on_host: OrderedDict[Hashable, _Form] = field(default_factory=OrderedDict)

    def has_grown(self, earlier: _Sizes, sizes: _Sizes) -> bool:
        """Return whether sizes differ from earlier ones only in dims that have become a grown size."""
        changes = [(old, new) for old, new in zip(earlier[0], sizes[0], strict=True) if old != new]
        return bool(changes) and all(new == old + 1 and new in self.grown for old, new in changes)


class GrowingSizes:
    """The sizes of the operations that need a program, by the form of the operation."""

    def __init__(self) -> None:
        self._compiled: OrderedDict[Hashable, _Form] = OrderedDict()
        self._models: WeakKeyDictionary[torch.nn.Module, _Model] = WeakKeyDictionary()
        self._without_model = _Model()

    def check(self, applied: Application) -> None:
        """Note an operation that has no program; raise ``GrowingSizesError`` if its sizes are grown sizes."""
        model = self._model()
        key, sizes = _form_and_sizes(applied)
        compiled, on_host = (_entry(forms, key, OrderedDict()) for forms in (self._compiled, model.on_host))
        if sizes not in on_host:
            if applied.operation is not _CAT or (concatenation := _concatenation(applied)) is None:
                rolls = False
            else:
                shape, dim, joined = concatenation
                first = next(leaf for leaf in applied.leaves if isinstance(leaf, TensorArgument))
                rolls = joined[dim] == shape[dim] + 1 and applied.storages[first.storage].shape == joined
            earlier = [
                (other[1] != sizes[1], examples)
                for other, examples in (*reversed(on_host.items()), *reversed(compiled.items()))
                if model.has_grown(other, sizes) or (rolls and other[0] == sizes[0])
            ]
            if not earlier:
                _entry(compiled, sizes, [], _MAX_SIZES)
                return
            # Results of the host get the layouts that the program has for operands of these layouts.
            _entry(on_host, sizes, min(earlier, key=itemgetter(0))[1], _MAX_SIZES)
        raise GrowingSizesError(
            "The sizes of its operands grow by one with each call, and a program has fixed sizes. "
            "A cache of a fixed size does not need other programs.",
            on_host[sizes],
        )

    def note_results(self, applied: Application, results: Sequence[Any]) -> None:
        """Note the layouts, strides and views of the results of the program of an operation."""
        key, sizes = _form_and_sizes(applied)
        form = _entry(self._compiled, key, OrderedDict())
        _entry(form, sizes, [], _MAX_SIZES)[:] = [
            DeviceTensor.viewing(
                Storage(result.storage.form, result.dtype, np.zeros(0, np.uint8)),
                result.strided,
                result.steps,
            )
            if isinstance(result, DeviceTensor) and result.storage.form is not None
            else None
            for result in results
        ]

    def observe(self, applied: Application) -> None:
        """Note the result of a concatenation, and whether the concatenation adds one position to an earlier result."""
        if applied.operation is not _CAT or (concatenation := _concatenation(applied)) is None:
            return
        shape, dim, joined = concatenation
        model = self._model()
        results = _entry(
            model.joined, (applied.storages[0].dtype, len(joined), dim), deque(maxlen=_MAX_SIZES)
        )
        if joined[dim] == shape[dim] + 1 and shape in results:
            model.grown.extend(size for size in (shape[dim], joined[dim]) if size not in model.grown)
        if joined not in results:
            results.append(joined)

    def _model(self) -> _Model:
        """Return what is known of the outermost module whose method is running."""
        frame, frames = sys._getframe(1), []
        while frame is not None:
            if frame.f_code.co_varnames[:1] == ("self",):
                frames.append(frame)
            frame = frame.f_back
        for frame in reversed(frames):
            module = frame.f_locals.get("self")
            if isinstance(module, torch.nn.Module):
                return self._models.setdefault(module, _Model())
        return self._without_model


def _concatenation(applied: Application) -> tuple[tuple[int, ...], int, tuple[int, ...]] | None:
    """Return the first shape of a concatenation, its dim, and the shape of its result; None if PyTorch refuses it."""
    shapes = [leaf.shape for leaf in applied.leaves if isinstance(leaf, TensorArgument)]
    if not shapes[0] or any(len(shape) != len(shapes[0]) for shape in shapes):
        return None
    dim = next((leaf for leaf in applied.leaves if isinstance(leaf, int)), 0) % len(shapes[0])
    joined = list(shapes[0])
    joined[dim] = sum(shape[dim] for shape in shapes)
    return shapes[0], dim, tuple(joined)


def _form_and_sizes(applied: Application) -> tuple[Hashable, _Sizes]:
    """Return an operation without its sizes, and its sizes.

    Storages and views of a concatenation do not matter: the cache that it extends was made in another way at first.
    """
    key: list[Any] = [applied.operation, *(whole.dtype for whole in applied.storages)]
    sizes: list[int] = []
    if applied.operation is not _CAT:
        sizes += (size for whole in applied.storages for size in whole.shape)
    for leaf in applied.leaves:
        if isinstance(leaf, TensorArgument):
            key.append(len(leaf.shape))
            if applied.operation is not _CAT:
                key.append((leaf.storage, *((step.name, step.number) for step in leaf.steps)))
            sizes += leaf.shape
        else:
            key.append(repr(leaf))
    layouts = [
        (digit.dim, digit.divisor)
        for whole in applied.storages
        if (layout := whole.storage.form) is not None
        for digit in layout.digits
        if digit.dim is not None and layout.shape[digit.dim] > digit.divisor
    ]
    return (*key, len(sizes)), (tuple(sizes), tuple(layouts))


def _entry(entries: OrderedDict[Any, Any], key: Hashable, new: Any, most: int = _MAX_FORMS) -> Any:
    """Return the value of a key, a new value for an unknown key; the oldest keys are dropped."""
    if key not in entries and len(entries) >= most:
        entries.popitem(last=False)
    return entries.setdefault(key, new)
