# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conversion of a module at the bundle level to a ``Bundle``, which ``spyre-translate`` writes to a folder."""

from __future__ import annotations

from typing import Any

import numpy as np

from spyre_mlir.bundle import model
from spyre_mlir.bundle.json_fields import Field, from_plain
from spyre_mlir.dialects import sdscbundle
from spyre_mlir.dialects.attributes import from_attribute
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.timing import scope


@scope("export", "stages")
def export(module: ir.Module | ir.Operation) -> tuple[model.Bundle, dict[str, np.ndarray]]:
    """Return the bundle of a module and the values of its constants by argument name.

    Args:
        module: A module at the bundle level.

    Raises:
        CompileError: The module is not at the bundle level, or its attributes are malformed.
    """
    op = module.operation
    if sdscbundle.DESIGNS not in op.attributes or sdscbundle.MANIFEST not in op.attributes:
        message = "this module is not at the bundle level; run the spyre pipeline on it first"
        raise CompileError(message, location_of(op.location))
    designs = _read(op, sdscbundle.DESIGNS, dict[str, model.Design])
    manifest = _read(op, sdscbundle.MANIFEST, model.Manifest)
    ops = (nested.operation for nested in op.regions[0].blocks[0].operations)
    func = next((nested for nested in ops if nested.name == "func.func"), None)
    is_entry = func is not None and ir.StringAttr(func.attributes["sym_name"]).value == sdscbundle.ENTRY
    if func is None or not is_entry or not func.regions[0].blocks:
        raise CompileError(f"a bundle needs one function @{sdscbundle.ENTRY}", location_of(op.location))
    bundle = assembled(func, designs, manifest)
    if sdscbundle.CONSTANTS not in op.attributes:
        return bundle, {}
    attr = op.attributes[sdscbundle.CONSTANTS]
    is_dictionary = isinstance(attr, ir.DictAttr)
    if not is_dictionary or not all(isinstance(entry.attr, ir.DenseElementsAttr) for entry in attr):
        message = f"'{sdscbundle.CONSTANTS}' must be a dictionary of dense tensors"
        raise CompileError(message, location_of(op.location))
    return bundle, {entry.name: np.array(entry.attr) for entry in attr}


def cuts_of(module: ir.Module | ir.Operation) -> tuple[int, ...]:
    """Return the indices of the executes that begin another bundle; none if the module is a single bundle."""
    op = module.operation
    return _read(op, sdscbundle.CUTS, tuple[int, ...]) if sdscbundle.CUTS in op.attributes else ()


def _read(op: ir.Operation, name: str, kind: Any) -> Any:
    """Convert an attribute of the module to a value of type ``kind``; ``CompileError`` if it is malformed."""
    try:
        return from_plain(kind, Field(from_attribute(op.attributes[name]), ""))
    except (CompileError, TypeError) as error:
        reason = error.message if isinstance(error, CompileError) else error
        raise CompileError(f"'{name}' is malformed: {reason}", location_of(op.location)) from None


def parameter_name(number: int, *, is_address: bool) -> str:
    """Return the name of a parameter of a bundle by its number."""
    return f"arg_{number}_{'base_addr' if is_address else 'index'}"


def assembled(func: ir.Operation, designs: dict[str, model.Design], manifest: model.Manifest) -> model.Bundle:
    """Build a bundle from the entry function, the designs by file name and the manifest."""
    parameters, statements = _FunctionExport(func, manifest).read()
    ordered = dict(sorted(designs.items(), key=lambda item: item[1].index))
    return model.Bundle(parameters, statements, ordered, manifest).for_target(target_of(func))


class _FunctionExport:
    """Converter of the entry function: it names the values and makes one statement per op."""

    def __init__(self, func: ir.Operation, manifest: model.Manifest) -> None:
        self.block = func.regions[0].blocks[0]
        self.manifest = manifest
        self.names: dict[ir.Value, str] = {}
        self.allocations = 0

    def read(self) -> tuple[tuple[model.Parameter, ...], tuple[model.Statement, ...]]:
        """Return parameters and statements; ``CompileError`` for types and ops that a bundle does not support."""
        parameters = []
        for index, argument in enumerate(self.block.arguments):
            type_ = argument.type
            if not isinstance(type_, sdscbundle.InputArgType):
                message = f"argument {index} of a bundle is of the type {type_}, not !sdscbundle.input_arg"
                raise CompileError(message, location_of(self.block.owner.operation.location))
            bounds = sdscbundle.bounds_of(type_)
            name = parameter_name(index, is_address=bounds[1] is None)
            self.names[argument] = name
            parameters.append(model.Parameter(name, *bounds))
        return tuple(parameters), self._block(self.block)

    def _block(self, block: ir.Block) -> tuple[model.Statement, ...]:
        ops = [op.operation for op in block.operations]
        return tuple(self._statement(op) for op in ops if op.name not in ("func.return", "scf.yield"))

    def _name(self, value: ir.Value, name: str) -> str:
        self.names[value] = name
        return name

    def _fresh(self, value: ir.Value) -> str:
        return self._name(value, f"v{len(self.names)}")

    def _statement(self, op: ir.Operation) -> model.Statement:
        """Return the statement of an op at the bundle level; ``CompileError`` for any other op."""
        if op.name == "sdscbundle.sdsc_execute":
            filename = ir.StringAttr(op.attributes["sdsc_filename"]).value
            ids = tuple(ir.IntegerAttr(entry).value for entry in ir.ArrayAttr(op.attributes["symbol_ids"]))
            return model.Execute(filename, tuple(self.names[value] for value in op.operands), ids)
        if op.name == "arith.addi":
            lhs, rhs = (self.names[value] for value in op.operands)
            return model.Add(self._fresh(op.results[0]), lhs, rhs)
        if op.name == "arith.constant":
            if not isinstance(op.results[0].type, ir.IndexType):
                raise CompileError("a constant of a bundle is an index", location_of(op.location))
            value = ir.IntegerAttr(op.attributes["value"]).value
            return model.IndexConstant(self._fresh(op.results[0]), value)
        if op.name == "sdscbundle.input_arg_extract":
            source = self.names[op.operands[0]]
            what = ir.StringAttr(op.attributes["what"]).value
            if what == "value":
                stem = source.removesuffix("_base_addr").removesuffix("_index")
            else:
                stem = f"{source}_{what}"
            return model.Extract(self._name(op.results[0], stem), source, what)
        if op.name == "sdscbundle.device_mem_allocate":
            name = "pool" if not self.allocations else f"pool{self.allocations}"
            self.allocations += 1
            return model.Allocate(
                self._name(op.results[0], name), ir.IntegerAttr(op.attributes["bytes"]).value
            )
        if op.name == "affine.apply":
            map_ = ir.AffineMapAttr(op.attributes["map"]).value
            operands = tuple(self.names[value] for value in op.operands)
            if len(map_.results) != 1:
                raise CompileError("an affine.apply of a bundle has one result", location_of(op.location))
            (result,), dims = map_.results, map_.n_dims
            # The map is linear, so its values at zero and at the unit vectors determine it.
            size = dims + map_.n_symbols
            offset = _evaluate(result, [0] * size, dims, op)
            units = ([int(index == k) for index in range(size)] for k in range(size))
            coefficients = tuple(_evaluate(result, unit, dims, op) - offset for unit in units)
            name = self._fresh(op.results[0])
            return model.Apply(name, operands[:dims], operands[dims:], coefficients, offset)
        if op.name == "scf.for":
            if len(op.operands) != 3:
                raise CompileError("a loop of a bundle carries no values", location_of(op.location))
            body = op.regions[0].blocks[0]
            induction = self._fresh(body.arguments[0])
            lower, upper, step = (self.names[value] for value in op.operands)
            return model.Loop(induction, lower, upper, step, self._block(body))
        raise CompileError(f"'{op.name}' is not an op of a bundle", location_of(op.location))


def _evaluate(expression: ir.AffineExpr, point: list[int], dims: int, op: ir.Operation) -> int:
    if isinstance(expression, ir.AffineConstantExpr):
        return expression.value
    if isinstance(expression, ir.AffineDimExpr):
        return point[expression.position]
    if isinstance(expression, ir.AffineSymbolExpr):
        return point[dims + expression.position]
    if isinstance(expression, ir.AffineAddExpr | ir.AffineMulExpr):
        lhs, rhs = (_evaluate(side, point, dims, op) for side in (expression.lhs, expression.rhs))
        return lhs + rhs if isinstance(expression, ir.AffineAddExpr) else lhs * rhs
    raise CompileError(
        "an affine.apply of a bundle is linear in its dims and symbols", location_of(op.location)
    )
