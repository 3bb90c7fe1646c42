"""Secrets reach containers as files: no command line, no environment and no `docker inspect` holds one."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from testbed.free_port import free_port
from testbed.redis_server import await_ready

ROOT = Path(__file__).parents[3]
COMPOSE_FILES = [ROOT / "docker-compose.yml", *sorted((ROOT / "deploy").glob("*.yml"))]
IN_CONTAINER = "/run/secrets/redis_password"
PASSWORD = 'p@ss:w/o?r#d "$HOME" \\ `id`'


def services(file: Path) -> dict[str, dict[str, Any]]:
    return yaml.safe_load(file.read_text())["services"]


def test_no_variable_of_the_compose_files_is_a_secret() -> None:
    for file in COMPOSE_FILES:
        names = re.findall(r"(?<!\$)\$\{(\w+)", file.read_text())
        secret = [name for name in names if re.search("PASSWORD|TOKEN|SECRET|KEY", name) and not name.endswith("_FILE")]
        assert not secret, file


def test_the_password_is_given_to_redis_and_to_those_who_call_it() -> None:
    whole = services(ROOT / "docker-compose.yml")
    users = {name for name, service in whole.items() if IN_CONTAINER in str(service)}
    assert users == {"redis", "ps_server"}
    assert {name for name, service in whole.items() if service.get("secrets") == ["redis_password"]} == users


@contextmanager
def started(command: list[str], directory: Path, password: str) -> Iterator[tuple[int, int]]:
    """Runs the command of a container of Redis here, and yields its process and its port."""
    (directory / "password").write_text(password)
    port = free_port()
    script = re.sub(r"(?<!\$)\$\{\w+:-([^}]*)\}", r"\1", command[2]).replace("$$", "$")
    script = script.replace(IN_CONTAINER, str(directory / "password")).replace("--dir /data", f"--dir {directory}")
    # A node's second port is otherwise 10,000 above the first, where there may be none.
    script = script.replace("--protected-mode no", f"--bind 127.0.0.1 --port {port} --cluster-port {free_port()}")
    with subprocess.Popen([*command[:2], script], stdout=subprocess.PIPE, text=True) as process:
        try:
            await_ready(process)
            yield process.pid, port
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("file", "service"), [("docker-compose.yml", "redis"), ("deploy/redis-cluster.yml", "redis_2")]
)
def test_redis_takes_its_password_from_the_file_and_shows_it_nowhere(file: str, service: str, tmp_path: Path) -> None:
    command = services(ROOT / file)[service]["command"]
    with started(command, tmp_path, f"{PASSWORD}\n") as (process, port):
        shown = b"".join(Path(f"/proc/{process}/{name}").read_bytes() for name in ("cmdline", "environ"))
        assert b"redis-server" in shown
        assert b"p@ss" not in shown
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=port).ping()
        with redis.Redis(port=port, password=PASSWORD, decode_responses=True) as client:
            assert client.config_get("masterauth")["masterauth"] == (PASSWORD if "cluster" in file else "")


def test_the_file_that_stands_for_no_password_asks_for_none(tmp_path: Path) -> None:
    default = (ROOT / "deploy/no-password").read_text()
    assert default, "a swarm takes no empty secret"
    with started(services(COMPOSE_FILES[0])["redis"]["command"], tmp_path, default) as (_, port):
        assert redis.Redis(port=port).ping()
