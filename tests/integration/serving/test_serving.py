"""A served model answers the Open Inference Protocol, and refuses wrong requests by name."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from esd.protos import inference_pb2, inference_pb2_grpc
from esd.services.domain.features import Feature, Pooling
from esd.serving import rest_server
from tests.support.certificates import Certificates
from tests.support.served_models import (
    SCHEMA_OF_SHOP,
    expected,
    job_of_ids,
    job_of_shop,
    served,
    served_here,
    write_model,
)

IDS, DENSE = [[3, 4], [99, 0], [7, 7]], [[0.5, 0.25], [1.0, -3.0], [0.0, 0.0]]
DIMENSION = job_of_ids().table.dimension
SCORES = expected(IDS, DENSE, dimension=DIMENSION).tolist()
OF_IDS = {"inputs": [["ids", "UINT64", IDS], ["dense", "FP32", DENSE]]}
LISTS = (Feature("user"), Feature("tags", pooling=Pooling.SUM, max_length=3))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_model(tmp_path / "model", job_of_ids())
    return tmp_path / "model"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    write_model(tmp_path / "shop", job_of_shop(), schema=SCHEMA_OF_SHOP)
    return tmp_path / "shop"


def triton(kind: str, address: str, **request: Any) -> dict[str, Any]:
    """Calls the public client, whose protobuf module cannot be imported in one process with ours."""
    command = [sys.executable, "-m", "tests.support.triton_calls", kind, address, json.dumps(OF_IDS | request)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def post(address: str, document: object, *, path: str = "/v2/models/shop/infer") -> tuple[int, dict[str, Any]]:
    """Posts a document, and returns the status and the answer."""
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    request = urllib.request.Request(f"http://{address}{path}", data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=250) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def json_inputs(**changes: Any) -> dict[str, Any]:
    ids = {"name": "ids", "datatype": "UINT64", "shape": [3, 2], "data": IDS}
    return {"inputs": [ids | changes, {"name": "dense", "datatype": "FP32", "shape": [3, 2], "data": DENSE}]}


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_the_public_client_gets_scores_and_errors_by_name(folder: Path, kind: str) -> None:
    with served(folder) as ready:
        address = ready["rest" if kind == "http" else "address"]
        for binary in (True, False):
            found = triton(kind, address, binary=binary)
            assert (found["live"], found["ready"], found["model_ready"]) == (True, True, True)
            assert found["inputs"] == ["ids", "dense"]
            assert found["scores"] == SCORES
            assert found["id"] == "seven"
            assert found["error"] == "input 'dense' is missing; the model takes ids, dense"


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_the_public_client_over_tls_with_certificate_and_token(folder: Path, tmp_path: Path, kind: str) -> None:
    certificates = Certificates.make(tmp_path / "certs", "server", "ann,scorer", "bob,observer")
    (tmp_path / "tokens").write_text("scorer let-me-score\nobserver look-on\n")
    variables = {f"ESD_MODEL_{name.upper()}": str(path) for name, path in certificates.of("server").items()}
    variables |= {"ESD_MODEL_TOKEN_FILE": str(tmp_path / "tokens"), "ESD_MODEL_TLS_CLIENTS": "*"}
    with served(folder, "--metrics-port", "none", **variables) as ready:
        address = ready["rest" if kind == "http" else "address"].replace("127.0.0.1", "localhost")

        def call(name: str, token: str | None) -> dict[str, Any]:
            files = certificates.of(name)
            tls = {"ca": files["tls_ca"], "certificate": files["tls_certificate"], "key": files["tls_key"]}
            given = {"tls": {key: str(path) for key, path in tls.items()}} | ({"token": token} if token else {})
            return triton(kind, address, **given)

        assert call("ann", "let-me-score")["scores"] == SCORES
        for name, token, reason in (
            ("ann", None, "carries no token"),
            ("ann", "wrong", "carries a wrong token"),
            ("ann", "look-on", "no role"),
            ("bob", "let-me-score", "no role"),
        ):
            with pytest.raises(AssertionError, match=reason if kind == "grpc" else "Unauthenticated|403|401|" + reason):
                call(name, token)


async def test_columns_of_a_schema_are_scored_as_training_reads_them(shop: Path) -> None:
    """Ids are hashed by the schema, so that most of them are unknown; `predict` gives the same scores."""
    import esd  # noqa: PLC0415

    frame = {"user": ["ada", "bob"], "tags": [["x", "y"], []], "price": [2.0, None]}
    import pyarrow as pa  # noqa: PLC0415

    wanted = esd.load(shop).predict(pa.table(frame | {"tags": pa.array(frame["tags"], pa.list_(pa.string()))}))[:, 0]
    user = {"name": "user", "datatype": "BYTES", "shape": [2], "data": ["ada", "bob"]}
    price = {"name": "price", "datatype": "FP64", "shape": [2, 1], "data": [2.0, 1.5]}
    texts = {"name": "tags", "datatype": "BYTES", "shape": [2], "data": ["x|y", ""]}
    lists = [
        {"name": "tags", "datatype": "BYTES", "shape": [2], "data": ["x", "y"]},
        {"name": "lengths/tags", "datatype": "UINT32", "shape": [2], "data": [2, 0]},
    ]
    async with served_here(shop) as serving:
        for inputs in ([user, texts, price], [user, *lists, price]):
            status, answer = await asyncio.to_thread(post, serving.rest_address, {"inputs": inputs})
            assert status == 200, answer
            assert answer["outputs"][0]["data"] == pytest.approx(wanted.tolist(), rel=1e-6)
        for inputs, message in (
            ([user, texts], "input 'price' is missing; the model takes user, tags, price"),
            ([user, texts, price | {"data": [2.0, 1e39]}], "input 'price', sample 1: expected"),
            ([user | {"shape": [1], "data": ["ada"]}, texts, price], "input 'tags' has 2 samples, input 'user' has 1"),
            ([user, texts | {"data": ["a|b|c|d", ""]}, price], "input 'tags', sample 0: expected at most 3 values"),
            ([user | {"datatype": "FP64", "data": [1.5, 2.0]}, texts, price], "input 'user', sample 0: expected"),
            ([user, texts, price, user | {"name": "usr"}], "the model has no input 'usr'; did you mean 'user'?"),
        ):
            status, answer = await asyncio.to_thread(post, serving.rest_address, {"inputs": inputs})
            assert (status, answer["error"][: len(message)]) == (400, message)


async def test_lists_of_ids_are_scored_by_their_lengths(tmp_path: Path) -> None:
    write_model(tmp_path / "model", job_of_ids(LISTS))
    inputs = [
        {"name": "ids", "datatype": "UINT64", "shape": [4], "data": [3, 4, 5, 9]},
        {"name": "lengths", "datatype": "UINT32", "shape": [2, 2], "data": [1, 2, 1, 0]},
        {"name": "dense", "datatype": "FP32", "shape": [2, 2], "data": [[0, 0], [1, 1]]},
    ]
    async with served_here(tmp_path / "model") as serving:
        status, answer = await asyncio.to_thread(post, serving.rest_address, {"inputs": inputs})
        assert (status, answer["outputs"][0]["data"]) == (200, [12.0 * DIMENSION, 9.0 * DIMENSION + 2])
        inputs[1]["data"] = [1, 2, 1, 7]
        status, answer = await asyncio.to_thread(post, serving.rest_address, {"inputs": inputs})
        assert (status, answer["error"]) == (400, "lengths sum to 11, there are 4 ids")


async def test_requests_that_wait_together_fail_and_succeed_alone(folder: Path) -> None:
    """With one thread, requests of very different kinds wait while the first are scored."""
    async with served_here(folder, threads=1) as serving, grpc.aio.insecure_channel(serving.address) as channel:
        stub = inference_pb2_grpc.GRPCInferenceServiceStub(channel)

        async def call(number: int) -> object:
            try:
                answer = await stub.ModelInfer(infer_request(number % 100, dense=number % 5 != 3), timeout=250)
            except grpc.aio.AioRpcError as error:
                return error.details()
            return np.frombuffer(answer.raw_output_contents[0], np.float32).tolist()

        found = await asyncio.gather(*map(call, range(300)))
    for number, each in enumerate(found):
        right = [number % 100 * 2.0 * DIMENSION + 1]
        assert each == ("input 'dense' is missing; the model takes ids, dense" if number % 5 == 3 else right)


def infer_request(row: int, *, dense: bool = True, name: str = "shop") -> inference_pb2.ModelInferRequest:
    """A request of one sample, whose two ids are the same."""
    tensor = inference_pb2.ModelInferRequest.InferInputTensor
    request = inference_pb2.ModelInferRequest(
        model_name=name,
        inputs=[tensor(name="ids", datatype="UINT64", shape=[1, 2])],
        raw_input_contents=[np.full(2, row, np.uint64).tobytes()],
    )
    if dense:
        request.inputs.append(tensor(name="dense", datatype="FP32", shape=[1, 2]))
        request.raw_input_contents.append(np.full(2, 0.5, np.float32).tobytes())
    return request


@asynccontextmanager
async def half_a_request(address: str, *, sent: int, length: int) -> AsyncIterator[asyncio.StreamReader]:
    """A request of which only the first bytes of the body arrive; gives the reader of its answer."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /v2/models/shop/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
    writer.write(head.encode() + bytes(sent))
    await writer.drain()
    try:
        yield reader
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("settings", "sent", "knob"),
    [
        ({"max_concurrent_rpcs": 1}, 1, "MAX_CONCURRENT_RPCS=1"),
        ({"max_waiting_bytes": 2**20}, 2**20, "MAX_WAITING_BYTES"),
    ],
)
async def test_requests_beyond_a_limit_are_refused_for_the_moment(
    folder: Path, settings: dict[str, int], sent: int, knob: str
) -> None:
    async with served_here(folder, **settings) as serving:
        address = serving.rest_address or ""
        status, answer = 200, {}
        async with asyncio.timeout(120):
            while status == 200:  # half a request that arrives during a whole one is refused itself, and comes again
                async with half_a_request(address, sent=sent, length=sent + 1) as reader:
                    refusal = asyncio.create_task(reader.readline())
                    while status == 200 and not refusal.done():
                        status, answer = await asyncio.to_thread(post, address, json_inputs())
                    refusal.cancel()
                    await asyncio.wait({refusal})
        assert status == 429
        assert knob in answer["error"]
        async with asyncio.timeout(120):
            while (await asyncio.to_thread(post, address, json_inputs()))[0] != 200:
                pass  # the server has not noticed the end of the other request yet


async def test_a_request_that_is_too_long_or_too_slow_is_refused(folder: Path) -> None:
    async with served_here(folder, max_request_bytes=2**16, answer_seconds=0.3) as serving:
        address = serving.rest_address or ""
        async with half_a_request(address, sent=0, length=2**17) as reader:
            assert await reader.readline() == b"HTTP/1.1 413 Request Entity Too Large\r\n"
            assert b"ESD_MODEL_MAX_REQUEST_BYTES" in await reader.readuntil(b"}")
        async with half_a_request(address, sent=5, length=10) as reader:
            assert (await reader.readline()).startswith(b"HTTP/1.1 504 ")
            assert b"the body did not arrive within ESD_MODEL_ANSWER_SECONDS=0.3 s" in await reader.readuntil(b"}")


async def test_connections_that_say_nothing_are_closed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_server, "_HEAD_SECONDS", 0.2)
    async with served_here(folder) as serving:
        host, _, port = (serving.rest_address or "").rpartition(":")
        for said in (b"", b"GET /v2 HTT"):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(said)
            with suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 60) == b""
            writer.close()


async def test_at_a_loopback_address_other_hosts_are_refused(folder: Path) -> None:
    """A page of the web whose name resolves to 127.0.0.1 would read the answers otherwise."""
    async with served_here(folder) as serving:
        host, _, port = (serving.rest_address or "").rpartition(":")
        for name, status in (("evil.example", b"421"), ("localhost:80", b"200")):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"GET /v2 HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
            assert (await reader.read()).split(b" ")[1] == status
            writer.close()
