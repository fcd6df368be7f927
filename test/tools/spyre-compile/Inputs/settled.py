# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Wait until the files of the package are old enough for a process that starts now to use the cache."""

import time

from spyre_mlir.driver import program_cache

newest_ns = max(file.changed_ns for file in program_cache._files(str(program_cache._PACKAGE)))
time.sleep(max(0, newest_ns + 2 * program_cache._MARGIN_NS - time.time_ns()) / 1e9)
