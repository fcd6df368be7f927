# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A division for the list of algorithms."""

from spyre_mlir.algorithms import register
from spyre_mlir.division_search.work_division import WorkDivision


@register
class OneCore(WorkDivision):
    name = "test-one-core"

    def divide(self, problem):
        return [1] * problem.table.splits.shape[1]
