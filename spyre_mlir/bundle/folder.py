# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A bundle as a folder on disk: written whole or not at all, and the same bytes every time.

The folder holds `bundle.mlir`, one `sdsc_<i>.json` per design, `manifest.json`, `constants.npz` with the
host values of constant and parameter arguments when they were given, and `remarks.jsonl` with the decisions of the
compiler when they are known, which nothing but reports reads.
"""

from __future__ import annotations

import itertools
import os
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from spyre_mlir.bundle.derived_manifest import derive, require_sound
from spyre_mlir.bundle.design_json import read_design, to_json
from spyre_mlir.bundle.images import DATA, INDEX, write_images
from spyre_mlir.bundle.json_fields import load, write_json
from spyre_mlir.bundle.manifest_json import (
    manifest_from_json,
    manifest_to_json,
    padding_to_json,
    with_padding,
)
from spyre_mlir.bundle.model import Bundle, Execute, Loop, Statement
from spyre_mlir.bundle.program_parser import parse_program
from spyre_mlir.bundle.program_text import print_program
from spyre_mlir.bundle.regular_files import read_stored_arrays, read_text
from spyre_mlir.bundle.replacing import replacing
from spyre_mlir.errors import CompileError
from spyre_mlir.files import is_folder
from spyre_mlir.remarks import Remark, Remarks
from spyre_mlir.target.formats import require_mode
from spyre_mlir.target.target import packaged_target

PROGRAM, MANIFEST, ARRAYS, REMARKS = "bundle.mlir", "manifest.json", "constants.npz", "remarks.jsonl"

#: The file of a folder that holds a program of several steps (``spyre_mlir/driver/program_folder.py``).
STEPS = "program.json"

#: The file of a folder that holds a program for each of many sizes (``spyre_mlir/driver/dynamic.py``).
SIZES = "sizes.json"

_DESIGN = re.compile(r"sdsc_[0-9]{1,9}\.json")

#: What other writers call the file of a design; it is in the folder.
_ANY_DESIGN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}\.json")

# The earliest time that a zip file can hold; the time of writing would make equal bundles differ.
_NO_TIME = (1980, 1, 1, 0, 0, 0)


def write_bundle(
    bundle: Bundle,
    folder: str | Path,
    arrays: dict[str, np.ndarray] | None = None,
    remarks: Sequence[Remark] = (),
    laid_out_for: str | None = None,
) -> None:
    """Write a bundle as a folder, in place of a bundle that is there already.

    Args:
        bundle: The bundle.
        folder: The folder.
        arrays: Host values by argument name.
        remarks: The decisions that led to the bundle.
        laid_out_for: Numerics, "ieee" or "dl16", for which the arrays are written as device images.

    Raises:
        CompileError: The folder has anything but a bundle in it, or there are no such numerics.
    """
    require_mode(laid_out_for)
    with replacing(folder) as fresh:
        write_files(bundle, fresh, arrays, remarks, laid_out_for)


def write_files(
    bundle: Bundle,
    folder: Path,
    arrays: dict[str, np.ndarray] | None,
    remarks: Sequence[Remark],
    laid_out_for: str | None = None,
) -> None:
    """The files of a bundle, into a folder that is empty; arrays as images if they are laid out for some numerics."""
    (folder / PROGRAM).write_text(print_program(bundle.parameters, bundle.statements), encoding="utf-8")
    for filename, design in bundle.designs.items():
        write_json(folder / filename, to_json(design))
    manifest = {**manifest_to_json(bundle.manifest), **padding_to_json(bundle.designs)}
    write_json(folder / MANIFEST, manifest)
    if arrays and laid_out_for is not None:
        write_images(folder, bundle.manifest.arguments, arrays, laid_out_for)
    elif arrays:
        write_arrays(folder / ARRAYS, arrays)
    if remarks:
        (folder / REMARKS).write_text(Remarks(remarks).json_lines(), encoding="utf-8")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """An archive with the same bytes every time."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(arrays):
            entry = zipfile.ZipInfo(f"{name}.npy", _NO_TIME)
            with archive.open(entry, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(arrays[name]), allow_pickle=False)


def is_program(folder: str | Path) -> bool:
    """Return whether a folder holds a program of several steps, not one bundle."""
    return (Path(folder) / STEPS).is_file()


def read_bundle(folder: str | Path, ignored: list[str] | None = None) -> Bundle:
    """Read the bundle in a folder.

    A folder of another writer may lack `manifest.json`, which then follows from the designs (``derived_manifest.py``),
    and `bundle.mlir`, which then executes the designs in their order.

    Args:
        folder: The folder.
        ignored: A list to which fields that change nothing are added, as ``file: path``.

    Raises:
        CompileError: A file is missing or damaged, which the message names, or the folder holds several bundles.
    """
    folder = Path(folder)
    if not is_folder(folder):
        raise CompileError("There is no bundle folder with this name.", str(folder))
    if is_program(folder):
        first = min((path.parent for path in folder.glob(f"*/{PROGRAM}")), default=folder / "device_0")
        raise CompileError(f"The folder holds several bundles; name one, as in '{first}'.", str(folder))
    if is_foreign(folder):
        return _read_foreign(folder, [] if ignored is None else ignored)
    program = folder / PROGRAM
    parameters, statements = parse_program(read_text(program), str(program))
    # The manifest first: it names the target that the designs are read for.
    value = load(folder / MANIFEST).value
    manifest = manifest_from_json(value, str(folder / MANIFEST))
    designs = {}
    for filename in _design_files(folder, statements, _DESIGN, "sdsc_<number>.json"):
        read = read_design(load(folder / filename).value, str(folder / filename), manifest.target)
        designs[filename] = read.design
        if ignored is not None:
            ignored += [f"{filename}: {path}" for path in read.ignored]
    designs = with_padding(designs, value, str(folder / MANIFEST))
    return Bundle(parameters, statements, designs, manifest)


def is_foreign(folder: str | Path) -> bool:
    """Return whether a folder holds a bundle without the files that only this package writes."""
    folder = Path(folder)
    if any(os.path.lexists(folder / name) for name in (MANIFEST, ARRAYS, REMARKS, DATA, INDEX)):
        return False
    # A program alone has lost its designs; an empty folder is none of anybody.
    return any(folder.glob("*.json"))


def _read_foreign(folder: Path, ignored: list[str]) -> Bundle:
    """The bundle of a folder without a manifest, with a program of its designs in their order if it has none."""
    program, parameters = folder / PROGRAM, ()
    if os.path.lexists(program):
        parameters, statements = parse_program(read_text(program), str(program))
    else:
        filenames = sorted((path.name for path in folder.glob("*.json")), key=_by_number)
        statements = tuple(Execute(filename, (), ()) for filename in filenames)
    target, designs, names, files = packaged_target(), {}, {}, {}
    filenames = _design_files(folder, statements, _ANY_DESIGN, "<name>.json")
    for filename in filenames:
        read = read_design(load(folder / filename).value, str(folder / filename), target)
        match = _DESIGN.fullmatch(filename)
        index = int(filename[5:-5]) if match else _free_index(files.values(), filenames)
        design = replace(read.design, index=index)
        require_sound(design, str(folder / filename))
        files[filename] = design.filename
        designs[design.filename], names[design.filename] = design, read.names
        renamed = "" if match else f" as {design.filename}"
        ignored += [f"{filename}{renamed}: {path}" for path in read.ignored]
    return derive(parameters, _renamed(statements, files), designs, names, target, str(folder))


def _free_index(files: Iterable[str], filenames: Iterable[str]) -> int:
    """The first number that no design of a folder has."""
    used = {*files, *filenames}
    return next(index for index in itertools.count() if f"sdsc_{index}.json" not in used)


def _renamed(statements: Iterable[Statement], files: Mapping[str, str]) -> tuple[Statement, ...]:
    """The statements with the designs named as the numbers of the designs say."""
    return tuple(
        replace(statement, filename=files[statement.filename])
        if isinstance(statement, Execute)
        else replace(statement, body=_renamed(statement.body, files))
        if isinstance(statement, Loop)
        else statement
        for statement in statements
    )


def _design_files(
    folder: Path, statements: Iterable[Statement], pattern: re.Pattern[str], form: str
) -> list[str]:
    """The files of the designs by their number: those that are executed, and those that nothing names.

    The validator reports the latter.
    """
    present = sorted((path.name for path in folder.glob("sdsc_*.json")), key=_by_number)
    filenames = dict.fromkeys([*executed_files(statements), *present])
    for filename in filenames:
        if not pattern.fullmatch(filename):
            raise CompileError(f"A design is in a file '{form}', not in {filename!r}.", str(folder / PROGRAM))
    return sorted(filenames, key=_by_number)


def _by_number(filename: str) -> tuple[int, str]:
    # Shorter names first puts sdsc_2 before sdsc_10.
    return len(filename), filename


def executed_files(statements: Iterable[Statement]) -> list[str]:
    """The file of each execute in program order."""
    filenames: list[str] = []
    for statement in statements:
        if isinstance(statement, Execute):
            filenames.append(statement.filename)
        elif isinstance(statement, Loop):
            filenames += executed_files(statement.body)
    return filenames


def read_arrays(folder: str | Path) -> dict[str, np.ndarray]:
    """Return the host values that the bundle in a ``folder`` carries, by argument name; none if it has no such file."""
    path = Path(folder) / ARRAYS
    return read_stored_arrays(path) if os.path.lexists(path) else {}


def read_remarks(folder: str | Path) -> list[Remark]:
    """The remarks that the bundle carries; none if it has no such file."""
    path = Path(folder) / REMARKS
    if not os.path.lexists(path):
        return []
    try:
        return Remarks.from_json_lines(read_text(path))
    except ValueError as error:
        raise CompileError(str(error), str(path)) from None
