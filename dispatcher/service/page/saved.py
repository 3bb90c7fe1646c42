"""Pages of one file that request nothing: of a job as it was when the file was made, and of several runs."""

from __future__ import annotations

import base64
import hashlib
import re
from datetime import datetime
from importlib.resources import files

_FOLDER = files("esd.dispatcher.service.page") / "static"
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


def saved_page(state: str, time: datetime) -> str:
    """Returns the page of a job.

    Args:
        state: the document of the page (`state_document`), as JSON.
        time: when the state was read.
    """
    return _one_file("index.html", ("charts.js", "plans.js", "page.js"), state, time)


def comparison_page(runs: str, time: datetime) -> str:
    """Returns a page that shows several runs beside each other.

    Args:
        runs: the document of `esd.run.comparison`, as JSON.
        time: when the page was made.
    """
    return _one_file("compare.html", ("charts.js", "compare.js"), runs, time)


def _one_file(name: str, modules: tuple[str, ...], document: str, time: datetime) -> str:
    """Returns an HTML document with its styles, its script, and a JSON document, the element `state`.

    Its Content-Security-Policy allows this style sheet and this script by their hashes, and no connection.

    Args:
        name: of the HTML document, which names the last module.
        modules: of the script, in the order of their imports.
        document: as JSON.
        time: to which the document belongs.
    """
    script = "\n" + "".join(_EXPORT.sub("", _IMPORT.sub("", _text(module))) for module in modules)
    style = "\n" + _text("page.css")
    icon = "data:image/svg+xml;base64," + base64.b64encode(_text("icon.svg").encode()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    embedded = document.replace("<", r"\u003c")  # no name in it can end the element
    replaced = {
        '<meta charset="utf-8">': f'<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<link rel="stylesheet" href="/page.css">': f"<style>{style}</style>",
        f'<script type="module" src="/{modules[-1]}"></script>': f'<script type="application/json" id="state" '
        f'data-time="{time.isoformat()}">{embedded}</script>\n<script type="module">{script}</script>',
        '"/icon.svg"': f'"{icon}"',
        '; the same figures are at <a href="/state.json">/state.json</a>': "",
        '<a href="/state.json">state.json</a>': "",
    }
    # In one pass, since the texts that are put in may contain the texts that are replaced.
    pattern = re.compile("|".join(map(re.escape, replaced)))
    return pattern.sub(lambda found: replaced[found[0]], _text(name))


def _text(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")


def _hash(text: str) -> str:
    """Returns a source of a Content-Security-Policy: the hash of an inline script or style sheet."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
