# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The examples of "Working Set Reduction", from PyTorch to numbers, and what tiling saves."""

from __future__ import annotations

import functools
import re
import warnings
from pathlib import Path

import pytest
import torch
from hinted import TOLERANCE, kernel, kernel_in_one, kernel_inputs, kernel_of_view
from programs import Apply, check_close

import spyre_mlir
from spyre_mlir import clear_tensor_dims, declare_tensor_dim, name_tensor_dims, spyre_hint
from spyre_mlir.bundle.validate import validate

#: Example 1: its source, and with one hint; Example 2, whose x is flat.
EXAMPLES = {
    "nested": (kernel, False),
    "in one": (kernel_in_one, False),
    "of a view": (kernel_of_view, True),
}


def compiled(name: str) -> tuple[spyre_mlir.Program, tuple[torch.Tensor, ...]]:
    function, is_flat = EXAMPLES[name]
    inputs = kernel_inputs(is_flat=is_flat)
    return spyre_mlir.compile(function, inputs, verify_each=True), inputs


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs(name):
    """From PyTorch to the numbers of PyTorch, and no rule of a bundle is broken."""
    program, inputs = compiled(name)
    assert not validate(program.bundle)
    expected = EXAMPLES[name][0](*(each.double() for each in inputs))
    torch.testing.assert_close(program(*inputs).double(), expected, rtol=TOLERANCE, atol=0)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_has_its_loops(name, tmp_path):
    """One loop over M with the first matmul, one over the rest of K with a matmul and its sum, and the addition of z.

    A relayout over the ring may come before that.
    """
    folder = tmp_path / "bundle"
    compiled(name)[0].save(folder)
    shape = [
        (depth, what)
        for depth, what in shape_of_loops(folder)
        if what.startswith("for") or "_shuffle" not in (folder / what).read_text()
    ]
    m, first, k, matmul, combined, added = shape
    assert m == (0, "for 8") and k == (1, "for 3")
    assert [depth for depth, _ in (first, matmul, combined, added)] == [1, 2, 2, 1]


def shape_of_loops(folder: Path) -> list[tuple[int, str]]:
    """Loops, by their number of iterations, and executes of a bundle in order, each with the loops around it."""
    found, constants, depth = [], {}, 0
    for line in (folder / "bundle.mlir").read_text().splitlines():
        if constant := re.search(r"(%\w+) = arith.constant (\d+)", line):
            constants[constant[1]] = int(constant[2])
        elif bounds := re.search(r"scf.for %\w+ = (%\w+) to (%\w+)", line):
            found.append((depth, f"for {constants[bounds[2]] - constants[bounds[1]]}"))
            depth += 1
        elif execute := re.search(r'sdsc_filename="(.*?)"', line):
            found.append((depth, execute[1]))
        elif line.strip() == "}":
            depth -= 1
    return found


#: Example 1 and the same with one hint, operations on the same lines: designs name their line.
SOURCES = (
    """
def kernel(x, y, z):
    with spyre_hint(tiles={"M": 8}):
        with spyre_hint(tiles={"K": 4}):
            p = x @ y
        return p + z
""",
    """
def kernel(x, y, z):
    with spyre_hint(tiles={"M": 8, "K": 4}):
        # one line
        p = x @ y
        return p + z
""",
)


def test_one_hint_is_the_same_program(tmp_path):
    """{"M": 8, "K": 4} around all is M around all and K around the matmul, byte for byte, and one loop nest."""
    folders = []
    for at, source in enumerate(SOURCES):
        names = {"spyre_hint": spyre_hint}
        exec(compile(source, "kernel.py", "exec"), names)
        clear_tensor_dims()
        spyre_mlir.compile(names["kernel"], kernel_inputs()).save(tmp_path / str(at))
        files = sorted((tmp_path / str(at)).iterdir())
        folders.append({path.name: path.read_bytes() for path in files if path.name != "remarks.jsonl"})
    assert folders[0] == folders[1] and "bundle.mlir" in folders[0]


def add_and_multiply(a, b, c):
    y = a + b
    return y * c


def three(*shape: int) -> list[torch.Tensor]:
    return [torch.empty(shape, dtype=torch.float16) for _ in range(3)]


def test_an_intermediate_in_tiles_is_never_in_device_memory():
    """y = a + b; z = y * c of 64 MB each moves a, b, c and z, once each."""
    shape = (8192, 4096)
    program = spyre_mlir.compile(add_and_multiply, three(*shape))
    total = sum(each.read_bytes + each.written_bytes for each in program.timeline().executions)
    assert total == 4 * 2 * 8192 * 4096
    assert [each.kind for each in program.bundle.manifest.arguments] == ["input"] * 3 + ["result"]


def test_a_smaller_one_with_a_smaller_scratchpad_runs():
    """With 20 KiB of LX per core 1 MiB is as far too much: numbers, and the bytes that the simulator counts."""
    torch.manual_seed(0)
    inputs = [torch.randn(1024, 512).half() for _ in range(3)]
    program = spyre_mlir.compile(add_and_multiply, inputs, lx_frac_avail=0.99)
    torch.testing.assert_close(program(*inputs), add_and_multiply(*inputs), rtol=2**-9, atol=1e-3)
    moved = program.traffic()
    assert (moved.read_bytes, moved.written_bytes) == (3 * 2**20, 2**20)


def test_without_tiling_it_moves_more():
    """The same program without tiling writes y to device memory and reads it back."""
    inputs = three(1024, 512)
    program = spyre_mlir.compile(add_and_multiply, inputs, lx_frac_avail=0.99, tile_for_lx=False)
    assert sum(each.read_bytes + each.written_bytes for each in program.timeline().executions) == 6 * 2**20


def test_what_pays_is_told():
    """The remark has the cost of each alternative, also without tiling."""
    inputs = three(1024, 512)
    program = spyre_mlir.compile(add_and_multiply, inputs, lx_frac_avail=0.99)
    (remark,) = (each for each in program.remarks if each.pass_name == "auto-tiling")
    assert remark.kind == "tiling" and (remark.after or 0) < (remark.before or 0)
    assert "untiled" in remark.reason and "6,291,456 bytes" in remark.reason


def tanh_matmul(x, y):
    return torch.tanh(x) @ y


def sum_of_exponentials(x):
    return torch.exp(x - 6).sum(-1)


#: Programs whose tiles are along the dim that they reduce: to run on one core, and at full size.
REDUCED = {
    "matmul": (tanh_matmul, ((64, 1 << 16), (1 << 16, 64)), ((64, 1 << 20), (1 << 20, 64))),
    "sum": (sum_of_exponentials, ((1, 1 << 20),), ((1, 1 << 26),)),
}


@pytest.mark.parametrize("name", REDUCED)
def test_reduced_dims_are_tiled(name):
    """The compiler tiles the reduced dim, too, and reports it; the numbers equal PyTorch."""
    function, shapes, _ = REDUCED[name]
    torch.manual_seed(0)
    inputs = tuple(torch.rand(shape).half() / 256 for shape in shapes)
    program = spyre_mlir.compile(function, inputs, lx_frac_avail=0.5, sencores=1)
    (remark,) = (each for each in program.remarks if each.pass_name == "auto-tiling")
    assert remark.kind == "tiling" and "untiled" in remark.reason
    expected = function(*(each.double() for each in inputs))
    torch.testing.assert_close(program(*inputs).double(), expected, rtol=5e-3, atol=0)


@pytest.mark.parametrize("name", REDUCED)
def test_what_reduced_dims_move(name):
    """At full size reduced values are never in device memory."""
    function, _, shapes = REDUCED[name]
    inputs = tuple(torch.empty(shape, dtype=torch.float16) for shape in shapes)
    program = spyre_mlir.compile(function, inputs)
    moved = sum(each.read_bytes + each.written_bytes for each in program.timeline().executions)
    assert moved <= 1.01 * sum(argument.bytes for argument in program.bundle.manifest.arguments)


def named_dims(sizes: dict[str, int], *tensors: str) -> list[torch.Tensor]:
    """A tensor of noise per text, whose letters name its dims."""
    torch.manual_seed(0)
    for name, size in sizes.items():
        declare_tensor_dim(name, size)
    made = [torch.randn([sizes[name] for name in names]).half() / 8 for names in tensors]
    for tensor, names in zip(made, tensors, strict=True):
        name_tensor_dims(tensor, list(names))
    return made


#: Per program: its tiles, the function, sizes and names of dims, and the bytes that any program has to move.
NESTS = {
    "two dims of a sum": (
        {"R": 4, "C": 2},
        lambda a, b, c: a + b * c,
        {"R": 256, "C": 512},
        ("RC",) * 3,
        4 * 2**18,
    ),
    "two dims of a product": (
        {"M": 2, "N": 2},
        lambda x, y, z: torch.relu(x @ y) + z,
        {"M": 256, "K": 256, "N": 256},
        ("MK", "KN", "MN"),
        2**17 * 5,  # y is read in each of the two loops over its columns
    ),
    "a sum over K": ({"K": 4}, lambda x, y: x @ y, {"M": 256, "K": 512, "N": 256}, ("MK", "KN"), 5 * 2**17),
    "a sum over K in tiles of rows": (
        {"M": 2, "K": 4},
        lambda x, y: x @ y,
        {"M": 256, "K": 512, "N": 256},
        ("MK", "KN"),
        7 * 2**17,  # y is read twice
    ),
}


@pytest.mark.parametrize("name", NESTS)
def test_results_of_nests_go_to_device_memory_once(name):
    """Inner loops write their slice of the result, and sums over tiles stay in LX until they are complete."""
    tiles, function, sizes, tensors, least = NESTS[name]

    def model(*inputs):
        with spyre_hint(tiles=tiles):
            return function(*inputs)

    inputs = named_dims(sizes, *tensors)
    program = spyre_mlir.compile(model, inputs, verify_each=True)
    expected = function(*(each.double() for each in inputs))
    torch.testing.assert_close(
        program(*inputs).double(), expected, rtol=2**-8, atol=float(expected.abs().max()) / 256
    )
    moved = program.traffic()
    assert moved.read_bytes + moved.written_bytes == least


def test_a_nest_that_moves_less_is_predicted_faster():
    """a + b * c of 64 MiB each: the product goes through device memory, or stays in LX in any number of tiles."""
    a, b, c = named_dims({"R": 8192, "C": 4096}, *["RC"] * 3)

    def model(a, b, c, tiles):
        with spyre_hint(tiles=tiles):
            return a + b * c

    tilings = ({"R": 8, "C": 2}, {"R": 8}, {"R": 2, "C": 2})
    untiled = spyre_mlir.compile(lambda a, b, c: a + b * c, (a, b, c), tile_for_lx=False).timeline()
    for tiles in tilings:
        found = spyre_mlir.compile(functools.partial(model, tiles=tiles), (a, b, c)).timeline()
        assert found.read_bytes + found.written_bytes == 4 << 26
        assert untiled.read_bytes + untiled.written_bytes == 6 << 26
        assert found.total_ns < 0.7 * untiled.total_ns


def attention(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2), -1) @ v


#: Per program: its tiles, the function, sizes and names of dims, the shapes that the model sees, and its loops.
MERGED = {
    "heads of two batches": ({"H": 4}, attention, {"B": 2, "H": 8, "S": 64, "D": 64}, ("BHSD",) * 3, 1),
    "batches and heads": ({"B": 2, "H": 4}, attention, {"B": 2, "H": 8, "S": 64, "D": 64}, ("BHSD",) * 3, 2),
    "products of heads": (
        {"H": 4},
        lambda q, k: torch.relu(q @ k.transpose(-1, -2)),
        {"B": 2, "H": 8, "S": 64, "D": 64},
        ("BHSD",) * 2,
        1,
    ),
    "a flattened tensor": ({"B": 2}, lambda x: torch.exp(x.flatten()) + 1, {"A": 16, "B": 256}, ("AB",), 1),
    "both of a flattened tensor": (
        {"A": 4, "B": 2},
        lambda x: torch.exp(x.flatten()) + 1,
        {"A": 16, "B": 256},
        ("AB",),
        2,
    ),
    "a merged sum": (
        {"D": 2},
        lambda x, y: x.flatten(1) @ y.flatten(0, 1),
        {"M": 64, "C": 4, "D": 128, "N": 64},
        ("MCD", "CDN"),
        1,  # of one iteration: the first begins the sum
    ),
    "merged columns": (
        {"D": 2},
        lambda x, y: torch.relu(x @ y.flatten(1)).unflatten(1, (4, 128)) * 2,
        {"M": 64, "K": 64, "C": 4, "D": 128},
        ("MK", "KCD"),
        1,
    ),
}


@pytest.mark.parametrize("name", MERGED)
def test_a_name_inside_of_a_merged_dim_is_tiled(name):
    """The views that merge dims, of the model or of PyTorch's own products, do not hide a name."""
    tiles, function, sizes, tensors, loops = MERGED[name]

    def model(*inputs):
        with spyre_hint(tiles=tiles):
            return function(*inputs)

    inputs = named_dims(sizes, *tensors)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        program = spyre_mlir.compile(model, inputs, verify_each=True)
    assert not validate(program.bundle)
    check_close(name, program(*inputs), Apply(function), inputs)
    assert str(program.bundle.statements).count("Loop(") == loops
    assert any(each.pass_name == "coarse-tiling" for each in program.remarks)
