# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A bundle as one function of KTIR, which every core runs: its statements in order, with loops and barriers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from spyre_mlir.bundle.model import Bundle, Design, Execute, Loop, Statement
from spyre_mlir.dialects import ktdp
from spyre_mlir.dialects.structured import shape_of
from spyre_mlir.errors import CompileError
from spyre_mlir.ktir import compute_forms, moving_forms, window_forms
from spyre_mlir.ktir.barriers import barrier_points
from spyre_mlir.ktir.core_groups import barrier
from spyre_mlir.ktir.core_values import CoreValues
from spyre_mlir.ktir.ktir_manifest import FunctionArgument, KtirManifest
from spyre_mlir.ktir.linear_addresses import AddressValues, LinearAddress
from spyre_mlir.ktir.lx_accesses import LxAccesses, buffers_of, executes
from spyre_mlir.ktir.memory_tiles import MemoryTiles
from spyre_mlir.ktir.memory_views import LARGEST_LX_BYTES, SCRATCHPADS
from spyre_mlir.ktir.operand_tiles import ELEMENT_BYTES, ELEMENTS
from spyre_mlir.ktir.operation_lowering import (
    OperationLowering,
    ProgramState,
    element_of_format,
)
from spyre_mlir.ktir.scratchpad_values import ScratchpadValues
from spyre_mlir.ktir.tensor_builder import TensorBuilder
from spyre_mlir.mlir import ir
from spyre_mlir.target.ops import DEVICE_OPS, Kind

_FORMS: dict[Kind, Callable[[OperationLowering], None]] = {
    Kind.POINTWISE: compute_forms.elementwise,
    Kind.CAST: compute_forms.elementwise,
    Kind.RESTICKIFY: compute_forms.elementwise,
    Kind.REDUCE_STICK: compute_forms.reduction,
    Kind.REDUCE_OTHER: compute_forms.reduction,
    Kind.MATMUL: compute_forms.product,
    Kind.CONVOLUTION: window_forms.convolution,
    Kind.POOLING: window_forms.pooling,
    Kind.RELAYOUT: moving_forms.relayout,
    Kind.GATHER: moving_forms.gather,
}


def lowered(bundle: Bundle, name: str, addresses: bool) -> KtirManifest:
    """Build the function of a bundle at the current insertion point; return what its caller must know.

    With ``addresses`` buffers in LX are memory at the addresses of the plan, else they are tensors. ``CompileError``
    for what KTIR cannot say.
    """
    _require_expressible(bundle)
    arguments = _arguments(bundle)
    index, indices = ir.IndexType.get(), bundle.manifest.indices
    types = [index] * (len(arguments) + len(indices))
    grid = [ir.IntegerAttr.get(ir.IntegerType.get_signless(64), bundle.target.cores)]
    function = ir.Operation.create(
        "func.func",
        regions=1,
        attributes={
            "sym_name": ir.StringAttr.get(name),
            "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, [])),
            ktdp.GRID: ir.ArrayAttr.get(grid),
        },
    )
    block = ir.Block.create_at_start(function.regions[0], types)
    build = TensorBuilder(block)
    with ir.InsertionPoint.at_block_terminator(block):
        cores = CoreValues(build, bundle.target.cores)
        memories = {
            (argument.memory, argument.element): value
            for argument, value in zip(arguments, block.arguments, strict=False)
        }
        numbers = zip(indices, list(block.arguments)[len(arguments) :], strict=True)
        variables = {each.parameter: value for each, value in numbers}
        _FunctionLowering(bundle, build, cores, memories, variables, addresses).run()
    return KtirManifest(name, tuple(arguments), bundle.manifest.arguments, indices=indices)


def _require_expressible(bundle: Bundle) -> None:
    """Raise ``CompileError`` for a bundle that is no program of its own, or has numbers that KTIR has not."""
    manifest = bundle.manifest
    if manifest.expects or manifest.leaves:
        raise CompileError("A program in KTIR is one bundle; compile without 'bundle_operations'.")
    if bundle.target.lx_bytes > LARGEST_LX_BYTES:
        raise CompileError(
            f"The program is for an LX of {bundle.target.lx_bytes} bytes; in KTIR it may have {LARGEST_LX_BYTES}."
        )
    if manifest.numerics is not None:
        raise CompileError(
            "The program has bfloat16 numbers, whose range f16, which KTIR would have, has not."
        )


def _arguments(bundle: Bundle) -> list[FunctionArgument]:
    """Return the memories that the operations of a bundle access, in the order of the parameters, pools last."""
    manifest = bundle.manifest
    elements: dict[str, list[str]] = {}
    for execute, uses in zip(executes(bundle.statements), manifest.uses, strict=True):
        design = bundle.designs[execute.filename]
        for k, buffer in enumerate(buffers_of(bundle, uses)):
            if buffer.base == "lx":
                continue
            known = elements.setdefault(buffer.base, [])
            if element_of_format(design, k) not in known:
                known.append(element_of_format(design, k))
    for argument in manifest.arguments:
        if argument.data_format not in ELEMENTS:
            raise CompileError(
                f"KTIR has no numbers of the format {argument.data_format}, which '{argument.name}' has."
            )
        elements.setdefault(argument.parameter, []).append(ELEMENTS[argument.data_format])
    sizes = {argument.parameter: argument.bytes for argument in manifest.arguments}
    order = [*dict.fromkeys(argument.parameter for argument in manifest.arguments)]
    order += [name for name in elements if name not in order]
    for buffer in manifest.buffers:
        if buffer.base not in sizes or buffer.base not in {a.parameter for a in manifest.arguments}:
            sizes[buffer.base] = max(sizes.get(buffer.base, 0), buffer.offset + buffer.bytes)
    return [
        FunctionArgument(name, element, sizes[name])
        for name in order
        for element in sorted(dict.fromkeys(elements[name]))
    ]


class _FunctionLowering:
    """Builder of the statements of a bundle."""

    def __init__(
        self,
        bundle: Bundle,
        build: TensorBuilder,
        cores: CoreValues,
        memories: dict[tuple[str, str], ir.Value],
        variables: dict[str, ir.Value],
        addresses: bool,
    ) -> None:
        self.bundle, self.build = bundle, build
        self.buffers = {buffer.name: buffer for buffer in bundle.manifest.buffers}
        self.values = AddressValues()
        self.accesses = LxAccesses(bundle)
        tensors = {} if addresses else self.accesses.tensors
        scratchpads = ScratchpadValues(build, tensors, self.accesses.sparse) if tensors else None
        if scratchpads is not None:
            self.accesses.leave_slices(scratchpads)
        self.memory_ends = self.accesses.ends(tensors)
        memory = MemoryTiles(build, cores, memories)
        memory.variables |= variables
        self.state = ProgramState(build, cores, memory, scratchpads)
        self.number = 0
        self.barriers = barrier_points(bundle)

    def run(self) -> None:
        """Build all statements."""
        self._fill_scratchpads()
        self._statements(self.bundle.statements)

    def _fill_scratchpads(self) -> None:
        """Store what is no number of the program wherever a buffer is memory, so that a stale read shows."""
        memory, build = self.state.memory, self.build
        for element, end in sorted(self.memory_ends.items()):
            shape = (end // ELEMENT_BYTES[element],)
            fill = build.filled(shape, element, -1 if element == "i32" else float("nan"))
            view = memory.local_view(build.number(SCRATCHPADS[element]), shape, (1,), element)
            memory.store_to(view, [build.number(0)], fill)

    def _statements(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            if isinstance(statement, Execute):
                self._execute(statement)
            elif isinstance(statement, Loop):
                self._loop(statement)
            else:
                self.values.define(statement)

    def _execute(self, statement: Execute) -> None:
        design = self.bundle.designs[statement.filename]
        buffers = [self.buffers[name] for name in self.bundle.manifest.uses[self.number]]
        if self.number in self.barriers:
            barrier(self.build, self.state.cores.cores)
        self.number += 1
        kind = DEVICE_OPS[design.opcode].kind
        if kind not in _FORMS:
            raise CompileError(f"KTIR has no form for '{design.opcode}', a {kind.value}.")
        addresses = operand_addresses(design, statement, self.values, self.state.cores.cores)
        _FORMS[kind](OperationLowering(self.state, design, buffers, addresses))

    def _loop(self, loop: Loop) -> None:
        build, state = self.build, self.state
        bounds = [build.number(self.values.constant(name)) for name in (loop.lower, loop.upper, loop.step)]
        contents = state.scratchpads
        carried = self.accesses.carried(loop.body, self.number) if contents is not None else {}
        initial = [contents.initial(name, element) for name, element in carried.items()] if contents else []
        types = [value.type for value in initial]
        op = ir.Operation.create("scf.for", results=types, operands=[*bounds, *initial], regions=1)
        block = ir.Block.create_at_start(op.regions[0], [build.index, *types])
        self.values.define_variable(loop.induction)
        state.memory.variables[loop.induction] = block.arguments[0]
        before = dict(contents.values) if contents else {}
        state.loops += 1
        with state.memory.scope(), ir.InsertionPoint(block):
            ends = self._body(loop, carried, list(block.arguments)[1:])
            ir.Operation.create("scf.yield", operands=ends)
        state.loops -= 1
        if contents is not None:
            contents.values = {**before, **dict(zip(carried, op.results, strict=True))}

    def _body(self, loop: Loop, carried: Collection[str], arguments: Sequence[ir.Value]) -> list[ir.Value]:
        """Build the body of a loop that carries buffers; return what these hold at its end, in the shapes of before."""
        contents = self.state.scratchpads
        if contents is not None:
            contents.values.update(zip(carried, arguments, strict=True))
        self._statements(loop.body)
        pairs = zip(carried, arguments, strict=True)
        return (
            [self.build.reshaped(contents.values[name], shape_of(value)) for name, value in pairs]
            if contents
            else []
        )


def operand_addresses(
    design: Design, statement: Execute, values: AddressValues, cores: int
) -> list[tuple[LinearAddress | None, ...]]:
    """Return the addresses of each operand on each core of the grid, None where it has nothing of it."""
    symbols = dict(zip(statement.symbol_ids, statement.operands, strict=True))
    found = []
    for operand in design.operands:
        held = operand.held.core_slices if operand.held else design.core_slices
        starts: list[LinearAddress | None] = [
            None
            if slices is None
            else LinearAddress(start, {})
            if operand.memory == "lx"
            else values.values[symbols[start]]
            for start, slices in zip(operand.start, held, strict=True)
        ]
        found.append((*starts, *[None] * (cores - len(starts))))
    return found
