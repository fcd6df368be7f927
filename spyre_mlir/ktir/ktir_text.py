# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Printer and parser of KTIR in the custom syntax of ktir-mlir-frontend and ktir-cpu.

The printer starts from the generic form of the bindings. All ops except the ``ktdp`` ops are printed as in MLIR, with
attributes instead of aliases, because ktir-cpu resolves aliases only in some places. The parser of ktir-cpu is line-
based: it takes a line that closes a region for the end of an operation only if an empty line follows, and ``else`` only
at the end of a line.

The parser accepts KTIR from any writer, in the forms of ``spyre_mlir/ktir/grammar.py``: it rewrites the ops of ``ktdp``
and ``spyreop`` to generic form, and MLIR parses the rest. Errors refer to the original text: a rewritten operation
keeps its line.
"""

from __future__ import annotations

import itertools
import re
from typing import NoReturn

from spyre_mlir.diagnostics import compile_error
from spyre_mlir.dialects import ktdp, parsed
from spyre_mlir.errors import CompileError
from spyre_mlir.ktir.grammar import FORMS, NEWEST
from spyre_mlir.mlir import ir

_TILE = re.compile(r"!ktdp\.access_tile<tensor<([^>]*)>>")
_FUTURE = re.compile(r'!ktdp\.tile_future<(tensor<[^>]*>|tuple<(?:[^<>]|<[^>]*>)*>), "([^"]*)">')
_RUNTIME = re.compile(r'!ktdp\.runtime_arg<"([^"]*)">')
_RESULT = r"^(\s*(?:%[\w#:]+ = )?)"
#: An op of the dialect without a region: results, name, operands, attributes, operand types, result type.
_OP = re.compile(_RESULT + r'"ktdp\.(\w+)"\((.*?)\)(?: \{(.*)\})? : \((.*)\) -> (.*)$')
_TEXT = r'"([^"]*)"'
#: The op that combines the tensors of several roles to a tuple and back.
_CAST = "builtin.unrealized_conversion_cast"
_TUPLE_CAST = re.compile(rf"\s*(%\w+(?::\d+)?) = {_CAST} (%[^:]*) : (?=.*tuple<)(.*) to (.*)$")
#: The attributes of a memory view, in the order in which they are printed.
_VIEW = re.compile(
    r"(coordinate_set = affine_set<.*\)>, )?(?:ct_id = (\d+) : i64, )?"
    r"memory_space = \"(\w+)\", sizes = array<i64: ([^>]*)>, strides = array<i64: ([^>]*)>"
)
#: The first and the last line of an op with a region.
_OPENING = re.compile(_RESULT + r'"ktdp\.(\w+)"\((.*?)\) \(\{$')
_CLOSING = re.compile(r"^(\s*)\}\) \{(.*)\} : \((.*)\) -> (.*)$")


def to_text(module: ir.Module | ir.Operation, form: str = NEWEST) -> str:
    """Return a module of the KTIR level as text, in the form of a version of ``grammar.WRITTEN``."""

    def future(match: re.Match[str]) -> str:
        types = (
            match[1].removeprefix("tuple<").removesuffix(">") if match[1].startswith("tuple") else match[1]
        )
        roles = f"({types})" if form == NEWEST or types != match[1] else types
        return f"!ktdp.tile_future<{roles}, groups = affine_set<{match[2]}>>"

    lines: list[str] = []
    heads: list[int] = []
    for line in _without_tuples(
        module.operation.get_asm(use_local_scope=True, assume_verified=True)
    ).splitlines():
        if "!ktdp." in line:
            line = _TILE.sub(r"!ktdp.access_tile<\1>", line)
            line = _RUNTIME.sub(r"!ktdp.runtime_arg<\1>", _FUTURE.sub(future, line))
        if '"ktdp.' in line:
            lines += _operation(line)
            if lines[-1].endswith("{"):
                heads.append(len(lines) - 2)
        elif match := _CLOSING.match(line):
            head = heads.pop()
            _, attributes, types, results = match.groups()
            lines[head] = _between_cores(lines[head], attributes, types, results, form)
            lines += [match[1] + "}", ""]
        else:
            lines += _structure(line)
    return "\n".join(lines) + "\n"


def _without_tuples(text: str) -> str:
    """Return a text in which the ops between cores have the tensors of their tuples as operands and results."""
    if _CAST not in text:
        return text
    values, results, kept = dict[str, str](), dict[str, str](), list[str]()
    for line in text.splitlines():
        cast = _TUPLE_CAST.match(line)
        if cast is None:
            kept.append(line)
        elif cast[4].startswith("tuple<"):
            values[cast[1]] = cast[2]
        else:
            results[cast[2]] = cast[1]
    done = []
    for line in kept:
        if '"ktdp.inter_tile' in line or '"ktdp.yield' in line:
            start, equals, end = line.partition(" = ") if line.lstrip().startswith("%") else ("", "", line)
            start = re.sub(r"%\w+$", lambda name: results.get(name[0], name[0]), start)
            line = start + equals + re.sub(r"%\w+", lambda name: values.get(name[0], name[0]), end)
        if '"ktdp.yield' in line or "}) {" in line or '"ktdp.inter_tile' in line:
            line = re.sub(r"(?<!tile_future<)tuple<((?:[^<>]|<[^<>]*>)*)>", r"\1", line)
        done.append(line)
    return "\n".join(done)


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
    if name in ktdp.DELIVERIES:
        return [_between_cores(f"{result}ktdp.{name} {operands}", attributes, types, type_, NEWEST)]
    first, *others = operands.split(", ")
    match name:
        case "get_compute_tile_id":
            text = f" : {type_.strip('()')}"
        case "construct_memory_view":
            view = _VIEW.match(attributes)
            assert view is not None, attributes
            coordinates, core, space, sizes, strides = view.groups()
            memory = f"#ktdp.memory_space<{space}{f', ct_id = {core}' if core else ''}>"
            values = iter(others)
            lists = ", ".join(
                f"{what}: [{re.sub(str(ktdp.DYNAMIC), lambda _: next(values), numbers)}]"
                for what, numbers in (("sizes", sizes), ("strides", strides))
            )
            text = f" {first}, {lists} {{{coordinates or ''}memory_space = {memory}}} : {type_}"
        case "construct_distributed_memory_view":
            text = f" ({operands} : {types}) : {type_}"
        case "construct_access_tile":
            count = int(_field(attributes, "symbols", r"(\d+)") or 0)
            subscripts, symbols = others[: len(others) - count], others[len(others) - count :]
            sets = re.sub(r",? ?symbols = \d+ : i64", "", attributes)
            bound = f" symbols({', '.join(symbols)})" if symbols else ""
            text = f" {first}[{', '.join(subscripts)}]{bound} {{{sets}}} : {types.split(', index')[0]} -> {type_}"
        case "construct_indirect_access_tile":
            views = (first, *others)
            subscripts = re.sub(
                r"ind\((\d+), ([^)]*)\)",
                lambda position: f"ind({views[int(position[1])]}[{position[2]}])",
                _field(attributes, "subscripts", _TEXT),
            )
            variables = _field(attributes, "variables", _TEXT)
            order = _field(attributes, "variables_space_order", r"(affine_map<.*?\)>)")
            space = _field(attributes, "variables_space_set", r"(affine_set<.*?\)>)")
            sets = f"variables_space_order = {order}, variables_space_set = {space}"
            symbols = _field(attributes, "symbols", _TEXT)
            bound = f" symbols({symbols})" if symbols else ""
            text = f" intermediate_variables({variables}) {first}[{subscripts}]{bound} {{{sets}}} : {types} -> {type_}"
        case "load":
            text = f" {first} : {types} -> {type_}"
        case "runtime_arg_extract":
            text = f" {_field(attributes, 'field', _TEXT)} from {first} : {types} -> {type_}"
        case "store" | "yield_partial" | "yield_reduced":
            text = f" {operands} : {types}"
        case _:
            raise AssertionError(line)
    return [f"{result}ktdp.{name}{text}"]


def _between_cores(head: str, attributes: str, types: str, results: str, form: str) -> str:
    """Return the line of an op between cores, from the line without attributes: ``%r = ktdp.name operands``."""
    cores = f"affine_set<{_field(attributes, 'producers', _TEXT)}>"
    if "inter_tile_produce" in head:
        roles = _field(results, "", r"!ktdp\.tile_future<\(?(.*?)\)?, groups")
        shown = f" : {roles}" if form != NEWEST else ""
        return f"{head.rstrip()} producer_tiles_per_group = {cores}{shown} -> {results}"
    start, _, operands = head.rstrip().rpartition("ktdp.")
    name, _, operands = operands.partition(" ")
    future, *identities = operands.split(", ")
    future_type, *identity_types = split_outside(types)
    parts = [f"consumer_tiles_per_group = {cores}"]
    for dims in ktdp.DELIVERIES[name]:
        parts.append(f"{dims} = [{_field(attributes, dims, 'array<i64: ([^>]*)>')}]")
    dependency = _field(attributes, "dependency", _TEXT)
    if dependency:
        parts.append(f"producer_dependency_per_consumer = affine_set<{dependency}>")
    if "reduce" in name:
        identity = f"{', '.join(identities)} : {', '.join(each.strip() for each in identity_types)}"
        parts.append(f"identity({identity if identities else ''})")
    produced = results.strip("()") if results.startswith("(") else results
    return f"{start}ktdp.{name}({future}) {', '.join(parts)} : {future_type} -> {produced}"


def _field(attributes: str, name: str, pattern: str) -> str:
    match = re.search(rf"\b{name} = {pattern}" if name else pattern, attributes)
    return "" if match is None else match[1]


#: The numbers of the operations that compute operands.
_COUNTER = itertools.count()

_ALIAS = re.compile(r"^[ \t]*(#[\w.]+)[ \t]*=[ \t]*(affine_(?:set|map)<)", re.MULTILINE)
_NAME = re.compile(r"\bktdp\.(\w+)\b")
_TILE_TYPE = re.compile(r"!ktdp\.access_tile<((?:[0-9?]+x)*)index>")
_RUNTIME_TYPE = re.compile(r"!ktdp\.runtime_arg<([^>\"]*)>")
_SPACE = re.compile(r"#ktdp\.(?:spyre_)?memory_space<\s*(\w+)\s*(?:,\s*(?:ct_id|core)\s*=\s*(\d+)\s*)?>")
#: The spaces of memory of other spellings.
_SPACES = {"HBM": ktdp.GLOBAL, "DDR": ktdp.GLOBAL, "LX": ktdp.LOCAL}
_TYPE = r"!?[\w.]+(?:<[^<>]*>)?"
_SPYREOP = re.compile(
    r"(?<![\w!\"#])spyreop\.(\w+)[ \t]+(%[\w#]+(?:\s*,\s*%[\w#]+)*)((?:[ \t]+[a-z_]+[ \t]+[\w.+-]+)*)"
    rf"(?:[ \t]*\{{([^}}]*)\}})?(?:\s*:\s*({_TYPE})(?:\s*->\s*({_TYPE}))?)?"
)


def split_outside(text: str) -> list[str]:
    """Split a text at its commas outside of brackets."""
    parts, depth, last = [], 0, 0
    plain = text.replace("->", "  ").replace(">=", "  ")
    for position, character in enumerate(plain):
        depth += (character in "([{<") - (character in ")]}>")
        if character == "," and depth == 0:
            parts.append(text[last:position])
            last = position + 1
    parts.append(text[last:])
    return [part for part in parts if part.strip()]


def parse_ktir(text: str, context: ir.Context, path: str = "-") -> ir.Module:
    """Return the module of a text; ``CompileError`` with the line for text that is not valid KTIR."""
    generic = _GenericForm(text, path).rewritten()
    try:
        # ``spyreop``, and dialects of other projects in generic form, have no definition here.
        unregistered, context.allow_unregistered_dialects = context.allow_unregistered_dialects, True
        try:
            module = parsed(generic, context)
        finally:
            context.allow_unregistered_dialects = unregistered
    except (ir.MLIRError, CompileError) as error:
        problem = compile_error(error, "The text is not KTIR.") if isinstance(error, ir.MLIRError) else error
        foreign = re.search(r"Dialect `(\w+)' not found for custom op '([\w.]+)'", problem.message)
        text = problem.message
        if foreign is not None:
            text = f"'{foreign[2]}' is of the dialect '{foreign[1]}' of another project, not of KTIR"
        raise CompileError(text, re.sub(r'^"?-"?:', f"{path}:", problem.location or path)) from None
    return module


def _space(match: re.Match[str]) -> str:
    """Return the memory space of a match of ``_SPACE`` as a text; the core follows its name."""
    return _SPACES.get(match[1], match[1]) + (f", ct_id = {match[2]}" if match[2] else "")


class _GenericForm:
    """Rewriter of the ``ktdp`` ops of a text, each in place.

    ``path`` names the text in errors, and ``line`` is its first line.
    """

    def __init__(self, text: str, path: str, line: int = 1) -> None:
        # Comments become blanks, so that columns do not change.
        self.text = re.sub(r"//[^\n]*", lambda match: " " * len(match[0]), text)
        self.path, self.line, self.position = path, line, 0
        # Operations that compute operands, before the current operation.
        self.operands: list[str] = []
        # The tuple of the tensors that the current operation has as results, with its type and their types.
        self.results: list[tuple[str, str, str]] = []

    def rewritten(self) -> str:
        """Return the text in generic form."""
        aliases = {}
        for match in _ALIAS.finditer(self.text):
            end = self.closing(match.end() - 1, "<", ">")
            aliases[match[1]] = " ".join(self.text[match.start(2) : end].split())
        names = sorted(aliases, key=len, reverse=True)
        if names:
            used = re.compile("|".join(rf"{re.escape(name)}(?![\w.])(?!\s*=)" for name in names))
            self.text = used.sub(lambda match: aliases[match[0]], self.text)
        self.text = _SPYREOP.sub(self._spyreop, self.text)
        done: list[str] = []
        begin = 0
        for match in _NAME.finditer(self.text):
            prefix = self.text[match.start() - 1 : match.start()]
            if prefix in ("!", "#", '"') or match.start() < begin:
                continue
            done.append(self.text[begin : match.start()])
            self.position, self.operands, self.results = match.end(), [], []
            if match[1] in ktdp.DELIVERIES:
                form = self.delivery(match[1])
            elif match[1] in _OPERATIONS:
                form = _OPERATIONS[match[1]](self)
            else:
                raise self.failure(match.start(), f"'ktdp.{match[1]}' is not an operation of KTIR")
            # Other operations are before and after the results of the operation, in the same line.
            written = re.search(r"%[\w:, %]+=\s*$", done[-1])
            start = len(done[-1]) if written is None else written.start()
            head, names = done[-1][:start], done[-1][start:]
            for name, type_, types in self.results:
                form += f" {names}{_CAST} {name} : {type_} to {types}"
                names = f"{name} = "
            done[-1] = f"{head}{''.join(f'{operation} ' for operation in self.operands)}{names}"
            begin = self.position
            missing = self.text.count("\n", match.start(), begin) - form.count("\n")
            done.append(form + "\n" * missing)
        done.append(self.text[begin:])
        self.text = "".join(done)
        # Types of futures outside of the operations, as of arguments of functions.
        for match in reversed(list(re.finditer(r"!ktdp\.tile_future(?=<)", self.text))):
            end = self.closing(match.end(), "<", ">")
            body = " ".join(self.text[match.end() + 1 : end - 1].split())
            if not body.endswith('"'):
                self.position = match.start()
                self.text = self.text[: match.start()] + self._future(body) + self.text[end:]
        text = _TILE_TYPE.sub(r"!ktdp.access_tile<tensor<\1index>>", self.text)
        text = _RUNTIME_TYPE.sub(r'!ktdp.runtime_arg<"\1">', text)
        return _SPACE.sub(lambda space: f'"{_space(space)}"', text)

    # -- brackets, types and attributes -----------------------------------------------------------------------

    def failure(self, position: int, message: str) -> CompileError:
        while self.text[position : position + 1].isspace():
            position += 1
        line = self.text.count("\n", 0, position) + self.line
        column = position - (self.text.rfind("\n", 0, position) + 1) + 1
        return CompileError(message, f"{self.path}:{line}:{column}")

    def closing(self, begin: int, opening: str, closing: str) -> int:
        """Return the position after the bracket that closes the bracket at ``begin``."""
        # Arrows and comparisons are not brackets.
        depth = 0
        position = begin
        while position < len(self.text):
            if self.text[position : position + 2] in ("->", ">="):
                position += 2
                continue
            depth += (self.text[position] == opening) - (self.text[position] == closing)
            position += 1
            if depth == 0:
                return position
        raise self.failure(begin, f"this '{opening}' is never closed")

    def take(self, pattern: str, what: str) -> re.Match[str]:
        match = re.compile(r"\s*" + pattern).match(self.text, self.position)
        if match is None:
            raise self.failure(self.position, f"{what} is expected here")
        self.position = match.end()
        return match

    def expect(self, text: str) -> None:
        """Consume a text."""
        self.take(re.escape(text), f"'{text}'")

    def bracketed(self, opening: str, closing: str) -> str:
        begin = self.take(re.escape(opening), f"'{opening}'").end() - 1
        self.position = self.closing(begin, opening, closing)
        return self.text[begin + 1 : self.position - 1]

    def attributes(self) -> dict[str, str]:
        """Consume a dictionary of attributes; return the texts of its values."""
        body = self.bracketed("{", "}")
        found: dict[str, str] = {}
        for part in split_outside(body):
            name, equals, value = part.partition("=")
            if not equals:
                raise self.failure(self.position, f"'{part.strip()}' is not an attribute")
            found[name.strip()] = " ".join(value.split())
        return found

    def type(self, elided: str = "") -> str:
        """Consume a type and return it; ``elided`` is the type of the dialect that may lack its prefix."""
        if elided and re.compile(r"\s*<").match(self.text, self.position):
            name = f"!ktdp.{elided}"
        else:
            name = self.take(r"(index|[fi]\d+|(?:tensor|memref|!ktdp\.\w+)(?=<))", "a type")[1]
            if name == "index" or re.fullmatch(r"[fi]\d+", name):
                return name
        begin = self.take("(?=<)", "'<'").end()
        self.position = self.closing(begin, "<", ">")
        body = " ".join(self.text[begin + 1 : self.position - 1].split())
        return self._future(body) if name == "!ktdp.tile_future" else f"{name}<{body}>"

    def _future(self, body: str) -> str:
        """Return the type of a future, which has its groups as a text in the dialect."""
        parts = [part.strip() for part in split_outside(body)]
        types, groups = parts[:-1], parts[-1]
        if types and types[0].startswith("("):
            types = [part.strip() for part in split_outside(types[0][1:-1])]
        set_ = re.fullmatch(r"(?:groups = )?affine_set<(.*)>", groups)
        if set_ is None or not types:
            self._refuse("future of roles", "the type of a future has its tensors and the set of its groups")
        tensors = types[0] if len(types) == 1 else f"tuple<{', '.join(types)}>"
        return f'!ktdp.tile_future<{tensors}, "{set_[1]}">'

    def _refuse(self, form: str, message: str) -> NoReturn:
        """Raise an error that names the form of the text, and why the form is not read."""
        reason = FORMS[form].reason or f"expected: {FORMS[form].example}"
        raise self.failure(self.position, f"{message} [{form} of {FORMS[form].version}; {reason}]")

    def types(self, elided: str = "") -> list[str]:
        types = [self.type(elided)]
        while re.compile(r"\s*,\s*(?!%)").match(self.text, self.position):
            self.expect(",")
            types.append(self.type(elided))
        return types

    def arrow(self, elided: str = "", result: str = "") -> tuple[str, str]:
        """Consume the type of an operand and the type of the result."""
        self.expect(":")
        source = self.type(elided)
        self.expect("->")
        return source, self.type(result)

    # -- operations -------------------------------------------------------------------------------------------

    def compute_tile_id(self) -> str:
        """Rewrite the op that returns the core id."""
        self.expect(":")
        types = self.types()
        result = types[0] if len(types) == 1 else f"({', '.join(types)})"
        return f'"ktdp.get_compute_tile_id"() : () -> {result}'

    def memory_view(self) -> str:
        """Rewrite a memory view."""
        address = self.take(r"(%[\w#]+)", "an address")[1]
        lists, values = [], [address]
        for name in ("sizes", "strides"):
            self.take(rf",\s*{name}\s*:", f"', {name}:'")
            numbers = split_outside(self.bracketed("[", "]"))
            values += [number.strip() for number in numbers if number.strip().startswith("%")]
            shown = ", ".join(str(ktdp.DYNAMIC) if "%" in number else number.strip() for number in numbers)
            lists.append(f"{name} = array<i64: {shown}>")
        attributes = self.attributes()
        written = attributes.get("memory_space", "")
        space = _SPACE.fullmatch(written) or re.fullmatch(r'"(\w+)"()', written)
        if space is None or _space(space).partition(",")[0] not in (ktdp.GLOBAL, ktdp.LOCAL):
            self._refuse("memory space", "a view has the memory_space <global> or <ct_local>")
        self.expect(":")
        core = f", ct_id = {space[2]} : i64" if space[2] else ""
        sets = attributes.get("coordinate_set", "")
        coordinates = f", coordinate_set = {sets}" if sets else ""
        return (
            f'"ktdp.construct_memory_view"({", ".join(values)}) {{{", ".join(lists)}{coordinates}, memory_space = '
            f'"{_space(space).partition(",")[0]}"{core}}} : ({", ".join(["index"] * len(values))}) -> {self.type()}'
        )

    def computed(self, operation: str) -> str:
        """Add an operation before the current one; return its result."""
        name = f"%ktir_{next(_COUNTER)}"
        self.operands.append(f"{name} = {operation}")
        return name

    def packed(self, values: list[str], types: list[str]) -> tuple[str, str]:
        """Return one value and its type: a tuple of several values."""
        if len(values) == 1:
            return values[0], types[0]
        kind = f"tuple<{', '.join(types)}>"
        return self.computed(f"{_CAST} {', '.join(values)} : {', '.join(types)} to {kind}"), kind

    def distributed_view(self) -> str:
        """Rewrite a distributed view; parts of several shapes are cast to one type with sizes that are values."""
        operands, _, types = (split_outside(part) for part in self.bracketed("(", ")").partition(":"))
        parts, kinds = [part.strip() for part in operands], [type_.strip() for type_ in types]
        if len(set(kinds)) > 1:
            common = re.sub(r"\d+x", "?x", kinds[0])
            parts = [
                self.computed(f"memref.cast {part} : {kind} to {common}")
                for part, kind in zip(parts, kinds, strict=True)
            ]
            kinds = [common] * len(parts)
        self.expect(":")
        return f'"ktdp.construct_distributed_memory_view"({", ".join(parts)}) : ({", ".join(kinds)}) -> {self.type()}'

    def subscript(self, text: str) -> str:
        """Return the value of a subscript: the value itself, or a sum or multiple of values and numbers."""
        if re.fullmatch(r"%[\w#]+", text):
            return text
        if re.fullmatch(r"\d+", text):
            return self.computed(f"arith.constant {text} : index")
        values = list(dict.fromkeys(re.findall(r"%[\w#]+", text)))
        dims = ", ".join(f"d{number}" for number in range(len(values)))
        expression = re.sub(r"%[\w#]+", lambda value: f"d{values.index(value[0])}", text)
        return self.computed(f"affine.apply affine_map<({dims}) -> ({expression})>({', '.join(values)})")

    def access_tile(self) -> str:
        """Rewrite an access tile of a view."""
        view = self.take(r"(%[\w#]+)", "a view")[1]
        subscripts = [self.subscript(part.strip()) for part in split_outside(self.bracketed("[", "]"))]
        symbols = self.symbols()
        sets = self.attributes() | ({"symbols": f"{len(symbols)} : i64"} if symbols else {})
        attributes = ", ".join(f"{name} = {value}" for name, value in sorted(sets.items()))
        type_, result = self.arrow(result="access_tile")
        operands = [view, *subscripts, *symbols]
        types = ", ".join([type_, *["index"] * (len(operands) - 1)])
        return f'"ktdp.construct_access_tile"({", ".join(operands)}) {{{attributes}}} : ({types}) -> {result}'

    def symbols(self) -> list[str]:
        """Consume the values of the symbols of a set, if there are any."""
        if re.compile(r"\s*symbols\s*\(").match(self.text, self.position) is None:
            return []
        self.expect("symbols")
        return [part.strip() for part in split_outside(self.bracketed("(", ")"))]

    def indirect_access_tile(self) -> str:
        """Rewrite an access tile whose positions are data."""
        self.expect("intermediate_variables")
        variables = " ".join(self.bracketed("(", ")").split())
        views = [self.take(r"(%[\w#]+)", "a view")[1]]
        texts = []
        for part in split_outside(self.bracketed("[", "]")):
            indirect = re.fullmatch(r"\s*ind\(\s*(%[\w#]+)\[([^\]]*)\]\s*\)\s*", part)
            if indirect is None:
                texts.append(part.strip())
                continue
            if indirect[1] not in views[1:]:
                views.append(indirect[1])
            texts.append(f"ind({views.index(indirect[1], 1)}, {indirect[2].strip()})")
        symbols = self.symbols()
        attributes = ", ".join(f"{name} = {value}" for name, value in sorted(self.attributes().items()))
        self.expect(":")
        types = self.types()[: len(views)]
        self.expect("->")
        bound = f', symbols = "{", ".join(symbols)}"' if symbols else ""
        return (
            f'"ktdp.construct_indirect_access_tile"({", ".join(views)}) {{{attributes}{bound}, subscripts = '
            f'"{", ".join(texts)}", variables = "{variables}"}} : ({", ".join(types)}) -> {self.type("access_tile")}'
        )

    def load(self) -> str:
        """Rewrite a load."""
        tile = self.take(r"(%[\w#]+)", "an access tile")[1]
        source, result = self.arrow("access_tile")
        return f'"ktdp.load"({tile}) : ({source}) -> {result}'

    def store(self) -> str:
        """Rewrite a store."""
        match = self.take(r"(%[\w#]+)\s*,\s*(%[\w#]+)\s*:", "a tensor, an access tile and ':'")
        return f'"ktdp.store"({match[1]}, {match[2]}) : ({", ".join(self.types("access_tile"))}) -> ()'

    def produce(self) -> str:
        """Rewrite the op by which cores offer tensors, with its region."""
        self.take(r"producer_tiles_per_group\s*=", "'producer_tiles_per_group ='")
        producers = self._set()
        if re.compile(r"\s*:").match(self.text, self.position):
            self.expect(":")
            self.types()
        self.expect("->")
        result, body = self.type("tile_future"), self._region()
        return f'"ktdp.inter_tile_produce"() ({{{body}}}) {{producers = "{producers}"}} : () -> {result}'

    def delivery(self, name: str) -> str:
        """Rewrite an op that delivers offered tensors, with its region if it combines them."""
        operands, attributes, types = [self.bracketed("(", ")").strip()], {}, list[str]()
        while re.compile(r"\s*:").match(self.text, self.position) is None:
            key = self.take(r",?\s*(\w+)", "an attribute of the delivery")[1]
            if key == "identity":
                values, _, typed = self.bracketed("(", ")").partition(":")
                operands += [value.strip() for value in split_outside(values)]
                types += [type_.strip() for type_ in split_outside(typed)]
                continue
            self.expect("=")
            if key in ktdp.DELIVERIES[name]:
                attributes[key] = f"array<i64: {self.bracketed('[', ']')}>"
            elif key in ("consumer_tiles_per_group", "producer_dependency_per_consumer"):
                attributes["producers" if key.startswith("consumer") else "dependency"] = f'"{self._set()}"'
            else:
                raise self.failure(self.position, f"'{key}' is not an attribute of 'ktdp.{name}'")
        missing = {"producers", *ktdp.DELIVERIES[name]} - attributes.keys()
        if missing:
            key = sorted(missing)[0].replace("producers", "consumer_tiles_per_group")
            raise self.failure(self.position, f"'ktdp.{name}' has no {key}")
        future, result = self.arrow("tile_future")
        results = [result]
        while re.compile(r"\s*,").match(self.text, self.position):
            self.expect(",")
            results.append(self.type())
        if len(operands) > 2:
            packed, kind = self.packed(operands[1:], types)
            operands, types = [operands[0], packed], [kind]
        unpacked = []
        if len(results) > 1:
            result = f"tuple<{', '.join(results)}>"
            unpacked = [(f"%ktir_{next(_COUNTER)}", result, ", ".join(results))]
        before = self.operands
        body = f" ({{{self._region()}}})" if "reduce" in name else ""
        self.operands, self.results = before, unpacked
        shown = ", ".join(f"{key} = {value}" for key, value in sorted(attributes.items()))
        return f'"ktdp.{name}"({", ".join(operands)}){body} {{{shown}}} : ({", ".join([future, *types])}) -> {result}'

    def runtime_argument(self) -> str:
        """Rewrite the op that returns a field of a run-time argument."""
        match = self.take(
            r"(value|granularity|upperbound)\s+from\s+(%[\w#]+)", "a field and 'from' its argument"
        )
        source, result = self.arrow("runtime_arg")
        return f'"ktdp.runtime_arg_extract"({match[2]}) {{field = "{match[1]}"}} : ({source}) -> {result}'

    def yielded(self, name: str) -> str:
        """Rewrite the terminator of a region."""
        values = self.take(r"(%[\w#]+(?:\s*,\s*%[\w#]+)*)\s*:", "tensors and ':'")[1]
        value, type_ = self.packed([value.strip() for value in values.split(",")], self.types())
        return f'"ktdp.{name}"({value}) : ({type_}) -> ()'

    def _spyreop(self, match: re.Match[str]) -> str:
        """Rewrite an op of ``spyreop`` to generic form; its type follows, or is part of its name."""
        name, operands, keywords, dictionary, source, result = match.groups()
        numbers = re.findall(r"([a-z_]+)\s+([\w.+-]+)", keywords)
        parts = [*(f"{key} = {number}" for key, number in numbers), *([dictionary] if dictionary else [])]
        attributes = f" {{{', '.join(parts)}}}" if parts else ""
        named = re.search(r"(i\d+)to(i\d+)$", name)
        if source is None and named is not None:
            source, result = named[1], named[2]
        elif source is None and name == "idx32toaddr":
            source = "i32"
        elif source is None:
            self.position = match.start()
            self._refuse("SpyreOp", f"'spyreop.{name}' has no type")
        types = ", ".join([str(source)] * operands.count("%"))
        return f'"spyreop.{name}"({operands}){attributes} : ({types}) -> {result or source}'

    def _set(self) -> str:
        if re.compile(r"\s*\[").match(self.text, self.position):
            self._refuse("enumerated tiles", "the cores of a group are not listed")
        begin = self.take(r"affine_set(?=<)", "a set").end()
        self.position = self.closing(begin, "<", ">")
        return " ".join(self.text[begin + 1 : self.position - 1].split())

    def _region(self) -> str:
        """Consume a region, and return its contents in generic form, with unchanged lines."""
        begin = self.position
        body = self.bracketed("{", "}")
        lead = self.text.count("\n", begin, self.position - len(body) - 1)
        line = self.line + self.text.count("\n", 0, begin) + lead
        return "\n" * lead + _GenericForm(body, self.path, line).rewritten()


_OPERATIONS = {
    "get_compute_tile_id": _GenericForm.compute_tile_id,
    "construct_memory_view": _GenericForm.memory_view,
    "construct_distributed_memory_view": _GenericForm.distributed_view,
    "construct_access_tile": _GenericForm.access_tile,
    "construct_indirect_access_tile": _GenericForm.indirect_access_tile,
    "load": _GenericForm.load,
    "store": _GenericForm.store,
    "inter_tile_produce": _GenericForm.produce,
    "runtime_arg_extract": _GenericForm.runtime_argument,
    "yield_partial": lambda rewriter: rewriter.yielded("yield_partial"),
    "yield_reduced": lambda rewriter: rewriter.yielded("yield_reduced"),
}
