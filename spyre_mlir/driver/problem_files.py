# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files of algorithm problems: JSON that a compilation writes, to run any algorithm on the problem later.

A file has ``format``, ``version``, ``kind`` and the fields of the problem; null is the infinite cost of an impossible
combination. The times of a joint problem that was read come from its tables.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.algorithms import is_integer
from spyre_mlir.bundle.json_fields import parse_json
from spyre_mlir.division_search.joint_choice import JointProblem, JointTable
from spyre_mlir.division_search.work_division import DivisionOfOperation, SplitTable
from spyre_mlir.errors import CompileError
from spyre_mlir.files import read_text, write_text
from spyre_mlir.layout_search.layout_choice import LayoutProblem
from spyre_mlir.problems import Problems
from spyre_mlir.scratchpad.buffer_table import buffers_table
from spyre_mlir.scratchpad.buffers import MemorySpace

Problem = DivisionOfOperation | LayoutProblem | JointProblem

#: The fields ``format`` and ``version`` of a file.
FORMAT, VERSION = "spyre-problem", 1

#: Maximum bytes of a file, and variables of a problem.
_MAX_BYTES, _MAX_VARIABLES = 1 << 28, 1 << 20


def write_problem(problem: Problem, path: str) -> None:
    """Write a problem to a file; raise ``CompileError`` if the file cannot be written."""
    write_text(path, problem_text(problem))


def problem_text(problem: Problem) -> str:
    """Return a problem as the text of a problem file."""
    kind, fields = _plain(problem)
    fields = {"format": FORMAT, "version": VERSION, "kind": kind, **fields}
    return json.dumps(fields, allow_nan=False, separators=(",", ":")) + "\n"


def read_problem(path: str) -> Problem:
    """Read a file of ``spyre-compile --save-problems``.

    Args:
        path: The file.

    Returns:
        The problem: a division, a layout problem or a joint problem.

    Raises:
        CompileError: The file is not a valid problem file; the message names the file and the field.
    """
    reader = _Fields(parse_json(read_text(path, _MAX_BYTES), path, "problem").value, path)
    if reader.fields.get("format") != FORMAT or reader.fields.get("version") != VERSION:
        reader.fail(f"its format is not '{FORMAT}' of version {VERSION}")
    readers: dict[str, Callable[[_Fields], Problem]] = {
        "division": _division,
        "layout": _layout,
        "joint": _joint,
    }
    kind = reader.fields.get("kind")
    if kind not in readers:
        reader.fail(f"'kind' is {kind!r:.40}; there are {', '.join(readers)}")
    return readers[kind](reader)


def save_problems(problems: Problems, folder: str) -> list[str]:
    """Write the problems of a compilation to files in a folder, without duplicates; return the file names."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CompileError(f"The folder '{folder}' cannot be made: {error.strerror}.") from None
    names = []
    for bundle, kinds in problems.by_bundle.items():
        for kind in ("division", "joint", "layout"):
            texts = dict.fromkeys(map(problem_text, kinds.get(kind, ())))
            for number, text in enumerate(texts):
                names.append(f"{bundle}.{kind}.{number}.json")
                write_text(str(Path(folder) / names[-1]), text)
    return names


def save_buffers(problems: Problems, path: str) -> dict[str, MemorySpace]:
    """Write the buffers of the last solver problem of each bundle as one table; return the memory of each bundle.

    With several bundles, each bundle is a scope of the table.
    """
    last = {
        bundle: kinds["buffers"][-1] for bundle, kinds in problems.by_bundle.items() if "buffers" in kinds
    }
    write_text(path, buffers_table({bundle: buffers for bundle, (buffers, _) in last.items()}))
    return {bundle: space for bundle, (_, space) in last.items()}


def _plain(problem: Problem) -> tuple[str, dict[str, Any]]:
    """Return the kind and the fields of a problem as JSON values."""
    if isinstance(problem, DivisionOfOperation):
        names = ("opcode", "units", "extents", "committed", "cores", "uneven", "by_cost")
        sets = {name: sorted(getattr(problem, name)) for name in ("reduced", "blocked")}
        table = problem.table
        arrays = {name: getattr(table, name).tolist() for name in ("splits", "cost_ns", "read_bytes")}
        return "division", {**{name: getattr(problem, name) for name in names}, **sets, **arrays}
    if isinstance(problem, LayoutProblem):
        tables = [{"scope": scope, "costs": _nested(table)} for scope, table in problem.tables.items()]
        names = ("counts", "names", "limit_entries", "width")
        return "layout", {**{name: getattr(problem, name) for name in names}, "tables": tables}
    tables = [
        {"scope": table.scope, "operation": table.operation, "planes": _nested(table.planes)}
        for table in problem.tables
    ]
    names = ("counts", "counts_as_is", "splits")
    return "joint", {**{name: getattr(problem, name) for name in names}, "tables": tables}


def _nested(array: NDArray[np.float64]) -> Any:
    """Return an array as nested lists, with None for infinity."""
    plain = array.astype(object)
    plain[np.isinf(array)] = None
    return plain.tolist()


def _without_null(value: Any) -> Any:
    """Return nested lists with infinity for None; raise ``TypeError`` for a value that is not a number."""
    if isinstance(value, list):
        return [_without_null(entry) for entry in value]
    if isinstance(value, bool | str):
        raise TypeError
    return math.inf if value is None else value


class _Fields:
    """The fields of a problem file; each field is checked when it is read."""

    def __init__(self, fields: Any, path: str) -> None:
        self.path = path
        if not isinstance(fields, dict):
            self.fail("it is not an object")
        self.fields: Mapping[str, Any] = fields

    def fail(self, reason: str) -> NoReturn:
        """Raise a ``CompileError`` about the file."""
        raise CompileError(f"The file is not a problem: {reason}.", self.path)

    def integers(self, name: str, least: int = 0, value: Any = None) -> tuple[int, ...]:
        """Return a field as a tuple of integers of at least ``least``."""
        value = self.fields.get(name) if value is None else value
        if not isinstance(value, list) or len(value) > _MAX_VARIABLES:
            self.fail(f"'{name}' is not a list")
        if not all(is_integer(entry) and least <= entry < 1 << 60 for entry in value):
            self.fail(f"'{name}' must have whole numbers from {least}")
        return tuple(value)

    def number(self, name: str) -> int:
        """Return a field as an integer of at least 1."""
        return self.integers(name, 1, [self.fields.get(name)])[0]

    def flag(self, name: str) -> bool:
        """Return a field as a boolean."""
        value = self.fields.get(name)
        if not isinstance(value, bool):
            self.fail(f"'{name}' must be true or false")
        return value

    def array(self, name: str, value: Any, shape: Sequence[int]) -> NDArray[np.float64]:
        """Convert nested lists to a read-only array of a shape; null is infinity."""
        try:
            numbers = np.array(_without_null(value), float)
        except (ValueError, TypeError, OverflowError):
            self.fail(f"'{name}' must have numbers, or null")
        if numbers.shape != tuple(shape) or np.isnan(numbers).any() or (numbers < 0).any():
            self.fail(f"'{name}' must have {' x '.join(map(str, shape))} numbers from 0")
        numbers.setflags(write=False)
        return numbers

    def tables(self) -> list[Mapping[str, Any]]:
        """Return the field ``tables``, a list of objects."""
        value = self.fields.get("tables")
        if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
            self.fail("'tables' is not a list of objects")
        return value  # type: ignore

    def scope(self, index: int, table: Mapping[str, Any], count: int) -> tuple[int, ...]:
        """Return the variables of a table, in increasing order and below ``count``."""
        name = f"tables[{index}].scope"
        scope = self.integers(name, 0, table.get("scope", ()))
        if list(scope) != sorted(set(scope)) or any(variable >= count for variable in scope):
            self.fail(f"'{name}' must have increasing variables below {count}")
        return scope


def _division(fields: _Fields) -> DivisionOfOperation:
    units, cores = fields.integers("units", 1), fields.number("cores")
    dims = len(units)
    lists = {name: fields.integers(name, 1) for name in ("extents", "committed")}
    sets = {name: frozenset(fields.integers(name)) for name in ("reduced", "blocked")}
    if any(len(entries) != dims for entries in lists.values()) or any(
        max(s, default=0) >= dims for s in sets.values()
    ):
        fields.fail(f"its lists must match its {dims} dims")
    rows = fields.fields.get("splits")
    if not isinstance(rows, list):
        fields.fail("'splits' is not a list")
    count = len(rows)
    splits = fields.array("splits", rows or np.zeros((0, dims)), (count, dims))
    cost, read = (fields.array(name, fields.fields.get(name), (count,)) for name in ("cost_ns", "read_bytes"))
    if (splits != np.rint(splits)).any() or (splits < 1).any() or (splits.prod(axis=1) > cores).any():
        fields.fail(
            f"'splits' must have whole numbers from 1, of which a row has a product of at most {cores}"
        )
    table = SplitTable(splits.astype(np.int64), cost, read)
    return DivisionOfOperation(
        str(fields.fields.get("opcode")), units, lists["extents"], sets["reduced"], lists["committed"],
        sets["blocked"], cores, fields.flag("uneven"), fields.flag("by_cost"), functools.partial(_same, table),
    )  # fmt: skip


def _same(table: SplitTable) -> SplitTable:
    return table


def _layout(fields: _Fields) -> LayoutProblem:
    counts = fields.integers("counts", 1)
    tables = {}
    for index, table in enumerate(fields.tables()):
        scope = fields.scope(index, table, len(counts))
        shape = [counts[variable] for variable in scope]
        if scope in tables:
            fields.fail(f"'tables[{index}].scope' is the scope of an earlier table")
        tables[scope] = fields.array(f"tables[{index}].costs", table.get("costs"), shape)
    names = fields.fields.get("names")
    if (
        not isinstance(names, list)
        or len(names) not in (0, len(counts))
        or not all(isinstance(n, str) for n in names)
    ):
        fields.fail(f"'names' must have {len(counts)} texts")
    return LayoutProblem(counts, tables, tuple(names), fields.number("limit_entries"), fields.number("width"))


def _joint(fields: _Fields) -> JointProblem:
    counts, as_is = fields.integers("counts", 1), fields.integers("counts_as_is", 1)
    options = fields.fields.get("splits")
    if not isinstance(options, list) or len(options) > len(counts) or len(as_is) != len(counts):
        fields.fail("the lengths of 'splits' or 'counts_as_is' do not match 'counts'")
    if any(least > most for least, most in zip(as_is, counts, strict=True)):
        fields.fail("'counts_as_is' must not exceed 'counts'")
    splits = []
    for count, rows in zip(counts, options, strict=False):
        if not isinstance(rows, list) or len(rows) != count:
            fields.fail("'splits' must have a list for each candidate of each operation")
        splits.append(tuple(fields.integers("splits", 1, row) for row in rows))
    tables = []
    for index, table in enumerate(fields.tables()):
        scope, operation = fields.scope(index, table, len(counts)), table.get("operation")
        if operation is not None and not (is_integer(operation) and 0 <= operation < len(splits)):
            fields.fail(f"'tables[{index}].operation' is not an operation")
        shape = [3, *(counts[variable] for variable in scope)]
        tables.append(
            JointTable(scope, operation, fields.array(f"tables[{index}].planes", table.get("planes"), shape))
        )
    return JointProblem(counts, as_is, tuple(splits), tuple(tables))
