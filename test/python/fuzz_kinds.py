# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kinds of cases of the fuzzer: how one is drawn from a seed, run, made smaller and written as a file.

A worker gets a ``Ticket``, which is drawn where it runs; case ``k`` of a kind depends on (seed, kind, k) alone.
"""

from __future__ import annotations

import random
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fuzz_case
import fuzz_files
import fuzz_minimise
import fuzz_named_dims
import fuzz_programs
import fuzz_ways
import ir_mutants
import ir_outcomes
from fuzz_recipes import RECIPES, Recipe
from fuzz_workers import INTERNAL, REFUSED, RIGHT, SKIPPED, WRONG

from spyre_mlir.errors import CompileError


@dataclass(frozen=True)
class Ticket:
    """Case number ``index`` of a kind; ``case`` is set for one that is not as it was drawn."""

    kind: str
    seed: int
    index: int
    case: Any = None

    @property
    def case_seed(self) -> int:
        return zlib.crc32(f"{self.seed} {self.kind} {self.index}".encode())

    def drawn(self) -> Any:
        """The case itself. Some mutants are nested deeply, which the limit of what runs them must not see."""
        if self.case is not None:
            return self.case
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(20_000)
        try:
            return KINDS[self.kind].draw(self.case_seed)
        finally:
            sys.setrecursionlimit(limit)

    def __str__(self) -> str:
        return f"{self.kind} {self.index} of seed {self.seed}"


@dataclass(frozen=True)
class Kind:
    """Operations on cases of a kind; ``write`` takes a path without a suffix and returns the path of the file."""

    draw: Callable[[int], Any]
    run: Callable[[Any], tuple[str, str]]
    smaller: Callable[[Any], Iterator[Any]]
    write: Callable[[Any, str, Path], Path]


def run(ticket: Ticket) -> tuple[str, str]:
    """Draws and runs a case: its outcome and why."""
    return KINDS[ticket.kind].run(ticket.drawn())


# Programs.


def _run_program(case: fuzz_case.Case) -> tuple[str, str]:
    try:
        fuzz_case.oracle(case)
    except Exception as error:  # PyTorch refuses the program
        return SKIPPED, str(error)
    return fuzz_case.run(case)


def _write_program(case: fuzz_case.Case, header: str, path: Path) -> Path:
    path = path.with_suffix(".py")
    path.write_text(fuzz_case.as_file(case, f"{header}\n\n    python {path.name}\n"), encoding="utf-8")
    return path


# Programs that run in a way of their own.


def _of_recipe(recipe: Recipe) -> Kind:
    way = fuzz_ways.WAYS[recipe.way]
    return Kind(
        recipe.case,
        lambda case: fuzz_ways.run(case, way),
        _smaller_of_way,
        lambda case, header, path: fuzz_ways.write(case, way, header, path),
    )


def _smaller_of_way(case: fuzz_case.Case) -> Iterator[fuzz_case.Case]:
    """Fewer calls and less to do after them, and smaller programs."""
    for key, value in (("written", ()), ("alias", {}), ("violated", []), ("calls", 1), ("granularity", 0)):
        if case.how.get(key, value) != value:
            yield replace(case, how={**case.how, key: value})
    yield from fuzz_minimise.smaller_programs(case)


# Hints.


def _run_hinted(program: fuzz_named_dims.NamedProgram) -> tuple[str, str]:
    try:
        outcome = fuzz_named_dims.run(program, with_unhinted=False)
    except CompileError as error:
        return REFUSED, error.message
    except AssertionError as error:
        return WRONG, str(error).splitlines()[-1]
    return (REFUSED, outcome.problem) if outcome.problem else (RIGHT, "")


def _write_hinted(program: fuzz_named_dims.NamedProgram, header: str, path: Path) -> Path:
    path = path.with_suffix(".py")
    path.write_text(f'"""{header}"""\n\n{program.text()}\n', encoding="utf-8")
    return path


# IR.


@dataclass(frozen=True)
class IrCase:
    """A text at a level, and a description of its change."""

    level: str
    sencores: int
    description: str
    text: str


def _draw_ir(seed: int) -> IrCase:
    rng = random.Random(seed)
    name, level = rng.choice(ir_mutants.sources())
    mutant = next(ir_mutants.mutants(ir_mutants.source(name, level), rng.randrange(2**31)))
    return IrCase(level, ir_mutants.SOURCES[name][2], mutant.description, mutant.text)


#: Classes of IR outcomes in the table. A program that the simulator refuses has passed checks that should refuse it.
_OF_IR = {
    ir_outcomes.RIGHT: RIGHT,
    ir_outcomes.REFUSED: REFUSED,
    ir_outcomes.UNRUNNABLE: REFUSED,
    ir_outcomes.WRONG: WRONG,
    ir_outcomes.INTERNAL: INTERNAL,
}


def _run_ir(case: IrCase) -> tuple[str, str]:
    outcome = ir_outcomes.outcome(case.text, case.level, case.sencores)
    lines = outcome.text.strip().splitlines() or [""]
    why = lines[-1] if outcome.kind == ir_outcomes.INTERNAL else lines[0]
    return _OF_IR[outcome.kind], f"{case.level}: {case.description}: {why}"[:400]


def _smaller_ir(case: IrCase) -> Iterator[IrCase]:
    for lines in fuzz_minimise.smaller_lists(tuple(case.text.splitlines())):
        yield replace(case, text="\n".join(lines) + "\n")


def _write_ir(case: IrCase, header: str, path: Path) -> Path:
    path = path.with_suffix(".mlir")
    command = f'spyre-opt {path.name} --spyre-pipeline="sencores={case.sencores}'
    command += "" if case.level == "linalg" else f" from-level={case.level}"
    text = "".join(f"// {line}\n" for line in (*header.splitlines(), f'{command}"'))
    path.write_text(f"{text}{case.text}", encoding="utf-8", errors="surrogatepass")
    return path


# Files.


def _never_smaller(_: Any) -> Iterator[Any]:
    """A mutant with one change of a small base."""
    return iter(())


def _smaller_text(case: fuzz_files.Text) -> Iterator[fuzz_files.Text]:
    for lines in fuzz_minimise.smaller_lists(tuple(case.text.splitlines(keepends=True))):
        yield replace(case, text="".join(lines))


def _write_bundle(case: fuzz_files.FileCase, header: str, path: Path) -> Path:
    path.mkdir()
    change = fuzz_files.bundle_files(case, path)
    shutil.copyfile(fuzz_files.base_folder(case.base) / "in.npz", path / "in.npz")
    command = "spyre-validate bundle; spyre-run bundle --inputs in.npz --outputs out.npz"
    (path / "README").write_text(f"{header}\n{change}\n{command}\n", encoding="utf-8")
    return path


def _write_arrays(case: fuzz_files.FileCase, header: str, path: Path) -> Path:
    path.mkdir()
    change = fuzz_files.arrays_file(case, path)
    shutil.copytree(fuzz_files.base_folder(case.base) / "bundle", path / "bundle")
    command = "spyre-run bundle --inputs in.npz --outputs out.npz"
    (path / "README").write_text(f"{header}\n{change}\n{command}\n", encoding="utf-8")
    return path


def _write_plan(case: fuzz_files.Text, header: str, path: Path) -> Path:
    plan = path.with_suffix(".json")
    plan.write_text(case.text, encoding="utf-8", errors="surrogatepass")
    command = f"spyre-compile {path.name}.mlir -o out --sencores 4 --use-plan {plan.name} --check"
    text = "".join(f"// {line}\n" for line in (*header.splitlines(), command))
    path.with_suffix(".mlir").write_text(text + fuzz_files.plan_mutants.BASE, encoding="utf-8")
    return path.with_suffix(".mlir")


def _write_table(case: fuzz_files.Text, header: str, path: Path) -> Path:
    path = path.with_suffix(".csv")
    path.write_text(case.text, encoding="utf-8", errors="surrogatepass")
    command = f"spyre-plan {path.name} {' '.join(map(str, fuzz_files.table_options(case)))}"
    path.with_suffix(".txt").write_text(f"{header}\n{command}\n", encoding="utf-8")
    return path


KINDS: dict[str, Kind] = {
    "programs": Kind(fuzz_programs.draw, _run_program, fuzz_minimise.smaller_programs, _write_program),
    **{name: _of_recipe(recipe) for name, recipe in RECIPES.items()},
    "hints": Kind(fuzz_named_dims.named_program, _run_hinted, _never_smaller, _write_hinted),
    "ir": Kind(_draw_ir, _run_ir, _smaller_ir, _write_ir),
    "bundles": Kind(fuzz_files.draw_bundle, fuzz_files.run_bundle, _never_smaller, _write_bundle),
    "plans": Kind(fuzz_files.draw_plan, fuzz_files.run_plan, _smaller_text, _write_plan),
    "npz": Kind(fuzz_files.draw_arrays, fuzz_files.run_arrays, _never_smaller, _write_arrays),
    "csv": Kind(fuzz_files.draw_table, fuzz_files.run_table, _smaller_text, _write_table),
}
