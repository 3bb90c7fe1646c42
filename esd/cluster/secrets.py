"""Certificates, token and password of a cluster: made once, beside its file, and read for those that need them."""

from __future__ import annotations

import secrets
from pathlib import Path

from esd.cluster.certificates import check_certificate, make_certificates
from esd.cluster.code import Files
from esd.cluster.config import CLIENT, Cluster, Host
from esd.services.runtime.whole_files import make_folder, write_whole

PASSWORD = "password"  # noqa: S105 - the name of a file


def worker_name(host: Host) -> str:
    """Returns the name under which a host's worker has its certificate."""
    return f"worker-{host.name}"


def provide_secrets(cluster: Cluster) -> dict[str, Files]:
    """Makes the missing secrets of a cluster, and returns the files of every service by its name.

    A service gets its own certificate and key, the authority's certificate and the token. The authority's key stays in
    the folder `authority` on this machine.

    Raises:
        FailedPrecondition: a certificate that is there is of another address, or about to expire.
    """
    head = cluster.head_host.address
    addresses = {"ps_server": head, "dispatcher": head, CLIENT: ""}
    names = [",".join(filter(None, entry)) for entry in addresses.items()]
    for host in cluster.workers:
        addresses[worker_name(host)] = host.address
        names.append(f"{worker_name(host)},worker,{host.address}")
    folder = cluster.certificates
    make_certificates(folder, names)
    for name, address in addresses.items():
        check_certificate(folder / name, address)
    files: dict[str, Files] = {
        name: {file.name: file.read_bytes() for file in (folder / name).iterdir()} for name in addresses
    }
    password = {PASSWORD: _password(folder / "redis" / PASSWORD)}
    return {**files, "redis": password, "ps_server": {**files["ps_server"], **password}}


def _password(file: Path) -> bytes:
    if not file.exists():
        make_folder(file.parent, mode=0o700)
        password = f"{secrets.token_hex(32)}\n".encode()
        write_whole(file, lambda draft: draft.write(password), mode=0o600)  # half of one would be the password for ever
    return file.read_bytes()
