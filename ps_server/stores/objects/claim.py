"""The claim of a shard in an object store: an object that its server writes again and again.

A server that replaces it takes the shard over, with a term one above. A conditional write decides between two that try.
A server that is suspended and wakes up after a takeover notices at its next write: manifests are conditional writes,
too, and the few writes without a condition count only while the claim was renewed so lately that no other server can
have replaced it.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from dataclasses import asdict, dataclass, replace

from esd.ps_server.core.shard import Shard
from esd.ps_server.core.store import StoreLost
from esd.ps_server.stores.objects.bucket import Bucket, Changed, Version
from esd.ps_server.stores.processes import is_gone, this_process
from esd.services.domain.errors import EsdError, FailedPrecondition, StorageUnwritable, Unavailable

_log = logging.getLogger(__name__)

LIFETIME_SECONDS = 30.0  # without a renewal, after which another server may take over
RENEWAL_SECONDS = 5.0
_LOOK_SECONDS = 1.0
_SUFFIX = ".claim"


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of a claim.

    Attributes:
        term: number of the claim among all claims of its shard, from 1.
        holder: names the server; empty: it has given the shard back.
        process: of the server, as `this_process` has it.
        renewals: how often it was renewed, so that each content differs.
    """

    term: int
    holder: str
    process: str
    renewals: int = 0

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes, place: str) -> _Content:
        try:
            return cls(**json.loads(data))
        except (ValueError, TypeError):
            raise FailedPrecondition(f"{place} is damaged: it is no claim of a parameter server; remove it") from None


class Claim:
    """One server's claim of one shard. Thread-safe.

    Attributes:
        term: of the claim; 0: there is none.
        holder: the random name of this server; empty without a claim.
    """

    def __init__(self, bucket: Bucket, shard: Shard) -> None:
        """Does not claim yet."""
        self.term = 0
        self.holder = ""
        self._bucket = bucket
        self._shard = shard
        self._path = f"shard-{shard.index}-of-{shard.count}{_SUFFIX}"
        self._lock = threading.Lock()
        self._content: _Content | None = None
        self._version: Version = {}
        self._renewed = 0.0  # when the last renewal that has succeeded began

    def take(self, *, exclusive: bool) -> None:
        """Claims the shard. Waits for up to `LIFETIME_SECONDS` to learn whether its holder still renews it.

        Args:
            exclusive: raise at once instead of waiting.

        Raises:
            FailedPrecondition: another server holds the shard, or servers of another number of shards serve the tables.
        """
        with self._lock:
            before, version = self._free(self._path, exclusive=exclusive)
            started = time.monotonic()
            content = _Content(before.term + 1 if before else 1, secrets.token_hex(8), this_process().decode())
            try:
                self._version = self._bucket.put(self._path, content.encode(), version)
            except Changed:
                found = self._bucket.get(self._path)
                if found is None or found[0] != content.encode():  # else the answer was lost, and the claim is ours
                    raise FailedPrecondition(self._taken(self._path)) from None
                self._version = found[1]
            self._content, self._renewed = content, started
            self.term, self.holder = content.term, content.holder
        try:
            for path in self._bucket.within()[1]:
                if path.endswith(_SUFFIX) and not path.endswith(f"-of-{self._shard.count}{_SUFFIX}"):
                    self._free(path, exclusive=exclusive)
        except FailedPrecondition:
            self.release()
            raise

    def renew(self) -> None:
        """Renews the claim if it is due.

        Raises:
            StoreLost: another server has taken over.
            Unavailable: the object store is out of reach.
        """
        try:
            self._renew_after(RENEWAL_SECONDS)
        except StorageUnwritable as error:
            raise Unavailable(str(error)) from error

    def confirm(self) -> None:
        """Makes sure that no other server can have taken over. Raises StoreLost if one has."""
        self._renew_after(LIFETIME_SECONDS / 2)

    def release(self) -> None:
        """Gives the shard back. Does nothing without a claim, or if another server has taken over."""
        with self._lock:
            if self._content is not None:
                try:
                    self._put(replace(self._content, holder=""))
                except EsdError as error:  # whoever comes next waits until the claim has expired
                    _log.warning("%s", error)
            self._content = None
            self.term, self.holder = 0, ""

    def lost(self) -> StoreLost:
        """Returns the error of a server that was replaced."""
        return StoreLost(
            f"another process has taken over {self._path.removesuffix(_SUFFIX)} in {self._bucket.url}, after this "
            f"server's claim {self.term}; this server writes nothing there any more, stop it"
        )

    def _renew_after(self, seconds: float) -> None:
        with self._lock:
            if self._content is None:
                raise FailedPrecondition(f"{self._bucket.url}: this process has not claimed {self._path}")
            if time.monotonic() - self._renewed > seconds:
                started = time.monotonic()
                self._put(replace(self._content, renewals=self._content.renewals + 1))
                self._renewed = started

    def _put(self, content: _Content) -> None:
        """Replaces our claim. A write whose answer was lost counts as ours, too."""
        try:
            self._version = self._bucket.put(self._path, content.encode(), self._version)
        except Changed:
            self._version = self._version_of(content)
        self._content = content

    def _version_of(self, content: _Content) -> Version:
        """Replaces our claim although it has another version than we know. Raises StoreLost if it is not ours."""
        found = self._bucket.get(self._path)
        if found is None:
            raise self.lost()
        there = _Content.decode(found[0], self._bucket.place(self._path))
        if there.term != content.term:
            raise self.lost()
        if there == content:
            return found[1]
        try:
            return self._bucket.put(self._path, content.encode(), found[1])
        except Changed:
            raise self.lost() from None

    def _free(self, path: str, *, exclusive: bool) -> tuple[_Content | None, Version | None]:
        """Waits until no live server holds a claim; returns the claim and its version. Raises as `take`."""
        first: Version | None = None
        began = time.monotonic()
        while (found := self._bucket.get(path)) is not None:
            content = _Content.decode(found[0], self._bucket.place(path))
            ended = not content.holder or is_gone(content.process.encode())
            if ended or (found[1] == first and time.monotonic() - began > LIFETIME_SECONDS):
                return content, found[1]
            if exclusive or first not in (None, found[1]):
                raise FailedPrecondition(self._taken(path))
            if first is None:
                first, began = found[1], time.monotonic()
                _log.warning(
                    "%s was claimed by another process; waiting for up to %.0f s for its end",
                    self._bucket.place(path),
                    LIFETIME_SECONDS,
                )
            time.sleep(_LOOK_SECONDS)
            if self.term:  # so that of two servers that wait for each other each sees the other one live
                self.renew()
        return None, None

    def _taken(self, path: str) -> str:
        return (
            f"another process serves {path.removesuffix(_SUFFIX)} in {self._bucket.url}, or ended less than "
            f"{LIFETIME_SECONDS:.0f} s ago; stop it, or use another prefix"
        )
