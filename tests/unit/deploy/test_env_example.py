"""`.env.example` documents the variables of the compose files: all of them, and with the defaults in force."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
COMPOSE_FILES = [ROOT / "docker-compose.yml", *sorted((ROOT / "deploy").glob("*.yml"))]

_USE = re.compile(r"\$\{(\w+):-([^}]*)\}")
_ANY_USE = re.compile(r"(?<!\$)\$\{?(\w+)")  # $$ stands for a dollar sign
_ENTRY = re.compile(r"^(\w+)=(.*)$", re.MULTILINE)


def uses() -> set[tuple[str, str]]:
    """Variables with the defaults that the compose files give them."""
    return {use for file in COMPOSE_FILES for use in _USE.findall(file.read_text())}


def test_every_variable_is_documented_with_its_default_and_used() -> None:
    assert dict(_ENTRY.findall((ROOT / ".env.example").read_text())) == dict(uses())


def test_every_use_has_one_and_the_same_default() -> None:
    assert len(uses()) == len(dict(uses()))
    names = {name for file in COMPOSE_FILES for name in _ANY_USE.findall(file.read_text())}
    assert names == set(dict(uses()))


def test_every_variable_has_a_comment_or_a_neighbour_with_one() -> None:
    for block in (ROOT / ".env.example").read_text().split("\n\n"):
        if _ENTRY.search(block):
            assert block.startswith("#"), block
