# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Members of a JSON object that a file may lack, may have in several forms, or may have without an effect."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from spyre_mlir.bundle.json_fields import Field
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import DEVICE_OPS, DeviceOp

_EMPTY = ("", "{}", None, 0, False)


@dataclass
class FieldFilter:
    """Remove members that have no effect; ``ignored`` are the paths of the removed members that had a value."""

    ignored: list[str] = field(default_factory=list)

    def drop(self, parent: Field, *keys: str) -> None:
        """Remove members that do not affect what a design computes; list those that are not empty."""
        for key in keys:
            if key in parent:
                if not is_empty(parent.value[key]):
                    self.ignored.append(parent[key].path)
                del parent.value[key]

    @staticmethod
    def require_empty(parent: Field, reason: str, *keys: str) -> None:
        """Remove members that are empty; a member that is not empty is an error with the reason."""
        for key in keys:
            if key in parent:
                if not is_empty(parent.value[key]):
                    parent[key].fail(reason)
                del parent.value[key]


def is_empty(value: Any) -> bool:
    """Return whether a JSON value is empty, or a container of empty values only."""
    if isinstance(value, dict):
        return all(is_empty(member) for member in value.values())
    if isinstance(value, list):
        return all(is_empty(item) for item in value)
    return any(value is empty or value == empty for empty in _EMPTY)


def default(field: Field, key: str, value: Any) -> None:
    """Add a member to an object that lacks it."""
    if key not in field:
        field.value[key] = value


def integer(field: Field) -> int:
    """Return an integer; accept one written as a string or as a number with a zero fraction."""
    if isinstance(field.value, str):
        return field.integer_text()
    if isinstance(field.value, float) and field.value.is_integer():
        return int(field.value)
    return field.integer()


def operations_of(function: str) -> list[DeviceOp]:
    """Return the device operations that share one name in the SuperDSC specification."""
    return [op for op in DEVICE_OPS.values() if (op.function or op.name) == function]
