# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks of padded tensors: reductions skip the padding, so one program runs every size up to its own.

A reduction over a padded dim reads the neutral element of its combiner in place of padding: the program has an input
``tensor<Lxi1>`` for each number of valid positions, true for the positions that a call has. A scalar constant that
differs between sizes, such as the divisor of a mean, is an input ``tensor<f32>`` of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from spyre_mlir.dialects.structured import defining_op, selection, use_empty
from spyre_mlir.frontend.signature import INPUT, Argument
from spyre_mlir.host.number_types import number_type
from spyre_mlir.host.reductions import Fold, classify
from spyre_mlir.mlir import PassManager, indexing_maps, ir
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.outlining import copied
from spyre_mlir.rewriting.tensor_builders import constant, empty_like, generic_op, scalar_op, with_body
from spyre_mlir.target.element_types import ELEMENT_TYPES

#: Named structured ops as generic ops, so that ops are found by their position in the function.
GENERALIZE = "builtin.module(func.func(linalg-generalize-named-ops))"


class MaskedOperand(NamedTuple):
    """Operand ``operand`` of op number ``op`` of the function, whose dim ``dim`` is masked by mask ``mask``."""

    op: int
    operand: int
    dim: int
    mask: int


@dataclass(frozen=True)
class PaddingMasks:
    """Masks and numbers that a call passes to a program of padded sizes, and the places that read them.

    Attributes:
        operands: The operands to mask.
        extents: The valid and all positions of each mask.
        constants: The scalar constants that are inputs, by the number of the op in the function.
        numbers: The value and the element type of each of these constants.
    """

    operands: tuple[MaskedOperand, ...] = ()
    extents: tuple[tuple[int, int], ...] = ()
    constants: tuple[int, ...] = ()
    numbers: tuple[tuple[float, str], ...] = ()

    @property
    def places(self) -> tuple[Any, ...]:
        """Where the program reads masks and numbers, equal for all sizes that it runs."""
        wholes = tuple(whole for _, whole in self.extents)
        return self.operands, wholes, self.constants, tuple(element for _, element in self.numbers)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The masks and the numbers by the names of the arguments."""
        masks = {
            f"valid_{number}": np.arange(whole) < valid for number, (valid, whole) in enumerate(self.extents)
        }
        numbers = {
            f"number_{index}": np.asarray(number, ELEMENT_TYPES[element].host)
            for index, (number, element) in enumerate(self.numbers)
        }
        return masks | numbers

    def apply(self, imported: Any) -> None:
        """Add masks and numbers to an imported model at the padded sizes, in place, as arguments that ops read.

        A call that does not pass them has no padding.
        """
        module = imported.module.operation
        with module.context, ir.Location.unknown():
            PassManager.parse(GENERALIZE).run(module)
            functions = (op.operation for op in module.regions[0].blocks[0].operations)
            func = next(op for op in functions if op.name == "func.func")
            block = func.regions[0].blocks[0]
            ops = [entry.operation for entry in block.operations]
            whole = replace(self, extents=tuple((size, size) for _, size in self.extents))
            boolean = ir.IntegerType.get_signless(1)
            types = [boolean for _ in self.extents]
            types += [ops[constant].results[0].type for constant in self.constants]
            given = {}
            for (name, array), element in zip(whole.arrays.items(), types, strict=True):
                type_ = ir.RankedTensorType.get(array.shape, element)
                given[name] = block.add_argument(type_, func.location)
                argument = Argument(name, INPUT, draw=partial(torch.from_numpy, array))
                imported.signature.arguments.append(argument)
                imported.signature.random.append(argument)
            _set_types(func, block, list(given))
            for masked in self.operands:
                op, mask = ops[masked.op], given[f"valid_{masked.mask}"]
                op.operands[masked.operand] = _masked(op, op.operands[masked.operand], masked.dim, mask)
            for index, constant in enumerate(self.constants):
                _replace_constant(ops[constant].results[0], given[f"number_{index}"])


def _set_types(func: ir.Operation, block: ir.Block, names: Sequence[str]) -> None:
    """Write the type of a function, and the attributes of its last arguments, which have these ``names``."""
    results = ir.FunctionType(ir.TypeAttr(func.attributes["function_type"]).value).results
    type_ = ir.FunctionType.get([argument.type for argument in block.arguments], results)
    func.attributes["function_type"] = ir.TypeAttr.get(type_)
    entries = list(ir.ArrayAttr(func.attributes["arg_attrs"]))
    for name in names:
        named = {"spyre.name": ir.StringAttr.get(name), "spyre.kind": ir.StringAttr.get(INPUT)}
        entries.append(ir.DictAttr.get(named))
    func.attributes["arg_attrs"] = ir.ArrayAttr.get(entries)


# Masked operands of reductions.


def masked_operands(op: ir.Operation, dim: int) -> list[tuple[int, int]] | None:
    """Return the operands of a reduction, each with its dim, that must be neutral in the padding of iteration ``dim``.

    None if no value of an operand is neutral: the body computes before it combines.
    """
    if op.name != "linalg.generic":
        return None
    fold, inputs = _fold(op), _input_count(op)
    if fold is None or _neutral(fold, op.operands[0]) is None:
        return None
    maps, body, found = indexing_maps(op), op.regions[0].blocks[0], set()
    for value in fold.factors or (fold.value,):
        while (cast := defining_op(value)) is not None and cast.name in ("arith.extf", "arith.truncf"):
            value = cast.operands[0]
        number = ir.BlockArgument(value).arg_number if cast is None and value.owner == body else inputs
        dims = (selection(maps[number]) or ()) if number < inputs else ()
        # A factor that does not depend on the dim may be infinite, and 0 times infinity is not neutral.
        if dim not in dims:
            return None
        found.add((number, dims.index(dim)))
    return sorted(found)


def _input_count(op: ir.Operation) -> int:
    return next(iter(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])))


def _fold(op: ir.Operation) -> Fold | None:
    """Return the fold that a structured op computes; None for an op that computes something else.

    A second result, the index of the selected value, may be computed with a maximum or a minimum: a strict comparison
    with the accumulator never selects the neutral element.
    """
    body = op.regions[0].blocks[0]
    kinds = classify(body, list(body.arguments)[_input_count(op) :])
    if kinds is None or not isinstance(fold := kinds[0], Fold):
        return None
    for kind, result in zip(kinds[1:], list(op.results)[1:], strict=True):
        if isinstance(kind, Fold):
            return None
        compared = defining_op(kind.condition)
        is_strict = (
            compared is not None
            and compared.name in ("arith.cmpf", "arith.cmpi")
            and (compared.name, ir.IntegerAttr(compared.attributes["predicate"]).value, fold.op.name)
            in _SELECTS
            and list(compared.operands) == [fold.value, body.arguments[_input_count(op)]]
        )
        if not use_empty(result) and not (kind.holds and is_strict):
            return None
    return fold


#: Strict comparisons (op, predicate) of an input with the accumulator of a combiner: ogt, olt, sgt, slt.
_SELECTS = {
    ("arith.cmpf", 2, "arith.maximumf"), ("arith.cmpf", 4, "arith.minimumf"),
    ("arith.cmpi", 4, "arith.maxsi"), ("arith.cmpi", 2, "arith.minsi"),
}  # fmt: skip


def _neutral(fold: Fold, value: ir.Value) -> float | None:
    """Return the number of the type of ``value`` that a combiner ignores; None for a type without one."""
    dtype = number_type(value.type).host
    ufunc = fold.combiner.ufunc(dtype)
    if ufunc.identity is not None:
        return ufunc.identity
    if dtype.kind not in "fi" or ufunc not in (np.maximum, np.minimum, np.fmax, np.fmin):
        return None
    limits: Any = np.iinfo(dtype) if dtype.kind == "i" else None
    least, most = (limits.min, limits.max) if limits else (-np.inf, np.inf)
    return least if ufunc in (np.maximum, np.fmax) else most


def _masked(op: ir.Operation, value: ir.Value, dim: int, mask: ir.Value) -> ir.Value:
    """Build, before ``op``, the tensor that has the neutral element of ``op`` where ``mask`` is false along ``dim``."""
    fold = _fold(op)
    neutral = None if fold is None else _neutral(fold, value)
    assert neutral is not None, "masked_operands has checked it"
    type_ = ir.RankedTensorType(value.type)
    rank, element = len(type_.shape), type_.element_type
    with op.location, ir.InsertionPoint(op):
        is_integer = isinstance(element, ir.IntegerType)
        number = (
            ir.IntegerAttr.get(element, int(neutral)) if is_integer else ir.FloatAttr.get(element, neutral)
        )
        same = tuple(range(rank))
        masked = generic_op([mask, value], empty_like(value), [(dim,), same, same], rank, 0)
        return with_body(
            masked,
            lambda arguments: scalar_op("arith.select", [*arguments[:2], constant(number)], element),
        )


# Scalar constants that are inputs.


def is_replaceable(constant: ir.Value) -> bool:
    """Return whether numpy has the number, and only structured ops read it, as an operand or in their bodies."""
    is_number = str(constant.type) in ELEMENT_TYPES and number_type(constant.type).host.kind in "fi"
    return is_number and all(_reader(use.owner.operation) is not None for use in constant.uses)


def _reader(op: ir.Operation) -> ir.Operation | None:
    """Return the structured op of the function that an op is, or whose body it is in; None for other ops."""
    around = op if op.name == "linalg.generic" else op.parent.operation
    is_outermost = around.name == "linalg.generic" and around.parent.operation.name == "func.func"
    return around if is_outermost else None


def _replace_constant(constant: ir.Value, number: ir.Value) -> None:
    """Replace a scalar constant by the number in a tensor without dims, an operand of all ops that read it."""
    readers: dict[ir.Operation, None] = {}
    for use in constant.uses:
        reader = _reader(use.owner.operation)
        assert reader is not None, "is_replaceable has checked it"
        readers[reader] = None
    for op in readers:
        if constant in list(op.operands):
            for index, operand in enumerate(op.operands):
                if operand == constant:
                    op.operands[index] = number
        if any(constant in list(inner.operation.operands) for inner in op.regions[0].blocks[0].operations):
            _with_operand(op, constant, number)


def _with_operand(op: ir.Operation, constant: ir.Value, number: ir.Value) -> None:
    """Replace a structured op by one with the operand ``number``, which its body reads in place of ``constant``."""
    count, body = _input_count(op), op.regions[0].blocks[0]
    maps = indexing_maps(op)
    scalar = ir.AffineMap.get(maps[0].n_dims, 0, [])
    operands, maps = list(op.operands), [*maps[:count], scalar, *maps[count:]]
    attributes = {name: op.attributes[name] for name in op.attributes}
    attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps])
    attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([count + 1, len(operands) - count])
    with op.location, ir.InsertionPoint(op):
        wider = ir.Operation.create(
            "linalg.generic",
            results=[result.type for result in op.results],
            operands=[*operands[:count], number, *operands[count:]],
            attributes=attributes,
            regions=1,
        )
        types = [argument.type for argument in body.arguments]
        types.insert(count, constant.type)
        block = wider.regions[0].blocks.append(*types, arg_locs=[op.location] * len(types))
        arguments = [argument for argument in block.arguments if argument.arg_number != count]
        known = dict(zip(body.arguments, arguments, strict=True)) | {constant: block.arguments[count]}
        with ir.InsertionPoint(block):
            for inner in body.operations:
                copied(inner.operation, known)
    for old, new in zip(op.results, wider.results, strict=True):
        old.replace_all_uses_with(new)
    op.erase()
