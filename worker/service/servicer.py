"""The Worker service of protos/worker.proto: for operators, and for the other workers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from esd.protos import worker_pb2, worker_pb2_grpc
from esd.worker.core.cache_book import CacheBook
from esd.worker.service.deliveries import Deliveries
from esd.worker.service.settings import WorkerSettings

SERVICE = worker_pb2.DESCRIPTOR.services_by_name["Worker"].full_name

Context = grpc.aio.ServicerContext[Any, Any]


def add_to_server(servicer: WorkerService, server: Any) -> None:
    """Lets a server of grpc.aio serve the rpcs; frames of rows and their answers are bytes, nothing else."""
    worker_pb2_grpc.add_WorkerServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    deliver = grpc.stream_stream_rpc_method_handler(servicer.Deliver)
    server.add_registered_method_handlers(SERVICE, {"Deliver": deliver})


class WorkerService(worker_pb2_grpc.WorkerServicer):
    """The service. Comments on the rpcs are in the proto.

    Attributes:
        deliveries: takes the rows of other workers.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self.deliveries = Deliveries(settings.name)
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
        context: Context,  # noqa: ARG002
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

    async def Meet(  # noqa: N802
        self,
        request: worker_pb2.MeetRequest,
        context: Context,  # noqa: ARG002
    ) -> worker_pb2.MeetResponse:
        """Confirms to another worker that this worker has the expected slot and epoch."""
        self.deliveries.meet(request.epoch, request.slot)
        return worker_pb2.MeetResponse()

    async def Deliver(  # noqa: N802
        self,
        request_iterator: AsyncIterator[bytes],  # noqa: ARG002 - read from the context
        context: Context,
    ) -> None:
        """Takes the rows that another worker sends."""
        await self.deliveries.serve(context)
