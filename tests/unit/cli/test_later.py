"""Subcommands are imported when they are called, and match their line in `esd --help`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from esd.cli.later import load
from esd.cli.main import COMMANDS, app

# What the help of `esd` has no need of.
SLOW = ("esd.run", "esd.dispatcher", "grpc", "pydantic", "redis", "torch")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_line_of_the_help_is_the_first_of_the_commands_own(name: str) -> None:
    assert load(name).help.partition("\n\n")[0].replace("\n", " ") == COMMANDS[name]


def test_help_imports_no_subcommand() -> None:
    code = f"""
import json, sys
from esd.cli.main import app
try:
    app(["--help"])
except SystemExit:
    print(json.dumps([name for name in {SLOW!r} if name in sys.modules]))
"""
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(finished.stdout.splitlines()[-1]) == []


def test_a_mistyped_subcommand_is_named_with_its_neighbour() -> None:
    refused = CliRunner().invoke(app, ["trian"])
    assert refused.exit_code == 2
    assert "Did you mean 'train'" in refused.output
