"""What the backend need not fetch again: an operand that it still has from an operation before.

The anchors ask for it: softmax of 512 x 1024 without LX planning takes 32.5 us for a plan of 8.4 MB, which is
258 GB/s, more than the memory's peak of 204.8. So not all accesses of the plan went through device memory, and the
stages of softmax differ by a fixed time per access, not by their bytes. A plan must not count on it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace

from spyre_mlir.cost.work import OperandWork, OperationWork
from spyre_mlir.target.device import device


def with_reuse(
    works: Sequence[OperationWork], buffers: Sequence[Sequence[Hashable]], results: Collection[Hashable]
) -> list[OperationWork]:
    """The works of a program in order, with the operands that are ``reused``.

    ``buffers`` names what each operand of each work touches, ``results`` what the host reads in the end. Bytes
    have to move for the first read of what the program did not write and for writes of results; all else is
    reused if the part of a core fits its LX, less what no tensor can be in.
    """
    touched: set[Hashable] = set()
    made = []
    for work, names in zip(works, buffers, strict=True):
        operands = tuple(
            replace(each, reused=_is_reused(each, name, touched, results))
            for each, name in zip(work.operands, names, strict=True)
        )
        touched.update(names)
        made.append(replace(work, operands=operands))
    return made


def _is_reused(
    operand: OperandWork, name: Hashable, touched: Collection[Hashable], results: Collection[Hashable]
) -> bool:
    if operand.in_lx or operand.core_bytes > device().usable_lx_bytes(0):
        return False
    return name not in results if operand.writes else name in touched
