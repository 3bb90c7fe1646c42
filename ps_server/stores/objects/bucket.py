"""A bucket of an object store, or the part of it below a prefix; its errors advise the operator."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, BinaryIO

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import from_url

from esd.ps_server.stores.folders import Writable
from esd.services.domain.errors import FailedPrecondition, StorageUnwritable, Unavailable

_log = logging.getLogger(__name__)

_PIECE_SECONDS = 120  # for a request with a piece of an object
_SMALL_SECONDS = 10  # for any other one: pushes wait for the manifest, and callers give up after half a minute
_RETRY_SECONDS = 20  # in which a request that has failed is made again
_CONNECT_SECONDS = 5
_UPLOAD_BYTES = 16 << 20  # of a piece; S3 takes 10,000 pieces, so a file has at most 156 GiB
_UPLOADS = 2  # pieces under way at a time
_FIRST_BYTES = 64 << 10  # which are read with the size
_READ_BYTES = 8 << 20  # of each further request

Version = dict[str, Any]


class Changed(Exception):
    """An object is not as the condition of a write says: it exists, or was written since."""


class Bucket:
    """Objects by path. Thread-safe. A request that fails is repeated for `_RETRY_SECONDS`.

    The methods raise FailedPrecondition where the store refuses us or an object is missing, Unavailable where a reading
    request has no answer, and StorageUnwritable where a writing one has none.
    """

    def __init__(self, url: str) -> None:
        """Sends no request. The credentials come from the environment, in the variables of each cloud's own tools."""
        self.url = url.rstrip("/")
        plain = os.environ.get("AWS_ENDPOINT_URL_S3", os.environ.get("AWS_ENDPOINT_URL", "")).startswith("http://")

        def opened(seconds: int) -> Any:
            return from_url(
                self.url,
                client_options={
                    "timeout": timedelta(seconds=seconds),
                    "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
                    **({"allow_http": True} if plain else {}),
                },
                retry_config={"max_retries": 20, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)},
            )

        with self._errors(self.url):
            self._small = opened(_SMALL_SECONDS)
            self._pieces = opened(_PIECE_SECONDS)

    def place(self, path: str) -> str:
        """Returns the URL of an object."""
        return f"{self.url}/{path}"

    def get(self, path: str) -> tuple[bytes, Version] | None:
        """Returns a small object with its version; None if it does not exist."""
        with self._errors(path):
            try:
                found = obstore.get(self._small, path)
                return bytes(found.bytes()), _version(found.meta)
            except FileNotFoundError:
                return None

    def put(self, path: str, data: bytes, version: Version | None) -> Version:
        """Creates an object, or replaces this version of it. Raises Changed if there is another one."""
        with self._errors(path, writing=True):
            try:
                # A multipart upload takes no condition, so that it must be one request.
                mode: Any = "create" if version is None else version
                return _version(obstore.put(self._small, path, data, mode=mode, use_multipart=False))
            except (AlreadyExistsError, PreconditionError):
                raise Changed from None

    def write(self, path: str, write: Callable[[Writable], object]) -> int:
        """Creates an object under a path that nothing else is ever written to; returns its bytes."""
        with self._errors(path, writing=True):
            file = _Counted(
                obstore.open_writer(self._pieces, path, buffer_size=_UPLOAD_BYTES, max_concurrency=_UPLOADS)
            )
            write(file)
            file.close()  # after an error nothing closes it, so that no part of an object gets a name
            return file.size

    @contextmanager
    def open(self, path: str, size: int) -> Iterator[BinaryIO]:
        """Opens an object of so many bytes. Raises FailedPrecondition if it has another size."""
        with self._errors(path):
            try:
                found = obstore.get(self._pieces, path, options={"range": (0, min(size, _FIRST_BYTES))})
                there = found.meta["size"]
                first = bytes(found.bytes())
            except FileNotFoundError:
                raise FailedPrecondition(f"{self.place(path)} is missing") from None
            if there != size:
                raise FailedPrecondition(
                    f"{self.place(path)} is damaged: it has {there} bytes, and had {size} when it was written"
                )
            with io.BufferedReader(_Ranges(self._pieces, path, size, first), _READ_BYTES) as file:
                yield file

    def sizes(self, folder: str) -> dict[str, int]:
        """Returns the bytes of all objects below a folder, by path."""
        with self._errors(folder):
            return {found["path"]: found["size"] for page in obstore.list(self._small, folder) for found in page}

    def within(self, folder: str | None = None) -> tuple[list[str], list[str]]:
        """Returns the paths of the folders and of the objects directly in a folder; None: the topmost one."""
        with self._errors(folder or ""):
            try:
                found = obstore.list_with_delimiter(self._small, folder)
            except FileNotFoundError:
                raise FailedPrecondition(f"{self.url}: there is no such bucket; make it, or name another one") from None
            return list(found["common_prefixes"]), [each["path"] for each in found["objects"]]

    def remove(self, path: str) -> None:
        """Removes an object if it exists."""
        with self._errors(path, writing=True), suppress(FileNotFoundError):
            obstore.delete(self._small, path)

    @contextmanager
    def _errors(self, path: str, *, writing: bool = False) -> Iterator[None]:
        place = self.place(path)
        try:
            yield
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise FailedPrecondition(
                f"{place}: the object store refuses us ({_in_short(error)}); look at the credentials of this process, "
                "such as AWS_ACCESS_KEY_ID, and at the rights that they give"
            ) from error
        except (BaseError, OSError) as error:  # of an upload in pieces it is an OSError
            text = (
                f"{place}: {_in_short(error)}; a request that fails is repeated for {_RETRY_SECONDS} s. "
                "Look at the way to the object store and its address, such as AWS_ENDPOINT_URL "
                "and AWS_REGION"
            )
            raise (StorageUnwritable if writing else Unavailable)(text) from error


class _Counted:
    """An object that is being uploaded."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.size = 0

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self.size += len(data)

    def close(self) -> None:
        self._file.close()


class _Ranges(io.RawIOBase):
    """An object that is read in pieces, so that a slow reader holds no connection."""

    def __init__(self, store: Any, path: str, size: int, first: bytes) -> None:
        self._store = store
        self._path = path
        self._size = size
        self._first = first
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readall(self) -> bytes:
        """Reads the rest; the method of the base class would read 8 KiB by each request."""
        pieces = []
        piece = bytearray(_READ_BYTES)
        while length := self.readinto(piece):
            pieces.append(bytes(piece[:length]))
        return b"".join(pieces)

    def readinto(self, into: Any) -> int:
        end = min(self._at + len(into), self._size)
        if end <= self._at:
            return 0
        if self._at < len(self._first):
            data = self._first[self._at : end]
        else:
            data = bytes(obstore.get_range(self._store, self._path, start=self._at, end=end))
        into[: len(data)] = data
        self._at += len(data)
        return len(data)


def _version(found: Any) -> Version:
    """Returns the parts of an answer that identify the version of an object, as a condition takes them."""
    return {name: found[name] for name in ("e_tag", "version") if found.get(name)}


def _in_short(error: Exception) -> str:
    return str(error).partition("\n")[0].strip()
