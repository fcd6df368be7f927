# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The hints of a program as files: a patch of the model's files, and a Python module with a context manager."""

from __future__ import annotations

import ast
import difflib
import functools
import io
import os
import pprint
import zlib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from spyre_mlir.errors import CompileError
from spyre_mlir.files import write_text
from spyre_mlir.records import dataclass

# Statements of Python files: the statements and calls that ran at the lines of a call stack, and blocks of them.

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


_IMPORT = "from torch_spyre._inductor import spyre_hint\n"

_HINTED = '''

def spyre_hinted(called, **hint):
    """Return a function that calls another function inside a hint."""

    def call(*arguments, **keywords):
        with spyre_hint(**hint):
            return called(*arguments, **keywords)

    return call

'''


@dataclass(frozen=True)
class CodeHint:
    """A hint around code of the model, and the time that it saves.

    Attributes:
        file: The file of the model.
        first: The first line of the code.
        last: The last line of the code.
        call: The call in the line that the hint is around; None for whole statements.
        tiles: The number of tiles of each named dim.
        work_div: The number of core slices of each named dim.
        operations: The names of the operations, as in a plan.
        gain_us: Predicted time without the hint minus the time with it, after the hints before it.
    """

    file: str
    first: int
    last: int
    call: SourceCall | None
    tiles: Mapping[str, int]
    work_div: Mapping[str, int]
    operations: tuple[str, ...]
    gain_us: float = 0.0

    @property
    def arguments(self) -> str:
        """The arguments of ``spyre_hint``."""
        given = {"tiles": dict(self.tiles), "work_div": dict(self.work_div)}
        return ", ".join(f"{name}={value}" for name, value in given.items() if value)


@dataclass(frozen=True)
class TorchSpyreHints:
    """The decisions about a program that the public interface of torch-spyre expresses, and the others.

    Attributes:
        hints: The hints, in program order.
        dims: The size of each named dim, in elements.
        arguments: The names of the dims of each input and parameter.
        inputs: The names of the inputs, in the order of a call.
        layouts: The dim order of each input and parameter that does not have the default layout; the stick dim last.
        config: Fields of torch-spyre's configuration.
        others: Decisions that the public interface cannot express, one sentence each.
        plan_us: The predicted time of the program.
        hinted_us: The predicted time with the hints, if the compiler makes all other decisions.
        plain_us: The predicted time without hints, automatic tiling and joint planning.
    """

    hints: tuple[CodeHint, ...]
    dims: Mapping[str, int]
    arguments: Mapping[str, tuple[str, ...]]
    inputs: tuple[str, ...]
    layouts: Mapping[str, tuple[int, ...]]
    config: Mapping[str, Any]
    others: tuple[str, ...]
    plan_us: float
    hinted_us: float
    plain_us: float

    def patch(self) -> str:
        """Return the hints as a patch of the model's files, for ``git apply`` in the folder that the text names."""
        return patch_text(self)

    def module(self) -> str:
        """Return the text of a Python module with the context manager ``hints`` and the function ``to_device``."""
        return module_text(self)

    def save(self, folder: str | Path) -> None:
        """Write ``hints.patch`` and ``spyre_hints.py`` to a folder, which is created if it does not exist."""
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CompileError(f"The folder cannot be written: {error.strerror}.", str(folder)) from None
        for name, text in (("hints.patch", self.patch()), ("spyre_hints.py", self.module())):
            write_text(str(Path(folder) / name), text)


def patch_text(hints: TorchSpyreHints) -> str:
    """Return a patch after a list of the hints with their gains; ``git apply`` ignores the list."""
    root, lines = _root(hints), [*_comment(hints)]
    for file in _files(hints):
        before, after = (lines_of(text) for text in (source_text(file), _hinted_text(hints, file)))
        path = _relative(file, root)
        lines.append(f"diff --git a/{path} b/{path}\n")
        for line in difflib.unified_diff(before, after, f"a/{path}", f"b/{path}"):
            lines.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(lines)


def module_text(hints: TorchSpyreHints) -> str:
    """Return the text of a module that needs torch-spyre, and does not need this package."""
    root, edits = _root(hints), {}
    for file in _files(hints):
        text = source_text(file)
        before, after = lines_of(text), lines_of(_hinted_text(hints, file))
        changes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        edits[_relative(file, root)] = (
            zlib.crc32(text.encode()),
            [(first, last, "".join(after[a:b])) for tag, first, last, a, b in changes if tag != "equal"],
        )
    values = {
        "DIMS": dict(hints.dims), "ARGUMENTS": dict(hints.arguments), "INPUTS": hints.inputs,
        "LAYOUTS": dict(hints.layouts), "CONFIG": dict(hints.config), "EDITS": edits,
    }  # fmt: skip
    constants = "".join(
        f"{name} = {pprint.pformat(value, width=100, sort_dicts=False)}\n" for name, value in values.items()
    )
    imports = (
        "import contextlib\nimport inspect\nimport os\nimport sys\nimport types\nimport zlib\n\nimport torch\n"
        "from torch_spyre._C import SpyreTensorLayout\nfrom torch_spyre._inductor import config, spyre_hint\n"
        "from torch_spyre._inductor.propagate_named_dims import declare_tensor_dim, name_tensor_dims\n"
    )
    usage = (
        '"""Hints of spyre-mlir for torch-spyre: layouts, named dims, and hints in the code of the model. ::\n\n'
        "    inputs = spyre_hints.to_device(model, *inputs)\n    with spyre_hints.hints(model, *inputs):\n"
        '        torch.compile(model)(*inputs)\n"""\n\n'
    )
    comment = "".join(f"# {line}" if line.strip() else line for line in _comment(hints))
    functions = resources.files("spyre_mlir.driver").joinpath("spyre_hints.txt").read_text(encoding="utf-8")
    return f"{usage}{comment}\n{imports}\n{constants}{_HINTED.rstrip()}\n\n\n{functions}"


def _comment(hints: TorchSpyreHints) -> list[str]:
    """Return lines that list the hints with their gains, and the decisions that are not expressed."""
    root = _root(hints)
    lines = [
        f"Predicted: {hints.plan_us:,.2f} us as planned, {hints.hinted_us:,.2f} us with these hints, "
        f"{hints.plain_us:,.2f} us without.",
        f"Apply the patch in {root}, or import spyre_hints.py.",
        *(f"Set {name} = {value!r} in torch_spyre._inductor.config." for name, value in hints.config.items()),
    ]
    for hint in hints.hints:
        place = f"{_relative(hint.file, root)}:{hint.first}" + (
            f"-{hint.last}" if hint.last != hint.first else ""
        )
        lines.append(f"{place}: {hint.arguments}: {hint.gain_us:,.2f} us saved, after the hints before it.")
    lines += [f"Not expressed: {sentence}" for sentence in hints.others]
    return [f"{line}\n" for line in lines]


def _files(hints: TorchSpyreHints) -> list[str]:
    return list(dict.fromkeys(hint.file for hint in hints.hints))


def _root(hints: TorchSpyreHints) -> str:
    """Return the current folder if it contains all files; otherwise the folder that they have in common."""
    folders = [os.path.dirname(os.path.abspath(file)) for file in _files(hints)]
    common = os.path.commonpath(folders) if folders else os.getcwd()
    return os.getcwd() if os.path.commonpath([common, os.getcwd()]) == os.getcwd() else common


def _relative(file: str, root: str) -> str:
    return os.path.relpath(file, root).replace(os.sep, "/")


def _hinted_text(hints: TorchSpyreHints, file: str) -> str:
    """Return the text of a file with the hints in it."""
    found: Sequence[CodeHint] = [hint for hint in hints.hints if hint.file == file]
    calls = [(hint.call, "spyre_hinted(", f", {hint.arguments})") for hint in found if hint.call is not None]
    blocks = [(hint.first, hint.last, f"spyre_hint({hint.arguments})") for hint in found if hint.call is None]
    text = with_blocks(with_called(source_text(file), calls), blocks)
    return with_imports(text, _IMPORT + (_HINTED if calls else ""))
