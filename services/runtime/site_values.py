"""A site's values: a folder at the site with the labels and dense features of its samples, to which samples refer.

    values/north/about.json     the site, the columns with their rules, the number of samples, a digest
    values/north/values.f32     float32 [n, L + d], little-endian: the labels and dense features of each sample

`esd data site-values` writes it, the site's workers and its submitter read it. Rows are read where they lie, so that
the workers of a machine share the memory.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.columns import SampleColumns
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.domain.references import MOST_REFERRED_ROWS, key_of_digest
from esd.services.runtime.whole_files import make_folder, write_whole

_ABOUT, _VALUES = "about.json", "values.f32"
_FORMAT = 1
_FLOAT = np.dtype("<f4")
_DIGEST_BYTES = 32
_READ_BYTES = 1 << 22  # at a time, to compute a digest


def folder_of_site(folder: Path, site: str) -> Path:
    """Returns the folder of one site's values in the folder of all sites: its name, safe as the name of a folder."""
    return folder / quote(site, safe=" ").replace(".", "%2E")


def _digest(site: str, columns: SampleColumns) -> Any:
    """Returns a hash of the meaning of rows, to which the values are added."""
    described = json.dumps([_FORMAT, site, columns.labels, columns.dense, columns.rules])
    return hashlib.blake2b(described.encode(), digest_size=_DIGEST_BYTES)


class SiteValuesWriter:
    """Writes the values of one site, sample by sample; they can be read once `finish` has returned.

    Args:
        folder: a new folder for them.
        site: its name.
        columns: of the samples; their features do not matter.
    """

    def __init__(self, folder: Path, site: str, columns: SampleColumns) -> None:
        make_folder(folder)
        self._folder = folder
        self._site = site
        self._columns = columns
        self._digest = _digest(site, columns)
        self._samples = 0
        self._file = (folder / _VALUES).open("xb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, labels: NDArray[np.float32], dense: NDArray[np.float32]) -> None:
        """Adds the labels, float32 [k, L], and dense features, float32 [k, d], of the next samples.

        Raises:
            InvalidArgument: there are more than samples can refer to.
        """
        self._samples += len(labels)
        if self._samples > MOST_REFERRED_ROWS:
            raise InvalidArgument(f"site {self._site!r} has more than {MOST_REFERRED_ROWS} samples")
        rows = np.concatenate((labels, dense), axis=1, dtype=_FLOAT).tobytes()
        self._digest.update(rows)
        self._file.write(rows)

    def finish(self) -> int:
        """Makes the values complete, and returns how many samples they are of."""
        self._file.flush()
        about = {
            "format": _FORMAT,
            "site": self._site,
            "samples": self._samples,
            "labels": self._columns.labels,
            "dense": self._columns.dense,
            "rules": self._columns.rules,
            "digest": self._digest.hexdigest(),
        }
        write_whole(self._folder / _ABOUT, lambda file: file.write(json.dumps(about, indent=2).encode() + b"\n"))
        return self._samples


class SiteValues:
    """The labels and dense features of one site's samples.

    Args:
        folder: of this one site.

    Raises:
        FailedPrecondition: the folder has no values, or they are not complete.

    Attributes:
        folder: see above.
        site: its name.
        columns: of the samples, without features.
        key: of the values, by which references name them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            about = json.loads((folder / _ABOUT).read_bytes())
            self.site = str(about["site"])
            rules = tuple((str(name), str(value)) for name, value in about["rules"])
            self.columns = SampleColumns((), tuple(about["labels"]), tuple(about["dense"]), rules)
            self._digest = bytes.fromhex(about["digest"])
            samples, known = int(about["samples"]), about["format"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FailedPrecondition(
                f"{folder} has no values of a site ({type(error).__name__}: {error}): esd data site-values writes them"
            ) from None
        if known != _FORMAT:
            raise FailedPrecondition(f"{folder / _ABOUT} has the format {known}, this version reads {_FORMAT}")
        self.key = key_of_digest(self._digest)
        self._shape = samples, len(self.columns.labels) + len(self.columns.dense)
        found, expected = self._found_bytes(), _FLOAT.itemsize * samples * self._shape[1]
        if found != expected:
            raise FailedPrecondition(f"{folder / _VALUES} has {found} bytes, {samples} samples need {expected}")

    def __len__(self) -> int:
        """Returns n, the number of samples."""
        return self._shape[0]

    def __str__(self) -> str:
        return f"{self.folder} (key {self.key:06x}, {len(self)} samples)"

    @cached_property
    def _rows(self) -> NDArray[np.float32]:
        if not len(self):  # of which nothing can be mapped
            return np.empty(self._shape, _FLOAT)
        return np.memmap(self.folder / _VALUES, _FLOAT, "r", shape=self._shape)

    def _found_bytes(self) -> int:
        try:
            return (self.folder / _VALUES).stat().st_size
        except OSError as error:
            raise FailedPrecondition(f"{self.folder / _VALUES}: {error.strerror}") from None

    def check_content(self) -> None:
        """Reads all values. Raises FailedPrecondition if they are not as they were written."""
        digest = _digest(self.site, self.columns)
        with (self.folder / _VALUES).open("rb") as file:
            while some := file.read(_READ_BYTES):
                digest.update(some)
        if digest.digest() != self._digest:
            raise FailedPrecondition(f"{self.folder / _VALUES} has changed since it was written: copy it anew")

    def pick(self, rows: NDArray[np.int64] | slice) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Returns the labels, float32 [k, L], and dense features, float32 [k, d], of some rows, all below n."""
        picked, labels = self._rows[rows], len(self.columns.labels)
        return np.array(picked[:, :labels], np.float32), np.array(picked[:, labels:], np.float32)


def values_of_site(folder: Path, site: str) -> SiteValues:
    """Opens the values of one site in a folder of all sites.

    Raises:
        FailedPrecondition: it has none, or they are not complete or of another site.
    """
    values = SiteValues(folder_of_site(folder, site))
    if values.site != site:
        raise FailedPrecondition(f"{values.folder} has the values of site {values.site!r}, not of {site!r}")
    return values
