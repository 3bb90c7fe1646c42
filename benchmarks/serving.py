"""A served model, on one core: `python -m benchmarks.serving FOLDER`, with a folder of `wdl` on flights.

Starts `esd serve model` as a process with one thread that scores, and asks it over gRPC for the scores of real samples:

- batches of 256, several at a time: scores per second of the process's own processor time, and onnxruntime alone on the
  same embeddings, in this process;
- single requests, one after the other: the 99th percentile of their time;
- single requests while newer folders take the place of the served one: how many of them fail.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from esd.data.opening import open_data
from esd.model.embeddings import model_inputs
from esd.model.files import DIGESTS, TABLES
from esd.model.network import OnnxNetwork
from esd.model.trained import TrainedModel
from esd.protos import inference_pb2, inference_pb2_grpc
from esd.run.services import processor_seconds
from esd.services.domain.batches import SampleBatch
from esd.services.wire.trained_models import ONNX

BATCH = 256
_BATCHES = 64  # different ones
_AT_A_TIME = 4
_TIMEOUT = 60


def request_of(batch: SampleBatch) -> inference_pb2.ModelInferRequest:
    """Returns the request for the scores of samples, by ids."""
    tensor = inference_pb2.ModelInferRequest.InferInputTensor
    return inference_pb2.ModelInferRequest(
        model_name="model",
        inputs=[
            tensor(name="ids", datatype="UINT64", shape=batch.by_field.shape),
            tensor(name="dense", datatype="FP32", shape=batch.dense.shape),
        ],
        raw_input_contents=[batch.by_field.tobytes(), np.ascontiguousarray(batch.dense).tobytes()],
    )


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[int, Any]]:
    """Serves a folder while the block runs; gives the process and a stub."""
    command = [sys.executable, "-m", "esd.cli", "serve", "model", str(folder), "--name", "model", "--threads", "1"]
    process = await asyncio.create_subprocess_exec(
        *command, "--reload-seconds", "0.2", "--log-level", "error", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None  # noqa: S101 - for mypy
        address = json.loads(await process.stdout.readline())["address"]
        async with grpc.aio.insecure_channel(address) as channel:
            stub: Any = inference_pb2_grpc.GRPCInferenceServiceStub(channel)  # type: ignore[no-untyped-call] # generated
            yield process.pid, stub
    finally:
        process.terminate()
        await process.wait()


async def batches_of(stub: Any, process: int, requests: list[inference_pb2.ModelInferRequest], seconds: float) -> Any:
    """Asks for batches; returns scores per second of the process's processor time, and of the clock."""
    answered = 0

    async def ask(first: int) -> None:
        nonlocal answered
        number = first
        while time.perf_counter() < end:
            await stub.ModelInfer(requests[number % len(requests)], timeout=_TIMEOUT)
            answered += 1
            number += _AT_A_TIME

    for request in requests:
        await stub.ModelInfer(request, timeout=_TIMEOUT)
    used, begin = processor_seconds(process), time.perf_counter()
    end = begin + seconds
    await asyncio.gather(*map(ask, range(_AT_A_TIME)))
    elapsed, used = time.perf_counter() - begin, processor_seconds(process) - used
    return answered * BATCH / used, answered * BATCH / elapsed


async def singles(stub: Any, requests: list[inference_pb2.ModelInferRequest], seconds: float) -> np.ndarray[Any, Any]:
    """Asks for single samples, one after the other; returns the seconds of each."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        await stub.ModelInfer(requests[len(times) % len(requests)], timeout=_TIMEOUT)
        times.append(time.perf_counter() - begin)
    return np.array(times)


def replace(folder: Path, number: int) -> None:
    """Puts a copy of another version in the place of a folder."""
    newer = folder.with_name(f"newer-{number}")
    shutil.copytree(folder, newer)
    with (newer / DIGESTS).open("a") as digests:
        digests.write(f"{'0' * 64}  {TABLES}/none-{number}\n")
    folder.rename(folder.with_name(f"former-{number}"))
    newer.rename(folder)


async def replaced(stub: Any, folder: Path, requests: list[inference_pb2.ModelInferRequest], times: int) -> Any:
    """Asks for single samples while the folder is replaced; returns requests, failures and versions."""
    answers, failures, versions = 0, 0, set()
    going = True

    async def ask() -> None:
        nonlocal answers, failures
        while going:
            try:
                answer = await stub.ModelInfer(requests[answers % len(requests)], timeout=_TIMEOUT)
                versions.add(answer.model_version)
            except grpc.aio.AioRpcError:
                failures += 1
            answers += 1

    tasks = [asyncio.create_task(ask()) for _ in range(_AT_A_TIME)]
    for number in range(times + 1):
        async with asyncio.timeout(_TIMEOUT):
            while len(versions) <= number:  # noqa: ASYNC110 - the versions of answers are looked at
                await asyncio.sleep(0.05)
        if number < times:
            await asyncio.to_thread(replace, folder, number)
    going = False
    await asyncio.gather(*tasks)
    return answers, failures, len(versions)


def alone(folder: Path, batches: list[SampleBatch], seconds: float) -> float:
    """Returns the scores per second of processor time of onnxruntime with one thread, from embeddings to scores."""
    model, network = TrainedModel(folder), OnnxNetwork(folder / ONNX, threads=1)
    inputs = [model_inputs(each, model.job.features, [model.table().look_up(each.ids)]) for each in batches]
    network(inputs[0])
    done, used, end = 0, time.process_time(), time.perf_counter() + seconds
    while time.perf_counter() < end:
        network(inputs[done % len(inputs)])
        done += 1
    return done * BATCH / (time.process_time() - used)


async def measure(folder: Path, seconds: float) -> dict[str, float]:
    """Measures all."""
    read: Iterator[SampleBatch] = iter(open_data("flights", BATCH, seed=0))
    batches = [next(read) for _ in range(_BATCHES)]
    single = [request_of(batch[at : at + 1]) for batch in batches for at in range(0, BATCH, 16)]
    figures = {"onnxruntime_scores_per_core_second": alone(folder, batches, seconds)}
    with tempfile.TemporaryDirectory() as place:
        served = Path(place) / "model"
        shutil.copytree(folder, served)
        async with serving(served) as (process, stub):
            per_core, per_second = await batches_of(stub, process, [request_of(each) for each in batches], seconds)
            times = await singles(stub, single, seconds)
            requests, failures, versions = await replaced(stub, served, single, 3)
    return figures | {
        "scores_per_core_second": per_core,
        "scores_per_second": per_second,
        "single_ms_median": float(np.median(times)) * 1e3,
        "single_ms_p99": float(np.quantile(times, 0.99)) * 1e3,
        "requests_while_replaced": requests,
        "failed_while_replaced": failures,
        "versions": versions,
    }


def main() -> None:
    """Measures and prints one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("folder", type=Path, help="of a model that `esd train --data flights --model wdl --out` wrote")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    arguments = parser.parse_args()
    figures = asyncio.run(measure(arguments.folder, arguments.seconds))
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
