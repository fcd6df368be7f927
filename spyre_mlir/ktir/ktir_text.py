# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Printer and parser of KTIR in the custom syntax of ktir-mlir-frontend and ktir-cpu.

The printer starts from the generic form of the bindings. All ops except the ``ktdp`` ops are printed as in MLIR, with
attributes instead of aliases, because ktir-cpu resolves aliases only in some places. The parser of ktir-cpu is line-
based: it takes a line that closes a region for the end of an operation only if an empty line follows, and ``else`` only
at the end of a line.

The parser accepts KTIR from any writer: it rewrites the ops of ``ktdp`` to generic form, and MLIR parses the rest.
Errors refer to the original text: a rewritten operation keeps its line.
"""

from __future__ import annotations

import re

from spyre_mlir.diagnostics import compile_error
from spyre_mlir.dialects import parsed
from spyre_mlir.errors import CompileError
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


_ALIAS = re.compile(r"^[ \t]*(#[\w.]+)[ \t]*=[ \t]*(affine_(?:set|map)<)", re.MULTILINE)
_NAME = re.compile(r"\bktdp\.(\w+)\b")
_TILE_TYPE = re.compile(r"!ktdp\.access_tile<([0-9x]+)xindex>")
_SPACE = re.compile(r"#ktdp\.memory_space<\s*(\w+)\s*(?:,\s*ct_id\s*=\s*(\d+)\s*)?>")


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
        module = parsed(generic, context)
    except (ir.MLIRError, CompileError) as error:
        problem = compile_error(error, "The text is not KTIR.") if isinstance(error, ir.MLIRError) else error
        raise CompileError(
            problem.message, re.sub(r'^"?-"?:', f"{path}:", problem.location or path)
        ) from None
    return module


class _GenericForm:
    """Rewriter of the ``ktdp`` ops of a text, each in place.

    ``path`` names the text in errors, and ``line`` is its first line.
    """

    def __init__(self, text: str, path: str, line: int = 1) -> None:
        # Comments become blanks, so that columns do not change.
        self.text = re.sub(r"//[^\n]*", lambda match: " " * len(match[0]), text)
        self.path, self.line, self.position = path, line, 0

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
        done: list[str] = []
        begin = 0
        for match in _NAME.finditer(self.text):
            prefix = self.text[match.start() - 1 : match.start()]
            if prefix in ("!", "#") or match.start() < begin:
                continue
            done.append(self.text[begin : match.start()])
            self.position = match.end()
            if match[1] not in _FORMS:
                raise self.failure(match.start(), f"'ktdp.{match[1]}' is not an operation of KTIR")
            form = _FORMS[match[1]](self)
            begin = self.position
            missing = self.text.count("\n", match.start(), begin) - form.count("\n")
            done.append(form + "\n" * missing)
        done.append(self.text[begin:])
        return _TILE_TYPE.sub(r"!ktdp.access_tile<tensor<\1xindex>>", "".join(done))

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

    def type(self) -> str:
        """Consume a type and return it."""
        match = self.take(r"(index|[fi]\d+|(?:tensor|memref|!ktdp\.\w+)(?=<))", "a type")
        if match[1] in ("index",) or re.fullmatch(r"[fi]\d+", match[1]):
            return match[1]
        begin = self.position
        self.position = self.closing(begin, "<", ">")
        type_ = match[1] + " ".join(self.text[begin : self.position].split())
        # The dialect has the groups of a future as a text.
        future = re.fullmatch(r"!ktdp\.tile_future<(tensor<.*?>), groups = affine_set<(.*)>>", type_)
        return type_ if future is None else f'!ktdp.tile_future<{future[1]}, "{future[2]}">'

    def types(self) -> list[str]:
        types = [self.type()]
        while re.compile(r"\s*,\s*(?!%)").match(self.text, self.position):
            self.expect(",")
            types.append(self.type())
        return types

    def arrow(self) -> tuple[str, str]:
        """Consume the type of an operand and the type of the result."""
        self.expect(":")
        source = self.type()
        self.expect("->")
        return source, self.type()

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
        lists = []
        for name in ("sizes", "strides"):
            self.take(rf",\s*{name}\s*:", f"', {name}:'")
            numbers = self.bracketed("[", "]")
            if not re.fullmatch(r"[\s\d,]*", numbers):
                raise self.failure(self.position, f"the {name} of a view are constants here")
            lists.append(f"{name} = array<i64: {' '.join(numbers.split())}>")
        attributes = self.attributes()
        space = _SPACE.fullmatch(attributes.get("memory_space", ""))
        if space is None:
            raise self.failure(self.position, "a view has the memory_space <global> or <ct_local>")
        self.expect(":")
        core = f", ct_id = {space[2]} : i64" if space[2] else ""
        sets = attributes.get("coordinate_set", "")
        coordinates = f", coordinate_set = {sets}" if sets else ""
        return (
            f'"ktdp.construct_memory_view"({address}) {{{", ".join(lists)}{coordinates}, memory_space = "{space[1]}"'
            f"{core}}} : (index) -> {self.type()}"
        )

    def distributed_view(self) -> str:
        """Rewrite a distributed view."""
        operands, _, types = self.bracketed("(", ")").partition(":")
        self.expect(":")
        return f'"ktdp.construct_distributed_memory_view"({operands.strip()}) : ({types.strip()}) -> {self.type()}'

    def access_tile(self) -> str:
        """Rewrite an access tile of a view."""
        view = self.take(r"(%[\w#]+)", "a view")[1]
        subscripts = [part.strip() for part in split_outside(self.bracketed("[", "]"))]
        attributes = ", ".join(f"{name} = {value}" for name, value in sorted(self.attributes().items()))
        type_, result = self.arrow()
        types = ", ".join([type_, *["index"] * len(subscripts)])
        operands = ", ".join([view, *subscripts])
        return f'"ktdp.construct_access_tile"({operands}) {{{attributes}}} : ({types}) -> {result}'

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
        attributes = ", ".join(f"{name} = {value}" for name, value in sorted(self.attributes().items()))
        self.expect(":")
        types = self.types()
        self.expect("->")
        return (
            f'"ktdp.construct_indirect_access_tile"({", ".join(views)}) {{{attributes}, subscripts = '
            f'"{", ".join(texts)}", variables = "{variables}"}} : ({", ".join(types)}) -> {self.type()}'
        )

    def load(self) -> str:
        """Rewrite a load."""
        tile = self.take(r"(%[\w#]+)", "an access tile")[1]
        source, result = self.arrow()
        return f'"ktdp.load"({tile}) : ({source}) -> {result}'

    def store(self) -> str:
        """Rewrite a store."""
        match = self.take(r"(%[\w#]+)\s*,\s*(%[\w#]+)\s*:", "a tensor, an access tile and ':'")
        return f'"ktdp.store"({match[1]}, {match[2]}) : ({", ".join(self.types())}) -> ()'

    def produce(self) -> str:
        """Rewrite the op by which cores offer tensors, with its region."""
        self.take(r"producer_tiles_per_group\s*=", "'producer_tiles_per_group ='")
        producers = self._set()
        _, result = self.arrow()
        body = self._region()
        return f'"ktdp.inter_tile_produce"() ({{{body}}}) {{producers = "{producers}"}} : () -> {result}'

    def reduce(self) -> str:
        """Rewrite the combination of offered tensors, with its region."""
        future = self.bracketed("(", ")").strip()
        self.take(r"consumer_tiles_per_group\s*=", "'consumer_tiles_per_group ='")
        producers = self._set()
        self.take(r",\s*identity", "', identity'")
        identity, _, identity_type = self.bracketed("(", ")").partition(":")
        type_, result = self.arrow()
        body = self._region()
        return (
            f'"ktdp.inter_tile_reduce"({future}, {identity.strip()}) ({{{body}}}) {{producers = "{producers}"}} : '
            f"({type_}, {identity_type.strip()}) -> {result}"
        )

    def yielded(self, name: str) -> str:
        """Rewrite the terminator of a region."""
        value = self.take(r"(%[\w#]+)\s*:", "a tensor and ':'")[1]
        return f'"ktdp.{name}"({value}) : ({self.type()}) -> ()'

    def _set(self) -> str:
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


_FORMS = {
    "get_compute_tile_id": _GenericForm.compute_tile_id,
    "construct_memory_view": _GenericForm.memory_view,
    "construct_distributed_memory_view": _GenericForm.distributed_view,
    "construct_access_tile": _GenericForm.access_tile,
    "construct_indirect_access_tile": _GenericForm.indirect_access_tile,
    "load": _GenericForm.load,
    "store": _GenericForm.store,
    "inter_tile_produce": _GenericForm.produce,
    "inter_tile_reduce": _GenericForm.reduce,
    "yield_partial": lambda rewriter: rewriter.yielded("yield_partial"),
    "yield_reduced": lambda rewriter: rewriter.yielded("yield_reduced"),
}
