# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A finding: what makes a program slow, and a change that a trial has shown to make it faster."""

from __future__ import annotations

from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class ProgramFinding:
    """A problem of a program, its cause, where it is, and a change with the time that it saves.

    Attributes:
        problem: What is slow, as a sentence.
        cause: Why, as a sentence.
        module: The path in the model, such as ``layers.3.attn``; empty if it is unknown.
        location: The line of the source, ``model.py:12:5``; empty if it is unknown.
        change: Text to copy: an option of ``compile``, or the line of the model that is to be another.
        before_us: The predicted microseconds of the whole program without the change.
        after_us: Those with this very change.
    """

    problem: str
    cause: str
    module: str
    location: str
    change: str
    before_us: float
    after_us: float

    @property
    def saved_us(self) -> float:
        """The microseconds that the change saves."""
        return self.before_us - self.after_us
