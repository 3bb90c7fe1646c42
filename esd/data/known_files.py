"""The files of a data set, whose content may not change between two readings of one run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from esd.data.hashing import file_fingerprint
from esd.data.remote import DataFile
from esd.services.domain.errors import InvalidArgument


class KnownFiles:
    """Files that are opened again and again: in each epoch, and when a restarted dispatcher gets the stream anew.

    A job is described by the content of its files. A file that was replaced meanwhile would bring the samples of
    another data set into the same model, so it is refused.

    Args:
        files: the files, in the order of the stream.
    """

    def __init__(self, files: Sequence[DataFile]) -> None:
        self._files = tuple(files)
        self._known: dict[DataFile, str] = {}

    @property
    def content(self) -> str:
        """Names the content of the files in their order, which are read for it. Later readings must find the same.

        Raises:
            InvalidArgument: a file has changed since an earlier call, or cannot be read.
        """
        content = hashlib.blake2b(digest_size=16)
        for file in self._files:
            content.update(f"{self.content_of(file)}\n".encode())
        return f"{len(self._files)} files {content.hexdigest()}"

    def content_of(self, file: DataFile) -> str:
        """Names the content of one file, which is read for it. Later readings must find the same.

        Raises:
            InvalidArgument: the file has changed since an earlier call, or cannot be read.
        """
        try:
            found = file_fingerprint(file)
        except OSError as error:
            raise InvalidArgument(f"data file {file} cannot be read: {error.strerror or error}") from None
        known = self._known.setdefault(file, found)
        if found != known:
            raise InvalidArgument(
                f"data file {file} has changed since this run began: it had {known}, now it has {found}. Leave the "
                "files of a run as they are, and write new samples to new files"
            )
        return found

    def expect_unchanged(self, file: DataFile) -> None:
        """Checks a file that is opened next. Files whose content nothing depends on yet may change.

        Raises:
            InvalidArgument: its content is not the content that was named.
        """
        if file in self._known:
            self.content_of(file)
