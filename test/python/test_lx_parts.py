# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of buffers in LX, from PyTorch to numbers: each core finds, or leaves, its part where it has the buffer."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import torch
from part_programs import Parts
from suite_checks import check_traffic
from torch import Tensor, nn

import spyre_mlir
from spyre_mlir.bundle.model import Bundle, Execute
from spyre_mlir.bundle.validate import validate

SEEDS = range(24)


@functools.cache
def ran(seed: int, cores: int) -> tuple[spyre_mlir.Program, bool]:
    """A program after its run, and whether the numbers are right."""
    model = Parts(seed).eval()
    inputs = model.inputs()
    program = spyre_mlir.compile(model, inputs, sencores=cores, verify_each=True)
    results, exact = program(*inputs), model(*(each.double() for each in inputs))
    pairs = zip(_all(results), _all(exact), strict=True)
    return program, all(torch.equal(result.double(), wanted) for result, wanted in pairs)


def _all(values: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return values if isinstance(values, tuple) else (values,)


def executes(bundle: Bundle) -> list[Execute]:
    return [each for each in bundle.statements if isinstance(each, Execute)]


def parts_in_lx(program: spyre_mlir.Program) -> int:
    """Return the number of operands in LX that begin inside of their buffer, or have gaps."""
    bundle, found = program.bundle, 0
    buffers = {buffer.name: buffer for buffer in bundle.manifest.buffers}
    for statement, names in zip(executes(bundle), bundle.manifest.uses, strict=True):
        for operand, name in zip(bundle.designs[statement.filename].operands, names, strict=True):
            inside = operand.memory == "lx" and operand.start[0] != buffers[name].offset
            found += inside or bool(operand.memory == "lx" and operand.gap)
    return found


class Halves(nn.Module):
    """The halves of rows are exchanged, one of them negated, as for rotary embedding."""

    def forward(self, x: Tensor) -> Tensor:
        made = torch.relu(x)
        first, second = made.chunk(2, -1)
        return torch.cat((-second, first), -1) * made


@pytest.mark.parametrize("cores", (4, 32))
@pytest.mark.parametrize("seed", SEEDS)
def test_random_parts_are_exact(seed, cores):
    """Numbers, all rules of bundles, and the traffic that was planned."""
    program, is_right = ran(seed, cores)
    assert is_right
    assert not (findings := validate(program.bundle)), "\n".join(map(str, findings))
    check_traffic(program)


def shifted(program: spyre_mlir.Program, bytes_: int) -> Bundle:
    """Return the bundle with the first subview that is written in LX ``bytes_`` bytes later."""
    bundle = program.bundle
    buffers = {buffer.name: buffer for buffer in bundle.manifest.buffers}
    for statement, names in zip(executes(bundle), bundle.manifest.uses, strict=True):
        design = bundle.designs[statement.filename]
        *inputs, output = design.operands
        if output.memory == "lx" and output.start[0] != buffers[names[-1]].offset:
            moved = replace(output, start=tuple(start + bytes_ for start in output.start))
            changed = replace(design, operands=(*inputs, moved))
            return replace(bundle, designs={**bundle.designs, statement.filename: changed})
    raise ValueError("no part is written in LX")


def test_a_part_that_is_a_stick_off_is_found():
    """The shifted subview exceeds its buffer, or leaves an unwritten stick that another operation reads."""
    model = Halves().eval()
    x = torch.randn(64, 256).half()
    program = spyre_mlir.compile(model, (x,), sencores=4)
    assert parts_in_lx(program) and not validate(program.bundle)
    later, earlier = validate(shifted(program, 128)), validate(shifted(program, -128))
    assert {each.rule for each in later} == {"operand-in-buffer"}
    assert {each.rule for each in earlier} == {"uninitialised-read"}


def test_many_programs_have_parts_in_lx():
    """The comparison is not empty, on any number of cores."""
    for cores in (4, 32):
        assert sum(parts_in_lx(ran(seed, cores)[0]) > 0 for seed in SEEDS) > len(SEEDS) / 3
