# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names of the structured ops of ``linalg`` that a host function may have."""

from __future__ import annotations

#: Each of them states its maps and has a body.
NAMED_OPS = (
    "generic", "map", "reduce", "transpose", "broadcast", "elementwise", "fill", "copy", "add", "sub", "mul", "div",
    "div_unsigned", "max", "min", "powf", "select", "abs", "ceil", "exp", "floor", "log", "negf", "reciprocal",
    "round", "rsqrt", "sqrt", "square", "tanh", "erf", "dot", "matvec", "vecmat", "matmul", "contract",
    "matmul_transpose_a", "matmul_transpose_b", "batch_matmul", "batch_matmul_transpose_a",
    "batch_matmul_transpose_b", "batch_matvec", "batch_vecmat", "batch_reduce_matmul", "quantized_matmul",
    "quantized_batch_matmul", "mmt4d", "batch_mmt4d",
    "conv_1d", "conv_1d_ncw_fcw", "conv_1d_nwc_wcf", "conv_2d", "conv_2d_nchw_fchw", "conv_2d_nchw_fchw_q",
    "conv_2d_nhwc_fhwc", "conv_2d_nhwc_fhwc_q", "conv_2d_nhwc_hwcf", "conv_2d_nhwc_hwcf_q",
    "conv_2d_ngchw_fgchw", "conv_2d_ngchw_gfchw", "conv_2d_ngchw_gfchw_q", "conv_2d_nhwgc_gfhwc",
    "conv_2d_nhwgc_gfhwc_q", "conv_3d", "conv_3d_ncdhw_fcdhw", "conv_3d_ndhwc_dhwcf", "conv_3d_ndhwc_dhwcf_q",
    "depthwise_conv_1d_ncw_cw", "depthwise_conv_1d_nwc_wc", "depthwise_conv_1d_nwc_wcm",
    "depthwise_conv_2d_nchw_chw", "depthwise_conv_2d_nhwc_hwc", "depthwise_conv_2d_nhwc_hwc_q",
    "depthwise_conv_2d_nhwc_hwcm", "depthwise_conv_2d_nhwc_hwcm_q", "depthwise_conv_3d_ncdhw_cdhw",
    "depthwise_conv_3d_ndhwc_dhwc", "depthwise_conv_3d_ndhwc_dhwcm",
    "pooling_nchw_max", "pooling_nchw_sum", "pooling_ncw_max", "pooling_ncw_sum", "pooling_ndhwc_max",
    "pooling_ndhwc_min", "pooling_ndhwc_sum", "pooling_nhwc_max", "pooling_nhwc_max_unsigned",
    "pooling_nhwc_min", "pooling_nhwc_min_unsigned", "pooling_nhwc_sum", "pooling_nwc_max",
    "pooling_nwc_max_unsigned", "pooling_nwc_min", "pooling_nwc_min_unsigned", "pooling_nwc_sum",
)  # fmt: skip
