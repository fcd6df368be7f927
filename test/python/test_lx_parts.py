"""Parts of buffers in LX, from PyTorch to numbers: each core finds, or leaves, its part where it has the buffer."""

from __future__ import annotations

import functools

import pytest
import torch
from part_programs import Parts
from suite import check_traffic

import spyre_mlir
from spyre_mlir.bundle.model import Execute
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


def _all(values: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return values if isinstance(values, tuple) else (values,)


def parts_in_lx(program: spyre_mlir.Program) -> int:
    """How many operands in LX begin inside of their buffer, or have gaps."""
    bundle, found = program.bundle, 0
    buffers = {buffer.name: buffer for buffer in bundle.manifest.buffers}
    statements = [each for each in bundle.statements if isinstance(each, Execute)]
    for statement, names in zip(statements, bundle.manifest.uses, strict=True):
        for operand, name in zip(bundle.designs[statement.filename].operands, names, strict=True):
            inside = operand.memory == "lx" and operand.start[0] != buffers[name].offset
            found += inside or bool(operand.memory == "lx" and operand.gap)
    return found


@pytest.mark.parametrize("cores", (4, 32))
@pytest.mark.parametrize("seed", SEEDS)
def test_random_parts_are_exact(seed, cores):
    """Numbers, all rules of bundles, and the traffic that was planned."""
    program, is_right = ran(seed, cores)
    assert is_right
    assert not (findings := validate(program.bundle)), "\n".join(map(str, findings))
    check_traffic(program)


def test_many_programs_have_parts_in_lx():
    """So the comparison above is one, on any number of cores."""
    for cores in (4, 32):
        assert sum(parts_in_lx(ran(seed, cores)[0]) > 0 for seed in SEEDS) > len(SEEDS) / 3
