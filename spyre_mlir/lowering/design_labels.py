# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Labels of the iteration dims of a design, by what its operation is."""

from __future__ import annotations

from spyre_mlir.errors import CompileError
from spyre_mlir.layout.space import Space
from spyre_mlir.target.ops import DEVICE_OPS, Kind

#: The label of the stick of the output, and of most operands.
STICK = "out"
#: Labels of the dims that are in no stick, in the order in which operations take them.
LABELS = ("mb", "x", "y", "i", "j", "x1", "r", "c", "ij", "rc", "kij", "sij")
#: Labels of the dims of a matmul but its columns ``out``, its innermost row ``mb`` and ``in``, the innermost first.
MATMUL_LABELS = ("x", "y", "kj", "ki")
#: Labels of the dims that windows slide along, the innermost first; those of the windows have a k before.
WINDOW_LABELS = ("j", "i")


def labels_of(opcode: str, space: Space) -> tuple[str, ...]:
    """Return the label of each dim; ``CompileError`` if there are more dims than labels."""
    kind = DEVICE_OPS[opcode].kind
    if kind.slides:
        return _window_labels(space)
    if kind is Kind.MATMUL:
        return _matmul_labels(space)
    stick = _main_stick(space)
    spare = iter(LABELS)
    labels = []
    for dim in range(len(space.sizes)):
        label = STICK if dim == stick else next(spare, None)
        if label is None:
            raise CompileError(f"'{opcode}' iterates over more dims than a design has labels")
        labels.append(label)
    return tuple(labels)


def _window_labels(space: Space) -> tuple[str, ...]:
    """Return mb, i, j, out, in, ki, kj: the last window slides along j, and channels are in the sticks."""
    labels: dict[int, str] = {}
    for window, ending in zip(reversed(space.windows), WINDOW_LABELS, strict=False):
        labels[window.output], labels[window.kernel] = ending, f"k{ending}"
    stick, contracted = _main_stick(space), space.reduced - set(labels)
    labels |= dict.fromkeys(contracted, "in")
    if stick is not None:
        labels[stick] = STICK
    spare = iter(("mb", *WINDOW_LABELS, *LABELS))
    for dim in reversed(range(len(space.sizes))):
        if dim not in labels:
            labels[dim] = next(label for label in spare if label not in labels.values())
    return tuple(labels[dim] for dim in range(len(space.sizes)))


def _main_stick(space: Space) -> int | None:
    """Return the dim called ``out``: the stick of the output, or of the first input that has one."""
    views = (space.views[-1], *space.views)
    stick_dims = [view.main_stick_dim for view in views if view.main_stick_dim is not None]
    return stick_dims[0] if stick_dims else None


def _matmul_labels(space: Space) -> tuple[str, ...]:
    rows, columns, _ = space.present
    generated, outer = columns - rows - space.reduced, iter(MATMUL_LABELS)
    labels = {dim: "in" for dim in space.reduced} | {dim: "out" for dim in generated}
    # The innermost row is mb, as torch-spyre has it, and what is outside of it follows whether row or batch.
    row = max(rows - columns, default=None)
    if row is not None:
        labels[row] = "mb"
    for dim in reversed(range(len(space.sizes))):
        if dim not in labels:
            labels[dim] = next(outer)
    return tuple(labels[dim] for dim in range(len(space.sizes)))
