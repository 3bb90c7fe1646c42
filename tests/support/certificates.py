"""A certificate authority of the tests' own, made as `esd cluster certs` makes a user's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from esd.cluster.certificates import make_certificates


@dataclass(frozen=True)
class Certificates:
    """Certificates of one authority by name, and a token, as files."""

    directory: Path

    @classmethod
    def make(cls, directory: Path, *names: str) -> Certificates:
        make_certificates(directory, names)
        for token in directory.glob("*/token"):
            token.write_text("open-sesame-4711\n")
        return cls(directory)

    @property
    def authority(self) -> Path:
        return self.directory / "authority" / "ca.crt"

    @property
    def token(self) -> Path:
        return self.directory / "authority" / "token"

    def of(self, name: str, *, token: bool = False) -> dict[str, Path]:
        """Settings of a process that has a certificate, and a token if so."""
        settings = {
            "tls_ca": self.authority,
            "tls_certificate": self.directory / name / "tls.crt",
            "tls_key": self.directory / name / "tls.key",
        }
        return settings | ({"token_file": self.token} if token else {})

    def secrets(self) -> list[str]:
        """Texts that must never appear anywhere: the token, and the middle line of every key."""
        keys = [path.read_text().splitlines()[-2] for path in self.directory.glob("*/*.key")]
        return [self.token.read_text().strip(), *keys]
