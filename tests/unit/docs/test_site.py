"""The site of the documentation, as `make site` makes it: whole, with search, and readable on a phone."""

from __future__ import annotations

import http.server
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import esd
from scripts.publish_site import publish
from tests.support.browser import chromium

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


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and its address."""
    folder = tmp_path / "published"
    folder.mkdir()
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="site")
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


async def test_versions_stand_side_by_side_and_each_page_leads_to_the_others(
    site: Path, served: tuple[Path, str], tmp_path: Path
) -> None:
    folder, address = served
    for version in (esd.__version__, "0.1.0", "99.0.0rc1", esd.__version__):
        publish(site, version, folder)
    assert f"url={esd.__version__}/" in (folder / "index.html").read_text()  # a release, which a candidate is not
    (folder / "0.1.0" / "recovery.html").unlink()
    async with chromium(tmp_path / "profile") as browser:
        for page, then in (("data", "0.1.0/data.html"), ("recovery", "0.1.0/")):
            await browser.open(f"{address}{esd.__version__}/{page}.html", width=1280, height=900)
            await browser.until("!document.querySelector('.site-versions').hidden")
            names = await browser.run("[...document.querySelectorAll('.site-versions option')].map(one => one.value)")
            assert names == ["99.0.0rc1", esd.__version__, "0.1.0"]
            assert await browser.run("document.querySelector('.site-versions select').value") == esd.__version__
            await browser.run(
                "document.querySelector('.site-versions select').value = '0.1.0',"
                "document.querySelector('.site-versions select').dispatchEvent(new Event('change'))"
            )
            await browser.arrive(address + then)


async def test_a_site_that_stands_alone_has_no_switch(site: Path, tmp_path: Path) -> None:
    async with chromium(tmp_path / "profile") as browser:
        await browser.open((site / "index.html").as_uri(), width=400, height=800)
        assert await browser.run("getComputedStyle(document.querySelector('.site-versions')).display") == "none"
        assert browser.complaints == []
