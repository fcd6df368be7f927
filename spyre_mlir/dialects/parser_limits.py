# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks of a module's text for input that would crash the native parser, to report an error instead.

The parser is recursive without a depth limit. Regions, attributes, types and affine expressions nest by brackets; they
also nest by aliases, because an alias may name another alias; consecutive minus signs nest too. The parser also assumes
without a check that iterator types of a ``linalg.generic`` are strings or enums, and that dims of a transpose are
numbers. Other crashes are detected in a child process.
"""

from __future__ import annotations

import faulthandler
import os
import re
import resource
import signal
from collections.abc import Callable
from functools import partial

from spyre_mlir.errors import CompileError

#: Limit of the nesting depth; a module of the compiler has about ten levels, the locations of a deep model a hundred.
LIMIT = 256

#: Limit of the CPU time of parsing, in seconds; a million lines take less.
SECONDS = 5
_WALL_SECONDS = 12 * SECONDS

#: Limit of the number of brackets of an alias, with all aliases in it expanded.
EXPANDED_LIMIT = 1 << 22

_SKIPPED = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|->|[<>]=')
_BRACKETS = {ord(character): None for character in map(chr, range(128))}
_BRACKETS |= dict.fromkeys(map(ord, "[({<"), "(") | dict.fromkeys(map(ord, "])}>"), ")")
_SIGNS = re.compile(rf"(?:-\s*){{{LIMIT + 1}}}")
_ITERATORS = re.compile(r"\biterator_types *= *(\[[^\]]*\]?|[^\[]\S*)")
_ITERATOR = r'\s*(?:"\w*"|#linalg\.iterator_type<\w+>)\s*'
_ITERATOR_LIST = re.compile(rf"\[(?:\s*|{_ITERATOR}(?:,{_ITERATOR})*)\]$|[#@]")
_DIMS = re.compile(r"\b(?:permutation|dimensions) *= *(?=\[)")
_DIM_LIST = re.compile(r"\[\s*(?:\d+(?:\s*,\s*\d+)*)?\s*\]")
_DEFINITION = re.compile(r"^([#!][\w.$-]+)[ \t]*=", re.MULTILINE)
_IN_DEFINITION = re.compile(
    r"(?P<bracket>[\[\](){}<>])|(?P<alias>[#!][A-Za-z_][\w$]*)|(?P<end>[:=]?[ \t]*\n)"
)


def check_text(text: str, source: str) -> None:
    """Raise ``CompileError`` at ``source:line:col`` for text that would crash the parser."""
    code = _SKIPPED.sub("", text)
    if _is_deep(code) or _SIGNS.search(code) or _deep_alias(code) is not None:
        # Skipped text is replaced by blanks, so that positions remain positions of the text.
        code = _SKIPPED.sub(lambda match: " " * len(match[0]), text)
        message = f"The text nests deeper than {LIMIT} levels here; write it with fewer levels."
        raise CompileError(message, _location(text, _position_of_limit(code), source))
    for match in _ITERATORS.finditer(text):
        if not _ITERATOR_LIST.match(match[1]):
            message = 'The iterator types of an operation are a list like ["parallel", "reduction"].'
            raise CompileError(message, _location(text, match.start(), source))
    for match in _DIMS.finditer(text):
        if not _DIM_LIST.match(text, match.end()):
            message = "The permutation, or the dimensions, of an operation are a list like [1, 0]."
            raise CompileError(message, _location(text, match.start(), source))


def check_survived(
    parse: Callable[[], object],
    location: str,
    subject: str = "text",
    crash_line: Callable[[], int] | None = None,
) -> None:
    """Raise ``CompileError`` if ``parse`` crashes a child process, or does not end in ``SECONDS``.

    ``location`` is ``file:line:col``; ``crash_line`` finds the line of a crash.
    """
    status = _status(parse)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise CompileError(
            f"The {subject} cannot be read safely: the system sets no limits for a process.", location
        )
    if os.WIFSIGNALED(status):
        timed_out = os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGALRM)
        if not timed_out and crash_line is not None:
            location = f"{location.rsplit(':', 2)[0]}:{crash_line()}:1"
        problem = f"takes more than {SECONDS} s to read" if timed_out else "ends the parser of MLIR"
        message = f"The {subject} {problem}; it is malformed in a way that has no diagnostic."
        raise CompileError(message, location)


def line_of_crash(text: str, parse: Callable[[str], object]) -> int:
    """Return the line at which ``parse`` crashes: the last line of the shortest prefix of the text that crashes.

    A verifier sees only a whole text, so its crash does not belong to a line: return the first line that is not blank.
    """
    lines = text.rstrip().splitlines(keepends=True)
    first = next((index for index, line in enumerate(lines) if line.strip()), 0)
    # The parser survives a prefix of ``low`` lines, with an error about the end of the text.
    low, high = first, len(lines)
    while low + 1 < high:
        middle = (low + high) // 2
        status = _status(partial(parse, "".join(lines[:middle])))
        low, high = (low, middle) if os.WIFSIGNALED(status) else (middle, high)
    return high if high < len(lines) else first + 1


def _status(parse: Callable[[], object]) -> int:
    """Return the status of a child process that parses."""
    child = os.fork()
    if not child:
        # Parse in the child process and exit; the parent reports errors of the parser itself.
        status = 1
        try:
            faulthandler.disable()  # no traceback on stderr: the parent reports the crash
            # A crash is one of the expected outcomes, and must not leave a core file.
            lower_limit(resource.RLIMIT_CORE, 0)
            # The limit applies to all CPU time of a process, so the time used so far counts.
            lower_limit(resource.RLIMIT_CPU, int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2])) + SECONDS)
            # A signal handler of the parent is Python code, which does not run during native parsing.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_WALL_SECONDS)  # a child that waits for a thread of its parent uses no processor
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            status = 0
            parse()
        finally:
            os._exit(status)  # without the exit handlers and buffers that the parent has, too
    return os.waitpid(child, 0)[1]


def lower_limit(kind: int, most: int) -> None:
    """Lower the soft limit of this process. The hard limit is kept: a process without privileges cannot raise it."""
    soft, hard = resource.getrlimit(kind)
    limits = [each for each in (most, soft, hard) if each != resource.RLIM_INFINITY]
    resource.setrlimit(kind, (min(limits), hard))


def _location(text: str, position: int, source: str) -> str:
    line, column = text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)
    return f"{source}:{line}:{column}"


def _is_deep(code: str) -> bool:
    """Return whether brackets nest too deeply, not counting aliases."""
    # Each round of replace removes the innermost pairs: this is fast, unlike a loop over characters.
    brackets = code.encode("ascii", "ignore").decode().translate(_BRACKETS)
    for _ in range(LIMIT):
        inner = brackets.replace("()", "")
        if len(inner) == len(brackets):
            break
        brackets = inner
    return brackets.count("(") > LIMIT or "()" in brackets


def _deep_alias(code: str) -> int | None:
    """Return the position of the definition of an alias that is too deep or too long once expanded, or None."""
    aliases: dict[str, tuple[int, int]] = {}
    for definition in _DEFINITION.finditer(code):
        deepest, size = aliases[definition[1]] = _extent(code, definition.end(), aliases)
        if deepest > LIMIT or size > EXPANDED_LIMIT:
            return definition.start()
    return None


def _extent(code: str, start: int, aliases: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """Measure the definition at ``start``: depth and number of its brackets, with aliases expanded."""
    deepest, size, depth = 0, 0, 0
    for match in _IN_DEFINITION.finditer(code, start):
        token = match[0]
        if match.lastgroup == "bracket":
            depth += 1 if token in "[({<" else -1
            deepest, size = max(deepest, depth), size + 1
        elif match.lastgroup == "alias":
            inner, expanded = aliases.get(token, (0, 0))
            deepest, size = max(deepest, depth + inner), size + expanded
        # A definition ends with its line, outside of brackets; a line that ends in ':' or '=' continues.
        elif size and depth <= 0 and token[0] not in ":=":
            break
    return deepest, size


def _position_of_limit(code: str) -> int:
    """Return the position at which the text exceeds a limit."""
    signs, depth, position = _SIGNS.search(code), 0, _deep_alias(code)
    if signs is not None:
        position = signs.start()
    for match in re.finditer(r"[\[\](){}<>]", code):
        depth = depth + 1 if match[0] in "[({<" else max(depth - 1, 0)
        if depth > LIMIT:
            return match.start()
    return position or 0
