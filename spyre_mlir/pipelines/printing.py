# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Printing the IR before and after passes: to stderr, or to a folder with a file for each.

Upstream's pass managers print the IR. This module rewrites the files that they write where a form of ``AsmForm`` is not
supported upstream, and numbers the files of a pipeline consecutively although each pass has its own manager.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from spyre_mlir.errors import CompileError
from spyre_mlir.files import read_text, write_text
from spyre_mlir.loading import loaded_files
from spyre_mlir.mlir import PassManager, ir
from spyre_mlir.pipelines.text import Pipeline, PipelineStep
from spyre_mlir.records import dataclass

# The form in which IR is printed, including the users of each value as comments, which upstream's bindings lack.

#: The file name of the locations that mark the operations of a module while their users are printed.
_MARK = "spyre-mlir-users"
_MARKED = re.compile(rf' loc\("{_MARK}":(\d+):1\)')


@dataclass(frozen=True)
class AsmForm:
    """Options for printing IR, named after the flags of mlir-opt."""

    debug_info: bool = False
    pretty_debug_info: bool = False
    generic: bool = False
    local_scope: bool = False
    value_users: bool = False
    skip_regions: bool = False
    names_of_locations: bool = False
    elide_larger_than: int | None = None
    elide_resources_larger_than: int | None = None

    def text(self, operation: ir.Operation) -> str:
        """Return the text of an operation, with one newline at its end."""
        if self.value_users:
            return _with_users(operation, self)
        text = operation.get_asm(
            enable_debug_info=self.debug_info or self.pretty_debug_info,
            pretty_debug_info=self.pretty_debug_info,
            print_generic_op_form=self.generic,
            use_local_scope=self.local_scope,
            use_name_loc_as_prefix=self.names_of_locations,
            skip_regions=self.skip_regions,
            large_elements_limit=self.elide_larger_than,
            large_resource_limit=self.elide_resources_larger_than,
        )
        return f"{text}".rstrip("\n") + "\n"

    @property
    def is_of_pass_managers(self) -> bool:
        """Whether upstream's pass managers print in this form by themselves."""
        pretty = self.pretty_debug_info or self.names_of_locations
        return not (pretty or self.local_scope or self.value_users or self.skip_regions)


def _with_users(operation: ir.Operation, form: AsmForm) -> str:
    """Print a copy whose locations are comment numbers, and replace each location by its comment at the end of line."""
    copy = operation.clone(ip=False).operation
    # Replace all locations by comment numbers, and return the comments.
    operations = list(_operations(copy))
    state = ir.AsmState(copy)
    # Names are computed before the locations change because names may come from locations.
    titled = [(op, "", list(op.results)) for op in operations]
    titled += [
        (argument, f"{argument.get_name(state)} ", [argument])
        for op in operations for region in op.regions for block in region.blocks for argument in block.arguments
    ]  # fmt: skip
    comments = [head + _users(values, state) if values else "" for _, head, values in titled]
    with copy.context:
        for number, (owner, _, _) in enumerate(titled):
            location = ir.Location.file(_MARK, number, 1)
            if isinstance(owner, ir.Operation):
                owner.location = location
            else:
                owner.set_location(location)
    # With local scope each line contains its location itself instead of an alias.
    marked = replace(form, value_users=False, debug_info=True, local_scope=True, pretty_debug_info=False)
    lines = []
    for line in marked.text(copy).splitlines():
        texts = [comments[int(number)] for number in _MARKED.findall(line) if comments[int(number)]]
        lines.append(" // ".join([_MARKED.sub("", line), *texts]))
    return "\n".join(lines) + "\n"


def _operations(operation: ir.Operation) -> Iterator[ir.Operation]:
    yield operation
    for region in operation.regions:
        for block in region.blocks:
            for op in block.operations:
                yield from _operations(op.operation)


def _users(values: Sequence[ir.Value], state: ir.AsmState) -> str:
    texts = []
    for value in values:
        # An operation without results has its own name. The bindings list the last use first; an operation may use a
        # value twice.
        users = [use.owner.operation for use in value.uses]
        names = list(
            dict.fromkeys(
                user.results[0].get_name(state).partition("#")[0] if len(user.results) else user.name
                for user in reversed(users)
            )
        )
        texts.append(f"{'users' if len(names) > 1 else 'user'}: {', '.join(names)}" if names else "unused")
    return texts[0] if len(texts) == 1 else ", ".join(f"({text})" for text in texts)


#: The form in which upstream writes IR that is read back: it is lossless, and invalid IR can be printed in it.
_LOSSLESS = AsmForm(debug_info=True, generic=True)


class Observer:
    """A reader of the IR between the passes of a run, which it does not change."""

    def entered(self, step: PipelineStep, operation: ir.Operation) -> None:
        """Observe the IR before a pass."""

    def passed(self, step: PipelineStep, operation: ir.Operation) -> None:
        """Observe the IR after a pass."""

    def failed(self, step: PipelineStep, operation: ir.Operation) -> None:
        """Observe the IR that a pass left when it failed."""


@dataclass(frozen=True)
class Printing(Observer):
    """Settings for printing IR before or after passes, which are given by name.

    If ``tree_folder`` is set, each print is written to a file in that folder instead of stderr.
    """

    before: frozenset[str] = frozenset()
    after: frozenset[str] = frozenset()
    before_all: bool = False
    after_all: bool = False
    only_on_change: bool = False
    only_on_failure: bool = False
    module_scope: bool = False
    form: AsmForm = field(default_factory=AsmForm)
    tree_folder: str = ""
    _files: _DumpFiles = field(default_factory=lambda: _DumpFiles(), compare=False, repr=False)

    @property
    def is_wanted(self) -> bool:
        return bool(self.before or self.after or self.before_all or self.after_all)

    def apply(self, manager: PassManager, name: str) -> None:
        """Enable printing in the manager of the pass ``name``, if that pass is to be printed."""
        before = self.before_all or name in self.before
        after = self.after_all or name in self.after
        if not before and not after:
            return
        is_read_back = not self.form.is_of_pass_managers
        form = _LOSSLESS if is_read_back else self.form
        folder = self._files.open() if is_read_back or self.tree_folder else None
        manager.enable_ir_printing(
            print_before_all=before,
            print_after_all=after,
            print_module_scope=self.module_scope,
            print_after_change=self.only_on_change,
            print_after_failure=self.only_on_failure,
            large_elements_limit=form.elide_larger_than,
            large_resource_limit=form.elide_resources_larger_than,
            enable_debug_info=form.debug_info,
            print_generic_op_form=form.generic,
            tree_printing_dir_path=folder,
        )

    def passed(self, step: PipelineStep, operation: ir.Operation) -> None:
        """Print the files that the manager of one pass has written."""
        if self._files.folder is not None:
            self._files.hand_on(self, operation)

    def failed(self, step: PipelineStep, operation: ir.Operation) -> None:
        """Print the IR that one of our passes left when it failed: upstream does not print after a Python exception."""
        self.passed(step, operation)
        if step.ours and self.only_on_failure and (self.after_all or step.name in self.after):
            title = f"{type(step.ours).__name__} Failed: {step.ours} ('{operation.name}' operation)"
            text = f"// -----// IR Dump After {title} //----- //\n{self.form.text(operation)}\n"
            self.emit(Path(f"{self._files.count}_{step.name}_failed.mlir"), text)

    def emit(self, path: Path, text: str) -> None:
        """Write one print to stderr, or to its file in the folder."""
        if not self.tree_folder:
            sys.stderr.write(text)
            return
        target = Path(self.tree_folder, path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        except OSError as error:
            raise CompileError(f"The file '{target}' cannot be written: {error.strerror}.") from None


class _DumpFiles:
    """A temporary folder in which upstream's managers write files, and the number of the next file."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.count = 0

    def open(self) -> str:
        """Return the path of the folder."""
        if self.folder is None:
            import tempfile

            self.folder = Path(tempfile.mkdtemp(prefix="spyre-print-ir-"))
        return str(self.folder)

    def hand_on(self, printing: Printing, operation: ir.Operation) -> None:
        """Print the files in the folder in the requested form, and empty the folder."""
        assert self.folder is not None
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        numbers: list[int] = []
        for path in paths:
            head, _, body = path.read_text(encoding="utf-8").partition("\n")
            text = body if printing.form.is_of_pass_managers else _in_form(body, printing.form, operation)
            # Each manager numbers its files from zero.
            number, rest = path.name.split("_", 1)
            numbers.append(int(number))
            name = f"{self.count + numbers[-1]}_{rest}"
            printing.emit(path.relative_to(self.folder).with_name(name), f"{head}\n{text}")
        self.count += max(numbers, default=-1) + 1
        self._remove_folder(self.folder)
        self.folder.mkdir()

    def __del__(self) -> None:
        if self.folder is not None:
            self._remove_folder(self.folder)

    @staticmethod
    def _remove_folder(folder: Path) -> None:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


def _in_form(text: str, form: AsmForm, operation: ir.Operation) -> str:
    """Return IR in the given form, parsed from its lossless text; the text of invalid IR is returned unchanged."""
    try:
        with operation.context:
            return form.text(ir.Operation.parse(text).operation) + "\n"
    except ir.MLIRError:
        return text


# Reproducers: a module before a pipeline, with the pipeline as a resource, in the format of mlir-opt.
#
# module { .. }
# {-#
# external_resources: {
# mlir_reproducer: {
# pipeline: "builtin.module(cse)", disable_threading: true, verify_each: true
# }
# }
# #-}

_KEY, _FILES, _END = "mlir_reproducer", "spyre_files", "#-}\n"
_RESOURCE = re.compile(rf'\b{_KEY}: *\{{((?:"(?:[^"\\]|\\.)*"|[^"{{}}])*)\}}')
_PIPELINE = re.compile(r'\bpipeline: *"((?:[^"\\]|\\.)*)"')
_EMBEDDED = re.compile(rf'\b{_FILES}: *\{{\s*json: *"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)")

#: Bytes at the end of a file that are searched for a reproducer's resource before the file is overwritten.
_TAIL_BYTES = 1 << 20


@dataclass(frozen=True)
class Reproducer:
    """The settings of a reproducer that are stored with its module, and the text of local files by path."""

    pipeline: str
    verify_each: bool = True
    files: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, pipeline: Pipeline, verify_each: bool) -> Reproducer:
        """Return the reproducer of a pipeline, with the files of ``--load`` and the files that options name."""
        python = {Path(path).name: read_text(path) for path in loaded_files()}
        values = [value for step in pipeline.steps if step.ours for value in vars(step.ours).values()]
        named = [value for value in values if isinstance(value, str) and value and Path(value).is_file()]
        return cls(str(pipeline), verify_each, python | {path: read_text(path) for path in named})

    @classmethod
    def parse(cls, text: str, source: str) -> Reproducer:
        """Read the resource in the text of a module; ``CompileError`` for a text without one."""
        resource = _RESOURCE.search(text)
        pipeline = resource and _PIPELINE.search(resource[1])
        if not resource or not pipeline:
            text = f"The text has no resource '{_KEY}', which --mlir-pass-pipeline-crash-reproducer writes."
            raise CompileError(text, f"{source}:1:1")
        embedded = _EMBEDDED.search(text)
        files = json.loads(_unescaped(embedded[1])) if embedded else {}
        return cls(_unescaped(pipeline[1]), not re.search(r"verify_each: *false", resource[1]), files)

    def text(self, operation: ir.Operation) -> str:
        """Return the text of a module with the resource."""
        pipeline = _escaped(self.pipeline)
        verify = str(self.verify_each).lower()
        fields = (
            f'      pipeline: "{pipeline}",\n      disable_threading: true,\n      verify_each: {verify}\n'
        )
        # A second resource, because mlir-opt refuses unknown keys in the first.
        embedded = (
            f'    }},\n    {_FILES}: {{\n      json: "{_escaped(json.dumps(self.files))}"\n'
            if self.files
            else ""
        )
        resource = f"  external_resources: {{\n    {_KEY}: {{\n{fields}{embedded}    }}\n  }}\n"
        asm = AsmForm(debug_info=True).text(operation)
        # A file has a single resource section, which may already contain large constants of the module.
        if asm.endswith(_END):
            return f"{asm[: -len(_END)].rstrip()},\n{resource}{_END}"
        return f"{asm}\n{{-#\n{resource}{_END}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"")


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if len(match[1]) == 2 else match[1], text)


class CrashReproducer(Observer):
    """An observer that writes a reproducer to ``path`` for a run that fails or that crashes the process.

    With ``is_local`` the reproducer is the IR before the failing pass, with that pass alone. A failed pass by itself
    has no effect: the run may start again without it.
    """

    def __init__(self, path: str, pipeline: Pipeline, verify_each: bool, is_local: bool) -> None:
        self.path = path
        self._pipeline, self._verify_each, self._is_local = pipeline, verify_each, is_local
        self._is_written = self.has_failed = False

    def entered(self, step: PipelineStep, operation: ir.Operation) -> None:
        """Write the file before the pass: after a crash of native code it cannot be written."""
        if self.has_failed or (self._is_written and not self._is_local):
            return
        if not self._is_written:
            path = Path(self.path)
            if path.is_file():
                with path.open("rb") as file:
                    file.seek(max(path.stat().st_size - _TAIL_BYTES, 0))
                    if _KEY.encode() not in file.read(_TAIL_BYTES):
                        raise CompileError(
                            f"The file '{path}' is not a reproducer; name a file that may be overwritten."
                        )
        pipeline = Pipeline((step,)) if self._is_local else self._pipeline
        write_text(self.path, Reproducer.of(pipeline, self._verify_each).text(operation))
        self._is_written = True

    def finish(self, has_failed: bool) -> bool:
        """Keep the file if this is the first run that has failed, and return whether it is; else remove the file."""
        is_first = self._is_written and has_failed and not self.has_failed
        if self._is_written and not self.has_failed and not has_failed:
            Path(self.path).unlink(missing_ok=True)
            self._is_written = False
        self.has_failed = self.has_failed or is_first
        return is_first
