"""The settings of a served model: ESD_MODEL_<NAME>, `esd serve model`, or the section [model] of a file."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field

from esd.services.runtime.quantities import Size
from esd.services.runtime.roles import Role
from esd.services.runtime.settings import Addresses, PortOrOff, ServerSettings, split_addresses


class ModelSettings(ServerSettings, env_prefix="ESD_MODEL_"):
    """Settings of `esd serve model`."""

    role = Role.MODEL

    folder: Path = Field(description="folder of the model; a newer one at the same path takes its place")
    name: str = Field("", description="name of the model for clients; empty: the folder's")
    rest_port: PortOrOff = Field(
        0, description="port of the REST API on the same host; 0 takes any free one, none (or -1) turns it off"
    )
    threads: int = Field(
        default_factory=lambda: os.cpu_count() or 1,
        ge=1,
        le=1024,
        description="threads that score; each takes a processor while there are requests",
    )
    max_waiting_bytes: Size = Field(
        64 * 2**20,
        ge=2**20,
        description="bytes of the requests that wait for their scores or are scored; further ones are refused for the "
        "moment. One request alone may hold more",
    )
    answer_seconds: float = Field(
        10.0, gt=0, le=3600, description="time from the beginning of a request to its scores, after which it is refused"
    )
    fresh: Addresses = Field(
        "",
        description="host:port of the parameter servers of a job that trains the model, in the order of their shards, "
        "separated by commas: newer rows and dense parameters are served as they come; empty: those of the folder are",
    )
    fresh_bytes: Size = Field(
        2 * 2**30,
        ge=2**20,
        description="memory of newer rows, their values and about 30 bytes each; where they need more, the job is "
        "followed no more",
    )
    reload_seconds: float = Field(
        2.0, gt=0, le=86_400, description="pause between two looks at whether the folder is another one"
    )

    @property
    def servers(self) -> tuple[str, ...]:
        """The addresses in `fresh`."""
        return split_addresses(self.fresh)
