# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``device_report()``: count the operations on device tensors in a block of code, by the place that ran them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from spyre_mlir.driver.steps import BundleStep
from spyre_mlir.files import write_text
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import HOST
from spyre_mlir.report.html import bytes_text, count, table, time_text
from spyre_mlir.report.program_report import document, form_of
from spyre_mlir.report.summary import Row
from spyre_mlir.report.summary import table as text_table
from spyre_mlir.tables import aligned
from spyre_mlir.tensors.device_activity import Listener, listening, predicted_us


class DeviceReport(Listener):
    """Context manager that counts the operations on device tensors in a block of code.

    ::

        with spyre_mlir.device_report() as report:
            model(x)
        print(report)
        report.report("step.html")

    Attributes:
        activity: Operations by name with their calls by place, their predicted time and the reasons for host calls;
            compiled programs; copies between host and device.
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
        """Write an HTML page, and return its path.

        Args:
            path: The output file, which must end in ``.html``.

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
        """Count a run of a program, as "device", "device and host" or "host", depending on its steps."""
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

    def on_copy(self, tensor: Any, to_device: bool) -> None:
        """Count a copy."""
        way = "to the device" if to_device else "from the device"
        self.activity.copies[way] += 1
        self.activity.copied_bytes[way] += tensor.nbytes

    def on_compilation(self, operation: str, program: Any) -> None:
        """Count a program that was compiled."""
        self.activity.compiled += 1


def device_report() -> DeviceReport:
    """Return a context manager that counts the operations on device tensors in its block.

    Operations in other threads are counted too, because PyTorch computes gradients in its own threads.
    """
    return DeviceReport()


# Device activity in a block of code: counts by operation, as a text table and as an HTML page.

#: The places that can run an operation, in the order of the columns.
PLACES = ("device", "device and host", "host")

_HEADS, _SIDES = ("operation", *PLACES, "predicted", "share", "why on the host"), "<>>>>><"

#: The note that the predicted time does not include the host.
_HOST_NOTE = "The predicted time is the time of the device; the time of the host is not predicted."


@dataclass
class OperationActivity:
    """The calls of one operation by place, their predicted device time, and the reasons for host calls."""

    name: str
    calls: Counter[str] = field(default_factory=Counter)
    device_us: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)


@dataclass
class Activity:
    """Operations by name, number of compiled programs, and number and bytes of the copies in each direction."""

    operations: dict[str, OperationActivity] = field(default_factory=dict)
    compiled: int = 0
    copies: Counter[str] = field(default_factory=Counter)
    copied_bytes: Counter[str] = field(default_factory=Counter)

    def operation(self, name: str) -> OperationActivity:
        """Return the counts of an operation; new counts are 0."""
        return self.operations.setdefault(name, OperationActivity(name))

    @property
    def device_us(self) -> float:
        """Predicted device time of all programs in microseconds."""
        return sum(row.device_us for row in self.operations.values())

    def calls(self, place: str) -> int:
        """Return the number of calls that a place ran."""
        return sum(row.calls[place] for row in self.operations.values())

    def sorted(self) -> list[OperationActivity]:
        """Return the operations by decreasing predicted time, then by decreasing number of calls."""
        rows = self.operations.values()
        return sorted(rows, key=lambda row: (-row.device_us, -row.calls.total(), row.name))


def activity_text(activity: Activity) -> str:
    """Return the totals and a line for each operation as text."""
    cells = [_cells(row, activity.device_us) for row in activity.sorted()]
    rows = ["", *aligned([_HEADS, *cells], _SIDES)] if cells else []
    return "\n".join([text_table(list(_totals(activity))), *rows])


def activity_page(activity: Activity, title: str) -> str:
    """Return an HTML page with the totals and a table of the operations."""
    cells = [_cells(row, activity.device_us) for row in activity.sorted()]
    nothing = "<p>None: no operation ran on tensors of the device.</p>"
    parts = [
        table("totals", ("", ""), _totals(activity), "<<"),
        f'<p class="note">{_HOST_NOTE}</p>',
        "<h2>Operations</h2>",
        table("operations", _HEADS, cells, _SIDES) if cells else nothing,
    ]
    return document(title, parts)


def _totals(activity: Activity) -> Iterator[Row]:
    calls = [count(activity.calls(place), "call") for place in PLACES]
    yield "on the device", calls[0]
    yield "on device and host", calls[1]
    yield "on the host", calls[2]
    yield "compiled", count(activity.compiled, "program")
    for way in ("to the device", "from the device"):
        yield way, f"{bytes_text(activity.copied_bytes[way])} in {_copies(activity.copies[way])}"
    yield "predicted", time_text(1000 * activity.device_us)


def _copies(number: int) -> str:
    return f"{number:,} copy" if number == 1 else f"{number:,} copies"


def _cells(row: OperationActivity, total_us: float) -> list[str]:
    share = f"{row.device_us / total_us:.1%}" if total_us else ""
    calls = [f"{row.calls[place]:,}" if row.calls[place] else "" for place in PLACES]
    time = time_text(1000 * row.device_us) if row.device_us else ""
    return [row.name, *calls, time, share if time else "", "; ".join(row.reasons)]
