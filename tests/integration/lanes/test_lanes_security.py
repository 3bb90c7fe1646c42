"""Lanes to a secured service: its certificate is checked for the address that the client calls, and tokens pass."""

from __future__ import annotations

from contextlib import suppress

import grpc
import pytest

from esd.lanes.app import serve_lanes
from esd.lanes.settings import LanesSettings
from esd.protos import ps_pb2, ps_pb2_grpc
from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.runtime.channel import channel_options
from esd.services.runtime.security import Credentials
from tests.support.certificates import Certificates

NAME = "127.0.0.2"  # which certificates have only if they are asked for


@pytest.mark.parametrize(
    ("names", "token", "refusal"),
    [
        (f"ps,{NAME}", True, None),
        (f"ps,{NAME}", False, grpc.StatusCode.UNAUTHENTICATED),
        ("ps,127.0.0.1", True, grpc.StatusCode.UNAVAILABLE),  # the address of both ends of the lanes
    ],
)
async def test_a_secured_service_is_what_its_client_has_called(tmp_path, names, token, refusal):
    certificates = Certificates.make(tmp_path, names, "client")
    settings = ParameterServerSettings(listen=f"{NAME}:0", metrics_port=None, **certificates.of("ps", token=True))
    files = certificates.of("client", token=token)
    credentials = Credentials.load(**files).for_channel()
    async with (
        parameter_server(settings) as server,
        serve_lanes(LanesSettings(to=server.address)) as far,
        serve_lanes(LanesSettings(via=far.address)) as near,
    ):
        options = [*channel_options(1 << 20), ("grpc.http_proxy", f"http://{near.address}")]
        async with grpc.aio.secure_channel(server.address, credentials, options) as channel:
            call = ps_pb2_grpc.ParameterServerStub(channel).DescribeServer(ps_pb2.DescribeServerRequest(), timeout=20)
            with suppress(grpc.aio.AioRpcError):
                await call
            assert await call.code() == (refusal or grpc.StatusCode.OK)
