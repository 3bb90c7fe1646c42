"""No container reads the authority's key or another's: the files of deploy/certs, as deploy/tls.yml mounts them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.certificates import Certificates

DEPLOY = Path(__file__).parents[3] / "deploy"
OVERLAY = DEPLOY / "tls.yml"
SERVICES = yaml.safe_load(OVERLAY.read_text())["services"]
OWN = {"ps_server": "ps_server", "dispatcher": "dispatcher", "worker": "worker", "driver": "client"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """The files that the command at the head of the overlay makes."""
    (names,) = re.findall(r"^# +deploy/certs certs (.*)$", OVERLAY.read_text(), re.MULTILINE)
    return Certificates.make(tmp_path_factory.mktemp("certs"), *names.split())


def mounted(service: str, certificates: Certificates) -> dict[str, Path]:
    """The files that a container of the service sees, by their path in it."""
    files = {}
    for volume in SERVICES[service]["volumes"]:
        folder, place, mode = re.sub(r"\$\{CERTS_DIR:-[^}]*\}", str(certificates.directory), volume).split(":")
        assert mode == "ro"
        files |= {f"{place}/{path.relative_to(folder)}": path for path in Path(folder).rglob("*") if path.is_file()}
    return files


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_has_its_own_key_and_no_other(service: str, made: Certificates) -> None:
    keys = set(made.directory.rglob("*.key"))
    assert len(keys) == len(OWN) + 1
    seen = mounted(service, made)
    assert keys & set(seen.values()) == {made.of(OWN[service])["tls_key"]}
    contents = [path.read_text() for path in seen.values()]
    assert (made.directory / "authority" / "ca.key").read_text() not in contents
    for file in SERVICES[service]["environment"].values():
        assert not file.startswith("/") or file in seen, file


def test_only_the_authoritys_folder_holds_its_key(made: Certificates) -> None:
    secret = (made.directory / "authority" / "ca.key").read_text()
    holders = [path for path in made.directory.rglob("*") if path.is_file() and path.read_text() == secret]
    assert holders == [made.directory / "authority" / "ca.key"]


def test_making_them_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    for name in ("authority", "worker"):
        (tmp_path / f"{name}.new").mkdir()
        (tmp_path / f"{name}.new" / "tls.key").write_text("half")
    Certificates.make(tmp_path, "worker")
    assert {path.name for path in tmp_path.iterdir()} == {"authority", "worker"}
    assert "PRIVATE KEY" in (tmp_path / "worker" / "tls.key").read_text()


def test_a_certificate_has_its_name_when_all_of_it_is_on_the_disk(tmp_path: Path) -> None:
    """`sync` and `mv` are watched: a folder is renamed behind its files and itself, and then so is the one it is in."""
    calls = tmp_path / "calls"
    for name in ("sync", "mv"):
        watched = tmp_path / "bin" / name
        watched.parent.mkdir(exist_ok=True)
        watched.write_text(f'#!/bin/sh\necho {name} "$@" >>{calls}\nexec {shutil.which(name)} "$@"\n')
        watched.chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    command = [DEPLOY / "certs", tmp_path / "certs", "worker"]
    subprocess.run(command, check=True, env={**os.environ, "PATH": path}, timeout=240)
    _, *made = calls.read_text().splitlines()
    assert made == [
        "sync authority.new/ca.crt authority.new/ca.key authority.new/token authority.new",
        "mv authority.new authority",
        "sync .",
        "sync worker.new/ca.crt worker.new/tls.crt worker.new/tls.key worker.new/token worker.new",
        "mv worker.new worker",
        "sync .",
    ]


@pytest.mark.parametrize("address", ["fd00::2", "::1", "2001:DB8:1:2:3:4:5:6", "1::"])
def test_a_certificate_may_be_of_an_ipv6_address(tmp_path: Path, address: str) -> None:
    made = Certificates.make(tmp_path, f"worker,{address}").of("worker")["tls_certificate"]
    command = ["openssl", "x509", "-in", made, "-noout", "-checkip", address]
    assert "does match" in subprocess.run(command, check=True, capture_output=True, text=True, timeout=240).stdout


@pytest.mark.parametrize(
    "names",
    [
        "ann observer",
        "worker,",
        ",worker",
        "",
        "a/b",
        "../a",
        "-a",
        "wörker",
        "authority",
        "fe80::1",
        "a,fe80:::1",
        "a,1::2::3",
        "a,1:2:3:4:5:6:7",
        "a,12345::",
        "a,:1::2",
        "10.0.0",
        "10.0.0.256",
    ],
)
def test_what_is_no_name_is_refused_before_anything_is_made(tmp_path: Path, names: str) -> None:
    """A name with a blank in it was two names, each with a role; a wrong address failed without a word."""
    command = [DEPLOY / "certs", tmp_path / "certs", "client", names]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert refused.returncode == 2
    _, _, last = names.rpartition(",")
    assert refused.stderr.startswith((f"deploy/certs: '{names}' is n", f"deploy/certs: '{last}' is n"))
    assert not list(tmp_path.iterdir())


def test_no_other_compose_file_mounts_certificates() -> None:
    for file in (DEPLOY.parent / "docker-compose.yml", *DEPLOY.glob("*.yml")):
        assert file == OVERLAY or "CERTS_DIR" not in file.read_text(), file
