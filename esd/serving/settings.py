"""The settings of a served model: ESD_MODEL_<NAME>, `esd serve model`, or the section [model] of a file."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field

from esd.services.runtime.quantities import Size
from esd.services.runtime.settings import PortOrOff, ServerSettings


class ModelSettings(ServerSettings, env_prefix="ESD_MODEL_"):
    """Settings of `esd serve model`."""

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
    reload_seconds: float = Field(
        2.0, gt=0, le=86_400, description="pause between two looks at whether the folder is another one"
    )
