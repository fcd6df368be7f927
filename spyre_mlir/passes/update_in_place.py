# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes insertions into an argument that the program updates write its memory, and gives each result a buffer."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from spyre_mlir.analysis.aliasing import argument_attributes
from spyre_mlir.analysis.view_ops import VIEWS, place_of
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import defining_op, device_op, element_of, shape_of, use_empty
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.layout.stick_layout import elements_per_stick
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.outlining import set_function_type
from spyre_mlir.rewriting.tensor_builders import constant, extracted, inserted


@dataclass(frozen=True)
class UpdateInPlace(Pass):
    """Write the new values of updated arguments, such as key caches, to the memory of the arguments.

    The frontend records which result is the new value of an argument (``spyre.updated``). If that result is the
    argument with insertions, and no other operation reads the old value, the copy is removed and the attribute is kept:
    result and argument are one parameter of the bundle. Otherwise the attribute is removed. A single position is
    inserted as the whole stick around it with the rest unchanged, so that any dim may be in the sticks of the argument.
    A result that CSE made a view of another result's buffer, and a result that canonicalization made a constant, are
    copied, because each result is a separate parameter.

    Before:
        %c = "sdsc.clone"(%cache); %r = tensor.insert_slice %new into %c[0, 70, 0] [8, 1, 64] [1, 1, 1]
    After:
        %b = tensor.extract_slice %cache[0, 64, 0] [8, 64, 64] [1, 1, 1]; %w = where3(%position, %new, %b)
        %r = tensor.insert_slice %w into %cache[0, 64, 0] [8, 64, 64] [1, 1, 1]
    """

    name: ClassVar[str] = "update-in-place"

    def run_on(self, func: ir.Operation) -> None:
        block = func.regions[0].blocks[0]
        end = block.operations[len(block.operations) - 1].operation
        buffers: set[ir.Value] = set()
        # Each result whose buffer is a constant, or the buffer of an earlier result, is copied.
        for index, value in enumerate(end.operands):
            buffer = value
            while (op := defining_op(buffer)) is not None and op.name in VIEWS:
                buffer = op.operands[0]
            if buffer in buffers or (op is not None and op.name == "arith.constant"):
                with ir.InsertionPoint(end), value.location:
                    end.operands[index] = sdsc.clone(value, value.location)
            buffers.add(buffer)
        entries = argument_attributes(func)
        if not any(sdsc.UPDATED in entry for entry in entries):
            return
        for argument, entry in zip(list(block.arguments), entries, strict=True):
            if sdsc.UPDATED not in entry:
                continue
            result = end.operands[ir.IntegerAttr(entry[sdsc.UPDATED]).value]
            if not self._update(argument, result):
                del entry[sdsc.UPDATED]
        set_function_type(func)
        func.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(entry) for entry in entries])

    def _update(self, argument: ir.Value, result: ir.Value) -> bool:
        """Insert into an argument instead of its copy; return whether that is possible."""
        chain: list[ir.Operation] = []
        copy = defining_op(result)
        # A result may be a reshape of the updated argument.
        while copy is not None and copy.name in VIEWS and copy.name != "tensor.extract_slice":
            copy = defining_op(copy.operands[0])
        while copy is not None and copy.name == "tensor.insert_slice":
            chain.insert(0, copy)
            copy = defining_op(copy.operands[1])
        if not chain or copy is None or copy.name != "sdsc.clone" or copy.operands[0] != argument:
            return False
        if len(list(argument.uses)) > 1 or len(list(copy.results[0].uses)) > 1:
            return False  # another operation reads the old value
        # A layout chosen by the caller is in the type of the argument, and must be in the types of the insertions, too.
        is_laid_out = copy.results[0].type != argument.type
        if is_laid_out and defining_op(result) != chain[-1]:
            return False
        copy.results[0].replace_all_uses_with(argument)
        copy.erase()
        if is_laid_out:
            for number, old in enumerate(chain):
                with ir.InsertionPoint(old), old.location:
                    attributes = {name: old.attributes[name] for name in old.attributes}
                    chain[number] = ir.Operation.create(
                        old.name, [old.operands[1].type], list(old.operands), attributes
                    )
                old.results[0].replace_all_uses_with(chain[number].results[0])
                old.erase()
        text = f"the insertions into argument {argument.arg_number} write its memory"
        self.remark(chain[0], "in place", text)
        for insertion in chain:
            _widen(insertion)
        return True


def _widen(op: ir.Operation) -> None:
    """Insert the whole stick around a single position instead of the position."""
    place, whole = place_of(op), op.operands[1]
    shape, dtype = shape_of(whole), element_of(whole)
    cut = [dim for dim, size in enumerate(place.sizes) if size < shape[dim]]
    stick = elements_per_stick(target_of(op), dtype)
    # If the position is known only at run time, the mask would differ in each call.
    if place.moves or len(cut) != 1 or place.sizes[cut[0]] != 1 or shape[cut[0]] <= stick or dtype != "f16":
        return
    (dim,) = cut
    first = place.offsets[dim] // stick * stick
    offsets = [first if other == dim else 0 for other in range(len(shape))]
    sizes = [min(stick, size - first) if other == dim else size for other, size in enumerate(shape)]
    part, clone = op.operands[0], defining_op(op.operands[0])
    if clone is not None and clone.name == "sdsc.clone":
        part = clone.operands[0]
    dims = tuple(range(len(shape)))
    # Dims of size 1 may be missing from the part.
    is_full_rank = len(shape_of(part)) == len(dims)
    names = [other for other in dims if is_full_rank or place.sizes[other] > 1]
    if [place.sizes[other] for other in names] != list(shape_of(part)):
        return
    with ir.InsertionPoint(op), op.location:
        block = extracted(whole, offsets, sizes, [1] * len(dims))
        position = np.zeros(sizes[dim], np.float16)
        position[place.offsets[dim] - first] = 1
        operands = [constant(ir.DenseElementsAttr.get(position)), part, block]
        maps = [(dim,), tuple(None if other == dim else other for other in names), dims]
        wide = device_op("where3", operands, maps, sizes, dtype, location=op.location)
        op.results[0].replace_all_uses_with(inserted(wide, whole, offsets, sizes))
    op.erase()
    # The copy into a private buffer is not needed, because the result of the selection is a private buffer.
    if clone is not None and clone.name == "sdsc.clone" and use_empty(clone.results[0]):
        clone.erase()
