# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operator database of PyTorch as a benchmark: samples, their outcomes, and the tables."""

from __future__ import annotations

import functools
import json
import os
import signal
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("expecttest", reason="PyTorch's operator database imports it")

import opinfo_samples
import special_values
from opinfo_samples import NoSampleError, Sample, Ticket, draw, expected, facts, run
from torch.utils import _pytree as pytree

import spyre_mlir
from benchmarks import __main__ as command
from benchmarks import opinfo
from benchmarks.opinfo import Row

DYING = Ticket("abs", "f16", 0)


def dying(ticket: Ticket) -> tuple[str, str]:
    """Replacement for ``run`` in a worker: one sample kills the worker."""
    if ticket == DYING:
        os.kill(os.getpid(), signal.SIGSEGV)
    return run(ticket)


# Samples.


@pytest.mark.parametrize("operation, tensors", [("add", 2), ("cat", 2), ("nn.functional.linear", 3)])
def test_a_sample_is_a_function_of_its_tensors(operation, tensors):
    """Tensors in lists and keywords are inputs, too: the module has the results of the operation."""
    ticket = Ticket(operation, "f32", 0)
    sample = draw(ticket)
    torch.manual_seed(5)
    again = draw(ticket)
    assert len(sample.tensors) == tensors
    assert all(torch.equal(x, y) for x, y in zip(sample.tensors, again.tensors, strict=True))
    changed = tuple(x + 1 for x in sample.inputs())
    assert not torch.equal(sample.model()(*changed), sample.model()(*sample.inputs()))


def test_a_tensor_of_a_keyword_is_an_input():
    """The mask of a masked sum is a tensor of the function, and not a constant of it."""
    tickets = (Ticket("masked.sum", "f32", index) for index in range(20))
    masked = next(sample for sample in map(draw, tickets) if len(sample.tensors) == 2)
    x, mask = masked.inputs()
    assert mask.dtype == torch.bool
    assert masked.model()(x, torch.zeros_like(mask)).sum() == 0


@pytest.mark.parametrize(
    "operation, reason",
    [
        ("arange", "no tensor"),
        ("bernoulli", "random results"),
        ("cauchy", "random results"),
        ("sparse.mm.reduce", "sparse"),
        ("to_sparse", "sparse"),
        ("jiterator_unary", "PyTorch: "),
    ],
)
def test_what_is_no_sample(operation, reason):
    """Two seeds show random results, even where the database seeds the operation itself."""
    kind, text = run(Ticket(operation, "f16", 0))
    assert kind == "skipped" and reason in facts(text).why


def test_an_index_beyond_the_samples():
    with pytest.raises(NoSampleError, match="no more samples"):
        draw(Ticket("add", "f16", 10_000))


def test_operations_are_those_that_do_not_write_in_place():
    names = set(opinfo_samples.operations())
    assert {"add", "__getitem__", "nn.functional.gelu"} <= names
    assert not {"resize_", "resize_as_", "empty_like"} & names


def test_exact_results_are_in_float64():
    """Results are in float64 even where a type is an argument; complex numbers are pairs."""
    truth = expected(draw(Ticket("softmax.with_dtype", "f16", 0)))
    assert truth.exact[0].dtype == torch.float64
    truth = expected(draw(Ticket("fft.fft", "f32", 0)))
    assert truth.typed[0].dtype == torch.float32 and truth.typed[0].shape[-1] == 2
    assert truth.exact[0].dtype == torch.float64


def test_a_number_beyond_the_type_allows_no_error():
    """Such numbers occur as results of nan_to_num in float64; numbers within the range are unchanged."""
    one, huge = torch.ones(1).half(), torch.full((1,), 1e300, dtype=torch.float64)
    assert torch.equal(opinfo_samples._in_range(huge, one), torch.full_like(huge, torch.inf))
    assert torch.equal(opinfo_samples._in_range(one.double(), one), one.double())


# Special numbers.

#: The number of operations on elements and reductions, counted here so that collection does not import the database.
SPECIAL = 230


@functools.cache
def special() -> list[str]:
    """The names of the operations on elements, and of the reductions."""
    from torch.testing._internal.opinfo.core import BinaryUfuncInfo, ReductionOpInfo, UnaryUfuncInfo

    kinds = UnaryUfuncInfo | BinaryUfuncInfo | ReductionOpInfo
    return [name for name, operation in opinfo_samples.operations().items() if isinstance(operation, kinds)]


def test_all_special_operations_run():
    assert len(special()) == SPECIAL


@pytest.mark.sampled(16)
@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize("seed", range(SPECIAL))
def test_special_numbers_give_what_pytorch_gives(seed, dtype):
    """NaN, infinities, zeros of both signs, subnormal and largest numbers, in all combinations."""
    name = special()[seed]
    kind, text = run(Ticket(name, dtype, 0, "special"))
    assert kind in ("right", "refused", "skipped"), f"{name}: {facts(text).why}"


def test_special_numbers_are_in_all_combinations():
    x, y = draw(Ticket("add", "f16", 0, "special")).tensors
    pairs = {(str(a), str(b)) for a, b in zip(x.tolist(), y.tolist(), strict=True)}
    assert {("nan", "inf"), ("-0.0", "65504.0"), ("inf", "-inf"), ("1.0", "nan")} <= pairs
    assert draw(Ticket("sum", "f16", 1, "special")).values == "reduction"
    with pytest.raises(NoSampleError, match="no floating-point input"):
        draw(Ticket("cat", "f16", 0, "special"))


@pytest.mark.parametrize("got", [[0.0, 1.0], [-0.0, float("nan")], [-0.0, 1.5]])
def test_special_numbers_are_compared_by_sign_and_kind(got):
    wanted = torch.tensor([-0.0, 1.0])
    accepted = [[wanted]]
    assert not special_values.complaint("add", "pointwise", [wanted.clone()], accepted)
    assert "instead of" in special_values.complaint("add", "pointwise", [torch.tensor(got)], accepted)


# Outcomes.


@pytest.mark.parametrize("operation, where", [("add", "device"), ("T", "no work"), ("sort", "host")])
def test_a_right_sample_tells_where_it_ran(operation, where):
    kind, text = run(Ticket(operation, "f16", 0))
    assert (kind, facts(text).where) == ("right", where)


def _refuse(*_: object) -> None:
    raise spyre_mlir.CompileError("The operation is not one of the device.")


def _raise(*_: object) -> None:
    raise KeyError("planted")


class _Wrong:
    """A program whose numbers are off by a half."""

    steps, bundles, remarks, is_one_bundle = (SimpleNamespace(float_operations=1),), ("bundle",), (), True

    def __call__(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y + 0.5


@pytest.mark.parametrize(
    "compiled, kind, why",
    [
        (_refuse, "refused", "The operation is not one of the device."),
        (_raise, "internal", "KeyError: 'planted'"),
        (lambda *_: _Wrong(), "wrong", "error 0.5"),
    ],
)
def test_a_planted_fault_is_seen(monkeypatch, compiled, kind, why):
    monkeypatch.setattr(spyre_mlir, "compile", compiled)
    outcome, text = run(Ticket("add", "f16", 0))
    assert outcome == kind and why in facts(text).why
    assert facts(text).is_floating


def test_a_sample_that_kills_its_worker_is_a_crash_and_the_rest_goes_on(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(opinfo_samples, "run", dying)
    lines = tmp_path / "lines"
    metrics = opinfo.opinfo("abs,neg", "f16", samples=1, jobs=1, lines=str(lines))
    assert (
        metrics["crash_samples"] == 1 and metrics["f16.right"] == 1 and metrics["f16_not_right_ratio"] == 0.5
    )
    assert "abs f16 0: crash: SIGSEGV" in capsys.readouterr().err
    assert [json.loads(line)["outcome"] for line in lines.read_text().splitlines()] == ["crash", "right"]


@pytest.mark.parametrize(
    "name, arguments, indices",
    [
        ("sort", (0, True), (2, 0, 1)),
        ("argsort", (), (0, 1, 2)),
        ("topk", (2, 0), (2, 0)),
        ("kthvalue", (2,), (1,)),
    ],
)
def test_a_stable_sort_has_the_arguments_of_the_operation(name, arguments, indices):
    """A stable sort has the values of PyTorch."""
    x = torch.tensor([1, 1, 2])
    stable, own = opinfo_samples._STABLE[name](x, *arguments), getattr(torch, name)(x, *arguments)
    if name != "argsort":
        assert torch.equal(own[0], stable[0])
        stable = stable[1]
    assert tuple(stable.reshape(-1)) == indices


@pytest.mark.parametrize("indices, is_right", [((1, 0, 2), True), ((0, 1, 2), True), ((2, 0, 1), False)])
def test_either_order_of_equal_values_is_right(indices, is_right):
    """PyTorch's order, here reversed, and the order of a stable sort; an index of another value is wrong."""
    x = torch.tensor([1, 1, 2])
    _, structure = pytree.tree_flatten((x, (), {}))
    sample = Sample("argsort", lambda x: torch.tensor([1, 0, 2]), (x,), (torch.Tensor,), structure)
    truth = expected(sample)
    sample = replace(sample, results=tuple(truth.typed[:1]))
    assert (opinfo_samples._complaint(sample, [torch.tensor(indices), x], truth) == "") == is_right


# Tables.

ROWS = [
    Row("f16", "add", 0, "right", "device"),
    Row("f16", "add", 1, "refused", "", "A | of\ntwo lines"),
    Row("f16", "sin", 0, "right", "host", "no device operation"),
    Row("f16", "T", 0, "right", "no work", is_floating=False),
    Row("f16", "argmax", 0, "right", "device", is_floating=False),
    Row("f16", "rand", 0, "skipped", "", "random results"),
    Row("i64", "add", 0, "wrong", "host", "1 of 2 elements differ", is_floating=False),
]


def test_metrics_of_rows():
    """Samples that PyTorch cannot run do not count; samples without work do not count as device or host."""
    metrics = opinfo.summarised(ROWS)
    assert metrics["f16.samples"] == 5 and metrics["f16.right"] == 4 and metrics["f16.skipped"] == 1
    assert metrics["f16_not_right_ratio"] == pytest.approx(1 / 5)
    assert metrics["f16_floating_not_on_device_alone_ratio"] == pytest.approx(2 / 3)
    assert "i64_floating_not_on_device_alone_ratio" not in metrics
    assert (metrics["wrong_samples"], metrics["internal_samples"], metrics["i64_not_right_ratio"]) == (
        1,
        0,
        1,
    )
    assert metrics.notes == (
        "1 samples do not count: random results",
        "add i64 0: wrong: 1 of 2 elements differ",
    )


def test_without_samples_no_target_is_met():
    """A ratio of nothing is not shown."""
    metrics = opinfo.summarised([Row("f16", "rand", 0, "skipped", "", "random results")])
    assert not [name for name in metrics if name.endswith("_ratio")]


def test_the_page_has_a_row_per_type_and_per_operation():
    text = opinfo.page(ROWS).splitlines()
    assert text[0].startswith("# ")
    assert text[-9:] == [
        "| f16 | 5 | 80.0% | 2 | 0 | 1 | 1 |",
        "| i64 | 1 | 0.0% | 0 | 0 | 0 | 0 |",
        "",
        "| operation | f16 | i64 | where | why not |",
        "|---|---|---|---|---|",
        "| `T` | 1/1 |  | no work |  |",
        "| `add` | 1/2 | 0/1 | device | refused: A / of |",
        "| `argmax` | 1/1 |  | device |  |",
        "| `sin` | 1/1 |  | host | no device operation |",
    ]


@pytest.mark.exhaustive
def test_files_are_the_same_with_any_number_of_workers(capsys, tmp_path):
    texts = []
    for jobs in ("1", "2"):
        files = [tmp_path / f"{name}{jobs}" for name in ("table", "lines")]
        options = ["--ops", "neg,T,arange,add", "--dtype", "f16,i64", "--samples", "2", "--jobs", jobs]
        options += ["--table", str(files[0]), "--lines", str(files[1])]
        assert command.main(["opinfo", *options]) == 0
        texts.append([file.read_text() for file in files])
    assert texts[0] == texts[1]
    assert "| `add` | 2/2 | 2/2 |" in texts[0][0]
    shown = capsys.readouterr().out
    assert "4 samples do not count: no tensor" in shown
    assert "| wrong_samples " in shown and "| i64 " in shown


@pytest.mark.parametrize(
    "option, value, message",
    [
        ("--ops", "add,no_such_operation", "has no operation 'no_such_operation'"),
        ("--dtype", "f16,f8", "There is no type 'f8'; there are f16, f32, bf16, i64, bool."),
    ],
)
def test_what_is_unknown_is_a_sentence(capsys, option, value, message):
    assert command.main(["opinfo", option, value]) == 1
    assert message in capsys.readouterr().err
