"""Cluster files: their contents, the containers that follow, and the mistakes that are named."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from esd.cli.cluster import app
from esd.cluster.code import LIMIT, read_code
from esd.cluster.config import read_cluster
from esd.cluster.containers import CODE, Container, containers_of
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.units import parse_size
from esd.worker.service.settings import WorkerSettings

EXAMPLE = Path(__file__).parents[3] / "deploy" / "cluster.toml"

MINIMAL = """
head = "a"
[[hosts]]
name = "a"
engine = "unix:///var/run/docker.sock"
address = "127.0.0.1"
link = "1g"
"""


def write(directory: Path, text: str) -> Path:
    file = directory / "cluster.toml"
    file.write_text(text)
    return file


def test_the_command_prints_the_example() -> None:
    assert CliRunner().invoke(app, ["example"]).stdout == EXAMPLE.read_text()


def test_the_example_gives_the_services_on_the_head_and_a_worker_for_each_link() -> None:
    containers = containers_of(read_cluster(EXAMPLE))
    assert [(each.host.name, each.service) for each in containers] == [
        ("head", "redis"),
        ("head", "ps_server"),
        ("head", "dispatcher"),
        ("edge-1", "worker"),
        ("edge-2", "worker"),
    ]
    first, second = containers[3:]
    assert (first.image, second.image) == ("esd-cuda:local", "esd-worker:local")
    assert (first.gpu, second.gpu) == (True, False)
    assert float(first.environment["ESD_WORKER_LINK"]) == 62.5e6
    assert float(second.environment["ESD_WORKER_LINK"]) == 6.25e6
    assert first.environment["ESD_WORKER_DISPATCHER"] == "10.0.0.1:50051"


def test_a_second_network_between_workers_is_told_to_the_worker(tmp_path: Path) -> None:
    with_lan = containers_of(read_cluster(write(tmp_path, MINIMAL + 'lan = "10g"')))[-1]
    assert WorkerSettings(cache_rows=1, **settings_of(with_lan)).lan == 1.25e9
    without = containers_of(read_cluster(write(tmp_path, MINIMAL)))[-1]
    assert "ESD_WORKER_LAN" not in without.environment


def settings_of(worker: Container) -> dict[str, str]:
    named = ("name", "dispatcher", "link", "lan")
    return {field: worker.environment[f"ESD_WORKER_{field.upper()}"] for field in named}


def test_services_get_further_settings_by_name(tmp_path: Path) -> None:
    further = """settings = {congestion = "cubic"}
[settings.worker]
congestion = "reno"
peer_timeout = 90
[settings.ps_server]
window_bytes = "8m"
[settings.dispatcher]
log_level = "debug"
"""
    _, server, dispatcher, worker = containers_of(read_cluster(write(tmp_path, MINIMAL + further)))
    assert worker.environment["ESD_WORKER_CONGESTION"] == "cubic"  # of its host
    assert worker.environment["ESD_WORKER_PEER_TIMEOUT"] == "90"
    assert server.environment["ESD_PS_WINDOW_BYTES"] == "8m"
    assert "ESD_PS_CONGESTION" not in server.environment
    assert dispatcher.environment["ESD_DISPATCHER_LOG_LEVEL"] == "debug"  # in place of every service's own


@pytest.mark.parametrize(
    ("further", "mistake"),
    [
        ('[settings.worker]\ncongestoin = "reno"', "settings.worker: there is no setting 'congestoin'.*'congestion'"),
        ('[settings.worker]\nlink = "1g"', "settings.worker: there is no setting 'link' to give here"),
        ("settings = {cache_rows = 9}", "settings: there is no setting 'cache_rows' to give here"),
        ("[settings.redis]\nport = 9", "settings: there is no key 'redis'"),
        ("[settings.worker]\npeer_timeout = [9]", "settings.worker.peer_timeout"),
    ],
)  # fmt: skip
def test_settings_that_a_service_lacks_or_the_file_gives_otherwise_are_refused(
    tmp_path: Path, further: str, mistake: str
) -> None:
    with pytest.raises(InvalidArgument, match=mistake):
        read_cluster(write(tmp_path, MINIMAL + further))


def test_the_example_names_the_defaults(tmp_path: Path) -> None:
    example, minimal = read_cluster(EXAMPLE), read_cluster(write(tmp_path, MINIMAL))
    for name in ("ports", "memory", "version", "redis_image", "tls"):
        assert getattr(example, name) == getattr(minimal, name), name
    assert example.hosts[1].memory == minimal.hosts[0].memory
    assert example.certificates.name == minimal.certificates.name


def test_addresses_may_be_of_ipv6(tmp_path: Path) -> None:
    file = write(tmp_path, MINIMAL.replace("127.0.0.1", "fd00::10"))
    environment = {each.service: each.environment for each in containers_of(read_cluster(file))}
    assert environment["ps_server"]["ESD_PS_LISTEN"] == "[fd00::10]:50052"
    assert environment["worker"]["ESD_WORKER_DISPATCHER"] == "[fd00::10]:50051"


def test_memory_is_limited_as_in_compose() -> None:
    compose = yaml.safe_load((EXAMPLE.parents[1] / "docker-compose.yml").read_text())["services"]
    for container in containers_of(read_cluster(EXAMPLE)):
        described = compose[container.service]
        limit = described["mem_limit"].rpartition(":-")[2].removesuffix("}")
        assert parse_size(limit) == container.memory, container.service
        assert described["healthcheck"]["interval"] == f"{container.health_seconds}s", container.service


def test_half_of_the_memory_of_redis_is_for_rows(tmp_path: Path) -> None:
    redis = containers_of(read_cluster(write(tmp_path, MINIMAL + '[memory]\nredis = "3g"')))[0]
    assert redis.memory == 3 << 30
    assert f"--maxmemory {3 << 29} " in redis.command[-1]


def test_certificates_lie_beside_the_file(tmp_path: Path) -> None:
    assert read_cluster(write(tmp_path, MINIMAL)).certificates == tmp_path / "certs"


def test_a_container_is_another_one_when_anything_about_it_changes(tmp_path: Path) -> None:
    before = containers_of(read_cluster(write(tmp_path, MINIMAL)))
    after = containers_of(read_cluster(write(tmp_path, MINIMAL.replace("1g", "2g"))))
    changed = [old.service for old, new in zip(before, after, strict=True) if old.fingerprint != new.fingerprint]
    assert changed == ["worker"]


def test_workers_get_the_code_that_lies_beside_the_file(tmp_path: Path) -> None:
    models = tmp_path / "models"
    for name, text in (("net.py", "one"), ("shop/deep.py", "two"), (".git/config", "x"), ("__pycache__/net.pyc", "x")):
        (models / name).parent.mkdir(parents=True, exist_ok=True)
        (models / name).write_text(text)
    cluster = read_cluster(write(tmp_path, 'code = "models"\n' + MINIMAL))
    assert cluster.code == models
    code = read_code(models)
    assert code == {"net.py": b"one", "shop/deep.py": b"two"}
    before = containers_of(cluster, code=code)
    assert [CODE in each.files for each in before] == [each.service == "worker" for each in before]
    assert before[-1].environment["ESD_WORKER_CODE"] == CODE
    (models / "net.py").write_text("another")
    after = containers_of(cluster, code=read_code(models))
    changed = [old.service for old, new in zip(before, after, strict=True) if old.fingerprint != new.fingerprint]
    assert changed == ["worker"]


def test_a_worker_reads_the_values_of_its_site_on_its_machine(tmp_path: Path) -> None:
    site = 'site = "north"\nsite_values = "/data/north"\n'
    worker = containers_of(read_cluster(write(tmp_path, MINIMAL + site)))[-1]
    assert worker.environment["ESD_WORKER_SITE_VALUES"] == "/data/north"
    assert worker.reads == ("/data/north",)
    with pytest.raises(InvalidArgument, match="has site_values and no site"):
        read_cluster(write(tmp_path, MINIMAL + 'site_values = "/data/north"\n'))
    with pytest.raises(InvalidArgument, match="site_values"):
        read_cluster(write(tmp_path, MINIMAL + 'site = "north"\nsite_values = "data"\n'))


def test_a_folder_that_holds_no_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"code: there is no folder .*/models"):
        read_code(tmp_path / "models")
    (tmp_path / "readme.txt").write_text("x")
    with pytest.raises(InvalidArgument, match="has no Python module"):
        read_code(tmp_path)
    with (tmp_path / "data.bin").open("wb") as data:
        data.truncate(LIMIT)
    with pytest.raises(InvalidArgument, match="has more than 16 MiB"):
        read_code(tmp_path)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (MINIMAL.replace('head = "a"', 'head = "b"'), "head 'b' is none of the hosts: a"),
        (MINIMAL.replace('link = "1g"', ""), "no host has a link"),
        (MINIMAL.replace("1g", "fast"), "hosts.a.link: link speed 'fast'"),
        (MINIMAL.replace('"1g"', "100"), "hosts.a.link: link speed '100' is 100 bits per second"),
        (MINIMAL + 'lan = "fast"', "hosts.a.lan: link speed 'fast'"),
        (MINIMAL + '[[hosts]]\nname = "b"\nengine = "unix:///b"\naddress = "b"\nlan = "1g"', "host b has a lan and no"),
        (MINIMAL.replace("unix:", "http:"), "hosts.a.engine is 'http:"),
        (MINIMAL + 'memory = "much"', "hosts.a.memory: size 'much' is not a positive number of bytes"),
        (MINIMAL + '[memory]\nredis = "0g"', "memory.redis: size '0g' is not a positive"),
        (MINIMAL.replace("address", "adress"), "hosts.a: there is no key 'adress'; did you mean 'address'?"),
        (MINIMAL + MINIMAL.split("\n", 2)[2], "two hosts have the same name"),
        (MINIMAL + "[[", "cluster.toml"),
    ],
)
def test_mistakes_are_named_with_their_place(tmp_path: Path, text: str, mistake: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        read_cluster(write(tmp_path, text))
    assert mistake in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    expected = r"there is no cluster file .*absent\.toml: `esd cluster example` prints one to begin with"
    with pytest.raises(InvalidArgument, match=expected):
        read_cluster(tmp_path / "absent.toml")
