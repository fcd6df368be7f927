# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ways to run a random program: in several sizes, with state, saved, on the device, in KTIR, .. and in PyTorch.

A way is a function ``(make, calls, options, how)`` as ``fuzz_case.Run`` says, which needs nothing of the harness: the
text of the function is part of the file that a fault is written as.
"""

from __future__ import annotations

import copy
import inspect
import tempfile
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fuzz_case import Case, Run, calls_of_file, complaint, head_of_file, oracle, refusal
from fuzz_programs import ILL_CONDITIONED
from fuzz_workers import REFUSED, RIGHT, SKIPPED, WRONG
from torch import Tensor

import spyre_mlir

# -- helpers of all ways


def seen(*values: Any) -> list[Any]:
    """Return copies on the host of all tensors in some values, in order, and other values unchanged."""
    leaves = torch.utils._pytree.tree_leaves(values)
    return [x.detach().cpu().clone() if isinstance(x, torch.Tensor) else x for x in leaves]


def in_pytorch(make: Callable[[], Any], calls: list[dict[str, Tensor]], options: Any, how: Any) -> list[Any]:
    """Results, and inputs and buffers after each call."""
    model, found = make(), []
    for inputs in calls:
        found += seen(model(*inputs.values()), inputs, list(model.buffers()))
    return found


def compiled(make: Callable[[], Any], calls: list[dict[str, Tensor]], options: Any, how: Any) -> list[Any]:
    """Compile one program for all calls; buffers that it changes may be state of the program."""
    model, found = make(), []
    program = spyre_mlir.compile(model, tuple(copy.deepcopy(calls[0]).values()), **options)
    for inputs in calls:
        results = program(*inputs.values())
        kept = {name: tensor.cpu() for name, tensor in getattr(program, "state", {}).items()}
        found += seen(results, inputs, {**dict(model.named_buffers()), **kept})
    return found


# Sizes.


def dynamic(make: Callable[[], Any], calls: list[dict[str, Tensor]], options: Any, how: Any) -> list[Any]:
    """Compile one program for all sizes; with a granularity, dims have names."""
    model, example, found = make(), copy.deepcopy(calls[0]), []
    if how["granularity"]:
        spyre_mlir.clear_tensor_dims()
        for name, x in example.items():
            names = ["n" if dim in how["sized"].get(name, ()) else f"{name}_{dim}" for dim in range(x.ndim)]
            for dim, size in zip(names, x.shape, strict=True):
                spyre_mlir.declare_tensor_dim(dim, size)
            spyre_mlir.name_tensor_dims(x, names)
        dims: Any = {"n": (how["granularity"], how["most"])}
    else:
        n = torch.export.Dim("n", min=how["least"], max=how["most"])
        dims = tuple(dict.fromkeys(how["sized"].get(name, ()), n) for name in example)
    program = spyre_mlir.compile(model, tuple(example.values()), dynamic=dims, **options)
    for inputs in calls:
        found += seen(program(*inputs.values()), inputs, list(model.buffers()))
    return found


# The device "spyre" of PyTorch.


def written_in_pytorch(
    make: Callable[[], Any], calls: list[dict[str, Tensor]], options: Any, how: Any
) -> list[Any]:
    """Results and inputs, and once more after some results are written to: all that shares their memory changes."""
    model, found = make(), []
    for inputs in calls:
        results = torch.utils._pytree.tree_leaves(model(*inputs.values()))
        found += seen(results, inputs)
        for index in how["written"]:
            results[index].mul_(2)
        found += seen(results, inputs, list(model.buffers()))
    return found


def on_device(make: Callable[[], Any], calls: list[dict[str, Tensor]], options: Any, how: Any) -> list[Any]:
    """Run with all tensors on the device: eager, or compiled by a backend."""
    model, found = make().to("spyre"), []
    torch._dynamo.reset()
    run = torch.compile(model, backend=how["backend"]) if how["backend"] else model
    with torch.device("spyre"):
        for inputs in calls:
            moved = {name: x.to("spyre") for name, x in inputs.items()}
            results = torch.utils._pytree.tree_leaves(run(*moved.values()))
            assert all(x.device.type == "spyre" for x in results), "A result is not on the device."
            found += seen(results, moved)
            for index in how["written"]:
                results[index].mul_(2)
            found += seen(results, moved, list(model.buffers()))
    return found


def with_gradients(run: Callable[..., Any], inputs: list[Tensor]) -> list[Any]:
    """Results, and the gradients of a weighted sum of them by the inputs."""
    with torch.enable_grad():
        leaves = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
        results = torch.utils._pytree.tree_leaves(run(*leaves))
        weights = [torch.arange(x.numel()).reshape(x.shape) % 5 - 2.0 for x in results]
        losses = [
            (x * w.to(x.device, x.dtype)).sum()
            for x, w in zip(results, weights, strict=True)
            if x.requires_grad
        ]
        wanted = [x for x in leaves if x.requires_grad]
        gradients = torch.autograd.grad(
            losses, wanted, [torch.ones_like(x) for x in losses], allow_unused=True
        )
    return seen(results, [x if x is not None else "no gradient" for x in gradients])


def gradients_in_pytorch(
    make: Callable[[], Any], calls: list[dict[str, Tensor]], options: Any, how: Any
) -> list[Any]:
    """Results and gradients of each call."""
    return [x for inputs in calls for x in with_gradients(make(), list(inputs.values()))]


def gradients_on_device(
    make: Callable[[], Any], calls: list[dict[str, Tensor]], options: Any, how: Any
) -> list[Any]:
    """Return the gradients on a device, compiled by a backend or eager."""
    model, found = make().to(how["device"]), []
    torch._dynamo.reset()
    run = torch.compile(model, backend=how["backend"]) if how["backend"] else model
    with torch.device(how["device"]):
        for inputs in calls:
            found += with_gradients(run, [x.to(how["device"]) for x in inputs.values()])
    return found


# Saved, and called by two threads.


def is_same(one: Any, other: Any) -> bool:
    """Return whether two arrays are equal to the bit."""
    one, other = (x.clone(memory_format=torch.contiguous_format) for x in (one, other))
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))


def same_results(one: list[Any], other: list[Any]) -> str:
    """Return in a word whether all results are equal to the bit."""
    same = len(one) == len(other) and all(map(is_same, one, other))
    return "the same bits" if same else "other bits"


def saved_in_pytorch(
    make: Callable[[], Any], calls: list[dict[str, Tensor]], options: Any, how: Any
) -> list[Any]:
    """Return results of the call, and the expected results of copies of the program."""
    (inputs,) = calls
    return [*seen(make()(*inputs.values())), *["the same bits"] * 3]


def saved(make: Callable[[], Any], calls: list[dict[str, Tensor]], options: Any, how: Any) -> list[Any]:
    """Results of a program, and whether it has them when it is saved and loaded, pickled, and copied.

    A loaded program takes and returns the arrays by name that the program itself hands to its bundles.
    """
    import pickle

    (inputs,) = calls
    program = spyre_mlir.compile(make(), tuple(copy.deepcopy(inputs).values()), **options)
    pickled, ran, run = pickle.dumps(program), [], program.run
    program.run = lambda arrays: [ran.append(dict(arrays)), run(arrays)][1]
    results = seen(program(*copy.deepcopy(inputs).values()))
    del program.run
    with tempfile.TemporaryDirectory() as folder:
        program.save(f"{folder}/program", lay_out_weights=how["laid out"])
        loaded = spyre_mlir.Program.load(f"{folder}/program")
        arrays = [torch.as_tensor(x) for x in loaded.run({**ran[0], **loaded.arrays})]
    own = [torch.as_tensor(x) for x in run(ran[0])]
    again = seen(pickle.loads(pickled)(*copy.deepcopy(inputs).values()))
    deep = seen(copy.deepcopy(program)(*copy.deepcopy(inputs).values()))
    return [*results, same_results(own, arrays), same_results(results, again), same_results(results, deep)]


def threads_in_pytorch(
    make: Callable[[], Any], calls: list[dict[str, Tensor]], options: Any, how: Any
) -> list[Any]:
    """Return results of calls in sequence, and the expected results of concurrent calls."""
    model = make()
    return [*(x for inputs in calls for x in seen(model(*inputs.values()), inputs)), "the same bits"]


def threads(make: Callable[[], Any], calls: list[dict[str, Tensor]], options: Any, how: Any) -> list[Any]:
    """Return results of calls in sequence, and whether two threads that call the program give the same results."""
    program = spyre_mlir.compile(make(), tuple(copy.deepcopy(calls[0]).values()), **options)

    def called(inputs: dict[str, Tensor]) -> list[Any]:
        inputs = copy.deepcopy(inputs)
        return seen(program(*inputs.values()), inputs)

    alone = [called(inputs) for inputs in calls]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(called, calls * 3))
    found = [x for results in alone for x in results]
    return [*found, same_results(found * 3, [x for results in together for x in results])]


# KTIR, and assertions.


def in_ktir(make: Callable[[], Any], calls: list[dict[str, Tensor]], options: Any, how: Any) -> list[Any]:
    """A program in KTIR, run by its interpreter, after its bundle, which warns of numbers that it rounds too much."""
    model, found, ktir = make(), [], {"target": "ktir", "ktir_addresses": how["addresses"]}
    program = spyre_mlir.compile(model, tuple(copy.deepcopy(calls[0]).values()), **options, **ktir)
    bundle = spyre_mlir.compile(make(), tuple(copy.deepcopy(calls[0]).values()), **options)
    bundle(*copy.deepcopy(calls[0]).values())
    for inputs in calls:
        found += seen(program(*inputs.values()), inputs, list(model.buffers()))
    return found


def asserted(make: Callable[[], Any], calls: list[dict[str, Tensor]], options: Any, how: Any) -> list[Any]:
    """Results of each call, or that an assertion stopped it."""
    return stopped_by(make(), calls)


def asserted_compiled(
    make: Callable[[], Any], calls: list[dict[str, Tensor]], options: Any, how: Any
) -> list[Any]:
    """Return the results of a program, or a word that an assertion stopped it."""
    return stopped_by(spyre_mlir.compile(make(), tuple(copy.deepcopy(calls[0]).values()), **options), calls)


def stopped_by(run: Callable[..., Any], calls: list[dict[str, Tensor]]) -> list[Any]:
    """The results of each call, or a word that an assertion with the text "must hold" stopped it."""
    found = []
    for inputs in calls:
        try:
            found += seen(run(*inputs.values()))
        except (spyre_mlir.CompileError, RuntimeError) as error:
            if "must hold" not in str(error):
                raise
            found.append("stopped")
    return found


# The harness.


@dataclass(frozen=True)
class Way:
    """A way to run a case and its reference in PyTorch; both call the functions ``helpers``."""

    observe: Run
    reference: Run = in_pytorch
    helpers: tuple[Callable[..., Any], ...] = ()


WAYS: dict[str, Way] = {
    "compiled": Way(compiled),
    "sizes": Way(dynamic),
    "device": Way(on_device, written_in_pytorch),
    "gradients": Way(gradients_on_device, gradients_in_pytorch, (with_gradients,)),
    "saved": Way(saved, saved_in_pytorch, (is_same, same_results)),
    "threads": Way(threads, threads_in_pytorch, (is_same, same_results)),
    "ktir": Way(in_ktir),
    "asserts": Way(asserted_compiled, asserted, (stopped_by,)),
}


def says_something(case: Case, reference: Run) -> bool:
    """Return whether PyTorch runs a case with results in the types of the model near the float64 results."""
    try:
        expected = oracle(case, reference)
    except Exception:  # PyTorch refuses the program
        return False
    return len(expected.typed) == len(expected.exact) and all(map(_is_near, expected.typed, expected.exact))


def _is_near(typed: Any, exact: Any) -> bool:
    if not isinstance(typed, Tensor):
        return typed == exact
    if typed.shape != exact.shape or not typed.is_floating_point():
        return torch.equal(typed, exact)
    regular = torch.isfinite(typed) & torch.isfinite(exact)
    own, true = typed.double()[regular], exact.double()[regular]
    return not true.numel() or float((own - true).abs().max()) <= ILL_CONDITIONED * float(true.abs().max())


def run(case: Case, way: Way) -> tuple[str, str]:
    """Run a case in a way; return its outcome and the reason. Raises errors other than ``CompileError``."""
    try:
        expected = oracle(case, way.reference)
    except Exception as error:  # PyTorch refuses the program
        return SKIPPED, str(error)
    with warnings.catch_warnings(record=True) as said, torch.no_grad():
        warnings.simplefilter("always")
        try:
            results = way.observe(case.model, case.calls(), case.options, case.how)
        except spyre_mlir.CompileError as error:
            return refusal(error)
    text = complaint(case, results, expected)
    if not text:
        return RIGHT, ""
    ranges = [str(each.message) for each in said if each.category.__name__ == "RangeWarning"]
    return (REFUSED, ranges[0]) if ranges else (WRONG, text)


_FILE = """
{calls}
make, options, how = lambda: Model({buffers}), {options}, {how}


{functions}

with torch.no_grad():
    expected = {reference}(make, calls, options, how)
    {calls_again}
    got = {observe}(make, calls, options, how)
for index, (one, other) in enumerate(zip(got, expected, strict=True)):
    print(f"value {{index}}: got {{one}}, PyTorch {{other}}")
"""

_IMPORTS = """import copy
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable
from torch import Tensor
"""


def write(case: Case, way: Way, header: str, path: Path) -> Path:
    """Writes a file that runs the case by itself, and prints both sides."""
    path = path.with_suffix(".py")
    alias = case.how.get("alias", {})
    buffers = [alias.get(x.name, x.name) for x in case.inputs if x.role == "buffer"]
    functions = dict.fromkeys((seen, *way.helpers, way.reference, way.observe))
    calls = calls_of_file(case)
    imports = _IMPORTS + (
        "import spyre_mlir.frontend\n" if way.observe in (on_device, gradients_on_device) else ""
    )
    text = _FILE.format(
        calls=calls,
        calls_again=calls.rstrip().replace("\n", "\n    "),
        buffers=f"*copy.deepcopy([{', '.join(buffers)}])" if buffers else "",
        options=case.options,
        how=case.how,
        functions="\n\n".join(map(inspect.getsource, functions)),
        reference=way.reference.__name__,
        observe=way.observe.__name__,
    )
    path.write_text(
        head_of_file(case, f"{header}\n\n    python {path.name}\n", imports) + text, encoding="utf-8"
    )
    return path
