# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The SDSC Bundle JSON Schema of torch-spyre as a validator, where the file is there."""

import functools
import json

import jsonschema
from foreign_data import SCHEMA


@functools.cache
def public_schema() -> jsonschema.Draft202012Validator:
    """The schema, with lists of strings for the data of constants.

    The SDSC Bundle JSON Schema has lists of integers, torch-spyre writes strings, and the device takes those.
    """
    schema = json.loads(SCHEMA.read_text())
    data = schema["$defs"]["FoldManager"]["properties"]["data_"]["patternProperties"]
    for allowed in data.values():
        allowed["oneOf"].append({"type": "array", "items": {"type": "string"}, "minItems": 1})
    return jsonschema.Draft202012Validator(schema)
