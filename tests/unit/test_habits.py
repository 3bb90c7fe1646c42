"""The checks before a commit and on a public server are the checks of `make lint` and `.ci/run`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()


def recipe(target: str) -> list[str]:
    """The commands of a target of the Makefile, as programs and subcommands of the environment."""
    body = MAKEFILE.split(f"\n{target}: ", 1)[1].split("\n\n", 1)[0]
    return re.findall(r"^\t\$\(VENV\)/bin/(.*)$", body, re.MULTILINE)


def hooks() -> dict[str, dict[str, Any]]:
    """The hooks before a commit, by their commands."""
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local", "nothing is fetched"
    return {hook["entry"]: hook for hook in repository["hooks"]}


def test_every_check_of_make_lint_runs_before_a_commit() -> None:
    for command in recipe("lint"):
        tool = re.split(r" --?\w", command)[0]  # `ruff format` of `ruff format --check`
        assert any(entry.startswith(f".venv/bin/{tool}") for entry in hooks()), command


def test_generated_files_are_made_before_a_commit() -> None:
    for target in ("protos", "docs"):
        for command in recipe(target):
            assert f".venv/bin/{command}" in hooks()


def test_hooks_run_from_the_environment_of_make_setup() -> None:
    for entry, hook in hooks().items():
        assert hook["language"] == "system"
        program = ROOT / entry.split()[0]
        assert program.parent == ROOT / ".venv" / "bin"
        re.compile(hook.get("files", ""))


def test_the_public_server_runs_what_everybody_can_run() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    (job,) = workflow["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step][-1] == ".ci/run"
    commands = (ROOT / ".ci" / "run").read_text().splitlines()
    assert [command for command in commands if command.startswith("make ")] == [
        "make test",
        "make recovery",
        "make e2e",
    ]


def test_the_audit_looks_at_every_pinned_package() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "audit.yml").read_text())
    (job,) = workflow["jobs"].values()
    audits = [step["run"] for step in job["steps"] if "pip-audit" in step.get("run", "")]
    assert [audit.split("--requirement ")[1] for audit in audits] == ["requirements.lock", "torch.txt"]
    assert "schedule" in workflow[True], "YAML reads `on` as true"
