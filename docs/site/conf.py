"""Settings of Sphinx for `make site`, which makes a site of docs/."""

from __future__ import annotations

import re
from typing import Any

import esd

project = "ESD"
author = "the developers of ESD"
version = release = esd.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
root_doc = "index"
source_suffix = {".md": "markdown"}

html_theme = "furo"
html_title = f"ESD {version}"
html_favicon = "../../dispatcher/service/page/static/icon.svg"
templates_path, html_static_path = ["templates"], ["static"]
html_css_files, html_js_files = ["versions.css"], ["versions.js"]
html_sidebars = {  # those of the theme, and the switch between versions
    "**": [
        *("sidebar/brand.html", "versions.html", "sidebar/search.html"),
        *("sidebar/scroll-start.html", "sidebar/navigation.html", "sidebar/scroll-end.html"),
    ]
}

default_role = "code"  # `name` in docstrings, as in Markdown
myst_heading_anchors = 4  # as GitHub has them, to which the pages link
napoleon_use_ivar = True  # attributes stand in the class's own description, once
autodoc_typehints = "description"
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
# The generated page of calls begins its messages at a third level, and attributes of several classes have one name.
suppress_warnings = ["myst.header", "ref.python"]


def without_links_outside(_app: object, page: str, source: list[str]) -> None:
    """Leaves the text of links to Markdown files that are no pages of the site, such as the changelog."""
    up = r"\.\./" * (1 + page.count("/"))
    source[0] = re.sub(rf"\[([^\]]+)\]\({up}[^)]*\.md[^)]*\)", r"\1", source[0])


def examples_as_code(_app: object, _what: str, _name: str, _object: object, _options: Any, lines: list[str]) -> None:
    """Marks an indented block after a blank line as code, which it is in our docstrings, and a quotation for Sphinx."""
    for at in range(len(lines) - 1, 0, -1):
        begins = lines[at].startswith("    ") and not lines[at - 1].strip()
        before = next((line for line in reversed(lines[: at - 1]) if line.strip()), "")
        if begins and before and not before.startswith(" "):
            lines[at:at] = [".. code-block:: python", ""]


def setup(app: Any) -> None:
    """Connects the functions above."""
    app.connect("source-read", without_links_outside)
    app.connect("autodoc-process-docstring", examples_as_code, priority=400)  # before napoleon reads the sections
