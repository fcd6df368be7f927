# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch_spyre._inductor.optimize_restickify``: the width of a search that this compiler does not run."""

BEAM_WIDTH = 1
