# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Comparison of the cost model with times measured on a card: tables of measurements, fit quality, fitted constants."""
