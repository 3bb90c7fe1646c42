"""The description of the services in containers, from which the compose file, a cluster and the chart are made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from esd.services.runtime.documents import read_toml
from esd.services.runtime.quantities import Size
from esd.services.runtime.settings import join_address

_FILE = Path(__file__).with_name("services.toml")


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Program(_Section):
    """A container that ends by itself.

    Attributes:
        image: name of its image, without tag.
        command: the command that it runs.
        memory: its limit, bytes.
    """

    image: str
    command: tuple[str, ...]
    memory: Size


class Service(Program):
    """A container that serves.

    Attributes:
        prefix: of its environment variables.
        health_seconds: between two checks of its health.
        ports: by name: `grpc`, `metrics`, and `page` of the dispatcher.
        settings: by the field of the service's settings, equal in every deployment that does not say otherwise.
        cuda_image: name of the image with torch for GPUs; empty: the service needs none.
    """

    prefix: str
    health_seconds: int
    ports: Mapping[str, int]
    settings: Mapping[str, str | int]
    cuda_image: str = ""

    def environment(self, host: str, ports: Mapping[str, int]) -> dict[str, str]:
        """Returns the variables that every deployment sets.

        Args:
            host: address at which the service listens.
            ports: by name, as in `ports`.
        """
        pages = {f"{name}_port": port for name, port in ports.items() if name != "grpc"}
        values = {"listen": join_address(host, ports["grpc"]), **pages, **self.settings}
        return {f"{self.prefix}_{field}".upper(): str(value) for field, value in values.items()}


class Health(_Section):
    """The common part of all health checks: the limit of one, failures in a row, and the first wait."""

    timeout_seconds: int
    retries: int
    start_seconds: int


class Services(_Section):
    """All services.

    Attributes:
        user: numeric, of every container.
        stop_seconds: that a container has from SIGTERM to SIGKILL.
        passed: names of the variables that services take over from the environment of the command that starts them.
        health: of the services.
        ps_server: the parameter server.
        dispatcher: the dispatcher.
        worker: a worker.
        driver: the process that streams the samples of one run.
    """

    user: int
    stop_seconds: int
    passed: tuple[str, ...]
    health: Health
    ps_server: Service
    dispatcher: Service
    worker: Service
    driver: Program


SERVICES = Services.model_validate(read_toml(_FILE, str(_FILE)))
