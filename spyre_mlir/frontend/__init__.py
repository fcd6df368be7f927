"""PyTorch programs into MLIR: the only package of the compiler that imports torch."""

from spyre_mlir.frontend.importer import Argument, Imported, import_torch

__all__ = ["Argument", "Imported", "import_torch"]
