# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Seeds inside a test: a test with a parameter ``seed`` runs as one test, with one seed after another.

Each seed has its own set-up, fixtures and tear-down, as a parametrized case has; the message of a failure begins with
the first seed that fails, and a section of the report lists the others. ``SPYRE_SEED=17`` runs that seed alone.

``pytest`` runs all seeds. ``make check`` leaves out the test ``[more seeds]``, which runs all but a few of them, and
``SPYRE_RANDOM_CASES`` limits how many cases of a test run, of all other parameters together.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet
from _pytest.runner import runtestprotocol

#: The parameter of tests of random programs.
SEED = "seed"

#: How many cases of a test ``make check`` runs unless the mark ``sampled`` says.
CASES = 4


@dataclass(frozen=True, eq=False)
class Seeds:
    """The values of the parameter ``seed`` that one test runs with, in their order."""

    values: tuple[Any, ...]


def random_cases() -> int:
    """Return how many cases of a test of random programs run at most; 0 is all."""
    return int(os.environ.get("SPYRE_RANDOM_CASES", "0"))


def slow_part() -> tuple[int, int] | None:
    """Return which part of the slow tests runs, ``K/N`` of the environment; None if all run."""
    text = os.environ.get("SPYRE_SLOW_PART")
    if not text:
        return None
    number, parts = map(int, text.split("/"))
    return number % parts, parts


def count(item: pytest.Item) -> int:
    """Return the number of seeds of a test; 1 for a test without seeds."""
    seeds = getattr(getattr(item, "callspec", None), "params", {}).get(SEED)
    return len(seeds.values) if isinstance(seeds, Seeds) else 1


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Replace the values of the parameter ``seed`` of a test by ``Seeds``: a few, and the others."""
    marks = metafunc.definition.own_markers
    for index, mark in enumerate(marks):
        if mark.name == "parametrize" and mark.args[0] == SEED:
            values = tuple(mark.args[1])
            if not any(isinstance(value, ParameterSet) for value in values):
                marks[index] = pytest.mark.parametrize(SEED, _parameters(metafunc.definition, values)).mark


def _parameters(definition: pytest.Item, values: Sequence[Any]) -> list[Any]:
    """Return the seeds that ``make check`` runs, and the others."""
    if only := os.environ.get("SPYRE_SEED"):
        values = [value for value in values if str(value) in only.split(",")]
    sampled = definition.get_closest_marker("sampled")
    others = [mark.args[1] for mark in definition.iter_markers("parametrize") if mark.args[0] != SEED]
    combinations = math.prod(len(values) for values in others if isinstance(values, Sized))

    def first(count: int) -> list[Any]:
        """Return the seeds, chosen by a hash of their names, for which all combinations have ``count`` cases."""
        names = {value: zlib.crc32(f"{definition.name}[{value}]".encode()) for value in values}
        chosen = set(sorted(names, key=names.__getitem__)[: -(-count // max(1, combinations))])
        return [value for value in values if value in chosen]

    few = first(sampled.args[0] if sampled else CASES)
    limited = first(limit) if (limit := random_cases()) else list(values)
    rest = [value for value in limited if value not in few]
    few = few if len(few) <= len(limited) else limited
    return [
        pytest.param(Seeds(tuple(few)), id="seeds"),
        *([pytest.param(Seeds(tuple(rest)), id="more seeds", marks=pytest.mark.exhaustive)] if rest else []),
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test once for each of its seeds, and report it as one test."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    seeds = parameters.get(SEED)
    if not isinstance(seeds, Seeds):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _combined(seeds, _run(item, nextitem, parameters, seeds)):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _run(
    item: pytest.Item, nextitem: pytest.Item | None, parameters: dict[str, Any], seeds: Seeds
) -> list[list[pytest.TestReport]]:
    """Return the reports of set-up, call and tear-down of each seed; a run with ``-x`` stops at the first failure."""
    runs: list[list[pytest.TestReport]] = []
    try:
        for number, seed in enumerate(seeds.values, 1):
            parameters[SEED] = seed
            item._report_sections.clear()
            # All that is set up for more than the function stays until the last seed.
            after = nextitem if number == len(seeds.values) else item.parent
            runs.append(runtestprotocol(item, log=False, nextitem=after))
            if item.config.getvalue("maxfail") and any(report.failed for report in runs[-1]):
                item.session._setupstate.teardown_exact(nextitem)
                break
    finally:
        parameters[SEED] = seeds
    return runs


def _combined(seeds: Seeds, runs: list[list[pytest.TestReport]]) -> list[pytest.TestReport]:
    """Return the reports of the first seed that fails, else of one that passes, else of one that is skipped."""
    failing = [number for number, reports in enumerate(runs) if any(report.failed for report in reports)]
    passing = [number for number, reports in enumerate(runs) if all(report.passed for report in reports)]
    number = (failing or passing or [0])[0]
    chosen = runs[number]
    chosen[0].duration = sum(report.duration for reports in runs for report in reports)
    for report in chosen:
        if report.failed:
            _name_seed(report, seeds.values[number], [seeds.values[other] for other in failing], len(runs))
    return chosen


def _name_seed(report: pytest.TestReport, seed: Any, failing: list[Any], count: int) -> None:
    """Add the seed to the message of a failure."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        crash.message = f"seed {seed}: {crash.message}"
    text = f"SPYRE_SEED={seed} runs the seed {seed} alone. {len(failing)} of {count} seeds fail: {failing}"
    report.sections.append(("seed", text))
