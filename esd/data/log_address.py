"""The address of a log: `redis+stream://HOST:PORT/KEY?from=2026-11-20&until=2026-11-21`, `kafka://HOST:PORT/TOPIC`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from esd.services.domain.errors import InvalidArgument

REDIS, KAFKA, NATS = "redis+stream", "kafka", "nats"
_ENCRYPTED = {"rediss+stream": REDIS, "kafka+tls": KAFKA, "nats+tls": NATS}
_BOUNDS = ("from", "until")
_OPTIONS = {REDIS: _BOUNDS, KAFKA: (*_BOUNDS, "partitions", "sasl"), NATS: _BOUNDS}
_SEVERAL_SERVERS = (KAFKA, NATS)  # of which any tells the others
_LONGEST_NAME = 512  # of a log: it stands in the fingerprint of the samples
_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\[\]:/@,]+):(\d{1,5})")


@dataclass(frozen=True, slots=True)
class LogAddress:
    """The parts of an address.

    Attributes:
        scheme: the kind of log, and whether the connection is encrypted.
        servers: `host:port` of each.
        user: name of the reader for the server; empty: none.
        name: of the log on its servers.
        first: where reading begins, as the kind of log writes it; empty: at the oldest message.
        until: where it ends, the first message that is not read; empty: never.
        partitions: numbers of the partitions that are read of a Kafka topic; empty: all.
        sasl: the mechanism by which a Kafka broker knows the user; empty: the default.
    """

    scheme: str
    servers: tuple[str, ...]
    user: str
    name: str
    first: str
    until: str
    partitions: tuple[int, ...] = ()
    sasl: str = ""

    def __str__(self) -> str:
        """Returns the address for people: without the options."""
        return f"{self.scheme}://{','.join(self.servers)}/{self.name}"

    @property
    def kind(self) -> str:
        """The scheme of an unencrypted connection to such a log."""
        return _ENCRYPTED.get(self.scheme, self.scheme)

    @property
    def encrypted(self) -> bool:
        """Whether the connection is by TLS."""
        return self.scheme in _ENCRYPTED

    @property
    def identity(self) -> str:
        """Names the log and the part of it that is read, wherever its server is; equal ones mean equal messages."""
        numbers = ",".join(map(str, self.partitions))
        named = {"partitions": numbers, "from": self.first, "until": self.until}
        part = "".join(f" {bound} {value}" for bound, value in named.items() if value)
        return f"{'topic' if self.kind == KAFKA else 'stream'} {self.name}{part}"


def is_log(text: str) -> bool:
    """Tells whether a text of `--data` is the address of a log."""
    scheme = text.partition("://")[0]
    return scheme in _OPTIONS or scheme in _ENCRYPTED


def parse_log(text: str) -> LogAddress:
    """Reads an address.

    Raises:
        InvalidArgument: a part is missing, unknown or too long, or a password stands in it.
    """
    shown = re.sub(r"//[^/@]*@", "//...@", text)
    try:
        url = urlsplit(text)
    except ValueError as error:
        raise InvalidArgument(f"data {shown!r}: {error}") from None
    kind = _ENCRYPTED.get(url.scheme, url.scheme)
    user, _, servers = url.netloc.rpartition("@")
    if ":" in user:
        raise InvalidArgument(
            f"data {shown!r}: a password would stand in the record of the run: write it to a file, and name that in "
            "ESD_SOURCE_PASSWORD_FILE"
        )
    name = unquote(url.path.removeprefix("/"))
    if not name or not _are_servers(servers, several=kind in _SEVERAL_SERVERS):
        more = "[,HOST:PORT...]" if kind in _SEVERAL_SERVERS else ""
        raise InvalidArgument(
            f"data {shown!r} is the address of a log, which is {url.scheme}://HOST:PORT{more}/NAME, with a port up to "
            "65535"
        )
    if len(name) > _LONGEST_NAME:
        raise InvalidArgument(f"data {shown[:80]!r}: a name of {len(name)} characters, at most {_LONGEST_NAME}")
    options = dict(parse_qsl(url.query, keep_blank_values=True))
    if unknown := sorted(options.keys() - set(_OPTIONS[kind])):
        taken = ", ".join(_OPTIONS[kind][:-1]) + " and " + _OPTIONS[kind][-1]
        raise InvalidArgument(f"data {shown!r}: {unknown[0]!r} is unknown; an address of such a log takes {taken}")
    first, until = (options.get(bound, "") for bound in _BOUNDS)
    partitions = _numbers(options.get("partitions", ""), shown)
    sasl = options.get("sasl", "")
    return LogAddress(url.scheme, tuple(servers.split(",")), unquote(user), name, first, until, partitions, sasl)


def _are_servers(text: str, *, several: bool) -> bool:
    servers = text.split(",")
    found = [_SERVER.fullmatch(each) for each in servers]
    return (several or len(servers) == 1) and all(each is not None and int(each[1]) <= 65535 for each in found)


def _numbers(text: str, shown: str) -> tuple[int, ...]:
    """Reads the numbers of partitions, `0,2`."""
    if not text:
        return ()
    parts = text.split(",")
    if not all(re.fullmatch(r"\d{1,9}", part) for part in parts) or len(set(parts)) < len(parts):
        raise InvalidArgument(f"data {shown!r}: partitions={text[:80]} are no different numbers, such as 0,2")
    return tuple(sorted(map(int, parts)))
