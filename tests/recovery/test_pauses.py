"""kill -9 of a process while the stream pauses, as it does at night: the next samples find the job alive."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from esd.run.cluster import LocalServices
from esd.run.services import ServiceProcess
from esd.services.domain.state import JobPhase, JobState
from tests.recovery import kills
from tests.recovery.kills import OPTIONS, assert_same_run, dispatcher, interrupted_run, parameter_server, worker
from tests.support import training

AHEAD = 30  # iterations before the pause; a checkpoint comes at 25
PAUSED = replace(OPTIONS, links="1g", iterations=40)


class KilledAtNight(kills.Killer):
    """Kills one process when the stream pauses; the pause is over when the process has been started again."""

    def __init__(self, choose: Callable[[LocalServices], ServiceProcess]) -> None:
        super().__init__(choose, AHEAD - kills.AHEAD)

    def __call__(self, cluster: LocalServices, state: JobState) -> None:
        if self.killed is None and state.iterations_confirmed == AHEAD and state.checkpoint > 0:
            service = self._choose(cluster)
            self.killed, self._pid = service.name, service.process.pid
            service.process.send_signal(signal.SIGKILL)
        elif self.killed is not None and self._choose(cluster).process.pid != self._pid:
            self.over.set()


class RecoveredAtNight(KilledAtNight):
    """The same; the pause is over when the job has recovered, for which no new samples may be needed."""

    def __call__(self, cluster: LocalServices, state: JobState) -> None:
        if self.killed is None:
            super().__call__(cluster, state)
        elif state.recoveries and state.phase is JobPhase.RUNNING and state.iterations_confirmed == AHEAD:
            self.over.set()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    path = tmp_path_factory.mktemp("undisturbed")
    return path, training.run(PAUSED, store="memory", shards=1, out=path)


@pytest.mark.parametrize("store", ["directory", "redis"])
@pytest.mark.parametrize("victim", [worker, dispatcher, parameter_server])
def test_a_process_killed_in_a_pause_leaves_the_model_of_an_undisturbed_run(
    undisturbed, tmp_path, victim, store, request
):
    kill = KilledAtNight(victim)
    where = (
        {"store": request.getfixturevalue("redis_url")}
        if store == "redis"
        else {"store": "memory", "checkpoint_dir": tmp_path / "kept"}
    )
    result = interrupted_run(PAUSED, kill, shards=1, out=tmp_path, **where)
    assert kill.killed
    assert_same_run(result, tmp_path, undisturbed)


def test_a_server_that_restarts_in_a_pause_is_recovered_before_it_ends(undisturbed, tmp_path):
    kill = RecoveredAtNight(parameter_server)
    result = interrupted_run(PAUSED, kill, shards=1, out=tmp_path, store="memory", checkpoint_dir=tmp_path / "kept")
    assert [recovery["cause"].rpartition(" is in another epoch")[2] for recovery in result["recoveries"]] == [
        ": it was restarted"
    ]
    assert_same_run(result, tmp_path, undisturbed)
