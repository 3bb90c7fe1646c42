"""The files of a model's folder, which appears whole or not at all.

schema.toml                 the columns of the samples, if the samples came by a schema
config.json                 the model, the run that trained it, versions and figures
dense.safetensors           parameters and buffers by name
model.pt2, model.onnx       the dense part: takes the embeddings of m samples, gives their scores
tables/NAME/ids.npy         uint64 [R], ascending
tables/NAME/rows.npy        float32 [R, D]
tables/NAME/versions.npy    int64 [R], how often each row was trained in its present life
history.parquet             the figures of the run over its iterations
MLmodel                     lets MLflow's registries and servers take the folder
SHA256SUMS                  of all other files, as `sha256sum --check SHA256SUMS` reads them
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from esd.services.domain.errors import InvalidArgument, NotFound
from esd.services.runtime.whole_files import DRAFT, make_folder, sync_folder
from esd.services.wire.trained_models import PARAMETERS

SCHEMA, CONFIG, HISTORY = "schema.toml", "config.json", "history.parquet"
MLMODEL, DIGESTS = "MLmodel", "SHA256SUMS"
TABLES, IDS, ROWS, VERSIONS = "tables", "ids.npy", "rows.npy", "versions.npy"
FORMAT = 1


class FolderWriter:
    """Writes the files of one model's folder, with their digests.

    Args:
        path: an empty folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._digests: dict[str, str] = {}

    @contextmanager
    def open(self, name: str) -> Iterator[HashedFile]:
        """Opens a new file below the folder; at the end of the block it is on the disk."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            hashed = HashedFile(file)
            yield hashed
            file.flush()
            os.fsync(file.fileno())
        self._digests[name] = hashed.digest

    def write(self, name: str, content: bytes) -> None:
        """Writes a new file below the folder."""
        with self.open(name) as file:
            file.write(content)

    def add(self, name: str) -> None:
        """Takes in a file that another program has written below the folder."""
        self._digests[name] = digest_of(self.path / name)

    def take(self, former: Path) -> None:
        """Takes the tables and parameters of another model's folder on the same file system, without a copy."""
        for name, digest in digests_of(former).items():
            if name == PARAMETERS or name.startswith(f"{TABLES}/"):
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                os.link(former / name, self.path / name)
                self._digests[name] = digest

    def finish(self) -> None:
        """Writes the file of digests, and syncs the entries of all folders."""
        lines = [f"{digest}  {name}\n" for name, digest in sorted(self._digests.items())]
        self.write(DIGESTS, "".join(lines).encode())
        for folder in {(self.path / name).parent for name in self._digests}:
            sync_folder(folder)


class HashedFile:
    """A file that is written from its beginning to its end, and its SHA-256."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def write(self, content: bytes | memoryview) -> int:
        """Appends bytes."""
        self._hash.update(content)
        return self._file.write(content)

    @property
    def digest(self) -> str:
        """The SHA-256 of the bytes so far, hexadecimal."""
        return self._hash.hexdigest()


@contextmanager
def new_folder(path: Path) -> Iterator[FolderWriter]:
    """Makes a model's folder at the end of the block; a former one at the path stays in place until then.

    Raises:
        InvalidArgument: the path names something else than a model's folder, which would be lost.
    """
    if path.exists() and not (path / CONFIG).is_file():
        raise InvalidArgument(f"{path} exists and is no folder of a model: name another one")
    make_folder(path.parent)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}{DRAFT}")
    draft.mkdir()
    try:
        writer = FolderWriter(draft)
        yield writer
        writer.finish()
        if path.exists():
            former = draft.with_suffix(".former")
            path.replace(former)
            draft.replace(path)
            shutil.rmtree(former)
        else:
            draft.replace(path)
    except BaseException:
        with suppress(OSError):
            shutil.rmtree(draft, ignore_errors=True)
        raise
    sync_folder(path.parent)


def read_config(folder: Path) -> dict[str, Any]:
    """Reads the file `config.json` of a model's folder, and checks the digests of all files but the tables.

    The files of tables may have any size, so that only `sha256sum --check SHA256SUMS` reads all of them.

    Raises:
        NotFound: the folder does not exist.
        InvalidArgument: it is no folder of a model, is damaged, or was written by another version.
    """
    if folder.suffix == ".npz":
        raise InvalidArgument(
            f"{folder} is a file of an earlier version, which wrote model.npz; a model is a folder now: repeat the "
            "command that trained it with its store, which exports a finished model again"
        )
    if not folder.is_dir():
        if folder.exists():
            raise InvalidArgument(f"{folder} is a file, a model is a folder")
        raise NotFound(f"model folder {folder} does not exist")
    if not (folder / DIGESTS).is_file() or not (folder / CONFIG).is_file():
        raise InvalidArgument(f"{folder} has no {CONFIG} and {DIGESTS}, so it is no folder of a model")
    for name, expected in digests_of(folder).items():
        if not name.startswith(f"{TABLES}/") and digest_of(folder / name) != expected:
            raise InvalidArgument(f"{folder / name} is damaged: its digest is not the one in {DIGESTS}")
    try:
        config: dict[str, Any] = json.loads((folder / CONFIG).read_bytes())
    except ValueError as error:
        raise InvalidArgument(f"{folder / CONFIG} is damaged: {error}") from None
    if config.get("format") != FORMAT:
        raise InvalidArgument(
            f"{folder} has format {config.get('format')}, this version reads {FORMAT}: load it with version "
            f"{config.get('versions', {}).get('esd', 'of ESD that wrote it')}"
        )
    return config


def digest_of(path: Path) -> str:
    """Returns the SHA-256 of a file, hexadecimal.

    Raises:
        InvalidArgument: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}") from None


def digests_of(folder: Path) -> dict[str, str]:
    """Returns the digests by name of the file."""
    found = {}
    for line in (folder / DIGESTS).read_text(errors="replace").splitlines():
        digest, _, name = line.partition("  ")
        if not name or len(digest) != 2 * hashlib.sha256().digest_size:
            raise InvalidArgument(f"{folder / DIGESTS} is damaged: it has the line {line[:80]!r}")
        found[name] = digest
    return found
