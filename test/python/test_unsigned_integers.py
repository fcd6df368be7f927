# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Integers with and without a sign in linalg: each cast, comparison and operation of arith, against Python's integers.

An integer of MLIR has no sign of its own, so only the operation decides what its bits mean.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

import spyre_mlir

WIDTHS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}
DTYPES = {
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "f16": np.float16,
    "f32": np.float32,
}  # fmt: skip
SHAPE = (4, 64)

Read = Callable[[NDArray, str], list[int]]


def unsigned(bits: NDArray, element: str) -> list[int]:
    return [int(number) % (1 << WIDTHS[element]) for number in bits.flat]


def signed(bits: NDArray, element: str) -> list[int]:
    half = 1 << (WIDTHS[element] - 1)
    return [(number + half) % (2 * half) - half for number in unsigned(bits, element)]


def stored(numbers: list[int], element: str) -> NDArray:
    """Integers in an element type, cut to its width or rounded once."""
    if element.startswith("f"):
        with np.errstate(over="ignore"):
            exact = [np.uint64(n) if n >> 63 == 1 else np.int64(n) for n in numbers]
            return np.array([n.astype(DTYPES[element]) for n in exact]).reshape(SHAPE)
    wide = np.array([number % (1 << 64) for number in numbers], np.uint64).reshape(SHAPE)
    return (
        (wide & np.uint64(1)) == 1
        if element == "i1"
        else wide.astype(f"u{WIDTHS[element] // 8}").view(DTYPES[element])
    )


def operand(element: str, seed: int) -> NDArray:
    """All 256 codes of bytes; of wider integers numbers of all sizes."""
    rng = np.random.default_rng(seed)
    if element == "i8":
        return rng.permutation(256).astype(np.uint8).view(np.int8).reshape(SHAPE)
    bits = rng.integers(0, 1 << 63, SHAPE, np.uint64) >> rng.integers(0, 64, SHAPE, np.uint64)
    numbers = [
        int(number) * int(sign)
        for number, sign in zip(bits.flat, rng.choice([-1, 1], bits.size), strict=True)
    ]
    return stored(numbers, element)


def values_of(operands: list[str], bodies: list[tuple[str, str]], arrays: list[NDArray]) -> list[NDArray]:
    """Results of one program with a ``linalg.generic`` for each body, the text before %y and the element of %y."""
    tensors = [f"tensor<4x64x{element}>" for element in operands]
    results = [f"tensor<4x64x{element}>" for _, element in bodies]
    arguments = ", ".join(f"%x{i}: {tensor}" for i, tensor in enumerate(tensors))
    scalars = ", ".join(f"%a{i}: {element}" for i, element in enumerate(operands))
    maps = ", ".join(["affine_map<(i, j) -> (i, j)>"] * (len(operands) + 1))
    lines = [f"func.func @main({arguments}) -> ({', '.join(results)}) {{"]
    for number, ((body, element), result) in enumerate(zip(bodies, results, strict=True)):
        inputs = ", ".join(f"%x{i}" for i in range(len(operands)))
        lines += [
            f"  %e{number} = tensor.empty() : {result}",
            f'  %r{number} = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel"]}}',
            f"      ins({inputs} : {', '.join(tensors)}) outs(%e{number} : {result}) {{",
            f"  ^bb0({scalars}, %o: {element}):",
            *(f"    {line}" for line in body.splitlines()),
            f"    linalg.yield %y : {element}",
            f"  }} -> {result}",
        ]
    returned = ", ".join(f"%r{number}" for number in range(len(bodies)))
    text = "\n".join([*lines, f"  return {returned} : {', '.join(results)}", "}"])
    got = spyre_mlir.compile(text)(*arrays)
    return list(got) if isinstance(got, (tuple, list)) else [got]


def check(operands: list[str], cases: dict[tuple[str, str], NDArray], arrays: list[NDArray]) -> None:
    for (body, element), got in zip(cases, values_of(operands, list(cases), arrays), strict=True):
        expected = cases[body, element]
        assert got.dtype == expected.dtype, body
        np.testing.assert_array_equal(got, expected, body)


# fp16 rounds large integers to infinity, and 64-bit integers run on the host.
pytestmark = pytest.mark.filterwarnings(
    "ignore::spyre_mlir.RangeWarning", "ignore::spyre_mlir.HostWorkWarning"
)

READERS: dict[str, Read] = {"sitofp": signed, "extsi": signed, "uitofp": unsigned, "extui": unsigned}


@pytest.mark.parametrize("element", WIDTHS)
def test_casts_read_the_sign_that_they_state(element: str) -> None:
    """Casts of casts in the same body, too: the device has other types between them."""
    x = operand(element, 0)
    cases = {}
    for name, read in READERS.items():
        is_float = name.endswith("fp")
        wider = [other for other, width in WIDTHS.items() if width > WIDTHS[element]]
        for target in ("f16", "f32") if is_float else wider:
            cases[f"%y = arith.{name} %a0 : {element} to {target}", target] = stored(read(x, element), target)
        for between in [] if is_float else wider:
            for last, reread in (("sitofp", signed), ("uitofp", unsigned)):
                numbers = reread(stored(read(x, element), between), between)
                body = (
                    f"%z = arith.{name} %a0 : {element} to {between}\n%y = arith.{last} %z : {between} to f32"
                )
                cases[body, "f32"] = stored(numbers, "f32")
    for target in (other for other, width in WIDTHS.items() if width < WIDTHS[element]):
        body = f"%z = arith.trunci %a0 : {element} to {target}\n%y = arith.uitofp %z : {target} to f32"
        cases[body, "f32"] = stored(unsigned(stored(signed(x, element), target), target), "f32")
    check([element], cases, [x])


BINARY: dict[str, tuple[Read, Callable[[int, int], int]]] = {
    "addi": (signed, operator.add), "subi": (signed, operator.sub), "muli": (signed, operator.mul),
    "andi": (unsigned, operator.and_), "ori": (unsigned, operator.or_), "xori": (unsigned, operator.xor),
    "maxsi": (signed, max), "minsi": (signed, min), "maxui": (unsigned, max), "minui": (unsigned, min),
    "divui": (unsigned, operator.floordiv), "remui": (unsigned, operator.mod),
    "floordivsi": (signed, operator.floordiv), "ceildivui": (unsigned, lambda a, b: -(-a // b)),
}  # fmt: skip
SHIFTS = {
    "shli": (signed, operator.lshift),
    "shrsi": (signed, operator.rshift),
    "shrui": (unsigned, operator.rshift),
}
PREDICATES = {
    "eq": (signed, operator.eq), "ne": (signed, operator.ne), "slt": (signed, operator.lt),
    "sle": (signed, operator.le), "sgt": (signed, operator.gt), "sge": (signed, operator.ge),
    "ult": (unsigned, operator.lt), "ule": (unsigned, operator.le), "ugt": (unsigned, operator.gt),
    "uge": (unsigned, operator.ge),
}  # fmt: skip


@pytest.mark.parametrize("element", WIDTHS)
def test_operations_read_the_sign_that_they_state(element: str) -> None:
    """Results are read unchanged, and as floating-point numbers of both interpretations."""
    x, y = operand(element, 0), operand(element, 1)
    y = np.where(y == 0, np.array(3 % (1 << WIDTHS[element]), y.dtype), y)
    amounts = (np.arange(y.size).reshape(SHAPE) % WIDTHS[element]).astype(y.dtype)
    cases = {}
    for name, (read, function) in BINARY.items() | (SHIFTS.items() if element != "i1" else ()):
        if element == "i1" and ("div" in name or "rem" in name):
            continue
        other, number = (amounts, 2) if name in SHIFTS else (y, 1)
        numbers = [function(*pair) for pair in zip(read(x, element), read(other, element), strict=True)]
        result, body = stored(numbers, element), f" = arith.{name} %a0, %a{number} : {element}"
        cases["%y" + body, element] = result
        for last, reread in (("sitofp", signed), ("uitofp", unsigned)):
            cases[f"%z{body}\n%y = arith.{last} %z : {element} to f32", "f32"] = stored(
                reread(result, element), "f32"
            )
    for name, (read, compare) in PREDICATES.items():
        truths = [compare(*pair) for pair in zip(read(x, element), read(y, element), strict=True)]
        body = f"%z = arith.cmpi {name}, %a0, %a1 : {element}\n%y = arith.uitofp %z : i1 to f32"
        cases[body, "f32"] = np.array(truths, np.float32).reshape(SHAPE)
    check([element] * 3, cases, [x, y, amounts])


CONSTANTS = {
    "dense<-56> : tensor<4x64xi8>": ("%z = arith.uitofp %a : i8 to f32", 200.0),
    "dense<true> : tensor<4x64xi1>": ("%z = arith.sitofp %a : i1 to f32", -1.0),
    "dense<-2.5> : tensor<4x64xf32>": (
        "%i = arith.fptosi %a : f32 to i32\n%z = arith.sitofp %i : i32 to f32",
        -2.0,
    ),
}


@pytest.mark.parametrize("constant", CONSTANTS)
def test_constants_are_cast_like_other_numbers(constant: str) -> None:
    """A tensor of equal numbers is one number for the compiler, which canonicalisation does not fold into bodies."""
    body, number = CONSTANTS[constant]
    tensor = constant.split(" : ")[1]
    text = f"""
#id = affine_map<(i, j) -> (i, j)>
func.func @main(%x: tensor<4x64xf32>) -> tensor<4x64xf32> {{
  %c = arith.constant {constant}
  %e = tensor.empty() : tensor<4x64xf32>
  %r = linalg.generic {{indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}}
      ins(%x, %c : tensor<4x64xf32>, {tensor}) outs(%e : tensor<4x64xf32>) {{
  ^bb0(%b: f32, %a: {tensor.split("x")[-1].rstrip(">")}, %o: f32):
    {body}
    %y = arith.addf %z, %b : f32
    linalg.yield %y : f32
  }} -> tensor<4x64xf32>
  return %r : tensor<4x64xf32>
}}"""
    x = np.arange(256, dtype=np.float32).reshape(SHAPE)
    np.testing.assert_array_equal(spyre_mlir.compile(text, fallback=False)(x), x + np.float32(number))
