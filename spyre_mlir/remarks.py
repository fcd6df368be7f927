# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Remarks: every decision of a pass as one record, so that a plan can be read, asserted on and compared.

A pass calls ``self.remark(op, kind, reason, before=.., after=..)``. The records go to the collector that
is current while a pipeline runs; without one they are dropped. Order is the order of decisions, so the same
input and options give the same file, byte for byte.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import json
from collections.abc import Iterator
from typing import Any, Protocol

from spyre_mlir.records import dataclass

_TEXTS, _COSTS = ("pass_name", "op_location", "op_name", "kind", "reason"), ("before", "after")
_MODULE = "module"

#: The kind of a remark that users should see without asking: tools print it as ``file:line:col: warning: reason``.
WARNING = "warning"

#: The kind of a remark about an operation that the host runs.
HOST = "host"

#: The kind of a remark about the sizes that a bundle is for.
SIZE = "size"

#: The kind of a remark about a change that a trial has shown to save time.
FINDING = "finding"


class RemarkEmitter(Protocol):
    """A pass as the author of remarks."""

    def remark(
        self, op: Any, kind: str, reason: str, before: float | None = None, after: float | None = None
    ) -> None:
        """Record a decision about ``op``; ``before`` and ``after`` are costs in the unit the reason names."""
        ...


_current: contextvars.ContextVar[Remarks | None] = contextvars.ContextVar("remarks", default=None)


@dataclass(frozen=True)
class Remark:
    """One decision of a pass about an operation.

    Attributes:
        pass_name: The pass.
        op_location: The operation's ``file:line:column``, empty if it is unknown.
        op_name: The operation, ``linalg.generic`` for instance.
        kind: What was decided, as a word.
        reason: Why, as a sentence.
        before: The cost before, in the unit that the reason names.
        after: The cost after, in the same unit.
        module: The path of the PyTorch module that the operation is of, empty for that of the model itself and where
            there is none.
    """

    pass_name: str
    op_location: str
    op_name: str
    kind: str
    reason: str
    before: float | None = None
    after: float | None = None
    module: str = ""

    def __str__(self) -> str:
        costs = "" if self.before is None and self.after is None else f" ({self.before} -> {self.after})"
        return f"[{self.pass_name}] {self.kind}: {self.with_module}{costs}"

    @property
    def with_module(self) -> str:
        """The reason, behind the module where that is known."""
        return f"in '{self.module}': {self.reason}" if self.module else self.reason


class Remarks(list[Remark]):
    """A collector: a list of remarks that can be made the current one and written as JSON lines."""

    @contextlib.contextmanager
    def collecting(self) -> Iterator[Remarks]:
        """Make this the current collector of ``add`` within a block."""
        token = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(token)

    def of_kind(self, kind: str) -> list[Remark]:
        """Return the remarks of a ``kind``."""
        return [remark for remark in self if remark.kind == kind]

    def json_lines(self) -> str:
        """Format one JSON object per line, fields in the order of ``Remark``, without what is absent."""
        return "".join(json.dumps(_record(remark)) + "\n" for remark in self)

    @classmethod
    def from_json_lines(cls, text: str) -> Remarks:
        """Parse the ``text`` of ``json_lines``.

        Raises:
            ValueError: A line is no remark.
        """
        return cls(_remark(line, number) for number, line in enumerate(text.splitlines(), 1))


def add(remark: Remark) -> None:
    """Append to the current collector, if there is one."""
    collector = _current.get()
    if collector is not None:
        collector.append(remark)


def _record(remark: Remark) -> dict[str, str | float]:
    record = dataclasses.asdict(remark)
    # Texts may be empty, but the module is left out.
    record[_MODULE] = remark.module or None
    return {name: value for name, value in record.items() if value is not None}


def _remark(line: str, number: int) -> Remark:
    fields: dict[str, Any] = dict.fromkeys((*_TEXTS, _MODULE), str) | dict.fromkeys(_COSTS, (int, float))
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict) or not set(_TEXTS) <= record.keys() <= fields.keys():
        raise ValueError(f"Line {number} is not a remark.")
    if not all(isinstance(value, fields[name]) for name, value in record.items()):
        raise ValueError(f"Line {number} is not a remark: a field has the wrong type.")
    return Remark(**record)
