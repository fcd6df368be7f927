# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Printing the IR before and after passes: to stderr, or to a folder with a file for each.

Upstream's pass managers print the IR. This module rewrites the files that they write where a form of ``AsmForm`` is not
supported upstream, and numbers the files of a pipeline consecutively although each pass has its own manager.
"""

from __future__ import annotations

import sys
from dataclasses import field
from pathlib import Path

from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import PassManager, ir
from spyre_mlir.pipelines.asm_form import AsmForm
from spyre_mlir.pipelines.text import PipelineStep
from spyre_mlir.records import dataclass

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
