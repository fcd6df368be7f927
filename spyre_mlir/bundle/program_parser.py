"""Reading the text of `bundle.mlir`.

The grammar, in the custom syntax of the public interface::

    file      ::= (`#`name `=` `affine_map` `<` map `>`)* `module` `{` function `}`
    function  ::= `func.func` `@sdsc_bundle` `(` parameters `)` `{` statement* `return` `}`
    parameter ::= `%`name `:` `!sdscbundle.input_arg` `<` `index` (`,` key `=` integer)* `>`
    statement ::= result `=` `arith.constant` integer `:` `index`
                | result `=` `arith.addi` value `,` value `:` `index`
                | result `=` `affine.apply` `#`name `(` values `)` (`[` values `]`)?
                | result `=` `sdscbundle.input_arg_extract` what `from` value `:` type `->` `index`
                | result `=` `sdscbundle.device_mem_allocate` integer `bytes` `:` `index`
                | `sdscbundle.sdsc_execute` `(` values `)` `{` attributes `}`
                | `scf.for` value `=` value `to` value `step` value `{` statement* `}`
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator
from typing import NoReturn

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
from spyre_mlir.bundle.program_text import MapKey
from spyre_mlir.errors import CompileError

_TOKEN = re.compile(
    r"""(?:\s|//[^\n]*)*
        ( %[\w.$-]+ | \#\w+ | @\w+ | !?[A-Za-z_][\w.]* | -?\d+ | "[^"\n]*" | -> | \S | \Z )""",
    re.VERBOSE,
)


def parse_program(text: str, filename: str) -> tuple[tuple[Parameter, ...], tuple[Statement, ...]]:
    """Parameters and statements of a program; errors are CompileErrors at ``file:line:col``."""
    return _Parser(text, filename).program()


#: Loops in loops, or parentheses of an affine map: what checks a program does so in time exponential in its depth.
_MOST_DEPTH = 8


class _Parser:
    """Recursive descent over a flat list of tokens; places in the text are found only for an error."""

    def __init__(self, text: str, filename: str) -> None:
        self.text = text
        self.filename = filename
        # Two ends more than there are: a token may be taken before it is looked at.
        self.tokens = [*_TOKEN.findall(text), "", ""]
        self.next = 0
        self.depth = 0
        self.maps: dict[str, MapKey] = {}
        self.types: dict[str, Parameter] = {}
        self.defined: set[str] = set()
        self.operations: dict[str, Callable[[str], Statement]] = {
            "arith.constant": self.constant,
            "arith.addi": self.add,
            "affine.apply": self.apply,
            "sdscbundle.input_arg_extract": self.extract,
            "sdscbundle.device_mem_allocate": self.allocate,
        }

    # Tokens

    def fail(self, message: str, back: int = 0) -> NoReturn:
        """Raise at the token ``back`` places before the next one."""
        wanted = self.next - back
        starts = (match.start(1) for match in _TOKEN.finditer(self.text))
        start = next(itertools.islice(starts, wanted, None), len(self.text))
        line = self.text.count("\n", 0, start) + 1
        column = start - (self.text.rfind("\n", 0, start) + 1) + 1
        raise CompileError(message, f"{self.filename}:{line}:{column}")

    def take(self) -> str:
        token = self.tokens[self.next]
        self.next += 1
        return token

    def accept(self, token: str) -> bool:
        if self.tokens[self.next] != token:
            return False
        self.next += 1
        return True

    def expect(self, *tokens: str) -> None:
        for token in tokens:
            if not self.accept(token):
                self.fail(f"Expected '{token}' here but found {self.found()}.")

    def found(self) -> str:
        token = self.tokens[self.next]
        shown = token if len(token) <= 60 else f"{token[:57]}..."
        return f"'{shown}'" if token else "the end of the file"

    @contextlib.contextmanager
    def nested(self) -> Iterator[None]:
        """One level deeper, of not too many."""
        self.depth += 1
        if self.depth > _MOST_DEPTH:
            self.fail(f"The program nests more than {_MOST_DEPTH} deep here.")
        yield
        self.depth -= 1

    def integer(self) -> int:
        try:
            value = int(self.tokens[self.next])
        except ValueError:
            self.fail(f"Expected an integer here but found {self.found()}.")
        if value.bit_length() > 63:
            self.fail(f"Expected an integer of 64 bits here but found {self.found()}.")
        self.next += 1
        return value

    def value(self) -> str:
        """A use of an index that is defined before it."""
        token = self.tokens[self.next]
        name = token[1:]
        if token[:1] != "%":
            self.fail(f"Expected a value like %name here but found {self.found()}.")
        if name not in self.defined:
            self.fail(f"The value {token} is not defined before its use.")
        if name in self.types:
            self.fail(f"The parameter {token} is not an index; extract its value first.")
        self.next += 1
        return name

    def values(self, close: str) -> tuple[str, ...]:
        """Values up to the closing bracket, which is taken too."""
        names: list[str] = []
        while not self.accept(close):
            if names:
                self.expect(",")
            names.append(self.value())
        return tuple(names)

    def define(self) -> str:
        token = self.take()
        if not token.startswith("%"):
            self.next -= 1
            self.fail(f"Expected a value like %name here but found {self.found()}.")
        if token[1:] in self.defined:
            self.fail(f"The value {token} is defined twice.", back=1)
        self.defined.add(token[1:])
        return token[1:]

    # Structure

    def program(self) -> tuple[tuple[Parameter, ...], tuple[Statement, ...]]:
        while self.tokens[self.next].startswith("#"):
            self.map_definition()
        self.expect("module", "{", "func.func", "@sdsc_bundle", "(")
        while not self.accept(")"):
            if self.types:
                self.expect(",")
            self.parameter()
        self.expect("{")
        statements = self.block()
        self.expect("return", "}", "}", "")
        return tuple(self.types.values()), statements

    def parameter(self) -> None:
        name = self.define()
        self.expect(":")
        self.types[name] = self.input_type(name)

    def input_type(self, name: str) -> Parameter:
        self.expect("!sdscbundle.input_arg", "<", "index")
        limits: dict[str, int] = {}
        while self.accept(","):
            key = self.take()
            if key not in ("granularity", "max_value") or key in limits:
                self.fail(f"Expected granularity or max_value, each once, but found '{key}'.", back=1)
            self.expect("=")
            limits[key] = self.integer()
        self.expect(">")
        return Parameter(name, limits.get("granularity"), limits.get("max_value"))

    def block(self) -> tuple[Statement, ...]:
        """Statements up to the end of the block, which the caller takes."""
        statements: list[Statement] = []
        while True:
            token = self.tokens[self.next]
            if token.startswith("%"):
                statements.append(self.assignment())
            elif token == "sdscbundle.sdsc_execute":
                self.next += 1
                statements.append(self.execute())
            elif token == "scf.for":
                self.next += 1
                statements.append(self.loop())
            else:
                return tuple(statements)

    def assignment(self) -> Statement:
        result = self.take()
        if result[1:] in self.defined:
            self.fail(f"The value {result} is defined twice.", back=1)
        self.expect("=")
        parse = self.operations.get(self.tokens[self.next])
        if parse is None:
            self.fail(f"The operation {self.found()} is not one of a bundle.")
        self.next += 1
        statement = parse(result[1:])
        self.defined.add(result[1:])
        return statement

    # Statements

    def constant(self, result: str) -> IndexConstant:
        value = self.integer()
        self.expect(":", "index")
        return IndexConstant(result, value)

    def add(self, result: str) -> Add:
        lhs = self.value()
        self.expect(",")
        rhs = self.value()
        self.expect(":", "index")
        return Add(result, lhs, rhs)

    def apply(self, result: str) -> Apply:
        key = self.maps.get(self.tokens[self.next])
        if key is None:
            self.fail(f"Expected the name of an affine map defined above but found {self.found()}.")
        self.next += 1
        self.expect("(")
        dims = self.values(")")
        symbols = self.values("]") if self.accept("[") else ()
        if (len(dims), len(symbols)) != key[:2]:
            self.fail(f"The map takes {key[0]} dims and {key[1]} symbols.", back=1)
        return Apply(result, dims, symbols, key[2], key[3])

    def extract(self, result: str) -> Extract:
        what = self.take()
        if what not in ("value", "granularity", "max_value"):
            self.fail(f"Expected value, granularity or max_value but found '{what}'.", back=1)
        self.expect("from")
        name = self.take()[1:]
        if name not in self.types:
            self.fail("Expected the name of a parameter of the function here.", back=1)
        self.expect(":")
        if self.input_type(name) != self.types[name]:
            self.fail(f"The type differs from that of the parameter %{name}.", back=1)
        self.expect("->", "index")
        return Extract(result, name, what)

    def allocate(self, result: str) -> Allocate:
        size = self.integer()
        self.expect("bytes", ":", "index")
        return Allocate(result, size)

    def execute(self) -> Execute:
        self.expect("(")
        operands = self.values(")")
        self.expect("{", "sdsc_filename", "=")
        filename = self.take()
        if not filename.startswith('"') or len(filename) < 3:
            self.fail(f"Expected a file name in double quotes but found {filename}.", back=1)
        self.expect(",", "symbol_ids", "=", "[")
        symbol_ids: list[int] = []
        while not self.accept("]"):
            if symbol_ids:
                self.expect(",")
            symbol_ids.append(self.integer())
        self.expect("}")
        return Execute(filename[1:-1], operands, tuple(symbol_ids))

    def loop(self) -> Loop:
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
        inner = {statement.result for statement in body if not isinstance(statement, Execute | Loop)}
        self.defined -= inner | {induction}
        return Loop(induction, lower, upper, step, body)

    # Affine maps

    def map_definition(self) -> None:
        name = self.take()
        if name in self.maps:
            self.fail(f"The map {name} is defined twice.", back=1)
        self.expect("=", "affine_map", "<", "(")
        dims = self.map_names(")")
        symbols = self.map_names("]") if self.accept("[") else []
        self.expect("->", "(")
        terms = self.affine_sum([*dims, *symbols])
        self.expect(")", ">")
        offset = terms.pop("", 0)
        coefficients = tuple(terms.get(key, 0) for key in [*dims, *symbols])
        self.maps[name] = (len(dims), len(symbols), coefficients, offset)

    def map_names(self, close: str) -> list[str]:
        names: list[str] = []
        while not self.accept(close):
            if names:
                self.expect(",")
            names.append(self.take())
        return names

    def affine_sum(self, names: list[str]) -> dict[str, int]:
        """A linear expression as coefficients by name; the constant has the name ""."""
        total = self.affine_product(names)
        while True:
            sign = -1 if self.accept("-") else 1
            # "d0 -4" has the tokens "d0" and "-4".
            if sign == 1 and not self.accept("+") and not self.tokens[self.next].startswith("-"):
                return total
            for name, factor in self.affine_product(names).items():
                total[name] = total.get(name, 0) + sign * factor

    def affine_product(self, names: list[str]) -> dict[str, int]:
        product = self.affine_factor(names)
        while self.accept("*"):
            other = self.affine_factor(names)
            if product.keys() - {""} and other.keys() - {""}:
                self.fail("An affine map must be linear: one factor must be a constant.", back=1)
            if other.keys() - {""}:
                product, other = other, product
            product = {name: factor * other.get("", 0) for name, factor in product.items()}
        return product

    def affine_factor(self, names: list[str]) -> dict[str, int]:
        token = self.tokens[self.next]
        if token in names:
            self.next += 1
            return {token: 1}
        if self.accept("-"):
            with self.nested():
                return {name: -factor for name, factor in self.affine_factor(names).items()}
        if self.accept("("):
            with self.nested():
                inner = self.affine_sum(names)
            self.expect(")")
            return inner
        return {"": self.integer()}
