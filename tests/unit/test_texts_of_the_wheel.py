"""Texts that an installed package shows name nothing that only the source tree has, such as its pages and scripts."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import esd
from tests.support.source_copy import PACKAGES, ROOT

# Files and commands of the source tree.
ELSEWHERE = re.compile(
    r"\b(?:docs|deploy|benchmarks|examples|hardening|scripts|testbed|tests)/|\b[\w/]+\.md\b"
    r"|\bmake (?:setup|docs|protos)\b|\b(?:services|dispatcher|worker|ps_server)/\w+/"
)
BENCH = ROOT / "esd" / "cli" / "bench.py"  # which the help of an installed package leaves out
TABLE = ROOT / "esd" / "services" / "runtime" / "environment.py"  # of which a page of the source tree is made


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        for folder in (ROOT / package, *(path for path in (ROOT / package).iterdir() if path.is_symlink())):
            yield from folder.rglob("*.py")


def texts(module: Path) -> Iterator[str]:
    """The strings of a module that are no docstrings; a docstring that is made counts as a string."""
    tree = ast.parse(module.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, documented) and is_doc(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def is_doc(node: Any) -> bool:
    return bool(node.body) and isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)


def test_no_message_names_a_file_of_the_source_tree() -> None:
    files = sorted(set(modules()) - {BENCH, TABLE})
    assert len(files) > 200
    named = [f"{file.relative_to(ROOT)}: {text}" for file in files for text in texts(file) if ELSEWHERE.search(text)]
    assert named == []


@pytest.mark.parametrize("name", [name for name in esd.__all__ if name != "__version__"])
def test_no_public_name_is_documented_by_a_file_of_the_source_tree(name: str) -> None:
    public = getattr(esd, name)
    members = [member for member in vars(public).values() if callable(member)] if isinstance(public, type) else []
    for documented in (public, *members):
        assert not ELSEWHERE.search(inspect.getdoc(documented) or ""), inspect.getdoc(documented)
