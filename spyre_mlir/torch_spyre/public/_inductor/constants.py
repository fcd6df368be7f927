# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch_spyre._inductor.constants``: names of device operations, and limits of formats."""

import torch

#: Device operations of conversions within one format, and of matmuls.
IDENTITY_OP, BATCH_MATMUL_OP = "identity", "batchmatmul"

#: The largest number of 8-bit floating-point numbers.
FP8_E4M3_MAX = FP8_E4M3FN_MAX = torch.finfo(torch.float8_e4m3fn).max
