# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The base test suite that any algorithm is run through, from the shell or from pytest (``algorithm_checks.py``)."""
