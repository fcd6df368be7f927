# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Failing cases made small: of the candidates that are one step smaller, the first that fails alike, and so on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import torch
from fuzz_case import Case, Statement
from fuzz_inputs import Input
from fuzz_loops import PLAIN

T = TypeVar("T")


def minimise(case: T, smaller: Callable[[T], Iterator[T]], fails: Callable[[T], bool], tries: int = 60) -> T:
    """Return the smallest failing case that steps of ``smaller`` reach within ``tries`` tries."""
    progress = True
    while progress:
        progress = False
        for candidate in smaller(case):
            if tries <= 0:
                return case
            tries -= 1
            if fails(candidate):
                case, progress = candidate, True
                break
    return case


def smaller_programs(case: Case) -> Iterator[Case]:
    """Programs with fewer results, statements, options; the largest steps first."""
    if len(case.results) > 1:
        yield from (without_dead(replace(case, results=(name,))) for name in case.results)
    for statement in case.statements:
        if case.results == (statement.target,):
            operands = dict.fromkeys(name for name in statement.operands if name.startswith("v"))
            yield from (without_dead(replace(case, results=(name,))) for name in operands)
    simple = without_dead(replace(case, structure="tuple", by_keyword=False))
    if simple != case:
        yield simple
    count = len(case.statements)
    for index in sorted(range(count), key=lambda k: -min(k, count - k)):
        yield from _without(case, index)
    for name in case.options:
        yield replace(case, options={key: value for key, value in case.options.items() if key != name})
    if any(each.role == "buffer" for each in case.inputs):
        yield replace(case, inputs=tuple(replace(each, role="input") for each in case.inputs))


def without_dead(case: Case) -> Case:
    """Return the case without values that no result needs; updates in place stay, with their operands."""
    needed = set(case.results)
    statements: list[Statement] = []
    for statement in reversed(case.statements):
        if not statement.target or statement.target in needed:
            statements.insert(0, statement)
            needed.update(statement.operands)
    inputs = tuple(each for each in case.inputs if each.name in needed)
    return replace(case, statements=tuple(statements), inputs=inputs)


def _without(case: Case, index: int) -> Iterator[Case]:
    """The case without a statement: its value is one of its operands, or an input of the same elements."""
    statement = case.statements[index]
    rest = case.statements[:index] + case.statements[index + 1 :]
    if not statement.target:
        yield without_dead(replace(case, statements=rest))
        return
    values = evaluated(case, index)
    if values is None or statement.target not in values:
        return
    value = values[statement.target]
    if not isinstance(value, torch.Tensor):
        return
    if index and value.numel() <= 5000:
        given = Input(statement.target, tuple(value.shape), str(value.dtype)).with_elements(value)
        yield without_dead(replace(case, statements=rest, inputs=(*case.inputs, given)))
    for name in dict.fromkeys(statement.operands):
        operand = values[name]
        if operand.shape == value.shape and operand.dtype == value.dtype:
            rename = {statement.target: name}
            renamed = tuple(
                replace(each, operands=tuple(rename.get(o, o) for o in each.operands)) for each in rest
            )
            results = tuple(rename.get(o, o) for o in case.results)
            if results[-1].startswith("v") or len(results) > 1:
                yield without_dead(replace(case, statements=renamed, results=results))


def evaluated(case: Case, count: int) -> dict[str, torch.Tensor] | None:
    """Return all values of PyTorch after ``count`` + 1 statements; None if PyTorch refuses."""
    names: dict[str, torch.Tensor] = {**case.tensors("buffer"), **case.tensors("input")}
    scope = {"torch": torch, "F": torch.nn.functional, **PLAIN}
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for statement in case.statements[: count + 1]:
                value = eval(statement.text.format(*statement.operands), {**scope, **names})
                if statement.target:
                    names[statement.target] = value
    except (RuntimeError, IndexError, ValueError, TypeError):
        return None
    return names


def smaller_lists(parts: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    """Delta debugging: the list without a half, a quarter, .. of its parts, down to one."""
    size = len(parts) // 2
    while size:
        for start in range(0, len(parts), size):
            yield parts[:start] + parts[start + size :]
        size //= 2
    if len(parts) == 1:
        yield ()
