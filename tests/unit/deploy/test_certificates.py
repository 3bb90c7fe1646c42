"""No container reads the authority's key or another's: those that deploy/tls.yml names, as it mounts them."""

from __future__ import annotations

import re
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
    (names,) = re.findall(r"^# +esd cluster certs certs (.*)$", OVERLAY.read_text(), re.MULTILINE)
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


def test_no_other_compose_file_mounts_certificates() -> None:
    for file in (DEPLOY.parent / "docker-compose.yml", *DEPLOY.glob("*.yml")):
        assert file == OVERLAY or "CERTS_DIR" not in file.read_text(), file
