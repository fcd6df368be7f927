# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names of tensor dims through views, against index arrays that numpy views; agreement of operands; nests of hints."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path

import numpy as np
import pytest

import spyre_mlir
from spyre_mlir.layout.view_transforms import Collapse, Expand, Slice, Transpose, ViewTransform
from spyre_mlir.target.target import packaged_target
from spyre_mlir.tiling import (
    DigitRun,
    Hint,
    HintError,
    HintTree,
    NamedDim,
    NamedIteration,
    Names,
    TiledLoop,
    UnnamedDim,
    tiled_loops,
)
from spyre_mlir.tiling.names import best, contradict, covered, labels, split, unnamed, viewed, whole
from spyre_mlir.tools import spyre_compile

M, K, N, ONE = NamedDim("M", 64), NamedDim("K", 256), NamedDim("N", 128), NamedDim("One", 1)


def labels_of(names: Names) -> list[tuple[str, ...]]:
    return [labels(parts) for parts in names]


# -- views --------------------------------------------------------------------------------------------


def test_one_dim_holds_several_names() -> None:
    """Adjacent names share a tensor dim if their sizes multiply to it."""
    assert labels_of(split(whole([M, K, N]), [64 * 256, 128])) == [("M", "K"), ("N",)]


def test_names_of_size_one_are_skipped() -> None:
    """A dim of size 1 has no part in any tensor dim."""
    assert labels_of(split(whole([ONE, M, ONE, K]), [64, 1, 256])) == [("M",), (), ("K",)]


def test_sizes_that_do_not_fall_on_names_lose_them() -> None:
    """A dim of 96 elements is not a multiple or a divisor of a dim of 64; its name is remembered."""
    (outer,), (inner,) = split(whole([NamedDim("A", 96), NamedDim("B", 64)]), [64, 96])
    assert isinstance(outer.dim, UnnamedDim) and isinstance(inner.dim, UnnamedDim)
    assert (outer.size, inner.size) == (64, 96)
    assert inner.mentioned == {"A", "B"}


def test_labels_end_at_the_first_part_without_a_name() -> None:
    """Names inside of an unnamed part cannot be found."""
    assert labels((*whole([M]), *unnamed(7), *whole([K]))) == ("M",)


class Indexed:
    """A tensor as one array per declared dim, of the index of each element in that dim: what names claim, computed."""

    def __init__(self, dims: list[NamedDim], shape: list[int]) -> None:
        sizes = [dim.size for dim in dims]
        self.dims = dims
        self.indices = [index.reshape(shape) for index in np.indices(sizes)]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.indices[0].shape

    def view(self, step: ViewTransform) -> None:
        self.indices = [_numpy_view(step, index) for index in self.indices]

    def labels(self, dim: int) -> tuple[str, ...]:
        """The declared dims that positions in ``dim`` count, from the outermost on."""
        position = np.indices(self.shape)[dim]
        size, found = self.shape[dim], {}
        for named, index in zip(self.dims, self.indices, strict=True):
            weights = (w for w in range(1, size + 1) if size % (w * named.size) == 0)
            weight = next((w for w in weights if np.array_equal(position // w % named.size, index)), None)
            if weight is not None and named.size > 1:
                found[weight * named.size] = named
        made: list[str] = []
        while size in found:
            made.append(found[size].name)
            size //= found[size].size
        return tuple(made)

    def counts(self, dim: int, parts: DigitRun) -> bool:
        """Return whether positions in ``dim`` are the digits of declared dims that ``parts`` lists."""
        position, weight, indices = (
            np.indices(self.shape)[dim],
            self.shape[dim],
            dict(zip(self.dims, self.indices, strict=True)),
        )
        for part in parts:
            weight //= part.size
            index = (
                indices[part.dim] // part.divisor if isinstance(part.dim, NamedDim) else position // weight
            )
            if not np.array_equal(position // weight % part.size, index % part.size):
                return False
        return True


def _numpy_view(step: ViewTransform, array: np.ndarray) -> np.ndarray:
    if isinstance(step, Transpose):
        return array.transpose(step.permutation)
    if isinstance(step, Expand):
        return array.reshape(step.shape)
    if isinstance(step, Collapse):
        return array.reshape([math.prod(array.shape[dim] for dim in group) for group in step.groups])
    assert isinstance(step, Slice)
    ends = [o + (n - 1) * s + 1 for o, n, s in zip(step.offsets, step.sizes, step.steps, strict=True)]
    part = array[tuple(slice(o, e, s) for o, e, s in zip(step.offsets, ends, step.steps, strict=True))]
    return part.reshape([size for dim, size in enumerate(part.shape) if dim not in step.dropped])


def _random_step(rng: random.Random, shape: tuple[int, ...]) -> ViewTransform:
    kind = rng.choice(["transpose", "expand", "expand", "collapse", "collapse", "slice"])
    rank = len(shape)
    if kind == "transpose":
        return Transpose(tuple(rng.sample(range(rank), rank)))
    if kind == "collapse":
        cuts = [0, *sorted(rng.sample(range(1, rank), rng.randrange(rank))), rank]
        return Collapse(tuple(tuple(range(a, b)) for a, b in itertools.pairwise(cuts)))
    if kind == "expand":
        dim = rng.randrange(rank)
        factor = rng.choice([f for f in range(1, shape[dim] + 1) if shape[dim] % f == 0])
        groups = tuple((d,) if d < dim else (d, d + 1) if d == dim else (d + 1,) for d in range(rank))
        return Expand(groups, (*shape[:dim], factor, shape[dim] // factor, *shape[dim + 1 :]))
    offsets, sizes, steps = [0] * rank, list(shape), [1] * rank
    dim = rng.randrange(rank)
    steps[dim] = rng.choice([1, 1, 2]) if shape[dim] > 2 else 1
    offsets[dim] = rng.randrange(shape[dim])
    sizes[dim] = rng.randrange(1, (shape[dim] - 1 - offsets[dim]) // steps[dim] + 2)
    dropped = (dim,) if sizes[dim] == 1 and rank > 1 else ()
    return Slice(tuple(offsets), tuple(sizes), tuple(steps), dropped)


@pytest.mark.parametrize("seed", range(200))
def test_views_name_what_positions_count(seed: int) -> None:
    """Names after random views are those that the positions of a dim count; all of them while nothing is cut."""
    rng = random.Random(seed)
    dims = [NamedDim(name, rng.choice([1, 2, 3, 4, 6])) for name in "ABCD"]
    shape = [dims[0].size * dims[1].size, *(dim.size for dim in dims[2:])]
    names, oracle = split(whole(dims), shape), Indexed(dims, shape)
    for _ in range(8):
        step = _random_step(rng, oracle.shape)
        names = viewed(step, names)
        oracle.view(step)
        cut = any(isinstance(part.dim, UnnamedDim) for parts in names for part in parts)
        for dim, parts in enumerate(names):
            assert math.prod(part.size for part in parts) == oracle.shape[dim]
            assert oracle.counts(dim, parts)
            expected = oracle.labels(dim)
            assert labels(parts) == (expected[: len(labels(parts))] if cut else expected)


def test_a_slice_keeps_the_names_inside_of_it() -> None:
    """Two of the three T of a dim T x M, from a whole one on, are still whole M, but no T."""
    parts = covered(whole([NamedDim("T", 3), M]), 2 * 64, offset=64)
    assert [(part.name, part.size) for part in parts] == [(None, 2), ("M", 64)]
    assert parts[0].mentioned == {"T"}


def test_a_slice_that_begins_inside_loses_the_names() -> None:
    """Elements from 32 on wrap around M."""
    assert labels(covered(whole([NamedDim("T", 3), M]), 64, offset=32)) == ()


# -- operands -----------------------------------------------------------------------------------------


def test_the_operand_that_knows_all_names_wins() -> None:
    """An iteration dim has the names of the first operand that names all of it."""
    partly: DigitRun = (*whole([M]), *unnamed(2))
    fully = whole([M, NamedDim("Two", 2)])
    assert best([unnamed(128), partly, fully, whole([N])]) == fully


def test_unnamed_operands_contradict_nobody() -> None:
    """Only two names for one place contradict each other, or names of other sizes."""
    assert not contradict(unnamed(64), whole([M]))
    assert not contradict((*whole([M]), *unnamed(2)), whole([M, NamedDim("Two", 2)]))
    assert contradict(whole([M]), whole([NamedDim("Q", 64)]))
    assert contradict(whole([M, N]), whole([N, M]))


# -- hints --------------------------------------------------------------------------------------------

SIZES = {"M": 64, "K": 256, "N": 128}
MATMUL = NamedIteration((("M",), ("N",), ("K",)), (64, 128, 256), frozenset({2}), {1: 64, 2: 64})


def test_nested_hints_and_one_hint_ask_for_the_same_loops() -> None:
    """Loops over M and K, whether one hint names both or two hints nest."""
    nested = tiled_loops([Hint(3, (("M", 8),)), Hint(4, (("K", 4),))], MATMUL, SIZES, packaged_target())
    assert nested == (TiledLoop("3.M", 0, 8), TiledLoop("4.K", 2, 4))
    together = tiled_loops([Hint(3, (("M", 8), ("K", 4)))], MATMUL, SIZES, packaged_target())
    assert [(loop.dim, loop.tiles) for loop in together] == [(loop.dim, loop.tiles) for loop in nested]


def test_reduced_dims_are_inside_of_the_others() -> None:
    """Reduced dims are innermost even if an outer hint names them first; the order of the others is kept."""
    loops = tiled_loops(
        [Hint(1, (("K", 4), ("N", 2))), Hint(2, (("M", 8),))], MATMUL, SIZES, packaged_target()
    )
    assert [loop.loop for loop in loops] == ["1.N", "2.M", "1.K"]


def test_a_reduced_dim_gives_way_to_another_of_its_name() -> None:
    """Scores times values: of the two dims S the rows are cut, although the reduced one comes first."""
    iteration = NamedIteration((("S",), ("S",), ("D",)), (128, 128, 64), frozenset({0}))
    loops = tiled_loops([Hint(1, (("S", 2),))], iteration, {"S": 128, "D": 64}, packaged_target())
    assert loops == (TiledLoop("1.S", 1, 2),)


def test_a_count_of_one_is_no_loop() -> None:
    """A count of one is legal for any dim, even for a dim that cannot be cut."""
    iteration = NamedIteration((("M", "K"),), (64 * 256,))
    assert tiled_loops([Hint(1, (("M", 1), ("K", 1)))], iteration, SIZES, packaged_target()) == ()


def test_a_nest_may_have_as_many_iterations_as_a_loop() -> None:
    """65,535 = 255 x 257 iterations are possible, one row of tiles more is not."""
    sizes = {"A": 255, "B": 257, "C": 256}
    iteration = NamedIteration((("A",), ("B",), ("C",)), (255, 257, 256))
    assert len(tiled_loops([Hint(1, (("A", 255), ("B", 257)))], iteration, sizes, packaged_target())) == 2
    with pytest.raises(HintError, match="65792 iterations"):
        tiled_loops([Hint(1, (("C", 256), ("B", 257)))], iteration, sizes, packaged_target())


def test_the_outer_hints_of_an_id_are_always_the_same() -> None:
    """Operations of one hint may be in further hints inside of it, but not outside."""
    tree = HintTree()
    outer, inner = Hint(1, (("M", 8),)), Hint(2, (("K", 4),))
    tree.add([outer, inner])
    tree.add([outer])
    with pytest.raises(HintError, match="hint 2 is inside of no hint here and of hints 1 elsewhere"):
        tree.add([inner])


# -- warnings -----------------------------------------------------------------------------------------

UNNAMED = """
func.func @main(%x: tensor<64x128xf16>) -> tensor<64x128xf16> attributes {sdsc.dim_sizes = {M = 64 : i64}} {
  %e = tensor.empty() : tensor<64x128xf16>
  %r = linalg.exp {sdsc.hints = [{id = 1 : i64, tiles = []}]}
      ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}
"""


def test_warnings_of_passes_are_warnings_of_python() -> None:
    """``compile`` warns of names that are missing, at the place in the source."""
    with pytest.warns(
        spyre_mlir.PassWarning,
        match="4:8: warning: a hint cannot tile a dim without a name: dim 0 of argument 'arg0'",
    ):
        spyre_mlir.compile(UNNAMED)


def test_spyre_compile_prints_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, with a status of 0."""
    source = tmp_path / "unnamed.mlir"
    source.write_text(UNNAMED, encoding="utf-8")
    assert spyre_compile.main([str(source), "-o", str(tmp_path / "out")]) == 0
    assert f"{source}:4:8: warning: a hint cannot tile" in capsys.readouterr().err
