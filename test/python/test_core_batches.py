# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cores whose parts have equal shapes run in one call, in threads: the same bits as one by one, in one thread."""

from __future__ import annotations

import gc
import re
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from bundles import reduction_bundle
from programs import Apply
from simulator_programs import Program, change_design

import spyre_mlir
from spyre_mlir.bundle.model import IdentityTable
from spyre_mlir.errors import RangeWarning
from spyre_mlir.simulator import SimulationError, machine, run, workers
from spyre_mlir.simulator.plan import Plan, single_batch

RNG = np.random.default_rng(23)


def half(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float16)


def tensors(*shapes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(torch.from_numpy(half(*shape)) for shape in shapes)


#: A function and the shapes of its inputs. Sizes are not multiples of cores or sticks, except in the first entry.
FUNCTIONS = {
    "equal parts": (lambda x: torch.softmax(x, -1), (512, 1024)),
    "uneven rows": (lambda x: torch.softmax(x, -1), (500, 777)),
    "uneven sticks": (lambda x: torch.softmax(x, 0), (300, 650)),
    "broadcast": (lambda x, y, z: x * y + z, (300, 900), (900,), (300, 1)),
    "largest of zeros": (lambda x: torch.minimum(F.relu(x - 9), -F.relu(x - 9)).amax(-1), (300, 700)),
    "overflow": (lambda x: torch.exp(4 * x) * x, (256, 1024)),
    "all small": (lambda x: F.gelu(x * 1e-4), (300, 900)),
    "masked": (lambda x: torch.softmax(x.masked_fill(x > 0.5, float("-inf")), -1), (300, 700)),
    "split sum": (lambda x: x.sum(0), (63, 65)),
    "float32": (lambda x: x.float().pow(2).mean(-1, keepdim=True).rsqrt() * x.float(), (100, 1000)),
    "large broadcast": (lambda x, y, z: (x - y) * z / (y * y + 1), (700, 1030), (700, 1), (1030,)),
    "large overflow": (lambda x, y: (x * 30000) * y, (300, 1030), (300, 1030)),
    "transposed": (lambda x, y: (x.t() + y).sum(0), (320, 640), (640, 320)),
    "short product": (lambda x, y: torch.tanh(x @ y), (130, 200), (200, 330)),
}


def outcome(program: spyre_mlir.Program, inputs: tuple[torch.Tensor, ...]) -> tuple:
    """The bits, the statistics and the losses of a call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RangeWarning)
        result = program(*inputs)
    runs = [step.last_run for step in program.bundles]
    return (
        np.asarray(result).tobytes(),
        [last.statistics for last in runs if last],
        [last.losses for last in runs if last],
    )


def one_by_one(plan: Plan) -> tuple:
    return tuple(single_batch(group, plan.work) for group in plan.groups)


@pytest.mark.parametrize("numerics", ["ieee", "dl16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_cores_together_are_cores_one_by_one(name, numerics, monkeypatch):
    function, *shapes = FUNCTIONS[name]
    inputs = tensors(*shapes)
    program = spyre_mlir.compile(Apply(function), inputs, sencores=7, numerics=numerics)
    together = outcome(program, inputs)
    monkeypatch.setattr(Plan, "batches", property(one_by_one))
    assert outcome(program, inputs) == together


@pytest.mark.parametrize("threads", [1, 3])
def test_the_number_of_threads_changes_nothing(threads, monkeypatch):
    """The product is so long that it is summed in float32, the softmax so large that its cores are several batches."""
    inputs = tensors((256, 1024), (1024, 2048))
    program = spyre_mlir.compile(Apply(lambda x, y: torch.softmax(x @ y, -1)), inputs)
    expected = outcome(program, inputs)
    monkeypatch.setattr(workers, "worker_count", lambda: threads)
    assert outcome(program, inputs) == expected


def test_a_long_product_is_near_the_exact_one():
    x, y = half(256, 1024), half(1024, 512)
    program = spyre_mlir.compile(Apply(torch.matmul), (torch.from_numpy(x), torch.from_numpy(y)))
    exact = x.astype(np.float64) @ y.astype(np.float64)
    result = program(torch.from_numpy(x), torch.from_numpy(y)).numpy()
    error = np.abs(result.astype(np.float64) - exact)
    # Half of the last place of fp16, and hardly more by the sum.
    assert (error <= np.abs(exact) * 2.0**-11 * 1.02 + 1e-4).all()


def test_products_run_in_one_thread_while_a_bundle_runs():
    library = workers._blas()
    if library is None:
        pytest.skip("numpy has another BLAS")
    before = library.scipy_openblas_get_num_threads64_()
    with workers.single_threaded_blas(), workers.single_threaded_blas():
        assert library.scipy_openblas_get_num_threads64_() == 1
    assert library.scipy_openblas_get_num_threads64_() == before


def test_the_first_task_that_fails_is_the_error():
    done = []

    def fail(text: str) -> None:
        raise ValueError(text)

    tasks = [lambda: done.append(1), lambda: fail("one"), lambda: fail("two"), lambda: done.append(2)]
    with pytest.raises(ValueError, match="one"):
        workers.run_tasks(tasks)
    assert sorted(done) == [1, 2]


def test_the_first_core_that_fails_is_named_of_a_batch():
    """Both cores read padding that nobody wrote: the message names the first core and the element."""
    bundle = reduction_bundle()
    bundle = change_design(bundle, padding={})
    with pytest.raises(
        SimulationError, match=r"core 0.*its element mb 0, out 200 is read but was never"
    ) as error:
        run(bundle, {"x": half(128, 200)})
    assert error.value.kind == "uninitialised"


@pytest.mark.parametrize("numerics", ["ieee", "dl16"])
def test_a_copy_in_place_keeps_the_only_number_of_a_stick(numerics):
    """The other elements of a stick become poison after the copy has read its only number."""
    program, vector = Program(), {"mb": 128}
    program.tensor("x", {"mb": 128, "out": 256}, kind="input")
    program.tensor("largest", vector, lx=0)
    program.tensor("copy", vector, lx=0)
    program.tensor("z", {"mb": 128, "out": 256}, kind="result")
    program.op("max", "x", "largest", splits={"mb": 4})
    program.op("identity", "largest", "copy", splits={"mb": 4})
    program.op("sub", "x", "copy", "z", splits={"mb": 4})
    x = half(128, 256)
    result = run(program.bundle(), {"x": x}, numerics).outputs["z"]
    expected = x.astype(np.float64) - x.max(axis=1, keepdims=True)
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=3e-3, atol=8e-3)


def test_the_first_core_that_fails_is_named_of_an_operation_in_place():
    """The second operand is what nobody wrote; the sum would overwrite the first one."""
    program, matrix = Program(), {"mb": 256, "out": 64}
    program.tensor("x", matrix, kind="input")
    program.tensor("low", matrix, lx=0)
    program.tensor("sum", matrix, lx=0)
    program.tensor("never", matrix, lx=1 << 18)
    program.tensor("z", matrix, kind="result")
    program.op("identity", "x", "low", splits={"mb": 4})
    program.op("add", "low", "never", "sum", splits={"mb": 4})
    program.op("identity", "sum", "z", splits={"mb": 4})
    with pytest.raises(SimulationError) as error:
        run(program.bundle(), {"x": half(256, 64)})
    assert error.value.kind == "uninitialised" and error.value.core == 0
    assert re.search("tensor 'never'.*mb 0, out 0", str(error.value))


def test_plans_are_made_once_for_a_program(monkeypatch):
    inputs = tensors((256, 1024))
    program = spyre_mlir.compile(Apply(lambda x: torch.softmax(x, -1)), inputs)
    expected = outcome(program, inputs)
    monkeypatch.setattr(machine, "make_plan", None)
    assert outcome(program, inputs) == expected


def test_what_is_kept_beside_an_object_goes_with_it():
    table: IdentityTable[str, int] = IdentityTable()
    one, other = reduction_bundle(), reduction_bundle()
    table.entries_of(one)["plan"] = 1
    assert table.entries_of(one) == {"plan": 1} and not table.entries_of(other)
    del one, other
    gc.collect()
    assert not table._entries
