# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operations of a program by the modules of the model: a tree of paths, in which equal layers are one node.

Layers are equal if they compute the same: their copies, layout conversions and cores may differ, for example in the
first and the last layer.

Times are shares of the timeline, which add up to the program's time; bytes are the bytes that move in device memory
under the plan; operations are counted as in the roofline, two per multiply-add. All runs of loops count.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from spyre_mlir.records import dataclass
from spyre_mlir.report.program_facts import Operation
from spyre_mlir.tables import aligned
from spyre_mlir.target.ops import Kind
from spyre_mlir.timeline.of_design import ranges_text

#: Maximum number of rows of a table of modules.
MOST_ROWS = 10

#: Maximum ratio of the longest to the shortest time of equal modules that are reported as one number.
_SAME = 1.05

#: Name of the model itself, whose path is empty.
MODEL = "(model)"

#: Suffix of the path of a module for its operations that are in none of its submodules.
ITSELF = "(itself)"


@dataclass(frozen=True)
class ModuleWork:
    """Number of executes of the program text, with their time, device memory traffic and arithmetic operations."""

    executes: int = 0
    picoseconds: int = 0
    bytes: int = 0
    operations: int = 0

    def plus(self, other: ModuleWork) -> ModuleWork:
        """Return the sum of both."""
        return ModuleWork(
            self.executes + other.executes,
            self.picoseconds + other.picoseconds,
            self.bytes + other.bytes,
            self.operations + other.operations,
        )

    def share(self, whole: ModuleWork) -> float:
        """Return the fraction of the time of ``whole``, 0 to 1."""
        return self.picoseconds / whole.picoseconds if whole.picoseconds else 0.0


@dataclass(frozen=True)
class ModuleNode:
    """A module, or sibling modules that compute the same; ``paths`` has the path of each, empty for the model.

    ``operations`` are the modules' operations that are in no submodule, in program order. The submodules of siblings
    are also merged: each of ``children`` has one or several paths for each of ``paths``.
    """

    paths: tuple[str, ...]
    operations: tuple[Operation, ...]
    children: tuple[ModuleNode, ...]

    @property
    def label(self) -> str:
        """``layers.3.attn``; for equal siblings ``layers.0 .. 11.attn``; ``(model)`` for the model itself."""
        names = []
        for column in zip(*(path.split(".") for path in self.paths), strict=True):
            # Paths differ only in numbers.
            is_same = len(set(column)) == 1
            names.append(column[0] if is_same else ranges_text(sorted(set(map(int, column))), " .. "))
        return ".".join(names) or MODEL

    @property
    def times(self) -> int:
        """Number of equal modules."""
        return len(self.paths)

    @functools.cached_property
    def own_work(self) -> ModuleWork:
        """Work of the operations that are in no submodule."""
        return functools.reduce(ModuleWork.plus, map(_work, self.operations), ModuleWork())

    @functools.cached_property
    def work(self) -> ModuleWork:
        """Work of all operations, submodules included."""
        return functools.reduce(ModuleWork.plus, (child.work for child in self.children), self.own_work)

    def work_of_each(self) -> list[ModuleWork]:
        """Return the work of each of equal modules, submodules included, in the order of ``paths``."""
        work_by_path = dict.fromkeys(self.paths, ModuleWork())
        for operation in self.all_operations:
            path = operation.module
            while path not in work_by_path:
                path = path.rpartition(".")[0]
            work_by_path[path] = work_by_path[path].plus(_work(operation))
        return list(work_by_path.values())

    @functools.cached_property
    def all_operations(self) -> tuple[Operation, ...]:
        """All operations, submodules included, in program order."""
        inner = (operation for child in self.children for operation in child.all_operations)
        return tuple(sorted((*self.operations, *inner), key=lambda operation: operation.position))


@dataclass(frozen=True)
class ModuleRow:
    """A line of a table of modules: the whole modules, or only the operations in none of their submodules."""

    node: ModuleNode
    is_whole: bool

    @property
    def label(self) -> str:
        """The label of the node, and whether it is only the module itself."""
        is_part = not self.is_whole and bool(self.node.children) and self.node.label != MODEL
        return f"{self.node.label} {ITSELF}" if is_part else self.node.label

    @property
    def times(self) -> int:
        """Number of equal modules."""
        return self.node.times

    @property
    def work(self) -> ModuleWork:
        """Total work of the row's modules."""
        return self.node.work if self.is_whole else self.node.own_work

    def work_of_each(self) -> list[ModuleWork]:
        """Return the work of each of equal modules."""
        return (self.node if self.is_whole else replace(self.node, children=())).work_of_each()


def module_tree(operations: Iterable[Operation]) -> ModuleNode | None:
    """Return the tree of modules, with siblings that compute the same in one node; None if no module is known."""
    root = _ModuleBuilder("")
    for operation in operations:
        root.at(operation.module).operations.append(operation)
    return _merged([root]) if root.children else None


def module_rows(root: ModuleNode, most: int) -> list[ModuleRow]:
    """Return at most ``most`` rows that contain each operation once; the modules with the most time are opened.

    The rows are in the order of the tree. There are more than ``most`` rows only if the model has more top-level
    modules, none of which can be omitted.
    """
    rows = [ModuleRow(root, is_whole=True)]
    while openable := [row for row in rows if row.is_whole and row.node.children]:
        largest = max(openable, key=lambda row: row.work.picoseconds)
        opened = [ModuleRow(largest.node, is_whole=False)] if largest.node.operations else []
        opened += [ModuleRow(child, is_whole=True) for child in largest.node.children]
        if largest.node is not root and len(rows) - 1 + len(opened) > most:
            # Other modules may have fewer submodules, but they account for less time.
            break
        position = rows.index(largest)
        rows[position : position + 1] = opened
    return rows


#: The signature of modules that compute nothing, and kinds of operations that only move a tensor.
_NOTHING: Hashable = ((), ())
_MOVES = (Kind.RESTICKIFY, Kind.RELAYOUT)


class _ModuleBuilder:
    """A module under construction, to which operations and submodules are added."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.operations: list[Operation] = []
        self.children: dict[str, _ModuleBuilder] = {}

    def at(self, path: str) -> _ModuleBuilder:
        """Return the module at a path relative to this module; create it if it is new."""
        builder = self
        for name in path.split(".") if path else ():
            inner = f"{builder.path}.{name}" if builder.path else name
            builder = builder.children.setdefault(name, _ModuleBuilder(inner))
        return builder

    @functools.cached_property
    def signature(self) -> Hashable:
        """Key that equal layers have in common: their computing operations and their submodules."""
        operations = []
        for operation in self.operations:
            # Moving a tensor is not computing.
            if operation.category == "clone" or operation.execution.work.kind in _MOVES:
                continue
            design = operation.design
            # Sizes of the dims without their names.
            sizes = sorted(size - design.padding.get(dim, 0) for dim, size in design.sizes.items())
            formats = tuple(operand.data_format for operand in design.operands)
            operations.append((design.opcode, tuple(sizes), formats, operation.runs))
        children = ((name, child.signature) for name, child in self.children.items())
        return tuple(operations), tuple(child for child in children if child[1] != _NOTHING)


def _merged(equal: Sequence[_ModuleBuilder]) -> ModuleNode:
    """Return the node of modules with equal signatures: their equal numbered submodules are merged, others by name."""
    operations = (operation for builder in equal for operation in builder.operations)
    groups: dict[Hashable, list[str]] = {}
    # A submodule that only moves tensors may be in only one of the modules.
    children = {name: child for builder in reversed(equal) for name, child in builder.children.items()}
    for name in dict.fromkeys(name for builder in equal for name in builder.children):
        key = children[name].signature if name.isdecimal() else name
        groups.setdefault((name.isdecimal(), key), []).append(name)
    merged = []
    for names in groups.values():
        members = [(builder.children, name) for builder in equal for name in names]
        merged.append(_merged([inside[name] for inside, name in members if name in inside]))
    return ModuleNode(
        tuple(builder.path for builder in equal),
        tuple(sorted(operations, key=lambda operation: operation.position)),
        tuple(merged),
    )


def _work(operation: Operation) -> ModuleWork:
    return ModuleWork(1, operation.execution.shares.total, operation.traffic, operation.roofline.operations)


# -- table for the terminal: share of the time, time, traffic, number of operations ------------------------------


def module_lines(operations: Iterable[Operation], most: int = MOST_ROWS) -> list[str]:
    """Return the lines of the table, with a header; no lines if no module is known.

    The rows contain each operation once. Modules are opened as long as the table has at most ``most`` rows.
    """
    root = module_tree(operations)
    if root is None:
        return []
    rows = module_rows(root, most)
    kept = sorted(rows, key=lambda row: -row.work.picoseconds)[: most - 1] if len(rows) > most else rows
    cells: list[tuple[str, ...]] = [("", "share", "us", "us each", "HBM bytes", "operations")]
    for row in rows:
        if row in kept:
            label = f"{row.label}  x {row.times:,}" if row.times > 1 else row.label
            cells.append(_cells(label, row.work, root.work, _time_of_each(row) if row.times > 1 else ""))
    if others := [row for row in rows if row not in kept]:
        work = functools.reduce(ModuleWork.plus, (row.work for row in others))
        cells.append(_cells(f"{len(others):,} others", work, root.work, ""))
    return aligned(cells, "<>>>>>")


def _cells(label: str, work: ModuleWork, whole: ModuleWork, each: str) -> tuple[str, ...]:
    time = _microseconds(work.picoseconds)
    return label, f"{work.share(whole):.0%}", time, each, f"{work.bytes:,}", f"{work.executes:,}"


def _time_of_each(row: ModuleRow) -> str:
    """Format the time of one of equal modules; as a range if the times differ."""
    times = [work.picoseconds for work in row.work_of_each()]
    least, most = _microseconds(min(times)), _microseconds(max(times))
    mean = _microseconds(row.work.picoseconds / row.times)
    return mean if max(times) <= _SAME * min(times) or least == most else f"{least} .. {most}"


def _microseconds(picoseconds: float) -> str:
    return f"{picoseconds / 1e6:,.1f}"
