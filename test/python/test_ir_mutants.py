# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hostile and odd text of IR: a program with the numbers of its IR on the CPU, or one diagnostic; never a fault."""

from __future__ import annotations

import pytest
from ir_mutants import SOURCES, mutants, source, sources
from ir_outcomes import FAULTS, REFUSED, isolated, outcome

import spyre_mlir
from spyre_mlir.dialects import context, parsed
from spyre_mlir.dialects.parser_limits import LIMIT
from spyre_mlir.errors import CompileError

#: Of each program at each level.
MUTANTS = 5


@pytest.mark.parametrize(
    "level", ["linalg", "device-ops", "tiled", "laid-out", "divided", "placed", "bundle"]
)
def test_a_mutant_is_right_or_refused(level):
    """IR that enters at a level gives a program with the meaning of the IR, or a diagnostic."""
    calls, descriptions = [], []
    for number, (name, _) in enumerate(each for each in sources() if each[1] == level):
        changed = mutants(source(name, level), number)
        for mutant in (next(changed) for _ in range(MUTANTS)):
            calls.append((mutant.text, level, SOURCES[name][2]))
            descriptions.append(f"{name}: {mutant.description}")
    outcomes = zip(descriptions, isolated(outcome, calls), strict=True)
    faults = [f"{description}\n{each}" for description, each in outcomes if each.kind in FAULTS]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(("name", "level"), sources())
def test_programs_without_a_change_are_right_at_every_level(name, level):
    """The sources of the mutants pass the checks of the level at which they enter."""
    result = outcome(source(name, level), level, SOURCES[name][2])
    assert result.kind == "right" and not result.text


DEEP = {
    "loops": lambda n: (
        "func.func @f(%i: index) {\n" + "scf.for %j = %i to %i step %i {\n" * n + "}\n" * n + "return }"
    ),
    "modules": lambda n: "module {" * n + "}" * n,
    "lists": lambda n: f"module attributes {{a.b = {'[' * n}{']' * n}}} {{}}",
    "types": lambda n: f"module attributes {{a.b = {'tuple<' * n}i1{'>' * n}}} {{}}",
    "brackets that nobody closes": lambda n: "(" * n,
    "affine expressions": lambda n: f"#m = affine_map<(d0) -> ({'(' * n}d0{')' * n})>\n",
    "minus signs": lambda n: f"#m = affine_map<(d0) -> ({'- ' * n}d0)>\n",
    "aliases": lambda n: "#a0 = [1]\n" + "".join(f"#a{i + 1} = [#a{i}]\n" for i in range(n)),
    "aliases that double": lambda n: (
        "#a0 = [1]\n" + "".join(f"#a{i + 1} = [#a{i}, #a{i}]\n" for i in range(n))
    ),
}


@pytest.mark.parametrize("name", DEEP)
def test_text_that_nests_too_deep_for_the_parser_is_one_diagnostic(name):
    with pytest.raises(CompileError, match=f"nests deeper than {LIMIT} levels") as caught:
        spyre_mlir.compile(DEEP[name](5000))
    assert caught.value.location.startswith("-:")


@pytest.mark.parametrize("name", ["modules", "lists", "types", "affine expressions", "aliases"])
def test_text_that_nests_less_is_for_the_parser(name):
    with_room = DEEP[name](LIMIT // 2)
    parsed(with_room if "module" in with_room else f"{with_room}module {{}}", context())


#: Text that ends the native parser, and text that it never ends on.
DEADLY = {
    "a permutation of values": """
func.func @main(%x: tensor<4x8xf16>, %y: tensor<8xf16>) -> tensor<8xf16> {
  %t = linalg.transpose ins(%x : tensor<4x8xf16>) outs(%y : tensor<8xf16>) permutation = [1, %t : tensor<4x8xf16>]
  return %t : tensor<8xf16>
}""",
    "iterator types that are types": """
#id = affine_map<(d0) -> (d0)>
func.func @main(%x: tensor<8xf16>) -> tensor<8xf16> {
  %y = linalg.generic {indexing_maps = [#id], iterator_types = [tensor<8xf16>]} outs(%x : tensor<8xf16>) {
  ^bb0(%o: f16):
    linalg.yield %o : f16
  } -> tensor<8xf16>
  return %y : tensor<8xf16>
}""",
}


@pytest.mark.parametrize("name", DEADLY)
def test_text_that_would_end_the_process_is_refused(name):
    (result,) = isolated(outcome, [(DEADLY[name], "linalg", 4)])
    assert result.kind == REFUSED and result.location
