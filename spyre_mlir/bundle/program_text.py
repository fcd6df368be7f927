# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Printer of the text of `bundle.mlir` from statements; ``program_parser.py`` has the grammar."""

from __future__ import annotations

from collections.abc import Iterator

from spyre_mlir.bundle.model import (
    Add,
    Allocate,
    Apply,
    Execute,
    Extract,
    IndexConstant,
    Loop,
    Parameter,
    Statement,
)

MapKey = tuple[int, int, tuple[int, ...], int]  # dims, symbols, coefficients, offset


def print_program(parameters: tuple[Parameter, ...], statements: tuple[Statement, ...]) -> str:
    """Return the text of a program; equal affine maps share one definition."""
    types = {parameter.name: _type(parameter) for parameter in parameters}
    maps: dict[MapKey, str] = {}
    body = list(_print_block(statements, "    ", maps, types))
    arguments = ", ".join(f"%{name}: {type_}" for name, type_ in types.items())
    lines = [f"{name} = affine_map<{_map_text(key)}>" for key, name in maps.items()]
    lines += ["module {", f"  func.func @sdsc_bundle({arguments}) {{", *body, "    return", "  }", "}"]
    return "\n".join(lines) + "\n"


def _type(parameter: Parameter) -> str:
    parts = ["index"]
    if parameter.granularity is not None:
        parts.append(f"granularity={parameter.granularity}")
    if parameter.max_value is not None:
        parts.append(f"max_value={parameter.max_value}")
    return f"!sdscbundle.input_arg<{', '.join(parts)}>"


def _values(names: tuple[str, ...]) -> str:
    return ", ".join(f"%{name}" for name in names)


def _map_text(key: MapKey) -> str:
    dims, symbols, coefficients, offset = key
    names = [f"d{i}" for i in range(dims)] + [f"s{i}" for i in range(symbols)]
    terms = list(zip(names, coefficients, strict=True))
    # The base address, a symbol, comes first, as in the examples of the SuperDSC specification.
    ordered = terms[dims:] + terms[:dims]
    parts = [name if factor == 1 else f"{factor} * {name}" for name, factor in ordered if factor]
    if offset or not parts:
        parts.append(str(offset))
    suffix = f"[{', '.join(names[dims:])}]" if symbols else ""
    return f"({', '.join(names[:dims])}){suffix} -> ({' + '.join(parts)})"


def _print_block(
    statements: tuple[Statement, ...], indent: str, maps: dict[MapKey, str], types: dict[str, str]
) -> Iterator[str]:
    for statement in statements:
        if isinstance(statement, Loop):
            bounds = f"%{statement.lower} to %{statement.upper} step %{statement.step}"
            yield f"{indent}scf.for %{statement.induction} = {bounds} {{"
            yield from _print_block(statement.body, indent + "  ", maps, types)
            yield f"{indent}}}"
        else:
            yield indent + _print_statement(statement, maps, types)


def _print_statement(statement: Statement, maps: dict[MapKey, str], types: dict[str, str]) -> str:
    match statement:
        case IndexConstant(result, value):
            return f"%{result} = arith.constant {value} : index"
        case Add(result, lhs, rhs):
            return f"%{result} = arith.addi %{lhs}, %{rhs} : index"
        case Apply(result, dims, symbols, coefficients, offset):
            key = (len(dims), len(symbols), coefficients, offset)
            name = maps.setdefault(key, f"#map{len(maps)}")
            suffix = f"[{_values(symbols)}]" if symbols else ""
            return f"%{result} = affine.apply {name}({_values(dims)}){suffix}"
        case Extract(result, parameter, what):
            source = f"{what} from %{parameter} : {types[parameter]} -> index"
            return f"%{result} = sdscbundle.input_arg_extract {source}"
        case Allocate(result, size):
            return f"%{result} = sdscbundle.device_mem_allocate {size} bytes : index"
        case Execute(filename, operands, symbol_ids):
            attributes = f'sdsc_filename="{filename}", symbol_ids={list(symbol_ids)}'
            return f"sdscbundle.sdsc_execute ({_values(operands)}) {{{attributes}}}"
    raise AssertionError(statement)
