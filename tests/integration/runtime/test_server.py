"""Life of a server: health, reflection, metrics, graceful stop."""

import asyncio
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from esd.services.domain.errors import DeadlineExceeded, NotFound, Unavailable
from esd.services.runtime.channel import channel
from esd.services.runtime.metrics import REGISTRY
from testbed.free_port import free_port

SERVICE = "esd.v1.ParameterServer"
Call = Callable[[Any, str], Awaitable[Any]]
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
POLL_SECONDS = 0.01


@pytest.mark.parametrize("name", ["", SERVICE])
async def test_health_follows_set_serving(toy: Any, name: str) -> None:
    async with channel(toy.server.address) as to_server:
        watch = health_pb2_grpc.HealthStub(to_server).Watch(health_pb2.HealthCheckRequest(service=name), timeout=60)
        seen = [(await watch.read()).status]
        for serving in (True, False, True):
            await toy.server.set_serving(serving)
            seen.append((await watch.read()).status)
        assert seen == [NOT_SERVING, SERVING, NOT_SERVING, SERVING]


async def test_health_of_all_services(toy: Any) -> None:
    async with channel(toy.server.address) as to_server:
        for serving, status in ((False, NOT_SERVING), (True, SERVING)):
            await toy.server.set_serving(serving)
            answer = await health_pb2_grpc.HealthStub(to_server).List(health_pb2.HealthListRequest(), timeout=60)
            assert {name: each.status for name, each in answer.statuses.items()} == {
                "": status, SERVICE: status, "esd.v1.Dispatcher": status,
            }  # fmt: skip


async def test_health_of_an_unknown_service(toy: Any) -> None:
    async with channel(toy.server.address) as to_server:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health_pb2_grpc.HealthStub(to_server).Check(health_pb2.HealthCheckRequest(service="x"), timeout=60)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_stopping_turns_health_off_and_lets_running_calls_finish(serve_toy: Any) -> None:
    async with serve_toy(grace_seconds=60) as toy, channel(toy.server.address) as to_server, asyncio.timeout(60):
        await toy.server.set_serving(True)
        watch = health_pb2_grpc.HealthStub(to_server).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        running = asyncio.create_task(toy.pull("wait"))
        await toy.servicer.waiting.wait()

        stopping = asyncio.create_task(toy.stop())
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()
        toy.servicer.released.set()
        assert await running == [4, 8]
        await stopping


async def test_calls_that_outlast_the_grace_period_are_ended(serve_toy: Any) -> None:
    async with serve_toy(grace_seconds=0.1) as toy, asyncio.timeout(60):
        running = asyncio.create_task(toy.pull("wait"))
        await toy.servicer.waiting.wait()
        await toy.stop()
        with pytest.raises(Unavailable):
            await running
        assert toy.servicer.cancelled.is_set()


async def test_reflection_lists_the_services(toy: Any) -> None:
    async with channel(toy.server.address) as to_server:
        stub = reflection_pb2_grpc.ServerReflectionStub(to_server)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        answers = [answer async for answer in stub.ServerReflectionInfo(iter([request]), timeout=60)]
    listed = {service.name for service in answers[0].list_services_response.service}
    assert listed == {SERVICE, "esd.v1.Dispatcher", "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}


def handled(method: str, code: str) -> float:
    labels = {"method": f"/esd.v1.{method}", "code": code}
    return REGISTRY.get_sample_value("grpc_server_handled_total", labels) or 0.0


async def until_handled(method: str, code: str, count: float) -> None:
    """Returns when this number of calls is counted: the caller has its answer a moment before."""
    async with asyncio.timeout(60):
        while handled(method, code) != count:  # noqa: ASYNC110 - a metric tells nobody that it has changed
            await asyncio.sleep(POLL_SECONDS)


def scan_seconds() -> float:
    labels = {"method": f"/{SERVICE}/Scan"}
    return REGISTRY.get_sample_value("grpc_server_handling_seconds_sum", labels) or 0.0


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("ParameterServer/CreateTable", lambda toy, name: toy.create(name)),
        ("ParameterServer/Scan", lambda toy, name: toy.pull(name)),
        ("ParameterServer/PutDense", lambda toy, name: toy.push("fine", name)),
        ("Dispatcher/Submit", lambda toy, name: toy.submit("fine", name)),
    ],
)
async def test_every_kind_of_call_is_counted_by_its_final_code(toy: Any, method: str, call: Call) -> None:
    fine, failed = handled(method, "OK"), handled(method, "NOT_FOUND")
    await call(toy, "fine")
    with pytest.raises(NotFound):
        await call(toy, "NotFound")
    await until_handled(method, "OK", fine + 1)
    await until_handled(method, "NOT_FOUND", failed + 1)


async def test_the_time_of_a_stream_ends_with_its_last_message(toy: Any) -> None:
    before = scan_seconds()
    running = asyncio.create_task(toy.pull("wait"))
    await toy.servicer.waiting.wait()
    assert scan_seconds() == before
    started = asyncio.get_running_loop().time()
    await asyncio.sleep(0.05)  # the duration to be measured
    waited = asyncio.get_running_loop().time() - started
    toy.servicer.released.set()
    await running
    assert scan_seconds() - before >= waited


async def test_a_call_that_its_client_cancels_is_counted_as_such(toy: Any) -> None:
    before = handled("ParameterServer/CreateTable", "CANCELLED")
    running = asyncio.create_task(toy.create("wait"))
    await toy.servicer.waiting.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.wait_for(toy.servicer.cancelled.wait(), 60)
    await until_handled("ParameterServer/CreateTable", "CANCELLED", before + 1)


async def test_a_call_whose_time_runs_out_is_counted_as_such(toy: Any) -> None:
    """Of one that was long on its way, the service may only see that its peer is gone."""
    before = handled("ParameterServer/CreateTable", "DEADLINE_EXCEEDED")
    calls = 0
    async with asyncio.timeout(60):
        while not handled("ParameterServer/CreateTable", "DEADLINE_EXCEEDED") > before:
            calls += 1
            with pytest.raises(DeadlineExceeded):
                await toy.create("wait", seconds=0.2)
    assert handled("ParameterServer/CreateTable", "DEADLINE_EXCEEDED") <= before + calls


async def test_a_call_of_an_unknown_method_does_not_become_a_label(toy: Any) -> None:
    async with channel(toy.server.address) as to_server:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await to_server.unary_unary("/made.up/Name")(b"", timeout=60)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    methods = {
        sample.labels["method"]
        for family in REGISTRY.collect()
        for sample in family.samples
        if "method" in sample.labels
    }
    assert "unknown" in methods
    assert "/made.up/Name" not in methods


async def test_the_metrics_page_is_served_and_ends_with_the_server(serve_toy: Any) -> None:
    async with serve_toy(metrics_port=free_port()) as toy:  # which nobody else gets as it goes away
        url = f"http://{toy.server.metrics_address}/metrics"
        with await asyncio.to_thread(urllib.request.urlopen, url, timeout=60) as answer:
            page = answer.read().decode()
        assert "# HELP grpc_server_handled_total " in page
        assert "esd_auc" not in page, "the toy is no dispatcher"
        assert "process_resident_memory_bytes" in page
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(urllib.request.urlopen, url, timeout=60)


async def test_the_metrics_page_can_be_turned_off(serve_toy: Any) -> None:
    async with serve_toy(metrics_port=None) as toy:
        assert toy.server.metrics_address is None
