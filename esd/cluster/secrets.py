"""Certificates, token and password of a cluster: made once, beside its file, and read for those that need them."""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path

from esd.cluster.code import Files
from esd.cluster.config import Cluster, Host
from esd.services.domain.errors import FailedPrecondition
from esd.services.runtime.whole_files import make_folder, write_whole

# The script that makes certificates; deploy/certs is the same.
_SCRIPT = Path(__file__).with_name("certs")
_RENEW_SECONDS = 14 * 24 * 3600

CLIENT = "client"
PASSWORD = "password"  # noqa: S105 - the name of a file


def worker_name(host: Host) -> str:
    """Returns the name under which a host's worker has its certificate."""
    return f"worker-{host.name}"


def provide_secrets(cluster: Cluster) -> dict[str, Files]:
    """Makes the missing secrets of a cluster, and returns the files of every service by its name.

    A service gets its own certificate and key, the authority's certificate and the token. The authority's key stays in
    the folder `authority` on this machine.

    Raises:
        FailedPrecondition: openssl is missing or fails; a certificate that is there is of another address, or about to
            expire.
    """
    head = cluster.head_host.address
    addresses = {"ps_server": head, "dispatcher": head, CLIENT: ""}
    names = [",".join(filter(None, entry)) for entry in addresses.items()]
    for host in cluster.workers:
        addresses[worker_name(host)] = host.address
        names.append(f"{worker_name(host)},worker,{host.address}")
    folder = cluster.certificates
    _run("bash", _SCRIPT, folder, *names)
    for name, address in addresses.items():
        _check(folder / name, address)
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


def _check(folder: Path, address: str) -> None:
    """Refuses a certificate that cannot serve any more: `up` would wait for a health that never comes."""
    certificate = folder / "tls.crt"
    for option in ("-checkip", "-checkhost") if address else ():
        if "does match" in _run("openssl", "x509", "-in", certificate, "-noout", option, address):
            break
    else:
        if address:
            raise FailedPrecondition(f"{certificate} is not valid for {address}: remove {folder} to have another made")
    try:
        _run("openssl", "x509", "-in", certificate, "-noout", "-checkend", str(_RENEW_SECONDS))
    except FailedPrecondition:
        raise FailedPrecondition(
            f"{certificate} expires within {_RENEW_SECONDS // 86400} days: remove {folder} to have another made; the "
            f"authority was made on the same day, so if it expires, too, remove {folder.parent}"
        ) from None


def _run(*command: str | Path) -> str:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - our script, openssl
    except FileNotFoundError as error:
        raise FailedPrecondition(f"certificates need {error.filename}, which is not installed") from None
    if done.returncode:
        raise FailedPrecondition(f"{command[0]} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout
