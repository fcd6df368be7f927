# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model as one bundle whose dims follow run-time sizes: compiled at the largest, run at each.

The model is imported at the largest and at the smallest sizes; what differs between the two follows a size
(``frontend/symbolic_modules.py``). At the first call of each other size it is imported once more, because its code may
branch on a size: only if that is the same program does the bundle run it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from spyre_mlir.driver.program import Program
from spyre_mlir.errors import CompileError
from spyre_mlir.target.target import compiling_for

if TYPE_CHECKING:
    from spyre_mlir.frontend.dynamic_inputs import DynamicInputs
    from spyre_mlir.frontend.importer import Imported


class SizeRange(Protocol):
    """The sizes of a dynamic dim; ``dynamic.DynamicDim`` is one."""

    @property
    def granularity(self) -> int: ...

    @property
    def max_value(self) -> int: ...


class SymbolicProgram:
    """The program of a model for all sizes of its dynamic dims: ``program`` is that of the largest."""

    def __init__(
        self,
        model: Any,
        inputs: DynamicInputs,
        dims: Mapping[str, SizeRange],
        compile: Callable[..., Any],
        autocast: Any,
    ) -> None:
        self._model, self._inputs, self._dims, self._autocast = model, inputs, dims, autocast
        self._largest: Imported | None = None
        self._state: Collection[str] = ()
        with inputs.at_sizes(self._sizes("max_value")) as example:
            # The host has no part in one bundle.
            program = compile(model, example, mark=self._mark, fallback=False)
        if not isinstance(program, Program) or not program.is_one_bundle or not program.bundle.manifest.sizes:
            raise CompileError("the program is not one bundle")
        self.program = program

    def at(self, sizes: Mapping[str, int]) -> Program:
        """Return the program at these sizes, called as the model is; ``DifferentPrograms`` where it is another one."""
        # These import torch.
        from spyre_mlir.driver.model_program import bind_inputs
        from spyre_mlir.frontend.symbolic_modules import check_symbolic

        assert self._largest is not None and self._largest.module is not None
        imported = self._largest
        if dict(sizes) != self._sizes("max_value"):
            with compiling_for(self.program.bundle.target):
                imported = self._imported(sizes, self._largest.module.context)
            check_symbolic(imported, self._largest, self._pairs(sizes))
        program = self.program.at(**sizes)
        # Weights and constants have their largest sizes.
        bind_inputs(program, imported.signature)
        return program

    def _mark(self, largest: Imported, state: Collection[str]) -> None:
        """Mark what of the imported model follows a size; ``state`` is what the model keeps on the device."""
        from spyre_mlir.frontend.symbolic_modules import mark_symbolic

        if largest.module is None:
            raise CompileError("the model computes nothing on the device")
        self._state, smallest = state, self._sizes("granularity")
        imported = self._imported(smallest, largest.module.context)
        # The pipeline changes the module, and later sizes are compared with it as it came.
        self._largest = replace(largest, module=largest.module.operation.clone())
        mark_symbolic(imported, largest, self._pairs(smallest))

    def _imported(self, sizes: Mapping[str, int], context: Any) -> Imported:
        from spyre_mlir.frontend import capture_torch, import_torch

        with self._inputs.at_sizes(sizes) as example:
            captured = capture_torch(self._model, example, self._autocast)
            return import_torch(captured, example, context=context, state=self._state)

    def _sizes(self, which: str) -> dict[str, int]:
        return {name: getattr(dim, which) for name, dim in self._dims.items()}

    def _pairs(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        from spyre_mlir.frontend.symbolic_modules import SizePair

        return {
            name: SizePair(dim.granularity, sizes[name], dim.max_value) for name, dim in self._dims.items()
        }
