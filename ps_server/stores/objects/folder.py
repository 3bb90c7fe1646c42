"""Files as objects that are never written twice.

The object of a file is named `<file>.<term>-<number>`, by the claim of its writer. So a server that was replaced cannot
overwrite a file of its successor, and a file that is replaced stays until no manifest names it.
"""

# ruff: noqa: D102 - the methods are documented in ps_server/stores/folders.py
from __future__ import annotations

import io
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import BinaryIO, NamedTuple

from esd.ps_server.stores.folders import Writable
from esd.ps_server.stores.objects.bucket import Bucket
from esd.ps_server.stores.objects.claim import Claim
from esd.services.domain.errors import EsdError, FailedPrecondition

_log = logging.getLogger(__name__)

_OBJECT = re.compile(r"(.+)\.([0-9]+)-([0-9]+)")


class StoredFile(NamedTuple):
    """The object of a file: its path in the bucket, and its bytes."""

    path: str
    size: int


class ObjectFolder:
    """A Folder of objects. Its names are known to this process alone, until a manifest has them. Thread-safe."""

    def __init__(self, bucket: Bucket, prefix: str, claim: Claim) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._claim = claim
        self._numbers = count()
        self._lock = threading.Lock()
        self._files: dict[str, StoredFile] = {}
        self._replaced: set[str] = set()  # paths that a manifest may name

    def place(self, name: str) -> str:
        found = self._files.get(name)
        return self._bucket.place(f"{self._prefix}/{name}" if found is None else found.path)

    def names(self) -> set[str]:
        with self._lock:
            return set(self._files)

    def size(self, name: str) -> int | None:
        found = self._files.get(name)
        return None if found is None else found.size

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        found = self._files.get(name)
        if found is None:
            raise FailedPrecondition(f"{self.place(name)} is missing")
        if not found.size:
            yield io.BytesIO()
            return
        with self._bucket.open(found.path, found.size) as file:
            yield file

    def write(self, name: str, write: Callable[[Writable], object]) -> int:
        if not self._claim.term:
            raise FailedPrecondition(f"{self.place(name)} cannot be written: this process has not claimed its shard")
        path = f"{self._prefix}/{name}.{self._claim.term}-{next(self._numbers)}"
        file = StoredFile(path, self._bucket.write(path, write))
        self._confirm()
        with self._lock:
            before = self._files.get(name)
            self._files[name] = file
            if before is not None:
                self._replaced.add(before.path)
        return file.size

    def remove(self, name: str) -> None:
        with self._lock:
            found = self._files.pop(name, None)
        if found is not None:
            self._drop(found.path)

    def named(self) -> tuple[Mapping[str, StoredFile], set[str]]:
        """Returns all files for a manifest, and the paths of no use once this manifest is in force."""
        with self._lock:
            return dict(self._files), set(self._replaced)

    def name(self, files: Mapping[str, StoredFile]) -> None:
        """Takes over the files that a manifest names."""
        with self._lock:
            self._files = dict(files)
            self._replaced.clear()

    def drop(self, paths: set[str]) -> None:
        """Removes objects that no manifest names any more."""
        with self._lock:
            self._replaced -= paths
        for path in paths:
            self._drop(path)

    def drop_unnamed(self) -> None:
        """Removes the objects of earlier servers that no manifest names: of a checkpoint that they did not finish."""
        named = {found.path for found in self._files.values()}
        for path in self._bucket.sizes(self._prefix):
            found = _OBJECT.fullmatch(path)
            if found is not None and path not in named and int(found[2]) < self._claim.term:
                self._drop(path)

    def _confirm(self) -> None:
        """Checks whether a file that is written may count: here a manifest decides that."""

    def _drop(self, path: str) -> None:
        try:
            self._bucket.remove(path)
        except EsdError as error:  # it costs space until the next server of this shard starts, and harms nothing
            _log.warning("an object of no use stays for the moment: %s", error)


class LogFolder(ObjectFolder):
    """A Folder without a manifest: an object counts as soon as it exists."""

    def __init__(self, bucket: Bucket, prefix: str, claim: Claim) -> None:
        super().__init__(bucket, prefix, claim)
        self._listed = False

    def names(self) -> set[str]:
        if not self._listed:
            self._list()
            self._listed = True
        return super().names()

    def remove(self, name: str) -> None:
        self._confirm()
        found = self._files.get(name)
        if found is not None:
            self._bucket.remove(found.path)
            with self._lock:
                self._files.pop(name, None)

    def _confirm(self) -> None:
        """Raises StoreLost if a successor may have read the log without this entry, or need it."""
        self._claim.confirm()

    def _list(self) -> None:
        """Reads the names of the entries.

        A server may have written an entry without an acknowledgement, because it was replaced or lost the connection.
        Of the entries that begin at one position the one that was written last counts.
        """
        latest: dict[str, tuple[int, int, str, StoredFile]] = {}
        for path, size in self._bucket.sizes(self._prefix).items():
            found = _OBJECT.fullmatch(path.removeprefix(f"{self._prefix}/"))
            if found is None:
                raise FailedPrecondition(
                    f"{self._bucket.place(path)} is not an entry of a sample log; remove it from this folder"
                )
            entry = int(found[2]), int(found[3]), found[1], StoredFile(path, size)
            position = found[1].partition("-")[0]
            latest[position] = max(entry, latest.get(position, entry))
        self.name({name: file for _, _, name, file in latest.values()})
