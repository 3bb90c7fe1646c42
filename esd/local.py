"""`esd.LocalCluster`: trains models on this machine, from a notebook or a program."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from difflib import get_close_matches
from enum import EnumType
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, get_type_hints

from esd.data.derived import DerivedDataset
from esd.fitted import Run
from esd.run.events import Event, Progressed, StopRun
from esd.run.options import RunOptions
from esd.run.own_code import model_path
from esd.run.stream import OpenData
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition, InvalidArgument

if TYPE_CHECKING:
    from esd.data import Dataset
    from esd.worker.models.model import Model

_PROGRESS_SECONDS = 10.0  # between two lines of progress
_DECIDED = ("data", "schema", "model", "workers", "links", "evaluate", "holdout")  # by the arguments of `fit`

Callback = Callable[[Event], object]


class LocalCluster:
    """Workers of this machine that train one model after the other. A `with` block cancels a run that still trains.

        train, test = esd.read("events/*.parquet", schema).split(last="1d")
        with esd.LocalCluster(workers=4, links=["100m", "100m", "10m", "10m"]) as cluster:
            run = cluster.fit(MyNet, train, dim=64, epochs=2)
            print(run.evaluate(test)["auc"])
            run.export("model")

    The services of a run are processes of this machine, which end with it. When this process is killed, they end, too,
    within a few seconds.

    Args:
        workers: number of workers. 0: one worker, which is a part of this process and trains in the thread that waits
            for the run, so that a debugger stops in the model's code; the model is the same as with `workers=1`.
        links: speed of every worker's link in bits per second, one for each, or one for all.
        shards: number of parameter-server processes.
        device: of the workers: `cpu`, `cuda`, `auto`, or one for each, `cuda:0,cuda:1`; None: ESD_WORKER_DEVICE, or
            `cpu`.

    Example:
        >>> schema = esd.Schema(label="clicked", ids=("user", "item"), dense=("price",))
        >>> with esd.LocalCluster(workers=1) as cluster:
        ...     run = cluster.fit("wdl", esd.read("events.csv", schema), batch=2, dim=4, epochs=2, progress=False)
        ...     scores = run.model.predict("events.csv")
        >>> run.result["iterations"], scores.shape
        (2, (2, 1))
    """

    def __init__(
        self, workers: int = 4, links: str | Sequence[str] = "500m", *, shards: int = 1, device: str | None = None
    ) -> None:
        self._workers = max(1, workers)
        self._here = workers == 0
        self._links = links if isinstance(links, str) else ",".join(links)
        self._shards = shards
        self._device = device
        self._folder: Path | None = None
        self._runs: list[Run] = []

    def __enter__(self) -> Self:
        """Makes the folder of the models, which lasts as long as the block."""
        self._folder = Path(tempfile.mkdtemp(prefix="esd-fit-"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Cancels a run that still trains, and removes the folder."""
        for run in self._runs:
            run.cancel()
        if self._folder is not None:
            shutil.rmtree(self._folder)
        self._folder = None

    def fit(
        self,
        model: type[Model] | str,
        train: Dataset,
        *,
        evaluate: Dataset | None = None,
        keep: str = "last",
        callbacks: Sequence[Callback] = (),
        progress: bool = True,
        graphs: bool | None = None,
        wait: bool = True,
        **options: Any,
    ) -> Run:
        """Trains a model, also within a running event loop, in a notebook, and in any thread.

        Args:
            model: the class of a model, which may be defined in a notebook's cell; or a built-in one's name.
            train: the samples, as `esd.read` opens them.
            evaluate: held-out samples, which judge the model at the end, and with `evaluate_every=N` every N
                iterations.
            keep: `last`, or `best` for the model of the best evaluation by `early_stop`'s metric, or by the AUC.
            callbacks: each is called with every event of the run (esd.run.events) in the thread of the run. One that
                raises `StopRun` ends the run, which has a model; one that fails otherwise is reported by a warning, and
                the run continues. `close` of one that has it is called when the run has ended, however it has ended.
            progress: whether events are printed on standard error, among them the address of the live page.
            graphs: whether the model gets `model.pt2` and `model.onnx`; None: as far as that is possible.
            wait: False: returns at once; `Run.wait` waits for the end.
            options: any other field of `esd.run.options.RunOptions`, such as `epochs`, `dim`, `batch`, `optimizer`.

        Raises:
            InvalidArgument: an option is unknown or wrong, or the samples do not fit the model.
            FailedPrecondition: the job failed; or this is outside the cluster's `with` block, or within another run.
            ServiceFailed: a service has died too often.
        """
        if self._folder is None:
            raise FailedPrecondition("fit needs the cluster's block: `with esd.LocalCluster(...) as cluster:`")
        if any(not run.ended for run in self._runs):
            raise FailedPrecondition("the cluster still trains another model: wait for it, or stop it")
        if keep not in ("last", "best"):
            raise InvalidArgument(f"keep is {keep!r}, it must be 'last' or 'best'")
        for name, samples in (("train", train), ("evaluate", evaluate)):
            if samples is not None and not hasattr(samples, "fingerprint"):
                raise InvalidArgument(f"{name} is a {type(samples).__name__}, it must be samples of esd.read(...)")
        folder = self._folder / f"run-{len(self._runs)}"
        stoppable = _Stoppable(train)
        chosen = _options(options) | {
            "data": train.name,
            "schema": getattr(train, "schema", None),
            "model": model_path(model, self._folder / "code"),
            "workers": self._workers,
            "links": self._links,
        }
        run = Run(
            RunOptions(**chosen),
            folder,
            self._folder / "code",
            OpenData(stoppable, evaluate),
            _listener([*([_Printed()] if progress else []), *callbacks], stoppable.stop),
            stoppable.stop,
            [each.close for each in callbacks if hasattr(each, "close")],
            worker=import_module("esd.worker.here").WorkerHere if self._here else None,
            shards=self._shards,
            device=self._device,
            graphs=graphs,
            keep_best=keep == "best",
        )
        self._runs.append(run)
        return run.wait() if wait else run


class _Stoppable(DerivedDataset):
    """A stream that ends when `stop` is called."""

    def __init__(self, dataset: Dataset) -> None:
        super().__init__(dataset)
        self.samples = dataset.samples
        self._stopped = False

    @property
    def fingerprint(self) -> str:
        """Of the whole stream."""
        return self._source.fingerprint

    def stop(self) -> None:
        self._stopped = True

    def __iter__(self) -> Iterator[SampleBatch]:
        for batch in self._source:
            if self._stopped:
                return
            yield batch


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of RunOptions with texts for enumerations and lists as the command line takes them."""
    kinds = get_type_hints(RunOptions)
    known = [each.name for each in fields(RunOptions) if each.name not in _DECIDED]
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            near = get_close_matches(name, known, 1)
            meant = f", is {near[0]} meant" if near else ""
            raise InvalidArgument(f"fit has no option {name!r}{meant}; esd.run.options.RunOptions lists them")
        kind = kinds[name]
        if isinstance(kind, EnumType) and isinstance(value, str):
            names = [each.value for each in kind]  # type: ignore[var-annotated]
            if value not in names:
                raise InvalidArgument(f"{name} is {value!r}, it must be one of {', '.join(names)}")
            found[name] = kind(value)
        else:
            found[name] = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
    return found


def _listener(callbacks: Sequence[Callback], stop: Callable[[], object]) -> Callback:
    """Returns a listener that calls all callbacks. One may stop the run; the first failure of each is a warning."""
    failed: set[int] = set()

    def listen(event: Event) -> None:
        for number, callback in enumerate(callbacks):
            try:
                callback(event)
            except StopRun:
                stop()
            except Exception as error:  # noqa: BLE001 - of a user's code, which may not end the run
                if number not in failed:
                    failed.add(number)
                    warnings.warn(
                        f"callback {callback!r} fails at {type(event).__name__}, and training continues: {error!r}",
                        RuntimeWarning,
                        stacklevel=2,
                    )

    return listen


class _Printed:
    """Prints events on standard error, progress every few seconds."""

    def __init__(self) -> None:
        self._printed = 0.0

    def __call__(self, event: Event) -> None:
        if isinstance(event, Progressed):
            if time.monotonic() - self._printed < _PROGRESS_SECONDS or not event.state.iterations_confirmed:
                return
            self._printed = time.monotonic()
        sys.stderr.write(f"{event}\n")
