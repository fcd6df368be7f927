# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files of other projects that tests read where they are there: docs/sources.md has their origin and their places."""

import os
from pathlib import Path

import pytest

#: One folder for all of them; no checkout has it, and tests that need a file of it skip without.
FOLDER = Path(os.environ.get("SPYRE_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data")

#: The SDSC Bundle JSON Schema of torch-spyre.
SCHEMA = FOLDER / "sdscbundle-schema.json"
#: Patterns of scratchpad use, from the tests of torch-spyre.
PATTERNS = FOLDER / "lx-patterns.json"
#: MiniMalloc's challenging instances; their capacity is part of the file names.
INSTANCES = FOLDER / "dsa"
#: Programs in KTIR, lowered by hand.
KTIR_FILES = sorted((FOLDER / "ktir").glob("*.mlir"))
#: Designs that torch-spyre wrote, a folder each.
DESIGNS = FOLDER / "upstream-designs"
DESIGN_FOLDERS = sorted(path for path in DESIGNS.glob("*") if path.is_dir())

needs_schema = pytest.mark.skipif(not SCHEMA.exists(), reason="the SuperDSC schema is not there")
needs_patterns = pytest.mark.skipif(not PATTERNS.exists(), reason="the patterns of torch-spyre are not there")
needs_instances = pytest.mark.skipif(
    not INSTANCES.exists(), reason="the instances of MiniMalloc are not there"
)
needs_ktir = pytest.mark.skipif(not KTIR_FILES, reason="the programs in KTIR are not there")
needs_designs = pytest.mark.skipif(not DESIGN_FOLDERS, reason="the designs of torch-spyre are not there")
