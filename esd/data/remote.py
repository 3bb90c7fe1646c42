"""Files of data in object stores: `s3://BUCKET/PATH` and `gs://BUCKET/PATH`, read through pyarrow.

The stores' own variables and files name credentials, region and endpoint. A bucket that is open to all needs no
credentials: `s3://anonymous@BUCKET/PATH`.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeAlias

from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.extras import reader_module

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

_ADDRESS = re.compile(r"(s3|gs)://(anonymous@)?([^/*?\[\]]+)/*(.*)", re.DOTALL)
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")  # the variables for stores that are not of Amazon
_CONNECT_SECONDS, _ANSWER_SECONDS, _ATTEMPTS = 10, 60, 4
_WILD = re.compile(r"[*?\[]")
REQUEST_BYTES = 1 << 20  # of a file that is read from its beginning to its end


@dataclass(frozen=True)
class RemoteFile:
    """A file in an object store, with the parts of Path's interface by which files of data are read.

    Attributes:
        store: `s3://BUCKET/`.
        path: the rest of its address.
        info: the store's answer, when the file was found.
        system: the store.
    """

    store: str
    path: PurePosixPath
    info: FileInfo = field(compare=False, repr=False)
    system: FileSystem = field(compare=False, repr=False)

    def __str__(self) -> str:
        """Returns its address."""
        return f"{self.store}{self.path}"

    @property
    def name(self) -> str:
        """See Path.name."""
        return self.path.name

    @property
    def suffix(self) -> str:
        """See Path.suffix."""
        return self.path.suffix

    @property
    def suffixes(self) -> list[str]:
        """See Path.suffixes."""
        return self.path.suffixes

    @property
    def parent(self) -> PurePosixPath:
        """See Path.parent."""
        return self.path.parent

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of its address."""
        return (self.store, *self.path.parts)

    def open(self, _mode: str = "rb") -> io.BufferedReader:
        """Opens it to be read; each request asks for a MiB."""
        return io.BufferedReader(self.source(), REQUEST_BYTES)

    def source(self) -> Any:
        """Opens it as pyarrow does, for reads of any part.

        Raises:
            OSError: it is not there any more, or the store does not answer.
        """
        return self.system.open_input_file(self.info.path)

    def state(self) -> tuple[str, int, int]:
        """Asks the store for its state, which another content changes, its time in ns since 1970, and its bytes.

        Raises:
            OSError: it is not there any more, or the store does not answer.
        """
        (now,) = self.system.get_file_info([self.info.path])
        if not now.is_file:
            raise FileNotFoundError(f"{self} is not there any more")
        return f"{self} {now.size} {now.mtime_ns}", now.mtime_ns, now.size


DataFile: TypeAlias = Path | RemoteFile


def is_remote(text: str) -> bool:
    """Tells whether a text is an address and not a path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) is not None


def remote_files(address: str) -> Iterator[tuple[RemoteFile, PurePosixPath]]:
    """Yields the files of an address, in no order, each with its path below the folder that the address names.

    Args:
        address: of a file, of a folder, or a pattern as for files of this machine.

    Raises:
        InvalidArgument: it is no address of a file in a store that can be read, or pyarrow is missing.
        OSError: the store refuses or does not answer.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise InvalidArgument(
            f"data files {address!r} are remote: of remote files, s3://BUCKET/PATH and gs://BUCKET/PATH are read"
        )
    scheme, anonymous, bucket, rest = found.groups()
    pattern = PurePosixPath(rest).parts
    wild = next((at for at, part in enumerate(pattern) if _WILD.search(part)), len(pattern))
    system = _system(scheme, bucket, anonymous=bool(anonymous))
    prefix = "/".join([bucket, *pattern[:wild]])
    for info in _listed(system, prefix):
        file = RemoteFile(f"{scheme}://{bucket}/", PurePosixPath(info.path).relative_to(bucket), info, system)
        below = _below(file.path.parts, pattern)
        if below is not None:
            yield file, PurePosixPath(*below)


def _listed(system: FileSystem, prefix: str) -> Iterator[FileInfo]:
    (whole,) = system.get_file_info([prefix])
    if whole.is_file:
        yield whole
    else:
        found = system.get_file_info(_pyarrow_fs().FileSelector(prefix, recursive=True, allow_not_found=True))
        yield from (each for each in found if each.is_file)


def _system(scheme: str, bucket: str, *, anonymous: bool) -> FileSystem:
    """Returns the store of a bucket. The time of a request is bounded."""
    fs = _pyarrow_fs()
    if scheme == "gs":
        return fs.GcsFileSystem(anonymous=anonymous, retry_time_limit=timedelta(seconds=_ANSWER_SECONDS))
    endpoint = next(filter(None, map(os.environ.get, _ENDPOINTS)), None)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return fs.S3FileSystem(
        anonymous=anonymous,
        endpoint_override=endpoint,
        region=region or (None if endpoint else fs.resolve_s3_region(bucket)),
        connect_timeout=_CONNECT_SECONDS,
        request_timeout=_ANSWER_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
    )


def _pyarrow_fs() -> Any:
    return reader_module("pyarrow.fs", "a reader of remote files", "pyarrow", "tables")


def _below(path: Sequence[str], pattern: Sequence[str]) -> Sequence[str] | None:
    """Returns the parts of a path below the file or folder that a pattern names; None: the pattern names neither."""
    if not pattern:
        return path
    if pattern[0] == "**":
        ways = (_below(path[skipped:], pattern[1:]) for skipped in range(len(path)))
        return next((way for way in ways if way is not None), None)
    if not path or not fnmatchcase(path[0], pattern[0]):
        return None
    return _below(path[1:], pattern[1:])
