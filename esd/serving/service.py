"""A served model under every protocol: names, versions, limits, metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from esd.services.domain.errors import NotFound
from esd.services.runtime import serving_metrics as metrics
from esd.services.runtime.byte_budget import ByteBudget, Share
from esd.services.runtime.status import code_of
from esd.serving.folder import LoadedModel, ServedFolder
from esd.serving.requests import InferAnswer
from esd.serving.scorer import Parse, Scorer
from esd.serving.settings import ModelSettings
from esd.serving.tensors import shown

GRPC, REST = "grpc", "rest"
NAME = "esd"
EXTENSIONS = ("binary_tensor_data",)
PLATFORM = "esd"
METHODS = "/inference.GRPCInferenceService/"  # before the names of calls, by which roles may make them


class ModelService:
    """A model that is served.

    Args:
        settings: its name and limits.
        folder: of the model.

    Attributes:
        name: of the model.
        ready: whether it scores; false while the service stops.
    """

    def __init__(self, settings: ModelSettings, folder: ServedFolder) -> None:
        self.name = settings.name or settings.folder.resolve().name
        self.ready = True
        self._folder = folder
        knob = settings.variable("answer_seconds")
        self._scorer = Scorer(lambda: folder.current, settings.threads, settings.answer_seconds, knob)
        self._budget = ByteBudget(settings.max_waiting_bytes, settings.variable("max_waiting_bytes"))

    def loaded(self, name: str, version: str = "") -> LoadedModel:
        """Returns the model of a name, and of a version unless it is empty.

        Raises:
            NotFound: another one is served.
        """
        self.check_name(name)
        loaded = self._folder.current
        loaded.check_version(version)
        return loaded

    def check_name(self, name: str) -> None:
        """Raises NotFound unless this is the name of the model."""
        if name != self.name:
            raise NotFound(f"model {shown(name)} is not served here, the model is {self.name!r}")

    @contextmanager
    def request(self, way: str) -> Iterator[Share]:
        """Counts and times a request in the block; gives its share of the memory of all requests.

        Errors pass through, and are counted by their codes.
        """
        started, code = time.perf_counter(), "CANCELLED"
        with self._budget.share() as share:
            try:
                yield share
                code = "OK"
            except Exception as error:
                code = code_of(error).name
                raise
            finally:
                metrics.REQUESTS.labels(way, code).inc()
                metrics.REQUEST_SECONDS.labels(way).observe(time.perf_counter() - started)

    async def answer(self, share: Share, parse: Parse) -> InferAnswer:
        """Scores a request of as many bytes as its share holds. Raises as Scorer.answer."""
        metrics.WAITING.inc(share.held)
        try:
            return await self._scorer.answer(share.held, parse)
        finally:
            metrics.WAITING.dec(share.held)

    def close(self) -> None:
        """Ends the threads."""
        self._scorer.close()
