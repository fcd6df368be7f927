# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The programs of the end-to-end tests, for benchmarks."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from benchmarks.measure import ROOT

#: Programs in tables: one of each family, and the whole block.
CHOSEN = (
    "softmax_dim_0_512x1024", "softmax_dim_last_512x1024", "layernorm", "rmsnorm", "gelu_mlp", "swiglu_mlp",
    "sdpa_causal", "sdpa_grouped", "matmul_67x71x256", "matmul_1x4096x11", "transpose_3", "llama_block",
)  # fmt: skip


def programs() -> dict[str, Callable]:
    """All programs by name: factories of (module, inputs). Imports torch."""
    _see_tests()
    # The module programs of the tests; pyright resolves the name to this file.
    from programs import PROGRAMS  # pyright: ignore[reportAttributeAccessIssue]

    return PROGRAMS


def suite() -> ModuleType:
    """The module of the suite, ``spyre_mlir.zoo.suite``. Imports torch."""
    return importlib.import_module("spyre_mlir.zoo.suite")


def suite_checks() -> ModuleType:
    """The module of the checks of the suite, ``test/python/suite_checks.py``. Imports torch."""
    _see_tests()
    return importlib.import_module("suite_checks")


def families() -> ModuleType:
    """The module of the families, ``spyre_mlir.zoo.families``. Imports torch."""
    return importlib.import_module("spyre_mlir.zoo.families")


def models() -> ModuleType:
    """The module of whole models, ``spyre_mlir.zoo.models``. Imports torch."""
    return importlib.import_module("spyre_mlir.zoo.models")


def cascade_programs() -> ModuleType:
    """The module of random cascades, ``test/python/cascade_programs.py``. Imports torch."""
    _see_tests()
    return importlib.import_module("cascade_programs")


def deviations() -> ModuleType:
    """The module of the numbers of models, ``test/python/deviations.py``. Imports torch."""
    _see_tests()
    return importlib.import_module("deviations")


def operation_lists() -> ModuleType:
    """The module of operation lists, ``test/python/operation_lists.py``. Imports torch."""
    _see_tests()
    return importlib.import_module("operation_lists")


def op_coverage() -> ModuleType:
    """The module of docs/coverage.md, ``test/python/op_coverage.py``. Imports torch."""
    _see_tests()
    return importlib.import_module("op_coverage")


def ktir_programs() -> ModuleType:
    """The module of the groups of programs in KTIR, ``test/python/ktir_programs.py``. Imports torch."""
    _see_tests()
    return importlib.import_module("ktir_programs")


def race_runs() -> ModuleType:
    """The module of runs under schedules, ``test/python/race_runs.py``."""
    _see_tests()
    return importlib.import_module("race_runs")


def random_program(seed: int) -> tuple[Any, Any]:
    """Return a random program, ``random_programs.RandomProgram``, and its inputs. Imports torch."""
    _see_tests()
    program = importlib.import_module("random_programs").RandomProgram(seed)
    return program, program.inputs


def fuzz_kinds() -> ModuleType:
    """The module of the cases of the fuzzer, ``test/python/fuzz_kinds.py``. Imports torch."""
    _see_tests()
    return importlib.import_module("fuzz_kinds")


def fuzz_minimise() -> ModuleType:
    """The module that makes cases of the fuzzer small. Imports torch."""
    _see_tests()
    return importlib.import_module("fuzz_minimise")


def fuzz_workers() -> ModuleType:
    """The module of the processes of the fuzzer."""
    _see_tests()
    return importlib.import_module("fuzz_workers")


def opinfo_samples() -> ModuleType:
    """The module of the samples of PyTorch's operator database. Imports torch and its tests."""
    _see_tests()
    return importlib.import_module("opinfo_samples")


def import_graph() -> ModuleType:
    """The module of the imports between the files of the checkout."""
    _see_tests()
    return importlib.import_module("import_graph")


def changed() -> ModuleType:
    """The module of ``make check-changed``."""
    _see_tests()
    return importlib.import_module("changed")


def opinfo_on_device() -> ModuleType:
    """The module of the samples of that database on tensors of the device. Imports torch and its tests."""
    _see_tests()
    return importlib.import_module("opinfo_on_device")


def floor_programs() -> ModuleType:
    """The module of random programs and of their least times. Imports torch."""
    _see_tests()
    return importlib.import_module("floor_programs")


def suite_linalg(name: str) -> Any:
    """The ``ir.Module`` of a program of the suite at full size, whose weights take no memory."""
    from spyre_mlir.dialects import context
    from spyre_mlir.frontend import import_torch

    model, inputs = suite().program(name, suite().FULL, weights=False)
    return import_torch(model, inputs, context=context()).module


def _see_tests() -> None:
    folder = str(ROOT / "test" / "python")
    if folder not in sys.path:
        sys.path.insert(0, folder)
