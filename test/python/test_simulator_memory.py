# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The memory of the simulator: tags by stick and by byte, arguments at their first use, mapped images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bundles import add_bundle

from spyre_mlir.bundle.model import IndexBounds
from spyre_mlir.bundle.transfer import fills_all, laid_out
from spyre_mlir.simulator import SimulationError, run
from spyre_mlir.simulator.boxes import StridedWindow
from spyre_mlir.simulator.machine import Machine
from spyre_mlir.simulator.memory import (
    FIRST_BUFFER,
    HOST,
    NOBODY,
    POISON,
    AddressSpace,
    CoreViews,
    Memory,
    runs_of,
)
from spyre_mlir.target.formats import Numerics
from spyre_mlir.target.target import default_target

U16, U32 = np.dtype(np.uint16), np.dtype(np.uint32)
#: Two rows of two sticks of 64 elements, of which the sticks of a row are 256 bytes apart.
WHOLE = StridedWindow((1,), (2, 2, 64), (128, 256, 2), (2, 128), None)
#: The first element of one stick in each row.
SPARSE = StridedWindow((1,), (2, 1, 1), (128, 0, 2), (2, 1), None)
STICKS = StridedWindow((1,), (2, 1, 64), (128, 0, 2), (2, 64), None)


def views(memory: Memory, window: StridedWindow, *places: int) -> CoreViews:
    return CoreViews(memory, window, places, U16)


def test_cores_at_equal_distances_are_one_run():
    assert runs_of([0, 512, 1024, 4096, 4608]) == [(slice(0, 3), 0, 512), (slice(3, 5), 4096, 512)]
    assert runs_of([128]) == [(slice(0, 1), 128, 0)]


def test_bits_of_several_cores_are_read_and_written_at_their_places():
    memory = Memory(8192, 128)
    bits = np.arange(3 * 256, dtype=np.uint16).reshape(3, 2, 2, 64)
    for places in ((0, 1024, 2048), (0, 1024, 4096)):
        views(memory, WHOLE, *places).write(bits)
        np.testing.assert_array_equal(views(memory, WHOLE, *places).bits(), bits)
        np.testing.assert_array_equal(memory.data[places[2] : places[2] + 128].view(U16), np.arange(512, 576))


def test_the_tag_of_a_stick_is_that_of_its_bytes():
    memory, tag = Memory(4096, 128), FIRST_BUFFER + 3
    both = views(memory, WHOLE, 0, 1024)
    both.write_tag(tag)
    assert both.are_written_by([tag]) and both.are_written_by([HOST, tag]) and not both.are_written_by([HOST])
    assert not views(memory, WHOLE, 0, 512).are_written_by([tag])
    shadow = memory.shadow.view(U16)
    assert (
        (shadow[:256] == tag).all() and (shadow[512:768] == tag).all() and (shadow[256:512] == NOBODY).all()
    )
    assert not both.are_written_by([tag]) and (both.tags() == tag).all()


def test_a_sparse_stick_has_poison_behind_its_first_bytes():
    memory, tag = Memory(1024, 128), FIRST_BUFFER
    views(memory, STICKS, 0).write_tag(tag, 2)
    assert views(memory, SPARSE, 0).are_written_by([tag]) and not views(memory, STICKS, 0).are_written_by(
        [tag]
    )
    shadow = memory.shadow.view(U16)[:128].reshape(2, 64)
    assert (shadow[:, 0] == tag).all() and (shadow[:, 1:] == POISON).all()


def test_tags_of_elements_stand_beside_those_of_sticks():
    memory = Memory(1024, 128)
    whole = views(memory, WHOLE, 0)
    whole.write_tag(HOST)
    tags = np.full((2, 1, 64), HOST, np.uint16)
    tags[1, 0, 5] = POISON
    views(memory, STICKS, 0).write_tags(tags)
    assert not whole.are_written_by([HOST])
    assert np.count_nonzero(whole.tags() != HOST) == 1


def test_an_argument_is_laid_out_when_it_is_read_and_given_back_behind_its_last_use(monkeypatch):
    """Of ``z = x + |x|``, in two executes of which the first reads only x, only the result remains."""
    allocations: dict[str, list[str]] = {"before": [], "behind": []}
    block, results = Machine.block, Machine.results

    def before(machine: Machine, statements: tuple, index: int) -> int:
        allocations["before"] = allocations["before"] or sorted(machine.space.loaded)
        return block(machine, statements, index)

    def behind(machine: Machine) -> dict:
        allocations["behind"] = sorted(machine.space.loaded)
        return results(machine)

    monkeypatch.setattr(Machine, "block", before)
    monkeypatch.setattr(Machine, "results", behind)
    bundle = add_bundle()
    x = np.ones((128, 256), np.float16)
    run(bundle, {"x": x, "y": x})
    (result,) = (one.parameter for one in bundle.manifest.arguments if one.kind == "result")
    assert allocations == {"before": [], "behind": [result]}


def test_an_argument_that_nothing_reads_is_checked_nevertheless():
    bundle = add_bundle()
    uses = tuple((names[0], names[0], names[2]) for names in bundle.manifest.uses)
    design = bundle.designs["sdsc_0.json"]
    starts = (design.operands[0], design.operands[0], design.operands[2])
    designs = {"sdsc_0.json": replace(design, operands=starts)}
    bundle = replace(bundle, manifest=replace(bundle.manifest, uses=uses), designs=designs)
    bounds = IndexBounds(0, 0, "a lookup")
    arguments = [
        replace(one, index_bounds=bounds) if one.name == "y" else one for one in bundle.manifest.arguments
    ]
    bundle = replace(bundle, manifest=replace(bundle.manifest, arguments=tuple(arguments)))
    x = np.ones((128, 256), np.float16)
    with pytest.raises(SimulationError, match=r"tensor 'y'.*out of range"):
        run(bundle, {"x": x, "y": x})


def test_an_image_is_not_copied():
    bundle = add_bundle()
    images = laid_out(bundle.manifest.arguments, {"y": np.ones((128, 256), np.float16)})
    space = AddressSpace(bundle.target)
    machine = Machine(bundle, Numerics(), space)
    for parameter in machine.parameters:
        space.allocate(parameter, machine.parameter_bytes(parameter))
    machine.load({"x": np.ones((128, 256), np.float16)}, images)
    (parameter,) = (one.parameter for one in bundle.manifest.arguments if one.name == "y")
    memory = space.hbm(parameter)
    assert np.shares_memory(memory.data, images.by_name["y"]) and not memory.data.flags.writeable
    memory.own()
    memory.data[:] = 0
    assert images.by_name["y"].any()


@pytest.mark.parametrize(("sticks", "expected"), [(0, True), (1, False)])
def test_a_transfer_that_goes_to_all_bytes_needs_no_fill(sticks, expected):
    x = add_bundle().manifest.arguments[0]
    assert fills_all(replace(x, bytes=x.bytes + 128 * sticks)) is expected


@pytest.mark.parametrize("window", [WHOLE, SPARSE])
def test_tags_that_a_prepared_run_does_not_have_are_not_read(window):
    """A prepared run that takes another way, for other numbers, ends; an ordinary run follows."""
    memory = Memory(512, 128)
    memory.forget_writers()
    read = views(memory, window, 0)
    for access in (read.tags, lambda: read.are_written_by((HOST,)), lambda: read.write_tag(HOST)):
        with pytest.raises(SimulationError, match="writers of this memory"):
            access()


@pytest.mark.parametrize("offset", [-128, 128, 256, 1024])
def test_a_buffer_that_leaves_its_allocation(offset):
    space = AddressSpace(default_target())
    space.allocate("argument", 256)
    space.add_buffer("inside", "argument", 128, 128)
    with pytest.raises(SimulationError, match="outside its base 'argument' of 256 bytes"):
        space.add_buffer("outside", "argument", offset, 256)
