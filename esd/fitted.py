"""A run of `fit`: its course, its figures and its model."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import threading
import warnings
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Self

from esd.model.files import digests_of, new_folder
from esd.model.trained import TrainedModel
from esd.run.events import Listener
from esd.run.own_code import found_by_children
from esd.run.record import HISTORY
from esd.run.score_folder import evaluate_folder, torch_kept
from esd.run.train import MODEL, TrainedRun
from esd.run.worker_here import Submit
from esd.services.domain.errors import FailedPrecondition
from esd.services.runtime.loop_thread import LoopThread

if TYPE_CHECKING:
    from esd.data import Dataset
    from esd.run.options import RunOptions
    from esd.run.stream import OpenData


Training = Callable[..., Coroutine[Any, Any, TrainedRun]]  # of esd.run.train


class Run:
    """A run on a cluster, which is driven by a thread of its own.

    Its model lies in the cluster's folder until the cluster's block ends; `export` copies it.

    Attributes:
        options: of the run.

    Example:
        >>> schema = esd.Schema(label="clicked", ids=("user", "item"), dense=("price",))
        >>> samples = esd.read("events.csv", schema)
        >>> with esd.LocalCluster(workers=1) as cluster:
        ...     run = cluster.fit("wdl", samples, batch=2, dim=4, progress=False, graphs=False)
        ...     figures = run.evaluate(samples)
        ...     folder = run.export("fitted")
        >>> sorted(figures)[:2], esd.load(folder).job.labels
        (['auc', 'calibration'], ('clicked',))
    """

    def __init__(
        self,
        options: RunOptions,
        folder: Path,
        code: Path,
        opened: OpenData,
        listener: Listener,
        end_stream: Callable[[], object],
        closing: Sequence[Callable[[], object]],
        training_on: Callable[[Submit], Training],
        **how: Any,
    ) -> None:
        self.options = options
        self._folder = folder
        self._end_stream = end_stream
        self._closing = closing
        self._trained: TrainedRun | None = None
        self._failure: BaseException | None = None
        self._ended = threading.Event()
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()  # for a thread that waits; None: the run has ended
        self._cancelled = False
        self._loop = LoopThread("esd-fit")
        self._training: asyncio.Task[TrainedRun] | None = None
        work = partial(training_on(self._in_waiting_thread), options, listener, out=folder, opened=opened, **how)
        self._loop.submit(self._train(code, work, scores=opened.evaluate is not None))

    @property
    def ended(self) -> bool:
        """Whether nothing is trained any more, and all services have ended."""
        return self._ended.is_set()

    def wait(self) -> Self:
        """Waits for the end of the run, and returns it. Ctrl-C cancels the run.

        Raises:
            As `LocalCluster.fit`.
        """
        try:
            while (call := self._calls.get()) is not None:
                call.make()
            self._calls.put(None)  # for whoever else waits
        except BaseException:
            self.cancel()
            raise
        if self._failure is not None:
            raise self._failure
        return self

    def stop(self) -> None:
        """Ends the stream of samples: the run ends after the iterations that were submitted, and has a model."""
        self._end_stream()

    def cancel(self) -> None:
        """Ends the run without a model, and waits until all services have ended."""
        if not self.ended:
            self._loop.call(self._cancel)
            self._ended.wait()

    @cached_property
    def result(self) -> dict[str, Any]:
        """The figures of the run, as `esd train --json` prints them."""
        self.wait()
        assert self._trained is not None  # noqa: S101 - else it has failed
        return self._trained.result()

    @property
    def cost(self) -> float:
        """The seconds that the embedding rows took on the links."""
        return float(self.result["cost_seconds"])

    @cached_property
    def history(self) -> History:
        """The figures over the iterations, and the evaluations."""
        self.wait()
        lines = (self._folder / HISTORY).read_text().splitlines()
        return History([json.loads(line) for line in lines])

    @cached_property
    def model(self) -> TrainedModel:
        """The trained model."""
        self.wait()
        return TrainedModel(self._folder / MODEL)

    def evaluate(self, samples: Dataset) -> dict[str, Any]:
        """Returns the figures of the model on samples that have labels: loss, auc, normalised_entropy and others.

        With several labels these are the first one's, and `labels` has the figures of each by its name.

        Raises:
            InvalidArgument: the samples do not fit the model, or there are none.
        """
        names = self.model.job.labels
        figures = evaluate_folder(self.model, samples)
        by_label: dict[str, dict[str, Any]] = {
            name: {figure: float(value) for figure, value in asdict(each).items()}
            for name, each in zip(names, figures, strict=True)
        }
        return by_label[names[0]] | ({"labels": by_label} if len(names) > 1 else {})

    def export(self, folder: Path | str) -> Path:
        """Copies the model's folder, which `esd.load` reads, and returns its path.

        Raises:
            InvalidArgument: the path names something else than a model.
        """
        source, path = self.model.folder, Path(folder)
        with new_folder(path) as writer:
            for name in digests_of(source):
                with writer.open(name) as copy, (source / name).open("rb") as file:
                    shutil.copyfileobj(file, copy)
        return path

    def _cancel(self) -> None:
        """Cancels the training, or has it not begin. Must be called in the loop."""
        self._cancelled = True
        if self._training is not None:
            self._training.cancel()

    async def _train(self, code: Path, work: Training, *, scores: bool) -> None:
        kept = torch_kept() if scores else contextlib.nullcontext()
        try:
            if self._cancelled:
                raise asyncio.CancelledError
            with found_by_children(code), kept:
                self._training = asyncio.ensure_future(work())
                self._trained = await self._training
        except asyncio.CancelledError:
            self._failure = FailedPrecondition("the run was cancelled")
        except BaseException as error:  # noqa: BLE001 - `wait` raises it
            self._failure = error
        finally:
            await asyncio.to_thread(self._close)
            self._ended.set()
            self._calls.put(None)
            self._loop.end()

    def _in_waiting_thread(self, function: Callable[[], None]) -> Future[None]:
        """Has a function called by the thread that waits for the run."""
        call = _Call(function)
        self._calls.put(call)
        return call.done

    def _close(self) -> None:
        """Closes the callbacks. One that fails is reported by a warning."""
        for close in self._closing:
            try:
                close()
            except Exception as error:  # noqa: BLE001 - of a user's code, which may not cost the trained model
                warnings.warn(f"{close!r} fails at the end of the run: {error!r}", RuntimeWarning, stacklevel=2)


class _Call:
    """A call that another thread makes, and its end."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.done: Future[None] = Future()
        self._function = function

    def make(self) -> None:
        """Makes the call. The future gets its error; Ctrl-C and SystemExit are raised here, too."""
        if not self.done.set_running_or_notify_cancel():
            return
        try:
            self._function()
        except Exception as error:  # noqa: BLE001 - it is raised where the future is awaited
            self.done.set_exception(error)
        except BaseException:
            self.done.set_exception(FailedPrecondition("the run was interrupted"))
            raise
        else:
            self.done.set_result(None)


class History(Sequence[dict[str, Any]]):
    """The lines of a run's history: `kind` is `point` for a point of the charts, or `evaluation`."""

    def __init__(self, lines: list[dict[str, Any]]) -> None:
        self._lines = lines

    def __getitem__(self, at: Any) -> Any:
        return self._lines[at]

    def __len__(self) -> int:
        return len(self._lines)

    def to_pandas(self) -> Any:
        """Returns a data frame of pandas."""
        return import_module("pandas").DataFrame(self._lines)
