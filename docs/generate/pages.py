# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pages of the site that are made when it is built: references from the code, the gallery, files of the root.

mkdocs-gen-files runs this file (mkdocs.yml); nothing of it is written into the checkout.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import mkdocs_gen_files

# mkdocs runs this file by its path, so its neighbours are found by theirs.
sys.path.insert(0, str(Path(__file__).parent))
gallery, references = map(importlib.import_module, ("gallery", "references"))

ROOT = Path(__file__).parents[2]

#: Files of the root that are pages of the site as well.
ROOT_FILES = ("CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md")


def page_of_root_file(name: str) -> str:
    """Return the text of a file of the root with its links as a page of the site has them."""
    text = (
        (ROOT / name)
        .read_text(encoding="utf-8")
        .replace("](docs/", "](")
        .replace("](LICENSE)", "](license.md)")
    )
    for other in ROOT_FILES:
        text = text.replace(f"]({other}", f"]({other.lower().replace('_', '-')}")
    return text.replace("](SECURITY.md)", "](security.md#reporting)")


def write(path: str, text: str) -> None:
    with mkdocs_gen_files.open(path, "w", encoding="utf-8") as page:
        page.write(text)


def main() -> None:
    """Write all pages."""
    for name in ROOT_FILES:
        write(name.lower().replace("_", "-"), page_of_root_file(name))
    license_text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    write("license.md", f"# License\n\n```text\n{license_text}```\n")
    for name, text in references.pages().items():
        write(f"reference/{name}.md", text)
    for name, data in gallery.files().items():
        with mkdocs_gen_files.open(f"gallery/{name}", "wb") as file:
            file.write(data)
    write("gallery.md", gallery.page())


main()
