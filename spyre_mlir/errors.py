"""The exceptions and the warnings that users see."""

from __future__ import annotations


class CompileError(Exception):
    """A program, an option or a file that cannot be compiled or run.

    ``message`` is one sentence that says what is wrong and what to do; ``location`` is
    ``file:line:col`` of the user's source, or empty where there is none. Tools print it as
    ``location: error: message`` and exit with status 1.
    """

    def __init__(self, message: str, location: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.location = location

    def __str__(self) -> str:
        return f"{self.location}: error: {self.message}" if self.location else f"error: {self.message}"


class UncapturedError(CompileError):
    """A model that torch.export does not capture as one graph of static shapes; in pieces it may run."""


class RangeWarning(UserWarning):
    """Numbers of a run left the range of the device's 16-bit format; the text names tensors and replacements."""


class HostWorkWarning(UserWarning):
    """The host runs over 1 % of the floating-point operations of a program; ``compile`` warns once of each."""


class RecompileWarning(UserWarning):
    """A model in pieces has many programs, one for each size or branch; the text names the last piece."""


class Uncached(Exception):
    """Reason why a program has no place in the cache on disk, as the rest of a sentence about the program."""
