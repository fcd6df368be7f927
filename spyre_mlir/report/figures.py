# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The one table of the figures that tools and pages print: unit, and what each figure covers."""

from __future__ import annotations

import functools
from importlib import resources

from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class Figure:
    """A figure: the output that prints it, its name there, its unit, and what it covers."""

    output: str
    name: str
    unit: str
    covers: str


@functools.cache
def figures() -> tuple[Figure, ...]:
    """Return all figures, in the order of the outputs."""
    text = resources.files("spyre_mlir.report").joinpath("figures.txt").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return tuple(Figure(*(cell.strip() for cell in line.split(" | "))) for line in lines)


def names_of(output: str) -> tuple[str, ...]:
    """Return the names of the figures of an output."""
    return tuple(figure.name for figure in figures() if figure.output == output)
