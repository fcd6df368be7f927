# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Printer of KTIR in the custom syntax of ktir-mlir-frontend and ktir-cpu, from the generic form of the bindings.

All ops except the ``ktdp`` ops are printed as in MLIR, with attributes instead of aliases, because ktir-cpu
resolves aliases only in some places. The parser of ktir-cpu is line-based: it takes a line that closes a region for
the end of an operation only if an empty line follows, and ``else`` only at the end of a line.
"""

from __future__ import annotations

import re

from spyre_mlir.mlir import ir

_TILE = re.compile(r"!ktdp\.access_tile<tensor<([^>]*)>>")
_FUTURE = re.compile(r'!ktdp\.tile_future<(tensor<[^>]*>), "([^"]*)">')
_RESULT = r"^(\s*(?:%[\w#:]+ = )?)"
#: An op of the dialect without a region: results, name, operands, attributes, operand types, result type.
_OP = re.compile(_RESULT + r'"ktdp\.(\w+)"\((.*?)\)(?: \{(.*)\})? : \((.*)\) -> (.*)$')
#: The attributes of a memory view, in the order in which they are printed.
_VIEW = re.compile(
    r"(coordinate_set = affine_set<.*\)>, )?(?:ct_id = (\d+) : i64, )?"
    r"memory_space = \"(\w+)\", sizes = array<i64: ([^>]*)>, strides = array<i64: ([^>]*)>"
)
#: The first and the last line of an op with a region.
_OPENING = re.compile(_RESULT + r'"ktdp\.(\w+)"\((.*?)\) \(\{$')
_CLOSING = re.compile(r'^(\s*)\}\) \{producers = "([^"]*)"\} : \((.*)\) -> (.*)$')


def to_text(module: ir.Module | ir.Operation) -> str:
    """Return a module of the KTIR level as text."""
    lines: list[str] = []
    heads: list[int] = []
    for line in module.operation.get_asm(use_local_scope=True, assume_verified=True).splitlines():
        if "!ktdp." in line:
            line = _TILE.sub(r"!ktdp.access_tile<\1>", line)
            line = _FUTURE.sub(r"!ktdp.tile_future<\1, groups = affine_set<\2>>", line)
        if '"ktdp.' in line:
            lines += _operation(line)
            if lines[-1].endswith("{"):
                heads.append(len(lines) - 2)
        elif match := _CLOSING.match(line):
            head = heads.pop()
            lines[head] = _with_types(lines[head], *match.groups()[1:])
            lines += [match[1] + "}", ""]
        else:
            lines += _structure(line)
    return "\n".join(lines) + "\n"


def _structure(line: str) -> list[str]:
    """Return the lines of KTIR for a line of MLIR without an op of the dialect."""
    text = line.lstrip()
    indent = line[: len(line) - len(text)]
    if text == "} else {":
        return [indent + "} else", indent + "{"]
    if text.startswith("module"):
        return ["module {"]
    return [line, ""] if text == "}" or text.rstrip().endswith("]") else [line]


def _operation(line: str) -> list[str]:
    """Return the lines of KTIR for an op of the dialect, or for the beginning of an op with a region."""
    opening = _OPENING.match(line)
    if opening is not None:
        result, name, operands = opening.groups()
        indent = result[: len(result) - len(result.lstrip())]
        return [f"{result}ktdp.{name} {operands}", indent + "{"]
    match = _OP.match(line)
    assert match is not None, line
    result, name, operands, attributes, *types = match.groups()
    return [f"{result}ktdp.{name}{_FORMS[name](operands.split(', '), attributes or '', *types)}"]


def _with_types(head: str, producers: str, operand_types: str, result_type: str) -> str:
    """Return the first line of an op between cores, from the line without types: ``%r = ktdp.name operands``."""
    cores = f"affine_set<{producers}>"
    if "inter_tile_produce" in head:
        partial = re.findall(r"tensor<[^>]*>", result_type)[0]
        return f"{head.rstrip()} producer_tiles_per_group = {cores} : {partial} -> {result_type}"
    name, operands = head.rsplit("ktdp.inter_tile_reduce ", 1)
    future, identity = operands.split(", ")
    future_type, identity_type = operand_types.rsplit(", ", 1)
    return (
        f"{name}ktdp.inter_tile_reduce({future}) consumer_tiles_per_group = {cores}, "
        f"identity({identity} : {identity_type}) : {future_type} -> {result_type}"
    )


def _field(attributes: str, name: str, pattern: str) -> str:
    match = re.search(rf"\b{name} = {pattern}", attributes)
    return "" if match is None else match[1]


def _compute_tile_id(_: list[str], __: str, ___: str, result: str) -> str:
    return f" : {result.strip('()')}"


def _memory_view(operands: list[str], attributes: str, _: str, result: str) -> str:
    match = _VIEW.match(attributes)
    assert match is not None, attributes
    coordinates, core, space, sizes, strides = match.groups()
    return (
        f" {operands[0]}, sizes: [{sizes}], strides: [{strides}] {{{coordinates or ''}"
        f"memory_space = #ktdp.memory_space<{space}{f', ct_id = {core}' if core else ''}>}} : {result}"
    )


def _distributed_view(operands: list[str], _: str, types: str, result: str) -> str:
    return f" ({', '.join(operands)} : {types}) : {result}"


def _access_tile(operands: list[str], attributes: str, types: str, result: str) -> str:
    view, *subscripts = operands
    return f" {view}[{', '.join(subscripts)}] {{{attributes}}} : {types.split(', index')[0]} -> {result}"


def _indirect_access_tile(operands: list[str], attributes: str, types: str, result: str) -> str:
    subscripts = _field(attributes, "subscripts", r'"([^"]*)"')
    variables = _field(attributes, "variables", r'"([^"]*)"')
    subscripts = re.sub(r"ind\((\d+), ([^)]*)\)", lambda m: f"ind({operands[int(m[1])]}[{m[2]}])", subscripts)
    sets = ", ".join(
        f"{name} = {_field(attributes, name, pattern)}"
        for name, pattern in (
            ("variables_space_order", r"(affine_map<.*?\)>)"),
            ("variables_space_set", r"(affine_set<.*?\)>)"),
        )
    )
    return (
        f" intermediate_variables({variables}) {operands[0]}[{subscripts}] {{{sets}}} : {types} -> {result}"
    )


def _load(operands: list[str], _: str, types: str, result: str) -> str:
    return f" {operands[0]} : {types} -> {result}"


def _store(operands: list[str], _: str, types: str, __: str) -> str:
    return f" {', '.join(operands)} : {types}"


_FORMS = {
    "get_compute_tile_id": _compute_tile_id,
    "construct_memory_view": _memory_view,
    "construct_distributed_memory_view": _distributed_view,
    "construct_access_tile": _access_tile,
    "construct_indirect_access_tile": _indirect_access_tile,
    "load": _load,
    "store": _store,
    "yield_partial": _store,
    "yield_reduced": _store,
}
