# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Upstream's passes: the name of each, the operation it runs on, and its options with their defaults.

The bindings report whether a pass exists, but cannot list all passes. The names are in
``spyre_mlir/pipelines/upstream_passes.txt``, for the version of MLIR that the package depends on.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path

from spyre_mlir.errors import CompileError, listed, suggestion, with_suggestion
from spyre_mlir.mlir import PassManager, ir, register_torch_passes

_MODULE = "builtin.module"
_ANCHOR = re.compile(r"restricted to '([\w.]+)'")


@functools.cache
def names() -> tuple[str, ...]:
    """Return the names of upstream's passes and named pipelines, including those in torch-mlir."""
    return tuple(Path(__file__).with_name("upstream_passes.txt").read_text(encoding="utf-8").split())


def add(manager: PassManager, text: str, name: str) -> None:
    """Add the pass with the given ``text`` to a manager. The bindings raise ``ValueError`` for a text they refuse."""
    try:
        _add(manager, text)
    except ValueError as error:
        if "does not refer to a registered pass" not in str(error) or name not in names():
            raise
        # This is a pass of torch-mlir, whose passes are registered on demand.
        register_torch_passes()
        _add(manager, text)


def _add(manager: PassManager, text: str) -> None:
    if "{" not in text:
        manager.add(text)
        return
    # LLVM's option parser prints the reason of a refusal to stderr; the error does not contain it.
    import tempfile

    with tempfile.TemporaryFile() as printed:
        try:
            with _stderr_to(printed.fileno()):
                manager.add(text)
        except ValueError as error:
            printed.seek(0)
            raise ValueError(f"{printed.read().decode(errors='replace')}{error}") from None


@contextlib.contextmanager
def _stderr_to(descriptor: int) -> Iterator[None]:
    """Redirect the stderr of native code to another file within a ``with`` block."""
    stderr = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def exists(name: str) -> bool:
    """Return whether upstream has a pass or a named pipeline with the given name."""
    return name in names() or (name != "" and "does not refer" not in _refusal(name))


def nested(name: str, text: str) -> str:
    """Return the text of a pass nested in the operation that it runs on, as mlir-opt nests the passes of its flags."""
    anchor = _ANCHOR.search(_refusal(name))
    return f"{anchor[1]}({text})" if anchor else text


def options(name: str) -> str:
    """Return the options of a pass with their defaults; empty for a named pipeline or a pass without options."""
    with _context():
        manager = PassManager(_MODULE)
        add(manager, nested(name, name), name)
    # A manager prints a pass with all its options, and a named pipeline as the passes in it.
    match = re.search(rf"\b{re.escape(name)}\{{([^{{}}]*)\}}\)*$", str(manager))
    return " ".join(match[1].split()) if match else ""


def no_pass(name: str, ours: tuple[str, ...]) -> str:
    """Return the message for a pass that neither we nor upstream have."""
    hint = suggestion(name, (*ours, *names())) or "'spyre-opt --list-passes' lists all."
    return f"There is no pass named '{name}'; {hint}"


def no_option(name: str, option: str) -> str:
    """Return the message for an option that an upstream pass does not have."""
    known = re.findall(r"(?:^| )([\w-]+)=", options(name))
    sentence = f"The upstream pass '{name}' has no option '{option}'"
    sentence += f"; its options: {listed(known, option)}." if known else "."
    return with_suggestion(sentence, option, known)


def require(name: str, ours: tuple[str, ...]) -> None:
    """Raise ``CompileError`` for a pass that does not exist."""
    # A name with a brace or a comma would be a text of several passes.
    if name not in ours and not (re.fullmatch(r"[\w.-]+", name) and exists(name)):
        raise CompileError(no_pass(name, ours))


def _context() -> ir.Context:
    """Return the current context, or a new one: creating a context takes milliseconds, and there are many passes."""
    return ir.Context.current or ir.Context()


def _refusal(name: str) -> str:
    """Return the reason why a pass does not run on a module; empty if it does."""
    with _context():
        try:
            add(PassManager(_MODULE), name, name)
        except ValueError as error:
            return str(error)
    return ""
