# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``--load FILE.py``: user files that define passes, solvers or device operations.

An error in such a file, at load time or at run time, shows a traceback that ends in the file.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from pathlib import Path

from spyre_mlir.errors import CompileError, shown_path

#: Loaded files: resolved path to the path that the user wrote.
_LOADED: dict[str, str] = {}


def load(path: str) -> None:
    """Import a Python file, whose passes, solvers and device operations register themselves."""
    if not Path(path).is_file():
        raise CompileError(f"The file {shown_path(path)} of --load does not exist.")
    # The name has the whole path, so files of the same name in two folders are two modules.
    name = "spyre_mlir_loaded_" + re.sub(r"\W", "_", str(Path(path).resolve()))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CompileError(
            f"The file {shown_path(path)} of --load is not a Python file; its name must end in '.py'."
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up by name
    _LOADED[str(Path(path).resolve())] = path
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        # Omit the last line, the message, which the diagnostic repeats.
        excerpt = traceback.format_exception_only(error)[:-1]
        print(*map(str.rstrip, excerpt), sep="\n", file=sys.stderr)
        message = f"The file of --load fails: {type(error).__name__}: {error.msg}."
        raise CompileError(message, f"{error.filename or path}:{error.lineno}:{error.offset or 1}") from None
    except Exception as error:
        if isinstance(error, CompileError) and error.location:
            raise
        raise (
            error_of_file(error) or CompileError(f"The file {shown_path(path)} of --load fails: {error}.")
        ) from None


def loaded_files() -> list[str]:
    """Return the paths of the loaded files, in loading order."""
    return list(_LOADED)


def error_of_file(error: Exception) -> CompileError | None:
    """Print the traceback of an error in a loaded file and return its diagnostic; None for any other error.

    The traceback is cut to begin and end in the user's files; the frames around them belong to the compiler.
    """
    frames = traceback.extract_tb(error.__traceback__)
    files = [str(Path(frame.filename).resolve()) for frame in frames]
    indices = [index for index, file in enumerate(files) if file in _LOADED]
    if not indices:
        return None
    last = indices[-1]
    lines = traceback.format_list(frames[indices[0] : last + 1])
    print("Traceback (most recent call last):", *map(str.rstrip, lines), sep="\n", file=sys.stderr)
    # The pass runner adds the name of the pass as a note.
    notes = "".join(f" {note}" for note in getattr(error, "__notes__", ()))
    path, frame = _LOADED[files[last]], frames[last]
    reason = error.message if isinstance(error, CompileError) else f"{type(error).__name__}: {error}"
    message = f"The file of --load fails{notes}: {reason.rstrip('.')}."
    return CompileError(message, f"{path}:{frame.lineno}:{(frame.colno or 0) + 1}")
