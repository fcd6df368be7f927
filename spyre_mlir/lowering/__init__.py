# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From placed operations to designs of a bundle."""
