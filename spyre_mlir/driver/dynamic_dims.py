# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dims of many sizes, and the proof that a model may be padded from one size to another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spyre_mlir.dialects import context as new_context
from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass
from spyre_mlir.tensors.device_state import DeviceState

if TYPE_CHECKING:
    from spyre_mlir.frontend.dynamic_inputs import DynamicInputs
    from spyre_mlir.frontend.importer import Imported


@dataclass(frozen=True)
class DynamicDim:
    """A dim of ``granularity``, ``2 * granularity``, .. up to ``max_value`` positions."""

    name: str
    granularity: int
    max_value: int

    @classmethod
    def of(cls, name: str, pair: Any) -> DynamicDim:
        """Create a dim from the pair ``(granularity, max_value)`` of a user; ``CompileError`` for anything else."""
        numbers = list(pair) if isinstance(pair, tuple | list) else []
        if len(numbers) != 2 or not all(type(number) is int and number > 0 for number in numbers):
            raise CompileError(
                f"The dynamic dim '{name}' takes two positive numbers, granularity and largest size, not {pair!r}."
            )
        granularity, max_value = numbers
        if max_value % granularity:
            raise CompileError(
                f"The largest size {max_value} of dim '{name}' is not a multiple of its granularity {granularity}."
            )
        return cls(name, granularity, max_value)

    def bucket(self, size: int) -> int:
        """Round a size up to a multiple of the granularity; ``CompileError`` above ``max_value``."""
        if not 0 < size <= self.max_value:
            raise CompileError(f"Dim '{self.name}' has size {size}, but at most {self.max_value}.")
        return -(-size // self.granularity) * self.granularity

    @property
    def sizes(self) -> range:
        """All sizes that a program can be compiled for."""
        return range(self.granularity, self.max_value + 1, self.granularity)


class PaddingProofs:
    """The sizes at which a model may be padded, with the model at each of them."""

    def __init__(self, model: Any, inputs: DynamicInputs, autocast: Any) -> None:
        self._model, self._inputs, self._autocast = model, inputs, autocast
        self._imports: dict[frozenset[tuple[str, int]], Imported] = {}

    def imported(self, sizes: Mapping[str, int]) -> Imported:
        """Return the model at sizes for which ``prove`` has held."""
        return self._imports[frozenset(sizes.items())]

    def prove(
        self,
        dims: Mapping[str, DynamicDim],
        sizes: Mapping[str, int],
        padded: Mapping[str, int],
        state: DeviceState,
    ) -> bool:
        """Prove that the program of the padded sizes is right for these; ``CompileError`` where it may not be.

        Return False for sizes at which a result is empty: such a result is not one of the device.
        """
        from spyre_mlir.frontend import capture_torch, import_torch
        from spyre_mlir.frontend.module_pairs import DifferentPrograms
        from spyre_mlir.frontend.padding_safety import check_padding_safety

        key = frozenset(sizes.items())
        if key in self._imports:
            return True
        # In one context, so that attributes and types of both modules compare.
        context, imported = new_context(), []
        for dim_sizes in (sizes, padded):
            with self._inputs.at_sizes(dim_sizes) as example:
                captured = capture_torch(self._model, example, self._autocast)
                imported.append(import_torch(captured, example, context=context, state=state))
        if len(imported[0].signature.results) < len(imported[1].signature.results):
            return False
        try:
            check_padding_safety(*imported)
        except DifferentPrograms as error:
            raise CompileError(_refusal(dims, sizes, padded, error.reason), error.location) from None
        self._imports[key] = imported[0]
        return True


def _refusal(
    dims: Mapping[str, DynamicDim], sizes: Mapping[str, int], padded: Mapping[str, int], reason: str
) -> str:
    """Return the message for a size that is between two multiples, and cannot be padded for a reason."""
    dim = next(dim for name, dim in dims.items() if sizes[name] != padded[name])
    return (
        f"Dim '{dim.name}' has size {sizes[dim.name]}, which is not a multiple of its granularity "
        f"{dim.granularity} (at most {dim.max_value}), and it cannot be padded: {reason}."
    )
