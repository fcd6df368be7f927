# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lowering of a bundle to one KTIR function that every core runs: statements in order, with loops and barriers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import field

from spyre_mlir.bundle import model
from spyre_mlir.bundle.context import Linear
from spyre_mlir.bundle.core_slices import core_region, finishing_cores, holders
from spyre_mlir.bundle.model import OPTIONAL, KernelArgument, RuntimeIndex
from spyre_mlir.dialects import ktdp
from spyre_mlir.dialects.structured import shape_of
from spyre_mlir.division.ownership import CoreRegion
from spyre_mlir.errors import CompileError
from spyre_mlir.ktir.memory_tiles import (
    LARGEST_LX_BYTES,
    SCRATCHPADS,
    AddressValues,
    MemoryTiles,
)
from spyre_mlir.ktir.operand_tiles import ELEMENT_BYTES, ELEMENTS
from spyre_mlir.ktir.operation_forms import FORMS
from spyre_mlir.ktir.operation_lowering import (
    OperationLowering,
    ProgramState,
    ScratchpadValues,
    buffer_access,
    element_of_format,
    runs_in_loop,
)
from spyre_mlir.ktir.tensor_builder import CoreValues, TensorBuilder
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import DEVICE_OPS

# The manifest of a KTIR program for its caller: the function, and the memory of each of its arguments.


@dataclass(frozen=True)
class FunctionArgument:
    """An argument of the function: the start of a memory of ``bytes``, as an index of elements of one type.

    ``memory`` is the parameter of host arguments, or a pool, which is initially zero.
    """

    memory: str
    element: str
    bytes: int


@dataclass(frozen=True)
class KtirManifest:
    """The ``function``, its ``memories`` in the order of its arguments, and the host arguments.

    After the memories come arguments for the ``indices`` that a call passes: numbers that the host reads in its arrays.
    ``predicted_us`` are the microseconds that the timeline predicts for the plan; 0 if they are not known.
    """

    function: str
    memories: tuple[FunctionArgument, ...]
    arguments: tuple[KernelArgument, ...]
    version: int = 1
    predicted_us: float = 0.0
    indices: tuple[RuntimeIndex, ...] = field(default=(), metadata=OPTIONAL)


def lowered(bundle: model.Bundle, name: str, addresses: bool) -> KtirManifest:
    """Build the function of a bundle at the current insertion point; return what its caller must know.

    With ``addresses``, buffers in LX are memory at the addresses of the plan; otherwise they are tensors. Raise
    ``CompileError`` for a bundle that KTIR cannot represent.
    """
    manifest = bundle.manifest
    if manifest.expects or manifest.leaves:
        raise CompileError("A program in KTIR is one bundle; compile without 'bundle_operations'.")
    if bundle.target.lx_bytes > LARGEST_LX_BYTES:
        raise CompileError(
            f"The program is for an LX of {bundle.target.lx_bytes} bytes; in KTIR it may have {LARGEST_LX_BYTES}."
        )
    if manifest.numerics is not None:
        raise CompileError(
            "The program has bfloat16 numbers, and KTIR has f16, which cannot represent their range."
        )
    arguments = _arguments(bundle)
    index, indices = ir.IndexType.get(), manifest.indices
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
    return KtirManifest(name, tuple(arguments), manifest.arguments, indices=indices)


def _arguments(bundle: model.Bundle) -> list[FunctionArgument]:
    """Return the memories that the operations of a bundle access, in the order of the parameters; pools come last."""
    manifest = bundle.manifest
    elements: dict[str, list[str]] = {}
    bases = {buffer.name: buffer.base for buffer in manifest.buffers}
    for execute, uses in zip(model.executes_of(bundle.statements), manifest.uses, strict=True):
        design = bundle.designs[execute.filename]
        for k, name in enumerate(uses):
            if bases[name] == "lx":
                continue
            known = elements.setdefault(bases[name], [])
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
        bundle: model.Bundle,
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
        self.barriers = synchronization_points(bundle)

    def run(self) -> None:
        """Build all statements."""
        memory, build = self.state.memory, self.build
        # A fill value, not a number of the program, in all buffers that are memory, so that stale reads show.
        for element, end in sorted(self.memory_ends.items()):
            shape = (end // ELEMENT_BYTES[element],)
            fill = build.filled(shape, element, -1 if element == "i32" else float("nan"))
            view = memory.local_view(build.number(SCRATCHPADS[element]), shape, (1,), element)
            memory.store_to(view, [build.number(0)], fill)
        self._statements(self.bundle.statements)

    def _statements(self, statements: Sequence[model.Statement]) -> None:
        for statement in statements:
            if isinstance(statement, model.Execute):
                design = self.bundle.designs[statement.filename]
                buffers = [self.buffers[name] for name in self.bundle.manifest.uses[self.number]]
                if self.number in self.barriers:
                    self.state.cores.synchronize()
                self.number += 1
                kind = DEVICE_OPS[design.opcode].kind
                if kind not in FORMS:
                    raise CompileError(f"KTIR has no form for '{design.opcode}', a {kind.value}.")
                addresses = operand_addresses(design, statement, self.values, self.state.cores.cores)
                FORMS[kind](OperationLowering(self.state, design, buffers, addresses))
            elif isinstance(statement, model.Loop):
                self._loop(statement)
            else:
                self.values.define(statement)

    def _loop(self, loop: model.Loop) -> None:
        """Write a loop as ``scf.for``, whose iter_args are the scratchpads that its body writes."""
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
            arguments, ends = list(block.arguments)[1:], []
            if contents is not None:
                contents.values.update(zip(carried, arguments, strict=True))
            self._statements(loop.body)
            if contents is not None:
                # The yielded values have the shapes of the iter_args.
                pairs = zip(carried, arguments, strict=True)
                ends = [build.reshaped(contents.values[name], shape_of(value)) for name, value in pairs]
            ir.Operation.create("scf.yield", operands=ends)
        state.loops -= 1
        if contents is not None:
            contents.values = {**before, **dict(zip(carried, op.results, strict=True))}


def operand_addresses(
    design: model.Design, statement: model.Execute, values: AddressValues, cores: int
) -> list[tuple[Linear | None, ...]]:
    """Return the addresses of each operand on each core of the grid; None if the core has nothing of the operand."""
    symbols = dict(zip(statement.symbol_ids, statement.operands, strict=True))
    found = []
    for operand in design.operands:
        held = operand.held.core_slices if operand.held else design.core_slices
        starts: list[Linear | None] = [
            None if slices is None else Linear(start) if operand.memory == "lx" else values[symbols[start]]
            for start, slices in zip(operand.start, held, strict=True)
        ]
        found.append((*starts, *[None] * (cores - len(starts))))
    return found


# Buffers in LX of a bundle: the operations that access them, and the buffers that become iter_args of loops.

#: The number of bytes from which a buffer is memory, and of a core's buffers that several operations read.
_LARGE_BYTES, _SHARED_BYTES = 1 << 18, 1 << 19


class LxAccesses:
    """Facts about the buffers in LX of a bundle.

    ``tensors`` are the buffers that are tensors of KTIR, with their number of elements. Excluded are large buffers,
    buffers of operations that run in a loop, and buffers that several operations read if these fill much of LX:
    ktir-cpu charges such a tensor until the function ends. ``sparse`` buffers have one element per stick.
    """

    def __init__(self, bundle: model.Bundle) -> None:
        self.bundle = bundle
        self.elements: dict[str, int] = {}
        self.types: dict[str, str] = {}
        self.buffers: dict[str, model.Buffer] = {}
        dense: set[str] = set()
        stick = bundle.target.stick_bytes
        self.users: list[list[tuple[str, int, model.Design]]] = []
        by_name = {buffer.name: buffer for buffer in bundle.manifest.buffers}
        for execute, names in zip(model.executes_of(bundle.statements), bundle.manifest.uses, strict=True):
            design = bundle.designs[execute.filename]
            users = []
            for k, buffer in enumerate(by_name[name] for name in names):
                if buffer.base != "lx":
                    continue
                users.append((buffer.name, k, design))
                element = self.types[buffer.name] = element_of_format(design, k)
                self.buffers[buffer.name] = buffer
                self.elements[buffer.name] = buffer.bytes // ELEMENT_BYTES[element]
                operand = design.operands[k]
                if any(
                    operand.scale.get(dim, 1) == 1 for dim in (operand.stick_dim, *operand.other_elements)
                ):
                    dense.add(buffer.name)
            self.users.append(users)
        self.sparse = frozenset(self.elements.keys() - dense)
        for name in self.sparse:
            self.elements[name] = self.elements[name] * ELEMENT_BYTES[self.types[name]] // stick

        self.tensors = self._tensors()

    def _tensors(self) -> dict[str, int]:
        sizes = {name: count * ELEMENT_BYTES[self.types[name]] for name, count in self.elements.items()}
        readers: Counter[str] = Counter()
        for users in self.users:
            readers.update({name for name, k, design in users if k < len(design.operands) - 1})
        shared = {name for name, count in readers.items() if count > 1}
        memory = shared if sum(sizes[name] for name in shared) > _SHARED_BYTES else set()
        memory = memory | {name for users in self.users for name, _, design in users if runs_in_loop(design)}
        memory |= {name for name, size in sizes.items() if size > _LARGE_BYTES}
        return {name: count for name, count in self.elements.items() if name not in memory}

    def leave_slices(self, values: ScratchpadValues) -> None:
        """Turn into memory each buffer in which some operation accesses elements that are not a slice of a tensor."""
        for users in self.users:
            for name, k, design in users:
                access = buffer_access(design, k, self.buffers[name])
                if name in self.tensors and not values.is_slice(access, k == len(design.operands) - 1):
                    del self.tensors[name]

    def ends(self, tensors: Collection[str]) -> dict[str, int]:
        """Return the end, in bytes, of the last buffer that is memory, for each element type."""
        ends: dict[str, int] = {}
        for name, buffer in self.buffers.items():
            if name not in tensors:
                element = self.types[name]
                ends[element] = max(ends.get(element, 0), buffer.offset + buffer.bytes)
        return ends

    def carried(self, body: Sequence[model.Statement], first: int) -> dict[str, str]:
        """Return the iter_args of a loop: written buffers whose value leaves an iteration, with their element types.

        ``first`` is the index of the first execute of the loop. A buffer that each iteration writes first is also
        included if an execute outside of the loop accesses it.
        """
        inside = range(first, first + len(model.executes_of(body)))
        outside = {
            name for number, users in enumerate(self.users) if number not in inside for name, _, _ in users
        }
        written: dict[str, None] = {}
        started: set[str] = set()
        needed: set[str] = set()
        for number in inside:
            last = len(self.bundle.manifest.uses[number]) - 1
            for name, k, design in self.users[number]:
                if name not in self.tensors:
                    continue
                is_first = name not in started
                started.add(name)
                if k == last:
                    written[name] = None
                if is_first and not (k == last and self._is_whole(name, k, design)):
                    needed.add(name)
        return {name: self.types[name] for name in written if name in outside or name in needed}

    def _is_whole(self, name: str, k: int, design: model.Design) -> bool:
        access = buffer_access(design, k, self.buffers[name])
        return math.prod(access.tile.shape) == self.elements[name]


# Barriers: all cores must wait if one core reads in device memory what another core writes.


@dataclass(frozen=True)
class CoreAccess:
    """The accesses of the cores to a memory: for each core the first and last byte, over all iterations.

    ``form`` is equal for two accesses if each core accesses the same bytes in both.
    """

    memory: str
    ranges: tuple[tuple[int, int, int], ...]
    form: tuple
    writes: bool

    @property
    def span(self) -> tuple[int, int]:
        """The first byte of all accesses, and the byte after the last."""
        return min(begin for _, begin, _ in self.ranges), max(end for _, _, end in self.ranges)


def synchronization_points(bundle: model.Bundle) -> frozenset[int]:
    """Return the indices of the executes before which all cores wait."""
    planner = _SynchronizationPlanner(bundle)
    planner.walk(bundle.statements, 0)
    return frozenset(planner.points)


class _SynchronizationPlanner:
    """Walker of a program that records the accesses since the last barrier."""

    def __init__(self, bundle: model.Bundle) -> None:
        self.bundle = bundle
        self.values = AddressValues()
        # A value that a call passes may be any value of its range.
        self.trips = {
            parameter.name: (0, parameter.max_value)
            for parameter in bundle.parameters
            if parameter.max_value is not None
        }
        self.pending: list[CoreAccess] = []
        self.points: set[int] = set()

    def walk(self, statements: Sequence[model.Statement], number: int) -> int:
        """Walk statements; ``number`` is the index of their first execute. Return the next index."""
        for statement in statements:
            if isinstance(statement, model.Execute):
                self._execute(statement, number)
                number += 1
            elif isinstance(statement, model.Loop):
                number = self._loop(statement, number)
            else:
                self.values.define(statement)
        return number

    def _loop(self, loop: model.Loop, number: int) -> int:
        self.values.define_variable(loop.induction)
        lower, upper = (self.values.constant(name) for name in (loop.lower, loop.upper))
        self.trips[loop.induction] = lower, max(upper - 1, lower)
        # The second walk finds conflicts of an iteration with the previous iteration.
        self.walk(loop.body, number)
        return self.walk(loop.body, number)

    def _execute(self, statement: model.Execute, number: int) -> None:
        design = self.bundle.designs[statement.filename]
        symbols = dict(zip(statement.symbol_ids, statement.operands, strict=True))
        accesses = []
        for k, operand in enumerate(design.operands):
            if operand.memory != "lx":
                addresses = {
                    core: self.values[symbols[operand.start[core]]] for core in _core_regions(design, k)
                }
                accesses.append(self._access(design, k, addresses))
        if number in self.points:
            self.pending = []
        elif any(_conflict(old, new) for old in self.pending for new in accesses):
            self.points.add(number)
            self.pending = []
        self.pending += [access for access in accesses if access not in self.pending]

    def _access(self, design: model.Design, k: int, addresses: dict[int, Linear]) -> CoreAccess:
        size, regions = design.target.stick_bytes, _core_regions(design, k)
        (memory, spread), *others = {self._spread(address) for address in addresses.values()}
        if others:
            raise CompileError(f"'{design.opcode}' has an operand in more than one memory.")
        low, high = spread
        ranges = tuple(
            (core, address.offset + low, address.offset + high + regions[core].span * size)
            for core, address in addresses.items()
        )
        form = tuple((core, address.offset, regions[core]) for core, address in addresses.items())
        terms = next(iter(addresses.values())).terms
        return CoreAccess(memory, ranges, (terms, form), k == len(design.operands) - 1)

    def _spread(self, address: Linear) -> tuple[str, tuple[int, int]]:
        """Return the memory of an address, and how far the loops around it decrease and increase the address."""
        memory, low, high = "", 0, 0
        for name, coefficient in address.terms:
            if name not in self.trips:
                memory = name
                continue
            ends = sorted(coefficient * bound for bound in self.trips[name])
            low, high = low + ends[0], high + ends[1]
        return memory, (low, high)


#: The regions of operands of designs on the cores; many operations share them.
_REGIONS: model.IdentityTable[int, dict[int, CoreRegion]] = model.IdentityTable()


def _core_regions(design: model.Design, k: int) -> dict[int, CoreRegion]:
    """Return the region of an operand that each core accesses; for a result, only on the cores that finish it."""
    regions = _REGIONS.entries_of(design)
    if k not in regions:
        operand = design.operands[k]
        finishing = finishing_cores(design) if k == len(design.operands) - 1 else None
        cores = [core for core in holders(design, operand) if finishing is None or core in finishing]
        regions[k] = {core: core_region(design, operand, core) for core in cores}
    return regions[k]


def _conflict(old: CoreAccess, new: CoreAccess) -> bool:
    """Return whether a core may access bytes that another core accessed, and one of them writes."""
    if old.memory != new.memory or not (old.writes or new.writes) or old.form == new.form:
        return False
    (first, last), (begin, end) = old.span, new.span
    if last <= begin or end <= first:
        return False
    return any(
        core != other and low < high_other and low_other < high
        for core, low, high in old.ranges
        for other, low_other, high_other in new.ranges
    )
