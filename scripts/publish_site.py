"""Puts the site of this version, which `make site` has made, beside the sites of other versions.

    python -m scripts.publish_site FOLDER

A web server shows FOLDER. It gets one folder for each version, `versions.json` with their names for the switch on each
page, and a first page that leads to the newest version.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from packaging.version import Version

import esd

SITE = Path(__file__).resolve().parent.parent / "build" / "site"
FIRST_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8"><title>ESD</title>
<meta http-equiv="refresh" content="0; url={newest}/"><a href="{newest}/">ESD {newest}</a>
"""


def publish(site: Path, version: str, folder: Path) -> None:
    """Puts a site into a folder of versions, in place of an earlier one of the same version."""
    published = folder / version
    shutil.rmtree(published, ignore_errors=True)
    shutil.copytree(site, published, ignore=shutil.ignore_patterns(".doctrees", ".buildinfo"))
    names = [index.parent.name for index in folder.glob("*/index.html")]
    versions = sorted(names, key=Version, reverse=True)
    newest = next((name for name in versions if not Version(name).is_prerelease), versions[0])
    (folder / "versions.json").write_text(json.dumps(versions) + "\n")
    (folder / "index.html").write_text(FIRST_PAGE.format(newest=newest))
    (folder / ".nojekyll").touch()  # GitHub Pages leaves out folders such as _static without it


if __name__ == "__main__":
    publish(SITE, esd.__version__, Path(sys.argv[1]))
