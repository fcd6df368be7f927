# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The lines of a module at a level: its operations without what is inside of them, shortened, each with its origin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field

from spyre_mlir.bundle.level_lines import LevelLine
from spyre_mlir.bundle.model import Origin
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass

#: The name of the level that a module comes at, and those that are kept besides.
INPUT, KEPT = "input", ("device-ops", "placed")

#: Characters of a line; numbers of a constant that are printed.
_CHARACTERS, _NUMBERS = 160, 8

#: What says nothing about where an operation goes.
_PLAIN = ("arith.constant", "tensor.empty", "func.", "return", "linalg.yield", "module", "}", "^")

_LOCATION = re.compile(r" loc\((.*)\)$")
_PLACE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)')
_NOTE = r'{} = "([^"]*)"'

#: What makes a line long: maps of a generic op that follow from its dims, the history, of a layout all but its dims.
#: Attributes come before the types, which are cut off first.
_LONG = (
    (re.compile(r"\{indexing_maps = \[.*?\], iterator_types = \[[^]]*\]\} "), ""),
    (re.compile(r"sdsc\.history = \[\[.*?\]\],? ?"), ""),
    (re.compile(r"(linalg\.generic) (ins.*?) attrs = +(\{.*\})"), r"\1 \3 \2"),
    (re.compile(r"(linalg\.generic) \{(.*?)sdsc\.op = #sdsc\.op<(\"[^\"]*\")[^>]*>(?:, )?"), r"\1 \3 {\2"),
    (re.compile(r"#stick\.layout<affine_map<\([^)]*\) -> \(([^>]*)\)>>"), r"#stick.layout<\1>"),
)


@dataclass
class _Head:
    """The line in which an operation begins, how far it is indented, and the operations inside."""

    indent: int
    text: str
    inside: list[str] = field(default_factory=list)

    @property
    def is_computing(self) -> bool:
        """Return whether what is inside belongs to this operation; loops and functions have operations inside."""
        return not _name(self.text).startswith(("scf.", "func.", "module"))


def level_lines(operation: ir.Operation) -> tuple[LevelLine, ...]:
    """Return the lines of a module."""
    # At once: to print an operation alone counts all values of its function.
    text = operation.get_asm(enable_debug_info=True, use_local_scope=True, large_elements_limit=_NUMBERS)
    return tuple(_lines(text.split("\n")))


def _lines(texts: list[str]) -> Iterator[LevelLine]:
    """Yield the operations; of one with regions the head is in one line and the location where they end."""
    heads = list[_Head]()
    for text in texts:
        match = _LOCATION.search(text)
        body = (text[: match.start()] if match else text).rstrip()
        indent, body = len(body) - len(body.lstrip()), body.strip()
        is_end = bool(heads) and heads[-1].indent == indent and body.startswith("}")
        head = heads.pop() if is_end else _Head(indent, body)
        if match is None:
            if body.endswith("{"):
                heads.append(head)
            continue
        outer = next((outer for outer in heads if outer.is_computing), None)
        if _name(head.text).startswith(_PLAIN):
            continue
        if outer is not None:
            outer.inside.append(_name(head.text).split(" ")[0])
        else:
            yield LevelLine(_origin(match[1]), _short(head))


def _name(head: str) -> str:
    return head.partition(" = ")[2] if head.startswith("%") else head


def _short(head: _Head) -> str:
    text = head.text.removesuffix("{").rstrip()
    for pattern, shorter in _LONG:
        text = pattern.sub(shorter, text)
    text = text.replace(" {}", "").replace("  ", " ")
    if head.inside and "sdsc.op" not in head.text:
        text = text.replace(" ins", f" {{{', '.join(head.inside)}}} ins", 1)
    return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]} …"


def _origin(location: str) -> Origin:
    """Return the origin of a location as text: the innermost place comes first."""
    place = _PLACE.search(location)
    file, line, column = (place[1], int(place[2]), int(place[3])) if place else ("", 0, 0)
    aten, module = (re.search(_NOTE.format(name), location) for name in ("aten", "module"))
    return Origin(file, line, column, aten[1] if aten else "", module[1] if module else "")
