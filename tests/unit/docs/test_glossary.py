"""The glossary: each word lives where its last column says, and words that the project has given up stay away."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from esd.services.domain.jobs import RowLimitPolicy

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "glossary.md").read_text()
ROWS = re.findall(r"^\| (\*\*.*) \| ([^|]*) \|$", PAGE, re.MULTILINE)
PYTHON = (".py", ".pyi")
SOURCES = (*PYTHON, ".h", ".cpp", ".cu", ".proto")
FOLDERS = (
    "benchmarks", "dispatcher", "esd", "examples", "hardening", "native", "protos", "ps_server", "scripts", "services",
    "testbed", "tests", "worker",
)  # fmt: skip

# What the thing is called now.
GIVEN_UP_WORDS = {
    "crew": "training workers",
    "fruitless": "epochs without progress",
    "intake": "sample queue, submission",
    "roster": "workers",
    "seated": "members",
    "trouble": "failure report",
    "upcoming": "lookahead",
}
GIVEN_UP_NAMES = {
    "Choice": "Assignment",
    "EVICT": "FORGET: rows leave a table because they are forgotten; copies are evicted from a cache",
    "Kept": "StoredState",
    "ROW_LIMIT_POLICY_EVICT": "ROW_LIMIT_POLICY_FORGET",
    "Transfer": "TransferRow",
    "Turn": "DispatchInput, WorkerLists, ExclusiveCall",
    "take_up": "resume",
}


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in SOURCES and "_pb2" not in path.name and path != Path(__file__):
                yield path


def identifiers(path: Path) -> set[str]:
    """The names in a file and its own name, without comments and texts."""
    text = path.read_text()
    if path.suffix in PYTHON:
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        names = {token.string for token in tokens if token.type == tokenize.NAME}
    else:
        names = set(re.findall(r"[A-Za-z_]\w*", re.sub(r'//[^\n]*|"(?:\\.|[^"\n])*"', " ", text)))
    return names | {path.stem}


def words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


@cache
def public_classes() -> set[str]:
    code = [path for path in sources() if path.is_relative_to(ROOT) and "tests" not in path.relative_to(ROOT).parts]
    pattern = re.compile(r"^(?:class|struct|message|enum) ([A-Z]\w*)", re.MULTILINE)
    return {name for path in code for name in pattern.findall(path.read_text())}


@pytest.mark.parametrize(("word", "place"), ROWS, ids=[re.sub(r"\W+", "-", row[0].split("|")[0]) for row in ROWS])
def test_a_word_lives_where_its_last_column_says(word: str, place: str) -> None:
    assert re.fullmatch(r"`[^`]+`(, `[^`]+`)*", place), word
    for name in re.findall(r"`([^`]+)`", place):
        assert (ROOT / name).exists() if "/" in name else name in public_classes(), word


def test_every_row_has_a_place() -> None:
    tables = [line for line in PAGE.splitlines() if line.startswith("| **")]
    assert len(ROWS) == len(tables) > 60


def test_a_word_has_one_row() -> None:
    bold = [word.lower() for row, _ in ROWS for word in re.findall(r"\*\*([^*]+)\*\*", row)]
    assert sorted(bold) == sorted(set(bold))


def test_given_up_words_stay_away() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in sources()
        for name in identifiers(path)
        if name in GIVEN_UP_NAMES or words(name) & GIVEN_UP_WORDS.keys()
    }
    assert sorted(found) == []
    assert [policy.value for policy in RowLimitPolicy] == ["refuse", "forget"]
