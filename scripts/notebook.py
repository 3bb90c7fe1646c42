"""Writes docs/quickstart.ipynb, the quick start as a notebook, from docs/quickstart.md. `make docs` runs it."""

from __future__ import annotations

from pathlib import Path

import jupytext

ROOT = Path(__file__).resolve().parent.parent
PAGE, NOTEBOOK = Path("docs/quickstart.md"), Path("docs/quickstart.ipynb")


def notebook() -> str:
    """Returns the text of the notebook: a cell for each block of Python, and one for the text between two of them."""
    cells = jupytext.read(ROOT / PAGE)
    for number, cell in enumerate(cells.cells):
        cell["id"] = f"cell-{number}"  # drawn by chance otherwise, and so another one in every run
    cells.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    text: str = jupytext.writes(cells, fmt="ipynb")
    return text + "\n"


def main() -> None:
    """Writes the notebook."""
    (ROOT / NOTEBOOK).write_text(notebook())


if __name__ == "__main__":
    main()
