"""Runs that TensorBoard, MLflow and Weights & Biases follow, and that Optuna prunes; each with the real tool."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import optuna
import pandas as pd
import pytest
import tensorboardX
import wandb
from mlflow import MlflowClient
from tensorboardX.proto import event_pb2

import esd
from esd.data import Dataset
from esd.run.events import Ended, Evaluated, Event
from esd.services.domain.errors import InvalidArgument

SCHEMA = esd.Schema(label="clicked", ids=("user", "item"))
SMALL: dict[str, Any] = {"dim": 4, "batch": 32, "hidden": [8], "progress": False, "graphs": False}
EVALUATED = {"auc", "calibration", "loss", "normalised_entropy"}  # GAUC needs groups, which these samples have not


def samples(rows: int = 2000) -> Dataset:
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 50, rows), rng.integers(0, 30, rows)
    logits = rng.normal(size=50)[users] + rng.normal(size=30)[items]
    clicked = (rng.random(rows) < 1 / (1 + np.exp(-logits))).astype(np.int64)
    return esd.read(pd.DataFrame({"clicked": clicked, "user": users, "item": items}), SCHEMA)


def scalars(folder: Path) -> dict[tuple[str, int], float]:
    """The scalars of the event files of TensorBoard, by name and step."""
    found = {}
    for path in folder.iterdir():
        with path.open("rb") as file:
            while header := file.read(12):
                data = file.read(int.from_bytes(header[:8], "little"))
                file.read(4)
                event = event_pb2.Event.FromString(data)
                for value in event.summary.value:
                    found[value.tag, event.step] = value.simple_value
    return found


def test_three_tools_follow_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    train, test = samples().split(0.2)
    events: list[Event] = []
    with (
        tensorboardX.SummaryWriter(str(tmp_path / "board")) as writer,
        wandb.init(project="clicks", mode="offline", dir=str(tmp_path)) as tracked,
        mlflow.start_run() as active,
        esd.LocalCluster(workers=1) as cluster,
    ):
        trackers = [esd.TensorBoard(writer), esd.MLflow(active.info.run_id), esd.WandB(tracked)]
        cluster.fit("wdl", train, evaluate=test, evaluate_every=20, callbacks=[*trackers, events.append], **SMALL)
        assert "esd-tracker" not in {thread.name for thread in threading.enumerate()}
        seen_by_wandb = {**tracked.summary}, {**tracked.config}
    evaluations = [event.evaluation for event in events if isinstance(event, Evaluated)]
    state = next(event.state for event in events if isinstance(event, Ended))
    expected = {(f"held_out/{name}", each.iteration): getattr(each.quality, name)
                for each in evaluations for name in EVALUATED}  # fmt: skip
    assert len(evaluations) == 3

    board = scalars(tmp_path / "board")
    assert {key: value for key, value in board.items() if key[0].startswith("held_out/")} == pytest.approx(expected)
    assert board["train/loss", state.iterations_confirmed] == pytest.approx(state.recent.loss)
    assert board["links/cost_seconds", state.iterations_confirmed] == pytest.approx(state.cost_seconds)

    client, run_id = MlflowClient(), active.info.run_id
    logged = {(name, metric.step): metric.value for name in {name for name, _ in expected}
              for metric in client.get_metric_history(run_id, name)}  # fmt: skip
    assert logged == pytest.approx(expected)
    assert client.get_run(run_id).data.params["batch"] == "32"

    summary, config = seen_by_wandb
    assert summary["links/cost_seconds"] == pytest.approx(state.cost_seconds)
    assert summary["held_out/auc"] == pytest.approx(evaluations[-1].quality.auc)
    assert config["hidden"] == "8"


class Hanging(esd.Tracker):
    """A tool that answers only when the test is over."""

    def __init__(self) -> None:
        super().__init__()
        self.over = threading.Event()

    def begin(self, options: Mapping[str, Any]) -> None:
        self.over.wait()

    def take(self, figures: Mapping[str, float], iteration: int) -> None:
        self.over.wait()


class Failing(Hanging):
    """A tool that refuses everything."""

    def begin(self, options: Mapping[str, Any]) -> None:
        raise ConnectionError("the tool is away")

    take = begin  # type: ignore[assignment]


def test_a_tool_that_hangs_or_fails_costs_figures_and_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("esd.trackers._CLOSING_SECONDS", 0.1)
    train, hanging = samples(), Hanging()
    with warnings.catch_warnings(record=True) as caught, esd.LocalCluster(workers=1) as cluster:
        warnings.simplefilter("always")
        run = cluster.fit("wdl", train, callbacks=[hanging, Failing()], **SMALL)
        assert run.result["iterations"] == 2000 // 32 + 1
    hanging.over.set()
    texts = [str(each.message) for each in caught if each.category is RuntimeWarning]
    assert sum("the tool is away" in text for text in texts) == 1
    assert sum("points were left out" in text for text in texts) == 1


def test_optuna_ends_a_trial_early() -> None:
    train, test = samples().split(0.2)
    events: list[Event] = []
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.ThresholdPruner(lower=2.0))
    with esd.LocalCluster(workers=1) as cluster:

        def objective(trial: optuna.Trial) -> float:
            pruning = esd.OptunaPruning(trial, "auc")
            options = SMALL | {"learning_rate": trial.suggest_float("learning_rate", 0.01, 0.1)}
            run = cluster.fit("wdl", train, evaluate=test, evaluate_every=10, epochs=100,
                              callbacks=[pruning, events.append], **options)  # fmt: skip
            pruning.check()
            return float(run.evaluate(test)["auc"])

        study.optimize(objective, n_trials=1)
    (trial,) = study.trials
    first = next(event.evaluation for event in events if isinstance(event, Evaluated))
    assert trial.state is optuna.trial.TrialState.PRUNED
    assert trial.intermediate_values == {first.iteration: pytest.approx(first.quality.auc)}
    ended = next(event.state for event in events if isinstance(event, Ended))
    assert ended.iterations_confirmed < 100 * 1600 // 32
    with pytest.raises(InvalidArgument, match="accuracy"):
        esd.OptunaPruning(trial, "accuracy")
