# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Remarks: one record for each decision of a pass, so that a plan can be read, asserted on and compared.

A pass calls ``self.remark(op, kind, reason, before=.., after=..)``. The reason is a ``Statement`` if other code reads
its data, else a sentence. The records go to the current collector of the pipeline run; without a collector they are
dropped. Records are in the order of the decisions, so the same input and options give the same file, byte for byte.
"""

from __future__ import annotations

import contextvars
import json
from contextlib import AbstractContextManager
from dataclasses import field
from typing import Any, Protocol

from spyre_mlir.compile_lock import assigned
from spyre_mlir.records import Statement, dataclass

_TEXTS, _COSTS = ("pass_name", "op_location", "op_name", "kind", "reason"), ("before", "after")
_MODULE = "module"

#: The kind of a remark that is always shown: tools print it as ``file:line:col: warning: reason``.
WARNING = "warning"

#: The kind of a remark about an operation that the host runs.
HOST = "host"

#: The reason for which the host runs an operation that the device supports. It follows from other work of the host.
TOO_SMALL = "a host operation reads it, and its work is too small for a bundle"

#: The kind of a remark about the dynamic sizes that a bundle supports.
SIZE = "size"

#: The kind of a remark about a change that a trial has shown to save time.
FINDING = "finding"


class RemarkEmitter(Protocol):
    """Interface of a pass that emits remarks."""

    def remark(
        self,
        op: Any,
        kind: str,
        reason: str | Statement,
        before: float | None = None,
        after: float | None = None,
    ) -> None:
        """Record a decision about ``op``; ``before`` and ``after`` are costs in the unit that the reason names."""
        ...


_current: contextvars.ContextVar[Remarks | None] = contextvars.ContextVar("remarks", default=None)


@dataclass(frozen=True)
class Remark:
    """One decision of a pass about an operation.

    Attributes:
        pass_name: The pass.
        op_location: ``file:line:column`` of the operation, or empty.
        op_name: The name of the operation, such as ``linalg.generic``.
        kind: The decision, as one word.
        reason: The reason, as a sentence.
        before: The cost before, in the unit that the reason names.
        after: The cost after, in the same unit.
        module: The path of the PyTorch submodule that the operation comes from; empty for the model itself and for an
            operation without a PyTorch module.
        data: The record that makes the reason; None for a reason that was given as a sentence, or read from a file.
    """

    pass_name: str
    op_location: str
    op_name: str
    kind: str
    reason: str
    before: float | None = None
    after: float | None = None
    module: str = ""
    data: Statement | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        costs = "" if self.before is None and self.after is None else f" ({self.before} -> {self.after})"
        return f"[{self.pass_name}] {self.kind}: {self.with_module}{costs}"

    @property
    def with_module(self) -> str:
        """The reason, with the module as a prefix if it is known."""
        return f"in '{self.module}': {self.reason}" if self.module else self.reason


class Remarks(list[Remark]):
    """A list of remarks that can become the current collector and be written as JSON lines."""

    def collecting(self) -> AbstractContextManager[Remarks]:
        """Make this the current collector of ``add`` within a block."""
        return assigned(_current, self)

    def of_kind(self, kind: str) -> list[Remark]:
        """Return the remarks of a ``kind``."""
        return [remark for remark in self if remark.kind == kind]

    def json_lines(self) -> str:
        """Format one JSON object per line, fields in the order of ``Remark``, without absent fields."""
        lines = []
        for remark in self:
            record = {name: getattr(remark, name) for name in (*_TEXTS, *_COSTS)}
            # Other texts are kept when they are empty, but an empty module is omitted.
            record[_MODULE] = remark.module or None
            present = {name: value for name, value in record.items() if value is not None}
            lines.append(json.dumps(present) + "\n")
        return "".join(lines)

    @classmethod
    def from_json_lines(cls, text: str) -> Remarks:
        """Parse the ``text`` of ``json_lines``.

        Raises:
            ValueError: A line is not a remark.
        """
        fields: dict[str, Any] = dict.fromkeys((*_TEXTS, _MODULE), str) | dict.fromkeys(_COSTS, (int, float))
        remarks = cls()
        for number, line in enumerate(text.splitlines(), 1):
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            if not isinstance(record, dict) or not set(_TEXTS) <= record.keys() <= fields.keys():
                raise ValueError(f"Line {number} is not a remark.")
            if not all(isinstance(value, fields[name]) for name, value in record.items()):
                raise ValueError(f"Line {number} is not a remark: a field has the wrong type.")
            remarks.append(Remark(**record))
        return remarks


def add(remark: Remark) -> None:
    """Append a remark to the current collector, if there is one."""
    collector = _current.get()
    if collector is not None:
        collector.append(remark)
