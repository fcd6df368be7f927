"""What a plan costs: prices in effective bytes of device memory. Pure Python, no IR."""

from spyre_mlir.cost.transfer import effective_bytes

__all__ = ["effective_bytes"]
