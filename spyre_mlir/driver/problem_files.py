# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files of algorithm problems: JSON that a compilation writes, to run any algorithm on the problem later.

A file has ``format``, ``version``, ``kind`` and the fields of the problem; null is the infinite cost of an impossible
combination. The times of a joint problem that was read come from its tables.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.json_fields import Field, parse_json, require_same
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
    if isinstance(problem, DivisionOfOperation):
        names = ("opcode", "units", "extents", "committed", "cores", "uneven", "by_cost")
        sets = {name: sorted(getattr(problem, name)) for name in ("reduced", "blocked")}
        table = problem.table
        arrays = {name: getattr(table, name).tolist() for name in ("splits", "cost_ns", "read_bytes")}
        kind, fields = "division", {**{name: getattr(problem, name) for name in names}, **sets, **arrays}
    elif isinstance(problem, LayoutProblem):
        tables = [{"scope": scope, "costs": _nested(table)} for scope, table in problem.tables.items()]
        names = ("counts", "names", "limit_entries", "width")
        kind, fields = "layout", {**{name: getattr(problem, name) for name in names}, "tables": tables}
    else:
        tables = [
            {"scope": table.scope, "operation": table.operation, "planes": _nested(table.planes)}
            for table in problem.tables
        ]
        names = ("counts", "counts_as_is", "splits")
        kind, fields = "joint", {**{name: getattr(problem, name) for name in names}, "tables": tables}
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
    root = parse_json(read_text(path, _MAX_BYTES), path, "problem")
    for name, expected in (("format", FORMAT), ("version", VERSION)):
        require_same(root[name], expected)
    readers: dict[str, Callable[[Field], Problem]] = {
        "division": _division,
        "layout": _layout,
        "joint": _joint,
    }
    if (kind := root["kind"].text()) not in readers:
        root["kind"].fail(f"is {kind!r:.40}; there are {', '.join(readers)}")
    return readers[kind](root)


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


def _integers(field: Field, least: int = 0) -> tuple[int, ...]:
    """Read a list of integers of at least ``least``."""
    values = field.integers()
    if len(values) > _MAX_VARIABLES or not all(least <= value < 1 << 60 for value in values):
        field.fail(f"must have at most {_MAX_VARIABLES} whole numbers from {least}")
    return values


def _count(field: Field) -> int:
    if not 1 <= field.integer() < 1 << 60:
        field.fail(f"must be a whole number from 1 but is {field.value}")
    return field.value


def _array(field: Field, *shape: int) -> NDArray[np.float64]:
    """Read nested lists as a read-only array of a shape; null is infinity."""
    text = f"must have {' x '.join(map(str, shape))} numbers from 0, or null"
    try:
        numbers = np.array(_without_null(field.value), float)
        numbers = numbers if numbers.size else numbers.reshape(shape)
    except (ValueError, TypeError, OverflowError):
        field.fail(text)
    if numbers.shape != shape or np.isnan(numbers).any() or (numbers < 0).any():
        field.fail(text)
    numbers.setflags(write=False)
    return numbers


def _scope(field: Field, count: int) -> tuple[int, ...]:
    """Read the variables of a table, in increasing order and below ``count``."""
    scope = _integers(field)
    if list(scope) != sorted(set(scope)) or any(variable >= count for variable in scope):
        field.fail(f"must have increasing variables below {count}")
    return scope


def _division(root: Field) -> DivisionOfOperation:
    units, extents, committed = (_integers(root[name], 1) for name in ("units", "extents", "committed"))
    reduced, blocked = (frozenset(_integers(root[name])) for name in ("reduced", "blocked"))
    dims, cores = len(units), _count(root["cores"])
    if {len(extents), len(committed)} != {dims} or any(dim >= dims for dim in reduced | blocked):
        root.fail(f"has lists that do not match its {dims} dims")
    count = len(root["splits"].items())
    splits = _array(root["splits"], count, dims)
    cost, read = (_array(root[name], count) for name in ("cost_ns", "read_bytes"))
    if (splits != np.rint(splits)).any() or (splits < 1).any() or (splits.prod(axis=1) > cores).any():
        root["splits"].fail(
            f"must have whole numbers from 1, of which a row has a product of at most {cores}"
        )
    table = SplitTable(splits.astype(np.int64), cost, read)
    return DivisionOfOperation(
        root["opcode"].text(), units, extents, reduced, committed, blocked, cores,
        root["uneven"].boolean(), root["by_cost"].boolean(), functools.partial(_same, table),
    )  # fmt: skip


def _same(table: SplitTable) -> SplitTable:
    return table


def _layout(root: Field) -> LayoutProblem:
    counts = _integers(root["counts"], 1)
    tables = {}
    for table in root["tables"].items():
        scope = _scope(table["scope"], len(counts))
        if scope in tables:
            table["scope"].fail("is the scope of an earlier table")
        tables[scope] = _array(table["costs"], *(counts[variable] for variable in scope))
    names = root["names"].texts()
    if len(names) not in (0, len(counts)):
        root["names"].fail(f"must have {len(counts)} texts")
    return LayoutProblem(counts, tables, names, _count(root["limit_entries"]), _count(root["width"]))


def _joint(root: Field) -> JointProblem:
    counts, as_is = (_integers(root[name], 1) for name in ("counts", "counts_as_is"))
    options = root["splits"].items()
    if len(options) > len(counts) or len(as_is) != len(counts):
        root.fail("has 'splits' or 'counts_as_is' whose length does not match 'counts'")
    if any(least > most for least, most in zip(as_is, counts, strict=True)):
        root["counts_as_is"].fail("must not exceed 'counts'")
    splits = tuple(
        tuple(_integers(row, 1) for row in rows.items(count))
        for count, rows in zip(counts, options, strict=False)
    )
    tables = []
    for table in root["tables"].items():
        scope, operation = _scope(table["scope"], len(counts)), table["operation"]
        if operation.value is not None and not 0 <= operation.integer() < len(splits):
            operation.fail("is not an operation")
        planes = _array(table["planes"], 3, *(counts[variable] for variable in scope))
        tables.append(JointTable(scope, operation.value, planes))
    return JointProblem(counts, as_is, splits, tuple(tables))
