# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operations of a program at each level of the compiler, one line per operation with its origin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

from spyre_mlir.bundle.model import Origin
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class LevelLine:
    """An operation as shortened text, and its origin."""

    origin: Origin
    text: str


#: The lines of each level in program order; the levels are in compilation order.
Levels = Mapping[str, Sequence[LevelLine]]


def levels_to_json(levels: Levels) -> dict[str, Any]:
    """Return the levels as JSON values: a table of origins, and for each line its index in it and the text."""
    table: dict[Origin, int] = {}
    lines = {
        level: [[table.setdefault(line.origin, len(table)), line.text] for line in lines]
        for level, lines in levels.items()
    }
    return {"origins": [list(astuple(origin)) for origin in table], "lines": lines}


def levels_from_json(plain: Mapping[str, Any]) -> Levels:
    """Read the output of ``levels_to_json``; anything else raises some exception."""
    origins = [Origin(*fields) for fields in plain["origins"]]
    return {
        level: tuple(LevelLine(origins[index], text) for index, text in lines)
        for level, lines in plain["lines"].items()
    }
