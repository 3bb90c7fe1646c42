"""Settings of the parameter server."""

from __future__ import annotations

from pydantic import Field, SecretStr

from esd.ps_server.stores.places import Place
from esd.services.domain.ids import PARTITIONS
from esd.services.runtime.quantities import Size
from esd.services.runtime.settings import DEFAULT_MAX_REQUEST_BYTES, LEAST_LOGGED_BYTES, ReadableFile, ServerSettings


class ParameterServerSettings(ServerSettings, env_prefix="ESD_PS_"):
    """Environment variables ESD_PS_*, or the section [ps] of the file named by ESD_CONFIG."""

    store: SecretStr = Field(
        SecretStr("memory"),
        description="memory, redis://[user:password@]host:port[/db] or redis+cluster://host:port; rediss for TLS",
    )
    store_password_file: ReadableFile | None = Field(
        None, description="file of the password of Redis, so that it need not stand in the URL"
    )
    store_tls_ca: ReadableFile | None = Field(
        None,
        description="PEM file of the authorities that the certificate of Redis is checked against; none: the "
        "authorities that the system trusts. If tls_certificate is set, it is shown to Redis",
    )
    checkpoint_dir: Place | None = Field(
        None,
        description="where a memory store keeps checkpoints: a directory, or s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or "
        "az://CONTAINER/PREFIX; without it, a server that dies loses its rows",
    )
    max_request_bytes: Size = Field(
        DEFAULT_MAX_REQUEST_BYTES,
        ge=LEAST_LOGGED_BYTES,
        lt=2**31,
        description="longest request that is accepted, in bytes, at least 8 MiB; no sample of the stream may be longer",
    )
    shard: int = Field(0, ge=0, description="number of this server, 0..shards-1")
    shards: int = Field(
        1, ge=1, le=PARTITIONS, description="number of parameter servers; each holds the ids of its shard"
    )
    store_threads: int = Field(
        4, ge=1, le=64, description="threads that read from the store, and as many that write to it"
    )
    store_timeout_seconds: float = Field(
        5.0, gt=0, description="longest wait for one answer of Redis before the call fails with UNAVAILABLE"
    )
    pull_wait_seconds: float = Field(
        120.0, gt=0, description="longest wait for a version of a row, if the frame does not ask for less"
    )
    max_dense_bytes: Size = Field(
        4 * 2**30,
        ge=1,
        description="largest dense parameters of a model, in bytes, without the state of their optimizer; a job whose "
        "model is larger is refused at its start",
    )
    max_waiting_bytes: Size = Field(
        512 * 2**20,
        ge=1,
        description="memory that waiting pulls (64 bytes a row) and unfinished uploads (twice their length) may hold "
        "together, in bytes; calls beyond it are refused for the moment, unless they are alone",
    )
    max_sum_bytes: Size = Field(
        256 * 2**20,
        ge=2**20,
        description="bytes of gradients that wait to be summed, and of sums until all workers have them; beyond it "
        "sent sums are dropped, so that a broken stream may not be resumed, and gradients that are not due wait unread",
    )
    max_changed_bytes: Size = Field(
        64 * 2**20,
        ge=2**16,
        description="memory for the ids of changed rows of a table that served models follow, 8 to 14 bytes each; a "
        "reader that comes too late for them reads all rows again",
    )
    exchange_frames: int = Field(
        64, ge=2, le=65536, description="frames of one exchange that may be unanswered; more are refused one by one"
    )
    exchange_bytes: Size = Field(
        8 * 2**20,
        ge=2 * 2**20,
        description="length of the unanswered frames of one exchange, in bytes; more are refused one by one",
    )
    window_bytes: Size = Field(
        2 * 2**20,
        ge=2**16,
        lt=2**31,
        description="bytes of a call that a client may send before they are read: a worker's dense gradients, or the "
        "speed of its link times its round trip, whichever is less, or sums take further round trips",
    )
    max_tables: int = Field(
        1000,
        ge=1,
        description="most tables that may be created; every job trains at least one, and tables of earlier jobs count",
    )
