# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A compiled program: run it on the simulator, query its costs, save it and load it.

``Program`` is data; the functions over it are in the modules that it imports.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from spyre_mlir.bundle.model import Bundle
from spyre_mlir.bundle.sequence import join
from spyre_mlir.cost.work import ProgramBound
from spyre_mlir.dialects import context, parsed
from spyre_mlir.driver.build import ONLY, Built, Value, built_at, device_modules, plan_text
from spyre_mlir.driver.checking import ModuleComparisons
from spyre_mlir.driver.collectives import MeshPlace
from spyre_mlir.driver.hint_files import TorchSpyreHints
from spyre_mlir.driver.program_calls import bind, on_the_host, resident_state, run_or_fall_back, to_device
from spyre_mlir.driver.program_figures import (
    UNKNOWN,
    bound_remark,
    notebook_html,
    predicted_time,
    program_bound,
    program_metrics,
    summarize_steps,
)
from spyre_mlir.driver.report_files import program_report, write_report
from spyre_mlir.driver.steps import BundleStep, HostStep, Step, TransferList, sequences
from spyre_mlir.driver.stored_program import StoredProgram, read_program, reduced, write_program
from spyre_mlir.driver.torch_spyre_hints import torch_spyre_hints
from spyre_mlir.errors import CompileError, listed
from spyre_mlir.faults import entry_points
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import SpyrePipeline
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import FINDING, Remark
from spyre_mlir.report.findings import ProgramFinding
from spyre_mlir.report.html import count
from spyre_mlir.report.program_facts import ProgramFacts
from spyre_mlir.report.program_report import ProgramReport, form_of
from spyre_mlir.report.summary import summarize
from spyre_mlir.simulator import Result, Schedule, Statistics
from spyre_mlir.target.formats import IEEE, require_mode
from spyre_mlir.tensors.device_state import DeviceState
from spyre_mlir.tensors.device_tensor import DeviceTensor
from spyre_mlir.timeline import Timeline, timeline


@dataclass(frozen=True)
class Traffic:
    """HBM bytes of one run, counted by the simulator.

    Attributes:
        read_bytes: Bytes of device memory read.
        written_bytes: Bytes of device memory written.
        by_op: Opcode, bytes read and bytes written of each execution, in order.
    """

    read_bytes: int
    written_bytes: int
    by_op: tuple[tuple[str, int, int], ...]

    @classmethod
    def of(cls, runs: Sequence[Statistics]) -> Traffic:
        """Return the total traffic of one run of each of several bundles."""
        return cls(
            sum(run.read_bytes for run in runs),
            sum(run.write_bytes for run in runs),
            tuple((op.opcode, op.read_bytes, op.write_bytes) for run in runs for op in run.executes.values()),
        )


@dataclass(frozen=True)
class Provenance:
    """The linalg that a program was compiled from, as IR or as text, and the functions that compile it again.

    A program that was read from a folder has none of it. ``updates`` maps result indices to the names of the arguments
    that they update in place. ``bound`` is known without the linalg. ``build`` compiles the linalg again, for the IR;
    ``pipeline`` is the pipeline of the program. ``restore`` creates the program from its stored form.
    """

    linalg: ir.Operation | None = None
    text: str = ""
    updates: Mapping[int, str] = field(default_factory=dict)
    bound: ProgramBound | None = None
    build: Callable[[ir.Module], Built] | None = None
    pipeline: SpyrePipeline | None = None
    restore: Callable[..., Program] | None = None


@entry_points
class Program:
    """A compiled program: its steps, and the data that the host needs to call it.

    Most programs are one bundle; ``bundle``, ``module`` (the IR at the bundle level) and ``last_run`` refer to it.

    Attributes:
        steps: One bundle, or bundles and host functions in order (``spyre_mlir/driver/steps.py``).
        arguments: Inputs, parameters and constants, in the order of the module.
        results: The values that a call returns.
        arrays: Weights and constants by name.
        numerics: The numerics of the simulator, "ieee" or "dl16".
        compile_seconds: The time of the pipeline, in seconds.
        import_seconds: The time of the frontend, in seconds; 0 for MLIR.
        passes: Each pass with its seconds, in execution order.
        signature: The calling convention of a PyTorch model; None for a module.
        missing: Tensors of the model on the meta device; with any, the program has a plan and figures but cannot run.
        state: The arguments that stay in device memory from one call to the next, by name (docs/serving.md).
        is_instance: Whether the program is the program of all sizes, specialized to some sizes.
    """

    def __init__(
        self,
        built: Built,
        numerics: str | None = None,
        *,
        arrays: Mapping[str, NDArray[Any]] | None = None,
        signature: Any = None,
        state: DeviceState | None = None,
        provenance: Provenance | None = None,
        import_seconds: float = 0.0,
        search: Any = None,
        missing: Sequence[str] = (),
        is_instance: bool = False,
    ) -> None:
        """Create a program; ``compile`` calls this.

        Args:
            built: The steps, the arguments and the results.
            numerics: Numerics of the simulator; by default the numerics that a bundle requires, else "ieee".
            arrays: Weights and constants by name, in addition to the constants of a program of one bundle.
            signature: The calling convention of a PyTorch model; a module is called by position.
            state: The tensors that stay on the device.
            provenance: The linalg of the program.
            import_seconds: The time of the frontend, in seconds.
            search: The search for findings (``driver.program_findings.FindingSearch``).
            missing: Names of the tensors that have no values.
            is_instance: Whether this is the program of all sizes, specialized to some sizes.
        """
        self._built = built
        self.steps: Sequence[Step] = built.steps
        self.arguments: list[Value] = built.arguments
        self.results: list[Value] = built.results
        self.compile_seconds: float = built.seconds
        self.import_seconds: float = import_seconds
        self.passes: Sequence[tuple[str, float]] = built.passes
        require_mode(numerics)
        self.numerics: str = numerics or _needed_numerics(built)
        self.arrays: dict[str, NDArray[Any]] = self._only.arrays if self.is_one_bundle else {}
        self.arrays.update(arrays or {})
        self.signature: Any = signature
        self.state: DeviceState = DeviceState() if state is None else state
        self.missing: Sequence[str] = missing
        self.is_instance: bool = is_instance
        self._provenance = provenance or Provenance()
        self._search = search
        # The seconds for trials of findings, and the texts of the changes that were tried.
        self._budget, self._tried = math.inf, list[str]()

    # Calls (``program_calls.py``).

    @property
    def inputs(self) -> list[Value]:
        """The arguments that a call passes, in order."""
        return self._built.inputs

    @property
    def returned(self) -> list[str]:
        """The names of the values that a call returns, in the order of ``results``."""
        return self._built.returned

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run the program on the simulator and return the results of the model.

        Args:
            *inputs: PyTorch tensors for a model, arrays for a module, by position. A ``DeviceTensor`` is accepted if
                its layout is the layout of the argument.
            **named: Keyword inputs of a model.

        Returns:
            The return value of the model. A module or a loaded program returns an array, or a tuple of several; the
            results are tensors on the device of the first tensor among the inputs, if there is one.
        """
        self._require_numbers()
        return self.call(
            *bind(self.inputs, self.results, self.signature, self.state, self.is_instance, inputs, named)
        )

    def call(
        self, operands: Mapping[str, NDArray[Any] | DeviceTensor], finish: Callable[[list[NDArray[Any]]], Any]
    ) -> Any:
        """Run the program on ``operands`` by name; return its results after conversion by ``finish``."""
        return finish(self.run({**self.arrays, **on_the_host(self._built, self.state, operands)}))

    def run(self, arrays: Mapping[str, NDArray[Any]], schedule: Schedule | None = None) -> list[NDArray[Any]]:
        """Run all steps in order and return the results as host arrays.

        If the call has 64-bit integers that do not fit into the device's 32-bit integers, the host runs the whole call,
        provided that the linalg of the program is available.

        Args:
            arrays: The arrays of all arguments by name, including parameters and constants.
            schedule: The order of operations and cores in each bundle, for tests of races; by default the program's.
        """
        self._require_numbers()
        return run_or_fall_back(self._built, arrays, self.numerics, self.source_text, schedule)

    def to_device(self, name: str, array: Any) -> DeviceTensor:
        """Lay out an array in the layout of an input, so that it stays on the device between calls.

        Args:
            name: The name of the input.
            array: A numpy array or a PyTorch tensor, in the shape of the input.

        Raises:
            CompileError: The device does not have such an input, or the array has another shape.
        """
        return to_device(self._built, name, array)

    def lay_out_weights(self) -> None:
        """Lay out weights and constants for the device once, instead of before every call.

        Later calls use these bytes while ``arrays`` has the same array objects; changes of their elements are ignored.
        """
        self._require_numbers()
        for step in self.bundles:
            step.lay_out(self.arrays, self.numerics)

    @property
    def last_run(self) -> Result | None:
        """The result of the last call, with its traffic, of a program that is one bundle; None before a call."""
        return self._only.last_run

    @last_run.setter
    def last_run(self, result: Result) -> None:
        self._only.last_run = result

    def traffic(self) -> Traffic:
        """Return the HBM bytes of the last run, summed over all bundles.

        Raises:
            CompileError: The program has not run yet.
        """
        runs = [step.last_run for step in self.bundles]
        if None in runs:
            raise CompileError("The program has not run yet; call it first.")
        return Traffic.of([run.statistics for run in runs if run is not None])

    def _require_numbers(self) -> None:
        """Raise ``CompileError`` if the program was compiled from the shapes of a model, without its values."""
        if self.missing:
            others = f" and {len(self.missing) - 1:,} more tensors" if len(self.missing) > 1 else ""
            raise CompileError(
                f"The program has no data, because the model was compiled with {self.missing[0]}{others} on the meta "
                "device; compile the model with its weights to run or save the program."
            )

    # The program and its parts.

    @property
    def bundles(self) -> list[BundleStep]:
        """The steps that run on the device, in order."""
        return self._built.bundles

    @property
    def place(self) -> MeshPlace | None:
        """The rank of the program and its mesh; None for a program of one card."""
        return self._built.place

    @place.setter
    def place(self, place: MeshPlace | None) -> None:
        self._built.place = place

    @property
    def is_one_bundle(self) -> bool:
        """True if the device runs the whole program."""
        return len(self.steps) == 1 and len(self.bundles) == 1

    @property
    def _only(self) -> BundleStep:
        if not self.is_one_bundle:
            names = listed(step.name for step in self.steps)
            raise CompileError(f"This program is not one bundle; its steps, program.steps, are: {names}.")
        return self.bundles[0]

    @property
    def bundle(self) -> Bundle:
        """The bundle of a program that is one bundle; ``CompileError`` for other programs."""
        return self._only.bundle

    @property
    def module(self) -> ir.Module:
        """The IR at the bundle level of a program that is one bundle; ``CompileError`` if it has none."""
        step = self._only
        if step.module is None and self._provenance.build is not None:
            step.module = _rebuilt(self.bundle, self._provenance.build(parsed(self.source_text(), context())))
        if step.module is None:
            raise CompileError("A program that was read from a folder has no IR.")
        return step.module

    def source_text(self) -> str:
        """Return the text of the program's linalg, with locations; empty without linalg."""
        linalg = self._provenance.linalg
        return self._provenance.text if linalg is None else str(linalg.get_asm(enable_debug_info=True))

    def plan(self) -> dict[str, Any]:
        """Return the decisions about every operation, to be edited and passed to ``compile`` as ``plan``.

        ``docs/plans.md`` describes the format. This compiles the program again, with the same plan file if it was
        compiled with one.

        Raises:
            CompileError: The program is not one bundle, or was read from a folder.
        """
        return json.loads(plan_text(*self._source("has a plan")))

    def torch_spyre_hints(self) -> TorchSpyreHints:
        """Return the decisions about the program in the public form of torch-spyre (docs/torch-spyre.md).

        Each hint is evaluated: this compiles the program once for each hint.

        Raises:
            CompileError: The program has no bundle, or was read from a folder.
        """
        linalg, pipeline = self._source("has hints", several=bool(self.bundles))
        modules = {ONLY: linalg}
        if any(isinstance(step, HostStep) for step in self.steps):
            modules = device_modules(linalg, pipeline)
        return torch_spyre_hints(modules, self.arguments, pipeline)

    def _source(self, what: str, *, several: bool = False) -> tuple[ir.Operation, SpyrePipeline]:
        """Return the linalg of the program and the pipeline; ``what`` is the predicate of the error."""
        linalg, pipeline = self._provenance.linalg, self._provenance.pipeline
        if pipeline is None or not (self.is_one_bundle or several):
            raise CompileError(f"Only a program of one bundle that compile returned {what}.")
        return parsed(self.source_text(), context()).operation if linalg is None else linalg, pipeline

    def at(self, **sizes: int) -> Program:
        """Return the program specialized to run-time sizes, for its figures and for calls; the weights are shared.

        The program itself takes the sizes of a call from the inputs; its figures are for the largest sizes.

        Args:
            **sizes: Elements of each dynamic dim, by its name.

        Raises:
            CompileError: The program does not have such a size.
        """
        return specialized(self, sizes)

    def drop_numbers(self, missing: tuple[str, ...]) -> None:
        """Drop the arrays and keep the plan and the figures: the ``missing`` tensors of the model have no values."""
        self.missing = missing
        # Constants may have been computed from the stand-ins for missing values.
        self.arrays.clear()

    def release_inputs(self) -> None:
        """Drop the references to the example inputs; findings then use others of the same form."""
        if self._search is not None:
            self._search = self._search.released()

    def drop_ir(self) -> None:
        """Drop the IR and everything derived from it: the plan, the bound and the findings; keep the linalg text."""
        known = self._provenance
        self._provenance = Provenance(text=self.source_text(), bound=known.bound, restore=known.restore)
        self._search = None
        for step in self.bundles:
            step.module = None

    # Stored forms (``stored_program.py``): a folder, an entry of the cache and a pickle.

    def save(self, folder: str | Path, *, lay_out_weights: bool = False) -> None:
        """Write the program to a folder, including parameters and constants, so that ``spyre-run`` can run it.

        The folder is a bundle, or contains bundles and host functions. It includes the remarks, for ``spyre-report``.

        Args:
            folder: The output folder; an existing bundle is replaced.
            lay_out_weights: Write the weights of bundles as device images, which are memory-mapped when the folder is
                read. The loaded program then supports only the numerics of this program.

        Raises:
            CompileError: The folder contains something other than a bundle.
        """
        self._require_numbers()
        built = self._built
        # A folder names its numerics only if they are not the default.
        if self.numerics != _needed_numerics(built):
            built = replace(built, steps=[_with_numerics(step, self.numerics) for step in built.steps])
        if self.signature is not None:
            pairs = zip(built.results, self.signature.results, strict=True)
            unsigned = {value.name for value, known in pairs if str(known.dtype) == "torch.uint8"}
            results = [replace(value, is_unsigned=value.name in unsigned) for value in built.results]
            built = replace(
                built, results=results, steps=[_with_unsigned(step, unsigned) for step in built.steps]
            )
        remarks = self.remarks if self.is_one_bundle else ()
        write_program(folder, built, self.arrays, remarks, self.numerics if lay_out_weights else None)

    @classmethod
    def load(cls, folder: str | Path, numerics: str | None = None) -> Program:
        """Load a program from a folder that ``save`` wrote; call it with arrays by position.

        Args:
            folder: The folder.
            numerics: Numerics of the simulator, "ieee" or "dl16"; the numerics of the saved program by default.

        Raises:
            CompileError: The folder is not a program, a file of it is damaged (the message names it), or ``numerics``
                is unknown.
        """
        built, arrays = read_program(folder)
        return cls(built, numerics, arrays=arrays)

    def stored(self, key: str, **parts: Any) -> StoredProgram:
        """Return the program as data without weights; ``parts`` are passed to ``StoredProgram.of``."""
        return StoredProgram.of(
            key, self._built, self.source_text(), self.bound(), self.import_seconds, **parts
        )

    @classmethod
    def restored(
        cls,
        stored: StoredProgram,
        numerics: str | None = None,
        *,
        build: Callable[[ir.Module], Built] | None = None,
        pipeline: SpyrePipeline | None = None,
        restore: Callable[..., Program] | None = None,
        **parts: Any,
    ) -> Program:
        """Create a program from its stored form; ``parts`` are passed to the constructor.

        ``build`` is called with the linalg when the IR is requested, and ``pipeline`` compiles it for the plan.
        """
        provenance = Provenance(
            text=stored.source, bound=stored.bound, build=build, pipeline=pipeline, restore=restore
        )
        return cls(
            stored.built, numerics, provenance=provenance, import_seconds=stored.import_seconds, **parts
        )

    def __reduce__(self) -> tuple[Callable[..., Program], tuple[Any, ...]]:
        self._require_numbers()
        restore = self._provenance.restore or functools.partial(Program.restored, numerics=self.numerics)
        return reduced(self.stored, restore, self._built, self.arrays, self.signature, self.state)

    # Figures, which need no run (``program_figures.py``, ``program_figures.py``, ``report_files.py``).

    @functools.cached_property
    def timelines(self) -> list[Timeline]:
        """The timeline of each sequence of bundles, in order."""
        return [
            timeline(join([step.bundle for step in unit]), unit[0].lx_frac_avail)
            for unit in sequences(self.steps)
            if isinstance(unit, list)
        ]

    def timeline(self) -> Timeline:
        """Return the time of each engine from a simulation of the device; it ranks plans and does not predict times.

        The program must be one bundle or one sequence of bundles. The start of a bundle is assumed to take no time.
        """
        is_one = len(self.bundles) == len(self.steps) and len(self.timelines) == 1
        return self.timelines[0] if is_one else timeline(self.bundle, self.lx_frac_avail)

    @property
    def lx_frac_avail(self) -> float | None:
        """The fraction of LX that the program may not use; None for the fraction in the device file."""
        return self.bundles[0].lx_frac_avail if self.bundles else None

    def transfers(self) -> TransferList:
        """Return the transfers of each step in each call, printed as a table; weights and state stay on the device."""
        return self._built.transfers(resident_state(self._built, self.signature, self.state))

    def facts(self) -> ProgramFacts:
        """Return the facts for the summary and the page of ``report``, of a program that is one bundle."""
        return replace(self._only.facts(), remarks=tuple(self.remarks))

    def metrics(self) -> dict[str, float]:
        """Return the figures of the plan as plain numbers by stable names (docs/cost.md); no run is needed.

        The bound and the seconds of a program that was read from a folder are ``UNKNOWN``, -1.
        """
        bound = self.bound()
        seconds = (UNKNOWN, UNKNOWN) if bound is None else (self.compile_seconds, self.import_seconds)
        return program_metrics(self.steps, self.transfers(), self.timelines, bound, seconds)

    def bound(self) -> ProgramBound | None:
        """Return the least bytes and multiply-adds that any plan of the program needs; None without linalg."""
        known = self._provenance
        if known.bound is None and known.linalg is not None:
            bound = program_bound(known.linalg, self.arrays, known.updates)
            self._provenance = replace(known, bound=bound)
        return self._provenance.bound

    @property
    def pass_remarks(self) -> Sequence[Remark]:
        """The decisions of all passes."""
        return self._built.remarks

    @functools.cached_property
    def remarks(self) -> list[Remark]:
        """The decisions of all passes, and a remark on a program that is far from its bound.

        That remark needs a timeline and complete ``arrays``, so it is computed on first use. Findings are not included,
        because they need trials: see ``finding_remarks``.
        """
        bound = self.bound()
        remark = bound and bound_remark(self.timelines, bound)
        return [*self.pass_remarks, *((remark,) if remark else ())]

    @functools.cached_property
    def findings(self) -> tuple[ProgramFinding, ...]:
        """Problems of the program, with changes that make it faster by the timeline, the largest saving first.

        Each change was tried: on first use, the program is compiled again with each candidate, at most ten times.
        ``summary`` and ``report`` then include them.
        A program that was read from a folder, or that is one piece of a model, has no findings.
        """
        return (
            self._search(self, self._budget, self._tried) if self._search is not None and self.bundles else ()
        )

    @property
    def finding_remarks(self) -> list[Remark]:
        """The findings as remarks of kind ``finding``, with the microseconds before and after."""
        return [
            Remark(
                "findings", finding.location, "", FINDING, f"{finding.problem} {finding.change}",
                finding.before_us, finding.after_us, finding.module
            )
            for finding in self.findings
        ]  # fmt: skip

    def _shown(self, findings: bool | float | None) -> tuple[ProgramFinding, ...]:
        """Return the findings if they are requested, or if they are known and neither requested nor excluded."""
        if findings is not None and not isinstance(findings, bool):
            self._budget = float(findings)
        is_known = findings is None and "findings" in vars(self)
        is_requested = bool(findings) or (findings is not None and not isinstance(findings, bool))
        return self.findings if is_requested or is_known else ()

    def _untried(self) -> str:
        """Describe the changes that could be tried, or were tried in vain; empty without any."""
        changes = self._search.changes(self) if self._search is not None and self.bundles else []
        if not changes:
            return ""
        if "findings" in vars(self):
            ended = f" in {self._budget:g} s" if len(self._tried) < len(changes) else ""
            return f"{len(self._tried)} of {count(len(changes), 'change')} tried{ended}, none saves 1%"
        return f"not tried; by the figures, {count(len(changes), 'change')} may save time: summary(findings=True)"

    def summary(self, *, findings: bool | float | None = None) -> str:
        """Return a summary: findings, operations, cores, traffic, LX, spills with reasons, predicted and compile time.

        It needs no run; after a run, it compares the traffic of the last run with the plan. For a program of several
        steps, a summary of the steps comes before the summaries of the bundles.

        Args:
            findings: True includes findings, which need trials; each trial takes about the time of a compilation. A
                number is the budget in seconds, after which no trial begins. By default they are included if they are
                known, else the summary says how many changes can be tried.
        """
        shown = self._shown(findings)
        untried = self._untried() if findings is not False and not shown else ""
        if not self.is_one_bundle:
            return summarize_steps(
                self.steps,
                self.transfers(),
                self.timelines,
                self.remarks,
                self.compile_seconds,
                shown,
                untried,
            )
        statistics = self.last_run and self.last_run.statistics
        return summarize(self.facts(), self.compile_seconds, statistics, shown, untried)

    def report(
        self,
        path: str | Path,
        *,
        findings: bool | float | None = None,
        comparison: ModuleComparisons | None = None,
    ) -> Path:
        """Write a report, and return its path.

        Args:
            path: The output file, whose ending selects the format. ``.html`` is the page of ``spyre-report``, with the
                time of each pass and all steps of the program. ``.json`` has the figures and the data of the page.
                ``.svg`` is the timeline.
            findings: True begins ``.html`` and ``.json`` with the findings, which need trials; by default they are
                included if they are known.
            comparison: The result of ``compare``; the graph of modules can then have the colours of the errors.
        """
        shown = False if form_of(path) == ".svg" else findings
        report = self.as_report(Path(path).stem, findings=shown, comparison=comparison)
        return write_report(report, path)

    def as_report(
        self,
        name: str,
        *,
        findings: bool | float | None = False,
        comparison: ModuleComparisons | None = None,
    ) -> ProgramReport:
        """Return the data of ``report``; ``name`` is in its titles, ``findings`` need trials.

        Args:
            name: The name of the program.
            findings: As for ``report``, but without findings by default.
            comparison: As for ``report``.
        """
        shown = self._shown(findings)
        facts = [step.facts() if isinstance(step, BundleStep) else None for step in self.steps]
        if self.is_one_bundle:
            facts = [replace(self.facts(), findings=shown)]
        errors = {
            each.name: each.error / each.bound if each.bound else each.error for each in comparison or ()
        }
        facts = [each and replace(each, errors=errors) for each in facts]
        return program_report(
            name, self.steps, facts, self.transfers(), self.timelines, self.metrics(), self.remarks, shown
        )

    def compare(self, model: Any, inputs: Sequence[Any]) -> ModuleComparisons:
        """Compare the result of each module of a PyTorch model with PyTorch on the CPU.

        The model is compiled once more with the options of this program, and with the results of its modules as further
        results, and runs on the simulator.

        Args:
            model: The model of the program; other weights are allowed.
            inputs: Its inputs, with the numbers to compare on.

        Raises:
            CompileError: The program was read from a folder, or is not a PyTorch model.
        """
        if self._search is None:
            raise CompileError(
                "compare compiles the model again, so it needs a program that compile returned."
            )
        return self._search.trials.compared(model, inputs, self.numerics)

    def __repr__(self) -> str:
        return f"<spyre_mlir.Program: {self._described()}>"

    def _repr_html_(self) -> str:
        """Return the summary and the timeline, for notebooks."""
        return notebook_html(self._described(), self.summary(findings=False), self.as_report("").svg())

    def _described(self) -> str:
        """Describe the program in one line: steps, operations, predicted time."""
        bundles = len(self.bundles)
        hosts = sum(isinstance(step, HostStep) for step in self.steps)
        links = len(self.steps) - bundles - hosts
        if not self.steps:
            return "nothing runs on the device"
        steps = count(bundles, "bundle") + (f", {count(hosts, 'function')} of the host" if hosts else "")
        steps += f", {count(links, 'collective')}" if links else ""
        operations = sum(len(line.executions) for line in self.timelines)
        time = predicted_time(self.steps, self.transfers(), self.timelines)
        return f"{steps}, {count(operations, 'operation')}, {time}"


def specialized(program: Program, sizes: Mapping[str, int], signature: Any = None) -> Program:
    """Return ``Program.at``; with the ``signature`` of a model at these sizes, it is called like the model."""
    return Program(
        built_at(program._built, sizes),
        program.numerics,
        arrays=program.arrays,
        signature=signature,
        state=program.state,
        import_seconds=program.import_seconds,
        missing=program.missing,
        is_instance=True,
    )


def _needed_numerics(built: Built) -> str:
    """Return the default numerics of a program: the numerics that a bundle requires, else IEEE."""
    return next((numerics for step in built.bundles if (numerics := step.bundle.manifest.numerics)), IEEE)


def _with_numerics(step: Step, numerics: str) -> Step:
    """Return a step whose bundle requires ``numerics``."""
    if not isinstance(step, BundleStep):
        return step
    manifest = replace(step.bundle.manifest, numerics=numerics)
    return replace(step, bundle=replace(step.bundle, manifest=manifest))


def _with_unsigned(step: Step, names: set[str]) -> Step:
    """Return a step whose bundle names its unsigned results."""
    if not isinstance(step, BundleStep):
        return step
    known = tuple(argument.name for argument in step.bundle.manifest.arguments if argument.name in names)
    if not known:
        return step
    return replace(step, bundle=replace(step.bundle, manifest=replace(step.bundle.manifest, unsigned=known)))


def _rebuilt(bundle: Bundle, built: Built) -> ir.Module:
    """Return the IR of the recompiled program; raise ``CompileError`` if its bundle differs from the stored bundle."""
    (step,) = built.steps
    if not isinstance(step, BundleStep) or step.module is None or step.bundle != bundle:
        raise CompileError(
            "The IR of a program from the cache is made by compiling it again, and its plan file, its device file or "
            "the environment has changed since; call compile again."
        )
    return step.module
