# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ran where: ``device_report()`` counts the operations on tensors of the device in a block of code."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from spyre_mlir.driver.steps import BundleStep
from spyre_mlir.files import write_text
from spyre_mlir.remarks import HOST
from spyre_mlir.report.activity import PLACES, Activity, activity_page, activity_text
from spyre_mlir.report.report_forms import form_of
from spyre_mlir.tensors.device_activity import Listener, listening, predicted_us


class DeviceReport(Listener):
    """Counts of a block of code, as a context.

    ::

        with spyre_mlir.device_report() as report:
            model(x)
        print(report)
        report.report("step.html")

    Attributes:
        activity: Operations by name with their calls by place, their predicted time and the reasons of the host;
            programs that were compiled; copies between host and device.
    """

    def __init__(self) -> None:
        self.activity: Activity = Activity()
        self._listening = ExitStack()

    def __enter__(self) -> Self:
        self._listening.enter_context(listening(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.close()

    def __str__(self) -> str:
        return activity_text(self.activity)

    def report(self, path: str | Path) -> Path:
        """Write a page of HTML, and return its path.

        Args:
            path: Where to write; it ends in ``.html``.

        Raises:
            CompileError: The path has another ending, or cannot be written.
        """
        form_of(path, (".html",))
        write_text(str(path), activity_page(self.activity, f"Device report {Path(path).stem}"))
        return Path(path)

    def metrics(self) -> dict[str, float]:
        """Return the totals by name."""
        activity = self.activity
        counts = {f"{place.replace(' ', '_')}_calls": activity.calls(place) for place in PLACES}
        return {
            **counts,
            "compiled_programs": activity.compiled,
            "to_device_bytes": activity.copied_bytes["to the device"],
            "from_device_bytes": activity.copied_bytes["from the device"],
            "predicted_us": activity.device_us,
        }

    def on_device(self, operation: str, program: Any) -> None:
        """Count a program that ran; a program of several steps may run a part of the operation on the host."""
        row = self.activity.operation(operation)
        bundles = sum(isinstance(step, BundleStep) for step in program.steps)
        row.calls[PLACES[2 if not bundles else bundles < len(program.steps)]] += 1
        row.device_us += predicted_us(program)
        row.reasons.update({remark.reason: 1 for remark in program.remarks if remark.kind == HOST})

    def on_host(self, operation: str, reason: str) -> None:
        """Count an operation that the host ran."""
        row = self.activity.operation(operation)
        row.calls[PLACES[2]] += 1
        row.reasons.update({reason: 1} if reason else {})

    def on_copy(self, nbytes: int, to_device: bool) -> None:
        """Count a copy."""
        way = "to the device" if to_device else "from the device"
        self.activity.copies[way] += 1
        self.activity.copied_bytes[way] += nbytes

    def on_compilation(self, operation: str, program: Any) -> None:
        """Count a program that was compiled."""
        self.activity.compiled += 1


def device_report() -> DeviceReport:
    """Return a context that counts what operations on tensors of the device do in its block.

    Threads count too: PyTorch computes gradients in threads of its own.
    """
    return DeviceReport()
