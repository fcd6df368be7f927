# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kept usage of a function: reused from one pass to the next while nothing changes the function.

Most passes of level *divided* request the usage and find nothing to change. Writing the bytecode of a function takes a
tenth of the time to compute the usage, and comparing the bytecode detects changes.
"""

from __future__ import annotations

import contextvars
import hashlib
import io
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from spyre_mlir.analysis.aliasing import all_ops
from spyre_mlir.analysis.buffer_uses import Usage
from spyre_mlir.compile_lock import assigned
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.target.target import Target

#: Largest number of elements of a constant that the text of its function contains.
_FEW_ELEMENTS = 1024


# eq=False: the bindings refuse to compare an op that was erased.
@dataclass(frozen=True, eq=False)
class _FunctionState:
    """A function as it was read: its text, and its ops, because other ops may have equal text.

    ``constants`` are the large constants. They are compared by identity, because the text omits their numbers.
    """

    func: ir.Operation
    target: Target
    digest: bytes
    constants: tuple[ir.Attribute, ...]
    ops: list[ir.Operation]

    @classmethod
    def of(cls, func: ir.Operation) -> _FunctionState:
        """Return the current state of a function."""
        ops = all_ops(func)
        return cls(func, target_of(func), *digest_of(func, ops), ops)

    def is_same(self, other: _FunctionState) -> bool:
        """Return whether two states are of the same function, without a change between the states."""
        if (self.target, self.digest) != (other.target, other.digest):
            return False
        try:
            return self.func == other.func and self.ops == other.ops and self.constants == other.constants
        except RuntimeError:  # an op was erased
            return False


def digest_of(func: ir.Operation, ops: Iterable[ir.Operation]) -> tuple[bytes, tuple[ir.Attribute, ...]]:
    """Return a digest of the text of a function, and its large constants, which the text omits.

    ``ops`` are all ops of the function.
    """
    values = (op.attributes["value"] for op in ops if op.name == "arith.constant")
    dense = (value for value in values if isinstance(value, ir.DenseElementsAttr) and not value.is_splat)
    constants = tuple(value for value in dense if len(value) > _FEW_ELEMENTS)
    text = io.BytesIO()
    if constants:
        func.print(file=text, binary=True, large_elements_limit=_FEW_ELEMENTS, print_generic_op_form=True)
    else:
        func.write_bytecode(text)
    return hashlib.sha256(text.getbuffer()).digest(), constants


#: The last usage that was requested, with the state of its function, if there is one; None outside ``usage_kept``.
_kept: contextvars.ContextVar[list[tuple[_FunctionState, Usage]] | None] = contextvars.ContextVar(
    "kept", default=None
)


def usage_kept() -> AbstractContextManager[Any]:
    """Keep the last result of ``usage_of`` for the next call, within a ``with`` block."""
    return assigned(_kept, [])


def usage_of(func: ir.Operation) -> Usage:
    """Return the usage of a function: the kept usage if no op was changed, moved, added or erased since.

    After a change of the function, do not read facts from an old usage that were not read before the change.
    """
    kept = _kept.get()
    if kept is None:
        return Usage(func)
    state = _FunctionState.of(func)
    if not kept or not kept[0][0].is_same(state):
        kept[:] = [(state, Usage(func))]
    return kept[0][1]
