# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Levels of the compiler, and the level of a text, found without parsing because an editor needs it immediately."""

from __future__ import annotations

import re

LEVELS = ("device-ops", "tiled", "laid-out", "divided", "placed", "bundle")

#: A text that first occurs in the IR of each level, the lowest level first.
_MARKS = (
    ("bundle", "sdscbundle."),
    ("placed", "sdsc.placement"),
    ("divided", "sdsc.division"),
    ("laid-out", "#stick.layout"),
    ("device-ops", "#sdsc.op<"),
)

_COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*')


def level_of(text: str) -> str:
    """Return the level of a text from its content, ignoring comments; ``linalg`` before the first level."""
    if not any(mark in text for _, mark in _MARKS):
        return "linalg"
    code = _COMMENT.sub(lambda match: match[1] or "", text)
    return next((level for level, mark in _MARKS if mark in code), "linalg")
