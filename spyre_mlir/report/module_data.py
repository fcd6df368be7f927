# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tree of modules as rows for the script of the page: parents before their children."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from spyre_mlir.report.modules import ModuleNode, module_tree
from spyre_mlir.report.program_facts import Operation

#: Fields of a row. Positions are those of the operations that are in no submodule, of the first of equal modules;
#: ``others`` are pairs: an operation of another of them, and that of the first which computes the same, or -1.
MODULE = (
    "$name",
    "$path",
    "parent",
    "first",
    "copies",
    "count",
    "ps",
    "bytes",
    "work",
    "positions",
    "others",
)


def module_rows_of(operations: Sequence[Operation]) -> list[tuple[Any, ...]]:
    """Return the rows; a program without modules is one row with all operations."""
    rows: list[tuple[Any, ...]] = []
    _add(rows, module_tree(operations) or ModuleNode(("",), tuple(operations), ()), -1, "")
    return rows


def equal_modules(operations: Sequence[Operation]) -> dict[str, str]:
    """Return for the path of each module that of the first of the modules that it equals, which may be its own."""
    firsts: dict[str, str] = {}
    waiting = [root] if (root := module_tree(operations)) else []
    while waiting:
        node = waiting.pop()
        firsts |= dict.fromkeys(node.paths, node.paths[0])
        waiting.extend(node.children)
    return firsts


def _add(rows: list[tuple[Any, ...]], node: ModuleNode, parent: int, outer: str) -> None:
    index, work = len(rows), node.work
    of_first = [operation for operation in node.operations if operation.module == node.paths[0]]
    every = node.all_operations
    rows.append(
        (
            _name(node.label, outer),
            node.label,
            parent,
            every[0].position if every else 0,
            node.times,
            work.executes,
            work.picoseconds,
            work.bytes,
            work.operations,
            [operation.position for operation in of_first],
            _others(node, of_first),
        )
    )
    for child in node.children:
        _add(rows, _filled(child), index, node.label if parent >= 0 else "")


def _others(node: ModuleNode, of_first: Sequence[Operation]) -> list[tuple[int, int]]:
    """Return the pairs of a node: equal modules compute the same, but move and copy what they need."""
    firsts = {key: operation.position for key, operation in zip(_keys(of_first), of_first, strict=True)}
    others = [operation for operation in node.operations if operation.module != node.paths[0]]
    return [
        (operation.position, firsts.get(key, -1))
        for key, operation in zip(_keys(others), others, strict=True)
    ]


def _keys(operations: Sequence[Operation]) -> list[tuple[str, str, int]]:
    """Return for each operation its opcode, its shape, and how many of its module before it have the same."""
    seen = Counter[tuple[str, str, str]]()
    keys: list[tuple[str, str, int]] = []
    for operation in operations:
        key = operation.module, operation.opcode, operation.shape
        keys.append((operation.opcode, operation.shape, seen[key]))
        seen[key] += 1
    return keys


def _name(label: str, outer: str) -> str:
    """What is behind the path of the outer module; of a number, with the name of the list in front."""
    name = label.removeprefix(f"{outer}.") if outer else label
    return f"{outer.rpartition('.')[2]}.{name}" if outer and name[0].isdecimal() else name


def _filled(node: ModuleNode) -> ModuleNode:
    """The first module from here on that has more in it than one other module, as a list of layers has not."""
    return node if node.operations or len(node.children) != 1 else _filled(node.children[0])
