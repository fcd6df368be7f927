# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""For all tests: which of them ``make check`` leaves to ``make check-all``, their order, and which share a process.

``pytest`` runs every test. ``make check`` runs it with ``-m "not exhaustive and not documents"``, which leaves out

* of a test with more than ``CASES`` cases the others; the mark ``sampled(count)`` gives another number. The sample has
  each value of each parameter, if the number allows it, and by a hash of names; tests of the files of
  ``BY_PROGRAM`` take the same programs, so that one compilation serves all of them;
* tests that took ``SLOW_SECONDS`` or more of CPU time, with each of their seeds, when ``make durations`` recorded them,
  or ``--record-durations`` a part of the tests; end-to-end cases of ``test_programs.py`` and the fastest test of a
  file without others run;
* tests with the mark ``exhaustive``;
* tests with the mark ``documents``, of pages, examples, packages and browsers, which ``make check-docs`` runs.

Tests with a parameter ``seed`` run all seeds inside one test (``seeds.py``). ``SPYRE_RANDOM_CASES`` is how many cases
of such a test run at most, and four times as many of a long product, a test with the mark ``sampled``; ``.ci/run`` sets
it, and ``SPYRE_SLOW_PART``: with ``K/3``, the third with the number ``K`` modulo 3 of the slow tests and of those with
the mark ``exhaustive`` runs. ``.ci/run`` makes the number from the commit, so that each commit runs another third.

A test that is left out is deselected. The last lines of the run say how many are, and why tests were skipped.

With ``--dist loadfile`` the tests of a file run in one process and share compiled programs; so do the tests of a
program of ``programs.py`` and ``two_ops.py`` in all files of ``BY_PROGRAM``. Processes begin with the longest, by the
recorded times. ``--shuffle SEED`` runs all tests in random order, ``--repeat COUNT`` runs each test COUNT times.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import random
import re
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Before any test imports numpy: workers of pytest share the cores, and threads of BLAS that wait for each other make
# small products 50 times as slow.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Tests run without the cache; tests of the cache set this variable to 1, in a separate folder.
os.environ["SPYRE_CACHE"] = "0"

import pytest
import seeds
from seeds import CASES, SEED, random_cases, slow_part

# Remove settings of the user, and variables that "make check" would pass to a make in a test.
_SETTINGS = r"SPYRE_(?!(CACHE|RANDOM_CASES|SEED|SLOW_PART|TEST_DATA)$).*|MAKE(FLAGS|LEVEL|OVERRIDES)|MFLAGS"
for _name in list(os.environ):
    if re.fullmatch(_SETTINGS, _name):
        del os.environ[_name]

# Disable garbage collection during imports and collection, which create no garbage: it takes seconds.
gc.disable()

#: New objects between two garbage collections; the 700 of Python cost a tenth of the CPU time of the tests.
COLLECTION_THRESHOLD = 20_000

#: CPU seconds of the tests, and of the scopes of tests, that take ``SLOW_SECONDS``.
DURATIONS = Path(__file__).with_name("durations.json")

#: A test that takes so long, per seed, is left to ``make check-all``: ``make check`` has five minutes on two cores.
SLOW_SECONDS = 0.4

#: The fastest test of a file runs in ``make check`` if it takes less.
FILE_SECONDS = 4

#: Files whose tests begin their parameters with the name of a program, which is imported and compiled for all of them.
BY_PROGRAM = (
    "test_programs.py", "test_tiling_fuzz.py", "test_timeline_work.py", "test_traffic.py", "test_traffic_agreement.py",
    "test_two_ops.py", "test_unequal_tiles.py",
)  # fmt: skip

#: Files whose tests read the sources of the package, which are parsed once for all of them.
BY_SOURCE = ("test_import_graph.py", "test_imports.py", "test_style.py")

DESELECTED = pytest.StashKey[int]()
CPU_TIME = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this file."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in random order")
    parser.addoption(
        "--repeat", type=int, metavar="COUNT", help="run each test COUNT times, one after another"
    )
    parser.addoption(
        "--record-durations", action="store_true", help=f"update {DURATIONS.name} by the tests that run"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Run seeds inside tests."""
    config.pluginmanager.register(seeds)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test ``--repeat`` cases, which shows tests that depend on the speed of processes and threads."""
    if count := metafunc.config.getoption("repeat"):
        metafunc.fixturenames.append("repetition")
        metafunc.parametrize("repetition", range(count))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the cases that a sample leaves out, before pytest deselects by marks."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    seconds = _recorded_seconds()
    slow = {
        item
        for item in items
        if seconds.get(item.nodeid, 0) >= SLOW_SECONDS * seeds.count(item) and item.path.name != BY_PROGRAM[0]
    }
    samples = (_beyond_the_sample(group, _sample_size(group)) for group in cases.values())
    left_out = slow.union(*samples)
    left_out -= _fastest_of_files(items, left_out, seconds)
    if part := slow_part():
        marked = [item for item in items if item.get_closest_marker("exhaustive")]
        _deselect(items, _outside_the_part(slow.union(marked), part))
    for item in left_out:
        item.add_marker(pytest.mark.exhaustive)
    if limit := random_cases():
        _keep_random_cases(items, list(cases.values()), limit)
    if config.getoption("shuffle") is not None:
        random.Random(config.getoption("shuffle")).shuffle(items)
    elif hasattr(config, "workerinput"):
        items.sort(key=lambda item: -seconds.get(shared_scope(item.nodeid), 0))


def pytest_collection_finish() -> None:
    """Exclude the objects of imports and of collection from the garbage collections of the tests."""
    gc.freeze()
    gc.set_threshold(COLLECTION_THRESHOLD)
    gc.enable()


def _recorded_seconds() -> dict[str, float]:
    """Return the recorded CPU time of tests and scopes; empty for tests of this file, whose records are elsewhere."""
    return json.loads(DURATIONS.read_text(encoding="utf-8")) if DURATIONS.exists() else {}


def _fastest_of_files(
    items: list[pytest.Item], left_out: set[pytest.Item], seconds: dict[str, float]
) -> set[pytest.Item]:
    """Return the fastest test of each file of which all tests are left out, if it takes less than ``FILE_SECONDS``."""
    files: dict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if not item.get_closest_marker("exhaustive"):
            files[item.path].append(item)
    recorded = [
        [item for item in tests if 0 < seconds.get(item.nodeid, 0) < FILE_SECONDS]
        for tests in files.values()
        if left_out.issuperset(tests)
    ]
    return {min(tests, key=lambda item: seconds[item.nodeid]) for tests in recorded if tests}


def _outside_the_part(items: set[pytest.Item], part: tuple[int, int]) -> set[pytest.Item]:
    """The tests that part K of N leaves out: those whose hash is not K modulo N."""
    return {item for item in items if zlib.crc32(item.nodeid.encode()) % part[1] != part[0]}


def _deselect(items: list[pytest.Item], left_out: set[pytest.Item]) -> None:
    if left_out:
        items[0].config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def _keep_random_cases(items: list[pytest.Item], groups: list[list[pytest.Item]], limit: int) -> None:
    """Deselect the cases beyond the limit, of tests of random programs and of long products."""
    left_out = set[pytest.Item]()
    for group in groups:
        if SEED in getattr(getattr(group[0], "callspec", None), "params", {}):
            left_out.update(_beyond_the_sample(group, limit))
        elif group[0].get_closest_marker("sampled"):
            left_out.update(_beyond_the_sample(group, max(_sample_size(group), 4 * limit)))
    _deselect(items, left_out)


def _sample_size(cases: list[pytest.Item]) -> int:
    """The number of cases of a test that ``make check`` runs."""
    mark = cases[0].get_closest_marker("sampled")
    return mark.args[0] if mark is not None else CASES


def _beyond_the_sample(cases: list[pytest.Item], count: int) -> list[pytest.Item]:
    """The cases of one test that a sample of ``count`` leaves out."""
    rest = sorted(cases, key=lambda item: rank(item.nodeid))
    values: set[tuple[str, int]] = set()
    for _ in range(min(count, len(rest))):
        item = max(rest, key=lambda item: len(_values(item) - values))
        values |= _values(item)
        rest.remove(item)
    return rest


def rank(nodeid: str) -> tuple[int, int]:
    """Return the sort key of samples: the program in files that share programs, else the name."""
    return zlib.crc32(shared_scope(nodeid).encode()), zlib.crc32(nodeid.partition("::")[2].encode())


def _values(item: pytest.Item) -> set[tuple[str, int]]:
    """Parameters of a case with their values, which are of any type, but the same objects in all cases of a test."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return {(name, id(value)) for name, value in parameters.items()}


@pytest.fixture(autouse=True)
def _state_of_the_process() -> Iterator[None]:
    """Restore dims, loaded files, the environment and the folder after a test.

    Which tests run in one process, and in what order, depends on the number of processes and on how fast they are.
    """
    environment, folder = dict(os.environ), os.getcwd()
    yield
    os.chdir(folder)
    if environment != os.environ:
        os.environ.clear()
        os.environ.update(environment)
    if hints := sys.modules.get("spyre_mlir.frontend.hints"):
        hints.clear_tensor_dims()
    if loading := sys.modules.get("spyre_mlir.loading"):
        loading._LOADED.clear()
    if eager := sys.modules.get("spyre_mlir.frontend.eager"):
        eager.forget_operations()


@pytest.fixture
def cache_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> pytest.LogCaptureFixture:
    """Return the log of compilations that use a separate cache."""
    from spyre_mlir import version
    from spyre_mlir.algorithms import REGISTRIES
    from spyre_mlir.driver import program_cache
    from spyre_mlir.passes.base import PASSES

    monkeypatch.setenv("SPYRE_CACHE", "1")
    monkeypatch.setenv("SPYRE_CACHE_DIR", str(tmp_path / "cache"))
    # A test may run right after an edit.
    monkeypatch.setattr(program_cache, "LOADED_NS", 1 << 63)
    monkeypatch.setattr(version, "LOADED_NS", 1 << 63)
    # Other tests of this process may have passes and algorithms of their own, with which nothing is cached.
    for classes in (PASSES, *(registry.classes for registry in REGISTRIES.values())):
        for name in [name for name, of in classes.items() if not of.__module__.startswith("spyre_mlir.")]:
            monkeypatch.delitem(classes, name)
    caplog.set_level(logging.INFO, "spyre_mlir.cache")
    return caplog


def pytest_deselected(items: list[pytest.Item]) -> None:
    config = items[0].config
    config.stash[DESELECTED] = config.stash.get(DESELECTED, 0) + len(items)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Count the CPU time of a test, with its processes that ended."""
    begin = sum(os.times()[:4])
    result = yield
    seconds = sum(os.times()[:4]) - begin
    item.config.stash.setdefault(CPU_TIME, Counter()).update(
        {item.nodeid: seconds, shared_scope(item.nodeid): seconds}
    )
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that started this worker, if one did; every worker collects all tests."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["deselected"] = session.config.stash.get(DESELECTED, 0)
        session.config.workeroutput["cpu_time"] = dict(session.config.stash.get(CPU_TIME, {}))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output = getattr(node, "workeroutput", {})
    node.config.stash[DESELECTED] = output.get("deselected", 0)
    node.config.stash.setdefault(CPU_TIME, Counter()).update(output.get("cpu_time", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else "unknown"
        for report in terminalreporter.stats.get("skipped", ())
    )
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} skipped: {reason}")
    if count := config.stash.get(DESELECTED, 0):
        terminalreporter.write_line(f"{count} tests were deselected; without -m, -k and the like all run")
    times = config.stash.get(CPU_TIME, Counter())
    tests = {name: time for name, time in times.items() if "::" in name}
    if tests:
        terminalreporter.write_line(f"{sum(tests.values()):.0f} s of CPU time in tests")
    if config.getoption("record_durations"):
        # A scope of which a part ran keeps its time.
        scopes = {name: max(time, _recorded_seconds().get(name, 0)) for name, time in times.items()}
        seconds = {
            name: round(time, 1)
            for name, time in (_recorded_seconds() | scopes | tests).items()
            if time >= SLOW_SECONDS
        }
        DURATIONS.write_text(json.dumps(dict(sorted(seconds.items())), indent=0) + "\n", encoding="utf-8")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The scheduler of ``--dist loadfile``."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    # Keep the scopes in the order of the tests.
    config.option.loadscopereorder = False

    class LoadProgramScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return shared_scope(nodeid)

    return LoadProgramScheduling(config, log)


def shared_scope(nodeid: str) -> str:
    """Return the key of tests that run in one process: the name of the program, the sources, or the file."""
    path, _, test = nodeid.partition("::")
    parameters = test.partition("[")[2]
    if parameters and path.endswith(BY_PROGRAM):
        return re.split(r"[-,\]]", parameters)[0]
    if path.endswith(BY_SOURCE):
        return "sources"
    return path
