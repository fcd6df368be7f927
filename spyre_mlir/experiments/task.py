# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A point of an experiment as data, and its compilation in a worker process."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import io
import json
import random
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, TypeAlias

from spyre_mlir.algorithms import REGISTRIES
from spyre_mlir.api import compile
from spyre_mlir.driver.program_cache import code_of, code_text, imported_modules
from spyre_mlir.errors import AlgorithmError, CompileError, Uncached, brief, kind_of, listed
from spyre_mlir.faults import InternalError, faults_reported
from spyre_mlir.files import read_text, require_mlir
from spyre_mlir.loading import error_of_file, load
from spyre_mlir.records import dataclass
from spyre_mlir.target.target import Target, compiling_for

# Programs of an experiment as data that any worker can load: MLIR, or a function by its import path.

#: A program as given by the user: a file, MLIR text, ``package.module:function``, ``zoo:NAME``, or a function.
ProgramChoice: TypeAlias = str | Path | Callable[..., Any]

_REFERENCE = re.compile(r"(?P<module>[A-Za-z_][\w.]*):(?P<function>[A-Za-z_]\w*)(?P<arguments>\(.*\))?", re.S)

#: The attribute of a module that names its device; a sweep rejects it, because the sweep chooses the device.
_TARGET = re.compile(r"\bsdsc\.target\s*=")


@dataclass(frozen=True)
class ProgramSource:
    """A program with its ``label`` in the results: MLIR as ``text``, or an import path as ``reference``.

    ``digest`` is the digest of the text, or of the source files of the function.
    """

    label: str
    digest: str
    text: str = ""
    reference: str = ""

    def load(self) -> tuple[Any, Any]:
        """Return the model and its inputs, or the text of a module and an empty tuple."""
        if not self.reference:
            return self.text, ()
        module, function, arguments, keywords = _parsed_reference(self.reference)
        function = getattr(importlib.import_module(module), function)
        # Seeded, so that random weights are the same in every worker.
        random.seed(0)
        if (torch := sys.modules.get("torch")) is not None:
            torch.manual_seed(0)
        program = function(*arguments, **keywords)
        model, inputs = program if isinstance(program, tuple) else (program, ())
        if isinstance(model, str):
            refuse_device(model, self.label)
        return model, inputs

    def current_digest(self) -> str:
        """Return the digest of the content that this process would load."""
        return _reference_digest(self.reference) if self.reference else self.digest


def program_sources(
    programs: ProgramChoice | Sequence[ProgramChoice] | Mapping[str, ProgramChoice],
) -> list[ProgramSource]:
    """Return the programs of a sweep; raise ``CompileError`` for a missing program or a repeated label."""
    if isinstance(programs, str | Path) or callable(programs):
        programs = [programs]
    pairs = programs.items() if isinstance(programs, Mapping) else ((None, choice) for choice in programs)
    sources = [_source(choice, label, index) for index, (label, choice) in enumerate(pairs)]
    if not sources:
        raise CompileError("The sweep has no programs.")
    labels = [source.label for source in sources]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise CompileError(f"Two programs of the sweep are called '{twice}'; give them as a mapping by name.")
    return sources


def _source(choice: Any, label: str | None, index: int) -> ProgramSource:
    """Return the source of one program of a sweep; ``CompileError`` if workers could not load it."""
    if callable(choice):
        reference = f"{getattr(choice, '__module__', '')}:{getattr(choice, '__qualname__', '')}"
        if reference.startswith("__main__:") or not _REFERENCE.fullmatch(reference):
            raise CompileError(
                f"Workers cannot import {kind_of(choice)}; give the path 'module:function' of a function that returns "
                "the model and its inputs, such as 'models:mlp'."
            )
        choice = reference
    if not isinstance(choice, str | Path):
        raise CompileError(
            "A program of a sweep is a path, a text of MLIR or an import path 'module:function', not "
            f"{kind_of(choice)}."
        )
    text = str(choice)
    if isinstance(choice, Path) or ("\n" not in text and text.endswith(".mlir")):
        return _of_text(read_text(text), label or text)
    scheme, _, name = text.partition(":")
    if scheme == "zoo":
        try:
            names = list(importlib.import_module("spyre_mlir.zoo").names())
        except ModuleNotFoundError as error:
            raise CompileError(f"The program '{text}' cannot be loaded: {error}.") from None
        if name not in names:
            raise CompileError(
                f"There is no program '{text}'; the programs of the zoo are {listed(names, name)}."
            )
        reference = f"spyre_mlir.zoo:load({name!r}, weights=False)"
        return ProgramSource(label or text, _reference_digest(reference), reference=reference)
    if _REFERENCE.fullmatch(text):
        return _of_reference(text, label or text)
    if "\n" not in text and "{" not in text:
        require_mlir(text)
        raise CompileError(
            f"There is no program '{text:.80}': a program is a path that ends in .mlir, a text of MLIR, 'zoo:NAME' or "
            "an import path 'module:function'."
        )
    return _of_text(text, label or f"mlir.{index}")


def _of_text(text: str, label: str) -> ProgramSource:
    refuse_device(text, label)
    return ProgramSource(label, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(), text)


def refuse_device(text: str, label: str) -> None:
    """Raise ``CompileError`` for a module text that names its device."""
    if _TARGET.search(text):
        raise CompileError(
            f"The program '{label}' names its device, and a sweep chooses that: take the attribute sdsc.target away, "
            "and give the device as the axis 'device'."
        )


def _of_reference(reference: str, label: str) -> ProgramSource:
    module, function, *_ = _parsed_reference(reference)
    file = module_file(module)
    if file is None:
        raise CompileError(
            f"There is no module '{module}' for the program '{label}'; add its folder to PYTHONPATH."
        )
    try:
        names = bound_names(read_text(str(file)))
    except (SyntaxError, ValueError) as error:
        location = f"{file}:{getattr(error, 'lineno', 1)}:{getattr(error, 'offset', 1) or 1}"
        raise CompileError(f"The module of the program '{label}' is not Python: {error}.", location) from None
    if names is not None and function not in names:
        raise CompileError(f"There is no '{function}' in the module '{module}', for the program '{label}'.")
    return ProgramSource(label, _reference_digest(reference), reference=reference)


def _reference_digest(reference: str) -> str:
    module, function, arguments, keywords = _parsed_reference(reference)
    content = repr([function, arguments, sorted(keywords.items()), source_digest(module)])
    return hashlib.sha256(content.encode()).hexdigest()


def _parsed_reference(reference: str) -> tuple[str, str, list[Any], dict[str, Any]]:
    """Parse ``module:function(2, size=3)`` to module, function, positional and keyword literals."""
    match = _REFERENCE.fullmatch(reference)
    assert match is not None
    try:
        call = ast.parse(f"_{match['arguments'] or '()'}", mode="eval").body
        if not isinstance(call, ast.Call):
            raise ValueError("no call")
        arguments = [ast.literal_eval(node) for node in call.args]
        keywords = {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError):
        raise CompileError(
            f"The arguments of the program '{reference}' must be literals, as in 'models:mlp(64, bias=False)'."
        ) from None
    return match["module"], match["function"], arguments, keywords


# The source files of functions that return programs: the module of a function, and all modules that the module imports.
#
# Files are read, not run. Files of Python and of installed packages do not count, except for the package of the
# function. Files that are not Python, such as weights, do not count either.


@functools.cache
def _installed(top: str) -> tuple[Path, ...]:
    """Return the folders in which distributions with a top-level name are installed; none for editable ones."""
    names = importlib.metadata.packages_distributions().get(top, [])
    distributions = [importlib.metadata.distribution(name) for name in names]
    return tuple(
        Path(str(each.locate_file(""))).resolve() for each in distributions if not _is_editable(each)
    )


def _is_editable(distribution: importlib.metadata.Distribution) -> bool:
    """Return whether a distribution is installed from a folder of sources (PEP 610)."""
    text = distribution.read_text("direct_url.json")
    return text is not None and bool(json.loads(text).get("dir_info", {}).get("editable"))


def module_file(name: str) -> Path | None:
    """Return the source file of a module, without importing it or its parent packages; None without such a file."""
    top, *rest = name.split(".")
    below = top
    try:
        spec = importlib.util.find_spec(top)
        locations = _locations(spec)
        for part in rest:
            below = f"{below}.{part}"
            try:
                spec = PathFinder.find_spec(below, locations)
                locations = _locations(spec)
            # A namespace package looks up its parent in sys.modules, which does not have it before an import.
            except KeyError:
                spec = None
                locations = [str(Path(folder, part)) for folder in locations if Path(folder, part).is_dir()]
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None


def source_digest(root: str) -> str:
    """Return the digest of the source files of a module, of its parent packages and of all modules that they import."""
    sources: dict[str, bytes] = {}
    pending = [root]
    while pending:
        module = pending.pop()
        file = module_file(module)
        # The code of this package is already part of every key.
        top = module.partition(".")[0]
        if module in sources or file is None or top == "spyre_mlir":
            continue
        is_installed = top in sys.stdlib_module_names or any(
            map(file.resolve().is_relative_to, _installed(top))
        )
        if top != root.partition(".")[0] and is_installed:
            continue
        sources[module] = file.read_bytes()
        parent = module.rpartition(".")[0]
        pending += imported_modules(sources[module], module if file.name == "__init__.py" else parent)
        pending += [parent] if parent else []
    digest = hashlib.sha256()
    for module, data in sorted(sources.items()):
        digest.update(f"{module} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def bound_names(text: str) -> set[str] | None:
    """Return the names that the text of a module binds; None if they cannot be determined from the text."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return None if names & {"*", "__getattr__"} else names


def _locations(spec: ModuleSpec | None) -> list[str]:
    """Return the folders of a package; empty for a module."""
    found = spec and spec.submodule_search_locations
    return list(getattr(found, "_path", found) or ())


#: Why a point has no figures: the compiler rejected it, an exception was raised, or its workers died.
REFUSED, FAILED, LOST = "refused", "failed", "lost"

#: The number of programs that a worker keeps loaded; points are ordered by program.
_LOADED_PROGRAMS = 4

#: Lock for one compilation at a time per process: MLIR, PyTorch's export and warnings are not thread-safe.
_LOCK = threading.Lock()


@dataclass(frozen=True)
class UserFile:
    """A user-written Python file that workers import, with the digest of its content."""

    path: str
    digest: str

    @classmethod
    def read(cls, path: str) -> UserFile:
        """Read the file; raise ``CompileError`` if it cannot be read."""
        return cls(path, hashlib.sha256(read_text(path).encode("utf-8", "surrogatepass")).hexdigest())


@dataclass(frozen=True)
class Outcome:
    """The figures of a point, or the text and the kind of its error; seconds are the time of the compilation."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    kind: str = ""
    wall_s: float = 0.0
    cpu_s: float = 0.0


@dataclass(frozen=True)
class SweepTask:
    """A point: the program, all device tables as JSON, the keywords of ``compile``, and files to import.

    The result depends on nothing else: options with defaults from the environment are always among the ``options``.
    ``code`` is the digest of the compiler and its dependencies. ``algorithms`` is the digest of user-defined
    algorithms that the options name and that are not in the files.
    """

    source: ProgramSource
    device: str
    options: tuple[tuple[str, Any], ...]
    load: tuple[UserFile, ...]
    code: str
    algorithms: str = ""

    @functools.cached_property
    def key(self) -> str:
        """The digest of the content of the point."""
        content = [
            self.source.digest,
            self.device,
            self.options,
            [file.digest for file in self.load],
            self.code,
            self.algorithms,
        ]
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=repr).encode()).hexdigest()


def code_digest() -> str:
    """Return the digest of the compiler; raise ``CompileError`` if its files have changed since it was loaded."""
    try:
        return hashlib.sha256(code_text().encode()).hexdigest()
    except Uncached as reason:
        raise CompileError(f"A program of the sweep {reason}.") from None


def algorithms_digest(device: str, options: tuple[tuple[str, Any], ...], files: tuple[UserFile, ...]) -> str:
    """Return the digest of the user-defined algorithms that a point names, e.g. from entry points; empty without any.

    Algorithms in ``files`` are skipped. Raise ``CompileError`` if the code of an algorithm is not a file, or has
    changed since it was loaded.
    """
    names = {
        "cost_model": json.loads(device).get("program", {}).get("cost_model"),
        **{option: name for option, name in options if option in REGISTRIES and name},
    }
    paths = frozenset(file.path for file in files)
    return "".join(_algorithm_digest(option, name, paths) for option, name in sorted(names.items()) if name)


@functools.lru_cache(maxsize=256)
def _algorithm_digest(option: str, name: str, paths: frozenset[str]) -> str:
    cls = REGISTRIES[option].find(name)
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if not cls.is_foreign() or (file and str(Path(file).resolve()) in paths):
        return ""
    try:
        return f"{option} {code_of(cls)}\n"
    except Uncached as reason:
        raise CompileError(f"A program of the sweep {reason}; give the file as 'load'.") from None


def run_task(task: SweepTask) -> Outcome:
    """Compile a point; raise ``CompileError`` if files or code differ from the process that started the sweep."""
    with _LOCK:
        _check_code(task.code)
        try:
            for file in task.load:
                import_file(file)
            if algorithms_digest(task.device, task.options, task.load) != task.algorithms:
                raise _OtherFilesError("An algorithm of the sweep differs on a worker.")
            program = _loaded(task.source)
        except _OtherFilesError as error:
            raise CompileError(str(error)) from None
        except Exception as error:
            return _failure(error)
        return _compiled(task, program)


class _OtherFilesError(Exception):
    """A file differs from the file in the key of the point."""


@functools.lru_cache(maxsize=4)
def _check_code(code: str) -> None:
    if code != code_digest():
        raise CompileError(
            "A worker runs another version of spyre-mlir, of its packages or of Python than the sweep; install the "
            "same on all machines."
        )


@functools.lru_cache(maxsize=64)
def import_file(file: UserFile) -> None:
    """Import a user file, once per process."""
    if UserFile.read(file.path) != file:
        raise _OtherFilesError(f"The file '{file.path}' changed while the sweep ran, or differs on a worker.")
    load(file.path)


@functools.lru_cache(maxsize=_LOADED_PROGRAMS)
def _loaded(source: ProgramSource) -> tuple[Any, Any]:
    if source.current_digest() != source.digest:
        raise _OtherFilesError(
            f"The files of the program '{source.label}' changed while the sweep ran, or differ on a worker."
        )
    return source.load()


def _compiled(task: SweepTask, program: tuple[Any, Any]) -> Outcome:
    model, inputs = program
    options = dict(task.options)
    if options.get("plan") is not None:
        options["plan"] = json.loads(options["plan"])
    begun, processor_begun = time.perf_counter(), time.process_time()
    outcome = Outcome()
    try:
        # The device tables of a point may be inconsistent, which is an error of this point only.
        target = Target.of_sections(json.loads(task.device), "the device of the point")
        with faults_reported(always=True), compiling_for(target), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = compile(model, inputs, **options)
            metrics = getattr(compiled, "metrics", None)
            if metrics is None:
                raise CompileError("A model that is compiled in pieces has no figures before it is called.")
            outcome = Outcome(metrics())
    except Exception as error:
        outcome = _failure(error)
    seconds = time.perf_counter() - begun, time.process_time() - processor_begun
    return Outcome(outcome.metrics, outcome.error, outcome.kind, *seconds)


def _failure(error: Exception) -> Outcome:
    # stderr is discarded, because ``error_of_file`` would print a traceback for each point.
    is_told = isinstance(error, CompileError)
    with contextlib.redirect_stderr(io.StringIO()):
        of_file = None if is_told else error_of_file(error)
    # An error in a user-defined algorithm or in the compiler is a failure, not a rejection of the program.
    kind = REFUSED if is_told and not isinstance(error, AlgorithmError | InternalError) else FAILED
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    text = str(error) if is_told else brief(f"{type(error).__name__}{notes}: {error}")
    text = (text if of_file is None else str(of_file)).removeprefix("error: ")
    # Replace lone surrogates, which cannot be written to a file.
    return Outcome(error=text.encode("utf-8", "replace").decode(), kind=kind)
