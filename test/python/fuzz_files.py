# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mutants of what tools read: folders of bundles, arrays (npz), plan files and tables of buffers, and what tools say.

Every case is a seed and the name of its base; the files are written where the tool runs. A tool may refuse a file with
a diagnostic and status 1; if it accepts a file, the numbers equal the base, or the mutant is a different program.
"""

from __future__ import annotations

import contextlib
import functools
import io
import random
import shutil
import struct
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bundle_mutants
import ir_mutants
import numpy as np
import plan_mutants
from fuzz_workers import INTERNAL, REFUSED, RIGHT, WRONG
from unsharded import unsharded

import spyre_mlir
from spyre_mlir.bundle.folder import is_program, read_arrays, read_bundle
from spyre_mlir.driver.checking import random_arguments
from spyre_mlir.simulator import run
from spyre_mlir.tools import spyre_compile, spyre_plan, spyre_run, spyre_validate

_HOST_WORK = """
func.func @main(%x: tensor<40x64xf32>, %y: tensor<40x64xf16>) -> (tensor<40x64xf32>, tensor<40x64xf16>) {
  %e = tensor.empty() : tensor<40x64xf32>
  %z = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<40x64xf32>) outs(%e : tensor<40x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = math.atan %a : f32
    linalg.yield %r : f32
  } -> tensor<40x64xf32>
  %d = tensor.empty() : tensor<40x64xf16>
  %w = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<40x64xf16>) outs(%d : tensor<40x64xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = math.exp %a : f16
    linalg.yield %r : f16
  } -> tensor<40x64xf16>
  return %z, %w : tensor<40x64xf32>, tensor<40x64xf16>
}
"""

#: Programs whose folders are mutated: the programs of the IR mutants, and one with a host function.
BASES = (*ir_mutants.SOURCES, "host")


@dataclass(frozen=True)
class FileCase:
    """A mutant of the base of that name."""

    kind: str
    base: str
    seed: int


@dataclass(frozen=True)
class Text:
    """A plan file or a table of buffers: a description of the change, and the text."""

    kind: str
    description: str
    text: str


@functools.cache
def base_folder(name: str) -> Path:
    """A folder with the compiled program ``bundle``, its inputs ``in.npz`` and its results ``out.npz``."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-base-"))
    program = _base_program(name)
    program.save(folder / "bundle")
    np.savez(folder / "in.npz", **random_arguments(program.arguments))
    assert run_folder(folder / "bundle", folder / "in.npz", folder / "out.npz") is None
    return folder


def run_folder(bundle: Path, inputs: Path, outputs: Path) -> tuple[str, str] | None:
    """Return the failure of ``spyre-run``, or None for a successful run."""
    return said(spyre_run.main, bundle, "--inputs", inputs, "--outputs", outputs).outcome()


def _base_program(name: str) -> spyre_mlir.Program:
    if name == "host":
        return spyre_mlir.compile(ir_mutants._ROWS + _HOST_WORK, sencores=2)
    level, text, sencores = ir_mutants.SOURCES[name]
    options = {} if level == "linalg" else {"from_level": level}
    return spyre_mlir.compile(text, sencores=sencores, **options)


@dataclass(frozen=True)
class Said:
    """Exit status and output of a tool."""

    status: int
    output: str
    errors: str

    def outcome(self) -> tuple[str, str] | None:
        """Return the diagnostic, or the internal error; None for a tool that succeeded."""
        if self.status == 0:
            return None
        text = self.errors.strip() or self.output.strip()
        first = (text.splitlines() or [""])[0][:300]
        if self.status != 1 or not text or "Internal error" in text:
            return INTERNAL, f"status {self.status}: {first}"
        return REFUSED, first


def said(main: Callable[..., int], *arguments: object) -> Said:
    """Runs a tool in this process."""
    output, errors = io.StringIO(), io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        warnings.simplefilter("ignore")
        try:
            status = main([str(each) for each in arguments])
        except SystemExit as stop:
            status = int(stop.code or 0)
    return Said(status, output.getvalue(), errors.getvalue())


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# Folders of bundles.


def draw_bundle(seed: int) -> FileCase:
    return FileCase("bundles", random.Random(seed).choice(BASES), seed)


def run_bundle(case: FileCase) -> tuple[str, str]:
    """Validates and runs the folder of a mutant."""
    with _scratch() as folder:
        change = bundle_files(case, folder)
        base = base_folder(case.base)
        refused = said(spyre_validate.main, folder / "bundle").outcome()
        refused = refused or run_folder(folder / "bundle", base / "in.npz", folder / "out.npz")
        if refused is not None:
            return refused[0], f"{change}: {refused[1]}"
        wrong = _other_numbers(folder / "bundle", base / "in.npz", folder / "out.npz")
        return (WRONG, f"{change}: {wrong}") if wrong else (RIGHT, change)


def _other_numbers(bundle: Path, inputs: Path, outputs: Path) -> str:
    """A result that is not what the operations of a bundle give on whole tensors, in device memory alone.

    Empty for none, and for what the judge cannot take: several bundles, and parts of the scratchpads.
    """
    if is_program(bundle):
        return ""
    try:
        whole = unsharded(read_bundle(bundle))
    except ValueError:
        return ""
    with np.load(inputs) as file:
        arrays = {**read_arrays(bundle), **dict(file)}
    with np.load(outputs) as found, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = run(whole, arrays).outputs
        for name, array in expected.items():
            one, other = (np.asarray(x).astype(np.float64) for x in (array, found[name]))
            if not np.allclose(one, other, 2e-2, 2e-2, equal_nan=True):
                return f"'{name}' is not what its operations give on whole tensors"
    return ""


def bundle_files(case: FileCase, folder: Path) -> str:
    """Write the mutant as the folder ``bundle``; return a description of the change."""
    shutil.copytree(base_folder(case.base) / "bundle", folder / "bundle")
    change, apply = next(bundle_mutants.folder_mutants(case.seed))
    apply(folder / "bundle")
    return change


# Arrays.


def draw_arrays(seed: int) -> FileCase:
    return FileCase("npz", random.Random(seed).choice(("pointwise", "matmul", "movement", "host")), seed)


def run_arrays(case: FileCase) -> tuple[str, str]:
    """Runs a bundle on a mutant of its inputs; where these are other numbers, no numbers are expected."""
    base = base_folder(case.base)
    with _scratch() as folder:
        change = arrays_file(case, folder)
        refused = run_folder(base / "bundle", folder / "in.npz", folder / "out.npz")
        if refused is not None:
            return refused[0], f"{change}: {refused[1]}"
        if change in SAME_ARRAYS and not _same_arrays(base / "out.npz", folder / "out.npz"):
            return WRONG, f"{change}: other results"
        return RIGHT, change


def _same_arrays(one: Path, other: Path) -> bool:
    with np.load(one) as expected, np.load(other) as found:
        return set(expected) == set(found) and all(
            np.array_equal(expected[n], found[n], equal_nan=True) for n in expected
        )


#: Changes of an npz that leave its arrays as they are.
SAME_ARRAYS = ("none", "compressed", "Fortran order", "one more array", "by position")


def arrays_file(case: FileCase, folder: Path) -> str:
    """Write ``in.npz`` with a change; return a description of the change."""
    rng, path = random.Random(case.seed), folder / "in.npz"
    with np.load(base_folder(case.base) / "in.npz") as file:
        arrays: dict[str, Any] = dict(file)
    name = rng.choice(list(arrays))
    x = arrays[name]
    change = rng.choice((*SAME_ARRAYS, *_CHANGES, *_DAMAGES))
    if change in _CHANGES:
        arrays[name] = _CHANGES[change](x, rng)
    if change == "one more array":
        arrays["more"] = x
    if change == "by position":
        arrays = dict(zip((f"arr_{k}" for k in range(len(arrays))), arrays.values(), strict=True))
    if change == "Fortran order":
        arrays[name] = np.asfortranarray(x)
    (np.savez_compressed if change == "compressed" else np.savez)(path, **arrays)
    if change in _DAMAGES:
        _DAMAGES[change](path, name, rng)
    return change


_CHANGES: dict[str, Callable[[np.ndarray, random.Random], np.ndarray]] = {
    "another shape": lambda x, rng: x[: rng.randrange(len(x))],
    "another rank": lambda x, rng: x.reshape(rng.choice(((1, *x.shape), (-1,)))),
    "one number": lambda x, rng: x.reshape(-1)[0],
    "no elements": lambda x, rng: x[:0],
    "another type": lambda x, rng: x.astype(
        rng.choice(("f4", "f8", "i4", "i8", "u1", "?", "c8", "f2", "S3", "U4", "M8[s]"))
    ),
    "other bytes first": lambda x, rng: x.astype(x.dtype.newbyteorder(">")),
    "objects": lambda x, rng: x.astype(object),
    "fields": lambda x, rng: np.zeros(x.shape, [("a", x.dtype), ("b", "i4")]),
    "no numbers": lambda x, rng: np.full_like(x, np.nan),
    "infinities": lambda x, rng: np.full_like(x, np.inf),
    "large numbers": lambda x, rng: np.full_like(x, 6e4),
    "strides": lambda x, rng: np.broadcast_to(x[:1], x.shape),
}


def _header(path: Path, name: str, header: str, data: bytes = b"\0" * 64) -> None:
    """Replace the array of a file by an array with this header."""
    text = header.encode("latin1")
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data)


def _declared(path: Path, name: str, rng: random.Random) -> None:
    shape = rng.choice(((2**40,), (2**31, 2**31), (-1, 4), (0, 2**62), (2**70,), (1,) * 40))
    _header(path, name, f"{{'descr': '<f2', 'fortran_order': False, 'shape': {shape}, }}")


def _odd_header(path: Path, name: str, rng: random.Random) -> None:
    headers = (
        "{'descr': '|O', 'fortran_order': False, 'shape': (4,), }",
        "{'descr': '<f2', 'fortran_order': 1, 'shape': 4, }",
        "{'descr': '<f99', 'fortran_order': False, 'shape': (4,), }",
        "{}",
        "[" * 500,
        "__import__('os').getcwd()",
    )
    _header(path, name, rng.choice(headers))


def _unpacks(path: Path, name: str, _: random.Random) -> None:
    """An archive of little that unpacks to 600 MiB."""
    _header(
        path, name, "{'descr': '<f2', 'fortran_order': False, 'shape': (300000000,), }", bytes(600 * 2**20)
    )


def _flip(path: Path, _: str, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 3, 30))):
        # The first and the last bytes have the structure of the archive.
        at = rng.choice(
            (rng.randrange(min(200, len(data))), len(data) - 1 - rng.randrange(min(200, len(data))))
        )
        data[at] = rng.randrange(256)
    path.write_bytes(data)


def _cut(path: Path, _: str, rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))])


def _other_file(path: Path, _: str, rng: random.Random) -> None:
    contents = (
        b"",
        b"PK\x05\x06" + bytes(18),
        b"\x93NUMPY",
        b"x,y\n1,2\n",
        b"\x80\x04]q\x00.",
        b"PK\x03\x04",
    )
    path.write_bytes(rng.choice(contents))


def _members(path: Path, name: str, rng: random.Random) -> None:
    """Write an archive with odd member names, members that are not arrays, or duplicate members."""
    names = (f"{name}.npy", f"../{name}.npy", f"/{name}.npy", name, "", "a\0b.npy", "é" * 300 + ".npy")
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as file:
        warnings.simplefilter("ignore")
        file.writestr(rng.choice(names), rng.choice((b"", b"no array", b"\x93NUMPY\x03\x00")))


_DAMAGES: dict[str, Callable[[Path, str, random.Random], None]] = {
    "a declared shape": _declared,
    "an odd header": _odd_header,
    "much to unpack": _unpacks,
    "some bytes": _flip,
    "cut off": _cut,
    "another file": _other_file,
    "odd members": _members,
}


# Plan files and tables of buffers.


def draw_plan(seed: int) -> Text:
    return Text("plans", *plan_mutants.plan_mutant(seed))


def run_plan(case: Text) -> tuple[str, str]:
    """Compiles the base of plan files with a mutant, and compares its numbers with the CPU's."""
    with _scratch() as folder:
        (folder / "base.mlir").write_text(plan_mutants.BASE, encoding="utf-8")
        (folder / "plan.json").write_text(case.text, encoding="utf-8", errors="surrogatepass")
        made = said(spyre_compile.main, folder / "base.mlir", "-o", folder / "out", "--sencores", "4",
                    "--use-plan", folder / "plan.json", "--check")  # fmt: skip
        wrong = [line for line in made.output.splitlines() if line.startswith("FAIL ")]
        if wrong:
            return WRONG, f"{case.description}: {wrong[0]}"
        return made.outcome() or (RIGHT, case.description)


def draw_table(seed: int) -> Text:
    return Text("csv", *plan_mutants.table_mutant(seed))


def run_table(case: Text) -> tuple[str, str]:
    """Places the buffers of a mutant; the tool checks its plan."""
    with _scratch() as folder:
        (folder / "buffers.csv").write_text(case.text, encoding="utf-8", errors="surrogatepass")
        options = (*table_options(case), "-o", folder / "offsets.csv")
        return said(spyre_plan.main, folder / "buffers.csv", *options).outcome() or (RIGHT, case.description)


def table_options(case: Text) -> tuple[object, ...]:
    """The memory that a table is placed in."""
    rng = random.Random(len(case.text))
    return ("--capacity", rng.choice((1 << 20, 8192, 4096, 1)), "--alignment", rng.choice((1, 128)))
