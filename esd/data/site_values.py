"""Data whose labels and dense features stay at their sites: written once as each site's values, then referred to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from esd.data.dataset import Dataset, columns_of
from esd.data.derived import DerivedDataset
from esd.data.positions import forgets
from esd.data.sites import at_sites
from esd.services.domain.batches import SampleBatch
from esd.services.domain.columns import SampleColumns
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.references import references_to
from esd.services.domain.sites import site_key
from esd.services.runtime.site_values import SiteValues, SiteValuesWriter, folder_of_site, values_of_site


def write_site_values(dataset: Dataset, sites: Sequence[str], folder: Path) -> dict[str, int]:
    """Writes the labels and dense features of all samples, each site's into a folder of its own.

    Args:
        dataset: the samples, in the order in which they will be trained before any shuffling.
        sites: the names of the sites.
        folder: is made, with a folder for each site.

    Returns:
        The number of samples of each site.

    Raises:
        InvalidArgument: the folder has something already, the samples cannot be read again, or one is malformed or of
            another site.
    """
    _check_stays(dataset)
    if folder.exists() and any(folder.iterdir()):
        raise InvalidArgument(f"{folder} has files already: name a new folder with --out")
    sited, columns = at_sites(dataset, sites), _columns(dataset)
    names = {site_key(site): site for site in sites}
    with ExitStack() as stack:
        writers = {
            key: stack.enter_context(SiteValuesWriter(folder_of_site(folder, site), site, columns))
            for key, site in names.items()
        }
        for batch in sited:
            batch.check_numbers()
            for key, rows in _by_site(batch, names):
                writers[key].add(batch.labels[rows], batch.dense[rows])
        return {names[key]: writer.finish() for key, writer in writers.items()}


class ByReference(DerivedDataset):
    """A `Dataset` of the same samples with references in place of labels and dense features.

    Each sample is compared with the values to which it refers, so no label of another sample is ever trained.

    Args:
        source: the samples, in the order in which `write_site_values` saw them.
        folder: the folder that it has written; of sites without samples here it may have none.
        sites: the names of the sites.

    Raises:
        InvalidArgument: the samples cannot be read again, or the values have other columns or rules.
        FailedPrecondition: the folder has no values, or they are not complete.
    """

    def __init__(self, source: Dataset, folder: Path, sites: Sequence[str]) -> None:
        _check_stays(source)
        super().__init__(source)
        self._folder = folder
        self._names = {site_key(site): site for site in sites}
        there = [site for site in dict.fromkeys(sites) if folder_of_site(folder, site).exists()]
        if not there:
            raise InvalidArgument(f"{folder} has no folder of a site (--site-values): esd data site-values writes it")
        self._values = {site_key(site): _values_like(source, folder, site) for site in there}

    @property
    def fingerprint(self) -> str:
        """Names the samples, and says that parts of them are elsewhere: samples with and without cannot be mixed."""
        return f"{self._source.fingerprint}; by reference"

    def __iter__(self) -> Iterator[SampleBatch]:
        """Reads all samples.

        Raises:
            InvalidArgument: a sample is not the one whose values it refers to, or is of a site without values here.
        """
        seen = Counter[int]()
        for batch in self._source:
            references = np.empty(len(batch), np.uint64)
            for key, rows in _by_site(batch, self._names):
                references[rows] = self._references(key, seen[key], batch.labels[rows], batch.dense[rows])
                seen[key] += len(rows)
            nothing = np.empty((len(batch), 0), np.float32)
            yield replace(batch, labels=nothing, dense=nothing, references=references, source=None)

    def _references(
        self, key: int, first: int, labels: NDArray[np.float32], dense: NDArray[np.float32]
    ) -> NDArray[np.uint64]:
        """Returns references to the rows of a site from `first` on, whose values must be these."""
        values, end = self._values.get(key), first + len(labels)
        if values is None:
            raise InvalidArgument(f"{self._folder} has no values of site {self._names[key]!r}: {_ANEW}")
        if end > len(values):
            raise InvalidArgument(f"site {values.site!r} has more samples than {values}: {_ANEW}")
        for given, kept in zip((labels, dense), values.pick(slice(first, end)), strict=True):
            other = (given.view(np.uint32) != kept.view(np.uint32)).any(axis=1)
            if other.any():
                raise InvalidArgument(
                    f"sample {first + int(np.argmax(other))} of site {values.site!r} has another label or dense "
                    f"feature than {values}: {_ANEW}"
                )
        return references_to(values.key, np.arange(first, end))


_ANEW = "write the values anew by esd data site-values, and give every site its part"


def _values_like(dataset: Dataset, folder: Path, site: str) -> SiteValues:
    """Opens the values of a site, which must have the columns of the data."""
    values = values_of_site(folder, site)
    if values.columns != _columns(dataset):
        raise InvalidArgument(f"{values} has other columns or rules than the data: {_ANEW}")
    return values


def _by_site(batch: SampleBatch, names: Mapping[int, str]) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yields the key of each site in a batch, which must be among these, with the places of its samples."""
    if batch.sites is None:
        raise InvalidArgument("samples have no sites, at which their labels could stay: name the column as `site`")
    for key in np.unique(batch.sites).tolist():
        if key not in names:
            raise InvalidArgument(
                f"a sample is of the site with the key {key}, the sites are {', '.join(map(repr, names.values()))} "
                "(--sites)"
            )
        yield key, np.flatnonzero(batch.sites == key)


def _columns(dataset: Dataset) -> SampleColumns:
    """Returns the columns of a data set without its features, and with the rules of its schema."""
    schema = getattr(dataset, "schema", None)
    return replace(columns_of(dataset) if schema is None else schema.sample_columns, features=())


def _check_stays(dataset: Dataset) -> None:
    """Refuses samples that have no numbers which are the same at every reading."""
    if dataset.endless or forgets(dataset):
        raise InvalidArgument(
            f"{dataset.name} has no last sample, and labels stay at sites where samples have numbers: read files"
        )
