# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lowering of the torch dialect to linalg on tensors: torch-mlir's pipeline as pass lists of this project.

torch-mlir's own driver prints the module with all its data before each stage, and sends diagnostics to stderr.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from torch_mlir.dialects import arith

from spyre_mlir.diagnostics import compile_error
from spyre_mlir.frontend.kernel_calls import UnloweredError, nodes_of
from spyre_mlir.mlir import PassManager, ir, location_of, source_note

_TO_LINALG = (
    "func.func(torch-match-quantized-custom-ops,torch-reduce-op-variants{extra-library=},canonicalize,"
    "torch-decompose-complex-ops,torch-recompose-complex-ops,canonicalize)",
    "func.func(torch-restructure-non-constant-axes,torch-fuse-quantized-ops,convert-torch-to-tmtensor,"
    "canonicalize,convert-torch-to-linalg)",
    "func.func(canonicalize,convert-torch-to-scf,convert-torch-to-arith,convert-torch-to-tensor)",
)
_FINISH = (
    "convert-torch-conversion-to-mlprogram,func.func(memref-expand,canonicalize,resolve-shaped-type-result-dims,cse),"
    "torch-func-backend-type-conversion,func.func(canonicalize,torch-finalizing-backend-type-conversion,canonicalize,cse)",
)
_ATEN_OP = re.compile(r'"?torch\.((?:aten|prims|prim)\.[\w.]+)"?')

#: Start of the MLIR operation that the bindings append to a message.
_IR = re.compile(r": (?=%|\(!|\")|\n")


def lower_to_linalg(module: ir.Module) -> ir.Module:
    """Lower a module in place; raise ``UnloweredError`` at the line of the model if an operation is not lowered."""
    _run(module, _TO_LINALG)
    # Before the last passes: an operation without a lowering still has its PyTorch name here.
    unlowered = [
        (named[1], operation)
        for operation in operations(module.operation)
        if (named := _ATEN_OP.match(operation.name))
    ]
    if unlowered:
        name, first = unlowered[0]
        error = _unlowered(
            f"The PyTorch operation {name} has no form in linalg.", *(operation for _, operation in unlowered)
        )
        error.module = source_note(first.location, "module")
        raise error
    _run(module, _FINISH)
    clean(module)
    # Cleaning folds constants into others, and leaves the folded constants without a use.
    _run(module, ("func.func(canonicalize,cse)",))
    return module


def _unlowered(message: str, *at: ir.Operation) -> UnloweredError:
    """Create an error about operations, at the location of the first one."""
    nodes = frozenset(node for operation in at for node in nodes_of(operation.location))
    return UnloweredError(message, location_of(at[0].location), nodes)


def load_conversion_dialect(context: ir.Context) -> None:
    """Load ``torch_c``, the dialect of casts between torch types and tensors.

    The bindings cannot load the dialect by name; a pass that creates such casts loads it for any module.
    """
    with ir.Location.unknown(context):
        _run(ir.Module.create(), ("func.func(convert-torch-to-linalg)",))


def _run(module: ir.Module, passes: tuple[str, ...]) -> None:
    """Run passes with diagnostics in the exception, not on stderr; the module is verified after each list."""
    context = module.context
    emit, context.emit_error_diagnostics = context.emit_error_diagnostics, False
    try:
        with context:
            for names in passes:
                manager = PassManager.parse(f"builtin.module({names})")
                # Verifying after each pass would take as long as the passes.
                manager.enable_verifier(False)
                manager.run(module.operation)
                module.operation.verify()
    except ir.MLIRError as error:
        # Turn the first diagnostic into a sentence about the PyTorch operation that it names.
        diagnostic = compile_error(error, f"Lowering to linalg failed: {error}")
        if named := _ATEN_OP.search(diagnostic.message):
            message = f"The PyTorch operation {named[1]} has no form in linalg."
        else:
            message = f"The model cannot be lowered to linalg: {_IR.split(diagnostic.message)[0]}."
        nodes: frozenset[str] = frozenset()
        for first in error.error_diagnostics[:1]:
            # The bindings return a location of the base class; built from its attribute, it has its derived class.
            nodes = frozenset(nodes_of(ir.Location.from_attr(first.location.attr, first.location.context)))
        unlowered = UnloweredError(message, diagnostic.location, nodes)
        unlowered.operation, unlowered.module = diagnostic.operation, diagnostic.module
        raise unlowered from error
    finally:
        context.emit_error_diagnostics = emit


# Cleanup of torch-mlir's linalg: settled assertions, scalars in f64 and tensors of one number are removed.

#: Assertions of torch-mlir in bodies that are not needed: PyTorch's division by 0 returns an infinity, and the reader
#: of a table checks its indices.
_NEEDLESS = {
    "unimplemented: tensor with zero element",
    "index must be smaller than dim size",
    "index must be larger or equal to 0",
}

#: Predicates of arith.cmpf, ordered and unordered.
_GREATER, _LESSER = (2, 3, 9, 10), (4, 5, 11, 12)


def operations(operation: ir.Operation) -> Iterator[ir.Operation]:
    """Operations nested in ``operation``; each follows the operations of its regions, so it may be erased."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from operations(inner.operation)
                yield inner.operation


def clean(module: ir.Module) -> None:
    """Reject dynamic shapes, fold scalars, build min and max ops, drop torch attributes and settled assertions."""
    # A list, because operations are erased during the iteration.
    for operation in list(operations(module.operation)):
        for value in operation.results:
            if isinstance(value.type, ir.RankedTensorType) and not value.type.has_static_shape:
                raise _unlowered(f"The shape of {value.type} is not static.", operation)
        for name in [name for name in operation.attributes if name.startswith("torch.")]:
            del operation.attributes[name]
        if operation.name == "cf.assert":
            # torch-mlir guards forms that suit only some operands. An assertion that depends on values is kept.
            parent = operation.parent
            is_in_body = parent is not None and parent.name.startswith(("linalg.", "tensor.", "tm_tensor."))
            constant = _constant(operation.operands[0])
            text = ir.StringAttr(operation.attributes["msg"]).value
            holds = constant is not None and bool(ir.IntegerAttr(constant.attributes["value"]).value)
            if holds or (is_in_body and text in _NEEDLESS):
                operation.erase()
            elif constant is not None or is_in_body:
                raise _unlowered(f"The form in linalg is not right for these operands: {text}.", operation)
        elif operation.name == "tensor.extract_slice":
            source = operation.operands[0].owner
            # Other operations write only a part of the source, and nobody has written this slice.
            if not isinstance(source, ir.Block) and source.name == "tensor.empty":
                _replace(operation, "tensor.empty", [])
        elif operation.name in ("arith.truncf", "math.sqrt"):
            _fold_scalar(operation)
        elif operation.name == "arith.select":
            _write_as_extreme(operation)
        elif operation.name == "linalg.fill" and _BodyNumbers(operation).captures(operation):
            _fill_in_body(operation)
    generics = [operation for operation in operations(module.operation) if operation.name == "linalg.generic"]
    for generic in generics:
        _inline_uniform_operands(_BodyNumbers(generic).as_operands())


def _replace(operation: ir.Operation, name: str, operands: list[ir.Value]) -> None:
    """Replace an operation by an operation with a result of the same type."""
    result = operation.results[0]
    with operation.location, ir.InsertionPoint(operation):
        new = ir.Operation.create(name, results=[result.type], operands=operands)
    result.replace_all_uses_with(new.result)
    operation.erase()


def _constant(value: ir.Value) -> ir.Operation | None:
    """The arith.constant that defines a value, or None."""
    owner = value.owner
    return owner if not isinstance(owner, ir.Block) and owner.name == "arith.constant" else None


def _fold_scalar(operation: ir.Operation) -> None:
    """Fold a rounding or a root of a scalar constant, which upstream folds only if the result is exact.

    Torch writes an epsilon as f64 that the body rounds, and sqrt(2) in gelu as a root.
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
    which loses a NaN that PyTorch keeps. The comparison of ``torch.where`` is in a separate body.
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
    _replace(select, name, [first, second])


def _splat(value: ir.Value) -> ir.Attribute | None:
    """The element of a constant tensor whose elements are all equal, or None."""
    source = _constant(value)
    if source is None or not isinstance(value.type, ir.RankedTensorType):
        return None
    elements = source.attributes["value"]
    uniform = isinstance(elements, ir.DenseElementsAttr) and elements.is_splat
    return elements.get_splat_value() if uniform else None


class _BodyNumbers:
    """Numbers that the body of a linalg.generic captures: ``tensor.extract %t[]``, and arithmetic on such numbers.

    torch-mlir captures the number of a tensor without dims. On the device the tensor is a broadcast operand that the
    body computes with.
    """

    def __init__(self, generic: ir.Operation) -> None:
        self._generic, self._body = generic, generic.regions[0].blocks[0]
        self._arguments: dict[ir.Value, ir.Value] = {}
        self._moved: dict[ir.Value, ir.Value] = {}

    def as_operands(self) -> ir.Operation:
        """Return the operation with these tensors as inputs; the operation itself if it does not capture a number."""
        generic, body = self._generic, self._body
        outer = [operation for operation in operations(generic) if self.captures(operation)]
        if not outer:
            return generic
        results = len(generic.results)
        outputs = list(body.arguments)[-results:]
        for operation in outer:
            for index, operand in enumerate(operation.operands):
                operation.operands[index] = self._inside(operand)
        # The block arguments of the outputs follow the arguments of all inputs.
        for output in outputs:
            output.replace_all_uses_with(body.add_argument(output.type, generic.location))
        first = len(generic.operands) - results
        for _ in outputs:
            body.erase_argument(first)
        maps = list(ir.ArrayAttr(generic.attributes["indexing_maps"]))
        dims = ir.AffineMapAttr(maps[-1]).value.n_dims
        number = ir.AffineMapAttr.get(ir.AffineMap.get(dims, 0, [], generic.context))
        operands = list(generic.operands)
        return _with_operands(
            generic,
            [*operands[:first], *self._arguments, *operands[first:]],
            [*maps[:first], *(number for _ in self._arguments), *maps[first:]],
        )

    def captures(self, operation: ir.Operation) -> bool:
        """Return whether an operand of an operation in the body is a captured number."""
        return any(self._is_number(operand) for operand in operation.operands)

    def _is_number(self, value: ir.Value) -> bool:
        """Return whether a value outside the body is the number of a tensor, or computed from such numbers."""
        owner = value.owner
        if isinstance(owner, ir.Block) or _is_in(owner, self._generic):
            return False
        if owner.name == "tensor.extract":
            return len(owner.operands) == 1
        return owner.name.startswith(("arith.", "math.")) and self.captures(owner)

    def _inside(self, value: ir.Value) -> ir.Value:
        """Value in the body that replaces a captured number; any other value is unchanged."""
        if not self._is_number(value):
            return value
        owner = value.owner
        if owner.name == "tensor.extract":
            tensor = owner.operands[0]
            if tensor not in self._arguments:
                self._arguments[tensor] = self._body.add_argument(value.type, owner.location)
            return self._arguments[tensor]
        if value not in self._moved:
            operands = [self._inside(operand) for operand in owner.operands]
            with ir.InsertionPoint.at_block_begin(self._body):
                copy = owner.clone()
            for index, operand in enumerate(operands):
                copy.operation.operands[index] = operand
                if not isinstance(operand.owner, ir.Block) and _is_in(operand.owner, self._generic):
                    copy.operation.move_after(operand.owner)
            self._moved[value] = copy.operation.results[0]
        return self._moved[value]


def _fill_in_body(fill: ir.Operation) -> None:
    """linalg.fill ins(%number) -> linalg.generic with a body that captures the number."""
    number, output = fill.operands
    rank = ir.RankedTensorType(output.type).rank
    with fill.location, ir.InsertionPoint(fill):
        maps = [ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank))]
        parallel = ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * rank)
        generic = _generic([output], [output.type], maps, parallel)
        body = generic.regions[0].blocks.append(number.type, arg_locs=[fill.location])
        with ir.InsertionPoint(body):
            ir.Operation.create("linalg.yield", operands=[number])
    fill.results[0].replace_all_uses_with(generic.results[0])
    fill.erase()


def _generic(
    operands: list[ir.Value],
    results: list[ir.Type],
    maps: Sequence[ir.Attribute],
    iterator_types: ir.Attribute,
) -> ir.Operation:
    """Build a linalg.generic without a body."""
    segments = [len(operands) - len(results), len(results)]
    attributes = {
        "indexing_maps": ir.ArrayAttr.get(maps),
        "iterator_types": iterator_types,
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get(segments),
    }
    return ir.Operation.create("linalg.generic", results, operands, attributes, regions=1)


def _is_in(operation: ir.Operation, outer: ir.Operation) -> bool:
    """Return whether an operation is nested in ``outer``."""
    parent = operation.parent
    return parent is not None and (parent == outer or _is_in(parent.operation, outer))


def _inline_uniform_operands(generic: ir.Operation) -> None:
    """linalg.generic ins(%x, %splat) {f(a, b)} -> ins(%x) {f(a, number)}.

    Upstream's linalg-inline-scalar-operands would also inline computed 0-d tensors.
    """
    # A dropped input may be the only operand that determines the extent of a reduction.
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
    remaining = [index for index in range(len(generic.operands)) if index not in numbers]
    maps = ir.ArrayAttr(generic.attributes["indexing_maps"])
    # The order is reversed, because erasing an argument renumbers the arguments after it.
    for index in sorted(numbers, reverse=True):
        block.erase_argument(index)
    _with_operands(
        generic, [generic.operands[index] for index in remaining], [maps[index] for index in remaining]
    )


def _with_operands(generic: ir.Operation, operands: list[ir.Value], maps: list[ir.Attribute]) -> ir.Operation:
    """Replace a linalg.generic by an operation with the same body and other operands."""
    types = [result.type for result in generic.results]
    with generic.location, ir.InsertionPoint(generic):
        new = _generic(operands, types, maps, generic.attributes["iterator_types"])
    generic.regions[0].blocks[0].append_to(new.regions[0])
    for old_result, new_result in zip(generic.results, new.results, strict=True):
        old_result.replace_all_uses_with(new_result)
    generic.erase()
    return new
