"""Certificates of a private deployment: an authority, and for each name a folder with all that one service needs.

    DIRECTORY/authority  ca.key, ca.crt and the token. The owner of ca.key can impersonate any service.
    DIRECTORY/NAME       ca.crt, tls.crt, tls.key and token; the folder is mounted or copied as a whole.

A folder gets its name when all of it is on the disk, so that a power failure never leaves half a key. Folders that are
there are kept, so that a call may be repeated with more names.
"""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import BinaryIO

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.runtime.whole_files import make_folder, sync_folder, write_whole

AUTHORITY = "authority"
CERTIFICATE, KEY, TOKEN = "tls.crt", "tls.key", "token"
_CA_CERTIFICATE, _CA_KEY = "ca.crt", "ca.key"

_VALID = timedelta(days=365)
_CLOCKS_APART = timedelta(days=1)  # a machine whose clock is slow would refuse a certificate that begins now
_RENEW = timedelta(days=14)
_DRAFT = ".new"

_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_LONGEST_COMMON_NAME = 64  # RFC 5280, upper bound of a common name

_Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class Names:
    """The names of one certificate.

    Attributes:
        folder: the first name, which is the common name, too.
        alternatives: the names and addresses for which the certificate is valid.
    """

    folder: str
    alternatives: tuple[x509.GeneralName, ...]

    @classmethod
    def parse(cls, text: str) -> Names:
        """Reads NAME[,OTHER-NAME...]. A name in the form of an address becomes an address.

        Raises:
            InvalidArgument: a part is neither a host name nor an address, or the first one cannot be a folder's name.
        """
        first, *others = text.split(",")
        if not _HOST_NAME.fullmatch(first) or first == AUTHORITY or len(first) > _LONGEST_COMMON_NAME:
            raise InvalidArgument(
                f"'{text}' is not NAME[,OTHER-NAME...] of host names and addresses, the first of at most "
                f"{_LONGEST_COMMON_NAME} characters, and neither {AUTHORITY} nor an IPv6 address"
            )
        return cls(first, tuple(_general_name(name, text) for name in (first, *others)))


def make_certificates(directory: Path, names: Iterable[str]) -> None:
    """Makes the authority, and a folder for each name, unless they are there.

    Args:
        directory: of all folders; made if it is missing.
        names: NAME[,OTHER-NAME...] each. Certificates are valid for their names, for localhost and for 127.0.0.1.

    Raises:
        InvalidArgument: a name is none; nothing is made then.
        FailedPrecondition: the authority that is there has another kind of key.
        OSError: a file cannot be read or written.
    """
    wanted = [Names.parse(text) for text in names]
    make_folder(directory, mode=0o700)
    authority = directory / AUTHORITY
    if not authority.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _sign(_authority(_common_name("ESD authority")), key.public_key(), key)
        token = f"{secrets.token_hex(32)}\n".encode()
        _finish(authority, {_CA_KEY: _pem(key), _CA_CERTIFICATE: certificate, TOKEN: token})
    shared = {name: (authority / name).read_bytes() for name in (_CA_CERTIFICATE, TOKEN)}
    issuer = x509.load_pem_x509_certificate(shared[_CA_CERTIFICATE])
    issuer_key = load_pem_private_key((authority / _CA_KEY).read_bytes(), password=None)
    if not isinstance(issuer_key, _Key):
        raise FailedPrecondition(f"{authority / _CA_KEY} is no key of an elliptic curve, as those made here are")
    for each in wanted:
        if not (directory / each.folder).exists():
            key = ec.generate_private_key(ec.SECP256R1())
            certificate = _sign(_service(each, issuer), key.public_key(), issuer_key)
            _finish(directory / each.folder, {KEY: _pem(key), CERTIFICATE: certificate, **shared})


def check_certificate(folder: Path, address: str) -> None:
    """Refuses a certificate that cannot serve any more: a service with it would never get healthy.

    Args:
        folder: one that make_certificates made.
        address: host name or address that the certificate must have; empty for any.

    Raises:
        FailedPrecondition: the certificate is of another address, or about to expire.
    """
    file = folder / CERTIFICATE
    certificate = x509.load_pem_x509_certificate(file.read_bytes())
    valid_for = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if address and _general_name(address, address) not in valid_for:
        raise FailedPrecondition(f"{file} is not valid for {address}: remove {folder} to have another made")
    if certificate.not_valid_after_utc < datetime.now(UTC) + _RENEW:
        raise FailedPrecondition(
            f"{file} expires within {_RENEW.days} days: remove {folder} to have another made; the authority was made "
            f"on the same day, so if it expires, too, remove {folder.parent}"
        )


def _general_name(name: str, whole: str) -> x509.GeneralName:
    if re.fullmatch(r"[0-9.]+", name) or ":" in name:
        try:
            return x509.IPAddress(_address(name))
        except ValueError:
            version = "IPv6" if ":" in name else "IPv4"
            raise InvalidArgument(f"'{name}' is no {version} address") from None
    if not _HOST_NAME.fullmatch(name):
        raise InvalidArgument(f"'{whole}' is not NAME[,OTHER-NAME...] of host names and addresses")
    return x509.DNSName(name)


def _address(text: str) -> IPv4Address | IPv6Address:
    address = ip_address(text)
    if isinstance(address, IPv6Address) and address.scope_id:
        raise ValueError(f"a certificate has no zone: {text}")
    return address


def _authority(subject: x509.Name) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(subject_name=subject, issuer_name=subject)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return builder.add_extension(_usage(signs_certificates=True), critical=True)


def _service(names: Names, issuer: x509.Certificate) -> x509.CertificateBuilder:
    here = (x509.DNSName("localhost"), x509.IPAddress(IPv4Address("127.0.0.1")))
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = x509.CertificateBuilder(subject_name=_common_name(names.folder), issuer_name=issuer.subject)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(both, critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False
    )
    return builder.add_extension(
        x509.SubjectAlternativeName(dict.fromkeys((*names.alternatives, *here))), critical=False
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _sign(builder: x509.CertificateBuilder, key: ec.EllipticCurvePublicKey, by: _Key) -> bytes:
    """Returns the certificate of a key in PEM, signed by another key or, for an authority, by its own."""
    now = datetime.now(UTC)
    builder = builder.not_valid_before(now - _CLOCKS_APART).not_valid_after(now + _VALID)
    builder = builder.public_key(key).serial_number(x509.random_serial_number())
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    return builder.sign(by, hashes.SHA256()).public_bytes(Encoding.PEM)


def _pem(key: _Key) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(content: bytes, file: BinaryIO) -> None:
    file.write(content)


def _finish(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Makes a folder with its files, under its name when all of it is on the disk."""
    draft = folder.with_name(folder.name + _DRAFT)
    if draft.exists():
        shutil.rmtree(draft)  # of an interrupted call
    make_folder(draft, mode=0o700)
    for name, content in contents.items():
        write_whole(draft / name, partial(_write, content), mode=0o600)
    draft.rename(folder)
    sync_folder(folder.parent)
