# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The decorator of benchmarks, and their registry."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import benchmarks

Metrics = Mapping[str, float]


class Noted(dict[str, float]):
    """Metrics with ``notes``, which are lines under the table.

    Metrics named ``<row>.<column>`` with one of the ``columns`` are shown in a separate table.
    """

    def __init__(self, metrics: Metrics, notes: Sequence[str], columns: Sequence[str] = ()) -> None:
        super().__init__(metrics)
        self.notes = tuple(notes)
        self.columns = tuple(columns)


_FOUND: dict[str, Benchmark] = {}


@dataclass(frozen=True)
class Benchmark:
    """A named function, and upper limits of some of its metrics."""

    name: str
    measure: Callable[..., Metrics]
    targets: Metrics

    def options(self) -> dict[str, Any]:
        """Return the options of the function by name, with their defaults."""
        parameters = inspect.signature(self.measure).parameters
        return {name: parameter.default for name, parameter in parameters.items()}

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.measure) or "").split("\n")[0]


def benchmark(**targets: float) -> Callable[[Callable[..., Metrics]], Callable[..., Metrics]]:
    """Register a function; ``targets`` are upper limits by metric."""

    def register(function: Callable[..., Metrics]) -> Callable[..., Metrics]:
        name = function.__name__.replace("_", "-")
        _FOUND[name] = Benchmark(name, function, targets)
        return function

    return register


def load_all() -> dict[str, Benchmark]:
    """Import every file of this folder; return all benchmarks by name."""
    for module in sorted(found.name for found in pkgutil.iter_modules(benchmarks.__path__)):
        if not module.startswith("__"):
            importlib.import_module(f"benchmarks.{module}")
    return dict(sorted(_FOUND.items()))
