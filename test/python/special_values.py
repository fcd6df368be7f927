# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Special numbers in the inputs of pointwise operations and reductions, and the comparison of their results.

Special are NaN, infinities, zeros of both signs, subnormal, the smallest normal and the largest numbers. Tensors of
one shape become vectors with each combination of numbers; in others each number is replaced by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

#: Shares of the numbers that are replaced where not all combinations fit: few, so that a sum of some stays a number.
_SHARES = {"pointwise": 0.5, "reduction": 0.04}

#: The largest difference from PyTorch of each number, in addition to the rounding of its type.
_RELATIVE = {torch.float16: 4e-3, torch.float32: 4e-4}

#: Operations that compute a row from a row, or one number from several, and have no tag of PyTorch.
_OF_ROWS = ("softmax", "softmin", "logsumexp", "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "aminmax",
            "norm", "_loss", "cross_entropy", "median", "dist", "diff")  # fmt: skip

#: Operations that compute an element from an element of each operand, and have no tag of PyTorch.
_OF_ELEMENTS = ("elu", "softplus", "sigmoid", "hardswish", "floor_divide", "rsub", "positive")

#: Operations whose zeros may have either sign, by the beginning of their names (docs/numerics.md).
_ZEROS_OF_EITHER_SIGN = ("nn.functional.relu", "nn.functional.hardtanh", "clamp", "fmax", "fmin", "round", "addcdiv",
                         "lerp", "logaddexp2")  # fmt: skip

#: Operations with an intermediate number that may leave the range where the result does not, or be much larger than it
#: (docs/numerics.md).
_WITH_WIDER_STEPS = ("addcmul", "addcdiv", "std", "var", "_softmax_backward_data")


def numbers(name: str, dtype: torch.dtype, count: int = 2) -> Tensor:
    """Special numbers of a type for an operation among ordinary ones, fewer for combinations of more than two."""
    limits = torch.finfo(dtype)
    special = [0.0, -0.0, torch.inf, -torch.inf, torch.nan, limits.tiny]
    if not name.startswith(_WITH_WIDER_STEPS):
        special += [limits.max, -limits.max]
    ordinary = [1.0, -1.0, 2.5, -3.0]
    if count <= 2:
        special += [-limits.tiny, limits.smallest_normal / 32, -limits.smallest_normal / 32]
        ordinary += [0.5, -0.75, 7.0]
    return torch.tensor(special + ordinary, dtype=torch.float64).to(dtype)


def _combinations(name: str, dtype: torch.dtype, count: int) -> list[Tensor]:
    """Vectors that have each combination of special numbers, one per operand."""
    grids = torch.meshgrid(*[numbers(name, dtype, count)] * count, indexing="ij")
    return [grid.reshape(-1).contiguous() for grid in grids]


class _Calls(TorchDispatchMode):
    """Recorder of the operations that a function calls, except views."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view:
            self.operations.append(func)
        return func(*args, **(kwargs or {}))


#: Operations that move numbers or make new ones, which may occur in the program of a pointwise function.
_NEUTRAL = frozenset(
    f"aten::{name}"
    for name in "clone _to_copy copy_ detach alias empty full full_like scalar_tensor zeros_like ones_like "
    "_local_scalar_dense".split()
)


def kind_of(name: str, function: Any, tensors: Sequence[Tensor]) -> str:
    """Return whether a function of tensors is "pointwise", a "reduction", or "" for neither."""
    if name.startswith(("linalg.", "fft.")) and "norm" not in name:
        return ""
    with _Calls() as calls:
        results = function(*tensors)
    tags = {tag for operation in calls.operations for tag in operation.tags}
    others = [
        operation
        for operation in calls.operations
        if torch.Tag.pointwise not in operation.tags and operation._schema.name not in _NEUTRAL
    ]
    if not others:
        shape = torch.broadcast_shapes(*(x.shape for x in tensors))
        same = all(x.shape == shape for x in pytree.tree_leaves(results) if isinstance(x, Tensor))
        return "pointwise" if torch.Tag.pointwise in tags and same else ""
    if torch.Tag.reduction in tags or any(part in name for part in _OF_ROWS):
        return "reduction"
    return "pointwise" if any(part in name for part in _OF_ELEMENTS) else ""


def planted(name: str, kind: str, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Tensors of a pointwise operation or a reduction with special numbers among theirs."""
    floating = [x for x in tensors if x.is_floating_point()]
    if not floating:
        return ()
    if kind == "pointwise" and len(floating) <= 3 and len({x.shape for x in tensors}) == 1:
        vectors = _combinations(name, floating[0].dtype, len(floating))
        size = len(vectors[0])
        return tuple(vectors.pop(0) if x.is_floating_point() else _repeated(x, size) for x in tensors)
    generator = torch.Generator().manual_seed(0)
    special = [numbers(name, x.dtype) if x.is_floating_point() else x for x in tensors]
    pairs = zip(tensors, special, strict=True)
    return tuple(_mixed(x, y, _SHARES[kind], generator) if x.is_floating_point() else x for x, y in pairs)


def _repeated(x: Tensor, size: int) -> Tensor:
    flat = x.reshape(-1)
    return flat[torch.arange(size) % len(flat)] if len(flat) else flat


def _mixed(x: Tensor, special: Tensor, share: float, generator: torch.Generator) -> Tensor:
    chosen = special[torch.randint(len(special), x.shape, generator=generator)]
    return torch.where(torch.rand(x.shape, generator=generator) < share, chosen, x)


def spaced(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the numbers with other strides: PyTorch's kernels for vectors and for single numbers differ."""
    return tuple(torch.stack([x, x], -1)[..., 0] for x in tensors)


def complaint(name: str, kind: str, results: Sequence[Any], accepted: Sequence[Sequence[Any]]) -> str:
    """Return the difference of an operation's results; each number must be one of the numbers that PyTorch may give."""
    is_sum = kind == "reduction" or name.startswith(_WITH_WIDER_STEPS)
    for index, result in enumerate(results):
        wanted = [each[index] for each in accepted]
        if not isinstance(wanted[0], Tensor):
            continue
        if result.shape != wanted[0].shape or result.dtype != wanted[0].dtype:
            kinds = (f"{x.dtype} {list(x.shape)}" for x in (result, wanted[0]))
            return f"result {index}: {' instead of '.join(kinds)}"
        right = torch.zeros(result.shape, dtype=torch.bool)
        spread = _spread(wanted)
        for other in wanted:
            right |= _same(name, is_sum, result, other, spread)
        if not right.all():
            at = int((~right).reshape(-1).nonzero()[0])
            got, value = (float(x.reshape(-1)[at]) for x in (result, wanted[0]))
            count = int((~right).sum())
            return (
                f"result {index}: {got!r} instead of {value!r} at {at}, {count} of {right.numel()} elements"
            )
    return ""


def _spread(wanted: Sequence[Tensor]) -> Tensor:
    """4 times the differences of PyTorch's own results where these are numbers."""
    numbers_ = torch.stack([x.double() for x in wanted])
    return torch.nan_to_num(4 * (numbers_.amax(0) - numbers_.amin(0)), 0.0, 0.0, 0.0)


def _same(name: str, is_sum: bool, result: Tensor, other: Tensor, spread: Tensor) -> Tensor:
    if not result.is_floating_point():
        return result == other
    limits = torch.finfo(result.dtype)
    got, wanted = result.double(), other.double()
    is_free = name.startswith(_ZEROS_OF_EITHER_SIGN)
    signs = (got != 0) | (wanted != 0) | (got.signbit() == wanted.signbit()) | is_free
    relative = _RELATIVE.get(result.dtype, 1e-9)
    # Terms of a sum are near 1, and may cancel.
    least = relative if is_sum else limits.smallest_normal
    allowed = relative * wanted.abs() + least + spread
    near = got.isfinite() & wanted.isfinite() & ((got - wanted).abs() <= allowed)
    return (got.isnan() & wanted.isnan()) | (((got == wanted) | near) & signs)
