# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models whose shapes or branches depend on values: one program for each piece between two such points.

``compile`` returns a ``PiecewiseProgram`` for a model that torch.export cannot capture as one graph of static shapes.
Each call runs the model's Python code on tensors without values (``frontend/model_calls.py``). When Python needs a
value, the piece up to that point runs on the device, and PyTorch runs the deciding function on the host. The next piece
is then compiled for the actual sizes and branch. Equal pieces share a program.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from spyre_mlir.driver.program import Program, Traffic
from spyre_mlir.driver.program_figures import host_share, host_work_warning
from spyre_mlir.driver.report_files import write_page_of_programs
from spyre_mlir.driver.steps import BundleStep, Step
from spyre_mlir.errors import CompileError, HostWorkWarning, RecompileWarning, counted
from spyre_mlir.faults import faults_reported, is_placed
from spyre_mlir.frontend.model_calls import Cause, ModelCalls, ModelPiece
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import Remark
from spyre_mlir.report.summary import Row, table
from spyre_mlir.target.target import default_target

#: Number of programs of one model at which the first warning is issued, and then at each doubling.
MOST_PROGRAMS_UNWARNED = 32
#: Maximum number of programs kept; an evicted program is compiled again when it is needed.
_MAX_PROGRAMS = 1024
_MOST_LINES = 12
#: Metrics that are not sums over the pieces.
_PEAKS, _MEAN, _SHARE = {"lx_peak_bytes"}, "mean_cores", "host_flop_share"


@dataclass(frozen=True)
class PieceRun:
    """One piece of a call: its program, and the reason why the piece ends."""

    program: Program
    cause: Cause


class PiecewiseProgram:
    """A model that runs in pieces: call it like the model.

    Attributes:
        reason: Why the model is not one program.
        programs: The programs of all pieces, in order of last use.
        compilations: The number of compiled programs, including evicted programs.
        last: The pieces of the last call, in order.
        host_calls: The functions that PyTorch ran between the pieces of the last call.
    """

    def __init__(
        self, model: Any, example_inputs: Any, compile: Callable[[Any, Any], Program], reason: CompileError
    ) -> None:
        """Compile the pieces of a ``model`` that a call with ``example_inputs`` needs.

        ``compile(function, inputs)`` compiles one piece; ``reason`` is why the model is not one program.
        ``spyre_mlir.compile`` calls this.
        """
        self.reason: CompileError = reason
        self.programs: OrderedDict[Hashable, Program] = OrderedDict()
        self.compilations: int = 0
        self.last: list[PieceRun] = []
        self.host_calls: list[Cause] = []
        self._compile = compile
        self._calls = ModelCalls(model)
        self._is_rehearsal = True
        self._has_warned_of_host_work = False
        try:
            self._calls.rehearse(self, example_inputs)
        except CompileError:
            raise
        # The model itself fails on the example inputs; ``reason`` is the more useful error.
        except Exception as error:
            if is_placed(error):
                raise
            raise reason from error
        self._is_rehearsal = False
        self._warn_of_host_work(list(self.programs.values()), stacklevel=4)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run the model on ``inputs`` and ``named`` inputs; pieces with new sizes or branches are compiled first."""
        self.last, self.host_calls = [], []
        return self._calls.call(self, inputs, named)

    @faults_reported()
    def run_piece(self, piece: ModelPiece) -> Sequence[Any]:
        """Run a piece as its program; during compilation run it in PyTorch, because only its values are needed."""
        program = self._program_for(piece)
        self.last.append(PieceRun(program, piece.cause))
        return piece.function(*piece.inputs) if self._is_rehearsal else program(*piece.inputs)

    def note_host_call(self, cause: Cause, is_work: bool) -> None:
        """Record a function that PyTorch ran on the host; warn once if one may compute on floats."""
        self.host_calls.append(cause)
        if is_work and not self._has_warned_of_host_work:
            self._has_warned_of_host_work = True
            sentence = f"PyTorch runs {cause} on the host, because its result decides a shape or a branch."
            warnings.warn(sentence, HostWorkWarning, stacklevel=2)

    def _program_for(self, piece: ModelPiece) -> Program:
        # Popped and inserted again, to keep the programs in order of last use.
        program = self.programs.pop(piece.key, None)
        if program is None:
            program = self._compile(piece.function, piece.inputs)
            self.compilations += 1
            if not self._is_rehearsal:
                self._warn_of_host_work([program], stacklevel=2)
            self._warn_of_compilations(piece)
        self.programs[piece.key] = program
        if len(self.programs) > _MAX_PROGRAMS:
            self.programs.popitem(last=False)
        return program

    @property
    def steps(self) -> list[Step]:
        """The steps of the last call; the steps of a piece are repeated for each of its runs."""
        return [step for run in self.last for step in run.program.steps]

    @property
    def bundles(self) -> list[BundleStep]:
        """The steps of the last call that run on the device."""
        return [step for step in self.steps if isinstance(step, BundleStep)]

    @property
    def remarks(self) -> list[Remark]:
        """The decisions of all passes in all programs."""
        return [remark for program in self.programs.values() for remark in program.remarks]

    def traffic(self) -> Traffic:
        """Return the HBM bytes of the last call; each run of a piece counts with the traffic of its last run.

        Raises:
            CompileError: The program has not run yet.
        """
        if not self.last or self._is_rehearsal:
            raise CompileError("The program has not run yet; call it first.")
        parts = [run.program.traffic() for run in self.last]
        return Traffic(
            sum(part.read_bytes for part in parts),
            sum(part.written_bytes for part in parts),
            tuple(entry for part in parts for entry in part.by_op),
        )

    @faults_reported()
    def metrics(self) -> dict[str, float]:
        """Return the figures of ``Program.metrics``, combined over the pieces of the last call, and three counts.

        The counts are ``pieces`` of the last call, ``programs`` compiled so far, and ``host_calls`` between the pieces.
        The work of host calls is unknown: each counts with the start of a host function.
        """
        parts = [run.program.metrics() for run in self.last]
        names = list(parts[0]) if parts else []
        weights = [part["predicted_us"] for part in parts]
        figures = {name: math.fsum(part[name] for part in parts) for name in names}
        figures.update({name: max(part[name] for part in parts) for name in names if name in _PEAKS})
        if parts:
            cores = math.fsum(part[_MEAN] * part["predicted_us"] for part in parts)
            figures[_MEAN] = cores / math.fsum(weights) if math.fsum(weights) else 0.0
            figures[_SHARE] = host_share(self.steps)
        for name, rate in zip(
            ("total_least_us", "total_most_us"), default_target().host.call_ns, strict=True
        ):
            figures[name] = figures.get(name, 0.0) + len(self.host_calls) * rate / 1000
        started_us = len(self.host_calls) * math.sqrt(math.prod(default_target().host.call_ns)) / 1000
        for name in ("host_us", "total_us"):
            figures[name] = figures.get(name, 0.0) + started_us
        counts = {"pieces": len(parts), "programs": self.compilations, "host_calls": len(self.host_calls)}
        return {**figures, **counts}

    @faults_reported()
    def summary(self) -> str:
        """Return a summary: why the model runs in pieces, why each piece ends, the host calls, and each program."""
        numbers = {id(program): index for index, program in enumerate(self.programs.values())}
        rows: list[Row] = [
            ("in pieces", str(self.reason).replace("error: ", "")),
            ("programs", f"{self.compilations} compiled, for the sizes and branches of the calls so far"),
            (
                "last call",
                f"{counted(len(self.last), 'piece')}, {counted(len(self.host_calls), 'PyTorch function')} between them",
            ),
            *_counted(
                "piece",
                [f"program {numbers.get(id(run.program), '-')}, until {run.cause}" for run in self.last],
            ),
            *_counted("on the host", [str(cause) for cause in self.host_calls]),
            ("", f"{host_share(self.steps):.2%} of the floating-point operations of the pieces"),
        ]
        pages = [table(rows)]
        for program, index in ((program, numbers[id(program)]) for program in self.programs.values()):
            title = f"program {index}"
            pages.append(f"{title}\n{'-' * len(title)}\n{program.summary() if program.steps else 'no steps'}")
        return "\n\n".join(pages)

    def __repr__(self) -> str:
        pieces = f"{counted(len(self.last), 'piece')} in the last call" if self.last else "not called yet"
        return f"<spyre_mlir.PiecewiseProgram: {self.compilations} programs, {pieces}>"

    @faults_reported()
    def report(self, path: str | Path) -> Path:
        """Write one HTML page with the reports of all programs, and the pieces of the last call.

        Args:
            path: The output file.
        """
        programs = list(self.programs.values())
        numbers = {id(program): index for index, program in enumerate(programs)}
        notes = [f"The model runs in pieces. {self.reason.message}"]
        notes += [
            f"Last call, piece {index}: program {numbers.get(id(run.program), '-')}, until {run.cause}"
            for index, run in enumerate(self.last[:_MOST_LINES])
        ]
        if len(self.last) > _MOST_LINES:
            notes.append(f".. and {counted(len(self.last) - _MOST_LINES, 'more piece')}")
        titles = [f"program {index}" for index in range(len(programs))]
        reports = [(title, program.as_report(title)) for title, program in zip(titles, programs, strict=True)]
        return write_page_of_programs(path, notes, reports)

    def save(self, folder: str | Path, **_: Any) -> None:
        """Raise ``CompileError``: the model's Python code runs between the pieces, so ``folder`` cannot contain it."""
        raise CompileError(
            f"A program in pieces, between which Python decides, cannot be saved in '{folder}'; "
            "save the programs in 'programs', or write the model without the decision.",
            self.reason.location,
        )

    def plan(self) -> Mapping[str, Any]:
        """Raise ``CompileError``: only a program of one bundle has a plan."""
        raise CompileError("A program that runs in pieces has no plan; the programs in 'programs' may have.")

    def _warn_of_host_work(self, programs: Sequence[Program], stacklevel: int) -> None:
        steps = [step for program in programs for step in program.steps]
        remarks = [remark for program in programs for remark in program.pass_remarks]
        if self._has_warned_of_host_work:
            return
        if sentence := host_work_warning(steps, remarks):
            self._has_warned_of_host_work = True
            warnings.warn(sentence, HostWorkWarning, stacklevel=stacklevel)

    def _warn_of_compilations(self, piece: ModelPiece) -> None:
        count = self.compilations
        if count >= MOST_PROGRAMS_UNWARNED and not count & (count - 1):
            warnings.warn(
                f"{count} programs are compiled for the values on which shapes and branches depend, the last one until "
                f"{piece.cause}; pad to a few sizes, or keep numbers in tensors instead of Python.",
                RecompileWarning,
                stacklevel=2,
            )


def _counted(name: str, lines: Sequence[str]) -> list[Row]:
    """Return one row per distinct line, with its count, in order of first occurrence."""
    counts = Counter(lines)
    shown = [f"{count} x {line}" for line, count in counts.items()]
    if len(shown) > _MOST_LINES:
        shown = [*shown[:_MOST_LINES], f".. and {len(shown) - _MOST_LINES} more"]
    return [(name if index == 0 else "", line) for index, line in enumerate(shown)]
