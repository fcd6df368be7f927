# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The base test suite for any algorithm, run from the shell or from pytest (``algorithm_checks.py``)."""
