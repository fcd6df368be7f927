# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Digests of compiled programs, to compare before and after a change that must not change programs."""

from __future__ import annotations

import hashlib
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure import ROOT
from benchmarks.programs import models, op_coverage, programs, suite, suite_linalg
from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.errors import CompileError

#: The SHA-256 of each file of a program's folder; empty for a program that is refused.
Digests = Mapping[str, str]

KINDS = ("tests", "operations", "suite", "zoo", "mlir")

#: The comment between two inputs in one file, as for ``--split-input-file``.
_SPLIT = "// -----"


@benchmark(different=0)
def fingerprints(write: str = "", against: str = "", kind: str = ",".join(KINDS)) -> Metrics:
    """SHA-256 of every file of the programs of the tests, the suite and the zoo, compiled with the defaults.

    ``write`` is a JSON file for them, ``against`` a file of another commit to compare with: ``different`` counts
    programs with a file that differs, programs that only this commit refuses, and programs that are absent. The notes
    name them.
    """
    digests = {name: _digests(compiled) for name, compiled in compiled_programs(kind.split(","))}
    if write:
        Path(write).write_text(json.dumps(digests, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    notes = differences(_of_kinds(read(against), kind.split(",")), digests) if against else []
    files = sum(map(len, digests.values()))
    refused = sum(not files for files in digests.values())
    return Noted(
        {"programs": len(digests), "refused": refused, "files": files, "different": len(notes)}, notes
    )


def compiled_programs(kinds: list[str]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield programs of some kinds by name, each with its compile function; ``CompileError`` for an unknown kind."""
    unknown = [name for name in kinds if name not in KINDS]
    if unknown:
        raise CompileError(f"There is no kind of programs '{unknown[0]}'; there are {', '.join(KINDS)}.")
    if "tests" in kinds:
        yield from ((f"tests/{name}", _of_model(model)) for name, model in programs().items())
    if "operations" in kinds:
        yield from ((f"operations/{name}", _of_model(model)) for name, model in op_coverage().ALL.items())
    if "suite" in kinds:
        yield from ((f"suite/{name}", _of_suite(name)) for name in suite().SUITE)
    if "zoo" in kinds:
        yield from ((f"zoo/{name}", _of_zoo(name)) for name in models().MODELS)
    if "mlir" in kinds:
        yield from _of_files()


def _of_model(factory: Callable[[], tuple]) -> Callable[[], Any]:
    def compiled() -> Any:
        import spyre_mlir

        model, inputs = factory()
        return spyre_mlir.compile(model, inputs)

    return compiled


def _of_suite(name: str) -> Callable[[], Any]:
    def compiled() -> Any:
        import spyre_mlir

        return spyre_mlir.compile(suite_linalg(name))

    return compiled


def _of_zoo(name: str) -> Callable[[], Any]:
    def compiled() -> Any:
        import spyre_mlir

        return spyre_mlir.compile(*models().model(name, models().REDUCED))

    return compiled


def _of_files() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the inputs in .mlir files of the tests that a compiler accepts as whole programs, part by part."""
    for path in sorted((ROOT / "test").rglob("*.mlir")):
        for number, text in enumerate(path.read_text(encoding="utf-8").split(_SPLIT)):
            yield f"{path.relative_to(ROOT).as_posix()}:{number}", _of_text(text)


def _of_text(text: str) -> Callable[[], Any]:
    def compiled() -> Any:
        import spyre_mlir

        return spyre_mlir.compile(text)

    return compiled


def _digests(compiled: Callable[[], Any]) -> Digests:
    """Return the digests of a program's files, by path; empty for a program that is refused."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        saved = Path(folder) / "program"
        try:
            compiled().save(saved)
        except CompileError:
            return {}
        files = sorted(path for path in saved.rglob("*") if path.is_file())
        return {
            path.relative_to(saved).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files
        }


def read(path: str) -> Mapping[str, Digests]:
    """Return the fingerprints in a file of ``write``; ``CompileError`` if it has none."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CompileError(f"The fingerprints '{path}' cannot be read: {error}.") from None


def _of_kinds(digests: Mapping[str, Digests], kinds: list[str]) -> Mapping[str, Digests]:
    """Return the fingerprints of the compared kinds; the name of a .mlir file of the tests is its path."""
    folders = tuple("test/" if kind == "mlir" else f"{kind}/" for kind in kinds)
    return {name: files for name, files in digests.items() if name.startswith(folders)}


def differences(before: Mapping[str, Digests], now: Mapping[str, Digests]) -> list[str]:
    """Return a line for each earlier program that has changed."""
    return [
        f"{name}: {_difference(files, now.get(name))}"
        for name, files in before.items()
        if files != now.get(name)
    ]


def _difference(before: Digests, now: Digests | None) -> str:
    if now is None:
        return "no longer among the programs"
    if not now or not before:
        return "refused" if before else "no longer refused"
    differing = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    return f"{len(differing)} of {len(now)} files differ, first {differing[0]}"
