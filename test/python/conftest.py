"""For all tests, before any of them imports numpy."""

import os

# Workers of pytest share the cores; threads of BLAS that wait for each other make small products 50 times as slow.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Tests are of the compiler; those of the cache turn it on, in a folder of their own.
os.environ["SPYRE_CACHE"] = "0"
