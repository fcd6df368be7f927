"""Version of the package, read by ``pyproject.toml`` and the tools."""

VERSION = "0.1.0"
