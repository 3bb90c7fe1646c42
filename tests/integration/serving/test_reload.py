"""A newer folder takes the place of a served one without a lost request; one that does not fit is refused."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import grpc
import numpy as np
import pytest

from esd.protos import inference_pb2_grpc
from tests.support.served_models import job_of_ids, request_of, served_here, write_model

ROWS = np.array([[3, 4], [99, 0]], np.uint64)
DIMENSION = job_of_ids().table.dimension
BASE = ROWS.sum(axis=1).astype(np.float32) * DIMENSION


class Load:
    """Requests one after the other in several tasks, until it is ended."""

    def __init__(self, stub: inference_pb2_grpc.GRPCInferenceServiceStub, tasks: int) -> None:
        self.offsets: dict[str, set[float]] = {}  # by version
        self.version = ""
        self._stub = stub
        self._going = True
        self._tasks = [asyncio.create_task(self._ask()) for _ in range(tasks)]

    async def end(self) -> None:
        """Ends the tasks; raises the error of a request that had no answer."""
        self._going = False
        await asyncio.gather(*self._tasks)

    async def other_version(self, before: str) -> str:
        """Waits for an answer of another version."""
        async with asyncio.timeout(120):
            while self.version in ("", before):
                await self._ask_once()
        return self.version

    async def _ask(self) -> None:
        while self._going:
            await self._ask_once()

    async def _ask_once(self) -> None:
        answer = await self._stub.ModelInfer(request_of(ROWS), timeout=120)
        offset = np.frombuffer(answer.raw_output_contents[0], np.float32) - BASE
        self.offsets.setdefault(answer.model_version, set()).update(offset.tolist())
        self.version = answer.model_version


@pytest.mark.parametrize("way", ["over it", "by a link"])
async def test_no_request_is_lost_when_folders_are_replaced(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "model"
    target = folder if way == "over it" else tmp_path / "model-0"
    write_model(target, job_of_ids(), offset=0.5)
    if way == "by a link":
        folder.symlink_to(target)
    async with (
        served_here(folder, reload_seconds=0.05) as serving,
        grpc.aio.insecure_channel(serving.address) as channel,
    ):
        load = Load(inference_pb2_grpc.GRPCInferenceServiceStub(channel), tasks=4)
        version = await load.other_version("")
        for offset in (1.5, 2.5):
            if way == "over it":
                await asyncio.to_thread(write_model, folder, job_of_ids(), offset=offset)
            else:
                newer, link = tmp_path / f"model-{offset}", tmp_path / "link"
                await asyncio.to_thread(write_model, newer, job_of_ids(), offset=offset)
                link.symlink_to(newer)
                link.replace(folder)
            version = await load.other_version(version)
        await load.end()
    assert sorted(map(sorted, load.offsets.values())) == [[0.5], [1.5], [2.5]], "each version has its own scores"


async def test_a_folder_that_does_not_fit_is_refused_and_a_right_one_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "model"
    write_model(folder, job_of_ids(), offset=0.5)
    refusals = asyncio.Queue[str]()
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: refusals.put_nowait(record.getMessage())  # type: ignore[method-assign]
    async with (
        served_here(folder, reload_seconds=0.05) as serving,
        grpc.aio.insecure_channel(serving.address) as channel,
    ):
        logging.getLogger("esd.serving.folder").addHandler(handler)
        load = Load(inference_pb2_grpc.GRPCInferenceServiceStub(channel), tasks=1)
        first = await load.other_version("")
        write_model(folder, job_of_ids(labels=("bought",)), offset=3.5)
        assert "takes other inputs or has other labels" in await asyncio.wait_for(told(refusals, "labels"), 60)
        (folder / "model.onnx").write_bytes(b"damaged")
        (folder / "SHA256SUMS").touch()
        assert "model.onnx is damaged" in await asyncio.wait_for(told(refusals, "damaged"), 60)
        assert load.version == first
        write_model(folder, job_of_ids(), offset=1.5)
        await load.other_version(first)
        await load.end()
    logging.getLogger("esd.serving.folder").removeHandler(handler)
    assert sorted(map(sorted, load.offsets.values())) == [[0.5], [1.5]]


async def told(refusals: asyncio.Queue[str], word: str) -> str:
    while word not in (text := await refusals.get()):
        pass
    return text
