# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The public JSON schema of a design, where it is on this machine."""

import functools
import json
from pathlib import Path

import jsonschema

PATH = Path(__file__).parents[3] / "shared" / "data" / "sdscbundle-schema.json"


@functools.cache
def public_schema() -> jsonschema.Draft202012Validator:
    """The schema, with lists of strings for the data of constants.

    The schema has lists of integers, torch-spyre's front end writes strings, and the device takes what that writes.
    """
    schema = json.loads(PATH.read_text())
    data = schema["$defs"]["FoldManager"]["properties"]["data_"]["patternProperties"]
    for allowed in data.values():
        allowed["oneOf"].append({"type": "array", "items": {"type": "string"}, "minItems": 1})
    return jsonschema.Draft202012Validator(schema)
