# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names that the language server finds in a text without a parse, compared with the parser."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from test_language_server import chain

from spyre_mlir import dialects
from spyre_mlir.language_server import server as names
from spyre_mlir.language_server import server as types
from spyre_mlir.language_server.decisions import at_level
from spyre_mlir.language_server.server import Document, ProtocolError, plain_text
from spyre_mlir.language_server.text_index import LEVELS, TextIndex, level_of, parts
from spyre_mlir.mlir import ir

TESTS = Path(__file__).parents[1]
# Folders "Output" contain outputs of lit, which are not inputs.
INPUTS = [path for path in sorted(TESTS.rglob("*.mlir")) if "Output" not in path.parts]
PASSES = [path for path in INPUTS if TESTS / "passes" in path.parents]
FUNCTION = "func.func @f(%a: i32) {\n  return\n}\n"


def document(text: str, encoding: str = "utf-16") -> Document:
    return Document("file:///a.mlir", 1, plain_text(text), encoding)


def printed(text: str) -> list[str | None]:
    """Return the programs of a text as printed, with new names; None for a program with errors."""
    found = []
    for _, part in parts(text):
        try:
            found.append(str(ir.Module.parse(part, dialects.context())))
        except ir.MLIRError:
            found.append(None)
    return found


def edited(found: Document, edit: types.Json) -> str:
    lines = list(found.index.lines)
    for change in sorted(
        edit["changes"][found.uri], key=lambda change: change["range"].start.character, reverse=True
    ):
        line = lines[change["range"].start.line]
        begin, end = found.column(change["range"].start), found.column(change["range"].end)
        lines[change["range"].start.line] = line[:begin] + change["newText"] + line[end:]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "place", "definition"),
    [
        ("func.func @f(%a: i32) {\n %b = arith.addi %a, %a : i32\n}", (1, 18), (0, 13)),
        ("%r:2 = scf.x\n%s = y.z %r#1", (1, 10), (0, 0)),
        ("%p, %q = x.y\n z.w %q", (1, 6), (0, 4)),
        ("%p,\n%q = x.y\n z.w %q", (2, 6), (1, 0)),
        ("#map = affine_map<() -> ()>\n x.y {m = #map}", (1, 11), (0, 0)),
        ("func.func @f() {\n call @g()\n}\nfunc.func private @g()", (1, 7), (3, 18)),
        ("func.func @f() {\n %c = a.b\n}\nfunc.func @g() {\n %c = a.b\n c.d %c\n}", (5, 6), (4, 1)),
        ("^bb0(%in: f16):\n a.b %in // %in = 1", (1, 6), (0, 5)),
        ('x.y {a = "%b = "} {\n %b = c.d\n}\n e.f %b', (3, 6), None),
        # Dictionaries of arguments, results and functions are before the body.
        ("func.func @f(%a: i32 {x.y}, %b: i32) attributes {z} {\n c.d %a, %b\n}", (1, 6), (0, 13)),
        ("func.func @f(%a: i32 {x.y}, %b: i32) -> (i32 {z}) {\n c.d %a, %b\n}", (1, 10), (0, 28)),
        # Arguments of the regions of loops and reductions.
        ("%r = scf.for %i = %a to %b step %c iter_args(%s = %t) -> (i32) {\n x.y %i\n}", (1, 6), (0, 13)),
        ("%r = scf.for %i = %a to %b step %c iter_args(%s = %t) -> (i32) {\n x.y %s\n}", (1, 6), (0, 45)),
        ("%t = a.b\n%r = scf.for %i = %a to %b iter_args(%s = %t) {\n}", (1, 43), (0, 0)),
        ("scf.forall (%i, %j) in (2, 2) shared_outs(%o = %x) -> (i32) {\n a.b %j, %o\n}", (1, 6), (0, 16)),
        ("%r = linalg.reduce ins(%x : i) dimensions = [2]\n (%in: f16, %acc: f16) {\n a.b %acc\n}", (2, 6), (1, 12)),
        ("cf.br ^bb1(%a : i32)\n^bb1(%a: i32):\n x.y %a", (2, 6), (1, 5)),
        # Each of several programs in a file has separate names.
        ("#m = affine_map<() -> ()>\n// -----\n x.y {m = #m}", (2, 11), None),
        ('func.func @"a b"() {\n}\n call @"a b"()', (2, 7), (0, 10)),
        ("%-x = a.b\n c.d %-x", (1, 6), (0, 0)),
    ],
)  # fmt: skip
def test_definitions_of_names(text, place, definition):
    index = TextIndex(text)
    use = index.at(*place)
    assert use is not None
    found = index.definition(use)
    assert (found and (found.line, found.column)) == definition


def test_every_name_of_every_test_file_has_its_definition():
    unknown = [
        (path.name, use)
        for path in INPUTS
        if "invalid" not in path.name and ".irdl" not in path.name
        for index in [TextIndex(path.read_text(encoding="utf-8"))]
        for use in index.uses
        if use.name[0] in "%^@" and index.definition(use) is None
    ]
    assert unknown == []


@pytest.mark.parametrize("seed", range(2))
def test_a_program_with_another_name_is_the_same_program(seed):
    """If a rename misses a use, or renames too many, the parser refuses the text or prints another program."""
    random_ = random.Random(seed)
    paths = [path for path in PASSES if path.stat().st_size < 8000]
    for path in random_.sample(paths, 12):
        text = path.read_text(encoding="utf-8")
        before = printed(text)
        found = document(text)
        uses = [use for use in found.index.uses if use.name[0] in "%^#" and found.index.definition(use)]
        for use in random_.sample(uses, min(3, len(uses))):
            edit = names.renamed(found, found.position(use.line, use.column + 1), "another_name")
            assert printed(edited(found, edit)) == before, (path, use)


def test_a_rename_that_would_change_the_program_is_refused():
    text = (
        FUNCTION.replace("return", "%b = arith.addi %a, %a : i32\n  return")
        + "func.func @g(%c: i32) {\n  return\n}\n"
    )
    found = document(text)
    place = types.TextPosition(1, 19)
    for name in ("%b", "1x", "a b", ""):
        with pytest.raises(ProtocolError):
            names.renamed(found, place, name)
    # The name of a value in another function is free, with or without its sigil.
    for name in ("c", "%c"):
        edit = names.renamed(found, place, name)
        assert edited(found, edit) == text.replace("%a", "%c")
    assert names.renameable(found, types.TextPosition(2, 3)) is None


def test_references_leave_the_definition_out_if_asked_to():
    found, place = document(chain(3)), types.TextPosition(3, 24)
    lines = [
        location["range"].start.line for location in names.references(found, place, with_definition=True)
    ]
    assert lines == [2, 3]
    lines = [
        location["range"].start.line for location in names.references(found, place, with_definition=False)
    ]
    assert lines == [3]
    kinds = [highlight["kind"] for highlight in names.highlights(found, place)]
    assert kinds == [types.AccessKind.WRITE, types.AccessKind.READ]


def test_the_outline_is_a_tree_of_functions_with_their_own_values():
    text = f"module @m {{\n  func.func private @g()\n{FUNCTION}func.func @h() {{ return }}\n}}\n"
    module, global_ = names.symbols(document(f"{text}memref.global @x : memref<4xi32>\n"))
    assert (module["name"], module["kind"], module["range"].end.line) == ("@m", types.SymbolKind.MODULE, 6)
    assert (global_["name"], global_["kind"]) == ("@x", types.SymbolKind.VARIABLE)
    values = {each["name"]: [value["name"] for value in each["children"]] for each in module["children"]}
    assert values == {"@g": [], "@f": ["%a"], "@h": []}
    flat = list(names.flat("file:///a.mlir", [module]))
    assert [(symbol["name"], symbol["containerName"]) for symbol in flat] == [
        ("@m", None), ("@g", "@m"), ("@f", "@m"), ("%a", "@f"), ("@h", "@m"),
    ]  # fmt: skip


def test_levels_are_of_the_code_and_not_of_its_comments():
    text = "// CHECK: sdsc.placement\n" + chain(1)
    assert level_of(text) == "linalg"
    assert level_of('"sdscbundle.x"() // nothing') == "bundle"
    lenses = names.lenses(document(text), "command")
    assert [lens["command"]["arguments"][1] for lens in lenses] == list(LEVELS)


def test_names_of_the_ir_of_each_level_are_known():
    for level in LEVELS:
        index = TextIndex(at_level(chain(2), level))
        assert [use for use in index.uses if use.name[0] in "%^@" and not index.definition(use)] == []
        assert len(index.outline) == 1


def test_completions_are_the_names_that_are_visible():
    text = "#m = affine_map<() -> ()>\nfunc.func @f(%a: i32) {\n  x.y {\n    %in = a.b\n  }\n  %b = c.d %\n  e.f #\n}\n"
    found = document(text)
    values = names.completions(found, types.TextPosition(5, 12))
    assert [(item["label"], item["detail"]) for item in values] == [("%a", "func.func @f(%a: i32) {")]
    assert values[0]["textEdit"]["range"] == types.TextRange(
        types.TextPosition(5, 11), types.TextPosition(5, 12)
    )
    assert [item["label"] for item in names.completions(found, types.TextPosition(6, 7))] == ["#m"]
    assert names.completions(found, types.TextPosition(5, 8)) == []


def test_folds_leave_the_line_of_the_closing_brace():
    found = names.folds(document(f"module {{\n{FUNCTION}}}\n"))
    assert sorted((fold["startLine"], fold["endLine"]) for fold in found) == [(0, 3), (1, 2)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_columns_are_in_the_units_of_the_editor(encoding):
    text = 'func.func @f(%a: i32) attributes {é = "😀"} { x.y %a }'
    found = document(text, encoding)
    column = text.rindex("%a")
    codec = {"utf-8": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}[encoding]
    units = len(text[:column].encode(codec)) // {"utf-8": 1, "utf-16": 2, "utf-32": 4}[encoding]
    place = found.range_of(found.index.at(0, column))
    assert (place.start.character, place.end.character) == (units, units + 2)
    assert found.name_at(place.start) == found.index.at(0, column)


def test_lines_end_where_those_of_an_editor_do():
    assert plain_text("a\r\nb\rc\u2028d\x0c\n\ud800") == "a\nb\nc\u2028d\x0c\n\ufffd"
    found = document(FUNCTION.replace("\n", "\r\n"))
    (function,) = names.symbols(found)
    assert function["range"].end == types.TextPosition(2, 1)


PIECES = [
    *(
        "{",
        "}",
        "(",
        ")",
        "%",
        "@",
        "^bb",
        "\n",
        "\r\n",
        "😀",
        "\u2028",
        '"',
        "//",
        "// -----\n",
        "module {",
        "%a = ",
    ),
    *("\ud800", "\0", "{-#", "#-}", "func.func @f("),
]


def broken(text: str, random_: random.Random) -> str:
    """A text after a few edits of no sense."""
    for _ in range(random_.randrange(1, 6)):
        begin = random_.randrange(len(text) + 1)
        end = begin + random_.randrange(30)
        text = text[:begin] + random_.choice(["", random_.choice(PIECES), text[begin:end] * 2]) + text[end:]
    return text


def before(one: types.TextPosition, other: types.TextPosition) -> bool:
    return (one.line, one.character) <= (other.line, other.character)


def check_range(found: Document, place: types.TextRange) -> None:
    for position in (place.start, place.end):
        assert position == found.position(position.line, found.column(position))
    assert before(place.start, place.end)


def check_symbol(found: Document, symbol: types.Json) -> None:
    check_range(found, symbol["range"])
    assert before(symbol["range"].start, symbol["selectionRange"].start)
    assert before(symbol["selectionRange"].end, symbol["range"].end)
    for child in symbol.get("children", ()):
        check_symbol(found, child)


@pytest.mark.parametrize("seed", range(3))
def test_answers_about_broken_texts_are_inside_of_them(seed):
    random_ = random.Random(seed)
    texts = [path.read_text(encoding="utf-8") for path in PASSES]
    for _ in range(40):
        text = broken(random_.choice(texts), random_)
        found = document(text, random_.choice(["utf-8", "utf-16", "utf-32"]))
        for symbol in names.symbols(found):
            check_symbol(found, symbol)
        for lens in names.lenses(found, "command"):
            check_range(found, lens["range"])
        for use in random_.sample(found.index.uses, min(5, len(found.index.uses))):
            place = found.range_of(use)
            check_range(found, place)
            inside = found.position(use.line, use.column + 1)
            assert found.name_at(inside) == use
            for reference in names.references(found, inside, with_definition=True):
                check_range(found, reference["range"])
                begin, end = (
                    found.column(side) for side in (reference["range"].start, reference["range"].end)
                )
                assert found.index.lines[reference["range"].start.line][begin:end] == use.name
            names.completions(found, inside)
