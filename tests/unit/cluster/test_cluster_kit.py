"""The kit of a machine: units that systemd accepts, the settings of a container, and a check of the machine."""

from __future__ import annotations

import json
import shlex
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from esd.cli.cluster import app
from esd.cluster.code import read_code
from esd.cluster.config import Cluster, read_cluster
from esd.cluster.containers import CODE, FILES, containers_of
from esd.cluster.kit import Places, write_kit
from esd.cluster.secrets import provide_secrets
from esd.services.domain.errors import InvalidArgument

CLUSTER = """
head = "head"
{more}
[[hosts]]
name = "head"
address = "127.0.0.1"
[[hosts]]
name = "edge-1"
address = "127.0.0.1"
link = "50m"
memory = "1g"
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net.py").write_text("import torch\n")
    file = tmp_path / "cluster.toml"
    file.write_text(CLUSTER.format(more='code = "models"'))
    return read_cluster(file)


@pytest.fixture
def kits(cluster: Cluster, tmp_path: Path) -> dict[str, Path]:
    """The kits of both hosts, by name."""
    secrets, code = provide_secrets(cluster), read_code(tmp_path / "models")
    folders = {host.name: tmp_path / f"kit-{host.name}" for host in cluster.hosts}
    for name, folder in folders.items():
        write_kit(cluster, name, folder, secrets=secrets, code=code)
    return folders


def verified(root: Path, kit: Path) -> subprocess.CompletedProcess[str]:
    """The verdict of systemd on the units of a kit, on a machine where it was installed."""
    units = root / "etc" / "systemd" / "system"
    units.mkdir(parents=True, exist_ok=True)
    for program in ("opt/esd/bin/esd", "usr/bin/redis-server"):
        path = root / program
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        path.chmod(0o755)
    (root / "etc" / "passwd").write_text("root:x:0:0::/:/bin/sh\nesd:x:900:900::/:/bin/sh\n")
    for target in ("network-online", "multi-user", "sysinit", "basic", "shutdown"):
        (units / f"{target}.target").write_text(f"[Unit]\nDescription={target}\n")
    for slice_ in ("system", "-"):
        (units / f"{slice_}.slice").write_text("[Unit]\nDescription=slice\n")
    names = []
    for unit in (kit / "units").iterdir():
        (units / unit.name).write_bytes(unit.read_bytes())
        names.append(str(units / unit.name))
    return subprocess.run(
        ["systemd-analyze", "verify", f"--root={root}", "--man=no", *names], check=False, capture_output=True, text=True
    )


def test_systemd_accepts_the_units(kits: dict[str, Path], tmp_path: Path) -> None:
    assert {unit.name for unit in (kits["head"] / "units").iterdir()} == {
        "esd-redis.service",
        "esd-ps_server.service",
        "esd-dispatcher.service",
    }
    for name, kit in kits.items():
        said = verified(tmp_path / f"root-{name}", kit)
        assert (said.returncode, said.stderr) == (0, "")
    worker = kits["edge-1"] / "units" / "esd-worker.service"
    worker.write_text(worker.read_text().replace("MemoryMax=", "MemoryMost="))
    assert "MemoryMost" in verified(tmp_path / "root-wrong", kits["edge-1"]).stderr


def environment_of(file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in shlex.split(file.read_text(), comments=True))


def test_a_service_has_the_settings_of_its_container_and_its_own_files(
    cluster: Cluster, kits: dict[str, Path], tmp_path: Path
) -> None:
    secrets, code = provide_secrets(cluster), read_code(tmp_path / "models")
    for container in containers_of(cluster, secrets, code):
        kit = kits[container.host.name]
        settings = kit / "settings" / container.service
        moved = {FILES: f"/etc/esd/{container.service}", CODE: "/opt/esd/code"}
        expected = {
            name: next((value.replace(a, b) for a, b in moved.items() if value.startswith(a)), value)
            for name, value in container.environment.items()
        }
        assert environment_of(settings / "environment") == expected
        for name, content in container.files.get(FILES, {}).items():
            if container.service != "redis":
                assert (settings / name).read_bytes() == content
                assert stat.S_IMODE((settings / name).stat().st_mode) == 0o600
        unit = (kit / "units" / f"esd-{container.service}.service").read_text()
        assert f"MemoryMax={container.memory}\n" in unit
    assert (kits["edge-1"] / "code" / "net.py").read_bytes() == b"import torch\n"
    password = secrets["redis"]["password"].decode().strip()
    assert f"requirepass {password}\n" in (kits["head"] / "settings" / "redis" / "redis.conf").read_text()


def check(kit: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, kit / "check.py"], check=False, capture_output=True, text=True)


def test_the_check_says_what_a_machine_lacks(kits: dict[str, Path]) -> None:
    kit = kits["edge-1"]
    facts = json.loads((kit / "kit.json").read_text())
    assert facts["requirement"].startswith("esd-train[train]==")
    with socket.create_server(("127.0.0.1", 0)) as served:
        address = f"127.0.0.1:{served.getsockname()[1]}"
        (kit / "kit.json").write_text(json.dumps(facts | {"reaches": [address], "commands": ["sh"]}))
        assert (check(kit).returncode, check(kit).stdout) == (0, "nothing is missing\n")
    (kit / "kit.json").write_text(
        json.dumps(facts | {"reaches": [address], "commands": ["no-such-command"], "memory": 1 << 60})
    )
    said = check(kit)
    assert said.returncode == 1
    assert all(word in said.stdout for word in (address, "no-such-command", "lower `memory`"))
    subprocess.run(["bash", "-n", kit / "install"], check=True)


def test_an_earlier_kit_is_replaced_and_nothing_else(cluster: Cluster, kits: dict[str, Path], tmp_path: Path) -> None:
    write_kit(cluster, "edge-1", kits["edge-1"], places=Places(settings=Path("/srv/esd")))
    assert not (kits["edge-1"] / "settings" / "worker" / "tls.key").exists()
    assert (
        "EnvironmentFile=/srv/esd/worker/environment" in (kits["edge-1"] / "units" / "esd-worker.service").read_text()
    )
    with pytest.raises(InvalidArgument, match="has other files"):
        write_kit(cluster, "edge-1", tmp_path)
    with pytest.raises(InvalidArgument, match="there is no host 'edge-9'; these are head, edge-1"):
        write_kit(cluster, "edge-9", tmp_path / "new")


def test_the_command_names_the_next_step(cluster: Cluster, tmp_path: Path) -> None:
    wheel = tmp_path / "esd_train-1-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    out = tmp_path / "kit"
    arguments = ["kit", "edge-1", "--file", str(tmp_path / "cluster.toml"), "--out", str(out), "--wheel", str(wheel)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "./install" in done.output
    assert json.loads((out / "kit.json").read_text())["requirement"] == f"./{wheel.name}[train]"
    assert (out / wheel.name).read_bytes() == b"a wheel"
