# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Benchmarks: the speed of the compiler and the quality of its plans, each with the target that must hold.

    python -m benchmarks                                  lists them
    python -m benchmarks startup chain --json out.json    runs some, writes {name: {metric: value}}
    python -m benchmarks --all --markdown docs/benchmarks.md

A benchmark is a function with ``@benchmark``; its name is the name of the function with dashes, and the first line of
its docstring is the line in the list. It returns numbers by metric. The name of a metric ends with its unit:
``_seconds``, ``_bytes``; a metric without a unit is a count or a ratio. A new file of this folder is imported
automatically.
"""

import os

# Benchmarks measure the compiler without the cache; the benchmark of the cache sets this variable to 1.
os.environ["SPYRE_CACHE"] = "0"
