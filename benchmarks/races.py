# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races of compiled programs, and their results under schedules (docs/concurrency.md)."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from benchmarks.programs import programs, race_runs, random_program
from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.errors import CompileError

COLUMNS = ("programs", "refused", "bundles", "races", "runs", "differing")

#: A factory of a model and its inputs.
Make = Callable[[], tuple[Any, Any]]


@benchmark(all_races=0, all_differing=0, seconds_of_12_layers=2)
def races(group: str = "", count: int = 100, schedules: int = 10) -> Metrics:
    """Races of bundles, and runs under schedules whose results differ from the run in order.

    The programs of the tests, reduced models of the zoo and ``count`` random programs are compiled for 1, 7 and 32
    cores, the suite and the families at full size for 32 cores. Bundles of up to 10^12 operations run under
    ``schedules`` schedules, with random weights. Of 12 Llama layers, the CPU seconds of the search for races.
    """
    found = {name: Counter[str]() for name in _groups(count) if group in ("", name)}
    notes = []
    for name, counts in found.items():
        for text, make, cores in _groups(count)[name]():
            try:
                counts.update(_judged(make, cores, schedules))
            except CompileError as error:
                counts["refused"] += 1
                notes.append(f"{text} on {cores}: {error.message}")
    cells = {f"{name}.{column}": counts[column] for name, counts in found.items() for column in COLUMNS}
    total = sum(found.values(), Counter[str]())
    seconds = {"seconds_of_12_layers": _seconds_of_layers()} if group in ("", "suite") else {}
    return Noted(
        {**cells, "all_races": total["races"], "all_differing": total["differing"], **seconds}, notes, COLUMNS
    )


def _groups(count: int) -> Mapping[str, Callable[[], Iterator[tuple[str, Make, int]]]]:
    """Return the programs of each group: name, factory, and cores."""
    from spyre_mlir import zoo

    def at(makes: Mapping[str, Make], *all_cores: int) -> Iterator[tuple[str, Make, int]]:
        return ((name, make, cores) for name, make in makes.items() for cores in all_cores or (1, 7, 32))

    def of_zoo(*groups: str) -> dict[str, Make]:
        return {name: zoo.reference(name) for group in groups for name in zoo.names(group)}

    return {
        "tests": lambda: at(programs()),
        "zoo": lambda: at(of_zoo("suite-reduced", "models-reduced")),
        "random": lambda: at({f"random {seed}": partial(random_program, seed) for seed in range(count)}),
        "suite": lambda: at(of_zoo("suite"), 32),
        "families": lambda: at(of_zoo("families"), 32),
    }


def _judged(make: Make, cores: int, schedules: int) -> Counter[str]:
    import spyre_mlir

    model, inputs = make()
    with warnings.catch_warnings(action="ignore"):
        program = spyre_mlir.compile(model, inputs, sencores=cores)
        return Counter(race_runs().judged(program, schedules), programs=1)


def _seconds_of_layers() -> float:
    """Return the CPU seconds of the search for races in 12 layers, with all checks that it relies on."""
    import spyre_mlir
    from spyre_mlir.bundle.validate import races as races_of

    bundle = spyre_mlir.compile(*_layers()).bundle
    begun = time.process_time()
    races_of(bundle)
    return time.process_time() - begun


def _layers() -> tuple[Any, Any]:
    from spyre_mlir import zoo

    return zoo.load("suite/layers_12")
