# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sizes that grow by one with each call, such as the length of a cache to which each step of a decoder adds a token.

A program has fixed sizes, so each step would compile new programs of the operations on the grown tensor. The operation
that shows the growth is a concatenation: it adds one position to a tensor of the shape that an earlier concatenation
returned. The size of its result is a grown size. Another operation has grown if it differs from an earlier one of its
form only in dims that have become a grown size from the size before.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from dataclasses import field
from typing import Any

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


@dataclass
class _Form:
    """The sizes of the operations of one form that have programs, and of those that the host runs.

    ``examples`` are the results of the last program, without numbers.
    """

    compiled: deque[tuple[int, ...]] = field(default_factory=lambda: deque(maxlen=_MAX_SIZES))
    on_host: deque[tuple[int, ...]] = field(default_factory=lambda: deque(maxlen=_MAX_SIZES))
    examples: list[Any] = field(default_factory=list)


class GrowingSizes:
    """The sizes of the operations that need a program, by the form of the operation."""

    def __init__(self) -> None:
        self._forms: OrderedDict[Hashable, _Form] = OrderedDict()
        self._joined: OrderedDict[Hashable, deque[tuple[int, ...]]] = OrderedDict()
        self._grown: deque[int] = deque(maxlen=_MAX_SIZES)

    def check(self, applied: Application) -> None:
        """Note an operation that has no program; raise ``GrowingSizesError`` if its sizes are grown sizes."""
        if applied.operation is _CAT:
            self._observe(applied)
        form, sizes = self._form_and_sizes(applied)
        if sizes in form.compiled:
            return
        if sizes not in form.on_host:
            earlier = (*form.on_host, *form.compiled)
            if not any(self._has_grown(other, sizes) for other in earlier):
                form.compiled.append(sizes)
                return
            form.on_host.append(sizes)
        raise GrowingSizesError(
            "The sizes of its operands grow by one with each call, and a program has fixed sizes. "
            "A cache of a fixed size does not need other programs.",
            form.examples,
        )

    def note_results(self, applied: Application, results: Sequence[Any]) -> None:
        """Note the layouts, strides and views of the results of the program of an operation."""
        form, _ = self._form_and_sizes(applied)
        form.examples = [
            DeviceTensor.viewing(
                Storage(result.storage.form, result.dtype, np.zeros(0, np.uint8)),
                result.strided,
                result.steps,
            )
            if isinstance(result, DeviceTensor) and result.storage.form is not None
            else None
            for result in results
        ]

    def _observe(self, applied: Application) -> None:
        """Note the result of a concatenation, and whether the concatenation adds one position to an earlier result."""
        shapes = [leaf.shape for leaf in applied.leaves if isinstance(leaf, TensorArgument)]
        if not shapes[0] or any(len(shape) != len(shapes[0]) for shape in shapes):
            # PyTorch raises an error.
            return
        dim = next((leaf for leaf in applied.leaves if isinstance(leaf, int)), 0) % len(shapes[0])
        joined = list(shapes[0])
        joined[dim] = sum(shape[dim] for shape in shapes)
        key = (applied.storages[0].dtype, len(joined), dim)
        results = _entry(self._joined, key, deque(maxlen=_MAX_SIZES))
        if joined[dim] == shapes[0][dim] + 1 and shapes[0] in results:
            self._grown.extend(size for size in (shapes[0][dim], joined[dim]) if size not in self._grown)
        if tuple(joined) not in results:
            results.append(tuple(joined))

    def _has_grown(self, earlier: Sequence[int], sizes: Sequence[int]) -> bool:
        changes = [(old, new) for old, new in zip(earlier, sizes, strict=True) if old != new]
        return all(new == old + 1 and new in self._grown for old, new in changes)

    def _form_and_sizes(self, applied: Application) -> tuple[_Form, tuple[int, ...]]:
        """Return what is known of an operation without its sizes, and the sizes of its storages and tensors."""
        key: list[Any] = [applied.operation, *(whole.dtype for whole in applied.storages)]
        sizes = [size for whole in applied.storages for size in whole.shape]
        for leaf in applied.leaves:
            if isinstance(leaf, TensorArgument):
                steps = tuple((step.name, step.number) for step in leaf.steps)
                key.append((leaf.storage, len(leaf.shape), steps))
                sizes += leaf.shape
            else:
                key.append(repr(leaf))
        return _entry(self._forms, (*key, len(sizes)), _Form()), tuple(sizes)


def _entry(entries: OrderedDict[Hashable, Any], key: Hashable, new: Any) -> Any:
    """Return the value of a key, a new value for an unknown key; the oldest keys are dropped."""
    if key not in entries and len(entries) >= _MAX_FORMS:
        entries.popitem(last=False)
    return entries.setdefault(key, new)
