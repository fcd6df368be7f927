# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reproducers: a module before a pipeline, with the pipeline as a resource, in the format of mlir-opt.

module { .. }
{-#
  external_resources: {
    mlir_reproducer: {
      pipeline: "builtin.module(cse)", disable_threading: true, verify_each: true
    }
  }
#-}
"""

from __future__ import annotations

import re
from pathlib import Path

from spyre_mlir.errors import CompileError
from spyre_mlir.files import write_text
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines.printing import AsmForm, Observer
from spyre_mlir.pipelines.text import Pipeline, PipelineStep
from spyre_mlir.records import dataclass

_KEY, _END = "mlir_reproducer", "#-}\n"
_RESOURCE = re.compile(rf'\b{_KEY}: *\{{((?:"(?:[^"\\]|\\.)*"|[^"{{}}])*)\}}')
_PIPELINE = re.compile(r'\bpipeline: *"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)")

#: Bytes at the end of a file that are searched for a reproducer's resource before the file is overwritten.
_TAIL_BYTES = 1 << 20


@dataclass(frozen=True)
class Reproducer:
    """The settings of a reproducer that are stored with its module."""

    pipeline: str
    verify_each: bool = True

    @classmethod
    def parse(cls, text: str, source: str) -> Reproducer:
        """Read the resource in the text of a module; ``CompileError`` for a text without one."""
        resource = _RESOURCE.search(text)
        pipeline = resource and _PIPELINE.search(resource[1])
        if not resource or not pipeline:
            text = f"The text has no resource '{_KEY}', which --mlir-pass-pipeline-crash-reproducer writes."
            raise CompileError(text, f"{source}:1:1")
        unescaped = _ESCAPE.sub(
            lambda match: chr(int(match[1], 16)) if len(match[1]) == 2 else match[1], pipeline[1]
        )
        return cls(unescaped, not re.search(r"verify_each: *false", resource[1]))

    def text(self, operation: ir.Operation) -> str:
        """Return the text of a module with the resource."""
        pipeline = self.pipeline.replace("\\", r"\\").replace('"', r"\"")
        verify = str(self.verify_each).lower()
        fields = (
            f'      pipeline: "{pipeline}",\n      disable_threading: true,\n      verify_each: {verify}\n'
        )
        resource = f"  external_resources: {{\n    {_KEY}: {{\n{fields}    }}\n  }}\n"
        asm = AsmForm(debug_info=True).text(operation)
        # A file has a single resource section, which may already contain large constants of the module.
        if asm.endswith(_END):
            return f"{asm[: -len(_END)].rstrip()},\n{resource}{_END}"
        return f"{asm}\n{{-#\n{resource}{_END}"


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
        pipeline = str(Pipeline((step,)) if self._is_local else self._pipeline)
        write_text(self.path, Reproducer(pipeline, self._verify_each).text(operation))
        self._is_written = True

    def finish(self, has_failed: bool) -> bool:
        """Keep the file if this is the first run that has failed, and return whether it is; else remove the file."""
        is_first = self._is_written and has_failed and not self.has_failed
        if self._is_written and not self.has_failed and not has_failed:
            Path(self.path).unlink(missing_ok=True)
            self._is_written = False
        self.has_failed = self.has_failed or is_first
        return is_first
