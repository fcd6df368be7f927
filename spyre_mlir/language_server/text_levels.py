# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Levels of the compiler, and the one that a text is at: by the text alone, for an editor asks for it at once."""

from __future__ import annotations

import re

LEVELS = ("device-ops", "tiled", "laid-out", "divided", "placed", "bundle")

#: What only IR of a level has, the lowest level first.
_MARKS = (
    ("bundle", "sdscbundle."),
    ("placed", "sdsc.placement"),
    ("divided", "sdsc.division"),
    ("laid-out", "#stick.layout"),
    ("device-ops", "#sdsc.op<"),
)

_COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*')


def level_of(text: str) -> str:
    """Return the level of a text by what is in it, its comments aside; ``linalg`` in front of the first one."""
    if not any(mark in text for _, mark in _MARKS):
        return "linalg"
    code = _COMMENT.sub(lambda match: match[1] or "", text)
    return next((level for level, mark in _MARKS if mark in code), "linalg")
