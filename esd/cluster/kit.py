"""`esd cluster kit`: a folder with the needs of one machine that runs its services under systemd, without an engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from shutil import copyfile, rmtree

from esd.cluster.code import Files
from esd.cluster.config import Cluster, Host
from esd.cluster.containers import CODE, FILES, Container, containers_of, redis_options
from esd.cluster.secrets import PASSWORD
from esd.cluster.services import SERVICES
from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.process import EXIT_CONFIGURATION
from esd.services.runtime.settings import join_address
from esd.services.runtime.whole_files import make_folder, write_whole

_HERE = Path(__file__).parent
_REDIS = "redis"

# Restraints of a unit, the same as a container's: an own file system that is read only, no capabilities, no new ones.
_RESTRAINTS = """\
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
TasksMax=1024
LimitNOFILE=65536
"""


@dataclass(frozen=True, slots=True)
class Places:
    """The folders of a machine that `install` fills.

    Attributes:
        programs: a virtual environment with ESD, and the models of one's own.
        settings: a folder for each service, with its environment, certificate, key and token.
    """

    programs: Path = Path("/opt/esd")
    settings: Path = Path("/etc/esd")


def write_kit(
    cluster: Cluster,
    name: str,
    folder: Path,
    *,
    secrets: Mapping[str, Files] | None = None,
    code: Files | None = None,
    wheel: Path | None = None,
    places: Places = Places(),
) -> None:
    """Writes the kit of one machine; a kit that is in the folder is replaced.

    Args:
        cluster: the description.
        name: of the host.
        folder: of the kit: `install`, `check.py`, units, and each service's environment and files.
        secrets: the files of every service, as `provide_secrets` returns them; None: everything in plaintext.
        code: the files of models of one's own, as `read_code` returns them; None: there are none.
        wheel: of ESD; None: the machine's pip finds this version.
        places: on the machine.

    Raises:
        InvalidArgument: there is no such host, it has no services, or the folder has something else.
    """
    host = next((host for host in cluster.hosts if host.name == name), None)
    if host is None:
        raise InvalidArgument(f"there is no host {name!r}; these are {', '.join(each.name for each in cluster.hosts)}")
    containers = [each for each in containers_of(cluster, secrets, code) if each.host == host]
    if not containers:
        raise InvalidArgument(f"host {name} has no services: it is not the head, and it has no link")
    _clear(folder)
    for container in containers:
        unit = _unit(container, places)
        _write(folder / "units" / f"esd-{container.service}.service", unit.encode())
        files: dict[str, bytes] = dict(container.files.get(FILES, {}))
        if container.service == _REDIS:
            files = {"redis.conf": _redis_conf(cluster, files.get(PASSWORD)).encode()}
        files["environment"] = _environment(container, places).encode()
        for file, content in files.items():
            _write(folder / "settings" / container.service / file, content)
    for file, content in (code or {}).items():
        _write(folder / "code" / file, content)
    if wheel is not None:
        copyfile(wheel, folder / wheel.name)
    _write(folder / "kit.json", json.dumps(_facts(cluster, host, containers, wheel), indent=2).encode() + b"\n")
    _write(folder / "check.py", (_HERE / "kit_check.py").read_bytes())
    _write(folder / "install", (_HERE / "kit_install").read_bytes(), mode=0o700)


def _facts(cluster: Cluster, host: Host, containers: Sequence[Container], wheel: Path | None) -> dict[str, object]:
    """Returns the facts for `install` and `check.py`."""
    head, ports = cluster.head_host, cluster.ports
    trains = any(each.service == "worker" for each in containers)
    reached = () if host == head else (ports.dispatcher, ports.ps_server)
    extra = "[train]" if trains else ""
    return {
        "services": [each.service for each in containers],
        "memory": sum(each.memory for each in containers),
        "reaches": [join_address(head.address, port) for port in reached],
        "commands": ["systemctl", *(["redis-server"] if host == head else [])],
        "requirement": f"esd-train{extra}=={version('esd-train')}" if wheel is None else f"./{wheel.name}{extra}",
    }


def _unit(container: Container, places: Places) -> str:
    """Returns the unit of a service, which starts again whenever it ends, as a container does."""
    settings = places.settings / container.service
    command = (
        f"/usr/bin/redis-server {settings}/redis.conf"
        if container.service == _REDIS
        else f"{places.programs}/bin/{' '.join(container.command)}"
    )
    return f"""\
[Unit]
Description=ESD {container.service} of {container.host.name}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
User=esd
EnvironmentFile={settings}/environment
ExecStart={command}
Restart=always
RestartSec=2
# Settings that are wrong stay so.
RestartPreventExitStatus={EXIT_CONFIGURATION}
TimeoutStopSec={SERVICES.stop_seconds}
MemoryMax={container.memory}
StateDirectory=esd/{container.service}
StateDirectoryMode=0700
{_RESTRAINTS}
[Install]
WantedBy=multi-user.target
"""


def _environment(container: Container, places: Places) -> str:
    """Returns the variables of a service, as in its container but for the places of its files."""
    moved = {FILES: str(places.settings / container.service), CODE: str(places.programs / "code")}
    return "".join(f'{name}="{_moved(value, moved)}"\n' for name, value in container.environment.items())


def _moved(value: str, folders: Mapping[str, str]) -> str:
    """Returns a value with another folder, if it is a path below a key of `folders`."""
    for before, after in folders.items():
        if value == before or value.startswith(f"{before}/"):
            return after + value.removeprefix(before)
    return value


def _redis_conf(cluster: Cluster, password: bytes | None) -> str:
    options = redis_options(cluster, f"/var/lib/esd/{_REDIS}")
    secret = "" if password is None else f"requirepass {password.decode().strip()}\n"
    return "".join(f"{name} {value}\n" for name, value in options.items()) + secret


def _clear(folder: Path) -> None:
    """Removes an earlier kit. Raises InvalidArgument if the folder has something else."""
    if folder.exists():
        if not (folder / "kit.json").is_file() and any(folder.iterdir()):
            raise InvalidArgument(f"{folder} has other files: name a new folder with --out")
        rmtree(folder)
    make_folder(folder, mode=0o700)


def _write(path: Path, content: bytes, mode: int = 0o600) -> None:
    make_folder(path.parent, mode=0o700)
    write_whole(path, lambda file: file.write(content), mode=mode)
