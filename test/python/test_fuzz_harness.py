# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The fuzzer: a few fixed cases of each kind find no fault, and planted faults are found and minimised."""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import fuzz_kinds
import fuzz_planted
import numpy as np
import pytest
import torch
from fuzz_case import Case, Statement, complaint, oracle, refusal
from fuzz_inputs import Input
from fuzz_minimise import minimise, smaller_lists, smaller_programs
from fuzz_programs import draw
from fuzz_recipes import RECIPES
from fuzz_workers import FAILURES, Workers

import spyre_mlir
from benchmarks import __main__ as command
from spyre_mlir.errors import CompileError
from spyre_mlir.simulator.run_outcome import SimulationError

#: How many mutants and programs run here: a minute together.
COUNTS = {"programs": 14, "ir": 25, "bundles": 20, "plans": 10, "npz": 16, "csv": 50}
SEED = 17

#: How many programs of the other kinds run in ``make check``: a minute together.
PROGRAMS = {
    "sizes": 3, "state": 6, "loops": 5, "hints": 2, "bytes": 8, "types": 8, "specials": 8, "asserts": 4, "eager": 6,
    "graphs": 4, "gradients": 3, "ktir": 6, "saved": 5, "threads": 6,
}  # fmt: skip


@pytest.fixture(scope="module")
def workers():
    with Workers(fuzz_kinds.run) as workers:
        yield workers


def are_no_faults(workers: Workers, kind: str, count: int) -> None:
    """Right, or refused with a diagnostic; and some are right."""
    tickets = (fuzz_kinds.Ticket(kind, SEED, index) for index in range(count))
    outcomes = [(str(ticket), outcome) for ticket, outcome in workers.map(tickets)]
    faults = [f"{ticket}: {o.kind}: {o.why}" for ticket, o in outcomes if o.kind in FAILURES]
    assert not faults, "\n".join(faults)
    assert any(outcome.kind == "right" for _, outcome in outcomes)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", COUNTS)
def test_cases_of_a_fixed_seed_are_no_faults(workers, kind):
    are_no_faults(workers, kind, COUNTS[kind])


@pytest.mark.sampled(len(PROGRAMS))
@pytest.mark.parametrize("kind", PROGRAMS)
def test_programs_of_a_kind_are_no_faults(workers, kind):
    if kind == "ktir":
        pytest.importorskip("ktir_cpu")
    are_no_faults(workers, kind, PROGRAMS[kind])


@pytest.mark.parametrize("kind", fuzz_kinds.KINDS)
def test_a_case_is_a_function_of_seed_kind_and_number(kind):
    first, again, other = (fuzz_kinds.Ticket(kind, seed, 3).drawn() for seed in (5, 5, 6))
    assert first == again and first != other


# Planted faults.

X = Input("x0", (3, 4), "torch.float16", seed=1)
CHAIN = (
    Statement("v0", "{0} + 1", ("x0",)),
    Statement("v1", "torch.relu({0})", ("v0",)),
    Statement("v2", "FAULT({0})", ("v1",)),
    Statement("v3", "{0} * {1}", ("v2", "v0")),
    Statement("v4", "{0}.sum(1)", ("v3",)),
)


def planted(operation: str) -> Case:
    """Five statements of which one has a fault."""
    statements = tuple(replace(each, text=each.text.replace("FAULT(", operation)) for each in CHAIN)
    return Case((X,), statements, ("v1", "v4"), "dict", options={"sencores": 4})


@pytest.fixture(scope="module")
def with_faults():
    with Workers(fuzz_planted.run, jobs=2, seconds=1.0, memory_bytes=2**30) as workers:
        yield workers


@pytest.mark.parametrize(
    "operation, kind, why",
    [
        ("torch.exp(", "wrong", "instead of"),
        ("torch.tanh(", "internal", "KeyError: 'planted'"),
        ("torch.sigmoid(", "crash", "SIGSEGV"),
        ("torch.sin(", "hang", "still runs"),
        ("torch.cos(", "hang", "still runs"),
        ("torch.erf(", "internal", "MemoryError"),
        ("torch.log1p(", "refused", "not one of the device"),
        ("torch.square(", "right", ""),
    ],
)
def test_a_planted_fault_is_seen(with_faults, operation, kind, why):
    """A worker that the fault has killed is replaced: the next case runs."""
    outcome = with_faults.one(planted(operation))
    assert outcome.kind == kind and why in outcome.why
    assert with_faults.one(planted("torch.square(")).kind == "right"


@pytest.mark.parametrize("operation, kind", [("torch.exp(", "wrong"), ("torch.sigmoid(", "crash")])
def test_a_planted_fault_is_made_small(with_faults, operation, kind):
    """The minimised case has one input, no options, and only the statement with the fault."""
    small = minimise(planted(operation), smaller_programs, lambda case: with_faults.one(case).kind == kind)
    assert [each.text for each in small.statements] == [f"{operation}{{0}})"]
    assert len(small.inputs) == 1 and not small.options and small.structure == "tuple"


def test_lists_are_cut_down_to_what_fails():
    small = minimise(tuple(range(40)), smaller_lists, lambda parts: {7, 31} <= set(parts), tries=200)
    assert small == (7, 31)


# Kinds of programs that run in a way of their own.


def outcomes(kind: str, count: int) -> list[tuple[str, str]]:
    """Return the outcomes of the first cases of a kind, run in this process."""
    return [fuzz_kinds.run(fuzz_kinds.Ticket(kind, SEED, index)) for index in range(count)]


@pytest.mark.sampled(20)
@pytest.mark.parametrize("kind", fuzz_planted.OF_KINDS)
def test_pytorch_as_a_compiler_is_right(kind):
    """PyTorch in place of the compiler has no fault, for every program of every kind."""
    with fuzz_planted.compiler(fuzz_planted.Faithful):
        found = outcomes(kind, 30)
    assert {name for name, _ in found} <= {"right", "skipped"}, found
    assert sum(name == "right" for name, _ in found) > 25


@pytest.mark.sampled(20)
@pytest.mark.parametrize("kind", fuzz_planted.OF_KINDS)
def test_a_fault_of_a_kind_is_seen(kind):
    """Rows of other sizes, lost writes, signed bytes, wide results, lost NaN, assertions, inputs that threads share."""
    with fuzz_planted.compiler(fuzz_planted.OF_KINDS[kind]):
        assert "wrong" in {name for name, _ in outcomes(kind, 30)}


def of_way(kind: str, text: str, **how: object) -> tuple[str, str]:
    """The outcome of a program of one statement, whose input is 3 x 4 numbers."""
    case = Case((X,), (Statement("v0", text, ("x0",)),), ("v0",), how={"calls": 1, **how})
    return fuzz_kinds.KINDS[kind].run(case)


def test_a_fault_of_a_backend_is_seen():
    """In results, and in gradients, on the device and off it."""
    backend = fuzz_planted.wrong_backend
    assert of_way("graphs", "torch.tanh({0})", written=(), backend=backend)[0] == "wrong"
    assert of_way("gradients", "torch.tanh({0})", device="cpu", backend=backend)[0] == "wrong"
    assert of_way("gradients", "torch.tanh({0})", device="cpu", backend="eager")[0] == "right"


def test_a_lost_write_on_the_device_is_seen(monkeypatch):
    """A result that is a view, which is written to: the input changes with it, or else that is wrong."""
    assert of_way("eager", "{0}[1:]", written=(0,), backend=None)[0] == "right"
    monkeypatch.setattr("spyre_mlir.frontend.torch_device._in_place", lambda _, args, *__: args[0])
    assert of_way("eager", "{0}[1:]", written=(0,), backend=None)[0] == "wrong"


class NoNumbers:
    """A loaded program that returns zeros."""

    arrays: Mapping[str, Any] = {}

    def run(self, arrays: Mapping[str, Any]) -> list[np.ndarray]:
        return [np.zeros((3, 4), np.float16)]


def test_other_bits_of_a_loaded_program_are_seen(monkeypatch):
    how = {"laid out": False}
    assert of_way("saved", "torch.tanh({0})", **how)[0] == "right"
    monkeypatch.setattr(spyre_mlir.Program, "load", lambda _: NoNumbers())
    kind, why = of_way("saved", "torch.tanh({0})", **how)
    assert (kind, why) == ("wrong", "value 1: other bits instead of the same bits")


# The rule of right results.

ADDED = Case((X,), (Statement("v0", "{0} + 1", ("x0",)),), ("v0",))


@pytest.mark.parametrize(
    "text, change",
    [
        ("instead of", lambda y, x: [y + 0.02, x]),
        ("instead of", lambda y, x: [y.index_fill(0, torch.tensor(1), torch.nan), x]),
        ("instead of", lambda y, x: [y.index_fill(0, torch.tensor(1), torch.inf), x]),
        ("[4, 3] instead of", lambda y, x: [y.T, x]),
        ("torch.float32 [3, 4] instead of", lambda y, x: [y.float(), x]),
        ("an input after the call", lambda y, x: [y, x * 2]),
        ("1 results instead of 2", lambda y, x: [y]),
        ("", lambda y, x: [y * 1.0005, x]),
    ],
)
def test_results_that_are_off_are_seen(text, change):
    """Numbers, NaN, infinities, shapes, types, inputs that are changed; a rounding step is right."""
    expected = oracle(ADDED)
    said = complaint(ADDED, change(*(x.clone() for x in expected.typed)), expected)
    assert text in said if text else not said


def test_where_pytorch_overflows_its_value_and_that_of_float64_are_right():
    large = Input("x0", (2,), "torch.float16", literal=(60000.0, 1.0))
    case = Case((large,), (Statement("v0", "({0} * 2 - {0})", ("x0",)),), ("v0",))
    expected = oracle(case)
    for first, is_right in ((torch.inf, True), (60000.0, True), (0.0, False)):
        result = torch.tensor([first, 1.0]).half()
        assert (complaint(case, [result, expected.typed[1]], expected) == "") == is_right


def test_bit_true_numbers_may_be_off_by_what_rounded_inputs_make():
    """exp of 8.1 from nine bits of mantissa; IEEE numbers may not."""
    x = Input("x0", (1,), "torch.float16", literal=(8.1015625,))
    case = Case((x,), (Statement("v0", "torch.exp({0})", ("x0",)),), ("v0",), options={"numerics": "dl16"})
    result = torch.exp(torch.tensor([8.09375])).half()
    expected = oracle(case)
    assert not complaint(case, [result, expected.typed[1]], expected)
    case = replace(case, options={})
    assert complaint(case, [result, expected.typed[1]], oracle(case))


def test_what_the_simulator_or_a_verifier_refuses_is_a_fault():
    """Numbers that are too large are the caller's; an overlap in device memory is the compiler's."""
    noted = CompileError("'tanh' runs on f16, not on f32.")
    noted.add_note("while running the pass 'verify-device-ops'")
    assert refusal(noted)[0] == refusal(SimulationError("overlap", "it overlaps"))[0] == "internal"
    assert refusal(SimulationError("range", "it holds 1e9"))[0] == refusal(CompileError("no"))[0] == "refused"


# Files and the command.


@pytest.mark.parametrize("index", range(6))
def test_a_program_as_a_file_runs_alone(tmp_path, capsys, index):
    """Buffers, keyword inputs, infinities: the file has the elements themselves."""
    ticket = fuzz_kinds.Ticket("programs", SEED, index)
    path = fuzz_kinds.KINDS["programs"].write(ticket.drawn(), str(ticket), tmp_path / "case")
    compile(path.read_text(), str(path), "exec")
    if index == 0:
        runpy.run_path(str(path))
        assert "PyTorch:" in capsys.readouterr().out


@pytest.mark.sampled(20)
@pytest.mark.parametrize("kind", RECIPES)
def test_a_program_of_a_kind_as_a_file_runs_alone(tmp_path, capsys, monkeypatch, kind):
    """The file has the function that runs the program, PyTorch's side of it, and all inputs of every call."""
    path = fuzz_kinds.KINDS[kind].write(fuzz_kinds.Ticket(kind, SEED, 1).drawn(), kind, tmp_path / "case")
    compile(path.read_text(), str(path), "exec")
    if kind in fuzz_planted.OF_KINDS and kind != "loops":
        monkeypatch.setattr("spyre_mlir.compile", fuzz_planted.Faithful)
        runpy.run_path(str(path))
        assert "value 0: got" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["ir", "bundles", "plans", "npz", "csv"])
def test_a_mutant_as_a_file_names_its_command(tmp_path, kind):
    path = fuzz_kinds.KINDS[kind].write(fuzz_kinds.Ticket(kind, 1, 0).drawn(), "header", tmp_path / "case")
    texts = [each for each in (path, path / "README", path.with_suffix(".txt")) if each.is_file()]
    assert any("spyre-" in each.read_text(errors="replace") for each in texts)


def test_the_command_takes_options_of_the_benchmark(capsys, tmp_path):
    """A table with a row per kind; unknown kinds and options are a sentence."""
    assert command.main(["fuzz", "--count", "3", "--seed", "2", "--kind", "csv"]) == 0
    assert "| csv " in capsys.readouterr().out
    assert command.main(["fuzz", "--kind", "zzz"]) == 1
    assert "error: There is no kind of cases 'zzz'" in capsys.readouterr().err
    assert command.main(["fuzz", "--count", "many"]) == 1
    assert "error: The option '--count'" in capsys.readouterr().err
    assert command.main(["startup", "--count", "3"]) == 1
    assert "error: No benchmark that is run has an option '--count'" in capsys.readouterr().err


def test_programs_are_of_many_operations():
    """200 programs have a hundred texts of statements, all types and structures."""
    cases = [draw(seed) for seed in range(200)]
    texts = {each.text.split("(")[0] for case in cases for each in case.statements}
    assert len(texts) > 100
    assert {case.structure for case in cases} == {"tuple", "list", "dict"}
    assert len({each.dtype for case in cases for each in case.inputs}) >= 7
