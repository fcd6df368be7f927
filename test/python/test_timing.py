# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scopes in scopes, and the tree of their seconds."""

from __future__ import annotations

import pytest

from spyre_mlir.timing import Timing, TimingScope, scope


def measured(*scopes: TimingScope, total: float) -> Timing:
    """A tree with seconds as given."""
    timing = Timing()
    timing.root.scopes.extend(scopes)
    timing.root.seconds = total
    return timing


def test_the_report_is_a_tree() -> None:
    """Seconds, their share of all, and nested scopes below each scope; repeated names are one line."""
    trials = [
        TimingScope("trial", seconds=1.0, scopes=[TimingScope("choose-layouts", seconds=0.5)])
        for _ in range(2)
    ]
    passes = [
        TimingScope("tile", "passes", "tile{n=2}", seconds=3.0, scopes=trials),
        TimingScope("cse", "passes"),
    ]
    timing = measured(TimingScope("tiled", "stages", seconds=3.5, scopes=passes), total=4.0)
    assert timing.report().splitlines()[2:] == [
        "    3.5000 ( 87.5%)  tiled",
        "    3.0000 ( 75.0%)    tile{n=2}",
        "    2.0000 ( 50.0%)      trial (2 times)",
        "    1.0000 ( 25.0%)        choose-layouts (2 times)",
        "    0.0000 (  0.0%)    cse",
        "    0.5000 ( 12.5%)  Rest",
        "    4.0000 (100.0%)  Total",
    ]


def test_scopes_of_a_block_are_collected() -> None:
    """Each scope is nested in the scope around it, with at most its seconds."""
    timing = Timing()
    with scope("before"):
        pass
    with timing.collecting(), scope("tiled", "stages"), scope("tile", "passes", "tile{n=2}"), scope("trial"):
        pass
    (stage,) = timing.root.scopes
    (inner,) = stage.scopes
    assert [(each.name, each.kind) for each in (stage, inner, *inner.scopes)] == [
        ("tiled", "stages"),
        ("tile", "passes"),
        ("trial", "parts"),
    ]
    assert timing.root.seconds >= stage.seconds >= inner.seconds >= inner.scopes[0].seconds > 0


def test_as_a_sequence_it_is_the_passes() -> None:
    """In order, with their options; what passes run inside of them are parts, not passes."""
    timing = Timing()
    with timing.collecting():
        with scope("tiled", "stages"), scope("tile", "passes", "tile{n=2}"), scope("cse", "passes"):
            pass
        with scope("cse", "passes"):
            pass
    assert [name for name, _ in timing] == ["tile{n=2}", "cse"]


def test_a_block_within_the_same_block_counts_once() -> None:
    """Who compiles measures more than the pipeline, which also collects."""
    timing = Timing()
    with timing.collecting(), scope("device_0", "stages"), timing.collecting(), scope("cse", "passes"):
        pass
    (outer,) = timing.root.scopes
    assert [each.name for each in outer.scopes] == ["cse"]


def test_an_error_ends_a_scope() -> None:
    """A scope after a failed scope is not nested in it."""
    timing = Timing()
    with timing.collecting():
        with pytest.raises(ValueError, match="bad"), scope("cse", "passes"):
            raise ValueError("bad")
        with scope("inline", "passes"):
            pass
    assert [name for name, _ in timing] == ["cse", "inline"]
