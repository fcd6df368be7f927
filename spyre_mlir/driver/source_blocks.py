# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Statements of Python files: the statements and calls that ran at the lines of a call stack, and blocks of them."""

from __future__ import annotations

import ast
import functools
import io
from collections.abc import Iterator, Sequence

from spyre_mlir.records import dataclass

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LAZY = (ast.Lambda, ast.GeneratorExp)


@dataclass(frozen=True)
class SourceStatement:
    """A simple statement of a function: its file, its first and last line, and its place in a list of statements.

    ``body`` is the line of the first statement of the list, and ``index`` the position in the list.
    """

    file: str
    first: int
    last: int
    body: int
    index: int

    def next_to(self, other: SourceStatement) -> bool:
        """Return whether another statement follows this statement in the same list."""
        return (self.file, self.body, self.index + 1) == (other.file, other.body, other.index)


@dataclass(frozen=True)
class SourceCall:
    """A call of an attribute, such as ``self.down(x)``, and the columns of the called expression in its line."""

    file: str
    line: int
    first: int
    last: int


def call_of(frames: Sequence[tuple[str, int]], attribute: str) -> SourceCall | None:
    """Return the only call of an attribute in the statement at the innermost line of a call stack."""
    statement = next(statements_of(frames[:1]), None)
    if statement is None or not attribute.isidentifier():
        return None
    found = [
        node.func
        for node in ast.walk(ast.parse(source_text(statement.file)))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == attribute
        and statement.first <= node.lineno <= statement.last
    ]
    if len(found) != 1 or found[0].lineno != found[0].end_lineno:
        return None
    return SourceCall(statement.file, found[0].lineno, found[0].col_offset, found[0].end_col_offset or 0)


def statements_of(frames: Sequence[tuple[str, int]]) -> Iterator[SourceStatement]:
    """Yield the statements that a block can surround, for the (file, line) pairs of a call stack, innermost first."""
    entered: tuple[str, range] | None = None
    for file, line in frames:
        statements, lazy = _parsed(file)
        # The code of a lambda and of a generator runs later than the statement that contains the code.
        inside = next((lines for lines in lazy if line in lines), None)
        if inside is not None and entered != (file, inside):
            entered = file, inside
            continue
        entered = None
        found = next((each for each in statements if each.first <= line <= each.last), None)
        if found is not None:
            yield found


@functools.cache
def _parsed(file: str) -> tuple[tuple[SourceStatement, ...], tuple[range, ...]]:
    """Return the statements of a file that stand on lines of their own, and the lines of lazy expressions."""
    text = source_text(file)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return (), ()
    lines = lines_of(text)
    statements: list[SourceStatement] = []
    for function in (node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)):
        for body in _bodies(function):
            for index, node in enumerate(body):
                last = node.end_lineno or node.lineno
                others = [other for other in body if other is not node]
                alone = not lines[node.lineno - 1][: node.col_offset].strip() and all(
                    other.lineno > last or (other.end_lineno or 0) < node.lineno for other in others
                )
                if alone and not hasattr(node, "body") and not isinstance(node, ast.Match):
                    statements.append(SourceStatement(file, node.lineno, last, body[0].lineno, index))
    lazy = [
        range(node.lineno, (node.end_lineno or node.lineno) + 1)
        for node in ast.walk(tree)
        if isinstance(node, _LAZY)
    ]
    return tuple(statements), tuple(lazy)


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements of a function, without the functions inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
            yield from _bodies(child)
    for name in ("body", "orelse", "finalbody"):
        body = getattr(node, name, None)
        if isinstance(body, list) and body:
            yield body


def source_text(file: str) -> str:
    """Return the text of a Python file; empty if there is no such file."""
    try:
        with open(file, encoding="utf-8", newline="") as stream:
            return stream.read()
    except (OSError, UnicodeDecodeError):
        return ""


def lines_of(text: str) -> list[str]:
    """Return the lines of a text as Python counts them, with their ends."""
    return list(io.StringIO(text, newline=""))


def with_blocks(text: str, blocks: Sequence[tuple[int, int, str]]) -> str:
    """Return the text of a file with ``with EXPRESSION:`` around lines, given as (first, last, expression).

    Blocks may nest. The lines inside strings of several lines keep their indentation.
    """
    strings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.JoinedStr)
        or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
        for line in range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)
    }
    ordered, result = sorted(blocks, key=lambda block: (block[0], -block[1])), []
    for number, line in enumerate(lines_of(text), 1):
        around = [block for block in ordered if block[0] <= number <= block[1]]
        indent = line[: len(line) - len(line.lstrip())]
        for depth, (first, _, expression) in enumerate(around):
            if first == number:
                result.append(f"{indent}{'    ' * depth}with {expression}:\n")
        is_moved = line.strip() and number not in strings
        result.append("    " * len(around) + line if is_moved else line)
    return "".join(result)


def with_called(text: str, calls: Sequence[tuple[SourceCall, str, str]]) -> str:
    """Return the text of a file in which the called expressions are between two texts."""
    lines = lines_of(text)
    for call, before, after in sorted(calls, key=lambda each: -each[0].first):
        # Columns count bytes.
        line = lines[call.line - 1].encode()
        called = before.encode() + line[call.first : call.last] + after.encode()
        lines[call.line - 1] = (line[: call.first] + called + line[call.last :]).decode()
    return "".join(lines)


def with_imports(text: str, added: str) -> str:
    """Return the text of a file with ``added`` after its docstring and its imports from the future."""
    tree, lines = ast.parse(text), lines_of(text)
    last = 0
    for index, node in enumerate(tree.body):
        is_docstring = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            break
        last = node.end_lineno or node.lineno
    return "".join([*lines[:last], *(["\n"] if last else []), added, *lines[last:]])
