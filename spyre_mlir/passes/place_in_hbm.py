"""Gives every buffer a home in HBM: a kernel argument or an offset in the pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import defining_op, maker_of
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.passes._memory import Memory, body_of, functions
from spyre_mlir.passes.base import Pass
from spyre_mlir.scratchpad import Lifetime, first_fit
from spyre_mlir.target.device import device

POOL_BYTES = "sdsc.pool_bytes"


@dataclass(frozen=True)
class PlaceInHbm(Pass):
    """Place results in kernel arguments and all other buffers in one pool, by lifetime.

    A buffer is live from the op that first writes it to the last op that reads it or a view of it; the
    pool is packed first fit. Arguments and constants have their home already.

        sdsc.placement = #sdsc.hbm<"pool", 4096>
    """

    name: ClassVar[str] = "place-in-hbm"

    def run(self, module: ir.Operation) -> None:
        for func in functions(module):
            self._place(func)

    def _place(self, func: ir.Operation) -> None:
        memory, ops = Memory(func), body_of(func)
        lives = lifetimes(memory, ops)
        for index, value in enumerate(ops[-1].operands):
            root = memory.place(value).buffer
            owner = defining_op(root)
            if owner is None or root not in lives:
                raise CompileError(f"result {index} has no buffer of its own", location_of(ops[-1].location))
            owner.attributes[sdsc.PLACEMENT] = sdsc.hbm_attr(f"result{index}", 0)
            del lives[root]
        buffers = [Lifetime(memory.layout(value).bytes, *life) for value, life in lives.items()]
        offsets, top = first_fit(buffers, device().hbm_alignment_bytes)
        if top > device().pool_bytes:
            raise CompileError(
                f"intermediates need {top} bytes at once, the pool has {device().pool_bytes}",
                location_of(func.location),
            )
        for value, offset in zip(lives, offsets, strict=True):
            maker_of(value).attributes[sdsc.PLACEMENT] = sdsc.hbm_attr("pool", offset)
        i64 = ir.IntegerType.get_signless(64)
        func.attributes[POOL_BYTES] = ir.IntegerAttr.get(i64, top)
        self.remark(func, "placement", f"{len(buffers)} intermediates share a pool of {top} bytes", after=top)


def lifetimes(memory: Memory, ops: list[ir.Operation]) -> dict[ir.Value, tuple[int, int]]:
    """First and last op of each buffer that an op makes; not of arguments and constants.

    Views and insertions touch nothing by themselves: a buffer's life is that of the operations on it.
    """
    lives: dict[ir.Value, tuple[int, int]] = {}
    for index, op in enumerate(ops):
        if op.name in ("tensor.empty", "linalg.fill", "arith.constant"):
            continue
        for value in (*op.operands, *op.results):
            if not isinstance(value.type, ir.RankedTensorType):
                continue
            root = memory.place(value).buffer
            owner = defining_op(root)
            if owner is None or owner.name in ("arith.constant", "linalg.fill") or is_destination(root):
                continue
            first, _ = lives.get(root, (index, index))
            lives[root] = (first, index)
    return lives


def is_destination(value: ir.Value) -> bool:
    """An empty tensor that only stands for the result of one op, not a buffer that insertions fill."""
    owner = defining_op(value)
    if owner is None or owner.name != "tensor.empty":
        return False
    return all(use.owner.operation.name != "tensor.insert_slice" for use in value.uses)
