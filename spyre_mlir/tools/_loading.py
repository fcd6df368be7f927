"""``--load FILE.py``: files of users that define passes, solvers or device operations."""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from pathlib import Path

from spyre_mlir.errors import CompileError


def load(path: str) -> None:
    """Import a Python file, whose passes, solvers and device operations register themselves."""
    if not Path(path).is_file():
        raise CompileError(f"The file '{path}' of --load does not exist.")
    # From the whole path, so that files of one name in two folders are two modules.
    name = "spyre_mlir_loaded_" + re.sub(r"\W", "_", str(Path(path).resolve()))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CompileError(f"The file '{path}' of --load is not a Python file; its name must end in '.py'.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up by name
    try:
        spec.loader.exec_module(module)
    except CompileError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise CompileError(f"The file of --load fails: {reason}.", _location(error, path)) from None


def _location(error: Exception, path: str) -> str:
    """Return the ``file:line:column`` of the user's file at which its import failed."""
    if isinstance(error, SyntaxError):
        return f"{path}:{error.lineno}:{error.offset or 1}"
    file = Path(path).resolve()
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).resolve() == file]
    # The innermost frame of the user's file: those below it are in the code that it called.
    return f"{path}:{frames[-1].lineno}:{(frames[-1].colno or 0) + 1}" if frames else path
