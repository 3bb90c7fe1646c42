"""`esd status` of a dispatcher that it cannot talk to ends with one line, which names the option to set."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from esd.dispatcher.service.app import serve_dispatcher
from esd.dispatcher.service.settings import DispatcherSettings
from tests.support.certificates import Certificates


async def status(address: str, **credentials: Path) -> tuple[int | None, str]:
    """Returns the exit code of `esd status` with these files as credentials, and its standard error."""
    kept = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    files = {f"ESD_CLIENT_{name.upper()}": str(path) for name, path in credentials.items()}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "esd.cli", "status", "--dispatcher", address, env=kept | files, stdout=PIPE, stderr=PIPE
    )
    _, told = await process.communicate()
    return process.returncode, told.decode()


@pytest.mark.parametrize(
    ("of_the_service", "of_the_caller", "text"),
    [
        (
            [],
            ["tls_ca"],
            "the caller uses TLS and the service does not: give .* the caller no tls_ca .*ESD_CLIENT_TLS_CA",
        ),
        (["tls"], [], "the service may require TLS .*ESD_CLIENT_TLS_CA"),
        (["tls", "token"], ["tls_ca", "token_file"], "the call carries a wrong token; .*ESD_CLIENT_TOKEN_FILE"),
    ],
    ids=["TLS to plaintext", "plaintext to TLS", "a wrong token"],
)
async def test_one_line_names_what_to_set(
    certificates: Certificates, tmp_path: Path, of_the_service: list[str], of_the_caller: list[str], text: str
) -> None:
    (tmp_path / "token").write_text("another-token-4711\n")
    files = {"tls_ca": certificates.authority, "token_file": tmp_path / "token"}
    secured: dict[str, Any] = certificates.of("service", token="token" in of_the_service) if of_the_service else {}
    settings = DispatcherSettings(metrics_port=None, page_port=None, grace_seconds=0, **secured)
    async with serve_dispatcher(settings) as dispatcher:
        code, told = await status(dispatcher.address, **{name: files[name] for name in of_the_caller})
    assert code == 1
    (line,) = [line for line in told.splitlines() if not line.startswith("waiting for ")]  # on a busy machine
    assert line.startswith("esd: ")
    assert re.search(text, line)
