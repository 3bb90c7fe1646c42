"""The folder that is served: the model in it, and the newer one that takes its place.

A folder is replaced by a rename, as exports do it, or by another target of a symbolic link, so a path names the whole
of one model or the whole of another. A model is loaded completely before it scores: the graph, and the maps of its
tables, which keep the files of a removed folder. If the path names another folder after that, the loading is repeated.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from esd.model.files import DIGESTS, digest_of
from esd.model.trained import TrainedModel
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import EsdError, FailedPrecondition, NotFound, Unavailable
from esd.services.domain.ids import in_table
from esd.services.domain.jobs import JobSpec
from esd.services.runtime import serving_metrics as metrics
from esd.services.runtime.tasks import run_in
from esd.serving.samples import SampleReader
from esd.serving.tensors import shown

_VERSION_CHARACTERS = 12
_ATTEMPTS = 5  # to load a folder that is being replaced

_log = logging.getLogger(__name__)

Identity = tuple[int, int, int] | None  # device, inode, time of the file of digests; None: there is no such folder


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that scores.

    Attributes:
        model: the model.
        reader: makes its samples.
        version: the first digits of the digest of its file of digests, so that equal folders have equal versions.
        identity: of its folder.
    """

    model: TrainedModel
    reader: SampleReader
    version: str
    identity: Identity

    def check_version(self, version: str) -> None:
        """Raises NotFound unless this is the version of the model, or empty."""
        if version not in ("", self.version):
            raise NotFound(f"version {shown(version)} is not served, it is {self.version!r}")


class ServedFolder:
    """The folder of a served model.

    Args:
        path: of the folder.

    Attributes:
        current: the model that scores; requests that have begun with an earlier one end with it.
        replaced: set when a newer folder has taken its place.

    Raises:
        NotFound: the folder does not exist, or pyarrow is not installed and the model has a schema.
        InvalidArgument: it is no folder of a model, is damaged, or was written by another version.
        FailedPrecondition: onnxruntime is not installed, or cannot run the graph.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._refused: Identity = None
        self.current = load_whole(path)
        self.replaced = asyncio.Event()

    async def follow(self, pause: float, thread: Executor) -> NoReturn:
        """Looks every `pause` seconds whether the path names another folder, and has it take the place of the model.

        A folder that cannot be loaded, or takes other inputs, is refused: the log gives the reason once, and the model
        before it scores on.
        """
        while True:
            await asyncio.sleep(pause)
            try:
                newer = await run_in(thread, self._newer)
            except (EsdError, OSError) as error:
                metrics.RELOADS.labels("refused").inc()
                _log.warning("version %s of %s stays: %s", self.current.version, self._path, error)
                continue
            if newer is not None:
                self.current = newer
                self.replaced.set()
                metrics.RELOADS.labels("loaded").inc()
                _log.info("version %s of %s is served", newer.version, self._path)

    def _newer(self) -> LoadedModel | None:
        """Loads the folder if it is another one than the one that is served; None: it is the same, or was refused."""
        found = _identity(self._path)
        if found in (self.current.identity, self._refused):
            return None
        self._refused = found
        newer = load_whole(self._path)
        before, after = self.current.reader, newer.reader
        if (before.inputs, before.outputs) != (after.inputs, after.outputs):
            raise FailedPrecondition(
                f"{self._path} takes other inputs or has other labels than version {self.current.version}, which is "
                "served: requests of the present clients would fail; start a server for the new one"
            )
        self._refused = None
        return newer


def load_whole(path: Path) -> LoadedModel:
    """Loads a model with everything that scores need, from one folder although the path may be replaced meanwhile.

    Raises:
        As ServedFolder. Unavailable: the folder was replaced several times meanwhile.
    """
    for _ in range(_ATTEMPTS):
        before = _identity(path)
        try:
            model = TrainedModel(path, threads=1)
            version = digest_of(path / DIGESTS)[:_VERSION_CHARACTERS]
            model.scores(_one_sample(model.job))  # loads the graph
            loaded = LoadedModel(model, SampleReader(model), version, before)
        except (EsdError, OSError):
            if _identity(path) == before:
                raise
        else:
            if _identity(path) == before:
                return loaded
    raise Unavailable(f"{path} was replaced while it was loaded, {_ATTEMPTS} times")


def _identity(path: Path) -> Identity:
    try:
        folder, digests = path.stat(), (path / DIGESTS).stat()
    except OSError:
        return None
    return folder.st_dev, folder.st_ino, digests.st_mtime_ns


def _one_sample(job: JobSpec) -> SampleBatch:
    """Returns a sample of ids that are hardly trained, one of each feature."""
    tables = np.array([each.table for each in job.features], np.uint64)
    ids = np.zeros(len(tables), np.uint64)
    return SampleBatch.of_fields(
        in_table(ids, tables) if len(job.tables) > 1 else ids,
        np.zeros((1, job.dense_features), np.float32),
        np.zeros((1, len(job.labels)), np.float32),
    )
