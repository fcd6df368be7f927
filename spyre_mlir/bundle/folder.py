# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A bundle as a folder on disk: written atomically and reproducibly, byte for byte.

The folder holds `bundle.mlir`, one `sdsc_<i>.json` per design, `manifest.json`, `constants.npz` with the
host values of constant and parameter arguments if they were given, and `remarks.jsonl` with the decisions of the
compiler if they are known; only reports read the remarks.
"""

from __future__ import annotations

import itertools
import os
import re
import zipfile
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import prod
from pathlib import Path
from typing import NoReturn

import numpy as np

from spyre_mlir.bundle import core_slices, json_fields, model, rules_design, rules_structure
from spyre_mlir.bundle.context import Context, ExecuteStep, Linear
from spyre_mlir.bundle.design_json import read_design, to_json
from spyre_mlir.bundle.program_text import parse_program, print_program
from spyre_mlir.bundle.regular_files import read_stored_arrays, read_text
from spyre_mlir.bundle.replacing import replacing
from spyre_mlir.bundle.transfer import DATA, INDEX, write_images
from spyre_mlir.errors import CompileError
from spyre_mlir.files import is_folder
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import Remark, Remarks
from spyre_mlir.target.formats import FORMATS, require_mode
from spyre_mlir.target.ops import DL16, FP8, FP32, INT8, INT32
from spyre_mlir.target.target import Target, packaged_target

PROGRAM, MANIFEST, ARRAYS, REMARKS = "bundle.mlir", "manifest.json", "constants.npz", "remarks.jsonl"

#: The file of a folder that holds a program of several segments (``spyre_mlir/driver/stored_program.py``).
STEPS = "program.json"

#: The file of a folder that holds a program for each of many sizes (``spyre_mlir/frontend/dynamic.py``).
SIZES = "sizes.json"

#: Remedy of messages about a folder without a bundle.
HOW_TO_WRITE = "spyre-compile -o and Program.save write one"

_DESIGN = re.compile(r"sdsc_[0-9]{1,9}\.json")

#: The file name of a design from another writer; the file is in the folder itself.
_ANY_DESIGN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}\.json")

# The earliest time that a zip file can store; the actual time would make equal bundles differ.
_NO_TIME = (1980, 1, 1, 0, 0, 0)


def write_bundle(
    bundle: model.Bundle,
    folder: str | Path,
    arrays: dict[str, np.ndarray] | None = None,
    remarks: Sequence[Remark] = (),
    laid_out_for: str | None = None,
) -> None:
    """Write a bundle as a folder, and replace a bundle that is already there.

    Args:
        bundle: The bundle.
        folder: The folder.
        arrays: Host values by argument name.
        remarks: The decisions that led to the bundle.
        laid_out_for: Numerics, "ieee" or "dl16", for which the arrays are written as device images.

    Raises:
        CompileError: The folder contains anything but a bundle, or the numerics do not exist.
    """
    require_mode(laid_out_for)
    with replacing(folder) as fresh:
        write_files(bundle, fresh, arrays, remarks, laid_out_for)


def write_files(
    bundle: model.Bundle,
    folder: Path,
    arrays: dict[str, np.ndarray] | None,
    remarks: Sequence[Remark],
    laid_out_for: str | None = None,
) -> None:
    """Write the files of a bundle to an empty folder; write arrays as images if ``laid_out_for`` names the numerics."""
    (folder / PROGRAM).write_text(print_program(bundle.parameters, bundle.statements), encoding="utf-8")
    for filename, design in bundle.designs.items():
        json_fields.write_json(folder / filename, to_json(design))
    manifest = {
        **json_fields.manifest_to_json(bundle.manifest),
        **json_fields.padding_to_json(bundle.designs),
    }
    json_fields.write_json(folder / MANIFEST, manifest)
    if arrays and laid_out_for is not None:
        write_images(folder, bundle.manifest.arguments, arrays, laid_out_for)
    elif arrays:
        write_arrays(folder / ARRAYS, arrays)
    if remarks:
        (folder / REMARKS).write_text(Remarks(remarks).json_lines(), encoding="utf-8")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a reproducible archive: equal arrays give equal bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(arrays):
            entry = zipfile.ZipInfo(f"{name}.npy", _NO_TIME)
            with archive.open(entry, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(arrays[name]), allow_pickle=False)


def is_program(folder: str | Path) -> bool:
    """Return whether a folder holds a program of several segments and not a single bundle."""
    return (Path(folder) / STEPS).is_file()


def read_bundle(folder: str | Path, ignored: list[str] | None = None) -> model.Bundle:
    """Read the bundle in a folder.

    A folder of another writer may lack `manifest.json`, which is then derived from the designs (``derive``),
    and `bundle.mlir`, which then executes the designs in their order.

    Args:
        folder: The folder.
        ignored: A list to which the fields without an effect are appended, as ``file: path``.

    Raises:
        CompileError: A file is missing or damaged (the message names it), or the folder holds several bundles.
    """
    folder = Path(folder)
    if not is_folder(folder):
        raise CompileError(f"There is no bundle folder with this name; {HOW_TO_WRITE}.", str(folder))
    if is_program(folder):
        first = min((path.parent for path in folder.glob(f"*/{PROGRAM}")), default=folder / "device_0")
        raise CompileError(f"The folder holds several bundles; name one, as in '{first}'.", str(folder))
    if is_foreign(folder):
        return _read_foreign(folder, [] if ignored is None else ignored)
    program = folder / PROGRAM
    if not any(os.path.lexists(folder / name) for name in (PROGRAM, MANIFEST)):
        raise CompileError(f"The folder does not contain a bundle; {HOW_TO_WRITE}.", str(folder))
    parameters, statements = parse_program(read_text(program), str(program))
    # The manifest first: it names the target for which the designs are read.
    value = json_fields.load(folder / MANIFEST).value
    manifest = json_fields.manifest_from_json(value, str(folder / MANIFEST))
    designs = {}
    for filename in _design_files(folder, statements, _DESIGN, "sdsc_<number>.json"):
        read = read_design(json_fields.load(folder / filename).value, str(folder / filename), manifest.target)
        designs[filename] = read.design
        if ignored is not None:
            ignored += [f"{filename}: {path}" for path in read.ignored]
    designs = json_fields.with_padding(designs, value, str(folder / MANIFEST))
    return model.Bundle(parameters, statements, designs, manifest)


def is_foreign(folder: str | Path) -> bool:
    """Return whether a folder holds a bundle without the files that only this package writes."""
    folder = Path(folder)
    if any(os.path.lexists(folder / name) for name in (MANIFEST, ARRAYS, REMARKS, DATA, INDEX)):
        return False
    # A folder with only a program has lost its designs; an empty folder does not hold a bundle.
    return any(folder.glob("*.json"))


def _read_foreign(folder: Path, ignored: list[str]) -> model.Bundle:
    """Return the bundle of a folder without a manifest; a missing program executes the designs in their order."""
    program, parameters = folder / PROGRAM, ()
    if os.path.lexists(program):
        parameters, statements = parse_program(read_text(program), str(program))
    else:
        filenames = sorted((path.name for path in folder.glob("*.json")), key=_by_number)
        statements = tuple(model.Execute(filename, (), ()) for filename in filenames)
    target, designs, names, files = packaged_target(), {}, {}, {}
    filenames = _design_files(folder, statements, _ANY_DESIGN, "<name>.json")
    for filename in filenames:
        read = read_design(json_fields.load(folder / filename).value, str(folder / filename), target)
        match = _DESIGN.fullmatch(filename)
        # Another file name gets the first index that no design of the folder has.
        used = {*files.values(), *filenames}
        free = (index for index in itertools.count() if f"sdsc_{index}.json" not in used)
        design = replace(read.design, index=int(filename[5:-5]) if match else next(free))
        require_sound(design, str(folder / filename))
        files[filename] = design.filename
        designs[design.filename], names[design.filename] = design, read.names
        renamed = "" if match else f" as {design.filename}"
        ignored += [f"{filename}{renamed}: {path}" for path in read.ignored]

    def with_new_file(statement: model.Statement) -> list[model.Statement]:
        if isinstance(statement, model.Execute):
            return [replace(statement, filename=files[statement.filename])]
        return [statement]

    return derive(parameters, model.rewritten(statements, with_new_file), designs, names, target, str(folder))


def _design_files(
    folder: Path, statements: Iterable[model.Statement], pattern: re.Pattern[str], form: str
) -> list[str]:
    """Return the files of the designs by their number: the executed ones, and those that no execute names.

    The validator reports the latter.
    """
    present = sorted((path.name for path in folder.glob("sdsc_*.json")), key=_by_number)
    executed = (execute.filename for execute in model.executes_of(statements))
    filenames = dict.fromkeys([*executed, *present])
    for filename in filenames:
        if not pattern.fullmatch(filename):
            raise CompileError(f"A design is in a file '{form}', not in {filename!r}.", str(folder / PROGRAM))
    return sorted(filenames, key=_by_number)


def _by_number(filename: str) -> tuple[int, str]:
    # Sorting by length first puts sdsc_2 before sdsc_10.
    return len(filename), filename


def read_arrays(folder: str | Path) -> dict[str, np.ndarray]:
    """Return the host values in the bundle of a ``folder``, by argument name; empty if there is no such file."""
    path = Path(folder) / ARRAYS
    return read_stored_arrays(path) if os.path.lexists(path) else {}


def read_remarks(folder: str | Path) -> list[Remark]:
    """Return the remarks of the bundle; empty if there is no such file."""
    path = Path(folder) / REMARKS
    if not os.path.lexists(path):
        return []
    try:
        return Remarks.from_json_lines(read_text(path))
    except ValueError as error:
        raise CompileError(str(error), str(path)) from None


# A bundle from designs and a program without ``manifest.json``: the host's side, derived from the addresses.
#
# The memory that the operands address is divided into areas: a parameter, an allocation, or bytes at absolute
# addresses that some operand covers. An area that is read first is an input, an area that is written is a result, and
# LX has one buffer for each contiguous address range. The host array of a tensor has the dims of ``layoutDimOrder_``
# from the last to the first; an area that no single tensor covers is an array of sticks in device order.
#
# Addresses of a bundle are parameters plus bytes, so each area at absolute addresses becomes a parameter.

#: The host element type for a format of the device.
_HOST_DTYPES = {DL16: "float16", FP32: "float32", INT32: "int32", INT8: "int8", FP8: "float8_e4m3fn"}

_LX, _ABSOLUTE = "lx", ""

_SOUND = (
    rules_structure.known_opcode, rules_structure.arity, rules_structure.dims_declared,
    rules_structure.operand_dims, rules_structure.core_mapping, rules_structure.roles,
    rules_design.source_slices,
)  # fmt: skip


def derive(
    parameters: Sequence[model.Parameter],
    statements: Sequence[model.Statement],
    designs: Mapping[str, model.Design],
    names: Mapping[str, Sequence[str]],
    target: Target,
    filename: str,
) -> model.Bundle:
    """Return the bundle of a program without a manifest; ``names`` are the tensor names of each design.

    The manifest follows from the addresses. Each operand of an execute accesses a range of bytes of one base: a
    parameter, an allocation, LX, an absolute address or an unbound symbol; the range covers all cores and all
    iterations of the loops around the execute. Ranges of absolute addresses, and of LX, that overlap form one area;
    all ranges of any other base form one area. An area is a buffer of the manifest. Outside of LX and
    of allocations it is also an argument: an input if its first access reads, and a result if any access writes.

    A size that is known only at run time has its largest value. The designs must be sound (``require_sound``), and
    each address must be one base plus a number of bytes per iteration. The work is linear in the number of executes
    times cores, after a sort of the ranges.

    Raises ``CompileError`` for values that are not addresses, and for operands whose cores have several bases.
    """
    largest = {
        parameter.name: parameter.max_value for parameter in parameters if parameter.max_value is not None
    }
    granularity = {parameter.name: parameter.granularity or 1 for parameter in parameters}

    def constant(statement: model.Statement) -> list[model.Statement]:
        if isinstance(statement, model.Extract) and statement.parameter in largest:
            limits = granularity if statement.what == "granularity" else largest
            return [model.IndexConstant(statement.result, limits[statement.parameter])]
        return [statement]

    addresses = tuple(parameter for parameter in parameters if parameter.name not in largest)
    manifest = model.Manifest((), (), (), target=target)
    bundle = model.Bundle(addresses, model.rewritten(statements, constant), dict(designs), manifest)
    return _Derivation(bundle, names, filename).bundle()


def require_sound(design: model.Design, filename: str) -> None:
    """Raise ``CompileError`` for a design that breaks a rule on dims, sizes and slices, which ``derive`` relies on."""
    for rule in _SOUND:
        for sentence in rule(design):
            raise CompileError(sentence, filename)


@dataclass(frozen=True)
class _AddressedOperand:
    """An operand of an execute: the area's base, the accessed bytes from there, and the first byte of its tensor."""

    step: ExecuteStep
    index: int
    base: str
    first: int
    end: int
    origin: int

    @property
    def operand(self) -> model.Operand:
        return self.step.design.operands[self.index]

    @property
    def is_write(self) -> bool:
        return self.index == len(self.step.design.operands) - 1


@dataclass
class _Area:
    """A range of bytes of one base that belongs together, and its accesses in program order."""

    base: str
    first: int
    end: int
    accesses: list[_AddressedOperand] = field(default_factory=list)
    name: str = ""


class _Derivation:
    """The areas of one program, and the program in which each area is a parameter, an allocation or in LX.

    The areas in ``fresh`` become parameters: they are at absolute addresses, or at symbols that no execute binds.
    """

    def __init__(self, bundle: model.Bundle, names: Mapping[str, Sequence[str]], filename: str) -> None:
        self.context, self.names, self.filename = Context(bundle), names, filename
        for execute in self.context.executes:
            ids, operands = len(execute.symbol_ids), len(execute.operands)
            if ids != operands or len(set(execute.symbol_ids)) != ids:
                self._fail(f"The execute of {execute.filename} has {operands} operands for {ids} symbol ids.")
        # Steps have values and iterations only if values are defined and loops have constant bounds.
        for rule in (rules_structure.values_defined, rules_structure.loop_bounds):
            for sentence, where in rule(self.context):
                raise CompileError(sentence, f"{self.filename}/{where}")
        self.stick_bytes = bundle.target.stick_bytes
        self.symbols: dict[int, Linear] = {}
        self.values = [self._addresses(step) for step in self.context.steps]
        accesses = [access for step in self.context.steps for access in self._accesses(step)]
        self.areas = list(self._areas(accesses))
        self.area_of = {
            (access.step.position, access.index): area for area in self.areas for access in area.accesses
        }
        used_names = {parameter.name for parameter in self.context.bundle.parameters}
        for statement in model.statements_in_order(self.context.bundle.statements):
            used_names.add(
                statement.induction if isinstance(statement, model.Loop) else getattr(statement, "result", "")
            )
        for number, area in enumerate(self.areas):
            if area.base == _LX:
                area.name = f"lx_{area.first}"
            elif self._is_in_program(area):
                area.name = area.base
            else:
                area.name = _unused(f"area{number}", used_names)
        self.fresh = {
            area.name: area for area in self.areas if area.base != _LX and not self._is_in_program(area)
        }
        self.designs = dict(self.context.bundle.designs)
        self.entry: list[model.Statement] = [model.Extract(f"{name}_base", name) for name in self.fresh]
        ids = [symbol for execute in self.context.executes for symbol in execute.symbol_ids]
        self.next_id = min((*ids, 0)) - 1
        self.constants: dict[tuple[str, int], tuple[str, int]] = {}

    def _fail(self, sentence: str, step: ExecuteStep | None = None) -> NoReturn:
        raise CompileError(sentence, f"{self.filename}/{step.where}" if step else self.filename)

    # -- addresses -------------------------------------------------------------------------------------

    def _addresses(self, step: ExecuteStep) -> list[list[Linear]]:
        """Return the address of each operand of an execute on each core: program symbols or design numbers."""
        design = step.design
        for index, operand in enumerate(design.operands):
            if len(operand.start) != design.cores:
                starts = len(operand.start)
                self._fail(f"Tensor{index} has {starts} start addresses for {design.cores} cores.", step)
        addresses = []
        for operand in design.operands:
            of_cores = []
            for core, start in enumerate(operand.start):
                if operand.memory == _LX or start >= 0:
                    of_cores.append(Linear(start))
                    continue
                if start not in step.values and start not in self.symbols:
                    # No execute operand binds the symbol: its tensor gets its own base.
                    base = Linear(0, ((f"symbol {operand.start[0]}", 1),))
                    offsets = [core_slices.core_offset_bytes(design, operand, c) for c in (0, core)]
                    distance = Linear(offsets[1] - offsets[0])
                    self.symbols[start] = self.symbols.get(operand.start[0], base).plus(distance)
                of_cores.append(step.values[start] if start in step.values else self.symbols[start])
            addresses.append(of_cores)
        return addresses

    def _split(self, value: Linear, step: ExecuteStep) -> tuple[str, int, int]:
        """Return the base of an address, and its first and last offset over all iterations."""
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
            for core in core_slices.holders(step.design, operand):
                base, first, last = self._split(values[core], step)
                sticks = core_slices.core_region(step.design, operand, core).span
                spans.append((base, first, last + sticks * self.stick_bytes))
            bases = {base for base, _, _ in spans}
            if len(bases) != 1:
                self._fail(f"Tensor{index} has no address, or several bases on its cores.", step)
            base, origin = _LX, 0
            if operand.memory != _LX:
                base = bases.pop()
                origin = self._split(values[0], step)[1] - core_slices.core_offset_bytes(
                    step.design, operand, 0
                )
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
            # Program order makes the first tensor the first parameter.
            yield from sorted(
                areas, key=lambda area: (area.accesses[0].step.position, area.accesses[0].index)
            )

    def _is_in_program(self, area: _Area) -> bool:
        return area.base in self.context.bases

    # -- the bundle ------------------------------------------------------------------------------------

    def bundle(self) -> model.Bundle:
        """Return the bundle with its manifest."""
        arguments, buffers, used_names = [], [], set()
        for area in self.areas:
            if area.base not in (_LX, *self.context.allocations):
                arguments += self._arguments(area)
            start = area.first if area.base == _LX or self._is_in_program(area) else 0
            size = self.context.allocations.get(area.base, area.end - area.first)
            buffers.append(model.Buffer(area.name, _LX if area.base == _LX else area.name, start, size))
        for number, argument in enumerate(arguments):
            arguments[number] = replace(argument, name=_unused(argument.name, used_names))
            used_names.add(arguments[number].name)
        uses = tuple(
            tuple(self.area_of[step.position, index].name for index in range(len(step.design.operands)))
            for step in self.context.steps
        )
        bundle, steps = self.context.bundle, iter(self.context.steps)
        body = model.rewritten(
            bundle.statements,
            lambda statement: (
                self._execute(next(steps)) if isinstance(statement, model.Execute) else [statement]
            ),
        )
        return replace(
            bundle,
            parameters=(*bundle.parameters, *map(model.Parameter, self.fresh)),
            statements=(*self.entry, *body),
            designs=self.designs,
            manifest=replace(bundle.manifest, arguments=tuple(arguments), buffers=tuple(buffers), uses=uses),
        )

    def _arguments(self, area: _Area) -> Iterator[model.KernelArgument]:
        """Yield the arguments of an area: an input if it is read first, and a result if it is written."""
        writes = [access for access in area.accesses if access.is_write]
        is_read_first = not area.accesses[0].is_write
        layouts = set()
        for access in area.accesses:
            operand, sizes = access.operand, access.step.design.sizes
            dims = tuple(
                (sizes[dim], operand.scale[dim], operand.gap.get(dim, 0)) for dim in operand.dim_order
            )
            place = operand.dim_order.index(operand.stick_dim)
            layouts.add((access.origin, operand.data_format, place, dims))
        if area.base.startswith("pool") or (writes and not is_read_first and len(layouts) > 1):
            return  # parts of it live one after the other: a pool
        if is_read_first:
            yield self._argument(area, area.accesses[0], "input")
        if writes:
            yield self._argument(area, writes[-1], "result")

    def _argument(self, area: _Area, access: _AddressedOperand, kind: str) -> model.KernelArgument:
        """Return an input or a result for the tensor of an access: its name, host type, shape and transfer."""
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
        # A tile with gaps after its dims, and a loop over tiles: the memory of all tiles is the tensor.
        is_whole = (
            access.origin == area.first and area.first + core_slices.lx_bytes(design, operand) >= area.end
        )
        lanes = form.stick_elements(self.stick_bytes)
        if is_whole and operand.elements_per_stick == lanes:
            shape, transfer, is_padded = _transfer(design, operand)
            device = (*reversed(core_slices.memory_counts(design, operand)), lanes)
        else:
            shape = device = (-(-(area.end - area.first) // self.stick_bytes), lanes)
            transfer, is_padded = model.Transfer(shape, (lanes, 1), (lanes, 1)), False
        return model.KernelArgument(
            name=name,
            kind=kind,
            parameter=area.name,
            host_dtype=_HOST_DTYPES[operand.data_format],
            host_shape=shape,
            data_format=operand.data_format,
            device_size=device,
            bytes=prod(device) * form.bytes,
            transfer=transfer,
            # Padding of a contracted dim must be zero; padding of other dims may hold anything.
            fill=0.0 if is_padded and kind == "input" else None,
        )

    # -- the program with parameters instead of absolute addresses and unbound symbols ------------------

    def _execute(self, step: ExecuteStep) -> Iterator[model.Statement]:
        """Yield the execute with one operand per address in device memory, after the adds that its addresses need."""
        names = dict(zip(step.execute.symbol_ids, step.execute.operands, strict=True))
        bound: dict[int, str] = {}
        operands = []
        for index, operand in enumerate(step.design.operands):
            if operand.memory == _LX:
                operands.append(operand)
                continue
            area = self.area_of[step.position, index]
            starts = []
            for start, value in zip(operand.start, self.values[step.position][index], strict=True):
                symbol = start
                if area.name not in self.fresh:
                    bound[start] = names[start]
                elif start in names:
                    if start not in bound:
                        bound[start] = f"{names[start]}_{area.name}_{step.position}"
                        yield model.Add(bound[start], names[start], self._shift(area))
                else:
                    name, symbol = self._constant(area, value.offset)
                    bound[symbol] = name
                starts.append(symbol)
            operands.append(replace(operand, start=tuple(starts)))
        self.designs[step.execute.filename] = replace(step.design, operands=tuple(operands))
        yield replace(step.execute, operands=tuple(bound.values()), symbol_ids=tuple(bound))

    def _shift(self, area: _Area) -> str:
        """Return the value to add to an absolute address of an area to get its address in the parameter."""
        name = f"{area.name}_shift"
        if not any(isinstance(statement, model.Add) and statement.result == name for statement in self.entry):
            self._add_to_base(area, name, -area.first)
        return name

    def _constant(self, area: _Area, address: int) -> tuple[str, int]:
        """Return the value and the symbol id of an address in an area; equal addresses share one symbol."""
        offset = address - area.first
        if (area.name, offset) not in self.constants:
            name = f"{area.name}_{offset}" if offset else f"{area.name}_base"
            if offset:
                self._add_to_base(area, name, offset)
            self.constants[area.name, offset] = name, self.next_id
            self.next_id -= 1
        return self.constants[area.name, offset]

    def _add_to_base(self, area: _Area, name: str, offset: int) -> None:
        self.entry.append(model.IndexConstant(f"{name}_bytes", offset))
        self.entry.append(model.Add(name, f"{area.name}_base", f"{name}_bytes"))


def _unused(name: str, used_names: Container[str]) -> str:
    while name in used_names:
        name += "_"
    return name


def _transfer(design: model.Design, operand: model.Operand) -> tuple[tuple[int, ...], model.Transfer, bool]:
    """Return the host array of a tensor, its dims from the last of ``dim_order`` to the first, and its transfer.

    The last result is True if the array lacks some elements of the device tensor, which are padding.
    """
    order = tuple(reversed(operand.dim_order))
    # The elements of a dim: without padding, and with the gap after a part of the dim.
    sizes = dict.fromkeys(order, 1)
    for dim in operand.listed:
        gap = operand.gap.get(dim, 0)
        sizes[dim] = design.sizes[dim] + gap if gap else design.sizes[dim] - design.padding.get(dim, 0)
    shape = tuple(sizes[dim] for dim in order)
    host = {dim: prod(shape[place + 1 :]) for place, dim in enumerate(order)}
    sticks = dict(zip(operand.dim_order, core_slices.memory_strides(design, operand), strict=True))
    inside, stride = {}, 1
    for dim in (*operand.other_elements, operand.stick_dim):
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
    is_padded = any(design.padding.get(dim) for dim in operand.listed)
    return shape, model.Transfer(ranges, host_strides, device_strides, tuple(bounds)), is_padded
