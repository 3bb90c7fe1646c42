"""The address of a log: `redis+stream://HOST:PORT/KEY?from=2026-11-20&until=2026-11-21`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from esd.services.domain.errors import InvalidArgument

_SCHEMES = ("redis+stream", "rediss+stream")
_BOUNDS = ("from", "until")
_LONGEST_NAME = 512  # of a log: it stands in the fingerprint of the samples


@dataclass(frozen=True, slots=True)
class LogAddress:
    """The parts of an address.

    Attributes:
        scheme: the kind of log.
        server: `host:port`.
        user: name of the reader for the server; empty: none.
        name: of the log on its server.
        first: where reading begins, as the kind of log writes it; empty: at the oldest message.
        until: where it ends, the first message that is not read; empty: never.
    """

    scheme: str
    server: str
    user: str
    name: str
    first: str
    until: str

    def __str__(self) -> str:
        """Returns the address for people: without the bounds."""
        return f"{self.scheme}://{self.server}/{self.name}"

    @property
    def bounds(self) -> str:
        """Names the bounds; empty: there are none."""
        named = {"from": self.first, "until": self.until}
        return "".join(f" {bound} {value}" for bound, value in named.items() if value)


def is_log(text: str) -> bool:
    """Tells whether a text of `--data` is the address of a log."""
    return text.partition("://")[0] in _SCHEMES


def parse_log(text: str) -> LogAddress:
    """Reads an address.

    Raises:
        InvalidArgument: a part is missing, unknown or too long, or a password stands in it.
    """
    shown = re.sub(r"//[^/@]*@", "//...@", text)
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError as error:
        raise InvalidArgument(f"data {shown!r}: {error}") from None
    if url.password is not None:
        raise InvalidArgument(
            f"data {shown!r}: a password would stand in the record of the run: write it to a file, and name that in "
            "ESD_SOURCE_PASSWORD_FILE"
        )
    name = unquote(url.path.removeprefix("/"))
    if not url.hostname or port is None or not name:
        raise InvalidArgument(f"data {shown!r} is the address of a log, which is {url.scheme}://HOST:PORT/NAME")
    if len(name) > _LONGEST_NAME:
        raise InvalidArgument(f"data {shown[:80]!r}: a name of {len(name)} characters, at most {_LONGEST_NAME}")
    options = dict(parse_qsl(url.query, keep_blank_values=True))
    if unknown := sorted(options.keys() - set(_BOUNDS)):
        raise InvalidArgument(f"data {shown!r}: {unknown[0]!r} is unknown; an address of a log takes from and until")
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    first, until = (options.get(bound, "") for bound in _BOUNDS)
    return LogAddress(url.scheme, f"{host}:{port}", unquote(url.username or ""), name, first, until)
