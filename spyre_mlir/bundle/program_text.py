# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text of `bundle.mlir`: printer and parser.

The grammar, in the custom syntax of the SuperDSC specification::

    file      ::= definition* `module` `{` function `}`
    definition::= `#`name `=` map
    map       ::= `affine_map` `<` map `>`
    function  ::= `func.func` `@`name `(` parameters `)` `{` (statement | definition)* `return` `}`
    parameter ::= `%`name `:` `!sdscbundle.input_arg` `<` (`index` | `loop_dimension`) (`,` key (`=` integer)?)* `>`
    statement ::= result `=` `arith.constant` integer `:` `index`
                | result `=` `arith.addi` value `,` value `:` `index`
                | result `=` `affine.apply` (`#`name | map) `(` values `)` (`[` values `]`)?
                | result `=` `sdscbundle.input_arg_extract` what `from` value `:` type `->` `index`
                | result `=` `sdscbundle.device_mem_allocate` integer `bytes` `:` `index`
                | `sdscbundle.sdsc_execute` `(` values `)` `{` attributes `}`
                  attributes have `sdsc_filename` and may have `symbol_ids`; names and ids may be in quotes
                | `scf.for` value `=` value `to` value `step` value `{` statement* `}`
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator
from typing import NoReturn, TypeVar

from spyre_mlir.bundle import model
from spyre_mlir.errors import CompileError

MapKey = tuple[int, int, tuple[int, ...], int]  # dims, symbols, coefficients, offset


def print_program(parameters: tuple[model.Parameter, ...], statements: tuple[model.Statement, ...]) -> str:
    """Return the text of a program; equal affine maps share one definition."""
    types = {}
    for parameter in parameters:
        limits = {"granularity": parameter.granularity, "max_value": parameter.max_value}
        given = (f"{name}={limit}" for name, limit in limits.items() if limit is not None)
        types[parameter.name] = f"!sdscbundle.input_arg<{', '.join(('index', *given))}>"
    maps: dict[MapKey, str] = {}
    body = list(_print_block(statements, "    ", maps, types))
    arguments = ", ".join(f"%{name}: {type_}" for name, type_ in types.items())
    lines = [f"{name} = affine_map<{_map_text(key)}>" for key, name in maps.items()]
    lines += ["module {", f"  func.func @sdsc_bundle({arguments}) {{", *body, "    return", "  }", "}"]
    return "\n".join(lines) + "\n"


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
    statements: tuple[model.Statement, ...], indent: str, maps: dict[MapKey, str], types: dict[str, str]
) -> Iterator[str]:
    for statement in statements:
        if isinstance(statement, model.Loop):
            bounds = f"%{statement.lower} to %{statement.upper} step %{statement.step}"
            yield f"{indent}scf.for %{statement.induction} = {bounds} {{"
            yield from _print_block(statement.body, indent + "  ", maps, types)
            yield f"{indent}}}"
        else:
            yield indent + _print_statement(statement, maps, types)


def _print_statement(statement: model.Statement, maps: dict[MapKey, str], types: dict[str, str]) -> str:
    match statement:
        case model.IndexConstant(result, value):
            return f"%{result} = arith.constant {value} : index"
        case model.Add(result, lhs, rhs):
            return f"%{result} = arith.addi %{lhs}, %{rhs} : index"
        case model.Apply(result, dims, symbols, coefficients, offset):
            key = (len(dims), len(symbols), coefficients, offset)
            name = maps.setdefault(key, f"#map{len(maps)}")
            suffix = f"[{_values(symbols)}]" if symbols else ""
            return f"%{result} = affine.apply {name}({_values(dims)}){suffix}"
        case model.Extract(result, parameter, what):
            source = f"{what} from %{parameter} : {types[parameter]} -> index"
            return f"%{result} = sdscbundle.input_arg_extract {source}"
        case model.Allocate(result, size):
            return f"%{result} = sdscbundle.device_mem_allocate {size} bytes : index"
        case model.Execute(filename, operands, symbol_ids):
            attributes = f'sdsc_filename="{filename}", symbol_ids={list(symbol_ids)}'
            return f"sdscbundle.sdsc_execute ({_values(operands)}) {{{attributes}}}"
    raise AssertionError(statement)


_TOKEN = re.compile(
    r"""(?:\s|//[^\n]*)*
        ( %[\w.$-]+ | \#\w+ | @\w+ | !?[A-Za-z_][\w.]* | -?\d+ | "[^"\n]*" | -> | \S | \Z )""",
    re.VERBOSE,
)


def parse_program(
    text: str, filename: str
) -> tuple[tuple[model.Parameter, ...], tuple[model.Statement, ...]]:
    """Return the parameters and statements of a program; errors are CompileErrors at ``file:line:col``."""
    return _Parser(text, filename).program()


_Item = TypeVar("_Item")

#: Nesting limit of loops, and of parentheses of an affine map: checks of a program are exponential in the depth.
_MOST_DEPTH = 8


class _Tokens:
    """The tokens of a text and a position in them; source locations are computed only for an error."""

    def __init__(self, text: str, filename: str) -> None:
        self.text = text
        self.filename = filename
        # Two more end tokens: a token may be taken before it is inspected.
        self.tokens = [*_TOKEN.findall(text), "", ""]
        self.next = 0
        self.depth = 0

    def fail(self, message: str, back: int = 0) -> NoReturn:
        """Raise an error at the token that is ``back`` places before the next token."""
        index = self.next - back
        starts = (match.start(1) for match in _TOKEN.finditer(self.text))
        start = next(itertools.islice(starts, index, None), len(self.text))
        line = self.text.count("\n", 0, start) + 1
        column = start - (self.text.rfind("\n", 0, start) + 1) + 1
        raise CompileError(message, f"{self.filename}:{line}:{column}")

    def take(self) -> str:
        # Does not use ``peek``: this function and ``accept`` take most of the time of parsing.
        token = self.tokens[self.next]
        self.next += 1
        return token

    @property
    def peek(self) -> str:
        """The next token, without taking it."""
        return self.tokens[self.next]

    def accept(self, token: str) -> bool:
        if self.tokens[self.next] != token:
            return False
        self.next += 1
        return True

    def expect(self, *tokens: str) -> None:
        for token in tokens:
            if not self.accept(token):
                self.fail(f"Expected '{token}' here but found {self.describe_next()}.")

    def describe_next(self) -> str:
        token = self.peek
        shown = token if len(token) <= 60 else f"{token[:57]}..."
        return f"'{shown}'" if token else "the end of the file"

    @contextlib.contextmanager
    def nested(self) -> Iterator[None]:
        """Enter one nesting level; too many levels are an error."""
        self.depth += 1
        if self.depth > _MOST_DEPTH:
            self.fail(f"The program nests more than {_MOST_DEPTH} deep here.")
        yield
        self.depth -= 1

    def integer(self) -> int:
        try:
            value = int(self.peek)
        except ValueError:
            self.fail(f"Expected an integer here but found {self.describe_next()}.")
        if value.bit_length() > 63:
            self.fail(f"Expected an integer of 64 bits here but found {self.describe_next()}.")
        self.next += 1
        return value

    def list_until(self, close: str, parse: Callable[[], _Item]) -> list[_Item]:
        """Parse items separated by commas up to the closing bracket, and take the bracket."""
        items: list[_Item] = []
        while not self.accept(close):
            if items:
                self.expect(",")
            items.append(parse())
        return items


# Affine maps


def _affine_map(tokens: _Tokens) -> MapKey:
    """Parse an affine map without its name, up to the closing angle bracket."""
    tokens.expect("affine_map", "<", "(")
    dims = tokens.list_until(")", tokens.take)
    symbols = tokens.list_until("]", tokens.take) if tokens.accept("[") else []
    tokens.expect("->", "(")
    terms = _affine_sum(tokens, [*dims, *symbols])
    tokens.expect(")", ">")
    offset = terms.pop("", 0)
    coefficients = tuple(terms.get(name, 0) for name in [*dims, *symbols])
    return len(dims), len(symbols), coefficients, offset


def _affine_sum(tokens: _Tokens, names: list[str]) -> dict[str, int]:
    """Parse a linear expression to coefficients by name; the constant has the name ""."""
    total = _affine_product(tokens, names)
    while True:
        sign = -1 if tokens.accept("-") else 1
        # "d0 -4" has the tokens "d0" and "-4".
        if sign == 1 and not tokens.accept("+") and not tokens.peek.startswith("-"):
            return total
        for name, factor in _affine_product(tokens, names).items():
            total[name] = total.get(name, 0) + sign * factor


def _affine_product(tokens: _Tokens, names: list[str]) -> dict[str, int]:
    product = _affine_factor(tokens, names)
    while tokens.accept("*"):
        other = _affine_factor(tokens, names)
        if product.keys() - {""} and other.keys() - {""}:
            tokens.fail("An affine map must be linear: one factor must be a constant.", back=1)
        if other.keys() - {""}:
            product, other = other, product
        product = {name: factor * other.get("", 0) for name, factor in product.items()}
    return product


def _affine_factor(tokens: _Tokens, names: list[str]) -> dict[str, int]:
    token = tokens.peek
    if token in names:
        tokens.take()
        return {token: 1}
    if tokens.accept("-"):
        with tokens.nested():
            return {name: -factor for name, factor in _affine_factor(tokens, names).items()}
    if tokens.accept("("):
        with tokens.nested():
            inner = _affine_sum(tokens, names)
        tokens.expect(")")
        return inner
    return {"": tokens.integer()}


# Statements


class _Parser(_Tokens):
    """Recursive descent over the statements of a program."""

    def __init__(self, text: str, filename: str) -> None:
        super().__init__(text, filename)
        self.maps: dict[str, MapKey] = {}
        self.types: dict[str, model.Parameter] = {}
        self.defined: set[str] = set()

    def value(self) -> str:
        """Parse a use of an index that was defined before."""
        token = self.peek
        name = token[1:]
        if token[:1] != "%":
            self.fail(f"Expected a value like %name here but found {self.describe_next()}.")
        if name not in self.defined:
            self.fail(f"The value {token} is not defined before its use.")
        if name in self.types:
            self.fail(f"The parameter {token} is not an index; extract its value first.")
        self.take()
        return name

    def define(self) -> str:
        token = self.peek
        if not token.startswith("%"):
            self.fail(f"Expected a value like %name here but found {self.describe_next()}.")
        if token[1:] in self.defined:
            self.fail(f"The value {token} is defined twice.")
        self.take()
        self.defined.add(token[1:])
        return token[1:]

    def program(self) -> tuple[tuple[model.Parameter, ...], tuple[model.Statement, ...]]:
        while self.peek.startswith("#"):
            self.map_definition()
        self.expect("module", "{", "func.func")
        if not self.take().startswith("@"):
            self.fail("Expected the name of the function, like @sdsc_bundle.", back=1)
        self.expect("(")
        self.list_until(")", self.parameter)
        self.expect("{")
        statements = self.block()
        self.expect("return", "}", "}", "")
        return tuple(self.types.values()), statements

    def map_definition(self) -> None:
        name = self.take()
        if name in self.maps:
            self.fail(f"The map {name} is defined twice.", back=1)
        self.expect("=")
        self.maps[name] = _affine_map(self)

    def parameter(self) -> None:
        name = self.define()
        self.expect(":")
        self.types[name] = self.input_type(name)

    def input_type(self, name: str) -> model.Parameter:
        self.expect("!sdscbundle.input_arg", "<")
        # The size of a dim that a loop iterates over is an index like any other.
        if not self.accept("loop_dimension"):
            self.expect("index")
        limits: dict[str, int] = {}
        while self.accept(","):
            key = self.take()
            if key not in ("granularity", "max_value", "loop_dimension") or key in limits:
                self.fail(f"Expected granularity or max_value, each once, but found '{key}'.", back=1)
            limits[key] = 0
            if key != "loop_dimension" or self.peek == "=":
                self.expect("=")
                limits[key] = self.integer()
        self.expect(">")
        return model.Parameter(name, limits.get("granularity"), limits.get("max_value"))

    def block(self) -> tuple[model.Statement, ...]:
        """Parse the statements up to the end of the block; the caller takes the closing brace."""
        statements: list[model.Statement] = []
        while True:
            token = self.peek
            if token.startswith("%"):
                statements.append(self.assignment())
            elif token == "sdscbundle.sdsc_execute":
                statements.append(self.execute())
            elif token == "scf.for":
                statements.append(self.loop())
            elif token.startswith("#"):
                self.map_definition()
            else:
                return tuple(statements)

    def assignment(self) -> model.Statement:
        result = self.take()[1:]
        if result in self.defined:
            self.fail(f"The value %{result} is defined twice.", back=1)
        self.expect("=")
        if self.accept("arith.constant"):
            statement = model.IndexConstant(result, self.integer())
            self.expect(":", "index")
        elif self.accept("arith.addi"):
            lhs = self.value()
            self.expect(",")
            statement = model.Add(result, lhs, self.value())
            self.expect(":", "index")
        elif self.accept("affine.apply"):
            statement = self.apply(result)
        elif self.accept("sdscbundle.input_arg_extract"):
            statement = self.extract(result)
        elif self.accept("sdscbundle.device_mem_allocate"):
            statement = model.Allocate(result, self.integer())
            self.expect("bytes", ":", "index")
        else:
            self.fail(f"The operation {self.describe_next()} is not an operation of a bundle.")
        self.defined.add(result)
        return statement

    def apply(self, result: str) -> model.Apply:
        key = self.maps.get(self.peek)
        if key is not None:
            self.take()
        elif self.peek == "affine_map":
            key = _affine_map(self)
        else:
            self.fail(f"Expected the name of an affine map defined above but found {self.describe_next()}.")
        self.expect("(")
        dims = tuple(self.list_until(")", self.value))
        symbols = tuple(self.list_until("]", self.value)) if self.accept("[") else ()
        if (len(dims), len(symbols)) != key[:2]:
            self.fail(f"The map takes {key[0]} dims and {key[1]} symbols.", back=1)
        return model.Apply(result, dims, symbols, key[2], key[3])

    def extract(self, result: str) -> model.Extract:
        what = self.take()
        if what not in ("value", "granularity", "max_value"):
            self.fail(f"Expected value, granularity or max_value but found '{what}'.", back=1)
        self.expect("from")
        name = self.take()[1:]
        if name not in self.types:
            self.fail("Expected the name of a parameter of the function here.", back=1)
        self.expect(":")
        if self.input_type(name) != self.types[name]:
            self.fail(f"The type differs from the type of the parameter %{name}.", back=1)
        self.expect("->", "index")
        return model.Extract(result, name, what)

    def execute(self) -> model.Execute:
        self.expect("sdscbundle.sdsc_execute", "(")
        operands = tuple(self.list_until(")", self.value))
        self.expect("{")
        filename, symbol_ids, keys = "", [], set[str]()
        while not keys or self.accept(","):
            key = self.take().strip('"')
            if key not in ("sdsc_filename", "symbol_ids") or key in keys:
                self.fail(f"Expected sdsc_filename or symbol_ids, each once, but found '{key}'.", back=1)
            keys.add(key)
            self.expect("=")
            if key == "symbol_ids":
                self.expect("[")
                symbol_ids = self.list_until("]", self.symbol_id)
                continue
            filename = self.take()
            if not filename.startswith('"') or len(filename) < 3:
                self.fail(f"Expected a file name in double quotes but found {filename}.", back=1)
        if not filename:
            self.fail("Expected the sdsc_filename of the execute before this.")
        self.expect("}")
        return model.Execute(filename[1:-1], operands, tuple(symbol_ids))

    def symbol_id(self) -> int:
        """Parse a symbol id, which some writers put in quotes."""
        text = self.peek
        if re.fullmatch(r'"-?\d{1,18}"', text) is None:
            return self.integer()
        return int(self.take()[1:-1])

    def loop(self) -> model.Loop:
        self.expect("scf.for")
        induction = self.define()
        self.expect("=")
        lower = self.value()
        self.expect("to")
        upper = self.value()
        self.expect("step")
        step = self.value()
        self.expect("{")
        with self.nested():
            body = self.block()
        self.expect("}")
        inner = {
            statement.result for statement in body if not isinstance(statement, model.Execute | model.Loop)
        }
        self.defined -= inner | {induction}
        return model.Loop(induction, lower, upper, step, body)
