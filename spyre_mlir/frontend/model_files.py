# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models in files: ONNX models through torch-mlir's own importer, and programs of ``torch.export``."""

from __future__ import annotations

import zipfile
from pathlib import Path

import torch
from torch.export import ExportedProgram
from torch_mlir.dialects import torch as torch_dialect

from spyre_mlir.dialects import context as new_context
from spyre_mlir.errors import CompileError, shown_path
from spyre_mlir.frontend.importer import lower_to_linalg, run_passes
from spyre_mlir.mlir import ir

#: The conversion of ONNX operations to PyTorch operations, and the inference of their shapes.
_TO_TORCH = ("func.func(convert-torch-onnx-to-torch)", "torch-lower-to-backend-contract")


def import_onnx(path: str | Path) -> ir.Module:
    """Import an ONNX file as linalg; its weights are constants of the module.

    Raises:
        CompileError: The package onnx is missing, the file is not a valid model, or an operation has no form in linalg.
    """
    shown, context = shown_path(str(path)), new_context()
    if not Path(path).is_file():
        raise CompileError(f"{shown} cannot be read: there is no such file.")
    try:
        import onnx  # pyright: ignore[reportMissingImports]
        from torch_mlir.extras import onnx_importer
    except ImportError:
        raise CompileError("ONNX files need the package onnx: pip install 'spyre-mlir[onnx]'.") from None
    try:
        model = onnx.shape_inference.infer_shapes(onnx.load(str(path)), check_type=True)
    # The package raises errors of protobuf and of its checker.
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise CompileError(f"{shown} is not a valid ONNX model: {reason}.") from error
    torch_dialect.register_dialect(context)
    try:
        info = onnx_importer.ModelInfo(model, config=onnx_importer.Config())
        module = info.create_module(context=context)
        onnx_importer.NodeImporter.define_function(info.main_graph, module.operation).import_all()
    except onnx_importer.OnnxImportError as error:
        raise CompileError(f"{shown} cannot be imported: {error}.") from error
    run_passes(module, _TO_TORCH)
    return lower_to_linalg(module)


def load_exported(path: str | Path) -> ExportedProgram:
    """Load a file that ``torch.export.save`` wrote.

    Raises:
        CompileError: The file is missing or is not such a file.
    """
    if not Path(path).is_file():
        raise CompileError(f"{shown_path(str(path))} cannot be read: there is no such file.")
    try:
        return torch.export.load(str(path))
    except (RuntimeError, zipfile.BadZipFile, ValueError, KeyError) as error:
        reason = str(error).partition("\n")[0]
        raise CompileError(f"{shown_path(str(path))} is not a program of torch.export: {reason}.") from error
