# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""For all tests: which of them ``make check`` leaves to ``make check-all``, and which run in one process.

``pytest`` runs every test. ``make check`` runs it with ``-m "not exhaustive"``, which leaves out

* of a test with more than ``CASES`` cases the others; the mark ``sampled(count)`` gives the test another number. They
  are taken so that each value of each parameter is among them, if they are enough, and by a hash of their names;
* tests with the mark ``exhaustive``.

``SPYRE_RANDOM_CASES`` is how many cases of a test of random programs run at most, of those with a parameter ``seed``;
``.ci/run`` sets it.

A test that is left out is deselected, and the last lines of the run say how many are.

With ``--dist loadfile`` the tests of a file run in one process and share what they compile; so do those of a program
of ``programs.py`` and ``two_ops.py`` in all files of ``BY_PROGRAM``.
"""

from __future__ import annotations

import gc
import logging
import os
import re
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Before any test imports numpy: workers of pytest share the cores, and threads of BLAS that wait for each other make
# small products 50 times as slow.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Tests are of the compiler; those of the cache turn it on, in a folder of their own.
os.environ["SPYRE_CACHE"] = "0"

import pytest

# A test sees neither the settings of a user nor what "make check" hands to a make that a test starts.
for _name in list(os.environ):
    if re.fullmatch(r"SPYRE_(?!(CACHE|RANDOM_CASES|TEST_DATA)$).*|MAKE(FLAGS|LEVEL|OVERRIDES)|MFLAGS", _name):
        del os.environ[_name]

# Nothing of what imports and collection create is garbage, which takes seconds to see.
gc.disable()

#: How many cases of a test ``make check`` runs unless the test says.
CASES = 4

#: The parameter of tests of random programs.
SEED = "seed"

#: Files whose tests begin their parameters with the name of a program, which is imported and compiled for all of them.
BY_PROGRAM = (
    "test_programs.py", "test_tiling_fuzz.py", "test_timeline_work.py", "test_traffic.py", "test_traffic_agreement.py",
    "test_two_ops.py", "test_unequal_tiles.py",
)  # fmt: skip

DESELECTED = pytest.StashKey[int]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases that a sample leaves out, before pytest deselects by marks."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    for group in cases.values():
        for item in _beyond_the_sample(group):
            item.add_marker(pytest.mark.exhaustive)
    if limit := int(os.environ.get("SPYRE_RANDOM_CASES", "0")):
        _keep_random_cases(items, list(cases.values()), limit)


def pytest_collection_finish() -> None:
    """Leave the million objects of what is imported and collected out of all garbage collections of the tests."""
    gc.collect()
    gc.freeze()
    gc.enable()


def _keep_random_cases(items: list[pytest.Item], groups: list[list[pytest.Item]], limit: int) -> None:
    """Deselect the cases of tests of random programs beyond so many, by a hash of their names."""
    left_out = set[pytest.Item]()
    for group in groups:
        if SEED in getattr(getattr(group[0], "callspec", None), "params", {}):
            left_out.update(sorted(group, key=lambda item: zlib.crc32(item.name.encode()))[limit:])
    if left_out:
        items[0].config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def _beyond_the_sample(cases: list[pytest.Item]) -> list[pytest.Item]:
    """The cases of one test that ``make check`` leaves out."""
    mark = cases[0].get_closest_marker("sampled")
    count = mark.args[0] if mark is not None else CASES
    rest = sorted(cases, key=lambda item: zlib.crc32(item.name.encode()))
    values: set[tuple[str, int]] = set()
    for _ in range(min(count, len(rest))):
        item = max(rest, key=lambda item: len(_values(item) - values))
        values |= _values(item)
        rest.remove(item)
    return rest


def _values(item: pytest.Item) -> set[tuple[str, int]]:
    """Parameters of a case with their values, which are of any type, but the same objects in all cases of a test."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return {(name, id(value)) for name, value in parameters.items()}


@pytest.fixture(autouse=True)
def _state_of_the_process() -> Iterator[None]:
    """What a test changes in its process is as before after it: dims, loaded files, the environment, the folder.

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


@pytest.fixture
def cache_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> pytest.LogCaptureFixture:
    """The log of compilations that use a cache of their own."""
    from spyre_mlir import version
    from spyre_mlir.algorithms import REGISTRIES
    from spyre_mlir.driver import cache_settings
    from spyre_mlir.passes.base import PASSES

    monkeypatch.setenv("SPYRE_CACHE", "1")
    monkeypatch.setenv("SPYRE_CACHE_DIR", str(tmp_path / "cache"))
    # A test may run right after an edit.
    monkeypatch.setattr(cache_settings, "LOADED_NS", 1 << 63)
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


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that started this worker, if one did; every worker collects all tests."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["deselected"] = session.config.stash.get(DESELECTED, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[DESELECTED] = getattr(node, "workeroutput", {}).get("deselected", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if count := config.stash.get(DESELECTED, 0):
        terminalreporter.write_line(f"{count} tests were deselected; without -m, -k and the like all run")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The scheduler of ``--dist loadfile``."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class LoadProgramScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return shared_scope(nodeid)

    return LoadProgramScheduling(config, log)


def shared_scope(nodeid: str) -> str:
    """What the tests that run in the process of a test have in common: the name of the program, or the file."""
    path, _, test = nodeid.partition("::")
    parameters = test.partition("[")[2]
    if parameters and path.endswith(BY_PROGRAM):
        return re.split(r"[-,\]]", parameters)[0]
    return path
