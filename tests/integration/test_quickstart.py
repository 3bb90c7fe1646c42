"""The quick start of the documentation: its code runs from top to bottom, as the cells of a notebook do."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_quick_start_runs(tmp_path: Path) -> None:
    cells = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs" / "quickstart.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert len(cells) == 4
    program = tmp_path / "quickstart.py"
    program.write_text("\n".join(cells))
    ran = subprocess.run(
        [sys.executable, program], cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False
    )
    assert ran.returncode == 0, ran.stderr
    (auc,) = re.findall(r"'auc': ([0-9.]+)", ran.stdout)
    assert float(auc) > 0.7, ran.stdout
    assert re.search(r"^\d+\.\d s on the links$", ran.stdout, re.MULTILINE)
    assert len(re.findall(r"^\d +\d+ +\d+ .* 0\.\d+$", ran.stdout, re.MULTILINE)) == 5, "five visits with scores"
    assert (tmp_path / "model" / "MLmodel").is_file()
