"""Fixtures that several areas share."""

import fcntl
import gc
import logging
import os
import signal
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from esd.dispatcher.solvers.cuda.device import open_device
from esd.run.valkey import valkey_server
from esd.services.domain.errors import Unavailable
from testbed.redis_server import redis_server
from tests.support.certificates import Certificates
from tests.support.object_store import new_bucket, s3_server
from tests.support.redis_cluster import redis_cluster
from tests.support.warm_python import ForkServer, fork_instead

COLD_POPEN = subprocess.Popen


def pytest_configure():
    """Sets up torch, gRPC, Hypothesis and signals for a process of the tests.

    torch gets one thread where a test trains itself: more would spin on the services' cores while they wait. gRPC
    prints errors alone, and no notes between the dots of the tests about servers that have gone away. Hypothesis draws
    the same examples in every run, without a time limit, because the time depends on other work on the machine. Ctrl-C
    ends processes here as it does at a terminal: a script's background jobs (`&`) ignore it, with all their children.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    settings.register_profile(
        "alike", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, database=None
    )
    settings.load_profile("alike")
    logging.getLogger("asyncio").addFilter(not_of_a_closed_loop)


def not_of_a_closed_loop(record):
    """Keeps gRPC's late messages about the test before out of a test's log.

    One thread of gRPC serves all event loops of a process. A message for a closed loop, such as the end of an abandoned
    call, becomes an error of the running loop.
    """
    return not ("PollerCompletionQueue" in record.getMessage() and "Event loop is closed" in str(record.exc_info))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Of processes that collect at the same time one compiles the tests, and the others read the compiled files.

    Imported and collected objects are never garbage. The garbage collector would visit all of them again and again, so
    it is off while they are created and skips them later. Many more objects come with the first tests, and tests leave
    few behind, so the collector runs less often than by default.
    """
    gc.disable()
    with Path(__file__).open() as turn:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(turn, fcntl.LOCK_SH)
        yield
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, 100)
    gc.enable()


def pytest_collection_modifyitems(items):
    """Begins with files that take long, so that none runs alone at the end; skips `gpu` where there is no device."""
    items.sort(key=lambda item: "unit" in item.path.parts and "native" not in item.path.parts)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    try:
        open_device()
    except Unavailable as reason:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=str(reason)))


@pytest.fixture(scope="session", autouse=True)
def warm_python():
    """Services are forks of one process that has imported their modules (tests/support/warm_python.py)."""
    with ForkServer() as server:
        fork_instead(server)
        yield
        subprocess.Popen = COLD_POPEN


@pytest.fixture
def cold_python(monkeypatch):
    """Services are processes of their own from the start, as users start them."""
    monkeypatch.setattr(subprocess, "Popen", COLD_POPEN)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory, worker_id):
    """Certificates of one authority: service and redis, whose names say no role, every role, and two workers."""
    names = "service", "redis", "client", "worker", "dispatcher", "driver", "observer", "operator", "scorer", "model"
    return certificates_of_all(tmp_path_factory, worker_id, "certificates", *names, "edge-1,worker", "edge-2,worker")


@pytest.fixture(scope="session")
def foreign_certificates(tmp_path_factory, worker_id):
    """Certificates of another authority for the same names."""
    return certificates_of_all(tmp_path_factory, worker_id, "foreign", "service", "worker")


def certificates_of_all(tmp_path_factory, worker_id, place, *names):
    """Certificates that the first process makes which asks for them, where several run tests of one session."""
    own = tmp_path_factory.getbasetemp()
    directory = (own if worker_id == "master" else own.parent) / place
    with directory.with_suffix(".turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        return Certificates(directory) if directory.exists() else Certificates.make(directory, *names)


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory):
    """One Redis for all tests that empty it themselves and leave it running."""
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis_url(shared_redis):
    """The URL of an empty Redis."""
    shared_redis.empty()
    return shared_redis.url


@pytest.fixture(scope="session")
def shared_s3():
    """A server with the protocol of S3; the environment has its address and credentials."""
    with s3_server() as server:
        yield server


@pytest.fixture
def s3_url(shared_s3):
    """The URL of a prefix in an empty bucket; the environment has the credentials."""
    return f"s3://{new_bucket()}/kept"


@pytest.fixture
def own_redis(tmp_path):
    """A Redis that the test may kill and start again."""
    with redis_server(tmp_path) as server:
        yield server


@pytest.fixture(scope="session")
def shared_valkey(tmp_path_factory):
    """One Valkey for all tests that empty it themselves and leave it running."""
    with redis_server(tmp_path_factory.mktemp("valkey"), program=valkey_server()) as server:
        yield server


@pytest.fixture
def valkey_url(shared_valkey):
    """The URL of an empty Valkey."""
    shared_valkey.empty()
    return shared_valkey.url


@pytest.fixture(scope="session")
def shared_redis_cluster(tmp_path_factory):
    """A Redis Cluster of three primaries."""
    with redis_cluster(tmp_path_factory.mktemp("redis-cluster")) as servers:
        yield servers


@pytest.fixture
def redis_cluster_url(shared_redis_cluster):
    """The URL of an empty Redis Cluster."""
    for server in shared_redis_cluster:
        server.empty()
    return f"redis+cluster://{shared_redis_cluster[0].address}"
