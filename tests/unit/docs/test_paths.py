"""Every file and folder that the documentation names is there, and every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from esd.run.record import RUN

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name not in (".git", ".venv", "build")}
FILE = re.compile(r"[\w*./-]+\.(?:py|pyi|md|h|cpp|cu|proto|toml|yml|sh|json|js|css|png|svg)")


def looks_like_a_path(text: str) -> bool:
    return text.split("/", maxsplit=1)[0] in FOLDERS and "/" in text and re.fullmatch(r"[\w*./-]+", text) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_paths_exist(page: Path) -> None:
    """A path begins at the root of the tree; a file's name alone may stand for a file anywhere in it."""
    named = re.findall(r"`([^`\s]+)`", page.read_text())
    paths = [text for text in named if looks_like_a_path(text)]
    assert [path for path in paths if not any(ROOT.glob(path.rstrip("/")))] == []
    files = [
        text for text in named if FILE.fullmatch(text) and not looks_like_a_path(text) and not text.startswith("/")
    ]
    homes = [ROOT / folder for folder in FOLDERS]
    files = [text for text in files if text != RUN]  # which a run writes, not this tree
    assert [file for file in files if not ((ROOT / file).exists() or any(any(h.rglob(file)) for h in homes))] == []


def test_tests_of_findings_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "hardening.md").read_text())
    assert len(named) > 50
    lacking = [f"{file}::{name}" for file, name in named if f"def {name}(" not in (ROOT / file).read_text()]
    assert lacking == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'src="([^"]+)"', text)
    for link in links:
        target, _, anchor = link.partition("#")
        if target.startswith("http"):
            continue
        file = page if not target else page.parent / target
        assert file.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings], link
