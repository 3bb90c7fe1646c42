"""Every call of every service, by certificates and tokens of every role: the table of roles is enforced."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from esd.services.runtime.call_limits import is_health
from esd.services.runtime.caller import present_caller
from esd.services.runtime.channel import channel
from esd.services.runtime.roles import ROLES_BY_RPC, Role
from esd.services.runtime.security import Credentials
from esd.services.runtime.server import serve
from esd.services.runtime.settings import ClientSettings, ServerSettings
from tests.support.certificates import Certificates

SERVED = [rpc for rpc in ROLES_BY_RPC if rpc.startswith(("/esd.v1.", "/inference."))]


class GuardedSettings(ServerSettings, env_prefix="ESD_GUARDED_"):
    """Defaults of every service."""


def answer_everything(answer: Any, server: grpc.aio.Server) -> None:
    """Serves every call of the contract with one handler; requests and answers are bytes."""
    handler = grpc.stream_stream_rpc_method_handler(answer)
    for service in {rpc.split("/")[1] for rpc in SERVED}:
        handlers = {rpc.split("/")[2]: handler for rpc in SERVED if rpc.split("/")[1] == service}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))


async def tell_who_calls(requests: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
    yield present_caller().identity.encode()


@asynccontextmanager
async def guarded(**settings: Any) -> AsyncIterator[str]:
    """The address of a server that answers every caller with the caller's identity."""
    settings = {"metrics_port": None} | settings
    async with serve(
        "guarded", [(answer_everything, tell_who_calls, "esd.v1.Guarded")], GuardedSettings(**settings)
    ) as server:
        yield server.address


async def outcomes(address: str, **settings: Any) -> Mapping[str, str]:
    """The outcome of each call of the table: the caller's identity, as the handler sees it, or the refusal."""
    credentials = Credentials.read(ClientSettings(**settings))
    found = {}
    async with channel(address, credentials=credentials) as to_server:
        for rpc in ROLES_BY_RPC:
            call = to_server.unary_stream(rpc)(b"", timeout=60)
            try:
                async for message in call:
                    found[rpc] = message.decode(errors="replace")
                    break
                else:
                    found[rpc] = ""
            except grpc.aio.AioRpcError as error:
                found[rpc] = f"{error.code().name}: {error.details()}"
            call.cancel()
    return found


def refused(found: Mapping[str, str]) -> set[str]:
    return {rpc for rpc, text in found.items() if text.startswith("PERMISSION_DENIED")}


@pytest.mark.parametrize("role", Role)
async def test_a_certificate_may_what_its_role_may(role: Role, certificates: Certificates) -> None:
    async with guarded(**certificates.of("service"), tls_clients="*") as address:
        found = await outcomes(address, **certificates.of(role))
    assert refused(found) == {rpc for rpc, roles in ROLES_BY_RPC.items() if role not in roles}
    assert {found[rpc] for rpc in SERVED if role in ROLES_BY_RPC[rpc]} == {f"the certificate {role}"}


@pytest.mark.parametrize("role", Role)
async def test_a_token_may_what_its_role_may(role: Role, certificates: Certificates, tmp_path: Path) -> None:
    own, all_tokens = tmp_path / "own", tmp_path / "all"
    all_tokens.write_text("".join(f"{each} {each}-4711\n" for each in Role))
    own.write_text(f"{role}-4711\n")
    async with guarded(**certificates.of("service"), token_file=all_tokens) as address:
        found = await outcomes(address, tls_ca=certificates.authority, token_file=own)
    assert refused(found) == {rpc for rpc, roles in ROLES_BY_RPC.items() if role not in roles}
    line = list(Role).index(role) + 1
    assert {found[rpc] for rpc in SERVED if role in ROLES_BY_RPC[rpc]} == {f"the token of role {role} in line {line}"}


async def test_a_certificate_that_says_no_role_may_nothing_but_ask_for_health(certificates: Certificates) -> None:
    async with guarded(**certificates.of("service"), tls_clients="*") as address:
        found = await outcomes(address, **certificates.of("redis"))
    assert refused(found) == {rpc for rpc in ROLES_BY_RPC if not is_health(rpc)}
    assert "the certificate redis gives its bearer no role here" in found["/esd.v1.Dispatcher/DescribeJob"]


async def test_certificate_and_token_must_both_allow_a_call(certificates: Certificates, tmp_path: Path) -> None:
    own, all_tokens = tmp_path / "own", tmp_path / "all"
    all_tokens.write_text("worker one\nobserver two\n")
    own.write_text("two")
    async with guarded(**certificates.of("service"), tls_clients="*", token_file=all_tokens) as address:
        found = await outcomes(address, **certificates.of("client"), token_file=own)
    allowed = set(SERVED) - refused(found)
    assert allowed == set(), "a driver with an observer's token is neither"


async def test_whoever_reaches_an_open_server_may_make_every_call() -> None:
    async with guarded() as address:
        found = await outcomes(address)
    assert not refused(found)
    assert {found[rpc] for rpc in SERVED} == {"the machine localhost"}


async def test_one_token_lets_its_bearer_make_every_call(certificates: Certificates) -> None:
    async with guarded(**certificates.of("service", token=True)) as address:
        found = await outcomes(address, tls_ca=certificates.authority, token_file=certificates.token)
    assert not refused(found)
    assert {found[rpc] for rpc in SERVED} == {"the token"}


async def test_a_refusal_names_caller_call_and_roles(certificates: Certificates) -> None:
    async with guarded(**certificates.of("service"), tls_clients="*") as address:
        found = await outcomes(address, **certificates.of("edge-1"))
    assert found["/esd.v1.ParameterServer/Restore"] == (
        "PERMISSION_DENIED: Restore is for the roles dispatcher, and the certificate edge-1 is of worker"
    )
