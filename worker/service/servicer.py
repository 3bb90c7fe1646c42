"""The Worker service of protos/worker.proto: tells operators where the worker stands."""

from __future__ import annotations

from typing import Any

import grpc

from protos import worker_pb2, worker_pb2_grpc
from worker.core.cache_book import CacheBook
from worker.service.settings import WorkerSettings


class WorkerService(worker_pb2_grpc.WorkerServicer):
    """Answers DescribeWorker, by which operators see where a worker stands."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._slot = 0
        self._book: CacheBook | None = None

    def joined(self, slot: int, book: CacheBook) -> None:
        """Tells that the worker has a slot and a cache from now on."""
        self._slot = slot
        self._book = book

    async def DescribeWorker(  # noqa: N802 - the rpc's name
        self,
        request: worker_pb2.DescribeWorkerRequest,  # noqa: ARG002
        context: grpc.aio.ServicerContext[Any, Any],  # noqa: ARG002
    ) -> worker_pb2.DescribeWorkerResponse:
        """Tells where this worker stands; the fields are described in protos/worker.proto."""
        settings = self._settings
        return worker_pb2.DescribeWorkerResponse(
            worker=settings.name,
            slot=self._slot,
            iteration=max(0, self._book.next_iteration - 1) if self._book else 0,
            cache_rows=settings.cache_rows,
            cached_rows=self._book.cached_rows if self._book else 0,
            device=settings.device,
            bandwidth_bytes_per_second=settings.link if settings.shape_link else 0,
        )
