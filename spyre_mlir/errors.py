"""The one exception that users see: a sentence, and where in their source it holds."""

from __future__ import annotations


class CompileError(Exception):
    """A program, an option or a file that cannot be compiled or run.

    ``message`` is one sentence that says what is wrong and what to do; ``location`` is
    ``file:line:col`` of the user's source, or empty where there is none. Tools print it as
    ``location: error: message`` and leave with status 1.
    """

    def __init__(self, message: str, location: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.location = location

    def __str__(self) -> str:
        return f"{self.location}: error: {self.message}" if self.location else f"error: {self.message}"
