"""10,000 malformed requests, half over REST and half over gRPC: each is refused, and the wrong part is named."""

from __future__ import annotations

import asyncio
import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from esd.protos import inference_pb2, inference_pb2_grpc
from tests.support.served_models import job_of_ids, served_here, write_model

EACH = 5_000
STREAMS = 8  # of requests at the same time
NAMES = ("ids", "dense")
RIGHT = {
    "inputs": [
        {"name": "ids", "datatype": "UINT64", "shape": [3, 2], "data": [3, 4, 99, 0, 7, 7]},
        {"name": "dense", "datatype": "FP32", "shape": [3, 2], "data": [0.5, 0.25, 1.0, -3.0, 0.0, 0.0]},
    ]
}
TYPES = ("BOOL", "INT8", "INT64", "UINT32", "FP16", "FP64", "BYTES", "uint64", "FLOAT", "", "BF16")
WRONG_VALUES = ("x", None, True, {}, [], [1], 1e400, -1e400)

Body = tuple[bytes, str]  # what is sent, and a word of the refusal


def _one(rng: random.Random, document: Any) -> Any:
    return document["inputs"][rng.randrange(2)]


def missing_input(rng: random.Random, document: Any) -> str:
    return f"input {document['inputs'].pop(rng.randrange(2))['name']!r} is missing"


def unknown_input(rng: random.Random, document: Any) -> str:
    name = "".join(rng.choices("abcdefä'\"\\\n", k=rng.randint(0, 90))) + "z"
    document["inputs"].append({"name": name, "datatype": "FP32", "shape": [1], "data": [1]})
    return "the model has no input"


def doubled_input(rng: random.Random, document: Any) -> str:
    chosen = _one(rng, document)
    document["inputs"].append(chosen)
    return f"input {chosen['name']!r} is there twice"


def other_type(rng: random.Random, document: Any) -> str:
    chosen = _one(rng, document)
    chosen["datatype"] = rng.choice(TYPES)
    return f"input {chosen['name']!r}"


def other_shape(rng: random.Random, document: Any) -> str:
    chosen = _one(rng, document)
    shape = [rng.choice((-1, 0, 1, 2, 3, 6, 2**40, 2**70)) for _ in range(rng.randint(0, 9))]
    chosen["shape"] = [6] if shape == [3, 2] else shape
    return f"input {chosen['name']!r}"


def shape_of_no_numbers(rng: random.Random, document: Any) -> str:
    _one(rng, document)["shape"] = rng.choice(("6", None, [3, "2"], [3, 2.5], {}, [[3], [2]]))
    return "shape"


def wrong_value(rng: random.Random, document: Any) -> str:
    chosen = _one(rng, document)
    value = rng.choice(WRONG_VALUES)
    chosen["data"][rng.randrange(6)] = value
    return "dense" if isinstance(value, float) and chosen["name"] == "dense" else f"input {chosen['name']!r}"


def other_count(rng: random.Random, document: Any) -> str:
    chosen = _one(rng, document)
    count = rng.choice([each for each in range(12) if each != 6])
    chosen["data"] = (chosen["data"] * 2)[:count]
    return f"input {chosen['name']!r} has {count} values"


def value_out_of_range(rng: random.Random, document: Any) -> str:
    document["inputs"][0]["data"][rng.randrange(6)] = rng.choice((-1, 2**64, -(2**63), 10**30))
    return "input 'ids' has a value beyond the range of UINT64"


def unknown_output(rng: random.Random, document: Any) -> str:
    document["outputs"] = [{"name": "clicke" + "d" * rng.randint(2, 99)}]
    return "the model has no output"


def keys_missing(rng: random.Random, document: Any) -> str:
    key = rng.choice(("name", "datatype", "shape", "data"))
    del _one(rng, document)[key]
    return key


def other_kind(rng: random.Random, document: Any) -> str:
    key = rng.choice(("inputs", "outputs", "parameters", "id"))
    document[key] = rng.choice((5, 1.5, True))
    return key


def too_many_bytes(rng: random.Random, document: Any) -> str:
    chosen = _one(rng, document)
    del chosen["data"]
    chosen["parameters"] = {"binary_data_size": rng.choice((1, 48, 2**40, -1))}
    return "binary_data_size"


CHANGES: tuple[Callable[[random.Random, Any], str], ...] = (
    missing_input, unknown_input, doubled_input, other_type, other_shape, shape_of_no_numbers, wrong_value, other_count,
    value_out_of_range, unknown_output, keys_missing, other_kind, too_many_bytes,
)  # fmt: skip


def malformed_body(rng: random.Random) -> Body:
    if rng.random() < 0.1:
        text = json.dumps(RIGHT).encode()
        return rng.choice((text[: rng.randrange(len(text))], rng.randbytes(rng.randint(0, 300)), b"[" * 9999)), "JSON"
    document = copy.deepcopy(RIGHT)
    word = rng.choice(CHANGES)(rng, document)
    return json.dumps(document).encode(), word


def malformed_message(rng: random.Random) -> tuple[inference_pb2.ModelInferRequest, str]:
    tensor = inference_pb2.ModelInferRequest.InferInputTensor
    request = inference_pb2.ModelInferRequest(
        model_name="shop",
        inputs=[tensor(name=each["name"], datatype=each["datatype"], shape=each["shape"]) for each in RIGHT["inputs"]],
        raw_input_contents=[
            np.array(RIGHT["inputs"][0]["data"], np.uint64).tobytes(),
            np.array(RIGHT["inputs"][1]["data"], np.float32).tobytes(),
        ],
    )
    at = rng.randrange(2)
    match rng.randrange(9):
        case 0:
            request.inputs[at].name = rng.choice(("", "idz", "x" * 500))
            return request, "input"
        case 1:
            request.inputs[at].datatype = rng.choice(TYPES)
            return request, f"input {NAMES[at]!r}"
        case 2:
            request.inputs[at].shape[rng.randrange(2)] = rng.choice((-1, 0, 1, 5, 2**62))
            return request, f"input {NAMES[at]!r}"
        case 3:
            request.raw_input_contents[at] = rng.randbytes(rng.choice((0, 1, 23, 25, 47, 49)))
            return request, f"input {NAMES[at]!r}"
        case 4:
            del request.raw_input_contents[at]
            return request, "raw_input_contents has 1 entries"
        case 5:
            request.model_name = rng.choice(("", "shops", "x" * 300))
            return request, "the model is 'shop'"
        case 6:
            request.model_version = str(rng.random())
            return request, "version"
        case 7:
            request.inputs[at].contents.fp32_contents.append(1)
            return request, f"input {NAMES[at]!r} has contents"
        case _:
            del request.raw_input_contents[:]
            return request, "values in"


async def test_every_malformed_request_is_refused_by_name(tmp_path: Path) -> None:
    write_model(tmp_path / "model", job_of_ids())
    async with (
        served_here(tmp_path / "model") as serving,
        grpc.aio.insecure_channel(serving.address) as channel,
    ):
        stub = inference_pb2_grpc.GRPCInferenceServiceStub(channel)
        await asyncio.gather(
            *(over_rest(serving.rest_address or "", random.Random(seed)) for seed in range(STREAMS)),
            *(over_grpc(stub, random.Random(seed)) for seed in range(STREAMS)),
        )
        right = json.dumps(RIGHT).encode()
        reader, writer = await connected(serving.rest_address or "")
        assert (await ask(reader, writer, right))[0] == 200, "the server still scores"
        writer.close()


async def over_grpc(stub: Any, rng: random.Random) -> None:
    for _ in range(EACH // STREAMS):
        request, word = malformed_message(rng)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.ModelInfer(request, timeout=250)
        assert refused.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND), request
        assert word in (refused.value.details() or ""), request


async def over_rest(address: str, rng: random.Random) -> None:
    reader, writer = await connected(address)
    for _ in range(EACH // STREAMS):
        body, word = malformed_body(rng)
        status, answer = await ask(reader, writer, body)
        assert status == 400, (body, answer)
        assert word in answer["error"], (body, answer)
    writer.close()


async def connected(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> tuple[int, dict[str, Any]]:
    """Posts a body on a connection that is kept, and returns the status and the answer."""
    head = f"POST /v2/models/shop/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
    length = next(int(line.partition(":")[2]) for line in lines if line.startswith("content-length:"))
    return int(lines[0].split()[1]), json.loads(await reader.readexactly(length))
