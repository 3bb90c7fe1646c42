"""Driver, dispatcher and parameter server need no torch; a program that needs it names it, and the command for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.models import model_arrays

ESD = (sys.executable, "-m", "esd.cli")
PROGRAM = """\
import sys
import esd

samples = list(esd.read("events.csv", esd.Schema(label="clicked", ids=("user", "item"))))
with esd.DispatcherClient(sys.argv[1]) as dispatcher:
    there = dispatcher.hybrid_dis([[1, 5], [2, 9], [4, 4]], [2, 1])
    here = esd.hybrid_dis([[1, 5], [2, 9], [4, 4]], [2, 1])
    print(there.assignment, here.assignment, len(samples), dispatcher.describe())
"""
COMMAND = "pip install 'esd-train[train]'"
ROWS = 240
OPTIONS = "--data events.csv --schema events.toml --workers 1 --batch 12 --dim 4 --json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with data, and below it one whose Python files keep torch from being imported."""
    (tmp_path / "no-torch").mkdir()
    (tmp_path / "no-torch" / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    (tmp_path / "events.csv").write_text("user,item,clicked\n" + "ada,book,1\nbob,lamp,0\n" * (ROWS // 2))
    (tmp_path / "events.toml").write_text('label = "clicked"\nids = ["user", "item"]\n')
    return tmp_path


def environment(folder: Path, *, torch: bool) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ESD_")}
    return kept if torch else kept | {"PYTHONPATH": str(folder / "no-torch")}


@contextmanager
def serving(folder: Path, *arguments: str, torch: bool) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A service that runs, and its address."""
    process = subprocess.Popen(
        [*ESD, "serve", *arguments, "--metrics-port", "none"],
        cwd=folder, env=environment(folder, torch=torch), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process, json.loads(process.stdout.readline())["address"]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def without_torch(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=environment(folder, torch=False), capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip


def test_a_job_is_driven_and_served_without_torch_and_trained_where_it_is(folder: Path) -> None:
    with ExitStack() as services:
        ps, at_ps = services.enter_context(serving(folder, "ps", torch=False))
        dispatcher, at_dispatcher = services.enter_context(serving(folder, "dispatcher", torch=False))
        asked = without_torch(folder, sys.executable, "-c", PROGRAM, at_dispatcher)
        assert asked.stdout == "[0 0 1] [0 0 1] 1 None\n", asked.stderr
        place = ("--name", "edge-1", "--link", "1e8", "--cache-rows", "40", "--dispatcher", at_dispatcher)
        services.enter_context(serving(folder, "worker", *place, torch=True))
        attached = f"train {OPTIONS} --out out --dispatcher {at_dispatcher} --parameter-servers {at_ps}"
        finished = without_torch(folder, *ESD, *attached.split())
        assert finished.returncode == 0, finished.stderr
        assert json.loads(finished.stdout)["iterations"] == ROWS // 12
        for service in (ps, dispatcher):
            service.send_signal(signal.SIGTERM)
            assert service.wait(timeout=110) == 0
    model = model_arrays(folder / "out" / "model")
    assert len(model["ids"]) == len({"ada", "bob", "book", "lamp"})


@pytest.mark.parametrize(
    "command",
    [
        f"train {OPTIONS}",
        f"train {OPTIONS} --evaluate events.csv --dispatcher 127.0.0.1:1 --parameter-servers 127.0.0.1:1",
        f"plan {OPTIONS}",
        "serve worker --name edge-1 --link 1e8 --cache-rows 40 --dispatcher 127.0.0.1:1",
    ],
    ids=["train", "evaluate", "plan", "worker"],
)
def test_a_command_that_needs_torch_names_the_command_that_installs_it(folder: Path, command: str) -> None:
    refused = without_torch(folder, *ESD, *command.split())
    assert refused.returncode == 1
    (line,) = [line for line in refused.stderr.splitlines() if "needs torch" in line]
    assert COMMAND in line
    assert "Traceback" not in refused.stderr
    assert refused.stdout == ""


@pytest.mark.parametrize(
    "program", ["import esd; esd.Model", "from esd import Step", "import esd.testing"], ids=lambda text: text
)
def test_a_program_that_needs_torch_gets_the_command_that_installs_it(folder: Path, program: str) -> None:
    refused = without_torch(folder, sys.executable, "-c", program)
    assert COMMAND in refused.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "command", [f"simulate {OPTIONS}", "data inspect events.csv", "data readers", "--help", "serve worker --help"]
)
def test_a_command_that_trains_nothing_needs_no_torch(folder: Path, command: str) -> None:
    finished = without_torch(folder, *ESD, *command.split())
    assert finished.returncode == 0, finished.stderr
