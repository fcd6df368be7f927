# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Turns operations that say how they are tiled into loops over tiles."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.tile_nests import Nest, Nests, Tiled, check_running
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.hint_attributes import TILING, tiling_attr, tiling_of
from spyre_mlir.dialects.structured import use_empty
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.loop_writer import LoopWriter
from spyre_mlir.tiling import TiledLoop


@dataclass(frozen=True)
class CoarseTiling(Pass):
    """Make ``scf.for`` nests of runs of operations with one tiling ("Working Set Reduction", transformation).

    Neighbours whose ``sdsc.tiling`` begins with the same loops share these, as long as each reads of what is made
    in a loop the tile of its own iteration; a sum over a loop is there when the loop has ended. What only the
    loop reads is a tile; what leaves it is a full tensor, each tile put in its place; what comes from outside is
    sliced. A reduced dim gives partial results, which are combined in an accumulator: the first iteration, which
    begins it, stands before its loop. Where the last tile is smaller than the others, its iteration stands after the
    loop: shapes are static, and a bundle has constant bounds only.

    Before, level *device-ops*:
        %0 = exp(%x) {sdsc.tiling = [{loop = "1.M", dim = 0, tiles = 8}]}
        %1 = mul(%0, %x) {sdsc.tiling = [{loop = "1.M", dim = 0, tiles = 8}]}
    After:
        scf.for %i = 0 to 8 { %x0 = slice %x; %0 = exp(%x0); %1 = mul(%0, %x0); insert %1 }
    """

    name: ClassVar[str] = "coarse-tiling"

    def run(self, module: ir.Operation) -> None:
        for func in functions(module):
            block = func.regions[0].blocks[0]
            if not any(
                TILING in op.operation.attributes or sdsc.NAME in op.operation.attributes
                for op in block.operations
            ):
                continue
            nests = Nests(block)
            # Before anything is rewritten: a maximum that is not complete may only be read in its own loops.
            check_running(nests)
            for tiled_op in nests.tiled.values():
                _record_tiling(tiled_op)
            if not any(isinstance(item, Nest) for item in nests.items):
                continue
            for item in nests.items:
                if isinstance(item, Nest):
                    self._report(item)
            LoopWriter(block, nests).run()
            _drop_masks(func)

    def _report(self, nest: Nest) -> None:
        ops = [item for item in nest.items if not isinstance(item, Nest)]
        inner = [item for item in nest.items if isinstance(item, Nest)]
        for tiled_op in ops[:1]:
            rest = "" if nest.tiles == nest.full_tiles else ", the last smaller"
            unrolled = ", unrolled" if nest.unrolled else ""
            text = f"{len(ops)} operations in {nest.tiles} tiles by loop {nest.loop}{rest}{unrolled}"
            self.remark(tiled_op.op, "tiling", text)
        for inner_nest in inner:
            self._report(inner_nest)


def _drop_masks(func: ir.Operation) -> None:
    """Drop masks that nothing reads any more: constants of parts of them are smaller by far."""
    if "arg_attrs" not in func.attributes:
        return
    block, attributes = func.regions[0].blocks[0], list(func.attributes["arg_attrs"])
    for number, value in reversed(list(enumerate(block.arguments))):
        if sdsc.RUNS in attributes[number] and use_empty(value):
            block.erase_argument(number)
            del attributes[number]
    func.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
    results = ir.FunctionType(ir.TypeAttr(func.attributes["function_type"]).value).results
    types = [argument.type for argument in block.arguments]
    func.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, results))


def _record_tiling(tiled_op: Tiled) -> None:
    """Remove ``sdsc.tiling``; an operation with a name keeps it for plan files as ``sdsc.tiled``.

    A maximum that readers take as it is so far always has a loop over what it reduces there, if only of one tile: so a
    plan tells that ``online-softmax`` was at work.
    """
    op, loops = tiled_op.op, [loop.settled() for loop in tiling_of(tiled_op.op)]
    if TILING in op.attributes:
        del op.attributes[TILING]
    if sdsc.NAME not in op.attributes:
        return
    reduced = tiled_op.generic.reduced
    if tiled_op.running is not None and not any(loop.dim in reduced for loop in loops):
        loops.append(TiledLoop(f"attention{tiled_op.running}.keys", min(reduced), 1))
    op.attributes[sdsc.TILED] = tiling_attr(loops)
