"""The settings of a worker process."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from esd.services.domain.sites import LONGEST_SITE
from esd.services.runtime.gpus import device_named
from esd.services.runtime.quantities import Link, Size
from esd.services.runtime.roles import Role
from esd.services.runtime.settings import DEFAULT_MAX_REQUEST_BYTES, LEAST_MESSAGE_BYTES, Address, ServerSettings

DEVICE = r"cpu|auto|cuda(:\d+)?"  # what a name of where training runs looks like


class WorkerSettings(ServerSettings, env_prefix="ESD_WORKER_"):
    """The settings with which a worker starts; everything else comes with the job."""

    role = Role.WORKER

    name: str = Field(min_length=1, max_length=256, description="unique among the workers of a job")
    dispatcher: Address = Field(description="host:port of the dispatcher")
    link: Link = Field(
        description="speed of the machine's link, which all that it sends and receives shares: 50m is 50 Mbit/s; a "
        "number without a unit is bytes per second"
    )
    lan: Link | None = Field(
        None,
        description="speed of a second network of the machine, which carries the all-reduce and direct rows between "
        "workers; empty: there is none, and they share the link",
    )
    site: str = Field(
        "",
        max_length=LONGEST_SITE,
        description="site of the machine: of a job whose samples have sites it trains those of its own; empty: none",
    )
    site_values: Path | None = Field(
        None,
        description="folder of the labels and dense features of the site's samples, for jobs in which they stay there "
        "(esd data site-values); empty: none",
    )
    shape_link: bool = Field(
        True, description="hold the traffic to the speed of the link; off where the network itself is that slow"
    )
    max_request_bytes: Size = Field(
        DEFAULT_MAX_REQUEST_BYTES,
        ge=LEAST_MESSAGE_BYTES,
        lt=2**31,
        description="longest request that is accepted, in bytes, at least 2 MiB: frames of other workers' rows",
    )
    cache_rows: int = Field(ge=1, lt=2**32, description="embedding rows that the cache holds")
    least_samples: int = Field(0, ge=0, lt=2**31, description="the fewest samples per iteration that it takes")
    most_samples: int = Field(
        0,
        ge=0,
        lt=2**31,
        description="the most samples per iteration that it takes, as its memory allows; 0: any",
    )
    device: str = Field(
        "cpu",
        pattern=f"^({DEVICE})$",
        description="where training runs: cpu, cuda, cuda:N, or auto: a GPU where there is one",
    )
    threads: int = Field(1, ge=1, description="threads of torch's CPU kernels")
    code: str = Field("", description="folder where models of one's own are looked for before all else; empty: none")
    advertise_host: str = Field("", description="host at which others reach this worker; empty: that of listen")
    tls_peer_name: str = Field(
        "",
        description="name that the certificates of other workers have, where not the host at which each is reached; "
        "empty: that host",
    )
    job_timeout: float = Field(3600.0, gt=0, description="seconds to wait for a dispatcher that has a job")
    peer_timeout: float = Field(
        60.0, gt=0, description="seconds to wait for other workers: in the all-reduce, and for rows that they push"
    )
    retry_timeout: float = Field(30.0, gt=0, description="seconds to try again while a service is unavailable")
    storage_timeout: float = Field(
        300.0,
        gt=0,
        description="seconds to wait for room when a parameter server's disk is full or read-only, or its Redis full",
    )

    @field_validator("device")
    @classmethod
    def _is_here(cls, device: str) -> str:
        """Returns `cpu` or `cuda:N`; refuses a GPU that is not here before torch is imported, which takes seconds."""
        return device_named(device)
