"""The version, read by ``pyproject.toml`` and the tools."""

VERSION = "0.1.0"
