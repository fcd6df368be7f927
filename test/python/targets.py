# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Device files for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spyre_mlir.target.target import packaged_target


def device_file(folder: Path, **sections: dict[str, Any]) -> str:
    """Write the packaged device with the fields of some sections changed; returns the path of the file."""
    lines = []
    for section, table in packaged_target().sections().items():
        lines.append(f"[{section}]")
        for key, value in {**table, **sections.get(section, {})}.items():
            lines.append(f"{key} = {_toml(value)}")
    path = folder / "device.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    return json.dumps(value)
