# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operator database on tensors of the device: comparisons, detected faults, and right samples."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("expecttest", reason="PyTorch's operator database imports it")

import opinfo_on_device
from opinfo_on_device import DeviceTicket, run
from opinfo_samples import Sample, Ticket, draw, facts
from torch import Tensor
from torch.utils import _pytree as pytree

from benchmarks import __main__ as command
from benchmarks import opinfo
from benchmarks.opinfo import Row

#: Samples of each kind, and where they run.
RIGHT = {
    ("add", "call"): "device",
    ("T", "call"): "no work",
    ("chunk", "call"): "no work",
    ("bernoulli", "call"): "device",
    ("add", "in-place"): "device",
    ("softmax", "out"): "device",
    ("softmax", "0-d"): "device",
    ("nn.Linear", "module"): "",
}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield


@pytest.mark.parametrize(("name", "kind"), RIGHT)
def test_samples_are_right(name: str, kind: str):
    outcome, text = run(DeviceTicket(name, "f32", 0, "eager", kind))
    assert (outcome, facts(text).why, facts(text).where) == ("right", "", RIGHT[name, kind])


@pytest.mark.parametrize("name", ["add", "split", "nn.functional.gelu"])
def test_compiled_samples_are_right(name: str):
    outcome, text = run(DeviceTicket(name, "f16", 0, "compiled"))
    assert (outcome, facts(text).why) == ("right", "")


def test_error_inputs_raise_errors_of_their_class():
    outcomes = [run(DeviceTicket("diag", "f32", index, "eager", "errors"))[0] for index in range(2)]
    assert outcomes == ["right", "right"]


def planted(function: Callable[..., Any], of_device: Callable[..., Any]) -> tuple[str, str]:
    """The outcome of a sample of one tensor whose function is another one on the device."""

    def either(x: Tensor) -> Any:
        return (of_device if x.device.type == "spyre" else function)(x)

    _, structure = pytree.tree_flatten((torch.ones(1), (), {}))
    sample = Sample("planted", either, (torch.arange(1.0, 7).reshape(2, 3),), (Tensor,), structure)
    truth = opinfo_on_device._expected(sample)
    return opinfo_on_device._compared(replace(sample, results=(truth.typed[0],)), truth, "eager")


FAULTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "numbers: ": (lambda x: x + 1, lambda x: x + 1.5),
    "strides: (3, 1) instead of (1, 2)": (lambda x: (x.t() + 1).t().t(), lambda x: (x + 1).t().contiguous()),
    "aliasing: a write to result 0 changes ['result 0'] instead of ['result 0', 'input 0']": (
        lambda x: x.view(2, 3),
        lambda x: x.clone(),
    ),
    "device: cpu": (lambda x: x + 1, lambda x: (x + 1).cpu()),
}


@pytest.mark.parametrize("why", FAULTS)
def test_a_planted_fault_is_seen(why: str):
    function, of_device = FAULTS[why]
    assert planted(function, function) == ("right", "")
    outcome, text = planted(function, of_device)
    assert outcome == "wrong" and text.startswith(
        why.replace("(3, 1) instead of (1, 2)", "(2, 1) instead of (1, 3)")
    )


def test_out_has_the_results_of_the_call():
    sample = opinfo_on_device._with_out(draw(Ticket("add", "f32", 1)))
    inputs = [x.clone() for x in sample.tensors]
    result = opinfo_on_device._cpu_call(sample, inputs)
    assert len(inputs) == 3 and result.data_ptr() == inputs[2].data_ptr()
    torch.testing.assert_close(result, inputs[0] + inputs[1], atol=2.0, rtol=2.0)


def test_kinds_that_an_operation_does_not_have():
    kinds = ("call", "in-place", "out", "module")
    tickets = list(opinfo_on_device.tickets(["T", "nn.Linear"], ["f32"], 1, "eager", kinds))
    assert [(ticket.operation, ticket.kind) for ticket in tickets] == [("T", "call"), ("nn.Linear", "module")]


def test_a_run_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lines = tmp_path / "lines"
    first = Row("f32", "neg", 0, "wrong", "device", "numbers: planted", kind="call")
    lines.write_text(first.json_line())
    metrics = opinfo.opinfo(
        "neg,T", "f32", samples=1, jobs=1, lines=str(lines), device="eager", kinds="call", resume=1
    )
    assert metrics["f32 call.right"] == 1 and metrics["wrong_samples"] == 1
    assert metrics["eager_not_right_ratio"] == 0.5
    assert [json.loads(line)["operation"] for line in lines.read_text().splitlines()] == ["T", "neg"]


def test_the_page_lists_what_is_not_right():
    rows = [
        Row("f16", "add", 0, "right", "device", kind="call"),
        Row("f16", "sub", 0, "wrong", "device", "strides: a | b", kind="call"),
        Row("bool", "any", 0, "skipped", "", "PyTorch: none", kind="out"),
    ]
    text = opinfo.device_page(rows, "eager").splitlines()
    assert (
        "| call | f16 | 2 | 50.0% |" in text
        and text[-1] == "| `sub` | f16 | call | 0 | wrong: strides: a / b |"
    )
    assert opinfo.summarised(rows, "eager")["strides_samples"] == 1


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--device", "gpu", "write 'eager' or 'compiled'"),
        ("--kinds", "call,views", "There is no kind 'views' of a sample"),
    ],
)
def test_what_is_unknown_is_a_sentence(capsys, option: str, value: str, message: str):
    assert command.main(["opinfo", option, value]) == 1
    assert message in capsys.readouterr().err
