"""How Redis lets us in, apart from its URL: secrets and certificates that come from files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class RedisAccess:
    """What to show to Redis and what to ask of it.

    Attributes:
        password: used if the URL has none.
        authority: file of the authorities that Redis's certificate is checked against (`rediss` only); None: those
            that the system trusts.
        certificate: file of our own certificate, for a Redis that asks its clients for one (`rediss` only).
        key: file of its private key.
    """

    password: str | None = field(default=None, repr=False)
    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def options(self, *, encrypted: bool) -> dict[str, Any]:
        """As keyword arguments of redis-py."""
        options: dict[str, Any] = {} if self.password is None else {"password": self.password}
        if encrypted:
            files = {"ssl_ca_certs": self.authority, "ssl_certfile": self.certificate, "ssl_keyfile": self.key}
            options |= {name: str(path) for name, path in files.items() if path is not None}
        return options
