"""Callbacks of `fit` that hand a run's options and figures to the tools in which people compare runs.

    with mlflow.start_run() as active, esd.LocalCluster(workers=4) as cluster:
        run = cluster.fit(Net, train, evaluate=test, evaluate_every=500, callbacks=[esd.MLflow(active.info.run_id)])
        mlflow.log_artifacts(run.export("model"), "model")

Each is given an object of its tool, which this module does not import. Figures are named `train/auc` for the latest
iterations, `held_out/auc` for an evaluation, `links/cost_seconds` for the traffic; those that are not a number yet are
left out. They are handed over in a thread of the tracker, since a listener must return at once and a tool may wait for
a network: a slow tool slows no training.
"""

from __future__ import annotations

import math
import queue
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from importlib import import_module
from typing import Any

from esd.run.early_stop import check_metric, figure_of
from esd.run.events import Ended, Evaluated, Event, Progressed, Started, StopRun
from esd.run.options import plain
from esd.services.domain.state import JobState

_SECONDS = 2.0  # between two points of the training's figures
_QUEUED = 1000  # points that wait for the tool; later ones are left out
_CLOSING_SECONDS = 30.0  # for the tool to take what waits at the end
_PARAMETERS_PER_CALL = 100  # MLflow's limit


class Tracker(ABC):
    """A callback that hands figures to a tool; it may serve one run after the other.

    A tool that fails is reported by a warning, once a run, and training continues.

    Example:
        >>> class Printing(esd.Tracker):
        ...     def begin(self, options):
        ...         print(options["model"])
        ...     def take(self, figures, iteration):
        ...         self.last = iteration
        >>> tracker, samples = Printing(), esd.read("events.csv", esd.Schema(label="clicked", ids=("user", "item")))
        >>> with esd.LocalCluster(workers=1) as cluster:
        ...     run = cluster.fit("wdl", samples, batch=2, dim=4, progress=False, graphs=False, callbacks=[tracker])
        wdl
        >>> tracker.last
        1
    """

    def __init__(self) -> None:
        self._waiting: queue.Queue[Callable[[], object] | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._next_point = 0.0
        self._left_out = 0

    @abstractmethod
    def begin(self, options: Mapping[str, Any]) -> None:
        """Takes the options of a run that starts, as texts, numbers and lists of them."""

    @abstractmethod
    def take(self, figures: Mapping[str, float], iteration: int) -> None:
        """Takes figures after an iteration. The figures of an evaluation may come after figures of later iterations."""

    def __call__(self, event: Event) -> None:
        """Hands the figures of an event over, if it has any."""
        match event:
            case Started(options=options):
                self._start()
                described = plain(options)
                self._put(lambda: self.begin(described))
            case Progressed(state=state) if state.iterations_confirmed and time.monotonic() >= self._next_point:
                self._next_point = time.monotonic() + _SECONDS
                self._put_figures(_figures_of_training(state), state.iterations_confirmed)
            case Evaluated(evaluation=evaluation):
                self._put_figures(_figures_of_evaluation(event), evaluation.iteration)
            case Ended(state=state):
                self._put_figures(_figures_of_training(state), state.iterations_confirmed)

    def close(self) -> None:
        """Waits until the tool has taken all figures of the run, at most 30 s. `fit` calls it at the end of the run."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._waiting.put(None)
        thread.join(_CLOSING_SECONDS)
        left_out = self._left_out + (self._waiting.qsize() if thread.is_alive() else 0)
        if left_out:
            _warn(f"{type(self).__name__} takes figures too slowly: {left_out} points were left out")
        self._waiting = queue.Queue()  # a thread that hangs in its tool keeps the one before

    def _start(self) -> None:
        if self._thread is None:
            self._left_out, self._next_point = 0, 0.0
            self._thread = threading.Thread(
                target=_hand_over, args=(type(self).__name__, self._waiting), name="esd-tracker", daemon=True
            )
            self._thread.start()

    def _put_figures(self, figures: Mapping[str, float], iteration: int) -> None:
        numbers = {name: value for name, value in figures.items() if math.isfinite(value)}
        self._put(lambda: self.take(numbers, iteration))

    def _put(self, call: Callable[[], object]) -> None:
        if self._waiting.qsize() < _QUEUED:
            self._waiting.put(call)
        else:
            self._left_out += 1


class TensorBoard(Tracker):
    """Writes to a `SummaryWriter`, of torch.utils.tensorboard or of tensorboardX; close it after the run.

    Args:
        writer: takes scalars, and the options as a table of text.

    Example:
        >>> import tensorboardX
        >>> schema = esd.Schema(label="clicked", ids=("user", "item"))
        >>> with tensorboardX.SummaryWriter("runs") as writer, esd.LocalCluster(workers=1) as cluster:
        ...     tracker = esd.TensorBoard(writer)
        ...     run = cluster.fit("wdl", esd.read("events.csv", schema), progress=False, callbacks=[tracker])
    """

    def __init__(self, writer: Any) -> None:
        super().__init__()
        self._writer = writer

    def begin(self, options: Mapping[str, Any]) -> None:
        """Writes the options as a table of Markdown."""
        rows = "\n".join(f"| {name} | {value} |" for name, value in options.items())
        self._writer.add_text("options", f"| option | value |\n|---|---|\n{rows}")

    def take(self, figures: Mapping[str, float], iteration: int) -> None:
        """Writes a scalar for each figure."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, iteration)


class MLflow(Tracker):
    """Logs to a run of MLflow, over a client, since MLflow's active run is another one in each thread.

    Args:
        run_id: `mlflow.start_run().info.run_id`.
        client: an `MlflowClient`; None: one of the tracking server that `mlflow` has now.

    Example:
        >>> import mlflow
        >>> mlflow.set_tracking_uri("sqlite:///runs.db")
        >>> schema = esd.Schema(label="clicked", ids=("user", "item"))
        >>> with mlflow.start_run() as active, esd.LocalCluster(workers=1) as cluster:
        ...     tracker = esd.MLflow(active.info.run_id)
        ...     run = cluster.fit("wdl", esd.read("events.csv", schema), progress=False, callbacks=[tracker])
    """

    def __init__(self, run_id: str, client: Any = None) -> None:
        super().__init__()
        self._run_id = run_id
        self._client = import_module("mlflow").MlflowClient() if client is None else client
        self._entities = import_module("mlflow.entities")

    def begin(self, options: Mapping[str, Any]) -> None:
        """Logs the options as parameters."""
        parameters = [self._entities.Param(name, str(value)) for name, value in options.items()]
        for at in range(0, len(parameters), _PARAMETERS_PER_CALL):
            self._client.log_batch(self._run_id, params=parameters[at : at + _PARAMETERS_PER_CALL])

    def take(self, figures: Mapping[str, float], iteration: int) -> None:
        """Logs all figures in one call."""
        now = int(time.time() * 1000)
        metrics = [self._entities.Metric(name, value, now, iteration) for name, value in figures.items()]
        self._client.log_batch(self._run_id, metrics=metrics)


class WandB(Tracker):
    """Logs to a run of Weights & Biases, or of a tool with the same two calls, `run.config.update` and `run.log`.

    The iteration is the figure `iteration`, and not wandb's step, which may only rise, while an evaluation can come
    after figures of later iterations: `run.define_metric("*", step_metric="iteration")` makes it the axis.

    Args:
        run: of `wandb.init(...)`; finish it after the run.

    Example:
        >>> import wandb
        >>> schema = esd.Schema(label="clicked", ids=("user", "item"))
        >>> with wandb.init(project="clicks", mode="disabled") as tracked, esd.LocalCluster(workers=1) as cluster:
        ...     tracker = esd.WandB(tracked)
        ...     run = cluster.fit("wdl", esd.read("events.csv", schema), progress=False, callbacks=[tracker])
    """

    def __init__(self, run: Any) -> None:
        super().__init__()
        self._run = run

    def begin(self, options: Mapping[str, Any]) -> None:
        """Adds the options to the configuration."""
        self._run.config.update(dict(options))

    def take(self, figures: Mapping[str, float], iteration: int) -> None:
        """Logs all figures in one call."""
        self._run.log({"iteration": iteration, **figures})


class OptunaPruning:
    """A callback that ends a trial of Optuna that its study's pruner gives up; needs `evaluate` and `evaluate_every`.

        def objective(trial):
            pruning = esd.OptunaPruning(trial, "auc")
            run = cluster.fit(Net, train, evaluate=test, evaluate_every=100, callbacks=[pruning],
                              learning_rate=trial.suggest_float("learning_rate", 0.01, 1, log=True))
            pruning.check()
            return run.evaluate(test)["auc"]

    Args:
        trial: of `study.optimize`.
        metric: a figure of the held-out samples, by its name in `early_stop`.

    Raises:
        InvalidArgument: there is no such figure.

    Example:
        >>> import optuna
        >>> schema = esd.Schema(label="clicked", ids=("user", "item"))
        >>> samples = esd.read("events.csv", schema)
        >>> trial = optuna.create_study(direction="minimize").ask()
        >>> pruning = esd.OptunaPruning(trial, "loss")
        >>> with esd.LocalCluster(workers=1) as cluster:
        ...     run = cluster.fit("wdl", samples, evaluate=samples, progress=False, callbacks=[pruning])
        >>> pruning.check()
    """

    def __init__(self, trial: Any, metric: str = "auc") -> None:
        check_metric(metric)
        self._trial = trial
        self._metric = metric
        self._pruned_at: int | None = None

    def __call__(self, event: Event) -> None:
        """Reports an evaluation, and stops the run if the pruner gives it up."""
        if isinstance(event, Evaluated) and self._pruned_at is None:
            iteration = event.evaluation.iteration
            self._trial.report(figure_of(self._metric, event.evaluation), iteration)
            if self._trial.should_prune():
                self._pruned_at = iteration
                raise StopRun

    def check(self) -> None:
        """Raises optuna.TrialPruned if the run was stopped; to be called after `fit`."""
        if self._pruned_at is not None:
            raise import_module("optuna").TrialPruned(f"pruned at iteration {self._pruned_at}")


def _hand_over(tracker: str, waiting: queue.Queue[Callable[[], object] | None]) -> None:
    """Makes the calls that wait, until a None."""
    failed = False
    while (call := waiting.get()) is not None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - of a tool, which may not end the run
            if not failed:
                _warn(f"{tracker} fails, and training continues: {error!r}")
            failed = True


def _figures_of_training(state: JobState) -> dict[str, float]:
    """Returns the quality over the latest iterations, and the traffic since the beginning."""
    links = {
        "cost_seconds": state.cost_seconds,
        "makespan_seconds": state.makespan_seconds,
        "hit_rate": state.hits / state.lookups if state.lookups else math.nan,
    }
    figures = {f"train/{name}": value for name, value in asdict(state.recent).items()}
    return figures | {f"links/{name}": value for name, value in links.items()}


def _figures_of_evaluation(event: Evaluated) -> dict[str, float]:
    """Returns the figures of an evaluation, of each label under its name if there are several."""
    return {f"held_out/{name}": value for name, value in _named_figures(event)}


def _named_figures(event: Evaluated) -> Iterator[tuple[str, float]]:
    evaluation = event.evaluation
    if evaluation.ranking is not None:
        yield from asdict(evaluation.ranking).items()
    yield from asdict(evaluation.quality).items()
    if len(event.labels) > 1:
        for label, quality in zip(event.labels, evaluation.labels, strict=True):
            for name, value in asdict(quality).items():
                yield f"{label}/{name}", value


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=2)
