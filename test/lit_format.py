# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The format of the lit tests, in a module that the processes of lit import."""

from __future__ import annotations

import os
import shlex

import lit.formats
import lit.LitConfig
import lit.Test
import lit.TestRunner


class QuotedPaths(lit.formats.ShTest):
    """The shell tests of lit, also in a checkout with spaces in its path: %s and %S are words."""

    def execute(self, test: lit.Test.Test, lit_config: lit.LitConfig.LitConfig) -> lit.Test.Result:
        """Run a test as ``ShTest`` does."""
        source = test.getSourcePath()
        words = [("%s", shlex.quote(source)), ("%S", shlex.quote(os.path.dirname(source)))]
        return lit.TestRunner.executeShTest(test, lit_config, self.execute_external, words)
