"""The services of a cluster, each started by its unit of a kit: they find each other, with TLS, and train."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from esd.cluster.config import read_cluster
from esd.cluster.kit import Places, write_kit
from esd.cluster.secrets import provide_secrets
from esd.run.options import RunOptions
from esd.run.services import held_address
from esd.run.train import train_attached
from esd.services.runtime.security import Credentials
from esd.services.runtime.settings import ClientSettings
from tests.support.certificates import Certificates

PORTS = (
    "redis",
    "ps_server",
    "ps_server_metrics",
    "dispatcher",
    "dispatcher_metrics",
    "page",
    "worker",
    "worker_metrics",
)


@contextmanager
def started(kit: Path, service: str, data: Path) -> Iterator[subprocess.Popen[str]]:
    """Runs the command of a unit with its environment, but for the programs' places, and Redis' folder of data."""
    unit = (kit / "units" / f"esd-{service}.service").read_text()
    (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    command = command.replace("/opt/esd/bin/", f"{Path(sys.executable).parent}/").replace(
        "/usr/bin/redis-server", "redis-server"
    )
    settings = kit / "settings" / service
    if service == "redis":
        conf = settings / "redis.conf"
        conf.write_text(conf.read_text().replace("/var/lib/esd/redis", str(data)))
    variables = dict(line.split("=", 1) for line in shlex.split((settings / "environment").read_text()))
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(data), **variables}
    with subprocess.Popen(shlex.split(command), env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def test_services_of_a_kit_train_together(tmp_path: Path) -> None:
    with ExitStack() as stack:
        ports = {name: stack.enter_context(held_address()).rpartition(":")[2] for name in PORTS}
        (tmp_path / "cluster.toml").write_text(
            'head = "a"\n[ports]\n'
            + "".join(f"{name} = {port}\n" for name, port in ports.items())
            + '[[hosts]]\nname = "a"\naddress = "127.0.0.1"\nlink = "1g"\n'
        )
        cluster, kit = read_cluster(tmp_path / "cluster.toml"), tmp_path / "kit"
        write_kit(cluster, "a", kit, secrets=provide_secrets(cluster), places=Places(settings=kit / "settings"))
        processes = {
            name: stack.enter_context(started(kit, name, tmp_path)) for name in ("redis", "ps_server", "dispatcher")
        }
        processes["worker"] = stack.enter_context(started(kit, "worker", tmp_path))
        for name in ("ps_server", "dispatcher", "worker"):
            assert json.loads(processes[name].stdout.readline())["event"] == "ready"
        of_client = Certificates(cluster.certificates).of("client", token=True)
        credentials = Credentials.read(ClientSettings(**of_client))
        options = RunOptions(data="flights", workers=1, batch=32, dim=4, iterations=5, hidden="8")
        run = asyncio.run(
            train_attached(
                options,
                dispatcher=f"127.0.0.1:{ports['dispatcher']}",
                parameter_servers=f"127.0.0.1:{ports['ps_server']}",
                out=tmp_path / "out",
                graphs=False,
                credentials=credentials,
            )
        )
        assert run.state.iterations_confirmed == 5
        assert (tmp_path / "out" / "model" / "SHA256SUMS").is_file()


def test_a_unit_whose_settings_are_wrong_ends_with_the_code_that_stops_systemd(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text('head = "a"\n[[hosts]]\nname = "a"\naddress = "127.0.0.1"\nlink = "1g"\n')
    kit = tmp_path / "kit"
    write_kit(read_cluster(tmp_path / "cluster.toml"), "a", kit, places=Places(settings=kit / "settings"))
    environment = kit / "settings" / "worker" / "environment"
    environment.write_text(environment.read_text() + 'ESD_WORKER_LINK="fast"\n')
    with started(kit, "worker", tmp_path) as worker:
        code = worker.wait()
    (prevented,) = re.findall(r"RestartPreventExitStatus=(\d+)", (kit / "units" / "esd-worker.service").read_text())
    assert code == int(prevented)
