# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trials: compile the source of a program again, with another option or with an edit of the model."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from spyre_mlir.findings import Batch, Freeze, Halve, ModelEdit, MovedStick, Remedy, Resize, Untranspose
from spyre_mlir.records import dataclass

_LOGGER = logging.getLogger("spyre_mlir.findings")


@dataclass(frozen=True)
class Trials:
    """The call of ``compile`` that produced a program, with the ``options`` that the caller passed."""

    source: Any
    inputs: Any
    options: Mapping[str, Any]
    is_model: bool
    compile: Callable[..., Any]

    def unchanged(self) -> Any:
        """Compile the program again without a change."""
        return self.program(Remedy("", "", "", "no change", 0.0))

    def program(self, remedy: Remedy) -> Any:
        """Compile the program with a change; return None if the change does not apply or does not compile."""
        options = {**self.options, **remedy.options, "cache": False}
        options = {name: value for name, value in options.items() if value is not None}
        try:
            source, inputs = (self.source, self.inputs) if remedy.edit is None else self._edited(remedy.edit)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return self.compile(source, inputs, **options)
        # The user's model runs with inputs it was not written for; any exception means the change does not apply.
        except Exception as reason:
            _LOGGER.debug("No finding, '%s' cannot be tried: %s", remedy.text, reason)
            return None

    def _edited(self, edit: ModelEdit) -> tuple[Any, Any]:
        from spyre_mlir.frontend import model_edits

        match edit:
            case Resize(size, to):
                return model_edits.resized(self.source, self.inputs, size, to)
            case MovedStick(key, stick_dim):
                return model_edits.with_stick_dim(self.source, self.inputs, key, stick_dim)
            case Untranspose(lines):
                return model_edits.untransposed(self.source, self.inputs, lines)
            case Batch(size, times):
                return model_edits.batched(self.source, self.inputs, size, times)
            case Freeze(keys):
                return model_edits.frozen(self.source, self.inputs, keys)
            case Halve():
                return model_edits.halved(self.source, self.inputs)
