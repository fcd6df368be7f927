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
    result, name, operands, attributes, types, type_ = match.groups()
    first, *others = operands.split(", ")
    match name:
        case "get_compute_tile_id":
            text = f" : {type_.strip('()')}"
        case "construct_memory_view":
            view = _VIEW.match(attributes)
            assert view is not None, attributes
            coordinates, core, space, sizes, strides = view.groups()
            memory = f"#ktdp.memory_space<{space}{f', ct_id = {core}' if core else ''}>"
            shape = f"sizes: [{sizes}], strides: [{strides}]"
            text = f" {first}, {shape} {{{coordinates or ''}memory_space = {memory}}} : {type_}"
        case "construct_distributed_memory_view":
            text = f" ({operands} : {types}) : {type_}"
        case "construct_access_tile":
            text = f" {first}[{', '.join(others)}] {{{attributes}}} : {types.split(', index')[0]} -> {type_}"
        case "construct_indirect_access_tile":
            views = (first, *others)
            subscripts = re.sub(
                r"ind\((\d+), ([^)]*)\)",
                lambda position: f"ind({views[int(position[1])]}[{position[2]}])",
                _field(attributes, "subscripts", r'"([^"]*)"'),
            )
            variables = _field(attributes, "variables", r'"([^"]*)"')
            order = _field(attributes, "variables_space_order", r"(affine_map<.*?\)>)")
            space = _field(attributes, "variables_space_set", r"(affine_set<.*?\)>)")
            sets = f"variables_space_order = {order}, variables_space_set = {space}"
            text = (
                f" intermediate_variables({variables}) {first}[{subscripts}] {{{sets}}} : {types} -> {type_}"
            )
        case "load":
            text = f" {first} : {types} -> {type_}"
        case "store" | "yield_partial" | "yield_reduced":
            text = f" {operands} : {types}"
        case _:
            raise AssertionError(line)
    return [f"{result}ktdp.{name}{text}"]


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
