# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Wait until the files of the package are old enough for a process that starts now to use the cache."""

import time

from spyre_mlir.driver import cache_settings

newest_ns = max(file.changed_ns for file in cache_settings._files(str(cache_settings._PACKAGE)))
time.sleep(max(0, newest_ns + 2 * cache_settings._MARGIN_NS - time.time_ns()) / 1e9)
