"""The environment of a process: its table, proxies, limits, forks, and files of settings that cannot be read."""

from __future__ import annotations

import ast
import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

import esd
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.domain.schedules import Schedule
from esd.services.runtime.channel import channel
from esd.services.runtime.documents import read_toml
from esd.services.runtime.environment import CONDITIONS, VARIABLES
from esd.services.runtime.low_limits import low_limits
from esd.services.runtime.proxies import is_local, proxy_options, through_proxy
from esd.services.runtime.settings import load
from esd.serving.settings import ModelSettings
from tests.support.simple_clients import job_with


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:50051", True),
        ("127.8.0.1:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("unix:/run/esd", True),
        ("10.0.0.1:1", False),
        ("head:1", False),
    ],
)
def test_an_address_of_this_machine_needs_no_proxy(address: str, local: bool) -> None:
    assert is_local(address) is local
    assert (("grpc.enable_http_proxy", 0) in proxy_options(address)) is local


def test_the_error_of_a_call_names_the_proxy_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc_proxy", "https_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    assert through_proxy("head:1") == (
        "; the call goes through the proxy http://proxy:3128 (http_proxy), except if no_proxy lists head"
    )
    assert not through_proxy("127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "other, head")
    assert not through_proxy("head:1")


async def test_a_channel_to_this_machine_takes_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that refuses connections would fail the call; nothing listens at the port, which the error must say."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with channel("127.0.0.1:1") as opened:
        call = opened.unary_unary("/grpc.health.v1.Health/Check")
        with pytest.raises(Exception, match=r"127\.0\.0\.1:1") as refused:
            await call(b"", timeout=5)
    assert "127.0.0.1:9" not in str(refused.value)


def test_a_client_in_a_forked_child_is_refused() -> None:
    client = esd.DispatcherClient("127.0.0.1:1")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            client.describe()
        except FailedPrecondition as error:
            os.write(write, str(error).encode())
        client.close()
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        assert "make another one in the child" in answer.read()
    assert os.waitpid(child, 0)[1] == 0
    client.close()


@pytest.mark.parametrize(
    ("text", "named"),
    [("a = " + "[" * 5000 + "]" * 5000, "nested too deeply"), ("a = 1\n" * 200_000, "more than 1,048,576 bytes")],
)
def test_a_file_of_settings_has_a_size_and_a_depth(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(InvalidArgument, match=f"--config job.toml cannot be read: .*{named}"):
        read_toml(tmp_path / "job.toml", "--config job.toml")


def test_a_device_without_an_end_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="cannot be read: it has more than 1,048,576 bytes"):
        read_toml(Path("/dev/zero"), "--config /dev/zero")


@pytest.mark.parametrize("digits", [20, 25, 400])
@pytest.mark.parametrize("name", ["max_rows", "checkpoint_every", "checkpoints_kept", "first_iteration", "window"])
def test_numbers_of_many_digits_are_refused_by_name(name: str, digits: int) -> None:
    with pytest.raises(InvalidArgument, match=f"{name} is 10+, it must be in"):
        job_with(**{"checkpoint_every": 1, name: 10**digits})
    with pytest.raises(InvalidArgument, match="is longer than 4294967295"):
        Schedule(warm_up=10**digits)


ROOT = Path(__file__).parents[3]
# The tests of variables and conditions, besides this file.
TESTED_IN = (
    "tests/integration/cli/test_environments.py",
    "tests/unit/cli/test_console.py",
    "tests/unit/cluster/test_cluster_secrets.py",
    "tests/unit/cluster/test_replica.py",
    "tests/unit/data/test_distinct.py",
    "tests/unit/data/test_remote_files.py",
    "tests/unit/run/test_local_settings.py",
    "tests/unit/runtime/test_runtime_credentials.py",
    "tests/unit/runtime/test_tracing.py",
    "tests/integration/cli/test_esd_serve.py",
    "tests/support/object_store.py",
    "tests/e2e/compose.py",
)


def read_variables(path: Path) -> Iterator[str]:
    """Yields the names of variables that a file writes down where it uses os.environ."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(attr="environ")), args=[ast.Constant(value=str(name)), *_]
            ):
                yield name
            case ast.Subscript(value=ast.Attribute(attr="environ"), slice=ast.Constant(value=str(name))):
                yield name
            case ast.Compare(left=ast.Constant(value=str(name)), comparators=[ast.Attribute(attr="environ")]):
                yield name


def test_every_variable_that_the_code_reads_is_in_the_table() -> None:
    listed = {name for each in VARIABLES for name in each.names}
    read = {
        name
        for folder in ("services", "esd/run", "esd/cli", "esd/data", "esd/cluster", "dispatcher", "worker", "ps_server")
        for path in (ROOT / folder).rglob("*.py")
        for name in read_variables(path)
    }
    assert {"XDG_CACHE_HOME", "COLUMNS", "CUBLAS_WORKSPACE_CONFIG"} <= read
    assert read <= listed


def test_a_file_without_the_password_of_a_log_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESD_SOURCE_PASSWORD_FILE", str(tmp_path / "none"))
    with pytest.raises(InvalidArgument, match=r"ESD_SOURCE_PASSWORD_FILE=.*none: the file holds no password"):
        esd.read("redis+stream://127.0.0.1:9/clicks", esd.Schema(label="clicked", ids=("user",)))


@pytest.mark.parametrize("variable", ["ESD_SOURCE_CA_FILE", "ESD_SOURCE_CERTIFICATE_FILE", "ESD_SOURCE_KEY_FILE"])
def test_a_certificate_of_a_log_that_cannot_be_read_is_refused(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "none"))
    with pytest.raises(InvalidArgument, match=rf"{variable}=.*none: the file cannot be read"):
        esd.read("rediss+stream://127.0.0.1:9/clicks", esd.Schema(label="clicked", ids=("user",)))


def test_every_variable_of_the_table_is_tested() -> None:
    tests = "".join((ROOT / path).read_text() for path in TESTED_IN) + Path(__file__).read_text()
    untested = [name for each in VARIABLES for name in each.names if not re.search(rf"\b{name.rstrip('*')}", tests)]
    assert not untested


def test_limits_that_are_low_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = dict.fromkeys((getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")), 2**50)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (0, limits[kind]))
    assert not low_limits()
    limits |= {resource.RLIMIT_AS: resource.RLIM_INFINITY, resource.RLIMIT_NPROC: 20, resource.RLIMIT_FSIZE: 8 << 10}
    assert low_limits() == "; limits of this process are low and may be the cause: ulimit -f 8, ulimit -u 20"


def test_every_entry_of_the_table_names_a_file_that_is_there() -> None:
    for each in (*VARIABLES, *CONDITIONS):
        assert (ROOT / each.place).exists(), each.names


def test_settings_of_a_served_model_come_from_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESD_MODEL_FOLDER", "out/model")
    monkeypatch.setenv("ESD_MODEL_THREADS", "3")
    settings = load(ModelSettings)
    assert (settings.folder, settings.threads) == (Path("out/model"), 3)
    monkeypatch.setenv("ESD_MODEL_THREADZ", "3")
    with pytest.raises(InvalidArgument, match="ESD_MODEL_THREADZ: no such setting; did you mean 'ESD_MODEL_THREADS'"):
        load(ModelSettings)
