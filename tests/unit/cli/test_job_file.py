"""`--config`: the options of a file, the options that override it, and the mistakes that are named."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from esd.cli.main import app
from esd.services.domain.errors import InvalidArgument

STREAM = 'data = "synthetic:zipf?fields=3&keys=50&samples=400"\n'


def invoke(file: Path, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["simulate", "--json", "--config", str(file), *arguments], catch_exceptions=False)


def simulated(file: Path, *arguments: str) -> dict[str, Any]:
    finished = invoke(file, *arguments)
    assert finished.exit_code == 0, finished.output
    return json.loads(finished.stdout.splitlines()[-1])


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(text: str) -> Path:
        file = tmp_path / "job.toml"
        file.write_text(text)
        return file

    return write


def test_a_file_says_what_options_say(write: Any) -> None:
    file = write(
        STREAM
        + 'workers = 2\nlinks = ["1m", "2m"]\nworkloads = [3, 1]\ncache-rows = 20\nlr = 0.5\nmechanism = "laia"\n'
        + 'optimizer = "adam"\neviction-term = false\niterations = 10\n'
    )
    options = (
        "--data synthetic:zipf?fields=3&keys=50&samples=400 --workers 2 --links 1m,2m --workloads 3,1 --cache-rows 20 "
        "--lr 0.5 --mechanism laia --optimizer adam --iterations 10"
    )
    by_options = CliRunner().invoke(app, ["simulate", "--json", *options.split()])
    said = json.loads(by_options.stdout.splitlines()[-1])
    assert simulated(file)["operations"] == said["operations"]
    assert simulated(file)["cost_seconds"] == said["cost_seconds"]


def test_the_command_line_wins(write: Any) -> None:
    file = write(STREAM + "workers = 2\nbatch = 4\ncache-rows = 20\niterations = 10\n")
    assert simulated(file)["iterations"] == 10
    assert simulated(file, "--iterations", "4")["iterations"] == 4


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("wokers = 2", "there is no key 'wokers'; did you mean 'workers'?"),
        ("config = 'other.toml'", "there is no key 'config'"),
        ("zzz = 1", "there is no key 'zzz'"),
        ("[cluster]\nworkers = 2", "there is no key 'cluster'"),
        ("workers = {count = 2}", "workers is {'count': 2}"),
        ("links = []", "links is []"),
        ("workers =", "cannot be read"),
    ],
)
def test_a_mistake_in_the_file_is_named(write: Any, text: str, named: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        invoke(write(text))
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("workers = 2.5", "workers is 2.5, it must be a whole number"),
        ("workers = 129", "workers is 129, it must be at most 128"),
        ("workers = true", "workers is True, it must be a whole number"),
        ('workers = "2"', "workers is '2', it must be a whole number"),
        ("direct = 1", "direct is 1, it must be true or false"),
        ('lr = "fast"', "lr is 'fast', it must be a number"),
        ('optimizer = "sdg"', "optimizer is 'sdg', choose 'sgd', 'adagrad' or 'adam'"),
        ("data = true", "data is True, it must be a text, a number, or a list of them"),
        ("links = [1, [2]]", "links is [1, [2]], it must be a text, a number, or a list of them"),
        ("schema = 3", "schema is 3, it must be a text: '3'"),
    ],
)
def test_a_value_passes_the_checks_of_its_option_and_is_named_with_its_file(write: Any, text: str, told: str) -> None:
    file = write(text)
    with pytest.raises(InvalidArgument) as refused:
        invoke(file)
    assert str(refused.value) == f"--config {file}: {told}"


def test_every_mistake_of_a_file_is_named_at_once(write: Any) -> None:
    with pytest.raises(InvalidArgument) as refused:
        invoke(write("workers = 0\nbathc = 3\nlr = []\n"))
    message = str(refused.value)
    assert "workers is 0, it must be at least 1; " in message
    assert "lr is [], it must be a number; there is no key 'bathc'; did you mean 'batch'?" in message


@pytest.mark.parametrize(
    ("text", "told", "key"),
    [
        ('links = "500q"', "link speed '500q' is not", "links"),
        ('hidden = "a,b"', "--hidden 'a,b' is not a list", "hidden"),
        ("workloads = [1, 2, 3]", "--workloads names 3 workers", "workloads"),
        ('mechanism = "best"', "mechanism 'best' is unknown", "mechanism"),
    ],
)
def test_a_mistake_that_an_option_s_meaning_shows_is_named_with_the_file(
    write: Any, text: str, told: str, key: str
) -> None:
    file = write(STREAM + text + "\n")
    with pytest.raises(InvalidArgument) as refused:
        invoke(file, "--workers", "2", "--cache-rows", "20")
    assert str(refused.value).startswith(told)
    assert str(refused.value).endswith(f"({key} of --config {file})")
    with pytest.raises(InvalidArgument) as of_the_command_line:  # which is not the file's mistake
        invoke(write(STREAM), "--workers", "2", "--cache-rows", "20", "--hidden", "a,b")
    assert "--config" not in str(of_the_command_line.value)


@pytest.mark.parametrize("before", [True, False], ids=["before the file", "after the file"])
def test_an_option_of_the_file_is_taken_back(write: Any, before: bool) -> None:
    """Any kind of option: a flag, a number and a text."""
    numbers = "workers = 2\nbatch = 4\ncache-rows = 20\niterations = 10\n"
    pairs = [
        ["--without", "evaluate,iterations, --direct"],
        ["--config", str(write(STREAM + numbers + 'direct = true\nevaluate = "no.csv"\n'))],
    ]
    arguments = ["simulate", "--json", *chain(*(pairs if before else pairs[::-1]))]
    finished = CliRunner().invoke(app, arguments, catch_exceptions=False)
    result = json.loads(finished.stdout.splitlines()[-1])
    assert (result["iterations"], sum(result["direct"]["rows"])) == (50, 0)


@pytest.mark.parametrize("name", ["iterations", "lala"])
def test_an_option_that_the_file_does_not_give_cannot_be_taken_back(write: Any, name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"--without {name}: no file .*; the given ones: data, workers"):
        invoke(write(STREAM + "workers = 2\n"), "--without", name)
