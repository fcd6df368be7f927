# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs at every level of IR, and seeded mutants of their text.

``source(name, level)`` is the text of a program at a level; ``mutants(text, seed)`` are changed texts without end.
A mutant changes one thing, sometimes two: a number, an attribute, an operand, an operation, a type, a layout, a map,
the bounds of a loop, what is yielded. Most do not parse or are refused; the rest are programs.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from spyre_mlir.dialects import context
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline

LEVELS = ("linalg", "device-ops", "tiled", "laid-out", "divided", "placed", "bundle")

_HOST = '{{sdsc.host = #sdsc.host<"{0}", "{1}", "f16">}}'
_ROWS = """
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>
"""

_POINTWISE = """
func.func @main(%x: tensor<96x128xf16>, %s: tensor<128xf16>) -> tensor<96x128xf16> {
  %e = tensor.empty() : tensor<96x128xf16>
  %y = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : tensor<96x128xf16>, tensor<128xf16>) outs(%e : tensor<96x128xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %t = math.tanh %a : f16
    %r = arith.mulf %t, %b : f16
    %u = arith.addf %r, %a : f16
    linalg.yield %u : f16
  } -> tensor<96x128xf16>
  return %y : tensor<96x128xf16>
}
"""

_SOFTMAX = """
func.func @main(%x: tensor<64x200xf16>) -> tensor<64x200xf16> {
  %zero = arith.constant 0.0 : f16
  %low = arith.constant -6.5504e+04 : f16
  %e = tensor.empty() : tensor<64x200xf16>
  %v = tensor.empty() : tensor<64xf16>
  %f = linalg.fill ins(%low : f16) outs(%v : tensor<64xf16>) -> tensor<64xf16>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<64x200xf16>) outs(%f : tensor<64xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = arith.maximumf %a, %o : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %m : tensor<64x200xf16>, tensor<64xf16>) outs(%e : tensor<64x200xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %r = arith.subf %a, %b : f16
    %u = math.exp %r : f16
    linalg.yield %u : f16
  } -> tensor<64x200xf16>
  %g = linalg.fill ins(%zero : f16) outs(%v : tensor<64xf16>) -> tensor<64xf16>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p : tensor<64x200xf16>) outs(%g : tensor<64xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = arith.addf %a, %o : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p, %s : tensor<64x200xf16>, tensor<64xf16>) outs(%e : tensor<64x200xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %r = arith.divf %a, %b : f16
    linalg.yield %r : f16
  } -> tensor<64x200xf16>
  return %y : tensor<64x200xf16>
}
"""

_MATMUL = """
func.func @main(%x: tensor<70x96xf16>, %w: tensor<96x130xf16> {spyre.kind = "parameter", spyre.name = "w"},
                %b: tensor<130xf16>) -> (tensor<70x130xf16>, tensor<130x70xf16>) {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<70x130xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<70x130xf16>) -> tensor<70x130xf16>
  %m = linalg.matmul ins(%x, %w : tensor<70x96xf16>, tensor<96x130xf16>) outs(%f : tensor<70x130xf16>)
      -> tensor<70x130xf16>
  %y = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m, %b : tensor<70x130xf16>, tensor<130xf16>) outs(%e : tensor<70x130xf16>) {
  ^bb0(%a: f16, %c: f16, %o: f16):
    %r = arith.addf %a, %c : f16
    linalg.yield %r : f16
  } -> tensor<70x130xf16>
  %g = tensor.empty() : tensor<130x70xf16>
  %t = linalg.transpose ins(%y : tensor<70x130xf16>) outs(%g : tensor<130x70xf16>) permutation = [1, 0]
  return %y, %t : tensor<70x130xf16>, tensor<130x70xf16>
}
"""

_MOVEMENT = """
func.func @main(%x: tensor<4x16x128xf16>, %y: tensor<64x64xf16>) -> (tensor<64x192xf16>, tensor<30x128xf16>) {
  %c = tensor.collapse_shape %x [[0, 1], [2]] : tensor<4x16x128xf16> into tensor<64x128xf16>
  %q = tensor.concat dim(1) %c, %y : (tensor<64x128xf16>, tensor<64x64xf16>) -> tensor<64x192xf16>
  %s = tensor.extract_slice %c[2, 0] [30, 128] [2, 1] : tensor<64x128xf16> to tensor<30x128xf16>
  %d = tensor.empty() : tensor<30x128xf16>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<30x128xf16>) outs(%d : tensor<30x128xf16>) {
  ^bb0(%a: f16, %o: f16):
    %u = math.exp %a : f16
    linalg.yield %u : f16
  } -> tensor<30x128xf16>
  return %q, %r : tensor<64x192xf16>, tensor<30x128xf16>
}
"""

#: A loop over tiles, at the level of device operations: the host's side is on its arguments.
_LOOP = (
    """
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<512x256xf16> XHOST, %y: tensor<512x256xf16> YHOST) -> (tensor<512x256xf16> RHOST) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c512 = arith.constant 512 : index
  %e = tensor.empty() : tensor<512x256xf16>
  %d = tensor.empty() : tensor<128x256xf16>
  %r = scf.for %i = %c0 to %c512 step %c128 iter_args(%acc = %e) -> (tensor<512x256xf16>) {
    %s = tensor.extract_slice %x[%i, 0] [128, 256] [1, 1] : tensor<512x256xf16> to tensor<128x256xf16>
    %u = tensor.extract_slice %y[%i, 0] [128, 256] [1, 1] : tensor<512x256xf16> to tensor<128x256xf16>
    %a = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s, %u : tensor<128x256xf16>, tensor<128x256xf16>) outs(%d : tensor<128x256xf16>)
        attrs = {sdsc.op = #sdsc.op<"add", {}>} {
    ^bb0(%p: f16, %q : f16, %o: f16):
      %1 = arith.addf %p, %q : f16
      linalg.yield %1 : f16
    } -> tensor<128x256xf16>
    %b = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%a, %u : tensor<128x256xf16>, tensor<128x256xf16>) outs(%d : tensor<128x256xf16>)
        attrs = {sdsc.op = #sdsc.op<"mul", {}>} {
    ^bb0(%p: f16, %q : f16, %o: f16):
      %1 = arith.mulf %p, %q : f16
      linalg.yield %1 : f16
    } -> tensor<128x256xf16>
    %n = tensor.insert_slice %b into %acc[%i, 0] [128, 256] [1, 1] : tensor<128x256xf16> into tensor<512x256xf16>
    scf.yield %n : tensor<512x256xf16>
  }
  return %r : tensor<512x256xf16>
}
""".replace("XHOST", _HOST.format("x", "input"))
    .replace("YHOST", _HOST.format("y", "input"))
    .replace("RHOST", _HOST.format("result0", "result"))
    .replace("{{", "{")
    .replace("}}", "}")
)

#: name -> (level of the text, the text, the number of cores).
SOURCES = {
    "pointwise": ("linalg", _ROWS + _POINTWISE, 4),
    "softmax": ("linalg", _ROWS + _SOFTMAX, 8),
    "matmul": ("linalg", _ROWS + _MATMUL, 6),
    "movement": ("linalg", _ROWS + _MOVEMENT, 3),
    "loop": ("device-ops", _LOOP, 4),
}


@functools.cache
def source(name: str, level: str) -> str:
    """The text of a program of ``SOURCES`` at a level from its own on."""
    begin, text, sencores = SOURCES[name]
    if level == begin:
        return text
    from_level = "" if begin == "linalg" else begin
    module = ir.Module.parse(text, context())
    run_pipeline(module, SpyrePipeline(sencores=sencores, from_level=from_level).pipeline(level))
    return str(module)


def sources() -> list[tuple[str, str]]:
    """All programs at all levels: (name, level)."""
    return [
        (name, level) for name, (begin, _, _) in SOURCES.items() for level in LEVELS[LEVELS.index(begin) :]
    ]


@dataclass(frozen=True)
class Mutant:
    """A changed text and a description of the change."""

    description: str
    text: str


Mutation = Callable[[str, random.Random], Mutant | None]


def mutants(text: str, seed: int) -> Iterator[Mutant]:
    """Yield mutants of a text endlessly; the seed determines them."""
    rng = random.Random(seed)
    while True:
        mutant = _mutant(text, rng)
        if mutant is not None and rng.random() < 0.15:
            again = _mutant(mutant.text, rng)
            mutant = again and Mutant(f"{mutant.description}; {again.description}", again.text)
        if mutant is not None and mutant.text != text:
            yield mutant


def _mutant(text: str, rng: random.Random) -> Mutant | None:
    return rng.choices(list(MUTATIONS), list(MUTATIONS.values()))[0](text, rng)


# -- numbers, words, types ------------------------------------------------------------------------------

_NUMBER = re.compile(r"(?<![\w%#.\"])-?\d+(?![\w.])|(?<=d)\d+(?=[ ,)])|(?<=[<x])\d+(?=x)")
_NUMBERS = (0, 1, -1, 2, 3, 7, 63, 64, 65, 127, 128, 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63,
            1 << 70, -(1 << 31), -(1 << 63))  # fmt: skip
_STRINGS = ("", "pool", "result0", "result1", "input", "result", "constant", "parameter", "f16", "f32", "i32", "add",
            "exp", "sum", "max", "batchmatmul", "identity", "reduction", "parallel", "zzz", "value")  # fmt: skip
_ELEMENTS = ("f16", "f32", "bf16", "f64", "i1", "i8", "i32", "i64", "index", "f8E4M3FN", "complex<f32>")


def _change_number(text: str, rng: random.Random) -> Mutant | None:
    match = _any(_NUMBER, text, rng)
    if match is None:
        return None
    old = int(match[0])
    near = (old + 1, old - 1, old * 2, old // 2, -old, old + 64, old + 128, old * 64)
    return _replaced(text, match, str(rng.choice(near if rng.random() < 0.5 else _NUMBERS)))


def _change_string(text: str, rng: random.Random) -> Mutant | None:
    match = _any(re.compile(r'"[^"\n]*"'), text, rng)
    words = [f'"{word}"' for word in _STRINGS] + re.findall(r'"[^"\n]*"', text)
    return match and _replaced(text, match, rng.choice(words))


def _change_type(text: str, rng: random.Random) -> Mutant | None:
    """Change one tensor type, at one place or everywhere: a size, the rank, the element type, or its layout."""
    match = _any(re.compile(r"tensor<([\dx]*?)x?([a-z][\w<>]*?)(, #[^>]*>*)?>(?=[ ,)\n{:])"), text, rng)
    if match is None:
        return None
    dims = match[1].split("x") if match[1] else []
    element, encoding = match[2], match[3] or ""
    action = rng.choice(("size", "size", "rank", "element", "encoding"))
    if action == "size" and dims:
        at = rng.randrange(len(dims))
        dims[at] = rng.choice(("?", "0", "1", "64", "2147483648", str(1 << 40), str(int(dims[at] or 0) + 1)))
    elif action == "rank":
        dims = dims[1:] if dims and rng.random() < 0.5 else [*dims, "1"]
    elif action == "element":
        element = rng.choice(_ELEMENTS)
    else:
        encoding = "" if encoding else rng.choice((", #id", ", #map", ', "x"', ", #stick.layout<#map>"))
    new = f"tensor<{'x'.join([*dims, element])}{encoding}>"
    if rng.random() < 0.6:
        return Mutant(f"{match[0]} -> {new} everywhere", text.replace(match[0], new))
    return _replaced(text, match, new)


# -- attributes -----------------------------------------------------------------------------------------


def _entries(text: str) -> list[tuple[int, int]]:
    """Return the positions of the entries of all lists in ``[]``, ``{}``, ``<>`` and ``()``, nested lists too."""
    spans, stack = [], []
    previous = ""
    for at, character in enumerate(text):
        if character in "[{<(":
            stack.append((character, at + 1))
        elif stack and (character == "," or (character in "]})>" and previous != "-")):
            opening, start = stack.pop()
            spans.append((start, at))
            if character == ",":
                stack.append((opening, at + 1))
        previous = character
    return [(start, end) for start, end in spans if start < end and end - start < 2000]


def _delete_entry(text: str, rng: random.Random) -> Mutant | None:
    spans = _entries(text)
    if not spans:
        return None
    start, end = rng.choice(spans)
    old = text[start:end]
    if text[end] == ",":
        end += 1
    elif text[start - 1] == ",":
        start -= 1
    return Mutant(f"without '{_short(old)}'", text[:start] + text[end:])


def _duplicate_entry(text: str, rng: random.Random) -> Mutant | None:
    spans = _entries(text)
    if not spans:
        return None
    start, end = rng.choice(spans)
    return Mutant(f"twice '{_short(text[start:end])}'", f"{text[:end]}, {text[start:end]}{text[end:]}")


def _swap_entries(text: str, rng: random.Random) -> Mutant | None:
    """Two entries, of one list or of any, change places."""
    spans = _entries(text)
    if len(spans) < 2:
        return None
    first = rng.choice(spans)
    near = [span for span in spans if abs(span[0] - first[0]) < 60] if rng.random() < 0.7 else spans
    second = rng.choice(near)
    (a, b), (c, d) = sorted((first, second))
    if c < b:
        return None
    old = f"'{_short(text[a:b])}' and '{_short(text[c:d])}'"
    return Mutant(f"{old} swapped", text[:a] + text[c:d] + text[b:c] + text[a:b] + text[d:])


def _swap_attributes(text: str, rng: random.Random) -> Mutant | None:
    """Replace the value of an attribute by the value of another of the same name."""
    match = _any(re.compile(r"(\b(?:sdsc|stick)\.\w+|operandSegmentSizes|function_type) = "), text, rng)
    if match is None:
        return None
    values = [(m.end(), _value_end(text, m.end())) for m in re.finditer(re.escape(match[0]), text)]
    (a, b), (c, d) = rng.choice(values), rng.choice(values)
    new = text[:a] + text[c:d] + text[b:]
    return Mutant(f"{match[1]}: '{_short(text[a:b])}' -> '{_short(text[c:d])}'", new)


def _delete_attribute(text: str, rng: random.Random) -> Mutant | None:
    match = _any(re.compile(r"(?:, )?\b((?:sdsc|stick|spyre|sdscbundle)\.\w+) = "), text, rng)
    if match is None:
        return None
    end = _value_end(text, match.end())
    start = match.start()
    if not match[0].startswith(", ") and text[end : end + 2] == ", ":
        end += 2
    return Mutant(f"without {match[1]}", text[:start] + text[end:])


def _value_end(text: str, start: int) -> int:
    depth, at = 0, start
    while at < len(text):
        if text[at] in "[{<(":
            depth += 1
        elif text[at] in "]})>" and text[at - 1] != "-":
            depth -= 1
        if depth < 0 or (depth == 0 and text[at] in ",\n"):
            return at
        at += 1
    return at


# -- operations -----------------------------------------------------------------------------------------

_USE = re.compile(r"%\w+(?:#\d+)?")


def _change_operand(text: str, rng: random.Random) -> Mutant | None:
    uses = [match for match in _USE.finditer(text)]
    if not uses:
        return None
    near = rng.choice(uses)
    names = [match[0] for match in uses if abs(match.start() - near.start()) < 1500]
    return _replaced(text, near, rng.choice(names))


def _change_yield(text: str, rng: random.Random) -> Mutant | None:
    """Change the operands of a yield or of a return."""
    match = _any(re.compile(r"(?:scf\.yield|return) ([^\n:]*)"), text, rng)
    if match is None or not match[1].strip():
        return None
    before = [use[0] for use in _USE.finditer(text[: match.start()])]
    operands = match[1].strip().split(", ")
    operands[rng.randrange(len(operands))] = rng.choice(before[-40:])
    new = match[0].replace(match[1].strip(), ", ".join(operands))
    return _replaced(text, match, new)


def _operations(text: str) -> list[tuple[int, int]]:
    """Return the positions of operations, by lines: to the end of their regions."""
    lines = text.split("\n")
    spans, offset = [], 0
    for number, line in enumerate(lines):
        if re.match(r"\s+(%|tensor|linalg|scf|sdsc|stick|arith|math|affine|\")", line):
            end, depth, at = offset, 0, number
            while at < len(lines):
                depth += lines[at].count("{") - lines[at].count("}")
                end += len(lines[at]) + 1
                at += 1
                if depth <= 0 and not (at < len(lines) and re.match(r"\s+(ins|outs|attrs|->)", lines[at])):
                    break
            spans.append((offset, min(end, len(text))))
        offset += len(line) + 1
    return spans


def _delete_operation(text: str, rng: random.Random) -> Mutant | None:
    spans = _operations(text)
    if not spans:
        return None
    start, end = rng.choice(spans)
    return Mutant(f"without the operation '{_short(text[start:end])}'", text[:start] + text[end:])


def _bypass_operation(text: str, rng: random.Random) -> Mutant | None:
    """The users of an operation take another value of the same type."""
    match = _any(re.compile(r"^\s+(%\w+) = ", re.MULTILINE), text, rng)
    if match is None:
        return None
    names = sorted({use[0] for use in _USE.finditer(text[: match.start()])})
    if not names:
        return None
    other = rng.choice(names)
    rest = re.sub(rf"{re.escape(match[1])}\b(?!#)", other, text[match.end() :])
    return Mutant(f"the users of {match[1]} take {other}", text[: match.end()] + rest)


def _duplicate_operation(text: str, rng: random.Random) -> Mutant | None:
    """Duplicate an operation after itself or elsewhere; its result gets another name, and uses may read it."""
    spans = _operations(text)
    if not spans:
        return None
    start, end = rng.choice(spans)
    copy = re.sub(r"^(\s+)%(\w+)( =|:\d+ =)", r"\1%copy_\2\3", text[start:end])
    at = end if rng.random() < 0.6 else rng.choice(spans)[0]
    made = text[:at] + copy + text[at:]
    return Mutant(f"twice the operation '{_short(text[start:end])}'", made)


def _move_operation(text: str, rng: random.Random) -> Mutant | None:
    spans = _operations(text)
    if len(spans) < 2:
        return None
    (a, b), (c, d) = sorted(rng.sample(spans, 2))
    if c < b:
        return None
    moved = text[:a] + text[b:d] + text[a:b] + text[d:] if rng.random() < 0.5 else (
        text[:a] + text[c:d] + text[a:c] + text[d:])  # fmt: skip
    return Mutant(f"'{_short(text[a:b])}' and '{_short(text[c:d])}' in another order", moved)


def _change_name(text: str, rng: random.Random) -> Mutant | None:
    """An operation of another name."""
    names = re.compile(r"\b(?:arith|math|tensor|linalg|scf|affine|sdsc|stick|sdscbundle)\.[a-z_0-9]+")
    match = _any(names, text, rng)
    others = [
        *re.findall(names, text),
        "arith.addf",
        "arith.mulf",
        "math.exp",
        "arith.subf",
        "arith.maximumf",
    ]
    return match and _replaced(text, match, rng.choice(others))


# -- maps -----------------------------------------------------------------------------------------------


def _change_map(text: str, rng: random.Random) -> Mutant | None:
    """A result of an affine map: another, none, once more, in another order, divided otherwise."""
    match = _any(re.compile(r"affine_map<\(([^)]*)\)(?:\[[^\]]*\])? -> \(([^>]*)\)>"), text, rng)
    if match is None:
        return None
    dims = re.findall(r"d\d+", match[1]) or ["0"]
    results = match[2].split(", ") if match[2] else []
    at = rng.randrange(len(results)) if results else 0
    action = rng.choice(("other", "drop", "twice", "shuffle", "divide", "multiply"))
    dim = rng.choice([*dims, "0", "1", "d9"])
    number = rng.choice((0, 1, 2, 3, 5, 32, 63, 64, 128, 1 << 31, 1 << 62))
    if action == "drop" and results:
        del results[at]
    elif action == "twice" and results:
        results.insert(at, results[at])
    elif action == "shuffle":
        rng.shuffle(results)
    elif action == "divide" and results:
        results[at] = f"{dim} {rng.choice(('floordiv', 'mod', 'ceildiv'))} {number}"
    elif action == "multiply" and results:
        results[at] = f"{dim} * {number} + {rng.choice((0, 1, -1, 64))}"
    elif results:
        results[at] = dim
    start = match.start(2)
    new = text[:start] + ", ".join(results) + text[match.end(2) :]
    return Mutant(f"the map '{_short(match[0])}' with the results ({', '.join(results)})", new)


# -- text -----------------------------------------------------------------------------------------------


def _change_characters(text: str, rng: random.Random) -> Mutant | None:
    """Some characters are lost, or stand twice."""
    start = rng.randrange(len(text))
    end = min(len(text), start + rng.choice((1, 1, 2, 5, 40)))
    if rng.random() < 0.5:
        return Mutant(f"without '{_short(text[start:end])}' at {start}", text[:start] + text[end:])
    return Mutant(f"twice '{_short(text[start:end])}' at {start}", text[:end] + text[start:])


#: How to change a text, and how often it is done.
MUTATIONS: dict[Mutation, int] = {
    _change_number: 8, _change_string: 3, _change_type: 4, _delete_entry: 3, _duplicate_entry: 2, _swap_entries: 4,
    _swap_attributes: 3, _delete_attribute: 3, _change_operand: 4, _change_yield: 2, _delete_operation: 2,
    _bypass_operation: 3, _duplicate_operation: 2, _move_operation: 2, _change_name: 2, _change_map: 5,
    _change_characters: 1,
}  # fmt: skip


def _any(pattern: re.Pattern[str], text: str, rng: random.Random) -> re.Match[str] | None:
    matches = list(pattern.finditer(text))
    return rng.choice(matches) if matches else None


def _replaced(text: str, match: re.Match[str], new: str) -> Mutant:
    line = text.count("\n", 0, match.start()) + 1
    old, start, end = match[0], match.start(), match.end()
    return Mutant(f"line {line}: '{_short(old)}' -> '{_short(new)}'", text[:start] + new + text[end:])


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}..."
