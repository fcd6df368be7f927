# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A finding: what makes a program slow, and a change that a trial has shown to make it faster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProgramFinding:
    """A problem of a program, its cause, where it is, and a change with the time that it saves.

    ``problem`` and ``cause`` are a sentence each. ``module`` is the path in the model, such as ``layers.3.attn``, and
    ``location`` the line of the source, ``model.py:12:5``; either is empty if it is unknown. ``change`` is text to
    copy: an option of ``compile``, or the line of the model that is to be another. ``before_us`` and ``after_us`` are
    the predicted microseconds of the whole program without and with this very change.
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
