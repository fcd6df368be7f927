# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fitted constants of a device file, marked by words in their comments: ``fitted LOW to HIGH``.

    access_ns = 967         # C: least squares, five rows of softmax; fitted 10 to 10000

LOW and HIGH bound the constant; if both are above 0, the scale is logarithmic. Any number alone on its line may be
marked. A new file has the same lines with other numbers; ``[fit: ..]`` after the mark says how well each is known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass
from spyre_mlir.target.target import is_integer

_NUMBER = r"-?\d+(?:\.\d*)?(?:e-?\d+)?"
_SECTION = re.compile(r"\s*\[(\w+)\]")
_MARKED = re.compile(
    rf"(?P<key>\s*\w+\s*=\s*)(?P<value>{_NUMBER})(?P<space>\s*)#(?P<mark>.*\bfitted (?P<low>{_NUMBER})"
    rf" to (?P<high>{_NUMBER}))(?: \[fit: [^\]]*\])?(?P<rest>.*)"
)
_HEAD = "# Fitted by spyre-calibrate "


@dataclass(frozen=True)
class FittedConstant:
    """A number of a device file: section and key, value, bounds; ``line`` counts from 0."""

    path: str
    value: float
    low: float
    high: float
    line: int
    is_integer: bool

    @property
    def is_logarithmic(self) -> bool:
        """Return whether the constant is fitted on a logarithmic scale: equal factors are equal steps."""
        return self.low > 0

    def fraction_of(self, value: float) -> float:
        """Return where a value lies between the bounds, 0 to 1."""
        value = min(max(value, self.low), self.high)
        if self.is_logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def value_of(self, fraction: float) -> float:
        """Return the value at a ``fraction`` (0 to 1) of the way between the bounds."""
        if self.is_logarithmic:
            return self.low * (self.high / self.low) ** fraction
        return self.low + fraction * (self.high - self.low)

    def text(self, value: float) -> str:
        """Return a value as text for the file: a whole number, or four digits."""
        return str(round(value)) if self.is_integer else f"{value:.4g}"


def fitted_constants(text: str, source: str) -> list[FittedConstant]:
    """Return the marked constants of a device file; ``CompileError`` if there are none or bounds are invalid."""
    constants, section = [], ""
    for number, line in enumerate(text.splitlines()):
        if header := _SECTION.match(line):
            section = header[1]
        if match := _MARKED.fullmatch(line):
            key = match["key"].partition("=")[0].strip()
            value, low, high = (float(match[name]) for name in ("value", "low", "high"))
            if not low <= value <= high or low == high:
                raise CompileError(
                    f"The constant {key} = {match['value']} is to be fitted from {match['low']} to"
                    f" {match['high']}; its value must lie between two such bounds.",
                    f"{source}:{number + 1}",
                )
            path = f"{section}.{key}"
            constants.append(FittedConstant(path, value, low, high, number, is_integer(path)))
    if not constants:
        raise CompileError(
            "No constant of the device file is marked as fitted: write 'fitted LOW to HIGH' into the comment of each.",
            source,
        )
    return constants


def device_text(
    text: str,
    constants: Sequence[FittedConstant],
    values: Sequence[float],
    notes: Mapping[str, str],
    head: str,
) -> str:
    """Return a device file with new values of constants; ``notes`` by path follow comments, ``head`` is line 1."""
    lines = text.splitlines()
    for constant, value in zip(constants, values, strict=True):
        match = _MARKED.fullmatch(lines[constant.line])
        assert match is not None
        number = match["value"] if value == constant.value else constant.text(value)
        # Comments stay in their column.
        space = " " * max(1, len(match["value"]) + len(match["space"]) - len(number))
        note = f" [fit: {notes[constant.path]}]"
        lines[constant.line] = f"{match['key']}{number}{space}#{match['mark']}{note}{match['rest']}"
    # The line of an earlier fit is no longer true.
    return "\n".join([f"{_HEAD}{head}", *(line for line in lines if not line.startswith(_HEAD)), ""])
