# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The numbers of a model on the device against PyTorch on the CPU, module by module.

A copy of the program with the results of all modules as further results runs on the simulator. Its plan may differ from
the program's plan, because a result of the program is a buffer in device memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from spyre_mlir.driver.checking import ModuleComparison, ModuleComparisons, compare
from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass

#: The path of the model itself in tables.
_MODEL = "(model)"


class _WithModules(nn.Module):
    """A model that returns the tensors that its modules return, the last call of each."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.paths: list[str] = []

    def forward(self, *inputs: Any) -> list[Tensor]:
        found: dict[str, Tensor] = {}

        def hook(path: str) -> Callable[..., None]:
            def keep(module: nn.Module, arguments: Any, result: Any) -> None:
                if isinstance(result, Tensor):
                    found.pop(path, None)
                    # A copy, because a later operation may write into the tensor.
                    found[path] = result.clone()

            return keep

        handles = [
            module.register_forward_hook(hook(path or _MODEL)) for path, module in self.model.named_modules()
        ]
        try:
            self.model(*inputs)
        finally:
            for handle in handles:
                handle.remove()
        self.paths = list(found)
        return list(found.values())


@dataclass(frozen=True)
class _ModuleResult:
    """The result of a module, as an array of the host."""

    name: str
    host_shape: tuple[int, ...]
    host_dtype: str
    kind: str = "result"


def module_comparisons(
    model: Any, inputs: Sequence[Any], numerics: str, compile_model: Callable[..., Any]
) -> ModuleComparisons:
    """Compile the model with the results of its modules, run it, and compare with PyTorch on the CPU."""
    if not isinstance(model, nn.Module):
        raise CompileError("The modules of a model are compared, so compare takes a torch.nn.Module.")
    wrapped = _WithModules(model).eval()
    with torch.no_grad():
        references = wrapped(*inputs)
        paths = list(wrapped.paths)
        outputs = compile_model(wrapped, tuple(inputs))(*inputs)
    found = []
    for path, output, reference in zip(paths, outputs, references, strict=True):
        dtype = str(reference.dtype).removeprefix("torch.")
        value = _ModuleResult(path, tuple(reference.shape), dtype)
        ours, wanted = (each.detach().cpu().double().numpy() for each in (output, reference))
        (comparison,) = compare([value], [ours], [wanted], numerics)
        largest = float(reference.abs().max()) if reference.numel() else 0.0
        ulp = 0.0
        if reference.is_floating_point() and largest and math.isfinite(largest):
            ulp = comparison.error / (
                torch.finfo(reference.dtype).eps * 2.0 ** math.floor(math.log2(largest))
            )
        found.append(ModuleComparison(path, comparison.error, comparison.bound, comparison.measure, ulp=ulp))
    return ModuleComparisons(found)
