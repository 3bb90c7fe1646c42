"""`esd.LocalCluster.fit`, `esd.load` and `esd predict`, on a table of clicks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import esd
from esd.run.events import Ended, Evaluated, Event, Progressed
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from testbed.auc import exact_auc

ROWS = 3000
SCHEMA = esd.Schema(
    label="clicked",
    ids=("user", esd.IdList("seen", max=3, table="items"), esd.Id("item", table="items")),
    dense=("price",),
    log=("price",),
    missing={"price": 1.5},
    tables={"items": esd.TableOptions(dim=4)},
)
SMALL = {"dim": 6, "batch": 32, "hidden": [8], "cache_rows": 400, "learning_rate": 0.05, "progress": False}


def clicks() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 60, ROWS), rng.integers(0, 40, ROWS)
    logits = rng.normal(size=60)[users] + rng.normal(size=40)[items]
    return pd.DataFrame(
        {
            "clicked": (rng.random(ROWS) < 1 / (1 + np.exp(-logits))).astype(np.int64),
            "user": [f"u{user}" for user in users],
            "item": items,
            "seen": [rng.integers(0, 40, rng.integers(0, 4)).tolist() for _ in range(ROWS)],
            "price": rng.random(ROWS) * 9,
        }
    )


class Own(esd.Model):
    """With dropout and a list."""

    def __init__(self, inputs: esd.ModelInputs, hidden: tuple[int, ...]) -> None:
        super().__init__(inputs, hidden)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(inputs.width, hidden[0]),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.2),
            torch.nn.Linear(hidden[0], 1),
        )

    def forward(self, embeddings: dict[str, torch.Tensor], dense: torch.Tensor) -> torch.Tensor:
        return self.layers(torch.cat((*embeddings.values(), dense), dim=1))


def local_class() -> type[esd.Model]:
    """A class that only this process can name."""

    class Local(Own):
        pass

    return Local


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float], list[Event]]:
    """The folder of a model that was fitted within a running event loop, its figures, and the events."""
    folder = tmp_path_factory.mktemp("fitted") / "model"
    train, test = esd.read(clicks(), SCHEMA).split(0.2)
    events: list[Event] = []

    def fails(event: Event) -> None:
        raise ValueError("of a callback")

    def fit() -> dict[str, float]:
        with warnings.catch_warnings(record=True) as caught, esd.LocalCluster(workers=2, links="1g") as cluster:
            warnings.simplefilter("always")
            run = cluster.fit(local_class(), train, epochs=2, callbacks=[fails, events.append], graphs=True, **SMALL)
            assert run.ended
            figures = run.evaluate(test)
            run.export(folder)
            assert len(run.history.to_pandas()) == len(run.history) > 0
            assert run.cost > 0
        assert len([each for each in caught if "of a callback" in str(each.message)]) == 1
        return figures

    async def cell() -> dict[str, float]:
        return fit()

    return folder, asyncio.run(cell()), events


def test_a_local_class_is_trained_with_every_event(fitted: tuple[Path, dict[str, float], list[Event]]) -> None:
    folder, figures, events = fitted
    assert any(isinstance(event, Progressed) for event in events)
    assert isinstance(events[-1], Ended)
    model = esd.load(folder)
    assert model.schema == SCHEMA
    assert model.config["figures"]["iterations"] == 2 * 2400 // 64
    assert model.config["options"]["learning_rate"] == 0.05
    frame = clicks()[-600:]
    auc = exact_auc(model.predict(frame)[:, 0], frame["clicked"].to_numpy())
    assert figures["auc"] == pytest.approx(auc, abs=1e-3)
    assert auc > 0.6
    assert "esd-fit" not in "".join(thread.name for thread in threading.enumerate())


def test_columns_are_found_by_name_and_refused_by_name(fitted: tuple[Path, dict[str, float], list[Event]]) -> None:
    model, frame = esd.load(fitted[0]), clicks()[:50]
    expected = model.predict(frame)
    shuffled = frame[["seen", "price", "item", "user"]]
    np.testing.assert_array_equal(model.predict(shuffled), expected)
    with pytest.raises(InvalidArgument, match="price"):
        model.predict(frame.drop(columns="price"))
    other = frame.assign(item="never seen")
    np.testing.assert_array_equal(model.predict(other)[:, 0], model.predict(other.copy())[:, 0])
    assert not np.array_equal(model.predict(other), expected)
    batch = next(iter(esd.read(frame, SCHEMA, labelled=False)))
    np.testing.assert_array_equal(model.scores(batch), expected)
    swapped = replace(SCHEMA, ids=("item", esd.IdList("seen", max=3, table="items"), esd.Id("user", table="items")))
    (other_batch,) = esd.read(frame, swapped, labelled=False)
    with pytest.raises(InvalidArgument, match="hash key"):
        model.scores(other_batch)
    assert model.predict(frame[:0]).shape == (0, 1)


PREDICT = """
import sys
sys.modules["torch"] = None  # an import of it fails
from esd.cli.main import main
sys.argv = ["esd", "predict", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_files_are_scored_without_torch(
    fitted: tuple[Path, dict[str, float], list[Event]], tmp_path: Path, ending: str
) -> None:
    frame = clicks()
    frame.to_parquet(tmp_path / "new.parquet")
    out = tmp_path / f"scores.{ending}"
    finished = subprocess.run(
        [sys.executable, "-c", PREDICT, str(fitted[0]), "--data", str(tmp_path / "new.parquet"), "--out", str(out)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    scores = pd.read_csv(out) if ending == "csv" else pd.read_parquet(out)
    assert list(scores) == ["clicked"]
    np.testing.assert_allclose(scores["clicked"], esd.load(fitted[0]).predict(frame)[:, 0], rtol=1e-6)


FAST = SMALL | {"graphs": False, "learning_rate": 0.3, "hidden": [64]}


def test_the_best_model_is_kept() -> None:
    """At this rate the model of the second evaluation is better than the finished one."""
    train, test = esd.read(clicks(), SCHEMA).split(0.2)
    losses: dict[int, float] = {}

    def watch(event: Event) -> None:
        if isinstance(event, Evaluated):
            losses[event.evaluation.iteration] = event.evaluation.quality.loss

    judged = {"evaluate": test, "evaluate_every": 50, "early_stop": "loss:9", "keep": "best"}
    with esd.LocalCluster(workers=1, links="1g") as cluster:
        with pytest.raises(InvalidArgument, match="keep='best' compares evaluations"):
            cluster.fit(Own, train, keep="best", **FAST)
        run = cluster.fit(Own, train, epochs=2, callbacks=[watch], **judged, **FAST)
        assert list(losses) == [50, 100, 150]
        best = min(losses, key=lambda at: losses[at])
        assert run.model.config["checkpoint"] == best == 100
        assert run.evaluate(test)["loss"] == pytest.approx(losses[best], abs=1e-6)


def test_a_run_that_is_stopped_has_a_model_and_a_cancelled_one_ends() -> None:
    samples = esd.read(clicks(), SCHEMA)
    with esd.LocalCluster(workers=1, links="1g") as cluster:
        trains = threading.Event()

        def watch(event: Event) -> None:
            if isinstance(event, Progressed) and event.state.iterations_confirmed:
                trains.set()

        run = cluster.fit(Own, samples, epochs=1000, wait=False, callbacks=[watch], **FAST)
        with pytest.raises(FailedPrecondition, match="still trains another model"):
            cluster.fit(Own, samples)
        assert trains.wait(200)
        run.stop()
        assert 0 < run.wait().result["samples"] < 1000 * ROWS
        assert len(run.model.predict(clicks()[:3])) == 3
        with pytest.raises(InvalidArgument, match="no option 'epoch', is epochs meant"):
            cluster.fit(Own, samples, epoch=2)
        with pytest.raises(InvalidArgument, match=r"train is a DataFrame, it must be samples of esd\.read"):
            cluster.fit(Own, clicks())
        cancelled = cluster.fit(Own, samples, epochs=1000, wait=False, **FAST)
    with pytest.raises(FailedPrecondition, match="was cancelled"):
        cancelled.wait()
    with pytest.raises(FailedPrecondition, match="needs the cluster's block"):
        cluster.fit(Own, samples)
