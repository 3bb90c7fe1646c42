"""The page of a job as one file, which shows the job as it was when the file was made and requests nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from datetime import datetime
from importlib.resources import files

_FOLDER = files("esd.dispatcher.service.page") / "static"
_MODULES = ("charts.js", "plans.js", "page.js")  # in the order of their imports
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


def saved_page(state: str, time: datetime) -> str:
    """Returns the page as one HTML document with its styles, its script and a state.

    Its Content-Security-Policy allows this style sheet and this script by their hashes, and no connection.

    Args:
        state: the document of the page (`state_document`), as JSON.
        time: when the state was read.
    """
    script = "\n" + "".join(_EXPORT.sub("", _IMPORT.sub("", _text(name))) for name in _MODULES)
    style = "\n" + _text("page.css")
    icon = "data:image/svg+xml;base64," + base64.b64encode(_text("icon.svg").encode()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    embedded = state.replace("<", r"\u003c")  # no name in it can end the element
    replaced = {
        '<meta charset="utf-8">': f'<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<link rel="stylesheet" href="/page.css">': f"<style>{style}</style>",
        '<script type="module" src="/page.js"></script>': f'<script type="application/json" id="state" '
        f'data-time="{time.isoformat()}">{embedded}</script>\n<script type="module">{script}</script>',
        '"/icon.svg"': f'"{icon}"',
        '; the same figures are at <a href="/state.json">/state.json</a>': "",
        '<a href="/state.json">state.json</a>': "",
    }
    # In one pass, since the texts that are put in may contain the texts that are replaced.
    pattern = re.compile("|".join(map(re.escape, replaced)))
    return pattern.sub(lambda found: replaced[found[0]], _text("index.html"))


def _text(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")


def _hash(text: str) -> str:
    """Returns a source of a Content-Security-Policy: the hash of an inline script or style sheet."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
