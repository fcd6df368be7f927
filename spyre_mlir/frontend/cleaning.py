# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Settled assertions, scalars in f64 and tensors of one number, which torch-mlir leaves in linalg, removed."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torch_mlir.dialects import arith

from spyre_mlir.frontend.kernel_calls import UnloweredError, nodes_of
from spyre_mlir.mlir import ir, location_of

#: Assertions of torch-mlir in bodies that need no check: PyTorch's division by 0 gives an infinity, and whatever reads
#: a table checks its indices.
_NEEDLESS = {
    "unimplemented: tensor with zero element",
    "index must be smaller than dim size",
    "index must be larger or equal to 0",
}

#: Predicates of arith.cmpf, ordered and unordered.
_GREATER, _LESSER = (2, 3, 9, 10), (4, 5, 11, 12)


def operations(operation: ir.Operation) -> Iterator[ir.Operation]:
    """Operations nested in one, outermost first."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from operations(inner.operation)


def clean(module: ir.Module) -> None:
    """Refuse dynamic shapes; fold scalar constants; write extremes as such; drop torch's attributes and the assertions
    that hold.
    """
    # A list, because operations are erased on the way.
    for operation in list(operations(module.operation)):
        _check_static(operation)
        for name in [name for name in operation.attributes if name.startswith("torch.")]:
            del operation.attributes[name]
        if operation.name == "cf.assert":
            _settle_assertion(operation)
        elif operation.name == "tensor.extract_slice":
            _slice_undefined(operation)
        elif operation.name in ("arith.truncf", "math.sqrt"):
            _fold_scalar(operation)
        elif operation.name == "arith.select":
            _write_as_extreme(operation)
    generics = [operation for operation in operations(module.operation) if operation.name == "linalg.generic"]
    for generic in generics:
        _inline_uniform_operands(generic)


def _settle_assertion(operation: ir.Operation) -> None:
    """Erase a ``cf.assert`` that holds; one that fails, or is in the body of an operation, is an ``UnloweredError``.

    torch-mlir guards forms that are right for some operands only. One that depends on values stays for the run.
    """
    parent = operation.parent
    is_in_body = parent is not None and parent.name.startswith(("linalg.", "tensor.", "tm_tensor."))
    constant = _constant(operation.operands[0])
    text = ir.StringAttr(operation.attributes["msg"]).value
    holds = constant is not None and bool(ir.IntegerAttr(constant.attributes["value"]).value)
    if holds or (is_in_body and text in _NEEDLESS):
        operation.erase()
    elif constant is not None or is_in_body:
        nodes = frozenset(nodes_of(operation.location))
        raise UnloweredError(
            f"The form in linalg is not right for these operands: {text}.",
            location_of(operation.location),
            nodes,
        )


def _check_static(operation: ir.Operation) -> None:
    """Raise ``UnloweredError`` for a result of dynamic shape."""
    for value in operation.results:
        if isinstance(value.type, ir.RankedTensorType) and not value.type.has_static_shape:
            nodes = frozenset(nodes_of(operation.location))
            raise UnloweredError(
                f"The shape of {value.type} is not static.", location_of(operation.location), nodes
            )


def _constant(value: ir.Value) -> ir.Operation | None:
    """The arith.constant that defines a value, or None."""
    owner = value.owner
    return owner if not isinstance(owner, ir.Block) and owner.name == "arith.constant" else None


def _fold_scalar(operation: ir.Operation) -> None:
    """A rounding or a root of a scalar constant, which upstream folds only where it is exact.

    Torch writes an epsilon as f64 rounded in the body, and sqrt(2) in gelu as a root.
    """
    source = _constant(operation.operands[0])
    if source is None:
        return
    number = ir.FloatAttr(source.attributes["value"]).value
    result_type = operation.results[0].type
    with source.location, ir.InsertionPoint(source):
        value = ir.FloatAttr.get(result_type, math.sqrt(number) if operation.name == "math.sqrt" else number)
        constant = arith.ConstantOp(result_type, value)
    operation.results[0].replace_all_uses_with(constant.result)
    operation.erase()


def _write_as_extreme(select: ir.Operation) -> None:
    """select(a > b, a, b) -> maximumf(a, b), likewise the minimum.

    torch-mlir lowers ``relu``, ``clamp``, ``maximum`` and ``minimum`` to a comparison and a selection in one body,
    which lose a NaN that PyTorch keeps. The comparison of ``torch.where`` is in a body of its own.
    """
    compare = select.operands[0].owner
    if isinstance(compare, ir.Block) or compare.name != "arith.cmpf":
        return
    first, second = list(select.operands)[1:]
    is_greater = ir.IntegerAttr(compare.attributes["predicate"]).value in _GREATER
    is_lesser = ir.IntegerAttr(compare.attributes["predicate"]).value in _LESSER
    is_swapped = list(compare.operands) == [second, first]
    if not (is_greater or is_lesser) or not (is_swapped or list(compare.operands) == [first, second]):
        return
    name = "arith.maximumf" if is_greater != is_swapped else "arith.minimumf"
    with select.location, ir.InsertionPoint(select):
        extreme = ir.Operation.create(name, results=[first.type], operands=[first, second])
    select.results[0].replace_all_uses_with(extreme.result)
    select.erase()


def _slice_undefined(operation: ir.Operation) -> None:
    """A slice of a tensor without values, of which others write only a part, is another one."""
    source = operation.operands[0].owner
    if not isinstance(source, ir.Block) and source.name == "tensor.empty":
        with operation.location, ir.InsertionPoint(operation):
            empty = ir.Operation.create("tensor.empty", results=[operation.results[0].type])
        operation.results[0].replace_all_uses_with(empty.result)
        operation.erase()


def _splat(value: ir.Value) -> ir.Attribute | None:
    """The one element of a constant tensor of equal elements, or None."""
    source = _constant(value)
    if source is None or not isinstance(value.type, ir.RankedTensorType):
        return None
    elements = source.attributes["value"]
    uniform = isinstance(elements, ir.DenseElementsAttr) and elements.is_splat
    return elements.get_splat_value() if uniform else None


def _inline_uniform_operands(generic: ir.Operation) -> None:
    """linalg.generic ins(%x, %splat) {f(a, b)} -> ins(%x) {f(a, number)}.

    Upstream's linalg-inline-scalar-operands would also inline 0-d tensors that are computed.
    """
    # An input may be all that says how far a reduction goes.
    if "reduction" in str(generic.attributes["iterator_types"]):
        return
    inputs = range(len(generic.operands) - len(generic.results))
    numbers = {index: number for index in inputs if (number := _splat(generic.operands[index])) is not None}
    if not numbers:
        return
    block = generic.regions[0].blocks[0]
    for index, number in numbers.items():
        argument = block.arguments[index]
        with generic.location, ir.InsertionPoint(generic):
            argument.replace_all_uses_with(arith.ConstantOp(argument.type, number).result)
    _drop_inputs(generic, set(numbers))


def _drop_inputs(generic: ir.Operation, dropped: set[int]) -> None:
    """Replace a linalg.generic by one without these inputs, whose block arguments have no use."""
    remaining = [index for index in range(len(generic.operands)) if index not in dropped]
    results = len(generic.results)
    maps = ir.ArrayAttr(generic.attributes["indexing_maps"])
    with generic.location, ir.InsertionPoint(generic):
        new = ir.Operation.create(
            "linalg.generic",
            results=[result.type for result in generic.results],
            operands=[generic.operands[index] for index in remaining],
            attributes={
                "indexing_maps": ir.ArrayAttr.get([maps[index] for index in remaining]),
                "iterator_types": generic.attributes["iterator_types"],
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(remaining) - results, results]),
            },
            regions=1,
        )
    block = generic.regions[0].blocks[0]
    block.append_to(new.regions[0])
    # From the last one: an erased argument renumbers those behind it.
    for index in sorted(dropped, reverse=True):
        block.erase_argument(index)
    for old_result, new_result in zip(generic.results, new.results, strict=True):
        old_result.replace_all_uses_with(new_result)
    generic.erase()
