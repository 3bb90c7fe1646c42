"""A message that names a setting which a local run does not take names the option for a local run, too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from esd.run.local_settings import NOT_TAKEN

ROOT = Path(__file__).parents[3]
SERVICES = ("dispatcher", "ps_server", "worker", "services")

# A setting's variable, and the names of which one sets it in a local run.
KNOBS = {
    each.variable(field): names
    for each, fields in NOT_TAKEN.items()
    for field, reason in fields.items()
    if field != "shards"  # a local run lists its servers itself, so that no message about them arises
    and (names := re.findall(r"--[a-z][a-z-]+|PYTHONPATH", reason))
}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yields every text of a file that is no docstring: its line and its fixed parts."""
    tree = ast.parse(path.read_text())
    aside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    aside |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in aside:
            yield node.lineno, node.value


def test_there_are_settings_with_another_knob_in_a_local_run() -> None:
    assert {"ESD_PS_STORE", "ESD_PS_CHECKPOINT_DIR", "ESD_WORKER_LINK", "ESD_WORKER_CODE"} <= set(KNOBS)


@pytest.mark.parametrize("folder", SERVICES)
def test_messages_of_services_name_the_knob_of_a_local_run(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name} without {' or '.join(knobs)}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in texts(path)
        for name, knobs in KNOBS.items()
        if re.search(rf"{name}\b", text) and not any(knob in text for knob in knobs)
    ]
    assert not wrong
