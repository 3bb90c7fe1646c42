"""The walkthrough names files and functions that exist, and as many files as it says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "walkthrough.md").read_text()

# A file, and the names in it that stand directly behind it: `path` `name`, `name`.
MENTION = re.compile(r"`([\w/]+/[\w.]+\.(?:py|pyi|proto|h|cpp))`((?:,?\s+`[\w.:]+`)*)")
COUNT = re.compile(r"^\*\*(\d+) files\.\*\*$", re.MULTILINE)


def ways() -> list[tuple[int, list[str]]]:
    """Every way: how many files it claims, and its steps."""
    _, *parts = COUNT.split(PAGE)
    return [
        (int(count), re.findall(r"^\d+\. (.*(?:\n   .*)*)", text, re.MULTILINE))
        for count, text in zip(parts[::2], parts[1::2], strict=True)
    ]


def mentions() -> Iterator[tuple[str, str]]:
    """Every name that the page puts behind a file."""
    for path, names in MENTION.findall(PAGE):
        for name in re.findall(r"`([\w.:]+)`", names):
            yield path, name


def defined_in_python(text: str) -> set[str]:
    """The classes, functions and values that a module defines, methods behind their class."""
    names: set[str] = set()

    def collect(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(prefix + node.name)
                if isinstance(node, ast.ClassDef):
                    collect(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.Assign):
                names.update(prefix + target.id for target in node.targets if isinstance(target, ast.Name))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(prefix + node.target.id)

    collect(ast.parse(text).body, "")
    return names


def is_defined(path: str, name: str) -> bool:
    text = (ROOT / path).read_text()
    if path.endswith((".py", ".pyi")):
        return name in defined_in_python(text)
    if path.endswith(".proto"):
        return re.search(rf"^\s*(?:message|enum|rpc|service) {name}\b", text, re.MULTILINE) is not None
    return re.search(rf"\b(?:class|struct|using) {name}\b|\b{name}\(|\b{name}::", text) is not None


def test_there_are_five_ways_and_every_step_begins_with_a_file() -> None:
    assert len(ways()) == 5
    for _, steps in ways():
        assert len(steps) > 5
        assert [step for step in steps if not MENTION.match(step)] == []


@pytest.mark.parametrize(("count", "steps"), ways())
def test_the_files_of_a_way_are_as_many_as_it_says(count: int, steps: list[str]) -> None:
    files = {path for step in steps for path, _ in MENTION.findall(step)}
    assert [path for path in sorted(files) if not (ROOT / path).is_file()] == []
    assert len(files) == count, sorted(files)


def test_every_function_is_in_its_file() -> None:
    found = set(mentions())
    assert len(found) > 100
    assert [(path, name) for path, name in sorted(found) if not is_defined(path, name)] == []
