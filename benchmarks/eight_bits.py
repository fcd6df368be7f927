# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Linear layers with 8-bit weights: traffic, time, and error against the exact result."""

from __future__ import annotations

from typing import Any

from benchmarks.registry import Metrics, Noted, benchmark

SIZE = 4096

#: Type of the weight, and quantisation of activations.
KINDS = (("fp8", None), ("int8", None), ("fp8", "token"), ("int8", "token"))

COLUMNS = ("read_over_needed", "time_over_bound", "predicted_us", "error_over_rule")


@benchmark(worst_read_over_needed=1.05, worst_time_over_bound=1.75, worst_error_over_rule=1)
def eight_bits(rows: str = "1,512", size: int = SIZE) -> Metrics:
    """A linear layer of 4096 x 4096 in fp8 and int8, with activations of 16 and of 8 bits, run on 32 cores.

    The bound of traffic is the weight once in 8 bits, rows and scales. Allowed is four times the error of PyTorch in
    fp16, or a thousandth of the largest number, both against float64.
    """
    metrics: dict[str, float] = {}
    for kind, activations in KINDS:
        for count in map(int, rows.split(",")):
            name = f"{kind}{'_both' if activations else ''}_{count}"
            for column, value in _measured(kind, activations, count, size).items():
                metrics[f"{name}.{column}"] = value
            print(name, {key: round(metrics[f"{name}.{key}"], 3) for key in COLUMNS}, flush=True)
    for column in ("read_over_needed", "time_over_bound", "error_over_rule"):
        metrics[f"worst_{column}"] = max(
            value for key, value in metrics.items() if key.endswith(f".{column}")
        )
    return Noted(metrics, [], COLUMNS)


def _measured(kind: str, activations: Any, rows: int, size: int) -> dict[str, float]:
    """Return the figures of one layer."""
    import torch

    import spyre_mlir

    generator = torch.Generator().manual_seed(0)
    weight = torch.randn((size, size), generator=generator) / 64
    dtype = {"fp8": torch.float8_e4m3fn, "int8": torch.int8}[kind]
    largest = 448 if kind == "fp8" else 127
    scale = weight.abs().amax(1, keepdim=True) / largest
    codes = torch.round(weight / scale).to(dtype) if kind == "int8" else (weight / scale).to(dtype)
    layer = spyre_mlir.EightBitLinear(codes, scale, None, activations)
    x = torch.randn((rows, size), generator=generator).half()
    program = spyre_mlir.compile(layer, (x,), fallback=False)
    result, of_torch, exact = program(x).double(), layer(x).double(), _exact(layer, x)
    needed = codes.numel() + 2 * x.numel() + 4 * size
    rule = max(4 * (of_torch - exact).abs().max().item(), 1e-3 * exact.abs().max().item())
    predicted, bound = program.metrics()["predicted_us"], program.metrics()["bound_us"]
    return {
        "read_over_needed": program.traffic().read_bytes / needed,
        "time_over_bound": predicted / bound,
        "predicted_us": predicted,
        "error_over_rule": (result - exact).abs().max().item() / rule,
    }


def _exact(layer: Any, x: Any) -> Any:
    """Return the result of a layer in float64, from the codes that it multiplies."""
    import torch

    weight = layer.weight.double() * layer.weight_scale.double()
    if layer.activations is None:
        return x.double() @ weight.t()
    largest = 448 if layer.weight.dtype == torch.float8_e4m3fn else 127
    scale = x.float().abs().amax(-1, keepdim=True) / largest
    codes = x.float() / scale
    codes = torch.round(codes) if largest == 127 else codes.to(layer.weight.dtype)
    return codes.double() @ weight.t() * scale.double()
