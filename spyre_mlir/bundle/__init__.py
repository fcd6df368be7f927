"""SuperDSC bundles: the data model, writing, reading and validating. Knows nothing of MLIR."""

from spyre_mlir.bundle.folder import read_arrays, read_bundle, write_bundle

__all__ = ["read_arrays", "read_bundle", "write_bundle"]
