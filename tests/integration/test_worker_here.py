"""`LocalCluster(workers=0)`: the worker trains in the thread that waits for the run."""

from __future__ import annotations

import threading
import traceback
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch

import esd
from esd.data import Dataset
from esd.services.domain.errors import FailedPrecondition

SCHEMA = esd.Schema(label="clicked", ids=("user", "item"))
SMALL: dict[str, Any] = {"dim": 4, "batch": 32, "hidden": [8], "progress": False, "graphs": False}


def samples() -> Dataset:
    rng = np.random.default_rng(0)
    columns = {"clicked": 2, "user": 50, "item": 30}
    return esd.read(pd.DataFrame({name: rng.integers(0, most, 1000) for name, most in columns.items()}), SCHEMA)


class Seen(esd.Model):
    """Notes the threads of its forward passes, and fails where it is told to."""

    threads: ClassVar[list[threading.Thread]] = []
    fails_at = 0
    error: type[BaseException] = ValueError

    def __init__(self, inputs: esd.ModelInputs, hidden: tuple[int, ...]) -> None:
        super().__init__(inputs, hidden)
        self.layer = torch.nn.Linear(inputs.width, 1)

    def forward(self, embeddings: dict[str, torch.Tensor], dense: torch.Tensor) -> torch.Tensor:
        Seen.threads.append(threading.current_thread())
        if Seen.fails_at and len(Seen.threads) >= Seen.fails_at:
            raise Seen.error("in iteration")
        return self.layer(torch.cat((*embeddings.values(), dense), dim=1))


@pytest.fixture(autouse=True)
def nothing_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Seen, "threads", [])
    monkeypatch.setattr(Seen, "fails_at", 0)


def test_the_model_is_that_of_one_worker_and_is_trained_by_the_caller(tmp_path: Path) -> None:
    mode, threads = torch.get_deterministic_debug_mode(), torch.get_num_threads()
    for workers in (0, 1):
        with esd.LocalCluster(workers=workers) as cluster:
            cluster.fit(Seen, samples(), **SMALL).export(tmp_path / str(workers))
    here, apart = esd.load(tmp_path / "0"), esd.load(tmp_path / "1")
    frame = pd.DataFrame({"user": [1, 2, 3, 77], "item": [4, 5, 6, 7]})
    np.testing.assert_array_equal(here.predict(frame), apart.predict(frame))
    assert len(Seen.threads) > 1000 // 32
    assert set(Seen.threads) == {threading.main_thread()}
    assert (torch.get_deterministic_debug_mode(), torch.get_num_threads()) == (mode, threads)


def test_an_error_of_the_model_comes_with_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Seen, "fails_at", 12)
    with esd.LocalCluster(workers=0) as cluster, pytest.raises(FailedPrecondition, match="in iteration") as caught:
        cluster.fit(Seen, samples(), **SMALL)
    cause = caught.value.__cause__
    assert isinstance(cause, ValueError)
    assert traceback.extract_tb(cause.__traceback__)[-1].name == "forward"
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("esd-session")]


def test_ctrl_c_in_the_model_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Seen, "fails_at", 12)
    monkeypatch.setattr(Seen, "error", KeyboardInterrupt)
    with esd.LocalCluster(workers=0) as cluster:
        run = cluster.fit(Seen, samples(), wait=False, **SMALL)
        with pytest.raises(KeyboardInterrupt):
            run.wait()
        assert run.ended
        monkeypatch.setattr(Seen, "fails_at", 0)
        assert cluster.fit(Seen, samples(), **SMALL).result["iterations"] == 1000 // 32 + 1
