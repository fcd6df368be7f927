# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Observers of a run: what is told of the IR in front of each pass, behind it, and where it fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from spyre_mlir.mlir import PassManager, ir
from spyre_mlir.pipelines.text import PipelineStep


class Observer(Protocol):
    """A reader of the IR between passes, which it does not change."""

    def entered(self, step: PipelineStep, operation: ir.Operation) -> None:
        """Take note of the IR in front of a pass."""
        ...

    def passed(self, step: PipelineStep, operation: ir.Operation) -> None:
        """Take note of the IR behind a pass."""
        ...

    def failed(self, step: PipelineStep, operation: ir.Operation) -> None:
        """Take note of the IR that a pass left when it failed."""
        ...


class ObservedManager:
    """The pass manager of a step, whose runs observers are told of."""

    def __init__(self, step: PipelineStep, manager: PassManager, observers: Sequence[Observer]) -> None:
        self._step, self._manager, self._observers = step, manager, observers

    def run(self, operation: ir.Operation) -> None:
        """Run the pass; its exceptions are those of the manager."""
        for observer in self._observers:
            observer.entered(self._step, operation)
        try:
            self._manager.run(operation)
        except Exception:
            for observer in self._observers:
                observer.failed(self._step, operation)
            raise
        for observer in self._observers:
            observer.passed(self._step, operation)
