# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pages of docs/api as names, read by griffe as mkdocstrings reads them, and what their docstrings lack."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import griffe
import yaml

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "api"

#: A name of a page, with the options below it.
DIRECTIVE = re.compile(r"^::: (\S+)\n((?: {4}.*\n?)*)", re.MULTILINE)

#: Special methods that a user calls by another notation, and whose parameters are therefore public too.
CALLED = ("__init__", "__call__")

#: Names of numbers with a unit, and the words of a docstring that say it.
UNITS = {
    "bytes": ("byte",),
    "traffic": ("byte",),
    "ns": ("nanosecond", "per ns"),
    "us": ("microsecond",),
    "seconds": ("second",),
    "sticks": ("stick",),
}


@dataclass(frozen=True)
class Entry:
    """A name of a page, and which of its members the page shows."""

    page: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def shows(self, member: str) -> bool:
        """Return whether the page has a member of the class or the module."""
        if (members := self.options.get("members")) is not None:
            return member in members
        filters = self.options.get("filters", ["!^_"])
        return not any(re.search(pattern.removeprefix("!"), member) for pattern in filters)


def entries_of(page: str, text: str) -> list[Entry]:
    """Return the names of a page."""
    return [
        Entry(page, name, (yaml.safe_load(options) or {}).get("options", {}))
        for name, options in DIRECTIVE.findall(text)
    ]


@functools.cache
def entries() -> tuple[Entry, ...]:
    """Return the names of all pages."""
    pages = sorted(PAGES.glob("*.md"))
    return tuple(entry for page in pages for entry in entries_of(page.stem, page.read_text(encoding="utf-8")))


def loaded(folder: Path, package: str) -> griffe.Module:
    """Read a package without importing it."""
    loader = griffe.GriffeLoader(search_paths=[folder], docstring_parser=griffe.Parser.google)
    module = loader.load(package)
    loader.resolve_aliases(implicit=False, external=False)
    assert isinstance(module, griffe.Module)
    return module


@functools.cache
def package() -> griffe.Module:
    """Read spyre_mlir."""
    return loaded(ROOT, "spyre_mlir")


def resolved(module: griffe.Module, name: str) -> griffe.Object:
    """Return the object of a dotted name; ``KeyError`` if it does not exist."""
    found = module[name.removeprefix(f"{module.name}.")]
    return found.final_target if isinstance(found, griffe.Alias) else found


def members(entry: Entry, obj: griffe.Object) -> Iterator[tuple[str, griffe.Object]]:
    """Yield the members that a page shows, and the special methods that users call, with their names."""
    if not isinstance(obj, griffe.Class | griffe.Module):
        return
    inherited = isinstance(obj, griffe.Class) and entry.options.get("inherited_members", True)
    for name, member in (obj.all_members if inherited else obj.members).items():
        # Imports of a module are not part of its reference.
        if isinstance(member, griffe.Alias) and isinstance(obj, griffe.Module):
            continue
        if entry.shows(name) if name not in CALLED else isinstance(obj, griffe.Class):
            yield name, member.final_target if isinstance(member, griffe.Alias) else member


def public() -> Iterator[tuple[str, griffe.Object, griffe.Object | None]]:
    """Yield each public object: its dotted name, itself, and the class that it is a member of."""
    for entry in entries():
        obj = resolved(package(), entry.name)
        yield entry.name, obj, None
        for name, member in members(entry, obj):
            yield f"{entry.name}.{name}", member, obj if isinstance(obj, griffe.Class) else None
            if isinstance(member, griffe.Class):
                for inner, part in members(Entry(entry.page, entry.name), member):
                    yield f"{entry.name}.{name}.{inner}", part, member


def text_of(obj: griffe.Object) -> str:
    """Return the docstring of an object."""
    return obj.docstring.value if obj.docstring else ""


def sections(obj: griffe.Object) -> dict[str, list[str]]:
    """Return the names in the sections of a docstring, by their kind: parameters, raises, attributes."""
    names: dict[str, list[str]] = {}
    for section in obj.docstring.parse("google", warnings=False) if obj.docstring else ():
        entries = section.value if isinstance(section.value, list) else []
        named = [getattr(entry, "name", None) or getattr(entry, "annotation", "") for entry in entries]
        names.setdefault(section.kind.value, []).extend(str(name) for name in named)
    return names


def attributes_of(cls: griffe.Object) -> set[str]:
    """Return the attributes in the docstrings of a class and of its bases."""
    bases = cls.mro() if isinstance(cls, griffe.Class) else []
    return {name for one in (cls, *bases) for name in sections(one).get("attributes", [])}


def has_summary(obj: griffe.Object) -> bool:
    """Return whether the first paragraph of a docstring is one whole sentence; true without a docstring."""
    summary = " ".join(text_of(obj).strip().partition("\n\n")[0].split())
    return not summary or (summary.endswith((".", ":")) and not re.search(r"[.!?] [A-Z`]", summary))


def is_documented(obj: griffe.Object, owner: griffe.Object | None) -> bool:
    """Return whether a public object has a docstring, or is an attribute that the class explains."""
    if text_of(obj):
        return True
    if isinstance(obj, griffe.Attribute) and owner is not None:
        # The text of an option of the pipeline is an argument of ``option``.
        return is_option(obj) or obj.name in attributes_of(owner) or is_named(obj.name, owner)
    return obj.name in CALLED


def is_option(obj: griffe.Object | griffe.Alias) -> bool:
    """Return whether an attribute is an option, whose text is an argument of what makes it."""
    return str(getattr(obj, "value", "")).startswith(("option(", "from_environment("))


def is_named(name: str, cls: griffe.Object) -> bool:
    """Return whether the prose of a class, or of one of its bases, names an attribute."""
    bases = cls.mro() if isinstance(cls, griffe.Class) else []
    return any(re.search(rf"``{name}\b", text_of(one)) for one in (cls, *bases))


def unannotated(obj: griffe.Object) -> list[str]:
    """Return what of a function has no type: parameters, or ``return``."""
    if not isinstance(obj, griffe.Function):
        return []
    parameters = [p for p in obj.parameters if p.name not in ("self", "cls")]
    names = [parameter.name for parameter in parameters if parameter.annotation is None]
    return names + (["return"] if obj.returns is None and obj.name != "__init__" else [])


def unnamed_parameters(obj: griffe.Object, owner: griffe.Object | None) -> list[str]:
    """Return the parameters that neither the sections of a docstring nor its prose name."""
    if not isinstance(obj, griffe.Function):
        return []
    is_constructor = obj.name == "__init__" and owner is not None
    documented = [text_of(obj), *([text_of(owner)] if is_constructor and owner is not None else [])]
    known = {name.lstrip("*") for name in sections(obj).get("parameters", [])}
    if is_constructor and owner is not None:
        known |= {*sections(owner).get("parameters", []), *attributes_of(owner), *explained(owner)}
    names = [p.name for p in obj.parameters if p.name not in ("self", "cls") and not p.name.startswith("_")]
    return [
        name for name in names
        if name not in known and not any(re.search(rf"``{name}\b", text) for text in documented)
    ]  # fmt: skip


def explained(cls: griffe.Object) -> set[str]:
    """Return the names of the fields of a class that have a description."""
    fields = cls.all_members.items() if isinstance(cls, griffe.Class) else ()
    return {name for name, member in fields if is_option(member) or member.docstring is not None}


def unnamed_errors(obj: griffe.Object) -> list[str]:
    """Return the exceptions that a function raises itself, and its docstring does not say."""
    if not isinstance(obj, griffe.Function) or obj.name.startswith("_"):
        return []
    raised = sections(obj).get("raises", [])
    return sorted(name for name in _raised(obj) if name not in raised and f"``{name}``" not in text_of(obj))


def _raised(obj: griffe.Function) -> set[str]:
    """Return the classes in the raise statements of a function, without nested functions."""
    source = "\n".join(obj.lines)
    indent = len(source) - len(source.lstrip())
    tree = ast.parse("\n".join(line[indent:] for line in source.splitlines()))
    names: set[str] = set()
    waiting: list[ast.AST] = list(tree.body[0].body if isinstance(tree.body[0], ast.FunctionDef) else [])
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            continue
        if (
            isinstance(node, ast.Raise)
            and isinstance(node.exc, ast.Call)
            and isinstance(node.exc.func, ast.Name)
        ):
            # A lower-case name is a function that makes an error.
            if node.exc.func.id[0].isupper():
                names.add(node.exc.func.id)
            elif node.exc.func.id == "error_at":
                names.add("CompileError")
        waiting.extend(ast.iter_child_nodes(node))
    return names - {"NotImplementedError"}


def lacks_unit(obj: griffe.Object, owner: griffe.Object | None) -> bool:
    """Return whether a number has a name that requires a unit, and no docstring states the unit."""
    word = obj.name.rpartition("_")[2]
    returns = str(getattr(obj, "returns", None) or getattr(obj, "annotation", None) or "")
    if word not in UNITS or not re.search(r"\b(int|float)\b", returns):
        return False
    texts = f"{text_of(obj)} {text_of(owner) if owner is not None else ''}".lower()
    return not any(unit in texts for unit in UNITS[word])


def warnings_of(obj: griffe.Object) -> list[str]:
    """Return the warnings of griffe about a docstring, which are errors of ``mkdocs build --strict``."""
    import logging

    messages: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    logger, handler = logging.getLogger("griffe"), Handler(logging.WARNING)
    logger.addHandler(handler)
    try:
        if obj.docstring:
            obj.docstring.parse("google")
    finally:
        logger.removeHandler(handler)
    return messages
