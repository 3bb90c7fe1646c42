"""The settings of lanes: ESD_LANES_<NAME>, `esd serve lanes`, or the section [lanes] of a file."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from esd.lanes.greeting import MOST_LANES
from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.logs import LogLevel
from esd.services.runtime.settings import (
    Address,
    Addresses,
    Congestion,
    PortOrOff,
    Settings,
    split_address,
    split_addresses,
)


def _address_or_none(address: str) -> str:
    if address:
        split_address(address)
    return address


class LanesSettings(Settings, env_prefix="ESD_LANES_"):
    """Settings of `esd serve lanes`."""

    listen: Address = Field("127.0.0.1:0", description="host:port of the end; port 0 takes any free one")
    to: Addresses = Field(
        "",
        description="makes it a far end: host:port of the services to which it passes connections on, as clients write "
        "them, separated by commas",
    )
    via: Annotated[str, AfterValidator(_address_or_none)] = Field(
        "", description="makes it a near end, the grpc_proxy of clients: host:port of the far end"
    )
    lanes: int = Field(16, ge=2, le=MOST_LANES, description="connections between a near and the far end for each one")
    congestion: Congestion = Field(
        "",
        description="congestion control of all TCP connections of this end, such as bbr; empty: the kernel's default",
    )
    metrics_port: PortOrOff = Field(
        0, description="port of the Prometheus metrics page; 0 takes any free one, none (or -1) turns it off"
    )
    log_level: LogLevel = Field("info", description="debug, info, warning or error")

    @property
    def targets(self) -> frozenset[str]:
        """The services that a far end reaches; none for a near end.

        Raises:
            InvalidArgument: it is neither of both ends, or would be both.
        """
        if bool(self.to) == bool(self.via):
            raise InvalidArgument(
                f"set either {self.variable('to')}, at the end beside the services, or {self.variable('via')}, at the "
                "end beside the workers"
            )
        return frozenset(split_addresses(self.to))
