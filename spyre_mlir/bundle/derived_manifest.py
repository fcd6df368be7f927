# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A bundle from designs and a program without ``manifest.json``: the host's side as the addresses tell it.

Memory that the operands of the program address falls into areas: a parameter, an allocation, or bytes at absolute
addresses that some operand covers. An area that is read first is an input, one that is written a result, and LX is a
buffer for each stretch of addresses. The host has the array of a tensor with the dims of ``layoutDimOrder_`` from the
last to the first; an area that no single tensor covers is an array of sticks as they lie on the device.

Addresses of a bundle are parameters plus bytes, so absolute ones become that: each of their areas is a parameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import prod
from typing import NoReturn

from spyre_mlir.bundle import rules_relayout, rules_structure
from spyre_mlir.bundle.context import Context, ExecuteStep, Linear, statements_in_order
from spyre_mlir.bundle.core_slices import (
    core_offset_bytes,
    core_region,
    holders,
    memory_counts,
    memory_strides,
)
from spyre_mlir.bundle.model import (
    Add,
    Buffer,
    Bundle,
    Design,
    Execute,
    Extract,
    IndexConstant,
    KernelArgument,
    Loop,
    Manifest,
    Operand,
    Parameter,
    Statement,
    Transfer,
)
from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass
from spyre_mlir.target.formats import FORMATS
from spyre_mlir.target.ops import DL16, FP8, FP32, INT8, INT32
from spyre_mlir.target.target import Target

#: The type of the host's numbers for a format of the device.
_HOST_DTYPES = {DL16: "float16", FP32: "float32", INT32: "int32", INT8: "int8", FP8: "float8_e4m3fn"}

_LX, _ABSOLUTE = "lx", ""

_SOUND = (
    rules_structure.known_opcode,
    rules_structure.arity,
    rules_structure.dims_declared,
    rules_structure.operand_dims,
    rules_structure.core_mapping,
    rules_structure.roles,
    rules_relayout.source_slices,
)


def derive(
    parameters: Sequence[Parameter],
    statements: Sequence[Statement],
    designs: Mapping[str, Design],
    names: Mapping[str, Sequence[str]],
    target: Target,
    filename: str,
) -> Bundle:
    """Return the bundle of a program without a manifest; ``names`` are the tensors of each design.

    The designs are sound (``require_sound``),. A size that is
    known at run time only has its largest value. ``CompileError`` for addresses that are none.
    """
    known, sized = _with_largest_sizes(parameters, statements)
    bundle = Bundle(known, sized, dict(designs), Manifest((), (), (), target=target))
    return _Derivation(bundle, names, filename).bundle()


def require_sound(design: Design, filename: str) -> None:
    """``CompileError`` for a design that breaks a rule on dims, sizes and slices, with which ``derive`` computes."""
    for rule in _SOUND:
        for sentence in rule(design):
            raise CompileError(sentence, filename)


def _with_largest_sizes(
    parameters: Sequence[Parameter], statements: Sequence[Statement]
) -> tuple[tuple[Parameter, ...], tuple[Statement, ...]]:
    """The program without the parameters of sizes: each has the largest value that it may take."""
    largest = {
        parameter.name: parameter.max_value for parameter in parameters if parameter.max_value is not None
    }
    granularity = {parameter.name: parameter.granularity or 1 for parameter in parameters}

    def constant(statement: Statement) -> Statement:
        if isinstance(statement, Loop):
            return replace(statement, body=tuple(map(constant, statement.body)))
        if isinstance(statement, Extract) and statement.parameter in largest:
            is_size = statement.what != "granularity"
            value = (largest if is_size else granularity)[statement.parameter]
            return IndexConstant(statement.result, value)
        return statement

    addresses = tuple(parameter for parameter in parameters if parameter.name not in largest)
    return addresses, tuple(map(constant, statements))


@dataclass(frozen=True)
class _AddressedOperand:
    """An operand of an execute: the area's base, the bytes from there that it touches, and the first of its tensor."""

    step: ExecuteStep
    index: int
    base: str
    first: int
    end: int
    origin: int

    @property
    def operand(self) -> Operand:
        return self.step.design.operands[self.index]

    @property
    def is_write(self) -> bool:
        return self.index == len(self.step.design.operands) - 1


@dataclass
class _Area:
    """Bytes of one base that belong together, and who accesses them in program order."""

    base: str
    first: int
    end: int
    accesses: list[_AddressedOperand] = field(default_factory=list)
    name: str = ""


class _Derivation:
    """The areas of one program, and the program in which each of them is a parameter, an allocation or in LX."""

    def __init__(self, bundle: Bundle, names: Mapping[str, Sequence[str]], filename: str) -> None:
        self.context, self.names, self.filename = Context(bundle), names, filename
        self._require_paired()
        self.stick_bytes = bundle.target.stick_bytes
        self.symbols: dict[int, Linear] = {}
        self.values = [self._addresses(step) for step in self.context.steps]
        accesses = [access for step in self.context.steps for access in self._accesses(step)]
        self.areas = list(self._areas(accesses))
        self.area_of = {
            (access.step.position, access.index): area for area in self.areas for access in area.accesses
        }
        self._name_areas()

    def _fail(self, sentence: str, step: ExecuteStep | None = None) -> NoReturn:
        raise CompileError(sentence, f"{self.filename}/{step.where}" if step else self.filename)

    def _require_paired(self) -> None:
        for execute in self.context.executes:
            ids, operands = len(execute.symbol_ids), len(execute.operands)
            if ids != operands or len(set(execute.symbol_ids)) != ids:
                self._fail(f"The execute of {execute.filename} has {operands} operands for {ids} symbol ids.")
        # Steps have values and iterations only if values are defined and loops have constant bounds.
        for rule in (rules_structure.values_defined, rules_structure.loop_bounds):
            for sentence, where in rule(self.context):
                raise CompileError(sentence, f"{self.filename}/{where}")

    # -- addresses -------------------------------------------------------------------------------------

    def _addresses(self, step: ExecuteStep) -> list[list[Linear]]:
        """The address of each operand of an execute on each core: symbols of the program, or numbers of the design."""
        for index, operand in enumerate(step.design.operands):
            if len(operand.start) != step.design.cores:
                text = (
                    f"Tensor{index} has {len(operand.start)} start addresses for {step.design.cores} cores."
                )
                self._fail(text, step)
        return [
            [self._address(step, operand, core) for core in range(len(operand.start))]
            for operand in step.design.operands
        ]

    def _address(self, step: ExecuteStep, operand: Operand, core: int) -> Linear:
        start = operand.start[core]
        if operand.memory == _LX or start >= 0:
            return Linear(start)
        if start in step.values:
            return step.values[start]
        # A symbol that nobody binds: its tensor lies anywhere, by itself.
        if start not in self.symbols:
            first = self.symbols.get(operand.start[0], Linear(0, ((f"symbol {operand.start[0]}", 1),)))
            distance = core_offset_bytes(step.design, operand, core) - core_offset_bytes(
                step.design, operand, 0
            )
            self.symbols[start] = first.plus(Linear(distance))
        return self.symbols[start]

    def _split(self, value: Linear, step: ExecuteStep) -> tuple[str, int, int]:
        """The base of an address, and its first and last offset over all iterations."""
        base, first, last = _ABSOLUTE, value.offset, value.offset
        loops = {loop.atom: loop for loop in step.loops}
        for atom, factor in value.terms:
            if atom in loops:
                ends = sorted(factor * end for end in (loops[atom].lower, loops[atom].last))
                first, last = first + ends[0], last + ends[1]
            elif factor != 1 or base != _ABSOLUTE:
                self._fail("An address is not one parameter or allocation plus bytes.", step)
            else:
                base = atom
        return base, first, last

    def _accesses(self, step: ExecuteStep) -> Iterator[_AddressedOperand]:
        for index, operand in enumerate(step.design.operands):
            values = self.values[step.position][index]
            spans = []
            for core in holders(step.design, operand):
                base, first, last = self._split(values[core], step)
                sticks = core_region(step.design, operand, core).span_sticks
                spans.append((base, first, last + sticks * self.stick_bytes))
            bases = {base for base, _, _ in spans}
            if len(bases) != 1:
                self._fail(f"Tensor{index} has no address, or several bases on its cores.", step)
            base = _LX if operand.memory == _LX else bases.pop()
            origin = 0
            if operand.memory != _LX:
                origin = self._split(values[0], step)[1] - core_offset_bytes(step.design, operand, 0)
            first, end = min(first for _, first, _ in spans), max(end for _, _, end in spans)
            yield _AddressedOperand(step, index, base, first, end, origin)

    # -- areas -----------------------------------------------------------------------------------------

    def _areas(self, accesses: Iterable[_AddressedOperand]) -> Iterator[_Area]:
        by_base: dict[str, list[_AddressedOperand]] = {}
        for access in accesses:
            by_base.setdefault(access.base, []).append(access)
        for base, members in by_base.items():
            is_whole = base not in (_LX, _ABSOLUTE)
            areas: list[_Area] = []
            for access in sorted(members, key=lambda access: access.first):
                if areas and (is_whole or access.first < areas[-1].end):
                    areas[-1].end = max(areas[-1].end, access.end)
                else:
                    areas.append(_Area(base, access.first, access.end))
                areas[-1].accesses.append(access)
            for area in areas:
                area.accesses.sort(key=lambda access: access.step.position)
                if is_whole:
                    area.first = min(area.first, 0)
            # In the order of the program, so that the first tensor is the first parameter.
            yield from sorted(
                areas, key=lambda area: (area.accesses[0].step.position, area.accesses[0].index)
            )

    def _name_areas(self) -> None:
        used_names = {parameter.name for parameter in self.context.bundle.parameters}
        for statement in statements_in_order(self.context.bundle.statements):
            used_names.add(
                statement.induction if isinstance(statement, Loop) else getattr(statement, "result", "")
            )
        for number, area in enumerate(self.areas):
            if area.base == _LX:
                area.name = f"lx_{area.first}"
            elif self._is_in_program(area):
                area.name = area.base
            else:
                area.name = f"area{number}"
                while area.name in used_names:
                    area.name += "_"

    def _is_in_program(self, area: _Area) -> bool:
        return area.base in self.context.bases

    # -- the bundle ------------------------------------------------------------------------------------

    def bundle(self) -> Bundle:
        """Return the bundle with its manifest."""
        arguments, buffers = [], []
        for area in self.areas:
            if area.base not in (_LX, *self.context.allocations):
                arguments += self._arguments(area)
            start = area.first if area.base == _LX or self._is_in_program(area) else 0
            size = self.context.allocations.get(area.base, area.end - area.first)
            buffers.append(Buffer(area.name, _LX if area.base == _LX else area.name, start, size))
        uses = tuple(
            tuple(self.area_of[step.position, index].name for index in range(len(step.design.operands)))
            for step in self.context.steps
        )
        fresh = [area for area in self.areas if area.base != _LX and not self._is_in_program(area)]
        rewriter = _Rewriter(self, fresh)
        bundle = self.context.bundle
        return replace(
            bundle,
            parameters=(*bundle.parameters, *(Parameter(area.name) for area in fresh)),
            statements=rewriter.statements(),
            designs=rewriter.designs,
            manifest=replace(
                bundle.manifest,
                arguments=tuple(_with_own_names(arguments)),
                buffers=tuple(buffers),
                uses=uses,
            ),
        )

    def _arguments(self, area: _Area) -> Iterator[KernelArgument]:
        """The arguments of an area: what is read first is given by the host, what is written it takes back."""
        writes = [access for access in area.accesses if access.is_write]
        is_read_first = not area.accesses[0].is_write
        kinds = {(access.origin, _layout(access)) for access in area.accesses}
        if area.base.startswith("pool") or (writes and not is_read_first and len(kinds) > 1):
            return  # parts of it live one after the other: a pool
        if is_read_first:
            yield self._argument(area, area.accesses[0], "input")
        if writes:
            yield self._argument(area, writes[-1], "result")

    def _argument(self, area: _Area, access: _AddressedOperand, kind: str) -> KernelArgument:
        design, operand = access.step.design, access.operand
        form = FORMATS.get(operand.data_format)
        if form is None or operand.data_format not in _HOST_DTYPES:
            self._fail(
                f"Tensor{access.index} has the format {operand.data_format}, which is not simulated.",
                access.step,
            )
        name = self.names[access.step.execute.filename][access.index]
        if len(self.context.bundle.designs) > 1:
            name = f"{design.filename.removesuffix('.json')}.{name}"
        size = prod(memory_counts(design, operand)) * self.stick_bytes
        # A tile with gaps behind its dims, and a loop over tiles: the memory of all of them is the tensor.
        is_whole = access.origin == area.first and area.first + size >= area.end
        lanes = form.stick_elements(self.stick_bytes)
        if is_whole and operand.elements_per_stick == lanes:
            shape, transfer, is_padded = _transfer(design, operand)
            device = (*reversed(memory_counts(design, operand)), lanes)
        else:
            shape = device = (-(-(area.end - area.first) // self.stick_bytes), lanes)
            transfer, is_padded = Transfer(shape, (lanes, 1), (lanes, 1)), False
        return KernelArgument(
            name=name,
            kind=kind,
            parameter=area.name,
            host_dtype=_HOST_DTYPES[operand.data_format],
            host_shape=shape,
            data_format=operand.data_format,
            device_size=device,
            bytes=prod(device) * form.bytes,
            transfer=transfer,
            # Padding of a contracted dim has to be zero; of other dims it may hold anything.
            fill=0.0 if is_padded and kind == "input" else None,
        )


def _with_own_names(arguments: Sequence[KernelArgument]) -> Iterator[KernelArgument]:
    """The arguments, each with a name of its own; inputs first, in the order of their parameters."""
    used_names: set[str] = set()
    for argument in arguments:
        name = argument.name
        while name in used_names:
            name += "_"
        used_names.add(name)
        yield replace(argument, name=name)


def _layout(access: _AddressedOperand) -> tuple:
    operand, sizes = access.operand, access.step.design.sizes
    dims = tuple((sizes[dim], operand.scale[dim], operand.gap.get(dim, 0)) for dim in operand.dim_order)
    return operand.data_format, operand.dim_order.index(operand.stick_dim), dims


def _transfer(design: Design, operand: Operand) -> tuple[tuple[int, ...], Transfer, bool]:
    """The array of a tensor on the host, its dims from the last of ``dim_order`` to the first, and the copy of it.

    True if the array lacks some elements of the tensor on the device, which are padding.
    """
    order = tuple(reversed(operand.dim_order))
    sizes = {dim: _extent(design, operand, dim) for dim in order}
    shape = tuple(sizes[dim] for dim in order)
    host = {dim: prod(shape[place + 1 :]) for place, dim in enumerate(order)}
    sticks = dict(zip(operand.dim_order, memory_strides(design, operand), strict=True))
    inside, stride = {}, 1
    for dim in (*operand.beside, operand.stick_dim):
        inside[dim] = stride
        stride *= operand.per_stick(dim)
    loops: list[tuple[int, int, int]] = []
    bounds = []
    for dim in order:
        lanes = operand.per_stick(dim) if operand.scale[dim] == 1 else 1
        count = -(-sizes[dim] // lanes)
        loops.append((count, host[dim] * lanes, sticks[dim] * operand.elements_per_stick))
        if lanes > 1:
            loops.append((min(lanes, sizes[dim]), host[dim], inside[dim]))
            if sizes[dim] % lanes and count > 1:
                bounds.append(((len(loops) - 2, len(loops) - 1), (lanes, 1), sizes[dim]))
    ranges, host_strides, device_strides = zip(*loops, strict=True)
    is_padded = any(design.padding.get(dim) and operand.scale[dim] == 1 for dim in order)
    return shape, Transfer(ranges, host_strides, device_strides, tuple(bounds)), is_padded


def _extent(design: Design, operand: Operand, dim: str) -> int:
    """Elements of a dim of a tensor: without padding, and with what lies in the gap behind a part of it."""
    if operand.scale[dim] != 1:
        return 1
    gap = operand.gap.get(dim, 0)
    return design.sizes[dim] + gap if gap else design.sizes[dim] - design.padding.get(dim, 0)


class _Rewriter:
    """The program of a derivation with parameters in place of absolute addresses and of symbols that nobody binds."""

    def __init__(self, derivation: _Derivation, fresh: Sequence[_Area]) -> None:
        self.derivation, self.context = derivation, derivation.context
        self.fresh = {area.name: area for area in fresh}
        self.designs = dict(self.context.bundle.designs)
        self.entry: list[Statement] = [Extract(f"{area.name}_base", area.name) for area in fresh]
        ids = [symbol for execute in self.context.executes for symbol in execute.symbol_ids]
        self.next_id = min((*ids, 0)) - 1
        self.known: dict[tuple[str, int], tuple[str, int]] = {}
        self.steps = iter(self.context.steps)

    def statements(self) -> tuple[Statement, ...]:
        body = tuple(self._block(self.context.bundle.statements))
        return (*self.entry, *body)

    def _block(self, statements: Iterable[Statement]) -> Iterator[Statement]:
        for statement in statements:
            if isinstance(statement, Loop):
                yield replace(statement, body=tuple(self._block(statement.body)))
            elif isinstance(statement, Execute):
                yield from self._execute(next(self.steps))
            else:
                yield statement

    def _execute(self, step: ExecuteStep) -> Iterator[Statement]:
        """The execute with an operand for each address in device memory, behind what computes those in loops."""
        names = dict(zip(step.execute.symbol_ids, step.execute.operands, strict=True))
        bound: dict[int, str] = {}
        operands = []
        for index, operand in enumerate(step.design.operands):
            if operand.memory == _LX:
                operands.append(operand)
                continue
            area = self.derivation.area_of[step.position, index]
            starts = []
            for start, value in zip(operand.start, self.derivation.values[step.position][index], strict=True):
                symbol = start
                if area.name not in self.fresh:
                    bound[start] = names[start]
                elif start in names:
                    if start not in bound:
                        bound[start] = f"{names[start]}_{area.name}_{step.position}"
                        yield Add(bound[start], names[start], self._shift(area))
                else:
                    name, symbol = self._constant(area, value.offset)
                    bound[symbol] = name
                starts.append(symbol)
            operands.append(replace(operand, start=tuple(starts)))
        self._note(step, tuple(operands))
        yield replace(step.execute, operands=tuple(bound.values()), symbol_ids=tuple(bound))

    def _note(self, step: ExecuteStep, operands: tuple[Operand, ...]) -> None:
        self.designs[step.execute.filename] = replace(step.design, operands=operands)

    def _shift(self, area: _Area) -> str:
        """The value that an absolute address of an area becomes its address in the parameter by."""
        name = f"{area.name}_shift"
        if not any(isinstance(statement, Add) and statement.result == name for statement in self.entry):
            self.entry.append(IndexConstant(f"{name}_bytes", -area.first))
            self.entry.append(Add(name, f"{area.name}_base", f"{name}_bytes"))
        return name

    def _constant(self, area: _Area, address: int) -> tuple[str, int]:
        """The value and the symbol id of an address in an area; equal ones are one symbol."""
        offset = address - area.first
        if (area.name, offset) not in self.known:
            name = f"{area.name}_base"
            if offset:
                name = f"{area.name}_{offset}"
                self.entry.append(IndexConstant(f"{name}_bytes", offset))
                self.entry.append(Add(name, f"{area.name}_base", f"{name}_bytes"))
            self.known[area.name, offset] = name, self.next_id
            self.next_id -= 1
        return self.known[area.name, offset]
