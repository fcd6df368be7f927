# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cost model beside times that a card measured: tables of them, figures of the agreement, fitted constants."""
