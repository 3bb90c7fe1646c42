"""The health probe of the containers, as its own process against a real server."""

import asyncio
import os
import sys
from pathlib import Path

from esd.services.runtime.server import serve
from esd.services.runtime.settings import ServerSettings
from testbed.free_port import free_port
from tests.support.certificates import Certificates


class ProbedSettings(ServerSettings, env_prefix="ESD_PROBED_"):
    pass


async def probe(*arguments: str, **variables: object) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "esd.services.runtime.probe",
        *arguments,
        env=os.environ | {name: str(value) for name, value in variables.items()},
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    return process.returncode, said.decode()


async def test_a_probe_follows_the_health_of_a_service() -> None:
    settings = ProbedSettings(listen=f"127.0.0.1:{free_port()}")  # which nobody else gets as it goes away
    async with serve("probed", [], settings) as server:
        assert await probe(server.address) == (1, f"{server.address}: not serving\n")
        await server.set_serving(True)
        assert await probe(server.address) == (0, "")
    code, said = await probe(server.address)
    assert code == 1
    assert "UNAVAILABLE" in said


async def test_a_probe_shows_the_certificate_of_its_service(tmp_path: Path) -> None:
    files = Certificates.make(tmp_path, "probed").of("probed")
    async with serve("probed", [], ProbedSettings(**files, tls_clients="*")) as server:
        await server.set_serving(True)
        variables = {f"ESD_PROBED_{name.upper()}": path for name, path in files.items()}
        assert await probe(server.address, **variables) == (0, "")
        code, _ = await probe(server.address)
        assert code == 1


async def test_a_probe_says_how_it_is_used() -> None:
    code, said = await probe()
    assert code == 1
    assert "HOST:PORT" in said
