# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models that write rows into a cache at positions that a call gives, made from the number of a case."""

import random

import torch
from torch import nn


class IndexCopy(nn.Module):
    """``index_copy_`` along a dim."""

    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, cache, rows, index):
        cache.index_copy_(self.dim, index, rows)
        return cache * 2


class IndexPut(nn.Module):
    """Rows at positions in some dims, all of which have an index."""

    def __init__(self, dims):
        super().__init__()
        self.dims = dims

    def forward(self, cache, rows, *indices):
        places = [slice(None)] * cache.ndim
        for dim, index in zip(self.dims, indices, strict=True):
            places[dim] = index
        cache[tuple(places)] = rows
        return torch.relu(cache)


class TwoCaches(nn.Module):
    """Keys and values of a layer, the second through another call with the same positions."""

    def forward(self, cache, rows, index):
        keys, values = cache
        keys.index_copy_(1, index, rows)
        values[:, index] = rows * 2
        return keys + values


class Stacked(nn.Module):
    """Keys and values in one tensor."""

    def forward(self, cache, rows, index):
        cache[0].index_copy_(1, index, rows)
        cache[1, :, index] = rows * 2
        return cache * 2


class Batches(nn.Module):
    """A row of each batch at a separate position."""

    def forward(self, cache, rows, index):
        cache[torch.arange(cache.shape[0]), :, index] = rows
        return cache.sum(-1)


def numbers(chosen, shape, dtype):
    """Random numbers, which are small so that sums are exact enough."""
    generator = torch.Generator().manual_seed(chosen.randrange(1 << 30))
    return torch.randint(-64, 64, shape, generator=generator).to(dtype)


def case(seed):
    """Return the model of a case, and a function that returns inputs for a call of it."""
    chosen = random.Random(seed)
    dtype = chosen.choice([torch.float16, torch.float16, torch.float32, torch.int32])
    kind = chosen.choice(["copy", "put", "put", "pair", "batches", "two", "stacked"])
    rank = chosen.choice([2, 3, 4]) if kind not in ("batches", "two", "stacked") else 3
    columns = chosen.choice([1, 8, 48, 64, 65, 128, 200])
    shape = [*(chosen.choice([1, 2, 3, 5, 17, 40]) for _ in range(rank - 1)), columns]
    count = chosen.choice([1, 1, 2, 3, 5])
    if kind in ("pair", "batches") and rank < 3:
        kind = "put"

    def positions(size, is_negative=True):
        first = -size if is_negative else 0
        return torch.tensor(
            [chosen.choice([0, size - 1, chosen.randrange(first, size)]) for _ in range(count)]
        )

    if kind == "two":

        def inputs():
            rows = numbers(chosen, (shape[0], count, columns), dtype)
            caches = tuple(numbers(chosen, shape, dtype) for _ in range(2))
            return [caches, rows, positions(shape[1], False)]

        return TwoCaches(), inputs
    if kind == "stacked":

        def inputs():
            rows = numbers(chosen, (shape[0], count, columns), dtype)
            return [numbers(chosen, (2, *shape), dtype), rows, positions(shape[1], False)]

        return Stacked(), inputs
    if kind == "batches":
        count = shape[0]
        shape.insert(1, chosen.choice([1, 2, 3]))
        dtype = torch.float16 if dtype == torch.int32 else dtype

        def inputs():
            return [
                numbers(chosen, shape, dtype),
                numbers(chosen, (count, shape[1], columns), dtype),
                positions(shape[2]),
            ]

        return Batches(), inputs
    dims = sorted(chosen.sample(range(rank - 1), 2 if kind == "pair" else 1))
    if kind == "copy":
        row_shape = [count if dim == dims[0] else size for dim, size in enumerate(shape)]
        model = IndexCopy(dims[0])
    else:
        rest = [size for dim, size in enumerate(shape) if dim not in dims]
        first = dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0
        row_shape = [*rest[:first], count, *rest[first:]]
        model = IndexPut(dims)

    def inputs():
        indices = [positions(shape[dim], kind != "copy") for dim in dims]
        return [numbers(chosen, shape, dtype), numbers(chosen, row_shape, dtype), *indices]

    return model, inputs


class ThroughAView(nn.Module):
    """Rows written through a view of the cache: permuted, with merged dims, or with split dims."""

    def __init__(self, order, shape, dim, is_copy):
        super().__init__()
        self.order, self.shape, self.dim, self.is_copy = order, shape, dim, is_copy

    def forward(self, cache, rows, index):
        view = cache.permute(self.order) if self.shape is None else cache.view(self.shape)
        if self.is_copy:
            view.index_copy_(self.dim, index, rows)
        else:
            view[(slice(None),) * self.dim + (index,)] = rows
        return cache * 2


def viewed_case(seed):
    """Return the model of a case of a view, and a function that returns inputs for a call of it."""
    chosen = random.Random(seed)
    dtype = chosen.choice([torch.float16, torch.float16, torch.float32])
    shape = [chosen.choice([1, 2, 3, 5, 8]) for _ in range(chosen.choice([2, 3]))]
    shape.append(chosen.choice([8, 64, 65, 128]))
    if chosen.random() < 0.5:
        order = chosen.sample(range(len(shape)), len(shape))
        view, reshaped = [shape[dim] for dim in order], None
    else:
        order, first = None, chosen.randrange(len(shape) - 1)
        last = chosen.randrange(first + 1, len(shape)) if chosen.random() < 0.8 else first
        merged = torch.Size(shape[first : last + 1]).numel()
        split = [merged] if chosen.random() < 0.7 or merged % 2 else [merged // 2, 2]
        view = reshaped = [*shape[:first], *split, *shape[last + 1 :]]
    dim, is_copy = chosen.randrange(len(view)), chosen.random() < 0.5
    count = chosen.choice([1, 1, 2, 4])

    def inputs():
        first = 0 if is_copy else -view[dim]
        index = torch.tensor([chosen.randrange(first, view[dim]) for _ in range(count)])
        rows = [count if d == dim else size for d, size in enumerate(view)]
        return [numbers(chosen, shape, dtype), numbers(chosen, rows, dtype), index]

    return ThroughAView(order, reshaped, dim, is_copy), inputs
