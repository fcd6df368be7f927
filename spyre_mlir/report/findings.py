# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A finding: a reason why a program is slow, with a change that a trial has shown to make it faster."""

from __future__ import annotations

from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class ProgramFinding:
    """A problem of a program, its cause and place, and a change with the time that it saves.

    Attributes:
        problem: The problem, as a sentence.
        cause: The cause of the problem, as a sentence.
        module: The path in the model, such as ``layers.3.attn``; empty if it is unknown.
        location: The line of the source, ``model.py:12:5``; empty if it is unknown.
        change: Text to copy: an option of ``compile``, or the line of the model to change.
        before_us: The predicted microseconds of the whole program without the change.
        after_us: The predicted microseconds of the whole program with the change.
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
