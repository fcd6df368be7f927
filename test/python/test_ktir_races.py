# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races of programs in KTIR, and of files of other writers: none, and a race where a barrier is missing."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
from foreign_data import DESIGN_FOLDERS, KTIR_FILES, needs_designs, needs_ktir
from programs import PROGRAMS

import spyre_mlir
from spyre_mlir.bundle import read_bundle
from spyre_mlir.bundle.validate import races
from spyre_mlir.driver.ktir_program import KtirProgram
from spyre_mlir.errors import CompileError
from spyre_mlir.ktir.races import ktir_races
from spyre_mlir.ktir.tensor_builder import CoreValues
from spyre_mlir.tools import spyre_validate


@functools.cache
def compiled(name: str, cores: int) -> spyre_mlir.Program:
    model, inputs = PROGRAMS[name]()
    return spyre_mlir.compile(model, inputs, sencores=cores)


def found(name: str, cores: int, addresses: bool) -> list[str]:
    program, manifest = KtirProgram.of(compiled(name, cores), addresses).ktir
    return [str(each) for each in ktir_races(program, name, manifest)]


@pytest.mark.parametrize("addresses", [False, True])
@pytest.mark.parametrize("cores", [1, 7, 32])
@pytest.mark.parametrize("name", ["llama_block_small", "softmax_dim_0_512x1024", "sdpa_causal", "embedding"])
def test_compiled_programs_have_no_race(name: str, cores: int, addresses: bool) -> None:
    assert found(name, cores, addresses) == []


@pytest.mark.parametrize("addresses", [False, True])
def test_without_barriers_there_are_races(monkeypatch: pytest.MonkeyPatch, addresses: bool) -> None:
    """A core reads the LX of another core before it is written, with the lines of both operations."""
    monkeypatch.setattr(CoreValues, "synchronize", lambda _: None)
    (first, *_) = found("sdpa_causal", 4, addresses)
    form = r"sdpa_causal:\d+:\d+: A race: core \d \w+ byte \d+ of the LX of core \d; core \d \w+ it at sdpa_causal:\d+:"
    assert re.match(form, first) and first.endswith("in no order with the access. [race]")


@needs_ktir
def test_files_of_other_writers_have_no_race(capsys: pytest.CaptureFixture[str]) -> None:
    for path in KTIR_FILES:
        assert spyre_validate.main([str(path), "--races"]) == 0
        assert capsys.readouterr().out == f"{path}: no races\n"


@needs_designs
def test_designs_of_torch_spyre_have_no_race() -> None:
    assert [races(read_bundle(folder)) for folder in DESIGN_FOLDERS] == [[]] * len(DESIGN_FOLDERS)


def text(first: str, rest: str) -> str:
    """Return a program of four cores that load eight elements from %first on; ``rest`` follows."""
    sizes = "sizes: [64], strides: [1]"
    view = f"{sizes} {{ coordinate_set = {box(64)}, memory_space = #ktdp.memory_space<global> }} : memref<64xf16>"
    return f"""
func.func @main(%x: index, %y: index) attributes {{grid = [4]}} {{
  %core = ktdp.get_compute_tile_id : index
  %c2 = arith.constant 2 : index
  {first}
  %from = ktdp.construct_memory_view %x, {view}
  %to = ktdp.construct_memory_view %y, {view}
  %ft = {tile("%from", "%first")}
  %v = ktdp.load %ft : !ktdp.access_tile<8xindex> -> tensor<8xf16>
  {rest}
  return
}}
"""


def box(size: int) -> str:
    return f"affine_set<(d0) : (d0 >= 0, -d0 + {size - 1} >= 0)>"


def tile(view: str, first: str) -> str:
    attributes = f"access_tile_set = {box(8)}, access_tile_order = affine_map<(d0) -> (d0)>"
    types = "memref<64xf16> -> !ktdp.access_tile<8xindex>"
    return f"ktdp.construct_access_tile {view}[{first}] {{ {attributes} }} : {types}"


def store(first: str) -> str:
    """Return a store of the loaded elements from an index on."""
    return f"%tt = {tile('%to', first)}\n  ktdp.store %v, %tt : tensor<8xf16>, !ktdp.access_tile<8xindex>\n"


EIGHTHS = "%c8 = arith.constant 8 : index\n  %first = arith.muli %core, %c8 : index"
OVERLAPPING = "%first = arith.muli %core, %c2 : index"


def test_two_cores_write_one_element() -> None:
    """Slices of eight elements are disjoint at distances of eight, but not of two; a table of offsets is followed."""
    assert ktir_races(text(EIGHTHS, store("%first"))) == []
    (race,) = ktir_races(text(OVERLAPPING, store("%first")), "two.mlir")
    message = "core 1 writes byte 4 of the memory of argument 1; core 0 writes it at two.mlir:"
    assert message in race.message and race.where.startswith("two.mlir:")
    table = (
        "%table = arith.constant dense<[0, 8, 16, 16]> : tensor<4xi64>\n"
        "  %entry = tensor.extract %table[%core] : tensor<4xi64>\n  %first = arith.index_cast %entry : i64 to index"
    )
    (race,) = ktir_races(text(table, store("%first")))
    assert "core 3 writes byte 32 of the memory of argument 1; core 2 writes" in race.message


def test_branches_and_loops_are_followed_on_each_core() -> None:
    """One core writes what four would write; iterations write where the loop variable points."""
    one = "%is = arith.cmpi eq, %core, %c2 : index\n  scf.if %is {\n" + store("%c2") + "\n}"
    assert ktir_races(text(EIGHTHS, one)) == []
    assert len(ktir_races(text(EIGHTHS, store("%c2")))) == 1
    head, body = "%c0 = arith.constant 0 : index\n  scf.for %i = %c0 to", "step %c8 {\n" + store("%i") + "\n}"
    assert len(ktir_races(text(EIGHTHS, f"{head} %first {body}"))) == 1
    assert ktir_races(text(EIGHTHS, f"{head} %c0 {body}")) == []


def test_data_is_any_position_and_no_count_of_iterations() -> None:
    loaded = "%e = tensor.extract %v[%c2] : tensor<8xf16>\n  %i = arith.fptosi %e : f16 to i64\n"
    index = loaded + "  %at = arith.index_cast %i : i64 to index\n"
    assert len(ktir_races(text(EIGHTHS, index + store("%at")))) == 1
    with pytest.raises(CompileError, match="The iterations of a loop are data"):
        loop = index + "scf.for %k = %c2 to %at step %c2 {\n" + store("%k") + "\n}"
        ktir_races(text(EIGHTHS, loop))


def test_a_text_without_a_grid_is_an_error() -> None:
    with pytest.raises(CompileError, match="no function with a grid of cores"):
        ktir_races("module {\n}\n")


def test_the_tool_judges_folders_in_ktir(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = compiled("sdpa_causal", 7)
    KtirProgram.of(program).save(tmp_path / "saved")
    assert spyre_validate.main([str(tmp_path / "saved"), "--races"]) == 0
    assert capsys.readouterr().out.endswith("saved: no races\n")
    (tmp_path / "two.mlir").write_text(text(OVERLAPPING, store("%first")))
    assert spyre_validate.main([str(tmp_path / "two.mlir"), "--races"]) == 1
    assert "two.mlir:" in (shown := capsys.readouterr().out) and "A race: core 1 writes" in shown
