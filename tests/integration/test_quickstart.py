"""The quick start of the documentation: a notebook that is the page, and that runs in a kernel from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from scripts.notebook import NOTEBOOK, PAGE, ROOT, notebook


def test_the_notebook_is_the_page():
    assert (ROOT / NOTEBOOK).read_text() == notebook(), "run `make docs`"
    code = re.findall(r"^```python\n(.*?)\n```", (ROOT / PAGE).read_text(), re.MULTILINE | re.DOTALL)
    cells = nbformat.read(ROOT / NOTEBOOK, as_version=4).cells
    assert [cell.source for cell in cells if cell.cell_type == "code"] == code


def test_the_notebook_runs(tmp_path: Path):
    run = nbformat.read(ROOT / NOTEBOOK, as_version=4)
    NotebookClient(run, timeout=280, resources={"metadata": {"path": str(tmp_path)}}).execute()
    _, _, training, scoring = (printed(cell) for cell in run.cells if cell.cell_type == "code")
    (auc,) = re.findall(r"'auc': ([0-9.]+)", training)
    assert float(auc) > 0.7, training
    assert re.search(r"^\d+\.\d s on the links$", training, re.MULTILINE)
    assert len(re.findall(r"^\d +\d+ +\d+ .* 0\.\d+$", scoring, re.MULTILINE)) == 5, "five visits with scores"
    assert (tmp_path / "model" / "MLmodel").is_file()


def printed(cell: Any) -> str:
    """Returns all that a cell has printed."""
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")
