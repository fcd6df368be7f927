# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models on several cards in one process: the numbers of one card, the traffic, the folders, and wrong programs."""

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from mesh_models import DIM, MLP, PROGRAMS, mlp_plan, parallel, rows
from torch.distributed import _functional_collectives as functional
from torch.distributed.tensor.parallel import parallelize_module

import spyre_mlir
from spyre_mlir.driver.collectives import CollectiveStep
from spyre_mlir.errors import CompileError

#: The largest error of float16 numbers that are summed in another order.
TOLERANCE = 4e-3

X = torch.ones(4, DIM).half()

#: Left to ``make check-all``: processes, and eight compilations.
EXHAUSTIVE = pytest.mark.exhaustive


def compiled(build, x=X, ranks=2, **options):
    """Compile for a mesh; the warnings about work on the host do not matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return spyre_mlir.compile(build, (x,), mesh=(ranks,), **options)


def collectives(program):
    """Return the collectives of a program."""
    return [step for step in program.steps if isinstance(step, CollectiveStep)]


@pytest.mark.parametrize("ranks", [2, 4, pytest.param(8, marks=EXHAUSTIVE)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_ranks_compute_what_one_card_computes(name, ranks):
    """Each rank returns the whole result; PyTorch computes the reference on the CPU."""
    model, build, x = PROGRAMS[name]
    torch.manual_seed(0)
    one = model().half()
    torch.manual_seed(0)
    program = compiled(build, x, ranks)
    with torch.no_grad():
        wanted = one(x)
    results = program(x)
    assert len(results) == ranks
    assert all((result - wanted).abs().max() <= TOLERANCE for result in results)


def test_a_rank_has_its_shard_of_the_weights():
    """Columns of ``up`` and rows of ``down``, under the names of the model."""
    torch.manual_seed(0)
    one = MLP().half()
    torch.manual_seed(0)
    program = compiled(parallel(MLP, mlp_plan), rows(8, DIM), 4)
    up = np.concatenate([rank.arrays["up.weight"] for rank in program.ranks])
    down = np.concatenate([rank.arrays["down.weight"] for rank in program.ranks], 1)
    assert np.array_equal(up, one.up.weight.detach().numpy())
    assert np.array_equal(down, one.down.weight.detach().numpy())
    assert [rank.place.rank for rank in program.ranks] == [0, 1, 2, 3]


def test_a_mesh_of_two_dims():
    """Each row of the mesh is a group of its own for the collectives of a model."""

    def build(mesh):
        return parallelize_module(MLP().half(), mesh["tp"], mlp_plan())

    x = rows(8, DIM)
    torch.manual_seed(0)
    program = spyre_mlir.compile(build, (x,), mesh={"dp": 2, "tp": 2})
    torch.manual_seed(0)
    assert all((y - MLP().half()(x)).abs().max() <= TOLERANCE for y in program(x)[:1])
    assert [collectives(rank)[0].ranks for rank in program.ranks] == [(0, 1), (0, 1), (2, 3), (2, 3)]


def test_weights_without_a_seed_are_the_same_on_each_rank():
    """The shards are parts of one model, as if rank 0 had sent its weights."""
    x = rows(8, DIM)
    first, second = compiled(parallel(MLP, mlp_plan), x)(x)
    assert torch.equal(first, second)


def test_ranks_that_differ_in_data_share_a_compilation(monkeypatch, tmp_path):
    """The second rank reads the program of the first from the cache."""
    monkeypatch.setenv("SPYRE_CACHE", "1")
    monkeypatch.setenv("SPYRE_CACHE_DIR", str(tmp_path))
    compiled(parallel(MLP, mlp_plan), rows(8, DIM), 4)
    assert len(list(tmp_path.rglob("*.npz"))) == 1


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (lambda x, group: functional.all_reduce(x, "sum", group), (4, 2)),
        (lambda x, group: functional.all_reduce(x, "max", group), (4, 2)),
        (lambda x, group: functional.all_reduce(x, "avg", group), (4, 2)),
        (lambda x, group: functional.all_gather_tensor(x, 0, group), (8, 2)),
        (lambda x, group: functional.all_gather_tensor(x, 1, group), (4, 4)),
        (lambda x, group: functional.reduce_scatter_tensor(x, "sum", 0, group), (2, 2)),
        (lambda x, group: functional.all_to_all_single(x, None, None, group), (4, 2)),
        (lambda x, group: functional.broadcast(x, 1, group), (4, 2)),
        (lambda x, group: sum(functional.all_reduce_coalesced([x, x * 2], "sum", group)), (4, 2)),
    ],
)
def test_collectives_of_pytorch(call, shape):
    """Every functional collective, with other numbers on each rank, against its definition on arrays."""
    x = torch.arange(8.0).reshape(4, 2).half()

    def build(mesh):
        rank = mesh.get_rank()
        return lambda x: call(x * (rank + 1), mesh.get_group()) + 1

    results = [result - 1 for result in compiled(build, x)(x)]
    parts = [x, x * 2]
    text = call.__code__.co_names
    whole = torch.cat(parts)
    if "broadcast" in text:
        wanted = [parts[1]] * 2
    elif "all_to_all_single" in text:
        wanted = [torch.cat([part[2 * rank : 2 * rank + 2] for part in parts]) for rank in range(2)]
    elif "reduce_scatter_tensor" in text:
        wanted = list((x * 3).chunk(2))
    elif "all_gather_tensor" in text:
        wanted = [whole if shape == (8, 2) else torch.cat(parts, 1)] * 2
    elif "all_reduce_coalesced" in text:
        wanted = [x * 9] * 2
    else:
        wanted = [{"sum": x * 3, "max": x * 2, "avg": x * 1.5}[call.__code__.co_consts[1]]] * 2
    assert all(torch.equal(result, part) for result, part in zip(results, wanted, strict=True))
    assert results[0].shape == shape


def test_a_sum_of_numbers_without_dims():
    """A tensor without dims has one element."""

    def build(mesh):
        return lambda x: functional.all_reduce(x.sum(), "sum", mesh.get_group()) * x

    assert all(torch.equal(y, 2 * X.sum() * X) for y in compiled(build)(X))


def test_ranks_may_exchange_other_numbers_of_rows():
    """Rank 0 sends 1 and 3 rows, and rank 1 sends 2 and 2, as the tokens of experts."""

    def build(mesh):
        rank = mesh.get_rank()
        sent, received = ([1, 3], [1, 2]) if rank == 0 else ([2, 2], [3, 2])
        return lambda x: functional.all_to_all_single(x * (rank + 1), received, sent, mesh.get_group()) + 1

    x = torch.arange(8.0).reshape(4, 2).half()
    first, second = compiled(build, x)(x)
    assert torch.equal(first - 1, torch.cat([x[:1], 2 * x[:2]]))
    assert torch.equal(second - 1, torch.cat([x[1:], 2 * x[2:]]))


def test_functions_of_torch_distributed_become_functional():
    """``dist.all_reduce`` changes its operand in place; in a program, the collective returns a value."""

    def build(mesh):
        def model(x):
            y = x.exp()
            dist.all_reduce(y)
            return y + 1

        return model

    assert all(torch.allclose(y, 2 * X.exp() + 1, atol=1e-2) for y in compiled(build)(X))


def test_a_folder_has_the_program_of_each_rank(tmp_path):
    """A saved mesh has its shards, ranks and shape, and computes the same; a damaged rank is an error."""
    x = rows(8, DIM)
    program = compiled(parallel(MLP, mlp_plan), x)
    program.save(tmp_path / "mesh")
    loaded = spyre_mlir.MeshProgram.load(tmp_path / "mesh")
    assert [rank.place for rank in loaded.ranks] == [rank.place for rank in program.ranks]
    for saved, result in zip(loaded(x.numpy()), program(x), strict=True):
        assert np.array_equal(saved, result.numpy())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"all_reduce"', '"all_send"', "does not describe a collective: 'all_send' of 'f16' is unknown"),
        ('"sum"', '"shuffle"', "does not describe a collective"),
        ('"rank": 1', '"rank": 7', "has no rank 7"),
        ('"rank": 1', '"rank": 0', "is not the program of rank 1 of the mesh"),
    ],
)
def test_a_damaged_rank_is_one_error(tmp_path, old, new, message):
    """A folder may come from others, so each value of a collective is checked when it is read."""
    compiled(parallel(MLP, mlp_plan), rows(8, DIM)).save(tmp_path / "mesh")
    text = tmp_path / "mesh" / "rank_1" / "program.json"
    assert old in text.read_text()
    text.write_text(text.read_text().replace(old, new))
    with pytest.raises(CompileError, match=message):
        spyre_mlir.MeshProgram.load(tmp_path / "mesh")


# Wrong programs: each is one error, and leaves neither a process group nor a folder.


def without_wait(mesh):
    """Return a model that reads a sum before it is complete."""
    group = mesh.get_group().group_name
    return lambda x: torch.ops._c10d_functional.all_reduce(x.exp(), "sum", group) * 2


def other_shapes(mesh):
    """Return a model with other shapes on each rank."""
    rows_of_rank = 2 + mesh.get_rank()
    return lambda x: functional.all_reduce(x[:rows_of_rank].exp(), "sum", mesh.get_group())


def other_reduction(mesh):
    """Return a model with another reduction on each rank."""
    return lambda x: functional.all_reduce(x.exp(), ["sum", "max"][mesh.get_rank()], mesh.get_group())


def one_calls(mesh):
    """Return a model whose collective only rank 0 calls."""
    if mesh.get_rank():
        return lambda x: x.exp()
    return lambda x: functional.all_reduce(x.exp(), "sum", mesh.get_group())


def other_order(mesh):
    """Return a model whose ranks call two collectives in another order."""
    first, second = ("sum", "max") if mesh.get_rank() else ("max", "sum")
    group = mesh.get_group()
    return lambda x: functional.all_reduce(functional.all_reduce(x.exp(), first, group), second, group)


def unknown_group(mesh):
    """Return a model that names a group that does not exist."""
    operation = torch.ops._c10d_functional
    return lambda x: operation.wait_tensor(operation.all_reduce(x.exp(), "sum", "nobody"))


def other_rows(mesh):
    """Return a model whose ranks expect other numbers of rows than they receive."""
    return lambda x: functional.all_to_all_single(x.exp(), [1, 3], [2, 2], mesh.get_group())


def values_decide(mesh):
    """Return a model with a branch that depends on values."""
    return lambda x: functional.all_reduce(x, "sum", mesh.get_group()) if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (without_wait, "read before it is complete; call wait_tensor"),
        (other_shapes, r"Rank 1 calls all_reduce\(f16 \[3, 128\], sum\)"),
        (other_reduction, r"Rank 1 calls all_reduce\(f16 \[4, 128\], max\)"),
        (one_calls, "rank 0 waits at all_reduce.* for rank 1, which has ended"),
        (other_order, r"Rank 1 calls all_reduce\(f16 \[4, 128\], sum\)"),
        (unknown_group, "process group 'nobody' of all_reduce does not exist"),
        (
            other_rows,
            r"Rank 0 expects \[1, 3\] rows from the ranks \[0, 1\] at collective_0, which send \[2, 2\]",
        ),
        (values_decide, "values"),
        (MLP(), "a function from a device mesh to the model of one rank"),
    ],
)
def test_a_wrong_program_is_one_error(build, message):
    """The error comes from the compilation, or from the first call, which does not wait forever."""
    with pytest.raises(CompileError, match=message):
        compiled(build)(X)
    assert not dist.is_initialized()


@pytest.mark.parametrize("mesh", [(), (0,), ("two",), {"tp": 0}])
def test_a_mesh_has_positive_extents(mesh):
    """The error repeats the option."""
    with pytest.raises(CompileError, match="the extent of each dim"):
        spyre_mlir.compile(one_calls, (X,), mesh=mesh)


def test_a_rank_alone_is_an_error():
    """The program of one rank needs the others, and the error names both ways to have them."""
    program = compiled(parallel(MLP, mlp_plan), rows(8, DIM))
    with pytest.raises(
        CompileError, match="run the script with torchrun, or compile the model with the option 'mesh'"
    ):
        program.ranks[0](rows(8, DIM))


def test_a_failed_save_leaves_no_folder(tmp_path, monkeypatch):
    """The folder of a mesh is written completely or not at all."""
    program = compiled(parallel(MLP, mlp_plan), rows(8, DIM))
    monkeypatch.setattr(program.ranks[1], "missing", ("'up.weight'",))
    with pytest.raises(CompileError, match="has no data"):
        program.save(tmp_path / "mesh")
    assert not list(tmp_path.iterdir())


# Processes of torchrun.


def run(*cases, ranks=2):
    """Run cases of ``torchrun_programs.py``; return what the ranks printed."""
    command = ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "torchrun_programs.py"]
    done = subprocess.run(
        [sys.executable, "-m", *command, *cases],
        capture_output=True, text=True, timeout=300, cwd=Path(__file__).parent, check=False,
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("name", PROGRAMS)
@EXHAUSTIVE
def test_processes_compute_what_one_card_computes(name, ranks):
    """Each rank is a process with a simulated device, over gloo."""
    text = run(f"compiled:{name}", ranks=ranks)
    assert text.count("ok") == ranks, text


def test_two_processes_compute_what_one_card_computes():
    """The sample of the test above that always runs."""
    text = run("compiled:mlp")
    assert text.count("ok") == 2, text


@EXHAUSTIVE
@pytest.mark.parametrize("case", ["on_device:mlp", "gradients:mlp", "collectives", "distributed_input"])
def test_processes_with_device_tensors_and_gradients(case):
    """DTensor code for the device ``spyre``, eager and compiled; and a training step."""
    text = run(case)
    assert text.count("ok") == 2, text


@EXHAUSTIVE
@pytest.mark.parametrize(
    ("case", "messages"),
    [
        (
            "other_shapes",
            ["Rank 1 calls all_reduce(f16 [3, 128], sum)", "Rank 0 calls all_reduce(f16 [2, 128], sum)"],
        ),
        ("other_collective", ["Rank 1 calls all_reduce(f16 [4, 128], max)", "Rank 0 calls all_reduce"]),
        (
            "ended_rank",
            ["Rank 0 cannot finish collective_0, all_reduce(f16 [4, 128], sum) of the ranks [0, 1]"],
        ),
        ("absent_rank", ["Rank 0 cannot finish", "Timed out"]),
    ],
)
def test_a_fault_is_one_error_on_each_rank(case, messages):
    """No rank hangs, and no rank prints a trace."""
    text = run(case)
    assert all(message in text for message in messages) and "Traceback" not in text, text
