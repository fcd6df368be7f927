# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations on tensors of the device that the device does not run: PyTorch runs them on the host."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch.nn.utils import rnn
from torch.utils import _pytree as pytree

import spyre_mlir.frontend  # noqa: F401  registers the device
from spyre_mlir import CompileError, FallbackWarning
from spyre_mlir.frontend import host_operations

Function = Callable[[torch.Tensor], Any]


@pytest.fixture(autouse=True)
def _silent() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def numbers(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.arange(24).reshape(4, 6) % 7 - 3).to(dtype)


def same(result: Any, expected: Any) -> None:
    """Compare results of an operation: dtypes, sizes, strides and numbers."""
    pairs = zip(pytree.tree_leaves(result), pytree.tree_leaves(expected), strict=True)
    for one, other in pairs:
        if not isinstance(other, torch.Tensor):
            assert one == other
            continue
        assert one.device.type == "spyre" and (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.stride() == other.stride() and one.storage_offset() == other.storage_offset()
        torch.testing.assert_close(one.cpu(), other, equal_nan=True)


def written_through_another_dtype(x: torch.Tensor) -> Any:
    bits = x.view(torch.int32)
    bits.add_(1)
    return x, bits


def resized(x: torch.Tensor) -> Any:
    row = x[1]
    x.resize_(2, 3).zero_()
    return x, row


def statistics(x: torch.Tensor) -> Any:
    mean, var = x.new_zeros(6), x.new_ones(6)
    return torch.nn.functional.batch_norm(x, mean, var, training=True), mean, var


def packed(x: torch.Tensor) -> Any:
    """Sequences of a batch, with lengths on the host as PyTorch asks for."""
    sequences = rnn.pack_padded_sequence(x.view(4, 3, 2), torch.tensor([3, 2, 2, 1]), batch_first=True)
    return sequences.data, rnn.pad_packed_sequence(sequences, batch_first=True)[0]


def ctc(x: torch.Tensor) -> torch.Tensor:
    targets = torch.tensor([[1], [2]]).to(x.device)
    scores = x.float().view(4, 2, 3).log_softmax(-1)
    return torch.nn.functional.ctc_loss(scores, targets, torch.tensor([4, 3]), torch.tensor([1, 1]))


CASES: dict[str, Function] = {
    "packed sequences": packed,
    "lengths on the host": ctc,
    "packed sequences of a graph": lambda x: torch.compile(packed)(x),
    "sizes of values": lambda x: (x.nonzero(), x[x > 0], x.unique(), torch.where(x > 1)),
    "another dtype": lambda x: (x.double().sum(), x.to(torch.uint8) + 1, x.short().T.contiguous()),
    "complex numbers": lambda x: torch.fft.ifft(x).real,
    "a complex view": lambda x: torch.view_as_complex(x.view(4, 3, 2)).mul_(2j).real,
    "bits": written_through_another_dtype,
    "resized": resized,
    "out": lambda x: torch.add(x, x, out=x.new_empty(0)),
    "out of another type": lambda x: torch.gt(x, 0, out=x),
    "no elements": lambda x: (x[:0].sum(), torch.cat([x[:0], x]), x[:, :0] @ x[:, :0].T, x[:0] + 1),
    "batch norm": statistics,
    "max pool": lambda x: torch.nn.functional.max_pool2d(x.view(1, 1, 4, 6), 2, return_indices=True),
    "large integers": lambda x: (x.long() + 2**40, x.long().add_(2**40).sub_(2**40) + 1),
    "indices": lambda x: (x[torch.tensor([0, 2])], x.tensor_split(torch.tensor([1, 2]).to(x.device))),
    "writes to an expanded view": lambda x: x[:1].expand(4, 6).masked_fill_(x > 9, 1),
    "a copy of shared elements to themselves": lambda x: x[:1].expand(4, 6).copy_(x[:1].expand(4, 6)),
    "a view that the host makes": lambda x: cast(Any, torch)._neg_view(x) + 0,
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_pytorch(name: str) -> None:
    same(CASES[name](numbers().to("spyre")), CASES[name](numbers()))


ERRORS: dict[str, Function] = {
    "sizes": lambda x: x + x[:, :5],
    "an index": lambda x: x.index_select(0, torch.tensor([9]).to(x.device)),
    "a type": lambda x: x.int().add_(1.5),
    "a reduction of nothing": lambda x: x[:0].max(),
    "an item": lambda x: x.item(),
    "a copy to a part of its source": lambda x: x.flatten()[:3].copy_(x.flatten()[1:4]),
    "a write to a part of an operand": lambda x: x.flatten()[:3].add_(x.flatten()[1:4]),
    "a write to shared elements": lambda x: x[:1].expand(4, 6).add_(1),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_those_of_pytorch(name: str) -> None:
    with pytest.raises(Exception) as expected:
        ERRORS[name](numbers())
    with pytest.raises(expected.type) as raised:
        ERRORS[name](numbers().to("spyre"))
    assert str(raised.value) == str(expected.value)


def test_an_operation_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_operations, "reasons", {})
    x = numbers().to("spyre")
    sentence = "aten.nonzero.default runs on the host: The sizes of its results depend on the values"
    with pytest.warns(FallbackWarning, match=sentence) as record:
        x.nonzero()
        x.nonzero()
    assert len(record) == 1 and list(host_operations.reasons) == ["aten.nonzero.default"]


def test_dtypes_without_a_form_are_storage() -> None:
    for dtype in (torch.uint8, torch.int16, torch.uint16):
        x = torch.arange(6).to(dtype)
        moved = x.to("spyre").view(2, 3).T
        same(moved, x.view(2, 3).T)
        assert repr(moved) == repr(x.view(2, 3).T)[:-1] + ", device='spyre:0')"
        assert torch.equal(copy.deepcopy(moved).cpu(), x.view(2, 3).T)
    for dtype in (torch.float64, torch.complex64):
        with pytest.raises(CompileError, match="is not supported by the device"):
            torch.zeros(3, dtype=dtype).to("spyre")


def test_graphs_take_tensors_without_a_layout() -> None:
    torch._dynamo.reset()

    @torch.compile
    def graph(keys: torch.Tensor, x: torch.Tensor, counts: torch.Tensor) -> Any:
        counts += 1
        return torch.cat([keys, x]), counts * 2, keys + 1, torch.histc(x.int(), 3, 0, 2)

    results = []
    for device in ("spyre", "cpu"):
        keys, counts = torch.empty(0, 6, device=device), torch.arange(5, dtype=torch.uint8, device=device)
        x = numbers().to(device)
        function: Any = graph if device == "spyre" else None
        if function is None:
            counts += 1
            results.append(
                (torch.cat([keys, x]), counts * 2, keys + 1, torch.histc(x, 3, 0, 2).int(), counts)
            )
        else:
            results.append((*function(keys, x, counts), counts))
    same(*results)


def test_constants_of_a_graph_are_on_the_device() -> None:
    torch._dynamo.reset()
    x = numbers().to("spyre")

    @torch.compile(fullgraph=True)
    def graph(x: torch.Tensor) -> Any:
        size = torch.tensor(3).to(x.device)
        return torch.cat([torch.tensor([], dtype=x.dtype, device=x.device), x.flatten()]) + size

    same(graph(x), numbers().flatten() + 3)


@pytest.mark.parametrize("norm_first", (True, False))
def test_layers_of_a_transformer_run_on_the_device(norm_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_operations, "reasons", {})
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=norm_first).half().eval()
    on_device, x = copy.deepcopy(layer).to("spyre"), torch.randn(2, 6, 32).half()
    masked, causal = torch.zeros(2, 6, dtype=torch.bool), torch.ones(6, 6, dtype=torch.bool).triu(1)
    masked[0, 4:] = True
    for masks in ({}, {"src_key_padding_mask": masked, "src_mask": causal}):
        moved = {name: mask.to("spyre") for name, mask in masks.items()}
        with torch.no_grad():
            result, expected = on_device(x.to("spyre"), **moved), layer(x, **masks)
        torch.testing.assert_close(result.cpu(), expected, rtol=1e-2, atol=1e-2)
    assert not host_operations.reasons


def test_an_encoder_of_padded_batches_runs_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """For masks with the padding at the end, PyTorch makes nested tensors on devices that have them."""
    monkeypatch.setattr(host_operations, "reasons", {})
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2).half().eval()
    on_device, x = copy.deepcopy(encoder).to("spyre"), torch.randn(2, 6, 32).half()
    masked = torch.zeros(2, 6, dtype=torch.bool)
    masked[0, 4:] = True
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            result = on_device(x.to("spyre"), src_key_padding_mask=masked.to("spyre")).cpu()
            expected = encoder(x, src_key_padding_mask=masked)
        torch.testing.assert_close(result[~masked], expected[~masked], rtol=1e-2, atol=1e-2)
    assert not host_operations.reasons


def test_graphs_that_are_not_programs_run_operation_by_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_operations, "reasons", {})
    torch._dynamo.reset()

    def graph(x: torch.Tensor) -> Any:
        parts = torch.segment_reduce(x, "max", lengths=torch.tensor([1, 3], device=x.device))
        return parts, x.view(torch.int32), torch.view_as_complex((x + 1).view(4, 3, 2)), x + 1

    same(torch.compile(graph)(numbers().to("spyre")), graph(numbers()))


def test_graphs_with_random_numbers_of_computed_chances_run_operation_by_operation() -> None:
    torch._dynamo.reset()

    def graph(x: torch.Tensor) -> torch.Tensor:
        return torch.multinomial(torch.softmax(x, -1), 2)

    results = []
    for function, device in ((torch.compile(graph), "spyre"), (graph, "cpu")):
        torch.manual_seed(0)
        results.append(function(torch.arange(12.0).reshape(2, 6).to(device)))
    same(*results)


def test_convolutions_keep_channels_last() -> None:
    torch._dynamo.reset()
    x = torch.randn(2, 4, 5, 6).half().to(memory_format=torch.channels_last)
    convolution = torch.nn.Conv2d(4, 4, 3).half()
    expected, on_device = convolution(x), copy.deepcopy(convolution).to("spyre")
    for function in (on_device, torch.compile(on_device)):
        with torch.no_grad():
            result = function(x.to("spyre"))
        assert (
            result.is_contiguous(memory_format=torch.channels_last) and result.stride() == expected.stride()
        )
        torch.testing.assert_close(result.cpu(), expected, rtol=1e-2, atol=1e-2)
