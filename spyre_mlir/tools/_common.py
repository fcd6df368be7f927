# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Command line parsing, input, output and diagnostics, shared by all tools."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import contextvars
import errno
import functools
import gc
import io
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeVar

from spyre_mlir import logs
from spyre_mlir.errors import CompileError, shown_path, suggestion
from spyre_mlir.faults import faults_kept, internal_error
from spyre_mlir.files import (
    decoded,
    read_bytes,
    read_text,
    require_writable,
    write_bytes,
    write_text,
    writing,
)
from spyre_mlir.remarks import WARNING, Remark
from spyre_mlir.version import VERSION

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

    from spyre_mlir.mlir import ir


__all__ = [
    "ArgumentParser",
    "decoded",
    "internal_error",
    "is_bytecode",
    "keep_source",
    "number",
    "parse_module",
    "parse_operation",
    "read_bytes",
    "read_text",
    "report",
    "require_folder",
    "require_writable",
    "show",
    "show_warnings",
    "tool",
    "write_bytes",
    "write_text",
    "writing",
]

Main = Callable[..., int]
_Result = TypeVar("_Result")

#: New objects between two garbage collections of a tool. Imports make many objects and no garbage, so that Python's
#: default collects in vain while a tool starts.
_COLLECTION_THRESHOLD = 200_000

#: The exit status of what SIGINT ends: 128 and the number of the signal.
_INTERRUPTED = 130

#: The name of the standard input in diagnostics, and the texts that were read, by their names in diagnostics.
_STDIN = "<stdin>"
_sources: dict[str, str] = {}

# At exit nothing is searched for cycles any more, which takes as long as a small pipeline.
atexit.register(gc.freeze)


def tool(main: Main) -> Main:
    """Decorate a ``main``: its exceptions become diagnostics on stderr and the exit status 1, Ctrl-C the status 130.

    ``SPYRE_TRACEBACK=1`` in the environment lets errors of the compiler itself through with their traceback.
    """

    @functools.wraps(main)
    def run(argv: Sequence[str] | None = None) -> int:
        prepare()
        logs.configure(os.environ.get("SPYRE_LOG", ""), terminal=True)
        _sources.clear()
        try:
            with _rare_collections(), warnings.catch_warnings():
                warnings.showwarning = _show_warning
                # --device sets the default target of a context: in a copy, so that it ends with the tool.
                with faults_kept():
                    return contextvars.copy_context().run(flushed, main, argv)
        except CompileError as error:
            report(error)
        except BrokenPipeError:
            drop_stdout()  # the reader has left
        except Exception as error:
            if os.environ.get("SPYRE_TRACEBACK"):
                raise
            report(_of_loaded_file(error) or _of_system(error) or internal_error(error))
        except KeyboardInterrupt:
            logs.clear_progress()
            print("interrupted", file=sys.stderr)
            return _INTERRUPTED
        finally:
            _note_silence()
        return 1

    return run


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(max(_COLLECTION_THRESHOLD, before[0]) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        # What is young becomes old without a search; the lower threshold would start a search at once.
        gc.freeze()
        gc.unfreeze()
        gc.set_threshold(*before)


def _show_warning(message: Warning | str, category: type[Warning], *location: object) -> None:
    """Print a Python warning as one line on stderr, without the source line that raised it."""
    if logs.shows(logging.WARNING):
        print(f"warning: {message}", file=sys.stderr)


def _note_silence() -> None:
    """Print a note for each topic of the log without a record: mostly a misspelt name."""
    for topic in logs.silent_topics():
        print(f"note: Nothing was told about '{topic}', which the log was asked for.", file=sys.stderr)


class ArgumentParser(argparse.ArgumentParser):
    """An argparse parser without abbreviations, whose errors are CompileErrors, with the flags of all tools."""

    def __init__(self, prog: str, description: str | None, epilog: str | None = None) -> None:
        formatter = argparse.RawDescriptionHelpFormatter
        # spyre-opt takes every flag that is not spelt out for a pass, so no tool completes abbreviations.
        super().__init__(prog, None, description, epilog, formatter_class=formatter, allow_abbrev=False)
        self.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
        self.add_argument("--load", action=_LoadAction, metavar="FILE.py",
                          help="import your own passes, solvers or device operations")  # fmt: skip
        self.add_argument("--device", action=_Device, metavar="FILE.toml",
                          help="the device (default: SPYRE_DEVICE, or the packaged one)")  # fmt: skip
        self.add_argument("--log", "--debug-only", action=_Log, metavar="WORDS",
                          help="what to tell on stderr, as SPYRE_LOG: debug,passes or progress or ..")  # fmt: skip

    def parse_args(self, args=None, namespace=None):  # pyright: ignore[reportIncompatibleMethodOverride]
        """Parse as argparse does, unless a shell asks for the completions of its command line."""
        if "_ARGCOMPLETE" in os.environ:
            from spyre_mlir.tools._completion import complete

            complete(self)
        for argument in sys.argv[1:] if args is None else args:
            _require_name(argument)
        return super().parse_args(args, namespace)

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        """Print help; argparse drops the errors of that."""
        (file or sys.stderr).write(message)

    def error(self, message: str) -> NoReturn:
        """Raise a ``CompileError`` in place of argparse's exit with status 2."""
        hint = self._suggestion(message) or f"see '{self.prog} --help'."
        raise CompileError(f"{message[:1].upper()}{message[1:]}; {hint}")

    def _suggestion(self, message: str) -> str:
        """Return the question after the flag, or the value of one, that is close to the unknown one of a message."""
        unknown = re.match(r"unrecognized arguments: --([\w-]+)", message)
        if unknown:
            import difflib

            flags = {flag.lstrip("-"): flag for action in self._actions for flag in action.option_strings}
            name = next(iter(difflib.get_close_matches(unknown[1], list(flags), 1, 0.75)), "")
            return f"did you mean '{flags[name]}'?" if name else ""
        value = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        return suggestion(value[1], re.findall(r"[\w.-]+", value[2])) if value else ""


def _require_name(argument: str) -> None:
    """Raise ``CompileError`` for what neither the system nor MLIR takes as the name of a file."""
    if "\0" in argument:
        raise CompileError(f"The argument {shown_path(argument)} has a NUL character.")
    try:
        argument.encode()
    except UnicodeEncodeError:
        text = f"The argument {shown_path(argument)} is not text in UTF-8"
        raise CompileError(
            f"{text}: names of files have to be, and the locale, such as LC_ALL=C.UTF-8."
        ) from None


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import importlib.metadata  # slow, and only of use here

        print(f"{parser.prog} {VERSION} (torch-mlir {importlib.metadata.version('torch-mlir')})")
        parser.exit()


class _Log(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None) -> None:
        logs.configure(str(values), terminal=True)


class _Device(argparse.Action):
    """Makes the device of a file the default one, to the end of the tool; the namespace has its path."""

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        from spyre_mlir.target.target import Target, set_default_target

        set_default_target(Target.read(str(values)))
        setattr(namespace, self.dest, values)


class _LoadAction(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None) -> None:
        from spyre_mlir.loading import load

        # What the file prints is not the output of the tool, which another program may read.
        with contextlib.redirect_stdout(sys.stderr):
            load(str(values))


def require_folder(path: str) -> str:
    """Return the folder of a bundle to write; ``CompileError`` for what cannot be one, before work that takes long."""
    from spyre_mlir.bundle.replacing import require_replaceable

    if path == "-":
        raise CompileError("A bundle is a folder, which stdout is not; name one.")
    require_replaceable(path)
    return path


def number(kind: Callable[[str], float], low: float, high: float) -> Callable[[str], float]:
    """Return the ``type`` of an argparse flag: a number of ``kind`` from ``low`` to ``high``, both included."""

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = None
        # Also refuses NaN, which is neither below nor above anything.
        if value is None or not low <= value <= high:
            raise argparse.ArgumentTypeError(f"a number from {low} to {high} was expected, not '{text}'")
        return value

    return parse


def _of_loaded_file(error: Exception) -> CompileError | None:
    """Return the diagnostic of an error in a file of ``--load``, whose traceback is printed; None for another error."""
    # Without a file there is nothing to import for it.
    loading = sys.modules.get("spyre_mlir.loading")
    return None if loading is None else loading.error_of_file(error)


def _of_system(error: Exception) -> CompileError | None:
    """Return the diagnostic of a file that the system refuses; None for another error."""
    if not isinstance(error, OSError) or error.filename is None:
        return None
    return CompileError(f"The file {shown_path(error.filename)} cannot be used: {error.strerror}.")


def report(error: CompileError, source: str = _STDIN) -> None:
    """Print all diagnostics of an error on stderr; ``source`` names a text that came without a file."""
    show(_text(error), source)


def show(diagnostics: str, source: str = _STDIN) -> None:
    """Print diagnostics, with their source lines once a program has been read.

    The bindings call a text without a file ``-``, the user knows it as ``source``.
    """
    text = re.sub(r"^-:", lambda _: f"{source}:", diagnostics, flags=re.MULTILINE)
    # What a tool reads without a program is written by tools: a line of it says nothing to the user.
    if _sources:
        from spyre_mlir.tools._source_lines import with_source_lines  # of use to what fails only

        text = with_source_lines(text, _sources)
    print(text, file=sys.stderr)


def keep_source(name: str, text: str) -> None:
    """Keep the text of a program, or of a pipeline, for the diagnostics that name it."""
    _sources[name] = text


def show_warnings(remarks: Iterable[Remark], source: str = _STDIN) -> None:
    """Print the warnings of passes, unless the log is for errors alone."""
    printed = [remark for remark in remarks if remark.kind == WARNING and logs.shows(logging.WARNING)]
    if printed:
        # Imports the bindings, which tools that only read bundles do without.
        from spyre_mlir.diagnostics import of_remark

        for remark in printed:
            show(str(of_remark(remark)), source)


def _text(error: CompileError) -> str:
    # Without a cause there is one diagnostic, and no need to load the bindings for it.
    if error.__cause__ is None:
        return str(error)
    from spyre_mlir.diagnostics import diagnostics_of

    return "\n".join(map(str, diagnostics_of(error)))


def parse_module(path: str, context: ir.Context, content: str | bytes | None = None) -> ir.Module:
    """Parse the file at ``path``, in text or bytecode, whose ``content`` may have been read.

    A text that came without a file, or is a part of one, has locations with the file name ``-``.
    """
    content = read_bytes(path) if content is None else content
    if isinstance(content, bytes) and is_bytecode(content):
        from spyre_mlir.dialects.bytecode import parsed_bytecode

        return parsed_bytecode(content, context, _STDIN if path == "-" else path)
    from spyre_mlir.dialects import parsed

    return _parsed(path, context, content, parsed)


def parse_operation(path: str, context: ir.Context, text: str | None = None) -> ir.OpView:
    """Parse one operation as ``parse_module`` does a module, without one around it."""
    from spyre_mlir.dialects import parsed_operation

    content = read_bytes(path) if text is None else text
    if isinstance(content, bytes) and is_bytecode(content):
        raise CompileError("--no-implicit-module is for text: bytecode is of a module.", path)
    return _parsed(path, context, content, parsed_operation)


def _parsed(path: str, context: ir.Context, content: bytes | str, parse: Callable[..., _Result]) -> _Result:
    """Parse the bytes of a file, or a text that came without one."""
    from spyre_mlir.diagnostics import compile_error
    from spyre_mlir.mlir import ir

    text = content if isinstance(content, str) else decoded(content, path)
    is_file = isinstance(content, bytes) and path != "-"
    keep_source(_STDIN if path == "-" else path, text)
    try:
        return parse(text, context, path if is_file else None)
    except ir.MLIRError as error:
        raise compile_error(error, f"The file '{path}' cannot be parsed.") from error


def is_bytecode(data: bytes) -> bool:
    """Return whether a file is a module in bytecode."""
    # Here, and not beside the parser of it, which loads the bindings.
    return data.startswith(b"ML\xefR")


def lx_fraction(option: float | None) -> float | None:
    """Return the part of LX that the backend reserves: ``option``, else ``DXP_LX_FRAC_AVAIL``, else None.

    ``CompileError`` unless it is a number in [0, 1).
    """
    text = os.environ.get("DXP_LX_FRAC_AVAIL") if option is None else option
    if text is None:
        return None
    try:
        fraction = float(text)
    except ValueError:
        raise CompileError(f"DXP_LX_FRAC_AVAIL must be a number, not '{text}'.") from None
    if not 0 <= fraction < 1:
        raise CompileError(f"The part of LX that the backend keeps must be in [0, 1), not {fraction}.")
    return fraction


# The standard streams of a tool: closed ones, full disks, readers that leave, and locales that are not UTF-8.

#: What writing to a file that is open fails with; another error of the system is none of stdout.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def prepare() -> None:
    """Make what tools print UTF-8, as files are; open closed streams: a file opened next would be taken for one."""
    # Reading stdin, or writing stdout, is then an error; what is said on stderr is lost.
    flags = {"stdin": os.O_WRONLY, "stdout": os.O_RDONLY, "stderr": os.O_WRONLY}
    for name, flag in flags.items():
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, flag), "r" if name == "stdin" else "w"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


def flushed(main: Callable[..., int], argv: Sequence[str] | None) -> int:
    """Run a tool to the end of what it prints, so that an error of that is one of the tool."""
    try:
        try:
            status = main(argv)
        except SystemExit:
            sys.stdout.flush()
            raise
        sys.stdout.flush()
        return status
    except OSError as error:
        if error.filename is not None or error.errno not in _UNWRITABLE:
            raise
        drop_stdout()
        raise CompileError(f"The output cannot be written: {error.strerror}.") from None


def drop_stdout() -> None:
    """Drop what is not written yet: a second error when Python flushes stdout at exit would only be noise."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
