"""Counts the docstrings that name a thing by a clause, a person or a pronoun instead of its noun.

    python -m scripts.language                      prints the count of each package
    python -m scripts.language services/clients     prints the matching docstrings below a folder, with their lines
    python -m scripts.language --record             writes the counts to tests/unit/docs/language.toml

A docstring counts once, however often it matches. The patterns have no exceptions, so that two readers count alike.
Some sentences of good English match, too; the goal, at most 6% of all docstrings, leaves room for them.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "tests" / "unit" / "docs" / "language.toml"

FORMS = {
    # "returns what is to be pushed": "returns the pending pushes"
    "relative clause for a noun": r"what|whatever|whichever",
    # "whoever reads it", "nobody holds it": "its reader", "no worker holds it"
    "person for a program": r"who|whom|whoever|(?:some|no|any|every)body|(?:some|any|every|no )one",
    # "its rows and those of a peer": "its rows and the rows of a peer"
    "pronoun for a repeated noun": r"(?:those|that|the ones?) of|one of (?:these|those|them)",
}
PATTERN = re.compile(rf"\b(?:{'|'.join(FORMS.values())})\b", re.IGNORECASE)
HEAD = """\
# The number of docstrings of each package that match a form of scripts/language.py. It may only fall.
# After a change: python -m scripts.language --record

[matching]
"""


@dataclass(frozen=True)
class Docstring:
    """The docstring of a module, a class or a function.

    Attributes:
        path: The file, relative to the root of the repository.
        line: The line of the first match, and the docstring's first line if nothing matches.
        text: The whole docstring.
        form: The name of the form of the first match, None if nothing matches.
        match: The words that match.
    """

    path: str
    line: int
    text: str
    form: str | None = None
    match: str = ""

    @property
    def package(self) -> str:
        """The file's folder, cut after its second name, such as `dispatcher/core`."""
        return "/".join(self.path.split("/")[:-1][:2])


def docstrings(root: Path = ROOT) -> Iterator[Docstring]:
    """The docstrings of all Python files in the repository, except the generated ones."""
    for folder, below, files in os.walk(root):  # which does not follow the links in esd/
        below[:] = sorted(name for name in below if not name.startswith(".") and name != "build")
        for name in sorted(files):
            if name.endswith((".py", ".pyi")) and "_pb2" not in name:
                path = Path(folder, name)
                yield from of_module(path.relative_to(root).as_posix(), path.read_text())


def of_module(path: str, source: str) -> Iterator[Docstring]:
    """The docstrings in the source text of one file. Names in backticks are no prose and never match."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if (text := ast.get_docstring(node, clean=False)) is None:
            continue
        line = node.body[0].lineno
        prose = re.sub(r"`[^`]*`", lambda quoted: " " * len(quoted[0]), re.sub(r"\s", " ", text))
        if match := PATTERN.search(prose):
            form = next(name for name, pattern in FORMS.items() if re.fullmatch(pattern, match[0], re.IGNORECASE))
            yield Docstring(path, line + text.count("\n", 0, match.start()), text, form, match[0])
        else:
            yield Docstring(path, line, text)


def counts(found: Iterable[Docstring]) -> dict[str, tuple[int, int]]:
    """For each package the number of docstrings that match, and the number of all its docstrings."""
    every, matching = Counter[str](), Counter[str]()
    for docstring in found:
        every[docstring.package] += 1
        matching[docstring.package] += docstring.form is not None
    return {package: (matching[package], every[package]) for package in sorted(every)}


def recorded() -> dict[str, int]:
    """The recorded number of matching docstrings of each package. A package with none has no entry."""
    numbers: dict[str, int] = tomllib.loads(RECORDED.read_text())["matching"]
    return numbers


def record(matching: dict[str, int]) -> None:
    """Writes the number of matching docstrings of each package to the file.

    A package may match more often than recorded only if other packages match less often, as after a move of files.

    Raises:
        ValueError: The whole tree matches more often than recorded.
    """
    total, before = sum(matching.values()), sum(recorded().values())
    if total > before:
        raise ValueError(f"{total} docstrings match, and the recorded number is {before}: reword the new docstrings")
    lines = [f'"{package}" = {number}' for package, number in sorted(matching.items()) if number]
    RECORDED.write_text(HEAD + "\n".join(lines) + "\n")


def main() -> None:
    """Prints the counts, or the matching docstrings below the given folders, or records the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="folders or files, relative to the root")
    parser.add_argument("--record", action="store_true", help="write the counts to tests/unit/docs/language.toml")
    arguments = parser.parse_args()
    every = list(docstrings())
    for docstring in every:
        parents = (docstring.path, *map(str, Path(docstring.path).parents))
        if docstring.form and any(folder.rstrip("/") in parents for folder in arguments.folders):
            first = docstring.text.strip().split("\n", 1)[0]
            sys.stdout.write(f"{docstring.path}:{docstring.line}: {docstring.form} ({docstring.match}): {first}\n")
    by_package = counts(every)
    if not arguments.folders:
        total = sum(matching for matching, _ in by_package.values())
        for package, (matching, all_of_it) in {**by_package, "the whole tree": (total, len(every))}.items():
            sys.stdout.write(f"{package:24}{matching:5} of {all_of_it:5}  {matching / all_of_it:6.1%}\n")
    if arguments.record:
        record({package: matching for package, (matching, _) in by_package.items()})


if __name__ == "__main__":
    main()
