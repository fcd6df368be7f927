# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Buffers in LX across bundles: numbers and traffic, with the hint and without it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from residency import (
    MN,
    MODELS,
    SOFTMAX,
    annotated,
    boundaries,
    compiled,
    executed,
    findings,
    inputs_of,
    moved,
    traffic,
    whole,
)

import spyre_mlir
from spyre_mlir.bundle.sequence import join, residents, split
from spyre_mlir.driver.steps import HostStep, sequences
from spyre_mlir.errors import CompileError
from spyre_mlir.simulator import SimulationError, run

#: exp is read before the sine, which is a host step, and three times after it.
OVER_A_HOST_STEP = """
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<64x128xf16>
func.func @main(%x: !m) -> !m {
  %e = tensor.empty() : !m
  %0 = linalg.exp ins(%x : !m) outs(%e : !m) -> !m
  %1 = linalg.abs ins(%0 : !m) outs(%e : !m) -> !m
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%1 : !m) outs(%e : !m) {
  ^bb0(%a: f16, %b: f16):
    %s = math.sin %a : f16
    linalg.yield %s : f16
  } -> !m
  %3 = linalg.add ins(%2, %0 : !m, !m) outs(%e : !m) -> !m
  %4 = linalg.mul ins(%3, %0 : !m, !m) outs(%e : !m) -> !m
  %5 = linalg.sub ins(%4, %0 : !m, !m) outs(%e : !m) -> !m
  return %5 : !m
}"""


# -- the plan with the hint -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_a_cut_changes_neither_numbers_nor_traffic(name: str) -> None:
    """Each single cut, and all at once: the same bits and bytes as the whole bundle."""
    bundle, arrays, expected = whole(name)
    cuts = boundaries(bundle)
    assert cuts
    for chosen in [[cut] for cut in cuts[:: max(1, len(cuts) // 6)]] + [cuts]:
        parts = split(bundle, chosen)
        assert findings(parts) == []
        results = executed(parts, arrays)
        outputs = {label: array for each in results for label, array in each.outputs.items()}
        assert outputs.keys() == expected.outputs.keys()
        assert all(np.array_equal(outputs[label], expected.outputs[label]) for label in outputs)
        assert moved(results) == moved([expected])


@pytest.mark.parametrize("cores", [1, 32])
def test_on_other_numbers_of_cores(cores: int) -> None:
    bundle, arrays, expected = whole("layer norm", cores)
    parts = split(bundle, boundaries(bundle))
    assert findings(parts) == []
    results = executed(parts, arrays)
    assert np.array_equal(results[-1].outputs["result0"], expected.outputs["result0"])
    assert moved(results) == moved([expected])


@pytest.mark.parametrize("name", MODELS)
def test_joined_bundles_are_the_whole_one(name: str) -> None:
    bundle, arrays, expected = whole(name)
    joined = join(split(bundle, boundaries(bundle)))
    assert joined.manifest.uses == bundle.manifest.uses
    assert not joined.manifest.expects and not joined.manifest.leaves
    result = run(joined, arrays)
    assert moved([result]) == moved([expected])
    assert all(np.array_equal(result.outputs[name], array) for name, array in expected.outputs.items())


@pytest.mark.parametrize("operations", [1, 2, 3, 4, 5])
def test_softmax_of_the_document_in_bundles_moves_2mn(operations: int) -> None:
    """With the hint as much as in one bundle; without it, what crosses is written and read again."""
    x = np.random.default_rng(0).standard_normal((512, 1024)).astype(np.float16)
    one = spyre_mlir.compile(SOFTMAX, sencores=1)
    expected = one(x)
    hinted = spyre_mlir.compile(SOFTMAX, sencores=1, bundle_operations=operations)
    assert np.array_equal(hinted(x), expected)
    assert all(len(step.bundle.manifest.uses) <= operations for step in hinted.bundles)
    assert [step.bundle.manifest.non_terminal for step in hinted.bundles[:-1]] == [True] * (
        len(hinted.bundles) - 1
    )
    assert traffic(one) == traffic(hinted) == 2 * MN
    assert hinted.timeline().total_ns == one.timeline().total_ns
    unhinted = spyre_mlir.compile(SOFTMAX, sencores=1, bundle_operations=operations, non_terminal=False)
    assert np.array_equal(unhinted(x), expected)
    assert not any(step.bundle.manifest.non_terminal for step in unhinted.bundles)
    if len(unhinted.bundles) > 1:
        assert traffic(unhinted) > 2 * MN


def test_softmax_of_one_operation_per_bundle_without_the_hint_is_the_baseline() -> None:
    """No value stays in LX: 8MN + 4N."""
    program = spyre_mlir.compile(SOFTMAX, sencores=1, bundle_operations=1, non_terminal=False)
    program(np.ones((512, 1024), np.float16))
    assert traffic(program) == 8 * MN + 4 * 1024 * 2


@pytest.mark.parametrize("name", MODELS)
def test_save_and_restore_never_change_numbers(name: str) -> None:
    _, _, expected = whole(name)
    for operations in (1, 2, 3):
        program = compiled(name, bundle_operations=operations, non_terminal=False)
        results = program(*inputs_of(name))
        results = results if isinstance(results, tuple) else (results,)
        for number, result in enumerate(results):
            assert np.array_equal(np.asarray(result), expected.outputs[f"result{number}"])
        assert findings([step.bundle for step in program.bundles]) == []
        assert traffic(program) >= moved([expected])
        in_lx = {
            each.name
            for step in program.bundles
            for each in step.bundle.manifest.buffers
            if each.base == "lx"
        }
        crossing = {each.buffer for step in program.bundles for each in step.bundle.manifest.expects}
        assert not in_lx & crossing


def test_what_crosses_a_cut_is_written_once_and_read_once_by_each_bundle() -> None:
    """exp for two readers in its bundle and two in the next: one save, one restore."""
    lines = [f"  %{n} = linalg.add ins(%{n - 1}, %0 : !m, !m) outs(%e : !m) -> !m" for n in range(1, 5)]
    module = "\n".join(
        [
            "!m = tensor<64x1024xf16>",
            "func.func @main(%x: !m) -> !m {",
            "  %e = tensor.empty() : !m",
            "  %0 = linalg.exp ins(%x : !m) outs(%e : !m) -> !m",
            *lines,
            "  return %4 : !m\n}",
        ]
    )
    program = spyre_mlir.compile(module, sencores=1, bundle_operations=3, non_terminal=False)
    program(np.zeros((64, 1024), np.float16))
    size = 64 * 1024 * 2
    assert len(program.bundles) == 2
    by_bundle = [moved([step.last_run]) for step in program.bundles if step.last_run]
    # The input, exp and the sum so far; both of these again, and the result.
    assert by_bundle == [3 * size, 3 * size]
    hinted = spyre_mlir.compile(module, sencores=1, bundle_operations=3)
    hinted(np.zeros((64, 1024), np.float16))
    assert traffic(hinted) == 2 * size


def test_a_loop_is_never_cut() -> None:
    program = compiled("tiles", bundle_operations=1)
    assert max(len(step.bundle.manifest.uses) for step in program.bundles) > 1
    bundle, *_ = whole("tiles")
    inside = min(set(range(1, len(bundle.manifest.uses))) - set(boundaries(bundle)))
    with pytest.raises(CompileError, match="cannot be cut"):
        split(bundle, [inside])


def test_bit_true_numbers_stay_as_they_are() -> None:
    """The bundles share bytes of the device: DL16 is not rounded to fp16 between them."""
    x = (torch.randn(64, 128, generator=torch.Generator().manual_seed(1)) * 1e4).bfloat16()

    def model(x: torch.Tensor) -> torch.Tensor:
        return (x * 100).sum(-1, keepdim=True) + x

    expected = spyre_mlir.compile(model, (x,), sencores=2)(x)
    for non_terminal in (True, False):
        program = spyre_mlir.compile(model, (x,), sencores=2, bundle_operations=1, non_terminal=non_terminal)
        assert torch.equal(program(x), expected)


def test_a_negative_limit_is_an_error() -> None:
    for name, limit in (("bundle_operations", "-1 operations"), ("bundle_tensors", "-1 tensors")):
        with pytest.raises(CompileError, match=f"at least 1 operation or 1 tensor, not of {limit}"):
            spyre_mlir.compile(SOFTMAX, **{name: -1})  # type: ignore[arg-type]


@pytest.mark.parametrize("non_terminal", [True, False])
@pytest.mark.parametrize("limit", [3, 4, 6])
def test_bundles_access_few_tensors_in_device_memory(limit: int, non_terminal: bool) -> None:
    """No design of softmax has more than three operands, so each bundle stays within the limit."""
    program = spyre_mlir.compile(
        SOFTMAX, sencores=1, bundle_tensors=limit, non_terminal=non_terminal, lx_planning=False
    )
    counts = [len(step.bundle.manifest.buffers) for step in program.bundles]
    assert max(counts) <= limit and (len(counts) > 1) == (limit < 6), "Softmax has six tensors."


# -- LX in the simulator -----------------------------------------------------------------------------------


def test_lx_is_wiped_behind_a_terminal_bundle() -> None:
    """An annotation that forgets all: each bundle by itself, and nothing is there."""
    bundle, arrays, _ = whole("softmax")
    first, second = split(bundle, boundaries(bundle)[:1])
    bare = [annotated(part, expects=(), leaves=(), non_terminal=False) for part in (first, second)]
    with pytest.raises(SimulationError, match="is read but was never written"):
        executed(bare, arrays)
    with pytest.raises(SimulationError, match="the previous bundle is terminal"):
        executed([annotated(first, non_terminal=False), second], arrays)
    with pytest.raises(SimulationError, match="expects buffers of the previous bundle"):
        run(second, {})


def test_another_address_is_another_place() -> None:
    bundle, arrays, _ = whole("softmax")
    first, second = split(bundle, boundaries(bundle)[:1])
    moved_by_one = tuple(
        replace(each, offset=each.offset + 128) if each.base == "lx" else each
        for each in second.manifest.buffers
    )
    with pytest.raises(SimulationError, match="at different places"):
        executed([first, annotated(second, buffers=moved_by_one)], arrays)


# -- around host steps -------------------------------------------------------------------------------------


# A part of the program runs on the host; test_host_work_warning.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
def test_a_value_over_a_host_step_is_saved_once_and_restored_once() -> None:
    """The bundle before the host step has two uses of it, the bundle after it three: it is written and read once."""
    program = spyre_mlir.compile(OVER_A_HOST_STEP, sencores=1)
    x = np.linspace(-1, 1, 64 * 128, dtype=np.float16).reshape(64, 128)
    e = np.exp(x.astype(float))
    assert np.abs(program(x) - (((np.sin(np.abs(e)) + e) * e) - e)).max() < 2e-2
    before, after = program.bundles
    assert [step.name for step in program.steps] == ["device_0", "host_0", "device_1"]
    size = 64 * 128 * 2
    assert before.last_run and after.last_run
    # x is read; exp is saved, and its absolute value is a host operation.
    assert (before.last_run.statistics.read_bytes, before.last_run.statistics.write_bytes) == (size, 2 * size)
    # The sine and exp are read, once, and the result is written.
    assert (after.last_run.statistics.read_bytes, after.last_run.statistics.write_bytes) == (2 * size, size)
    assert [len(moved.resident) for moved in program.transfers()] == [0, 0, 1]
    assert not any(step.bundle.manifest.expects for step in program.bundles)


# A part of the program runs on the host; test_host_work_warning.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
def test_where_it_does_not_pay_it_is_read_as_it_is() -> None:
    """Without clones, or with one reader after the host step, nothing is restored."""
    plain = spyre_mlir.compile(OVER_A_HOST_STEP, sencores=1, clone_inputs=False, clone_outputs=False)
    plain(np.zeros((64, 128), np.float16))
    after = plain.bundles[1].last_run
    assert after and after.statistics.read_bytes == 4 * 64 * 128 * 2


# A part of the program runs on the host; test_host_work_warning.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
def test_bundles_of_a_program_with_host_work() -> None:
    """Cuts within the functions of the device; over the host nothing stays in LX."""
    x = np.linspace(-1, 1, 64 * 128, dtype=np.float16).reshape(64, 128)
    one = spyre_mlir.compile(OVER_A_HOST_STEP, sencores=1)
    many = spyre_mlir.compile(OVER_A_HOST_STEP, sencores=1, bundle_operations=1)
    assert np.array_equal(one(x), many(x))
    assert traffic(one) == traffic(many)
    units = list(sequences(many.steps))
    assert [isinstance(unit, HostStep) for unit in units] == [False, True, False]
    for unit in units:
        if not isinstance(unit, HostStep):
            assert len(unit) > 1
            assert findings([step.bundle for step in unit]) == []
            assert unit[-1].bundle.manifest.non_terminal is False
    first, *_, last = many.transfers()
    assert [len(each.to_device) for each in many.transfers()] == [1, 0, 0, 0, 1, 0, 0, 0][
        : len(many.steps)
    ] or last
    assert [each.name for each in first.to_device] == ["arg0"]


def test_what_is_expected_follows_from_the_executes() -> None:
    bundle, *_ = whole("layer norm")
    parts = split(bundle, boundaries(bundle))
    assert [part.manifest.expects for part in parts] == residents(parts)[:-1]
    assert [part.manifest.leaves for part in parts] == residents(parts)[1:]
