# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Outcome of a text of IR: a program with its numbers, a diagnostic, or a fault of the compiler."""

from __future__ import annotations

import os
import pickle
import re
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cpu_reference import CpuReference

import spyre_mlir
from spyre_mlir.dialects import context, parsed
from spyre_mlir.driver.checking import compare, random_arguments
from spyre_mlir.errors import CompileError
from spyre_mlir.host import HostEvaluator
from spyre_mlir.mlir import ir

#: How a text can end. A program that cannot be run, and one with other numbers than its IR has on the CPU, are faults.
RIGHT, REFUSED = "right", "refused"
UNRUNNABLE, WRONG, INTERNAL, CRASH, HANG = "unrunnable", "wrong numbers", "internal error", "crash", "hang"
FAULTS = (UNRUNNABLE, WRONG, INTERNAL, CRASH, HANG)


@dataclass(frozen=True)
class Outcome:
    """``text`` is the diagnostic, the traceback, or the signal; ``location`` is the location of the diagnostic."""

    kind: str
    text: str = ""
    location: str = ""
    seconds: float = field(default=0.0, compare=False)


def outcome(text: str, level: str, sencores: int) -> Outcome:
    """Compile IR at a level, in this process, and return the outcome."""
    from_level = "" if level == "linalg" else level
    options = {"sencores": sencores, "from_level": from_level, "fallback": False}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = spyre_mlir.compile(text if "\n" in text else f"{text}\n", **options)
    except CompileError as error:
        return Outcome(REFUSED, error.message, error.location)
    except Exception:
        return Outcome(INTERNAL, traceback.format_exc())
    return _numbers(text, program, level)


def _numbers(text: str, program: spyre_mlir.Program, level: str) -> Outcome:
    """Compare the numbers of a program with the numbers of its IR on the CPU.

    Normal numbers first; where those differ, positive ones have to differ, too: sums of normal ones may cancel.
    """
    given = random_arguments(program.arguments)
    made = _compared(text, program, level, given)
    if made.kind != WRONG:
        return made
    return _compared(text, program, level, {name: np.abs(array) for name, array in given.items()})


def _compared(text: str, program: spyre_mlir.Program, level: str, given: dict[str, np.ndarray]) -> Outcome:
    try:
        results = program.run({**program.arrays, **given})
    except CompileError as error:
        return Outcome(UNRUNNABLE, str(error), error.location)
    except Exception:
        return Outcome(INTERNAL, traceback.format_exc())
    if level == "bundle":
        return Outcome(RIGHT)
    arrays = [given[argument.name] for argument in program.arguments]
    wrong: list[str] = []
    # The CPU rounds each step of an fp16 sum, with an error of some percent: compare with float64 accumulation.
    for reference in (CpuReference, HostEvaluator):
        try:
            with np.errstate(all="ignore"):
                comparisons = compare(program.results, results, reference(_plain(text))(*arrays), "ieee")
        except (CompileError, KeyError) as error:
            return Outcome(RIGHT, f"no reference: {error}")
        wrong = [str(comparison) for comparison in comparisons if not comparison.passed]
        if not wrong:
            return Outcome(RIGHT)
    return Outcome(WRONG, "\n".join(wrong))


def _plain(text: str) -> ir.Module:
    """The meaning of IR at any level but the last: without layouts and copies."""
    module = parsed(text, context())
    plain = re.sub(r", #stick\.layout<#\w+>", "", str(module))
    module = parsed(plain, context())
    copies: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name in ("sdsc.clone", "sdsc.shuffle", "stick.restickify", "stick.pin"):
            copies.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for op in copies:
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()
    return module


def isolated(
    function: Callable[..., Outcome], calls: Sequence[tuple[Any, ...]], seconds: float = 20.0
) -> Iterator[Outcome]:
    """The outcome of each call, in a process that may die or hang; the next call then has another one."""
    begin = 0
    while begin < len(calls):
        receiver, sender = os.pipe()
        child = os.fork()
        if not child:
            os.close(receiver)
            _work(function, calls[begin:], sender)
        os.close(sender)
        for each in _received(receiver, child, len(calls) - begin, seconds):
            begin += 1
            yield each
        os.close(receiver)


def _work(function: Callable[..., Outcome], calls: Sequence[tuple[Any, ...]], sender: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for call in calls:
        begun = time.monotonic()
        try:
            made = function(*call)
        except Exception:
            made = Outcome(INTERNAL, traceback.format_exc())
        data = pickle.dumps(Outcome(made.kind, made.text, made.location, time.monotonic() - begun))
        os.write(sender, len(data).to_bytes(8, "little") + data)
    os._exit(0)


def _received(receiver: int, child: int, count: int, seconds: float) -> Iterator[Outcome]:
    """Yield the outcomes that a child sends, and the outcome that ended it."""
    for _ in range(count):
        ready, _, _ = select.select([receiver], [], [], seconds)
        if not ready:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            yield Outcome(HANG, f"no end after {seconds} s", "", seconds)
            return
        head = os.read(receiver, 8)
        if not head:
            _, status = os.waitpid(child, 0)
            yield Outcome(CRASH, f"the process ended with status {status}")
            return
        size, data = int.from_bytes(head, "little"), b""
        while len(data) < size:
            data += os.read(receiver, size - len(data))
        yield pickle.loads(data)
    os.waitpid(child, 0)
