# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules on the structure of designs and program; all other rules run only if these rules hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from math import prod

from spyre_mlir.bundle import model
from spyre_mlir.bundle.context import Context, Diagnostic
from spyre_mlir.bundle.rules_design import is_relayout
from spyre_mlir.errors import counted
from spyre_mlir.target.ops import DEVICE_OPS

ROLES = (model.INPUT, model.OUTPUT, model.KERNEL, model.KERNEL_IDX)


def known_opcode(design: model.Design) -> Iterator[str]:
    if design.opcode not in DEVICE_OPS:
        yield f"The operation {design.opcode!r} is not one of the device."


def arity(design: model.Design) -> Iterator[str]:
    op = DEVICE_OPS.get(design.opcode)
    if op is not None and len(design.operands) != op.arity + 1:
        inputs = len(design.operands) - 1
        takes = f"{design.opcode} takes {counted(op.arity, 'input')} and one output"
        yield f"{takes} but has {counted(inputs, 'input')}."


def dims_declared(design: model.Design) -> Iterator[str]:
    sizes = design.sizes.keys()
    complete = {"numWkSlicesPerDim_": design.slices, "dataStageParam_": design.shares}
    complete |= {f"the slices of core {c}": slices for c, slices in enumerate(design.core_slices)}
    for what, dims in complete.items():
        if dims.keys() != sizes:
            yield f"The dims of {what} are {_list(dims)}; expected the dims of N_, {_list(sizes)}."
    for what, dims in (("padding", design.padding), ("coordinate masks", design.masks)):
        for dim in sorted(dims.keys() - sizes):
            yield f"The {what} name the dim {dim}, which N_ does not declare."
    for dim, size in design.sizes.items():
        if size < 1 or design.shares.get(dim, 1) < 1 or design.slices.get(dim, 1) < 1:
            yield f"Size, slices and share of the dim {dim} must be at least 1."
        # Larger numbers would make the rules of later levels compute with huge arrays.
        elif max(size, design.shares.get(dim, 1), design.slices.get(dim, 1)) > design.target.hbm_bytes:
            yield f"Size, slices and share of the dim {dim} must be less than what the device memory holds."


def operand_dims(design: model.Design) -> Iterator[str]:
    for i, operand in enumerate(design.operands):
        for problem in _operand_dims(design, operand):
            yield f"Tensor{i} {problem}."


def _operand_dims(design: model.Design, operand: model.Operand) -> Iterator[str]:
    order = operand.dim_order
    for dim in order:
        if dim not in design.sizes:
            yield f"has the dim {dim}, which N_ does not declare"
    if len(set(order)) != len(order):
        yield f"lists a dim twice in its order {_list(order)}"
    if operand.stick_dim not in order:
        yield f"has the stick dim {operand.stick_dim}, which is not one of its dims {_list(order)}"
    if operand.scale.keys() != set(order):
        yield f"has scales for {_list(operand.scale)}; expected one for each of its dims {_list(order)}"
    for dim, scale in operand.scale.items():
        allowed = (1, -2) if dim == operand.stick_dim else (1, -1)
        if scale not in allowed:
            yield f"has scale {scale} on {dim}; expected {allowed[0]} or {allowed[1]} there"
    for dim, gap in operand.gap.items():
        if dim not in order or gap < 0 or operand.scale.get(dim, 1) != 1:
            yield f"has a gap of {gap} on {dim}; a gap is not negative and on a dim of scale 1"
        elif gap > design.target.hbm_bytes:
            yield f"has a gap of {gap} on {dim}, more than the device memory holds"
    for dim in operand.other_elements:
        if dim == operand.stick_dim or operand.scale.get(dim) != 1:
            yield f"has {dim} next to {operand.stick_dim} in its stick; expected another dim of scale 1"
    if operand.stick_elements < 1 or min(operand.other_elements.values(), default=1) < 1:
        yield f"has {operand.stick_elements} elements per stick; expected at least 1"


def core_mapping(design: model.Design) -> Iterator[str]:
    cores, slices = design.cores, prod(design.slices.values())
    if not 1 <= cores <= design.target.cores:
        yield f"It uses {cores} cores; expected 1 to {design.target.cores}."
    # The cores of a relayout are the cores with data before or after it, and several may have the same slice.
    relayout = is_relayout(design)
    if slices != cores and not relayout:
        yield f"Its dims have {slices} slices together; expected one for each of {cores} cores."
    seen: dict[tuple[int, ...], int] = {}
    for core, core_slices in enumerate(design.core_slices):
        for dim, index in core_slices.items():
            if not 0 <= index < design.slices.get(dim, 1):
                limit = design.slices.get(dim, 1)
                yield f"Core {core} has slice {index} of {dim}; expected 0 to {limit - 1}."
        other = seen.setdefault(tuple(core_slices.get(dim, 0) for dim in design.sizes), core)
        if other != core and not relayout:
            yield f"The cores {other} and {core} have the same slices; expected different ones."


def start_addresses(design: model.Design) -> Iterator[str]:
    for i, operand in enumerate(design.operands):
        if operand.memory not in ("hbm", "lx"):
            yield f"Tensor{i} is in {operand.memory!r}; expected 'hbm' or 'lx'."
        elif len(operand.start) != design.cores:
            starts = len(operand.start)
            yield f"Tensor{i} has {starts} start addresses; expected one per core of {design.cores}."
        elif operand.memory == "hbm" and max(operand.start) >= 0:
            yield f"Tensor{i} has the symbol id {max(operand.start)}; expected negative ids."
        elif operand.memory == "lx" and min(operand.start) < 0:
            yield f"Tensor{i} has the LX address {min(operand.start)}; expected none below 0."


def roles(design: model.Design) -> Iterator[str]:
    layouts: dict[str, tuple] = {}
    for i, operand in enumerate(design.operands):
        if operand.role not in ROLES:
            yield f"Tensor{i} has the role {operand.role!r}; expected one of {_list(ROLES)}."
        # The file has one set of dims and one stick dim per role, so the writer could not write a second set.
        layout = (set(operand.dim_order), operand.stick_dim, operand.stick_elements, operand.other_elements)
        if layouts.setdefault(operand.role, layout) != layout:
            yield f"Tensor{i} shares the role {operand.role} with a tensor of another layout."


def files_match(context: Context) -> Iterator[Diagnostic]:
    designs = context.bundle.designs
    executed = {execute.filename for execute in context.executes}
    for filename in sorted(executed - designs.keys()):
        yield f"The program executes {filename}, which is not in the bundle.", "bundle.mlir"
    for filename in sorted(designs.keys() - executed):
        yield "No execute of the program names this file.", filename
    for filename, design in designs.items():
        if design.filename != filename:
            yield (
                f"The root key has the index {design.index}; expected the index in the file's name.",
                filename,
            )


def values_defined(context: Context) -> Iterator[Diagnostic]:
    parameters = {parameter.name for parameter in context.bundle.parameters}
    if len(parameters) != len(context.bundle.parameters):
        yield "Two parameters have the same name.", "bundle.mlir"
    for problem in _undefined(context.bundle.statements, parameters, set(), inside=False):
        yield problem, "bundle.mlir"


def _undefined(
    statements: tuple[model.Statement, ...], parameters: set[str], outer: set[str], inside: bool
) -> Iterator[str]:
    defined = set(outer)
    for statement in statements:
        for used in model.operands_of(statement):
            if used not in defined:
                yield f"The value %{used} is not defined before its use."
        if isinstance(statement, model.Extract) and statement.parameter not in parameters:
            yield f"%{statement.result} extracts from %{statement.parameter}, which is not a parameter."
        if isinstance(statement, model.Allocate) and inside:
            yield f"%{statement.result} is allocated in a loop; expected allocations in the entry block only."
        if isinstance(statement, model.Apply):
            if len(statement.coefficients) != len(statement.dims) + len(statement.symbols):
                yield f"%{statement.result} needs one coefficient for each dim and symbol of its map."
        if isinstance(statement, model.Loop):
            yield from _undefined(statement.body, parameters, defined | {statement.induction}, inside=True)
        elif not isinstance(statement, model.Execute):
            if statement.result in defined or statement.result in parameters:
                yield f"The value %{statement.result} is defined twice."
            defined.add(statement.result)


def loop_bounds(context: Context) -> Iterator[Diagnostic]:
    constants = {
        statement.result: statement.value
        for statement in model.statements_in_order(context.bundle.statements)
        if isinstance(statement, model.IndexConstant)
    }
    for loop in model.statements_in_order(context.bundle.statements):
        if not isinstance(loop, model.Loop):
            continue
        where = f"bundle.mlir, loop over %{loop.induction}"
        bounds = (loop.lower, loop.upper, loop.step)
        unknown = [bound for bound in bounds if bound not in constants]
        if unknown:
            yield f"%{unknown[0]} is not an arith.constant; expected constant bounds and step.", where
            continue
        lower, upper, step = (constants[bound] for bound in bounds)
        # A step of 0 would never end, so it counts as no iteration, which is an error.
        trips = max(0, -(-(upper - lower) // step)) if step > 0 else 0
        if not 1 <= trips <= context.target.loop_iterations:
            yield f"It has {trips} iterations; expected 1 to {context.target.loop_iterations}.", where


def symbols_bound(context: Context) -> Iterator[Diagnostic]:
    for position, execute in enumerate(context.executes):
        where = f"bundle.mlir, execute {position} of {execute.filename}"
        ids = execute.symbol_ids
        if len(ids) != len(execute.operands):
            operands = len(execute.operands)
            yield f"It has {operands} operands for {len(ids)} symbol ids; expected as many.", where
        if len(set(ids)) != len(ids):
            yield "It binds a symbol id twice; expected each once.", where
        if ids and max(ids) >= 0:
            yield f"It binds the symbol id {max(ids)}; expected negative ids.", where
        design = context.bundle.designs.get(execute.filename)
        for i, operand in enumerate(design.operands if design else ()):
            for core, symbol in zip(count(), operand.start if operand.memory == "hbm" else ()):
                if symbol not in ids:
                    yield f"It does not bind the symbol {symbol} of Tensor{i} on core {core}.", where


def origins_match(context: Context) -> Iterator[Diagnostic]:
    manifest, expected = context.bundle.manifest, len(context.executes)
    if len(manifest.executes_from) not in (0, expected):
        count = len(manifest.executes_from)
        yield (
            f"It has {count} origins of executes; expected none, or one for each of {expected}.",
            "manifest.json",
        )
    for index in sorted({*manifest.executes_from} - {*range(len(manifest.origins))}):
        yield f"An execute has the origin {index}, but there are {len(manifest.origins)}.", "manifest.json"
    for index, origin in enumerate(manifest.origins):
        if origin.line < 0 or origin.column < 0:
            yield f"Line and column of the origin {index} are at least 0.", "manifest.json"


def uses_match(context: Context) -> Iterator[Diagnostic]:
    uses = context.bundle.manifest.uses
    if len(uses) != len(context.executes):
        expected = len(context.executes)
        yield f"It has {len(uses)} uses; expected one for each of {expected} executes.", "manifest.json"
        return
    for position, (execute, names) in enumerate(zip(context.executes, uses, strict=True)):
        where = f"manifest.json, use {position}"
        design = context.bundle.designs.get(execute.filename)
        if design and len(names) != len(design.operands):
            expected = len(design.operands)
            yield f"It names {len(names)} buffers; expected one for each of {expected} operands.", where
        for buffer in names:
            if buffer not in context.buffers:
                yield f"It names the buffer {buffer!r}, which the manifest does not have.", where


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
