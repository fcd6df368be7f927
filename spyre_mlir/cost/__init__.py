# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cost model: one model of time, by which plans are ranked. Pure Python and numpy, without IR."""
