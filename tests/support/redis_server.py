"""Real Redis servers for tests: on free ports, in a directory of their own, ended with the block."""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import redis

from tests.support.certificates import Certificates

READY = "Ready to accept connections"
PATIENCE_SECONDS = 60.0  # for nodes to agree
DRAWN: set[int] = set()  # ports that this process has drawn
POLL_SECONDS = 0.1  # between questions whether they do


def free_port() -> int:
    """A port that is free, for a server that cannot choose one itself, or that comes back to it.

    It is none of those that the kernel gives to whoever connects, so that nobody gets it until the server listens, nor
    while the server is away; and none that was drawn before, whose server does not listen yet or is away.
    """
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    every = range(11_000, 2**16)  # browsers refuse some of those below
    ports = [port for port in every if not first <= port <= last] or every
    while True:
        port = secrets.choice(ports)
        if port in DRAWN:
            continue
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            DRAWN.add(port)
            return port


def await_ready(process: subprocess.Popen[str]) -> None:
    """Returns when a redis-server takes connections. Raises RuntimeError with what it said, if it ends."""
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if READY in line:
            return
    process.wait()
    raise RuntimeError(f"redis-server did not start:\n{said}")


@dataclass
class RedisServer:
    """One redis-server process. Everything it acknowledges is on disk, so that `kill` loses nothing."""

    directory: Path
    options: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    cli_options: tuple[str, ...] = ()
    process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"redis://{self.address}/0"

    def start(self) -> None:
        """Starts it, again on the same port and data, and returns when it answers."""
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory)]
        durable = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        self.process = subprocess.Popen([*command, *durable, *self.options], stdout=subprocess.PIPE, text=True)
        await_ready(self.process)
        self.cli("config", "set", "loglevel", "warning")  # nobody reads the pipe any more

    def kill(self) -> None:
        """Kills the server at once, as `kill -9` does."""
        if self.process:
            self.process.send_signal(signal.SIGKILL)
            self.process.communicate()
            self.process = None

    def empty(self) -> None:
        """Lets it forget everything, without a process of redis-cli: many tests begin with this."""
        with redis.Redis(port=self.port) as client:
            client.flushall()

    def cli(self, *command: str) -> str:
        """The answer of redis-cli to one command."""
        done = subprocess.run(
            ["redis-cli", "-p", str(self.port), *self.cli_options, *command],
            check=True,
            capture_output=True,
            text=True,
            timeout=110,
        )
        return done.stdout


@contextlib.contextmanager
def redis_server(directory: Path, *options: str) -> Iterator[RedisServer]:
    """A running server."""
    server = RedisServer(directory, options)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def encrypted_redis_server(
    directory: Path, certificates: Certificates, password: str, *more: str
) -> Iterator[RedisServer]:
    """A server that speaks TLS only and asks clients for a certificate and a password, unless `more` options differ."""
    port = free_port()
    files = certificates.of("redis")
    tls = {"cert-file": files["tls_certificate"], "key-file": files["tls_key"], "ca-cert-file": files["tls_ca"]}
    options = [item for name, file in tls.items() for item in (f"--tls-{name}", str(file))]
    client = (
        "--tls",
        "--cert",
        str(tls["cert-file"]),
        "--key",
        str(tls["key-file"]),
        "--cacert",
        str(tls["ca-cert-file"]),
    )
    server = RedisServer(
        directory,
        ("--port", "0", "--tls-port", str(port), *options, "--requirepass", password, *more),
        port,
        (*client, "--no-auth-warning", "-a", password),
    )
    try:
        server.start()
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def redis_cluster(directory: Path, nodes: int = 3, replicas: int = 0) -> Iterator[list[RedisServer]]:
    """A Redis Cluster of primaries, each with a number of replicas, which come after them.

    Its URL is `redis+cluster://` with any server's address.
    """
    with contextlib.ExitStack() as stack:
        servers = []
        silence = (
            5000 if replicas else 15_000
        )  # ms after which the others give a node up, in short where one takes over
        for node in range(nodes * (1 + replicas)):
            place = directory / str(node)
            place.mkdir()
            options = ("--cluster-port", str(free_port()), "--cluster-node-timeout", str(silence))
            servers.append(stack.enter_context(redis_server(place, "--cluster-enabled", "yes", *options)))
        addresses = (server.address for server in servers)
        servers[0].cli("--cluster", "create", *addresses, "--cluster-replicas", str(replicas), "--cluster-yes")
        await_cluster(servers)
        await_replicas(servers, nodes * replicas)
        yield servers


def await_cluster(servers: list[RedisServer]) -> None:
    """Returns when every node knows that all slots are served."""
    _await(lambda: all("cluster_state:ok" in server.cli("cluster", "info") for server in servers), "all slots served")


def await_replicas(servers: list[RedisServer], count: int) -> None:
    """Returns when this number of replicas has all that their primaries have."""

    def ready() -> int:
        return sum("master_link_status:up" in server.cli("info", "replication") for server in servers)

    _await(lambda: ready() >= count, "all replicas up to date")


def await_takeover(lost: RedisServer, others: list[RedisServer]) -> None:
    """Returns when the others know that a replica serves the slots of the one that is lost."""
    _await(lambda: not any(_serves(lost, server) for server in others), "a replica serving in its primary's place")


def await_ping(server: RedisServer) -> None:
    """Returns when the parameter server has noted once more that it is there."""
    before = server.cli("get", "esd:pulse:0:0")
    _await(lambda: server.cli("get", "esd:pulse:0:0") != before, "another pulse of the parameter server")


def _await(condition: Callable[[], bool], what: str) -> None:
    """Asks again and again, with pauses: redis-cli is a process of its own each time."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"Redis has not got there after {PATIENCE_SECONDS} s: {what}")
        time.sleep(POLL_SECONDS)


def _serves(which: RedisServer, asked: RedisServer) -> bool:
    lines = asked.cli("cluster", "nodes").splitlines()
    (fields,) = (line.split() for line in lines if f" {which.address}@" in line)
    return len(fields) > 8  # the slots come last
