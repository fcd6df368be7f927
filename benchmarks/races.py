# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races of compiled programs, and their results under schedules (docs/concurrency.md)."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from benchmarks.programs import families, programs, race_runs, random_program
from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.errors import CompileError

COLUMNS = ("programs", "refused", "bundles", "races", "runs", "differing")

#: A factory of a model and its inputs.
Make = Callable[[], tuple[Any, Any]]


@benchmark(all_races=0, all_differing=0, seconds_of_12_layers=2)
def races(group: str = "", count: int = 100, schedules: int = 10) -> Metrics:
    """Races of bundles, and runs under schedules whose results differ from the run in order.

    The programs of the tests, reduced models of the zoo and ``count`` random programs are compiled for 1, 7 and 32
    cores, and run under ``schedules`` schedules, without the bundles that need another bundle's memory. The suite and
    the families, at full size on 32 cores, do not run. Of 12 Llama layers, the CPU seconds of the search for races.
    """
    found = {name: Counter[str]() for name in _groups(count) if group in ("", name)}
    notes = []
    for name, counts in found.items():
        for text, make, cores, runs in _groups(count)[name]():
            try:
                counts.update(_judged(make, cores, schedules if runs else 0))
            except CompileError as error:
                counts["refused"] += 1
                notes.append(f"{text} on {cores}: {error.message}")
    cells = {f"{name}.{column}": counts[column] for name, counts in found.items() for column in COLUMNS}
    total = sum(found.values(), Counter[str]())
    seconds = {"seconds_of_12_layers": _seconds_of_layers()} if group in ("", "suite") else {}
    return Noted(
        {**cells, "all_races": total["races"], "all_differing": total["differing"], **seconds}, notes, COLUMNS
    )


def _groups(count: int) -> Mapping[str, Callable[[], Iterator[tuple[str, Make, int, bool]]]]:
    """Return the programs of each group: name, factory, cores, and whether the program runs."""
    from spyre_mlir import zoo

    def at_cores(makes: Mapping[str, Make]) -> Iterator[tuple[str, Make, int, bool]]:
        return ((name, make, cores, True) for name, make in makes.items() for cores in (1, 7, 32))

    def of_zoo(*names: str) -> dict[str, Make]:
        return {name: lambda name=name: zoo.load(name) for each in names for name in zoo.names(each)}

    return {
        "tests": lambda: at_cores(programs()),
        "zoo": lambda: at_cores(of_zoo("suite-reduced", "models-reduced")),
        "random": lambda: at_cores(
            {f"random {seed}": lambda seed=seed: random_program(seed) for seed in range(count)}
        ),
        "suite": lambda: ((name, make, 32, False) for name, make in of_zoo("suite").items()),
        "families": lambda: (
            (name, lambda name=name: families().program(name), 32, False) for name in families().FAMILIES
        ),
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
