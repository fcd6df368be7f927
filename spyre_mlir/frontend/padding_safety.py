# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Proof that a program computes the leading part of the same program for larger tensors, so padding is safe.

A model is imported at two sizes. The larger program may run in place of the smaller program, with padded inputs and cut
results, if every tensor of the smaller program equals the leading part of the corresponding larger tensor, whatever the
other elements are. This is proven op by op, from the results back to the arguments, by rules such as

- an elementwise operation, a contraction: no dim of different size is reduced;
- a reshape: of the merged dims, only the outermost dim has a different size;
- a concatenation: only the last part has a different size along the dim.

Everything else must be equal in both programs: a model that divides by its number of rows, or takes the last row,
cannot be padded.

Padding rows are copies of the last row, so a lookup by the values of inputs stays in bounds for them. A lookup by
position may not, so a program that counts positions and looks up is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from spyre_mlir.dialects.structured import defining_op, maker_of, shape_of
from spyre_mlir.frontend.importer import Imported
from spyre_mlir.frontend.module_pairs import (
    DifferentPrograms,
    OpPair,
    PairWalk,
    Rule,
    ValuePair,
    along_one_dim,
    anything,
    begins_with,
    check_arguments,
    elementwise,
    equal_constant,
    extents_of,
    same_accesses,
    same_dim,
    same_slice,
    unchanged,
)
from spyre_mlir.mlir import ir


def check_padding_safety(smaller: Imported, larger: Imported) -> None:
    """Raise ``DifferentPrograms`` unless ``larger`` may run in place of ``smaller``; both are in one MLIR context."""
    check_arguments(smaller, larger)
    # Without a module the model computes nothing: it returns views of its inputs.
    if smaller.module is not None and larger.module is not None:
        _Proof(smaller, larger).run()


class _Proof(PairWalk):
    """Walk that proves that every tensor of the smaller program is the leading part of the larger tensor."""

    def __init__(self, smaller: Imported, larger: Imported) -> None:
        super().__init__(smaller, larger)
        self.rules = _RULES
        self.counting: OpPair | None = None
        self.looking_up: OpPair | None = None

    def run(self) -> None:
        super().run()
        # Counting or looking up alone is safe: only a counted position may be outside a table.
        if self.counting and self.looking_up:
            raise self.looking_up.fail("it may look up what padded positions do not have")

    def unknown(self, ops: OpPair) -> None:
        unchanged(ops)

    def check_data(self, pair: ValuePair, small: torch.Tensor, large: torch.Tensor) -> None:
        if not begins_with(large, small):
            raise DifferentPrograms("the model has other constants at another size")
        if pair.differing:
            self.counting = self.functions

    def note(self, ops: OpPair) -> None:
        """Record whether an operation looks up by position, or counts positions that are padded."""
        looks_up = ops.small.name == "tensor.extract"
        if looks_up:
            self.looking_up = ops
        for dim, pair in enumerate(ops.operands, start=-1):
            defining_ops = [defining_op(value) for value in pair]
            if any(op is None or op.name != "linalg.index" for op in defining_ops):
                continue
            count = _padded_count(OpPair(*map(maker_of, pair)))
            # An index below the size of the table stays in bounds, padded or not.
            if count and not (looks_up and count <= shape_of(ops.large.operands[0])[dim]):
                self.counting = ops


# -- rules --------------------------------------------------------------------------------------------
#
# A rule raises unless equal leading parts of the operands imply equal leading parts of the results.


def _generic(ops: OpPair) -> None:
    """Require that corresponding iterations access the same positions, and that no reduction gets longer."""
    extents = same_accesses(ops)
    kinds = [str(kind) for kind in ir.ArrayAttr(ops.small.attributes["iterator_types"])]
    for dim, kind in enumerate(kinds):
        if extents[0].get(dim) != extents[1].get(dim) and "parallel" not in kind:
            raise ops.fail("an operation combines its elements")


def _padded_count(ops: OpPair) -> int:
    """Size of the dim that a ``linalg.index`` counts in the larger program, if the dim is padded; 0 otherwise."""
    dim = ir.IntegerAttr(ops.small.attributes["dim"]).value
    small, large = (extents_of(_structured_around(op))[dim] for op in ops)
    return large if small != large else 0


def _structured_around(op: ir.Operation) -> ir.Operation:
    around = op.parent.operation
    return around if around.name == "linalg.generic" else _structured_around(around)


def _reshape(ops: OpPair) -> None:
    """Require that only the outermost dim of a merge or split is padded, which keeps the row-major order."""
    ops.same("reassociation")
    source, result = ops.operands[0], ops.results[0]
    whole = result if ops.small.name == "tensor.expand_shape" else source
    groups = ops.small.attributes["reassociation"]
    for number, group in enumerate(groups):
        dims = [ir.IntegerAttr(dim).value for dim in group]
        padded = [index for index, dim in enumerate(dims) if dim in whole.differing]
        outer = [whole.shapes[dim][0] for dim in dims[: padded[0]]] if padded else []
        part = source if whole is result else result
        if len(padded) > 1 or any(size != 1 for size in outer) or (number in part.differing) != bool(padded):
            raise ops.fail("a reshape puts it inside of another dim")


def _insertion(ops: OpPair) -> None:
    """Require that a source that grows in the larger program extends to the end of the destination."""
    same_slice(ops)
    whole = ops.operands[1]
    places = zip(ops.numbers("static_offsets"), ops.numbers("static_sizes"), whole.shapes, strict=True)
    for (offset, _), (small, large), (end, _) in places:
        if small != large and offset + small != end:
            raise ops.fail("an insertion covers other positions at another size")


def _concatenation(ops: OpPair) -> None:
    ops.same("dim")
    dim = ir.IntegerAttr(ops.small.attributes["dim"]).value
    if any(dim in pair.differing for pair in ops.operands[:-1]):
        raise ops.fail("a concatenation puts something behind it")


def _pad(ops: OpPair) -> None:
    padded = ops.operands[0].differing
    low, high = ops.numbers("static_low"), ops.numbers("static_high")
    if any(one != other for one, other in (*low, *high)) or any(high[dim] != (0, 0) for dim in padded):
        raise ops.fail("a padding puts something behind it")


_RULES: Mapping[str, Rule] = {
    "arith.constant": equal_constant,
    "linalg.generic": _generic,
    "linalg.index": same_dim,
    "stick.pin": elementwise,
    "stick.restickify": elementwise,
    "tensor.cast": elementwise,
    "tensor.collapse_shape": _reshape,
    "tensor.concat": _concatenation,
    "tensor.empty": anything,
    "tensor.expand_shape": _reshape,
    "tensor.extract": anything,
    "tensor.extract_slice": same_slice,
    "tensor.insert_slice": _insertion,
    "tensor.pad": _pad,
    "tm_tensor.scan": along_one_dim,
    "tm_tensor.sort": along_one_dim,
}
