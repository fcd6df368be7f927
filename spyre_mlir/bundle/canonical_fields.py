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
    """Removes members that change nothing; ``ignored`` are the paths of those that said something."""

    ignored: list[str] = field(default_factory=list)

    def drop(self, parent: Field, *keys: str) -> None:
        """Remove members that change nothing of what a design computes; list those that say something."""
        for key in keys:
            if key in parent:
                if not is_empty(parent.value[key]):
                    self.ignored.append(parent[key].path)
                del parent.value[key]

    @staticmethod
    def require_empty(parent: Field, reason: str, *keys: str) -> None:
        """Remove members that are empty; one that is not is an error with the reason."""
        for key in keys:
            if key in parent:
                if not is_empty(parent.value[key]):
                    parent[key].fail(reason)
                del parent.value[key]


def is_empty(value: Any) -> bool:
    """Return whether a JSON value says nothing: an empty container, or one of empty values alone."""
    if isinstance(value, dict):
        return all(is_empty(member) for member in value.values())
    if isinstance(value, list):
        return all(is_empty(item) for item in value)
    return any(value is empty or value == empty for empty in _EMPTY)


def default(field: Field, key: str, value: Any) -> None:
    """Give an object a member that it lacks."""
    if key not in field:
        field.value[key] = value


def integer(field: Field) -> int:
    """An integer, also one written as a string or as a number with an empty fraction."""
    if isinstance(field.value, str):
        return field.integer_text()
    if isinstance(field.value, float) and field.value.is_integer():
        return int(field.value)
    return field.integer()


def operations_of(function: str) -> list[DeviceOp]:
    """The device operations that the SuperDSC specification knows by one name."""
    return [op for op in DEVICE_OPS.values() if (op.function or op.name) == function]
