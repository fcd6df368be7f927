"""The device operations as one table: name, unit, kind, operands, formats, constants.

Every level refers to it: matching names an operation, the stick rules follow from its kind, the writer
takes unit and constants from it, the validator checks against it, the simulator gives it numbers.
``opFuncName`` of the public interface is the key.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Kind(enum.Enum):
    """Class of an operation by its use of the iteration space; decides stick rules and lowering."""

    POINTWISE = "pointwise"
    CAST = "cast"
    REDUCE_STICK = "reduction over the stick dim"
    REDUCE_OTHER = "reduction over other dims"
    MATMUL = "matmul"
    CONVOLUTION = "convolution"
    NORMALISE = "normalisation"
    POOLING = "pooling"
    TOP_K = "top-k"
    RESTICKIFY = "restickify"
    RELAYOUT = "relayout over the ring"
    GATHER = "indirect access"


DL16, FP32, INT32 = "SEN169_FP16", "IEEE_FP32", "IEEE_INT32"
INT8, FP8 = "SENINT8", "SEN143_FP8"
_BOTH = (DL16, FP32)


@dataclass(frozen=True)
class DeviceOp:
    """One device operation. ``formats`` are those of its inputs; ``result`` is the format of the result if it differs.

    ``index`` is the number of an INT32 input with positions in the input after it. ``function`` is the ``opFuncName``
    of the interface where that differs from the name.
    """

    name: str
    kind: Kind
    arity: int = 1
    formats: tuple[str, ...] = _BOTH
    result: str | None = None
    constants: tuple[str, ...] = ()
    unit: str = "sfp"
    index: int | None = None
    function: str = ""

    @property
    def table(self) -> int | None:
        """The number of the input that is read indirectly, at the positions of the index."""
        return None if self.index is None else self.index + 1

    @property
    def indirect(self) -> frozenset[int]:
        """The numbers of both inputs of an indirect access.

        Both are in device memory, and the table may span any distance there.
        """
        return frozenset() if self.index is None else frozenset({self.index, self.index + 1})

    def formats_of(self, number: int, first: str) -> tuple[str, ...]:
        """Formats allowed for an input; all but an index have the format ``first`` of the first data input."""
        if number == self.index:
            return (INT32,)
        return self.formats if number == self.first_data else (first,)

    @property
    def first_data(self) -> int:
        """The number of the first input that is no index."""
        return 1 if self.index == 0 else 0

    def result_format(self, input_format: str) -> str:
        """The format of the result for inputs of a format."""
        return self.result or input_format


def _table(*ops: DeviceOp) -> dict[str, DeviceOp]:
    return {op.name: op for op in ops}


_BINARY = (
    "add sub revsub mul realdiv maximum minimum equal notequal greaterequal lesserequal greaterthan lesserthan"
).split()
_UNARY = "abs neg exp reciprocal sigmoid silu relufwd floor".split()
_UNARY_DL16 = "log sqrt rsqrt tanh gelufwd relu6fwd mish".split()
_REDUCTIONS = "sum max min absmax".split()

DEVICE_OPS: dict[str, DeviceOp] = _table(
    *(DeviceOp(name, Kind.POINTWISE, 2) for name in _BINARY),
    *(DeviceOp(name, Kind.POINTWISE) for name in _UNARY),
    *(DeviceOp(name, Kind.POINTWISE, formats=(DL16,)) for name in _UNARY_DL16),
    DeviceOp("identity", Kind.POINTWISE, formats=(DL16, FP32, INT32)),
    DeviceOp("where3", Kind.POINTWISE, 3),
    DeviceOp("clip", Kind.POINTWISE, constants=("clipMin", "clipMax")),
    DeviceOp("leakyrelufwd", Kind.POINTWISE, formats=(DL16,), constants=("alpha",)),
    DeviceOp("softplus", Kind.POINTWISE, formats=(DL16,), constants=("softplusBeta", "softplusThresh")),
    # 1 / sqrt(x + eps) of any tensor. Statistics lack the normalised dim: they come in, and leave, sparse.
    DeviceOp("layernormscale", Kind.POINTWISE, constants=("eps",)),
    DeviceOp("addi32toi32", Kind.POINTWISE, 2, (INT32,)),
    DeviceOp("muli32toi32", Kind.POINTWISE, 2, (INT32,)),
    DeviceOp("dl16tofp32", Kind.CAST, formats=(DL16,), result=FP32),
    DeviceOp("fp32todl16", Kind.CAST, formats=(FP32,), result=DL16),
    DeviceOp("fp32toint32", Kind.CAST, formats=(FP32,), result=INT32),
    DeviceOp("int32tofp32", Kind.CAST, formats=(INT32,), result=FP32),
    *(DeviceOp(name, Kind.REDUCE_STICK) for name in _REDUCTIONS),
    *(DeviceOp(name + "nonstick", Kind.REDUCE_OTHER) for name in _REDUCTIONS),
    DeviceOp("prod", Kind.REDUCE_OTHER),
    DeviceOp("mean", Kind.REDUCE_STICK, constants=("scaling_factor",)),
    DeviceOp("meannonstick", Kind.REDUCE_OTHER, constants=("scaling_factor",)),
    DeviceOp("exx2_zeromean", Kind.REDUCE_STICK, constants=("exx2scale",)),
    DeviceOp("batchmatmul", Kind.MATMUL, 2, (DL16,), unit="pt"),
    # Both accumulate in more than their operands have and round to DL16 at the end, an integer sum too.
    DeviceOp("batchmatmulint8", Kind.MATMUL, 2, (INT8,), result=DL16, unit="pt"),
    DeviceOp("batchmatmulfp8", Kind.MATMUL, 2, (FP8,), result=DL16, unit="pt"),
    DeviceOp("ReStickifyOpHBM", Kind.RESTICKIFY, formats=(DL16, FP32, INT32)),
    # Rows of a table by their positions: a copy whose source is read indirectly.
    DeviceOp("gather", Kind.GATHER, 2, (DL16, FP32, INT32), index=0, function="identity"),
    # From one distribution over the LX of the cores to another, bits as they are.
    DeviceOp("shuffle", Kind.RELAYOUT, formats=(DL16, FP32, INT32)),
)

#: The kind of every operation of the interface that the stick rules know, those without a lowering included.
KINDS: dict[str, Kind] = {
    **{op.name: op.kind for op in DEVICE_OPS.values()},
    "batchmatmulint4": Kind.MATMUL,
    **dict.fromkeys(("conv2d", "conv2dfp8", "conv2dint8", "conv2dint4"), Kind.CONVOLUTION),
    "exx2": Kind.REDUCE_STICK,
    "layernormnorm": Kind.NORMALISE,
    **dict.fromkeys(("avgpoolfwd", "maxpoolfwd"), Kind.POOLING),
    **dict.fromkeys(("topkvalue", "topkindex"), Kind.TOP_K),
}

#: The neutral value of a reduction, and of the contracted dim of a matmul: the value of masked elements.
NEUTRAL: dict[str, float] = {
    **dict.fromkeys(
        ("sum", "mean", "absmax", "exx2_zeromean", "batchmatmul", "sumnonstick", "meannonstick"), 0.0
    ),
    **dict.fromkeys(("absmaxnonstick", "batchmatmulint8", "batchmatmulfp8"), 0.0),
    **dict.fromkeys(("max", "maxnonstick"), float("-inf")),
    **dict.fromkeys(("min", "minnonstick"), float("inf")),
    "prod": 1.0,
}

#: Matmuls whose contracted dim is never split over cores: the kernels of 8-bit operands have no partial sums
#: (torch-spyre, work_division_constraints.py).
WHOLE_SUMS = frozenset(("batchmatmulint8", "batchmatmulfp8"))

#: Operation that combines the partial results of a split reduction over the ring; addition for all others.
_COMBINED_BY = {"max": "max", "absmax": "max", "min": "min", "prod": "mul"}
COMBINE: dict[str, str] = {name: _COMBINED_BY.get(name.removesuffix("nonstick"), "add") for name in NEUTRAL}
