"""A bundle as one function of KTIR, which every core runs: its statements in order, with loops and barriers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spyre_mlir.bundle.model import Buffer, Bundle, Design, Execute, Loop, Statement
from spyre_mlir.dialects import ktdp
from spyre_mlir.dialects.structured import shape_of
from spyre_mlir.errors import CompileError
from spyre_mlir.ktir import compute_forms, moving_forms
from spyre_mlir.ktir.barriers import barrier_points
from spyre_mlir.ktir.core_groups import barrier
from spyre_mlir.ktir.core_values import CoreValues
from spyre_mlir.ktir.ktir_manifest import FunctionArgument, KtirManifest
from spyre_mlir.ktir.linear_addresses import AddressValues, LinearAddress
from spyre_mlir.ktir.memory_tiles import MemoryTiles
from spyre_mlir.ktir.memory_views import SCRATCHPADS
from spyre_mlir.ktir.operand_tiles import ELEMENT_BYTES, ELEMENTS
from spyre_mlir.ktir.operation_lowering import (
    OperationLowering,
    ProgramState,
    buffer_access,
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
    Kind.RELAYOUT: moving_forms.relayout,
    Kind.GATHER: moving_forms.gather,
}


def lowered(bundle: Bundle, name: str, addresses: bool) -> KtirManifest:
    """Build the function of a bundle at the current insertion point; return what its caller must know.

    With ``addresses`` buffers in LX are memory at the addresses of the plan, else they are tensors. ``CompileError``
    for what KTIR cannot say.
    """
    arguments = _arguments(bundle)
    index = ir.IndexType.get()
    grid = [ir.IntegerAttr.get(ir.IntegerType.get_signless(64), bundle.target.cores)]
    function = ir.Operation.create(
        "func.func",
        regions=1,
        attributes={
            "sym_name": ir.StringAttr.get(name),
            "function_type": ir.TypeAttr.get(ir.FunctionType.get([index] * len(arguments), [])),
            ktdp.GRID: ir.ArrayAttr.get(grid),
        },
    )
    block = ir.Block.create_at_start(function.regions[0], [index] * len(arguments))
    build = TensorBuilder(block)
    with ir.InsertionPoint.at_block_terminator(block):
        cores = CoreValues(build, bundle.target.cores)
        memories = {
            (argument.memory, argument.element): value
            for argument, value in zip(arguments, block.arguments, strict=True)
        }
        _FunctionLowering(bundle, build, cores, memories, addresses).run()
    manifest = bundle.manifest
    return KtirManifest(name, tuple(arguments), manifest.arguments)


def _arguments(bundle: Bundle) -> list[FunctionArgument]:
    """Return the memories that the operations of a bundle access, in the order of the parameters, pools last."""
    manifest = bundle.manifest
    elements: dict[str, list[str]] = {}
    for execute, uses in zip(executes(bundle.statements), manifest.uses, strict=True):
        design = bundle.designs[execute.filename]
        for k, buffer in enumerate(_buffers(bundle, uses)):
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


def executes(statements: Sequence[Statement]) -> list[Execute]:
    """Return the executes of statements, those in loops among them."""
    found: list[Execute] = []
    for statement in statements:
        if isinstance(statement, Loop):
            found += executes(statement.body)
        elif isinstance(statement, Execute):
            found.append(statement)
    return found


def _buffers(bundle: Bundle, names: Sequence[str]) -> list[Buffer]:
    by_name = {buffer.name: buffer for buffer in bundle.manifest.buffers}
    return [by_name[name] for name in names]


class _FunctionLowering:
    """Builder of the statements of a bundle."""

    def __init__(
        self,
        bundle: Bundle,
        build: TensorBuilder,
        cores: CoreValues,
        memories: dict[tuple[str, str], ir.Value],
        addresses: bool,
    ) -> None:
        self.bundle, self.build = bundle, build
        self.buffers = {buffer.name: buffer for buffer in bundle.manifest.buffers}
        self.values = AddressValues()
        self.accesses = LxAccesses(bundle)
        scratchpads = None
        if not addresses:
            scratchpads = ScratchpadValues(build, self.accesses.elements, self.accesses.sparse)
        memory = MemoryTiles(build, cores, memories)
        self.state = ProgramState(build, cores, memory, scratchpads)
        self.number = 0
        self.barriers = barrier_points(bundle)

    def run(self) -> None:
        """Build all statements."""
        if self.state.scratchpads is None:
            self._fill_scratchpads()
        self._statements(self.bundle.statements)

    def _fill_scratchpads(self) -> None:
        """Store what is no number of the program wherever the plan has a buffer, so that a stale read shows."""
        memory, build = self.state.memory, self.build
        for element, end in sorted(self.accesses.ends.items()):
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
        carried = self.accesses.carried(loop.body, self.number) if state.scratchpads is not None else {}
        initial = (
            [state.scratchpads.initial(name, element) for name, element in carried.items()]
            if state.scratchpads
            else []
        )
        types = [value.type for value in initial]
        op = ir.Operation.create("scf.for", results=types, operands=[*bounds, *initial], regions=1)
        block = ir.Block.create_at_start(op.regions[0], [build.index, *types])
        self.values.define_variable(loop.induction)
        state.memory.variables[loop.induction] = block.arguments[0]
        known, state.memory.known = state.memory.known, dict(state.memory.known)
        before = dict(state.scratchpads.values) if state.scratchpads else {}
        state.loops += 1
        with ir.InsertionPoint(block):
            if state.scratchpads:
                state.scratchpads.values.update(zip(carried, list(block.arguments)[1:], strict=True))
            self._statements(loop.body)
            ends = (
                [
                    build.reshaped(state.scratchpads.values[name], shape_of(value))
                    for name, value in zip(carried, initial, strict=True)
                ]
                if state.scratchpads
                else []
            )
            ir.Operation.create("scf.yield", operands=ends)
        state.loops -= 1
        state.memory.known = known
        if state.scratchpads:
            state.scratchpads.values = {**before, **dict(zip(carried, op.results, strict=True))}


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


class LxAccesses:
    """Facts about buffers in LX: their elements as tensors, those with one element per stick, ends by element type."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.elements: dict[str, int] = {}
        self.types: dict[str, str] = {}
        self.ends: dict[str, int] = {}
        dense: set[str] = set()
        stick = bundle.target.stick_bytes
        self.users: list[list[tuple[str, int, Design]]] = []
        for execute, names in zip(executes(bundle.statements), bundle.manifest.uses, strict=True):
            design = bundle.designs[execute.filename]
            users = []
            for k, buffer in enumerate(_buffers(bundle, names)):
                if buffer.base != "lx":
                    continue
                users.append((buffer.name, k, design))
                element = self.types[buffer.name] = element_of_format(design, k)
                self.ends[element] = max(self.ends.get(element, 0), buffer.offset + buffer.bytes)
                self.elements[buffer.name] = buffer.bytes // ELEMENT_BYTES[element]
                operand = design.operands[k]
                if any(operand.scale.get(dim, 1) == 1 for dim in (operand.stick_dim, *operand.beside)):
                    dense.add(buffer.name)
            self.users.append(users)
        self.sparse = frozenset(self.elements.keys() - dense)
        for name in self.sparse:
            self.elements[name] = self.elements[name] * ELEMENT_BYTES[self.types[name]] // stick

    def carried(self, body: Sequence[Statement], first: int) -> dict[str, str]:
        """Return the buffers that a loop carries, with their element types: written in it and of use outside of it.

        ``first`` is the number of its first execute. A buffer that each iteration writes first is carried too if
        something outside accesses it.
        """
        inside = range(first, first + len(executes(body)))
        outside = {
            name for number, users in enumerate(self.users) if number not in inside for name, _, _ in users
        }
        written: dict[str, None] = {}
        started: set[str] = set()
        needed: set[str] = set()
        for number in inside:
            last = len(self.bundle.manifest.uses[number]) - 1
            for name, k, design in self.users[number]:
                is_first = name not in started
                started.add(name)
                if k == last:
                    written[name] = None
                if is_first and not (k == last and self._is_whole(name, k, design)):
                    needed.add(name)
        return {name: self.types[name] for name in written if name in outside or name in needed}

    def _is_whole(self, name: str, k: int, design: Design) -> bool:
        buffer = next(buffer for buffer in self.bundle.manifest.buffers if buffer.name == name)
        access = buffer_access(design, k, buffer)
        count = 1
        for extent in access.tile.shape:
            count *= extent
        return count == self.elements[name]
