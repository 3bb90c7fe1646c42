"""Writes the parts of the compose file that follow from esd/cluster/services.toml. `make services` runs it.

The compose file is written by hand but for the block between two lines of its own, and `.env.example` has the defaults
of the same variables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from esd.cluster.services import SERVICES, Program, Service

ROOT = Path(__file__).resolve().parent.parent
COMPOSE = Path("docker-compose.yml")
ENVIRONMENT = Path(".env.example")
BEGIN = "# --- written by `make services` from esd/cluster/services.toml; do not edit ---\n"
END = "# --- end of what `make services` writes ---\n"

# The variables with which a user of the compose file changes a value, by service and value.
_MEMORY = {
    "ps_server": "PS_MEMORY",
    "dispatcher": "DISPATCHER_MEMORY",
    "worker": "WORKER_MEMORY",
    "driver": "DRIVER_MEMORY",
}
_SETTINGS = {"log_level": "LOG_LEVEL", "cache_rows": "CACHE_ROWS"}
_PUBLISHED = {("dispatcher", "grpc"): "DISPATCHER_PORT", ("dispatcher", "page"): "PAGE_PORT"}


def files() -> dict[Path, str]:
    """Returns the text of the compose file and of its variables' example by their paths below the repository."""
    variables: dict[str, str] = {}
    block = "".join(_block(name, service, variables) for name, service in _programs())
    before, _, rest = (ROOT / COMPOSE).read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    example = (ROOT / ENVIRONMENT).read_text()
    for name, value in variables.items():
        example = re.sub(rf"^{name}=.*$", f"{name}={value}", example, flags=re.MULTILINE)
    return {COMPOSE: before + BEGIN + block + END + after, ENVIRONMENT: example}


def main() -> None:
    """Writes both files."""
    for path, text in files().items():
        (ROOT / path).write_text(text)


def _programs() -> Iterator[tuple[str, Program]]:
    for name in _MEMORY:
        yield name, getattr(SERVICES, name)


def _block(name: str, program: Program, variables: dict[str, str]) -> str:
    """Returns the part of one service as an anchor of its name, and adds its variables with their defaults."""

    def variable(its_name: str, value: object) -> str:
        variables[its_name] = str(value)
        return f"${{{its_name}:-{value}}}"

    block: dict[str, Any] = {
        "user": f"{SERVICES.user}:{SERVICES.user}",
        "stop_grace_period": f"{SERVICES.stop_seconds}s",
        "mem_limit": variable(_MEMORY[name], _size(program.memory)),
        "command": _command(name, program),
    }
    if not isinstance(program, Service):
        return _anchored(name, block)
    environment: dict[str, str | None] = {
        **program.environment("0.0.0.0", program.ports),  # noqa: S104 - of a network of the engine's
        **dict.fromkeys(SERVICES.passed),  # without a value: as the environment of the command has them
    }
    for field, its_name in _SETTINGS.items():
        if field in program.settings:
            environment[f"{program.prefix}_{field.upper()}"] = variable(its_name, program.settings[field])
    if name == "worker":
        environment[f"{program.prefix}_DISPATCHER"] = _address("dispatcher")
        environment[f"{program.prefix}_LAN"] = "${LAN:-}"
    published = {its_name: program.ports[port] for (owner, port), its_name in _PUBLISHED.items() if owner == name}
    if published:
        block["ports"] = [
            f"${{BIND_ADDRESS:-127.0.0.1}}:{variable(its_name, port)}:{port}" for its_name, port in published.items()
        ]
    return _anchored(f"{name}-environment", environment) + _anchored(name, block | {"healthcheck": _health(program)})


def _command(name: str, program: Program) -> list[str] | str:
    """Returns the command of a service, with the arguments that it has in the compose file alone."""
    if name == "worker":
        return [*program.command, "--links", "${LINKS:-500m}"]  # replicas of one service share their command
    if name == "driver":
        return (  # a text, which the engine splits: TRAIN is several arguments
            f"{' '.join(program.command)} --dispatcher {_address('dispatcher')} --parameter-servers "
            f"{_address('ps_server')} --workers ${{WORKERS:-4}} --json --out /out "
            "${TRAIN:---data flights --iterations 200}"
        )
    return list(program.command)


def _address(name: str) -> str:
    return f"{name}:{getattr(SERVICES, name).ports['grpc']}"


def _anchored(name: str, content: Mapping[str, Any]) -> str:
    """Returns YAML whose values are written as JSON: every text is quoted, so that no reader takes one for a number."""
    lines = [f"x-{name}: &{name}"]
    for key, value in content.items():
        if isinstance(value, dict):
            lines += [f"  {key}:", *(f"    {inner}: {json.dumps(each)}" for inner, each in value.items())]
        else:
            lines.append(f"  {key}: {json.dumps(value)}")
    return "\n".join(lines) + "\n"


def _health(service: Service) -> dict[str, Any]:
    health = SERVICES.health
    address = f"127.0.0.1:{service.ports['grpc']}"
    return {
        "test": ["CMD", "python3", "-m", "esd.services.runtime.probe", address],
        "interval": f"{service.health_seconds}s",
        "timeout": f"{health.timeout_seconds}s",
        "retries": health.retries,
        "start_period": f"{health.start_seconds}s",
    }


def _size(size: int) -> str:
    return f"{size >> 30}g" if size % 2**30 == 0 else f"{size >> 20}m"


if __name__ == "__main__":
    main()
