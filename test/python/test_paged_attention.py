# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention to a cache in pages: rows are written at (page, slot), pages gathered by a table of the call."""

import copy
import random
import warnings

import pytest
import torch
from torch import nn

import spyre_mlir
from spyre_mlir.errors import CompileError

PAGES, SLOTS, GROUPS, COLUMNS = 24, 64, 2, 64


class PagedAttention(nn.Module):
    """A decoding step of some sequences: ``table`` has their pages, ``lengths`` the positions before this token."""

    def __init__(self, pages=PAGES, slots=SLOTS, groups=GROUPS, columns=COLUMNS, form="index", heads=1):
        super().__init__()
        self.form, self.heads = form, heads
        generator = torch.Generator().manual_seed(pages * slots)
        for name in ("keys", "values"):
            data = torch.randn(pages, slots, groups, columns, generator=generator) / 2
            self.register_buffer(name, data.half())

    def pages(self, cache, table):
        """The positions of each sequence in order: [batch, groups, positions, columns]."""
        if self.form == "index_select":
            found = cache.index_select(0, table.flatten())
        elif self.form == "embedding":
            found = nn.functional.embedding(table, cache.flatten(1))
        else:
            found = cache[table]
        return found.view(len(table), -1, *cache.shape[2:]).transpose(1, 2)

    def forward(self, q, key, value, table, lengths):
        slots = self.keys.shape[1]
        page = table.gather(1, (lengths // slots)[:, None])[:, 0]
        self.keys[page, lengths % slots] = key
        self.values[page, lengths % slots] = value
        keys, values = self.pages(self.keys, table), self.pages(self.values, table)
        mask = torch.arange(keys.shape[2]) <= lengths[:, None]
        return nn.functional.scaled_dot_product_attention(
            q, keys, values, attn_mask=mask[:, None, None], enable_gqa=True
        )


def call(model, batch, pages, chosen):
    """Return inputs of a step with tables of ``pages`` pages, none of which two sequences share."""
    count, slots, groups, columns = model.keys.shape
    generator = torch.Generator().manual_seed(chosen.randrange(1 << 30))
    table = torch.randperm(count, generator=generator)[: batch * pages].reshape(batch, pages)
    if model.form == "index" and chosen.random() < 0.3:
        table -= count * (torch.rand(table.shape, generator=generator) < 0.3)
    last = pages * slots - 1
    lengths = torch.tensor([chosen.choice([0, last, chosen.randrange(last + 1)]) for _ in range(batch)])
    rows = [torch.randn(batch, groups, columns, generator=generator).half() / 2 for _ in range(2)]
    q = torch.randn(batch, groups * model.heads, 1, columns, generator=generator).half()
    return [q, *rows, table, lengths]


def compiled(model, inputs, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no restickify of integers, no work of the host that counts
        warnings.filterwarnings("ignore", category=FutureWarning)
        return spyre_mlir.compile(model, tuple(inputs), state=True, **options)


@pytest.mark.parametrize("form", ["index", "index_select", "embedding"])
def test_pages_are_read_once(form):
    """Per sequence 4 of 24 pages, of which nothing is written but the row of each sequence."""
    model, chosen = PagedAttention(form=form), random.Random(0)
    reference = copy.deepcopy(model)
    program = compiled(model, call(model, 4, 4, chosen))
    for _ in range(3):
        inputs = call(model, 4, 4, chosen)
        got, expected = program(*inputs), reference(*inputs)
        torch.testing.assert_close(got, expected, atol=0.004, rtol=0.02)
        for name in ("keys", "values"):
            assert torch.equal(program.state[name].cpu(), reference.get_buffer(name))
    page_bytes = SLOTS * GROUPS * COLUMNS * 2
    row_bytes = 4 * GROUPS * COLUMNS * 2
    read, written = moved(program, {"keys", "values"})
    # A gather reads the stick of each position, too, which several cores may do.
    assert (
        2 * 16 * page_bytes + 2 * row_bytes <= read <= 2 * 16 * page_bytes + 2 * row_bytes + 2 * 32 * 16 * 128
    )
    assert written == 2 * row_bytes
    crossing = [argument for step in program.transfers() for argument in (*step.to_device, *step.to_host)]
    assert not {"keys", "values"} & {argument.name for argument in crossing}


def moved(program, names):
    """Bytes that are read by the executions which use some arguments, and bytes written to these."""
    read = written = 0
    for step in program.bundles:
        uses = step.bundle.manifest.uses
        for index, run in step.last_run.statistics.executes.items():
            read += run.read_bytes if names & {*uses[index]} else 0
            written += run.write_bytes if uses[index][-1] in names else 0
    return read, written


@pytest.mark.parametrize("wrong", [PAGES, -PAGES - 1, 1 << 40])
def test_a_table_that_points_outside(wrong):
    model, chosen = PagedAttention(), random.Random(1)
    program = compiled(model, call(model, 4, 4, chosen))
    before = {name: tensor.numpy() for name, tensor in program.state.items()}
    inputs = call(model, 4, 4, chosen)
    inputs[3][1, 2] = wrong
    with pytest.raises(CompileError, match=f"{wrong} is out of range: it is an index of aten.index"):
        program(*inputs)
    for name, tensor in program.state.items():
        assert (tensor.numpy() == before[name]).all()


@pytest.mark.parametrize("seed", range(200))
def test_random_paged_attention(seed):
    chosen = random.Random(seed)
    batch, pages = chosen.choice([1, 2, 3, 4]), chosen.choice([1, 2, 3])
    model = PagedAttention(
        batch * pages + chosen.choice([0, 1, 7]),
        chosen.choice([4, 16, 64]),
        chosen.choice([1, 2, 3]),
        chosen.choice([16, 64, 80]),
        chosen.choice(["index", "index", "index_select", "embedding"]),
        chosen.choice([1, 1, 4]),
    )
    reference = copy.deepcopy(model)
    program = spyre_mlir.compile(
        model, tuple(call(model, batch, pages, chosen)), state=True, sencores=chosen.choice([1, 4, 32])
    )
    for _ in range(2):
        inputs = call(model, batch, pages, chosen)
        got, expected = program(*inputs), reference(*inputs)
        torch.testing.assert_close(got, expected, atol=0.008, rtol=0.02)
        for name in ("keys", "values"):
            assert torch.equal(program.state[name].cpu(), reference.get_buffer(name))
