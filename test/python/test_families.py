# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The families: all can be made, take no memory, and have the figures that plans are judged by."""

import sys
from pathlib import Path

import pytest
import torch

from spyre_mlir.zoo import families

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import families as benchmark
from benchmarks import registry
from benchmarks.family_figures import FIGURES, Figures, causal_pairs


def test_there_are_enough_families():
    assert len(families.FAMILIES) >= 40 and list(FIGURES) == list(families.FAMILIES)
    assert all(figures.schedule.endswith(".") and figures.bytes > 0 for figures in FIGURES.values())
    assert families.CHANGED.keys() <= FIGURES.keys()


@pytest.mark.parametrize("name", families.FAMILIES)
def test_a_family_takes_no_memory(name):
    """Weights use no memory, except 8-bit weights, and caches that are written in place."""
    model, inputs = families.program(name)
    tensors = [*model.parameters(), *model.buffers()]
    tensors += [tensor for index, tensor in enumerate(inputs) if index not in families.CHANGED.get(name, ())]
    large = [tensor for tensor in tensors if tensor.dtype not in families.EIGHT_BITS]
    assert all(tensor.untyped_storage().nbytes() <= 8 for tensor in large)
    assert all(tensor.dtype != torch.float32 for tensor in tensors)


def test_pairs_of_causal_attention():
    rows = [[min(row + 1, window) for row in range(7)] for window in (7, 3, 1)]
    assert [causal_pairs(7, window) for window in (0, 3, 1)] == [sum(row) for row in rows]


def test_groups_of_families_have_their_own_figures():
    """Figures of decoding and of convolutions, in addition to the figures of all families."""
    ratios = {"decode_1": 1.0, "decode_2": 4.0, "resnet50": 9.0, "vit": 6.0}
    metrics = {f"{name}.time_over_bound": ratio for name, ratio in ratios.items()}
    found = benchmark.summary({**metrics, "vit.compile_s": 3.0, "not_compiled": 0})
    assert found["decode_time_over_bound_geomean"] == pytest.approx(2.0)
    assert (found["conv_time_over_bound_max"], found["time_over_bound_max"]) == (9.0, 9.0)
    assert found["time_over_bound_geomean"] == pytest.approx(216**0.25)
    assert (found["programs"], found["compile_s_max"]) == (4, 3.0)


def test_a_program_that_is_refused_is_a_line(monkeypatch, capsys):
    """The other programs are compiled, and each has a line."""
    figures = Figures("One pass.", 2 * 2 * 64 * 64, 0)

    def good():
        return lambda x: x + x, ((64, 64),)

    def bad():
        return lambda x: torch.segment_reduce(x, "sum", offsets=torch.tensor([0, 64])), ((64, 64),)

    monkeypatch.setattr(families, "FAMILIES", {"bad": bad, "good": good, "other": bad})
    monkeypatch.setattr(benchmark, "FIGURES", dict.fromkeys(("bad", "good", "other"), figures))
    metrics = registry.load_all()["families"].measure(only="bad|good")
    assert metrics["not_compiled"] == 1 and metrics["programs"] == 1
    ratio = metrics["good.predicted_us"] / metrics["good.bound_us"]
    assert metrics["good.time_over_bound"] == metrics["time_over_bound_max"] == pytest.approx(ratio)
    assert benchmark.by_hand_us(figures) == pytest.approx(metrics["good.bound_us"])
    assert isinstance(metrics, registry.Noted) and metrics.notes[0].startswith("bad: not compiled: ")
    assert metrics.notes[0] in capsys.readouterr().out
