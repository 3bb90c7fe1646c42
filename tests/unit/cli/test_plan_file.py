"""`esd train --plan`: the options of a plan's fastest command, as the command line would have them."""

import json
from pathlib import Path
from typing import Any

import pytest

from esd.cli.later import load
from esd.services.domain.errors import InvalidArgument

OPTIONS = {
    "data": "flights", "workers": 2, "links": "100m,100m", "batch": 48, "cache-rows": 900, "lr": 0.5,
    "dense": "server", "sync": "replicated:4", "measured-links": True, "checkpoint-dir": "kept", "optimizer": "adam",
}  # fmt: skip


def parsed(file: Path, *arguments: str) -> dict[str, Any]:
    command = load("train")
    with command.make_context("train", ["--plan", str(file), *arguments]) as context:
        return context.params


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"command": "esd train", "fastest": {"seconds": 1e-5, "options": OPTIONS}}))
    return file


def test_the_fastest_command_gives_the_options_and_the_command_line_wins(plan: Path) -> None:
    params = parsed(plan, "--batch", "32", "--iterations", "7")
    expected = {
        "data": "flights", "workers": 2, "links": "100m,100m", "batch": 32, "cache_rows": 900, "learning_rate": 0.5,
        "dense_sum": "server", "sync": "replicated:4", "measured_links": True, "iterations": 7,
    }  # fmt: skip
    assert {name: params[name] for name in expected} == expected
    assert params["checkpoint_dir"] == Path("kept")
    assert params["optimizer"].value == "adam"
    assert params["mechanism"] == "joint", "options that the plan leaves out have their defaults"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no answer of esd plan --json"),
        ("[]", "is no answer of esd plan --json"),
        ('{"fastest": {"options": 3}}', "is no answer of esd plan --json"),
        ('{"fastest": {"options": {"wokers": 2}}}', "there is no key 'wokers'; did you mean 'workers'?"),
        ('{"fastest": {"options": {"batch": "many"}}}', "batch is 'many'"),
        ('{"fastest": {"options": {"plan": "other.json"}}}', "there is no key 'plan'"),
    ],
)
def test_a_file_that_is_no_plan_is_refused_and_named(plan: Path, text: str, message: str) -> None:
    plan.write_text(text)
    with pytest.raises(InvalidArgument, match=r"plan\.json") as refused:
        parsed(plan)
    assert message in str(refused.value)
    with pytest.raises(InvalidArgument, match="No such file"):
        parsed(plan.with_name("absent.json"))


@pytest.mark.parametrize("first", [True, False])
def test_a_plan_and_a_file_of_options_exclude_each_other(plan: Path, tmp_path: Path, first: bool) -> None:
    config = tmp_path / "job.toml"
    config.write_text("workers = 3\n")
    both = [["--plan", str(plan)], ["--config", str(config)]]
    command = load("train")
    with pytest.raises(InvalidArgument, match="--plan and --config exclude each other"):
        command.make_context("train", [part for pair in (both if first else both[::-1]) for part in pair])
