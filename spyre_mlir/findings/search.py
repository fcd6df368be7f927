# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The search for findings: propose changes from the figures of a program, and try the changes that may pay."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator

from spyre_mlir.findings.core_use import FEW, MORE, few_samples, idle_cores
from spyre_mlir.findings.frozen_inputs import masks_from_the_host
from spyre_mlir.findings.host_work import host_work, wide_types
from spyre_mlir.findings.layout_changes import argument_layouts, transposes
from spyre_mlir.findings.option_changes import costly_options
from spyre_mlir.findings.planned import PlannedProgram
from spyre_mlir.findings.remedy import Remedy
from spyre_mlir.report.findings import ProgramFinding

_SOURCES = (
    host_work,
    wide_types,
    costly_options,
    argument_layouts,
    transposes,
    masks_from_the_host,
    idle_cores,
    few_samples,
)

#: Minimum saving of a change, as a fraction of the time: to be reported (measured), and to be tried (estimated).
LEAST_SAVING, _WORTH_A_TRIAL = 0.01, 0.03
#: Maximum number of trials of a program, each of which compiles it; maximum number of operations of all trials
#: together; number of first trials to which the second limit does not apply.
_MOST_TRIALS, _MOST_OPERATIONS, _LEAST_TRIALS = 10, 2500, 3
#: Weights in the order of trials for savings by more samples in a call. More samples are another use of the model,
#: which not every user has; if matmuls have few rows, they are the only remedy.
_WEIGHTS = {FEW: 0.25, MORE: 0.02}
#: Fraction of a saving from which a module is named alone; otherwise the common parent of this number of modules.
_MAIN, _RANKED = 0.5, 3


def remedies(program: PlannedProgram) -> list[Remedy]:
    """Return the remedies worth a trial: first one of each kind, ordered by the largest possible saving.

    A large program, which takes long to compile, gets fewer trials.
    """
    ranked: list[tuple[int, float, Remedy]] = []
    counts = Counter[str]()
    for source in _SOURCES:
        for remedy in source(program):
            if remedy.most_ns >= _WORTH_A_TRIAL * program.ns:
                ranked.append((counts[remedy.kind], -remedy.most_ns, remedy))
                counts[remedy.kind] += 1
    ranked.sort(key=lambda entry: entry[:2])
    operations = sum(1 for _ in program.operations)
    most = min(_MOST_TRIALS, max(_LEAST_TRIALS, _MOST_OPERATIONS // max(operations, 1)))
    return [remedy for _, _, remedy in ranked[:most]]


def search(
    program: PlannedProgram, trial: Callable[[Remedy], PlannedProgram | None]
) -> tuple[ProgramFinding, ...]:
    """Return the findings that save at least ``LEAST_SAVING`` of the time, largest saving first; ``trial`` compiles.

    Of the changes of one kind only the best is returned, and no change that cannot be made or that a trial refutes.
    """
    best: dict[str, tuple[float, ProgramFinding]] = {}
    for remedy in remedies(program):
        changed = trial(remedy)
        finding = changed and _finding(program, remedy, changed)
        if not finding:
            continue
        rank = _WEIGHTS.get(remedy.kind, 1.0) * finding.saved_us / max(program.ns / 1000, finding.before_us)
        if remedy.kind not in best or rank > best[remedy.kind][0]:
            best[remedy.kind] = rank, finding
    return tuple(finding for _, finding in sorted(best.values(), key=lambda entry: -entry[0]))


def _finding(program: PlannedProgram, remedy: Remedy, changed: PlannedProgram) -> ProgramFinding | None:
    """Return the finding of a trial; None if it saves too little."""
    before, after = program.device_ns, changed.device_ns / remedy.samples
    problem = remedy.problem
    if program.host.ns or changed.host.ns:
        # Compare device times only if they show the saving: then no assumption about the host is needed.
        host_ns = program.host.ns - changed.host.ns / remedy.samples
        if before - after >= LEAST_SAVING * before and host_ns >= 0:
            problem += f" The change also saves about {host_ns / 1000:,.1f} us of the host (an assumed rate)."
        else:
            before, after = program.ns, changed.ns / remedy.samples
            problem += " Times count the host, at an assumed rate."
    if before - after < LEAST_SAVING * before:
        return None
    module, location = _place(program, changed, remedy.samples)
    return ProgramFinding(
        problem=problem,
        cause=remedy.cause,
        module=remedy.module or module,
        location=remedy.location or location,
        change=remedy.text,
        before_us=before / 1000,
        after_us=after / 1000,
    )


def _place(program: PlannedProgram, changed: PlannedProgram, samples: int) -> tuple[str, str]:
    """Return the module that saves most, with the modules of equal layers, and the line of its longest operation."""
    after = changed.by_module()
    saved: dict[str, float] = {}
    members: dict[str, list[str]] = {}
    for module, nanoseconds in program.by_module().items():
        pattern = re.sub(r"\b\d+\b", "*", module)
        saved[pattern] = saved.get(pattern, 0.0) + nanoseconds - after.get(module, 0.0) / samples
        members.setdefault(pattern, []).append(module)
    if not saved:
        return "", ""
    ranked = sorted(saved, key=lambda pattern: -saved[pattern])
    chosen = ranked[0]
    if saved[chosen] < _MAIN * math.fsum(value for value in saved.values() if value > 0):
        chosen = _parent(ranked[:_RANKED]) or chosen
    modules = members.get(chosen, [chosen])
    named = modules[0] if len(modules) == 1 else f"{modules[0]} and {len(modules) - 1} like it"
    return named, next(_locations(program, set(members.get(ranked[0], ()))), "")


def _parent(modules: list[str]) -> str:
    """Return the innermost module that contains all ``modules``; the empty path, the model, if there is no other."""
    paths = [module.split(".") for module in modules]
    common = itertools.takewhile(lambda names: len(set(names)) == 1, zip(*paths, strict=False))
    return ".".join(names[0] for names in common)


def _locations(program: PlannedProgram, modules: set[str]) -> Iterator[str]:
    inside = [operation for operation in program.operations if operation.module in modules]
    for operation in sorted(inside, key=lambda operation: -operation.execution.total_ns):
        if operation.origin.source:
            yield operation.origin.source
