"""A way to synchronise lives in its own files: the engine names none, and the rest of the product hardly any."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from esd.services.domain.sync import WAYS

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "native/engine"
PRODUCT = ("services", "dispatcher", "worker", "ps_server", "esd", "native")
# "full" and "none" are words of every text, and rows may be uncached, so only what names these ways is looked for.
NAMES = re.compile(
    r"(?i:staleness|stale\b|\bbounded\b|replicat|proactive|write.?through|push_?(?:all|trained)|flush_?ahead)"
    r"|(?i:on.?demand|full.?sync)|\bk?Full\b|\bUncached\b"
)
# Of bounded staleness: the way that once was everywhere.
OF_ONE_WAY = re.compile(r"BOUNDED|[Ss]taleness|stale_reads|pull_bound|push_bound")


def sources(*folders: Path) -> Iterator[Path]:
    suffixes = {".py", ".pyi", ".h", ".cpp", ".cu", ".js", ".html", ".md"}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix in suffixes and "_pb2" not in path.name and not path.is_symlink():
                yield path


def test_the_engine_names_no_way_to_synchronise() -> None:
    files = [path for path in sources(ENGINE) if ENGINE / "sync" not in path.parents]
    assert len(files) > 40
    found = {path.relative_to(ENGINE).as_posix(): sorted(set(NAMES.findall(path.read_text()))) for path in files}
    assert {path: names for path, names in found.items() if names} == {}


def test_the_names_that_are_looked_for_name_every_way() -> None:
    ways = " ".join(path.read_text() for path in sources(ENGINE / "sync"))
    assert len(set(map(str.lower, NAMES.findall(ways)))) >= len(WAYS)


def test_one_way_is_known_to_few_files() -> None:
    files = [path for path in sources(*(ROOT / folder for folder in PRODUCT)) if OF_ONE_WAY.search(path.read_text())]
    assert 5 < len(files) <= 15, [path.relative_to(ROOT).as_posix() for path in files]
