# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules on loops: errors in some iterations only, checked iteration by iteration or at once."""

from __future__ import annotations

from dataclasses import replace

import bundles
import pytest
from bundle_edits import buffer, loop, manifest, program
from looped import LOOPED, looped

from spyre_mlir.bundle import memory_order
from spyre_mlir.bundle.memory_order import WALKED_EXECUTES
from spyre_mlir.bundle.model import Apply, Buffer, Bundle, Execute, IndexConstant, Loop, Statement
from spyre_mlir.bundle.validate import validate

TILE = 128 * 128  # bytes from one tile of 128 rows to the next

WALKS = pytest.mark.parametrize("tiles", [8, WALKED_EXECUTES], ids=["walked", "at once"])


def findings(bundle: Bundle) -> list[tuple[str, str]]:
    return [(each.rule, each.message) for each in validate(bundle)]


def nested(second: tuple[int, int] = (2 * TILE, TILE)) -> Bundle:
    """The loop over 4 tiles as 2 x 2; ``second`` are the steps of the tiles of x that the second operation reads."""
    bundle = bundles.loop_bundle(4)
    *setup, tiles = bundle.statements
    assert isinstance(tiles, Loop)
    made: list[Statement] = []
    for each in tiles.body:
        if isinstance(each, Apply):
            made.append(replace(each, dims=("i", "j"), coefficients=(2 * TILE, TILE, 1)))
            again = each.result.replace("x_tile", "again")
            if again != each.result:
                made.append(replace(each, result=again, dims=("i", "j"), coefficients=(*second, 1)))
        elif isinstance(each, Execute) and each.filename == "sdsc_1.json":
            made.append(
                replace(each, operands=tuple(name.replace("x_tile", "again") for name in each.operands))
            )
        else:
            made.append(each)
    inner = Loop("j", "zero", "two", "one", tuple(made))
    outer = Loop("i", "zero", "two", "one", (inner,))
    return replace(bundle, statements=(*setup, IndexConstant("two", 2), outer))


def test_a_nest_of_loops_is_valid():
    assert validate(nested()) == []


def test_a_symbol_has_one_value_in_a_nest_of_equal_loops():
    """The tile 2 i + j and the tile i + 2 j are the same one in half of the iterations only."""
    text = "has another value than in execute 0; expected one value per symbol id."
    expected = [("symbol-values", f"The symbol {symbol} {text}") for symbol in (-1, -2)]
    assert findings(nested((TILE, 2 * TILE))) == expected


@pytest.mark.parametrize("name", LOOPED)
def test_compiled_loops_are_valid(name, monkeypatch):
    """Walked, and at once."""
    bundle = looped(name).program.bundle
    assert validate(bundle) == []
    monkeypatch.setattr(memory_order, "WALKED_EXECUTES", 0)
    assert validate(bundle) == []


@WALKS
def test_the_last_iteration_is_inside_of_the_buffer(tiles):
    """z is one stick too short: 4 x 128 bytes of each row are ``tiles`` x 128 rows apart."""
    bundle = bundles.loop_bundle(tiles)
    z = bundle.manifest.buffers[2]
    ((rule, message),) = findings(buffer(bundle, 2, bytes=z.bytes - 128))
    assert rule == "operand-in-buffer"
    assert f", {z.bytes}) of arg1; expected to be inside [0, {z.bytes - 128}) of the buffer z" in message


@pytest.mark.parametrize(("count", "trips"), [(0, 0), (-3, 0), (65_536, 65_536)])
def test_a_loop_has_1_to_65535_iterations(count, trips):
    bundle = program(bundles.loop_bundle(), "tiles", IndexConstant("tiles", count))
    text = f"It has {trips} iterations; expected 1 to 65535."
    assert findings(bundle) == [("loop-bounds", text)]


@WALKS
def test_what_an_iteration_leaves_for_the_next_is_not_overwritten(tiles):
    """abs of the first tile in a, before the loop; each iteration reads a and then writes b over it."""
    good = bundles.loop_bundle(tiles)
    *setup, body = good.statements
    *advance, absolute, total = body.body
    first = replace(absolute, operands=("x_0", "x_1", *absolute.operands[2:]), symbol_ids=(-7, -8, -3, -4))
    before = replace(
        good.designs["sdsc_0.json"],
        index=2,
        operands=(
            replace(good.designs["sdsc_0.json"].operands[0], start=(-7, -8)),
            good.designs["sdsc_0.json"].operands[1],
        ),
    )
    first = replace(first, filename="sdsc_2.json")
    bundle = replace(
        loop(good, body=(*advance, total, absolute)),
        designs={**good.designs, "sdsc_2.json": before},
    )
    bundle = replace(bundle, statements=(*setup, first, bundle.statements[-1]))
    uses = (("x", "a"), ("a", "x", "z"), ("x", "a"))
    assert validate(manifest(bundle, uses=uses)) == []
    other = manifest(
        bundle,
        buffers=(*good.manifest.buffers, Buffer("b", "pool", 0, 65536)),
        uses=(*uses[:2], ("x", "b")),
    )
    text = "Core 0 reads Tensor0 (buffer a) at byte 0 of pool, which the buffer b overwrote before."
    assert findings(other) == [("uninitialised-read", text)]


@WALKS
def test_the_first_iteration_does_not_read_what_the_second_writes(tiles):
    """Each iteration adds to the tile of z that comes after it, which is written by the next one only."""
    good = bundles.loop_bundle(tiles)
    x = good.designs["sdsc_1.json"].operands[1]
    ahead = [
        replace(each, result=each.result.replace("z", "w"), dims=("i",), offset=TILE)
        for each in good.statements[-1].body
        if isinstance(each, Apply) and each.result.startswith("z")
    ]
    total = replace(
        good.designs["sdsc_1.json"],
        operands=(
            good.designs["sdsc_1.json"].operands[0],
            replace(x, start=(-7, -8)),
            good.designs["sdsc_1.json"].operands[2],
        ),
    )
    *body, run = good.statements[-1].body
    run = replace(
        run,
        operands=(*run.operands[:2], "w_tile_0", "w_tile_1", *run.operands[4:]),
        symbol_ids=(-3, -4, -7, -8, -5, -6),
    )
    bundle = replace(
        program(loop(good, body=(*body, *ahead, run)), "tiles", IndexConstant("tiles", tiles - 1)),
        designs={**good.designs, "sdsc_1.json": total},
    )
    bundle = manifest(bundle, uses=(("x", "a"), ("a", "z", "z")))
    text = f"Core 0 reads Tensor1 (buffer z) at byte {TILE} of arg1, which nothing wrote before."
    assert ("uninitialised-read", text) in findings(bundle)
