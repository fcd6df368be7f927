# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Command line parsing, input, output and diagnostics for all tools."""

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from spyre_mlir import logs
from spyre_mlir.errors import CompileError, shown_path, suggestion
from spyre_mlir.faults import faults_kept, internal_error
from spyre_mlir.files import decoded, read_bytes, require_mlir, require_writable
from spyre_mlir.remarks import WARNING, Remark
from spyre_mlir.version import VERSION

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

    from spyre_mlir.mlir import ir


Main = Callable[..., int]
_Result = TypeVar("_Result")

#: The number of new objects that triggers a garbage collection in a tool. Imports create many objects and no garbage,
#: so collections at Python's default threshold are useless while a tool starts.
_COLLECTION_THRESHOLD = 200_000

#: The exit status after SIGINT: 128 plus the number of the signal.
_INTERRUPTED = 130

#: The name of the standard input in diagnostics, and the texts that were read, by the names in diagnostics.
_STDIN = "<stdin>"
_sources: dict[str, str] = {}

# Skip the garbage collection at exit, which takes as long as a small pipeline.
atexit.register(gc.freeze)


def tool(main: Main) -> Main:
    """Decorate a ``main``: exceptions become diagnostics on stderr with exit status 1, Ctrl-C exits with status 130.

    With ``SPYRE_TRACEBACK=1`` in the environment, internal errors of the compiler are raised with their traceback.
    """

    @functools.wraps(main)
    def run(argv: Sequence[str] | None = None) -> int:
        prepare()
        logs.configure(os.environ.get("SPYRE_LOG", ""), terminal=True)
        _sources.clear()
        try:
            with _rare_collections(), warnings.catch_warnings():
                warnings.showwarning = _show_warning
                # --device sets the default target in the current context; in a copy, it does not outlive the tool.
                with faults_kept():
                    return contextvars.copy_context().run(flushed, main, argv)
        except CompileError as error:
            report(error)
        except BrokenPipeError:
            drop_stdout()  # the reader of the pipe has exited
        except Exception as error:
            if os.environ.get("SPYRE_TRACEBACK"):
                raise
            report(_of_loaded_file(error) or _of_system(error) or internal_error(error))
        except KeyboardInterrupt:
            logs.clear_progress()
            print("interrupted", file=sys.stderr)
            return _INTERRUPTED
        finally:
            for topic in logs.silent_topics():
                print(f"note: The log has no messages of the topic '{topic}'.", file=sys.stderr)
        return 1

    return run


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(max(_COLLECTION_THRESHOLD, before[0]) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        # Move young objects to the old generation; otherwise the lower threshold would start a collection immediately.
        gc.freeze()
        gc.unfreeze()
        gc.set_threshold(*before)


def _show_warning(message: Warning | str, category: type[Warning], *location: object) -> None:
    """Print a Python warning as one line on stderr, without the source line that raised it."""
    if logs.shows(logging.WARNING):
        print(f"warning: {message}", file=sys.stderr)


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """A formatter that measures the terminal without ``shutil``, which imports all compression modules.

    argparse creates a formatter for each argument that is added.
    """

    def __init__(self, prog: str) -> None:
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isdecimal() else 0
        with contextlib.suppress(OSError):  # the output is not a terminal
            width = width or os.get_terminal_size().columns
        super().__init__(prog, width=(width or 80) - 2)


class ArgumentParser(argparse.ArgumentParser):
    """An argparse parser with the common flags of all tools; it raises ``CompileError`` and rejects abbreviations."""

    def __init__(self, prog: str, description: str | None, epilog: str | None = None) -> None:
        # spyre-opt treats every unknown flag as a pass, so abbreviated flags are not allowed in any tool.
        super().__init__(prog, None, description, epilog, formatter_class=_HelpFormatter, allow_abbrev=False)
        self.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
        self.add_argument("--load", action=_LoadAction, metavar="FILE.py",
                          help="import this file first: user-defined passes, solvers or device operations")  # fmt: skip
        self.add_argument("--device", action=_Device, metavar="FILE.toml",
                          help="device file (default: SPYRE_DEVICE, or the packaged file)")  # fmt: skip
        self.add_argument("--log", "--debug-only", action=_Log, metavar="WORDS",
                          help="messages to print on stderr, as in SPYRE_LOG: a level, topics, "
                               "or progress (debug,passes)")  # fmt: skip

    def parse_args(self, args=None, namespace=None):  # pyright: ignore[reportIncompatibleMethodOverride]
        """Parse the arguments, or answer a shell that requests completions of its command line."""
        if "_ARGCOMPLETE" in os.environ:
            from spyre_mlir.tools._completion import complete

            complete(self)
        for argument in sys.argv[1:] if args is None else args:
            if "\0" in argument:
                raise CompileError(f"The argument {shown_path(argument)} has a NUL character.")
            try:
                argument.encode()
            except UnicodeEncodeError:
                text = f"The argument {shown_path(argument)} is not text in UTF-8"
                raise CompileError(
                    f"{text}: names of files have to be, and the locale, such as LC_ALL=C.UTF-8."
                ) from None
        return super().parse_args(args, namespace)

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        """Print help; unlike argparse, do not ignore errors of writing."""
        (file or sys.stderr).write(message)

    def error(self, message: str) -> NoReturn:
        """Raise ``CompileError`` instead of argparse's exit with status 2."""
        hint = self._suggestion(message) or f"see '{self.prog} --help'."
        raise CompileError(f"{message[:1].upper()}{message[1:]}; {hint}")

    def _suggestion(self, message: str) -> str:
        """Return "did you mean .." for the unknown flag or value in an argparse message; empty without a close one."""
        unknown = re.match(r"unrecognized arguments: --([\w-]+)", message)
        if unknown:
            import difflib

            flags = {flag.lstrip("-"): flag for action in self._actions for flag in action.option_strings}
            name = next(iter(difflib.get_close_matches(unknown[1], list(flags), 1, 0.75)), "")
            return f"did you mean '{flags[name]}'?" if name else ""
        value = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        return suggestion(value[1], re.findall(r"[\w.-]+", value[2])) if value else ""


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import importlib.metadata  # on use: it is slow

        print(f"{parser.prog} {VERSION} (torch-mlir {importlib.metadata.version('torch-mlir')})")
        parser.exit()


class _Log(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None) -> None:
        logs.configure(str(values), terminal=True)


class _Device(argparse.Action):
    """Set the default device from a file until the end of the tool; the namespace holds the path."""

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        from spyre_mlir.target.target import Target, set_default_target

        set_default_target(Target.read(str(values)))
        setattr(namespace, self.dest, values)


class _LoadAction(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None) -> None:
        from spyre_mlir.loading import load

        # Text that the file prints must not mix with the output of the tool, which another program may read.
        with contextlib.redirect_stdout(sys.stderr):
            load(str(values))


def require_folder(path: str) -> str:
    """Check, before long work, that a bundle can be written to a folder; return it, or raise ``CompileError``."""
    from spyre_mlir.bundle.replacing import require_replaceable

    if path == "-":
        raise CompileError("A bundle is a folder, so it cannot be written to stdout; name a folder.")
    require_replaceable(path)
    return path


def add_output(
    parser: argparse._ActionsContainer, flags: str, metavar: str, help: str, **settings: Any
) -> None:
    """Add ``flags`` such as "-o --output" for an output file; before long work, check that it can be written."""
    parser.add_argument(*flags.split(), type=require_writable, metavar=metavar, help=help, **settings)


def number(kind: Callable[[str], float], low: float, high: float) -> Callable[[str], float]:
    """Return the ``type`` of an argparse flag: a number of ``kind`` from ``low`` to ``high``, inclusive."""

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = None
        # This form also rejects NaN, for which all comparisons are false.
        if value is None or not low <= value <= high:
            raise argparse.ArgumentTypeError(f"a number from {low} to {high} was expected, not '{text}'")
        return value

    return parse


def _of_loaded_file(error: Exception) -> CompileError | None:
    """Print the traceback of an error in a ``--load`` file and return its diagnostic; None for any other error."""
    # If the module is not imported, no file was loaded.
    loading = sys.modules.get("spyre_mlir.loading")
    return None if loading is None else loading.error_of_file(error)


def _of_system(error: Exception) -> CompileError | None:
    """Return the diagnostic for an ``OSError`` about a file; None for any other error."""
    if not isinstance(error, OSError) or error.filename is None:
        return None
    return CompileError(f"The file {shown_path(error.filename)} cannot be used: {error.strerror}.")


def report(error: CompileError, source: str = _STDIN) -> None:
    """Print all diagnostics of an error on stderr; ``source`` names a text without a file."""
    show(_text(error), source)


def show(diagnostics: str, source: str = _STDIN) -> None:
    """Print diagnostics, with source lines if a program has been read.

    The bindings use the name ``-`` for a text without a file; it is replaced by ``source``.
    """
    text = re.sub(r"^-:", lambda _: f"{source}:", diagnostics, flags=re.MULTILINE)
    # Without a program, all inputs were written by tools, and their source lines do not help the user.
    if _sources:
        text = with_source_lines(text, _sources)
    print(text, file=sys.stderr)


def keep_source(name: str, text: str) -> None:
    """Keep the text of a program or of a pipeline for diagnostics that refer to it by ``name``."""
    _sources[name] = text


def show_warnings(remarks: Iterable[Remark], source: str = _STDIN) -> None:
    """Print the warnings of passes, unless the log level is error."""
    printed = [remark for remark in remarks if remark.kind == WARNING and logs.shows(logging.WARNING)]
    if printed:
        # On use: it imports the bindings, which tools that only read bundles do not need.
        from spyre_mlir.diagnostics import of_remark

        for remark in printed:
            show(str(of_remark(remark)), source)


def _text(error: CompileError) -> str:
    # An error without a cause is a single diagnostic, which does not need the bindings.
    if error.__cause__ is None:
        return str(error)
    from spyre_mlir.diagnostics import diagnostics_of

    return "\n".join(map(str, diagnostics_of(error)))


def parse_module(path: str, context: ir.Context, content: str | bytes | None = None) -> ir.Module:
    """Parse the file at ``path``, text or bytecode, or its ``content`` if the caller has read it.

    The locations in a text without a file, or in a part of a file, have the file name ``-``.
    """
    if content is None:
        require_mlir(path)
        content = read_bytes(path)
    if isinstance(content, bytes) and is_bytecode(content):
        from spyre_mlir.dialects.bytecode import parsed_bytecode

        return parsed_bytecode(content, context, _STDIN if path == "-" else path)
    from spyre_mlir.dialects import parsed

    return _parsed(path, context, content, parsed)


def parse_operation(path: str, context: ir.Context, text: str | None = None) -> ir.OpView:
    """Parse one operation like ``parse_module``, without adding a module around it."""
    from spyre_mlir.dialects import parsed_operation

    content = read_bytes(path) if text is None else text
    if isinstance(content, bytes) and is_bytecode(content):
        raise CompileError("--no-implicit-module requires text, because bytecode contains a module.", path)
    return _parsed(path, context, content, parsed_operation)


def _parsed(path: str, context: ir.Context, content: bytes | str, parse: Callable[..., _Result]) -> _Result:
    """Parse the bytes of a file, or a text without a file, with ``parse``."""
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
    # Defined here and not next to the bytecode parser, whose module loads the bindings.
    return data.startswith(b"ML\xefR")


def lx_fraction(option: float | None) -> float | None:
    """Return the fraction of LX that the backend reserves: ``option``, else ``DXP_LX_FRAC_AVAIL``, else None.

    Raise ``CompileError`` if it is not a number in [0, 1).
    """
    text = os.environ.get("DXP_LX_FRAC_AVAIL") if option is None else option
    if text in (None, ""):
        return None
    try:
        fraction = float(text)
    except ValueError:
        raise CompileError(f"DXP_LX_FRAC_AVAIL must be a number, not '{text}'.") from None
    if not 0 <= fraction < 1:
        raise CompileError(f"The part of LX that the backend keeps must be in [0, 1), not {fraction}.")
    return fraction


# The standard streams of a tool: closed streams, full disks, readers that exit, and locales other than UTF-8.

#: The errors of writing to an open file; any other ``OSError`` is not about stdout.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def prepare() -> None:
    """Set stdout to UTF-8, and reopen closed standard streams, so that no other file gets their descriptors."""
    # Reading a closed stdin, or writing a closed stdout, is then an error; output to a closed stderr is lost.
    flags = {"stdin": os.O_WRONLY, "stdout": os.O_RDONLY, "stderr": os.O_WRONLY}
    for name, flag in flags.items():
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, flag), "r" if name == "stdin" else "w"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


def flushed(main: Callable[..., int], argv: Sequence[str] | None) -> int:
    """Run a tool and flush stdout, so that errors of writing are reported as errors of the tool."""
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
    """Discard unwritten output, so that Python's flush of stdout at exit does not report a second error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_HEAD = re.compile(r"(.+?):(\d+):(\d+): (?:error|warning|remark|note): ")

#: Maximum bytes of a file that is read for a source line, and maximum characters of a line that are shown.
_MOST_BYTES, _MOST_SHOWN = 1 << 26, 160
_CUT = "..."


def with_source_lines(diagnostics: str, sources: Mapping[str, str]) -> str:
    """Add the source line, and a line with a caret, after each line that begins with ``file:line:col``.

    ``sources`` has texts by the file names in locations; other files are read from disk.
    """
    text_of = functools.cache(lambda name: sources[name] if name in sources else _file_text(name))
    lines = []
    for diagnostic in diagnostics.splitlines():
        lines.append(diagnostic)
        head = _HEAD.match(diagnostic)
        if head:
            lines += _excerpt(text_of(head[1]), int(head[2]), int(head[3]))
    return "\n".join(lines)


def _file_text(name: str) -> str:
    """Return the text of an MLIR file; empty if it cannot be read, because source lines are optional."""
    # Python tracebacks show their own source lines.
    if not name.endswith(".mlir"):
        return ""
    try:
        path = Path(name)
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return ""
        return path.read_bytes().decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def _excerpt(text: str, line: int, column: int) -> list[str]:
    """Return a line of a text and the line with the caret; empty for a location outside of the text."""
    # Not splitlines, which recognizes more line ends than locations do.
    lines = text.split("\n", line)
    if not (0 < line <= len(lines) and column > 0):
        return []
    shown = lines[line - 1].rstrip("\r")
    data = shown.encode()
    if not shown.strip() or column > len(data) + 1:
        return []
    # Columns count bytes.
    before = data[: column - 1].decode("utf-8", "ignore")
    if len(shown) > _MOST_SHOWN:
        begin = max(0, min(len(before) - _MOST_SHOWN // 2, len(shown) - _MOST_SHOWN))
        end, head = begin + _MOST_SHOWN, _CUT if begin else ""
        shown = head + shown[begin:end] + (_CUT if end < len(shown) else "")
        before = head + before[begin:]
    # Tabs are kept, so that the caret is below its character for any tab width.
    indent = "".join("\t" if character == "\t" else " " for character in before)
    return [shown, f"{indent}^"]
