# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chooses inner loops to unroll, so that their slices of a buffer stay in LX."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from spyre_mlir.analysis.tile_nests import MOST_COPIES, Nest, Nests, Tiled, trace
from spyre_mlir.dialects.hint_attributes import TILING, tiling_attr, tiling_of
from spyre_mlir.dialects.structured import element_of, shape_of
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import EvaluatingPass, Evaluator
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.outlining import default_bytes, group_module
from spyre_mlir.tiling.hint_tree import TiledLoop

#: Maximum number of operations of a nest with its loops unrolled: one evaluation takes as long as compiling them.
_MOST_OPERATIONS = 256


@dataclass(frozen=True)
class UnrollTiles(EvaluatingPass):
    """Unroll an inner loop that accesses slices of a buffer that an iteration of the outer loop writes and reads.

    An address in LX is a literal in a design and cannot move with a loop, so such a buffer would go through device
    memory. After unrolling, each iteration has separate addresses. The loop is unrolled if the nest then takes less
    time by the cost model, after the rest of the pipeline. A remark reports both costs, or why nothing was evaluated.
    Loops that a plan file pins are not changed.

    Before, level *device-ops*:
        %0 = exp(%x) {sdsc.tiling = [{loop = "1.M", dim = 0, tiles = 8}, {loop = "2.N", dim = 1, tiles = 4}]}
        %1 = sum(%0) {sdsc.tiling = [{loop = "1.M", dim = 0, tiles = 8}]}
    After: the loop "2.N" has unrolled = true.
    """

    name: ClassVar[str] = "unroll-tiles"

    def decide_on(self, func: ir.Operation, evaluator: Evaluator) -> None:
        nests = Nests(func.regions[0].blocks[0])
        for item in nests.items:
            if isinstance(item, Nest):
                self._unroll(list(item.operations()), nests.tiled, evaluator)

    def _unroll(self, ops: Sequence[Tiled], tiled: Mapping[ir.Value, Tiled], evaluator: Evaluator) -> None:
        """Unroll the loops of a nest whose unrolling saves time."""
        # The operations whose result is complete in an iteration of a loop, with the inner loops that slice it.
        sliced_by: dict[Tiled, frozenset[Nest]] = {}
        for reader in ops:
            for operand, value in enumerate(reader.generic.inputs):
                maker = tiled.get(trace(value).root)
                if maker is not None and maker in ops:
                    common = [nest for nest in maker.nests if nest in reader.nests]
                    written = {nest for nest in maker.nests if not maker.reduces(nest)}
                    read = set(reader.tiled_dims(operand).values())
                    sliced_by[maker] = sliced_by.get(maker, frozenset()) | (written | read).difference(common)
        # Loops that a plan file or a hint has decided on.
        decided = {
            loop.loop for tiled_op in ops for loop in tiling_of(tiled_op.op) if loop.unrolled is not None
        }
        unrolled = frozenset[Nest]()
        for maker, loops in sliced_by.items():
            # This includes makers that no loop slices; the loops may be unrolled for another buffer already.
            if loops <= unrolled or any(nest.loop in decided for nest in loops):
                continue
            before = evaluator.cost(_group(ops, unrolled))
            text = _why_not(maker, ops, unrolled | loops, loops)
            if text is None:
                after = evaluator.cost(_group(ops, unrolled | loops))
                text = f"unrolled {after or 'not possible'}"
                if before is not None and after is not None and after.nanoseconds < before.nanoseconds:
                    unrolled |= loops
            kind = "unrolled" if loops <= unrolled else "not unrolled"
            names = sorted(nest.loop for nest in loops)
            verb = f"loops {', '.join(names)} access" if len(names) > 1 else f"loop {names[0]} accesses"
            what = f"{verb} slices of the result of '{maker.generic.opcode}'"
            self.remark(maker.op, kind, f"{what}: {text}; in a loop {before or 'not possible'}")
        for tiled_op in ops if unrolled else ():
            tiled_op.op.attributes[TILING] = tiling_attr(_loops(tiled_op, unrolled))


def _why_not(
    maker: Tiled, ops: Sequence[Tiled], unrolled: frozenset[Nest], loops: frozenset[Nest]
) -> str | None:
    """Return why an evaluation would be useless; None if it may be useful."""
    copies = [math.prod(nest.tiles for nest in tiled_op.nests if nest in unrolled) for tiled_op in ops]
    if max(copies) > MOST_COPIES or sum(copies) > _MOST_OPERATIONS:
        return f"unrolling makes {sum(copies)} operations, {max(copies)} copies of one, which is too many"
    shape = list(shape_of(maker.result))
    for nest in maker.nests:
        if nest not in loops and not maker.reduces(nest):
            shape[maker.result_dim(nest)] = nest.tile(shape[maker.result_dim(nest)])
    target = target_of(maker.op)
    size, room = default_bytes(target, shape, element_of(maker.result)), target.usable_lx_bytes
    # The buffer does not fit even in all scratchpads together, so unrolling gains nothing.
    if size > room * target.cores:
        return f"the whole buffer has {size} bytes, and {target.cores} scratchpads have {room} bytes each"
    return None


def _group(ops: Sequence[Tiled], unrolled: frozenset[Nest]) -> ir.Module:
    """Build the program of a nest with some loops unrolled."""
    return group_module(
        [tiled_op.op for tiled_op in ops], {tiled_op.result: _loops(tiled_op, unrolled) for tiled_op in ops}
    )


def _loops(tiled_op: Tiled, unrolled: frozenset[Nest]) -> list[TiledLoop]:
    """Return the loops around an operation with some of them unrolled."""
    loops = (loop for loop in tiling_of(tiled_op.op) if loop.tiles > 1)
    return [
        replace(loop, unrolled=True) if nest in unrolled else loop
        for nest, loop in zip(tiled_op.nests, loops, strict=True)
    ]
