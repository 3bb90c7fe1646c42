"""Certificates: valid for their names alone, whole on the disk, and refused by name before a service is given one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from esd.cluster import certificates
from esd.cluster.certificates import check_certificate, make_certificates
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from tests.support.command import esd_here
from tests.support.power_cut import Disk, files_in


def read(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def verify(folder: Path, name: x509.GeneralName) -> None:
    """Checks a certificate for a name as a strict client does."""
    assert isinstance(name, x509.DNSName | x509.IPAddress)
    store = Store([read(folder / "ca.crt")])
    PolicyBuilder().store(store).build_server_verifier(name).verify(read(folder / "tls.crt"), [])


def test_a_certificate_is_valid_for_its_names_and_no_other(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["worker,edge-1.lan,10.0.0.7,fd00::2"])
    for name in ("worker", "edge-1.lan", "localhost"):
        verify(tmp_path / "worker", x509.DNSName(name))
    for address in ("10.0.0.7", "fd00::2", "127.0.0.1"):
        verify(tmp_path / "worker", x509.IPAddress(ip_address(address)))
    for other in (x509.DNSName("edge-2.lan"), x509.IPAddress(ip_address("10.0.0.8"))):
        with pytest.raises(VerificationError):
            verify(tmp_path / "worker", other)


def test_a_certificate_of_another_authority_is_none(tmp_path: Path) -> None:
    for cluster in ("ours", "theirs"):
        make_certificates(tmp_path / cluster, ["worker"])
    (tmp_path / "ours" / "worker" / "ca.crt").write_bytes((tmp_path / "theirs" / "worker" / "ca.crt").read_bytes())
    with pytest.raises(VerificationError):
        verify(tmp_path / "ours" / "worker", x509.DNSName("worker"))


def test_a_machine_whose_clock_is_slow_takes_a_new_certificate(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["worker"])
    for name in ("tls.crt", "ca.crt"):
        begins = read(tmp_path / "worker" / name).not_valid_before_utc
        assert timedelta(hours=23) < datetime.now(UTC) - begins < timedelta(hours=25)


def test_making_them_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    for name in ("authority", "worker"):
        (tmp_path / f"{name}.new").mkdir()
        (tmp_path / f"{name}.new" / "tls.key").write_text("half")
    make_certificates(tmp_path, ["worker"])
    assert {path.name for path in tmp_path.iterdir()} == {"authority", "worker"}
    verify(tmp_path / "worker", x509.DNSName("worker"))
    before = files_in(tmp_path)
    make_certificates(tmp_path, ["worker", "client"])
    assert files_in(tmp_path).items() >= before.items()


def test_a_folder_has_its_name_when_all_of_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rename of a folder is watched: the disk has its files by then, and its name when the call returns."""
    disk, rename = Disk(monkeypatch), Path.rename

    def watched(folder: Path, target: Path) -> Path:
        assert disk.left_in(folder) == files_in(folder) != {}
        return rename(folder, target)

    monkeypatch.setattr(Path, "rename", watched)
    directory = tmp_path / "certs"
    make_certificates(directory, ["worker"])
    assert disk.left_in(directory) == files_in(directory)
    assert {"authority/ca.key", "worker/tls.key"} <= files_in(directory).keys()


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
    _, _, last = names.rpartition(",")
    with pytest.raises(InvalidArgument) as refused:
        make_certificates(tmp_path / "certs", ["client", names])
    assert str(refused.value).startswith((f"'{names}' is n", f"'{last}' is n"))
    assert not list(tmp_path.iterdir())


def test_one_that_is_about_to_expire_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "_VALID", timedelta(days=13))
    make_certificates(tmp_path, ["worker"])
    with pytest.raises(FailedPrecondition, match=r"worker/tls\.crt expires within 14 days: remove .*worker to have"):
        check_certificate(tmp_path / "worker", "")


def test_the_command_makes_them_and_names_what_is_wrong(tmp_path: Path) -> None:
    made = esd_here("cluster", "certs", str(tmp_path / "certs"), "client")
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "certs" / "client" / "tls.key").stat().st_mode & 0o777 == 0o600
    refused = esd_here("cluster", "certs", str(tmp_path / "certs"), "ann observer")
    assert refused.returncode == 2
    assert "'ann observer' is not NAME[,OTHER-NAME...]" in refused.stderr
    assert {folder.name for folder in (tmp_path / "certs").iterdir()} == {"authority", "client"}
