"""A cluster is encrypted unless its file says otherwise, and each container has its own secrets, as files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from esd.cluster.config import Cluster, read_cluster
from esd.cluster.containers import FILES, Container, containers_of
from esd.cluster.secrets import PASSWORD, provide_secrets
from esd.services.domain.errors import FailedPrecondition
from esd.services.runtime.security import Credentials
from esd.services.runtime.settings import ClientSettings
from tests.support.power_cut import Disk, files_in

EXAMPLE = Path(__file__).parents[3] / "deploy" / "cluster.toml"


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """The example's, with certificates in a folder of the test's own."""
    file = tmp_path / "cluster.toml"
    shutil.copy(EXAMPLE, file)
    return read_cluster(file)


def described(container: Container) -> str:
    """The description of a container that an engine gives to every client."""
    return f"{container} {container.command} {dict(container.environment)} {container.health}"


def test_every_service_has_its_own_key_and_nobody_the_authoritys(cluster: Cluster) -> None:
    secrets = provide_secrets(cluster)
    containers = containers_of(cluster, secrets)
    keys = [container.files[FILES]["tls.key"] for container in containers if container.service != "redis"]
    assert len(set(keys)) == len(keys) == 4
    authority = (cluster.certificates / "authority" / "ca.key").read_bytes()
    assert all(authority not in container.files[FILES].values() for container in containers)
    (password,) = containers[0].files[FILES].values()
    assert [each.service for each in containers if password in each.files[FILES].values()] == ["redis", "ps_server"]


def test_services_ask_for_tls_certificate_and_token_of_files_that_they_have(cluster: Cluster) -> None:
    for container in containers_of(cluster, provide_secrets(cluster)):
        named = [value for value in container.environment.values() if value.startswith(FILES)]
        assert {value.removeprefix(f"{FILES}/") for value in named} <= set(container.files[FILES])
        if container.service != "redis":
            settings = {name.split("_", 2)[2] for name in container.environment}
            assert {"TLS_CA", "TLS_CERTIFICATE", "TLS_KEY", "TLS_CLIENTS", "TOKEN_FILE"} <= settings


def test_no_secret_is_in_what_an_engine_shows(cluster: Cluster) -> None:
    for container in containers_of(cluster, provide_secrets(cluster)):
        for name in {"token", "password", "tls.key"} & set(container.files[FILES]):
            assert container.files[FILES][name].decode().strip() not in described(container)


def test_secrets_are_made_once_and_a_new_one_makes_another_container(cluster: Cluster) -> None:
    first = containers_of(cluster, provide_secrets(cluster))
    again = containers_of(cluster, provide_secrets(cluster))
    assert [each.fingerprint for each in first] == [each.fingerprint for each in again]

    shutil.rmtree(cluster.certificates / "worker-edge-1")
    renewed = containers_of(cluster, provide_secrets(cluster))
    changed = [new.host.name for old, new in zip(first, renewed, strict=True) if old.fingerprint != new.fingerprint]
    assert changed == ["edge-1"]


def test_a_password_is_whole_or_not_there(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without one would have Redis ask for none, or not start, ever after."""

    def interrupted(_descriptor: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            provide_secrets(cluster)
    disk = Disk(monkeypatch)
    assert len(provide_secrets(cluster)["redis"][PASSWORD].strip()) == 64
    assert (cluster.certificates / "redis" / PASSWORD).stat().st_mode & 0o777 == 0o600
    assert disk.left_in(cluster.certificates / "redis") == files_in(cluster.certificates / "redis")


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_secrets_are_for_their_owner_alone_whatever_the_umask_is(cluster: Cluster, umask: int) -> None:
    before = os.umask(umask)
    try:
        provide_secrets(cluster)
    finally:
        os.umask(before)
    secret = [
        file for file in cluster.certificates.rglob("*") if file.suffix == ".key" or file.name in ("token", PASSWORD)
    ]
    assert {PASSWORD, "token", "tls.key"} <= {file.name for file in secret}
    assert not [str(file) for file in secret if file.stat().st_mode & 0o077]


def test_a_certificate_of_another_address_is_named(cluster: Cluster) -> None:
    provide_secrets(cluster)
    moved = cluster.hosts[1].model_copy(update={"address": "10.0.0.22"})
    elsewhere = cluster.model_copy(update={"hosts": (cluster.hosts[0], moved, cluster.hosts[2])})
    with pytest.raises(FailedPrecondition, match=r"worker-edge-1/tls\.crt is not valid for 10\.0\.0\.22: remove"):
        provide_secrets(elsewhere)


def test_the_command_gets_credentials_of_its_own(cluster: Cluster) -> None:
    provide_secrets(cluster)
    folder = cluster.certificates / "client"
    shown = Credentials.read(
        ClientSettings(
            tls_ca=folder / "ca.crt", tls_certificate=folder / "tls.crt", tls_key=folder / "tls.key",
            token_file=folder / "token",
        )
    )  # fmt: skip
    assert shown.for_channel() is not None


def test_plaintext_has_to_be_asked_for(cluster: Cluster) -> None:
    assert cluster.tls
    for container in containers_of(cluster):
        assert not container.files
        assert not any("TLS" in name or "TOKEN" in name for name in container.environment)
