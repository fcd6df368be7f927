"""What the native parser does not survive in the text of a module, told before it sees it.

It is recursive, without a limit of its own: regions, attributes, types and affine expressions nest by brackets, and by
aliases, for an alias of an alias is inside of what names it; so do minus signs in a row. It takes the iterator types
of a ``linalg.generic`` for strings or enums without a look. What else ends it is found out in a process of its own.
"""

from __future__ import annotations

import faulthandler
import os
import re
import resource
import signal
from collections.abc import Callable

from spyre_mlir.errors import CompileError

#: Levels; a module of the compiler itself has about ten, the locations of a deep model a hundred.
LIMIT = 256

#: Seconds of the processor that reading may take; a million lines take less.
SECONDS = 5
_WALL_SECONDS = 12 * SECONDS

#: Brackets that an alias may stand for, all aliases in it written out.
EXPANDED_LIMIT = 1 << 22

_SKIPPED = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|->|[<>]=')
_BRACKETS = {ord(character): None for character in map(chr, range(128))}
_BRACKETS |= dict.fromkeys(map(ord, "[({<"), "(") | dict.fromkeys(map(ord, "])}>"), ")")
_SIGNS = re.compile(rf"(?:-\s*){{{LIMIT + 1}}}")
_ITERATORS = re.compile(r"\biterator_types *= *(\[[^\]]*\]?|[^\[]\S*)")
_ITERATOR = r'\s*(?:"\w*"|#linalg\.iterator_type<\w+>)\s*'
_ITERATOR_LIST = re.compile(rf"\[(?:\s*|{_ITERATOR}(?:,{_ITERATOR})*)\]$|[#@]")
_DEFINITION = re.compile(r"^([#!][\w.$-]+)[ \t]*=", re.MULTILINE)
_IN_DEFINITION = re.compile(
    r"(?P<bracket>[\[\](){}<>])|(?P<alias>[#!][A-Za-z_][\w$]*)|(?P<end>[:=]?[ \t]*\n)"
)


def check_text(text: str, source: str) -> None:
    """Raise ``CompileError`` at ``source:line:col`` for text that is not for the parser."""
    plain = _SKIPPED.sub("", text)
    if _is_deep(plain) or _SIGNS.search(plain) or _deep_alias(plain) is not None:
        plain = _SKIPPED.sub(lambda match: " " * len(match[0]), text)
        message = f"The text nests deeper than {LIMIT} levels here; write it with fewer levels."
        raise CompileError(message, _location(text, _place(plain), source))
    for match in _ITERATORS.finditer(text):
        if not _ITERATOR_LIST.match(match[1]):
            message = 'The iterator types of an operation are a list like ["parallel", "reduction"].'
            raise CompileError(message, _location(text, match.start(), source))


def check_survived(parse: Callable[[], object], source: str) -> None:
    """Raise ``CompileError`` if reading ends the process, or does not end in ``SECONDS``; a child process tries it."""
    child = os.fork()
    if not child:
        _try(parse)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        late = os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGALRM)
        problem = f"takes more than {SECONDS} s to read" if late else "ends the parser of MLIR"
        raise CompileError(
            f"The text {problem}; it is malformed in a way that has no diagnostic.", f"{source}:1:1"
        )


def _try(parse: Callable[[], object]) -> None:
    """Reads, and ends the process; what is wrong with the text otherwise is for the parent to tell."""
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    resource.setrlimit(resource.RLIMIT_CPU, (int(used) + SECONDS, resource.RLIM_INFINITY))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_WALL_SECONDS)  # a child that waits for a thread of its parent uses no processor
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        parse()
    finally:
        os._exit(0)


def _location(text: str, position: int, source: str) -> str:
    line, column = text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)
    return f"{source}:{line}:{column}"


def _is_deep(plain: str) -> bool:
    """Whether brackets alone nest too deep: each round takes the innermost pairs away."""
    brackets = plain.encode("ascii", "ignore").decode().translate(_BRACKETS)
    for _ in range(LIMIT):
        inner = brackets.replace("()", "")
        if len(inner) == len(brackets):
            break
        brackets = inner
    return brackets.count("(") > LIMIT or "()" in brackets


def _deep_alias(plain: str) -> int | None:
    """Where the definition of an alias is that is too deep or too long once aliases in it are written out."""
    aliases: dict[str, tuple[int, int]] = {}
    for definition in _DEFINITION.finditer(plain):
        deepest, size = aliases[definition[1]] = _extent(plain, definition.end(), aliases)
        if deepest > LIMIT or size > EXPANDED_LIMIT:
            return definition.start()
    return None


def _extent(plain: str, start: int, aliases: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """How deep what stands at ``start`` is, and how many brackets it has, to the end of its last line."""
    deepest, size, depth = 0, 0, 0
    for match in _IN_DEFINITION.finditer(plain, start):
        token = match[0]
        if match.lastgroup == "bracket":
            depth += 1 if token in "[({<" else -1
            deepest, size = max(deepest, depth), size + 1
        elif match.lastgroup == "alias":
            inner, expanded = aliases.get(token, (0, 0))
            deepest, size = max(deepest, depth + inner), size + expanded
        elif size and depth <= 0 and token[0] not in ":=":
            break
    return deepest, size


def _place(plain: str) -> int:
    """Where the text nests too deep."""
    signs, depth, position = _SIGNS.search(plain), 0, _deep_alias(plain)
    if signs is not None:
        position = signs.start()
    for match in re.finditer(r"[\[\](){}<>]", plain):
        depth = depth + 1 if match[0] in "[({<" else max(depth - 1, 0)
        if depth > LIMIT:
            return match.start()
    return position or 0
