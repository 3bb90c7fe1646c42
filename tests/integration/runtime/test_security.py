"""TLS, client certificates and tokens on real connections."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2_grpc

from esd.protos import dispatcher_pb2, dispatcher_pb2_grpc, ps_pb2, ps_pb2_grpc
from esd.services.domain.errors import DeadlineExceeded, EsdError, PermissionDenied, Unauthenticated, Unavailable
from esd.services.runtime.channel import channel
from esd.services.runtime.security import PLAINTEXT, Credentials
from esd.services.runtime.settings import ClientSettings, SettingsError
from esd.services.runtime.status import domain_errors
from tests.support.certificates import Certificates


def client(**settings: Any) -> Credentials:
    return Credentials.read(ClientSettings(**settings))


async def create(address: str, credentials: Credentials, metadata: Any = (), seconds: float = 20) -> bool:
    """One unary call."""
    async with channel(address, credentials=credentials) as to_server:
        stub = ps_pb2_grpc.ParameterServerStub(to_server)
        request = ps_pb2.CreateTableRequest(table={"name": "fine"})
        with domain_errors():
            return bool((await stub.CreateTable(request, timeout=seconds, metadata=metadata)).created)


async def refusal(address: str, credentials: Credentials, metadata: Any = (), seconds: float = 20) -> EsdError:
    with pytest.raises(EsdError) as caught:
        await create(address, credentials, metadata, seconds)
    return caught.value


async def test_an_encrypted_server_lets_in_who_trusts_it(serve_toy: Any, certificates: Certificates) -> None:
    async with serve_toy(**certificates.of("service")) as toy:
        assert await create(toy.server.address, client(tls_ca=certificates.authority))


async def test_an_encrypted_server_is_closed_to_plaintext(serve_toy: Any, certificates: Certificates) -> None:
    async with serve_toy(**certificates.of("service")) as toy:
        error = await refusal(toy.server.address, PLAINTEXT)
    assert isinstance(error, Unavailable), "it may as well be a server that restarts"
    assert "the service may require TLS (tls_ca of the caller)" in str(error)
    assert "ESD_CLIENT_TLS_CA" in str(error)


async def test_who_has_no_time_to_learn_why_hears_where_to_look(serve_toy: Any, certificates: Certificates) -> None:
    async with serve_toy(**certificates.of("service")) as toy:
        error = await refusal(toy.server.address, PLAINTEXT, seconds=0.5)
    assert isinstance(error, DeadlineExceeded)
    assert f"no connection to {toy.server.address} within 0.5 s: it refuses or closes connections" in str(error)
    assert "both ends do not agree on TLS" in str(error)
    assert "ESD_CLIENT_TLS_CA" in str(error)


async def test_a_client_does_not_trust_a_foreign_server(
    serve_toy: Any, certificates: Certificates, foreign_certificates: Certificates
) -> None:
    async with serve_toy(**foreign_certificates.of("service")) as toy:
        error = await refusal(toy.server.address, client(tls_ca=certificates.authority))
    assert isinstance(error, Unauthenticated)
    assert "tls_ca of the caller is not the authority that has signed it" in str(error)


async def test_a_service_is_called_by_a_name_of_its_certificate(serve_toy: Any, certificates: Certificates) -> None:
    async with serve_toy(listen="127.0.0.2:0", **certificates.of("service")) as toy:
        error = await refusal(toy.server.address, client(tls_ca=certificates.authority))
    assert isinstance(error, Unauthenticated), "no use in trying again"
    assert "certificate is not valid for the name or address in the caller's settings" in str(error)


async def test_a_service_may_be_known_by_another_name_than_its_address(
    serve_toy: Any, certificates: Certificates
) -> None:
    ours = client(tls_ca=certificates.authority)
    async with serve_toy(listen="127.0.0.2:0", **certificates.of("service")) as toy:
        assert await create(toy.server.address, replace(ours, server_name="service"))
        assert isinstance(await refusal(toy.server.address, replace(ours, server_name="worker")), Unauthenticated)


async def test_a_client_with_tls_says_so_to_a_server_without(toy: Any, certificates: Certificates) -> None:
    error = await refusal(toy.server.address, client(tls_ca=certificates.authority))
    assert isinstance(error, Unauthenticated)
    assert "the caller uses TLS and the service does not" in str(error)


async def test_client_certificates(
    serve_toy: Any, certificates: Certificates, foreign_certificates: Certificates
) -> None:
    foreign = foreign_certificates.of("worker") | {"tls_ca": certificates.authority}
    async with serve_toy(**certificates.of("service"), tls_clients="*") as toy:
        assert await create(toy.server.address, client(**certificates.of("worker")))
        for stranger in (client(tls_ca=certificates.authority), client(**foreign)):
            assert isinstance(await refusal(toy.server.address, stranger), Unavailable)
        assert toy.servicer.attempts["fine"] == 1


async def test_only_listed_names_may_call(
    serve_toy: Any, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve_toy(**certificates.of("service"), tls_clients="redis=worker, dispatcher") as toy:
        assert await create(toy.server.address, client(**certificates.of("redis")))
        assert await create(toy.server.address, client(**certificates.of("dispatcher")))
        with caplog.at_level(logging.WARNING):
            error = await refusal(toy.server.address, client(**certificates.of("client")))
    assert isinstance(error, PermissionDenied)
    assert "client" in str(error)
    assert "ESD_<SERVICE>_TLS_CLIENTS" in str(error)
    assert "call refused: the certificate client" in caplog.text


async def test_a_token_goes_with_every_kind_of_call(serve_toy: Any, certificates: Certificates) -> None:
    service = certificates.of("service", token=True)
    credentials = client(tls_ca=certificates.authority, token_file=certificates.token)
    async with serve_toy(**service) as toy, channel(toy.server.address, credentials=credentials) as to_server:
        parameter_server = ps_pb2_grpc.ParameterServerStub(to_server)
        dispatcher = dispatcher_pb2_grpc.DispatcherStub(to_server)
        assert (await parameter_server.CreateTable(ps_pb2.CreateTableRequest(table={"name": "fine"}))).created
        assert len([chunk async for chunk in parameter_server.Scan(ps_pb2.ScanRequest(table="fine"))]) == 2
        assert (await parameter_server.PutDense(iter([ps_pb2.PutDenseRequest(table="fine")]))).bytes == 1
        requests = iter([dispatcher_pb2.SubmitRequest(job="fine")])
        assert len([answer async for answer in dispatcher.Submit(requests)]) == 1


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ((), "carries no token"),
        ((("authorization", "Bearer wrong"),), "carries a wrong token"),
        ((("authorization", "open-sesame-4711"),), "carries a wrong token"),
    ],
    ids=["none", "wrong", "without its scheme"],
)
async def test_a_call_without_the_token_is_refused_and_logged(
    serve_toy: Any, certificates: Certificates, caplog: pytest.LogCaptureFixture, metadata: Any, text: str
) -> None:
    async with serve_toy(**certificates.of("service", token=True)) as toy:
        with caplog.at_level(logging.WARNING):
            error = await refusal(toy.server.address, client(tls_ca=certificates.authority), metadata)
        assert toy.servicer.attempts["fine"] == 0
    assert isinstance(error, Unauthenticated)
    assert text in str(error)
    assert "ESD_<SERVICE>_TOKEN_FILE" in str(error)
    assert text in caplog.text
    assert not any(secret in caplog.text + str(error) for secret in certificates.secrets())


async def test_health_is_open_and_reflection_is_not(serve_toy: Any, certificates: Certificates) -> None:
    credentials = client(tls_ca=certificates.authority)
    async with serve_toy(**certificates.of("service", token=True)) as toy:
        await toy.server.set_serving(True)
        async with channel(toy.server.address, credentials=credentials) as to_server:
            health = await health_pb2_grpc.HealthStub(to_server).Check(health_pb2.HealthCheckRequest(), timeout=60)
            assert health.status == health_pb2.HealthCheckResponse.SERVING
            reflection = reflection_pb2_grpc.ServerReflectionStub(to_server)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await reflection.ServerReflectionInfo(timeout=60).read()
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_plaintext_beyond_this_machine_is_worth_a_warning(
    serve_toy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with serve_toy(listen="127.0.0.1:0"):
            assert "without encryption" not in caplog.text
        async with serve_toy(listen="0.0.0.0:0"):
            assert "without encryption" in caplog.text
            assert "ESD_TOY_TLS_CERTIFICATE" in caplog.text


async def test_clients_can_be_asked_for_certificates_over_tls_only(serve_toy: Any) -> None:
    with pytest.raises(SettingsError, match=r"ESD_TOY_TLS_CLIENTS is set without ESD_TOY_TLS_CERTIFICATE"):
        async with serve_toy(tls_clients="*"):
            pass
