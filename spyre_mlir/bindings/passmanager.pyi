# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Types of the bindings' pass manager."""

from collections.abc import Callable
from typing import Any, overload

from spyre_mlir.bindings import ir

class PassManager:
    def __init__(self, anchor_op: str = ..., context: ir.Context | None = ...) -> None: ...
    def enable_ir_printing(
        self,
        print_before_all: bool = ...,
        print_after_all: bool = ...,
        print_module_scope: bool = ...,
        print_after_change: bool = ...,
        print_after_failure: bool = ...,
        large_elements_limit: int | None = ...,
        large_resource_limit: int | None = ...,
        enable_debug_info: bool = ...,
        print_generic_op_form: bool = ...,
        tree_printing_dir_path: str | None = ...,
    ) -> None: ...
    def enable_verifier(self, enable: bool) -> None: ...
    def enable_timing(self) -> None: ...
    def enable_statistics(self, displayMode: Any = ...) -> None: ...
    @staticmethod
    def parse(pipeline: str, context: ir.Context | None = ...) -> PassManager: ...
    @overload
    def add(self, pipeline: str) -> None: ...
    @overload
    def add(
        self,
        run: Callable[[ir.Operation, Any], None],
        name: str | None = ...,
        argument: str | None = ...,
        description: str | None = ...,
        op_name: str | None = ...,
    ) -> None: ...
    def run(self, operation: ir.Operation | ir.OpView) -> None: ...
