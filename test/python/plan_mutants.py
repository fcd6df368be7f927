# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mutants of plan files and of tables of buffers: a seed gives what was changed, and the text.

A mutant is right, or it is refused by one diagnostic: never an internal error, a hang, or a plan that overlaps.
``BASE`` is the program (``linalg``) that the plan files are about.
"""

from __future__ import annotations

import copy
import functools
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import spyre_mlir

BASE = """
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
func.func @main(%x: tensor<96x128xf16>, %sum: tensor<128xf16>) -> tensor<96x128xf16> {
  %e = tensor.empty() : tensor<96x128xf16>
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %sum : tensor<96x128xf16>, tensor<128xf16>) outs(%e : tensor<96x128xf16>) {
  ^bb0(%a: f16, %s: f16, %o: f16):
    %exp = math.exp %a : f16
    %r = arith.divf %exp, %s : f16
    linalg.yield %r : f16
  } -> tensor<96x128xf16>
  %z = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<96x128xf16>) outs(%e : tensor<96x128xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = math.tanh %a : f16
    linalg.yield %r : f16
  } -> tensor<96x128xf16>
  return %z : tensor<96x128xf16>
}
"""

#: Whole numbers at and beyond the limits of fields.
_INTEGERS = (
    0, 1, -1, 2, 3, 7, 31, 32, 33, 64, 127, 128, 129, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) + 1, (1 << 53) + 1,
    (1 << 62), (1 << 63) - 1, 1 << 63, -(1 << 63), (1 << 64) + 128, 10**30, -(10**40), 10**400,
)  # fmt: skip
#: Half of a surrogate pair, which JSON can write and a file cannot hold.
_HALF = "\ud800/1"
_FLOATS = (0.5, -0.0, 1e308, 1e-320, float("nan"), float("inf"), float("-inf"))
_TEXTS = (
    "", " ", "x", "hbm", "lx", "pool", "a\0b", "\u202e", "\U0001f600", "<script>alert(1)</script>", "../../etc/passwd",
    "%s%n{0}",
    "x" * 10_000, "(d0, d1) -> (d0, d1)", "(d0, d1) -> (d1 floordiv 0, d0, d1 mod 0)", "(d0) -> (d0", "NaN", "1e3",
)  # fmt: skip
_OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], {"": 0}, [1, "x"])

#: Fields of plan files in the wrong places.
_FIELDS = (
    "version", "arguments", "operations", "name", "shape", "dtype", "layout", "slices", "core_order", "cores",
    "tiling", "result", "placement", "spilled", "loop", "dim", "tiles", "dim_order", "stick_dims",
    "stick_outermost", "lx", "pool",
)  # fmt: skip

_TABLE = """id,lower,upper,size,alignment,in_place_parent,uses,copies
query,0,3,4096,,,0 2,
key,0,3,2048,64,,,
scores,2,5,4096,128,query,2 3 4,1
probabilities,4,6,4096,1,scores,,2
result,5,9,100,,,5 8,
"""


def plan_mutant(seed: int) -> tuple[str, str]:
    """Return a description of the change, and the text of a plan file of ``BASE``."""
    rng = random.Random(seed)
    if rng.random() < 0.15:
        return _damaged(base_plan(), rng)
    plan = json.loads(base_plan())
    notes = [rng.choice(_PLAN_EDITS)(plan, rng) for _ in range(rng.choice((1, 1, 1, 2, 4)))]
    return "; ".join(notes), json.dumps(plan, indent=1)


def table_mutant(seed: int) -> tuple[str, str]:
    """Return a description of the change, and the text of a table of buffers (CSV)."""
    rng = random.Random(seed)
    if rng.random() < 0.15:
        return _damaged(_TABLE, rng)
    rows = [line.split(",") for line in _TABLE.splitlines()]
    notes = [rng.choice(_TABLE_EDITS)(rows, rng) for _ in range(rng.choice((1, 1, 2, 4)))]
    return "; ".join(notes), "".join(",".join(row) + "\n" for row in rows)


@functools.cache
def base_plan() -> str:
    """The plan that the compiler makes of ``BASE`` on 4 cores."""
    return json.dumps(spyre_mlir.compile(BASE, sencores=4).plan())


# -- values ---------------------------------------------------------------------------------------------------


def _value(rng: random.Random) -> Any:
    kind = rng.randrange(5)
    if kind == 4:
        return functools.reduce(lambda inner, _: [inner], range(rng.choice((3, 60, 900))), 0)
    return copy.deepcopy(rng.choice((_INTEGERS, _FLOATS, (*_TEXTS, _HALF), _OTHERS)[kind]))


def _like(value: Any, rng: random.Random) -> Any:
    """Another value of the same type, which gets past the checks of types."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return _value(rng)
    if isinstance(value, str):
        return rng.choice((*_TEXTS, value + "/1", value.upper(), value[:-1]))
    return rng.choice((*_INTEGERS, value + 1, value - 1, value * 2, -value))


# -- plan files -----------------------------------------------------------------------------------------------


def _spots(value: Any, path: str = "plan") -> Iterator[tuple[Any, Any, str]]:
    """Every member of every object and list: the container, the key and the path."""
    members = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, member in members:
        yield value, key, f"{path}.{key}"
        yield from _spots(member, f"{path}.{key}")


def _spot(plan: Any, rng: random.Random) -> tuple[Any, Any, str]:
    return rng.choice([*_spots(plan)] or [({"": plan}, "", "plan")])


def _replace(plan: Any, rng: random.Random) -> str:
    container, key, path = _spot(plan, rng)
    container[key] = _value(rng)
    return f"{path} is {_shown(container[key])}"


def _alter(plan: Any, rng: random.Random) -> str:
    spots = [spot for spot in _spots(plan) if not isinstance(spot[0][spot[1]], dict | list)]
    if not spots:
        return "nothing"
    container, key, path = rng.choice(spots)
    container[key] = _like(container[key], rng)
    return f"{path} is {_shown(container[key])}"


def _remove(plan: Any, rng: random.Random) -> str:
    container, key, path = _spot(plan, rng)
    del container[key]
    return f"{path} removed"


def _add(plan: Any, rng: random.Random) -> str:
    objects = [spot[0][spot[1]] for spot in _spots(plan) if isinstance(spot[0][spot[1]], dict)]
    name, value = rng.choice((*_FIELDS, *_TEXTS)), _value(rng)
    rng.choice([plan, *objects])[name] = value
    return f"a member {_shown(name)} = {_shown(value)}"


def _repeat(plan: Any, rng: random.Random) -> str:
    lists = [spot for spot in _spots(plan) if isinstance(spot[0][spot[1]], list) and spot[0][spot[1]]]
    if not lists:
        return "nothing"
    container, key, path = rng.choice(lists)
    container[key] = container[key] * rng.choice((2, 3, 50))
    return f"the items of {path} repeated"


def _swap(plan: Any, rng: random.Random) -> str:
    (first, i, path), (second, j, other) = _spot(plan, rng), _spot(plan, rng)
    first[i], second[j] = copy.deepcopy(second[j]), copy.deepcopy(first[i])
    return f"{path} and {other} swapped"


_PLAN_EDITS: tuple[Callable[[Any, random.Random], str], ...] = (
    _replace, _alter, _alter, _alter, _remove, _add, _repeat, _swap,
)  # fmt: skip


# -- tables of buffers ----------------------------------------------------------------------------------------


def _cell(rows: list[list[str]], rng: random.Random) -> str:
    row = rng.choice(rows)
    if not row:
        return "nothing"
    column, value = rng.randrange(len(row)), str(rng.choice((*_INTEGERS, *_FLOATS, *_TEXTS)))
    row[column] = value.replace(",", ";")
    return f"a cell of '{_shown(row[0])}', column {column}, is {_shown(value)}"


def _number(rows: list[list[str]], rng: random.Random) -> str:
    row = rng.choice(rows[1:] or rows)
    column = rng.randrange(1, 4)
    if len(row) > column:
        row[column] = str(rng.choice(_INTEGERS))
    return f"{_shown(row)}"


def _drop_column(rows: list[list[str]], rng: random.Random) -> str:
    column = rng.randrange(8)
    for row in rows:
        del row[column : column + 1]
    return f"no column {column}"


def _copy_row(rows: list[list[str]], rng: random.Random) -> str:
    row = [*rng.choice(rows)]
    if row and rng.random() < 0.5:
        row[0] = f"copy{rng.randrange(3)}"
    rows.insert(rng.randrange(len(rows) + 1), row)
    return f"a copy of a line: {_shown(row)}"


def _cut_row(rows: list[list[str]], rng: random.Random) -> str:
    row = rng.choice(rows)
    del row[rng.randrange(len(row) + 1) :]
    return f"a line is {_shown(row)}"


def _parents(rows: list[list[str]], rng: random.Random) -> str:
    names = [row[0] for row in rows[1:] if row]
    row = rng.choice(rows)
    if len(row) > 5:
        row[5] = " ".join(rng.choices(names, k=rng.choice((1, 2, 40))))
    return f"parents: {_shown(row)}"


_TABLE_EDITS: tuple[Callable[[list[list[str]], random.Random], str], ...] = (
    _cell, _number, _number, _drop_column, _copy_row, _cut_row, _parents,
)  # fmt: skip


# -- any text -------------------------------------------------------------------------------------------------


def _damaged(text: str, rng: random.Random) -> tuple[str, str]:
    """A text in which a part is missing, twice there, replaced, or buried in brackets."""
    begin = rng.randrange(len(text))
    end = begin + rng.choice((1, 3, 30, 300))
    kind = rng.choice(("cut", "removed", "doubled", "replaced", "nested", "marked", "empty"))
    damaged = {
        "cut": text[:begin],
        "removed": text[:begin] + text[end:],
        "doubled": text[:end] + text[begin:],
        "replaced": text[:begin] + str(rng.choice((*_TEXTS, *_INTEGERS, *_FLOATS))) + text[end:],
        "nested": text[:begin] + "[" * rng.choice((10, 5_000, 200_000)) + text[begin:],
        "marked": "\ufeff" + text + rng.choice(("\0", "\r", "\x1a", '"', "\n,,,,,\n")),
        "empty": rng.choice(("", "\n", " ", "null", "[]", "0", '""')),
    }
    return f"text {kind} at {begin}", damaged[kind]


def _shown(value: Any) -> str:
    text = json.dumps(value) if not isinstance(value, list) or len(str(value)) < 200 else "a nested list"
    return text if len(text) <= 60 else f"{text[:57]}..."
