"""The manifest of a table on a shard: the record of its checkpoints, and the objects that they consist of.

It is one object, which a conditional write replaces: only the server that has read or written the present version can.
So it holds the state of one server at one moment, and all objects that it names exist.
"""

# ruff: noqa: D102 - the methods are documented in ps_server/core/store.py
from __future__ import annotations

import hashlib
import json
import threading
from typing import Any

from esd.ps_server.stores.objects.bucket import Bucket, Changed, Version
from esd.ps_server.stores.objects.claim import Claim
from esd.ps_server.stores.objects.folder import ObjectFolder, StoredFile
from esd.services.domain.errors import FailedPrecondition

MANIFEST = "manifest.json"


class ObjectHistory:
    """A HistoryStore of one manifest. Thread-safe."""

    def __init__(self, bucket: Bucket, prefix: str, claim: Claim, folder: ObjectFolder) -> None:
        self._bucket = bucket
        self._path = f"{prefix}/{MANIFEST}"
        self._claim = claim
        self._folder = folder
        self._lock = threading.Lock()
        self._version: Version | None = None
        self._record: str | None = None
        self._number = 0  # of the manifests that this process has tried to write

    def load(self) -> bytes | None:
        """Reads the manifest. With a claim it is written again, so that no earlier server can replace it any more."""
        with self._lock:
            found = self._bucket.get(self._path)
            if found is not None:
                content = self._decode(found[0])
                if self._claim.term and content["term"] > self._claim.term:
                    raise self._claim.lost()
                self._version, self._record = found[1], content["record"]
                self._folder.name({name: StoredFile(*file) for name, file in content["files"].items()})
            if self._claim.term:
                self._write(self._record)
                self._folder.drop_unnamed()
            return None if self._record is None else self._record.encode()

    def save(self, data: bytes) -> None:
        with self._lock:
            self._write(data.decode())

    def save_files(self) -> None:
        """Writes the manifest with the present files and the record as it was saved last."""
        with self._lock:
            self._write(self._record)

    def _write(self, record: str | None) -> None:
        files, unused = self._folder.named()
        self._number += 1
        content = {
            "term": self._claim.term,
            "writer": self._claim.holder,
            "number": self._number,
            "record": record,
            "files": files,
        }
        data = json.dumps({"manifest": content, "sha256": _checksum(content)}).encode()
        try:
            self._version = self._bucket.put(self._path, data, self._version)
        except Changed:
            self._version = self._version_of(data)
        self._record = record
        self._folder.drop(unused)

    def _version_of(self, data: bytes) -> Version:
        """Writes a manifest although there is another version than the last one known, if we have written that, too.

        A write may succeed and its answer be lost.

        Raises:
            StoreLost: another server has written it.
        """
        found = self._bucket.get(self._path)
        if found is None or self._decode(found[0])["writer"] != self._claim.holder:
            raise self._claim.lost()
        if found[0] == data:
            return found[1]
        try:
            return self._bucket.put(self._path, data, found[1])
        except Changed:
            raise self._claim.lost() from None

    def _decode(self, data: bytes) -> dict[str, Any]:
        try:
            document = json.loads(data)
            content: dict[str, Any] = document["manifest"]
            if document["sha256"] == _checksum(content):
                return content
        except (ValueError, TypeError, KeyError):
            pass
        raise FailedPrecondition(
            f"{self._bucket.place(self._path)} is damaged: its checksum differs ({len(data)} bytes are there). Give "
            "the bucket its data back, or begin anew with another prefix"
        )


def _checksum(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
