# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""User-defined loops: iter_args that are read and yielded in any order have the right numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pytest

import spyre_mlir

SHAPE, TRIPS = (67, 96), 3
TYPE = "tensor<67x96xf16>"
OPTIONS = ({}, {"sencores": 1}, {"sencores": 3, "lx_planning": False}, {"lx_frac_avail": 0.99})


class Case(NamedTuple):
    """``body`` are the ops of a function, whose results are ``returned``; ``expected`` computes them from x and y."""

    body: str
    returned: tuple[str, ...]
    expected: Callable[[np.ndarray, np.ndarray], Sequence[np.ndarray]]


def _op(name: str, *inputs: str) -> str:
    maps = ", ".join(["#id"] * (len(inputs) + 1))
    types, scalars = ", ".join([TYPE] * len(inputs)), ", ".join(f"%p{at}: f16" for at in range(len(inputs)))
    operands = ", ".join(f"%p{at}" for at in range(len(inputs)))
    return f"""linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel"]}}
      ins({", ".join(inputs)} : {types}) outs(%d : {TYPE}) attrs = {{sdsc.op = #sdsc.op<"{name}", {{}}>}} {{
    ^bb0({scalars}, %o: f16):
      %v = arith.{name}f {operands} : f16
      linalg.yield %v : f16
    }} -> {TYPE}"""


def _loop(results: str, carried: dict[str, str], body: str, following: Sequence[str]) -> str:
    types = ", ".join([TYPE] * len(carried))
    initial = ", ".join(f"{name} = {value}" for name, value in carried.items())
    return f"""{results} = scf.for %i{results[1]} = %lb to %ub step %st iter_args({initial}) -> ({types}) {{
      {body}
      scf.yield {", ".join(following)} : {types}
    }}"""


def _start(body: str) -> str:
    return f"%n0 = {_op('neg', '%x')}\n{body}"


def _repeated(step: Callable, *values: np.ndarray) -> tuple[np.ndarray, ...]:
    for _ in range(TRIPS):
        values = step(*values)
    return values


_PAIR = {"%a": "%n0", "%b": "%y"}
_SUM, _LESS = f"%n = {_op('add', '%a', '%b')}", f"%z = {_op('sub', '%r#0', '%r#1')}"

CASES = {
    "an input, read again after the loop": Case(
        _loop("%r", {"%a": "%x"}, f"%n = {_op('add', '%a', '%y')}", ["%n"])
        + f"\n%z = {_op('add', '%r', '%x')}",
        ("%z",),
        lambda x, y: [x + TRIPS * y + x],
    ),
    "two values change places": Case(
        _start(_loop("%r:2", _PAIR, "", ["%b", "%a"]) + _LESS),
        ("%z",),
        lambda x, y: [np.subtract(*_repeated(lambda a, b: (b, a), -x, y))],
    ),
    "three values move on": Case(
        _start(
            _loop("%r:3", {**_PAIR, "%c": "%x"}, "", ["%b", "%c", "%a"])
            + _LESS
            + f"\n%w = {_op('add', '%z', '%r#2')}"
        ),
        ("%w",),
        lambda x, y: [y * 0 + -x - y + x],
    ),
    "one value moves on, one is made": Case(
        _start(_loop("%r:2", _PAIR, _SUM, ["%b", "%n"]) + _LESS),
        ("%z",),
        lambda x, y: [np.subtract(*_repeated(lambda a, b: (b, a + b), -x, y))],
    ),
    "the last value is read when the next is there": Case(
        _start(
            _loop(
                "%r:2",
                _PAIR,
                f"{_SUM}\n%m = {_op('sub', '%n', '%a')}\n%k = {_op('add', '%m', '%a')}",
                ["%n", "%k"],
            )
            + _LESS
        ),
        ("%z",),
        lambda x, y: [np.subtract(*_repeated(lambda a, b: (a + b, a + b), -x, y))],
    ),
    "one value goes to two places": Case(
        _start(
            _loop("%r:2", _PAIR, _SUM, ["%n", "%n"])
            + f"%z = {_op('sub', '%r#0', '%x')}\n%w = {_op('add', '%r#1', '%x')}"
        ),
        ("%z", "%w"),
        lambda x, y: [4 * (y - x) - x, 4 * (y - x) + x],
    ),
    "an inner loop begins with what is read after it": Case(
        _start(
            _loop(
                "%r",
                {"%a": "%n0"},
                _loop("%s", {"%b": "%a"}, f"%n = {_op('add', '%b', '%y')}", ["%n"])
                + f"\n%k = {_op('sub', '%s', '%a')}",
                ["%k"],
            )
            + f"\n%w = {_op('neg', '%r')}"
        ),
        ("%r", "%w"),
        lambda x, y: [TRIPS * y, -TRIPS * y],
    ),
    "a value from outside goes on": Case(
        _start(
            f"%c = {_op('add', '%x', '%y')}\n"
            + _loop("%r:2", _PAIR, _SUM, ["%n", "%c"])
            + _LESS
            + f"\n%w = {_op('add', '%c', '%z')}"
        ),
        ("%w",),
        lambda x, y: [np.subtract(*_repeated(lambda a, b: (a + b, x + y), -x, y)) + x + y],
    ),
    "two places begin with one value": Case(
        _start(
            _loop(
                "%r:2",
                {"%a": "%n0", "%b": "%n0"},
                f"%n = {_op('add', '%a', '%y')}\n%m = {_op('sub', '%b', '%y')}",
                ["%n", "%m"],
            )
            + _LESS
        ),
        ("%z",),
        lambda x, y: [2 * TRIPS * y],
    ),
}


def _module(case: Case) -> str:
    def hosts(names: Sequence[str], kind: str) -> list[str]:
        return [f'{{sdsc.host = #sdsc.host<"{name}", "{kind}", "f16">}}' for name in names]

    inputs = ", ".join(
        f"%{name}: {TYPE} {host}" for name, host in zip("xy", hosts("xy", "input"), strict=True)
    )
    labels = [f"result{at}" for at in range(len(case.returned))]
    results = ", ".join(f"{TYPE} {host}" for host in hosts(labels, "result"))
    types = ", ".join([TYPE] * len(case.returned))
    return f"""#id = affine_map<(d0, d1) -> (d0, d1)>
    func.func @main({inputs}) -> ({results}) {{
      %lb = arith.constant 1 : index
      %ub = arith.constant 6 : index
      %st = arith.constant 2 : index
      %d = tensor.empty() : {TYPE}
      {case.body}
      return {", ".join(case.returned)} : {types}
    }}"""


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_the_numbers_are_right(name, options):
    """Exactly, for they are small integers; what cannot be written in place is copied."""
    case, rng = CASES[name], np.random.default_rng(0)
    x, y = (rng.integers(-4, 5, SHAPE).astype(np.float16) for _ in range(2))
    program = spyre_mlir.compile(_module(case), from_level="device-ops", verify_each=True, **options)
    found = program(x, y)
    found = found if isinstance(found, tuple | list) else [found]
    for own, expected in zip(found, case.expected(x, y), strict=True):
        np.testing.assert_array_equal(own, expected)
