"""The site of the documentation, as `make site` makes it: whole, with search, and readable on a phone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import esd

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of the Makefile, in a folder of its own."""
    (command,) = re.findall(
        r"^\t\$\(VENV\)/bin/sphinx-build (.*) build/site$", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    folder = tmp_path_factory.mktemp("site")
    made = subprocess.run(
        [sys.executable, "-m", "sphinx", *command.split(), str(folder)], cwd=ROOT, capture_output=True, text=True,
        check=False, timeout=280,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return folder


def test_every_page_is_in_the_site_and_in_its_search(site: Path) -> None:
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    assert {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")} >= pages
    index = json.loads((site / "searchindex.js").read_text().removeprefix("Search.setIndex(").removesuffix(")"))
    assert set(index["docnames"]) == pages


def test_every_page_can_be_reached_by_its_menu(site: Path) -> None:
    menu = re.findall(
        r'<li class="toctree-l1[^"]*"><a class="reference internal" href="([^"#]+)\.html',
        (site / "index.html").read_text(),
    )
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")} - {"index"}
    assert set(menu) == pages


def test_every_public_name_of_the_package_is_described(site: Path) -> None:
    described = set(re.findall(r'id="esd\.(\w+)"', (site / "site" / "python.html").read_text()))
    assert {name for name in esd.__all__ if isinstance(getattr(esd, name), type)} - described == set()
    assert {"connect", "read", "load", "hybrid_dis"} <= described


def test_no_link_of_the_site_leads_nowhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        for target in re.findall(r'(?:href|src)="([^"#?]+)', page.read_text()):
            if not re.match(r"[a-z]+:", target):
                assert (page.parent / target).exists(), f"{page.relative_to(site)}: {target}"
