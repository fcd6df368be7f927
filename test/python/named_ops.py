# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small program of every named operation of linalg: name of the operation (and of a form of it) -> MLIR.

``python test/python/named_ops.py`` writes the table of docs/linalg.md.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import spyre_mlir
from spyre_mlir.errors import CompileError

PAGE = Path(__file__).parents[2] / "docs" / "linalg.md"
_BEGIN, _END = "<!-- operations -->\n", "<!-- end -->\n"

#: Operations that accumulate, with the number that initialises the result.
_MINUS_INFINITY, _INFINITY = "0xFC00", "0x7C00"


def _program(name: str, inputs: Sequence[str], output: str, start: str | None = "0.0", form: str = "") -> str:
    """An operation on tensors; ``start`` fills the result before, None leaves it empty.

    ``form`` is the text of the operation where it is not ``ins(..) outs(..)`` with attributes.
    """
    operands = [f"%x{at}" for at in range(len(inputs))]
    element = re.split("x", output)[-1]
    number = None if start is None else start if "f" in element else "0"
    types = [f"tensor<{each}>" for each in inputs]
    made = f"tensor<{output}>"
    lines = [f"  %e = tensor.empty() : {made}"]
    if number is not None:
        lines.append(f"  %c = arith.constant {number} : {element}")
        lines.append(f"  %o = linalg.fill ins(%c : {element}) outs(%e : {made}) -> {made}")
    result = "%e" if number is None else "%o"
    body = form or f"{name} ins(@IN : @TYPES) outs(@OUT : @RESULT) -> @RESULT"
    for key, value in {
        "@INPUTS": f"ins({', '.join(operands)} : {', '.join(types)})",
        "@IN": ", ".join(operands),
        "@TYPES": ", ".join(types),
        "@OUTPUTS": f"outs({result} : {made})",
        "@OUT": result,
        "@RESULT": made,
    }.items():
        body = body.replace(key, value)
    arguments = ", ".join(f"{operand}: {type_}" for operand, type_ in zip(operands, types, strict=True))
    text = "\n".join([*lines, f"  %y = linalg.{body}", f"  return %y : {made}"])
    return f"func.func @main({arguments}) -> {made} {{\n{text}\n}}\n"


def _form(name: str, attributes: str, body: str = "") -> str:
    return f"{name} {attributes} @INPUTS @OUTPUTS {body}-> @RESULT"


_UNARY = (
    "abs", "ceil", "copy", "erf", "exp", "floor", "log", "negf", "reciprocal", "round", "rsqrt", "sqrt", "square",
    "tanh",
)  # fmt: skip
_BINARY = ("add", "div", "max", "min", "mul", "powf", "sub")
_MAPS = "affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>"
_MATMULS: dict[str, tuple[Sequence[str], str]] = {
    "batch_matmul": (("2x16x64xf16", "2x64x32xf16"), "2x16x32xf16"),
    "batch_matvec": (("2x16x64xf16", "2x64xf16"), "2x16xf16"),
    "batch_mmt4d": (("2x2x4x8x16xf16", "2x3x4x8x16xf16"), "2x2x3x8x8xf16"),
    "batch_reduce_matmul": (("2x16x64xf16", "2x64x32xf16"), "16x32xf16"),
    "batch_vecmat": (("2x64xf16", "2x64x32xf16"), "2x32xf16"),
    "dot": (("64xf16", "64xf16"), "f16"),
    "matmul": (("16x64xf16", "64x32xf16"), "16x32xf16"),
    "matvec": (("16x64xf16", "64xf16"), "16xf16"),
    "mmt4d": (("2x4x8x16xf16", "3x4x8x16xf16"), "2x3x8x8xf16"),
    "vecmat": (("64xf16", "64x32xf16"), "32xf16"),
}
_CONVOLUTIONS: dict[str, tuple[Sequence[str], str]] = {
    "conv_1d": (("18xf16", "3xf16"), "16xf16"),
    "conv_1d_ncw_fcw": (("1x64x10xf16", "64x64x3xf16"), "1x64x8xf16"),
    "conv_1d_nwc_wcf": (("1x10x64xf16", "3x64x64xf16"), "1x8x64xf16"),
    "conv_2d": (("10x10xf16", "3x3xf16"), "8x8xf16"),
    "conv_2d_nchw_fchw": (("1x64x6x6xf16", "64x64x3x3xf16"), "1x64x4x4xf16"),
    "conv_2d_ngchw_fgchw": (("1x2x64x6x6xf16", "64x2x64x3x3xf16"), "1x2x64x4x4xf16"),
    "conv_2d_ngchw_gfchw": (("1x2x64x6x6xf16", "2x64x64x3x3xf16"), "1x2x64x4x4xf16"),
    "conv_2d_nhwc_fhwc": (("1x6x6x64xf16", "64x3x3x64xf16"), "1x4x4x64xf16"),
    "conv_2d_nhwc_hwcf": (("1x6x6x64xf16", "3x3x64x64xf16"), "1x4x4x64xf16"),
    "conv_2d_nhwgc_gfhwc": (("1x6x6x2x64xf16", "2x64x3x3x64xf16"), "1x4x4x2x64xf16"),
    "conv_3d": (("5x5x5xf16", "2x2x2xf16"), "4x4x4xf16"),
    "conv_3d_ncdhw_fcdhw": (("1x64x3x3x3xf16", "64x64x2x2x2xf16"), "1x64x2x2x2xf16"),
    "conv_3d_ndhwc_dhwcf": (("1x3x3x3x64xf16", "2x2x2x64x64xf16"), "1x2x2x2x64xf16"),
    "depthwise_conv_1d_ncw_cw": (("1x64x10xf16", "64x3xf16"), "1x64x8xf16"),
    "depthwise_conv_1d_nwc_wc": (("1x10x64xf16", "3x64xf16"), "1x8x64xf16"),
    "depthwise_conv_1d_nwc_wcm": (("1x10x64xf16", "3x64x2xf16"), "1x8x64x2xf16"),
    "depthwise_conv_2d_nchw_chw": (("1x64x6x6xf16", "64x3x3xf16"), "1x64x4x4xf16"),
    "depthwise_conv_2d_nhwc_hwc": (("1x6x6x64xf16", "3x3x64xf16"), "1x4x4x64xf16"),
    "depthwise_conv_2d_nhwc_hwcm": (("1x6x6x64xf16", "3x3x64x2xf16"), "1x4x4x64x2xf16"),
    "depthwise_conv_3d_ncdhw_cdhw": (("1x64x3x3x3xf16", "64x2x2x2xf16"), "1x64x2x2x2xf16"),
    "depthwise_conv_3d_ndhwc_dhwc": (("1x3x3x3x64xf16", "2x2x2x64xf16"), "1x2x2x2x64xf16"),
    "depthwise_conv_3d_ndhwc_dhwcm": (("1x3x3x3x64xf16", "2x2x2x64x2xf16"), "1x2x2x2x64x2xf16"),
}
_POOLINGS = {
    "ncw": ("1x64x10xf16", "3xf16", "1x64x8xf16"),
    "nwc": ("1x10x64xf16", "3xf16", "1x8x64xf16"),
    "nchw": ("1x64x6x6xf16", "3x3xf16", "1x64x4x4xf16"),
    "nhwc": ("1x6x6x64xf16", "3x3xf16", "1x4x4x64xf16"),
    "ndhwc": ("1x3x3x3x64xf16", "2x2x2xf16", "1x2x2x2x64xf16"),
}
_STARTS = {"max": _MINUS_INFINITY, "min": _INFINITY, "sum": "0.0"}
_QUANTIZED = {
    "quantized_matmul": (("16x64xi8", "64x32xi8"), "16x32xi32"),
    "quantized_batch_matmul": (("2x16x64xi8", "2x64x32xi8"), "2x16x32xi32"),
    "conv_2d_nhwc_hwcf_q": (("1x6x6x64xi8", "3x3x64x64xi8"), "1x4x4x64xi32"),
    "conv_2d_nhwc_fhwc_q": (("1x6x6x64xi8", "64x3x3x64xi8"), "1x4x4x64xi32"),
    "conv_2d_nchw_fchw_q": (("1x64x6x6xi8", "64x64x3x3xi8"), "1x64x4x4xi32"),
    "conv_2d_ngchw_gfchw_q": (("1x2x64x6x6xi8", "2x64x64x3x3xi8"), "1x2x64x4x4xi32"),
    "conv_2d_nhwgc_gfhwc_q": (("1x6x6x2x64xi8", "2x64x3x3x64xi8"), "1x4x4x2x64xi32"),
    "conv_3d_ndhwc_dhwcf_q": (("1x3x3x3x64xi8", "2x2x2x64x64xi8"), "1x2x2x2x64xi32"),
    "depthwise_conv_2d_nhwc_hwc_q": (("1x6x6x64xi8", "3x3x64xi8"), "1x4x4x64xi32"),
    "depthwise_conv_2d_nhwc_hwcm_q": (("1x6x6x64xi8", "3x3x64x2xi8"), "1x4x4x64x2xi32"),
}
_ADD = "(%in: f16, %init: f16) { %s = arith.addf %in, %init : f16 linalg.yield %s : f16 }"


def _special() -> dict[str, str]:
    """Return programs of operations that need a special form."""
    square = ("16x64xf16",)
    texts = {
        "broadcast": "broadcast @INPUTS @OUTPUTS dimensions = [0]",
        "transpose": "transpose @INPUTS @OUTPUTS permutation = [1, 0]",
        "reduce": f"reduce @INPUTS @OUTPUTS dimensions = [1]\n    {_ADD}",
        "map": "map { math.exp } @INPUTS @OUTPUTS",
        "pack": "pack @IN inner_dims_pos = [0, 1] inner_tiles = [8, 16] into @OUT : tensor<16x64xf16> -> @RESULT",
        "unpack": "unpack @IN inner_dims_pos = [0, 1] inner_tiles = [8, 16] into @OUT : tensor<2x4x8x16xf16>"
        " -> @RESULT",
    }  # fmt: skip
    types = {
        "broadcast": (("64xf16",), "16x64xf16"), "transpose": (square, "64x16xf16"), "reduce": (square, "16xf16"),
        "map": (square, "16x64xf16"), "pack": (square, "2x4x8x16xf16"), "unpack": (("2x4x8x16xf16",), "16x64xf16"),
    }  # fmt: skip
    programs = {name: _program(name, *types[name], "0.0", form) for name, form in texts.items()}
    both, maps = ("64x16xf16", "64x32xf16"), f"indexing_maps = [{_MAPS}]"
    programs["matmul (maps)"] = _program("matmul", both, "16x32xf16", "0.0", _form("matmul", maps))
    programs["contract"] = _program("contract", both, "16x32xf16", "0.0", _form("contract", maps))
    programs["elementwise"] = _program(
        "elementwise",
        square * 2,
        "16x64xf16",
        None,
        _form("elementwise", "kind=#linalg.elementwise_kind<add>"),
    )
    programs["select"] = _program("select", ("16x64xi1", "16x64xf16", "16x64xf16"), "16x64xf16", None)
    programs["softmax"] = _program("softmax", square, "16x64xf16", None, _form("softmax", "dimension(1)"))
    programs["fill"] = _program("fill", square, "16x64xf16").replace(
        "linalg.fill ins(@IN", "linalg.fill ins(%c"
    )
    programs["fill"] = (
        "func.func @main(%x: f16) -> tensor<16x64xf16> {\n  %e = tensor.empty() : tensor<16x64xf16>\n"
        "  %y = linalg.fill ins(%x : f16) outs(%e : tensor<16x64xf16>) -> tensor<16x64xf16>\n"
        "  return %y : tensor<16x64xf16>\n}\n"
    )
    programs["fill (of a constant)"] = (
        programs["fill"].replace("%x: f16", "").replace("  %e =", "  %x = arith.constant 2.5 : f16\n  %e =")
    )
    programs["fill_rng_2d"] = (
        "func.func @main() -> tensor<16x64xf32> {\n  %a = arith.constant 0.0 : f64\n  %b = arith.constant 1.0 : f64\n"
        "  %s = arith.constant 7 : i32\n  %e = tensor.empty() : tensor<16x64xf32>\n"
        "  %y = linalg.fill_rng_2d ins(%a, %b, %s : f64, f64, i32) outs(%e : tensor<16x64xf32>) -> tensor<16x64xf32>\n"
        "  return %y : tensor<16x64xf32>\n}\n"
    )
    for kind, source, result in (
        ("filter", "2x3x3x5xf32", "6x6x5x2xf32"),
        ("input", "2x10x10x5xf32", "6x6x2x2x2x5xf32"),
        ("output", "6x6x2x2x2x2xf32", "2x8x8x2xf32"),
    ):
        name = f"winograd_{kind}_transform"
        programs[name] = _program(name, (source,), result, "0.0", _form(name, "fmr(F_4_3)"))
    return programs


def _with_zero_points(name: str, inputs: Sequence[str], output: str) -> str:
    text = _program(name, inputs, output)
    text = re.sub(r"(%y = .* ins\(%x0, %x1)( : [^)]*)\)", r"\1, %z, %z\2, i32, i32)", text)
    return text.replace("  %e =", "  %z = arith.constant 3 : i32\n  %e =", 1)


def programs() -> dict[str, str]:
    """Return all programs by name; the name is the operation, followed by its form in brackets."""
    found = {name: _program(name, ["16x64xf16"], "16x64xf16", None) for name in _UNARY}
    found |= {name: _program(name, ["16x64xf16"] * 2, "16x64xf16", None) for name in _BINARY}
    found["div_unsigned"] = _program("div_unsigned", ["16x64xi32"] * 2, "16x64xi32", None)
    found |= {name: _program(name, *types) for name, types in (_MATMULS | _CONVOLUTIONS).items()}
    for layout, (source, window, result) in _POOLINGS.items():
        for kind in ("max", "min", "sum"):
            if kind != "min" or layout in ("nwc", "nhwc", "ndhwc"):
                name = f"pooling_{layout}_{kind}"
                found[name] = _program(name, (source, window), result, _STARTS[kind])
            if kind != "sum" and layout in ("nwc", "nhwc"):
                name = f"pooling_{layout}_{kind}_unsigned"
                types = [each.replace("f16", "i32") for each in (source, window, result)]
                found[name] = _program(name, types[:2], types[2])
    found |= {name: _with_zero_points(name, *types) for name, types in _QUANTIZED.items()}
    return dict(sorted((found | _special()).items()))


@functools.cache
def compiled(text: str) -> spyre_mlir.Program:
    """The program on 4 cores: two tests take it."""
    return spyre_mlir.compile(text, sencores=4)


def where(text: str) -> str:
    """Return where the operation of a program runs: device, host, both, or the diagnostic of the compiler."""
    try:
        program = compiled(text)
    except CompileError as error:
        return error.message
    sides = {type(step).__name__ for step in program.steps}
    return {"BundleStep": "device", "HostStep": "host"}[min(sides)] if len(sides) == 1 else "device and host"


def table() -> str:
    """The lines of docs/linalg.md."""
    lines = ["| operation | where |", "|---|---|"]
    lines += [f"| `linalg.{name.partition(' ')[0]}`{name[len(name.partition(' ')[0]):]} | {where(text)} |"
              for name, text in programs().items()]  # fmt: skip
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    begin, end = page.index(_BEGIN) + len(_BEGIN), page.index(_END)
    PAGE.write_text(page[:begin] + table() + page[end:], encoding="utf-8")
    sys.exit(0)
